"""The entry point `gpt1`: finds the command by its name and imports it only then.

setup.py installs this folder also as `gpt1_entry`, beside `modeling_gpt1` and not inside it: importing a module of
`modeling_gpt1` brings torch and transformers, which take seconds, and the help needs neither.
"""

import difflib
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

COMMANDS = {
    "pretrain": "pre-train GPT-1 on books or any other text, with a BPE of its own",
    "finetune": "fine-tune on a task of the paper or on files of your own, evaluate, predict",
    "generate": "continue texts, at the terminal or in batches",
    "zero-shot": "answer tasks without fine-tuning, by the paper's heuristics",
    "convert": "convert between OpenAI's release, openai-gpt and gpt1",
    "plot": "draw the curves of training runs",
    "reproduce": "run the paper's experiments and report them beside the paper's figures",
    "playground": "open a page in the browser that shows how a model reads",
}
HELP = "\n".join(
    [
        "usage: gpt1 COMMAND [ARGUMENTS]",
        "",
        *(f"  {name:<12}{what}" for name, what in COMMANDS.items()),
        "",
        "gpt1 COMMAND --help lists the arguments of a command.",
        "gpt1 --launch-configs prints the folder of the launch configurations for accelerate.",
    ]
)


def main(arguments: list[str] | None = None) -> None:
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(HELP)
    elif name == "--launch-configs":
        print(Path(find_spec("modeling_gpt1").origin).parent / "commands" / "accelerate")
    elif name in COMMANDS:
        sys.argv[:] = [f"gpt1 {name}", *rest]  # what argparse says in its usage
        import_module(f"modeling_gpt1.commands.{name.replace('-', '_')}").main(rest)
    else:
        refuse(name)


def refuse(name: str) -> None:
    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), COMMANDS, n=1, cutoff=0)[0]
    print(f"gpt1: there is no command {name!r}; the nearest is {nearest!r}. See gpt1 --help.", file=sys.stderr)
    sys.exit(2)

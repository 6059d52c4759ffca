"""The entry point `gpt1`: finds the command by its name, checks its flags, and imports it only then.

setup.py installs this folder also as `gpt1_entry`, beside `modeling_gpt1` and not inside it: importing a module of
`modeling_gpt1` brings torch and transformers, which take seconds, and neither the help nor a wrong flag needs them.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

COMMANDS = {
    "pretrain": "pre-train GPT-1 on books or any other text, with a BPE of its own",
    "finetune": "fine-tune on a task of the paper or on files of your own, evaluate, predict",
    "predict": "predict the class, score or choice of each row of a file with a fine-tuned model",
    "generate": "continue texts, at the terminal or in batches",
    "evaluate": "evaluate with lm-evaluation-harness, on the hub's rows or on files",
    "zero-shot": "answer tasks without fine-tuning, by the paper's heuristics",
    "convert": "convert between OpenAI's release, openai-gpt and gpt1",
    "plot": "draw the curves of training runs",
    "reproduce": "run the paper's experiments and report them beside the paper's figures",
    "playground": "open a page in the browser that shows how a model reads",
    "env": "print what a bug report needs: versions, devices, attention kernels, extras",
    "completion": "print the script that completes commands and flags in bash, zsh or fish",
}
HELP = "\n".join(
    [
        "usage: gpt1 COMMAND [ARGUMENTS]",
        "",
        *(f"  {name:<12}{what}" for name, what in COMMANDS.items()),
        "",
        "gpt1 COMMAND --help lists the arguments of a command. Each takes --config FILE (.yaml or .json), which flags",
        "override, and --debug, which shows the traceback of an error.",
        "gpt1 --launch-configs prints the folder of the launch configurations for accelerate.",
        "gpt1 --version prints the version.",
    ]
)


def main(arguments: list[str] | None = None) -> None:
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(HELP)
    elif name == "--version":
        print(f"gpt1 {installed_version()}")
    elif name == "--launch-configs":
        print(Path(find_spec("modeling_gpt1").origin).parent / "commands" / "accelerate")
    elif name in COMMANDS:
        run(name, rest)
    else:
        refuse(name)


def run(name: str, words: list[str]) -> None:
    """Runs a command. A mistake of the user ends it with one sentence and exit code 2."""
    from .errors import one_sentence
    from .flags import take_debug

    write_utf8()
    words, debug = take_debug(name, words)
    with one_sentence(name, debug):
        if name == "completion":
            from .completion import print_script

            return print_script(words)
        from .flags import prepare

        words = prepare(name, words)
        sys.argv[:] = [f"gpt1 {name}", *words]  # what libraries show as the command line
        import_module(f"modeling_gpt1.commands.{name.replace('-', '_')}").main(words)


def installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gpt1-hf")
    except PackageNotFoundError:
        return "(not installed: run from a checkout)"


def write_utf8() -> None:
    """Makes piped output UTF-8 on Windows too, where Python would use the system's encoding."""
    if sys.platform == "win32" and "PYTHONIOENCODING" not in os.environ:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if not stream.isatty():
                stream.reconfigure(encoding="utf-8")


def refuse(name: str) -> None:
    import difflib

    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), COMMANDS, n=1, cutoff=0)[0]
    print(f"gpt1: unknown command {name!r}; the closest is {nearest!r}. See gpt1 --help.", file=sys.stderr)
    sys.exit(2)

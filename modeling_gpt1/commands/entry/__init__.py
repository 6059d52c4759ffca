"""The entry point `gpt1`: finds the command by its name, imports it only then, and reports errors in one sentence.

setup.py installs this folder also as `gpt1_entry`, beside `modeling_gpt1` and not inside it: importing a module of
`modeling_gpt1` brings torch and transformers, which take seconds, and the help does not need them.
"""

import difflib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
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
    "push": "upload a run to the hub, its saved checkpoints to branches",
    "convert": "convert between OpenAI's release, openai-gpt and gpt1",
    "plot": "draw the curves of training runs",
    "reproduce": "run the paper's experiments and report them beside the paper's figures",
    "playground": "open a page in the browser that shows how a model reads",
    "env": "print what a bug report needs: versions, devices, extras",
    "completion": "print the script that completes commands and flags in bash, zsh or fish",
}
COMMAND_LINES = "\n".join(f"  {name:<12}{what}" for name, what in COMMANDS.items())
HELP = f"""usage: gpt1 COMMAND [ARGUMENTS]

{COMMAND_LINES}

gpt1 COMMAND --help lists the flags of a command. Each takes --config FILE (.yaml or .json), which flags
override, and --debug, which shows the traceback of an error.
gpt1 --launch-configs prints the folder of the launch configurations for accelerate.
gpt1 --version prints the version."""
USAGE, INTERRUPTED = 2, 130  # exit codes, as in shells
# Packages that may be missing, with the extra that installs each.
EXTRAS = {"lm_eval": "eval", "scipy": "reproduce", "sklearn": "reproduce", "matplotlib": "plot", "peft": "peft"}
# The packages raise these types with a sentence for the user.
OF_USERS = (ValueError, ImportError, FloatingPointError, OSError)


def main(arguments: list[str] | None = None) -> None:
    for stream in (sys.stdout, sys.stderr):  # of another encoding, they would refuse some texts
        if hasattr(stream, "reconfigure"):  # not None, nor a stand-in
            stream.reconfigure(encoding="utf-8")
    name, *words = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    answers = {
        "-h": lambda: HELP,
        "--help": lambda: HELP,
        "--version": lambda: f"gpt1 {import_module('importlib.metadata').version('gpt1-hf')}",  # takes its time
        "--launch-configs": lambda: Path(find_spec("modeling_gpt1").origin).parent / "commands" / "accelerate",
    }
    if name in answers:
        with one_sentence(name, False):
            print(answers[name](), flush=True)
    elif name in COMMANDS:
        debug = "--debug" in words
        words = [word for word in words if word != "--debug"]
        with one_sentence(name, debug):
            sys.argv[:] = [f"gpt1 {name}", *words]  # what libraries show as the command line
            import_module(f"modeling_gpt1.commands.{name.replace('-', '_')}").main(words)
    else:
        near = difflib.get_close_matches(name.lower().replace("_", "-"), COMMANDS, n=1)
        hint = f"the closest is {near[0]!r}" if near else "write a command first, such as 'generate'"
        print(f"gpt1: unknown command {name!r}; {hint}. See gpt1 --help.", file=sys.stderr)
        sys.exit(USAGE)


@contextmanager
def one_sentence(command: str, debug: bool) -> Iterator[None]:
    """Context in which a user's error or an interruption ends the process with one line on stderr.

    The line begins with the command's name; to debug, the traceback is printed before it.
    """
    try:
        yield
    except KeyboardInterrupt as interruption:
        end(command, f"interrupted{interruption}.", INTERRUPTED)
    except BrokenPipeError:  # the reader of the output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        if debug:
            traceback.print_exception(error)
        if (arguments := sys.modules.get("modeling_gpt1.commands.arguments")) is not None:
            sentence = arguments.with_flags(arguments.parser_of(command), sentence)
        end(command, sentence, USAGE)


def end(command: str, sentence: str, code: int) -> None:
    # Each launched process names its rank: the other processes may not know of its error.
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    who = f"gpt1 {command}" if size == "1" else f"gpt1 {command}, process {rank} of {size}"
    print(f"{who}: {sentence}", file=sys.stderr)
    sys.exit(code)


def sentence_of(error: Exception) -> str | None:
    """The sentence that the user is shown, or None for a mistake in the code, which keeps its traceback."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        extra = EXTRAS[error.name]
        return f"{error.name} is not installed. Install it, or install this package with the extra {extra!r}."
    if "Error while serializing" in str(error):
        return f"{error}. Make room, or pass another folder."
    if type(error).__name__ in ("SafetensorError", "JSONDecodeError"):
        return f"A file cannot be read: {error}. It is damaged. Copy or download the folder again."
    last = traceback.extract_tb(error.__traceback__)[-1]
    # What no `raise` statement raised, such as the ValueError of int("x"), the calling code did not expect.
    is_meant = isinstance(error, OF_USERS) and ((last.line or "").startswith("raise") or isinstance(error, OSError))
    hub = sys.modules.get("huggingface_hub.errors")  # imported wherever the hub is asked
    if not is_meant and not (hub is not None and isinstance(error, (hub.HTTPError, hub.StrictDataclassError))):
        return None
    if isinstance(error.__cause__, ValueError) and hub is not None and isinstance(error, hub.StrictDataclassError):
        return str(error.__cause__)  # of a configuration, behind the name of the check that raised it
    if {"modeling_gpt1", "tokenization"} & set(Path(last.filename).parts[:-1]):
        return str(error)
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return f"{text}. Pass --debug to see the traceback."

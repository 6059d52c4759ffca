"""The entry point `gpt1`: finds a command by its name, imports it only then, and shows a user's error as a sentence.

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
    "pretrain": "pre-train GPT-1, or a model of another family, on books or any other text",
    "finetune": "fine-tune on a task of the paper or on your own files, evaluate, predict",
    "predict": "predict the class, score or choice of each row of a file with a fine-tuned model",
    "generate": "continue texts, in the terminal or in batches",
    "evaluate": "evaluate with lm-evaluation-harness, on rows of the hub or of files",
    "zero-shot": "evaluate without fine-tuning, with the paper's heuristics",
    "surprisal": "write how unexpected each word of texts is, in bits",
    "push": "upload a run to the hub, and its saved checkpoints to branches",
    "convert": "convert between OpenAI's release, openai-gpt, gpt1 and JavaScript",
    "plot": "draw the curves of training runs",
    "reproduce": "run the paper's experiments and report them beside the paper's figures",
    "overlap": "report how much of a task's rows a pre-training text holds",
    "serve": "answer requests over HTTP: continue texts, or predict rows with a fine-tuned model",
    "playground": "open a page in the browser that shows how a model reads",
    "env": "print what a bug report needs: versions, devices, extras; or check a run's checkpoints",
    "completion": "print the script that completes commands and flags in bash, zsh or fish",
}
COMMAND_LINES = "\n".join(f"  {name:<12}{what}" for name, what in COMMANDS.items())
HELP = f"""usage: gpt1 COMMAND [ARGUMENTS]

{COMMAND_LINES}

Each command takes:
  --help      list its flags
  --config    read settings from a .yaml or .json file; flags override them
  --debug     show the traceback of an error

gpt1 --launch-configs prints the folder of the launch configurations for accelerate.
gpt1 --version prints the version."""
QUESTIONS = ("-h", "--help", "--version", "--launch-configs")
FAILED = 1  # exit codes, as in shells
USAGE = 2
INTERRUPTED = 130
# Packages that may be missing, with the extra that installs each.
EXTRAS = {
    "ftfy": "clean",
    "lm_eval": "eval",
    "matplotlib": "plot",
    "peft": "peft",
    "scipy": "reproduce",
    "sklearn": "reproduce",
}
HOW_TO_DEBUG = "Pass --debug to see the traceback."


def main(arguments: list[str] | None = None) -> None:
    print_any_text()
    words = sys.argv[1:] if arguments is None else arguments
    name, *words = words or ["--help"]
    if name == "help":  # gpt1 help finetune
        name, *words = [*words[:1], "--help", *words[1:]]
    if name in QUESTIONS:
        with one_sentence(name, debug=False):
            print(answer_to(name), flush=True)
    elif name in COMMANDS:
        run(name, words)
    else:
        refuse(name)


def answer_to(question: str) -> str:
    """What is printed for a flag in place of a command."""
    if question == "--version":
        return f"gpt1 {import_module('importlib.metadata').version('gpt1-hf')}"  # an import that takes its time
    if question == "--launch-configs":
        return str(Path(find_spec("modeling_gpt1").origin).parent / "commands" / "accelerate")
    return HELP


def print_any_text() -> None:
    """Makes the streams write UTF-8: in another encoding they would refuse some texts."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not None, nor a stand-in
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def run(name: str, words: list[str]) -> None:
    """Imports a command and runs it with its words."""
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    check_encoding(name, words)
    with one_sentence(name, debug):
        sys.argv[:] = [f"gpt1 {name}", *words]  # what libraries show as the command line
        import_module(f"modeling_gpt1.commands.{name.replace('-', '_')}").main(words)


def check_encoding(command: str, words: list[str]) -> None:
    """Refuses words that Python could not decode, such as a file's name under PYTHONUTF8=0: libraries fail on them."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            name = os.fsencode(word).decode(errors="replace")
            encoding = sys.getfilesystemencoding()
            how = "Set PYTHONUTF8=1, or use names of ASCII letters alone"
            end(command, f"{name} cannot be read: Python decodes the command line as {encoding} here. {how}.", USAGE)


def refuse(name: str) -> None:
    """Says which command is the closest to a name that is none."""
    near = difflib.get_close_matches(name.lower().replace("_", "-"), COMMANDS, n=1)
    hint = f"the closest is {near[0]!r}" if near else "write a command first, such as 'generate'"
    print(f"gpt1: unknown command {name!r}; {hint}. See gpt1 --help.", file=sys.stderr)
    sys.exit(USAGE)


@contextmanager
def one_sentence(command: str, debug: bool) -> Iterator[None]:
    """Context in which a user's error or an interruption ends the process with one line on stderr.

    The line begins with the command's name. To debug, the traceback is printed before it.
    """
    try:
        yield
    except KeyboardInterrupt as interruption:
        end(command, f"interrupted{interruption}.", INTERRUPTED)
    except BrokenPipeError:  # the reader of the output, such as `head`, has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        if debug:
            traceback.print_exception(error)
        end(command, with_flags_of(command, sentence), USAGE)


def with_flags_of(command: str, sentence: str) -> str:
    """The sentence with a command's flags in place of the library's arguments, once the command is imported."""
    arguments = sys.modules.get("modeling_gpt1.commands.arguments")
    if arguments is None:
        return sentence
    return arguments.with_flags(arguments.parser_of(command), sentence)


def end(command: str, sentence: str, code: int) -> None:
    # Each launched process names its rank: the other processes may not know of its error.
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    who = f"gpt1 {command}" if size == "1" else f"gpt1 {command}, process {rank} of {size}"
    print(f"{who}: {sentence}", file=sys.stderr)
    sys.exit(code)


# ---- Which errors are the user's


def sentence_of(error: Exception) -> str | None:
    """The sentence that the user is shown, or None for a mistake in the code, which keeps its traceback."""
    if is_for_users(error):
        return str(error)
    if is_of_a_configuration(error) and is_for_users(error.__cause__):
        return str(error.__cause__)  # otherwise behind the name of the check that raised it
    if isinstance(error, ImportError):
        return sentence_of_import(error)
    if "Error while serializing" in str(error):  # safetensors, which names no file
        return f"{error}. Make room, or pass another folder."
    if type(error).__name__ in ("SafetensorError", "JSONDecodeError"):
        return f"A file cannot be read: {error}. It is damaged. Copy or download the folder again."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, OSError) or is_of_the_hub(error):
        return in_one_line(error)
    return None


def is_for_users(error: BaseException | None) -> bool:
    """Whether the error is a `UserError`: of `tokenization`, or of the files that travel with a model.

    The class is known by its name, because the entry imports neither, and each folder of a model brings its own.
    """
    return any(kind.__name__ == "UserError" for kind in type(error).__mro__)


def is_of_a_configuration(error: Exception) -> bool:
    """Whether a check of a configuration's fields failed, whose reason is the error's cause."""
    return any(kind.__name__ == "StrictDataclassError" for kind in type(error).__mro__)


def is_of_the_hub(error: Exception) -> bool:
    """Whether a request to the hub failed. Some errors of its client's HTTP library are no OSError."""
    errors = sys.modules.get("huggingface_hub.errors")  # imported before any request
    return errors is not None and isinstance(error, errors.HTTPError)


def sentence_of_import(error: ImportError) -> str | None:
    """The sentence for a package that is missing; None where an import in the code is wrong."""
    if error.name in EXTRAS:
        extra = EXTRAS[error.name]
        return f"{error.name} is not installed. Install it, or install this package with the extra {extra!r}."
    # A failed import statement fills in the name. A library that asks for a package writes only a sentence.
    return in_one_line(error) if error.name is None else None


def in_one_line(error: Exception) -> str:
    """The text of a library's error, which may have several lines, and how to find where it was raised."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return f"{text}. {HOW_TO_DEBUG}"

"""Reports errors: one sentence for a user's mistake, a traceback for a mistake in the code."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USAGE, INTERRUPTED = 2, 130  # exit codes, as in shells
# Packages that may be missing, with the extra that installs each.
EXTRAS = {"lm_eval": "eval", "matplotlib": "plot"}
# The packages raise these types with a sentence for the user.
OF_USERS = (ValueError, ImportError, FloatingPointError)
# Files of transformers that raise other types with a sentence for the user, each with that type: a package that
# --report_to needs is missing, and --metric_for_best_model is not among the metrics.
OF_USERS_IN = {
    ("transformers", "integrations", "integration_utils.py"): RuntimeError,
    ("transformers", "trainer.py"): KeyError,
}


@contextmanager
def one_sentence(command: str, debug: bool) -> Iterator[None]:
    """Context in which a user's error or an interruption ends the process with one line on stderr.

    Args:
        command: the command's name, with which the line begins.
        debug: whether the traceback is printed before the line.
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
        end(command, sentence, USAGE)


def end(command: str, sentence: str, code: int) -> None:
    # Each launched process names its rank: the other processes may not know of its error.
    rank, size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    who = f"gpt1 {command}" if size == "1" else f"gpt1 {command}, process {rank} of {size}"
    print(f"{who}: {sentence}", file=sys.stderr, flush=True)
    sys.exit(code)


def sentence_of(error: Exception) -> str | None:
    """The sentence that the user is shown, or None for a mistake in the code.

    A ValueError from a `raise` statement is written for the user. A ValueError from Python itself or from a C library
    means that the calling code did not expect it.
    """
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        extra = EXTRAS[error.name]
        return f"{error.name} is not installed. Install it, or install this package with the extra {extra!r}."
    if is_of_network(error):
        return f"{on_one_line(error)}. Pass --debug to see the traceback."
    if type(error).__name__ == "SafetensorError":
        return (
            f"The weights cannot be read: {error}. A file is truncated or damaged. Copy or download the folder again."
        )
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_of_users = isinstance(error, OF_USERS) or any(
        isinstance(error, kind) and Path(last.filename).parts[-len(file) :] == file
        for file, kind in OF_USERS_IN.items()
    )
    is_meant = is_of_users and (last.line or "").startswith("raise")
    if not (is_meant or isinstance(error, OSError)):
        return None
    if is_ours(last.filename):
        return str(error)
    return f"{on_one_line(error)}. Pass --debug to see the traceback."


def on_one_line(error: Exception) -> str:
    text = error.args[0] if isinstance(error, KeyError) else error  # a KeyError quotes its text
    return " ".join(str(text).split()).rstrip(".") or type(error).__name__


def is_of_network(error: Exception) -> bool:
    """Whether the hub, or the way to it, made the error. Such types are no common subclass of OSError."""
    hub = sys.modules.get("huggingface_hub.errors")  # imported wherever the hub is asked
    return hub is not None and isinstance(error, hub.HTTPError)


def is_ours(filename: str) -> bool:
    return {"modeling_gpt1", "tokenization", "gpt1_entry"} & set(Path(filename).parts[:-1]) != set()

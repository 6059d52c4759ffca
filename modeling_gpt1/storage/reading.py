"""Models are read as one save wrote them, even while a training saves into their folder.

A save replaces each file at once, but a model is several files: weights of one save would be read with the class names
of another.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATTERNS = ("*config.json", "tokenizer*.json", "*.safetensors*")


class SavedMeanwhileError(ValueError):
    """A model was saved into a folder while it was read."""


def saved_files(folder: str | os.PathLike) -> dict[str, tuple[int, int]]:
    """What changes with each save, by file name, of a model's files; empty for a hub id."""
    found = {}
    for path in [path for pattern in PATTERNS for path in Path(folder).glob(pattern)]:
        with suppress(FileNotFoundError):
            status = path.stat()
            found[path.name] = status.st_ino, status.st_mtime_ns
    return found


@contextmanager
def one_save(folder: str | os.PathLike) -> Iterator[None]:
    """A context to read a model in, which leaves with an error if its files may be of two saves.

    Raises:
        SavedMeanwhileError: a model was saved into the folder meanwhile.
    """
    before, fault = saved_files(folder), None
    try:
        yield
    except Exception as error:
        if saved_files(folder) == before:
            raise
        fault = error
    if saved_files(folder) != before:
        raise SavedMeanwhileError(
            f"A model was saved into {os.fspath(folder)} while it was read, so its files may be of two models. Run "
            "the command again."
        ) from fault

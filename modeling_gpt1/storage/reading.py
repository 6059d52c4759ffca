"""Models are read as one save wrote them, even while a training saves into their folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tokenization.errors import UserError


def saved_files(folder: str | os.PathLike) -> dict[str, tuple[int, int]]:
    """Inode and time of each of a model's files, by name: every save changes them. Empty for a hub id."""
    found = {}
    for pattern in ("*config.json", "tokenizer*.json", "*.safetensors*"):
        for path in Path(folder).glob(pattern):
            with suppress(FileNotFoundError):
                status = path.stat()
                found[path.name] = status.st_ino, status.st_mtime_ns
    return found


@contextmanager
def one_save(folder: str | os.PathLike) -> Iterator[None]:
    """A context to read a model in, which raises ValueError if its files may be of two saves."""
    before = saved_files(folder)
    try:
        yield
    finally:  # what could not be read, too, may be missing for this reason
        if saved_files(folder) != before:
            raise UserError(f"A model was saved into {folder} while it was read. Run the command again.")

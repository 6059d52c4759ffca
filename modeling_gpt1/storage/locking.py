"""One writer at a time in a folder.

The system frees the lock when its process ends, however that happens. On Linux and macOS, processes that the writer
forks, such as data-loading workers, release the lock at once and so do not hold it if they outlive the writer.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import lock_descriptor
from transformers.utils import logging

logger = logging.get_logger(__name__)

LOCK_NAME = "_writer.txt"  # pushes to the hub leave out what begins with "_"
_held: set[int] = set()  # descriptors of this process


def _let_go() -> None:
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextmanager
def one_writer(folder: str | os.PathLike, name: str = "output_dir") -> Iterator[None]:
    """A context that only one writer at a time can enter for a folder, which is created if it is missing.

    Raises:
        ValueError: another writer is there; the text has `name`, the folder's argument, and the writer, if known.
    """
    path = Path(folder, LOCK_NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _take(path, name)
    try:
        yield
    finally:
        if descriptor in _held:
            with suppress(OSError):  # Windows deletes no open file: it stays, unlocked
                path.unlink()
            _held.discard(descriptor)
            os.close(descriptor)


def _take(path: Path, name: str) -> int | None:
    """The descriptor of the locked file; `None` where the file system has no locks."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            is_ours = lock_descriptor(descriptor, blocking=False)
        except OSError as error:
            os.close(descriptor)
            logger.warning(
                f"{path.parent} cannot be locked ({error.strerror}). Make sure that only one run writes to it."
            )
            return None
        if not is_ours:
            os.lseek(descriptor, 1, os.SEEK_SET)
            owner = os.read(descriptor, 1000).decode() or "unknown process"
            os.close(descriptor)
            raise ValueError(
                f"`{name}` is {os.fspath(path.parent)!r}, where another run is writing ({owner}). Wait until it "
                "finishes or stop it, or pass another folder."
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                break
        os.close(descriptor)  # its owner has just finished and deleted it
    _held.add(descriptor)
    with suppress(OSError):  # if the disk is full, the lock holds without a name
        os.truncate(descriptor, 0)
        # Windows lets nobody read the first byte, which the lock covers.
        os.write(descriptor, f" process {os.getpid()} on {socket.gethostname()}".encode())
    return descriptor

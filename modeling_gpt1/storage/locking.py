"""One writer at a time in a folder. The system frees the lock when its process ends, however that happens."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from transformers.utils import logging

logger = logging.get_logger(__name__)

LOCK_NAME = "_writer.lock"  # pushes to the hub leave out what begins with "_"


@contextmanager
def one_writer(folder: str | os.PathLike, name: str = "output_dir") -> Iterator[None]:
    """A context that only one writer at a time can enter for a folder, which is created if it is missing.

    Raises:
        ValueError: another writer is there; the text has `name`, the folder's argument, and the writer, if known.
    """
    path = Path(folder, LOCK_NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        owner = "unknown process"
        with suppress(OSError):
            owner = path.read_text(encoding="utf-8") or owner
        raise ValueError(
            f"`{name}` is {os.fspath(path.parent)!r}, where another run is writing ({owner}). Wait until it finishes "
            "or stop it, or pass another folder."
        ) from None
    except OSError as error:
        logger.warning(f"{path.parent} cannot be locked ({error.strerror}). Make sure that only one run writes to it.")
        yield
        return
    try:
        with suppress(OSError):  # if the disk is full, the lock holds without a name; Windows lets nobody write
            path.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
        yield
    finally:
        with suppress(OSError):  # Windows deletes no open file
            path.unlink()
        lock.release()

"""One writer at a time in a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from transformers.utils import logging

from tokenization.errors import UserError

logger = logging.get_logger(__name__)

LOCK_NAME = "_writer.txt"  # pushes to the hub leave out what begins with "_"


@contextmanager
def one_writer(folder: str | os.PathLike) -> Iterator[None]:
    """A context that only one writer at a time can enter for a folder, which is created if it is missing.

    The system frees the lock when its process ends, however that happens. What the writer forks, such as data-loading
    workers, does not hold it.

    Raises:
        ValueError: another writer is there.
    """
    path = Path(folder, LOCK_NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(
            f"`output_dir` is {os.fspath(folder)!r}, where another run is writing. Wait until it finishes or stop it, "
            "or pass another folder."
        ) from None
    except OSError as error:  # of a file system without locks
        logger.warning(f"{folder} cannot be locked ({error.strerror}). Make sure that only one run writes to it.")
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows deletes no open file: it stays, unlocked
                path.unlink()
            lock.release()

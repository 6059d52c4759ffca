"""One writer at a time of a folder, or of a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from transformers.utils import logging

from tokenization.errors import UserError

from .writing import check_folder_of

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
    with locked(
        Path(folder, LOCK_NAME),
        f"`output_dir` is {os.fspath(folder)!r}, where another run is writing. Wait until it finishes or stop it, "
        "or pass another folder.",
    ):
        yield


@contextmanager
def writer_of_new_file(file: str | os.PathLike) -> Iterator[None]:
    """A context that only one writer at a time can enter for a file, and only while the file is not there.

    Raises:
        ValueError: another writer is there, or the file; or its folder cannot be written.
    """
    file = Path(file)
    check_folder_of(file)
    with locked(
        file.with_name(f"_{file.name}.lock"),
        f"`output_file` is {os.fspath(file)!r}, which another command is writing. Pass another name.",
    ):
        if file.exists():
            raise UserError(f"`output_file` {file} is there already. Pass another name, or move the file away.")
        yield


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """A context that only one process at a time can enter, by the lock of a file that stands there meanwhile.

    Raises:
        ValueError: another process holds the lock; with the text `refusal`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise UserError(refusal) from None
    except OSError as error:  # of a file system without locks
        logger.warning(f"{path.parent} cannot be locked ({error.strerror}). Make sure that only one run writes to it.")
    try:
        yield
    finally:
        if lock.is_locked:
            with suppress(OSError):  # Windows deletes no open file: it stays, unlocked
                path.unlink()
            lock.release()

"""Files and folders that are whole or absent, even if a process is killed at any moment.

Everything is written beside its final place, flushed to the disk and moved there by one rename.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from safetensors import SafetensorError

from tokenization.errors import UserError

# The name of a folder that is being replaced begins with it, until the new one is there.
REPLACED = "replaced-"


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Write a UTF-8 text file. Readers find the old file or the whole new one, even after a kill."""
    with atomic_file(path) as file:
        file.write(text)


@contextmanager
def atomic_file(path: str | os.PathLike) -> Iterator[TextIO]:
    """A UTF-8 text file to write to; if no error occurs, one rename gives it the name `path`, and an older one's mode.

    The folder is made.

    Raises:
        ValueError: `path` is a folder or a device, which no file can replace.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{os.fspath(path)} is not a file, and no file can replace it. Pass the name of a file.")
    path = Path(os.path.realpath(path))  # a link stays a link
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"_{path.name}.{os.getpid()}")  # pushes to the hub leave out what begins with "_"
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            if path.exists():
                shutil.copymode(path, partial)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        if error.filename == str(partial):
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        partial.unlink(missing_ok=True)
    flush_folder(path.parent)


@contextmanager
def whole_or_absent(folder: str | os.PathLike) -> Iterator[Path]:
    """A temporary folder beside `folder` to write to; if no error occurs, one rename makes it `folder`."""
    folder = Path(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        error.filename = str(folder)  # the name that the user knows
        raise
    staging = beside / folder.name
    staging.mkdir()  # mkdtemp's own folder is closed to other users
    try:
        yield staging
        publish_folder(staging, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def publish_folder(staging: Path, folder: Path) -> None:
    """Make what was written to `staging` the folder `folder`, at once.

    An older `folder` is moved beside `staging` first. It is moved back if the rename fails, and deleted otherwise.
    """
    flush(staging)
    replaced = staging.with_name(f"{REPLACED}{folder.name}")
    is_there = folder.is_dir()
    if is_there:
        shutil.rmtree(replaced, ignore_errors=True)  # left by a process that was killed here
        os.rename(folder, replaced)
    try:
        os.rename(staging, folder)
    except OSError:
        if is_there:
            os.rename(replaced, folder)
        raise
    flush_folder(folder.parent)
    if is_there:
        shutil.rmtree(replaced, ignore_errors=True)


def publish_files(staging: Path, folder: Path) -> None:
    """Move each file to its place in `folder`, where it replaces an older one at once and keeps its mode.

    `staging` is deleted, and so is the folder that it lies in if that is then empty.
    """
    flush(staging)
    for path in [path for path in staging.rglob("*") if path.is_file()]:
        target = folder / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            shutil.copymode(target, path)
        os.replace(path, target)
    flush_folder(folder)
    shutil.rmtree(staging, ignore_errors=True)
    with suppress(OSError):  # not empty
        staging.parent.rmdir()


def flush(folder: Path) -> None:
    """Wait until every file below `folder` is on the disk, and its name too."""
    # Windows flushes only what is open for writing; elsewhere a file may be read-only, as copied code can be.
    flags = os.O_RDWR if os.name == "nt" else os.O_RDONLY
    for path in folder.rglob("*"):
        if path.is_dir():
            flush_folder(path)
        else:
            _flush_path(path, flags)
    flush_folder(folder)


def flush_folder(folder: Path) -> None:
    """Wait until the names of the folder's entries are on the disk."""
    if os.name == "nt":  # Windows keeps names safe by itself and opens no folders
        return
    try:
        _flush_path(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems flush no folders
            raise


def _flush_path(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_folder(folder: str | os.PathLike) -> None:
    """Makes an output folder and writes into it, before any work is done. Raises ValueError: either fails."""
    try:
        _write_into(folder)
    except OSError as error:
        raise UserError(
            f"`output_dir` is {os.fspath(folder)!r}, which is not writable ({error.strerror}). Pass a writable folder."
        ) from error


def check_folder_of(file: str | os.PathLike) -> None:
    """Does for the folder of an output file what [`check_folder`] does for an output folder."""
    try:
        _write_into(Path(file).parent)
    except OSError as error:
        raise UserError(
            f"`output_file` is {os.fspath(file)!r}, whose folder is not writable ({error.strerror}). Pass a file in a "
            "writable folder."
        ) from error


def _write_into(folder: str | os.PathLike) -> None:
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def is_write_failure(error: Exception) -> bool:
    """Whether the system refused a write; tokenizers and torch report it by their own errors, without an errno."""
    if isinstance(error, (OSError, SafetensorError)):
        return True
    return any(words in str(error) for words in ("(os error ", "inline_container.cc", "iostream error"))

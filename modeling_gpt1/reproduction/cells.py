"""Cells of the experiments. Each cell runs once, in its own processes, and is kept as a file.

The name of a cell's file has a digest of everything that decides its result: the settings, the model's files and the
sizes of the data files. The file is written by a single rename after the cell has succeeded, so a run killed at any
moment leaves either a finished cell or none. While a cell runs, its process and the processes that it started hold the
cell's lock (on Windows only its own process). The system frees the lock when they have ended, in whatever way.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from filelock import lock_descriptor

from ..storage.writing import write_atomically

LOG_LINES = 15  # last lines of a failed cell's log that are shown


class CellError(Exception):
    """A cell that failed."""


@dataclass(frozen=True)
class Cell:
    """One result that an experiment needs."""

    name: str
    """Readable name for files and progress, such as `rte-full-seed1`."""
    facts: dict
    """Everything that decides the result, and nothing else. The cell's file has these fields too."""
    about: dict
    """Further facts for readers of the file."""
    run: Callable[[Callable[[list[str]], None], Path], dict]
    """Computes the result's fields. The arguments are a function that runs a command, and an empty folder."""

    @property
    def key(self) -> str:
        text = json.dumps(self.facts, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class CellStore:
    """The finished cells of an output folder, their logs and their locks."""

    def __init__(self, folder: Path):
        self.folder = folder

    def result_path(self, cell: Cell) -> Path:
        return self.folder / "cells" / f"{cell.key}.json"

    def log_path(self, cell: Cell) -> Path:
        return self.folder / "logs" / f"{cell.key}.log"

    def read(self, cell: Cell) -> dict | None:
        """The content of the finished cell, or None."""
        path = self.result_path(cell)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def read_all(self) -> dict[Path, dict]:
        """Every finished cell of the folder, with any settings."""
        paths = sorted((self.folder / "cells").glob("*.json"))
        return {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}

    @contextmanager
    def lock(self, cell: Cell) -> Iterator[int | None]:
        """The file descriptor that holds the cell's lock, or None if another process holds it."""
        path = self.folder / "locks" / f"{cell.key}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            yield file.fileno() if lock_descriptor(file.fileno(), blocking=False) else None

    def finish(self, cell: Cell, lock: int) -> dict:
        """Runs a cell whose lock is held, and keeps its result.

        Raises:
            CellError: a command of the cell failed. The text has the end of its log.
        """
        start, processor_start = time.monotonic(), processor_seconds()
        # Every attempt has its own folder: processes of a killed attempt may still be writing into theirs.
        work = Path(tempfile.mkdtemp(prefix=f"{cell.key}-", dir=make_folder(self.folder / "work")))
        log_path = make_folder(self.folder / "logs") / self.log_path(cell).name
        try:
            with log_path.open("w", encoding="utf-8") as log:
                result = cell.run(lambda command: run_command(command, log, lock), work)
        except Exception as error:  # whatever the error is, the other cells go on
            raise CellError(describe_failure(error, log_path)) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        times = {"seconds": time.monotonic() - start, "processor_seconds": processor_seconds() - processor_start}
        content = {**cell.facts, **cell.about, **result, **{name: round(value, 1) for name, value in times.items()}}
        write_json(make_folder(self.folder / "cells") / self.result_path(cell).name, content)
        return content


@contextmanager
def commands_end_on_termination() -> Iterator[None]:
    """SIGTERM raises an exception in this process, so that a running command ends with it."""
    usual = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        # A pool of processes that is forked later could miss the signal that ends it, and would be waited for forever.
        signal.signal(signal.SIGTERM, usual)


def processor_seconds() -> float:
    """Of this process's finished commands; always 0 on Windows."""
    times = os.times()
    return times.children_user + times.children_system


def make_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_command(command: list[str], log, lock: int) -> None:
    log.write(f"$ {' '.join(command)}\n")
    log.flush()
    kept = () if os.name == "nt" else (lock,)  # Windows cannot pass locks on to other processes
    subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=True, pass_fds=kept)


def describe_failure(error: Exception, log_path: Path) -> str:
    if not isinstance(error, subprocess.CalledProcessError):
        return f"{type(error).__name__}: {error}"
    lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    tail = "\n".join(f"    {line}" for line in lines[-LOG_LINES:])
    return f"its command exited with status {error.returncode}. The end of {log_path}:\n{tail}"


def write_json(path: Path, content: dict) -> None:
    write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def run_cells(cells: list[Cell], store: CellStore, failures: dict[str, str], after_each: Callable[[], None]) -> None:
    """Runs the unfinished cells in the given order and prints the progress.

    A cell that another process is running is left to that process. The message of a failed cell goes into `failures`
    under the cell's key.
    """
    start = time.monotonic()
    for number, cell in enumerate(cells, 1):
        outcome, has_run = run_unless_finished(cell, store, failures)
        elapsed = timedelta(seconds=round(time.monotonic() - start))
        print(f"[{number}/{len(cells)}, {elapsed}] {cell.name}: {outcome}", flush=True)
        if has_run:
            after_each()


def run_unless_finished(cell: Cell, store: CellStore, failures: dict[str, str]) -> tuple[str, bool]:
    """The outcome of a cell, and whether this call ran it."""
    with store.lock(cell) as lock:
        if store.read(cell) is not None:
            return "finished before", False
        if lock is None:
            return "left to another process that is running it", False
        try:
            result = store.finish(cell, lock)
        except CellError as error:
            failures[cell.key] = str(error)
            return f"FAILED, {error}", True
    return f"{describe_result(result)}, {timedelta(seconds=round(result['seconds']))}", True


def describe_result(result: dict) -> str:
    if "ranges" in result:
        first, *_, last = result["ranges"]
        return f"loss {first['loss']:.2f} to {last['loss']:.2f}"
    scores = result.get("scores") or {
        name: of_task[of_task["metric"]] * 100 for name, of_task in result.get("tasks", {}).items()
    }
    return ", ".join(f"{name} {score:.1f}" for name, score in scores.items())

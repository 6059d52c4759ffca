"""Runs the unfinished cells of the experiments and writes the report of the finished ones.

Each cell runs once, in its own processes, and is kept as a file. The file's name has a digest of everything that
decides the result: the settings, the model's files and the checksums of the data. It is written by a single rename
after the cell has succeeded, so a run killed at any moment leaves either a finished cell or none. A lock per cell lets
several commands share a folder.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TextIO

from filelock import FileLock, Timeout

from ..inference.devices import accelerator_name
from ..storage.writing import write_atomically
from .arguments import ReproduceArguments, rehearsal_of
from .cells import Cell, check_families, plan
from .models import describe_model, environment, processor_name
from .pretraining import pretraining_cells, with_models
from .report import build_report, page

LOG_LINES = 15  # last lines of a failed cell's log that are shown


def run_grid(arguments: ReproduceArguments, command: list[str]) -> int:
    """Runs and reports, or rehearses, the requested experiments. Returns the exit status, which is 1 if a cell failed.

    Args:
        arguments: the requested experiments.
        command: the command as it was typed, for the report.
    """
    if arguments.rehearse is not None:
        arguments = rehearsal_of(arguments)
    store = CellStore(Path(arguments.output_dir), arguments.jobs)
    failures: dict[str, str] = {}
    folder = store.folder / "pretraining"
    first = pretraining_cells(arguments, folder)
    if not arguments.only_report:
        run_cells(list(first.values()), store, failures, lambda: None, arguments.jobs)
        for cell in first.values():
            if store.read(cell) is None:
                reason = failures.get(cell.key, "another process is running it. Start the command again afterwards.")
                print(f"{cell.name} is not finished: {reason}")
                return 1
    arguments = with_models(arguments, first, folder)
    check_families(arguments)
    cells = plan(arguments)

    def write() -> str:
        return write_reports(arguments, command, cells, store, failures)

    def write_if_possible() -> None:
        try:
            write()
        except Exception as error:  # must not end hours of runs; whatever the error is, it appears again at the end
            print(f"The report could not be written: {type(error).__name__}: {error}", flush=True)

    if not arguments.only_report:
        run_cells(cells, store, failures, write_if_possible, arguments.jobs)
    print(write())
    if failures:
        names = ", ".join(cell.name for cell in cells if cell.key in failures)
        print(f"{len(failures)} of {len(cells)} cells failed: {names}")
    return 1 if failures else 0


class CellStore:
    """The finished cells of an output folder, their logs and locks, and the processes of those that run."""

    def __init__(self, folder: Path, jobs: int = 1):
        self.folder = folder
        threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs))} if jobs > 1 else {}
        self.environment = {**threads, **os.environ}  # cells at once share the cores
        self.running: set[subprocess.Popen] = set()
        self.is_stopped = False
        self.starting = threading.Lock()

    def result_path(self, cell: Cell) -> Path:
        return self.folder / "cells" / f"{cell.key}.json"

    def read(self, cell: Cell) -> dict | None:
        """The content of the finished cell, or None."""
        path = self.result_path(cell)
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def run_command(self, command: list[str], log: TextIO) -> None:
        """
        Raises:
            CalledProcessError: the command failed or was stopped.
        """
        print("$", *command, file=log, flush=True)
        with self.starting:
            if self.is_stopped:
                raise RuntimeError("stopped")
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment)
            self.running.add(process)
        status = process.wait()
        self.running.discard(process)
        if status:
            raise subprocess.CalledProcessError(status, command)

    def stop(self) -> None:
        """Ends all processes; no other one starts."""
        with self.starting:
            self.is_stopped = True
        for process in tuple(self.running):
            process.kill()

    def run(self, cell: Cell, failures: dict[str, str]) -> tuple[str, bool]:
        """Runs a cell unless it is finished, and keeps its result, or its error in `failures` under the cell's key.

        Returns:
            What came of it, and whether it was run.
        """
        try:
            with FileLock(make_folder(self.folder / "locks") / f"{cell.key}.lock", blocking=False):
                if self.read(cell) is not None:
                    return "finished before", False
                return self._run_locked(cell, failures), True
        except Timeout:
            return "left to another process that is running it", False

    def _run_locked(self, cell: Cell, failures: dict[str, str]) -> str:
        start = time.monotonic()
        # Every attempt has its own folder: processes of a killed attempt may still be writing into theirs.
        work = Path(tempfile.mkdtemp(prefix=f"{cell.key}-", dir=make_folder(self.folder / "work")))
        log_path = make_folder(self.folder / "logs") / f"{cell.key}.log"
        try:
            with log_path.open("w", encoding="utf-8") as log:
                result = cell.run(lambda line: self.run_command(line, log), work)
        except Exception as error:  # whatever the error is, the other cells go on
            failures[cell.key] = describe_failure(error, log_path)
            return f"FAILED, {failures[cell.key]}"
        finally:
            shutil.rmtree(work, ignore_errors=True)
        seconds, machine = time.monotonic() - start, accelerator_name() or processor_name()
        content = {**cell.facts, **cell.about, **result, "seconds": round(seconds, 1), "machine": machine}
        write_json(self.result_path(cell), content)
        return f"{describe_result(content)}, {timedelta(seconds=round(seconds))}"


@contextmanager
def commands_end_on_termination() -> Iterator[None]:
    """SIGTERM raises an exception in this process, so that a running command ends with it."""
    usual = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        # A pool of processes that is forked later could miss the signal that ends it, and would be waited for forever.
        signal.signal(signal.SIGTERM, usual)


def make_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_json(path: Path, content: dict) -> None:
    write_atomically(make_folder(path.parent) / path.name, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def describe_failure(error: Exception, log_path: Path) -> str:
    if not isinstance(error, subprocess.CalledProcessError):
        return f"{type(error).__name__}: {error}"
    lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    tail = "\n".join(f"    {line}" for line in lines[-LOG_LINES:])
    return f"its command exited with status {error.returncode}. The end of {log_path}:\n{tail}"


def run_cells(
    cells: list[Cell], store: CellStore, failures: dict[str, str], after_each: Callable[[], None], jobs: int = 1
) -> None:
    """Runs the unfinished cells, begun in the given order, and prints the progress.

    Args:
        after_each: called in this thread after each cell that was run.
        jobs: number of cells that run at once.
    """
    start, done = time.monotonic(), SimpleQueue()
    with ThreadPoolExecutor(jobs) as pool:
        cell_of = {pool.submit(store.run, cell, failures): cell for cell in cells}
        for future in cell_of:
            future.add_done_callback(done.put)
        try:
            for number in range(1, len(cells) + 1):
                future = done.get()
                outcome, has_run = future.result()
                elapsed = timedelta(seconds=round(time.monotonic() - start))
                print(f"[{number}/{len(cells)}, {elapsed}] {cell_of[future].name}: {outcome}", flush=True)
                if has_run:
                    after_each()
        except BaseException:  # Ctrl-C, SIGTERM
            pool.shutdown(wait=False, cancel_futures=True)
            store.stop()
            raise


def describe_result(result: dict) -> str:
    metrics = result.get("metrics", {})
    if result.get("kind") == "pretraining":
        perplexity = metrics.get("eval_perplexity")
        told = ["trained" if perplexity is None else f"perplexity {perplexity:.1f}"]
    else:
        zero_shot = {name: of_task[of_task["metric"]] * 100 for name, of_task in result.get("tasks", {}).items()}
        told = [f"{name} {score:.1f}" for name, score in (result.get("scores") or zero_shot).items()]
    if "before_init_mem_cpu" in metrics:  # a rehearsal
        told.append(f"updates in {metrics['train_runtime']:.1f} s")
        for place in ("cpu", "gpu"):
            parts = (
                "before_init_mem_{}",
                "init_mem_{}_alloc_delta",
                "train_mem_{}_alloc_delta",
                "train_mem_{}_peaked_delta",
            )
            peak = sum(metrics.get(part.format(place), 0) for part in parts)
            told += [f"{peak / 2**30:.2f} GiB of the {place.upper()}"] if peak else []
    return ", ".join(told)


# ---- The report


def write_reports(
    arguments: ReproduceArguments, command: list[str], cells: list[Cell], store: CellStore, failures: dict[str, str]
) -> str:
    """Writes report.json and report.html of the finished cells to the output folder. Returns a line that says so.

    Raises:
        ValueError: a report alone was asked for, and none of its cells is finished.
    """
    results = [(cell, store.read(cell)) for cell in cells]
    finished = [result for _, result in results if result is not None]
    if arguments.only_report and not finished:
        raise ValueError(
            f"No cell in {store.folder} has these settings, so its report is left as it is. Repeat the flags of the "
            f"command that ran them, or pass --config {store.folder / 'reproduce_run.yaml'} --only_report true for "
            "those of the latest."
        )
    unfinished = [
        {**cell.facts, **cell.about, "reason": failures.get(cell.key, "not run yet").splitlines()[0]}
        for cell, result in results
        if result is None
    ]
    runs = {arguments.model: arguments.checkpoints, arguments.lstm_model: arguments.lstm_checkpoints}
    machines = Counter(cell["machine"] for cell in finished if "machine" in cell)
    ran_on = ", ".join(f"{name} ({number})" for name, number in machines.most_common())
    report = build_report(
        with_parts(finished),
        title=arguments.title,
        models=[describe_model(model, run) for model, run in runs.items() if model is not None],
        environment={**environment(), **({"cells_ran_on": ran_on} if ran_on else {})},
        commands=[shlex.join(command)],
        unfinished=unfinished,
    )
    write_atomically(make_folder(store.folder) / "report.html", page(report))
    write_json(store.folder / "report.json", report)
    return f"{store.folder / 'report.html'} and report.json cover {len(finished)} of {len(cells)} cells."


def with_parts(finished: list[dict]) -> list[dict]:
    """Adds a cell without a time of its own for each part of a task that a model of the whole task was scored on.

    They come first, so that a cell of the part itself counts in their place.
    """
    parts = [
        {**cell, "task": task, "metrics": metrics, "answers": {}, "seconds": None}
        for cell in finished
        for task, metrics in cell.get("parts", {}).items()
    ]
    return [*parts, *finished]

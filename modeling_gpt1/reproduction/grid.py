"""Runs the unfinished cells of the experiments and writes the report of the finished ones.

Each cell runs once, in its own processes, and is kept as a file. The file's name has a digest of everything that
decides the result: the settings, the model's files and the checksums of the data. It is written by a single rename
after the cell has succeeded, so a run killed at any moment leaves either a finished cell or none. While a cell runs,
its process and the processes that it started hold the cell's lock (on Windows only its own process). The system frees
the lock when they have ended, in whatever way.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, timedelta
from functools import partial
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import TextIO

import psutil
import torch
from filelock import lock_descriptor

from ..inference.devices import accelerator_name, default_device
from ..storage.writing import write_atomically
from .arguments import ReproduceArguments
from .cells import WITHOUT_SEEDS, Cell, check_families, fine_tuning_cell, model_of, plan
from .models import describe_model, environment, processor_name
from .pretraining import pretraining_cells, with_models
from .report import build_report, page
from .tables import by_reason

REHEARSAL = "rehearsal"  # its folder in the output folder
LOG_LINES = 15  # last lines of a failed cell's log that are shown
GIB = 2**30


def run_grid(arguments: ReproduceArguments, command: list[str]) -> int:
    """Runs and reports, or rehearses, the requested experiments. Returns the exit status, which is 1 if a cell failed.

    Args:
        arguments: the requested experiments.
        command: the command as it was typed, for the report.
    """
    rehearsal = arguments.rehearse is not None
    output = Path(arguments.output_dir, REHEARSAL) if rehearsal else Path(arguments.output_dir)
    store = CellStore(output, arguments.jobs)
    failures: dict[str, str] = {}
    folder = store.folder / "pretraining"
    first = pretraining_cells(arguments, folder)
    if not arguments.only_report:
        check_memory(arguments)
        run_cells(list(first.values()), store, failures, lambda: None, arguments.jobs)
        for cell in first.values():
            if store.read(cell) is None:
                reason = failures.get(cell.key, "another process is running it. Start the command again afterwards.")
                print(f"{cell.name} is not finished: {reason}")
                return 1
    arguments = with_models(arguments, first, folder)
    check_families(arguments)
    cells = plan(arguments)
    write = partial(write_rehearsal if rehearsal else write_reports, arguments, command, cells, store, failures)

    def write_if_possible() -> None:
        try:
            write()
        except Exception as error:  # must not end hours of runs; whatever the error is, it appears again at the end
            print(f"The report could not be written: {type(error).__name__}: {error}", flush=True)

    if not arguments.only_report:
        present = [cell for cell in cells if cell.absent is None]
        run_cells(present, store, failures, write_if_possible, arguments.jobs)
    print(write())
    if failures:
        names = ", ".join(cell.name for cell in cells if cell.key in failures)
        print(f"{len(failures)} of {len(cells)} cells failed: {names}")
    return 1 if failures else 0


def check_memory(arguments: ReproduceArguments) -> None:
    """
    Raises:
        ValueError: by the rehearsal in the output folder, so many cells at once could need more memory than there is.
    """
    path = Path(arguments.output_dir, REHEARSAL, "rehearsal.json")
    if arguments.jobs == 1 or arguments.rehearse is not None or not path.is_file():
        return
    cells, device = json.loads(path.read_text(encoding="utf-8"))["cells"], default_device()
    on_host = device.type == "cpu"
    total = psutil.virtual_memory().total if on_host else torch.get_device_module(device).mem_get_info()[1]
    sizes = sorted((cell.get(f"{'host' if on_host else 'device'}_memory_gib") or 0 for cell in cells), reverse=True)
    fitting = sum(size <= total / GIB for size in accumulate(sizes))
    if fitting < min(arguments.jobs, len(sizes)):
        raise ValueError(
            f"--jobs {arguments.jobs}: the largest {arguments.jobs} cells of {path} need "
            f"{sum(sizes[: arguments.jobs]):.1f} GiB together, and there are {total / GIB:.1f}. Pass --jobs {fitting}."
        )


class CellError(Exception):
    """A cell that failed."""


def wait(process: subprocess.Popen) -> float:
    """Waits for the end. Returns the processor time of the process alone; others may run. Always 0 on Windows."""
    if os.name == "nt":
        process.wait()
        return 0.0
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except ChildProcessError:  # `stop` has seen its end
        process.wait()
        return 0.0
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


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

    def read_all(self) -> dict[Path, dict]:
        """Every finished cell of the folder, with any settings."""
        paths = sorted((self.folder / "cells").glob("*.json"))
        return {path: json.loads(path.read_text(encoding="utf-8")) for path in paths}

    @contextmanager
    def lock(self, cell: Cell) -> Iterator[int | None]:
        """The file descriptor that holds the cell's lock, or None if another process holds it."""
        with (make_folder(self.folder / "locks") / f"{cell.key}.lock").open("wb") as file:
            yield file.fileno() if lock_descriptor(file.fileno(), blocking=False) else None

    def run_command(self, command: list[str], log: TextIO, lock: int) -> float:
        """Runs a command, which holds the lock with this process. Returns its processor time in seconds.

        Raises:
            CalledProcessError: it failed or was stopped.
        """
        print("$", *command, file=log, flush=True)
        kept = () if os.name == "nt" else (lock,)  # Windows cannot pass locks on to other processes
        with self.starting:
            if self.is_stopped:
                raise CellError("stopped")
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, pass_fds=kept, env=self.environment
            )
            self.running.add(process)
        seconds = wait(process)
        self.running.discard(process)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return seconds

    def stop(self) -> None:
        """Ends all processes; no other one starts."""
        with self.starting:
            self.is_stopped = True
        for process in tuple(self.running):
            process.kill()

    def finish(self, cell: Cell, lock: int) -> dict:
        """Runs a cell whose lock is held, and keeps its result.

        Raises:
            CellError: a command of the cell failed. The text has the end of its log.
        """
        start, processor_seconds = time.monotonic(), []
        # Every attempt has its own folder: processes of a killed attempt may still be writing into theirs.
        work = Path(tempfile.mkdtemp(prefix=f"{cell.key}-", dir=make_folder(self.folder / "work")))
        log_path = make_folder(self.folder / "logs") / f"{cell.key}.log"
        try:
            with log_path.open("w", encoding="utf-8") as log:
                result = cell.run(lambda line: processor_seconds.append(self.run_command(line, log, lock)), work)
        except Exception as error:  # whatever the error is, the other cells go on
            raise CellError(describe_failure(error, log_path)) from error
        finally:
            shutil.rmtree(work, ignore_errors=True)
        times = {"seconds": time.monotonic() - start, "processor_seconds": sum(processor_seconds)}
        times = {name: round(value, 1) for name, value in times.items()}
        content = {**cell.facts, **cell.about, **result, **times, "machine": accelerator_name() or processor_name()}
        write_json(self.result_path(cell), content)
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

    A cell that another process is running is left to that process. The message of a failed cell goes into `failures`
    under the cell's key.

    Args:
        after_each: called in this thread after each cell that was run.
        jobs: number of cells that run at once.
    """
    start, outcomes = time.monotonic(), SimpleQueue()
    with ThreadPoolExecutor(jobs) as pool:
        cell_of = {pool.submit(run_unless_finished, cell, store, failures): cell for cell in cells}
        for future in cell_of:
            future.add_done_callback(outcomes.put)
        try:
            for number in range(1, len(cells) + 1):
                future = outcomes.get()
                outcome, has_run = future.result()
                elapsed = timedelta(seconds=round(time.monotonic() - start))
                print(f"[{number}/{len(cells)}, {elapsed}] {cell_of[future].name}: {outcome}", flush=True)
                if has_run:
                    after_each()
        except BaseException:  # Ctrl-C, SIGTERM
            pool.shutdown(wait=False, cancel_futures=True)
            store.stop()
            raise


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
    if result.get("kind") == "pretraining":
        perplexity = result["metrics"].get("eval_perplexity")
        return "trained" if perplexity is None else f"perplexity {perplexity:.1f}"
    if "ranges" in result:
        first, *_, last = result["ranges"]
        return f"loss {first['loss']:.2f} to {last['loss']:.2f}"
    zero_shot = {name: of_task[of_task["metric"]] * 100 for name, of_task in result.get("tasks", {}).items()}
    return ", ".join(f"{name} {score:.1f}" for name, score in (result.get("scores") or zero_shot).items())


# ---- The report


def write_reports(
    arguments: ReproduceArguments, command: list[str], cells: list[Cell], store: CellStore, failures: dict
) -> str:
    """Writes report.json and report.html of all finished cells to the output folder. Returns a line that says so.

    Raises:
        ValueError: a report alone was asked for, and all finished cells have other settings.
    """
    finished, num_others = finished_cells(arguments, cells, store)
    if arguments.only_report and num_others and not finished:
        raise ValueError(
            f"None of the {num_others} finished cells in {store.folder} has these settings, so its report is left as "
            "it is. Repeat the flags of the command that ran them, or pass --config "
            f"{store.folder / 'reproduce_run.yaml'} --only_report true for those of the latest."
        )
    unfinished = [
        {**cell.facts, **cell.about, "reason": failures.get(cell.key, "not run yet").splitlines()[0]}
        for cell in cells
        if store.read(cell) is None
    ]
    runs = {arguments.model: arguments.checkpoints, arguments.lstm_model: arguments.lstm_checkpoints}
    report = build_report(
        with_parts(finished),
        title=arguments.title,
        models=[describe_model(model, run) for model, run in runs.items() if model is not None],
        environment={**environment(), **cells_by_machine(finished)},
        commands=[shlex.join(command)],
        unfinished=unfinished,
    )
    write_atomically(make_folder(store.folder) / "report.html", page(report))
    write_json(store.folder / "report.json", report)
    number = f"{len(finished)} finished cell{'' if len(finished) == 1 else 's'}"
    others = f"; {num_others} with other settings are left out" if num_others else ""
    return f"{store.folder / 'report.html'} and report.json cover {number}{others}."


def cells_by_machine(finished: list[dict]) -> dict[str, str]:
    """How many cells ran where, if that is known."""
    counts = Counter(cell["machine"] for cell in finished if "machine" in cell)
    told = ", ".join(f"{name} ({number})" for name, number in counts.most_common())
    return {"cells_ran_on": told} if told else {}


def finished_cells(arguments: ReproduceArguments, cells: list[Cell], store: CellStore) -> tuple[list[dict], int]:
    """The finished cells with these settings, from any command, and the number of other cells in the folder."""
    found = {path: cell for path, cell in store.read_all().items() if cell["kind"] != "pretraining"}
    others = [cell for cells_of in WITHOUT_SEEDS.values() for cell in cells_of(arguments)]
    wanted = {store.result_path(cell) for cell in (*cells, *others)}
    for content in found.values():
        if content["kind"] == "fine_tuning" and model_of(arguments, content["variant"]) is not None:
            variant = f"transfer-{content['n_transfer']}" if content["variant"] == "transfer" else content["variant"]
            place = content["task"], variant, content["seed"], content.get("size")
            wanted.add(store.result_path(fine_tuning_cell(arguments, *place)))
    return [content for path, content in found.items() if path in wanted], len(set(found) - wanted)


def with_parts(finished: list[dict]) -> list[dict]:
    """Adds a cell without a time of its own for each part of a task that a model of the whole task was scored on."""

    def place(cell: dict) -> tuple:
        return cell["task"], cell["variant"], cell["n_transfer"], cell["seed"], cell.get("size")

    own = {place(cell) for cell in finished if cell["kind"] == "fine_tuning"}
    parts = [
        {**cell, "task": task, "metrics": metrics, "answers": {}, "seconds": None}
        for cell in finished
        for task, metrics in cell.get("parts", {}).items()
    ]
    return [*finished, *(part for part in parts if place(part) not in own)]


# ---- The rehearsal's table


def write_rehearsal(
    arguments: ReproduceArguments, command: list[str], cells: list[Cell], store: CellStore, failures: dict
) -> str:
    """Writes rehearsal.json. Returns its table for a terminal."""
    found = {
        "date": date.today().isoformat(),
        "command": shlex.join(command),
        "environment": environment(),
        **{"updates": arguments.rehearse, "rows": arguments.rehearse_rows, "jobs": arguments.jobs},
        "cells": [describe_rehearsed(cell, store, failures) for cell in cells],
    }
    write_json(store.folder / "rehearsal.json", found)
    return f"{rehearsal_table(found)}\n{store.folder / 'rehearsal.json'} has the figures."


def describe_rehearsed(cell: Cell, store: CellStore, failures: dict[str, str]) -> dict:
    """A cell's line of rehearsal.json."""
    result = store.read(cell) if cell.absent is None else None
    reason = cell.absent or failures.get(cell.key)
    status = "not at hand" if cell.absent else "failed" if reason else "not run" if result is None else "ran"
    fields = ("kind", "task", "variant", "n_transfer", "size")
    facts = {name: cell.facts[name] for name in fields if name in cell.facts}
    line = {"name": cell.name, **facts, "status": status, "reason": reason, "runs": cell.runs}
    if result is None:
        return line
    whole = result["whole"]
    return {
        **{**line, "seconds": result["seconds"]},
        **{f"{place}_memory_gib": size and round(size / GIB, 2) for place, size in result["memory"].items()},
        **{**whole, "hours_of_all_runs": [round(hours * cell.runs, 3) for hours in whole["hours"]]},
    }


def show(value: float | Sequence[float] | None, form: str) -> str:
    """A number, or a range if its ends differ."""
    if value is None:
        return "-"
    return " to ".join(dict.fromkeys(format(end, form) for end in (value if isinstance(value, list) else [value])))


def rehearsal_table(found: dict) -> str:
    """The rehearsal at a terminal."""
    columns = {
        **{"host_memory_gib": ("GiB", 6, ".2f"), "device_memory_gib": ("device GiB", 10, ".2f")},
        **{"seconds_per_update": ("s/update", 15, ".2f"), "updates": ("updates", 8, "d")},
        "hours": ("hours", 18, ".2f"),
    }
    lines = [f"{'cell':38} {' '.join(f'{head:>{width}}' for head, width, _ in columns.values())} runs"]
    for cell in found["cells"]:
        figures = (f"{show(cell[name], form):>{width}}" for name, (_, width, form) in columns.items())
        told = f"{' '.join(figures)} {cell['runs']}" if cell["status"] == "ran" else cell["status"].upper()
        lines.append(f"{cell['name']:38} {told}")
    ran = [cell for cell in found["cells"] if cell["status"] == "ran"]
    hours = [sum(cell["hours_of_all_runs"][end] for cell in ran) / found["jobs"] for end in (0, 1)]
    machine = found["environment"]
    device = machine["processor"] if machine["accelerator"] == "none" else machine["accelerator"]
    num_runs = sum(cell["runs"] for cell in ran)
    lines.append(f"The whole would take {show(hours, '.1f')} hours on this device ({device}): {num_runs} runs.")
    absent = by_reason((cell["reason"], cell["name"]) for cell in found["cells"] if cell["status"] == "not at hand")
    return "\n".join(lines + [f"Not at hand: {names}. {reason}" for reason, names in absent.items()])

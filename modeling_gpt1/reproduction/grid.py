"""Runs the unfinished cells of the experiments and writes the report of the finished ones.

Each cell runs once, in its own processes, and is kept as a file. The file's name has a digest of what decides the
result: the settings, the model's files and the checksums of local data. The versions of the packages are no part of
the name, but stand in the file. It is written by a single rename after the cell has succeeded, so a run killed at any
moment leaves either a finished cell or none. A lock per cell lets several commands share a folder.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import TextIO

import psutil
import torch
from filelock import FileLock, Timeout

from tokenization import get_task
from tokenization.errors import UserError

from ..hub.card import versions
from ..inference.devices import accelerator_name, default_device
from ..storage.writing import write_atomically
from ..training.checkpoint import DIVERGED
from .arguments import REHEARSAL, ReproduceArguments, layers_of, rehearsal_of
from .cells import (
    Cell,
    RunDiverged,
    check_families,
    check_layers,
    conditions_of,
    plan,
    pretraining_cells,
    readable_command,
    tuning_cells,
    with_models,
)
from .models import describe_model, environment, processor_name, read_json, write_finished_cells
from .report import build_report, page
from .tables import COLUMNS, Cells, row_of
from .training_rows import has_failed
from .tuning import Tuning, held_out_score, read_tuning

LOG_LINES = 15  # last lines of a failed cell's log that are shown


def run_grid(arguments: ReproduceArguments, command: list[str]) -> int:
    """Runs and reports the requested experiments, asked for by this command. Returns 1 if a cell failed, else 0."""
    if arguments.rehearse is not None:
        arguments = rehearsal_of(arguments)
    elif not arguments.only_report:
        check_memory(Path(arguments.output_dir, REHEARSAL), arguments.jobs)
    store = CellStore(Path(arguments.output_dir), arguments.jobs)
    folder = store.folder / "pretraining"
    first = pretraining_cells(arguments, folder)
    if not arguments.only_report:
        store.run_all(list(first.values()), lambda: None)
    if not all(map(store.read, first.values())):
        store.tell("Not every model is pre-trained, so nothing is fine-tuned. Start the command again afterwards.")
        return 1
    arguments = with_models(arguments, first, folder)
    check_families(arguments)
    check_layers(arguments)
    trials = {}
    if arguments.tune:
        trials = {condition: tuning_cells(arguments, condition) for condition in conditions_of(arguments)}
    trial_cells = [cell for of_condition in trials.values() for cell in of_condition.values()]

    def planned() -> tuple[list[Tuning], list[Cell]]:
        """The trials that are finished, and the cells whose settings they have chosen."""
        tunings = [read_tuning(condition, of_condition, store.read) for condition, of_condition in trials.items()]
        chosen = {tuning.condition: tuning.best for tuning in tunings if tuning.best is not None}
        return tunings, plan(arguments, chosen if arguments.tune else None)

    def write_if_possible(tunings: list[Tuning], cells: list[Cell]) -> None:
        try:
            write_reports(arguments, command, tunings, cells, store)
        except Exception as error:  # must not end hours of runs; whatever the error is, it appears again at the end
            store.tell(f"The report could not be written: {type(error).__name__}: {error}")

    planned()  # what cannot be planned, such as a folder without checkpoints, is said before the first trial
    if not arguments.only_report:
        store.run_all(trial_cells, lambda: write_if_possible(*planned()))
    tunings, cells = planned()
    if not arguments.only_report:
        store.run_all(cells, lambda: write_if_possible(tunings, cells))
    store.tell(write_reports(arguments, command, tunings, cells, store))
    if store.failures:
        every = [*trial_cells, *cells]
        names = ", ".join(cell.name for cell in every if cell.key in store.failures)
        store.tell(f"{len(store.failures)} of {len(every)} cells failed: {names}")
    return 1 if store.failures else 0


class CellStore:
    """The finished cells of an output folder, with their logs and locks, and those that run."""

    def __init__(self, folder: Path, jobs: int = 1):
        self.folder, self.jobs, self.stdout = folder, jobs, sys.stdout
        self.environment = dict(os.environ)
        if jobs > 1:  # cells at once share the cores
            self.environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
        self.failures: dict[str, str] = {}  # what went wrong, by a cell's key
        self.running: set[subprocess.Popen] = set()
        self.is_stopped = False

    def tell(self, line: str) -> None:
        """Prints a line, also while a cell reads a data set in another thread.

        For a fingerprint of a function, `datasets` has dill disassemble it, and dill puts another stream in the place
        of `sys.stdout` meanwhile, which is that of all threads.
        """
        print(line, file=self.stdout, flush=True)

    def folder_of(self, kind: str) -> Path:
        """The folder of a kind of files, which is made."""
        folder = self.folder / kind
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def read(self, cell: Cell) -> dict:
        """The content of the finished cell; empty if it is not.

        Raises:
            UserError: its file was damaged: a command that is killed leaves none or a whole one.
        """
        path = self.folder / "cells" / f"{cell.key}.json"
        try:
            return read_json(path)
        except ValueError as error:
            raise UserError(f"{path} is damaged ({error}). Delete it, and the cell is run again.") from error

    def run_command(self, command: list[str], log: TextIO) -> None:
        """Raises CalledProcessError if the command fails or was stopped, RunDiverged if its training diverged."""
        print("$", *command, file=log, flush=True)
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment)
        self.running.add(process)
        if self.is_stopped:  # meanwhile
            process.kill()
        status = process.wait()
        self.running.discard(process)
        if status:
            if DIVERGED in Path(log.name).read_text(encoding="utf-8", errors="replace"):
                raise RunDiverged(status, command)
            raise subprocess.CalledProcessError(status, command)

    def run(self, cell: Cell) -> tuple[str, bool]:
        """Runs a cell unless it is finished. Returns what came of it, and whether it was run."""
        try:
            with FileLock(self.folder_of("locks") / f"{cell.key}.lock", blocking=False):
                if self.read(cell):
                    return "finished before", False
                return self._run_locked(cell), True
        except Timeout:
            return "left to another process that is running it", False

    def _run_locked(self, cell: Cell) -> str:
        start = time.monotonic()
        commands: list[list[str]] = []
        log_path = self.folder_of("logs") / f"{cell.key}.log"
        # Every attempt has its own folder: processes of a killed attempt may still be writing into theirs.
        own_folder = TemporaryDirectory(prefix=f"{cell.key}-", dir=self.folder_of("work"), ignore_cleanup_errors=True)
        try:
            with own_folder as work, log_path.open("w", encoding="utf-8") as log:

                def run(command: list[str]) -> None:
                    commands.append(command)
                    self.run_command(command, log)

                result = cell.run(run, Path(work))
                readable_commands = [readable_command(command, work) for command in commands]
        except Exception as error:  # whatever the error is, the other cells go on
            self.failures[cell.key] = describe_failure(error, log_path)
            return f"FAILED, {self.failures[cell.key]}"
        seconds = round(time.monotonic() - start, 1)
        # A linear model runs no command, and no accelerator.
        accelerator = accelerator_name() if commands and not any(map(uses_cpu, commands)) else None
        machine = accelerator or processor_name()
        content = {**cell.facts, **cell.about, **result, "seconds": seconds, "machine": machine}
        content["commands"] = readable_commands
        content["versions"] = versions()
        write_json(self.folder_of("cells") / f"{cell.key}.json", content)
        for left in self.folder_of("work").glob(f"{cell.key}-*"):  # of attempts that were killed
            shutil.rmtree(left, ignore_errors=True)
        return f"{describe_result(content)}, {timedelta(seconds=round(seconds))}"

    def run_all(self, cells: list[Cell], after_each: Callable[[], object]) -> None:
        """Runs the unfinished cells, begun in the given order; calls `after_each` in this thread after each one.

        Raises:
            UserError: the file of a finished cell is damaged. It is raised before any other cell runs.
        """
        for cell in cells:
            self.read(cell)
        start = time.monotonic()
        done: SimpleQueue = SimpleQueue()
        # Streams that two cells put in the place of `sys.stdout` at once may stay there; see `tell`.
        with redirect_stdout(self.stdout), ThreadPoolExecutor(self.jobs) as pool:
            cell_of = {pool.submit(self.run, cell): cell for cell in cells}
            for future in cell_of:
                future.add_done_callback(done.put)
            try:
                for number in range(1, len(cells) + 1):
                    future = done.get()
                    outcome, has_run = future.result()
                    elapsed = timedelta(seconds=round(time.monotonic() - start))
                    self.tell(f"[{number}/{len(cells)}, {elapsed}] {cell_of[future].name}: {outcome}")
                    if has_run:
                        after_each()
            except BaseException:  # Ctrl-C, SIGTERM
                pool.shutdown(wait=False, cancel_futures=True)
                self.is_stopped = True  # no other command starts
                for process in tuple(self.running):
                    process.kill()
                raise


def end_on_termination() -> None:
    """SIGTERM raises an exception in this process, so that a running command ends with it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def uses_cpu(command: list[str]) -> bool:
    """Whether a command leaves an accelerator alone: the last `--use_cpu` counts, however it is spelled."""
    answer = False
    for word, next_word in zip(command, [*command[1:], ""], strict=True):
        flag, has_value, value = word.partition("=")
        if flag.replace("-", "_") == "__use_cpu":
            given = value if has_value else next_word  # another flag there is no value
            answer = given.lower() not in ("no", "false", "f", "n", "0")
    return answer


def write_json(path: Path, content: dict) -> None:
    write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def describe_failure(error: Exception, log_path: Path) -> str:
    if isinstance(error, UserError):
        return str(error)
    if not isinstance(error, subprocess.CalledProcessError):
        return f"{type(error).__name__}: {error}"
    lines = log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    tail = "\n".join(f"    {line}" for line in lines[-LOG_LINES:])
    return f"its command exited with status {error.returncode}. The end of {log_path}:\n{tail}"


def describe_result(result: dict) -> str:
    metrics = result.get("metrics", {})
    if result["kind"] == "zero_shot":
        parts = [f"{name} {100 * of_task[of_task['metric']]:.1f}" for name, of_task in result["tasks"].items()]
    elif result["kind"] == "pretraining":
        perplexity = metrics.get("eval_perplexity")
        parts = ["trained" if perplexity is None else f"perplexity {perplexity:.1f}"]
    elif result["kind"] == "tuning":
        metric = get_task(result["task"]).metrics[0]
        parts = [f"held out {100 * held_out_score(metrics, result['task'], metric):.1f}"]
    else:
        found, row = Cells([{**result, "training": None}]), row_of(result)
        parts = [f"{key} {scores[0]:.1f}" for key in COLUMNS for scores in found.scores(key, row).values()]
    if "before_init_mem_cpu" in metrics:  # a rehearsal
        parts.append(f"updates in {metrics['train_runtime']:.1f} s")
        peaks = {memory: peak_memory(result, memory) / 2**30 for memory in ("cpu", "gpu")}
        parts += [f"{peak:.2f} GiB of the {memory.upper()}" for memory, peak in peaks.items() if peak]
    if has_failed(result):
        parts.append("failed to train")
    return ", ".join(parts)


def peak_memory(result: dict, memory: str) -> int:
    """Bytes of "cpu" or "gpu" that a rehearsed cell had at most, as far as it is known."""
    stages = tuple(f"{stage}_mem_{memory}" for stage in ("before_init", "init", "train"))
    sizes = [size for name, size in result.get("metrics", {}).items() if name.startswith(stages)]
    return sum(size for size in sizes if isinstance(size, int))  # a text where a device tells no peak


def check_memory(rehearsal: Path, jobs: int) -> None:
    """Raises UserError if the memory is too small for so many of the rehearsed cells at once."""
    device = default_device()
    memory, total = "cpu", psutil.virtual_memory().total
    if device.type == "cuda":
        memory, total = "gpu", torch.get_device_module(device).mem_get_info()[1]
    needed = jobs * max((peak_memory(read_json(path), memory) for path in rehearsal.glob("cells/*.json")), default=0)
    if jobs > 1 and needed > total:
        raise UserError(
            f"--jobs {jobs} may need {needed / 2**30:.1f} GiB of memory, as measured in {rehearsal}, but there are "
            f"only {total / 2**30:.1f}. Pass fewer jobs, or delete that folder if it was made with other settings."
        )


# ---- The report


def write_reports(
    arguments: ReproduceArguments, command: list[str], tunings: list[Tuning], cells: list[Cell], store: CellStore
) -> str:
    """Writes the report of the finished cells to the output folder. Returns a line that says so.

    It is report.json and report.html, and beside them the cells themselves with the answer to each row, in
    cells.json.gz, so that anybody can recompute the report. Without any finished cell or trial an earlier report
    stays.
    """
    results = [(cell, store.read(cell)) for cell in cells]
    finished = [result for _, result in results if result]
    is_empty = not finished and not any(tuning.trials for tuning in tunings)
    if arguments.only_report and is_empty:
        raise UserError(
            f"No cell in {store.folder} has these settings, so its report is left as it is. Repeat the flags of the "
            f"command that ran them, with the same files of models and data, or pass --config "
            f"{store.folder / 'reproduce_run.yaml'} --only_report true for those of the latest."
        )
    if is_empty and (store.folder / "report.json").is_file():
        return f"No cell is finished, so {store.folder / 'report.html'} is left as it is."
    unfinished = [
        {**cell.facts, **cell.about, "reason": store.failures.get(cell.key, "not run yet").splitlines()[0]}
        for cell, result in results
        if not result
    ]
    waiting = [tuning for tuning in tunings if tuning.best is None]
    unfinished += [missing for tuning in waiting for missing in cells_without_settings(arguments, tuning)]
    runs = {arguments.model: arguments.checkpoints, arguments.lstm_model: arguments.lstm_checkpoints}
    machines = Counter(cell["machine"] for cell in finished if "machine" in cell)
    ran_on = ", ".join(f"{name} ({number})" for name, number in machines.most_common())
    about_machine = environment()
    if ran_on:
        about_machine["cells_ran_on"] = ran_on
    made_with = Counter(cell.get("versions", "unknown") for cell in finished)
    if len(made_with) > 1:  # cells are kept when a package is upgraded
        about_machine["cells_made_with"] = "; ".join(f"{names} ({n})" for names, n in made_with.most_common())
    report = build_report(
        finished,
        unfinished,
        title=arguments.title,
        models=[describe_model(model, run) for model, run in runs.items() if model is not None],
        environment=about_machine,
        commands=[shlex.join(command)],
        tuning=[tuning.describe() for tuning in tunings],
    )
    write_finished_cells(store.folder / "cells.json.gz", finished)
    write_atomically(store.folder / "report.html", page(report))
    write_json(store.folder / "report.json", report)
    total = len(finished) + len(unfinished)
    line = f"{store.folder / 'report.html'} and report.json cover {len(finished)} of {total} cells."
    if waiting:
        reasons = [f"{' '.join(tuning.condition)} ({why_without_settings(tuning)})" for tuning in waiting]
        line += f" Without settings: {', '.join(reasons)}."
    return line


def why_without_settings(tuning: Tuning) -> str:
    return "no trial has a score" if tuning.is_finished else "its tuning is not finished"


def cells_without_settings(arguments: ReproduceArguments, tuning: Tuning) -> list[dict]:
    """The missing cells of a condition that has no settings yet."""
    task, variant = tuning.condition
    reason = why_without_settings(tuning)
    layers = layers_of(variant)
    common = {
        "kind": "fine_tuning",
        "task": task,
        "variant": variant if layers is None else "transfer",
        "n_transfer": layers,
    }
    return [{**common, "seed": seed, "reason": reason} for seed in arguments.seeds]

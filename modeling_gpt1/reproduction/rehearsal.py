"""Rehearses the experiments: each cell for a few updates and rows, what it needs, and how long the whole would take.

The cells are those of the plan, for one seed, in a folder of their own. Each runs the same commands as in earnest.
"""

import json
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache, partial
from pathlib import Path

import numpy as np
import yaml
from datasets import DatasetDict

from tokenization import Task, TraversalCollator, add_control_tokens, get_task, load_task, open_tokenizer

from ..inference.heuristics import HEURISTICS
from ..training.preparation import open_config
from .arguments import ReproduceArguments, as_settings
from .cells import Cell, CellStore, make_folder, run_cells, write_json
from .models import environment
from .page import page
from .plan import WITHOUT_SEEDS, check_families, model_of, plan, zero_shot_cells
from .report import build_report

REHEARSAL = "rehearsal"  # its folder in the output folder
SAMPLED_ROWS = 256  # training rows whose tokens are counted
GIB = 2**30


@dataclass(frozen=True)
class Rehearsed:
    """A cell to rehearse.

    Args:
        cell: the cell, which runs for a few updates or rows.
        runs: how many such cells the whole has: seeds or checkpoints.
        absent: why it cannot run on the rows at hand, or None.
    """

    cell: Cell
    runs: int
    absent: str | None


def rehearse(arguments: ReproduceArguments, command: list[str]) -> int:
    """Rehearses every cell and prints a table. Returns the exit status, which is 1 if a cell failed.

    Args:
        arguments: the experiments, with `rehearse`, the number of updates.
        command: the command as it was typed.
    """
    check_families(arguments)
    store = CellStore(Path(arguments.output_dir, REHEARSAL))
    planned = list(plan_rehearsal(arguments))
    failures: dict[str, str] = {}

    def write() -> dict:
        found = {
            "date": date.today().isoformat(),
            "command": shlex.join(command),
            "environment": environment(),
            **{"updates": arguments.rehearse, "rows": arguments.rehearse_rows},
            "cells": [describe(rehearsed, store, failures) for rehearsed in planned],
        }
        write_json(make_folder(store.folder) / "rehearsal.json", found)
        return found

    run_cells([rehearsed.cell for rehearsed in planned if rehearsed.absent is None], store, failures, write)
    print(table(write()))
    print(f"{store.folder / 'rehearsal.json'} has the figures.")
    return 1 if failures else 0


# ---- The plan


def plan_rehearsal(arguments: ReproduceArguments) -> Iterator[Rehearsed]:
    """The cells of the first seed, cut to a few updates and rows; for zero_shot a cell for each task."""
    updates, rows = str(arguments.rehearse), str(arguments.rehearse_rows)
    short = ["--max_steps", updates, "--logging_steps", "1", "--include_num_input_tokens_seen", "non_padding"]
    short += ["--max_eval_samples", rows, "--max_predict_samples", rows]
    others = [name for name in arguments.experiments if name not in WITHOUT_SEEDS]
    for cell in plan(
        replace(
            arguments,
            experiments=others,
            seeds=arguments.seeds[:1],
            finetune_arguments=[*arguments.finetune_arguments, *short],
        )
    ):
        name, variant = cell.facts["task"], cell.facts["variant"]
        measure = partial(measure_fine_tuning, arguments, name, model_of(arguments, variant), cell.facts.get("size"))
        absent = why_absent(name, arguments.data_dir, for_training=True)
        yield Rehearsed(with_measures(cell, measure), len(arguments.seeds), absent)
    if "zero_shot" in arguments.experiments:
        for name in arguments.zero_shot_tasks:
            limits = dict.fromkeys(("zero_shot_max_eval_samples", "zero_shot_max_train_samples"), int(rows))
            cells = zero_shot_cells(replace(arguments, zero_shot_tasks=[name], **limits))
            absent = why_absent(name, arguments.data_dir, for_training=False)
            for family in dict.fromkeys(cell.about["family"] for cell in cells):
                of_family = [cell for cell in cells if cell.about["family"] == family]
                cell = replace(of_family[-1], name=f"{name}-zero-shot-{family}")
                measure = partial(measure_zero_shot, arguments, name)
                yield Rehearsed(with_measures(cell, measure), len(of_family), absent)


def with_measures(cell: Cell, measure: Callable[[dict, Path, float], dict]) -> Cell:
    # Another machine has other figures.
    facts = {**cell.facts, "environment": environment()}
    return replace(cell, facts=facts, run=partial(run_measured, cell, measure))


def why_absent(name: str, data_dir: str | None, for_training: bool) -> str | None:
    """Why a data set is not at hand, or None if it is or comes from the hub."""
    if data_dir is None:
        return None
    try:
        found = splits_of(name, data_dir)
    except ValueError as error:
        # Files that are there but cannot be read are a failure of the cell.
        return str(error) if str(error).startswith("No file of task") else None
    task = task_of(name)
    missing = [split for split in (task.train_split, *task.validation_splits) if split not in found]
    return f"{data_dir} has no rows of {', '.join(missing)} for {name}." if for_training and missing else None


@cache
def splits_of(name: str, data_dir: str | None) -> DatasetDict:
    return load_task(task_of(name), data_dir)


def task_of(name: str) -> Task:
    return HEURISTICS[name].task if name in HEURISTICS else get_task(name)


# ---- One cell


def run_measured(
    cell: Cell, measure: Callable[[dict, Path, float], dict], run: Callable[[list[str]], None], work: Path
) -> dict:
    """Runs a cell's commands and measures them. What they return must make a report."""
    files = []

    def run_with_memory(command: list[str]) -> None:
        python, flag, *words = command
        files.append(work / f"memory-{len(files)}.json")
        run([python, flag, "modeling_gpt1.reproduction.measuring", str(files[-1]), *words])

    start = time.monotonic()
    result = cell.run(run_with_memory, work)
    seconds = time.monotonic() - start
    page(build_report([{**cell.facts, **cell.about, **result, "seconds": seconds}], title="Rehearsal"))
    peaks = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    memory = {place: max((peak[place] for peak in peaks if peak[place]), default=None) for place in ("host", "device")}
    return {**result, "memory": memory, "whole": measure(result, work, seconds)}


def measure_fine_tuning(
    arguments: ReproduceArguments,
    name: str,
    model: str,
    size: int | None,
    result: dict,
    work: Path,
    seconds: float,
) -> dict:
    """What the whole run of a task would take, from one of a few updates and rows.

    The first batch has the longest rows and the next ones are long too, so the time of an update is scaled by tokens.
    """
    given = as_settings(arguments.finetune_arguments)
    settings = yaml.safe_load((work / "model" / "run.yaml").read_text(encoding="utf-8"))
    history = json.loads((work / "model" / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    logs = [record for record in history if "loss" in record]
    num_rows = count_rows(name, arguments.data_dir, task_of(name).train_split, size or given.get("max_train_samples"))
    updates_per_pass = logs[-1]["step"] / logs[-1]["epoch"]
    tokens_per_update = (
        num_rows / updates_per_pass * tokens_per_row(name, arguments.data_dir, model, settings["max_length"])
    )
    updates = int(given.get("max_steps", math.ceil(settings["num_train_epochs"] * updates_per_pass)))
    seconds_per_update = seconds_per_token(logs) * tokens_per_update
    evaluation, evaluated = evaluation_seconds(arguments, name, result)
    trained = next(record["train_runtime"] for record in reversed(history) if "train_loss" in record)
    rest = seconds - trained - evaluated  # start, reading the rows, writing the model
    return {
        "updates": updates,
        "seconds_per_update": round(seconds_per_update, 4),
        "tokens_per_update": round(tokens_per_update),
        "hours": round((updates * seconds_per_update + evaluation + rest) / 3600, 4),
    }


def count_rows(name: str, data_dir: str | None, split: str, limit: str | int | None) -> int:
    """The rows that the whole run would take of a split."""
    num_rows = len(splits_of(name, data_dir)[split])
    return num_rows if limit is None else min(num_rows, int(limit))


def seconds_per_token(logs: Sequence[dict]) -> float:
    """Of the updates after the first, which is slower; of the first if there is only one."""
    first, last = logs[0] if len(logs) > 1 else {"train_runtime": 0, "num_input_tokens_seen": 0}, logs[-1]
    num_tokens = last["num_input_tokens_seen"] - first["num_input_tokens_seen"]
    return (last["train_runtime"] - first["train_runtime"]) / num_tokens


@cache
def tokens_per_row(name: str, data_dir: str | None, model: str, max_length: int | None) -> float:
    """Mean number of tokens of a training row, in all its sequences."""
    task, tokenizer = task_of(name), open_tokenizer(model)
    add_control_tokens(tokenizer)
    length = max_length or open_config(model).max_position_embeddings
    collator = TraversalCollator(tokenizer, task.traversal, task.columns, length, regression=task.regression)
    rows = splits_of(name, data_dir)[task.train_split]
    chosen = rows.select(np.random.default_rng(0).permutation(len(rows))[:SAMPLED_ROWS])
    return sum(int(collator([row])["attention_mask"].sum()) for row in chosen) / len(chosen)


def evaluation_seconds(arguments: ReproduceArguments, name: str, result: dict) -> tuple[float, float]:
    """Seconds of the whole evaluation, and of the one that was rehearsed."""
    given = as_settings(arguments.finetune_arguments)
    whole, rehearsed = 0.0, 0.0
    for of_task, metrics in {name: result["metrics"], **result.get("parts", {})}.items():
        task = get_task(of_task)
        kinds = {"eval": task.validation_splits, "predict": task.test_splits}
        for kind, names in kinds.items() if metrics else ():
            for split in names:
                prefix = kind if len(names) == 1 else f"{kind}_{split}"
                if f"{prefix}_runtime" not in metrics:
                    continue
                num_rows = count_rows(of_task, arguments.data_dir, split, given.get(f"max_{kind}_samples"))
                seconds = metrics[f"{prefix}_runtime"]
                rehearsed += seconds
                whole += seconds * max(1, num_rows / arguments.rehearse_rows)
    return whole, rehearsed


def measure_zero_shot(arguments: ReproduceArguments, name: str, result: dict, work: Path, seconds: float) -> dict:
    """What the whole evaluation of one model would take."""
    found = result["tasks"][name]
    num_rows = count_rows(name, arguments.data_dir, found["split"], arguments.zero_shot_max_eval_samples)
    if found["num_train_rows"]:
        split = task_of(name).train_split
        num_rows += count_rows(name, arguments.data_dir, split, arguments.zero_shot_max_train_samples)
    whole = found["seconds"] * num_rows / (found["num_rows"] + found["num_train_rows"])
    return {
        **{"updates": None, "seconds_per_update": None, "tokens_per_update": None},
        "hours": round((seconds - found["seconds"] + whole) / 3600, 4),
    }


# ---- What is told


def describe(rehearsed: Rehearsed, store: CellStore, failures: dict[str, str]) -> dict:
    """A cell's line of rehearsal.json."""
    cell = rehearsed.cell
    result = store.read(cell) if rehearsed.absent is None else None
    reason = rehearsed.absent or failures.get(cell.key)
    status = "not at hand" if rehearsed.absent else "failed" if reason else "not run" if result is None else "ran"
    facts = {
        name: cell.facts[name] for name in ("kind", "task", "variant", "n_transfer", "size") if name in cell.facts
    }
    line = {"name": cell.name, **facts, "status": status, "reason": reason, "runs": rehearsed.runs}
    if result is None:
        return line
    whole = result["whole"]
    return {
        **line,
        "seconds": result["seconds"],
        **{f"{place}_memory_gib": size and round(size / GIB, 2) for place, size in result["memory"].items()},
        **whole,
        "hours_of_all_runs": round(whole["hours"] * rehearsed.runs, 3),
    }


def table(found: dict) -> str:
    """The rehearsal at a terminal."""
    has_device = found["environment"]["accelerator"] != "none"
    lines = [f"{'cell':38} {'GiB':>6} {'device GiB':>10} {'s/update':>9} {'updates':>8} {'hours':>8} runs".rstrip()]
    for cell in found["cells"]:
        if cell["status"] != "ran":
            lines.append(f"{cell['name']:38} {cell['status'].upper()}")
            continue
        figures = (
            (cell["host_memory_gib"], 6, ".2f"),
            (cell["device_memory_gib"], 10, ".2f"),
            (cell["seconds_per_update"], 9, ".3f"),
            (cell["updates"], 8, "d"),
            (cell["hours"], 8, ".2f"),
        )
        words = (f"{'-' if value is None else format(value, form):>{width}}" for value, width, form in figures)
        lines.append(f"{cell['name']:38} {' '.join(words)} {cell['runs']}")
    ran = [cell for cell in found["cells"] if cell["status"] == "ran"]
    hours = sum(cell["hours_of_all_runs"] for cell in ran)
    device = found["environment"]["accelerator"] if has_device else found["environment"]["processor"]
    lines.append(
        f"The whole would take {hours:.1f} hours on this device ({device}): {sum(cell['runs'] for cell in ran)} runs."
    )
    absent: dict[str, list[str]] = {}
    for cell in found["cells"]:
        if cell["status"] == "not at hand":
            absent.setdefault(cell["reason"], []).append(cell["name"])
    lines += [f"Not at hand: {', '.join(names)}. {reason}" for reason, names in absent.items()]
    if failed := [cell["name"] for cell in found["cells"] if cell["status"] == "failed"]:
        lines.append(f"{len(failed)} of {len(found['cells'])} cells failed: {', '.join(failed)}")
    return "\n".join(lines)

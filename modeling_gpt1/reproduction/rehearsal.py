"""A rehearsal: the cells for one seed, cut to a few updates and rows, and what each would need in full."""

import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import cache, partial
from pathlib import Path

import numpy as np
import psutil
import torch
import yaml

from tokenization import TraversalCollator, add_control_tokens, get_task, load_task, open_tokenizer

from ..inference.devices import default_device
from ..inference.heuristics import get_heuristic
from ..training.preparation import open_task_config
from .arguments import ReproduceArguments, as_settings
from .cells import Cell, Run, count_rows, model_of, plan, zero_shot_cells
from .models import environment, read_json

REHEARSAL = "rehearsal"  # its folder in the output folder
SAMPLED_ROWS = 256  # training rows whose tokens are counted
GIB = 2**30
Measure = Callable[[dict, Path, float], dict]  # gets a cell's result, its folder and its seconds


def plan_rehearsal(arguments: ReproduceArguments) -> Iterator[Cell]:
    """The cells of the first seed, and for zero_shot the last checkpoint of each model with each task."""
    rows = str(arguments.rehearse_rows)
    short = ["--max_steps", str(arguments.rehearse), "--max_eval_samples", rows, "--max_predict_samples", rows]
    short += ["--logging_steps", "1", "--include_num_input_tokens_seen", "non_padding"]
    first = replace(
        arguments,
        experiments=[name for name in arguments.experiments if name != "zero_shot"],
        seeds=arguments.seeds[:1],
        finetune_arguments=[*arguments.finetune_arguments, *short],
    )
    for cell in plan(first):
        yield rehearsed(cell, len(arguments.seeds), partial(measure_fine_tuning, arguments, cell))
    for name in arguments.zero_shot_tasks if "zero_shot" in arguments.experiments else ():
        limits = dict.fromkeys(("zero_shot_max_eval_samples", "zero_shot_max_train_samples"), arguments.rehearse_rows)
        cells = zero_shot_cells(replace(arguments, zero_shot_tasks=[name], **limits))
        for family in dict.fromkeys(cell.about["family"] for cell in cells):
            *_, last = of_family = [cell for cell in cells if cell.about["family"] == family]
            cell = replace(last, name=f"{name}-zero-shot-{family}")
            yield rehearsed(cell, len(of_family), partial(measure_zero_shot, arguments, name))


def rehearsed(cell: Cell, runs: int, measure: Measure) -> Cell:
    facts = {**cell.facts, "environment": environment()}  # another machine gives other figures
    return replace(cell, facts=facts, about={**cell.about, "runs": runs}, run=partial(run_measured, cell, measure))


def run_measured(cell: Cell, measure: Measure, run: Run, work: Path) -> dict:
    """Runs a cell's commands and measures them."""
    files = []

    def run_with_memory(command: list[str]) -> None:
        python, flag, *words = command
        files.append(work / f"memory-{len(files)}.json")
        run([python, flag, "modeling_gpt1.reproduction.measuring", str(files[-1]), *words])

    start = time.monotonic()
    result = cell.run(run_with_memory, work)
    seconds = time.monotonic() - start
    peaks = [read_json(path) for path in files]
    memory = {place: max((peak[place] for peak in peaks if peak[place]), default=None) for place in ("host", "device")}
    return {**result, "memory": memory, "whole": measure(result, work, seconds)}


def measure_fine_tuning(arguments: ReproduceArguments, cell: Cell, result: dict, work: Path, seconds: float) -> dict:
    """What the whole run of a task would take, from one of a few updates and rows.

    The first batch has the longest rows and the next ones are long too. So their time is the most that an update takes
    on average. Scaled by tokens it is the least, since some of the work does not depend on them.
    """
    name, given = cell.facts["task"], as_settings(arguments.finetune_arguments)
    settings = yaml.safe_load((work / "model" / "run.yaml").read_text(encoding="utf-8"))
    history = read_json(work / "model" / "trainer_state.json")["log_history"]
    logs = [record for record in history if "loss" in record]
    num_rows = count_rows(name, arguments.data_dir, get_task(name).train_split, given.get("max_train_samples"))
    updates_per_pass = logs[-1]["step"] / logs[-1]["epoch"]
    model = model_of(arguments, cell.facts["variant"])
    tokens_per_update = (
        num_rows / updates_per_pass * tokens_per_row(name, arguments.data_dir, model, settings["max_length"])
    )
    updates = int(given.get("max_steps", math.ceil(settings["num_train_epochs"] * updates_per_pass)))
    trained = result["metrics"]["train_runtime"]
    least = seconds_per_token(logs) * tokens_per_update
    most = max(least, trained / len(logs))
    rest = seconds - trained + seconds_of_other_rows(arguments, name, result)
    return {
        "updates": updates,
        "seconds_per_update": [round(least, 4), round(most, 4)],
        "hours": [round((updates * value + rest) / 3600, 4) for value in (least, most)],
    }


def seconds_per_token(logs: Sequence[dict]) -> float:
    """Of the updates after the first, which is slower; of the first if there is only one."""
    first, last = logs[0] if len(logs) > 1 else {"train_runtime": 0, "num_input_tokens_seen": 0}, logs[-1]
    num_tokens = last["num_input_tokens_seen"] - first["num_input_tokens_seen"]
    return (last["train_runtime"] - first["train_runtime"]) / num_tokens


@cache
def tokens_per_row(name: str, data_dir: str | None, model: str, max_length: int | None) -> float:
    """Mean number of tokens of a training row, in all its sequences."""
    task, tokenizer = get_task(name), open_tokenizer(model)
    add_control_tokens(tokenizer)
    length = max_length or open_task_config(model).max_position_embeddings
    collator = TraversalCollator(tokenizer, task.traversal, task.columns, length, regression=task.regression)
    rows = load_task(task, data_dir)[task.train_split]
    chosen = rows.select(np.random.default_rng(0).permutation(len(rows))[:SAMPLED_ROWS])
    return sum(int(collator([row])["attention_mask"].sum()) for row in chosen) / len(chosen)


def seconds_of_other_rows(arguments: ReproduceArguments, name: str, result: dict) -> float:
    """How much longer the whole evaluation takes than the one that was rehearsed."""
    given = as_settings(arguments.finetune_arguments)
    limits = {"eval": given.get("max_eval_samples")}
    limits["predict"] = given.get("max_predict_samples", limits["eval"])
    seconds = 0.0
    for of_task, metrics in {name: result["metrics"], **result.get("parts", {})}.items():
        task = get_task(of_task)
        for kind, names in (("eval", task.validation_splits), ("predict", task.test_splits)):
            for split in names:
                prefix = kind if len(names) == 1 else f"{kind}_{split}"
                if f"{prefix}_runtime" in metrics:
                    num_rows = count_rows(of_task, arguments.data_dir, split, limits[kind])
                    seconds += num_rows / metrics[f"{prefix}_samples_per_second"] - metrics[f"{prefix}_runtime"]
    return seconds


def measure_zero_shot(arguments: ReproduceArguments, name: str, result: dict, work: Path, seconds: float) -> dict:
    """What the whole evaluation of one model would take."""
    found = result["tasks"][name]
    num_rows = count_rows(name, arguments.data_dir, found["split"], arguments.zero_shot_max_eval_samples)
    if found["num_train_rows"]:
        split = get_heuristic(name).task.train_split
        num_rows += count_rows(name, arguments.data_dir, split, arguments.zero_shot_max_train_samples)
    whole = found["seconds"] * num_rows / (found["num_rows"] + found["num_train_rows"])
    hours = round((seconds - found["seconds"] + whole) / 3600, 4)
    return {"updates": None, "seconds_per_update": None, "hours": [hours, hours]}


# ---- What is told of it


def describe_rehearsal(
    arguments: ReproduceArguments, command: list[str], cells: Sequence[Cell], results: Sequence[dict | None], failures
) -> dict:
    """The content of rehearsal.json.

    Args:
        results: of each cell its result, or None if it has none.
        failures: messages by a cell's key.
    """
    lines = []
    for cell, result in zip(cells, results, strict=True):
        status = "ran" if result else "failed" if cell.key in failures else "not run"
        line = {"name": cell.name, "status": status, "reason": failures.get(cell.key), "runs": cell.about["runs"]}
        if result:
            memory = {f"{place}_memory_gib": size and round(size / GIB, 2) for place, size in result["memory"].items()}
            of_all = [round(hours * line["runs"], 3) for hours in result["whole"]["hours"]]
            line |= {"seconds": result["seconds"], **memory, **result["whole"], "hours_of_all_runs": of_all}
        lines.append(line)
    numbers = {"updates": arguments.rehearse, "rows": arguments.rehearse_rows, "jobs": arguments.jobs}
    return {
        **{"date": date.today().isoformat(), "command": shlex.join(command), "environment": environment()},
        **{**numbers, "cells": lines},
    }


def show(value: float | Sequence[float] | None, form: str) -> str:
    """A number, or a range if its ends differ."""
    if value is None:
        return "-"
    return " to ".join(dict.fromkeys(format(end, form) for end in (value if isinstance(value, list) else [value])))


def rehearsal_table(found: dict) -> str:
    """The rehearsal at a terminal."""
    columns = {
        "host_memory_gib": ("GiB", 6, ".2f"),
        "device_memory_gib": ("device GiB", 10, ".2f"),
        "seconds_per_update": ("s/update", 15, ".2f"),
        "updates": ("updates", 8, "d"),
        "hours": ("hours", 18, ".2f"),
    }
    lines = [f"{'cell':38} {' '.join(f'{head:>{width}}' for head, width, _ in columns.values())} runs"]
    ran = [cell for cell in found["cells"] if cell["status"] == "ran"]
    for cell in found["cells"]:
        told = cell["status"].upper()
        if cell in ran:
            figures = (f"{show(cell[name], form):>{width}}" for name, (_, width, form) in columns.items())
            told = f"{' '.join(figures)} {cell['runs']}"
        lines.append(f"{cell['name']:38} {told}")
    hours = [sum(cell["hours_of_all_runs"][end] for cell in ran) / found["jobs"] for end in (0, 1)]
    machine = found["environment"]
    device = machine["processor"] if machine["accelerator"] == "none" else machine["accelerator"]
    num_runs = sum(cell["runs"] for cell in ran)
    lines.append(f"The whole would take {show(hours, '.1f')} hours on this device ({device}): {num_runs} runs.")
    return "\n".join(lines)


def check_memory(arguments: ReproduceArguments) -> None:
    """
    Raises:
        ValueError: by the rehearsal in the output folder, so many cells at once could need more memory than there is.
    """
    path = Path(arguments.output_dir, REHEARSAL, "rehearsal.json")
    if arguments.jobs == 1 or not path.is_file():
        return
    device = default_device()
    place = "host" if device.type == "cpu" else "device"
    total = psutil.virtual_memory().total if place == "host" else torch.get_device_module(device).mem_get_info()[1]
    sizes = sorted((cell.get(f"{place}_memory_gib") or 0 for cell in read_json(path)["cells"]), reverse=True)
    needed = sum(sizes[: arguments.jobs])
    if needed > total / GIB:
        raise ValueError(
            f"--jobs {arguments.jobs}: the largest {arguments.jobs} cells of {path} need {needed:.1f} GiB together, "
            f"and there are {total / GIB:.1f}. Pass fewer jobs."
        )

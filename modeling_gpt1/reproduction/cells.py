"""The cells of the experiments: which there are, what decides each result, and the commands that give it.

A rehearsal has the same cells for one seed, cut to a few updates and rows, and tells what each would need in full.
"""

import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import yaml
from datasets import DatasetDict

from tokenization import Task, TraversalCollator, add_control_tokens, get_task, load_task, open_tokenizer
from tokenization.rows import are_all_labelled

from ..inference.checkpoints import saved_checkpoints
from ..inference.heuristics import HEURISTICS, get_heuristic
from ..training.preparation import open_task_config
from ..training.transfer import check_n_transfer
from .arguments import VARIANTS, ReproduceArguments, as_settings, deciding_settings
from .claims import TRAINING_ROWS
from .models import (
    data_fingerprint,
    environment,
    family,
    load_config,
    model_fingerprint,
    model_name,
    text_fingerprint,
)
from .report import build_report, page
from .tables import COLUMNS

COMMAND = (sys.executable, "-m", "modeling_gpt1.commands")
PARTS = {"race": ("race-middle", "race-high")}  # on which the model of the whole task is scored too
SAMPLED_ROWS = 256  # training rows whose tokens a rehearsal counts
Run = Callable[[list[str]], None]


@dataclass(frozen=True)
class Cell:
    """One result that an experiment needs."""

    name: str  # readable, for files and progress, such as `rte-full-seed1`
    facts: dict  # everything that decides the result, and nothing else; the cell's file has these fields too
    about: dict  # further facts for readers of the file
    run: Callable[[Run, Path], dict]  # gets a function that runs a command, and an empty folder; gives the result
    runs: int = 1  # how many such cells the whole has, of which a rehearsal runs one
    absent: str | None = None  # why a rehearsal cannot run it on the rows at hand

    @property
    def key(self) -> str:
        text = json.dumps(self.facts, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


# ---- Which cells there are


def check_families(arguments: ReproduceArguments) -> None:
    """Raises ValueError if the report would call an LSTM a Transformer, or the reverse."""
    lstm = "gpt1-lstm"
    if arguments.model is not None and family(arguments.model) == lstm:
        raise ValueError(
            f"--model {arguments.model} is an LSTM. Pass it as --lstm_model, and a Transformer as --model."
        )
    if arguments.lstm_model is not None and family(arguments.lstm_model) != lstm:
        raise ValueError(
            f"--lstm_model {arguments.lstm_model} is not an LSTM: its model type is "
            f"{load_config(arguments.lstm_model).model_type}. Pass one that was trained with --family {lstm}."
        )


def plan(arguments: ReproduceArguments) -> list[Cell]:
    """The cells of the experiments, each once. All cells of one seed come before those of the next."""
    if arguments.rehearse is not None:
        return list(plan_rehearsal(arguments))
    cells = []
    for seed in arguments.seeds:
        for experiment in arguments.experiments:
            if experiment in WITHOUT_SEEDS:
                cells += WITHOUT_SEEDS[experiment](arguments) if seed == arguments.seeds[0] else []
            else:
                cells += [fine_tuning_cell(arguments, *of, seed, size) for *of, size in runs_of(arguments, experiment)]
    return list({cell.key: cell for cell in cells}.values())


def runs_of(arguments: ReproduceArguments, experiment: str) -> Iterator[tuple[str, str, int | None]]:
    """Task, variant and number of training rows of each run, without sizes that the files do not have."""
    tasks, variants, sizes = arguments.tasks, ["full"], [None]
    if experiment == "ablations":
        variants = arguments.variants
    if experiment == "layer_transfer":
        tasks = arguments.transfer_tasks
        variants = [transfer_variant(arguments, number) for number in transfer_layers(arguments)]
    if experiment == "auxiliary_sizes":
        tasks, variants, sizes = arguments.auxiliary_tasks, ["full", "without_auxiliary"], arguments.auxiliary_sizes
    for task in tasks:
        most = num_training_rows(task, arguments.data_dir) if experiment == "auxiliary_sizes" else 0
        for size in sizes:
            if size is None or size <= most:
                yield from ((task, variant, size) for variant in variants)


def num_training_rows(task: str, data_dir: str | None) -> int:
    """The rows of the files; of the hub's data sets about as many."""
    if data_dir is None:
        return next(
            TRAINING_ROWS[key] for key, column in COLUMNS.items() if column.task == task and key in TRAINING_ROWS
        )
    try:
        splits = load_task(task, data_dir)
    except ValueError:
        return sys.maxsize  # its cells tell what is wrong
    return len(splits[get_task(task).train_split]) if get_task(task).train_split in splits else 0


def transfer_layers(arguments: ReproduceArguments) -> list[int]:
    config = load_config(arguments.model)
    for number in arguments.transfer_layers or ():
        check_n_transfer(config, number)
    return arguments.transfer_layers or list(range(config.num_hidden_layers + 1))


def transfer_variant(arguments: ReproduceArguments, number: int) -> str:
    """The variant that transfers `number` layers. The two ends of the curve are variants of table 5."""
    ends = {-1: "without_pretraining", load_config(arguments.model).num_hidden_layers: "full"}
    return ends.get(number, f"transfer-{number}")


# ---- One cell


def fine_tuning_cell(
    arguments: ReproduceArguments, task: str, variant: str, seed: int, size: int | None = None
) -> Cell:
    """A fine-tuning run.

    Args:
        variant: one of `VARIANTS`, or `transfer-<k>` for the checkpoint's first k layers.
        size: number of training rows of a cell of auxiliary_sizes. If all cells have as many, it is the tables' cell.
    """
    model = model_of(arguments, variant)
    n_transfer = -1 if variant == "without_pretraining" else None
    if variant.startswith("transfer-"):
        n_transfer = int(variant.removeprefix("transfer-"))
    flags = VARIANTS.get(variant, ["--n_transfer", str(n_transfer)])
    given = [*arguments.finetune_arguments, *(arguments.lstm_finetune_arguments if variant == "lstm" else [])]
    if size is not None and as_settings(given).get("max_train_samples") == str(size):
        size = None
    if size is not None:
        given += ["--max_train_samples", str(size)]
    settings = deciding_settings(given)
    if "max_eval_samples" in settings and "max_predict_samples" not in settings:  # a test split is scored alike
        settings["max_predict_samples"] = settings["max_eval_samples"]
        given += ["--max_predict_samples", settings["max_predict_samples"]]
    if variant == "without_auxiliary":
        settings.pop("lm_coef", None)  # this variant sets its own λ
    facts = {
        "kind": "fine_tuning",
        "task": task,
        "variant": "transfer" if variant.startswith("transfer-") else variant,
        "n_transfer": n_transfer,
        "lm_coef": 0.0 if variant == "without_auxiliary" else None,
        "seed": seed,
        "settings": settings,
        "model_fingerprint": model_fingerprint(model),
        "data": data_of(arguments, get_task(task)),
    }
    name = f"{task}-{variant}-seed{seed}"
    if size is not None:  # absent from other cells, whose names must stay
        name, facts["size"] = f"{task}-{variant}-{size}-rows-seed{seed}", size
    run = partial(fine_tune, arguments, task, given, ["--model", model, *flags], seed)
    return Cell(name, facts, {"model": model_name(model)}, run)


def model_of(arguments: ReproduceArguments, variant: str) -> str | None:
    return arguments.lstm_model if variant == "lstm" else arguments.model


def data_of(arguments: ReproduceArguments, task: Task) -> dict[str, str] | str:
    return data_fingerprint(arguments.data_dir, tuple(dict.fromkeys((task.name, task.folder or task.name))))


def zero_shot_cells(arguments: ReproduceArguments) -> list[Cell]:
    """One cell per checkpoint of the two runs, in the order of updates. A model without a run gets one cell."""
    cells = []
    for folder, model in (arguments.checkpoints, arguments.model), (arguments.lstm_checkpoints, arguments.lstm_model):
        if folder is not None:
            cells += [zero_shot_cell(arguments, folder, **checkpoint) for checkpoint in saved_checkpoints(folder)]
        elif model is not None:
            cells.append(zero_shot_cell(arguments, model, model))
    return cells


def zero_shot_cell(
    arguments: ReproduceArguments, run_folder: str, model: str, step: int | None = None, tokens: int | None = None
) -> Cell:
    facts = {
        "kind": "zero_shot",
        "step": step,
        "tokens": tokens,
        "settings": {
            "tasks": arguments.zero_shot_tasks,
            "max_rows": arguments.zero_shot_max_eval_samples,
            "max_train_rows": arguments.zero_shot_max_train_samples,
        },
        "model_fingerprint": model_fingerprint(model),
        "data": {name: data_of(arguments, get_heuristic(name).task) for name in arguments.zero_shot_tasks},
    }
    # If a checkpoint has no tokenizer, the folder of its run has it.
    has_tokenizer = (Path(model) / "tokenizer_config.json").exists()
    run = partial(ask_zero_shot, arguments, model, model if has_tokenizer else run_folder)
    place = "final" if step is None else f"checkpoint-{step}"
    about = {"model": model_name(model), "family": family(model)}
    return Cell(f"zero-shot-{family(model)}-{place}", facts, about, run)


def position_cells(arguments: ReproduceArguments) -> list[Cell]:
    """One cell for each model, on blocks of one length, if there is held-out text."""
    models = [model for model in (arguments.model, arguments.lstm_model) if model is not None]
    cells = []
    for model in models if arguments.validation_files else ():
        length = min(load_config(of).max_position_embeddings for of in models)
        facts = {
            "kind": "positions",
            "settings": {"num_blocks": arguments.num_blocks, "block_length": length},
            "model_fingerprint": model_fingerprint(model),
            "data": text_fingerprint(tuple(arguments.validation_files)),
        }
        about = {"model": model_name(model), "family": family(model)}
        cells.append(
            Cell(f"positions-{family(model)}", facts, about, partial(measure_positions, arguments, model, length))
        )
    return cells


# Experiments on the models as they are.
WITHOUT_SEEDS = {"zero_shot": zero_shot_cells, "loss_by_position": position_cells}


# ---- The commands of a cell, and what is read of their files


def fine_tune(
    arguments: ReproduceArguments, task: str, given: list[str], model: list[str], seed: int, run: Run, work: Path
) -> dict:
    """Trains and evaluates in the folder `work`.

    Args:
        given: arguments of `gpt1 finetune` as the user gave them.
        model: arguments for the model and the variant, which override those.

    Returns:
        The metrics, the answers to each row, and the scores × 100 by the paper's column.
    """
    data_dir = arguments.data_dir
    check_can_be_scored(task, data_dir)
    result = finetune(data_dir, task, [*given, *model, "--do_train"], seed, run, work / "model")
    if "answers" in result:  # a sample of a data set may have fewer rows than the data set
        limit = as_settings(given).get("max_train_samples")
        result["train_rows"] = count_rows(task, data_dir, get_task(task).train_split, limit)
    scores = scores_of(task, result["metrics"])
    for part in PARTS.get(task, ()):
        metrics = {}
        # RACE as files of the whole task has no parts.
        if data_dir is None or splits_of(part, data_dir)[0] is not None:
            flags = [*given, "--model", str(work / "model")]
            metrics = finetune(data_dir, part, flags, seed, run, work / part)["metrics"]
            scores |= scores_of(part, metrics)
        result.setdefault("parts", {})[part] = metrics
    return {**result, "scores": scores}


def finetune(data_dir: str | None, task: str, flags: list[str], seed: int, run: Run, output_dir: Path) -> dict:
    data = [] if data_dir is None else ["--data_dir", data_dir]
    run(
        [
            *(*COMMAND, "finetune", "--task", task, *data, "--seed", str(seed)),
            *("--output_dir", str(output_dir), "--save_strategy", "no", "--disable_tqdm", "true"),
            *(*flags, *uses_of(task, data_dir)),
        ]
    )
    metrics = json.loads((output_dir / "all_results.json").read_text(encoding="utf-8"))
    answers = read_answers(task, data_dir, output_dir)
    return {"metrics": metrics, **({"answers": answers} if answers else {})}


def uses_of(task: str, data_dir: str | None) -> list[str]:
    flags = {("--do_eval", "--eval_predictions"): "validation", ("--do_predict",): "test"}
    return [flag for of_kind, kind in flags.items() if has_split(task, data_dir, kind) for flag in of_kind]


def read_answers(name: str, data_dir: str | None, output_dir: Path) -> dict[str, dict[str, str]]:
    """Labels and predictions of the scored rows by split, as numbers with spaces between them."""
    task, found = get_task(name), {}
    for prefix, splits in (("eval_", task.validation_splits), ("", task.test_splits)):
        for split in splits:
            path = output_dir / f"{prefix}predictions{'' if len(splits) == 1 else f'_{split}'}.jsonl"
            if path.is_file():
                rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                labels = load_task(task, data_dir)[split][task.columns["label"]][:]
                found[split] = {
                    "labels": " ".join(str(labels[row["index"]]) for row in rows),
                    "predictions": " ".join(prediction_of(task, row) for row in rows),
                }
    return found


def prediction_of(task: Task, row: dict) -> str:
    if task.regression:
        return str(row["score"])  # whole: digits decide a correlation of answers that differ little
    return str(task.label_names.index(row["label"]) if task.label_names else row["label"])


def check_can_be_scored(name: str, data_dir: str | None) -> None:
    """Raises ValueError if the task has no labelled data to score. Called before training, not hours later."""
    wanted = get_task(name).validation_splits
    # `gpt1 finetune` names metrics differently for one split and for several.
    in_part = data_dir is not None and len(wanted) > 1 and not set(wanted) <= set(load_task(name, data_dir))
    if in_part or not uses_of(name, data_dir):
        raise ValueError(
            f"A run of {name} could not be scored: there are no labelled rows in {' and '.join(wanted)}. Add them to "
            "the task's folder."
        )


@cache
def splits_of(name: str, data_dir: str | None) -> tuple[DatasetDict | None, str]:
    """The splits of a task; or None, and why no file of it is at hand."""
    try:
        return load_task(task_of(name), data_dir), ""
    except ValueError as error:
        if str(error).startswith("No file of task"):
            return None, str(error)
        raise  # files that are there but cannot be read


def task_of(name: str) -> Task:
    return HEURISTICS[name].task if name in HEURISTICS else get_task(name)


def count_rows(name: str, data_dir: str | None, split: str, limit: str | int | None) -> int:
    """The rows that a run takes of a split."""
    num_rows = len(splits_of(name, data_dir)[0][split])
    return num_rows if limit is None else min(num_rows, int(limit))


@cache
def has_split(name: str, data_dir: str | None, kind: str) -> bool:
    """Whether the data has labelled splits of the kind `validation` or `test`. GLUE hides its test labels."""
    task = get_task(name)
    if task.hub_path == "nyu-mll/glue":
        return kind == "validation"
    splits, label = load_task(task, data_dir), task.columns["label"]
    names = getattr(task, f"{kind}_splits")
    return all(split in splits and are_all_labelled(splits[split], label) for split in names)


def scores_of(name: str, metrics: dict) -> dict[str, float]:
    """The paper's metric × 100 by the paper's column, on the test split if it has labels, else on validation."""
    found = {}
    for key, column in COLUMNS.items():
        if column.task == name and len(column.parts) < 2:
            keys = [*column.metric_keys("test"), *column.metric_keys("validation")]
            if not set(keys) & set(metrics):
                raise ValueError(f"The run of {name} ended without {' or '.join(keys)}: no split has labels.")
            found[key] = 100 * next(metrics[of_split] for of_split in keys if of_split in metrics)
    return found


def ask_zero_shot(arguments: ReproduceArguments, model: str, tokenizer: str, run: Run, work: Path) -> dict:
    limits = {
        "--max_eval_samples": arguments.zero_shot_max_eval_samples,
        "--max_train_samples": arguments.zero_shot_max_train_samples,
    }
    limit = [word for flag, rows in limits.items() if rows is not None for word in (flag, str(rows))]
    data = [] if arguments.data_dir is None else ["--data_dir", arguments.data_dir]
    output = work / "zero_shot.json"
    run(
        [
            *(*COMMAND, "zero-shot", "--model", model, "--tokenizer_name", tokenizer),
            *("--tasks", *arguments.zero_shot_tasks, *data, *limit, "--output_file", str(output)),
        ]
    )
    return {"tasks": json.loads(output.read_text(encoding="utf-8"))["results"][0]["tasks"]}


def measure_positions(arguments: ReproduceArguments, model: str, length: int, run: Run, work: Path) -> dict:
    """Runs `positions.py`. Returns the losses by the number of tokens read."""
    output = work / "positions.json"
    module = [sys.executable, "-m", "modeling_gpt1.reproduction.positions"]
    run([*module, model, str(output), str(length), str(arguments.num_blocks), *arguments.validation_files])
    return json.loads(output.read_text(encoding="utf-8"))


# ---- Rehearsal


def plan_rehearsal(arguments: ReproduceArguments) -> Iterator[Cell]:
    """The cells of the first seed, cut to a few updates and rows; for zero_shot a cell for each task."""
    updates, rows = str(arguments.rehearse), str(arguments.rehearse_rows)
    short = ["--max_steps", updates, "--logging_steps", "1", "--include_num_input_tokens_seen", "non_padding"]
    short += ["--max_eval_samples", rows, "--max_predict_samples", rows]
    first = replace(
        arguments,
        rehearse=None,
        experiments=[name for name in arguments.experiments if name not in WITHOUT_SEEDS],
        seeds=arguments.seeds[:1],
        finetune_arguments=[*arguments.finetune_arguments, *short],
    )
    for cell in plan(first):
        absent = why_absent(cell.facts["task"], arguments.data_dir, for_training=True)
        measure = partial(measure_fine_tuning, arguments, cell)
        yield rehearsed(replace(cell, runs=len(arguments.seeds), absent=absent), measure)
    for name in arguments.zero_shot_tasks if "zero_shot" in arguments.experiments else ():
        limits = dict.fromkeys(("zero_shot_max_eval_samples", "zero_shot_max_train_samples"), int(rows))
        cells = zero_shot_cells(replace(arguments, zero_shot_tasks=[name], **limits))
        absent = why_absent(name, arguments.data_dir, for_training=False)
        for of in dict.fromkeys(cell.about["family"] for cell in cells):
            *_, last = of_family = [cell for cell in cells if cell.about["family"] == of]
            cell = replace(last, name=f"{name}-zero-shot-{of}", runs=len(of_family), absent=absent)
            yield rehearsed(cell, partial(measure_zero_shot, arguments, name))


def rehearsed(cell: Cell, measure: Callable[[dict, Path, float], dict]) -> Cell:
    facts = {**cell.facts, "environment": environment()}  # another machine gives other figures
    return replace(cell, facts=facts, run=partial(run_measured, cell, measure))


def why_absent(name: str, data_dir: str | None, for_training: bool) -> str | None:
    """Why a data set is not at hand, or None if it is or comes from the hub."""
    task = task_of(name)
    if data_dir is None:
        return None if task.hub_path else f"{name} is not on the hub. Pass --data_dir, a folder with a folder {name}."
    try:
        found, reason = splits_of(name, data_dir)
    except ValueError:
        return None  # a failure of the cell
    if found is None:
        return reason
    missing = [split for split in (task.train_split, *task.validation_splits) if split not in found]
    return f"{data_dir} has no rows of {', '.join(missing)} for {name}." if for_training and missing else None


def run_measured(cell: Cell, measure: Callable[[dict, Path, float], dict], run: Run, work: Path) -> dict:
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


def measure_fine_tuning(arguments: ReproduceArguments, cell: Cell, result: dict, work: Path, seconds: float) -> dict:
    """What the whole run of a task would take, from one of a few updates and rows.

    The first batch has the longest rows and the next ones are long too. So their time is the most that an update takes
    on average. Scaled by tokens it is the least, since some of the work does not depend on them.
    """
    name, data_dir, given = cell.facts["task"], arguments.data_dir, as_settings(arguments.finetune_arguments)
    settings = yaml.safe_load((work / "model" / "run.yaml").read_text(encoding="utf-8"))
    history = json.loads((work / "model" / "trainer_state.json").read_text(encoding="utf-8"))["log_history"]
    logs = [record for record in history if "loss" in record]
    limit = cell.facts.get("size") or given.get("max_train_samples")
    num_rows = count_rows(name, data_dir, task_of(name).train_split, limit)
    updates_per_pass = logs[-1]["step"] / logs[-1]["epoch"]
    per_row = tokens_per_row(name, data_dir, model_of(arguments, cell.facts["variant"]), settings["max_length"])
    tokens_per_update = num_rows / updates_per_pass * per_row
    updates = int(given.get("max_steps", math.ceil(settings["num_train_epochs"] * updates_per_pass)))
    trained = result["metrics"]["train_runtime"]
    least = seconds_per_token(logs) * tokens_per_update
    most = max(least, trained / len(logs))
    evaluation, evaluated = evaluation_seconds(arguments, name, result)
    rest = seconds - trained - evaluated  # start, reading the rows, writing the model
    return {
        "updates": updates,
        "seconds_per_update": [round(least, 4), round(most, 4)],
        "tokens_per_update": round(tokens_per_update),
        "hours": [round((updates * value + evaluation + rest) / 3600, 4) for value in (least, most)],
    }


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
    length = max_length or open_task_config(model).max_position_embeddings
    collator = TraversalCollator(tokenizer, task.traversal, task.columns, length, regression=task.regression)
    rows = splits_of(name, data_dir)[0][task.train_split]
    chosen = rows.select(np.random.default_rng(0).permutation(len(rows))[:SAMPLED_ROWS])
    return sum(int(collator([row])["attention_mask"].sum()) for row in chosen) / len(chosen)


def evaluation_seconds(arguments: ReproduceArguments, name: str, result: dict) -> tuple[float, float]:
    """Seconds of the whole evaluation, and of the one that was rehearsed."""
    given = as_settings(arguments.finetune_arguments)
    limits = {"eval": given.get("max_eval_samples")}
    limits["predict"] = given.get("max_predict_samples", limits["eval"])
    whole, rehearsed = 0.0, 0.0
    for of_task, metrics in {name: result["metrics"], **result.get("parts", {})}.items():
        task = get_task(of_task)
        for kind, names in (("eval", task.validation_splits), ("predict", task.test_splits)):
            for split in names:
                prefix = kind if len(names) == 1 else f"{kind}_{split}"
                if f"{prefix}_runtime" in metrics:
                    rehearsed += metrics[f"{prefix}_runtime"]
                    num_rows = count_rows(of_task, arguments.data_dir, split, limits[kind])
                    whole += num_rows / metrics[f"{prefix}_samples_per_second"]
    return whole, rehearsed


def measure_zero_shot(arguments: ReproduceArguments, name: str, result: dict, work: Path, seconds: float) -> dict:
    """What the whole evaluation of one model would take."""
    found = result["tasks"][name]
    num_rows = count_rows(name, arguments.data_dir, found["split"], arguments.zero_shot_max_eval_samples)
    if found["num_train_rows"]:
        split = task_of(name).train_split
        num_rows += count_rows(name, arguments.data_dir, split, arguments.zero_shot_max_train_samples)
    whole = found["seconds"] * num_rows / (found["num_rows"] + found["num_train_rows"])
    hours = round((seconds - found["seconds"] + whole) / 3600, 4)
    return {"updates": None, "seconds_per_update": None, "tokens_per_update": None, "hours": [hours, hours]}

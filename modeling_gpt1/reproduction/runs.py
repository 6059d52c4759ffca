"""Runs a cell as sub-processes of `gpt1 finetune` or `gpt1 zero-shot` and reads their scores."""

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tokenization import Task, get_task, load_task
from tokenization.rows import are_all_labelled

from .arguments import ReproduceArguments, as_settings

COMMAND = (sys.executable, "-m", "modeling_gpt1.commands")
# Columns of table 3 for parts of a task, on which the model of the whole task is scored too.
PARTS = {"race": {"race-m": "race-middle", "race-h": "race-high"}}


def fine_tune(
    arguments: ReproduceArguments,
    task: str,
    given: list[str],
    model: list[str],
    seed: int,
    run: Callable[[list[str]], None],
    work: Path,
) -> dict:
    """Trains and evaluates in the folder `work`.

    Args:
        given: arguments of `gpt1 finetune` as the user gave them.
        model: arguments for the model and the variant, which override those.

    Returns:
        The metrics, the answers to each row, and the scores × 100 by the paper's column.
    """
    check_can_be_scored(task, arguments.data_dir)
    result = finetune(arguments, task, [*given, *model, "--do_train"], seed, run, work / "model")
    if "answers" in result:  # a sample of a data set may have fewer rows than the data set
        result["train_rows"] = num_training_rows(task, arguments.data_dir, as_settings(given))
    scores = scores_of(task, result["metrics"])
    for column, part in PARTS.get(task, {}).items():
        if not has_files(part, arguments.data_dir):
            result.setdefault("parts", {})[part] = {}
            continue
        trained = [*given, "--model", str(work / "model")]
        of_part = finetune(arguments, part, trained, seed, run, work / part)
        result.setdefault("parts", {})[part] = of_part["metrics"]
        scores[column] = scores_of(part, of_part["metrics"])[part]
    return {**result, "scores": scores}


def finetune(
    arguments: ReproduceArguments, task: str, flags: list[str], seed: int, run: Callable, output_dir: Path
) -> dict:
    uses = uses_of(task, arguments.data_dir)
    data = [] if arguments.data_dir is None else ["--data_dir", arguments.data_dir]
    run(
        [
            *(*COMMAND, "finetune", "--task", task, *data, "--seed", str(seed)),
            *("--output_dir", str(output_dir), "--save_strategy", "no", "--disable_tqdm", "true"),
            *(*flags, *uses),
        ]
    )
    metrics = json.loads((output_dir / "all_results.json").read_text(encoding="utf-8"))
    answers = read_answers(task, arguments.data_dir, output_dir)
    return {"metrics": metrics, **({"answers": answers} if answers else {})}


def uses_of(task: str, data_dir: str | None) -> list[str]:
    flags = {("--do_eval", "--eval_predictions"): "validation", ("--do_predict",): "test"}
    return [flag for of_kind, kind in flags.items() if has_split(task, data_dir, kind) for flag in of_kind]


def num_training_rows(name: str, data_dir: str | None, settings: dict) -> int:
    num_rows = len(load_task(name, data_dir)[get_task(name).train_split])
    return min(num_rows, int(settings.get("max_train_samples", num_rows)))


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


def has_files(part: str, data_dir: str | None) -> bool:
    """Whether a part of a task has its own data. RACE as files of the whole task has none."""
    if data_dir is None:
        return True
    try:
        load_task(get_task(part), data_dir)
    except ValueError as error:
        if str(error).startswith("No file of task"):
            return False
        raise
    return True


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
    metric = get_task(name).metrics[0]
    keys = {name: (f"predict_{metric}", f"eval_{metric}")}
    if name == "mnli":
        keys = {
            "mnli-m": (f"eval_validation_matched_{metric}",),
            "mnli-mm": (f"eval_validation_mismatched_{metric}",),
        }
    found = {column: [metrics[key] for key in of if key in metrics] for column, of in keys.items()}
    for column, values in found.items():
        if not values:
            raise ValueError(f"The run of {name} ended without {' or '.join(keys[column])}: no split has labels.")
    return {column: 100 * values[0] for column, values in found.items()}


def ask_zero_shot(
    arguments: ReproduceArguments, model: str, tokenizer: str, run: Callable[[list[str]], None], work: Path
) -> dict:
    limits = {
        "--max_eval_samples": arguments.zero_shot_max_eval_samples,
        "--max_train_samples": arguments.zero_shot_max_train_samples,
    }
    limit = [word for flag, rows in limits.items() if rows is not None for word in (flag, str(rows))]
    data = [] if arguments.data_dir is None else ["--data_dir", arguments.data_dir]
    output = work / "zero_shot.json"
    run(
        [
            *(*COMMAND, "zero-shot", "--model", model),
            *("--tokenizer_name", tokenizer, "--tasks", *arguments.zero_shot_tasks, *data, *limit),
            *("--output_file", str(output)),
        ]
    )
    return {"tasks": json.loads(output.read_text(encoding="utf-8"))["results"][0]["tasks"]}


def measure_positions(
    arguments: ReproduceArguments, model: str, length: int, run: Callable[[list[str]], None], work: Path
) -> dict:
    """Runs `positions.py`. Returns the losses by the number of tokens read."""
    output = work / "positions.json"
    module = [sys.executable, "-m", "modeling_gpt1.reproduction.positions"]
    run([*module, model, str(output), str(length), str(arguments.num_blocks), *arguments.validation_files])
    return json.loads(output.read_text(encoding="utf-8"))

"""The rows that runs train on: which a run draws, which part settings are chosen on, what their classes alone give.

Settings are chosen on a part cut from the training rows. The validation and test rows, on which the report's scores
are, decide no setting.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset

from tokenization import Task, load_task
from tokenization.errors import UserError
from tokenization.rows.traversals import TRAVERSALS

from ..training.arguments import SEED_OF_SCORED_ROWS, draw_places

# The part that settings are chosen on: a fifth of the training rows, and no more than a thousand.
HELD_OUT_SHARE, MOST_HELD_OUT = 0.2, 1000
CUT_SEED = 0
# Cells name this rule, so that another rule makes other cells.
CUT_RULE = {"share": HELD_OUT_SHARE, "most": MOST_HELD_OUT, "seed": CUT_SEED}
# A run that learned nothing ends a little above or below the loss of the class frequencies, by the noise of batches.
LEAST_GAIN = 0.01


def load_training_rows(task: Task, data_dir: str | None) -> Dataset:
    """Raises UserError if the data has none."""
    splits = load_task(task, data_dir)
    if task.train_split not in splits:
        raise UserError(
            f"Task {task.name!r} has no training rows in {data_dir or 'the data set of the hub'}, only "
            f"{', '.join(splits)}. Add a file {task.train_split}.jsonl to the task's folder."
        )
    return splits[task.train_split]


def drawn(rows: Dataset, settings: Mapping, use: str, seed: int) -> Dataset:
    """The rows that `gpt1 finetune` uses of a split with these settings: `max_<use>_samples`, and `data_seed`.

    Those to train on are drawn with the seed. Those that are scored are the same for every seed.
    """
    limit = settings.get(f"max_{use}_samples")
    if limit is None:
        return rows
    drawn_with = int(settings.get("data_seed", seed)) if use == "train" else SEED_OF_SCORED_ROWS
    return rows.select(draw_places(len(rows), int(limit), drawn_with))


def cut(rows: Dataset, task: Task) -> tuple[Dataset, Dataset]:
    """The training rows without a part, and that part, which is held out.

    Rows with the same first text (a premise, an article) stay together: a model that has seen an article would do
    better on its other questions. A text of so many rows that half of all would be held out stays in training.

    Raises:
        UserError: no part can be held out.
    """
    indices_of_text: dict[str, list[int]] = {}
    for index, text in enumerate(rows[task.text_columns[0]][:]):
        indices_of_text.setdefault(text, []).append(index)
    groups = list(indices_of_text.values())
    wanted = min(MOST_HELD_OUT, math.floor(HELD_OUT_SHARE * len(rows)))
    held_out: set[int] = set()
    for number in np.random.default_rng(CUT_SEED).permutation(len(groups)):
        if len(held_out) >= wanted:
            break
        if len(held_out) + len(groups[number]) <= len(rows) / 2:
            held_out.update(groups[number])
    if not held_out:
        raise UserError(
            f"The {len(rows)} training rows of task {task.name!r} are too few, or too alike in column "
            f"{task.text_columns[0]!r}, to hold a part out on which settings are chosen. Give more rows, or leave "
            "--tune out, and baselines out of --experiments."
        )
    kept = [index for index in range(len(rows)) if index not in held_out]
    return rows.select(kept), rows.select(sorted(held_out))


def write_cut(task: Task, data_dir: str | None, folder: Path) -> None:
    """Writes the training rows as a data set of their own, whose validation rows are the part that is held out."""
    training, held_out = cut(load_training_rows(task, data_dir), task)
    task_folder = folder / task.name
    task_folder.mkdir(parents=True)
    training.to_json(task_folder / f"{task.train_split}.jsonl")
    for split in task.validation_splits:
        held_out.to_json(task_folder / f"{split}.jsonl")


# ---- Whether a run has trained


def loss_of_frequencies(rows: Dataset, task: Task) -> float:
    """The task's loss of the best answer that is the same for every row.

    That is the entropy of the classes, in nats; of a regression the variance of the numbers; of choices the mean
    logarithm of their number.
    """
    labels = np.asarray(rows[task.columns["label"]][:])
    if task.regression:
        return float(labels.var())
    if TRAVERSALS[task.traversal].has_choices:  # a choice has no class: all places are alike
        choices = task.columns["choices"]
        numbers = [len(of_row) for of_row in rows[choices][:]] if isinstance(choices, str) else [len(choices)]
        return float(np.mean(np.log(numbers)))
    _, counts = np.unique(labels, return_counts=True)
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def loss_of_last_epoch(history: Sequence[Mapping]) -> float | None:
    """The mean task loss over the last epoch of a `log_history`; None if nothing was logged."""
    logged = [record for record in history if "task_loss" in record]
    if not logged:
        return None
    last_epoch = logged[-1]["epoch"]
    total, num_updates, previous = 0.0, 0, 0
    for record in logged:
        updates = record["step"] - previous
        previous = record["step"]
        if record["epoch"] > last_epoch - 1:
            total += updates * record["task_loss"]
            num_updates += updates
    return total / num_updates


def has_failed(cell: Mapping) -> bool:
    """Whether a run failed to train: its training loss is not 1 % below that of the class frequencies."""
    training = cell.get("training")
    if training is None or training["task_loss"] is None:
        return False
    is_below = training["task_loss"] < (1 - LEAST_GAIN) * training["loss_of_frequencies"]
    return not is_below  # also if the loss is NaN

"""The weight of each class in the loss of a fine-tuning, from what `GPT1TrainingArguments.class_weights` names."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedConfig

from tokenization import TraversalCollator
from tokenization.errors import UserError
from tokenization.wording import listed, nearest

from ..configuration_gpt1 import is_regression, scores_choices

BALANCED = "balanced"
HOW = (
    f"Pass `class_weights` as {BALANCED!r}, as a number for each class in the order of their ids, or by name: in a "
    "command as positive=2, in Python as {'positive': 2}"
)


def weights_of_classes(
    given: str | Sequence[Any] | Mapping[str, float], config: PreTrainedConfig, rows: Any, collator: Any
) -> list[float]:
    """The weight of each class, in the order of their ids.

    Args:
        given: "balanced", a number for each class, or weights by name (as `["happy=2"]` or `{"happy": 2}`); a class
            that is not named weighs 1.
        config: of the model; it has the names of the classes.
        rows: those of the training, for "balanced": N / (K · N of the class) with the K classes that have rows,
            so that the mean over the rows is 1.
        collator: knows which column of the rows is the label.

    Raises:
        ValueError: the task has no classes of which a row has one, or the weights are not theirs.
    """
    check_task(config)
    names = [config.id2label[label] for label in range(config.num_labels)]
    entries = [given] if isinstance(given, str) else given
    if isinstance(entries, Mapping):
        weights = by_name(entries, names)
    elif list(entries) == [BALANCED]:
        weights = balanced(labels_of(rows, collator), len(names))
    elif all("=" in str(entry) for entry in entries):
        weights = by_name(dict(str(entry).rsplit("=", maxsplit=1) for entry in entries), names)
    else:
        weights = in_order(entries, names)
    if not any(weights):
        raise UserError(f"`class_weights` is 0 for every class, so that no class would be learnt. {HOW}.")
    return weights


def check_task(config: PreTrainedConfig) -> None:
    have = None
    if is_regression(config):
        have = "numbers"
    elif config.problem_type == "multi_label_classification":
        have = "several classes each"
    elif scores_choices(config):
        have = "choices"
    if have is not None:
        needed = "`class_weights` is for tasks whose rows have one class each"
        raise UserError(f"{needed}, but the rows of this task have {have}. Leave it out.")


def labels_of(rows: Any, collator: Any) -> np.ndarray:
    """The ids of the classes of the training rows that have one."""
    if rows is None:
        raise UserError(f"`class_weights` is {BALANCED!r}, which needs training rows. Pass `train_dataset`.")
    if not isinstance(collator, TraversalCollator):
        raise UserError(
            f"`class_weights` is {BALANCED!r}, but the label's column is unknown without a `TraversalCollator`. "
            "Pass a number for each class."
        )
    column = collator.columns["label"]
    labels = np.array(rows[column][:] if isinstance(rows, Dataset) else [row[column] for row in rows])
    return labels[labels >= 0]


def balanced(labels: np.ndarray, num_classes: int) -> list[float]:
    counts = np.bincount(labels, minlength=num_classes)
    return (len(labels) / (np.count_nonzero(counts) * counts.clip(min=1))).tolist()


def by_name(given: Mapping[str, Any], names: list[str]) -> list[float]:
    for name in given:
        if name not in names:
            known = f"The classes: {listed(names)}"
            raise UserError(f"`class_weights` has {name!r}, which is no class{nearest(name, names)}. {known}.")
    return [as_weight(given.get(name, 1)) for name in names]


def in_order(given: Sequence[Any], names: list[str]) -> list[float]:
    if len(given) != len(names):
        has = f"`class_weights` is {' '.join(map(str, given))}"
        raise UserError(f"{has}, but there are {len(names)} classes: {listed(names)}. {HOW}.")
    return [as_weight(weight) for weight in given]


def as_weight(given: Any) -> float:
    try:
        weight = float(given)
    except (TypeError, ValueError):
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise UserError(f"`class_weights` has {given!r}, which is no number from 0. {HOW}.")
    return weight

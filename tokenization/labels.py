"""The labels of rows as a tensor, and why one cannot be used."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import torch

NO_LABEL = -100  # torch's `ignore_index`; the losses leave such labels out


def label_of(given: Any, hidden_label: int | None) -> Any:
    """A label that a row holds; None where it is none, or the hidden one."""
    if getattr(given, "ndim", None) == 0:
        given = given.item()  # numpy and torch scalars of formatted data sets
    return None if not getattr(given, "ndim", 0) and given == hidden_label else given


def read_labels(
    labels: Sequence, names: Sequence[str], num_classes: Sequence[int | None], regression: bool, multi_label: bool
) -> torch.Tensor:
    """The labels `[B]`, int64, or float32 for regression; where a row may have several, float32 `[B, K]`.

    Args:
        names: the rows' names in error messages.
        num_classes: the number of classes, or of the row's choices, if it is known.

    Raises:
        ValueError: a label that cannot be used.
    """
    for label, name, number in zip(labels, names, num_classes, strict=True):
        if multi_label:
            fits = isinstance(label, Sequence) and len(label) == number and {0, 1}.issuperset(label)
            needed = f"0 or 1 for {number} classes"
        elif regression:
            fits = isinstance(label, numbers.Real) and math.isfinite(label) and label != NO_LABEL
            needed = f"a finite number other than {NO_LABEL}, which the loss takes for no label"
        else:
            fits = isinstance(label, numbers.Integral) and 0 <= label < (number or math.inf)
            needed = f"a class or choice, an integer from 0 {'upwards' if number is None else f'to {number - 1}'}"
        if not fits:
            raise ValueError(
                f"{name}: the label is {label!r} of type {type(label).__name__}; it needs {needed}. Correct the row, "
                "or map all labels, for example with Dataset.class_encode_column."
            )
    return torch.tensor(labels, dtype=torch.float32 if regression or multi_label else torch.int64)

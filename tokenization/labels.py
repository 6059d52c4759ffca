"""The labels of rows as a tensor, and why one cannot be used."""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .traversal import TRAVERSALS

NO_LABEL = -100  # torch's `ignore_index`; the losses leave such labels out


@dataclass(frozen=True)
class RowLabels:
    """Reads labels, and tells why one cannot be used. The fields are those of `TraversalCollator`."""

    column: str | None
    traversal: str
    num_labels: int | None
    regression: bool
    hidden_label: int | None
    multi_label: bool = False

    def read(
        self, given: Sequence, names: Sequence[str], num_sequences: Sequence[int], needed: bool | None = None
    ) -> torch.Tensor | None:
        """The labels of some rows, `[B]`, int64, or float32 for regression; None where no row has one.

        Where a row may have several, float32 `[B, K]`.

        Args:
            given: what the rows hold in the column.
            names: the rows' names in error messages.
            num_sequences: the number of choices of each row, where they are the classes.
            needed: True where each row must have a label; False where some may have none; None: all or none.

        Raises:
            ValueError: a label that cannot be used, or a row without one.
        """
        labels = list(map(self.of, given))
        hidden = [label is None for label in labels]
        if all(hidden) and not needed:
            return None
        if any(hidden) and needed is not False:
            raise ValueError(self._unlabelled(given, names, hidden, needed))
        labelled = [three for three in zip(labels, names, num_sequences, strict=True) if three[0] is not None]
        return self._tensor(*zip(*labelled, strict=True))

    def of(self, label: Any) -> Any:
        """A label that a row holds; None where it is none, or a hidden one."""
        if getattr(label, "ndim", None) == 0:
            label = label.item()  # numpy and torch scalars of formatted data sets
        if getattr(label, "ndim", 0):
            return label  # an array is no label: `_number` and `_class` refuse it
        return None if label == self.hidden_label else label

    def _tensor(self, labels: Sequence, names: Sequence[str], num_sequences: Sequence[int]) -> torch.Tensor:
        if self.multi_label:
            for label, name in zip(labels, names, strict=True):
                if not isinstance(label, Sequence) or len(label) != self.num_labels or not {0, 1}.issuperset(label):
                    raise ValueError(f"{name}: the label is {label!r}; it needs 0 or 1 for {self.num_labels} classes.")
            return torch.tensor(labels, dtype=torch.float32)
        if self.regression:
            values = [self._number(*two) for two in zip(labels, names, strict=True)]
            return torch.tensor(values, dtype=torch.float32)
        return torch.tensor([self._class(*three) for three in zip(labels, names, num_sequences, strict=True)])

    def _unlabelled(self, given: Sequence, names: Sequence[str], hidden: list[bool], needed: bool | None) -> str:
        row = hidden.index(True)
        held = given[row]
        where = f"column {self.column!r} holds {held!r}" if self.column else "`columns` has no role label"
        why = "every row needs one for training and evaluation"
        if not needed:
            why = f"{names[hidden.index(False)]} has one, and a batch needs a label in every row or in none"
        text = f"{names[row]} has no label ({where}); {why}. Label or remove such rows."
        return text if held is None else f"{text} If {held!r} is a real label, set hidden_label=None."

    def _number(self, label: Any, name: str) -> float:
        if not isinstance(label, numbers.Real) or not math.isfinite(label):
            raise ValueError(
                f"{name}: the label is {label!r} of type {type(label).__name__}; regression needs a finite number."
            )
        if label == NO_LABEL:
            raise ValueError(
                f"{name}: the label is {label!r}, which the loss takes for no label. Add a constant to all labels, or "
                f"pass `hidden_label={NO_LABEL}` if the row has none."
            )
        return float(label)

    def _class(self, label: Any, name: str, num_sequences: int) -> int:
        choice = TRAVERSALS[self.traversal].has_choices
        num_classes = num_sequences if choice else self.num_labels
        bound = "0 upwards" if num_classes is None else f"0 to {num_classes - 1}"
        needed = f"the index of the right choice, from {bound}" if choice else f"a class from {bound}"
        if not isinstance(label, numbers.Integral):
            raise ValueError(
                f"{name}: the label is {label!r} of type {type(label).__name__}; it needs an integer, {needed}. Map "
                "the labels to integers first, for example with Dataset.class_encode_column or Dataset.map."
            )
        if label < 0 or (num_classes is not None and label >= num_classes):
            has = f"the row has {num_classes} choices" if choice else f"num_labels is {num_classes}"
            raise ValueError(f"{name}: the label is {label}, but {has}; it needs {needed}.")
        return int(label)


__all__ = ["RowLabels"]

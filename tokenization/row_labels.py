"""The labels of a task's rows: which rows have one, and which have one that the task cannot use."""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from datasets import Dataset


NO_LABEL = -100  # torch's `ignore_index`; the losses leave such labels out


@dataclass(frozen=True)
class RowLabels:
    """Reads labels, and tells why one cannot be used. The fields are those of `TraversalCollator`."""

    column: str | None
    traversal: str
    num_labels: int | None
    regression: bool
    hidden_label: int | None

    def are_usable(self, rows: "Dataset", needed: bool | None) -> bool:
        """Whether the whole column shows at once that each label can be used, or that there are none."""
        from pyarrow import compute, types  # here because `tokenization` is imported without it

        if self.traversal == "multiple_choice":  # the range depends on the row
            return False
        if self.column not in rows.column_names:
            return not needed
        labels = rows.data.column(self.column)  # perhaps of more rows than these
        if labels.null_count or not (types.is_integer(labels.type) or types.is_floating(labels.type)):
            return False
        least, most = compute.min_max(labels).as_py().values()

        def has(value: int) -> bool:
            return compute.any(compute.equal(labels, value)).as_py()

        if least == most == self.hidden_label:
            return not needed
        if self.hidden_label is not None and has(self.hidden_label):
            return False
        if self.regression:
            return compute.all(compute.is_finite(labels)).as_py() and not has(NO_LABEL)
        return types.is_integer(labels.type) and 0 <= least and (self.num_labels is None or most < self.num_labels)

    def read(
        self, rows: Sequence[Mapping], names: Sequence[str], num_sequences: Sequence[int], needed: bool | None = None
    ) -> torch.Tensor | None:
        """The labels of some rows, `[B]`, int64, or float32 for regression; None where no row has one.

        Args:
            names: the rows' names in error messages.
            num_sequences: the number of choices of each row, where they are the classes.
            needed: True where each row must have a label; False where some may have none; None: all or none.

        Raises:
            ValueError: a label that cannot be used, or a row without one.
        """
        labels = [self.of(row) for row in rows]
        hidden = [label is None for label in labels]
        if needed and any(hidden):
            raise ValueError(self._unlabelled(rows, names, hidden))
        if all(hidden):
            return None
        if any(hidden) and needed is None:
            raise ValueError(self._mixed(rows, names, hidden))
        given = [three for three in zip(labels, names, num_sequences, strict=True) if three[0] is not None]
        if self.regression:
            return torch.tensor([self._number(label, name) for label, name, _ in given], dtype=torch.float32)
        return torch.tensor([self._class(*three) for three in given])

    def of(self, row: Mapping) -> Any:
        """The label of a row; None where it has none, or a hidden one."""
        label = row.get(self.column)
        if getattr(label, "ndim", None) == 0:
            label = label.item()  # numpy and torch scalars of formatted data sets
        if getattr(label, "ndim", 0):
            return label  # an array is no label: `_number` and `_class` refuse it
        return None if label == self.hidden_label else label

    def _unlabelled(self, rows: Sequence[Mapping], names: list[str], hidden: list[bool]) -> str:
        column, row = self.column, hidden.index(True)
        holds = f"column {column!r} holds {rows[row].get(column)!r}" if column else "`columns` has no role label"
        return (
            f"{names[row]} has no label ({holds}); every row needs one for training and evaluation. Label or remove "
            "such rows."
        )

    def _mixed(self, rows: Sequence[Mapping], names: list[str], hidden: list[bool]) -> str:
        column, without, labelled = self.column, hidden.index(True), hidden.index(False)
        held = rows[without].get(column)
        text = (
            f"{names[without]} has no label (column {column!r} holds {held!r}), {names[labelled]} has the label "
            f"{rows[labelled][column]!r}; a batch needs a label in every row or in none. Label or remove such rows."
        )
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
        choice = self.traversal == "multiple_choice"
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

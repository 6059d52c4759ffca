"""A part of the training rows that is held out to evaluate on."""

from collections.abc import Sequence
from numbers import Real

import numpy as np
from datasets import Dataset

from ..errors import UserError
from ..wording import counted
from .columns import PLACE


def check_share(share: float) -> None:
    """Refuses a share of rows to hold out that leaves nothing to train on, or to evaluate on."""
    if not isinstance(share, Real) or not 0 < share < 1:
        raise UserError(
            f"`validation_split` is {share!r}, but the share of the training rows to hold out must be between 0 and "
            "1. Pass one such as 0.2."
        )


def hold_out(
    rows: Dataset, share: float, seed: int, classes: Sequence[int] | None, source: str
) -> tuple[Dataset, Dataset]:
    """Divides training rows into those to train on and those to evaluate on, which keep their order and places.

    Args:
        rows: those of the train split.
        share: of the rows to evaluate on, between 0 and 1.
        seed: of the draw.
        classes: the class of each row. Each class has its share of the rows to evaluate on; the row of a class that
            has no other is trained on. `None`: rows are drawn whatever their labels.
        source: what the rows are called in messages.

    Raises:
        ValueError: the rows are too few to be divided.
    """
    is_drawn = np.zeros(len(rows), dtype=bool)
    is_drawn[_draw(len(rows), share, seed, classes)] = True
    if not is_drawn.any():
        have = counted(len(rows), "row") if classes is None else "no class with enough rows"
        raise UserError(f"{source} has {have} to hold a part out. Add rows, or leave `validation_split` out.")
    if PLACE not in rows.column_names:
        rows = rows.add_column(PLACE, list(range(len(rows))))
    return rows.select(np.flatnonzero(~is_drawn)), rows.select(np.flatnonzero(is_drawn))


def _draw(num_rows: int, share: float, seed: int, classes: Sequence[int] | None) -> np.ndarray:
    """The indices of rows at equal distances, in a random order of the rows that is sorted by class."""
    order = np.random.default_rng(seed).permutation(num_rows)
    if classes is not None:
        class_of_row = np.asarray(classes)
        _, class_ids, sizes = np.unique(class_of_row, return_inverse=True, return_counts=True)
        order = order[sizes[class_ids[order]] > 1]
        order = order[np.argsort(class_of_row[order], kind="stable")]
    number = min(max(1, round(share * num_rows)), len(order) - 1)
    if number < 1:
        return order[:0]
    distance = len(order) / number
    return order[((np.arange(number) + 0.5) * distance).astype(int)]

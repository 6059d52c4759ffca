"""Labels as a file holds them: which rows have none, and which have one that no task can use."""

import re
from collections.abc import Callable
from typing import Any

from datasets import ClassLabel, Dataset, Features, Value

# A number, and its fraction. 007 is a name, and so is a number of more digits than 64 bits hold.
NUMBER = re.compile(r"\s*-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?\s*")
MOST = 1 << 53  # from here on a float does not tell whole numbers apart


def is_missing(label: Any) -> bool:
    """Whether the label is None, NaN or a blank text (an empty cell of a .csv file can be read as one)."""
    return label is None or (isinstance(label, str) and not label.strip()) or label != label


def are_all_labelled(rows: Dataset, column: str) -> bool:
    """Whether each row of a task's split has a label; None and -1 stand for a hidden one."""
    return column in rows.column_names and all(label is not None and label >= 0 for label in rows.unique(column))


def without_blanks(rows: Dataset, column: str, source: str, *, optional: bool) -> Dataset:
    """The rows, with None for each label that is missing.

    Args:
        rows: rows with that column.
        column: the column of the label.
        source: where the rows come from, for errors.
        optional: whether a row may lack a label, as a row to predict may.

    Raises:
        ValueError: a label is missing though it is needed; the column holds lists or objects.
    """
    if not hasattr(rows.features[column], "dtype") or isinstance(rows.features[column], list):
        raise ValueError(
            f"Column {column!r} of {source} holds lists, objects or values of several types, such as "
            f"{rows[0][column]!r} in row 0; a label is a single text or number. Name another column, or write one "
            "value per row."
        )
    missing = [label for label in rows.unique(column) if is_missing(label)]
    if missing and not optional:
        labels = rows[column][:]
        count = sum(map(is_missing, labels))
        row = first_row(labels, is_missing)
        raise ValueError(
            f"Row {row} of {source} (the first is 0) has no label: its column {column!r} holds {labels[row]!r}. Every "
            f"row needs one for training and evaluation; {count} of {len(labels)} have none. Label or remove them."
        )
    if any(label is not None for label in missing):
        rows = rows.map(_none_for_missing, fn_kwargs={"column": column}, input_columns=column, batched=True)
    return rows


def class_label_names(rows: Dataset, column: str) -> list[str] | None:
    """The names of a column of the type `ClassLabel`; None for others."""
    feature = rows.features.get(column)
    return feature.names if isinstance(feature, ClassLabel) else None


def named_labels(rows: Dataset, column: str) -> Dataset:
    """The rows with names in place of the ids of a `ClassLabel` column, where −1 is no label."""
    names = class_label_names(rows, column)
    if names is None:
        return rows
    options = {"fn_kwargs": {"column": column, "names": names}, "input_columns": column, "batched": True}
    return rows.map(_to_names, features=Features({**rows.features, column: Value("string")}), **options)


def typed_labels(rows: Dataset, column: str, source: str) -> Dataset:
    """The rows with labels of a .csv file, which are read as texts, as int64 or float64 where all are such numbers."""
    if not source.endswith(".csv"):
        return rows
    numbers = [NUMBER.fullmatch(label) for label in rows.unique(column) if label is not None]
    if not all(numbers):
        return rows
    whole = not any(number[1] for number in numbers)
    rows = rows.map(_to_numbers, fn_kwargs={"column": column, "whole": whole}, input_columns=column, batched=True)
    return rows.cast_column(column, Value("int64" if whole else "float64"))


def as_numbers(rows: Dataset, column: str, source: str, *, whole: bool) -> Dataset:
    """The rows with int64 labels if `whole`, else float32; texts are converted.

    Raises:
        ValueError: a label is not such a number; the message names its row.
    """
    wanted = Value("int64" if whole else "float32")
    if rows.features[column] == wanted:
        return rows
    unusable = {label for label in rows.unique(column) if label is not None and _number(label, whole) is None}
    if unusable:
        labels = rows[column][:]
        row = first_row(labels, lambda label: label in unusable)
        needed = "a whole number, the id of a class or the index of a choice," if whole else "a number"
        raise ValueError(
            f"Row {row} of {source} (the first is 0): the label in column {column!r} is {labels[row]!r} of type "
            f"{type(labels[row]).__name__}; {needed} is needed. Correct or remove the row."
        )
    rows = rows.map(_to_numbers, fn_kwargs={"column": column, "whole": whole}, input_columns=column, batched=True)
    return rows.cast_column(column, wanted)


def first_row(labels: list, is_wanted: Callable[[Any], bool]) -> int:
    """Index of the first label that is wanted."""
    return next(row for row, label in enumerate(labels) if is_wanted(label))


def _none_for_missing(labels: list, column: str) -> dict[str, list]:
    return {column: [None if is_missing(label) else label for label in labels]}


def _to_numbers(labels: list, column: str, whole: bool) -> dict[str, list]:
    return {column: [None if label is None else _number(label, whole) for label in labels]}


def _to_names(labels: list[int | None], column: str, names: list[str]) -> dict[str, list]:
    return {column: [None if label is None or label < 0 else names[label] for label in labels]}


def _number(label: Any, whole: bool) -> float | int | None:
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    if not whole:
        return number
    return int(number) if number.is_integer() and abs(number) < MOST else None


__all__ = [
    "are_all_labelled",
    "as_numbers",
    "class_label_names",
    "first_row",
    "is_missing",
    "named_labels",
    "typed_labels",
    "without_blanks",
]

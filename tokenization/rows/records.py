"""Rows in memory as a `Dataset`: records, such as the objects of a JSON file, or a table of pandas."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas
import pyarrow
from datasets import Dataset

from ..errors import UserError

# What a cell is, for messages.
KINDS = {str: "text", bool: "truth value", int: "number", float: "number", list: "list", dict: "object"}
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which UTF-8 cannot hold
UNREADABLE = (pyarrow.ArrowException, OverflowError, UnicodeEncodeError)


def dataset_of_records(
    records: Iterable[Mapping[str, Any]], source: str, needed: Collection[str] | None = None
) -> Dataset:
    """The rows of records, which may lack some of the columns.

    Args:
        records: map column to cell.
        source: what the rows are called in messages.
        needed: columns that must be readable. Others are left out where their cells are not of one kind. Default: all.

    Raises:
        ValueError: the cells of a needed column are not of one kind.
    """
    cells: dict[str, list] = {}
    number = 0
    for number, record in enumerate(records, start=1):
        for name, cell in record.items():
            column = cells.setdefault(str(name), [])
            column += [None] * (number - 1 - len(column))  # of the rows before, which lack it
            column.append(cell)
    for column in cells.values():
        column += [None] * (number - len(column))
    return _dataset_of_cells(cells, source, needed)


def dataset_of_frame(frame: pandas.DataFrame, source: str, needed: Collection[str] | None = None) -> Dataset:
    """The rows of a table of pandas, without its index; see `dataset_of_records`."""
    names = [str(name) for name in frame.columns]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{source} has two columns {twice[0]!r}. Rename one.")
    cells = {name: frame.iloc[:, place].tolist() for place, name in enumerate(names)}
    return _dataset_of_cells(cells, source, needed)


def is_null(cell: Any) -> bool:
    """Whether a cell has no value: None, NaN, or pandas' NA or NaT. A list or an array is one."""
    if cell is None:
        return True
    if isinstance(cell, str | int):  # most cells; the last line takes longer
        return False
    return pandas.api.types.is_scalar(cell) and bool(pandas.isna(cell))


def _dataset_of_cells(cells: dict[str, list], source: str, needed: Collection[str] | None) -> Dataset:
    columns = {}
    for name, column in cells.items():
        try:
            columns[name] = pyarrow.array(column, from_pandas=True)  # NaN is a missing cell
        except UNREADABLE as error:
            if needed is None or name in needed:
                raise UserError(f"{source}: {_fault_of(name, column, error)}") from error
    return Dataset(pyarrow.table(columns))


def _fault_of(name: str, column: list, error: Exception) -> str:
    """Why the cells of a column are no column."""
    first_of_kind: dict[str, int] = {}
    for row, cell in enumerate(column):
        if not is_null(cell):
            first_of_kind.setdefault(KINDS.get(type(cell), type(cell).__name__), row)
    if len(first_of_kind) > 1:
        (first_kind, first), (second_kind, second), *_ = first_of_kind.items()
        return (
            f"column {name!r} has the {first_kind} {column[first]!r:.60} in row {first}, but the {second_kind} "
            f"{column[second]!r:.60} in row {second}. Write all cells as one kind, such as text."
        )
    if isinstance(error, UnicodeEncodeError):
        row = next(row for row, cell in enumerate(column) if SURROGATE.search(str(cell)))
        return f"column {name!r} has half a character in row {row} ({error.object[error.start]!r}). Correct the text."
    if isinstance(error, OverflowError):
        too_large = next(cell for cell in column if isinstance(cell, int) and abs(cell) >= 1 << 63)
        return f"column {name!r} has {too_large}, which is no number of 64 bits. Write its numbers as texts."
    return f"the cells of column {name!r} are not of one kind ({error}). Correct them."

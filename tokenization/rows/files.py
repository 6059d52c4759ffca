"""Rows of a table file, read whole and as they stand: JSON lines, JSON, CSV, TSV or parquet.

Where a file cannot be read, the error names it, says what is wrong with it and how it is mended.
"""

import textwrap
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
from datasets import Dataset, Value, load_dataset
from datasets.exceptions import DatasetGenerationError
from transformers.utils import logging

from ..errors import UserError
from ..file_kinds import ROW_FILES, checksum_of_file, csv_options, data_file, json_rows, open_text, to_utf8
from ..wording import counted
from .records import dataset_of_records

logger = logging.get_logger(__name__)


def read_file(
    path: str | Path,
    *,
    infer_types: bool = False,
    delimiter: str | None = None,
    needed: Collection[str] | None = None,
) -> Dataset:
    """The rows of a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file; a .json file may hold one list of objects.

    Blank lines are no rows, and are told; but in a .csv file of one column, those between others are blank cells.

    Args:
        path: the file.
        infer_types: whether columns of a .csv file become numbers where all cells are. Default: all cells are texts.
        delimiter: what separates the cells of a .csv or .tsv file. Default: a tab in the second; of comma, semicolon,
            tab and bar in the first the one that gives its first line the most cells.
        needed: columns of a JSON file that must be readable. Others are left out where their cells are not of one
            kind. Default: all.

    Raises:
        ValueError: there is no such file, it has no rows or holds columns, or it is not what its name says.
    """
    path = Path(path)
    builder = _builder_of(path)
    try:
        if builder == "csv":
            rows = _read_csv(path, infer_types, delimiter)
        elif builder == "json":
            rows = _read_json(path, needed)
        else:
            rows = _load(builder, path)
    except UserError:
        raise
    except (pandas.errors.EmptyDataError, StopIteration):  # the readers' words for "no rows"
        rows = ()
    except (DatasetGenerationError, ValueError, OSError, EOFError, zlib.error) as error:
        reason = _first_cause(error)
        if _is_fault_of_the_cache(reason, path):
            raise
        what_is_wrong = str(reason).strip().rstrip(".")
        raise UserError(
            f"{path} cannot be read as {builder}: {what_is_wrong}. {_remedy(path, builder, reason)}"
        ) from error
    if len(rows) == 0:
        raise UserError(f"{path} has no rows. Pass a file with at least one, or leave it out.")
    if _holds_columns(path, rows):
        names = ", ".join(map(repr, rows.column_names))
        raise UserError(
            f"{path} is one object, of {names}, but a list of rows is needed. Write one, as pandas does with "
            "`to_json(orient='records')`."
        )
    return rows


def _builder_of(path: Path) -> str:
    endings = ", ".join(ROW_FILES)
    if path.is_dir():
        raise UserError(f"{path} is a folder. Pass a file of it that ends in one of {endings}.")
    if not path.is_file():
        raise UserError(f"The file {path} does not exist. Correct its path.")
    for ending, builder in ROW_FILES.items():
        if path.name.lower().endswith(ending):
            return builder
    raise UserError(f"{path} does not end in one of {endings}. Pass such a file; save a spreadsheet as CSV (UTF-8).")


def _load(builder: str, path: Path, **options: Any) -> Dataset:
    # `datasets` finds rows in its cache by the path and time of their file; this name adds the content.
    return load_dataset(builder, name=checksum_of_file(path), data_files=data_file(path), split="train", **options)


# ---- CSV


@dataclass
class _Lines:
    """The lines of a text file, and how many of them are blank: all, those before the first other, after the last."""

    total: int = 0
    blank: int = 0
    leading: int = 0
    trailing: int = 0


def _count_lines(path: Path) -> _Lines:
    count = _Lines()
    with open_text(path) as lines:
        for line in lines:
            count.total += 1
            if line.isspace():
                count.blank += 1
                count.trailing += 1
            else:
                count.trailing = 0
            if count.blank == count.total:
                count.leading += 1
    return count


def _read_csv(path: Path, infer_types: bool, delimiter: str | None) -> Dataset | tuple[()]:
    lines = _count_lines(path)
    options = csv_options(path, delimiter)
    names = list(options["features"])
    was_found = delimiter is None and path.name.lower().endswith(".csv")
    if was_found and options["sep"] != ",":
        logger.warning_once(f"{path}: cells are separated by {options['sep']!r}.")
    if lines.total - lines.blank < 2:
        return ()
    if infer_types:
        del options["features"]
    if len(names) == 1 and not infer_types:  # a blank line is how spreadsheets write a blank cell
        rows = _load("csv", path, **options, skip_blank_lines=False, header=lines.leading)
        rows = rows.select(range(len(rows) - lines.trailing))
        num_left_out = lines.leading + lines.trailing
    else:
        rows = _load("csv", path, **options)
        num_left_out = 0
        if lines.blank:
            num_left_out = _num_records(path, options["sep"], len(names)) - 1 - len(rows)
    _tell_of_blank_lines(path, num_left_out)
    if 1 + len(rows) + num_left_out < lines.total:
        if options["sep"] == "\t":
            check_quotation_marks(path, rows)
        logger.warning_once(
            f"{path}: some quoted cells span lines; {counted(len(rows), 'row')} read. If none should, a quotation "
            "mark is missing."
        )
    return rows


def check_quotation_marks(path: Path, rows: Dataset) -> None:
    """Refuses rows of which one holds others."""
    last = len(rows.column_names) - 1
    for number, row in enumerate(rows):
        for place, (name, cell) in enumerate(row.items()):
            if isinstance(cell, str) and _holds_rows(cell, place, last):
                raise UserError(
                    f"{path}: column {name!r} of row {number} holds the lines that follow it, because a quotation "
                    f"mark is not closed: {textwrap.shorten(cell, 60, placeholder='…')!r}. Write the file as .jsonl, "
                    "or put each cell that has quotation marks between two, and its own twice."
                )


def _holds_rows(cell: str, place: int, last: int) -> bool:
    """Whether the lines of a cell in column `place` have the tabs of rows whose last column is `last`.

    The first line is the rest of its row, the last one the beginning of another row. A line that begins with a tab is
    indented text, such as code.
    """
    first, *others = cell.split("\n")
    if not others or any(line.startswith("\t") for line in others):
        return False
    num_tabs = [line.count("\t") for line in others]
    is_first_whole = first.count("\t") == last - place
    are_others_whole = all(number == last for number in num_tabs[:-1]) and num_tabs[-1] <= last
    return last > 0 and is_first_whole and are_others_whole and "\t" in cell


def _num_records(path: Path, sep: str, num_columns: int) -> int:
    """The records of a .csv file: its first line, its rows, and the blank lines that are not within a cell."""
    first_cells = pandas.read_csv(
        path,
        sep=sep,
        header=None,
        names=range(num_columns),
        index_col=False,
        usecols=[0],
        dtype=str,
        skip_blank_lines=False,
    )
    return len(first_cells)


def _tell_of_blank_lines(path: Path, number: int) -> None:
    if number == 1:
        logger.warning_once(f"{path}: 1 blank line is skipped; it is not counted as a row.")
    elif number > 1:
        logger.warning_once(f"{path}: {number:,} blank lines are skipped; they are not counted as rows.")


# ---- JSON


def _read_json(path: Path, needed: Collection[str] | None) -> Dataset:
    rows = dataset_of_records(json_rows(path), str(path), needed)
    if path.name.lower().endswith((".jsonl", ".jsonl.gz")):
        _tell_of_blank_lines(path, _count_lines(path).blank)
    return rows


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_fault_of_the_cache(reason: BaseException, path: Path) -> bool:
    is_of_another_file = getattr(reason, "filename", None) not in (None, path, str(path))
    return is_of_another_file or "disk space" in str(reason)


def _remedy(path: Path, builder: str, reason: BaseException) -> str:
    if isinstance(reason, UnicodeDecodeError):
        return to_utf8(path, reason)
    if "which only Excel reads" in str(reason):
        return "Remove the line."
    remedy = "Correct the file, and save it in UTF-8."
    if builder == "csv":
        remedy += " Quote cells that hold its separator, or pass that as `delimiter`."
    return remedy


def _holds_columns(path: Path, rows: Dataset) -> bool:
    """Whether a .json file is one object, of columns or with the rows in it, which is read as a single row."""
    has_values = any(isinstance(feature, Value) for feature in rows.features.values())
    if not path.name.lower().endswith(".json") or len(rows) != 1 or has_values:
        return False
    return path.read_text(encoding="utf-8").lstrip().startswith("{")

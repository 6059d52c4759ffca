"""Rows of a table file, read whole and as they stand: JSON lines, JSON, CSV, TSV or parquet.

Where a file cannot be read, the error names it, says what is wrong with it and how it is mended.
"""

import glob
import zlib
from pathlib import Path

import fsspec
import pandas
from datasets import Dataset, Value, load_dataset
from datasets.exceptions import DatasetGenerationError
from transformers.utils import logging

from ..errors import UserError
from ..file_kinds import ROW_FILES, reader_options, to_utf8
from ..wording import counted

logger = logging.get_logger(__name__)


def read_file(path: str | Path, *, infer_types: bool = False, delimiter: str | None = None) -> Dataset:
    """The rows of a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file; a .json file may hold one list of objects.

    Args:
        path: the file.
        infer_types: whether columns of a .csv file become numbers where all cells are. Default: all cells are texts.
        delimiter: what separates the cells of a .csv or .tsv file. Default: a tab in the second; of comma, semicolon,
            tab and bar in the first the one that gives its first line the most cells.

    Raises:
        ValueError: there is no such file, it has no rows or holds columns, or it is not what its name says.
    """
    path = Path(path)
    builder = _builder_of(path)
    try:
        # This also refuses what is not UTF-8, which the reader of JSON takes silently.
        num_lines = None if builder == "parquet" else _num_lines(path)
        rows = _load(path, builder, num_lines, infer_types, delimiter)
    except (pandas.errors.EmptyDataError, StopIteration):  # the readers' words for "no rows"
        rows = ()
    except (DatasetGenerationError, ValueError, OSError, EOFError, zlib.error) as error:
        reason = _first_cause(error)
        if _is_fault_of_the_cache(reason, path):
            raise
        what = f"{path} cannot be read as {builder}: {str(reason).strip().rstrip('.')}."
        raise UserError(f"{what} {_remedy(path, builder, reason)}") from error
    if len(rows) == 0:
        raise UserError(f"{path} has no rows. Give a file with at least one, or leave it out.")
    if _holds_columns(path, rows):
        raise UserError(f"{path} holds columns. Write a list of rows, as pandas does with orient='records'.")
    if builder == "csv" and len(rows) != num_lines - 1:
        logger.warning_once(
            f"{path}: {num_lines - 1:,} lines make {counted(len(rows), 'row')}, as some cells hold line ends. If none "
            "should, a quotation mark is missing."
        )
    return rows


def _builder_of(path: Path) -> str:
    if not path.is_file():
        what = "does not exist"
    else:
        what = "has an unknown file type"
        for ending, builder in ROW_FILES.items():
            if path.name.lower().endswith(ending):
                return builder
    raise UserError(f"{path} {what}. Pass one of {', '.join(ROW_FILES)}; save a spreadsheet as CSV (UTF-8).")


def _num_lines(path: Path) -> int:
    """Lines that are not blank."""
    with fsspec.open(path, "rt", encoding="utf-8", compression="infer") as lines:
        return sum(not line.isspace() for line in lines)


def _load(
    path: Path, builder: str, num_lines: int | None, infer_types: bool, delimiter: str | None
) -> Dataset | tuple[()]:
    options = reader_options(builder, path, delimiter)
    was_found = delimiter is None and path.name.lower().endswith(".csv")
    if was_found and options["sep"] != ",":
        logger.warning_once(f"{path}: cells are separated by {options['sep']!r}.")
    if infer_types:
        options.pop("features", None)
    if builder == "csv" and num_lines < 2:
        return ()
    return load_dataset(builder, data_files=glob.escape(str(path)), split="train", **options)


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
    remedy = "Correct the file, and save it in UTF-8."
    if builder == "csv":
        remedy += " Quote cells that hold its separator, or pass that as `delimiter`."
    return remedy


def _holds_columns(path: Path, rows: Dataset) -> bool:
    """Whether a .json file is one object with a list for each column, which is read as a single row of lists."""
    has_values = any(isinstance(feature, Value) for feature in rows.features.values())
    if not path.name.lower().endswith(".json") or len(rows) != 1 or has_values:
        return False
    return path.read_text(encoding="utf-8").lstrip().startswith("{")

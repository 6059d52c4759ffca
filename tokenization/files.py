"""Files of rows (.jsonl, .csv, .parquet) as data sets; where one cannot be read, the error names file and line."""

import glob
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
from datasets import Dataset, Features, Value, load_dataset
from datasets.exceptions import DatasetGenerationError

# Builder of `datasets` by the ending of a file's name.
FILE_BUILDERS = {".jsonl": "json", ".jsonl.gz": "json", ".csv": "csv", ".parquet": "parquet"}


def read_file(path: Path, *, infer_types: bool = False) -> Dataset:
    """The rows of a .jsonl, .jsonl.gz, .csv or .parquet file.

    Args:
        path: the file.
        infer_types: whether columns of a .csv file become numbers where all cells are. Default: all cells are texts.

    Raises:
        ValueError: the file has no rows, or is not what its name says.
    """
    builder = next(builder for ending, builder in FILE_BUILDERS.items() if path.name.endswith(ending))
    if "::" in str(path):
        raise ValueError(f'{path} has "::" in its name, which `datasets` reads as a file within another. Rename it.')
    if path.name.endswith(".gz") and ("[" in str(path) or "]" in str(path)):
        raise ValueError(
            f'{path} has "[" or "]" in its name, so `datasets` cannot read it as a compressed file. Rename it.'
        )
    if builder != "parquet":
        _check_encoding(path)
    try:
        options = csv_options(path) if builder == "csv" else {}
        if infer_types:
            options.pop("features", None)
        rows = load_dataset(builder, data_files=glob.escape(str(path)), split="train", **options)
    except (DatasetGenerationError, StopIteration, ValueError) as error:
        raise ValueError(_unreadable(path, builder, error)) from error
    if len(rows) == 0:
        raise ValueError(_without_rows(path))
    return rows


def csv_options(path: str | Path) -> dict[str, Any]:
    """What makes `datasets` read each cell of a .csv file as the text that it is.

    pandas would read "None" and "NA" as missing and "007" as a number, by a guess for every 10,000 rows.
    """
    names = pandas.read_csv(path, nrows=0).columns
    if any("\0" in name for name in names):
        raise ValueError("a name in its first line holds a zero byte")
    return {"keep_default_na": False, "features": Features({name: Value("string") for name in names})}


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
        yield from file


def _check_encoding(path: Path) -> None:
    whole = 0  # lines that are UTF-8
    try:
        for line in _lines(path):
            line.decode("utf-8")
            whole += 1
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {whole + 1}: byte {error.object[error.start]:#04x} is not UTF-8. Save the file as UTF-8, "
            f"for example with `iconv -f LATIN1 -t UTF-8` if that is what it is."
        ) from error
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is not a valid gzip file ({error}). Compress it again.") from error


def _unreadable(path: Path, builder: str, error: BaseException) -> str:
    if builder != "parquet" and not any(line.strip() for line in _lines(path)):
        return _without_rows(path)
    if builder == "json":
        for number, line in enumerate(_lines(path), start=1):
            if reason := _wrong_with(line.decode("utf-8")):
                return f"{path}, line {number}: {reason}. A line is one JSON object. Correct or remove it."
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    reason = str(causes[-1]).strip().rstrip(".") or type(causes[-1]).__name__
    if "corresponds to no data" in reason:
        return _without_rows(path)
    return f"{path} cannot be read as {builder}: {reason}. Correct the file."


def _without_rows(path: Path) -> str:
    return f"{path} has no rows. Give a file with at least one, or leave it out."


def _wrong_with(line: str) -> str | None:
    try:
        row = json.loads(line) if line.strip() else {}
    except json.JSONDecodeError as error:
        return f"this is not JSON ({error.msg} at character {error.pos})"
    if not isinstance(row, dict):
        return f"this is JSON of type {type(row).__name__}"
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        return f"the unpaired surrogate {error.object[error.start]!a} is not a character"
    return None


__all__ = ["FILE_BUILDERS", "csv_options", "read_file"]

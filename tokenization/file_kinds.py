"""Files of text and tables: the kind that the ending of a name stands for, and how each kind is read.

A file of rows is read whole by `rows/files.py`, a corpus as a stream by `text/documents.py`.
"""

import glob
import hashlib
import io
import json
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import pandas
from datasets import Features, Value
from fsspec.implementations.local import LocalFileSystem

from .errors import UserError

# The readers of `datasets` log an error that they raise as well.
logging.getLogger("datasets.packaged_modules").setLevel(logging.CRITICAL)

# Each ending with the builder of `datasets` that reads such a file.
# The files of a task, as its release or the hub distributes them; the first ending counts if a folder has several.
TASK_FILES = {".jsonl": "json", ".jsonl.gz": "json", ".csv": "csv", ".parquet": "parquet"}
# Rows of one's own. The .tsv and .json files of a task's release often follow other rules.
ROW_FILES = {**TASK_FILES, ".tsv": "csv", ".json": "json"}
# A corpus. Before these endings, and .txt and all others, one of `COMPRESSIONS` may stand behind the name.
CORPUS_FILES = {".txt": "text", ".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
DELIMITERS = ",;\t|"  # of a .csv file
# What a shell makes hard to type.
WORDS_FOR_DELIMITERS = {"tab": "\t", "\\t": "\t"}
LINE_END = "\n"
PIECE_BYTES = 1 << 16
WHITESPACE = re.compile(r"\s*")
MOST_NESTED = 50  # lists and objects around another; a table has at most 64, and thousands would end the process

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
ZIP_MARK = b"PK"  # a spreadsheet is an archive, too
GZIP_MARK = b"\x1f\x8b"


def open_text(path: str | Path, encoding: str = "utf-8") -> TextIO:
    """Opens a text of this machine to read it, decompressed if its name ends in one of `COMPRESSIONS`.

    `fsspec.open` takes a name with `::` for several places.
    """
    if _is_unpacked_here(path):
        return io.TextIOWrapper(open_bytes(path), encoding)
    return LocalFileSystem().open(os.fspath(path), "rt", compression="infer", encoding=encoding)


def open_bytes(path: str | Path) -> BinaryIO:
    """Opens a file as [`open_text`] does, without decoding it."""
    if _is_unpacked_here(path):
        return io.BufferedReader(_ZstdFrames(path), PIECE_BYTES)
    return LocalFileSystem().open(os.fspath(path), "rb", compression="infer")


def is_zst(path: str | Path) -> bool:
    return str(path).lower().endswith(".zst")


def _is_unpacked_here(path: str | Path) -> bool:
    """Whether `_ZstdFrames` reads a file. Without zstandard, fsspec may have Python's own reader, which is whole."""
    return is_zst(path) and find_spec("zstandard") is not None


class _ZstdFrames(io.RawIOBase):
    """What a .zst file holds, unpacked by zstandard.

    The reader that fsspec takes from zstandard has no lines, and ends a file that is cut off as if it were whole.
    """

    def __init__(self, path: str | Path):
        import zstandard  # not everybody has it

        self._new_frame = zstandard.ZstdDecompressor().decompressobj
        self._damage = zstandard.ZstdError
        self._file = open(path, "rb")  # which `close` closes
        self._frame = None
        self._compressed = b""
        self._found = memoryview(b"")

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer) -> int:
        while not self._found:
            self._compressed = self._compressed or self._file.read(PIECE_BYTES)
            if not self._compressed and self._frame is not None:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            if not self._compressed:
                return 0
            self._decompress()
        size = min(len(buffer), len(self._found))
        buffer[:size] = self._found[:size]
        self._found = self._found[size:]
        return size

    def _decompress(self) -> None:
        self._frame = self._frame or self._new_frame()
        try:
            self._found = memoryview(self._frame.decompress(self._compressed))
        except self._damage as error:
            raise OSError(str(error)) from error
        self._compressed = self._frame.unused_data  # of the frame behind it
        if self._frame.eof:
            self._frame = None


def checksum_of_file(path: str | os.PathLike) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def data_file(path: str | Path) -> str:
    """A file as `datasets` is told to read it: it takes signs such as `*` for a pattern.

    Raises:
        ValueError: the path has `::`, which no sign before it changes.
    """
    if "::" in str(path):
        raise UserError(f"{path} has '::' in its path, which a table cannot be read from. Rename the file or folder.")
    return glob.escape(str(path))


def json_rows(path: str | Path, parse_number: Callable[[str], Any] | None = None) -> Iterator[dict[str, Any]]:
    """Reads the objects of a JSON file: of its lines, of one list, or behind each other. A text is `{"text": text}`.

    Lines are streamed. A value of several lines, such as one list of all objects, is held in memory with what follows.

    Args:
        path: the file, which may be compressed.
        parse_number: what makes a number from its characters. Default: `int` or `float`.

    Raises:
        ValueError: the file is not JSON, or not UTF-8; a row is no object, or names a column twice.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object_of, parse_int=parse_number, parse_float=parse_number)
    with open_text(path, encoding="utf-8-sig") as file:
        values = _json_values(file, decoder)
        first = next(values, [])
        rows = chain(first if isinstance(first, list) else [first], values)
        for number, row in enumerate(rows):
            if isinstance(row, str):
                row = {"text": row}
            if not isinstance(row, dict):
                raise ValueError(f"row {number} is {json.dumps(row)[:60]}, which is no object with names and values")
            yield row


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r} twice")
    return values


def _json_values(file: TextIO, decoder: json.JSONDecoder) -> Iterator[Any]:
    """The values of a text, which stand in a line each, or anyhow."""
    for number, line in enumerate(file):
        if line.isspace():
            continue
        try:
            value = decoder.decode(line)
        except RecursionError:
            raise _too_nested(f"line {number + 1}") from None
        except json.JSONDecodeError:  # a value of several lines, or several values in a line
            yield from _values_of_text(line + file.read(), decoder, number)
        else:
            if _is_nested(value, line):
                raise _too_nested(f"line {number + 1}")
            yield value


def _too_nested(where: str) -> ValueError:
    return ValueError(f"{where} has lists or objects in more than {MOST_NESTED} others")


def _is_nested(value: Any, text: str) -> bool:
    """Whether a value, which a text stands for, has lists and objects in more than `MOST_NESTED` others."""
    if text.count("[") + text.count("{") <= MOST_NESTED:
        return False
    depth, layer = 0, [value]
    while layer:
        containers = [outer for outer in layer if isinstance(outer, list | dict)]
        layer = [inner for outer in containers for inner in (outer.values() if isinstance(outer, dict) else outer)]
        depth += bool(containers)
    return depth > MOST_NESTED


def _values_of_text(text: str, decoder: json.JSONDecoder, lines_before: int) -> Iterator[Any]:
    place = WHITESPACE.match(text).end()

    def where() -> str:  # lines are counted only for an error
        return f"the value that begins in line {lines_before + 1 + text.count(LINE_END, 0, place)}"

    while place < len(text):
        try:
            value, end = decoder.raw_decode(text, place)
        except RecursionError:
            raise _too_nested(where()) from None
        except json.JSONDecodeError as error:
            line = lines_before + error.lineno
            raise ValueError(f"{where()}: {error.msg} in line {line}, character {error.colno}") from None
        if _is_nested(value, text[place:end]):
            raise _too_nested(where())
        yield value
        place = WHITESPACE.match(text, end).end()


def csv_options(path: str | Path, delimiter: str | None = None) -> dict[str, Any]:
    """What makes `datasets` read each cell of a .csv file as the text that it is.

    pandas would read "None" and "NA" as missing and "007" as a number, by a guess for every 10,000 rows.

    Args:
        path: the file.
        delimiter: what separates the cells, one character or the word `tab`. Default: a tab in a .tsv file; of
            others, found in their first line.

    Raises:
        ValueError: the delimiter is none, or the first lines do not make a table.
    """
    _check_first_line(path)
    if delimiter:
        mark = _delimiter_of(delimiter)
    elif str(path).lower().endswith(".tsv"):
        mark = "\t"
    else:
        mark = _find_delimiter(path)
    names = _names_above_first_row(path, mark)
    _check_names(path, mark)
    features = Features({name: Value("string") for name in names})
    return {"sep": mark, "keep_default_na": False, "features": features}


def _find_delimiter(path: str | Path) -> str:
    """The delimiter that gives the first line the most cells; the comma, where several give as many."""
    return max(DELIMITERS, key=lambda mark: _num_cells(path, mark))


def _num_cells(path: str | Path, mark: str) -> int:
    """The cells of the first line, if a mark separates them; 0 if a quotation mark behind this one begins a long cell.

    Names of columns with line ends are taken with commas alone.
    """
    try:
        cells = _first_cells(path, mark)
    except pandas.errors.ParserError:  # the cell never ends
        return 0
    if mark != "," and cells.str.contains("\n", regex=False).any():
        return 0
    return len(cells)


def _first_cells(path: str | Path, mark: str) -> pandas.Series:
    """The cells of the first line; none is read behind it."""
    return pandas.read_csv(path, nrows=1, sep=mark, header=None, dtype=str, keep_default_na=False).loc[0]


def _names_above_first_row(path: str | Path, mark: str) -> list[str]:
    """The names of the columns, if the first row has no more cells than these."""
    table = pandas.read_csv(path, nrows=1, sep=mark)
    if not isinstance(table.index, pandas.RangeIndex):
        # pandas would take the first cell of each row for its name, and shift all others.
        raise ValueError(f"its first row has more cells than the {len(table.columns)} names of its first line")
    return list(table.columns)


def _check_names(path: str | Path, mark: str) -> None:
    """Refuses a first line that names two columns alike, of which pandas would number the second."""
    names = _first_cells(path, mark)
    names = names[names != ""]  # several columns may have no name, such as an index of pandas
    if not names.is_unique:
        raise ValueError(f"its first line names two columns {names[names.duplicated()].iloc[0]!r}")


def _check_first_line(path: str | Path) -> None:
    """Refuses what spreadsheets write before or between the characters of the first line."""
    with open_bytes(path) as file:
        line = file.readline(1 << 16)
    if b"\0" in line and not line.startswith(UTF16_MARKS):
        raise ValueError("its first line has zero bytes, as text in UTF-16 has")
    if line.lower().startswith(b"sep="):
        raise ValueError(f"its first line is {line.decode(errors='replace').strip()!r}, which only Excel reads")


def _delimiter_of(given: str) -> str:
    mark = WORDS_FOR_DELIMITERS.get(given.lower(), given)
    if len(mark) != 1:
        raise UserError(f"`delimiter` is {given!r}. Pass one character, or the word tab.")
    return mark


def to_utf8(path: str | Path, error: UnicodeDecodeError) -> str:
    """How a file that is not UTF-8 becomes it."""
    if error.object.startswith(ZIP_MARK):
        return "If it is a spreadsheet, save it as CSV (UTF-8)."
    if error.object.startswith(GZIP_MARK):
        return f"It is compressed: `gunzip -c < {shlex.quote(str(path))} > NEW` unpacks it."
    if error.object.startswith(UTF16_MARKS):
        name, often = "UTF-16", ""
    else:
        name, often = "ENCODING", " (often WINDOWS-1252; WINDOWS-1251 for Cyrillic)"
    command = f"iconv -f {name} -t UTF-8 {shlex.quote(str(path))} > NEW"
    return f"If it is text in {name}{often}, `{command}` changes it."

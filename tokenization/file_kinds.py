"""Files of text and tables: the kind that the ending of a name stands for, and how each kind is read.

A file of rows is read whole by `rows/files.py`, a corpus as a stream by `text/documents.py`.
"""

import logging
import shlex
from pathlib import Path
from typing import Any

import pandas
from datasets import Features, Value
from datasets.packaged_modules.json.json import JsonConfig

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

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
ZIP_MARK = b"PK"  # a spreadsheet is an archive, too


def reader_options(builder: str, path: str | Path, delimiter: str | None = None) -> dict[str, Any]:
    """What makes `datasets` read the cells of a file as they stand.

    Args:
        builder: csv, json or parquet.
        path: the file.
        delimiter: what separates the cells of a .csv or .tsv file. Default: found in its first line.

    Raises:
        ValueError: the first lines of a .csv or .tsv file do not make a table.
    """
    if builder == "csv":
        return csv_options(path, delimiter)
    if builder == "json" and hasattr(JsonConfig, "on_mixed_types"):
        # Of a column with texts and numbers, `datasets` would write the texts behind the first 10 MB as JSON, quoted.
        return {"on_mixed_types": None}
    return {}


def csv_options(path: str | Path, delimiter: str | None = None) -> dict[str, Any]:
    """What makes `datasets` read each cell of a .csv file as the text that it is.

    pandas would read "None" and "NA" as missing and "007" as a number, by a guess for every 10,000 rows.
    """
    if delimiter:
        candidates = [delimiter.replace("\\t", "\t")]
    elif str(path).lower().endswith(".tsv"):
        candidates = ["\t"]
    else:
        candidates = list(DELIMITERS)
    tables = {mark: pandas.read_csv(path, nrows=1, sep=mark) for mark in candidates}
    mark = max(candidates, key=lambda mark: len(tables[mark].columns))  # the comma, where several give as many
    table = tables[mark]
    if not isinstance(table.index, pandas.RangeIndex):
        # pandas would take the first cell of each row for its name, and shift all others.
        raise UserError(f"its first row has more cells than the {len(table.columns)} names of its first line")
    names = pandas.read_csv(path, nrows=1, sep=mark, header=None).loc[0]  # pandas would number a name's second column
    if not names.is_unique:
        raise UserError(f"its first line names two columns {names[names.duplicated()].iloc[0]!r}")
    features = Features({name: Value("string") for name in table.columns})
    return {"sep": mark, "keep_default_na": False, "features": features}


def to_utf8(path: str | Path, error: UnicodeDecodeError) -> str:
    """How a file that is not UTF-8 becomes it."""
    if error.object.startswith(ZIP_MARK):
        return "If it is a spreadsheet, save it as CSV (UTF-8)."
    if error.object.startswith(UTF16_MARKS):
        name, often = "UTF-16", ""
    else:
        name, often = "ENCODING", " (often WINDOWS-1252; WINDOWS-1251 for Cyrillic)"
    command = f"iconv -f {name} -t UTF-8 {shlex.quote(str(path))} > NEW"
    return f"If it is text in {name}{often}, `{command}` changes it."

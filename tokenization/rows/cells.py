"""Cells that are copied from a file of rows into another file: each keeps the characters that it has there.

In a .csv file a text that a spreadsheet would run as a formula gets an apostrophe before it.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..file_kinds import ROW_FILES, json_rows
from .columns import TEXT_COLUMN, check_columns
from .files import read_file
from .records import SURROGATE, is_null

BEGINS_OF_FORMULAS = ("=", "+", "-", "@")
# Texts that begin so and are not run: numbers, such as -1e-05, -1,5 and -inf, and signs alone, such as a dash.
NO_FORMULA = re.compile(r"[-+](?:[\d.,]+(?:e[-+]?\d+)?|inf(?:inity)?|nan)|[-+]+|[=@]", re.IGNORECASE)


class Number(str):
    """The characters of a number in a JSON file."""


def read_cells(
    path: str | Path, columns: list[str], delimiter: str | None = None, text_column: str | None = None
) -> list[dict[str, Any]]:
    """The cells of some columns for each row of a file that `read_file` reads, in its order.

    Those of `text_column` come with them. Cells of a .csv file are texts, and numbers of a JSON file are their
    characters.

    Raises:
        ValueError: the file lacks a column.
    """
    texts = [] if text_column is None else [text_column]
    needed = list(dict.fromkeys([*texts, *columns]))
    if not _is_json(path):
        rows = read_file(path, delimiter=delimiter)
        check_columns(path, rows.column_names, TEXT_COLUMN, texts)
        check_columns(path, rows.column_names, None, columns)
        return rows.select_columns(needed).to_list()
    found: dict[str, None] = {}
    cells = []
    for row in json_rows(path, Number):
        found.update(dict.fromkeys(row))
        cells.append({name: row.get(name) for name in needed})
    check_columns(path, list(found), TEXT_COLUMN, texts)
    check_columns(path, list(found), None, columns)
    return cells


def _is_json(path: str | Path) -> bool:
    name = Path(path).name.lower()
    return any(name.endswith(ending) for ending, builder in ROW_FILES.items() if builder == "json")


def as_json(value: Any) -> str:
    """A cell or record as JSON, with each `Number` as it is."""
    if isinstance(value, Number):
        return value
    if isinstance(value, Mapping):
        pairs = [f"{as_json(str(name))}: {as_json(item)}" for name, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_json, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return _without_surrogates(json.dumps(value, ensure_ascii=False, default=str))


def as_text(cell: Any) -> str:
    """A cell as it stands in a .csv file; a missing one is an empty text."""
    if is_null(cell):
        return ""
    if isinstance(cell, Number):
        return cell
    if isinstance(cell, bool | int | float | list | dict):
        return as_json(cell)
    return _without_surrogates(str(cell))


def without_formula(cell: Any) -> Any:
    """A text that a spreadsheet would run, behind an apostrophe; any other cell as it is."""
    return f"'{cell}" if is_formula(cell) else cell


def is_formula(cell: Any) -> bool:
    """Whether a spreadsheet would run a cell."""
    if not isinstance(cell, str) or isinstance(cell, Number):
        return False
    return cell.startswith(BEGINS_OF_FORMULAS) and NO_FORMULA.fullmatch(cell) is None


def _without_surrogates(text: str) -> str:
    r"""A text with half characters as escapes: `\ud83d`."""
    return SURROGATE.sub(lambda match: f"\\u{ord(match[0]):x}", text)

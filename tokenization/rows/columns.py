"""Columns of rows: those that the roles of a traversal need, and the names and values that all parts agree on."""

from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError
from ..wording import nearest

PLACE = "row of the file"  # a column of each row's place in its file, whatever rows were drawn or left out
TEXT_COLUMN = "text_column"
IGNORED_LABEL = -100  # torch's `ignore_index`; the losses leave such labels out
HIDDEN_LABEL = -1  # marks a row without a label, as in GLUE's test files


def column_list(columns: str | list[str]) -> list[str]:
    """The columns of a role, which may be one name or several."""
    return [columns] if isinstance(columns, str) else list(columns)


def check_columns(file: str | Path, names: list[str], role: str | None, columns: str | list[str]) -> None:
    """Raises ValueError where the file does not have the columns of a role, or those to keep.

    Args:
        file: its name, for the message.
        names: the columns that it has.
        role: what the columns are needed for. `None`: they are to be kept in a file of predictions. `TEXT_COLUMN`:
            they hold the texts of a file that has no other role.
        columns: the columns that are needed.
    """
    for column in column_list(columns):
        if column not in names:
            raise UserError(_missing_column(str(file), names, role, column))


def _missing_column(file: str, names: Iterable[str], role: str | None, column: str) -> str:
    names = list(names)
    if role is None:
        use, remedy = "to keep", "Name one of them"
    elif role == TEXT_COLUMN:
        use, remedy = "with the texts", "Name theirs as `text_column`"
    else:
        use, remedy = f"for the role {role}", f"Name its column in `columns` ({role}=column)"
    # A file with a column that is called as the role probably means that one.
    meant = nearest(role if role in names else column, names)
    hint = ""
    if file.endswith((".csv", ".tsv")):
        hint = " If its first line is a row, add one of names above it."
        if len(names) == 1:
            hint += " If other marks separate its cells, pass them as `delimiter`."
    have = ", ".join(map(repr, names))
    return f"{file} has no column {column!r} {use}{meant}; its columns are: {have}. {remedy}.{hint}"

"""Labels of a column: read as they stand, named as classes, and written as the ids or numbers that a head learns.

Rows whose label or text cannot be used are refused together, or left out: the message names the first of them, what
they hold and what is needed.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, LargeList, List, Value
from transformers.utils import logging

from ..errors import UserError
from ..wording import counted, listed
from .columns import HIDDEN_LABEL, PLACE, check_columns
from .records import is_null
from .tasks import Task
from .traversals import TRAVERSALS

logger = logging.get_logger(__name__)

# A number, and its fraction. 007 is a name, and so is a number of more digits than 64 bits hold.
NUMBER = re.compile(r"\s*-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?\s*")
NUMBER_WITH_COMMA = re.compile(r"\s*-?[0-9]+,[0-9]+\s*")
LARGEST_LABEL = float(np.finfo(np.float32).max)  # of a regression, whose labels are 32-bit floats
MOST = 1 << 53  # from here on a float does not tell whole numbers apart
# Cells of a column that says whether a label holds.
HOLDS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}
MEANS_HIDDEN = f" {HIDDEN_LABEL} marks a row without a label, as in GLUE's test files."
COLUMN_FOR_EACH = "If it holds 0 or 1 for each class, give a column for each: label=first,second"
MAKE_ONE = ".str.normalize('NFC').str.strip().str.lower()"
MANY_CLASSES = 20  # with more, a column whose cells are mostly no class is probably not the label


# ---- Reading


def is_missing(label: Any) -> bool:
    """Whether the label is None, NaN or a blank text (an empty cell of a .csv file can be read as one)."""
    if isinstance(label, str):
        return not label.strip()
    return is_null(label)


def are_all_labelled(rows: Dataset, column: str) -> bool:
    """Whether each row of a task's split has a label; None and -1 stand for a hidden one."""
    if column not in rows.column_names:
        return False
    return all(label is not None and label >= 0 for label in rows.unique(column))


def read_labels(rows: Dataset, column: str, *, as_classes: bool = False, parse_numbers: bool = True) -> list:
    """The labels of a column, None for a missing one.

    Args:
        rows: have the column.
        column: its name.
        as_classes: whether the labels are classes. A `ClassLabel` column, or one of lists of them, then gives names,
            and None for −1. Whole floats, which pandas makes beside an empty cell, are integers.
        parse_numbers: whether labels become numbers where all are texts of such.
    """
    feature = rows.features[column]
    element = getattr(feature, "feature", None)  # of a column of lists
    labels = [None if is_missing(label) else label for label in rows[column][:]]
    if as_classes and isinstance(feature, ClassLabel):
        return [None if label is None or label < 0 else feature.names[label] for label in labels]
    if as_classes and isinstance(element, ClassLabel):
        return [given and [element.names[label] for label in given] for given in labels]
    if parse_numbers:
        labels = _numbers_of_texts(labels)
    if as_classes:
        labels = _integers_of_floats(labels)
    return labels


def _numbers_of_texts(labels: list) -> list:
    """The labels as numbers if all are texts of such."""
    matches = [isinstance(label, str) and NUMBER.fullmatch(label) for label in labels if label is not None]
    if not all(matches):
        return labels
    has_fractions = any(match[1] for match in matches)
    number_type = float if has_fractions else int
    numbers = [None if label is None else number_type(label) for label in labels]
    if has_fractions and any(abs(number) >= MOST for number in numbers if number is not None):
        return labels  # several of these texts may be one float
    return numbers


def _integers_of_floats(labels: list) -> list:
    """The labels as integers if all are whole floats."""
    if not all(label is None or isinstance(label, float) and label.is_integer() for label in labels):
        return labels
    return [None if label is None else int(label) for label in labels]


def join_label_columns(rows: Dataset, columns: list[str], source: str) -> Dataset:
    """The rows with some columns of 0 and 1 as one column of lists, whose name is theirs, joined by commas.

    A list has the names of the columns that hold 1. A cell that is neither 0 nor 1 becomes the class `name=cell`,
    which is refused.
    """
    check_columns(source, rows.column_names, "label", columns)
    lists: list[list[str]] = [[] for _ in range(len(rows))]
    for name in columns:
        for row, cell in enumerate(rows[name][:]):
            holds = HOLDS.get(str(cell).strip().lower())
            if holds is None:
                lists[row].append(f"{name}={cell}")
            elif holds:
                lists[row].append(name)
    return rows.remove_columns(columns).add_column(",".join(columns), lists, feature=List(Value("string")))


# ---- Classes


def class_names(labels: list, feature: Any, where: str, num_labels: int | None) -> tuple[str, ...]:
    """The names of the classes of a train split, in the order of their ids.

    Args:
        labels: those of the rows that can be used, as `read_labels` gives them with `as_classes`.
        feature: that of their column. A `ClassLabel` has the names; those of texts are sorted; integers are the ids
            themselves if 0 is among them, else names.
        where: the column and its source, for messages.
        num_labels: the number of classes, where some may have no row. Default: the number found.
    """
    given = [label for label in labels if label is not None]
    if 0 in given:  # the others are ids, too
        given = [label for label in given if label != HIDDEN_LABEL]
    if isinstance(feature, List | LargeList):
        lists = given
        feature = feature.feature
        given = list(chain.from_iterable(lists))
        _check_types(given, where)
        _check_lists(lists, where)
    else:
        _check_types(given, where)
    found = set(given)
    if isinstance(feature, ClassLabel):
        names = feature.names
    elif all(type(label) is int for label in found):
        ids = range(num_labels or len(found)) if 0 in found else sorted(found)
        names = [str(label) for label in ids]
    else:
        names = sorted(str(label) for label in found)
    _check_names(names, found, where, num_labels, note=MEANS_HIDDEN if HIDDEN_LABEL in labels else "")
    _warn_of_names(names, where)
    return tuple(names)


def _check_lists(lists: list[list], where: str) -> None:
    for several in lists:
        if len(set(several)) < len(several):
            raise UserError(f"{where} has the list {several!r}, which names a class twice. {COLUMN_FOR_EACH}.")


def check_lists_hold_classes(lists: list[list], num_classes: int | None, where: str) -> None:
    """Refuses lists that hold 0 or 1 for each class: as lists of ids, each would name the classes 0 and 1.

    Args:
        lists: the labels of all rows that have one.
        num_classes: their number, if it is known before the lists are read.
        where: the column and its source, for messages.
    """
    lengths = {len(of_row) for of_row in lists}
    if len(lengths) != 1:
        return
    (length,) = lengths
    is_one_for_each_class = length > 1 and num_classes in (None, length)
    if is_one_for_each_class and all(flag in (0, 1) for flag in chain.from_iterable(lists)):
        raise UserError(f"{where} has lists of 0 and 1, such as {lists[0]!r}, in all rows. {COLUMN_FOR_EACH}.")


def _check_types(labels: list, where: str) -> None:
    for label in labels:
        if not isinstance(label, str | int):
            raise UserError(
                f"{where} has the label {label!r}, but a class is a text or an integer. Correct the data, or pass "
                "`regression` to predict numbers."
            )


def _check_names(names: list[str], found: set, where: str, num_labels: int | None, note: str) -> None:
    missing = sorted({str(label) for label in found} - set(names))
    if missing:
        raise UserError(
            f"{where} has the class {missing[0]}, but the ids of {counted(len(names), 'class')} go from 0 to "
            f"{len(names) - 1}. Correct the labels, name another column, or pass the number of classes as "
            "`num_labels`."
        )
    if num_labels is None and (slips := _equal_but_for_spelling(names)):
        raise UserError(
            f"{where} has classes that differ in spelling alone: {listed(slips)}. Make them one in the file (pandas: "
            f"`{MAKE_ONE}`), or pass `num_labels` ({len(names)}) to keep them."
        )
    if not names:
        raise UserError(f"{where} has no label. Add some, or name another column.")
    if len(names) < 2:
        raise UserError(
            f"{where} has {counted(len(names), 'class')} ({listed(names)}), but at least two are needed. Add rows of "
            f"another class, or name another column.{note}"
        )


def _equal_but_for_spelling(names: list[str]) -> list[str]:
    """Groups of names that differ in case, spaces, Unicode's form or invisible characters alone: `'No' and 'no'`."""
    groups: dict[str, list[str]] = {}
    for name in names:
        visible = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
        plain = " ".join(unicodedata.normalize("NFC", visible).lower().split())
        groups.setdefault(plain, []).append(name)
    return [" and ".join(_distinct(group)) for group in groups.values() if len(group) > 1]


def _distinct(names: list[str]) -> list[str]:
    """Names that look different, by their code points if they otherwise do not: `'caf\\xe9'` and `'cafe\\u0301'`."""
    look_different = len({unicodedata.normalize("NFC", name) for name in names}) == len(names)
    return [repr(name) if look_different else ascii(name) for name in names]


def _warn_of_names(names: list[str], where: str) -> None:
    if str(HIDDEN_LABEL) in names:
        logger.warning(f"{where} has the class -1.{MEANS_HIDDEN} If so here, remove these rows.")
    if all(NUMBER_WITH_COMMA.fullmatch(name) for name in names):
        logger.warning(
            f"{where} has the classes {listed(names)}. If these are numbers, write them with a decimal point, and "
            "pass `regression`."
        )
    several = [name for name in names if "|" in name]
    joins_others = any(set(name.split("|")) & set(names) for name in several)
    if 2 * len(several) > len(names) or joins_others:
        logger.warning(
            f"{where} has the class {several[0]!r}. If a row may have several labels, write them as a list, or give "
            "each class a column of 0 and 1."
        )


# ---- Writing


INTEGER = re.compile(r"[+-]?\d+")


class LabelIds:
    """How the labels of a split become ids of classes or choices, lists of 0 and 1, or numbers.

    Where all labels are whole numbers and none is a name, they are the ids, unless the names are whole numbers, too.

    Args:
        task: what the labels are of.
        names: the classes in the order of their ids. None of them: the labels are ids or numbers.
        labels: those of the split, None for a missing one.
        is_test: whether −1 may hide a label.
    """

    def __init__(self, task: Task, names: Sequence[str | int], labels: list, is_test: bool):
        self.task = task
        self.is_test = is_test
        self.id_of = {str(name): place for place, name in enumerate(names)}
        self.has_choices = TRAVERSALS[task.traversal].has_choices
        given = [label for label in labels if label is not None]
        are_integers_beside_names = all(type(label) is int and str(label) not in self.id_of for label in given)
        # Names such as those of one to five stars are no ids, and another number is none of them.
        are_names_integers = len(names) > 0 and all(INTEGER.fullmatch(str(name)) for name in names)
        self.are_ids = not task.label_values and are_integers_beside_names and not are_names_integers
        self.are_ids_of_names = self.are_ids and len(self.id_of) > 0 and len(given) > 0

    @property
    def dtype(self) -> Value | List:
        """The type of the column that is written."""
        if self.task.multi_label:
            return List(Value("float32"))
        return Value("float32" if self.task.regression else "int64")

    @property
    def needed(self) -> str:
        """What a label must be, for messages."""
        names = listed(self.id_of)
        if self.task.multi_label:
            return f"a list of some of {names}, or [] for none; with a column for each class, 0 or 1"
        if self.id_of:
            return f"one of {names}"
        if self.task.regression:
            return "a number such as 3 or 3.5"
        if self.has_choices:
            return "the index of a choice, 0 for the first"
        return f"a whole number from 0 to {self.task.num_labels - 1}"

    def ends(self, rows: Dataset) -> list[int]:
        """Of each row the number of its classes or choices, which an id is below."""
        if self.has_choices and not self.id_of:
            return num_choices(rows, self.task.columns["choices"])
        end = len(self.id_of) or len(self.task.label_names) or MOST
        return [end] * len(rows)

    def convert(self, label: Any, end: int) -> float | int | list[float] | None:
        """The id, number or list of a label; None for one that cannot be used."""
        if self.task.multi_label:
            return self._flags(label)
        if str(label) in self.id_of:
            return self.id_of[str(label)]
        is_hidden = self.is_test and label == HIDDEN_LABEL
        if self.are_ids or is_hidden or not self.id_of:
            return self._number(label, end)
        return None

    def _flags(self, label: Any) -> list[float] | None:
        if not isinstance(label, list):
            return None
        given = {str(name) for name in label}
        names_one_twice = len(given) < len(label)
        if names_one_twice or not given <= self.id_of.keys():
            return None
        return [float(name in given) for name in self.id_of]

    def _number(self, label: Any, end: int) -> float | int | None:
        try:
            number = float(label)
        except (TypeError, ValueError):
            return None
        if self.task.regression:
            return number if abs(number) <= LARGEST_LABEL else None  # neither infinite nor NaN
        # Of classes, the collator refuses those below 0 with its own sentence, once it knows which label is hidden.
        least = 0 if self.has_choices and not self.is_test else 1 - MOST
        is_id = number.is_integer() and least <= number < end
        return int(number) if is_id else None


def num_choices(rows: Dataset, columns: str | list[str]) -> list[int]:
    """The choices of each row, without blank cells at its end; `MOST` where the collator will refuse the row."""
    if isinstance(columns, str):  # the collator refuses what is no list, and an empty one
        return [len(given) if isinstance(given, list) and given else MOST for given in rows[columns]]
    numbers = []
    for cells in zip(*(rows[name][:] for name in columns), strict=True):
        filled = [number for number, cell in enumerate(cells, start=1) if not is_missing(cell)]
        numbers.append(filled[-1] if filled else MOST)
    return numbers


def write_labels(
    rows: Dataset,
    labels: list,
    task: Task,
    names: Sequence[str | int],
    source: str,
    split: str,
    bad_texts: dict[int, str] | None = None,
    skip_bad_rows: bool | None = None,
    hide_unknown_labels: bool = False,
) -> Dataset:
    """The rows with ids or numbers in the column of the label; see [`LabelIds`].

    A row of a test split may lack a label. Where rows are left out, a column `PLACE` keeps the others' places.

    Args:
        rows: have the task's columns.
        labels: one for each row, None for a missing one.
        task, names: as in `LabelIds`.
        source: what the rows are called in messages.
        split: the one that they are of.
        bad_texts: rows that lack a text, each with the column that should hold it.
        skip_bad_rows: whether rows that cannot be used are left out, not refused. `None`: that cannot be chosen.
        hide_unknown_labels: whether a row of a test split whose label cannot be used stays without it.

    Raises:
        ValueError: rows lack a label or text that can be used.
    """
    ids = LabelIds(task, names, labels, is_test=split in task.test_splits)
    if ids.are_ids_of_names:
        (_, first), *others = [(place, name) for name, place in ids.id_of.items()]
        meanings = [f"0 means {first}", *[f"{place} {name}" for place, name in others]]
        logger.warning_once(f"{source}: the labels are numbers of classes; {listed(meanings)}.")
    converted = _ConvertedRows(rows, labels, source, ids, bad_texts or {})
    if converted.bad and hide_unknown_labels and ids.is_test:
        converted.hide_unknown_labels()
    elif converted.bad:
        converted.refuse_or_warn(skip_bad_rows)
    return converted.write()


class _ConvertedRows:
    """The rows of a split with their labels before and after, and those of them that cannot be used.

    Args:
        rows, labels, source, bad_texts: as in `write_labels`.
        ids: converts the labels.
    """

    def __init__(self, rows: Dataset, labels: list, source: str, ids: LabelIds, bad_texts: dict[int, str]):
        self.rows = rows
        self.labels = labels
        self.source = source
        self.ids = ids
        self.column = ids.task.columns["label"]
        self.ends = ids.ends(rows)
        self.converted: list[float | int | list[float] | None] = []
        self.bad: dict[int, str] = {}
        """Rows that cannot be used, each with the column whose cell is at fault."""
        for row, (label, end) in enumerate(zip(labels, self.ends, strict=True)):
            new = None if label is None else ids.convert(label, end)
            may_lack_label = ids.is_test and label is None
            if new is None and not may_lack_label:
                self.bad[row] = self.column
            self.converted.append(new)
        self.bad.update(bad_texts)
        self.kept = [row for row in range(len(rows)) if row not in self.bad]

    def refuse_or_warn(self, skip_bad_rows: bool | None) -> None:
        """Raises ValueError unless the bad rows may be left out; see `write_labels`."""
        what = self._describe_bad()
        if skip_bad_rows and self.kept and not self._count_from_1():
            logger.warning(f"{what} These rows are left out.")
            return
        or_skip = ""
        if skip_bad_rows is not None and self.kept:
            or_skip = ", or pass `skip_bad_rows` to leave them out"
        raise UserError(f"{what} Correct or remove these rows{or_skip}.")

    def hide_unknown_labels(self) -> None:
        """Keeps the rows of a test split, whose labels that cannot be used are None; warns of them."""
        if self._count_from_1():
            self.refuse_or_warn(None)
        first = sorted(self.bad)[:3]
        shown = [f"row {row} has the unknown label {self.rows[row][self.column]!r}" for row in first]
        if len(self.bad) > len(first):
            shown.append(f"and {len(self.bad) - len(first):,} more do")
        they_are = "It is" if len(self.bad) == 1 else "They are"
        logger.warning(
            f"{self.source}: {', '.join(shown)}. {they_are} predicted, but not scored. A label must be "
            f"{self.ids.needed}."
        )
        self.bad = {}
        self.kept = list(range(len(self.rows)))

    def _describe_bad(self) -> str:
        first = sorted(self.bad)[:3]
        shown = [f"row {row}: column {self.bad[row]!r} has {self.rows[row][self.bad[row]]!r}" for row in first]
        if len(self.bad) > len(first):
            shown.append(f"and {len(self.bad) - len(first)} more")
        what = (
            f"{len(self.bad)} of {counted(len(self.rows), 'row')} of {self.source} lack a text or a label that can be "
            f"used, counted from row 0: {'; '.join(shown)}. A label must be {self.ids.needed}."
        )
        has_classes = len(self.ids.id_of) > 0
        if has_classes and any(self.labels[row] == HIDDEN_LABEL for row in self.bad):
            what += f"{MEANS_HIDDEN} If it is a class, give the classes names."
        if len(self.ids.id_of) > MANY_CLASSES and len(self.bad) > len(self.rows) / 2:
            what += f" Is {self.column!r} the column of the labels?"
        if self._count_from_1():
            what += " No label is 0: if they count from 1, subtract 1 from each."
        return what

    def _count_from_1(self) -> bool:
        """Whether labels of choices begin with 1: without the bad rows, all others would be one place off."""
        if not self.ids.has_choices or 0 in self.converted:
            return False
        return any(self.labels[row] == self.ends[row] for row in self.bad)

    def write(self) -> Dataset:
        """The rows that can be used, with their new labels; a column `PLACE` if others are left out."""
        names = self.rows.column_names
        labels = [self.converted[row] for row in self.kept]
        rows = self.rows.remove_columns(self.column).select(self.kept)
        rows = rows.add_column(self.column, labels, feature=self.ids.dtype)
        if self.bad and PLACE not in names:
            names = [*names, PLACE]
            rows = rows.add_column(PLACE, self.kept)
        return rows.select_columns(names)

"""Files of one's own, or rows in memory, as a task: columns are checked, classes found, labels written as ids."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, LargeList, List, Value
from pandas import DataFrame

from ..errors import UserError
from ..wording import counted, listed, nearest
from .columns import PLACE, check_columns, column_list
from .files import read_file
from .held_out import check_share, hold_out
from .labels import (
    check_lists_hold_classes,
    class_names,
    is_missing,
    join_label_columns,
    num_choices,
    read_labels,
    write_labels,
)
from .records import dataset_of_frame, dataset_of_records
from .tasks import Task
from .traversals import TRAVERSALS, check_roles

SPLITS = ("train", "validation", "test")
Rows = str | Path | Dataset | DataFrame | list[dict[str, Any]]


def load_files(
    files: Mapping[str, Rows],
    traversal: str,
    columns: dict[str, str | list[str]],
    *,
    regression: bool = False,
    num_labels: int | None = None,
    label_names: Sequence[str] | None = None,
    delimiter: str | None = None,
    skip_bad_rows: bool = False,
    hide_unknown_labels: bool = False,
    validation_split: float | None = None,
    seed: int = 42,
) -> tuple[Task, DatasetDict]:
    """Reads your own files into a task that describes them, and their rows by split with class ids as labels.

    Args:
        files: maps split (train, validation, test) to a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file, or to
            the rows themselves: a `Dataset`, a `DataFrame` of pandas or a list of dictionaries. Test may lack labels,
            in some rows or all. Columns that the task does not need are left out where a JSON file or rows in memory
            have cells of several kinds in them.
        traversal: classification, entailment, similarity or multiple_choice.
        columns: maps role to column name or names, as in `TraversalCollator`; the label's default is "label". If a row
            may have several labels, their column holds lists of classes; or the role has a column of 0 and 1 for each
            class, whose joined name is then that of the labels.
        regression: whether the labels are numbers to predict.
        num_labels: number of classes, where some may have no row. Default: the number found in the data.
        label_names: names of the classes in the order of their ids, such as a model's. Default: the labels of the
            train split: the names of a `ClassLabel` column in its order; of others, texts are sorted, and integers are
            the ids themselves if 0 is among them, else names.
        delimiter: what separates the cells of .csv and .tsv files. Default: a tab; in .csv found in the first line.
        skip_bad_rows: whether rows of train and validation without a text or a label that can be used are left out.
            Default: they are refused, all at once.
        hide_unknown_labels: whether labels of test that cannot be used become None, with a warning. Default: they are
            refused.
        validation_split: share of the train split, between 0 and 1, that becomes the validation split. Each class
            gives its share. Default: none.
        seed: of the draw of these rows.

    Raises:
        ValueError: files, columns or labels are not what the task needs.
    """
    check_roles(traversal, columns)
    columns = {"label": "label", **columns}
    _check_names(columns)
    _check_columns_are_used_once(columns)
    _check_files(files)
    if label_names is not None:
        _check_label_names(label_names)
        label_names = [str(name) for name in label_names]
    if validation_split is not None:
        check_share(validation_split)
        _check_can_hold_out(files)
    needed = _names_of(columns)
    splits = [_open_split(name, rows, delimiter, needed) for name, rows in files.items()]
    has_classes = not regression and not TRAVERSALS[traversal].has_choices
    own = _OwnRows(splits, traversal, columns, has_classes, regression)
    for split in splits:
        own.prepare(split)
    task = own.make_task(label_names, num_labels)
    if num_labels not in (None, task.num_labels):
        classes = f"{counted(task.num_labels, 'class')} ({listed(task.label_names)})"
        raise UserError(f"{splits[0].source} has {classes}, but `num_labels` is {num_labels}. Correct one of them.")
    for split in splits:
        own.write_labels(split, task, skip_bad_rows, hide_unknown_labels)
    rows_of_splits = {split.name: split.rows for split in splits}
    if validation_split is not None:
        train = rows_of_splits["train"]
        is_one_class = has_classes and not task.multi_label
        classes = train[task.columns["label"]][:] if is_one_class else None
        rows_of_splits["train"], rows_of_splits["validation"] = hold_out(
            train, validation_split, seed, classes, next(split.source for split in splits if split.name == "train")
        )
    return task, DatasetDict(rows_of_splits)


def _check_names(columns: dict[str, str | list[str]]) -> None:
    for role, names in columns.items():
        of_role = [names] if isinstance(names, str) else names
        are_names = isinstance(of_role, list | tuple) and all(isinstance(name, str) for name in of_role)
        if not are_names or not of_role:
            raise UserError(f"`columns` has {names!r} for the role {role}. Name its column, or a list of columns.")


def _check_columns_are_used_once(columns: dict[str, str | list[str]]) -> None:
    used = Counter(chain.from_iterable(column_list(names) for names in columns.values()))
    name, times = used.most_common(1)[0]
    if times > 1:
        raise UserError(f"`columns` names the column {name!r} twice. Give each role its own column.")


def _check_label_names(label_names: Sequence[str]) -> None:
    if isinstance(label_names, str):
        raise UserError(f"`label_names` is {label_names!r}. Pass a list of the names of the classes.")
    name, times = Counter(map(str, label_names)).most_common(1)[0] if label_names else ("", 0)
    if times > 1:
        raise UserError(f"`label_names` has {name!r} twice. Give each class its own name.")


def _check_can_hold_out(files: Mapping[str, Rows]) -> None:
    if "train" not in files:
        raise UserError("`validation_split` holds out rows of the train split, but there is none. Pass its file.")
    if "validation" in files:
        raise UserError("`validation_split` and a validation file were both given. Leave one of them out.")


def _names_of(columns: Mapping[str, str | list[str]]) -> set[str]:
    """All columns of a task, also those that the name of several label columns joins."""
    names = set(chain.from_iterable(column_list(of_role) for of_role in columns.values()))
    return names | set(columns["label"].split(",") if isinstance(columns["label"], str) else ())


def _check_files(files: Mapping[str, Rows]) -> None:
    if isinstance(files, Mapping):
        given = {split: _kind_of(rows) for split, rows in files.items() if not _is_file_or_rows(rows)}
        if not given and files:
            _check_splits(files)
            return
        described = f"has {given}" if given else "is {}"
    else:
        described = f"is {_kind_of(files)}"
    needed = "Give each split a file, a `Dataset`, a `DataFrame` or a list of dictionaries"
    raise UserError(f'`files` {described}. {needed}, as {{"train": "a.csv"}}.')


def _is_file_or_rows(rows: Any) -> bool:
    if isinstance(rows, list):
        return all(isinstance(row, Mapping) for row in rows)
    return isinstance(rows, str | Path | Dataset | DataFrame)


def _kind_of(given: Any) -> str:
    if isinstance(given, str | Path):
        return repr(str(given))
    kind = type(given).__name__
    if isinstance(given, list) and given:
        return f"{kind} of {type(given[0]).__name__}"
    return kind


def _check_splits(names: Collection[str]) -> None:
    unknown = [split for split in names if split not in SPLITS]
    if unknown:
        raise UserError(
            f"`files` has the split {unknown[0]!r}{nearest(unknown[0], SPLITS)}. Name splits {', '.join(SPLITS)}."
        )


@dataclass
class _Split:
    """The rows of a split, and what is known of them."""

    name: str
    rows: Dataset
    source: str
    """What the rows are called in messages: their file, or the split of a data set."""
    task_name: str
    """What a task of these rows is called."""
    labels: list | None = None
    """One for each row, None for a missing one. `None`: a test split without a column of labels."""
    bad_texts: dict[int, str] = field(default_factory=dict)
    """Rows that lack a text, each with the column that should hold it."""

    @property
    def is_test(self) -> bool:
        """Whether labels, and texts that the collator checks later, may be missing."""
        return self.name == "test"


def _open_split(name: str, given: Rows, delimiter: str | None, needed: Collection[str]) -> _Split:
    source, task_name = f"the split {name!r}", ""
    if isinstance(given, Dataset):
        # Numbers of torch or numpy, and columns that are hidden, would be read as other labels.
        is_changed = given.format["type"] == "custom"  # by a function of the user's
        rows = given if is_changed else given.with_format(None)
        dataset_name = given.info.dataset_name  # none if the rows were made in memory
        if dataset_name:
            source, task_name = f"{dataset_name}/{name}", Path(dataset_name).name
    elif isinstance(given, DataFrame):
        rows = dataset_of_frame(given, source, needed)
    elif isinstance(given, list):
        rows = dataset_of_records(given, source, needed)
    else:
        source, task_name = str(given), Path(given).name.partition(".")[0]
        rows = read_file(given, delimiter=delimiter, needed=needed)
    is_file = isinstance(given, str | Path)
    if PLACE in rows.column_names and (is_file or rows.features[PLACE] != Value("int64")):
        raise UserError(f"{source} has a column {PLACE!r}, as which this package keeps the rows' places. Rename it.")
    if len(rows) == 0:
        raise UserError(f"{source} has no rows. Give at least one, or leave it out.")
    return _Split(name, rows, source, task_name)


class _OwnRows:
    """The splits of one's own data on their way to a task; the methods are the steps of `load_files`.

    Raises:
        ValueError: several columns hold the labels of a task that has no classes.
    """

    def __init__(
        self,
        splits: list[_Split],
        traversal: str,
        columns: dict[str, str | list[str]],
        has_classes: bool,
        regression: bool,
    ):
        self.splits = splits
        self.traversal = traversal
        self.columns = columns
        self.has_classes = has_classes
        self.regression = regression
        self.class_columns = self._find_class_columns()
        if self.class_columns is not None:
            if not has_classes:
                raise UserError(
                    f"`columns` has {self.class_columns!r} for the role label, but it needs the name of one column "
                    "where labels are not classes."
                )
            with_comma = [name for name in self.class_columns if "," in name]
            if with_comma:
                raise UserError(f"The column {with_comma[0]!r} of a class has a comma in its name. Rename it.")
            self.columns["label"] = ",".join(self.class_columns)

    def _find_class_columns(self) -> list[str] | None:
        """The columns of 0 and 1, one for each class; None where one column holds the labels."""
        label = self.columns["label"]
        if not isinstance(label, str):
            return list(label)
        # Perhaps the joined name of several columns, as a model's folder holds it.
        if "," in label and not any(label in split.rows.column_names for split in self.splits):
            return label.split(",")
        return None

    @property
    def label(self) -> str:
        """The column of the labels."""
        return self.columns["label"]

    def prepare(self, split: _Split) -> None:
        """Checks the columns of a split, and reads its labels as they stand."""
        self._join_class_columns(split)
        for role, names in self.columns.items():
            if role != "label" or not split.is_test:
                check_columns(split.source, split.rows.column_names, role, names)
        if not split.is_test:
            split.bad_texts = _bad_texts(split.rows, self.columns)
        if self.label in split.rows.column_names:
            is_table = split.source.lower().endswith((".csv", ".tsv"))
            split.labels = read_labels(split.rows, self.label, as_classes=self.has_classes, parse_numbers=is_table)

    def _join_class_columns(self, split: _Split) -> None:
        if self.class_columns is None:
            return
        has_none = set(self.class_columns).isdisjoint(split.rows.column_names)
        if split.is_test and has_none:
            return
        split.rows = join_label_columns(split.rows, self.class_columns, split.source)

    def make_task(self, label_names: Sequence[str] | None, num_labels: int | None) -> Task:
        """What the rows are for."""
        multi_label = self.has_classes and self._have_lists()
        if multi_label and not self.class_columns:
            self._check_lists(label_names)
        metrics = ("accuracy",)
        if self.regression:
            metrics = ("pearson", "spearmanr")
        elif multi_label:
            metrics = ("f1_micro", "accuracy")
        return Task(
            name=self.splits[0].task_name,
            traversal=self.traversal,
            columns=self.columns,
            label_names=self._find_classes(label_names, num_labels) if self.has_classes else (),
            regression=self.regression,
            multi_label=multi_label,
            metrics=metrics,
        )

    def _have_lists(self) -> bool:
        """Whether a row may have several labels."""
        features = [split.rows.features.get(self.label) for split in self.splits]
        return any(isinstance(feature, List | LargeList) for feature in features)

    def _check_lists(self, label_names: Sequence[str] | None) -> None:
        labels = chain.from_iterable(split.labels or () for split in self.splits)
        lists = [label for label in labels if isinstance(label, list)]
        where = f"Column {self.label!r} of {self.splits[0].source}"
        check_lists_hold_classes(lists, len(label_names) if label_names else None, where)

    def _find_classes(self, label_names: Sequence[str] | None, num_labels: int | None) -> tuple[str, ...]:
        """The names of the classes: those that are given, those of their columns, or those of the train split."""
        if label_names or self.class_columns:
            return tuple(label_names or self.class_columns)
        train = next((split for split in self.splits if split.name == "train"), None)
        if train is None:
            raise UserError("Without a train file the classes are not known. Pass one, or the model's `label_names`.")
        usable = [label for row, label in enumerate(train.labels) if row not in train.bad_texts]
        if not usable:
            raise UserError(f"{train.source} has no text in its column {train.bad_texts[0]!r}. Name another.")
        where = f"Column {self.label!r} of {train.source}"
        return class_names(usable, train.rows.features[self.label], where, num_labels)

    def write_labels(self, split: _Split, task: Task, skip_bad_rows: bool, hide_unknown_labels: bool) -> None:
        """Gives a split the ids of its labels."""
        if split.labels is None:
            return
        if split.name == "train" and TRAVERSALS[self.traversal].has_choices:
            self._check_choices(split)
        labels = split.labels
        if self.has_classes:  # a class may be called 1.0
            as_written = read_labels(split.rows, self.label, as_classes=True, parse_numbers=False)
            names = set(task.label_names)
            both = zip(as_written, labels, strict=True)
            labels = [written if str(written) in names else label for written, label in both]
        split.rows = write_labels(
            split.rows,
            labels,
            task,
            names=task.label_names,
            source=split.source,
            split=split.name,
            bad_texts=split.bad_texts,
            skip_bad_rows=None if split.is_test else skip_bad_rows,
            hide_unknown_labels=hide_unknown_labels,
        )

    def _check_choices(self, split: _Split) -> None:
        """Refuses training rows of which none has wrong choices."""
        choices = self.columns["choices"]
        if max(num_choices(split.rows, choices)) < 2:
            raise UserError(
                f"No row of {split.source} has more than one choice (column {listed(column_list(choices))}), so that "
                "nothing can be learnt. Add wrong choices, or name the columns of all choices."
            )


def _bad_texts(rows: Dataset, columns: dict[str, str | list[str]]) -> dict[int, str]:
    """The rows without one of their texts, each with the column that lacks it."""
    bad: dict[int, str] = {}
    for role, columns_of_role in columns.items():
        names = column_list(columns_of_role)
        hold_values = all(isinstance(rows.features[name], Value) for name in names)
        if role in ("label", "choices") or not hold_values:
            continue  # the collator reads lists and sees which choices are absent
        for row, cells in enumerate(zip(*(rows[name][:] for name in names), strict=True)):
            lacks_text = None in cells or all(is_missing(cell) for cell in cells)
            if lacks_text and row not in bad:
                first = next(name for name, cell in zip(names, cells, strict=True) if is_missing(cell))
                bad[row] = first
    return bad

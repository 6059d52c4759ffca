"""Rows of tasks and of files of one's own: read as they stand, with labels as ids or numbers, and checked for a batch.

Where rows cannot be used, the error names the file and its line or row, what it holds and what is needed. Story Cloze
is split as in the released `datasets.py` (https://github.com/openai/finetune-transformer-lm/blob/master/datasets.py).
"""

import glob
import gzip
import json
import logging
import math
import re
import zlib
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from datasets import (
    ClassLabel,
    Dataset,
    DatasetDict,
    Features,
    LargeList,
    List,
    Value,
    concatenate_datasets,
    load_dataset,
)
from datasets.exceptions import DatasetGenerationError
from transformers.utils import logging as transformers_logging

from .tasks import Task, get_task
from .traversal import TRAVERSALS

logger = transformers_logging.get_logger(__name__)
# Builder of `datasets` by the ending of a file's name.
FILE_BUILDERS = {".jsonl": "json", ".jsonl.gz": "json", ".csv": "csv", ".parquet": "parquet"}
# Those of one's own; the .tsv and .json files of a task's release often follow other rules.
OWN_BUILDERS = FILE_BUILDERS | {".tsv": "csv", ".json": "json"}
# A number, and its fraction. 007 is a name, and so is a number of more digits than 64 bits hold.
NUMBER = re.compile(r"\s*-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?\s*")
# Cells of a column that says whether a label holds.
HOLDS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
MOST = 1 << 53  # from here on a float does not tell whole numbers apart
DELIMITERS = ",;\t"  # of a .csv or .tsv file
# `seed` of the released datasets.py.
HELD_OUT_SEED = 3535999445


# ---- Files


def check_file(what: str, path: Path) -> None:
    """Raises ValueError where there is no file of a known kind."""
    if not path.is_file():
        raise ValueError(
            f"{what} {path} {'is a folder' if path.is_dir() else 'does not exist'}. Pass the path of a file."
        )
    if not path.name.endswith(tuple(OWN_BUILDERS)):
        raise ValueError(
            f"{what} {path} has an unknown file type. Pass a file that ends in {', '.join(OWN_BUILDERS)}; save a "
            "spreadsheet as CSV (UTF-8)."
        )


def read_file(path: Path, *, infer_types: bool = False, delimiter: str | None = None) -> Dataset:
    """The rows of a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file; a .json file may hold one list of objects.

    Args:
        path: the file.
        delimiter: what separates the cells of a .csv or .tsv file. Default: of comma, semicolon and tab the one that
            gives its first line the most cells.
        infer_types: whether columns of a .csv file become numbers where all cells are. Default: all cells are texts.

    Raises:
        ValueError: the file has no rows, or is not what its name says.
    """
    builder = next(builder for ending, builder in OWN_BUILDERS.items() if path.name.endswith(ending))
    readers = logging.getLogger("datasets.packaged_modules")  # they log a failure that is raised as well
    level = readers.level
    try:
        readers.setLevel(logging.CRITICAL)
        if builder != "parquet":
            num_lines = _check_lines(path, is_row=builder == "json" and path.suffix != ".json")
        options = csv_options(path, delimiter) if builder == "csv" else {}
        if delimiter is None and options.get("sep", ",") != "," and path.suffix != ".tsv":
            logger.warning(f"{path}: cells are separated by {options['sep']!r}.")
        if infer_types:
            options.pop("features", None)
        rows = load_dataset(builder, data_files=glob.escape(str(path)), split="train", **options)
    except (pandas.errors.EmptyDataError, StopIteration):
        rows = ()
    except (DatasetGenerationError, ValueError, OSError, EOFError, zlib.error) as error:
        reason = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        is_table = builder == "csv" and not isinstance(error, LineError)
        separated = ": quote cells that hold its separator, or pass that as `delimiter`" if is_table else ""
        raise ValueError(
            f"{path} cannot be read as {builder}: {str(reason).strip().rstrip('.')}. Correct the file{separated}."
        ) from error
    finally:
        readers.setLevel(level)
    if len(rows) == 0:
        raise ValueError(f"{path} has no rows. Give a file with at least one, or leave it out.")
    if builder == "csv" and len(rows) != num_lines - 1:
        logger.warning(
            f"{path}: {num_lines - 1:,} lines make {len(rows):,} rows, as some cells hold line ends. If none should, "
            "a quotation mark is missing."
        )
    return rows


class LineError(ValueError):
    """A line of a file is not what its kind asks for."""


def _check_lines(path: Path, is_row: bool) -> int:
    """The number of lines that are not blank.

    The readers take bytes of another encoding without a word, or do not count the lines.

    Raises:
        LineError: a line is not UTF-8, or no JSON object where each line is a row.
    """
    num_lines = 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                text = line.decode("utf-8-sig").strip()
                num_lines += bool(text)
                if is_row and text and not isinstance(json.loads(text), dict):
                    raise ValueError(f"{text!r} is no JSON object")
            except UnicodeDecodeError as error:
                charset = "UTF-16" if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff") else "LATIN1"
                byte = f"{error.object[error.start]:#04x}"
                raise LineError(
                    f"line {number}: the byte {byte} is not UTF-8; if the file is in {charset}, `iconv -f {charset} "
                    "-t UTF-8` changes it"
                ) from None
            except ValueError as error:
                raise LineError(f"line {number}: {error}") from None
    return num_lines


def csv_options(path: str | Path, delimiter: str | None = None) -> dict[str, Any]:
    """What makes `datasets` read each cell of a .csv file as the text that it is.

    pandas would read "None" and "NA" as missing and "007" as a number, by a guess for every 10,000 rows.
    """
    marks = "\t" if str(path).endswith(".tsv") else DELIMITERS
    marks = [delimiter.replace("\\t", "\t")] if delimiter else marks
    found = {mark: pandas.read_csv(path, nrows=0, sep=mark).columns for mark in marks}
    delimiter, names = max(found.items(), key=lambda item: len(item[1]))  # the comma, where several give as many
    if any("\0" in name for name in names):
        raise ValueError("a name in its first line holds a zero byte")
    if not isinstance(pandas.read_csv(path, nrows=1, sep=delimiter).index, pandas.RangeIndex):
        # pandas would take the first cell of each row for its name, and shift all others.
        raise ValueError(
            f"its first row has more cells than the {len(names)} names of its first line. Quote cells that hold "
            f"{delimiter!r}"
        )
    return {
        "sep": delimiter,
        "keep_default_na": False,
        "features": Features({name: Value("string") for name in names}),
    }


# ---- Labels of a column


def is_missing(label: Any) -> bool:
    """Whether the label is None, NaN or a blank text (an empty cell of a .csv file can be read as one)."""
    return label is None or (isinstance(label, str) and not label.strip()) or label != label


def are_all_labelled(rows: Dataset, column: str) -> bool:
    """Whether each row of a task's split has a label; None and -1 stand for a hidden one."""
    return column in rows.column_names and all(label is not None and label >= 0 for label in rows.unique(column))


def _read_labels(rows: Dataset, column: str, source: str, *, optional: bool, by_name: bool = False) -> list:
    """The labels of a column, None for a missing one; of .csv and .tsv files as numbers where all are such texts.

    Args:
        source: where the rows come from, for errors.
        optional: whether a row may lack a label, as a row to predict may.
        by_name: whether a `ClassLabel` column gives names, with None for −1, and not ids.
    """
    feature, given = rows.features[column], rows[column][:]
    if not isinstance(feature, Value | ClassLabel):
        raise ValueError(
            f"Column {column!r} of {source} holds lists, objects or values of several types, such as {given[0]!r} in "
            "row 0; a label is a single text or number. Name another column, or write one value per row."
        )
    labels = [None if is_missing(label) else label for label in given]
    if by_name and isinstance(feature, ClassLabel):
        labels = [None if label is None or label < 0 else feature.names[label] for label in labels]
    if None in labels and not optional:
        row = labels.index(None)
        raise ValueError(
            f"Row {row} of {source} (the first is 0) has no label: its column {column!r} holds {given[row]!r}. Every "
            f"row needs one for training and evaluation; {labels.count(None)} of {len(labels)} have none. Label or "
            "remove them."
        )
    found = (
        [NUMBER.fullmatch(label) for label in labels if label is not None]
        if source.endswith((".csv", ".tsv"))
        else [None]
    )
    if all(found):
        number = float if any(match[1] for match in found) else int
        labels = [None if label is None else number(label) for label in labels]
    return labels


def _write_labels(rows: Dataset, column: str, labels: list, dtype: str) -> Dataset:
    """The rows with these labels."""
    if rows.features[column] == Value(dtype) and labels == rows[column][:]:
        return rows
    without = rows.remove_columns(column)
    return without.add_column(column, labels, feature=Value(dtype)).select_columns(rows.column_names)


def _as_numbers(labels: list, column: str, source: str, whole: bool) -> list:
    needed = "a whole number, the id of a class or the index of a choice," if whole else "a number"
    return _changed(labels, lambda label: _number(label, whole), column, source, needed)


def _as_ids(labels: list, names: Sequence[str | int], column: str, source: str, takes_ids: bool) -> list:
    """The place of each label among the names; if `takes_ids`, a whole number that is no name is an id itself."""
    ids = {str(name): place for place, name in enumerate(names)}

    def id_of(label: Any) -> int | None:
        return ids.get(str(label), _number(label, whole=True) if takes_ids else None)

    others = {merged(label) for label in labels if isinstance(label, str)}
    merge = " (`merge_labels` reads them without capitals and outer blanks)" if others <= ids.keys() else ""
    return _changed(labels, id_of, column, source, f"one of {', '.join(ids)}{merge}")


def _changed(labels: list, change: Callable[[Any], Any], column: str, source: str, needed: str) -> list:
    found = [None if label is None else change(label) for label in labels]
    bad = [row for row, new in enumerate(found) if new is None and labels[row] is not None]
    if bad:
        label = labels[bad[0]]
        rows = ", ".join(map(str, bad[:5])) + (" …" if bad[5:] else "")
        others = f" {len(bad)} of {len(labels)} rows have such a label: {rows}." if bad[1:] else ""
        raise ValueError(
            f"Row {bad[0]} of {source} (the first is 0): the label in column {column!r} is {label!r} of type "
            f"{type(label).__name__}; {needed} is needed. Correct or remove the row.{others}"
        )
    return found


def _number(label: Any, whole: bool) -> float | int | None:
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    if not whole:
        return number
    return int(number) if number.is_integer() and abs(number) < MOST else None


# ---- The tasks of the paper


def load_task(task: str | Task, data_dir: str | Path | None = None) -> DatasetDict:
    """The splits of a task, each with the columns of `task.columns` and no other.

    Args:
        task: a name for `get_task`, or a Task.
        data_dir: folder with a file per split, such as train.jsonl (.jsonl, .jsonl.gz, .csv or .parquet), or a folder
            that holds such a folder under the task's name. Default: download from the hub by `datasets`.

    Labels become class or choice ids (int64), or numbers (float32) for regression. Only test splits may lack labels,
    in some rows or in all; they keep every row of their file.

    Raises:
        ValueError: files, columns or labels are not what the task needs.
        OSError: the hub fails.
    """
    task = get_task(task) if isinstance(task, str) else task
    split_parts = _from_hub(task) if data_dir is None else _from_folder(task, Path(data_dir))
    splits = {
        split: concatenate_datasets([_normalise(rows, task, split, source) for source, rows in parts])
        for split, parts in split_parts.items()
    }
    if task.held_out and task.train_split not in splits and task.validation_splits[0] in splits:
        splits |= _split_validation(task, splits[task.validation_splits[0]])
    return DatasetDict({split: splits[split] for split in task.splits if split in splits})


def _from_hub(task: Task) -> dict[str, list[tuple[str, Dataset]]]:
    if task.hub_path is None:
        raise ValueError(f"Task {task.name!r} names no data set on the hub. Pass data_dir, a folder with its files.")
    try:
        loaded = load_dataset(task.hub_path, task.hub_config)
    except (OSError, RuntimeError, ValueError) as error:
        raise OSError(
            f"Could not load task {task.name!r} from the hub (data set {task.hub_path!r}, configuration "
            f"{task.hub_config!r}): {type(error).__name__}: {error}. "
            f"To load it from files, pass data_dir: a folder with {_wanted_files(task)}."
        ) from error
    found = [split for split in task.splits if split in loaded]
    return {split: [(f"split {split!r} of {task.hub_path}", loaded[split])] for split in found}


def _from_folder(task: Task, data_dir: Path) -> dict[str, list[tuple[str, Dataset]]]:
    # The task's own folder comes first: a parent of many data sets may hold a train file of its own.
    folders = [data_dir / name for name in dict.fromkeys((task.name, task.folder or task.name))] + [data_dir]
    for folder in folders:
        files = {split: paths for split in task.splits if (paths := _split_files(task, folder, split))}
        if files:
            return {split: [(str(path), read_file(path)) for path in paths] for split, paths in files.items()}
    raise ValueError(
        f"No file of task {task.name!r} found in {', '.join(map(str, folders))}. Needed: {_wanted_files(task)}."
    )


def _wanted_files(task: Task) -> str:
    stems = [stem for split in task.splits for stem in _part_stems(task, split)]
    return f"files named {', '.join(stems)} (at least one), each ending in {', '.join(FILE_BUILDERS)}"


def _part_stems(task: Task, split: str) -> list[str]:
    return [f"{part}_{split}" for part in task.file_parts] or [split]


def _split_files(task: Task, folder: Path, split: str) -> list[Path]:
    stems = _part_stems(task, split)
    paths = {stem: path for stem in stems if (path := _find_file(folder, stem))}
    if not paths and len(stems) > 1 and (whole := _find_file(folder, split)):
        return [whole]
    if paths and len(paths) < len(stems):
        missing = ", ".join(stem for stem in stems if stem not in paths)
        raise ValueError(
            f"Task {task.name!r} joins {' and '.join(stems)}, but {folder} has no file {missing}. Add it, or load the "
            "part alone by its own task name."
        )
    return list(paths.values())


def _find_file(folder: Path, stem: str) -> Path | None:
    return next((path for ending in FILE_BUILDERS if (path := folder / f"{stem}{ending}").is_file()), None)


def _normalise(rows: Dataset, task: Task, split: str, source: str) -> Dataset:
    """The rows with the task's columns only, labels as ids or numbers."""
    column = task.columns["label"]
    sources = _column_sources(rows, task, split)
    for name, columns in sources.items():
        if len(columns) > 1:
            rows = rows.map(_join_texts, fn_kwargs={"name": name}, input_columns=list(columns), batched=True)
        elif columns != (name,):
            rows = rows.rename_column(columns[0], name)
    rows = rows.select_columns(list(sources))
    if column not in sources:
        return rows
    labels = _read_labels(rows, column, source, optional=split in task.test_splits)
    # An integer column under the task's own name has ids already.
    as_released = sources[column] != (column,) or any(isinstance(label, str) for label in labels)
    names = (task.label_values or task.label_names) if as_released and not task.regression else ()
    if names:
        labels = _as_ids(labels, names, column, source, takes_ids=not task.label_values)
    else:
        labels = _as_numbers(labels, column, source, whole=not task.regression)
    rows = _write_labels(rows, column, labels, "float32" if task.regression else "int64")
    if task.drop_unlabelled and split not in task.test_splits and -1 in labels:
        rows = rows.select([row for row, label in enumerate(labels) if label != -1])
    return rows


def _column_sources(rows: Dataset, task: Task, split: str) -> dict[str, tuple[str, ...]]:
    """The columns of the file that each of the task's columns is made from."""
    sources = {}
    for name in task.column_names:
        candidates = ((name,), *task.column_sources.get(name, ()))
        found = next((source for source in candidates if set(source) <= set(rows.column_names)), None)
        if found is not None:
            sources[name] = found
        elif name != task.columns["label"] or split not in task.test_splits:
            wanted = " or ".join(" + ".join(source) for source in candidates)
            raise ValueError(
                f"Split {split!r} of task {task.name!r} has no column {wanted}. Its columns: "
                f"{', '.join(rows.column_names)}. Needed: {', '.join(task.column_names)}. Rename the columns of the "
                "file, or build a Task with the names that it has."
            )
    return sources


def _join_texts(*columns: list[str], name: str) -> dict[str, list[str]]:
    return {name: [" ".join(texts) for texts in zip(*columns, strict=True)]}


def _split_validation(task: Task, rows: Dataset) -> dict[str, Dataset]:
    name = task.validation_splits[0]
    if len(rows) <= task.held_out:
        raise ValueError(
            f"Task {task.name!r} has no {task.train_split} file, so it is trained on the rows of its {name} split "
            f"beyond the {task.held_out} held out, but the split has only {len(rows)}. Add a {task.train_split} file."
        )
    # The same rows in the same order as scikit-learn's train_test_split in the released code.
    order = np.random.RandomState(HELD_OUT_SEED).permutation(len(rows))
    return {task.train_split: rows.select(order[task.held_out :]), name: rows.select(order[: task.held_out])}


# ---- Files of one's own


def load_files(
    files: dict[str, str | Path | Dataset],
    traversal: str,
    columns: dict[str, str | list[str]],
    *,
    regression: bool = False,
    num_labels: int | None = None,
    label_names: Sequence[str] | None = None,
    delimiter: str | None = None,
    merge_labels: bool = False,
    skip_bad_rows: bool = False,
) -> tuple[Task, DatasetDict]:
    """Reads your own files into a task that describes them, and their rows by split with class ids as labels.

    Args:
        files: maps split (train, validation, test) to a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file, or to
            the rows themselves; test may lack labels, in some rows or all.
        traversal: classification, entailment, similarity or multiple_choice.
        columns: maps role to column name or names, as in `TraversalCollator`; the label's default is "label". If a row
            may have several labels, their column holds lists of classes; or the role has a column of 0 and 1 for each
            class, whose joined name is then that of the labels.
        regression: whether the labels are numbers to predict.
        num_labels: number of classes, where some may have no row. Default: the number found in the data.
        label_names: names of the classes in the order of their ids, such as a model's. Default: the labels of the
            train split: the names of a `ClassLabel` column in its order; of others, texts are sorted, and integers are
            the ids themselves if 0 is among them, else names.
        delimiter: what separates the cells of .csv and .tsv files. Default: found in their first line.
        merge_labels: whether labels lose their capitals and the blanks around them, so that `Good` is `good`.
        skip_bad_rows: whether rows of train and validation without a text or a label are left out. Default: they are
            refused, all at once.

    Raises:
        ValueError: files, columns or labels are not what the task needs.
    """
    has_choices = traversal in TRAVERSALS and TRAVERSALS[traversal].has_choices
    has_classes = not regression and not has_choices
    if (regression and has_choices) or (num_labels is not None and not has_classes):
        raise ValueError(
            "`regression` and `num_labels` exclude each other, and neither applies to multiple_choice, whose label is "
            "the index of the right choice. Leave them out."
        )
    columns = {"label": "label", **columns}
    paths: dict[str, Path] = {}
    splits: dict[str, Dataset] = {}
    labels: dict[str, list] = {}
    for split, file in files.items():
        is_read = isinstance(file, Dataset)
        paths[split] = Path(file.info.dataset_name or "data", split) if is_read else Path(file)
        if not is_read:
            check_file(f"The {split} file", paths[split])
        splits[split] = file if is_read else read_file(paths[split], delimiter=delimiter)
    label = columns["label"]
    if isinstance(label, str) and not any(label in rows.column_names for rows in splits.values()):
        label = label.split(",") if "," in label else label
    parts = None if isinstance(label, str) else label
    columns["label"] = label = label if parts is None else ",".join(label)
    if parts is not None and not has_classes:
        raise ValueError(f"The label of {traversal} needs the name of one column; it was given {parts!r}.")
    for split, rows in splits.items():
        if parts is not None and (split != "test" or not set(parts).isdisjoint(rows.column_names)):
            check_columns(paths[split], rows.column_names, "label", parts)
            rows = splits[split] = _joined_labels(rows, parts, paths[split])
        for role in columns:
            if role != "label" or split != "test":
                check_columns(paths[split], rows.column_names, role, columns[role])
        if split != "test":
            rows = splits[split] = _usable_rows(rows, columns, paths[split], not has_classes, skip_bad_rows)
        if label in rows.column_names:
            optional = split == "test"
            if has_classes and isinstance(rows.features[label], List | LargeList):
                labels[split] = _read_lists(rows, label, paths[split], optional, merge_labels)
                continue
            labels[split] = _read_labels(rows, label, str(paths[split]), optional=optional, by_name=has_classes)
            if merge_labels and isinstance(rows.features[label], Value):
                labels[split] = [merged(value) if isinstance(value, str) else value for value in labels[split]]
    multi_label = any(isinstance(given, list) for values in labels.values() for given in values)
    if has_classes:
        if label_names is None:
            found = labels
            if multi_label:
                found = {split: [*chain.from_iterable(filter(None, lists))] for split, lists in labels.items()}
            label_names = parts or _class_names(splits, found, label, paths, num_labels)
        elif num_labels not in (None, len(label_names)):
            raise ValueError(f"`label_names` has {len(label_names)} classes, but `num_labels` is {num_labels}.")
    first = next(iter(paths.values()))
    task = Task(
        name=first.parent.name if isinstance(next(iter(files.values())), Dataset) else first.name.partition(".")[0],
        traversal=traversal,
        columns=columns,
        label_names=tuple(label_names) if has_classes else (),
        regression=regression,
        multi_label=multi_label,
        metrics=("pearson", "spearmanr") if regression else ("f1_micro", "accuracy") if multi_label else ("accuracy",),
    )
    for split, values in labels.items():
        source = str(paths[split])
        if multi_label:
            splits[split] = _write_several(splits[split], label, values, task.label_names, source)
            continue
        given = set(values) - {None}
        are_ids = all(type(value) is int and str(value) not in task.label_names for value in given)
        if skip_bad_rows and has_classes and not are_ids and split != "test":
            kept = [row for row, value in enumerate(values) if str(value) in task.label_names]
            if 0 < len(kept) < len(values):
                logger.warning(f"{len(values) - len(kept)} rows of {source} have other labels, and are left out.")
                splits[split], values = splits[split].select(kept).flatten_indices(), [values[row] for row in kept]
        if has_classes and not are_ids:
            values = _as_ids(values, task.label_names, label, source, takes_ids=False)
        elif not has_classes:
            values = _as_numbers(values, label, source, whole=not regression)
        splits[split] = _write_labels(splits[split], label, values, "float32" if regression else "int64")
    return task, DatasetDict(splits)


def _usable_rows(
    rows: Dataset, columns: dict[str, str | list[str]], path: Path, is_number: bool, skip: bool
) -> Dataset:
    """The rows that have their texts and a label; raises ValueError for all others at once, or skips them."""
    bad: dict[int, str] = {}
    for role, names in columns.items():
        names = [names] if isinstance(names, str) else names
        if role == "choices" or not all(isinstance(rows.features[name], Value | ClassLabel) for name in names):
            continue  # the collator reads lists and tells absent choices
        is_class = role == "label" and isinstance(rows.features[names[0]], ClassLabel)
        for place, values in enumerate(zip(*(rows[name][:] for name in names), strict=True)):
            is_bad = None in values or all(map(is_missing, values)) or (is_class and values[0] < 0)
            number = _number(values[0], whole=False) if role == "label" and is_number and not is_bad else 0
            if is_bad or number is None or not math.isfinite(number):
                bad.setdefault(place, f"row {place}: column {names[0]!r} has {values[0]!r}")
    if not bad:
        return rows
    first = "; ".join(bad[place] for place in sorted(bad)[:3])
    what = (
        f"{len(bad)} of {len(rows)} rows of {path} lack a text or a label that can be used (the first is 0): {first}."
    )
    if not skip or len(bad) == len(rows):
        raise ValueError(f"{what} Correct or remove them, or pass `skip_bad_rows` to leave them out.")
    logger.warning(f"{what} They are left out.")
    return rows.select([place for place in range(len(rows)) if place not in bad]).flatten_indices()


def _joined_labels(rows: Dataset, parts: list[str], path: Path) -> Dataset:
    """The rows with one column of lists, the names of those columns among `parts` that hold 1."""
    columns = {name: [str(cell).strip().lower() for cell in rows[name][:]] for name in parts}
    for name, cells in columns.items():
        for row, cell in enumerate(cells):
            if cell not in HOLDS:
                raise ValueError(
                    f"Row {row} of {path} (the first is 0): column {name!r} holds {cell!r}, but each of several label "
                    "columns needs 0 or 1. Correct the row, or name one column for the label."
                )
    lists = [
        [name for name, cell in zip(parts, cells, strict=True) if HOLDS[cell]]
        for cells in zip(*columns.values(), strict=True)
    ]
    return rows.remove_columns(parts).add_column(",".join(parts), lists, feature=List(Value("string")))


def _read_lists(rows: Dataset, column: str, path: Path, optional: bool, merge_labels: bool) -> list[list | None]:
    """The labels of rows that may have several, None for a missing list."""
    inner, lists = rows.features[column].feature, rows[column][:]
    if None in lists and not optional:
        raise ValueError(
            f"Row {lists.index(None)} of {path} (the first is 0): column {column!r} holds no list. A row without "
            "labels needs an empty one, []."
        )
    if isinstance(inner, ClassLabel):
        return [given and [inner.names[label] for label in given] for given in lists]
    if merge_labels:
        return [given and [merged(label) if isinstance(label, str) else label for label in given] for given in lists]
    return lists


def _write_several(rows: Dataset, column: str, lists: list[list | None], names: Sequence[str], source: str) -> Dataset:
    """The rows with 0 or 1 for each class as their labels."""
    for row, given in enumerate(lists):
        if unknown := [label for label in given or () if str(label) not in names]:
            raise ValueError(
                f"Row {row} of {source} (the first is 0): the labels in column {column!r} hold {unknown[0]!r}; of "
                f"{', '.join(names)} are needed. Correct or remove the row."
            )
    values = [None if given is None else [float(name in set(map(str, given))) for name in names] for given in lists]
    without = rows.remove_columns(column)
    return without.add_column(column, values, feature=List(Value("float32"))).select_columns(rows.column_names)


def merged(name: str) -> str:
    """A class name without its capitals and the blanks around it."""
    return name.strip().lower()


def check_columns(file: str | Path, names: list[str], role: str, columns: str | list[str]) -> None:
    """Raises ValueError where the file does not have the columns of a role."""
    for column in [columns] if isinstance(columns, str) else columns:
        if column not in names:
            csv = len(names) == 1 and str(file).endswith((".csv", ".tsv"))
            separated = " If other marks separate its cells, pass them as `delimiter`." if csv else ""
            raise ValueError(
                f"{file} has no column {column!r} for the role {role}; its columns are: {', '.join(names)}. Name its "
                f"column in `columns` ({role}=column).{separated}"
            )


def _class_names(
    splits: dict[str, Dataset], labels: dict[str, list], column: str, paths: dict[str, Path], num_labels: int | None
) -> tuple[str, ...]:
    """Names of the classes of the train split: see `load_files`."""
    if "train" not in splits:
        raise ValueError(
            "The classes are unknown without the labels of a train file. Pass one, or `label_names`, such as those of "
            "the model's `config.id2label`."
        )
    feature, path, found = splits["train"].features[column], paths["train"], dict.fromkeys(labels["train"])
    feature = getattr(feature, "feature", feature)  # of lists
    for label in found:
        if not isinstance(label, str | int):
            raise ValueError(
                f"Row {labels['train'].index(label)} of {path} (the first is 0): the label in column {column!r} is "
                f"{label!r} of type {type(label).__name__}; a class is needed: a text, or an integer from 0. Correct "
                "or remove the row, or pass `regression` to predict numbers."
            )
    names = feature.names if isinstance(feature, ClassLabel) else None
    if names is None and all(type(label) is int for label in found):
        names = range(num_labels or len(found)) if 0 in found else sorted(found)
    names = sorted(map(str, found)) if names is None else list(map(str, names))
    if missing := [label for label in found if str(label) not in names]:
        raise ValueError(
            f"Column {column!r} of {path} has the class {missing[0]}; class ids are needed, integers from 0 to "
            f"{len(names) - 1}. Correct the data, or pass the number of classes as `num_labels`."
        )
    first = {}
    for name in names if num_labels is None else ():
        if (other := first.setdefault(merged(name), name)) != name:
            raise ValueError(
                f"Column {column!r} of {path} has the classes {other!r} and {name!r}. Correct its labels, pass "
                f"`merge_labels` to make them one, or `num_labels` ({len(names)}) if they are two."
            )
    if num_labels not in (None, len(names)) or len(names) < 2:
        raise ValueError(
            f"Column {column!r} of {path} has {len(names)} classes ({', '.join(names)}); "
            f"{num_labels or 'at least two'} are needed. Correct the data or `num_labels`."
        )
    return tuple(names)


__all__ = ["FILE_BUILDERS", "load_files", "load_task", "read_file"]

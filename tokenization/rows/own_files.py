"""Rows of tasks and of files of one's own: read as they stand, with labels as ids or numbers, and checked for a batch.

Where rows cannot be used, the error names the file and its line or row, what it holds and what is needed. Story Cloze
is split as in the released `datasets.py` (https://github.com/openai/finetune-transformer-lm/blob/master/datasets.py).
"""

import glob
import logging as standard_logging
import math
import re
import shlex
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any

import fsspec
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
from datasets.packaged_modules.json.json import JsonConfig
from transformers.utils import logging

from ..batches.collators import PLACE
from ..errors import UserError
from .tasks import Task, get_task, nearest
from .traversals import TRAVERSALS, check_roles

logger = logging.get_logger(__name__)
LOADING = Lock()  # `datasets` sometimes fails in two threads at once, by its progress bars
# The readers of `datasets` log an error that they raise as well.
standard_logging.getLogger("datasets.packaged_modules").setLevel(standard_logging.CRITICAL)
# Builder of `datasets` by the ending of a file's name.
FILE_BUILDERS = {".jsonl": "json", ".jsonl.gz": "json", ".csv": "csv", ".parquet": "parquet"}
# Of a column with texts and numbers, `datasets` writes the texts behind the first 10 MB as JSON, quoted.
JSON_OPTIONS = {"on_mixed_types": None} if hasattr(JsonConfig, "on_mixed_types") else {}
# Those of one's own; the .tsv and .json files of a task's release often follow other rules.
OWN_BUILDERS = FILE_BUILDERS | {".tsv": "csv", ".json": "json"}
# A number, and its fraction. 007 is a name, and so is a number of more digits than 64 bits hold.
NUMBER = re.compile(r"\s*-?(?:0|[1-9][0-9]{0,17})(\.[0-9]+)?\s*")
# Cells of a column that says whether a label holds.
HOLDS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "no": False, "yes": True}
HIDDEN, MEANS_HIDDEN = -1, " -1 marks a row without a label, as in GLUE's test files."
MOST = 1 << 53  # from here on a float does not tell whole numbers apart
SPLITS = ("train", "validation", "test")
DELIMITERS = ",;\t|"  # of a .csv or .tsv file
HELD_OUT_SEED = 3535999445  # `seed` of the released datasets.py


# ---- Files


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
    name = path.name.lower()
    builder = next((builder for ending, builder in OWN_BUILDERS.items() if name.endswith(ending)), None)
    if builder is None or not path.is_file():
        what = "has an unknown file type" if path.is_file() else "does not exist"
        raise UserError(f"{path} {what}. Pass one of {', '.join(OWN_BUILDERS)}; save a spreadsheet as CSV (UTF-8).")
    try:
        if builder != "parquet":  # the reader of JSON takes bytes of another encoding without a word
            with fsspec.open(path, "rt", encoding="utf-8", compression="infer") as lines:
                num_lines = sum(not line.isspace() for line in lines)
        options = csv_options(path, delimiter) if builder == "csv" else JSON_OPTIONS if builder == "json" else {}
        if delimiter is None and options.get("sep", ",") != "," and name.endswith(".csv"):
            logger.warning_once(f"{path}: cells are separated by {options['sep']!r}.")
        if infer_types:
            options.pop("features", None)
        is_empty = builder == "csv" and num_lines < 2
        rows = () if is_empty else load_dataset(builder, data_files=glob.escape(str(path)), split="train", **options)
    except (pandas.errors.EmptyDataError, StopIteration):
        rows = ()
    except (DatasetGenerationError, ValueError, OSError, EOFError, zlib.error) as error:
        reason = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        if getattr(reason, "filename", None) not in (None, path, str(path)) or "disk space" in str(reason):
            raise  # of the cache
        remedy = "Correct the file, and save it in UTF-8."
        if isinstance(reason, UnicodeDecodeError):
            remedy = to_utf8(path, reason)
        elif builder == "csv":
            remedy += " Quote cells that hold its separator, or pass that as `delimiter`."
        raise UserError(f"{path} cannot be read as {builder}: {str(reason).strip().rstrip('.')}. {remedy}") from error
    if len(rows) == 0:
        raise UserError(f"{path} has no rows. Give a file with at least one, or leave it out.")
    holds_lists = not any(isinstance(feature, Value) for feature in rows.features.values())
    if name.endswith(".json") and len(rows) == 1 and holds_lists:
        if path.read_text(encoding="utf-8").lstrip().startswith("{"):
            raise UserError(f"{path} holds columns. Write a list of rows, as pandas does with orient='records'.")
    if builder == "csv" and len(rows) != num_lines - 1:
        logger.warning_once(
            f"{path}: {num_lines - 1:,} lines make {counted(len(rows), 'row')}, as some cells hold line ends. If none "
            "should, a quotation mark is missing."
        )
    return rows


def to_utf8(path: str | Path, error: UnicodeDecodeError) -> str:
    """How a file that is not UTF-8 becomes it."""
    if error.object.startswith(b"PK"):
        return "If it is a spreadsheet, save it as CSV (UTF-8)."
    name = "UTF-16" if error.object.startswith((b"\xff\xfe", b"\xfe\xff")) else "ENCODING"
    often = " (often WINDOWS-1252; WINDOWS-1251 for Cyrillic)" if name == "ENCODING" else ""
    return f"If it is text in {name}{often}, `iconv -f {name} -t UTF-8 {shlex.quote(str(path))} > NEW` changes it."


def csv_options(path: str | Path, delimiter: str | None = None) -> dict[str, Any]:
    """What makes `datasets` read each cell of a .csv file as the text that it is.

    pandas would read "None" and "NA" as missing and "007" as a number, by a guess for every 10,000 rows.
    """
    marks = "\t" if str(path).lower().endswith(".tsv") else DELIMITERS
    marks = [delimiter.replace("\\t", "\t")] if delimiter else marks
    starts = {mark: pandas.read_csv(path, nrows=1, sep=mark) for mark in marks}
    mark, start = max(starts.items(), key=lambda item: len(item[1].columns))  # the comma, where several give as many
    if not isinstance(start.index, pandas.RangeIndex):
        # pandas would take the first cell of each row for its name, and shift all others.
        raise UserError(f"its first row has more cells than the {len(start.columns)} names of its first line")
    names = pandas.read_csv(path, nrows=1, sep=mark, header=None).loc[0]  # pandas would number a name's second column
    if not names.is_unique:
        raise UserError(f"its first line names two columns {names[names.duplicated()].iloc[0]!r}")
    features = Features({name: Value("string") for name in start.columns})
    return {"sep": mark, "keep_default_na": False, "features": features}


# ---- Labels of a column


def is_missing(label: Any) -> bool:
    """Whether the label is None, NaN or a blank text (an empty cell of a .csv file can be read as one)."""
    return label is None or (isinstance(label, str) and not label.strip()) or label != label


def are_all_labelled(rows: Dataset, column: str) -> bool:
    """Whether each row of a task's split has a label; None and -1 stand for a hidden one."""
    return column in rows.column_names and all(label is not None and label >= 0 for label in rows.unique(column))


def _read_labels(rows: Dataset, column: str, *, by_text: bool = True, by_name: bool = False) -> list:
    """The labels of a column, None for a missing one; with `by_text` as numbers where all are texts of such.

    With `by_name` whole floats, which pandas makes beside an empty cell, are integers, and a `ClassLabel` column, or
    one of lists of them, gives names, with None for −1.
    """
    feature = rows.features[column]
    labels = [None if is_missing(label) else label for label in rows[column][:]]
    if by_name and isinstance(feature, ClassLabel):
        return [None if label is None or label < 0 else feature.names[label] for label in labels]
    if by_name and isinstance(getattr(feature, "feature", None), ClassLabel):
        return [given and [feature.feature.names[label] for label in given] for given in labels]
    if by_text:
        found = [isinstance(label, str) and NUMBER.fullmatch(label) for label in labels if label is not None]
        if all(found):
            number = float if any(match[1] for match in found) else int
            labels = [None if label is None else number(label) for label in labels]
    if by_name and all(label is None or isinstance(label, float) and label.is_integer() for label in labels):
        return [None if label is None else int(label) for label in labels]
    return labels


def _write_labels(
    rows: Dataset,
    labels: list,
    task: Task,
    names: Sequence[str | int],
    source: str,
    split: str,
    bad_texts: dict[int, str] | None = None,
    skip: bool | None = None,
) -> Dataset:
    """The rows with the places of their labels among the names; without names with numbers.

    Where all labels are whole numbers and none is a name, they are the places. A row of a test split may lack one.
    Other rows without a label that can be used, and `bad_texts`, with the column that lacks a text, are refused at
    once, or left out with `skip`; `None`: that cannot be chosen.
    """
    column, ids = task.columns["label"], {str(name): place for place, name in enumerate(names)}
    given = [label for label in labels if label is not None]
    are_ids = not task.label_values and all(type(label) is int and str(label) not in ids for label in given)
    if are_ids and ids and given:
        logger.warning_once(f"{source}: labels are read as places of classes: 0 is {next(iter(ids))!r}, and so on.")
    dtype = Value("float32" if task.regression else "int64")
    whole = f"a whole number from 0 to {task.num_labels - 1}"
    number = "the place of a choice, 0 the first" if "choices" in task.columns else whole
    number = "a number such as 3 or 3.5" if task.regression else number
    needed = f"one of {listed(ids)}" if ids else number
    if task.multi_label:
        dtype = List(Value("float32"))
        needed = f"a list of some of {listed(ids)}, or [] for none; or, in a column for each, 0 or 1"

    def number_of(label: Any, most: int) -> float | int | None:
        try:
            number = float(label)
        except (TypeError, ValueError):
            return None
        if task.regression:
            return number if math.isfinite(number) else None
        least = 0 if TRAVERSALS[task.traversal].has_choices and not is_test else 1 - MOST
        return int(number) if number.is_integer() and least <= number < most else None

    def convert(label: Any, most: int) -> Any:
        if task.multi_label:
            given = set(map(str, label))
            return [float(name in given) for name in ids] if given <= ids.keys() else None
        is_number = are_ids or not ids or (is_test and label == HIDDEN)
        return ids.get(str(label), number_of(label, most) if is_number else None)

    is_test = split in task.test_splits
    most = [len(ids) or len(task.label_names) or MOST] * len(rows)
    if "choices" in task.columns and not ids:
        most = _num_choices(rows, task.columns["choices"])
    found = [None if label is None else convert(label, of_row) for label, of_row in zip(labels, most, strict=True)]
    bad = {row: column for row, new in enumerate(found) if new is None and not (is_test and labels[row] is None)}
    bad |= bad_texts or {}
    kept = [row for row in range(len(rows)) if row not in bad]
    if bad:
        first = "; ".join(f"row {row}: column {bad[row]!r} has {rows[row][bad[row]]!r}" for row in sorted(bad)[:3])
        first += f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
        what = f"{len(bad)} of {counted(len(rows), 'row')} of {source} lack a text or a label that can be used, "
        what += f"counted from row 0: {first}. The label needs {needed}."
        if ids and any(labels[row] == HIDDEN for row in bad):
            what += f"{MEANS_HIDDEN} If it is a class, give the classes names."
        are_from_1 = "choices" in task.columns and 0 not in found and any(labels[row] == most[row] for row in bad)
        what += f" Is {column!r} the label?" if len(ids) > 20 and len(bad) > len(rows) / 2 else ""
        what += " No label is 0: if they count from 1, subtract 1 from each." if are_from_1 else ""
        if not skip or not kept or are_from_1:
            or_skip = "" if skip is None or not kept else ", or pass `skip_bad_rows` to leave them out"
            raise UserError(f"{what} Correct or remove them{or_skip}.")
        logger.warning(f"{what} They are left out.")
    names = rows.column_names if len(kept) == len(rows) else [*rows.column_names, PLACE]
    rows = rows.remove_columns(column).select(kept).add_column(column, [found[row] for row in kept], feature=dtype)
    return (rows.add_column(PLACE, kept) if PLACE in names else rows).select_columns(names)


def listed(names: Collection[str]) -> str:
    """The first ten names, and how many more there are."""
    more = f", … and {len(names) - 10:,} more" if len(names) > 10 else ""
    return ", ".join(islice(names, 10)) + more


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 class`, `2 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


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
    task = get_task(task)
    with LOADING:
        split_parts = _from_hub(task) if data_dir is None else _from_folder(task, Path(data_dir))
    splits = {
        split: concatenate_datasets([task_rows(rows, task, split, source) for source, rows in parts])
        for split, parts in split_parts.items()
    }
    whole = next(iter(task.validation_splits), None)
    if task.held_out and task.train_split not in splits and whole in splits:
        # The same rows in the same order as scikit-learn's train_test_split in the released code.
        order = np.random.RandomState(HELD_OUT_SEED).permutation(len(splits[whole]))
        splits[task.train_split] = splits[whole].select(order[task.held_out :])
        splits[whole] = splits[whole].select(order[: task.held_out])
    return DatasetDict({split: splits[split] for split in task.splits if split in splits})


def _from_hub(task: Task) -> dict[str, list[tuple[str, Dataset]]]:
    if task.hub_path is None:
        raise UserError(f"Task {task.name!r} names no data set on the hub. Pass data_dir, a folder with its files.")
    try:
        loaded = load_dataset(task.hub_path, task.hub_config)
    except OSError as error:
        raise OSError(f"{error} Without the hub, pass data_dir, a folder with the files of {task.name!r}.") from error
    splits = [split for split in task.splits if split in loaded]
    return {split: [(f"split {split!r} of {task.hub_path}", loaded[split])] for split in splits}


def _from_folder(task: Task, data_dir: Path) -> dict[str, list[tuple[str, Dataset]]]:
    # The task's own folder comes first: a parent of many data sets may hold a train file of its own.
    folders = [data_dir / name for name in dict.fromkeys((task.name, task.folder or task.name))] + [data_dir]
    parts = {split: [f"{part}_{split}" for part in task.file_parts] or [split] for split in task.splits}
    for folder in folders:
        files = {split: _find_files(folder, stems) or _find_files(folder, [split]) for split, stems in parts.items()}
        if any(files.values()):
            return {split: [(str(path), read_file(path)) for path in paths] for split, paths in files.items() if paths}
    raise UserError(
        f"No file of task {task.name!r} found in {', '.join(map(str, folders))}. Needed: files named "
        f"{', '.join(chain(*parts.values()))} (at least one split), each ending in {', '.join(FILE_BUILDERS)}."
    )


def _find_files(folder: Path, stems: list[str]) -> list[Path]:
    """A file for each stem; none if one of them is missing."""
    places = ([folder / f"{stem}{ending}" for ending in FILE_BUILDERS] for stem in stems)
    found = [next(filter(Path.is_file, paths), None) for paths in places]
    return found if all(found) else []


def task_rows(rows: Dataset, task: Task, split: str, source: str) -> Dataset:
    """The rows with the task's columns only, each made of the first columns that the file has, labels as ids."""
    label, found = task.columns["label"], {}
    for name in task.column_names:
        candidates = ((name,), *task.column_sources.get(name, ()))
        columns = next((columns for columns in candidates if set(columns) <= set(rows.column_names)), ())
        if columns:
            found[name] = columns
        elif name != label or split not in task.test_splits:
            wanted = " or ".join(map(" + ".join, candidates))
            raise UserError(
                f"{source} has no column {wanted}, which task {task.name!r} needs. Its columns: "
                f"{', '.join(rows.column_names)}. Needed: {', '.join(task.column_names)}. Rename them in the file."
            )
    for name, columns in found.items():
        if len(columns) > 1:
            rows = rows.add_column(name, list(map(" ".join, zip(*(rows[part][:] for part in columns), strict=True))))
        elif columns != (name,):
            rows = rows.rename_column(columns[0], name)
    rows = rows.select_columns(list(found))
    if label not in found:
        return rows
    labels = _read_labels(rows, label)
    if task.drop_unlabelled and split not in task.test_splits and -1 in labels:
        kept = [row for row, given in enumerate(labels) if given != -1]
        rows, labels = rows.select(kept), [labels[row] for row in kept]
    # An integer column under the task's own name has ids already.
    as_released = found[label] != (label,) or any(isinstance(given, str) for given in labels)
    names = (task.label_values or task.label_names) if as_released and not task.regression else ()
    return _write_labels(rows, labels, task, names, source, split)


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
        delimiter: what separates the cells of .csv and .tsv files. Default: a tab; in .csv found in the first line.
        skip_bad_rows: whether rows of train and validation without a text or a label that can be used are left out.
            Default: they are refused, all at once.

    Raises:
        ValueError: files, columns or labels are not what the task needs.
    """
    check_roles(traversal, columns)
    has_classes = not regression and not TRAVERSALS[traversal].has_choices
    columns = {"label": "label", **columns}
    used = Counter(chain.from_iterable([names] if isinstance(names, str) else names for names in columns.values()))
    if (twice := used.most_common(1)[0])[1] > 1:
        raise UserError(f"`columns` has {twice[0]!r} twice, and a model would read it twice. Give each role its own.")
    is_mapping = isinstance(files, Mapping)
    if not is_mapping or not all(isinstance(file, str | Path | Dataset) for file in files.values()):
        given = {use: type(file).__name__ for use, file in files.items()} if is_mapping else str(files)[:99]
        needed = 'for each split a path or a `Dataset`, as {"train": "a.csv"}'
        raise UserError(f"`files` is {given!r}. Give {needed}; `Dataset.from_pandas` and `from_list` make one.")
    if unknown := [split for split in files if split not in SPLITS]:
        raise UserError(f"`files` has {unknown[0]!r}{nearest(unknown[0], SPLITS)}. The splits: {', '.join(SPLITS)}.")
    splits: dict[str, Dataset] = {}
    sources: dict[str, str] = {}
    for split, file in files.items():
        is_read = isinstance(file, Dataset)
        splits[split] = file if is_read else read_file(file, delimiter=delimiter)
        name = is_read and file.info.dataset_name  # one that was made in memory has none
        sources[split] = f"{name}/{split}" if name else f"the split {split!r}" if is_read else str(file)
    parts = columns["label"]
    if isinstance(parts, str):  # perhaps the joined name of several columns, as a model's folder holds it
        is_joined = "," in parts and not any(parts in rows.column_names for rows in splits.values())
        parts = parts.split(",") if is_joined else None
    if parts is not None and not has_classes:
        raise UserError(f"The label of {traversal} needs the name of one column; it was given {parts!r}.")
    columns["label"] = label = ",".join(parts or [columns["label"]])
    labels: dict[str, list] = {}
    bad_texts: dict[str, dict[int, str]] = {}
    for split, rows in splits.items():
        is_test = split == "test"
        if parts and not (is_test and set(parts).isdisjoint(rows.column_names)):
            rows = _joined_labels(rows, parts, sources[split])
        for role, names in columns.items():
            if role != "label" or not is_test:
                check_columns(sources[split], rows.column_names, role, names)
        splits[split], bad_texts[split] = rows, {} if is_test else _bad_texts(rows, columns)
        if label in rows.column_names:
            is_table = sources[split].lower().endswith((".csv", ".tsv"))
            labels[split] = _read_labels(rows, label, by_text=is_table, by_name=has_classes)
    have_lists = any(isinstance(rows.features.get(label), List | LargeList) for rows in splits.values())
    multi_label = has_classes and have_lists
    if has_classes and label_names is None and parts is None:
        if "train" not in splits:
            raise UserError("The classes are unknown without a train file. Pass one, or the model's `label_names`.")
        usable = [value for row, value in enumerate(labels["train"]) if row not in bad_texts["train"]]
        where = f"Column {label!r} of {sources['train']}"
        label_names = _class_names(usable, splits["train"].features[label], where, num_labels)
    first = next(iter(files))
    of_rows = isinstance(files[first], Dataset)
    task = Task(
        name=Path(sources[first]).parent.name if of_rows else Path(sources[first]).name.partition(".")[0],
        traversal=traversal,
        columns=columns,
        label_names=tuple(label_names or parts) if has_classes else (),
        regression=regression,
        multi_label=multi_label,
        metrics=("pearson", "spearmanr") if regression else ("f1_micro", "accuracy") if multi_label else ("accuracy",),
    )
    if num_labels not in (None, task.num_labels):
        classes = f"{counted(task.num_labels, 'class')} ({listed(task.label_names)})"
        raise UserError(f"{sources[first]} has {classes}, but `num_labels` is {num_labels}. Correct one of them.")
    for split, values in labels.items():
        if has_classes:  # a class may be called 1.0
            written = _read_labels(splits[split], label, by_text=False, by_name=True)
            names = set(task.label_names)
            values = [text if str(text) in names else value for text, value in zip(written, values, strict=True)]
        skip = None if split == "test" else skip_bad_rows
        rows, source = splits[split], sources[split]
        splits[split] = _write_labels(rows, values, task, task.label_names, source, split, bad_texts[split], skip)
    return task, DatasetDict(splits)


def _bad_texts(rows: Dataset, columns: dict[str, str | list[str]]) -> dict[int, str]:
    """The rows without one of their texts, each with the column that lacks it."""
    bad: dict[int, str] = {}
    for role, names in columns.items():
        names = [names] if isinstance(names, str) else names
        if role in ("label", "choices") or not all(isinstance(rows.features[name], Value) for name in names):
            continue  # the collator reads lists and tells absent choices
        for place, values in enumerate(zip(*(rows[name][:] for name in names), strict=True)):
            if None in values or all(map(is_missing, values)):
                bad.setdefault(place, next(name for name in names if is_missing(rows[place][name])))
    return bad


def _num_choices(rows: Dataset, column: str | list[str]) -> list[int]:
    """The choices of each row, without blank cells at its end; `MOST` where the collator will refuse the row."""
    if isinstance(column, str):  # the collator refuses what is no list
        return [len(given) if isinstance(given, list) else MOST for given in rows[column]]
    cells = zip(*(rows[name][:] for name in column), strict=True)
    return [max((at for at, cell in enumerate(row, 1) if not is_missing(cell)), default=MOST) for row in cells]


def _joined_labels(rows: Dataset, parts: list[str], source: str) -> Dataset:
    """The rows with the columns `parts` as one of lists: the names of those that hold 1, or `name=cell` otherwise."""
    check_columns(source, rows.column_names, "label", parts)
    lists: list[list[str]] = [[] for _ in range(len(rows))]
    for name in parts:
        for row, cell in enumerate(rows[name][:]):
            holds = HOLDS.get(str(cell).strip().lower())
            if holds is not False:  # a cell that is neither 0 nor 1 becomes a class that is refused
                lists[row].append(name if holds else f"{name}={cell}")
    return rows.remove_columns(parts).add_column(",".join(parts), lists, feature=List(Value("string")))


def check_columns(file: str | Path, names: list[str], role: str | None, columns: str | list[str]) -> None:
    """Raises ValueError where the file does not have the columns of a role, or those to keep."""
    for column in [columns] if isinstance(columns, str) else columns:
        if column not in names:
            csv = str(file).endswith((".csv", ".tsv"))
            hint = " If its first line is a row, add one of names above it." if csv else ""
            hint += " If other marks separate its cells, pass them as `delimiter`." if csv and len(names) == 1 else ""
            use = f"for the role {role}" if role else "to keep"
            remedy = f"Name its column in `columns` ({role}=column)" if role else "Name one of them"
            raise UserError(
                f"{file} has no column {column!r} {use}{nearest(role if role in names else column, names)}; its "
                f"columns are: {', '.join(map(repr, names))}. {remedy}.{hint}"
            )


def _class_names(labels: list, feature: Any, where: str, num_labels: int | None) -> tuple[str, ...]:
    """Names of the classes of the train split: see `load_files`."""
    given = [label for label in labels if label is not None]
    if 0 in given:  # the others are ids, too
        given = [label for label in given if label != HIDDEN]
    if isinstance(feature, List | LargeList):
        if twice := [several for several in given if len(set(several)) < len(several)]:
            how = "If it holds 0 or 1 for each class, give a column for each: label=first,second"
            raise UserError(f"{where} has the list {twice[0]!r}, which names a class twice. {how}.")
        feature, given = feature.feature, list(chain.from_iterable(given))
    if other := [label for label in given if not isinstance(label, str | int)]:
        needed = "a class is a text or an integer. Correct the data, or pass `regression` to predict numbers"
        raise UserError(f"{where} has the label {other[0]!r}; {needed}.")
    found = set(given)
    if isinstance(feature, ClassLabel):
        names = feature.names
    elif all(type(label) is int for label in found):
        names = list(map(str, range(num_labels or len(found)) if 0 in found else sorted(found)))
    else:
        names = sorted(map(str, found))
    if missing := sorted(set(map(str, found)) - set(names)):
        needed = f"ids go from 0 to {len(names) - 1}. Correct them, name another column, or pass `num_labels`"
        raise UserError(f"{where} has the class {missing[0]}; {needed}.")
    same = {}
    for name in names if num_labels is None else ():
        same.setdefault(unicodedata.normalize("NFC", name).strip().lower(), []).append(name)
    if slips := [" and ".join(map(repr, of_one)) for of_one in same.values() if len(of_one) > 1]:
        how = "Make them one in the file (pandas: `.str.strip().str.lower()`)"
        raise UserError(f"{where} has the classes {listed(slips)}. {how}, or pass `num_labels` ({len(names)}).")
    if len(names) < 2:
        found = f"{counted(len(names), 'class')} ({listed(names)})"
        note = MEANS_HIDDEN if HIDDEN in labels else ""
        raise UserError(f"{where} has {found}; at least two are needed.{note}")
    if str(HIDDEN) in names:
        logger.warning(f"{where} has the class -1.{MEANS_HIDDEN} If so here, remove these rows.")
    if all(re.fullmatch(r"\s*-?[0-9]+,[0-9]+\s*", name) for name in names):
        how = "write them with a decimal point, and pass `regression`"
        logger.warning(f"{where} has the classes {listed(names)}. If these are numbers, {how}.")
    several = [name for name in names if "|" in name]
    if 2 * len(several) > len(names) or any(set(name.split("|")) & set(names) for name in several):
        logger.warning(
            f"{where} has the class {several[0]!r}. If a row may have several labels, its label must be a list, or a "
            "column of 0 and 1 for each class."
        )
    return tuple(names)

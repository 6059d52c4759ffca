"""The rows of the paper's tasks, from the hub or from files in a folder.

Story Cloze is split as in the released `datasets.py`
(https://github.com/openai/finetune-transformer-lm/blob/master/datasets.py).
"""

from itertools import chain
from pathlib import Path
from threading import Lock

import numpy as np
from datasets import Dataset, DatasetDict, concatenate_datasets, load_dataset

from ..errors import UserError
from ..file_kinds import TASK_FILES
from .columns import HIDDEN_LABEL
from .files import read_file
from .labels import read_labels, write_labels
from .tasks import Task, get_task

LOADING = Lock()  # `datasets` sometimes fails in two threads at once, by its progress bars
HELD_OUT_SEED = 3535999445  # `seed` of the released datasets.py

Parts = list[tuple[str, Dataset]]
"""What a split consists of: each with the name of its source, for messages."""


def load_task(task: str | Task, data_dir: str | Path | None = None) -> DatasetDict:
    """The splits of a task, each with the columns of `task.columns` and no other.

    Args:
        task: a name for `get_task`, or a Task.
        data_dir: folder with a file per split, such as train.jsonl (.jsonl, .jsonl.gz, .csv or .parquet), or with the
            files as the hub names them (train-00000-of-00001.parquet and so on), or a folder that holds such a folder
            under the task's name or the name of its configuration on the hub. Default: download by `datasets`.

    Labels become class or choice ids (int64), or numbers (float32) for regression. Only test splits may lack labels,
    in some rows or in all; they keep every row of their file.

    Raises:
        ValueError: files, columns or labels are not what the task needs.
        OSError: the hub fails.
    """
    task = get_task(task)
    with LOADING:
        parts = _from_hub(task) if data_dir is None else _from_folder(task, Path(data_dir))
    splits = {}
    for split, parts_of_split in parts.items():
        splits[split] = concatenate_datasets([task_rows(rows, task, split, source) for source, rows in parts_of_split])
    if task.held_out and task.train_split not in splits:
        _hold_out(task, splits)
    return DatasetDict({split: splits[split] for split in task.splits if split in splits})


def _hold_out(task: Task, splits: dict[str, Dataset]) -> None:
    """Divides the validation split of a task that has no other rows to train on."""
    validation = next(iter(task.validation_splits), None)
    if validation not in splits:
        return
    whole = splits[validation]
    # The same rows in the same order as scikit-learn's train_test_split in the released code.
    order = np.random.RandomState(HELD_OUT_SEED).permutation(len(whole))
    splits[task.train_split] = whole.select(order[task.held_out :])
    splits[validation] = whole.select(order[: task.held_out])


def _from_hub(task: Task) -> dict[str, Parts]:
    if task.hub_path is None:
        raise UserError(f"Task {task.name!r} has no data set on the hub. Pass a folder with its files as `data_dir`.")
    try:
        loaded = load_dataset(task.hub_path, task.hub_config)
    except OSError as error:
        raise OSError(
            f"{str(error).rstrip('.')}. Without the hub, pass a folder with the files of task {task.name!r} as "
            "`data_dir`."
        ) from error
    splits = [split for split in task.splits if split in loaded]
    return {split: [(f"split {split!r} of {task.hub_path}", loaded[split])] for split in splits}


def _from_folder(task: Task, data_dir: Path) -> dict[str, Parts]:
    folders = folders_of_task(task, data_dir)
    for folder in folders:
        if files := _files_in(folder, task):
            return {split: _read_parts(paths, task) for split, paths in files.items()}
    stems = dict.fromkeys(chain.from_iterable(_stems(task, split) for split in task.splits))
    raise UserError(
        f"No file of task {task.name!r} was found in {', '.join(map(str, folders))}. Put at least one of its splits "
        f"there, or pass another `data_dir`: files named {', '.join(stems)}, each ending in {', '.join(TASK_FILES)}."
    )


def folders_of_task(task: Task, data_dir: Path) -> list[Path]:
    """Where `load_task` looks for the task's files, in this order; the first folder that has some of them counts."""
    # The task's own folder comes first: a parent of many data sets may hold a train file of its own.
    names = dict.fromkeys(filter(None, (task.name, task.folder, task.hub_config)))
    return [*(data_dir / name for name in names), data_dir]


def folder_with_files(task: Task, data_dir: Path) -> Path | None:
    """The folder from which `load_task` reads the task, if there is one."""
    return next((folder for folder in folders_of_task(task, data_dir) if _files_in(folder, task)), None)


def has_own_files(part: Task, data_dir: Path) -> bool:
    """Whether a part of a task, such as RACE's middle schools, has files of its own, and not only the whole task."""
    folder = folder_with_files(part, data_dir)
    if folder is None:
        return False
    is_own_folder = folder.name in (part.name, part.hub_config)
    return is_own_folder or any(_find_files(folder, _stems(part, split)) for split in part.splits)


def _files_in(folder: Path, task: Task) -> dict[str, list[Path]]:
    """The files of each of the task's splits that the folder has."""
    files = {split: _files_of_split(folder, task, split) for split in task.splits}
    return {split: paths for split, paths in files.items() if paths}


def _read_parts(paths: list[Path], task: Task) -> Parts:
    sources = chain.from_iterable(task.column_sources.values())
    needed = {*task.column_names, *chain.from_iterable(sources)}
    return [(str(path), read_file(path, needed=needed)) for path in paths]


def _stems(task: Task, split: str) -> list[str]:
    """The names of a split's files without their endings."""
    return [f"{part}_{split}" for part in task.file_parts] or [split]


def _files_of_split(folder: Path, task: Task, split: str) -> list[Path]:
    """The files of a split's parts, or one file of the whole split; none if neither is complete."""
    return _find_files(folder, _stems(task, split)) or _find_files(folder, [split])


def _find_files(folder: Path, stems: list[str]) -> list[Path]:
    """The files of all stems; none if one of them has no file."""
    found = []
    for stem in stems:
        files = file_or_shards(folder, stem)
        if not files:
            return []
        found += files
    return found


def file_or_shards(folder: Path, stem: str) -> list[Path]:
    """The file of this name, or the files into which the hub divides such a one, in their order."""
    for ending in TASK_FILES:
        path = folder / f"{stem}{ending}"
        if path.is_file():
            return [path]
    shards = sorted(folder.glob(f"{stem}-?????-of-?????*.parquet"))
    if shards:
        total = shards[0].name.partition("-of-")[2][:5]
        if len(shards) != int(total):
            raise UserError(
                f"{folder} has {len(shards)} of the {int(total)} files {stem}-00000-of-{total}.parquet and so on. "
                "Download all of them, and remove those of other downloads."
            )
    return shards


def task_rows(rows: Dataset, task: Task, split: str, source: str) -> Dataset:
    """The rows with the task's columns only, each made of the first columns that the file has, labels as ids."""
    label = task.columns["label"]
    is_test = split in task.test_splits
    sources = _column_sources(rows.column_names, task, source, may_lack_label=is_test)
    for name, columns in sources.items():
        rows = _make_column(rows, name, columns, source)
    rows = rows.select_columns(list(sources))
    if label not in sources:
        return rows
    labels = read_labels(rows, label)
    if task.drop_unlabelled and not is_test and HIDDEN_LABEL in labels:
        kept = [row for row, given in enumerate(labels) if given != HIDDEN_LABEL]
        rows = rows.select(kept)
        labels = [labels[row] for row in kept]
    # An integer column under the task's own name has ids already.
    is_as_released = sources[label] != (label,) or any(isinstance(given, str) for given in labels)
    names = ()
    if is_as_released and not task.regression:
        names = task.label_values or task.label_names
    return write_labels(rows, labels, task, names, source, split)


def _column_sources(
    column_names: list[str], task: Task, source: str, may_lack_label: bool
) -> dict[str, tuple[str, ...]]:
    """Of each column of the task those columns of the file that make it."""
    sources = {}
    for name in task.column_names:
        candidates = ((name,), *task.column_sources.get(name, ()))
        complete = [columns for columns in candidates if set(columns) <= set(column_names)]
        if complete:
            sources[name] = complete[0]
        elif name != task.columns["label"] or not may_lack_label:
            wanted = " or ".join(" + ".join(columns) for columns in candidates)
            raise UserError(
                f"{source} has no column {wanted}, which task {task.name!r} needs. Its columns: "
                f"{', '.join(column_names)}. Needed: {', '.join(task.column_names)}. Rename them in the file."
            )
    return sources


def _make_column(rows: Dataset, name: str, columns: tuple[str, ...], source: str) -> Dataset:
    """The rows with the texts of some columns as one, joined by a space."""
    if columns == (name,):
        return rows
    if len(columns) == 1:
        return rows.rename_column(columns[0], name)
    texts_of_columns = [_texts(rows, column, source) for column in columns]
    return rows.add_column(name, [" ".join(parts) for parts in zip(*texts_of_columns, strict=True)])


def _texts(rows: Dataset, column: str, source: str) -> list[str]:
    cells = rows[column][:]
    for row, cell in enumerate(cells):
        if not isinstance(cell, str):
            raise UserError(
                f"{source}: column {column!r} of row {row} (the first is 0) has {cell!r}, but a text is needed. "
                "Correct or remove the row."
            )
    return cells

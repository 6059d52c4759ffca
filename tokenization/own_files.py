"""A user's own files as a data set: their rows, and a `Task` with the names of their classes."""

from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset, DatasetDict, Features, Value

from .files import FILE_BUILDERS, read_file
from .labels import as_numbers, class_label_names, first_row, named_labels, typed_labels, without_blanks
from .tasks import Task


def load_files(
    files: dict[str, str | Path],
    traversal: str,
    columns: dict[str, str | list[str]],
    *,
    regression: bool = False,
    num_labels: int | None = None,
    label_names: Sequence[str] | None = None,
) -> tuple[Task, DatasetDict]:
    """Reads your own files into a task that describes them, and their rows by split with class ids as labels.

    Args:
        files: maps split (train, validation, test) to a .jsonl, .jsonl.gz, .csv or .parquet file; test may lack
            labels, in some rows or all.
        traversal: classification, entailment, similarity or multiple_choice.
        columns: maps role to column name or names, as in `TraversalCollator`; the label's default is "label".
        regression: whether the labels are numbers to predict.
        num_labels: number of classes, where some may have no row. Default: the number found in the data.
        label_names: names of the classes in the order of their ids, such as a model's. Default: the labels of the
            train split: the names of a `ClassLabel` column in its order; of others, texts are sorted, and integers are
            the ids themselves if 0 is among them, else names.

    Raises:
        ValueError: files, columns or labels are not what the task needs.
    """
    _check_labels_wanted(traversal, regression, num_labels)
    columns = {"label": "label", **columns}
    paths = {split: Path(file) for split, file in files.items()}
    for split, path in paths.items():
        check_file(f"The {split} file", path)
    splits = {split: read_file(path) for split, path in paths.items()}
    for split, rows in splits.items():
        for role in columns:
            if role != "label" or split != "test":
                check_columns(files[split], rows.column_names, role, columns[role])
    has_classes = not regression and traversal != "multiple_choice"
    declared = class_label_names(splits["train"], columns["label"]) if "train" in splits else None
    for split, rows in splits.items():
        if columns["label"] in rows.column_names:
            rows = named_labels(rows, columns["label"]) if has_classes else rows
            rows = without_blanks(rows, columns["label"], str(paths[split]), optional=split == "test")
            rows = typed_labels(rows, columns["label"], str(paths[split]))
            if not has_classes:
                rows = as_numbers(rows, columns["label"], str(paths[split]), whole=not regression)
            splits[split] = rows
    if has_classes:
        label_names = _find_label_names(paths, splits, columns["label"], num_labels, label_names, declared)
    task = Task(
        name=next(iter(paths.values())).name.partition(".")[0],
        traversal=traversal,
        columns=columns,
        label_names=tuple(label_names) if has_classes else (),
        regression=regression,
        metrics=("pearson", "spearmanr") if regression else ("accuracy",),
    )
    if has_classes:
        splits = {split: encode_labels(rows, task, paths[split]) for split, rows in splits.items()}
    return task, DatasetDict(splits)


def check_columns(file: str | Path, names: list[str], role: str, columns: str | list[str]) -> None:
    """Raises ValueError where the file does not have the columns of a role."""
    for column in [columns] if isinstance(columns, str) else columns:
        if column not in names:
            raise ValueError(
                f"{file} has no column {column!r} for the role {role}; its columns are: {', '.join(names)}. Name its "
                f"column in `columns` ({role}=column)."
            )


def check_file(what: str, path: Path) -> None:
    """Raises ValueError where there is no file of a known kind."""
    if path.is_dir():
        raise ValueError(f"{what} {path} is a folder. Pass the path of a file.")
    if not path.is_file():
        raise ValueError(f"{what} {path} does not exist. Pass the path of a file.")
    if not path.name.endswith(tuple(FILE_BUILDERS)):
        raise ValueError(
            f"{what} {path} has an unknown file type. Pass a file that ends in {', '.join(FILE_BUILDERS)}."
        )


def _check_labels_wanted(traversal: str, regression: bool, num_labels: int | None) -> None:
    if traversal == "multiple_choice" and (regression or num_labels is not None):
        name = "regression" if regression else "num_labels"
        raise ValueError(
            f"`{name}` does not apply to multiple_choice, whose label is the index of the right choice. Leave it out."
        )
    if regression and num_labels is not None:
        raise ValueError("`num_labels` counts classes, and `regression` has none. Leave one of them out.")


def _find_label_names(
    paths: dict[str, Path],
    splits: dict[str, Dataset],
    column: str,
    num_labels: int | None,
    label_names: Sequence[str] | None,
    declared: Sequence[str] | None,
) -> tuple[str, ...]:
    if label_names is not None:
        source, names = "The model", tuple(label_names)
    elif "train" in splits:
        source = f"Column {column!r} of {paths['train']}"
        _check_names(splits["train"], column, paths["train"])
        names = tuple(declared or class_names(splits["train"].unique(column), num_labels, source))
    else:
        raise ValueError(
            "The classes are unknown without the labels of a train file. Pass one, or `label_names`, such as those of "
            "the model's `config.id2label`."
        )
    if num_labels not in (None, len(names)):
        raise ValueError(
            f"{source} has {len(names)} classes ({', '.join(names)}), but `num_labels` is {num_labels}. Correct the "
            "data or the number."
        )
    if len(names) < 2:
        raise ValueError(f"{source} has only the class {names[0]}; at least two are needed.")
    return names


def class_names(labels: list, num_labels: int | None, source: str) -> tuple[str, ...]:
    """Names of the classes: sorted texts; integers are the ids themselves if 0 is among them, else names."""
    if all(type(label) is int for label in labels) and 0 not in labels:
        return tuple(map(str, sorted(labels)))
    if all(type(label) is int for label in labels):
        ids = range(num_labels or len(labels))
        if not set(labels) <= set(ids):
            raise ValueError(
                f"{source} has the classes {', '.join(map(str, sorted(labels)))}; class ids are needed, integers "
                f"from 0 to {len(ids) - 1}. Correct the data, or pass the number of classes as `num_labels`."
            )
        return tuple(map(str, ids))
    return tuple(sorted(map(str, labels)))


def _check_names(rows: Dataset, column: str, path: Path) -> None:
    def is_no_name(label) -> bool:
        return not isinstance(label, str | int)

    if any(map(is_no_name, rows.unique(column))):
        labels = rows[column][:]
        row = first_row(labels, is_no_name)
        raise ValueError(
            f"Row {row} of {path} (the first is 0): the label in column {column!r} is {labels[row]!r} of type "
            f"{type(labels[row]).__name__}; a class is needed: a text, or an integer from 0. Correct or remove the "
            "row, or pass `regression` to predict numbers."
        )


def encode_labels(rows: Dataset, task: Task, path: str | Path) -> Dataset:
    """The rows with class names replaced by ids; a test file may have no labels."""
    column = task.columns["label"]
    labels = [label for label in rows.unique(column) if label is not None] if column in rows.column_names else []
    if all(type(label) is int and str(label) not in task.label_names for label in labels):
        return rows  # ids already, or nothing to encode
    ids = {name: label_id for label_id, name in enumerate(task.label_names)}
    unknown = [label for label in labels if str(label) not in ids]
    if unknown:
        row = first_row(rows[column][:], lambda label: label in unknown)
        raise ValueError(
            f"Row {row} of {path} (the first is 0): the label in column {column!r} is {rows[row][column]!r}; the "
            f"classes are {', '.join(ids)}. Correct or remove the row."
        )
    if rows.features[column] == Value("int64") and all(label == ids[str(label)] for label in labels):
        return rows
    by_label = {None: None, **{label: ids[str(label)] for label in labels}}
    features = Features({**rows.features, column: Value("int64")})
    options = {"fn_kwargs": {"ids": by_label, "column": column}, "input_columns": column, "batched": True}
    return rows.map(_look_up, features=features, **options)


def _look_up(labels: list[str | int | None], ids: dict, column: str) -> dict[str, list[int | None]]:
    return {column: [ids[label] for label in labels]}


__all__ = ["load_files"]

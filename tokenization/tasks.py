"""The twelve supervised data sets of the paper: where each is found, its columns, traversal, classes and scores.

Source: Radford et al. 2018, section 4 and table 1; GLUE (https://arxiv.org/abs/1804.07461); Story Cloze is split as in
the released `datasets.py` (https://github.com/openai/finetune-transformer-lm/blob/master/datasets.py).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict, concatenate_datasets, load_dataset
from transformers import EvalPrediction

from .files import FILE_BUILDERS, read_file
from .labels import as_numbers, first_row, typed_labels, without_blanks
from .traversal import TRAVERSALS

# `seed` of the released datasets.py.
HELD_OUT_SEED = 3535999445
# Trainer pads gathered logits with this value where batches have different numbers of choices.
TRAINER_PADDING = -100
# Names of the scores in metrics.py, which is imported at the first evaluation.
METRIC_NAMES = ("accuracy", "f1", "matthews_correlation", "pearson", "spearmanr")


@dataclass(frozen=True)
class Task:
    """A supervised data set as fine-tuning sees it. Build one for data of your own; `TASKS` has the paper's."""

    name: str
    """Name that people type, and the name of the data set's folder inside a `data_dir`."""
    traversal: str
    """Input transformation: classification, entailment, similarity or multiple_choice."""
    columns: dict[str, str | list[str]]
    """Maps role to column name, as in `TraversalCollator`; `load_task` returns exactly these columns."""
    label_names: tuple[str, ...] = ()
    """Classes in the order of their ids; empty for regression and multiple choice."""
    regression: bool = False
    """Whether the label is a number to be predicted."""
    metrics: tuple[str, ...] = ("accuracy",)
    """Names in `METRIC_NAMES`; the metric that the paper reports comes first."""
    hub_path: str | None = None
    """Data set on the hub."""
    hub_config: str | None = None
    """Configuration of the data set on the hub."""
    train_split: str = "train"
    """Split to train on."""
    validation_splits: tuple[str, ...] = ("validation",)
    """Splits for model selection."""
    test_splits: tuple[str, ...] = ("test",)
    """Splits to predict; their labels are hidden (-1 or absent) where a leaderboard scores them."""
    folder: str | None = None
    """Name of the data set's folder where it is not `name`."""
    file_parts: tuple[str, ...] = ()
    """Parts that a split consists of: files `<part>_<split>`, joined in this order."""
    column_sources: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """Maps a column that a release may lack to the columns it is made from; several are joined by a space."""
    label_values: tuple[str | int, ...] = ()
    """The release's values for class or choice 0, 1, …, if these are texts or come from `column_sources`."""
    drop_unlabelled: bool = False
    """Whether rows without an agreed label (-1) are dropped, except from the test splits."""
    held_out: int = 0
    """Without a train split: number of validation rows kept for model selection. The others are for training."""

    def __post_init__(self):
        if self.traversal not in TRAVERSALS:
            raise ValueError(
                f"Task {self.name!r} has the traversal {self.traversal!r}. Choose one of {', '.join(TRAVERSALS)}."
            )
        if "label" not in self.columns:
            raise ValueError(
                f"Task {self.name!r} maps the roles {', '.join(self.columns)} to columns. Add the role label."
            )

    @property
    def num_labels(self) -> int:
        """Width of the task head: a score per class; 1 for regression and for multiple choice (a score per choice)."""
        return len(self.label_names) or 1

    @property
    def splits(self) -> tuple[str, ...]:
        """Every split, train first."""
        return (self.train_split, *self.validation_splits, *self.test_splits)

    @property
    def column_names(self) -> list[str]:
        """Every column, in the order of the roles."""
        return [name for names in self.columns.values() for name in ([names] if isinstance(names, str) else names)]


def _glue(name: str, traversal: str, columns: dict[str, str], **fields) -> Task:
    columns = {**columns, "label": "label"}
    return Task(name=name, traversal=traversal, columns=columns, hub_path="nyu-mll/glue", hub_config=name, **fields)


def _race(name: str, hub_config: str, file_parts: tuple[str, ...]) -> Task:
    return Task(
        name=name,
        traversal="multiple_choice",
        columns={"context": "article", "question": "question", "choices": "options", "label": "label"},
        hub_path="ehovy/race",
        hub_config=hub_config,
        folder="race",
        file_parts=file_parts,
        column_sources={"label": (("answer",),)},
        label_values=("A", "B", "C", "D"),
    )


_PAIR = {"text_a": "sentence1", "text_b": "sentence2"}
_INFERENCE = {"premise": "premise", "hypothesis": "hypothesis"}
_THREE_WAY = ("entailment", "neutral", "contradiction")
_TWO_WAY = ("entailment", "not_entailment")

# QNLI keeps GLUE's order of the pair: the question stands first, the sentence that may answer it second.
_TASKS = (
    _glue("sst2", "classification", {"text": "sentence"}, label_names=("negative", "positive")),
    _glue(
        "cola",
        "classification",
        {"text": "sentence"},
        label_names=("unacceptable", "acceptable"),
        metrics=("matthews_correlation",),
    ),
    _glue("mrpc", "similarity", _PAIR, label_names=("not_equivalent", "equivalent"), metrics=("f1", "accuracy")),
    _glue("stsb", "similarity", _PAIR, regression=True, metrics=("pearson", "spearmanr")),
    _glue(
        "qqp",
        "similarity",
        {"text_a": "question1", "text_b": "question2"},
        label_names=("not_duplicate", "duplicate"),
        metrics=("f1", "accuracy"),
    ),
    _glue(
        "mnli",
        "entailment",
        _INFERENCE,
        label_names=_THREE_WAY,
        validation_splits=("validation_matched", "validation_mismatched"),
        test_splits=("test_matched", "test_mismatched"),
    ),
    Task(
        name="snli",
        traversal="entailment",
        columns={**_INFERENCE, "label": "label"},
        label_names=_THREE_WAY,
        hub_path="stanfordnlp/snli",
        hub_config="plain_text",
        drop_unlabelled=True,
    ),
    _glue("qnli", "entailment", {"premise": "question", "hypothesis": "sentence"}, label_names=_TWO_WAY),
    _glue("rte", "entailment", {"premise": "sentence1", "hypothesis": "sentence2"}, label_names=_TWO_WAY),
    Task(
        name="scitail",
        traversal="entailment",
        columns={**_INFERENCE, "label": "label"},
        label_names=("entails", "neutral"),
        hub_path="allenai/scitail",
        hub_config="tsv_format",
        label_values=("entails", "neutral"),
    ),
    _race("race", "all", ("middle", "high")),
    _race("race-middle", "middle", ("middle",)),
    _race("race-high", "high", ("high",)),
    Task(
        name="story_cloze",
        traversal="multiple_choice",
        columns={"context": "context", "choices": ["ending1", "ending2"], "label": "label"},
        hub_path="LSDSem/story_cloze",
        hub_config="2016",
        # First the hub's names, then those of the .csv files that its authors distribute.
        column_sources={
            "context": (
                tuple(f"input_sentence_{number}" for number in range(1, 5)),
                tuple(f"InputSentence{number}" for number in range(1, 5)),
            ),
            "ending1": (("sentence_quiz1",), ("RandomFifthSentenceQuiz1",)),
            "ending2": (("sentence_quiz2",), ("RandomFifthSentenceQuiz2",)),
            "label": (("answer_right_ending",), ("AnswerRightEnding",)),
        },
        label_values=(1, 2),
        held_out=374,
    ),
)
TASKS: dict[str, Task] = {task.name: task for task in _TASKS}


def get_task(name: str) -> Task:
    """The task of that name; case, spaces, hyphens and underscores do not matter ("SST-2" is "sst2").

    Raises:
        ValueError: the name is not in `TASKS`.
    """
    by_plain_name = {_plain(known): task for known, task in TASKS.items()}
    if _plain(name) not in by_plain_name:
        raise ValueError(
            f"Unknown task {name!r}. Known tasks: {', '.join(TASKS)}. For data of your own build a Task with its "
            "traversal, columns and label_names."
        )
    return by_plain_name[_plain(name)]


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name.lower())


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
    split_parts = _load_from_hub(task) if data_dir is None else _load_from_folder(task, Path(data_dir))
    splits = {
        split: concatenate_datasets([_normalise(rows, task, split, source) for source, rows in parts])
        for split, parts in split_parts.items()
    }
    if task.held_out and task.train_split not in splits:
        splits.update(_split_validation(task, splits))
    return DatasetDict({split: splits[split] for split in task.splits if split in splits})


def _load_from_hub(task: Task) -> dict[str, list[tuple[str, Dataset]]]:
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


def _load_from_folder(task: Task, data_dir: Path) -> dict[str, list[tuple[str, Dataset]]]:
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
    if paths and len(paths) < len(stems):
        missing = ", ".join(stem for stem in stems if stem not in paths)
        raise ValueError(
            f"Task {task.name!r} joins {' and '.join(stems)}, but {folder} has no file {missing}. Add it, or load the "
            "part alone by its own task name."
        )
    if not paths and len(stems) > 1 and (whole := _find_file(folder, split)):
        return [whole]
    return list(paths.values())


def _find_file(folder: Path, stem: str) -> Path | None:
    paths = [path for ending in FILE_BUILDERS if (path := folder / f"{stem}{ending}").is_file()]
    if len(paths) > 1:
        raise ValueError(
            f"{folder} has {' and '.join(path.name for path in paths)}; one file is needed for {stem}. Keep one."
        )
    return paths[0] if paths else None


def _normalise(rows: Dataset, task: Task, split: str, source: str) -> Dataset:
    """The rows with the task's columns only, labels as ids or numbers."""
    label = task.columns["label"]
    sources = _column_sources(rows, task, split)
    for name, columns in sources.items():
        rows = _make_column(rows, name, columns)
    rows = rows.select_columns(list(sources))
    _check_choices(rows, task, split)
    if label in sources:
        rows = _normalise_labels(rows, task, split, source, renamed=sources[label] != (label,))
    return rows


def _column_sources(rows: Dataset, task: Task, split: str) -> dict[str, tuple[str, ...]]:
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


def _make_column(rows: Dataset, name: str, source: tuple[str, ...]) -> Dataset:
    if source == (name,):
        return rows
    if len(source) == 1:
        return rows.rename_column(source[0], name)
    return rows.map(_join_texts, fn_kwargs={"name": name}, input_columns=list(source), batched=True)


def _join_texts(*columns: list[str], name: str) -> dict[str, list[str]]:
    return {name: [" ".join(texts) for texts in zip(*columns, strict=True)]}


def _is_text(rows: Dataset, column: str) -> bool:
    return getattr(rows.features[column], "dtype", None) in ("string", "large_string")


def _check_choices(rows: Dataset, task: Task, split: str) -> None:
    choices = task.columns.get("choices")
    if isinstance(choices, str) and _is_text(rows, choices):
        raise ValueError(
            f"Column {choices!r} of split {split!r} of task {task.name!r} holds one text per row; a list of choices "
            "is needed. A .csv file cannot hold lists: use .jsonl or .parquet, or a Task with one column per choice."
        )


def _normalise_labels(rows: Dataset, task: Task, split: str, source: str, renamed: bool) -> Dataset:
    label = task.columns["label"]
    rows = without_blanks(rows, label, source, optional=split in task.test_splits)
    rows = typed_labels(rows, label, source)
    if not task.regression and (renamed or _is_text(rows, label)):
        rows = _label_ids(rows, task, split, source)
    rows = as_numbers(rows, label, source, whole=not task.regression)
    if task.drop_unlabelled and split not in task.test_splits:
        rows = rows.filter(_are_labelled, input_columns=label, batched=True)
    return rows


def _label_ids(rows: Dataset, task: Task, split: str, source: str) -> Dataset:
    """The rows with the release's values replaced by ids; ids may be written as texts."""
    label = task.columns["label"]
    known = list(task.label_values or task.label_names)
    found = [value for value in rows.unique(label) if value is not None]
    names = {str(value): index for index, value in enumerate(known)}
    ids = {value: names[str(value)] for value in found if str(value) in names}
    if not task.label_values:
        ids |= {value: int(value) for value in found if value not in ids and re.fullmatch("-?[0-9]+", str(value))}
    unknown = [value for value in found if value not in ids]
    if unknown:
        row = first_row(rows[label][:], lambda value: value == unknown[0])
        raise ValueError(
            f"Split {split!r} of task {task.name!r} has the label {unknown[0]!r} in row {row} of {source} (the first "
            f"is 0). Known labels: {', '.join(map(repr, known))}. Correct the file, or write class ids from 0."
        )
    return rows.map(_look_up, fn_kwargs={"ids": ids, "label": label}, input_columns=label, batched=True)


def _look_up(values: list[str | int | None], ids: dict[str | int, int], label: str) -> dict[str, list[int | None]]:
    return {label: [ids.get(value) for value in values]}


def _are_labelled(labels: list[int]) -> list[bool]:
    return [label != -1 for label in labels]


def _split_validation(task: Task, splits: dict[str, Dataset]) -> dict[str, Dataset]:
    name = task.validation_splits[0]
    if name not in splits:
        return {}
    rows = splits[name]
    if len(rows) <= task.held_out:
        raise ValueError(
            f"Task {task.name!r} has no {task.train_split} file, so it is trained on the rows of its {name} split "
            f"beyond the {task.held_out} held out, but the split has only {len(rows)}. Add a {task.train_split} file."
        )
    # The same rows in the same order as scikit-learn's train_test_split in the released code.
    order = np.random.RandomState(HELD_OUT_SEED).permutation(len(rows))
    return {task.train_split: rows.select(order[task.held_out :]), name: rows.select(order[: task.held_out])}


def predictions_from_logits(task: str | Task, task_logits: np.ndarray | tuple) -> np.ndarray:
    """Predicted class or choice ids [N], or numbers [N] for regression.

    Args:
        task: a name for `get_task`, or a Task.
        task_logits: [N, K], [N, C] or [N, 1], or a tuple that begins with them, as Trainer gathers them. For multiple
            choice, -inf and -100 (Trainer's padding) mark choices that an example does not have.
    """
    task = get_task(task) if isinstance(task, str) else task
    logits = np.asarray(task_logits[0] if isinstance(task_logits, tuple) else task_logits)
    if task.regression:
        return logits.reshape(len(logits))
    if task.traversal == "multiple_choice":
        # Trainer pads batches of fewer choices with -100; a real score may be lower than that.
        logits = np.where(logits == TRAINER_PADDING, -np.inf, logits)
    return logits.argmax(axis=-1)


def compute_metrics_for(task: str | Task) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of a Trainer for a task: its metrics under their names, such as accuracy, f1, spearmanr.

    Args:
        task: a name for `get_task`, or a Task.

    Raises:
        ValueError: a metric is not in `METRIC_NAMES`.
    """
    task = get_task(task) if isinstance(task, str) else task
    unknown = [name for name in task.metrics if name not in METRIC_NAMES]
    if unknown:
        raise ValueError(
            f"Task {task.name!r} asks for the metric {unknown[0]!r}. Known metrics: {', '.join(METRIC_NAMES)}."
        )
    metrics: list = []

    def compute_metrics(evaluation: EvalPrediction) -> dict[str, float]:
        predictions = predictions_from_logits(task, evaluation.predictions)
        references = np.asarray(evaluation.label_ids).reshape(len(predictions))
        if not metrics:
            from .metrics import METRICS  # here because it imports evaluate, which training does not need to begin

            metrics.extend(METRICS[name](keep_in_memory=True) for name in task.metrics)
        scores = {}
        for metric in metrics:
            scores.update(metric.compute(predictions=predictions, references=references))
        return scores

    return compute_metrics


__all__ = ["TASKS", "Task", "compute_metrics_for", "get_task", "load_task", "predictions_from_logits"]

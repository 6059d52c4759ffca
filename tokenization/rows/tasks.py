"""The twelve supervised data sets of the paper: where each is found, its columns, traversal, classes and scores.

Source: Radford et al. 2018, section 4 and table 1; GLUE (https://arxiv.org/abs/1804.07461). A new task is one entry of
`_TASKS`; `task_files.py` reads its rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from transformers import EvalPrediction

from ..errors import UserError
from ..wording import nearest, plain_name
from .columns import column_list
from .metrics import find_metric
from .traversals import TRAVERSALS

# Trainer pads gathered logits with this value where batches have different numbers of choices. Labels have another
# such value, `IGNORED_LABEL`.
TRAINER_PADDING = -100


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
    multi_label: bool = False
    """Whether a row may have several classes; its label is a list of 0 or 1 for each."""
    metrics: tuple[str, ...] = ("accuracy",)
    """Names of scores in metrics.py or of scikit-learn's scorers or of `evaluate`; the paper's comes first."""
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
            raise UserError(
                f"Task {self.name!r} has the traversal {self.traversal!r}. Choose one of {', '.join(TRAVERSALS)}."
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
        return [name for columns in self.columns.values() for name in column_list(columns)]

    @property
    def text_columns(self) -> list[str]:
        """Every column but the label's."""
        return [name for name in self.column_names if name != self.columns["label"]]


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


def get_task(name: str | Task) -> Task:
    """The task of that name; case, spaces, hyphens and underscores do not matter ("SST-2" is "sst2").

    Raises:
        ValueError: the name is not in `TASKS`.

    Examples:
        >>> get_task("SST-2").traversal
        'classification'
    """
    if isinstance(name, Task):
        return name
    if not isinstance(name, str):
        raise UserError(
            f"`name` is a {type(name).__name__}. Pass a task's name, or the task that `load_files` returns first."
        )
    for known, task in TASKS.items():
        if plain_name(known) == plain_name(name):
            return task
    raise UserError(
        f"Unknown task {name!r}{nearest(name, TASKS)}. Known tasks: {', '.join(TASKS)}. Your own data needs no task: "
        "give its files, traversal and columns to `gpt1 finetune`, or to `load_files` in Python."
    )


def predictions_from_logits(task: Task, task_logits: np.ndarray | tuple) -> np.ndarray:
    """Predicted class or choice ids [N], numbers [N] for regression, or 0 and 1 [N, K] where rows have several labels.

    Args:
        task: what the logits are of.
        task_logits: [N, K], [N, C] or [N, 1], or a tuple that begins with them, as Trainer gathers them. For multiple
            choice, -inf and -100 (Trainer's padding) mark choices that an example does not have.

    Raises:
        ValueError: a class would be read off scores of which one is no number.
    """
    logits = np.asarray(task_logits[0] if isinstance(task_logits, tuple) else task_logits)
    if task.regression:
        return logits.reshape(len(logits))
    is_bad = np.isnan(logits).reshape(len(logits), -1).any(-1)
    if is_bad.any():
        raise UserError(
            f"{is_bad.sum()} of {len(logits)} rows have scores that are not numbers (NaN), the first of them row "
            f"{is_bad.argmax()}. The model's weights are damaged, or its training has diverged. Use another "
            "checkpoint, or train with a lower learning rate."
        )
    if task.multi_label:
        return (logits > 0).astype(np.int64)
    if TRAVERSALS[task.traversal].has_choices:
        # Trainer pads batches of fewer choices with -100; a real score may be lower than that.
        logits = np.where(logits == TRAINER_PADDING, -np.inf, logits)
    return logits.argmax(axis=-1)


def compute_metrics_for(task: str | Task) -> Callable[[EvalPrediction], dict[str, float]]:
    """The `compute_metrics` of a Trainer for a task: its metrics under their names, such as accuracy, f1, spearmanr.

    Args:
        task: a name for `get_task`, or a Task.

    Raises:
        ValueError: neither metrics.py, scikit-learn nor `evaluate` has a metric, or it is of fewer classes.
    """
    task = get_task(task)
    labels = _labels_to_try(task)
    metrics = [find_metric(name, labels) for name in task.metrics]

    def compute_metrics(evaluation: EvalPrediction) -> dict[str, float]:
        predictions = predictions_from_logits(task, evaluation.predictions)
        references = np.asarray(evaluation.label_ids).reshape(predictions.shape)
        scores: dict[str, float] = {}
        for metric in metrics:
            scores.update(metric(predictions, references))
        return scores

    compute_metrics.score_names = task.metrics  # of a search, before there are any scores
    return compute_metrics


def _labels_to_try(task: Task) -> np.ndarray:
    """A few labels such as the task has, with which `find_metric` tries a score."""
    if task.regression:
        return np.array([0.5, 1.5])
    if task.multi_label:
        return np.eye(2, dtype=int)
    num_ids = 3 if TRAVERSALS[task.traversal].has_choices else len(task.label_names)
    return np.arange(max(2, num_ids))

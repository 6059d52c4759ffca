"""Zero-shot heuristics: how a language model answers the rows of a task without fine-tuning.

Source: section 5, "Zero-shot Behaviors", of "Improving Language Understanding by Generative Pre-Training" (Radford et
al. 2018). BLiMP follows "BLiMP: The Benchmark of Linguistic Minimal Pairs for English" (Warstadt et al. 2020,
https://arxiv.org/abs/1912.00582): of two sentences the more probable one is the acceptable one. Few-shot answering
follows "Language Models are Few-Shot Learners" (Brown et al. 2020, https://arxiv.org/abs/2005.14165), contextual
calibration follows "Calibrate Before Use" (Zhao et al. 2021, https://arxiv.org/abs/2102.09690).
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np

from tokenization import Task, get_task, load_task
from tokenization.errors import UserError
from tokenization.rows import metrics
from tokenization.rows.labels import are_all_labelled
from tokenization.wording import nearest, plain_name

from .scoring import ContinuationScore, Scorer, ScoringRequest

CONTENT_FREE = "N/A"

# "DPRD" of the paper: Rahman and Ng 2012, "Resolving Complex Cases of Definite Pronouns". `pronoun_offset` counts
# characters of the sentence.
DPR = Task(
    name="dpr",
    traversal="multiple_choice",
    columns=dict(context="sentence", pronoun="pronoun", offset="pronoun_offset", choices="candidates", label="label"),
)

# The data set has one split, which is for evaluation, and no labels: every row names its acceptable sentence.
BLIMP = Task(
    name="blimp",
    traversal="multiple_choice",
    columns={"choices": ["sentence_bad", "sentence_good"], "group": "linguistics_term", "label": "label"},
    validation_splits=(),
    test_splits=("train",),
)


@dataclass(frozen=True)
class Heuristic:
    """How a language model without a task head answers the rows of a task."""

    task: Task
    """Data set; its first metric is reported."""
    requests: Callable[[Mapping], tuple[ScoringRequest, ...]]
    """A row's candidates: continuations of one context, or one continuation of several contexts."""
    score: Literal["mean", "total"] = "mean"
    """Log-probability of a candidate: mean per token, or total."""
    content: tuple[str, ...] = ()
    """Columns that contextual calibration replaces by a content-free text; empty if calibration is impossible."""
    has_threshold: bool = False
    """Whether a row has one candidate and is of class 1 if its score exceeds a threshold chosen on training rows."""
    right: int | None = None
    """The candidate that is right in every row, if rows have no labels."""
    chance: float = 0.5
    """The metric of guessing: 0 on the paper's normalised scale."""
    best_known: float = 1.0
    """The metric of the best model known to the paper: 1 on its normalised scale."""

    @property
    def metric(self) -> str:
        return self.task.metrics[0]

    def label_of(self, row: Mapping) -> int:
        return row[self.task.columns["label"]] if self.right is None else self.right

    def normalise(self, value: float) -> float:
        """The metric on the scale of figure 2, right: 0 for guessing, 1 for the best model known then."""
        return (value - self.chance) / (self.best_known - self.chance)


# ---- The rows of each task


def _sentences(*columns: str) -> Callable[[Mapping], tuple[ScoringRequest, ...]]:
    return lambda row: tuple(ScoringRequest("", (row[name].strip(),)) for name in columns)


def _sentiment(row: Mapping) -> tuple[ScoringRequest, ...]:
    return (ScoringRequest(f"{row['sentence'].strip()} very", (" negative", " positive")),)


def _reading(row: Mapping) -> tuple[ScoringRequest, ...]:
    context = f"{row['article'].strip()} {row['question'].strip()}"
    return (ScoringRequest(context, tuple(f" {option.strip()}" for option in row["options"])),)


def _story(row: Mapping) -> tuple[ScoringRequest, ...]:
    return (ScoringRequest(row["context"].strip(), tuple(f" {row[name].strip()}" for name in ("ending1", "ending2"))),)


def _pronoun(row: Mapping) -> tuple[ScoringRequest, ...]:
    sentence, start = row["sentence"], row["pronoun_offset"]
    end = start + len(row["pronoun"])
    if sentence[start:end].lower() != row["pronoun"].lower():
        raise UserError(
            f"`pronoun_offset` {start} of the sentence {sentence!r} points to {sentence[start:end]!r}, not to the "
            f"pronoun {row['pronoun']!r}. It counts characters from 0: correct the row."
        )
    begins = re.search(r"(^|[.!?]['\"]?\s+)$", sentence[:start]) is not None
    candidates = (_in_place(candidate.strip(), begins) for candidate in row["candidates"])
    return tuple(ScoringRequest(sentence[:start] + candidate, (sentence[end:],)) for candidate in candidates)


def _in_place(candidate: str, begins_sentence: bool) -> str:
    """A candidate in the case that its place needs: "The bee" at the beginning of a sentence, "the bee" elsewhere."""
    if begins_sentence:
        return candidate[:1].upper() + candidate[1:]
    return re.sub(r"^(The|An?)\b", lambda article: article[0].lower(), candidate)


# `best_known`: the paper's figure 2, right, names "the state of the art with a single model" and prints no figures, so
# these are the best earlier rows of its tables 3 (RACE, Story Cloze) and 4 (CoLA, SST-2). RACE's is of nine models
# (Tay et al. 2018): its curves lie lower here. DPR's is of Peng et al. 2015, "Solving Hard Coreference Problems", and
# the only one without a second source. BLiMP's is the agreement of individual people with its labels.
HEURISTICS: dict[str, Heuristic] = {
    heuristic.task.name: heuristic
    for heuristic in (
        Heuristic(get_task("cola"), _sentences("sentence"), has_threshold=True, chance=0.0, best_known=0.35),
        Heuristic(get_task("sst2"), _sentiment, score="total", content=("sentence",), best_known=0.932),
        *(
            Heuristic(get_task(name), _reading, content=("article", "question"), chance=0.25, best_known=best_known)
            for name, best_known in {"race": 0.533, "race-middle": 0.602, "race-high": 0.503}.items()
        ),
        Heuristic(get_task("story_cloze"), _story, content=("context",), best_known=0.776),
        Heuristic(DPR, _pronoun, best_known=0.764),
        # Of equal scores the first is chosen, so they count as a wrong answer.
        Heuristic(BLIMP, _sentences(*BLIMP.columns["choices"]), score="total", right=1, best_known=0.886),
    )
}


def get_heuristic(name: str) -> Heuristic:
    """The heuristic of a task; case, spaces, hyphens and underscores do not matter ("SST-2" is "sst2").

    Raises:
        ValueError: the task has no heuristic.
    """
    found = {plain_name(known): heuristic for known, heuristic in HEURISTICS.items()}.get(plain_name(name))
    if found is None:
        raise UserError(
            f"Task {name!r} has no zero-shot heuristic{nearest(name, HEURISTICS)}. Known: {', '.join(HEURISTICS)}. "
            "For your own data, pass a `Heuristic` to `evaluate_zero_shot` in Python."
        )
    return found


# ---- Evaluation


@dataclass(frozen=True)
class ZeroShotResult:
    """The results of a model with a heuristic."""

    metrics: dict[str, float]
    """All metrics of the task, and `normalised`: the first one on the scale of figure 2, right. Where the task has
    groups, such as BLiMP's phenomena, also the first metric of each: `accuracy_island_effects`."""
    predictions: list[int]
    """Class or choice of each row."""
    scores: list[list[float]]
    """Scores of each row's candidates; calibrated if that was asked for."""
    threshold: float | None
    """The score above which the class is 1; None if the heuristic has no threshold."""


def load_questions(
    name: str, data_dir: str | None, num_shots: int = 0, limits: Sequence[int | None] = (None, None), seed: int = 0
) -> tuple[str, list[dict], list[dict]]:
    """The first of a task's test, validation and train splits with labels; up to `limits` of its and training rows."""
    heuristic = get_heuristic(name)
    task, splits = heuristic.task, load_task(heuristic.task, data_dir)
    order = [name for name in (*task.test_splits, *task.validation_splits, task.train_split) if name in splits]
    needs_labels = heuristic.right is None
    split = next((n for n in order if not needs_labels or are_all_labelled(splits[n], task.columns["label"])), None)
    if split is None:
        raise UserError(f"The labels of task {task.name!r} are hidden in {', '.join(order)}. Add one with labels.")
    needs_training = heuristic.has_threshold or num_shots > 0
    train_rows = splits.get(task.train_split, ()) if needs_training else ()
    drawn = []
    for rows, most in zip((splits[split], train_rows), limits, strict=True):
        if most is not None and most < len(rows):
            rows = rows.shuffle(seed=seed).select(range(most))
        drawn.append(list(rows))
    return split, *drawn


def evaluate_zero_shot(
    scorer: Scorer,
    heuristic: str | Heuristic,
    rows: Sequence[Mapping],
    train_rows: Sequence[Mapping] | None = None,
    num_shots: int = 0,
    calibrate: bool = False,
    seed: int = 0,
) -> ZeroShotResult:
    """Lets a language model answer rows with a heuristic.

    Args:
        scorer: the model and its tokenizer.
        heuristic: a name for `get_heuristic`, or a Heuristic.
        rows: rows with labels, as `load_task` gives them.
        train_rows: rows to show and to choose thresholds on. A row is never shown before itself.
        num_shots: answered rows to show before each row, the same for all. What does not fit is cut at the beginning.
        calibrate: compare candidates by log P(candidate | context) − log P(candidate | content-free context).
        seed: seed for drawing the rows to show.

    Raises:
        ValueError: the heuristic cannot do what is asked, or training rows are missing.
    """
    heuristic = get_heuristic(heuristic) if isinstance(heuristic, str) else heuristic
    _check_options(heuristic, rows, train_rows, num_shots, calibrate)
    # One row more than is shown replaces a drawn row that is the very row to be answered.
    drawn = random.Random(seed).sample(range(len(train_rows)), num_shots + 1) if num_shots else []
    shown = [[train_rows[index] for index in drawn if train_rows[index] != row][:num_shots] for row in rows]
    befores = ["".join(_answered(heuristic, other) for other in others) for others in shown]
    found = _score(scorer, heuristic.task.name, list(map(_behind, befores, map(heuristic.requests, rows))))
    scores = [_values(heuristic, of_row) for of_row in found]
    if calibrate:
        contentless = [
            _behind(before, heuristic.requests({**row, **dict.fromkeys(heuristic.content, CONTENT_FREE)}))
            for before, row in zip(befores, rows, strict=True)
        ]
        biases = [_values(heuristic, of_row) for of_row in _score(scorer, heuristic.task.name, contentless)]
        scores = [score - np.where(np.isinf(bias), 0, bias) for score, bias in zip(scores, biases, strict=True)]
    threshold = None
    if heuristic.has_threshold:
        of_training = _score(scorer, heuristic.task.name, [heuristic.requests(row) for row in train_rows])
        labels = np.array([heuristic.label_of(row) for row in train_rows])
        threshold = best_threshold(np.array([_values(heuristic, of_row)[0] for of_row in of_training]), labels)
    predictions = [int(score.argmax() if threshold is None else score[0] > threshold) for score in scores]
    values = [score.tolist() for score in scores]
    return ZeroShotResult(_metrics(heuristic, predictions, rows), predictions, values, threshold)


def _check_options(heuristic: Heuristic, rows, train_rows, num_shots: int, calibrate: bool) -> None:
    name, num_train = heuristic.task.name, len(train_rows or ())
    if heuristic.has_threshold and num_shots or calibrate and not heuristic.content:
        asked = "num_shots" if heuristic.has_threshold and num_shots else "calibrate"
        raise UserError(f"`{asked}` was given for task {name!r}, whose heuristic has no place for it. Leave it out.")
    needed = 1 if heuristic.has_threshold else num_shots + 1 if num_shots else 0
    if needed > num_train:
        raise UserError(
            f"Task {name!r} needs at least {needed} training rows here (for the threshold, or to show and one spare), "
            f"but got {num_train}. Pass `train_rows`."
        )
    read = {*heuristic.task.column_names} - {None if heuristic.right is None else heuristic.task.columns["label"]}
    lacking = [lacks for row in chain(rows, train_rows or ()) if (lacks := read - row.keys())]
    if not rows or lacking:
        found = f"a row without {', '.join(sorted(lacking[0]))}" if lacking else "no rows"
        raise UserError(f"Task {name!r} was given {found}. Pass `rows` as `load_task` gives them.")


def _answered(heuristic: Heuristic, row: Mapping) -> str:
    requests, label = heuristic.requests(row), heuristic.label_of(row)
    candidates = [request.context + rest for request in requests for rest in request.continuations]
    return candidates[label] + "\n"


def _behind(before: str, requests: tuple[ScoringRequest, ...]) -> tuple[ScoringRequest, ...]:
    return tuple(ScoringRequest(before + context, continuations) for context, continuations in requests)


def _score(scorer: Scorer, task: str, asked: list[tuple[ScoringRequest, ...]]) -> list[list[ContinuationScore]]:
    """The scores of each row's candidates; equal requests are scored once."""
    distinct = list(dict.fromkeys(request for requests in asked for request in requests))
    try:
        found = dict(zip(distinct, scorer.score(distinct), strict=True))
    except ValueError as error:  # such as a text that is too long
        raise UserError(f"Task {task!r}: {error}") from error
    return [[score for request in requests for score in found[request]] for requests in asked]


def _values(heuristic: Heuristic, scores: list[ContinuationScore]) -> np.ndarray:
    """What decides between a row's candidates, `[C]`; a candidate without a scored token is never chosen."""
    return np.array([getattr(score, heuristic.score) if score.token_log_probs else -np.inf for score in scores])


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The threshold above which scores, `[N]`, agree best with labels of 0 and 1, `[N]`, by Matthews correlation.

    The threshold lies half-way between two neighbouring scores. Of several equally good ones, the lowest is taken.
    """
    values = np.unique(np.maximum(scores, np.finfo(np.float64).min))
    if len(values) == 1:
        return float(values[0])
    thresholds = values[:-1] / 2 + values[1:] / 2
    with np.errstate(invalid="ignore"):  # of labels that are all the same
        agreement = [np.corrcoef(scores > threshold, labels)[0, 1] for threshold in thresholds]
    return float(thresholds[np.argmax(np.nan_to_num(agreement))])


def _metrics(heuristic: Heuristic, predictions: list[int], rows: Sequence[Mapping]) -> dict[str, float]:
    found, labels = np.array(predictions), np.array(list(map(heuristic.label_of, rows)))
    scores = {}
    for name in heuristic.task.metrics:
        scores |= metrics.compute(name, found, labels)
    scores["normalised"] = heuristic.normalise(scores[heuristic.metric])
    if column := heuristic.task.columns.get("group"):
        groups = np.array([row[column] for row in rows])
        for group in np.unique(groups):
            of_group = metrics.compute(heuristic.metric, found[groups == group], labels[groups == group])
            scores[f"{heuristic.metric}_{group}"] = of_group[heuristic.metric]
    return scores

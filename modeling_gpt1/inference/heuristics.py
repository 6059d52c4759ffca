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
from transformers.utils import logging

from tokenization import Task, get_task, load_task
from tokenization.errors import UserError
from tokenization.rows import metrics
from tokenization.rows.labels import are_all_labelled
from tokenization.wording import nearest, plain_name

from .cloze import KINDS, cloze_request, cloze_task, load_cloze
from .scoring import ContinuationScore, Scorer, ScoringRequest

logger = logging.get_logger(__name__)

CONTENT_FREE = ("N/A",)  # texts in place of a row's
TRAIN_ROWS = "`train_rows`; `gpt1 zero-shot` reads them from a file train beside the other rows"

# "DPRD" of the paper: Rahman and Ng 2012, "Resolving Complex Cases of Definite Pronouns". `pronoun_offset` counts
# characters of the sentence.
DPR = Task(
    name="dpr",
    traversal="multiple_choice",
    columns={
        "context": "sentence",
        "pronoun": "pronoun",
        "offset": "pronoun_offset",
        "choices": "candidates",
        "label": "label",
    },
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
    endings = (f" {row['ending1'].strip()}", f" {row['ending2'].strip()}")
    return (ScoringRequest(row["context"].strip(), endings),)


def _pronoun(row: Mapping) -> tuple[ScoringRequest, ...]:
    sentence = row["sentence"]
    start = row["pronoun_offset"]
    end = start + len(row["pronoun"])
    if sentence[start:end].lower() != row["pronoun"].lower():
        raise UserError(
            f"`pronoun_offset` {start} of the sentence {sentence!r} points to {sentence[start:end]!r}, not to the "
            f"pronoun {row['pronoun']!r}. It counts characters from 0: correct the row."
        )
    before = sentence[:start]
    after = sentence[end:]
    begins_sentence = re.search(r"(^|[.!?]['\"]?\s+)$", before) is not None
    candidates = [_in_place(candidate.strip(), begins_sentence) for candidate in row["candidates"]]
    return tuple(ScoringRequest(before + candidate, (after,)) for candidate in candidates)


def _in_place(candidate: str, begins_sentence: bool) -> str:
    """A candidate in the case that its place needs: "The bee" at the beginning of a sentence, "the bee" elsewhere."""
    if begins_sentence:
        return candidate[:1].upper() + candidate[1:]
    return re.sub(r"^(The|An?)\b", lambda article: article[0].lower(), candidate)


# `best_known`: the paper's figure 2, right, names "the state of the art with a single model" and prints no figures, so
# these are the best earlier rows of its tables 3 (RACE, Story Cloze) and 4 (CoLA, SST-2). RACE's is of nine models
# (Tay et al. 2018): its curves lie lower here. DPR's is of Peng et al. 2015, "Solving Hard Coreference Problems", and
# has no second source. BLiMP's is the agreement of individual people with its labels. The Children's Book Test's are
# the best before GPT-2 in table 3 of its paper, and for V and P the LSTM of Hill et al. 2016, without a second source.
_BEST_OF_CLOZE = {"cbt-ne": 0.823, "cbt-cn": 0.857, "cbt-v": 0.818, "cbt-p": 0.791}
_BEST_OF_RACE = {"race": 0.533, "race-middle": 0.602, "race-high": 0.503}
_HEURISTICS = [
    Heuristic(get_task("cola"), _sentences("sentence"), has_threshold=True, chance=0.0, best_known=0.35),
    Heuristic(get_task("sst2"), _sentiment, score="total", content=("sentence",), best_known=0.932),
    *(
        Heuristic(get_task(name), _reading, content=("article", "question"), chance=0.25, best_known=best_known)
        for name, best_known in _BEST_OF_RACE.items()
    ),
    Heuristic(get_task("story_cloze"), _story, content=("context",), best_known=0.776),
    Heuristic(DPR, _pronoun, best_known=0.764),
    # Of equal scores the first is chosen, so they count as a wrong answer.
    *(
        Heuristic(cloze_task(name), cloze_request, score="total", chance=0.1, best_known=best_known)
        for name, best_known in _BEST_OF_CLOZE.items()
    ),
    Heuristic(BLIMP, _sentences(*BLIMP.columns["choices"]), score="total", right=1, best_known=0.886),
]
HEURISTICS: dict[str, Heuristic] = {heuristic.task.name: heuristic for heuristic in _HEURISTICS}


def get_heuristic(name: str) -> Heuristic:
    """The heuristic of a task; case, spaces, hyphens and underscores do not matter ("SST-2" is "sst2").

    Raises:
        ValueError: the task has no heuristic.
    """
    for known, heuristic in HEURISTICS.items():
        if plain_name(known) == plain_name(name):
            return heuristic
    raise UserError(
        f"Task {name!r} has no zero-shot heuristic{nearest(name, HEURISTICS)}. Tasks that have one: "
        f"{', '.join(HEURISTICS)}. For your own data, pass a `Heuristic` to `evaluate_zero_shot` in Python."
    )


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
    """Scores of each row's candidates; calibrated where the arguments say so."""
    threshold: float | None
    """The score above which the class is 1; None if the heuristic has no threshold."""


def load_questions(
    name: str, data_dir: str | None, num_shots: int = 0, limits: Sequence[int | None] = (None, None), seed: int = 0
) -> tuple[str, list[dict], list[dict]]:
    """The first of a task's test, validation and train splits with labels; up to `limits` of its and training rows.

    Where a threshold is chosen and only the train split has labels, its rows are drawn into two halves: the threshold
    is chosen on one and scored on the other.
    """
    heuristic = get_heuristic(name)
    task = heuristic.task
    splits = load_cloze(task, data_dir) if task.name in KINDS else load_task(task, data_dir)
    split = _split_to_score(heuristic, splits)
    train_rows = []
    if heuristic.has_threshold or num_shots > 0:
        train_rows = splits.get(task.train_split, [])
    rows = splits[split]
    if heuristic.has_threshold and split == task.train_split:
        logger.warning(
            f"Task {task.name!r} has labels in {split!r} alone: the threshold is chosen on half of its rows and "
            "scored on the other half."
        )
        rows = rows.shuffle(seed=seed)
        middle = len(rows) // 2
        train_rows, rows = rows.select(range(middle)), rows.select(range(middle, len(rows)))
        split = f"{split} (half)"
    most_rows, most_train_rows = limits
    return split, _draw(rows, most_rows, seed), _draw(train_rows, most_train_rows, seed)


def _split_to_score(heuristic: Heuristic, splits: Mapping) -> str:
    task = heuristic.task
    names = [name for name in (*task.test_splits, *task.validation_splits, task.train_split) if name in splits]
    for name in names:
        if heuristic.right is not None or are_all_labelled(splits[name], task.columns["label"]):
            return name
    raise UserError(
        f"Task {task.name!r} has no labels in {', '.join(names)}. Add a split with labels to the task's folder."
    )


def _draw(rows, most: int | None, seed: int) -> list[dict]:
    """At most so many rows of a data set, drawn at random if there are more."""
    if most is not None and most < len(rows):
        rows = rows.shuffle(seed=seed).select(range(most))
    return list(rows)


def evaluate_zero_shot(
    scorer: Scorer,
    heuristic: str | Heuristic,
    rows: Sequence[Mapping],
    train_rows: Sequence[Mapping] | None = None,
    num_shots: int = 0,
    calibrate: bool = False,
    seed: int = 0,
    content_free: Sequence[str] = CONTENT_FREE,
) -> ZeroShotResult:
    """Lets a language model answer rows with a heuristic.

    Args:
        scorer: the model and its tokenizer.
        heuristic: a name for `get_heuristic`, or a Heuristic.
        rows: rows with labels, as `load_task` gives them.
        train_rows: rows to show and to choose thresholds on. A row is never shown before itself. A threshold is not
            scored on the rows that it was chosen on alone.
        num_shots: answered rows to show before each row, the same for all. What does not fit is cut at the beginning.
        calibrate: compare candidates by log P(candidate | context) − log P(candidate | content-free context).
        seed: seed for drawing the rows to show.
        content_free: texts without content. Of several, the probabilities of the candidates are averaged.

    Raises:
        ValueError: the heuristic cannot do what the arguments say, or training rows are missing.
    """
    if isinstance(heuristic, str):
        heuristic = get_heuristic(heuristic)
    train_rows = train_rows or ()
    check_options(heuristic, rows, train_rows, num_shots, calibrate, content_free)
    befores = _shown_before(heuristic, rows, train_rows, num_shots, seed)
    scores = scores_behind(scorer, heuristic, rows, befores)
    if calibrate:
        biases = biases_behind(scorer, heuristic, rows, befores, content_free)
        scores = [score - bias for score, bias in zip(scores, biases, strict=True)]

    if heuristic.has_threshold:
        of_training = _score(scorer, heuristic, [heuristic.requests(row) for row in train_rows])
        labels = np.array([heuristic.label_of(row) for row in train_rows])
        threshold = best_threshold(np.array([score for (score,) in of_training]), labels)
        predictions = [int(score > threshold) for (score,) in scores]
    else:
        threshold = None
        predictions = [int(score.argmax()) for score in scores]
    return ZeroShotResult(
        metrics=metrics_of(heuristic, predictions, rows),
        predictions=predictions,
        scores=[score.tolist() for score in scores],
        threshold=threshold,
    )


def scores_behind(
    scorer: Scorer, heuristic: Heuristic, rows: Sequence[Mapping], befores: Sequence[str]
) -> list[np.ndarray]:
    """What decides between each row's candidates, `[C]`, behind the rows that are shown before it."""
    requests = [_behind(before, heuristic.requests(row)) for before, row in zip(befores, rows, strict=True)]
    return _score(scorer, heuristic, requests)


def biases_behind(
    scorer: Scorer,
    heuristic: Heuristic,
    rows: Sequence[Mapping],
    befores: Sequence[str],
    content_free: Sequence[str],
) -> list[np.ndarray]:
    """What calibration subtracts from the scores of each row's candidates, `[C]`.

    This is W = diag(p)⁻¹ of section 5 of "Calibrate Before Use" on logarithms. Of several content-free texts, p is the
    mean of the candidates' probabilities, normalised for each text. Where candidates are compared by the mean over
    their tokens, their probabilities are the geometric means of those of the tokens.
    """
    of_texts = []
    for text in content_free:
        contentless = [{**row, **dict.fromkeys(heuristic.content, text)} for row in rows]
        of_texts.append(scores_behind(scorer, heuristic, contentless, befores))
    biases = []
    for of_row in zip(*of_texts, strict=True):
        bias = of_row[0]
        if len(of_row) > 1:
            normalised = [scores - np.logaddexp.reduce(scores) for scores in of_row]
            bias = np.logaddexp.reduce(normalised) - np.log(len(normalised))
        biases.append(np.where(np.isfinite(bias), bias, 0))  # a candidate without a token has no probability
    return biases


def check_options(
    heuristic: Heuristic, rows, train_rows, num_shots: int, calibrate: bool, content_free: Sequence[str]
) -> None:
    name = heuristic.task.name
    if num_shots and heuristic.has_threshold:
        raise UserError(
            f"Task {name!r} is answered by a threshold, without examples. Leave `num_shots` or this task out."
        )
    if calibrate and not heuristic.content:
        raise UserError(f"The heuristic of task {name!r} cannot be calibrated. Leave `calibrate` or this task out.")
    if calibrate and not content_free:
        raise UserError("`content_free` is empty. Pass texts without content, such as 'N/A', '[MASK]' and ''.")

    if heuristic.has_threshold and not train_rows:
        raise UserError(f"Task {name!r} needs training rows to choose its threshold on. Pass {TRAIN_ROWS}.")
    if num_shots and len(train_rows) <= num_shots:
        raise UserError(
            f"Task {name!r} needs at least {num_shots + 1} training rows to show {num_shots} (`num_shots`) and never "
            f"a row before itself, but there are {len(train_rows)}. Pass more as {TRAIN_ROWS}."
        )

    if heuristic.has_threshold and rows and all(row in train_rows for row in rows):
        raise UserError(
            f"Task {name!r} would be scored on the rows that its threshold is chosen on: all `rows` are among "
            "`train_rows`. Pass other rows."
        )

    needed = set(heuristic.task.column_names)
    if heuristic.right is not None:
        needed.discard(heuristic.task.columns["label"])
    if not rows:
        raise UserError(f"Task {name!r} was given no rows. Pass `rows` as `load_task` gives them.")
    for row in chain(rows, train_rows):
        lacking = needed - row.keys()
        if lacking:
            raise UserError(
                f"Task {name!r} was given a row without {', '.join(sorted(lacking))}. Pass `rows` as `load_task` "
                "gives them."
            )

    if calibrate and not num_shots:
        for text in content_free:
            contentless = {**rows[0], **dict.fromkeys(heuristic.content, text)}
            if not all(request.context.strip() for request in heuristic.requests(contentless)):
                raise UserError(
                    f"The content-free text {text!r} leaves nothing before the candidates of task {name!r}, so that "
                    "their first token has no probability. Pass a `content_free` without it, or show rows "
                    "(`num_shots`)."
                )


def _shown_before(heuristic: Heuristic, rows, train_rows, num_shots: int, seed: int) -> list[str]:
    """For each row the answered rows that stand before it."""
    if not num_shots:
        return [""] * len(rows)
    return texts_before(heuristic, rows, shown_rows(train_rows, num_shots, seed), num_shots)


def shown_rows(train_rows, num_shots: int, seed: int) -> list[Mapping]:
    """The rows that are drawn to be shown, in a random order.

    One row more than is shown replaces a drawn row that is the very row to be answered.
    """
    indices = random.Random(seed).sample(range(len(train_rows)), num_shots + 1)
    return [train_rows[index] for index in indices]


def texts_before(heuristic: Heuristic, rows, drawn: Sequence[Mapping], num_shots: int) -> list[str]:
    befores = []
    for row in rows:
        shown = [other for other in drawn if other != row][:num_shots]
        befores.append("".join(_answered(heuristic, other) for other in shown))
    return befores


def _answered(heuristic: Heuristic, row: Mapping) -> str:
    candidates = []
    for request in heuristic.requests(row):
        candidates += [request.context + continuation for continuation in request.continuations]
    return candidates[heuristic.label_of(row)] + "\n"


def _behind(before: str, requests: tuple[ScoringRequest, ...]) -> tuple[ScoringRequest, ...]:
    return tuple(ScoringRequest(before + context, continuations) for context, continuations in requests)


def _score(scorer: Scorer, heuristic: Heuristic, of_rows: list[tuple[ScoringRequest, ...]]) -> list[np.ndarray]:
    """What decides between each row's candidates, `[C]`; equal requests are scored once."""
    distinct = list(dict.fromkeys(request for requests in of_rows for request in requests))
    try:
        scores = dict(zip(distinct, scorer.score(distinct), strict=True))
    except ValueError as error:  # such as a text that is too long
        raise UserError(f"Task {heuristic.task.name!r}: {error}") from error
    values = []
    for requests in of_rows:
        of_row = [score for request in requests for score in scores[request]]
        values.append(np.array([_value(heuristic, score) for score in of_row]))
    return values


def _value(heuristic: Heuristic, score: ContinuationScore) -> float:
    """A candidate without a scored token is never chosen."""
    if not score.token_log_probs:
        return -np.inf
    return score.mean if heuristic.score == "mean" else score.total


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


def metrics_of(heuristic: Heuristic, predictions: list[int], rows: Sequence[Mapping]) -> dict[str, float]:
    found = np.array(predictions)
    labels = np.array([heuristic.label_of(row) for row in rows])
    scores = {}
    for name in heuristic.task.metrics:
        scores.update(metrics.compute(name, found, labels))
    scores["normalised"] = heuristic.normalise(scores[heuristic.metric])
    column = heuristic.task.columns.get("group")
    if column:
        groups = np.array([row[column] for row in rows])
        for group in np.unique(groups):
            is_in_group = groups == group
            of_group = metrics.compute(heuristic.metric, found[is_in_group], labels[is_in_group])
            scores[f"{heuristic.metric}_{group}"] = of_group[heuristic.metric]
    return scores

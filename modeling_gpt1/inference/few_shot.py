"""Few-shot answers over several prompts: how much they depend on the rows that are shown, and on their order.

Sources: "Language Models are Few-Shot Learners" (Brown et al. 2020, https://arxiv.org/abs/2005.14165); majority-label
bias, recency bias and contextual calibration are those of "Calibrate Before Use" (Zhao et al. 2021,
https://arxiv.org/abs/2102.09690), sections 3, 4 and 5.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np

from tokenization.errors import UserError

from .heuristics import (
    CONTENT_FREE,
    Heuristic,
    biases_behind,
    check_options,
    get_heuristic,
    metrics_of,
    scores_behind,
    shown_rows,
    texts_before,
)
from .scoring import Scorer


@dataclass(frozen=True)
class LabelBias:
    """How predictions follow the shown labels, whatever the rows say: means over the prompts. Without bias both are 0.

    Where the candidates of a row are no classes, as in multiple choice, there is none.
    """

    most_predicted_share: float
    """The share of the label that is predicted most often."""
    most_predicted_in_shots: float
    """The share of this label among the shown rows."""
    majority_bias: float | None
    """How much more often than it is right the most frequent shown label is predicted. None if no prompt has one."""
    recency_bias: float
    """How much more often than it is right the label of the last shown row is predicted."""


@dataclass(frozen=True)
class PromptSpread:
    """The metrics of a heuristic over several prompts."""

    metrics: dict[str, float]
    """The mean of each metric."""
    std: float
    """Standard deviation of the first metric between prompts."""
    least: float
    """The first metric with the worst prompt."""
    most: float
    """The first metric with the best prompt."""
    of_prompts: list[float]
    """The first metric of each prompt."""
    bias: LabelBias | None
    """None where candidates are no classes."""


@dataclass(frozen=True)
class FewShotResult:
    """The results of a model with several few-shot prompts."""

    plain: PromptSpread
    """By log P(candidate | context)."""
    calibrated: PromptSpread | None
    """By contextual calibration; None without it."""
    shots: list[list[int]]
    """The labels of the rows that each prompt shows, in their order."""


def evaluate_few_shot(
    scorer: Scorer,
    heuristic: str | Heuristic,
    rows: Sequence[Mapping],
    train_rows: Sequence[Mapping],
    num_shots: int,
    num_orders: int,
    calibrate: bool = False,
    seed: int = 0,
    content_free: Sequence[str] = CONTENT_FREE,
) -> FewShotResult:
    """Lets a language model answer rows with several prompts, each of which shows other rows in another order.

    Args:
        scorer: the model and its tokenizer.
        heuristic: a name for `get_heuristic`, or a Heuristic.
        rows: rows with labels, as `load_task` gives them.
        train_rows: rows to show. A row is never shown before itself.
        num_shots: answered rows that a prompt shows.
        num_orders: prompts. The first is that of `evaluate_zero_shot` with the same seed, the next ones are drawn with
            the seeds after it.
        calibrate: also compare candidates by contextual calibration.
        seed: seed of the first prompt.
        content_free: texts without content for the calibration.

    Raises:
        ValueError: the heuristic cannot do what the arguments say, rows are missing, or numbers are too small.
    """
    if isinstance(heuristic, str):
        heuristic = get_heuristic(heuristic)
    if num_shots < 1 or num_orders < 2:
        raise UserError(
            f"`num_orders` is {num_orders} and `num_shots` {num_shots}, but a spread needs at least 2 prompts with 1 "
            "shown row each."
        )
    check_options(heuristic, rows, train_rows, num_shots, calibrate, content_free)
    labels = np.array([heuristic.label_of(row) for row in rows])
    shots, of_plain, of_calibrated = [], [], []
    for number in range(num_orders):
        drawn = shown_rows(train_rows, num_shots, seed + number)
        befores = texts_before(heuristic, rows, drawn, num_shots)
        shots.append([heuristic.label_of(row) for row in drawn[:num_shots]])
        scores = scores_behind(scorer, heuristic, rows, befores)
        of_plain.append([int(score.argmax()) for score in scores])
        if calibrate:
            biases = biases_behind(scorer, heuristic, rows, befores, content_free)
            calibrated = [score - bias for score, bias in zip(scores, biases, strict=True)]
            of_calibrated.append([int(score.argmax()) for score in calibrated])
    return FewShotResult(
        plain=_spread(heuristic, rows, labels, of_plain, shots),
        calibrated=_spread(heuristic, rows, labels, of_calibrated, shots) if calibrate else None,
        shots=shots,
    )


def _spread(
    heuristic: Heuristic,
    rows: Sequence[Mapping],
    labels: np.ndarray,
    of_prompts: list[list[int]],
    shots: list[list[int]],
) -> PromptSpread:
    found = [metrics_of(heuristic, predictions, rows) for predictions in of_prompts]
    values = [metrics[heuristic.metric] for metrics in found]
    has_classes = heuristic.task.traversal != "multiple_choice"
    return PromptSpread(
        metrics={name: mean(metrics[name] for metrics in found) for name in found[0]},
        std=stdev(values),
        least=min(values),
        most=max(values),
        of_prompts=values,
        bias=_label_bias(labels, of_prompts, shots) if has_classes else None,
    )


def _label_bias(labels: np.ndarray, of_prompts: list[list[int]], shots: list[list[int]]) -> LabelBias:
    most_predicted, in_shots, majority, recency = [], [], [], []
    for predictions, shown in zip(of_prompts, shots, strict=True):
        found = np.array(predictions)
        label, count = Counter(predictions).most_common(1)[0]
        most_predicted.append(count / len(predictions))
        in_shots.append(shown.count(label) / len(shown))
        recency.append(_beyond(found, labels, shown[-1]))
        counts = Counter(shown)
        most = max(counts.values())
        most_shown = [one for one, number in counts.items() if number == most]
        if len(most_shown) == 1:
            majority.append(_beyond(found, labels, most_shown[0]))
    return LabelBias(
        most_predicted_share=mean(most_predicted),
        most_predicted_in_shots=mean(in_shots),
        majority_bias=mean(majority) if majority else None,
        recency_bias=mean(recency),
    )


def _beyond(predictions: np.ndarray, labels: np.ndarray, label: int) -> float:
    """How much more often a label is predicted than it is right, as a share of the rows."""
    return float(np.mean(predictions == label) - np.mean(labels == label))

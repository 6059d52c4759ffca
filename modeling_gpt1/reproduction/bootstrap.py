"""Scores of resampled rows and seeds, by which two settings are compared.

Source: the paired bootstrap of Efron and Tibshirani (1993), "An Introduction to the Bootstrap". A row is drawn a
Poisson number of times: close to drawing with replacement, and one matrix product scores all resamples.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np

NUM_RESAMPLES = 1000
PERCENTILES = (2.5, 97.5)


class Scores(dict[int, float]):
    """Scores × 100 by seed.

    Args:
        scores: the scores.
        resampled: by seed, the scores of `NUM_RESAMPLES` resamples of the rows, if every seed has them.
    """

    def __init__(self, scores: Mapping[int, float] = MappingProxyType({}), resampled: Mapping | None = None):
        super().__init__(scores)
        self.resampled: Mapping[int, np.ndarray] = resampled or {}

    def of_seeds(self, seeds: Sequence[int]) -> "Scores":
        """The scores of some of the seeds."""
        return Scores(
            {seed: self[seed] for seed in seeds}, self.resampled and {seed: self.resampled[seed] for seed in seeds}
        )


def in_common(first: Scores, second: Scores) -> tuple[Scores, Scores]:
    """Both sets of scores at the seeds that both have, if these are two or more; otherwise as they are."""
    common = sorted(set(first) & set(second))
    return (first.of_seeds(common), second.of_seeds(common)) if len(common) > 1 else (first, second)


def average(all_scores: Sequence[Scores], seeds: Iterable[int]) -> Scores:
    """The mean over several sets of scores, seed by seed."""
    seeds = sorted(seeds)
    means = {seed: statistics.fmean(scores[seed] for scores in all_scores) for seed in seeds}
    resampled = {
        seed: np.mean([scores.resampled[seed] for scores in all_scores], axis=0)
        for seed in seeds
        if all(seed in scores.resampled for scores in all_scores)
    }
    return Scores(means, resampled if len(resampled) == len(means) else None)


@lru_cache(maxsize=16)
def weights_of(num_rows: int) -> np.ndarray:
    """How often each row is drawn in each resample, `[NUM_RESAMPLES, num_rows]`."""
    return np.random.default_rng(num_rows).poisson(1.0, (NUM_RESAMPLES, num_rows)).astype(np.uint8)


@cache
def resample(labels: str, predictions: str, metric: str) -> np.ndarray:
    """Scores × 100 of resampled rows, `[NUM_RESAMPLES]`. Equal numbers of rows are resampled alike, so they pair.

    Args:
        labels, predictions: numbers with spaces between them, as cells keep them.
        metric: a name in `SUMS`.
    """
    gold, given = (np.array(numbers.split(), dtype=np.float64) for numbers in (labels, predictions))
    parts, score = SUMS[metric]
    columns = np.stack([np.ones_like(gold), *parts(gold, given)], axis=1)  # [rows, sums]
    sums = np.stack([weights @ columns for weights in weights_of(len(gold))], axis=1)  # [sums, NUM_RESAMPLES]
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = score(*(sums[1:] / sums[0]))
    return 100 * np.where(np.isfinite(scores), scores, 0.0)  # without any variance there is no correlation


def _agreement(gold: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
    return [gold == given]


def _confusion(gold: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
    return [gold * given, gold, given]  # class 1 alone


def _moments(gold: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
    gold, given = gold - gold.mean(), given - given.mean()  # fewer digits are lost in the variances
    return [gold, given, gold * given, gold**2, given**2]


def _f1(both: np.ndarray, gold: np.ndarray, given: np.ndarray) -> np.ndarray:
    return 2 * both / (gold + given)


def _matthews(both: np.ndarray, gold: np.ndarray, given: np.ndarray) -> np.ndarray:
    return (both - gold * given) / np.sqrt(gold * (1 - gold) * given * (1 - given))


def _pearson(gold, given, product, gold_square, given_square) -> np.ndarray:
    variances = (gold_square - gold**2) * (given_square - given**2)
    return (product - gold * given) / np.sqrt(np.where(variances > 1e-12, variances, 0.0))


# The means that a score needs of every row, and the score of the means.
SUMS = {
    "accuracy": (_agreement, lambda share: share),
    "f1": (_confusion, _f1),
    "matthews_correlation": (_confusion, _matthews),
    "pearson": (_moments, _pearson),
}


def interval(
    first: Mapping[int, np.ndarray], second: Mapping[int, np.ndarray] = MappingProxyType({})
) -> tuple[float, float]:
    """95 % of the resampled mean over seeds, or of its difference from a second one.

    Args:
        first, second: resampled scores by seed. The same seeds on both sides are drawn in pairs.
    """
    generator, common = np.random.default_rng(0), sorted(set(first) & set(second))
    if not second:
        means = _mean_of_drawn(np.stack(list(first.values())), generator)
    elif common == sorted(first) == sorted(second):
        means = _mean_of_drawn(np.stack([first[seed] - second[seed] for seed in common]), generator)
    else:
        ours, theirs = (np.stack([scores[seed] for seed in sorted(scores)]) for scores in (first, second))
        means = _mean_of_drawn(ours, generator) - _mean_of_drawn(theirs, generator)
    low, high = np.percentile(means, PERCENTILES)
    return float(low), float(high)


def _mean_of_drawn(scores: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Mean over as many drawn seeds as there are, for each resample: `[seeds, resamples]` to `[resamples]`."""
    drawn = generator.integers(0, len(scores), scores.shape)
    return np.take_along_axis(scores, drawn, axis=0).mean(axis=0)


def constant_answer(labels: str, metric: str) -> float:
    """The score × 100 of the best answer that is the same for every row."""
    gold = np.array(labels.split(), dtype=np.float64)
    if metric == "f1":
        return float(100 * 2 * gold.mean() / (1 + gold.mean()))
    return float(100 * np.unique(gold, return_counts=True)[1].max() / len(gold)) if metric == "accuracy" else 0.0


def guessing(labels: str, metric: str, num_answers: int) -> float:
    """The score × 100 of answers drawn at random, in expectation."""
    gold = np.array(labels.split(), dtype=np.float64)
    if metric == "f1":
        return float(100 * gold.mean() / (0.5 + gold.mean()))
    return 100 / num_answers if metric == "accuracy" else 0.0

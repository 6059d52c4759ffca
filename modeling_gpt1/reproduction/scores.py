"""Scores of runs by seed, and how sure rows and seeds leave their means and differences.

The test rows are common to all seeds, so their error does not shrink with more seeds. A mean over n seeds has the
variance s²/n, of the seeds and of what rows and seeds do together, plus that of the rows alone. The second comes from
resampled rows, the same for both of two settings. The two are combined as Behrens and Fisher did: the rows' variance
is taken as known, the seeds' is averaged over what n seeds leave open. (A t interval with Satterthwaite's degrees of
freedom covers 92 % with three seeds, and Holm's correction of 24 comparisons lets 40 % of claims through.)
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

NUM_RESAMPLES = 1000
LEVEL = 0.05
FEWEST_SEEDS = 3  # two tell too little of their spread to decide anything


class Scores(dict[int, float]):
    """Scores × 100 by seed.

    Args:
        scores: the scores.
        resampled: by seed, the scores of `NUM_RESAMPLES` resamples of the rows, if every seed has them.
    """

    def __init__(self, scores: Mapping[int, float] = MappingProxyType({}), resampled: Mapping | None = None):
        super().__init__(scores)
        self.resampled: Mapping[int, np.ndarray] = resampled or {}

    def at(self, seeds: Iterable[int]) -> "Scores":
        """The scores of some of the seeds."""
        seeds = sorted(seeds)
        return Scores(
            {seed: self[seed] for seed in seeds}, {seed: self.resampled[seed] for seed in seeds if self.resampled}
        )


def average(all_scores: Sequence[Scores], weights: Sequence[float] | None = None) -> Scores:
    """The mean over several sets of scores, or a weighted sum, seed by seed, at the seeds that all have."""
    weights = weights or [1 / len(all_scores)] * len(all_scores)
    seeds = sorted(set.intersection(*map(set, all_scores)))
    has_rows = all(scores.resampled for scores in all_scores)

    def of_seed(parts: Sequence[Mapping], seed: int):
        return sum(weight * part[seed] for weight, part in zip(weights, parts, strict=True))

    resampled = {seed: of_seed([scores.resampled for scores in all_scores], seed) for seed in seeds if has_rows}
    return Scores({seed: float(of_seed(all_scores, seed)) for seed in seeds}, resampled)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, or a difference of two such means, with the variances of its errors."""

    value: float
    num_seeds: int
    seeds: float | None  # variance of the mean by the seeds; None of a single seed
    rows: float | None  # variance of the mean by the rows; None if the runs kept no answers

    @property
    def decides(self) -> bool:
        return self.num_seeds >= FEWEST_SEEDS and self.rows is not None

    @property
    def p(self) -> float | None:
        """Two-sided p value of no difference, if there are seeds and rows enough for one."""
        return float(p_value(self.value, self.seeds, self.rows, self.num_seeds)) if self.decides else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval: over rows and seeds, or over the rows alone if there are fewer than three seeds."""
        if self.rows is None:
            return None
        seeds = self.seeds if self.decides else 0.0
        most = 100 * np.sqrt(seeds + self.rows) + 1e-9
        half = brentq(lambda width: p_value(width, seeds, self.rows, max(self.num_seeds, 2)) - LEVEL, 0, most)
        return self.value - half, self.value + half


def estimate(scores: Scores) -> Estimate:
    """The mean of some scores with its errors."""
    values, number = np.array([scores[seed] for seed in sorted(scores)]), len(scores)
    seeds = float(values.var(ddof=1) / number) if number > 1 else None
    rows = None
    if scores.resampled:
        resampled = np.stack([scores.resampled[seed] for seed in sorted(scores)])  # [seeds, resamples]
        rows = resampled.mean(axis=0).var(ddof=1)
        if number >= FEWEST_SEEDS:
            rows = of_rows_alone(rows, resampled.var(axis=1, ddof=1).mean(), number)
    return Estimate(float(values.mean()), number, seeds, None if rows is None else float(rows))


def of_rows_alone(of_mean: np.ndarray | float, of_each: np.ndarray | float, num_seeds: int) -> np.ndarray:
    """The rows' variance without what rows and seeds do together, which the variance of the seeds has already.

    Args:
        of_mean: the rows' variance of the mean over the seeds.
        of_each: their mean variance of one seed's score.
    """
    return np.maximum(of_mean - (of_each - of_mean) / (num_seeds - 1), 0.0)


def difference(first: Scores, second: Scores) -> Estimate:
    """The first minus the second, at the seeds that both have; without any, of all, which decides nothing."""
    if common := set(first) & set(second):
        return estimate(average([first.at(common), second.at(common)], (1, -1)))
    return Estimate(estimate(first).value - estimate(second).value, 0, None, None)


def p_value(
    value: np.ndarray | float, seeds: np.ndarray | float, rows: np.ndarray | float, num_seeds: int
) -> np.ndarray:
    """Two-sided p value of no difference.

    The seeds' variance is unknown: s² / n has n − 1 degrees of freedom. The p value is averaged over what it may be. A
    flat prior of its logarithm gives the interval of Behrens and Fisher, which covers 97.7 % with three seeds if rows
    and seeds count alike; times √(1 + rows' variance / seeds' variance) it covers 94.5 to 96.6 %.

    Args:
        value: the difference.
        seeds, rows: the variances of an [`Estimate`].
        num_seeds: the number of seeds.
    """
    value, seeds, rows = (np.asarray(number, dtype=np.float64)[..., None] for number in (value, seeds, rows))
    logarithm = np.linspace(np.log(1e-3), np.log(1e5), 81)  # of the true variance by the measured one
    possible = np.maximum(seeds, 1e-12 * rows + 1e-24) * np.exp(logarithm)
    likelihood = np.exp(-(num_seeds - 1) / 2 * (logarithm + np.exp(-logarithm)))
    weights = likelihood * np.sqrt(1 + rows / possible)
    found = 2 * norm.sf(np.abs(value) / np.sqrt(rows + possible))
    return (weights * found).sum(-1) / weights.sum(-1)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values by Holm's correction: together they are below 0.05 without cause in at most 5 % of cases."""
    order = np.argsort(p_values)
    corrected = np.maximum.accumulate(np.array(p_values)[order] * np.arange(len(order), 0, -1))
    return np.minimum(corrected, 1)[np.argsort(order)].tolist()


# ---- Rows


@lru_cache(maxsize=16)
def weights_of(labels: str) -> np.ndarray:
    """How often each row is drawn in each resample, `[NUM_RESAMPLES, rows]`. The same rows are always drawn alike."""
    draw = np.random.default_rng(zlib.crc32(labels.encode()))
    return draw.poisson(1.0, (NUM_RESAMPLES, len(labels.split()))).astype(np.uint8)


@cache
def resample(labels: str, predictions: str, metric: str) -> np.ndarray:
    """Scores × 100 of resampled rows, `[NUM_RESAMPLES]`.

    Args:
        labels, predictions: numbers with spaces between them, as cells keep them.
        metric: a name in `SUMS`.
    """
    gold, given = (np.array(numbers.split(), dtype=np.float64) for numbers in (labels, predictions))
    parts, score = SUMS[metric]
    columns = np.stack([np.ones_like(gold), *parts(gold, given)], axis=1)  # [rows, sums]
    sums = (weights_of(labels) @ columns).T  # [sums, NUM_RESAMPLES]
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = score(*(sums[1:] / sums[0]))
    return 100 * np.where(np.isfinite(scores), scores, 0.0)  # without any variance there is no correlation


def _agreement(gold: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
    return [gold == given]


def _class_1(gold: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
    return [gold * given, gold, given]


def _moments(gold: np.ndarray, given: np.ndarray) -> list[np.ndarray]:
    # In units of their own spread, so that answers that differ little lose no digits.
    gold, given = ((values - values.mean()) / (values.std() or 1) for values in (gold, given))
    return [gold, given, gold * given, gold**2, given**2]


def _correlation(gold, given, product, gold_square, given_square) -> np.ndarray:
    variances = (gold_square - gold**2) * (given_square - given**2)
    return (product - gold * given) / np.sqrt(np.where(variances > 1e-12, variances, 0.0))


# The means that a score needs of every row, and the score of the means.
SUMS = {
    "accuracy": (_agreement, lambda share: share),
    "f1": (_class_1, lambda both, gold, given: 2 * both / (gold + given)),
    "matthews_correlation": (_moments, _correlation),  # of two classes it is Pearson's
    "pearson": (_moments, _correlation),
}


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

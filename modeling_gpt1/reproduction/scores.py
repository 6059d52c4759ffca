"""Scores of runs by seed, and how sure rows and seeds leave their means and differences.

The test rows are common to all seeds, so their error does not shrink with more seeds. A mean over n seeds has the
variance s²/n, of the seeds and of what rows and seeds do together, plus that of the rows alone. The second comes from
resampled rows, the same for both of two settings. The two are combined as Behrens and Fisher did: the rows' variance
is taken as known, the seeds' is averaged over what n seeds leave open. (A t interval with Satterthwaite's degrees of
freedom covers 92 % with three seeds, and Holm's correction of 24 comparisons lets 40 % of claims through. This one
covers no less, and lets up to 24 % through, with five seeds 11 % and with ten 7 %. So many are let through where seeds
shift all rows alike. Where half of the seeds' variance is what rows and seeds do together, it is about 5 % or less.)

Three seeds may agree by chance, and then s² says that nothing varies. What rows and seeds do together can be measured
on the rows, and no variance of the seeds is smaller. It is the floor of what n seeds leave open.

All of this is about one pre-trained checkpoint: how another pre-training would end is in no interval.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

NUM_RESAMPLES = 1000
LEVEL = 0.05
FEWEST_SEEDS = 3  # two tell too little of their spread to decide anything

# By seed the score × 100, and behind it those of `NUM_RESAMPLES` resamples of the rows; NaN if a run kept no answers.
Scores = dict[int, np.ndarray]


def average(all_scores: Sequence[Scores]) -> Scores:
    """The mean over several sets of scores, seed by seed, at the seeds that all have."""
    common = sorted(set.intersection(*map(set, all_scores)))
    return {seed: np.mean([scores[seed] for scores in all_scores], axis=0) for seed in common}


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, or a difference of two such means, with the variances of its errors."""

    value: float
    num_seeds: int
    variance_of_seeds: float | None  # of the mean; None of a single seed
    variance_of_rows: float | None  # of the mean; None if the runs kept no answers
    least_variance_of_seeds: float = 0.0  # that it can have in truth: of what rows and seeds do together

    @property
    def decides(self) -> bool:
        return self.num_seeds >= FEWEST_SEEDS and self.variance_of_rows is not None

    @property
    def p(self) -> float | None:
        """Two-sided p value of no difference, if there are seeds and rows enough for one."""
        if not self.decides:
            return None
        return float(
            p_value(
                self.value,
                self.variance_of_seeds,
                self.variance_of_rows,
                self.num_seeds,
                self.least_variance_of_seeds,
            )
        )

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval: over rows and seeds, or over the rows alone if there are fewer than three seeds."""
        if self.variance_of_rows is None:
            return None
        of_seeds, least_of_seeds = 0.0, 0.0
        if self.decides:
            of_seeds, least_of_seeds = self.variance_of_seeds, self.least_variance_of_seeds
        num_seeds = max(self.num_seeds, 2)

        def above_level(width: float) -> float:
            return float(p_value(width, of_seeds, self.variance_of_rows, num_seeds, least_of_seeds)) - LEVEL

        half = brentq(above_level, 0, 100 * np.sqrt(of_seeds + least_of_seeds + self.variance_of_rows) + 1e-9)
        return self.value - half, self.value + half


def estimate(scores: Scores) -> Estimate:
    """The mean of some scores with its errors."""
    num_seeds = len(scores)
    all_scores = np.stack([scores[seed] for seed in sorted(scores)])  # [seeds, 1 + NUM_RESAMPLES]
    values = all_scores[:, 0]
    resampled = all_scores[:, 1:]
    variance_of_seeds = float(values.var(ddof=1) / num_seeds) if num_seeds > 1 else None
    of_mean = resampled.mean(axis=0).var(ddof=1)
    if np.isnan(of_mean):
        return Estimate(float(values.mean()), num_seeds, variance_of_seeds, None)
    variance_of_rows = of_mean
    together = 0.0
    if num_seeds >= FEWEST_SEEDS:
        together = of_rows_and_seeds(of_mean, resampled.var(axis=1, ddof=1).mean(), num_seeds)
        variance_of_rows = np.maximum(of_mean - together, 0.0)  # the variance of the seeds has it already
    return Estimate(float(values.mean()), num_seeds, variance_of_seeds, float(variance_of_rows), float(together))


def of_rows_and_seeds(of_mean: np.ndarray | float, of_each: np.ndarray | float, num_seeds: int) -> np.ndarray:
    """The variance of the mean by what rows and seeds do together.

    Args:
        of_mean: the rows' variance of the mean over the seeds.
        of_each: the rows' mean variance of one seed's score.
        num_seeds: how many seeds there are.
    """
    return np.maximum(of_each - of_mean, 0.0) / (num_seeds - 1)


def difference(first: Scores, second: Scores) -> Estimate:
    """The first minus the second, at the seeds that both have; without any, of all, which decides nothing."""
    if common := set(first) & set(second):
        return estimate({seed: first[seed] - second[seed] for seed in common})
    return Estimate(estimate(first).value - estimate(second).value, 0, None, None)


def p_value(
    value: np.ndarray | float,
    variance_of_seeds: np.ndarray | float,
    variance_of_rows: np.ndarray | float,
    num_seeds: int,
    least_variance_of_seeds: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Two-sided p value of no difference, by its value and the variances of an [`Estimate`].

    The seeds' variance is unknown: s² / n has n − 1 degrees of freedom. The p value is averaged over what it may be,
    which is nowhere below its least. A flat prior of its logarithm gives the interval of Behrens and Fisher, which
    covers too much with three seeds if rows and seeds count alike. Times (1 + rows' variance / seeds' variance)^1.5
    it covers 92 to 99 % with three seeds and 94 to 98 % with ten, and 93 to 97 % where the seeds happen to agree
    because it is at its least.
    """
    numbers = (value, variance_of_seeds, variance_of_rows, least_variance_of_seeds)
    value, of_seeds, of_rows, least_of_seeds = (np.asarray(number, dtype=np.float64)[..., None] for number in numbers)
    logarithm = np.linspace(np.log(1e-3), np.log(1e5), 81)  # of the true variance by the measured one
    possible = np.maximum(of_seeds, 1e-12 * of_rows + 1e-24) * np.exp(logarithm)
    likelihood = np.exp(-(num_seeds - 1) / 2 * (logarithm + np.exp(-logarithm)))
    weights = likelihood * (1 + of_rows / possible) ** 1.5
    found = 2 * norm.sf(np.abs(value) / np.sqrt(of_rows + np.maximum(possible, least_of_seeds)))
    return (weights * found).sum(-1) / weights.sum(-1)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values by Holm's correction.

    If each alone is right, one of them is below 0.05 without cause in at most 5 % of cases.
    """
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
        metric: "accuracy", "f1" of class 1, or a correlation; of two classes Matthews' is Pearson's.
    """
    gold, given = (np.array(numbers.split(), dtype=np.float64) for numbers in (labels, predictions))
    weights = weights_of(labels)

    def means(values: np.ndarray) -> np.ndarray:  # [NUM_RESAMPLES]
        return weights @ values.astype(np.float64) / weights.sum(axis=1)

    with np.errstate(divide="ignore", invalid="ignore"):
        if metric == "accuracy":
            scores = means(gold == given)
        elif metric == "f1":
            scores = 2 * means(gold * given) / (means(gold) + means(given))
        else:  # in units of their own spread, so that answers that differ little lose no digits
            gold, given = ((values - values.mean()) / (values.std() or 1) for values in (gold, given))
            variances = (means(gold**2) - means(gold) ** 2) * (means(given**2) - means(given) ** 2)
            covariances = means(gold * given) - means(gold) * means(given)
            scores = covariances / np.sqrt(np.where(variances > 1e-12, variances, 0.0))
    return 100 * np.where(np.isfinite(scores), scores, 0.0)  # without any variance there is no correlation


def constant_answer(labels: str, metric: str) -> float:
    """The score × 100 of the best answer that is the same for every row."""
    gold = np.array(labels.split(), dtype=np.float64)
    if metric == "f1":
        return float(100 * 2 * gold.mean() / (1 + gold.mean()))
    if metric == "accuracy":
        _, counts = np.unique(gold, return_counts=True)
        return float(100 * counts.max() / len(gold))
    return 0.0  # a correlation

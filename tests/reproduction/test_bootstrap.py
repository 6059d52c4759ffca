"""The paired bootstrap behind a verdict: resampled scores, their intervals, and what constant answers score."""

import math
import statistics

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

from modeling_gpt1.reproduction import charts, claims
from modeling_gpt1.reproduction.bootstrap import (
    Scores,
    average,
    constant_answer,
    guessing,
    interval,
    resample,
)

GOLD = np.random.default_rng(0).integers(0, 2, 800)


@pytest.fixture
def generator():
    """One of each test's own: the numbers do not depend on the tests that ran before."""
    return np.random.default_rng(1)


def answers(share: float, generator: np.random.Generator) -> np.ndarray:
    """Predictions of which about that share is right."""
    return np.where(generator.random(len(GOLD)) < share, GOLD, 1 - GOLD)


def text(numbers) -> str:
    return " ".join(f"{number:g}" for number in numbers)


@pytest.mark.parametrize(
    ("metric", "score"),
    [
        ("accuracy", lambda gold, given: float(np.mean(gold == given))),
        ("f1", f1_score),
        ("matthews_correlation", matthews_corrcoef),
        ("pearson", lambda gold, given: float(np.corrcoef(gold, given)[0, 1])),
    ],
)
def test_resampled_scores_lie_around_the_score(metric, score, generator):
    given = answers(0.7, generator) if metric != "pearson" else GOLD + generator.normal(size=len(GOLD)).round(3)
    resampled = resample(text(GOLD), text(given), metric)
    assert resampled.shape == (1000,) and resampled.mean() == pytest.approx(100 * score(GOLD, given), abs=0.5)
    # An independent bootstrap: rows drawn with replacement.
    drawn = [score(GOLD[rows], given[rows]) for rows in generator.integers(0, len(GOLD), (400, len(GOLD)))]
    assert resampled.std() == pytest.approx(100 * statistics.stdev(drawn), rel=0.15)


def test_a_constant_prediction_has_no_correlation():
    assert set(resample(text(GOLD), text(np.ones(len(GOLD))), "matthews_correlation")) == {0.0}
    assert set(resample(text(GOLD), text(np.full(len(GOLD), 0.1)), "pearson")) == {0.0}


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews_correlation", "pearson"])
def test_few_rows_give_finite_scores(metric):
    """Among resamples of three rows are some without a row, and some whose rows are all alike."""
    with np.errstate(over="raise"):
        found = resample("0 1 1", "1 1 0" if metric != "pearson" else "0.3 0.1 0.7", metric)
    assert np.isfinite(found).all() and np.abs(found).max() <= 100.001


@pytest.fixture
def scores_of(generator):
    def scores_of(*shares: float) -> Scores:
        given = {seed: text(answers(share, generator)) for seed, share in enumerate(shares)}
        resampled = {seed: resample(text(GOLD), of_seed, "accuracy") for seed, of_seed in given.items()}
        return Scores({seed: float(found.mean()) for seed, found in resampled.items()}, resampled)

    return scores_of


def test_an_interval_decides(scores_of):
    """Ten points apart, a tenth of a point apart, and the same runs in the other order."""
    good, bad, same = scores_of(0.8, 0.81, 0.79), scores_of(0.7, 0.71, 0.69), scores_of(0.8, 0.8, 0.8)
    better, worse, level = (claims.compare("RTE", *of) for of in ((good, bad), (bad, good), (good, same)))
    assert (better.outcome, worse.outcome, level.outcome) == ("better", "worse", "level")
    low, high = interval(good.resampled, bad.resampled)
    assert 5 < low < 10 < high < 15
    assert better.text.endswith(f"(95 % interval +{low:.1f} to +{high:.1f})")


def test_rows_and_seeds_pair(scores_of):
    """The same rows are drawn for both, so what all runs find hard takes no part in the difference."""
    first = scores_of(0.8, 0.8)
    shifted = Scores(first, {seed: found - 1 for seed, found in first.resampled.items()})
    assert interval(first.resampled, shifted.resampled) == (pytest.approx(1), pytest.approx(1))
    other_seeds = {seed + 5: found for seed, found in shifted.resampled.items()}
    low, high = interval(first.resampled, other_seeds)
    assert high - low > 0.1


def test_the_seeds_that_both_have_are_compared(scores_of):
    """An effect of one point at every seed, of which one side lacks the best."""
    base = scores_of(0.7, 0.7)
    resampled = {seed: base.resampled[0] + 5 * seed for seed in range(3)}
    first = Scores({seed: 70.0 + 5 * seed for seed in range(3)}, resampled)
    second = Scores({seed: 69.0 + 5 * seed for seed in range(2)}, {seed: resampled[seed] - 1 for seed in range(2)})
    assert claims.compare("RTE", first, second) == claims.Comparison(
        "better", "RTE 72.5 [70.0–75.0] against 71.5 [69.0–74.0], +1.0 (95 % interval +1.0 to +1.0)"
    )
    assert charts.difference(second, first) == {"y": -1.0, "lowest": -1.0, "highest": -1.0}
    # Two seeds each, of which one is common, do not pair.
    other = Scores({2: 79.0, 1: 74.0}, {2: resampled[2] - 1, 1: resampled[1] - 1})
    assert charts.difference(second, other)["y"] == -5.0 and claims.compare("RTE", second, other).outcome == "level"


def test_a_single_seed_decides_nothing(scores_of):
    found = claims.compare("RTE", scores_of(0.9), scores_of(0.5, 0.5))
    assert found.outcome == "level" and found.text.endswith("(one seed, spread unknown)")
    without_spread = charts.difference(scores_of(0.9), scores_of(0.5, 0.5))
    assert 30 < without_spread.pop("y") < 50 and without_spread == {"lowest": None, "highest": None}


def test_an_average_keeps_what_was_resampled(scores_of):
    one, two = scores_of(0.8, 0.8), scores_of(0.6, 0.6)
    mean = average([one, two], {0, 1})
    assert mean[0] == pytest.approx((one[0] + two[0]) / 2)
    assert mean.resampled[1] == pytest.approx((one.resampled[1] + two.resampled[1]) / 2)
    assert average([one, Scores({0: 1.0, 1: 2.0})], {0, 1}).resampled == {}


def test_constant_answers_and_guessing():
    labels = "1 1 1 0"
    assert constant_answer(labels, "accuracy") == 75 and guessing(labels, "accuracy", 3) == pytest.approx(100 / 3)
    assert constant_answer(labels, "f1") == pytest.approx(100 * f1_score([1, 1, 1, 0], [1, 1, 1, 1]))
    assert guessing(labels, "f1", 2) == pytest.approx(60)
    assert constant_answer(labels, "pearson") == guessing(labels, "matthews_correlation", 2) == 0
    assert math.isclose(constant_answer("0 0 1 2", "accuracy"), 50)

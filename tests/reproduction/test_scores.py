"""The statistics behind a verdict: how often they are wrong, how much they see, and what they resample."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

from modeling_gpt1.reproduction import claims, scores
from modeling_gpt1.reproduction.claims import judge

GOLD = np.random.default_rng(0).integers(0, 2, 800)


@pytest.fixture
def generator():
    """One of each test's own: the numbers do not depend on the tests that ran before."""
    return np.random.default_rng(1)


# ---- How often a verdict is wrong

# Spread of the seeds by the error of the rows, of a scores.difference of two settings.
RATIOS = (0, 0.5, 1, 2, 4, math.inf)


def answered(generator, trials: int, num_seeds: int, ratio: float, num_rows: int = 150, effect: float = 0.0):
    """Mean differences of two settings' answers to the same rows, with the variances of their errors.

    In truth the first setting is right more often by `effect`. A row is right as often as its difficulty for a setting
    and the seed say. Where seeds dominate, rows do not differ.

    Returns:
        The arguments of `p_value` but the number of seeds, for each trial, by their names.
    """
    spread = 0.0 if ratio == math.inf else 0.2
    seed_spread = 0.15 if ratio == math.inf else ratio * spread / math.sqrt(num_rows)
    each = np.zeros((trials, num_seeds, num_rows), np.float32)
    for sign in (1, -1):
        difficulty = 0.5 + sign * effect / 2
        difficulty += spread * generator.choice((-1, 1), (trials, 1, num_rows)).astype(np.float32)
        of_seed = seed_spread * generator.standard_normal((trials, num_seeds, 1), np.float32)
        each += sign * (generator.random(each.shape, np.float32) < difficulty + of_seed)
    by_seed = each.mean(axis=2)
    of_mean = each.mean(axis=1).var(axis=1, ddof=1) / num_rows
    of_each = each.var(axis=2, ddof=1).mean(axis=1) / num_rows
    together = scores.of_rows_and_seeds(of_mean, of_each, num_seeds)
    return {
        "value": by_seed.mean(axis=1),
        "variance_of_seeds": by_seed.var(axis=1, ddof=1) / num_seeds,
        "variance_of_rows": np.maximum(of_mean - together, 0),
        "least_variance_of_seeds": together,
    }


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
@pytest.mark.parametrize("effect", [0.0, 0.1])
def test_95_percent_of_intervals_cover_the_truth(num_seeds, effect, generator):
    """No effect, and a planted one of ten points. Of three seeds that hardly vary intervals are a bit wide."""
    covered = {}
    for ratio in RATIOS:
        found = answered(generator, 3000, num_seeds, ratio, effect=effect)
        found["value"] = found["value"] - effect
        covered[ratio] = round(100 * float(np.mean(scores.p_value(num_seeds=num_seeds, **found) > 0.05)), 1)
    print(f"{num_seeds} seeds:", covered)
    assert all(93 <= share <= 98.5 for share in covered.values()), covered


def coverage_where_seeds_agree(generator, num_seeds: int, ratio: float, **changed) -> float:
    """Share × 100 of covering intervals among the tenth of trials whose seeds differ least."""
    found = answered(generator, 20_000, num_seeds, ratio)
    agree = np.argsort(found["variance_of_seeds"])[:2000]
    found = {name: values[agree] for name, values in found.items()} | changed
    return 100 * float(np.mean(scores.p_value(num_seeds=num_seeds, **found) > 0.05))


def test_intervals_that_cover_the_least_are_those_of_three_seeds_that_shift_all_rows_alike(generator):
    """Errors are normal, the seeds' of variance 1, the rows' of 0.3."""
    covered = []
    for num_seeds in (3, 10):
        seeds = generator.standard_normal((40_000, num_seeds)) * math.sqrt(num_seeds)
        value = seeds.mean(axis=1) + math.sqrt(0.3) * generator.standard_normal(40_000)
        p_values = scores.p_value(value, seeds.var(axis=1, ddof=1) / num_seeds, 0.3, num_seeds)
        covered.append(100 * np.mean(p_values > 0.05))
    assert 92 <= covered[0] < 93
    assert 94 <= covered[1] <= 95.5


@pytest.mark.parametrize("num_seeds", [3, 5, 10])
@pytest.mark.parametrize("ratio", [0, 0.5])
def test_95_percent_of_intervals_cover_the_truth_where_seeds_happen_to_agree(num_seeds, ratio, generator):
    assert 93 <= coverage_where_seeds_agree(generator, num_seeds, ratio) <= 97


def test_without_a_least_variance_agreeing_seeds_would_promise_too_much(generator):
    assert coverage_where_seeds_agree(generator, 3, 0, least_variance_of_seeds=0.0) < 85


def test_seeds_that_agree_entirely_leave_the_least_variance():
    """An interval of three equal differences is that of rows and of rows with seeds."""
    agreeing = scores.Estimate(
        value=2.0, num_seeds=3, variance_of_seeds=0.0, variance_of_rows=0.7, least_variance_of_seeds=0.3
    )
    low, high = agreeing.interval
    assert (high - low) / 2 == pytest.approx(1.96, rel=1e-3)


@pytest.mark.parametrize(("num_seeds", "ratio", "power"), [(3, 0.5, 0.92), (3, 4, 0.6), (5, 2, 0.91)])
def test_power(num_seeds, ratio, power, generator):
    """Of differences that are 3.5 times their error, whose errors are normal, the rows' of variance 1."""
    effect = 3.5 * math.sqrt(1 + ratio**2 / num_seeds)
    by_seed = ratio * generator.standard_normal((2000, num_seeds)) + generator.standard_normal((2000, 1)) + effect
    p_values = scores.p_value(by_seed.mean(axis=1), by_seed.var(axis=1, ddof=1) / num_seeds, np.ones(2000), num_seeds)
    assert np.mean(p_values < 0.05) == pytest.approx(power, abs=0.03)


def test_limits_are_the_textbooks_intervals():
    """Without an error of rows a paired t test, without one of seeds a z test."""
    values = np.array([1.0, 2.5, 1.7])
    paired = stats.ttest_1samp(values, 0).pvalue
    assert scores.p_value(values.mean(), values.var(ddof=1) / 3, 0.0, 3) == pytest.approx(paired, rel=1e-3)
    assert scores.p_value(2.5, 0.0, 1.0, 3) == pytest.approx(2 * stats.norm.sf(2.5), rel=1e-3)


def test_holm():
    assert scores.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert scores.holm([0.9, 0.6]) == [1, 1]
    assert scores.holm([]) == []


@pytest.mark.parametrize(
    ("num_seeds", "num_comparisons", "together", "least", "most"),
    [
        (3, 24, 0.0, 10, 26),  # so nobody may say 5 %
        (3, 8, 0.0, 10, 16),
        (5, 24, 0.0, 5, 13),
        (10, 24, 0.0, 5, 8),
        (3, 24, 0.5, 0, 6.5),
        (10, 24, 0.5, 0, 6.5),
    ],
)
def test_how_often_a_claim_without_cause_is_let_through(num_seeds, num_comparisons, together, least, most, generator):
    """Per cent of claims of which one comparison or more is significant; errors are normal, the seeds' of variance 1.

    The first of Holm's limits decides whether any is.
    """
    let_through = {}
    for of_rows in (0.1, 0.3, 1, 10):
        seeds = generator.standard_normal((40_000, num_seeds)) * math.sqrt(num_seeds)
        value = seeds.mean(axis=1) + math.sqrt(of_rows) * generator.standard_normal(40_000)
        of_seeds = seeds.var(axis=1, ddof=1) / num_seeds
        share = np.mean(scores.p_value(value, of_seeds, of_rows, num_seeds, together) < 0.05 / num_comparisons)
        let_through[of_rows] = 100 * (1 - (1 - share) ** num_comparisons)
    assert least < max(let_through.values()) < most, let_through


def test_curves_that_vary_alike_are_undecided(generator):
    """Two models that answer 400 rows anew at each checkpoint; one varies more if its score really changes."""
    guessing = (generator.binomial(400, 0.5, (2, 300, 12)) / 400).tolist()
    told = [claims.by_variation("", *of, 0.025) for of in zip(*guessing, strict=True)]
    assert np.mean([comparison.p < 0.05 for comparison in told]) <= 0.05
    steady, unsteady = [0.5] * 12, [0.2, 0.8] * 6
    verdicts = [judge([claims.by_variation("", *of, 0.025)])[0] for of in ((steady, unsteady), (unsteady, steady))]
    assert verdicts == ["holds", "does not hold"]


def test_a_third_of_a_curve_is_the_mean_of_its_points():
    curve = [(step, score, 0.1 * step, "") for step, score in enumerate((1.0, 3.0, 9.0, 9.0, 4.0, 8.0), start=1)]
    assert claims.third_of(curve, last=False) == pytest.approx((2, 0.6))
    assert claims.third_of(curve, last=True) == pytest.approx((6, 0.6))


# ---- What two settings have in common


def answers(share: float, generator: np.random.Generator) -> np.ndarray:
    """Predictions of which about that share is right."""
    return np.where(generator.random(len(GOLD)) < share, GOLD, 1 - GOLD)


def text(numbers) -> str:
    return " ".join(map(str, numbers))


@pytest.fixture
def scores_of(generator):
    def scores_of(*shares: float) -> scores.Scores:
        given = {seed: text(answers(share, generator)) for seed, share in enumerate(shares)}
        resampled = {seed: scores.resample(text(GOLD), of_seed, "accuracy") for seed, of_seed in given.items()}
        return {seed: np.append(found.mean(), found) for seed, found in resampled.items()}

    return scores_of


def test_an_interval_decides(scores_of):
    """Ten points apart, a tenth of a point apart, and the same runs in the other order."""
    good, bad, same = scores_of(0.8, 0.81, 0.79), scores_of(0.7, 0.71, 0.69), scores_of(0.8, 0.8, 0.8)
    found = [claims.compare("RTE", *of) for of in ((good, bad), (bad, good), (good, same))]
    assert [judge([comparison])[1][0]["outcome"] for comparison in found] == ["better", "worse", "level"]
    low, high = scores.difference(good, bad).interval
    assert 4 < low < 10 < high < 16
    assert found[0].text.endswith(f"95 % interval +{low:.1f} to +{high:.1f}")
    # The interval ends where the scores.difference would not count any more.
    of = scores.difference(good, bad)
    of_rows, of_seeds, least = of.variance_of_rows, of.variance_of_seeds, of.least_variance_of_seeds
    assert scores.p_value(of.value - low, of_seeds, of_rows, 3, least) == pytest.approx(0.05, abs=1e-6)


def test_variances_are_those_of_the_answers(generator):
    """The row error is common to all seeds and stays whole; what is each seed's own is in the spread of the seeds."""
    hard = generator.random(len(GOLD)) < 0.3  # no run gets these rows
    given = [np.where(hard, 1 - GOLD, answers(0.8, generator)) for _ in range(4)]
    right = np.array([predictions == GOLD for predictions in given])
    resampled = [scores.resample(text(GOLD), text(of), "accuracy") for of in given]
    kept = {seed: np.append(100 * right[seed].mean(), of) for seed, of in enumerate(resampled)}
    found = scores.estimate(kept)
    together = (right.var(axis=1).mean() - right.mean(axis=0).var()) / 3
    assert found.variance_of_rows == pytest.approx(1e4 * (right.mean(axis=0).var() - together) / len(GOLD), rel=0.1)
    assert found.variance_of_seeds == pytest.approx(1e4 * right.mean(axis=1).var(ddof=1) / 4)
    assert found.value == pytest.approx(100 * right.mean())
    # From three seeds on, what rows and seeds do together is in the seeds' variance alone.
    assert scores.of_rows_and_seeds(4.0, 6.0, 3) == 1
    of_mean, of_each = np.mean(resampled[:3], axis=0).var(ddof=1), np.var(resampled[:3], axis=1, ddof=1).mean()
    three = scores.estimate({seed: kept[seed] for seed in range(3)})
    assert three.variance_of_rows == pytest.approx(of_mean - (of_each - of_mean) / 2)
    assert three.least_variance_of_seeds == pytest.approx((of_each - of_mean) / 2)


def test_resampling_has_a_fixed_seed():
    """Whoever asks, and whenever, the same rows are drawn; those of another task are not drawn alike."""
    predictions = text(1 - GOLD[:400]) + " " + text(GOLD[400:])
    first = scores.resample(text(GOLD), predictions, "f1")
    for cached in (scores.resample, scores.weights_of):
        cached.cache_clear()
    assert (scores.resample(text(GOLD), predictions, "f1") == first).all()
    assert (scores.weights_of(text(GOLD)) != scores.weights_of(text(1 - GOLD))).any()


def test_the_seeds_that_both_have_are_compared(scores_of):
    """An effect of one point at every seed, of which one side lacks the best."""
    base = np.append(70.0, scores_of(0.7)[0][1:])
    first = {seed: base + 5 * seed for seed in range(4)}
    found = claims.compare("RTE", first, {seed: base + 5 * seed - 1 for seed in range(3)})
    assert found.text == "RTE +1.0, 95 % interval +1.0 to +1.0"
    assert found.p < 1e-6


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_fewer_than_three_seeds_decide_nothing(num_seeds, scores_of):
    first, second = scores_of(*[0.9] * num_seeds), scores_of(0.5, 0.5, 0.5)
    found = claims.compare("RTE", first, second)
    assert found.p is None
    assert "fewer than 3 seeds decide nothing" in found.text
    assert 30 < found.difference < 50
    assert judge([found])[0] == "undecided"
    # An interval of their own is over the rows alone.
    own = scores.estimate(first)
    low, high = own.interval
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(own.variance_of_rows), rel=1e-3)
    without_common = scores.difference(first, {7: np.full(1001, 50.0)})
    assert not without_common.decides
    assert without_common.value == pytest.approx(own.value - 50)


def test_an_average_keeps_what_was_resampled(scores_of):
    one, two = scores_of(0.8, 0.8), scores_of(0.6, 0.6, 0.6)
    mean = scores.average([two, one])
    assert list(mean) == [0, 1]
    assert mean[1] == pytest.approx((one[1] + two[1]) / 2)
    without_answers = scores.average([one, {seed: np.append(1.0, np.full(1000, np.nan)) for seed in (0, 1)}])
    assert scores.estimate(without_answers).value == pytest.approx((one[0][0] + one[1][0]) / 4 + 0.5)
    assert scores.estimate(without_answers).variance_of_rows is None


# ---- Rows


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
    resampled = scores.resample(text(GOLD), text(given), metric)
    assert resampled.shape == (1000,)
    assert resampled.mean() == pytest.approx(100 * score(GOLD, given), abs=0.5)
    # An independent bootstrap: rows drawn with replacement.
    drawn = [score(GOLD[rows], given[rows]) for rows in generator.integers(0, len(GOLD), (400, len(GOLD)))]
    assert resampled.std() == pytest.approx(100 * np.std(drawn), rel=0.15)


def test_answers_that_differ_little_correlate_as_well(generator):
    """As those of a regression that has learned little: 2.7 and a millionth of the label."""
    given = 2.7 + 1e-6 * (GOLD + generator.normal(size=len(GOLD)))
    expected = 100 * np.corrcoef(GOLD, given)[0, 1]
    assert scores.resample(text(GOLD), text(given), "pearson").mean() == pytest.approx(expected, abs=0.5)


def test_without_any_variance_there_is_no_correlation():
    """Nor among the resamples of three rows that have no row, or rows that are all alike."""
    assert np.isfinite(scores.resample("0 1 1", "0.3 0.1 0.7", "pearson")).all()
    assert np.isfinite(scores.resample("0 1 1", "1 1 0", "f1")).all()
    assert set(scores.resample(text(GOLD), text(np.ones(len(GOLD), int)), "matthews_correlation")) == {0.0}
    assert set(scores.resample(text(GOLD), text(np.full(len(GOLD), 0.1)), "pearson")) == {0.0}


def test_constant_answers():
    labels = "1 1 1 0"
    assert scores.constant_answer(labels, "accuracy") == 75
    assert scores.constant_answer("0 0 1 2", "accuracy") == 50
    assert scores.constant_answer(labels, "f1") == pytest.approx(100 * f1_score([1, 1, 1, 0], [1, 1, 1, 1]))
    assert scores.constant_answer(labels, "pearson") == 0

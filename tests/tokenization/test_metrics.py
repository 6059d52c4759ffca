"""The scores against scikit-learn and scipy, on literal and random data, and where they are undefined."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from tokenization.metrics import METRICS
from tokenization.tasks import METRIC_NAMES

ORACLES = {
    "accuracy": sklearn_metrics.accuracy_score,
    "f1": lambda true, predicted: sklearn_metrics.f1_score(true, predicted, zero_division=0),
    "matthews_correlation": sklearn_metrics.matthews_corrcoef,
    "pearson": lambda true, predicted: stats.pearsonr(true, predicted).statistic,
    "spearmanr": lambda true, predicted: stats.spearmanr(true, predicted).statistic,
}


def test_a_task_knows_the_names_of_all_scores():
    assert tuple(METRICS) == METRIC_NAMES


def score(name, predictions, references):
    scores = METRICS[name](keep_in_memory=True).compute(predictions=predictions, references=references)
    assert list(scores) == [name]
    assert type(scores[name]) is float
    return scores[name]


# 2 hits, 1 miss, 1 false alarm and 1 right refusal.
@pytest.mark.parametrize(
    ("name", "expected"), [("accuracy", 3 / 5), ("f1", 4 / 6), ("matthews_correlation", (2 * 1 - 1 * 1) / 6)]
)
def test_class_scores_of_a_small_table(name, expected):
    assert score(name, [1, 1, 0, 1, 0], [1, 1, 1, 0, 0]) == pytest.approx(expected, abs=1e-12)


def test_correlations_of_a_small_table():
    # Ranks 1 3 2 4 against 1 2 3 4; deviations -2 0 -1 3 against -1.5 -0.5 0.5 1.5.
    assert score("spearmanr", [1.0, 3.0, 2.0, 6.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(0.8, abs=1e-12)
    assert score("pearson", [1.0, 3.0, 2.0, 6.0], [1.0, 2.0, 3.0, 4.0]) == pytest.approx(7 / 70**0.5, abs=1e-12)


@pytest.mark.parametrize("name", ["accuracy", "f1", "matthews_correlation"])
@pytest.mark.parametrize("seed", range(5))
def test_binary_scores_equal_scikit_learn(name, seed):
    generator = np.random.default_rng(seed)
    references, predictions = generator.integers(0, 2, (2, 301))
    assert score(name, predictions, references) == pytest.approx(ORACLES[name](references, predictions), abs=1e-12)


@pytest.mark.parametrize("name", ["accuracy", "matthews_correlation"])
def test_scores_of_several_classes_equal_scikit_learn(name):
    generator = np.random.default_rng(7)
    references = generator.integers(0, 5, 400)
    predictions = np.where(generator.random(400) < 0.6, references, generator.integers(0, 4, 400))
    assert score(name, predictions, references) == pytest.approx(ORACLES[name](references, predictions), abs=1e-12)


@pytest.mark.parametrize("name", ["pearson", "spearmanr"])
@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_scipy(name, seed):
    generator = np.random.default_rng(seed)
    # Steps of 0.2, so that the ranks have ties.
    references = generator.integers(0, 26, 200) / 5
    predictions = np.round(0.7 * references + generator.normal(size=200), 1)
    assert score(name, predictions, references) == pytest.approx(ORACLES[name](references, predictions), abs=1e-12)


def test_matthews_does_not_overflow_on_counts_of_a_large_data_set():
    references = np.repeat([0, 1], 200_000)
    predictions = np.where(np.arange(400_000) % 4 == 0, 1 - references, references)
    assert score("matthews_correlation", predictions, references) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "predictions", "references", "expected"),
    [
        ("f1", [0, 0, 0], [0, 0, 0], 0.0),
        ("f1", [1, 1, 1], [1, 1, 1], 1.0),
        ("f1", [0, 0, 0], [1, 1, 1], 0.0),
        ("matthews_correlation", [1, 1, 1], [0, 1, 1], 0.0),
        ("matthews_correlation", [0, 1, 1], [1, 1, 1], 0.0),
        ("matthews_correlation", [1, 1, 0], [0, 0, 0], 0.0),
        ("accuracy", [2], [2], 1.0),
    ],
)
def test_one_class_scores_as_in_scikit_learn(name, predictions, references, expected):
    assert score(name, predictions, references) == expected
    assert ORACLES[name](references, predictions) == expected


@pytest.mark.parametrize("name", ["pearson", "spearmanr"])
@pytest.mark.parametrize(
    ("predictions", "references"),
    [([0.1, 0.1, 0.1], [1.0, 2.0, 4.0]), ([1.0, 2.0, 4.0], [0.1, 0.1, 0.1]), ([3.0], [2.0])],
)
def test_correlation_with_a_constant_is_zero(name, predictions, references):
    assert score(name, predictions, references) == 0.0


@pytest.mark.parametrize("name", ["pearson", "spearmanr"])
def test_a_nan_among_the_predictions_is_not_hidden(name):
    assert np.isnan(score(name, [1.0, float("nan"), 3.0], [1.0, 2.0, 3.0]))


def test_a_metric_can_be_computed_again():
    accuracy = METRICS["accuracy"](keep_in_memory=True)
    assert accuracy.compute(predictions=[0, 1], references=[0, 1]) == {"accuracy": 1.0}
    assert accuracy.compute(predictions=[0, 1, 1, 1], references=[0, 0, 0, 0]) == {"accuracy": 0.25}

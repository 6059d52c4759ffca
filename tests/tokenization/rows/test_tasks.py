"""The table of tasks, predictions from logits, and the scores against scikit-learn and scipy."""

import re
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats
from sklearn import exceptions as sklearn_exceptions
from sklearn import metrics as sklearn_metrics
from transformers import EvalPrediction

from tokenization import TASKS, Task, compute_metrics_for, get_task
from tokenization.errors import UserError
from tokenization.rows.metrics import SCORES, compute, find_metric
from tokenization.rows.tasks import predictions_from_logits
from tokenization.rows.traversals import TRAVERSALS

GLUE = "nyu-mll/glue"
PAPER = {
    "sst2": ((GLUE, "sst2"), "classification", 2, ("accuracy",)),
    "cola": ((GLUE, "cola"), "classification", 2, ("matthews_correlation",)),
    "mrpc": ((GLUE, "mrpc"), "similarity", 2, ("f1", "accuracy")),
    "stsb": ((GLUE, "stsb"), "similarity", 1, ("pearson", "spearmanr")),
    "qqp": ((GLUE, "qqp"), "similarity", 2, ("f1", "accuracy")),
    "mnli": ((GLUE, "mnli"), "entailment", 3, ("accuracy",)),
    "snli": (("stanfordnlp/snli", "plain_text"), "entailment", 3, ("accuracy",)),
    "qnli": ((GLUE, "qnli"), "entailment", 2, ("accuracy",)),
    "rte": ((GLUE, "rte"), "entailment", 2, ("accuracy",)),
    "scitail": (("allenai/scitail", "tsv_format"), "entailment", 2, ("accuracy",)),
    "race": (("ehovy/race", "all"), "multiple_choice", 1, ("accuracy",)),
    "race-middle": (("ehovy/race", "middle"), "multiple_choice", 1, ("accuracy",)),
    "race-high": (("ehovy/race", "high"), "multiple_choice", 1, ("accuracy",)),
    "story_cloze": (("LSDSem/story_cloze", "2016"), "multiple_choice", 1, ("accuracy",)),
}


def test_the_tasks_of_the_paper():
    assert {
        name: ((task.hub_path, task.hub_config), task.traversal, task.num_labels, task.metrics)
        for name, task in TASKS.items()
    } == PAPER
    names = {"SST-2": "sst2", "STS-B": "stsb", "StoryCloze": "story_cloze", "race_high": "race-high"}
    for typed, name in names.items():
        assert get_task(typed) is TASKS[name]


PAIR_OF_GLUE = ["sentence1", "sentence2"]
NATURAL_LANGUAGE_INFERENCE = ["premise", "hypothesis"]
THREE_WAY = ("entailment", "neutral", "contradiction")
TWO_WAY = ("entailment", "not_entailment")
STORY = ["context", ["ending1", "ending2"]]
# Columns of the texts in the order in which they are read, and classes in the order of their ids, as in the releases.
TEXTS_AND_CLASSES = {
    "sst2": (["sentence"], ("negative", "positive")),
    "cola": (["sentence"], ("unacceptable", "acceptable")),
    "mrpc": (PAIR_OF_GLUE, ("not_equivalent", "equivalent")),
    "stsb": (PAIR_OF_GLUE, ()),
    "qqp": (["question1", "question2"], ("not_duplicate", "duplicate")),
    "mnli": (NATURAL_LANGUAGE_INFERENCE, THREE_WAY),
    "snli": (NATURAL_LANGUAGE_INFERENCE, THREE_WAY),
    "qnli": (["question", "sentence"], TWO_WAY),
    "rte": (PAIR_OF_GLUE, TWO_WAY),
    "scitail": (NATURAL_LANGUAGE_INFERENCE, ("entails", "neutral")),
    "race": (["article", "options", "question"], ()),
    "race-middle": (["article", "options", "question"], ()),
    "race-high": (["article", "options", "question"], ()),
    "story_cloze": (STORY, ()),
}


def test_each_task_reads_its_texts_and_numbers_its_classes_as_its_release_does():
    found = {}
    for name, task in TASKS.items():
        traversal = TRAVERSALS[task.traversal]
        roles = [role for role in (*traversal.roles, *traversal.optional_roles) if role in task.columns]
        found[name] = ([task.columns[role] for role in roles], task.label_names)
    assert found == TEXTS_AND_CLASSES


def test_predictions_are_the_greatest_logits_of_the_first_output():
    logits = np.array([[0.1, 0.9, 0.0], [-200.0, -300.0, -250.0]])
    assert predictions_from_logits(TASKS["mnli"], logits).tolist() == [1, 0]
    assert predictions_from_logits(TASKS["mnli"], (logits, np.zeros((2, 7)))).tolist() == [1, 0]
    assert predictions_from_logits(TASKS["stsb"], np.array([[0.5], [4.25]])).tolist() == [0.5, 4.25]
    absent = float("-inf")
    # The last row's real scores lie below the -100 with which Trainer fills up batches of fewer choices.
    logits = np.array([[0.3, 0.7, absent, absent], [2.0, 1.0, -1.0, 0.0], [-150.0, -120.0, absent, -100.0]])
    assert predictions_from_logits(TASKS["race"], logits).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("name", "logits", "labels", "expected"),
    [
        ("sst2", [[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]], [1, 1, 1], {"accuracy": 2 / 3}),
        ("cola", [[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]], [1, 0, 0], {"matthews_correlation": 0.5}),
        ("mrpc", [[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]], [1, 0, 0], {"f1": 2 / 3, "accuracy": 2 / 3}),
        ("race", [[1.0, 2.0, -np.inf], [2.0, 1.0, 5.0]], [1, 1], {"accuracy": 0.5}),
        # Ranks 1 3 2 4 against 1 2 3 4; deviations -2 0 -1 3 against -1.5 -0.5 0.5 1.5.
        ("stsb", [[1.0], [3.0], [2.0], [6.0]], [1.0, 2.0, 3.0, 4.0], {"pearson": 7 / 70**0.5, "spearmanr": 0.8}),
    ],
)
def test_scores_of_trainers_predictions(name, logits, labels, expected):
    compute_metrics = compute_metrics_for(name)
    logits = np.array(logits, dtype=np.float32)
    for predictions in (logits, (logits, np.zeros((len(labels), 4)))):
        scores = compute_metrics(EvalPrediction(predictions=predictions, label_ids=np.array(labels)))
        assert scores == pytest.approx(expected, abs=1e-7)
        assert all(type(score) is float for score in scores.values())


def of_class_1(true, predicted):
    return sklearn_metrics.f1_score(true, predicted, labels=[1], average="macro", zero_division=0)


@pytest.mark.filterwarnings("ignore:.*single label.*")
@given(arrays.arrays(np.int64, st.tuples(st.just(2), st.integers(1, 40)), elements=st.integers(0, 3)))
def test_class_scores_equal_scikit_learn(sides):
    predictions, references = sides
    oracles = {"accuracy": sklearn_metrics.accuracy_score, "f1": of_class_1}
    for name, oracle in {**oracles, "matthews_correlation": sklearn_metrics.matthews_corrcoef}.items():
        assert SCORES[name](predictions, references) == pytest.approx(oracle(references, predictions), abs=1e-12)


@given(arrays.arrays(bool, st.tuples(st.just(2), st.integers(1, 20), st.integers(2, 4))))
def test_scores_of_several_labels_equal_scikit_learn(sides):
    predictions, references = sides
    task = Task("own", "classification", {"label": "tags"}, tuple("abcd"), multi_label=True)
    metrics = ("f1_micro", "accuracy", "f1_macro", "jaccard_samples")  # the last two are scikit-learn's
    answers = EvalPrediction(predictions=predictions * 6.0 - 3, label_ids=references.astype(np.float32))
    expected = (
        sklearn_metrics.f1_score(references, predictions, average="micro", zero_division=0),
        sklearn_metrics.accuracy_score(references, predictions),
        sklearn_metrics.f1_score(references, predictions, average="macro", zero_division=0),
        sklearn_metrics.jaccard_score(references, predictions, average="samples", zero_division=0),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sklearn_exceptions.UndefinedMetricWarning)
        found = compute_metrics_for(replace(task, metrics=metrics))(answers)
    assert found == pytest.approx(dict(zip(metrics, expected, strict=True)), abs=1e-12)


METRIC_OF_EVALUATE = """
import datasets
import evaluate

class Misses(evaluate.Metric):
    def _info(self):
        number = datasets.Value("int64")
        features = datasets.Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"misses": sum(a != b for a, b in zip(predictions, references)), "first": predictions[0]}
"""


def test_a_metric_of_evaluate(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path))
    path = tmp_path / "misses" / "misses.py"
    path.parent.mkdir()
    path.write_text(METRIC_OF_EVALUATE)
    compute_metrics = compute_metrics_for(replace(TASKS["sst2"], metrics=(str(path), "accuracy")))
    answers = EvalPrediction(predictions=np.array([[0.0, 1.0]] * 3), label_ids=np.array([0, 1, 0]))
    assert compute_metrics(answers) == {"misses": 2, "first": 1, "accuracy": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    "task, name, shown",
    [
        *(("sst2", "f1_makro", "[0, 1]"), ("sst2", "roc_auc", "[0, 1]")),  # of nobody; of probabilities
        *(("mnli", "f1", "[0, 1, 2]"), ("mnli", "precision", "[0, 1, 2]"), ("race", "f1", "[0, 1, 2]")),
        *(("stsb", "f1", "[0.5, 1.5]"), ("stsb", "f1_micro", "[0.5, 1.5]"), ("stsb", "accuracy", "[0.5, 1.5]")),
    ],
)
def test_metrics_that_nobody_has_or_that_fit_no_such_labels(task, name, shown):
    with pytest.raises(ValueError, match=f"'{name}'.* like {re.escape(shown)}.*f1_macro.*pearson"):
        compute_metrics_for(replace(TASKS[task], metrics=(name,)))


@pytest.mark.parametrize("name", ["matthews_correlation", "pearson", "spearmanr"])
def test_scores_of_one_label_are_none_of_several(name):
    with pytest.raises(ValueError, match=name):
        find_metric(name, np.eye(2, dtype=int))


def test_a_score_of_evaluate_stands_under_the_name_that_was_asked(monkeypatch):
    given = SimpleNamespace(compute=lambda predictions, references: {"agreement": sum(predictions == references) / 2})
    monkeypatch.setattr("evaluate.load", lambda name: given)
    assert compute("kappa", [0, 1], [1, 1]) == {"kappa": 0.5, "agreement": 0.5}


def test_scikit_learn_gives_the_micro_f1_of_rows_with_one_class_alone(monkeypatch):
    answers = EvalPrediction(predictions=np.eye(3)[[0, 1, 2, 2]], label_ids=np.array([0, 1, 2, 0]))
    found = compute_metrics_for(replace(TASKS["mnli"], metrics=("accuracy", "f1_micro", "recall_macro")))(answers)
    assert list(found.values()) == pytest.approx([0.75, 0.75, 5 / 6])
    monkeypatch.setitem(sys.modules, "sklearn.metrics", None)
    assert compute("accuracy", np.eye(2), np.array([[1.0, 0.0], [1.0, 1.0]])) == {"accuracy": 0.5}


@given(arrays.arrays(np.int64, st.tuples(st.just(2), st.integers(1, 40)), elements=st.integers(-25, 25)))
def test_correlations_equal_scipy(sides):
    predictions, references = sides / 5  # steps, so that ranks have ties
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        expected = [0.0, 0.0]
    else:
        expected = [oracle(predictions, references).statistic for oracle in (stats.pearsonr, stats.spearmanr)]
    found = [compute(name, predictions, references)[name] for name in ("pearson", "spearmanr")]
    assert found == pytest.approx(expected, abs=1e-9)


def test_scores_of_a_large_data_set_and_of_nan():
    references = np.repeat([0, 1], 200_000)
    predictions = np.where(np.arange(400_000) % 4 == 0, 1 - references, references)
    assert compute("matthews_correlation", predictions, references)["matthews_correlation"] == pytest.approx(0.5)
    for name in ("pearson", "spearmanr"):
        assert np.isnan(compute(name, [1.0, float("nan"), 3.0], [1.0, 2.0, 3.0])[name])


@pytest.mark.parametrize("task", ["sst2", "race"])
def test_no_class_is_read_off_scores_that_are_no_numbers(task):
    logits = np.array([[0.5, 1.0], [np.nan, 2.0], [np.nan, np.nan]])
    with pytest.raises(
        ValueError,
        match="^2 of 3 rows have scores that are not numbers .NaN., the first of them row 1. .* Use",
    ):
        predictions_from_logits(TASKS[task], logits)


@pytest.mark.parametrize("score", ["accuracy", "f1"])
def test_predictions_that_are_no_numbers_have_no_score(score):
    with pytest.raises(ValueError, match="^1 of 3 predictions are not numbers .NaN., the first of them prediction 2"):
        compute(score, np.array([0.0, 1.0, np.nan]), np.array([0, 1, 1]))


@pytest.mark.parametrize("name", ["f1", "precision"])
def test_a_score_of_two_classes_is_refused_where_a_third_is_predicted_or_true(name):
    two, three = [0, 1, 1, 0], [0, 1, 2, 1]
    for predictions, references in ((three, two), (two, three)):
        with pytest.raises(UserError, match=rf"'{name}'.* like \[0, 1, 2\].*f1_macro"):
            compute(name, predictions, references)


def test_a_score_of_all_classes_counts_a_class_that_is_only_predicted():
    assert compute("f1_macro", [0, 1, 2, 1], [0, 1, 1, 0])["f1_macro"] == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)

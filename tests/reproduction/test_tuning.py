"""How settings are chosen: the same trials for each condition, on rows held out of training, by a rule."""

import math

import pytest

from modeling_gpt1.reproduction.arguments import ReproduceArguments
from modeling_gpt1.reproduction.figures import draw, tuning_curves
from modeling_gpt1.reproduction.tuning import Trial, Tuning, best_trial, describe_trials, read_tuning, trials_of

RATES, WARMUPS = [1e-4, 3e-4, 1e-3, 3e-3], [0.002, 0.1]


@pytest.fixture
def arguments():
    return ReproduceArguments(
        output_dir="out", model="m", tune=True, tune_learning_rates=RATES, tune_warmups=WARMUPS, tune_lm_coefs=[0, 0.5]
    )


def result(score, loss=1.0, metric="accuracy"):
    return {"metrics": {f"eval_{metric}": score, "eval_task_loss": loss}}


# ---- Trials


@pytest.mark.parametrize("variant", ["full", "without_auxiliary", "without_pretraining", "lstm", "transfer-0"])
def test_every_condition_has_the_same_rates_and_warmups(variant, arguments):
    trials = trials_of(arguments, variant)
    assert [(trial.learning_rate, trial.warmup_steps) for trial in trials] == [
        (rate, warmup) for rate in RATES for warmup in WARMUPS
    ]


@pytest.mark.parametrize("variant", ["without_pretraining", "transfer-2"])
def test_fresh_layers_try_each_coefficient_at_each_rate_and_each_warmup(variant, arguments):
    trials = trials_of(arguments, variant)
    assert {(trial.learning_rate, trial.lm_coef) for trial in trials} == {(r, c) for r in RATES for c in (0, 0.5)}
    assert {(trial.warmup_steps, trial.lm_coef) for trial in trials} == {(w, c) for w in WARMUPS for c in (0, 0.5)}


@pytest.mark.parametrize("variant", ["full", "without_auxiliary", "lstm"])
def test_other_conditions_keep_their_coefficient(variant, arguments):
    assert {trial.lm_coef for trial in trials_of(arguments, variant)} == {None}


def test_the_flags_of_a_trial():
    assert Trial(3e-4, 0.1, 0.0).flags == ["--learning_rate", "0.0003", "--warmup_steps", "0.1", "--lm_coef", "0"]


def test_the_flags_of_a_trial_have_all_digits_of_its_rate():
    assert Trial(0.00123456789, 2.0).flags == ["--learning_rate", "0.00123456789", "--warmup_steps", "2"]


# ---- The choice


def described(*scores_and_losses):
    results = {Trial(rate, 0.1): result(*of) for rate, of in zip(RATES, scores_and_losses, strict=False)}
    return describe_trials("rte", results)


def test_the_highest_held_out_score_is_chosen():
    assert best_trial(described((0.5, 0.1), (0.7, 0.9), (0.6, 0.2)))["learning_rate"] == 3e-4


def test_of_equal_scores_the_lower_loss_is_chosen():
    assert best_trial(described((0.7, 0.9), (0.7, 0.8), (0.6, 0.2)))["learning_rate"] == 3e-4


def test_a_loss_that_is_no_number_is_the_highest():
    assert best_trial(described((0.7, math.nan), (0.7, 0.8)))["learning_rate"] == 3e-4


def test_of_equal_trials_the_first_is_chosen():
    assert best_trial(described((0.7, 0.9), (0.7, 0.9)))["learning_rate"] == 1e-4


def test_a_trial_that_diverged_is_not_chosen():
    assert best_trial(described((math.nan, math.nan), (0.4, 2.0)))["learning_rate"] == 3e-4


def trials_of_mrpc(*of_trials):
    """Trials of a score and a training loss, where class frequencies alone have 0.6."""
    results = {}
    for rate, (score, loss) in zip(RATES, of_trials, strict=False):
        training = {"task_loss": loss, "loss_of_frequencies": 0.6}
        results[Trial(rate, 0.1)] = {**result(score, metric="f1"), "training": training}
    return describe_trials("mrpc", results)


def test_a_trial_that_failed_to_train_is_not_chosen_by_its_score():
    assert best_trial(trials_of_mrpc((0.78, 0.6), (0.71, 0.5)))["learning_rate"] == 3e-4


def test_of_trials_that_failed_to_train_the_best_is_chosen():
    assert best_trial(trials_of_mrpc((0.71, 0.6), (0.78, 0.6)))["learning_rate"] == 3e-4


def test_the_first_metric_of_the_task_counts():
    results = {Trial(1e-3, 0.1): result(0.3, metric="matthews_correlation")}
    assert describe_trials("cola", results)[0]["score"] == pytest.approx(30)


def test_splits_in_parts_count_alike():
    metrics = {f"eval_validation_{part}_accuracy": score for part, score in (("matched", 0.4), ("mismatched", 0.6))}
    (trial,) = describe_trials("mnli", {Trial(1e-3, 0.1): {"metrics": metrics}})
    assert trial["score"] == pytest.approx(50)


def test_nothing_is_chosen_until_all_trials_are_finished():
    cells = {Trial(1e-4, 0.1): "first", Trial(3e-4, 0.1): "second"}
    finished = {"first": result(0.6), "second": {}}
    assert read_tuning(("rte", "full"), cells, finished.get).best is None
    finished["second"] = result(0.5)
    assert read_tuning(("rte", "full"), cells, finished.get).best == Trial(1e-4, 0.1)


# ---- The curves


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        ("without_pretraining", "RTE: Transformer, without pre-training"),
        ("transfer-0", "RTE: Transformer, embeddings alone"),
        ("transfer-1", "RTE: Transformer, first layer"),
        ("transfer-3", "RTE: Transformer, first 3 layers"),
    ],
)
def test_a_panel_is_named_in_words(variant, words):
    figure = tuning_curves([Tuning(("rte", variant), described((0.5, 1.0)), True).describe()])
    assert list(figure["panels"]) == [words]


def panel_of(trials, is_finished=True):
    figure = tuning_curves([Tuning(("rte", "full"), trials, is_finished).describe()])
    (panel,) = figure["panels"].values()
    return panel


def test_a_panel_says_what_was_chosen():
    note = panel_of(described((0.5, 1.0), (0.7, 1.0), (0.6, 1.0)))["note"]
    assert note == "Accuracy × 100 on rows held out of training; chosen: 0.0003, warm-up 0.1"


@pytest.mark.parametrize(("scores", "end"), [((0.5, 0.7), "highest"), ((0.7, 0.5), "lowest")])
def test_a_panel_says_that_the_best_rate_is_at_an_end(scores, end):
    note = panel_of(described(*((score, 1.0) for score in scores)))["note"]
    assert note.endswith(f", the {end} rate tried")


def test_an_unfinished_panel_chooses_nothing():
    assert "chosen" not in panel_of(described((0.5, 1.0)), is_finished=False)["note"]


def test_a_panel_counts_trials_without_a_point_and_names_those_that_failed():
    trials = described((0.5, 1.0), (math.nan, math.nan), (0.7, 1.0))
    trials[2]["failed"] = True
    note = panel_of(trials)["note"]
    assert "; chosen: 0.0001, warm-up 0.1" in note
    assert note.endswith("; 1 diverged and has no point; failed to train: 0.001 (warm-up 0.1)")


def test_trials_that_all_diverged_are_counted():
    figure = tuning_curves([Tuning(("rte", "full"), described(*[(math.nan, math.nan)] * 3), True).describe()])
    (panel,) = figure["panels"].values()
    assert panel["note"].endswith("; 3 diverged and have no point")
    (axes,) = draw(figure).axes
    assert len(axes.lines) == 0


def test_a_condition_without_a_finished_trial_has_no_panel():
    assert tuning_curves([Tuning(("rte", "full"), [], False).describe()])["panels"] == {}


def test_curves_stand_over_the_rates():
    trials = described((0.5, 1.0), (0.7, 1.0))
    (axes,) = draw(tuning_curves([Tuning(("rte", "full"), trials, True).describe()])).axes
    assert axes.get_xscale() == "log"
    assert axes.lines[0].get_xydata().tolist() == [[1e-4, 50.0], [3e-4, 70.0]]

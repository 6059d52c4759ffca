"""Linear models of n-grams: what they read, what is chosen for them, and that they find what the rows give away."""

import numpy as np
import pytest
from datasets import Dataset

from modeling_gpt1.reproduction import baselines
from modeling_gpt1.reproduction.baselines import Inputs, baselines_of, features_of_pair, features_of_text, grams
from modeling_gpt1.reproduction.grid import describe_result
from tokenization import get_task

# ---- What is read


def test_grams_are_words_and_neighbours():
    assert grams("No, no!") == {"no", ",", "!", "no ,", ", no", "no !"}


def test_the_last_text_alone_has_no_context():
    assert set(features_of_text("he paid")) == {"last: he", "last: paid", "last: he paid"}


def test_a_text_behind_a_context_tells_what_is_new():
    assert set(features_of_pair(("he left", "he paid"), is_ordered=True)) == {
        "common: 3 tenths",  # one of three
        "both: he",
        "new: paid",
        "new: he paid",
        "last: he",
        "last: paid",
        "last: he paid",
        "context: he",
        "context: left",
        "context: he left",
    }


def test_a_pair_without_an_order_is_read_alike_both_ways():
    one, other = (set(features_of_pair(pair, is_ordered=False)) for pair in (("he left", "he"), ("he", "he left")))
    assert one == other == {"common: 3 tenths", "both: he", "one: left", "one: he left"}


@pytest.mark.parametrize(
    ("task", "is_alike"), [("stsb", True), ("mrpc", True), ("rte", False), ("story_cloze", False)]
)
def test_the_texts_of_similarity_alone_have_no_order(task, is_alike):
    analyzer = Inputs(get_task(task), last_alone=False).analyzer()
    assert (set(analyzer(("he left", "he"))) == set(analyzer(("he", "he left")))) == is_alike


def test_a_penalty_weighs_alike_for_classes_and_numbers():
    of_numbers = baselines.LinearModel(Inputs(get_task("stsb"), last_alone=False), 10.0)
    of_classes = baselines.LinearModel(Inputs(get_task("sst2"), last_alone=False), 10.0)
    assert of_numbers.model.alpha == 10
    assert of_classes.model.C == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("sst2", ("ngrams",)),
        ("stsb", ("ngrams",)),
        ("snli", ("ngrams", "ngrams_of_last")),
        ("scitail", ("ngrams", "ngrams_of_last")),
        ("story_cloze", ("ngrams", "ngrams_of_last")),
        ("race", ("ngrams", "ngrams_of_last")),
    ],
)
def test_the_last_text_alone_is_a_baseline_where_texts_have_an_order(task, expected):
    assert baselines_of(get_task(task)) == expected


def test_each_choice_is_read_behind_its_context():
    row = {"article": "a", "question": "b ?", "options": ["c", "d"], "label": 1}
    assert Inputs(get_task("race"), last_alone=False).examples(row) == [("a\nb ?", "c"), ("a\nb ?", "d")]
    assert Inputs(get_task("race"), last_alone=True).examples(row) == ["c", "d"]


def test_choices_may_be_columns():
    row = {"context": "a", "ending1": "b", "ending2": "c", "label": 0}
    assert Inputs(get_task("story_cloze"), last_alone=True).examples(row) == ["b", "c"]


# ---- What is found


def score(task_name, variant, rows, settings=None, seed=1):
    """The baseline's result, trained on the first rows and scored on the last twenty."""
    task = get_task(task_name)
    rows = Dataset.from_list(rows)
    training, scored = rows.select(range(len(rows) - 20)), rows.select(range(len(rows) - 20, len(rows)))
    return baselines.score_baseline(task, variant, training, {"validation": scored}, settings or {}, seed)


def sentiment(number_of_rows):
    words = {0: ("dull", "slow"), 1: ("fine", "lovely")}
    return [{"sentence": f"scene {n} is {words[n % 2][n // 2 % 2]}", "label": n % 2} for n in range(number_of_rows)]


def test_classes_are_predicted():
    found = score("sst2", "ngrams", sentiment(120))
    assert found["metrics"] == {"eval_accuracy": 1.0}
    assert found["answers"]["validation"] == {
        "labels": " ".join("01" * 10),
        "predictions": " ".join("01" * 10),
    }


def endings(number_of_rows):
    """The right ending is told by a word of its own."""
    rows = []
    for n in range(number_of_rows):
        texts = [f"he left {n}", f"green {n}"]
        right = n // 3 % 2
        order = texts if right == 0 else texts[::-1]
        rows.append({"context": f"story {n}", "ending1": order[0], "ending2": order[1], "label": right})
    return rows


def test_an_ending_that_gives_itself_away_is_found_without_its_story():
    found = score("story_cloze", "ngrams_of_last", endings(120))
    assert found["metrics"] == {"eval_accuracy": 1.0}


def test_a_hypothesis_that_gives_nothing_away_is_guessed():
    rows = [
        {"premise": f"{'he' if n % 2 else 'she'} paid {n}", "hypothesis": "he paid", "label": n % 2}
        for n in range(120)
    ]
    assert score("snli", "ngrams_of_last", rows)["metrics"]["eval_accuracy"] == 0.5
    assert score("snli", "ngrams", rows)["metrics"]["eval_accuracy"] == 1.0


def test_numbers_are_predicted():
    rows = [
        {"sentence1": "a b c d e f", "sentence2": " ".join("abcdefghijkl"[n % 6 : n % 6 + 6]), "label": 5 - n % 6}
        for n in range(120)
    ]
    for n, row in enumerate(rows):
        row["sentence1"] += f" {n}"
        row["label"] = float(row["label"])
    assert score("stsb", "ngrams", rows)["metrics"]["eval_pearson"] > 0.9


def test_the_penalty_is_the_best_on_the_held_out_part(monkeypatch):
    monkeypatch.setattr(baselines, "PENALTIES", (1e6, 1.0))
    rows = [row for row in sentiment(160) if row["label"] or row["sentence"][6] in "0123"]  # of unequal classes
    found = score("sst2", "ngrams", rows)
    assert found["penalty"] == 1.0
    assert found["penalties"][1.0] > found["penalties"][1e6]


def test_of_penalties_that_are_as_good_the_smallest_is_chosen(monkeypatch):
    monkeypatch.setattr(baselines, "PENALTIES", (1.0, 2.0))
    found = score("sst2", "ngrams", sentiment(120))
    assert found["penalties"] == {1.0: 1.0, 2.0: 1.0}
    assert found["penalty"] == 1.0


def test_scores_of_several_splits_have_the_names_of_these():
    rows = Dataset.from_list([{"premise": f"{n}", "hypothesis": "abc"[n % 3], "label": n % 3} for n in range(60)])
    splits = {
        "validation_matched": rows.select(range(6)),
        "validation_mismatched": rows.select(range(6, 12)),
    }
    found = baselines.score_baseline(get_task("mnli"), "ngrams_of_last", rows, splits, {}, 1)
    assert found["metrics"] == {
        "eval_validation_matched_accuracy": 1.0,
        "eval_validation_mismatched_accuracy": 1.0,
    }


def test_the_rows_of_a_run_are_drawn(monkeypatch):
    fitted = []

    class Recorder(baselines.LinearModel):
        def fit(self, rows):
            fitted.append(len(rows))
            return super().fit(rows)

    monkeypatch.setattr(baselines, "LinearModel", Recorder)
    score("sst2", "ngrams", sentiment(120), settings={"max_train_samples": "40"})
    assert fitted == [40] * (len(baselines.PENALTIES) + 1)


def test_no_penalty_is_chosen_on_rows_that_it_was_fitted_to(monkeypatch):
    """The chosen one is then fitted to rows of all training rows, as a model's seeds are."""
    fitted, predicted = [], []

    class Recorder(baselines.LinearModel):
        def fit(self, rows):
            fitted.append(set(rows["sentence"]))
            return super().fit(rows)

        def predict(self, rows):
            predicted.append(set(rows["sentence"]))
            return super().predict(rows)

    monkeypatch.setattr(baselines, "LinearModel", Recorder)
    rows = sentiment(120)
    score("sst2", "ngrams", rows)
    held_out = predicted[0]
    assert len(held_out) == 20
    assert all(not rows_of_trial & held_out for rows_of_trial in fitted[:-1])
    assert fitted[-1] == {row["sentence"] for row in rows[:100]}


def test_all_seeds_are_scored_on_the_same_rows(monkeypatch):
    predicted = []

    class Recorder(baselines.LinearModel):
        def predict(self, rows):
            predicted.append(rows["sentence"][:])
            return super().predict(rows)

    monkeypatch.setattr(baselines, "LinearModel", Recorder)
    for seed in (1, 2):
        score("sst2", "ngrams", sentiment(120), {"max_eval_samples": "6"}, seed)
    first, second = predicted[: len(predicted) // 2], predicted[len(predicted) // 2 :]
    assert first == second
    assert {len(rows) for rows in first} == {6}  # the penalties, too, are chosen on as many


def test_each_seed_is_fitted_to_rows_of_its_own(monkeypatch):
    fitted = []

    class Recorder(baselines.LinearModel):
        def fit(self, rows):
            fitted.append(rows["sentence"][:])
            return super().fit(rows)

    monkeypatch.setattr(baselines, "LinearModel", Recorder)
    for seed in (1, 2):
        score("sst2", "ngrams", sentiment(120), {"max_train_samples": "40"}, seed)
    first, second = fitted[: len(fitted) // 2], fitted[len(fitted) // 2 :]
    assert all(one != other for one, other in zip(first, second, strict=True))


def test_a_limit_of_the_evaluation_counts_too():
    found = score("sst2", "ngrams", sentiment(120), settings={"max_eval_samples": "6"})
    assert len(found["answers"]["validation"]["labels"].split()) == 6


def test_the_same_seed_gives_the_same_answers():
    settings = {"max_train_samples": "40"}
    first, second = (score("sst2", "ngrams", sentiment(120), settings)["answers"] for _ in range(2))
    assert first == second
    assert np.isfinite(float(first["validation"]["predictions"].split()[0]))


def test_the_score_of_a_baseline_is_shown_without_runs_beside_it():
    """A task without a labelled test split: only the validation rows have a score."""
    cell = {"kind": "baseline", "task": "sst2", "variant": "ngrams", "seed": 1, "settings": {}, "n_transfer": None}
    cell["metrics"] = {"eval_accuracy": 0.7763}
    assert describe_result(cell) == "sst2 77.6"

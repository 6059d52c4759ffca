"""Which rows runs train on, which part is held out of them, and which runs failed to train."""

import json
import math

import numpy as np
import pytest
from datasets import Dataset
from support.files import write_rows
from support.refusals import refusal

from modeling_gpt1.reproduction import training_rows
from modeling_gpt1.reproduction.training_rows import cut, drawn, has_failed, loss_of_frequencies, loss_of_last_epoch
from modeling_gpt1.training.arguments import SEED_OF_SCORED_ROWS, draw_places
from tokenization import get_task, load_task

RTE = get_task("rte")


def pairs(first_texts):
    rows = [{"sentence1": text, "sentence2": f"no. {n}", "label": n % 2} for n, text in enumerate(first_texts)]
    return Dataset.from_list(rows)


# ---- Rows


@pytest.mark.parametrize("settings", [{"max_train_samples": "3"}, {"max_train_samples": "3", "data_seed": "7"}])
def test_a_run_draws_the_rows_that_finetune_draws(settings):
    rows = Dataset.from_dict({"n": list(range(10))})
    expected = draw_places(10, 3, int(settings.get("data_seed", 5)))
    assert drawn(rows, settings, "train", 5)["n"][:] == expected.tolist()


@pytest.mark.parametrize("use", ["eval", "predict"])
def test_all_seeds_are_scored_on_the_rows_that_finetune_draws(use):
    """Otherwise their common rows would have no error that all seeds share, and intervals would be too narrow."""
    rows = Dataset.from_dict({"n": list(range(10))})
    expected = draw_places(10, 3, SEED_OF_SCORED_ROWS).tolist()
    for seed, settings in ((5, {}), (6, {}), (6, {"data_seed": "7"})):
        assert drawn(rows, {f"max_{use}_samples": "3", **settings}, use, seed)["n"][:] == expected


def test_without_a_limit_all_rows_are_drawn():
    rows = Dataset.from_dict({"n": [3, 1, 2]})
    assert drawn(rows, {"max_eval_samples": "1"}, "train", 5)["n"][:] == [3, 1, 2]


def test_a_fifth_of_the_training_rows_is_held_out():
    training, held_out = cut(pairs([f"text {n}" for n in range(50)]), RTE)
    assert len(held_out) == 10
    assert sorted([*training["sentence2"], *held_out["sentence2"]]) == sorted(f"no. {n}" for n in range(50))


def test_no_more_than_a_thousand_rows_are_held_out(monkeypatch):
    monkeypatch.setattr(training_rows, "MOST_HELD_OUT", 4)
    assert len(cut(pairs([f"text {n}" for n in range(50)]), RTE)[1]) == 4


def test_rows_with_the_same_first_text_stay_together():
    training, held_out = cut(pairs([f"text {n // 3}" for n in range(60)]), RTE)
    assert len(held_out) == 12
    assert not set(training["sentence1"]) & set(held_out["sentence1"])


def test_the_same_part_is_held_out_each_time():
    rows = pairs([f"text {n}" for n in range(50)])
    assert cut(rows, RTE)[1]["sentence2"][:] == cut(rows, RTE)[1]["sentence2"][:]


def test_rows_that_are_all_alike_are_refused():
    told = refusal(cut, pairs(["one text"] * 8), RTE)
    assert "The 8 training rows of task 'rte'" in told
    assert "leave --tune out" in told
    assert "baselines out of --experiments" in told  # which choose their penalty on the part


def test_training_rows_that_are_missing_are_named(tmp_path):
    write_rows(tmp_path / "rte" / "validation.jsonl", [{"sentence1": "a", "sentence2": "b", "label": 1}])
    told = refusal(training_rows.load_training_rows, RTE, str(tmp_path))
    assert "no training rows" in told
    assert "Add a file train.jsonl" in told


@pytest.mark.parametrize("name", ["mnli", "stsb", "race"])
def test_the_cut_is_a_data_set_of_its_own(name, tmp_path):
    """Of a task with two validation splits, of a regression, and of one whose files are in parts."""
    rows = {
        "mnli": [{"premise": f"p {n}", "hypothesis": f"h {n}", "label": n % 3} for n in range(10)],
        "stsb": [{"sentence1": f"a {n}", "sentence2": f"b {n}", "label": n / 2} for n in range(10)],
        "race": [{"article": f"a {n}", "question": "?", "options": list("abcd"), "label": n % 4} for n in range(10)],
    }
    files = {"mnli": ["train"], "stsb": ["train"], "race": ["middle_train", "high_train"]}
    for number, file in enumerate(files[name]):
        half = len(rows[name]) // len(files[name])
        write_rows(tmp_path / "data" / name / f"{file}.jsonl", rows[name][number * half : (number + 1) * half])
    task = get_task(name)
    training_rows.write_cut(task, str(tmp_path / "data"), tmp_path / "cut")
    splits = load_task(task, str(tmp_path / "cut"))
    before = load_task(task, str(tmp_path / "data"))["train"]
    assert {split: len(of_split) for split, of_split in splits.items()} == {
        "train": 8,
        **dict.fromkeys(task.validation_splits, 2),
    }
    after = [*splits["train"], *splits[task.validation_splits[0]]]
    assert sorted(map(json.dumps, after)) == sorted(map(json.dumps, before))


# ---- Whether a run has trained


def test_the_loss_of_class_frequencies_is_their_entropy():
    rows = Dataset.from_dict({"label": [0, 1, 1, 1]})
    assert loss_of_frequencies(rows, RTE) == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))


def test_the_loss_of_frequencies_of_a_regression_is_the_variance():
    rows = Dataset.from_dict({"label": [1.0, 2.0, 6.0]})
    assert loss_of_frequencies(rows, get_task("stsb")) == pytest.approx(np.var([1, 2, 6]))


def test_choices_are_guessed_by_their_number():
    rows = Dataset.from_dict({"label": [0, 0], "options": [["a", "b"], ["a", "b", "c"]]})
    assert loss_of_frequencies(rows, get_task("race")) == pytest.approx((math.log(2) + math.log(3)) / 2)
    two = Dataset.from_dict({"label": [0, 0]})
    assert loss_of_frequencies(two, get_task("story_cloze")) == pytest.approx(math.log(2))


def test_the_training_loss_is_that_of_the_last_epoch():
    """Weighted by updates; records without a task loss are those of evaluations."""
    history = [
        {"step": 10, "epoch": 1.0, "task_loss": 0.7},
        {"step": 16, "epoch": 1.6, "task_loss": 0.5},
        {"step": 16, "epoch": 1.6, "eval_task_loss": 0.9},
        {"step": 20, "epoch": 2.0, "task_loss": 0.3},
    ]
    assert loss_of_last_epoch(history) == pytest.approx((6 * 0.5 + 4 * 0.3) / 10)


def test_a_run_that_logged_nothing_has_no_training_loss():
    assert loss_of_last_epoch([{"step": 3, "train_loss": 1.0}]) is None


@pytest.mark.parametrize(
    ("loss", "failed"), [(0.5, False), (0.68, False), (0.692, True), (0.7, True), (math.nan, True), (None, False)]
)
def test_a_run_fails_whose_training_loss_is_that_of_the_frequencies(loss, failed):
    cell = {"training": {"task_loss": loss, "loss_of_frequencies": math.log(2)}}
    assert has_failed(cell) == failed


def test_cells_of_earlier_versions_did_not_fail():
    assert not has_failed({"kind": "fine_tuning"})

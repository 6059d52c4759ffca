"""Waits of the host for an accelerator, and tensors on the wrong device, on a stand-in that runs on the CPU.

All cases run in one process, as a device cannot be taken from one again.
"""

import json
import re

import pytest
from helpers_launch import IS_AFTER_5_17, ROOT, run_together


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("accelerator") / "runs.json"
    run_together(1, ROOT / "tests" / "helpers_accelerator_runs.py", path)
    return json.loads(path.read_text())


class TestStandIn:
    def test_counts_each_kind_of_wait_once_with_its_line(self, runs):
        script = "tests/helpers_accelerator_runs.py"
        counted = {
            name: [wait.partition(f" at {script}:")[0] for wait in waits]
            for name, waits in runs["controls"]["waiting"].items()
        }
        assert counted == {
            "item": ["item"],
            "nonzero": ["nonzero"],
            "mask read": ["a mask as an index"],
            "mask written": ["a mask as an index"],
            "repeat_interleave": ["repeat_interleave"],
            "cpu": ["a copy to the host"],
            "copy_": ["a copy to the host"],
            "to": ["a copy from the host"],
            "pinned, blocking": ["a copy from the host"],
            "not pinned": ["a copy from the host"],
            "tensor": ["a copy from the host"],
            "backward": ["a mask as an index", "a mask as an index at a backward pass"],
        }

    def test_counts_nothing_else(self, runs):
        counted = {name: waits for name, waits in runs["controls"]["free"].items() if waits}
        assert counted == {}

    def test_refuses_operations_on_two_devices(self, runs):
        assert list(runs["mixed devices"]) == ["+", "cat"]
        line = r"tests/helpers_accelerator_runs\.py:\d+"
        assert re.fullmatch(
            rf"aten\.add\.Tensor got tensors of standin:0 and one of cpu, of shape \[3\], at {line}\. All have to lie "
            r"on the same device\.",
            runs["mixed devices"]["+"],
        )


def share(runs, kind):
    return {name.partition(", ")[2]: run for name, run in runs.items() if name.startswith(f"{kind}, ")}


def test_a_training_step_on_a_planned_batch_never_waits(runs):
    steps = {**share(runs, "pre-training"), **share(runs, "fine-tuning")}
    ways = ["padded", "eager", "flash", "LSTM"]
    assert list(steps) == ["full", "ragged", "classification", "similarity", "multiple_choice", *ways]
    if not IS_AFTER_5_17:  # which copies a number to the device for the mask of eager attention
        del steps["eager"]
    assert {name: step["waits"] for name, step in steps.items() if step["waits"]} == {}


def test_waits_without_a_plan(runs):
    """The count that comes without a plan: a negative control, and for those who make no plan."""
    counts = {name: sum(step["waits"].values()) for name, step in share(runs, "without a plan").items()}
    assert counts == {"full": 2, "ragged": 3, "classification": 3, "similarity": 3, "multiple_choice": 3}


@pytest.mark.parametrize("kind", ["pre-training", "fine-tuning", "without a plan"])
def test_a_step_gives_the_numbers_of_the_cpu(runs, kind):
    distances = {name: step["distance"] for name, step in share(runs, kind).items()}
    assert {name: distance for name, distance in distances.items() if not distance < 1e-6} == {}


@pytest.mark.parametrize("cache", ["dynamic", "static", "beams"])
def test_a_token_waits_no_more_often_than_gpt2s(runs, cache):
    ours, theirs = runs[f"generate, {cache}"], runs[f"GPT-2 generate, {cache}"]
    assert sum(ours["waits"].values()) <= sum(theirs["waits"].values()), ours["waits"]
    assert ours["is_equal"] and theirs["is_equal"]


def test_a_decoding_step_never_waits(runs):
    step = runs["decoding step"]
    assert step["waits"] == {} and step["distance"] < 1e-6


def test_an_lstm_waits_no_more_often(runs):
    waits = runs["generate, LSTM"]["waits"]
    assert sum(waits.values()) <= sum(runs["GPT-2 generate, dynamic"]["waits"].values()), waits
    assert runs["generate, LSTM"]["is_equal"]


def test_scores_are_those_of_the_cpu(runs):
    assert len(runs["scores"]["CPU"]) == 3
    assert runs["scores"]["device"] == pytest.approx(runs["scores"]["CPU"], abs=1e-5)


class TestTrainers:
    @pytest.mark.parametrize("kind", ["pre-training", "fine-tuning", "LSTM", "AdamW", "plain Trainer"])
    def test_an_update_never_waits_but_to_log(self, runs, kind):
        """From the end of one update to the end of the next: batches, both passes, clipping, optimizer, tokens."""
        run = runs["trainings"][kind]
        first, *others = run["waits"]
        assert run["device"] == "standin:0" and len(others) == 2
        assert [waits for waits in others if waits] == []

    @pytest.mark.parametrize("kind", ["pre-training", "fine-tuning", "LSTM"])
    def test_an_evaluation_waits_once_it_is_over(self, runs, kind):
        waits = runs["trainings"][kind]["evaluation"]
        assert all(wait.startswith("a copy to the host") for wait in waits) and sum(waits.values()) == 2, waits

    @pytest.mark.parametrize("kind", ["pre-training", "fine-tuning", "LSTM"])
    def test_gives_the_losses_and_weights_of_the_cpu(self, runs, kind):
        run, on_cpu = runs["trainings"][kind], runs["trainings"][f"{kind}, CPU"]
        assert len(run["losses"]) >= 3 and run["losses"] == pytest.approx(on_cpu["losses"], abs=1e-6)
        assert run["weights"] == pytest.approx(on_cpu["weights"], abs=1e-5)
        assert run["tokens"] == on_cpu["tokens"] == (260 if kind == "pre-training" else 0)

    def test_resumes_to_the_bit(self, runs):
        run, resumed = runs["trainings"]["fine-tuning"], runs["trainings"]["fine-tuning, resumed"]
        assert resumed["device"] == "standin:0" and resumed["weights"] == run["weights"]

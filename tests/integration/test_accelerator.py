"""Waits of the host for an accelerator, and tensors on the wrong device, on a stand-in that runs on the CPU.

All cases run in one process, as a device cannot be taken from one again.
"""

import json
import re

import pytest
from helpers_launch import ROOT, launch_well


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    path = tmp_path_factory.mktemp("accelerator") / "runs.json"
    launch_well((), ROOT / "tests" / "helpers_accelerator_runs.py", path, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
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
            "bool": ["item"],
            "int": ["item"],
            "if": ["item"],
            "nonzero": ["nonzero"],
            "where": ["nonzero"],
            "mask read": ["a mask as an index"],
            "mask written": ["a mask as an index"],
            "masked_select": ["masked_select"],
            "repeat_interleave": ["repeat_interleave"],
            "bincount": ["bincount"],
            "unique": ["unique"],
            "equal": ["equal"],
            "multinomial": ["multinomial"],
            "cpu": ["a copy to the host"],
            "copy_": ["a copy to the host"],
            "tolist": ["a copy to the host"],
            "to": ["a copy from the host"],
            "tensor": ["a copy from the host"],
            "backward": ["a mask as an index", "a mask as an index at a backward pass"],
        }

    def test_counts_nothing_else(self, runs):
        counted = {name: waits for name, waits in runs["controls"]["free"].items() if waits}
        assert counted == {}

    def test_refuses_operations_on_two_devices(self, runs):
        assert list(runs["mixed devices"]) == ["+", "index", "add_", "cat"]
        line = r"tests/helpers_accelerator_runs\.py:\d+"
        assert re.fullmatch(
            rf"aten\.add\.Tensor got tensors of standin:0 and one of cpu, of shape \[3\], at {line}\. All have to lie "
            r"on the same device\.",
            runs["mixed devices"]["+"],
        )


# Waits of a step, and of a token more.
WAITS = {
    "pre-training, full": 6,
    "pre-training, ragged": 7,
    "fine-tuning, classification": 9,
    "fine-tuning, similarity": 9,
    "fine-tuning, multiple_choice": 9,
    "generate, dynamic": 1,
    "generate, static": 2,
}


@pytest.mark.parametrize("case", WAITS)
def test_waits(runs, case):
    waits = runs[case]["waits"]
    assert sum(waits.values()) == WAITS[case], waits


@pytest.mark.parametrize("case", [case for case in WAITS if "training" in case or "tuning" in case])
def test_numbers_are_those_of_the_cpu(runs, case):
    assert runs[case]["distance"] < 1e-6


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generated_ids_are_those_of_the_cpu(runs, cache):
    assert runs[f"generate, {cache}"]["is_equal"]

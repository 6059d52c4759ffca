"""Two and three processes over gloo train as one on every kind of task: losses, gradient norms, weights.

Their rows do not divide.
"""

from functools import cache

import pytest
import support.processes
import torch
from support.launch import run_together
from support.processes import RESUMED, RUNS_OF, make_trainer_of_run, record_of


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """Where a number of processes left their records."""

    @cache
    def run(num_processes):
        folder = tmp_path_factory.mktemp(f"uneven-{num_processes}")
        run_together(num_processes, support.processes.__file__, folder)
        return folder

    return run


@pytest.mark.parametrize("num_processes, name", [(number, name) for number in RUNS_OF for name in RUNS_OF[number]])
def test_several_processes_train_as_one(num_processes, name, folder_of, tmp_path):
    folder = folder_of(num_processes)
    record = torch.load(folder / f"{name}.pt")
    expected = record_of(make_trainer_of_run(name, tmp_path, num_processes))
    assert len(record["logs"]) == len(expected["logs"]) > 0
    for log, expected_log in zip(record["logs"], expected["logs"], strict=True):
        assert log == pytest.approx(expected_log, rel=1e-6)
    torch.testing.assert_close(record["weights"], expected["weights"], rtol=0, atol=1e-6)
    assert record["tokens"] == expected["tokens"]
    assert record["evaluation"] == pytest.approx(expected["evaluation"], rel=1e-5)


@pytest.mark.parametrize("num_processes, name", [(number, name) for number in RESUMED for name in RESUMED[number]])
def test_a_run_that_goes_on_before_an_uneven_update_is_the_same_to_the_bit(num_processes, name, folder_of):
    record, expected = (torch.load(folder_of(num_processes) / f"{name}{suffix}.pt") for suffix in ("-resumed", ""))
    assert record["logs"] == expected["logs"]
    assert record["tokens"] == expected["tokens"]
    torch.testing.assert_close(record["weights"], expected["weights"], rtol=0, atol=0)

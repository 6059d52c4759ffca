"""Two and three processes over gloo train as one where their rows do not divide: losses, gradient norms, weights."""

import helpers_uneven
import pytest
import torch
from helpers_launch import run_together
from helpers_uneven import RESUMED, RUNS, make_trainer, record_of


@pytest.fixture(scope="module", params=[2, 3])
def several(request, tmp_path_factory):
    """Number of processes, and where they left their records."""
    folder = tmp_path_factory.mktemp(f"uneven-{request.param}")
    run_together(request.param, helpers_uneven.__file__, folder)
    return request.param, folder


@pytest.mark.parametrize("name", RUNS)
def test_several_processes_train_as_one(name, several, tmp_path):
    num_processes, folder = several
    record, expected = torch.load(folder / f"{name}.pt"), record_of(make_trainer(name, tmp_path, num_processes))
    assert len(record["logs"]) == len(expected["logs"]) > 0
    for log, expected_log in zip(record["logs"], expected["logs"], strict=True):
        assert log == pytest.approx(expected_log, rel=1e-6)
    torch.testing.assert_close(record["weights"], expected["weights"], rtol=0, atol=1e-6)
    assert record["tokens"] == expected["tokens"]


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_that_goes_on_before_an_uneven_update_is_the_same_to_the_bit(name, several):
    record, expected = (torch.load(several[1] / f"{name}{suffix}.pt") for suffix in ("-resumed", ""))
    assert record["logs"] == expected["logs"] and record["tokens"] == expected["tokens"]
    torch.testing.assert_close(record["weights"], expected["weights"], rtol=0, atol=0)

"""Two processes over gloo train classifiers of other families as one does."""

import helpers_families
import pytest
import torch
from helpers_families import IN_PROCESSES, whole_record
from helpers_launch import run_together


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    run_together(2, helpers_families.__file__, folder)
    return torch.load(folder / "records.pt")


@pytest.mark.parametrize("case", IN_PROCESSES)
def test_two_processes_train_as_one(case, records):
    """19 rows: the last update of a pass has three, for two micro-batches of each process."""
    record, expected = records[case], whole_record(case)
    for log, of_one in zip(record["log"], expected["log"], strict=True):
        assert log == pytest.approx(of_one, rel=1e-5)
    assert record["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)
    torch.testing.assert_close(record["weights"], expected["weights"], rtol=0, atol=1e-6)

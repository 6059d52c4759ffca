"""Two processes over gloo reach the losses, gradient norms and weights of one process, for every kind of task."""

import helpers_training
import pytest
import torch
from helpers_launch import run_together
from helpers_training import CASES, LM_COEFS, make_trainer, training_log


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes recorded."""
    folder = tmp_path_factory.mktemp("finetuning")
    run_together(2, helpers_training.__file__, folder)
    return folder


def assert_trained_as(single, record):
    expected = training_log(single)
    assert len(record["log"]) == len(expected) == 3
    for step, expected_step in zip(record["log"], expected, strict=True):
        assert step == pytest.approx(expected_step, rel=1e-5)
    losses = {key: value for key, value in single.evaluate().items() if key.endswith("loss")}
    lm_coef = single.model.config.lm_coef
    assert losses.keys() == {"eval_loss", "eval_task_loss"} | ({"eval_lm_loss"} if lm_coef else set())
    for key, value in losses.items():
        assert record["evaluation"][key] == pytest.approx(value, rel=1e-5)
    torch.testing.assert_close(record["weights"], dict(single.model.state_dict()), rtol=0, atol=1e-6)


@pytest.mark.parametrize("lm_coef", LM_COEFS)
@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(case, lm_coef, folder, tmp_path):
    record = torch.load(folder / "records.pt")[f"{case} {lm_coef}"]
    assert_trained_as(make_trainer(case, tmp_path, batch_size=8, accumulation=1, lm_coef=lm_coef), record)


@pytest.mark.parametrize("name", ["evaluated first", "uneven batches"])
def test_neither_an_evaluation_before_nor_uneven_batches_change_the_training(name, folder, tmp_path):
    record = torch.load(folder / "records.pt")[name]
    assert_trained_as(make_trainer("multiple_choice", tmp_path, batch_size=8, accumulation=1), record)

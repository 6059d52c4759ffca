"""Passes through a stream that do not divide into updates: refused where there is none, else counted for nothing."""

import pytest
from helpers_pretraining import make_trainer


def make_stream_trainer(folder, num_rows, accumulation, **arguments):
    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": accumulation, "max_steps": 4}
    trainer = make_trainer(folder, 1, is_stream=True, **settings, **arguments)
    trainer.train_dataset = trainer.train_dataset.take(num_rows)
    return trainer


@pytest.mark.parametrize("num_rows", [1, 11])
def test_a_stream_with_fewer_batches_than_an_update_is_refused(num_rows, tmp_path):
    with pytest.raises(ValueError) as error:
        make_stream_trainer(tmp_path, num_rows, 4).train()
    assert str(error.value) == (
        f"A whole pass through the training stream has {(num_rows + 3) // 4} batches for each process, but an update "
        "needs 4 (`gradient_accumulation_steps`), so no update would ever be made. Lower "
        "`gradient_accumulation_steps` or `per_device_train_batch_size`, or add rows."
    )


def test_batches_that_fill_no_update_are_in_no_loss(tmp_path):
    """The third of each pass; the learning rate is 0, so that all updates have the loss of the first."""
    settings = {"learning_rate": 0.0, "logging_first_step": True}
    trainer = make_stream_trainer(tmp_path, 12, 2, logging_steps=2, **settings)
    trainer.train()
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)
    assert trainer.state.log_history[-1]["train_loss"] == pytest.approx(losses[0], rel=1e-6)


def test_a_run_that_is_resumed_where_a_pass_ends_goes_on(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1, "logging_steps": 3}
    whole = make_stream_trainer(tmp_path / "whole", 12, 2, **settings)
    whole.train()
    resumed = make_stream_trainer(tmp_path / "resumed", 12, 2, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    logs = [[log["loss"] for log in trainer.state.log_history if "loss" in log] for trainer in (whole, resumed)]
    assert logs[0] == logs[1] and len(logs[0]) > 0

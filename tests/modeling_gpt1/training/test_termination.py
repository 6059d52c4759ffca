"""`enable_jit_checkpoint`: SIGTERM ends a run with a checkpoint from which it goes on as if it had not been ended."""

import pytest
import torch
from support.finetuning import make_finetuning_trainer, resumes_after, without_times
from transformers import TrainerCallback
from transformers.trainer_jit_checkpoint import JITCheckpointCallback


class Terminate(TrainerCallback):
    """Does what SIGTERM does after its period of grace, at an event when there were `step` updates."""

    def __init__(self, trainer, event: str, step: int = 2):
        self.step = step
        (self.manager,) = (
            callback.jit_manager
            for callback in trainer.callback_handler.callbacks
            if isinstance(callback, JITCheckpointCallback)
        )
        setattr(self, event, self.ask)

    def ask(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.manager.is_checkpoint_requested = True


STEPS = {"save_strategy": "steps", "save_steps": 100, "logging_steps": 2, "eval_strategy": "steps", "eval_steps": 3}
EPOCHS = {"save_strategy": "epoch", "logging_strategy": "epoch", "eval_strategy": "epoch"}
EPOCHS |= {"early_stopping_patience": 1, "metric_for_best_model": "loss", "greater_is_better": False}


def make_trainer(folder, settings, **more):
    """There are 4 updates in an epoch."""
    trainer = make_finetuning_trainer("entailment", folder, 3, 2, max_steps=9, **settings, **more)
    assert len(trainer.train_dataset) == 4 * 3 * 2
    return trainer


@pytest.mark.parametrize("settings", [STEPS, EPOCHS], ids=["steps", "epochs"])
@pytest.mark.parametrize("event", ["on_step_begin", "on_pre_optimizer_step", "on_step_end"])
def test_a_terminated_run_goes_on_as_if_it_had_not_been(event, settings, tmp_path):
    whole = make_trainer(tmp_path / "whole", settings)
    whole.train()
    run = tmp_path / "run"
    ended = make_trainer(run, settings, enable_jit_checkpoint=True)
    ended.add_callback(Terminate(ended, event))
    ended.train()
    assert ended.is_terminated
    assert ended.state.global_step == 3
    assert [path.name for path in run.iterdir() if path.is_dir()] == ["checkpoint-3"]

    resumed = make_trainer(run, settings)
    with resumes_after(3):
        resumed.train(resume_from_checkpoint="auto")
    weights = resumed.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in whole.model.state_dict().items())
    logs = [without_times(trainer.state.log_history) for trainer in (resumed, whole)]
    records = [[record for record in log if {"loss", "eval_loss"} & record.keys()] for log in logs]
    assert records[0] == records[1]
    assert len(records[0]) > 3


def test_a_run_that_is_not_terminated_says_so(tmp_path):
    trainer = make_trainer(tmp_path, STEPS, enable_jit_checkpoint=True)
    trainer.train()
    assert not trainer.is_terminated
    assert trainer.state.global_step == 9


def test_a_run_that_is_terminated_in_its_last_update_is_whole(tmp_path):
    whole = make_trainer(tmp_path / "whole", EPOCHS)
    whole.train()
    ended = make_trainer(tmp_path / "ended", EPOCHS, enable_jit_checkpoint=True)
    ended.add_callback(Terminate(ended, "on_step_begin", step=8))
    ended.train()
    logs = [without_times(trainer.state.log_history) for trainer in (ended, whole)]
    assert logs[0] == logs[1]
    assert [record["step"] for record in logs[0] if "eval_loss" in record] == [4, 8, 9]
    assert ended.state.best_global_step == whole.state.best_global_step


def test_a_trainer_that_was_terminated_trains_again_as_if_it_had_not_been(tmp_path):
    trainer = make_trainer(tmp_path, EPOCHS, enable_jit_checkpoint=True)
    trainer.add_callback(Terminate(trainer, "on_step_begin", step=1))
    trainer.train()
    assert trainer.is_terminated
    trainer.train(resume_from_checkpoint="auto")
    assert not trainer.is_terminated
    assert [log["step"] for log in trainer.state.log_history if "eval_loss" in log] == [4, 8, 9]

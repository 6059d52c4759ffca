"""`enable_jit_checkpoint`: SIGTERM ends a run with a checkpoint from which it goes on as if it had not been ended."""

import pytest
import torch
from support.finetuning import make_finetuning_trainer, resumes_after, without_times
from transformers import TrainerCallback
from transformers.trainer_jit_checkpoint import JITCheckpointCallback


class Terminate(TrainerCallback):
    """Does what SIGTERM does after its period of grace, at an event of the third update."""

    def __init__(self, trainer, event: str):
        (self.manager,) = (
            callback.jit_manager
            for callback in trainer.callback_handler.callbacks
            if isinstance(callback, JITCheckpointCallback)
        )
        setattr(self, event, self.ask)

    def ask(self, args, state, control, **kwargs):
        if state.global_step == 2:
            self.manager.is_checkpoint_requested = True


def make_trainer(folder, **more):
    return make_finetuning_trainer(
        "entailment", folder, 4, 2, max_steps=5, save_strategy="steps", save_steps=100, logging_steps=2, **more
    )


@pytest.mark.parametrize("event", ["on_step_begin", "on_pre_optimizer_step", "on_step_end"])
def test_a_terminated_run_goes_on_as_if_it_had_not_been(event, tmp_path):
    whole = make_trainer(tmp_path / "whole")
    whole.train()
    run = tmp_path / "run"
    ended = make_trainer(run, enable_jit_checkpoint=True)
    ended.add_callback(Terminate(ended, event))
    ended.train()
    assert ended.is_terminated
    assert ended.state.global_step == 3
    assert [path.name for path in run.iterdir() if path.is_dir()] == ["checkpoint-3"]

    resumed = make_trainer(run)
    with resumes_after(3):
        resumed.train(resume_from_checkpoint="auto")
    weights = resumed.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in whole.model.state_dict().items())
    logs = [without_times(trainer.state.log_history) for trainer in (resumed, whole)]
    assert [record for record in logs[0] if "loss" in record] == [record for record in logs[1] if "loss" in record]


def test_a_run_that_is_not_terminated_says_so(tmp_path):
    trainer = make_trainer(tmp_path, enable_jit_checkpoint=True)
    trainer.train()
    assert not trainer.is_terminated
    assert trainer.state.global_step == 5

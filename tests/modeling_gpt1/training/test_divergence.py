"""A run whose loss, gradient norm or weights are not finite says so, stops, and keeps its last finite checkpoint."""

import math

import pytest
import support.finetuning
import support.pretraining
import torch
from transformers import TrainerCallback, TrainingArguments

from modeling_gpt1.training.checkpoint import check_weights

ADVICE = "Check the weights and the rows for errors, use a lower `learning_rate`"
NO_CHECKPOINT = "The run has diverged. There is no checkpoint to resume from."


class Spoil(TrainerCallback):
    """Sets a weight to NaN before the update after `step`."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            next(model.parameters()).data[:] = float("nan")


class SpoilGradient(Spoil):
    """Makes a gradient infinite, where the loss is sound."""

    def on_step_begin(self, args, state, control, **kwargs):
        pass

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            next(model.parameters()).data[:] = float("inf")


def make_spoiled_trainer(kind, folder, spoil, **arguments):
    arguments = {"logging_steps": 1, "save_strategy": "steps", "save_steps": 1, "save_total_limit": 1, **arguments}
    if kind == "fine-tuning":
        trainer = support.finetuning.make_finetuning_trainer("classification", folder, 4, 1, max_steps=6, **arguments)
    else:
        trainer = support.pretraining.make_pretraining_trainer(folder, 1, **arguments)
    trainer.add_callback(spoil)
    return trainer


def logged(trainer):
    return [log for log in trainer.state.log_history if "loss" in log]


@pytest.mark.parametrize("kind", ["fine-tuning", "pre-training"])
def test_a_loss_that_is_nan_is_logged_and_stops_the_run(kind, tmp_path):
    trainer = make_spoiled_trainer(kind, tmp_path, Spoil(3))
    with pytest.raises(FloatingPointError) as error:
        trainer.train()
    assert str(error.value).startswith(
        "`loss` is nan and `grad_norm` is nan after update 4. The run has diverged. The last checkpoint is "
        f"{tmp_path}/checkpoint-3. {ADVICE}"
    )
    losses = [log["loss"] for log in logged(trainer)]
    assert len(losses) == 4
    assert all(map(math.isfinite, losses[:3]))
    assert math.isnan(losses[3])
    assert math.isnan(logged(trainer)[3]["perplexity" if kind == "pre-training" else "task_loss"])
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-3"]


@pytest.mark.parametrize("save_strategy", ["steps", "no"])
def test_weights_are_looked_at_where_nothing_is_logged(save_strategy, tmp_path):
    trainer = make_spoiled_trainer(
        "fine-tuning", tmp_path, SpoilGradient(5), logging_steps=100, save_strategy=save_strategy
    )
    with pytest.raises(FloatingPointError) as error:
        trainer.train()
    last = f"The run has diverged. The last checkpoint is {tmp_path}/checkpoint-5."
    last = last if save_strategy == "steps" else NO_CHECKPOINT
    assert str(error.value).startswith(f"Weights are not finite after update 6. {last} {ADVICE}")


def test_a_run_without_logs_says_so_at_its_end(tmp_path):
    trainer = make_spoiled_trainer("pre-training", tmp_path, Spoil(2), logging_strategy="no", save_strategy="no")
    with pytest.raises(FloatingPointError, match="^`train_loss` is nan after update 6. "):
        trainer.train()


def test_arguments_of_transformers_stop_by_the_gradient_norm(tmp_path):
    """Their filter replaces the loss."""
    trainer = support.finetuning.make_finetuning_trainer(
        "classification", tmp_path, 4, 1, arguments_class=TrainingArguments, logging_steps=2
    )
    trainer.add_callback(Spoil(1))
    with pytest.raises(FloatingPointError, match="^`grad_norm` is nan after update 2"):
        trainer.train()


def test_an_overflow_that_a_scaler_skips_is_no_divergence(tmp_path):
    trainer = make_spoiled_trainer("fine-tuning", tmp_path, Spoil(-1))
    trainer._run_dir = str(tmp_path)
    trainer.log({"loss": 1.0, "grad_norm": 2.0})
    trainer.create_optimizer()
    trainer.optimizer = trainer.accelerator.prepare(trainer.optimizer)
    trainer.optimizer._is_overflow = trainer.optimizer._accelerate_step_called = True
    assert trainer.accelerator.optimizer_step_was_skipped
    trainer.log({"loss": 1.0, "grad_norm": float("inf")})


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_one_number_of_one_weight_is_enough(number, tmp_path):
    trainer = make_spoiled_trainer("fine-tuning", tmp_path, Spoil(-1))
    check_weights(trainer, str(tmp_path))
    weight = list(trainer.model.parameters())[3]
    weight.data.view(-1)[-1] = float(number)
    with pytest.raises(FloatingPointError, match="^Weights are not finite after update 0. "):
        check_weights(trainer, str(tmp_path))


def test_a_weight_that_only_another_process_holds_ends_the_run_in_each(tmp_path, monkeypatch):
    trainer = make_spoiled_trainer("fine-tuning", tmp_path, Spoil(-1))
    monkeypatch.setattr(trainer.accelerator, "gather", lambda own: torch.cat([own, torch.zeros_like(own)]))
    with pytest.raises(FloatingPointError, match="^Weights are not finite after update 0. "):
        check_weights(trainer, str(tmp_path))

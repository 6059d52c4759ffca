"""`early_stopping_patience`: what it sets, when it stops, and what a resumed run does."""

import pytest
import torch
from support.finetuning import make_finetuning_trainer, resumes_after
from support.refusals import check_refused
from transformers import EarlyStoppingCallback

from modeling_gpt1 import GPT1PretrainingArguments, GPT1TrainingArguments


def make_trainer(folder, patience: int = 2, **given):
    """Its learning rate is 0, so that the first evaluation is the best; there are 9 updates in 3 epochs."""
    settings = dict(early_stopping_patience=patience, max_steps=-1, num_train_epochs=9, save_strategy="steps")
    return make_finetuning_trainer("entailment", folder, 8, 1, learning_rate=0.0, **{**settings, **given})


@pytest.mark.parametrize("arguments_class", [GPT1TrainingArguments, GPT1PretrainingArguments])
def test_patience_alone_evaluates_and_saves_after_each_epoch_and_keeps_the_best(arguments_class, tmp_path):
    args = arguments_class(str(tmp_path), early_stopping_patience=3)
    assert (args.eval_strategy, args.save_strategy, args.save_total_limit) == ("epoch", "epoch", 2)
    assert (args.load_best_model_at_end, args.metric_for_best_model, args.do_eval) == (True, "loss", True)


def test_given_evaluations_are_kept_and_each_has_a_checkpoint(tmp_path):
    args = GPT1TrainingArguments(str(tmp_path), early_stopping_patience=3, eval_strategy="steps", eval_steps=7)
    assert (args.eval_strategy, args.eval_steps, args.save_strategy, args.save_steps) == ("steps", 7, "steps", 7)


def test_given_checkpoints_are_kept(tmp_path):
    given = {"eval_strategy": "steps", "eval_steps": 7, "save_steps": 14, "save_total_limit": 5}
    args = GPT1TrainingArguments(str(tmp_path), early_stopping_patience=3, **given)
    assert (args.save_steps, args.save_total_limit) == (14, 5)


def test_a_patience_of_no_evaluation_is_refused(tmp_path):
    check_refused(
        lambda: GPT1TrainingArguments(str(tmp_path), early_stopping_patience=0),
        "`early_stopping_patience` is 0",
        "at least 1",
    )


def test_a_run_stops_after_its_patience(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.train()
    assert trainer.state.global_step == 9  # of 27: the first epoch is the best, and two are not
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-3")


def test_a_run_that_stopped_early_is_finished_when_it_is_resumed(tmp_path):
    make_trainer(tmp_path).train()
    with resumes_after(None):
        make_trainer(tmp_path).train(resume_from_checkpoint="auto")


def test_a_run_that_stopped_early_goes_on_with_more_patience(tmp_path):
    make_trainer(tmp_path).train()
    trainer = make_trainer(tmp_path, patience=4)
    with resumes_after(9):
        trainer.train(resume_from_checkpoint="auto")
    assert trainer.state.global_step == 15


def test_without_patience_there_is_no_callback(tmp_path):
    trainer = make_trainer(tmp_path, patience=None)
    assert not [one for one in trainer.callback_handler.callbacks if isinstance(one, EarlyStoppingCallback)]


def test_the_best_by_another_score_is_looked_for_anew(tmp_path, caplog):
    """A loss is not compared with the accuracy of the run before."""

    def accuracy(prediction):
        return {"accuracy": 0.5}

    def make(metric, **more):
        settings = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch"}
        settings |= {"learning_rate": 0.05, "max_steps": -1, "metric_for_best_model": metric, **more}
        trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, **settings)
        trainer.compute_metrics = accuracy
        return trainer

    make("accuracy", num_train_epochs=1).train()
    trainer = make("loss", num_train_epochs=3)
    with resumes_after(3):
        trainer.train(resume_from_checkpoint="auto")
    losses = {log["step"]: log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log}
    assert min(losses.values()) > 0.5  # negative control: no loss is below the accuracy
    assert trainer.state.best_metric == min(losses[6], losses[9])
    assert "best_by was highest accuracy and is lowest loss" in caplog.text


@pytest.mark.parametrize("patience", [None, 9])
def test_a_finished_run_keeps_its_best_weights_whatever_is_asked_of_it_next(tmp_path, patience):
    settings = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch", "max_steps": -1}
    settings |= {"learning_rate": 0.05, "num_train_epochs": 2, "early_stopping_patience": patience}

    def make(metric):
        trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, metric_for_best_model=metric, **settings)
        trainer.args.greater_is_better = True  # so that the first epoch is the best
        return trainer

    first = make("loss")
    first.train()
    assert first.state.best_global_step == 3
    again = make("task_loss")
    with resumes_after(None):
        again.train(resume_from_checkpoint="auto")
    weights = again.model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in first.model.state_dict().items())
    assert again.state.best_global_step == 3


def test_the_same_score_by_its_longer_name_is_the_same(tmp_path, caplog):
    settings = {"load_best_model_at_end": True, "eval_strategy": "epoch", "save_strategy": "epoch", "max_steps": -1}

    def make(metric, epochs):
        more = {"metric_for_best_model": metric, "num_train_epochs": epochs, **settings}
        return make_finetuning_trainer("entailment", tmp_path, 8, 1, **more)

    make("loss", 1).train()
    make("eval_loss", 2).train(resume_from_checkpoint="auto")
    assert "best_by" not in caplog.text

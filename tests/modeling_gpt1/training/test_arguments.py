"""Arguments of both trainers: which score is the best one, and runs that would train nothing."""

import pytest
from transformers import TrainingArguments

from modeling_gpt1 import GPT1PretrainingArguments, GPT1TrainingArguments
from modeling_gpt1.training.arguments import check_arguments

ARGUMENTS = [GPT1TrainingArguments, GPT1PretrainingArguments]


@pytest.mark.parametrize("arguments_class", ARGUMENTS)
@pytest.mark.parametrize(
    "name",
    ["loss", "eval_loss", "perplexity", "mean_squared_error", "max_error", "brier_score", "mse", "smape", "eval_wer"],
)
def test_the_best_error_is_the_least(arguments_class, name):
    assert arguments_class("o", metric_for_best_model=name).greater_is_better is False


@pytest.mark.parametrize("arguments_class", ARGUMENTS)
@pytest.mark.parametrize(
    "name",
    ["accuracy", "eval_validation_matched_accuracy", "f1", "f1_macro", "neg_mean_squared_error", "d2_brier_score"],
)
def test_the_best_score_is_the_greatest(arguments_class, name):
    assert arguments_class("o", metric_for_best_model=name).greater_is_better is True


def test_of_an_unknown_score_the_direction_must_be_given():
    arguments = GPT1TrainingArguments("o", metric_for_best_model="surprise")
    with pytest.raises(ValueError, match="`metric_for_best_model` is 'surprise'.* Pass `greater_is_better` as well"):
        check_arguments(arguments)


@pytest.mark.parametrize("direction", [True, False])
def test_a_given_direction_is_kept(direction):
    arguments = GPT1TrainingArguments("o", metric_for_best_model="surprise", greater_is_better=direction)
    check_arguments(arguments)
    assert arguments.greater_is_better is direction


@pytest.mark.parametrize("arguments_class", ARGUMENTS)
@pytest.mark.parametrize(
    "given", [{"num_train_epochs": -1}, {"num_train_epochs": 0}, {"max_steps": -2}, {"max_steps": 0}]
)
def test_a_run_that_trains_nothing_is_refused(arguments_class, given):
    (name, value), *_ = given.items()
    with pytest.raises(ValueError, match=f"`{name}` is {value}, which trains nothing. Give a number above 0"):
        arguments_class("o", **given)


def test_the_trainers_refuse_transformers_arguments_that_train_nothing():
    with pytest.raises(ValueError, match="`num_train_epochs` is -1, which trains nothing"):
        check_arguments(TrainingArguments("o", num_train_epochs=-1))


def test_updates_decide_the_length_before_epochs():
    assert GPT1TrainingArguments("o", num_train_epochs=-1, max_steps=3).max_steps == 3

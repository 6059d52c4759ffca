"""What a trainer refuses before any work is done."""

import pytest
from support.finetuning import Rows, make_finetuning_trainer
from support.pretraining import Collator, make_language_model, make_pretraining_trainer
from support.refusals import refusal

from modeling_gpt1 import GPT1PretrainingArguments, GPT1PretrainingTrainer
from tokenization import Task, compute_metrics_for

CHOOSES_BEST = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "best"}
TASK = Task("own", "classification", {"text": "a", "label": "label"}, label_names=("x", "y"), metrics=("accuracy",))


def refused_run(trainer) -> str:
    """The message of a run that is refused before its first update."""
    message = refusal(trainer.train)
    assert trainer.state.global_step == 0
    return message


@pytest.mark.parametrize("argument", ["train_dataset", "eval_dataset"])
def test_texts_are_no_rows(argument, tmp_path):
    arguments = GPT1PretrainingArguments(str(tmp_path), use_cpu=True)
    given = {argument: ["a good film", "a bad plot"]}
    message = refusal(GPT1PretrainingTrainer, make_language_model(), arguments, data_collator=Collator(), **given)
    assert message.startswith(f"`{argument}` has the text 'a good film' as a row.")
    assert "`load_blocks` makes rows for pre-training of the files of a corpus" in message


def test_no_sets_to_evaluate_are_taken_where_nothing_is_evaluated(tmp_path):
    arguments = GPT1PretrainingArguments(str(tmp_path), use_cpu=True)
    given = {"train_dataset": [{"input_ids": [1, 2, 3]}], "eval_dataset": {}}
    assert GPT1PretrainingTrainer(make_language_model(), arguments, data_collator=Collator(), **given)


def test_a_score_that_no_evaluation_of_the_task_has_is_refused_before_training(tmp_path):
    arguments = {**CHOOSES_BEST, "metric_for_best_model": "f1", "greater_is_better": True}
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, **arguments)
    trainer.compute_metrics = compute_metrics_for(TASK)
    scores = "loss, task_loss, lm_loss, lm_perplexity, accuracy"
    told = f"`metric_for_best_model` is 'f1'. Pass one that an evaluation has: {scores}."
    assert refused_run(trainer) == told


def test_a_score_without_metrics_is_refused_before_training(tmp_path):
    arguments = {**CHOOSES_BEST, "metric_for_best_model": "eval_acuracy", "greater_is_better": True}
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, **arguments)
    assert refused_run(trainer).endswith("Pass one that an evaluation has: loss, task_loss, lm_loss, lm_perplexity.")


def test_a_loss_of_the_auxiliary_objective_is_refused_without_it(tmp_path):
    arguments = {**CHOOSES_BEST, "metric_for_best_model": "lm_loss", "lm_coef": 0.0}
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, **arguments)
    assert refused_run(trainer).endswith("Pass one that an evaluation has: loss, task_loss.")
    assert {"eval_loss", "eval_task_loss"} <= trainer.evaluate().keys()


def test_a_score_of_a_pre_training_is_refused_before_training(tmp_path):
    arguments = {**CHOOSES_BEST, "metric_for_best_model": "perplexty", "greater_is_better": False}
    told = "'perplexty' (did you mean 'perplexity'?). Pass one that an evaluation has: loss, perplexity."
    assert refused_run(make_pretraining_trainer(tmp_path, 1, **arguments)).endswith(told)


def test_a_score_of_several_sets_begins_with_the_name_of_one(tmp_path):
    arguments = {**CHOOSES_BEST, "metric_for_best_model": "loss"}
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, **arguments)
    trainer.eval_dataset = {"a": Rows("classification"), "b": Rows("classification")}
    assert "an evaluation has: a_loss, a_task_loss, a_lm_loss, a_lm_perplexity, b_loss," in refused_run(trainer)


def test_scores_of_a_function_that_does_not_tell_them_are_not_refused(tmp_path):
    arguments = {**CHOOSES_BEST, "metric_for_best_model": "eval_rows", "greater_is_better": True, "max_steps": 1}
    trainer = make_finetuning_trainer("classification", tmp_path, 8, 1, **arguments)
    trainer.compute_metrics = lambda prediction: {"rows": len(prediction.label_ids)}
    trainer.train()
    assert trainer.state.best_metric == 11


@pytest.mark.parametrize("case", ["similarity", "multiple_choice"])
def test_inputs_of_rows_with_several_sequences_are_no_input_of_a_metric(case, tmp_path):
    message = refusal(make_finetuning_trainer, case, tmp_path, 8, 1, include_for_metrics=["inputs"])
    assert f"'inputs', but a row of the traversal '{case}' is several sequences" in message
    assert "Leave 'inputs' out: the rows of `eval_dataset`" in message


def test_inputs_of_rows_with_one_sequence_are_an_input_of_a_metric(tmp_path):
    arguments = {"include_for_metrics": ["inputs", "loss"], "per_device_eval_batch_size": 4}
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, **arguments)
    trainer.compute_metrics = lambda prediction: {"rows": len(prediction.inputs)}
    assert trainer.evaluate()["eval_rows"] == 11

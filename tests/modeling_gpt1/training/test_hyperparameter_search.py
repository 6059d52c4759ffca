"""A search for hyper-parameters goes by the metrics if there are any, else by the loss; with optuna."""

import helpers_pretraining
import helpers_training
import pytest
from helpers_pretraining import make_dataset

from modeling_gpt1 import GPT1PretrainingArguments, GPT1PretrainingTrainer, GPT1Trainer, GPT1TrainingArguments
from modeling_gpt1.training.measures import objective_of

SETTINGS = {"max_steps": 2, "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "report_to": "none"}


def first_score(prediction):
    scores = prediction.predictions
    return {"score": float((scores[0] if isinstance(scores, tuple) else scores)[:, 0].mean())}


def make_trainer(kind, folder):
    if kind == "pre-training":
        return GPT1PretrainingTrainer(
            args=GPT1PretrainingArguments(str(folder), **SETTINGS),
            model_init=helpers_pretraining.make_model,
            data_collator=helpers_pretraining.Collator(),
            train_dataset=make_dataset(False),
            eval_dataset=make_dataset(False),
        )
    tokenizer = helpers_training.make_tokenizer()
    model = helpers_training.make_model("classification", tokenizer)
    return GPT1Trainer(
        args=GPT1TrainingArguments(str(folder), **SETTINGS),
        model_init=lambda: helpers_training.make_model("classification", tokenizer),
        data_collator=helpers_training.make_collator(model, tokenizer),
        train_dataset=helpers_training.Rows("classification"),
        eval_dataset=helpers_training.Rows("classification", 11),
        processing_class=tokenizer,
        compute_metrics=first_score if kind == "with metrics" else None,
    )


def learning_rates(trial):
    return {"learning_rate": trial.suggest_categorical("learning_rate", [1e-6, 0.05])}


@pytest.mark.parametrize(
    ("kind", "direction", "name", "said"),
    [
        ("with metrics", "maximize", "eval_score", "the sum of the metrics"),
        ("without metrics", "minimize", "eval_loss", "the loss"),
        ("pre-training", "minimize", "eval_loss", "the loss"),
    ],
)
def test_the_best_run_is_that_of_the_best_metric_or_loss(kind, direction, name, said, tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna")
    trainer, evaluations, told = make_trainer(kind, tmp_path), [], []
    monkeypatch.setattr("modeling_gpt1.training.trainer.logger.warning", told.append)
    evaluate = trainer.evaluate
    trainer.evaluate = lambda *args, **kwargs: evaluations.append(evaluate(*args, **kwargs)) or evaluations[-1]
    grid = optuna.samplers.GridSampler({"learning_rate": [1e-6, 0.05]})
    best = trainer.hyperparameter_search(learning_rates, n_trials=2, backend="optuna", sampler=grid)
    assert told == [f"The hyperparameter search will {direction} {said}."]
    values = [evaluation[name] for evaluation in evaluations]
    assert len(values) == 2 and values[0] != values[1]
    assert best.objective == {"maximize": max, "minimize": min}[direction](values)


def test_an_objective_and_a_direction_of_the_user_stay(tmp_path):
    pytest.importorskip("optuna")
    best = make_trainer("with metrics", tmp_path).hyperparameter_search(
        learning_rates, lambda evaluation: -7.0, n_trials=1, direction="maximize", backend="optuna"
    )
    assert best.objective == -7.0


@pytest.mark.parametrize(
    ("evaluation", "data_sets", "objective"),
    [
        ({"loss": 2.0, "task_loss": 1.0, "lm_loss": 2.0, "accuracy": 0.5, "f1": 0.25}, (), 0.75),
        ({"loss": 2.0, "task_loss": 1.0, "lm_loss": 2.0}, (), 2.0),
        ({"loss": 2.0, "perplexity": 7.4}, (), 2.0),
        ({"loss": 2.0, "mlm_loss": 1.5, "sentence_loss": 0.5, "sentence_accuracy": 0.7}, (), 2.0),
        ({"loss": 2.0, "denoising_loss": 2.0}, (), 2.0),
        ({"loss": 2.0, "word_perplexity": 30.0, "log_loss": 0.5, "response_time": 0.25}, (), 30.75),
        ({"a_loss": 2.0, "a_b_loss": 3.0, "a_task_loss": 5.0}, ("a", "a_b"), 5.0),
        ({"a_loss": 2.0, "a_b_loss": 3.0, "a_log_loss": 5.0, "a_b_log_loss": 7.0}, ("a", "a_b"), 12.0),
    ],
)
def test_the_objective_has_no_losses_beside_metrics_and_no_times(evaluation, data_sets, objective):
    evaluation = {f"eval_{name}": value for name, value in evaluation.items()}
    times = {"eval_runtime": 9.0, "eval_samples_per_second": 9.0, "eval_steps_per_second": 9.0, "epoch": 9.0}
    times["num_input_tokens_seen"] = 460
    times["eval_model_preparation_time"] = 9.0
    times |= {name.replace("eval_", f"eval_{data_set}_"): 9.0 for name in times for data_set in data_sets}
    assert objective_of({**evaluation, **times}, data_sets) == objective


def test_a_search_that_maximises_metrics_needs_one(tmp_path):
    pytest.importorskip("optuna")
    trainer = make_trainer("with metrics", tmp_path)
    trainer.compute_metrics = lambda prediction: {"task_loss": 1.0}
    with pytest.raises(ValueError, match="returned none: the evaluation has eval_loss, eval_task_loss.*pass `direct"):
        trainer.hyperparameter_search(learning_rates, n_trials=1, backend="optuna")
    evaluate, evaluations = trainer.evaluate, []
    trainer.evaluate = lambda *args, **kwargs: evaluations.append(evaluate(*args, **kwargs)) or evaluations[-1]
    best = trainer.hyperparameter_search(learning_rates, n_trials=1, direction="minimize", backend="optuna")
    assert best.objective == evaluations[0]["eval_loss"]

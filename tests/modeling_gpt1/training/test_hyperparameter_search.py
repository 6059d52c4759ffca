"""A search for hyper-parameters goes by the loss, or by the objective of the user; with optuna."""

import pytest
import support.finetuning
import support.pretraining
from support.pretraining import make_dataset

from modeling_gpt1 import GPT1PretrainingArguments, GPT1PretrainingTrainer, GPT1Trainer, GPT1TrainingArguments
from tokenization import compute_metrics_for, get_task

SETTINGS = {"max_steps": 2, "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "report_to": "none"}


def first_score(prediction):
    scores = prediction.predictions
    return {"score": float((scores[0] if isinstance(scores, tuple) else scores)[:, 0].mean())}


def make_searching_trainer(kind, folder):
    if kind == "pre-training":
        return GPT1PretrainingTrainer(
            args=GPT1PretrainingArguments(str(folder), **SETTINGS),
            model_init=support.pretraining.make_language_model,
            data_collator=support.pretraining.Collator(),
            train_dataset=make_dataset(False),
            eval_dataset=make_dataset(False),
        )
    tokenizer = support.finetuning.make_letter_tokenizer()
    model = support.finetuning.make_double_heads_model("classification", tokenizer)
    return GPT1Trainer(
        args=GPT1TrainingArguments(str(folder), **SETTINGS),
        model_init=lambda: support.finetuning.make_double_heads_model("classification", tokenizer),
        data_collator=support.finetuning.make_traversal_collator(model, tokenizer),
        train_dataset=support.finetuning.Rows("classification"),
        eval_dataset=support.finetuning.Rows("classification", 11),
        processing_class=tokenizer,
        compute_metrics=first_score,
    )


def learning_rates(trial):
    return {"learning_rate": trial.suggest_categorical("learning_rate", [1e-6, 0.05])}


@pytest.mark.parametrize("kind", ["with metrics", "pre-training", "own objective"])
def test_the_best_run_is_that_of_the_least_loss_or_of_the_best_metric(kind, tmp_path):
    optuna = pytest.importorskip("optuna")
    trainer, evaluations = make_searching_trainer(kind, tmp_path), []
    evaluate = trainer.evaluate
    trainer.evaluate = lambda *args, **kwargs: evaluations.append(evaluate(*args, **kwargs)) or evaluations[-1]
    name, best_of, choices = "eval_loss", min, {}
    if kind == "own objective":
        name, best_of = "eval_score", max
        choices = {"compute_objective": lambda evaluation: evaluation[name], "direction": "maximize"}
    grid = optuna.samplers.GridSampler({"learning_rate": [1e-6, 0.05]})
    best = trainer.hyperparameter_search(learning_rates, n_trials=2, backend="optuna", sampler=grid, **choices)
    values = [evaluation[name] for evaluation in evaluations]
    assert len(values) == 2
    assert values[0] != values[1]
    assert best.objective == best_of(values)


def test_each_trial_has_its_own_lm_coef_and_several_sets_count_alike(tmp_path):
    optuna = pytest.importorskip("optuna")
    trainer, trained, evaluations = make_searching_trainer("with metrics", tmp_path), [], []
    step, evaluate = trainer.training_step, trainer.evaluate
    trainer.training_step = lambda *args: trained.append(trainer._own_model.config.lm_coef) or step(*args)
    trainer.evaluate = lambda *args, **kwargs: evaluations.append(evaluate(*args, **kwargs)) or evaluations[-1]
    trainer.eval_dataset = {"a": trainer.eval_dataset, "b": support.finetuning.Rows("classification", 3)}
    options = {"n_trials": 2, "backend": "optuna", "sampler": optuna.samplers.GridSampler({"lm_coef": [0.0, 2.0]})}
    best = trainer.hyperparameter_search(lambda trial: {"lm_coef": trial.suggest_float("lm_coef", 0, 2)}, **options)
    assert trained in ([0.0, 0.0, 2.0, 2.0], [2.0, 2.0, 0.0, 0.0])
    whole = [found for found in evaluations if "eval_a_loss" in found and "eval_b_loss" in found]
    assert best.objective == min((found["eval_a_loss"] + found["eval_b_loss"]) / 2 for found in whole)


def scores_of_a_task(prediction):
    """A figure of the predictions that differs between the two trials; what it means does not matter here."""
    return {"accuracy": first_score(prediction)["score"]}


scores_of_a_task.score_names = ("accuracy",)  # as `compute_metrics_for` has it


def search(trainer, **options):
    optuna = pytest.importorskip("optuna")
    evaluations = []
    evaluate = trainer.evaluate
    trainer.evaluate = lambda *args, **kwargs: evaluations.append(evaluate(*args, **kwargs)) or evaluations[-1]
    grid = optuna.samplers.GridSampler({"learning_rate": [1e-6, 0.05]})
    best = trainer.hyperparameter_search(learning_rates, n_trials=2, backend="optuna", sampler=grid, **options)
    return best, evaluations


@pytest.mark.parametrize("direction", [None, "maximize"])
def test_with_metrics_of_a_task_the_best_run_has_the_best_first_metric(direction, tmp_path):
    trainer = make_searching_trainer("with metrics", tmp_path)
    trainer.compute_metrics = scores_of_a_task
    best, evaluations = search(trainer, direction=direction)
    accuracies = [evaluation["eval_accuracy"] for evaluation in evaluations]
    assert accuracies[0] != accuracies[1]
    assert best.objective == max(accuracies)


def test_the_score_of_the_best_model_is_searched_by(tmp_path):
    trainer = make_searching_trainer("with metrics", tmp_path)
    trainer.compute_metrics = scores_of_a_task
    trainer.args.metric_for_best_model = "task_loss"
    trainer.args.greater_is_better = False
    best, evaluations = search(trainer)
    assert best.objective == min(evaluation["eval_task_loss"] for evaluation in evaluations)


@pytest.mark.parametrize(("metrics", "direction"), [(first_score, "maximize"), (scores_of_a_task, "minimize")])
def test_a_direction_that_is_not_the_objectives_is_refused(metrics, direction, tmp_path):
    trainer = make_searching_trainer("with metrics", tmp_path)
    trainer.compute_metrics = metrics
    score = "loss" if metrics is first_score else "accuracy"
    with pytest.raises(
        ValueError, match=f"`direction` is '{direction}', but the objective is '{score}'.* as `metric_for"
    ):
        trainer.hyperparameter_search(learning_rates, n_trials=1, backend="optuna", direction=direction)


def test_the_metrics_of_a_task_tell_their_names():
    assert compute_metrics_for("mrpc").score_names == get_task("mrpc").metrics


@pytest.mark.parametrize(
    ("score", "names"),
    [("loss", ["eval_a_loss", "eval_b_loss"]), ("b_task_loss", ["eval_b_task_loss"])],
)
def test_of_several_sets_all_count_unless_the_score_names_one(score, names, tmp_path):
    trainer = make_searching_trainer("with metrics", tmp_path)
    trainer.eval_dataset = {"a": trainer.eval_dataset, "b": trainer.eval_dataset}
    assert trainer._names_of_score(score) == names

"""A search for hyper-parameters goes by the loss, or by the objective of the user; with optuna."""

import pytest
import support.finetuning
import support.pretraining
from support.pretraining import make_dataset

from modeling_gpt1 import GPT1PretrainingArguments, GPT1PretrainingTrainer, GPT1Trainer, GPT1TrainingArguments

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
    assert len(values) == 2 and values[0] != values[1] and best.objective == best_of(values)


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

"""Weights of the classes in the loss of a fine-tuning: which loss they give, how they are named, and refusals."""

import json

import numpy as np
import pytest
import torch
from support.families import make_family_trainer
from support.finetuning import Rows, make_finetuning_trainer
from support.refusals import check_refused
from torch import nn

from modeling_gpt1 import GPT1Config
from modeling_gpt1.training.class_weights import weights_of_classes

ROWS = [{"mood": label} for label in (0, 0, 0, 1)]
NAMES = {0: "happy", 1: "sad"}


def config_of(**fields) -> GPT1Config:
    return GPT1Config(**{"id2label": NAMES, "label2id": {name: label for label, name in NAMES.items()}, **fields})


def collator_of(trainer):
    collator = trainer.data_collator
    collator.columns = {**collator.columns, "label": "mood"}
    return collator


@pytest.fixture
def collator(tmp_path):
    return collator_of(make_finetuning_trainer("entailment", tmp_path, 4, 1))


def weighted_loss(logits: torch.Tensor, labels: torch.Tensor, weights: list[float]) -> float:
    """The sum of the weighted cross-entropies by the number of examples."""
    losses = nn.functional.cross_entropy(logits, labels, torch.tensor(weights), reduction="none")
    return losses.mean().item()


def test_the_task_loss_of_training_is_weighted(tmp_path):
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, class_weights=["1", "9"])
    batch = trainer.data_collator(Rows("entailment").rows[:8])
    output = trainer.model.train()(**batch)
    assert output.task_loss.item() == pytest.approx(weighted_loss(output.task_logits, batch["labels"], [1.0, 9.0]))
    assert output.loss.item() == pytest.approx(output.task_loss.item() + 0.5 * output.lm_loss.item())


def test_the_task_loss_of_an_evaluation_is_not_weighted(tmp_path):
    weighted = make_finetuning_trainer("entailment", tmp_path, 8, 1, class_weights=["1", "9"])
    plain = make_finetuning_trainer("entailment", tmp_path, 8, 1)
    assert weighted.evaluate()["eval_task_loss"] == plain.evaluate()["eval_task_loss"]


def test_the_weighted_loss_does_not_depend_on_micro_batches(tmp_path):
    logs = []
    for batch_size, accumulation in ((8, 1), (2, 4)):
        trainer = make_finetuning_trainer("entailment", tmp_path, batch_size, accumulation, class_weights="balanced")
        trainer.train()
        logs.append([record["task_loss"] for record in trainer.state.log_history if "task_loss" in record])
    assert logs[0] == pytest.approx(logs[1], abs=1e-6)


def test_weights_are_not_saved_with_the_model(tmp_path):
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, class_weights=["1", "9"])
    trainer.save_model(str(tmp_path / "saved"))
    assert "weights" not in (tmp_path / "saved" / "config.json").read_text(encoding="utf-8")


def test_a_classifier_of_another_family_is_trained_with_the_weights(tmp_path):
    losses = []
    for weights in (["3", "3"], None):
        trainer = make_family_trainer("bert pair", tmp_path, 8, 1, class_weights=weights, max_steps=1)
        trainer.train()
        losses.append(next(record["loss"] for record in trainer.state.log_history if "loss" in record))
    assert losses[0] == pytest.approx(3 * losses[1], rel=1e-6)


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        ("balanced", [4 / 6, 2.0]),
        (["balanced"], [4 / 6, 2.0]),
        (["1", "2.5"], [1.0, 2.5]),
        ([1, 2.5], [1.0, 2.5]),
        (["sad=2"], [1.0, 2.0]),
        ({"sad": 2}, [1.0, 2.0]),
    ],
)
def test_weights_may_be_balanced_in_order_or_by_name(given, weights, collator):
    assert weights_of_classes(given, config_of(), ROWS, collator) == pytest.approx(weights)


def test_balanced_weights_leave_out_a_class_without_rows(collator):
    names = {0: "happy", 1: "sad", 2: "angry"}
    config = config_of(id2label=names, label2id={name: label for label, name in names.items()})
    weights = weights_of_classes("balanced", config, ROWS, collator)
    assert weights[:2] == pytest.approx([4 / 6, 2.0])
    assert sum(weights[row["mood"]] for row in ROWS) / len(ROWS) == pytest.approx(1)


@pytest.mark.parametrize("missing", [-1, -100])
def test_balanced_weights_leave_out_rows_without_a_label(missing, collator):
    assert weights_of_classes("balanced", config_of(), [*ROWS, {"mood": missing}], collator) == [4 / 6, 2.0]


def test_other_weights_are_told_at_a_resume(tmp_path, caplog):
    settings = {"save_strategy": "steps", "save_steps": 1}
    make_finetuning_trainer("entailment", tmp_path, 8, 1, class_weights=["1", "9"], max_steps=1, **settings).train()
    resumed = make_finetuning_trainer("entailment", tmp_path, 8, 1, max_steps=2, **settings)
    resumed.train(resume_from_checkpoint="auto")
    assert "class_weights was ['1', '9'] and is None. Pass the old ones" in caplog.text


def test_a_name_may_hold_an_equals_sign(collator):
    config = config_of(id2label={0: "a=b", 1: "c"}, label2id={"a=b": 0, "c": 1})
    assert weights_of_classes(["a=b=3"], config, ROWS, collator) == [3.0, 1.0]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["hapy=2"], ("'hapy', which is no class (did you mean 'happy'?)", "happy, sad")),
        (["1", "2", "3"], ("1 2 3", "2 classes: happy, sad")),
        (["happy", "sad"], ("'happy', which is no number", "positive=2")),
        (["1", "-1"], ("'-1', which is no number from 0",)),
        (["1", "nan"], ("'nan'",)),
        (["0", "0"], ("0 for every class, so that no class would be learnt",)),
        (["happy=0", "sad=0"], ("0 for every class",)),
    ],
)
def test_wrong_weights_are_refused(given, parts, collator):
    check_refused(lambda: weights_of_classes(given, config_of(), ROWS, collator), *parts)


def test_balanced_weights_need_training_rows(collator):
    check_refused(lambda: weights_of_classes("balanced", config_of(), None, collator), "`train_dataset`")


@pytest.mark.parametrize(
    ("fields", "have"),
    [
        ({"problem_type": "regression", "id2label": {0: "LABEL_0"}, "label2id": {"LABEL_0": 0}}, "numbers"),
        ({"problem_type": "multi_label_classification"}, "several classes each"),
        ({"traversal": "multiple_choice"}, "choices"),
    ],
)
def test_a_task_without_one_class_a_row_has_no_weights(fields, have, collator):
    told = f"the rows of this task have {have}. Leave it out"
    check_refused(lambda: weights_of_classes(["1", "2"], config_of(**fields), ROWS, collator), told)


def test_a_loss_function_beside_weights_is_refused(tmp_path):
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, lm_coef=0)
    trainer.args.class_weights = ["1", "9"]
    parts = {"model": trainer.model, "args": trainer.args, "data_collator": trainer.data_collator}
    check_refused(lambda: type(trainer)(**parts, compute_loss_func=len), "`class_weights`", "`compute_loss_func`")


@pytest.mark.parametrize("make", [np.array, torch.tensor, lambda numbers: [np.float32(number) for number in numbers]])
def test_arrays_and_tensors_are_kept_as_numbers_with_each_checkpoint(make, tmp_path):
    settings = {"class_weights": make([0.5, 1.5]), "max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    trainer = make_finetuning_trainer("entailment", tmp_path, 8, 1, **settings)
    trainer.train()
    kept = json.loads((tmp_path / "checkpoint-1" / "checkpoint.json").read_text(encoding="utf-8"))["settings"]
    assert kept["class_weights"] == [0.5, 1.5]


def test_a_number_of_numpy_is_kept_with_each_checkpoint(tmp_path):
    settings = {"max_grad_norm": np.float32(0.5), "max_steps": 1, "save_strategy": "steps", "save_steps": 1}
    make_finetuning_trainer("entailment", tmp_path, 8, 1, **settings).train()
    kept = json.loads((tmp_path / "checkpoint-1" / "checkpoint.json").read_text(encoding="utf-8"))["settings"]
    assert kept["max_grad_norm"] == 0.5

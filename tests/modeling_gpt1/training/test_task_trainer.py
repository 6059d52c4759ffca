"""Models of other families: GPT1Trainer beside transformers' Trainer, and what its loss must not depend on."""

import inspect

import pytest
import torch
from support.families import (
    CASES,
    EXAMPLES_PER_UPDATE,
    POSITIONS,
    make_family_model,
    make_family_tokenizer,
    make_family_trainer,
    record_of,
    whole_record,
)
from support.finetuning import Rows, settings_of
from torch import nn
from transformers import BertConfig, DataCollatorForMultipleChoice, DataCollatorWithPadding, Trainer, TrainingArguments

from modeling_gpt1.families import family_of_config


def weights_of(trainer) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}


def losses_of(trainer) -> list[float]:
    trainer.train()
    return [record["loss"] for record in trainer.state.log_history if "loss" in record]


def rows_of(case: str) -> list[dict]:
    """Rows with the same number of choices."""
    rows = Rows("multiple_choice" if CASES[case][1] == "multiple_choice" else "classification", 24).rows
    return [{**row, "options": row["options"][:2]} for row in rows]


def plain_trainer(case: str, folder, **given) -> Trainer:
    """transformers' way: rows encoded by the tokenizer as single texts and pairs, and a padding collator."""
    family, traversal, _ = CASES[case]
    tokenizer = make_family_tokenizer(family)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    is_choice = traversal == "multiple_choice"
    model = make_family_model(family, tokenizer, "ForMultipleChoice" if is_choice else "ForSequenceClassification")
    encoded = []
    for row in rows_of(case):
        texts = ([row["a"]] * 2, row["options"]) if is_choice else (row["a"], row["b"])
        encoded.append({**tokenizer(*texts, truncation=True, max_length=POSITIONS), "label": row["label"]})
    known = inspect.signature(model.forward).parameters
    encoded = [{name: ids for name, ids in row.items() if name in known or name == "label"} for row in encoded]
    collator = (DataCollatorForMultipleChoice if is_choice else DataCollatorWithPadding)(tokenizer)
    arguments = TrainingArguments(**settings_of(folder, EXAMPLES_PER_UPDATE, 1))
    return Trainer(model, arguments, collator, train_dataset=encoded, eval_dataset=encoded, **given)


@pytest.mark.parametrize("case", [case for case, (*_, both_orders) in CASES.items() if not both_orders])
def test_training_is_that_of_a_plain_trainer(case, tmp_path):
    ours, plain = make_family_trainer(case, tmp_path, EXAMPLES_PER_UPDATE, 1), plain_trainer(case, tmp_path)
    ours.train_dataset = rows_of(case)
    before = weights_of(plain)
    torch.testing.assert_close(weights_of(ours), before, rtol=0, atol=0)
    assert losses_of(ours) == pytest.approx(losses_of(plain), rel=0, abs=1e-6)
    torch.testing.assert_close(weights_of(ours), weights_of(plain), rtol=0, atol=1e-5)
    moved = max((weights_of(plain)[name] - weight).abs().max() for name, weight in before.items())
    assert moved > 1e-3  # else the comparison would say nothing


def test_a_loss_function_of_the_users_own_is_the_loss(tmp_path):
    """Classes weighted 1 to 9, beside a plain Trainer."""
    case, batches = "bert pair", []

    def weighted(outputs, labels, num_items_in_batch=None):
        batches.append(len(labels))
        loss = nn.functional.cross_entropy(outputs.logits, labels, torch.tensor([1.0, 9.0]), reduction="sum")
        return loss / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    ours = make_family_trainer(case, tmp_path, EXAMPLES_PER_UPDATE, 1, compute_loss_func=weighted)
    plain = plain_trainer(case, tmp_path, compute_loss_func=weighted)
    ours.train_dataset = ours.eval_dataset = rows_of(case)
    assert losses_of(ours) == pytest.approx(losses_of(plain), rel=0, abs=1e-6)
    assert batches == [8] * 6
    torch.testing.assert_close(weights_of(ours), weights_of(plain), rtol=0, atol=1e-5)
    assert ours.evaluate()["eval_loss"] == pytest.approx(plain.evaluate()["eval_loss"], rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_loss_gradient_and_weights_do_not_depend_on_micro_batches(case, tmp_path):
    """19 rows: the last update of a pass has three."""
    whole, cut = whole_record(case), record_of(make_family_trainer(case, tmp_path, 2, 4, num_rows=19))
    for log, expected in zip(cut["log"], whole["log"], strict=True):
        assert log == pytest.approx(expected, rel=1e-5)
    assert cut["eval_loss"] == pytest.approx(whole["eval_loss"], rel=1e-5)
    torch.testing.assert_close(cut["weights"], whole["weights"], rtol=0, atol=1e-6)


def test_one_label_without_a_problem_type_is_a_number():
    config = BertConfig(num_labels=1)
    assert family_of_config(config).loss_settings(config).problem_type == "regression"

"""Predictions of rows: what a model says of each, and a model whose scores are no numbers."""

import math

import pytest
import torch
from datasets import Dataset
from support.finetuning import COLUMNS, make_double_heads_model, make_letter_tokenizer, make_traversal_collator

from modeling_gpt1.inference.predictions import describe_prediction, predict_rows
from tokenization import Task

TEXTS = ["the old dog is warm", "my cat sees fish", "new park"]


@pytest.fixture
def predicted():
    """Predicts the texts by a small model, one row a batch, after a change of its weights."""

    def predict(change=lambda model: None) -> list[dict]:
        tokenizer = make_letter_tokenizer()
        model = make_double_heads_model("classification", tokenizer).eval()
        change(model)
        task = Task("moods", "classification", COLUMNS["classification"], ("calm", "glad", "sad"))
        collator = make_traversal_collator(model, tokenizer)
        rows = Dataset.from_list([{"a": text} for text in TEXTS])
        return list(predict_rows(rows, task, model, collator, batch_size=1))

    return predict


def test_each_row_has_its_class_and_the_probability_of_each(predicted):
    records = predicted()
    assert len(records) == len(TEXTS)
    for record in records:
        assert record["label"] == max(record["scores"], key=record["scores"].get)
        assert sum(record["scores"].values()) == pytest.approx(1)


def test_of_several_labels_those_are_named_whose_probability_is_above_one_half():
    task = Task("moods", "classification", COLUMNS["classification"], ("calm", "glad", "sad"), multi_label=True)
    found = describe_prediction(torch.tensor([0.1, 0.0, -0.1]), task)
    assert found["label"] == ["calm"]
    assert found["scores"] == pytest.approx({"calm": 0.524979, "glad": 0.5, "sad": 0.475021}, abs=1e-6)


def test_no_gradients_are_kept_while_predicting(predicted):
    kept = []

    def watch(model):
        model.register_forward_hook(lambda module, inputs, outputs: kept.append(outputs.task_logits.requires_grad))

    predicted(watch)
    assert kept == [False] * len(TEXTS)


def test_scores_that_are_no_numbers_are_refused_with_the_row(predicted):
    def damage(model):
        with torch.no_grad():  # the letter "p", which only the last text has
            model.transformer.tokens_embed.weight[make_letter_tokenizer().convert_tokens_to_ids("p")] = math.nan

    with pytest.raises(ValueError, match="The scores of row 2 by GPT1DoubleHeadsModel .* are not numbers .NaN"):
        predicted(damage)

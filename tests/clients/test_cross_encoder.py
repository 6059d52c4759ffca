"""CrossEncoder of Sentence Transformers reads a fine-tuned folder: its classes, and its scores of pairs."""

import json

import pytest
import torch
from support.finetuning import make_double_heads_model, make_letter_tokenizer, make_traversal_collator
from transformers import AutoModelForMultipleChoice

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForSequenceClassification

PAIRS = [("ann eats fish", "ben sees"), ("the park is old", "my cat goes home")]


def save(case, folder):
    tokenizer = make_letter_tokenizer()
    model = make_double_heads_model(case, tokenizer).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, make_traversal_collator(model, tokenizer)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("entailment", "GPT1ForSequenceClassification"),
        ("regression", "GPT1ForSequenceClassification"),
        ("multiple_choice", "GPT1ForMultipleChoice"),
    ],
)
def test_a_folder_with_double_heads_names_the_class_with_the_task_head_alone(case, name, tmp_path):
    save(case, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["GPT1DoubleHeadsModel", name]


def test_a_folder_with_double_heads_opens_as_both(tmp_path):
    model, collator = save("entailment", tmp_path)
    batch = collator([{"a": a, "b": b, "label": 0} for a, b in PAIRS])
    expected = model(**batch).task_logits
    batch.pop("labels")
    assert torch.equal(GPT1DoubleHeadsModel.from_pretrained(tmp_path)(**batch).task_logits, expected)
    assert torch.equal(GPT1ForSequenceClassification.from_pretrained(tmp_path)(**batch).logits, expected)


def test_the_auto_class_of_multiple_choice_opens_double_heads(tmp_path):
    model, _ = save("multiple_choice", tmp_path)
    opened = AutoModelForMultipleChoice.from_pretrained(tmp_path)
    assert torch.equal(opened.task_head.score.weight, model.task_head.score.weight)


def test_cross_encoder_gives_the_logits_of_pairs(tmp_path):
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    model, collator = save("entailment", tmp_path)
    expected = model(**collator([{"a": a, "b": b, "label": 0} for a, b in PAIRS])).task_logits
    scores = cross_encoder(str(tmp_path), device="cpu").predict(PAIRS, convert_to_tensor=True)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)

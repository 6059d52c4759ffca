"""Fixtures that the tests of several commands share."""

from collections import defaultdict

import pytest

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.commands import zero_shot
from modeling_gpt1.inference.heuristics import evaluate_zero_shot


@pytest.fixture
def asked(monkeypatch):
    """For each task of `gpt1 zero-shot`, the rows and the result of every evaluation so far."""
    found = defaultdict(list)

    def note(scorer, heuristic, rows, *args, **options):
        result = evaluate_zero_shot(scorer, heuristic, rows, *args, **options)
        found[heuristic.task.name].append((rows, result))
        return result

    monkeypatch.setattr(zero_shot, "evaluate_zero_shot", note)
    return found


@pytest.fixture(scope="module")
def save_model(plain_tokenizer, tiny_model):
    """Saves a tiny language model with its tokenizer."""

    def save(folder, seed=0):
        model = tiny_model(GPT1ForCausalLM, seed, vocab_size=len(plain_tokenizer), max_position_embeddings=64)
        model.save_pretrained(folder)
        plain_tokenizer.save_pretrained(folder)
        return str(folder)

    return save

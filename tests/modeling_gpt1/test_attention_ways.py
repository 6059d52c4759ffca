"""Packed sequences under flash attention: what the kernels are told, the same results as padded, messages."""

import pytest
import torch
from support.attention import use_flash
from support.packing import pad, planned, ragged_choices, results
from support.tiny import make_tiny_model

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1ForSequenceClassification, GPT1Model, packing_gpt1

LENGTHS = [3, 7, 2, 5]
BANDED = {"sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]}


def task(traversal="multiple_choice", attention="sdpa", model_class=GPT1DoubleHeadsModel, **fields):
    model = make_tiny_model(model_class, traversal=traversal, **fields)
    model.config._attn_implementation = attention
    return model.train()


def singles():
    """Rows of `LENGTHS` tokens, for a task without choices."""
    batch = pad([[list(range(10, 10 + length))] for length in LENGTHS])
    batch = {name: batch[name][:, 0] for name in ("input_ids", "attention_mask", "mc_token_ids")}
    return {**batch, "labels": torch.tensor([0, 1, 1, 0])}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert "transformer.h.1.attn.k_proj.weight" in found
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def padded_results(batch, **fields):
    return results(task(**{"attention": "eager", **fields}), batch)[0]


@pytest.fixture
def messages(monkeypatch):
    heard = []
    monkeypatch.setattr(packing_gpt1.logger, "warning_once", heard.append)
    return heard


@pytest.mark.parametrize("attention", ["flash_attention_2", "flash_attention_3"])
@pytest.mark.parametrize("model_class", [GPT1DoubleHeadsModel, GPT1ForSequenceClassification])
def test_flash_attention_is_told_of_the_lengths(monkeypatch, attention, model_class):
    kernels, batch = use_flash(monkeypatch), singles()
    fields = {"traversal": "classification", "model_class": model_class}
    found, num_tokens = results(task(attention=attention, **fields), planned(batch))
    assert num_tokens == sum(LENGTHS)
    assert kernels.calls == [([0, 3, 10, 12, 17], 7)] * 2  # for each of two layers
    assert_same(found, padded_results(batch, **fields))


def test_flash_attention_reads_bands(monkeypatch):
    kernels, batch = use_flash(monkeypatch), pad(ragged_choices())
    found, _ = results(task(attention="flash_attention_2", **BANDED), planned(batch))
    assert len(kernels.calls) == 2
    assert None not in kernels.calls
    assert_same(found, padded_results(batch, **BANDED))
    assert not torch.allclose(found["task_logits"], padded_results(batch)["task_logits"], atol=1e-3)


def test_a_full_batch_needs_no_lengths(monkeypatch):
    kernels, model = use_flash(monkeypatch), task("classification", "flash_attention_2")
    batch = {"input_ids": torch.arange(10, 18).view(1, 8), "labels": torch.tensor([1])}
    found, _ = results(model, batch)
    assert kernels.calls == [None] * 2
    assert_same(found, padded_results(batch, traversal="classification"))


POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 2, 4, 5, 6, 0, 3, 3]])
STARTS = [0, 4, 9, 15, 17, 18]  # a gap begins no sequence


def packed_states(attention, use_cache=False):
    model = make_tiny_model(GPT1Model)
    model.config._attn_implementation = attention
    input_ids = torch.arange(10, 28).view(2, 9)
    return model(input_ids, position_ids=POSITIONS, use_cache=use_cache).last_hidden_state


@pytest.mark.parametrize("use_cache", [False, True])
def test_flash_attention_keeps_the_sequences_of_rows_apart(monkeypatch, use_cache):
    expected = packed_states("eager")
    kernels = use_flash(monkeypatch)
    torch.testing.assert_close(packed_states("flash_attention_2", use_cache), expected, atol=1e-5, rtol=1e-5)
    assert kernels.calls == [(STARTS, 6)] * 2


def test_lengths_of_the_caller_come_first(monkeypatch):
    kernels, model = use_flash(monkeypatch), make_tiny_model(GPT1ForCausalLM)
    model.config._attn_implementation = "flash_attention_2"
    starts = torch.tensor([0, 4, 9, 18], dtype=torch.int32)
    lengths = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 9, "max_length_k": 9}
    model(torch.arange(10, 28).view(2, 9), position_ids=POSITIONS, use_cache=False, **lengths)
    assert kernels.calls == [([0, 4, 9, 18], 9)] * 2


def test_flash_attention_computes_the_padded_batch_where_contexts_would_be_shared(monkeypatch):
    use_flash(monkeypatch)
    batch = planned(pad(ragged_choices()))
    found, num_tokens = results(task(attention="flash_attention_2"), batch)
    assert num_tokens == batch["input_ids"].numel()
    assert batch["plan"].row_is_shared is not None
    assert_same(found, padded_results(batch))

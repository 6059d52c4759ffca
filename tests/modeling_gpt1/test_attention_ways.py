"""Packed sequences under flash and flex attention: what the kernels are told, the same results as padded, messages."""

import pytest
import torch
from conftest import make_tiny_model
from helpers_attention import use_flash, use_flex
from helpers_packing import LAYOUTS, pad, planned, ragged_choices, results

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForSequenceClassification,
    GPT1Model,
    packing_gpt1,
)
from modeling_gpt1.packing_gpt1 import block_masks
from tokenization.planning import plan_batch

LENGTHS = [3, 7, 2, 5]
BANDED = {"sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]}


def task(traversal="multiple_choice", attention="sdpa", model_class=GPT1DoubleHeadsModel, **fields):
    model = make_tiny_model(model_class, traversal=traversal, **fields)
    model.config._attn_implementation = attention
    return model.train()


def singles(side="right"):
    """Rows of `LENGTHS` tokens, for a task without choices."""
    batch = pad([[list(range(10, 10 + length))] for length in LENGTHS], side)
    batch = {name: batch[name][:, 0] for name in ("input_ids", "attention_mask", "mc_token_ids")}
    return {**batch, "labels": torch.tensor([0, 1, 1, 0])}


def assert_same(found, expected):
    assert found.keys() == expected.keys() and "transformer.h.1.attn.k_proj.weight" in found
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def padded_results(batch, **fields):
    model = task(**{"attention": "eager", **fields})
    return results(model, batch)[0]


@pytest.fixture
def messages(monkeypatch):
    heard = []
    monkeypatch.setattr(packing_gpt1.logger, "warning_once", heard.append)
    return heard


# ---- Flash attention


@pytest.mark.parametrize("attention", ["flash_attention_2", "flash_attention_3"])
def test_flash_attention_is_told_of_the_lengths(monkeypatch, attention):
    kernels, model, batch = use_flash(monkeypatch), task("classification", attention), singles()
    found, num_tokens = results(model, planned(batch))
    assert num_tokens == sum(LENGTHS)
    assert kernels.calls == [([0, 3, 10, 12, 17], 7)] * 2  # for each of two layers
    assert_same(found, padded_results(batch, traversal="classification"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_flash_attention_reads_each_choice_by_itself(monkeypatch, layout):
    choices = ragged_choices()[::-1]  # the first example has two
    kernels, model, batch = (
        use_flash(monkeypatch),
        task(attention="flash_attention_2"),
        pad(choices, **LAYOUTS[layout]),
    )
    found, num_tokens = results(model, planned(batch))
    lengths = [len(ids) for of_example in choices for ids in of_example]
    starts = [sum(lengths[:index]) for index in range(len(lengths) + 1)]
    assert num_tokens == batch["attention_mask"].sum() == starts[-1]
    # A choice that an example lacks has no tokens; the longest row is known on the host alone.
    assert [(sorted(set(told)), most) for told, most in kernels.calls] == [(starts, batch["input_ids"].shape[-1])] * 2
    assert_same(found, padded_results(batch))


def test_flash_attention_reads_bands(monkeypatch):
    kernels, batch = use_flash(monkeypatch), pad(ragged_choices())
    found, _ = results(task(attention="flash_attention_2", **BANDED), planned(batch))
    assert len(kernels.calls) == 2 and None not in kernels.calls
    assert_same(found, padded_results(batch, **BANDED))
    without = padded_results(batch)
    assert not torch.allclose(found["task_logits"], without["task_logits"], atol=1e-3)


def test_a_full_batch_needs_no_lengths(monkeypatch):
    kernels, model = use_flash(monkeypatch), task("classification", "flash_attention_2")
    batch = {"input_ids": torch.arange(10, 18).view(1, 8), "labels": torch.tensor([1])}
    found, _ = results(model, batch)
    assert kernels.calls == [None] * 2
    assert_same(found, padded_results(batch, traversal="classification"))


def test_a_head_alone_is_packed_too(monkeypatch):
    kernels, batch = use_flash(monkeypatch), singles("left")
    fields = {"traversal": "classification", "model_class": GPT1ForSequenceClassification}
    found, _ = results(task(attention="flash_attention_2", **fields), planned(batch))
    assert kernels.calls == [([0, 3, 10, 12, 17], 7)] * 2
    assert_same(found, padded_results(batch, **fields))


# ---- Rows of several sequences, told apart by their positions

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
    states = packed_states("flash_attention_2", use_cache)
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)
    assert kernels.calls == [(STARTS, 6)] * 2


def test_lengths_of_the_caller_come_first(monkeypatch):
    kernels, model = use_flash(monkeypatch), make_tiny_model(GPT1ForCausalLM)
    model.config._attn_implementation = "flash_attention_2"
    starts = torch.tensor([0, 4, 9, 18], dtype=torch.int32)
    lengths = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 9, "max_length_k": 9}
    model(torch.arange(10, 28).view(2, 9), position_ids=POSITIONS, use_cache=False, **lengths)
    assert kernels.calls == [([0, 4, 9, 18], 9)] * 2


# ---- Flex attention


def test_the_block_mask_is_that_of_the_rows(monkeypatch):
    use_flex(monkeypatch, has_backward=False)
    input_ids = torch.tensor([[10, 11, 12, 20], [10, 11, 30, 0], [14, 0, 0, 0], [14, 15, 0, 0]])
    plan = plan_batch((input_ids > 0).long().view(2, 2, 4), [2, 0])
    assert input_ids.take(plan.token_index).tolist() == [10, 11, 12, 20, 30, 14, 14, 15]
    masks = block_masks(plan, 2)
    full, band = (block_mask_values(masks[name], 8) for name in ("full_attention", "sliding_attention"))
    assert full == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 1],
    ]
    assert band[3] == [0, 0, 1, 1, 0, 0, 0, 0] and band[4] == [0, 1, 0, 0, 1, 0, 0, 0]


def block_mask_values(block_mask, length):
    places = torch.arange(length)
    return block_mask.mask_mod(0, 0, places[:, None], places).int().tolist()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_agrees(monkeypatch):
    """torch's own flex attention, which has no backward pass on the CPU."""
    lengths, batch = use_flex(monkeypatch, has_backward=False), pad(ragged_choices())
    with torch.no_grad():
        outputs = task(attention="flex_attention").eval()(**planned(batch))
    expected = padded_results(batch)
    for name in ("loss", "task_loss", "lm_loss", "task_logits"):
        torch.testing.assert_close(outputs[name], expected[name], atol=1e-5, rtol=1e-5)
    assert len(lengths) == 2 and lengths[0] < int(batch["attention_mask"].sum())


def test_flex_attention_leaves_padding_out(monkeypatch):
    lengths, batch = use_flex(monkeypatch, has_backward=True), singles("left")
    found, num_tokens = results(task("classification", "flex_attention"), planned(batch))
    assert num_tokens == sum(LENGTHS) and lengths == [num_tokens] * 2
    assert_same(found, padded_results(batch, traversal="classification"))


# A band counts padding within a sequence, which no collator makes.
@pytest.mark.parametrize("layout, fields", [*zip(LAYOUTS, [{}] * 4, strict=True), ("right", BANDED), ("left", BANDED)])
def test_flex_attention_shares_contexts_in_training(monkeypatch, layout, fields):
    lengths, model = use_flex(monkeypatch, has_backward=True), task(attention="flex_attention", **fields)
    batch = planned(pad(ragged_choices(), **LAYOUTS[layout]))
    found, num_tokens = results(model, batch)
    assert num_tokens < batch["attention_mask"].sum() and lengths == [num_tokens] * 2
    assert_same(found, padded_results(batch, **fields))
    batch["plan"].row_is_shared.zero_()  # negative control
    assert results(model, batch)[0]["task_loss"] != found["task_loss"]


# ---- Where attention cannot


def test_flash_attention_says_that_contexts_are_not_shared(monkeypatch, messages):
    use_flash(monkeypatch)
    task(attention="flash_attention_2")(**planned(pad(ragged_choices())))
    task("classification", "flash_attention_2")(**planned(singles()))
    (message,) = messages
    assert "'flash_attention_2' computes the context" in message and "attn_implementation='flex_attention'" in message

"""Attention in blocks: parity with plain attention under the same mask, gradients, statistics, choice."""

import pytest
import torch
from numpy.random import SFC64
from transformers import GPT2Config, GPT2LMHeadModel

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.training import cpu_attention
from modeling_gpt1.training.cpu_attention import CPU_ATTENTION, _BlockwiseAttention, choose_cpu_attention

SCALING, DROPOUT, SEED = 0.3, 0.2, 5
TOKENS = 300  # two whole blocks and a part of one


def heads(num_tokens, dtype=torch.float32, num_rows=2):
    """Query, key, value and the gradient of the output, `[B, H, T, D/H]`, laid out as the projections give them."""
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(num_rows, num_tokens, 3, 8, dtype=dtype, generator=generator) for _ in range(4)]
    return [tensor.transpose(1, 2).requires_grad_() for tensor in tensors]


def causal_mask(num_tokens):
    return torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()[None, None]


def window_mask(num_tokens):
    """Keys up to 40 places before or after, the same for all rows."""
    places = torch.arange(num_tokens)
    return ((places[:, None] - places).abs() < 40)[None, None]


def plain_attention(query, key, value, attention_mask, noise):
    mask = causal_mask(query.shape[2]) if attention_mask is None else attention_mask
    weights = (query @ key.mT * SCALING).masked_fill(~mask, float("-inf")).softmax(-1)
    return (weights * noise) @ value


def noise_of_blocks(query, sees_past_only, seed):
    """The factors that the blocks draw, as one `[B, H, T, T]`."""
    generator, num_dropped = SFC64(seed), round(DROPOUT * 2**16)
    noise = query.new_zeros(*query.shape[:3], query.shape[2])
    for rows, block, keys in cpu_attention._blocks(*query.shape[::2], sees_past_only):
        shape = noise[rows, :, block, keys].shape
        words = generator.random_raw(-(-shape.numel() // 4)).view("int16")[: shape.numel()]
        is_kept = torch.from_numpy(words < 2**15 - num_dropped).view(shape)
        noise[rows, :, block, keys] = is_kept / (1 - num_dropped / 2**16)
    return noise


def outputs_and_gradients(attention, query, key, value, attention_mask, last, grad_output):
    output = attention(query, key, value, attention_mask, *last)
    return output, *torch.autograd.grad(output, (query, key, value), grad_output)


@pytest.mark.parametrize("num_tokens, num_rows", [(TOKENS, 2), (20, 100)], ids=["long rows", "short rows"])
@pytest.mark.parametrize(
    "make_mask, sees_past_only",
    [(lambda num_tokens: None, True), (causal_mask, True), (causal_mask, False), (window_mask, False)],
    ids=["no mask", "causal mask", "causal mask, not said so", "mask that sees later keys"],
)
def test_blocks_agree_with_plain_attention_under_the_same_noise(make_mask, sees_past_only, num_tokens, num_rows):
    *inputs, grad_output = heads(num_tokens, num_rows=num_rows)
    mask = make_mask(num_tokens)
    if mask is not None:  # of each row its own
        mask = mask & (torch.rand(num_rows, 1, 1, num_tokens) < 0.9) | torch.eye(num_tokens, dtype=torch.bool)
    settings = SCALING, DROPOUT, sees_past_only, SEED
    blocks = outputs_and_gradients(_BlockwiseAttention.apply, *inputs, mask, settings, grad_output)
    noise, other_noise = (noise_of_blocks(inputs[0], sees_past_only, seed) for seed in (SEED, SEED + 1))
    plain = outputs_and_gradients(plain_attention, *inputs, mask, [noise], grad_output)
    torch.testing.assert_close(blocks, plain, atol=1e-5, rtol=1e-5)
    other = outputs_and_gradients(plain_attention, *inputs, mask, [other_noise], grad_output)
    for ours, others in zip(blocks, other, strict=True):
        assert (ours - others).abs().max() > 0.1


@pytest.mark.parametrize("mask", [None, window_mask(TOKENS)], ids=["no mask", "mask that sees later keys"])
def test_blocks_without_dropout_agree_with_plain_attention(mask):
    *inputs, grad_output = heads(TOKENS)
    blocks, dropped = (
        outputs_and_gradients(
            _BlockwiseAttention.apply, *inputs, mask, (SCALING, dropout, mask is None, 0), grad_output
        )
        for dropout in (0.0, 0.01)
    )
    plain = outputs_and_gradients(plain_attention, *inputs, mask, [1.0], grad_output)
    torch.testing.assert_close(blocks, plain, atol=1e-5, rtol=1e-5)
    assert all((ours - others).abs().max() > 0.01 for ours, others in zip(dropped, plain, strict=True))


def test_blocks_take_short_rows_together_and_long_ones_in_parts():
    rows = [(block.start, block.stop, keys.stop) for _, block, keys in cpu_attention._blocks(1, 300, True)]
    assert rows == [(0, 128, 128), (128, 256, 256), (256, 300, 300)]
    assert [rows.stop for rows, *_ in cpu_attention._blocks(100, 20, True)] == [81, 100]


def test_bfloat16_lies_beside_float32():
    *inputs, grad_output = heads(TOKENS, torch.bfloat16)
    rest = None, (SCALING, DROPOUT, True, SEED)
    half = outputs_and_gradients(_BlockwiseAttention.apply, *inputs, *rest, grad_output)
    full = outputs_and_gradients(
        _BlockwiseAttention.apply, *(tensor.float() for tensor in inputs), *rest, grad_output.float()
    )
    for narrow, wide in zip(half, full, strict=True):
        assert narrow.dtype == torch.bfloat16
        assert (narrow - wide).norm() / wide.norm() < 0.01


def test_a_row_of_padding_that_sees_nothing_has_finite_gradients():
    *inputs, grad_output = heads(4, num_rows=1)
    mask = causal_mask(4) & (torch.arange(4) >= 2)  # left padding
    rest = mask, (SCALING, DROPOUT, True, SEED)
    results = outputs_and_gradients(_BlockwiseAttention.apply, *inputs, *rest, grad_output)
    assert all(result.isfinite().all() for result in results)


def count_calls(monkeypatch):
    calls = []
    apply = _BlockwiseAttention.apply
    monkeypatch.setattr(_BlockwiseAttention, "apply", lambda *args: calls.append(args) or apply(*args))
    return calls


@pytest.mark.parametrize(
    "fields, training, dtype, expected",
    [
        *(({"attn_pdrop": 0.1}, True, dtype, 2) for dtype in (None, torch.bfloat16)),
        *(({"attn_pdrop": 0.0}, True, dtype, 0) for dtype in (None, torch.float16)),
        *(({"attn_pdrop": 0.1}, False, None, 0), ({"attn_pdrop": 1.0}, True, None, 0)),
        ({"attn_pdrop": 0.0}, True, torch.bfloat16, 2),
        ({"attn_pdrop": 0.1, "attn_implementation": "eager"}, True, None, 0),
    ],
)
def test_blocks_serve_training_with_dropout_or_in_bfloat16(tiny_model, monkeypatch, fields, training, dtype, expected):
    calls = count_calls(monkeypatch)
    model = tiny_model(GPT1ForCausalLM, **fields).train(training)
    choose_cpu_attention(model, "cpu")
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        model(input_ids=torch.arange(1, 9)[None])
        assert len(calls) == expected
        with torch.no_grad():
            model(input_ids=torch.arange(1, 9)[None])
    assert len(calls) == (2 * expected if fields["attn_pdrop"] else expected)


@pytest.mark.parametrize(
    "fields, device, chosen",
    [
        ({"attn_pdrop": 0.1}, "cpu", True),
        ({"attn_pdrop": 0.1}, torch.device("cpu", 0), True),
        ({"attn_pdrop": 0.1}, "cuda", False),
        ({"attn_pdrop": 0.0}, "cpu", True),
        ({"attn_pdrop": 0.1, "attn_implementation": "eager"}, "cpu", False),
        ({"attn_pdrop": 0.1, "attn_implementation": "flex_attention"}, "cpu", False),
    ],
)
def test_when_it_is_chosen(tiny_model, fields, device, chosen):
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    for model, may in ((tiny_model(GPT1ForCausalLM, **fields), chosen), (gpt2, False)):
        before = model.config._attn_implementation
        choose_cpu_attention(model, device)
        assert model.config._attn_implementation == (CPU_ATTENTION if may else before)
        assert model.transformer.config._attn_implementation == model.config._attn_implementation


def test_a_saved_folder_names_no_attention(tiny_model, tmp_path):
    model = tiny_model(GPT1ForCausalLM)
    choose_cpu_attention(model, "cpu")
    model.save_pretrained(tmp_path)
    assert GPT1ForCausalLM.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


def test_an_attention_that_is_not_causal_is_left_to_torch(tiny_model, monkeypatch):
    calls = count_calls(monkeypatch)
    model = tiny_model(GPT1ForCausalLM, attn_pdrop=0.1).train()
    choose_cpu_attention(model, "cpu")
    first, second = (model(input_ids=torch.arange(1, 9)[None], is_causal=False).logits for _ in range(2))
    assert calls == []
    assert not torch.equal(first, second)  # torch drops, too


def test_a_mask_of_keys_is_left_to_torch(tiny_model, monkeypatch):
    """[B, 1, 1, T], which hides the same keys from all queries; 200 tokens are two blocks of queries."""
    calls = count_calls(monkeypatch)
    model = tiny_model(GPT1ForCausalLM, attn_pdrop=0.1, max_position_embeddings=200).train()
    choose_cpu_attention(model, "cpu")
    mask = torch.arange(200)[None, None, None] != 3
    assert model(torch.arange(200)[None] % 30, attention_mask=mask).logits.isfinite().all()
    assert calls == []
    assert model(torch.arange(200)[None] % 30, attention_mask=mask & causal_mask(200)).logits.isfinite().all()
    assert len(calls) == model.config.num_hidden_layers


def test_the_state_of_the_generator_decides_the_mask(tiny_model):
    model = tiny_model(GPT1ForCausalLM, attn_pdrop=0.5).train()
    choose_cpu_attention(model, "cpu")
    input_ids = torch.arange(1, 21)[None]

    def step(seed):
        torch.manual_seed(seed)
        model.zero_grad()
        loss = model(input_ids=input_ids, labels=input_ids).loss
        loss.backward()
        return [loss.detach(), *(parameter.grad for parameter in model.parameters())]

    first, again, other = step(0), step(0), step(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first[0] != other[0]
    model.gradient_checkpointing_enable({"use_reentrant": False})
    torch.testing.assert_close(step(0), first, atol=1e-6, rtol=1e-6)

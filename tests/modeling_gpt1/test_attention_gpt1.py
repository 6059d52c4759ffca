"""Attention with dropout in blocks: parity with plain attention under the same mask, gradients, statistics, choice."""

import pytest
import torch

from modeling_gpt1 import GPT1ForCausalLM, attention_gpt1
from modeling_gpt1.attention_gpt1 import GPT1Dropout, _BlockwiseAttention, dropout_noise

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
    generator = torch.Generator().manual_seed(seed)
    noise = query.new_zeros(*query.shape[:3], query.shape[2])
    for rows, block, keys in attention_gpt1._blocks(*query.shape[::2], sees_past_only):
        shape = noise[rows, :, block, keys].shape
        noise[rows, :, block, keys] = dropout_noise(shape, DROPOUT, noise.dtype, generator)
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
    settings = SCALING, DROPOUT, sees_past_only, SEED
    blocks = outputs_and_gradients(_BlockwiseAttention.apply, *inputs, mask, settings, grad_output)
    noise, other_noise = (noise_of_blocks(inputs[0], sees_past_only, seed) for seed in (SEED, SEED + 1))
    plain = outputs_and_gradients(plain_attention, *inputs, mask, [noise], grad_output)
    torch.testing.assert_close(blocks, plain, atol=1e-5, rtol=1e-5)
    other = outputs_and_gradients(plain_attention, *inputs, mask, [other_noise], grad_output)
    for ours, others in zip(blocks, other, strict=True):
        assert (ours - others).abs().max() > 0.1


def test_blocks_take_short_rows_together_and_long_ones_in_parts():
    def blocks(num_rows, num_tokens, sees_past_only):
        return list(attention_gpt1._blocks(num_rows, num_tokens, sees_past_only))

    assert blocks(100, 20, True) == [
        (slice(0, 81), slice(0, 20), slice(0, 20)),
        (slice(81, 100), slice(0, 20), slice(0, 20)),
    ]
    assert blocks(1, 300, True) == [
        (slice(0, 1), slice(0, 128), slice(0, 128)),
        (slice(0, 1), slice(128, 256), slice(0, 256)),
        (slice(0, 1), slice(256, 300), slice(0, 300)),
    ]
    assert [keys for *_, keys in blocks(1, 300, False)] == [slice(0, 300)] * 3


def test_the_layout_of_output_and_gradients_is_the_projections():
    *inputs, grad_output = heads(5)
    results = outputs_and_gradients(
        _BlockwiseAttention.apply, *inputs, None, (SCALING, DROPOUT, True, SEED), grad_output
    )
    assert all(result.transpose(1, 2).is_contiguous() for result in results)


@pytest.mark.parametrize("mask", [None, causal_mask(5)])
def test_gradients_in_double_precision(mask, monkeypatch):
    monkeypatch.setattr(attention_gpt1, "QUERY_BLOCK", 2)
    *inputs, _ = heads(5, torch.float64, num_rows=1)
    assert torch.autograd.gradcheck(
        lambda *inputs: _BlockwiseAttention.apply(*inputs, mask, 0.5, 0.3, mask is None, 7), inputs
    )


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
    results = outputs_and_gradients(
        _BlockwiseAttention.apply, *inputs, mask, (SCALING, DROPOUT, True, SEED), grad_output
    )
    assert all(result.isfinite().all() for result in results)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_statistics_of_the_noise(probability):
    noise = dropout_noise(torch.Size((500, 2001)), probability, torch.float64, torch.Generator().manual_seed(0))
    dropped, kept = noise.unique().tolist()
    rounded = round(probability * 2**16) / 2**16
    assert dropped == 0 and kept == pytest.approx(1 / (1 - rounded), abs=1e-12)
    tolerance = 4 * (probability * (1 - probability) / noise.numel()) ** 0.5  # 4 standard deviations
    is_dropped = (noise == 0).double()
    assert abs(is_dropped.mean().item() - probability) < tolerance
    for distance in range(1, 6):  # numbers of one random word are independent too
        both = (is_dropped.flatten()[distance:] * is_dropped.flatten()[:-distance]).mean().item()
        assert abs(both - probability**2) < tolerance


def test_extreme_probabilities_keep_and_drop_something():
    generator = torch.Generator().manual_seed(0)
    for probability, kept in [(1e-9, 2**16 / (2**16 - 1)), (1 - 1e-9, 2**16)]:
        noise = dropout_noise(torch.Size((2**19,)), probability, torch.float64, generator)
        assert noise.unique().tolist() == [0, kept]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_scales_what_it_keeps_and_passes_its_gradient(dtype):
    torch.manual_seed(0)
    ones = torch.ones(1000, 7, dtype=dtype, requires_grad=True)
    dropout = GPT1Dropout(0.25).train()
    output = dropout(ones)
    output.sum().backward()
    assert output.dtype == dtype and torch.equal(output, ones.grad)
    assert output.unique().tolist() == [0, torch.tensor(4 / 3, dtype=dtype).item()]
    assert 0.22 < (output == 0).float().mean() < 0.28
    assert not torch.equal(dropout(ones), output)
    assert torch.equal(dropout.eval()(ones), ones)


def test_dropout_of_everything_and_of_nothing():
    ones = torch.ones(10)
    assert torch.equal(GPT1Dropout(1.0).train()(ones), torch.zeros(10))
    assert torch.equal(GPT1Dropout(0.0).train()(ones), ones)


# ---- In the model.


def count_calls(monkeypatch):
    calls = []
    apply = _BlockwiseAttention.apply
    monkeypatch.setattr(_BlockwiseAttention, "apply", lambda *args: calls.append(args) or apply(*args))
    return calls


@pytest.mark.parametrize(
    "fields, training, expected",
    [
        ({"attn_pdrop": 0.1}, True, 2),
        ({"attn_pdrop": 0.1}, False, 0),
        ({"attn_pdrop": 0.0}, True, 0),
        ({"attn_pdrop": 1.0}, True, 0),
        ({"attn_pdrop": 0.1, "attn_implementation": "eager"}, True, 0),
    ],
)
def test_blocks_serve_sdpa_training_with_dropout(tiny_model, monkeypatch, fields, training, expected):
    calls = count_calls(monkeypatch)
    model = tiny_model(GPT1ForCausalLM, **fields).train(training)
    model(input_ids=torch.arange(1, 9)[None])
    assert len(calls) == expected


def test_an_attention_that_is_not_causal_is_left_to_torch(tiny_model, monkeypatch):
    calls = count_calls(monkeypatch)
    model = tiny_model(GPT1ForCausalLM, attn_pdrop=0.1).train()
    model(input_ids=torch.arange(1, 9)[None], is_causal=False)
    assert calls == []


def test_the_state_of_the_generator_decides_the_mask(tiny_model):
    model = tiny_model(GPT1ForCausalLM, attn_pdrop=0.5).train()
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


def test_mean_over_masks_is_attention_without_dropout():
    *inputs, _ = heads(6, torch.float64, num_rows=1)
    with torch.no_grad():
        outputs = [_BlockwiseAttention.apply(*inputs, None, SCALING, DROPOUT, True, seed) for seed in range(2000)]
        outputs = torch.stack(outputs)
        expected = plain_attention(*inputs, None, 1.0)
        error = (outputs.mean(0) - expected).abs() / (outputs.std(0) / 2000**0.5)
    assert error.max() < 4.5  # standard errors, of 144 numbers

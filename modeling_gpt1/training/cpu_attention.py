"""Blockwise attention for training on the CPU: a named entry of transformers' attention interface.

torch's scaled-dot-product attention has a fused kernel for the CPU, but none with dropout. Training would store the
weights and the dropout mask for all pairs of tokens, above the diagonal too, and draw the mask one number at a time.
In bfloat16 the fused kernel is slower than the products that it is made of. The blocks of queries below recompute
weights and mask in the backward pass, as in "FlashAttention: Fast and Memory-Efficient Exact Attention with
IO-Awareness" (Dao et al., 2022), section 3.1 and appendix B.4.

Shapes: B examples, T tokens, D hidden, H heads.
"""

import math

import torch
from numpy.random import SFC64  # twice as fast as torch's generator
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ..checks_gpt1 import can_read
from ..kernels_gpt1 import NOISE_LEVELS, draws_noise, num_dropped_levels
from ..modeling_gpt1 import GPT1PreTrainedModel

CPU_ATTENTION = "cpu_blocks"  # name in the attention interface
# Queries per block, and pairs of queries and keys per block: the scores of a block, for all heads, fit in the cache of
# a core. Short rows share a block.
QUERY_BLOCK = 128
BLOCK_PAIRS = 2**15


def choose_cpu_attention(model: PreTrainedModel, device: torch.device | str) -> None:
    """Selects this attention on the CPU in place of scaled-dot-product attention.

    The choice lasts for this process only: `config.json` names no attention, so a saved model opens with the default
    again. In evaluation, generation and float32 training without dropout, this attention calls torch's own.
    """
    if not isinstance(model, GPT1PreTrainedModel) or torch.device(device).type != "cpu":
        return
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(CPU_ATTENTION)


def cpu_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """As transformers' `sdpa_attention_forward`, but in blocks where that is faster: see `_prefers_blocks`.

    `attention_mask [B or 1, 1, T, T]`; `is_causal=True` says that it hides everything above the diagonal.
    """
    sees_past_only = kwargs.get("is_causal") is True or attention_mask is None
    is_self_attention = query.shape[2] == key.shape[2] and kwargs.get("is_causal") is not False
    has_mask_of_blocks = attention_mask is None or (
        attention_mask.dtype == torch.bool and attention_mask.shape[2:] == (query.shape[2], key.shape[2])
    )
    if not (_prefers_blocks(query, dropout) and is_self_attention and has_mask_of_blocks):
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    # The seed comes from the global generator: restoring its state repeats the dropout mask.
    seed = int(torch.empty((), dtype=torch.int64).random_()) if dropout > 0 else 0
    output = _BlockwiseAttention.apply(query, key, value, attention_mask, scaling, dropout, sees_past_only, seed)
    return output.transpose(1, 2), None


def _prefers_blocks(query: torch.Tensor, dropout: float) -> bool:
    """Whether blocks are faster: outside of a compiled graph, with dropout, or for gradients in bfloat16."""
    if dropout > 0:
        return draws_noise(query, dropout)
    needs_grad = torch.is_grad_enabled() and query.requires_grad
    return needs_grad and query.dtype == torch.bfloat16 and can_read(query)


class _BlockwiseAttention(torch.autograd.Function):
    """Softmax attention with dropout; causal if there is no mask."""

    @staticmethod
    def forward(ctx, query, key, value, attention_mask, scaling, dropout, sees_past_only, seed):
        num_dropped = num_dropped_levels(dropout)
        gain = NOISE_LEVELS / (NOISE_LEVELS - num_dropped)  # of what is kept
        generator = SFC64(seed)
        output = _empty_like_heads(query)
        # With the heads' numbers interleaved, a product takes up to three times as long.
        query, key, value = (query * scaling).contiguous(), key.contiguous(), (value * gain).contiguous()
        with torch.autocast("cpu", enabled=False):
            for rows, block, keys in _blocks(*query.shape[::2], sees_past_only):
                weights = _attention_weights(query[rows, :, block], key[rows, :, keys], attention_mask, rows, block)
                weights = _drop(weights, _kept_bits(weights, num_dropped, generator))
                output[rows, :, block] = torch.matmul(weights, value[rows, :, keys])
        ctx.save_for_backward(query, key, value, attention_mask)
        ctx.settings = scaling, gain, num_dropped, sees_past_only, seed
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        query, key, value, attention_mask = ctx.saved_tensors
        scaling, gain, num_dropped, sees_past_only, seed = ctx.settings
        generator = SFC64(seed)
        grad_query = _empty_like_heads(query)
        grad_key, grad_value = torch.zeros(2, *key.shape, dtype=torch.promote_types(key.dtype, torch.float32))
        with torch.autocast("cpu", enabled=False):
            grad_output = grad_output.contiguous()
            for rows, block, keys in _blocks(*query.shape[::2], sees_past_only):
                grad_block = grad_output[rows, :, block]
                weights = _attention_weights(query[rows, :, block], key[rows, :, keys], attention_mask, rows, block)
                kept_bits = _kept_bits(weights, num_dropped, generator)
                grad_weights = _drop(torch.matmul(grad_block, value[rows, :, keys].mT), kept_bits)
                grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype)
                # `+=` would copy the sums onto themselves.
                grad_value[rows, :, keys].add_(torch.matmul(_drop(weights, kept_bits).mT, grad_block))
                grad_key[rows, :, keys].add_(torch.matmul(grad_scores.mT, query[rows, :, block]))
                grad_query[rows, :, block] = torch.matmul(grad_scores, key[rows, :, keys])
        grad_key = _empty_like_heads(key).copy_(grad_key)
        grad_value = _empty_like_heads(key).copy_(grad_value.mul_(gain))
        return grad_query.mul_(scaling), grad_key, grad_value, None, None, None, None, None


def _kept_bits(weights: torch.Tensor, num_dropped: int, generator: SFC64) -> torch.Tensor | None:
    """For each weight, a whole number of its width: all bits are 1 if it is kept, and 0 if it is dropped."""
    if not num_dropped:
        return None
    words = torch.from_numpy(generator.random_raw(-(-weights.numel() // 4)).view("int16"))[: weights.numel()]
    most = NOISE_LEVELS // 2 - num_dropped  # of 65,536 values, those below are kept
    bits = words.clamp_(most - 1, most).sub_(most)
    return bits.to(getattr(torch, f"int{8 * weights.element_size()}")).view(weights.shape)


def _drop(tensor: torch.Tensor, kept_bits: torch.Tensor | None) -> torch.Tensor:
    """The tensor itself, with 0 for what is dropped."""
    if kept_bits is not None:
        tensor.view(kept_bits.dtype).bitwise_and_(kept_bits)
    return tensor


def _empty_like_heads(query: torch.Tensor) -> torch.Tensor:
    """Uninitialised `[B, H, T, D/H]` whose memory is laid out as `[B, T, D]`, as the projections read it."""
    return torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)


def _blocks(num_rows: int, num_tokens: int, sees_past_only: bool):
    """Yields slices of rows, of their queries, and of the keys that these queries may see."""
    num_queries = min(QUERY_BLOCK, num_tokens)
    num_together = max(1, BLOCK_PAIRS // (num_queries * num_tokens))
    for first_row in range(0, num_rows, num_together):
        for start in range(0, num_tokens, num_queries):
            end = min(start + num_queries, num_tokens)
            rows = slice(first_row, min(first_row + num_together, num_rows))
            yield rows, slice(start, end), slice(0, end if sees_past_only else num_tokens)


def _attention_weights(
    query: torch.Tensor, key: torch.Tensor, attention_mask: torch.Tensor | None, rows: slice, block: slice
) -> torch.Tensor:
    """Softmax, in float32 or wider inside, of the scores of scaled `query [r, H, n, D/H]` and `key [r, H, m, D/H]`."""
    scores = torch.matmul(query, key.mT)  # [r, H, n, m]
    if attention_mask is None:
        num_queries = query.shape[2]
        above_diagonal = torch.full((num_queries, num_queries), -math.inf, dtype=scores.dtype).triu_(1)
        scores[..., block].add_(above_diagonal)
    else:
        seen = attention_mask[rows if len(attention_mask) > 1 else slice(None), :, block, : key.shape[2]]
        scores.masked_fill_(~seen, torch.finfo(scores.dtype).min)  # not −∞, as rows of padding may see nothing
    return scores.softmax(-1)


AttentionInterface.register(CPU_ATTENTION, cpu_attention_forward)
AttentionMaskInterface.register(CPU_ATTENTION, sdpa_mask)

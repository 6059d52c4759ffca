# Copyright 2026 The gpt1-hf authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The fine-tuning objective L3 = L2 + λ·L1 and a language-modelling loss that never holds the whole logits.

Sources: equations 3 to 5 of "Improving Language Understanding by Generative Pre-Training" and the loss of the released
code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py): L1 of a sequence is the mean over its
target tokens. The chunked backward follows from the gradient of softmax cross-entropy, softmax(z) − onehot(target).

Shapes: B examples, C sequences per example, T tokens, D hidden, V vocabulary, K classes, N target tokens.
"""

import math

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .unpadding_gpt1 import PackedSequences

# 64 MiB of float32 logits at V = 40 478: large enough for full matrix-product speed, small beside the activations.
CHUNK_ELEMENTS = 16 * 2**20
# Rows of logits start at multiples of so many elements: a product with rows out of line takes 1.4 times as long.
ROW_ALIGNMENT = 64
# Rows of the weight's gradient whose half-precision product stays in a processor's cache until it is added.
GRADIENT_ROWS = 4096


def linear_cross_entropy(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    target_ids: torch.Tensor,
    target_weights: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of −log softmax(hidden_states · weightᵀ)[target], computed in chunks of tokens.

    The logits of one chunk at a time exist; both gradients are formed with the loss, in the same pass. Softmax and
    sums are at least float32 whatever the inputs; under autocast the matrix products run in autocast's dtype.

    Args:
        hidden_states (`torch.Tensor` of shape `[N, D]`): hidden states that predict the targets.
        weight (`torch.Tensor` of shape `[V, D]`): the language-model head.
        target_ids (`torch.LongTensor` of shape `[N]`): ids to predict.
        target_weights (`torch.Tensor` of shape `[N]`, float): factor of each token in the sum; 0 leaves a token out.

    Returns:
        The weighted sum, `[]`, differentiable once in `hidden_states` and `weight`, and each target's −log P, `[N]`,
        without a gradient; both at least float32.
    """
    if torch.is_autocast_enabled(hidden_states.device.type):
        dtype = torch.get_autocast_dtype(hidden_states.device.type)
    else:
        dtype = hidden_states.dtype
    # Outside of the autograd function, so that the compiler sees plain arguments.
    needs_grad = torch.is_grad_enabled() and (hidden_states.requires_grad or weight.requires_grad)
    return _LinearCrossEntropy.apply(hidden_states, weight, target_ids, target_weights, dtype, needs_grad)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden_states, weight, target_ids, target_weights, dtype, needs_grad):
        sum_dtype = torch.promote_types(dtype, torch.float32)
        target_weights = target_weights.to(sum_dtype)
        # Half precision has no room for small weights: products see weights up to 1, sums the true ones.
        largest = target_weights.abs().amax().clamp(min=torch.finfo(sum_dtype).tiny) if len(target_weights) else 1.0
        token_losses = torch.zeros(hidden_states.shape[:1], dtype=sum_dtype, device=hidden_states.device)
        grad_hidden = torch.empty_like(hidden_states) if needs_grad else None
        grad_weight = torch.zeros_like(weight, dtype=sum_dtype) if needs_grad else None
        compute_weight = weight.to(dtype)  # [V, D]
        chunk_size = max(1, CHUNK_ELEMENTS // weight.shape[0])
        chunks = _chunks(hidden_states.shape[0], chunk_size)
        # Chunks share their memory: what is fresh from the system costs a processor as much as the softmax.
        logits_buffer = _logits_buffer(hidden_states[chunks[0]], weight, sum_dtype)
        product_buffer = logits_buffer if dtype == sum_dtype else torch.empty_like(logits_buffer, dtype=dtype)
        with torch.autocast(hidden_states.device.type, enabled=False):
            for chunk in chunks:
                hidden_chunk = hidden_states[chunk].to(dtype)
                product = product_buffer[: len(hidden_chunk)].addmm_(hidden_chunk, compute_weight.T, beta=0)  # [n, V]
                logits = product if dtype == sum_dtype else logits_buffer[: len(hidden_chunk)].copy_(product)
                targets = target_ids[chunk, None]
                logits -= logits.amax(-1, keepdim=True)
                target_logits = logits.gather(1, targets)
                exponentials = logits.exp_()
                totals = exponentials.sum(-1, keepdim=True)
                token_losses[chunk] = (totals.log() - target_logits)[:, 0]
                if needs_grad:
                    factors = target_weights[chunk, None] / largest
                    exponentials.mul_(factors / totals).scatter_add_(1, targets, -factors)
                    grad_logits = exponentials if dtype == sum_dtype else product.copy_(exponentials)
                    grad_hidden[chunk] = ((grad_logits @ compute_weight).to(sum_dtype) * largest).to(grad_hidden.dtype)
                    _add_weight_gradient(grad_weight, grad_logits, hidden_chunk)
            loss = (token_losses * target_weights).sum()
        if needs_grad:
            ctx.save_for_backward(grad_hidden, grad_weight.mul_(largest).to(weight.dtype))
        ctx.mark_non_differentiable(token_losses)
        return loss, token_losses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss, _):
        grad_hidden, grad_weight = ctx.saved_tensors
        factor = grad_loss.to(grad_hidden.dtype), grad_loss.to(grad_weight.dtype)
        return grad_hidden * factor[0], grad_weight * factor[1], None, None, None, None


def _chunks(num_rows: int, chunk_size: int) -> list[slice]:
    """Parts of `num_rows` of about `chunk_size` each, none longer than the first."""
    if not torch.compiler.is_compiling():
        return [slice(start, start + chunk_size) for start in range(0, max(num_rows, 1), chunk_size)]
    # A graph has a fixed number of chunks. A power of two serves many numbers of rows, where one graph for each would
    # soon be more than the compiler makes; every so-many-th row, else a last chunk of another length would be guarded.
    num_chunks = 1
    while 3 * chunk_size * num_chunks < 2 * num_rows:
        num_chunks *= 2
    return [slice(first, None, num_chunks) for first in range(num_chunks)]


def _logits_buffer(hidden_chunk: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Uninitialised `[n, V]` for the largest chunk of hidden states, `[n, D]`."""
    stride = math.ceil(weight.shape[0] / ROW_ALIGNMENT) * ROW_ALIGNMENT
    return hidden_chunk.new_empty(len(hidden_chunk), stride, dtype=dtype)[:, : weight.shape[0]]


def _add_weight_gradient(grad_weight: torch.Tensor, grad_logits: torch.Tensor, hidden_states: torch.Tensor) -> None:
    """Adds `grad_logits [n, V]`ᵀ · `hidden_states [n, D]` to `grad_weight [V, D]`, whose dtype may be wider."""
    if grad_weight.dtype == hidden_states.dtype:
        grad_weight.addmm_(grad_logits.T, hidden_states)
        return
    num_rows = GRADIENT_ROWS if grad_weight.device.type == "cpu" else len(grad_weight)
    for start in range(0, len(grad_weight), num_rows):
        rows = slice(start, start + num_rows)
        grad_weight[rows] += grad_logits[:, rows].T @ hidden_states


def next_token_targets(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets of L1: every real token after the first real one of its sequence.

    Args:
        input_ids (`torch.LongTensor` of shape `[B, T]`): token ids.
        attention_mask (`torch.Tensor` of shape `[B, T]`, *optional*): 1 for real tokens; left or right padding.

    Returns:
        `target_ids [B, T-1]` and `is_target [B, T-1]` (bool), both aligned with positions 0…T−2 that predict them.
    """
    target_ids = input_ids[:, 1:]
    if attention_mask is None:
        return target_ids, torch.ones_like(target_ids, dtype=torch.bool)
    real = attention_mask.bool()
    return target_ids, real[:, 1:] & real[:, :-1]


def sequence_mean_weights(is_target: torch.Tensor, sequence_weights: torch.Tensor) -> torch.Tensor:
    """Weights of the target tokens that make their weighted sum a weighted sum of per-sequence means.

    Args:
        is_target (`torch.BoolTensor` of shape `[B, T]`): tokens that count.
        sequence_weights (`torch.Tensor` of shape `[B]`): factor of each sequence's mean.

    Returns:
        `torch.Tensor` of shape `[B, T]`; a sequence without a target has weights 0.
    """
    target_counts = is_target.sum(-1).clamp(min=1)
    return is_target * (sequence_weights / target_counts)[:, None]


def select_targets(
    hidden_states: torch.Tensor, target_ids: torch.Tensor, target_weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Targets of a padded batch, one after the other, without those of weight 0.

    In a compiled graph, whose shapes cannot depend on data, all targets stay.

    Args:
        hidden_states (`torch.Tensor` of shape `[S, T, D]`): hidden states that predict the targets.
        target_ids (`torch.LongTensor` of shape `[S, T]`): ids to predict; anything where the weight is 0.
        target_weights (`torch.Tensor` of shape `[S, T]`): factors.

    Returns:
        The hidden states, ids, weights and the row in S of the N targets: `[N, D]`, `[N]`, `[N]`, `[N]`.
    """
    rows = torch.arange(target_ids.shape[0], device=target_ids.device)[:, None].expand_as(target_ids)
    if torch.compiler.is_compiling():
        target_ids = target_ids.flatten().clamp(min=0)
        return hidden_states.flatten(0, 1), target_ids, target_weights.flatten(), rows.flatten()
    is_target = target_weights != 0
    return hidden_states[is_target], target_ids[is_target], target_weights[is_target], rows[is_target]


def select_packed_targets(
    hidden_states: torch.Tensor, packing: PackedSequences, target_weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `select_targets`, for packed sequences: what several sequences share is one target of their summed weight.

    Args:
        hidden_states (`torch.Tensor` of shape `[1, N, D]`): hidden states of the packed tokens.
        packing (`PackedSequences`): where they belong.
        target_weights (`torch.Tensor` of shape `[S, T-1]`): factor of each token after the first of its sequence.

    Returns:
        Hidden states, ids, weights and the example of each target.
    """
    is_target = target_weights != 0
    targets, sources = packing.packed_index[:, 1:][is_target], packing.packed_index[:, :-1][is_target]
    num_tokens = hidden_states.shape[1]
    # A packed token is predicted from one place, however many sequences it stands for.
    weights = target_weights.new_zeros(num_tokens).index_add(0, targets, target_weights[is_target])
    source_of = torch.zeros_like(packing.input_ids[0]).scatter(0, targets, sources)
    tokens = weights.nonzero()[:, 0]
    hidden_states = hidden_states[0].index_select(0, source_of[tokens])
    return hidden_states, packing.input_ids[0, tokens], weights[tokens], packing.example_index[tokens]


def weighted_lm_loss(
    lm_head: nn.Module,
    hidden_states: torch.Tensor,
    target_ids: torch.Tensor,
    target_weights: torch.Tensor,
    rows: torch.Tensor,
    num_rows: int,
    fused: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of −log P(target) over a batch.

    Args:
        lm_head (`nn.Module`): gives logits, or with targets the loss, see `GPT1LMHead`.
        hidden_states, target_ids, target_weights, rows (`[N, D]`, `[N]`, `[N]`, `[N]`): see `select_targets`.
        num_rows (`int`): how many rows there are.
        fused (`bool`): whether the head takes targets. A head that an adapter, a quantiser or tensor parallelism has
            replaced gives logits only; then the logits of all targets are held.

    Returns:
        The weighted sum, `[]`, and the weighted −log P of each row, `[num_rows]`, without a gradient.
    """
    if fused:
        loss, token_losses = lm_head(hidden_states, target_ids, target_weights)
    else:
        logits = lm_head(hidden_states).float()
        token_losses = nn.functional.cross_entropy(logits, target_ids, reduction="none")
        loss = (token_losses * target_weights).sum()
    row_losses = token_losses.new_zeros(num_rows).index_add(0, rows, token_losses.detach() * target_weights)
    return loss, row_losses


def task_losses(task_logits: torch.Tensor, labels: torch.Tensor, is_regression: bool) -> torch.Tensor:
    """L2 of each example `[B]` in float32: squared error of `task_logits [B, 1]`, else cross-entropy of `[B, K]`.

    Where `labels [B, K]` say of every class whether it holds, the mean of the K binary cross-entropies.
    """
    if labels.dim() == 2:
        losses = nn.functional.binary_cross_entropy_with_logits(task_logits.float(), labels.float(), reduction="none")
        return losses.mean(-1)
    if is_regression:
        return nn.functional.mse_loss(task_logits.squeeze(-1).float(), labels.float(), reduction="none")
    return nn.functional.cross_entropy(task_logits.float(), labels, reduction="none")

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
"""Parts of the decoder's attention: masks, positions, attention in plain torch, and dropout.

Shapes: B examples, T tokens, D hidden, H heads.
"""

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_causal_mask,
    create_sliding_window_causal_mask,
    flash_attention_mask,
    flex_attention_mask,
    sdpa_mask,
)
from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, logging

from .checks_gpt1 import can_read
from .configuration_gpt1 import FULL_ATTENTION, SLIDING_ATTENTION, GPT1Config

logger = logging.get_logger(__name__)

# How attention keeps packed sequences apart, by the function of transformers that makes its masks.
MASKED_ROWS, BLOCK_MASK, VARIABLE_LENGTH = "masked rows", "block mask", "variable length"
WAYS_OF_PACKING = {sdpa_mask: MASKED_ROWS, flex_attention_mask: BLOCK_MASK, flash_attention_mask: VARIABLE_LENGTH}
# Dropout compares 16 random bits with the probability, which rounds it to a multiple of 2**-16.
NOISE_LEVELS = 2**16


def causal_masks(
    config: GPT1Config,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | dict | None,
    past_key_values: Cache | None,
    position_ids: torch.LongTensor | None,
) -> dict:
    """The attention implementation's mask for each layer type; `generate` may have built the masks already."""
    if isinstance(attention_mask, dict):
        return attention_mask
    if attention_mask is None and past_key_values is None and position_ids is not None:
        position_ids = without_gaps(position_ids)
    arguments = {
        "config": config,
        "inputs_embeds": inputs_embeds,
        "attention_mask": attention_mask,
        "past_key_values": past_key_values,
        "position_ids": position_ids,
    }
    masks = {FULL_ATTENTION: create_causal_mask(**arguments)}
    if SLIDING_ATTENTION in config.attention_of_layers:
        masks[SLIDING_ATTENTION] = create_sliding_window_causal_mask(**arguments)
    return masks


def without_gaps(position_ids: torch.LongTensor) -> torch.LongTensor:
    """Position ids `[B, T]` without gaps: they count up by 1 and restart where a position does not increase.

    transformers' masks take every step other than 1 for the beginning of another sequence.
    """
    places = torch.arange(position_ids.shape[1], device=position_ids.device).expand_as(position_ids)
    restarts = nn.functional.pad(position_ids.diff(dim=1) <= 0, (1, 0))
    return places - torch.where(restarts, places, 0).cummax(1).values


def with_lengths(
    config: GPT1Config,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | dict | None,
    past_key_values: Cache | None,
    position_ids: torch.LongTensor | None,
    **kwargs: Unpack[TransformersKwargs],
) -> dict:
    """The layers' arguments `kwargs`, with the lengths of the sequences that `position_ids [B, T]` packs into rows.

    Flash attention keeps these apart by the lengths. transformers would read the positions in each layer, and those of
    a single row only.
    """
    is_packed = attention_mask is None and past_key_values is None and position_ids is not None
    if not is_packed or "cu_seq_lens_q" in kwargs or way_of_packing(config) != VARIABLE_LENGTH:
        return kwargs
    positions = without_gaps(position_ids).expand(inputs_embeds.shape[:2])
    (starts, _), (longest, _) = prepare_fa_kwargs_from_position_ids(positions)
    return {**kwargs, **lengths_for_flash_attention(starts, int(longest))}


def lengths_for_flash_attention(starts: torch.IntTensor, longest: int) -> dict:
    """Arguments of transformers' flash attention; `starts` `[R + 1]`: index of each row's first token, and N."""
    return {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": longest, "max_length_k": longest}


def way_of_packing(config: PreTrainedConfig) -> str | None:
    """How the attention that a model uses keeps packed sequences apart; `None` if it cannot."""
    return WAYS_OF_PACKING.get(ALL_MASK_ATTENTION_FUNCTIONS.get(config._attn_implementation))


def packing_for(model: PreTrainedModel, **kwargs: Unpack[TransformersKwargs]) -> str | None:
    """How a call of a task model keeps packed sequences apart; `None` if it reads a padded batch.

    Packed sequences have no hidden states for padding, so nobody may read these.
    """
    if not (model.pack_sequences and model._supports_attention_backend and reads_no_padding(model.config, **kwargs)):
        return None
    way = way_of_packing(model.config)
    if way is None:
        logger.warning_once(
            f"The attention {model.config._attn_implementation!r} computes padding too, as it cannot read packed "
            "sequences. Pass attn_implementation='sdpa', 'flash_attention_2' or 'flex_attention' to leave padding out."
        )
    return way


def reads_no_padding(config: PreTrainedConfig, **kwargs: Unpack[TransformersKwargs]) -> bool:
    """Whether the decoder's output at padding goes unread, by the caller and by earlier tokens."""
    asked_for = [kwargs.get(name, getattr(config, name)) for name in ("output_hidden_states", "output_attentions")]
    is_causal = kwargs.get("is_causal", getattr(config, "is_causal", True))
    is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return is_causal and not any(asked_for) and not is_traced


def check_length(
    config: PreTrainedConfig, num_past: int | torch.Tensor, num_new: int, position_ids: torch.Tensor | None = None
) -> None:
    """Checks that the model has enough positions for a sequence.

    Raises:
        ValueError: the sequence is longer than `max_position_embeddings`.
    """
    # A static cache keeps its length on the device: reading it would break a compiled graph, or wait at each token.
    if isinstance(num_past, torch.Tensor):
        num_past = int(num_past) if can_read(num_past) else 0
    length, limit = num_past + num_new, config.max_position_embeddings
    if length > limit and position_ids is not None:  # the row may hold several sequences
        length = 0 if torch.compiler.is_compiling() else int(position_ids.max()) + 1
    if length > limit:
        raise ValueError(
            f"The sequence has {length} tokens, but the model has only {limit} positions (`max_position_embeddings`). "
            "Shorten the input: pass `truncation=True, max_length=…` to the tokenizer, `max_length` to the collator "
            "or a smaller `max_new_tokens` to `generate`."
        )


def check_generated_length(config: PreTrainedConfig, max_length: int, prompt_length: int) -> None:
    """Checks that the model has enough positions for a call of `generate`.

    Raises:
        ValueError: `max_length` is above `max_position_embeddings`.
    """
    limit = config.max_position_embeddings
    if max_length > limit:
        raise ValueError(
            f"Generation of up to {max_length} tokens (`max_length`, or the prompt and `max_new_tokens`) was "
            f"requested, but the model has only {limit} positions (`max_position_embeddings`). The prompt has "
            f"{prompt_length} tokens: pass `max_new_tokens` of at most {max(limit - prompt_length, 0)} or shorten the "
            "prompt."
        )


def default_position_ids(
    inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | dict | None, num_past: int | torch.Tensor
) -> torch.LongTensor:
    """Each token's rank among the real tokens of its row, or its index in the row without a 2D mask."""
    num_new = inputs_embeds.shape[1]
    if not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() != 2:
        return (torch.arange(num_new, device=inputs_embeds.device) + num_past)[None]
    ranks = attention_mask.long().cumsum(-1) - 1
    return ranks[:, -num_new:].clamp(min=0)


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention in plain torch: query, key and value `[B, H, T, D/H]`, additive mask; to `[B, T, H, D/H]`."""
    attention_weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    # At least float32, and at least the mask's dtype: its minimum would overflow to −∞, and a row of padding give NaN.
    attention_weights = attention_weights.to(torch.promote_types(query.dtype, torch.float32))
    if attention_mask is not None:
        attention_weights = attention_weights + attention_mask
    attention_weights = nn.functional.softmax(attention_weights, dim=-1).to(query.dtype)
    attention_weights = nn.functional.dropout(attention_weights, p=dropout, training=module.training)
    attention_output = torch.matmul(attention_weights, value).transpose(1, 2).contiguous()
    return attention_output, attention_weights


class GPT1Dropout(nn.Dropout):
    """Dropout whose mask is drawn faster on the CPU."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.training and draws_noise(hidden_states, self.p):
            return hidden_states * dropout_noise(hidden_states.shape, self.p, hidden_states.dtype)
        return super().forward(hidden_states)


def draws_noise(tensor: torch.Tensor, probability: float) -> bool:
    """Whether to use [`dropout_noise`]: other devices and compiled graphs draw random numbers fast enough."""
    return 0 < probability < 1 and is_eager_on_cpu(tensor)


def is_eager_on_cpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def dropout_noise(
    shape: torch.Size, probability: float, dtype: torch.dtype, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Independent dropout factors: 0 with `probability`, otherwise a constant that makes their mean exactly 1.

    The probability is rounded to a multiple of 2⁻¹⁶, neither 0 nor 1. On the CPU this takes a fifth of the time of
    `Tensor.bernoulli_`, which draws two random words per number.
    """
    num_dropped = min(max(round(probability * NOISE_LEVELS), 1), NOISE_LEVELS - 1)
    largest_dropped = num_dropped - 1 - NOISE_LEVELS // 2
    words = torch.empty(-(-shape.numel() // 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    is_kept = words.view(torch.int16)[: shape.numel()].clamp_(largest_dropped, largest_dropped + 1)
    is_kept = is_kept.sub_(largest_dropped).to(dtype)  # 0 and 1
    return is_kept.mul_(NOISE_LEVELS / (NOISE_LEVELS - num_dropped)).view(shape)

# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""How GPT-1 is fast. Each piece does what one of torch or transformers does, and says what it gains.

Gains on a CPU are times beside torch 2.13's own in one run: the least of 15 rounds in turn, on one thread of a shared
AMD EPYC with AVX-512, unless another processor is named.

Shapes: B sequences of a batch, T tokens, D hidden, H heads; N tokens that a plan computes.
"""

import copy
import platform

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, DynamicLayer, StaticLayer

from .checks_gpt1 import can_read

# ---- Products of a few tokens, in decoding on x86 CPUs

HAS_FAST_PRODUCT = torch.backends.mkldnn.is_available() and platform.machine().lower() in ("x86_64", "amd64")
MOST_TOKENS = 64  # beyond, oneDNN gains little, and prepares itself for every new number of tokens
# On Intel's, torch's own is as fast for one token and, in several threads, for small weights, and starts sooner.
CAPABILITIES = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
IS_INTEL = CAPABILITIES.get("cpu_name", "").startswith("Intel")
LEAST_TOKENS = 2 if IS_INTEL else 1
LEAST_WEIGHTS = 2**20 if IS_INTEL else 0


class GPT1Linear(nn.Linear):
    """A linear layer that multiplies a few float32 tokens by oneDNN, on x86 CPUs and without gradients.

    Gain: for weights of 3072 × 768, 1 token takes 0.81 of the time, 2 take 0.59, 8 take 0.83, and 64 take 0.81.

    Tools that look for `nn.Linear` alone, such as `torch.ao.quantization.quantize_dynamic`, do not find it: see
    [`linear_layer`].
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if not has_few_tokens(hidden_states, weight):
            return nn.functional.linear(hidden_states, weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(hidden_states, weight, self.bias, "none", [], "")


def linear_layer(config: PreTrainedConfig, in_features: int, out_features: int) -> nn.Linear:
    """A layer of the blocks: [`GPT1Linear`], or torch's own where a quantiser will look for it.

    bitsandbytes, fine-grained FP8 and GGUF replace a layer if its type is `nn.Linear` itself, and skip any other.
    """
    if is_quantized(config):
        return nn.Linear(in_features, out_features)
    return GPT1Linear(in_features, out_features)


def is_quantized(config: PreTrainedConfig) -> bool:
    """Whether a quantiser of transformers opens the model: `from_pretrained` notes it before it builds the layers."""
    return getattr(config, "quantization_config", None) is not None


def has_few_tokens(hidden_states: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether [`GPT1Linear`] takes oneDNN. The rest needs torch's product."""
    return (
        HAS_FAST_PRODUCT
        and not torch.is_grad_enabled()
        and can_read(hidden_states)  # first: a graph knows no number of threads
        and LEAST_TOKENS * weight.shape[-1] <= hidden_states.numel() <= MOST_TOKENS * weight.shape[-1]
        and (LEAST_WEIGHTS <= weight.numel() or torch.get_num_threads() == 1)
        and type(hidden_states) is torch.Tensor
        and type(weight) is nn.Parameter
        and hidden_states.dtype == weight.dtype == torch.float32
        and weight.is_cpu
        and weight.is_contiguous()
        and not torch.is_autocast_enabled("cpu")
    )


# ---- One product for queries, keys and values, in training on an accelerator


def has_one_product(hidden_states: torch.Tensor, *layers: nn.Module) -> bool:
    """Whether [`one_product`] serves: in training on an accelerator, where each kernel that is started costs time."""
    return (
        hidden_states.device.type != "cpu"
        and torch.is_grad_enabled()
        and all(
            type(layer) is GPT1Linear
            and type(layer.weight) is nn.Parameter
            and "forward" not in vars(layer)
            and not (layer._forward_hooks or layer._forward_pre_hooks)
            and not (layer._backward_hooks or layer._backward_pre_hooks)
            for layer in layers
        )
    )


def one_product(hidden_states: torch.Tensor, *layers: GPT1Linear) -> torch.Tensor:
    """The layers' outputs side by side; their weights stay apart for checkpoints, adapters and quantisers.

    Gain: forward and backward of 12 layers with autocast are 1253 operations in place of 1687.
    """
    weight = torch.cat([layer.weight for layer in layers])
    bias = torch.cat([layer.bias for layer in layers])
    return nn.functional.linear(hidden_states, weight, bias)


# ---- Dropout, in training on a CPU

NOISE_LEVELS = 2**16


class GPT1Dropout(nn.Dropout):
    """Dropout whose mask is drawn faster on the CPU.

    Gain: for 4 × 512 tokens of width 768 it takes 0.19 of the time in float32, and 0.21 in bfloat16.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.training and draws_noise(hidden_states, self.p):
            return hidden_states * dropout_noise(hidden_states.shape, self.p, hidden_states.dtype)
        # Not `super().forward`: a graph then has fewer guards.
        return nn.functional.dropout(hidden_states, self.p, self.training, self.inplace)


def draws_noise(tensor: torch.Tensor, probability: float) -> bool:
    """Whether to use [`dropout_noise`]: other devices and compiled graphs draw random numbers fast enough."""
    return 0 < probability < 1 and can_read(tensor)


def num_dropped_levels(probability: float) -> int:
    """How many of `NOISE_LEVELS` are dropped with a probability: 0 only for 0, and never all of them."""
    if probability == 0:
        return 0
    return min(max(round(probability * NOISE_LEVELS), 1), NOISE_LEVELS - 1)


def dropout_noise(shape: torch.Size, probability: float, dtype: torch.dtype) -> torch.Tensor:
    """Independent dropout factors: 0 with `probability`, otherwise a constant that makes their mean exactly 1.

    The probability is rounded to a multiple of 2⁻¹⁶, neither 0 nor 1. `Tensor.bernoulli_` draws two random words for
    each number; here one word makes four numbers.
    """
    num_dropped = num_dropped_levels(probability)
    largest_dropped = num_dropped - 1 - NOISE_LEVELS // 2
    num_words = -(-shape.numel() // 4)
    words = torch.empty(num_words, dtype=torch.int64).random_(-(2**63), None)
    levels = words.view(torch.int16)[: shape.numel()]
    is_kept = levels.clamp_(largest_dropped, largest_dropped + 1).sub_(largest_dropped).to(dtype)  # 0 and 1
    return is_kept.mul_(NOISE_LEVELS / (NOISE_LEVELS - num_dropped)).view(shape)


# ---- Tokens that move to the rows of attention and back


class MovedTokens(torch.autograd.Function):
    """Tokens `[N, D]` at the places `index`, each at most once: their gradient is moved back, which needs no sum.

    Gain: forward and backward of 2048 tokens of width 768 take 0.44 of the time of `tokens[index]`. On an H200, the
    sums of gradients by places took 1.07 of the 11.9 ms of a RACE-shaped step.
    """

    @staticmethod
    def forward(ctx, tokens, index, inverse, is_padding):
        ctx.save_for_backward(inverse, is_padding)
        return tokens.index_select(0, index.flatten())

    @staticmethod
    def backward(ctx, grad):
        inverse, is_padding = ctx.saved_tensors
        grad_tokens = grad.index_select(0, inverse.flatten())
        if is_padding is not None:
            grad_tokens = grad_tokens.masked_fill(is_padding.flatten()[:, None], 0)
        return grad_tokens, None, None, None


# ---- Caches of `generate`


class GPT1GrowingLayer(DynamicLayer):
    """Keys and values with room for more tokens, so that a new token does not copy those before it.

    Gain: 8 texts of 64 + 192 tokens in float32 take 0.86 of the time (one thread of an Intel Xeon, 117 M parameters).
    """

    room = None  # `[2, B, H, T + a quarter, D/H]`; copies of this layer share it, and how many tokens are written

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.is_grad_enabled() or not can_read(key_states):  # where nothing may change in place
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        num_past = self.get_seq_length()
        num_all = num_past + key_states.shape[-2]
        if not self._has_room(num_past, num_all):
            self._make_room(key_states, num_past, num_all)
        self.room[0, ..., num_past:num_all, :] = key_states
        self.room[1, ..., num_past:num_all, :] = value_states
        self.keys, self.values = self.room[..., :num_all, :]
        self.written = self.keys
        self.room.num_written = num_all
        return self.keys, self.values

    def __deepcopy__(self, memo: dict) -> DynamicLayer:
        """A plain layer with the same keys and values: exporters copy a cache, and take each tensor for an input."""
        plain = DynamicLayer.__new__(DynamicLayer)
        memo[id(self)] = plain
        for name, value in vars(self).items():
            if name in ("room", "written"):
                continue
            if name in ("keys", "values") and isinstance(value, torch.Tensor):
                value = value.clone(memory_format=torch.contiguous_format)
            else:
                value = copy.deepcopy(value, memo)
            setattr(plain, name, value)
        return plain

    def _has_room(self, num_past: int, num_all: int) -> bool:
        """Whether the tokens so far lie in this layer's room, and the new ones fit behind them."""
        if self.room is None or num_all > self.room.shape[-2]:
            return False
        is_own = self.keys is self.written and num_past == self.room.num_written  # not after a reordering
        return is_own and self.room.is_inference() == torch.is_inference_mode_enabled()

    def _make_room(self, key_states: torch.Tensor, num_past: int, num_all: int) -> None:
        """New room for `num_all` tokens and a quarter more, with the keys and values so far."""
        batch_size, num_heads, _, head_dim = key_states.shape
        self.room = key_states.new_empty(2, batch_size, num_heads, 5 * num_all // 4 + 8, head_dim)
        if num_past:
            self.room[0, ..., :num_past, :] = self.keys
            self.room[1, ..., :num_past, :] = self.values


def let_grow(cache: Cache | None) -> None:
    """Lets the dynamic layers of a cache of `generate` grow in place."""
    for layer in getattr(cache, "layers", ()):
        if type(layer) is DynamicLayer:
            layer.__class__ = GPT1GrowingLayer


def mask_of_one_token(
    layer: StaticLayer, attention_mask: torch.Tensor | None, device: torch.device
) -> torch.BoolTensor:
    """The mask of one new token for a static cache, `[B or 1, 1, 1, length of the cache]`.

    Gain: two kernels in place of the dozen of transformers' `create_masks_for_generate`.

    Args:
        layer: one of the cache's.
        attention_mask (`[B, past + 1]`): 1 for real tokens; `generate` leaves out a mask without padding.
    """
    if attention_mask is None:
        places = torch.arange(layer.max_cache_len, device=device)
        is_seen = places[None] <= layer.get_seq_length()
    else:
        num_unwritten = layer.max_cache_len - attention_mask.shape[1]
        is_seen = nn.functional.pad(attention_mask.bool(), (0, num_unwritten))
    return is_seen[:, None, None]

# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""GPT-1: a post-layer-norm Transformer decoder, its language-model head and task head; options give GPT-2 and GPT-3.

Sources: "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), sections 3 and 4.1, and
the released code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py); [`GPT1Config`] names
those of the options. Attention, masks, caches and loading are those of transformers.

Shapes: B examples, C sequences per example, T tokens, D hidden, V vocabulary, K classes, H heads.
"""

# The user chooses traversal, regression and λ for a task; they are not traits of particular checkpoints:
# trf-ignore: TRF041 config.traversal, config.lm_coef

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.masking_utils import create_causal_mask, create_masks_for_generate, create_sliding_window_causal_mask
from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    ModelOutput,
    MultipleChoiceModelOutput,
    SequenceClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple, logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_gpt1 import FULL_ATTENTION, SLIDING_ATTENTION, TRAVERSALS, GPT1Config, UserError, config_for_task
from .layouts_gpt1 import FolderMixin, register_foreign_layouts
from .loss_gpt1 import count_items, count_labels, linear_cross_entropy, task_loss, task_losses
from .packing_gpt1 import (
    VARIABLE_LENGTH,
    Sequences,
    Targets,
    can_read,
    first_place,
    is_traced,
    is_whole,
    lengths_for_flash_attention,
    packed_inputs,
    plan_to_follow,
    read_labels,
    read_sequences,
    real_tokens,
    way_of_packing,
)

logger = logging.get_logger(__name__)

register_foreign_layouts()

# What transformers calls keys and values of earlier tokens: `cache` since 5.24. Our models read both names.
CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"
# torch's own product with a few rows reads the weights at half the memory's bandwidth, above all on AMD's processors.
HAS_FAST_PRODUCT = torch.backends.mkldnn.is_available() and platform.machine().lower() in ("x86_64", "amd64")
FEW_ROWS = 64  # beyond, oneDNN gains little, and prepares itself for every new number of rows
# On Intel's, torch's own is as fast for one row and, in several threads, for small weights, and starts sooner.
IS_INTEL = getattr(torch.cpu, "get_capabilities", dict)().get("cpu_name", "").startswith("Intel")
LEAST_ROWS, LEAST_WEIGHTS = (2, 2**20) if IS_INTEL else (1, 0)
NOISE_LEVELS = 2**16  # of dropout


# ---- Parts of a block


class GPT1Linear(nn.Linear):
    """A linear layer that multiplies a few float32 rows by oneDNN, on x86 CPUs and without gradients.

    Tools that look for `nn.Linear` alone, such as `torch.ao.quantization.quantize_dynamic`, do not find it.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if not has_few_rows(hidden_states, weight):
            return nn.functional.linear(hidden_states, weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(hidden_states, weight, self.bias, "none", [], "")


def has_few_rows(hidden_states: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether [`GPT1Linear`] takes oneDNN. The rest needs torch's product."""
    return (
        HAS_FAST_PRODUCT
        and not torch.is_grad_enabled()
        and can_read(hidden_states)  # first: a graph knows no number of threads
        and LEAST_ROWS * weight.shape[-1] <= hidden_states.numel() <= FEW_ROWS * weight.shape[-1]
        and (LEAST_WEIGHTS <= weight.numel() or torch.get_num_threads() == 1)
        and type(hidden_states) is torch.Tensor
        and type(weight) is nn.Parameter
        and hidden_states.dtype == weight.dtype == torch.float32
        and weight.is_cpu
        and weight.is_contiguous()
        and not torch.is_autocast_enabled("cpu")
    )


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
    """The layers' outputs side by side; their weights stay apart for checkpoints, adapters and quantisers."""
    weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
    return nn.functional.linear(hidden_states, weight, bias)


class GPT1Dropout(nn.Dropout):
    """Dropout whose mask is drawn faster on the CPU."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.training and draws_noise(hidden_states, self.p):
            return hidden_states * dropout_noise(hidden_states.shape, self.p, hidden_states.dtype)
        return nn.functional.dropout(hidden_states, self.p, self.training, self.inplace)  # fewer guards of a graph


def draws_noise(tensor: torch.Tensor, probability: float) -> bool:
    """Whether to use [`dropout_noise`]: other devices and compiled graphs draw random numbers fast enough."""
    return 0 < probability < 1 and can_read(tensor)


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


# ---- Masks and attention


def attention_inputs(
    config: GPT1Config,
    inputs_embeds: torch.Tensor,
    attention_mask: torch.Tensor | dict | None,
    past_key_values: Cache | None,
    position_ids: torch.LongTensor | None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[dict, dict]:
    """The attention implementation's mask for each layer type, and the layers' arguments `kwargs`.

    Rows of `position_ids [B, T]` that hold several sequences add the lengths by which flash attention keeps these
    apart. transformers would read the positions in each layer, and those of a single row only.
    """
    if isinstance(attention_mask, dict):  # `generate` may have built the masks already
        return attention_mask, kwargs
    if attention_mask is None and past_key_values is None and position_ids is not None:
        position_ids = without_gaps(position_ids)
        if "cu_seq_lens_q" not in kwargs and way_of_packing(config) == VARIABLE_LENGTH:
            positions = position_ids.expand(inputs_embeds.shape[:2])
            (starts, _), (longest, _) = prepare_fa_kwargs_from_position_ids(positions)
            kwargs = {**kwargs, **lengths_for_flash_attention(starts, int(longest))}
    arguments = {"config": config, "inputs_embeds": inputs_embeds, "attention_mask": attention_mask}
    arguments |= {CACHE: past_key_values, "position_ids": position_ids}
    masks = {FULL_ATTENTION: create_causal_mask(**arguments)}
    # CODEPATH: GPT-3
    if SLIDING_ATTENTION in config.attention_of_layers:
        masks[SLIDING_ATTENTION] = create_sliding_window_causal_mask(**arguments)
    return masks, kwargs


def without_gaps(position_ids: torch.LongTensor) -> torch.LongTensor:
    """Position ids `[B, T]` without gaps: they count up by 1 and restart where a position does not increase.

    transformers' masks take every step other than 1 for the beginning of another sequence.
    """
    places = torch.arange(position_ids.shape[1], device=position_ids.device).expand_as(position_ids)
    restarts = nn.functional.pad(position_ids.diff(dim=1) <= 0, (1, 0))
    sequence = restarts.cumsum(1)  # ONNX has no `cummax`
    return places - torch.zeros_like(places).scatter_add(1, sequence, places * restarts).gather(1, sequence)


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


class GPT1Attention(nn.Module):
    """Multi-head causal self-attention with biases on all four projections."""

    def __init__(self, config: GPT1Config, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = True
        self.layer_type = config.attention_of_layers[layer_idx]
        self.sliding_window = config.window_of_layer(layer_idx)
        self.q_proj = GPT1Linear(config.hidden_size, config.hidden_size)
        self.k_proj = GPT1Linear(config.hidden_size, config.hidden_size)
        self.v_proj = GPT1Linear(config.hidden_size, config.hidden_size)
        self.o_proj = GPT1Linear(config.hidden_size, config.hidden_size)
        self.o_proj.ends_in_residual = True
        self.resid_dropout = GPT1Dropout(config.resid_pdrop)

    def forward(
        self,
        hidden_states: torch.Tensor,  # [B, T, D]
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        rows: Any | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if has_one_product(hidden_states, self.q_proj, self.k_proj, self.v_proj):
            joined = one_product(hidden_states, self.q_proj, self.k_proj, self.v_proj)  # [B, T, 3 · D]
            projected = (joined if rows is None else to_rows(rows, joined)).chunk(3, dim=-1)
        else:  # three explicit calls: inference engines that parse this code can fuse them
            projected = [self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)]
            projected = projected if rows is None else [to_rows(rows, tensor) for tensor in projected]
        if rows is not None:
            kwargs["is_causal"] = True  # the rows' masks show nothing above the diagonal
        head_shape = (*projected[0].shape[:-1], -1, self.head_dim)
        query, key, value = (tensor.view(head_shape).transpose(1, 2) for tensor in projected)  # [B, H, T, D/H]
        if past_key_values is not None:
            past_and_new = past_key_values.update(key, value, self.layer_idx, kwargs=kwargs)
            # In a window of 1 a token sees only itself, but transformers' cache drops nothing then.
            key, value = past_and_new if self.sliding_window != 1 else (key, value)

        attention_function: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        kwargs["sliding_window"] = self.sliding_window  # for kernels that take no mask
        kwargs |= {"dropout": self.config.attn_pdrop if self.training else 0.0, "scaling": self.scaling}
        attention_output, attention_weights = attention_function(self, query, key, value, attention_mask, **kwargs)
        attention_output = attention_output.reshape(*head_shape[:-2], -1)  # [B, T, D]; from engines [B · T, D]
        if rows is not None:
            attention_output = from_rows(rows, attention_output)
        return self.resid_dropout(self.o_proj(attention_output)), attention_weights


class MovedTokens(torch.autograd.Function):
    """Tokens `[N, D]` at the places `index`, each at most once: their gradient is moved back, which needs no sum."""

    @staticmethod
    def forward(ctx, tokens, index, inverse, is_padding):
        ctx.save_for_backward(inverse, is_padding)
        return tokens.index_select(0, index.flatten())

    @staticmethod
    def backward(ctx, grad):
        inverse, is_padding = ctx.saved_tensors
        grad = grad.index_select(0, inverse.flatten())
        return grad if is_padding is None else grad.masked_fill(is_padding.flatten()[:, None], 0), None, None, None


def to_rows(plan: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    """Moves a plan's tokens `[1, N, D]` to its attention rows `[R, L, D]`; their padding holds arbitrary values."""
    shape = (*plan.row_index.shape, -1)
    if is_without_padding(plan):
        return hidden_states.view(shape)
    return MovedTokens.apply(hidden_states.flatten(0, 1), plan.row_index, plan.row_place, None).view(shape)


def from_rows(plan: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    """Inverse of `to_rows`: from `[R, L, D]` to `[1, N, D]`. The rows' padding gets no gradient."""
    if is_without_padding(plan):
        return hidden_states.flatten(0, 1)[None]
    return MovedTokens.apply(hidden_states.flatten(0, 1), plan.row_place, plan.row_index, plan.row_is_padding)[None]


def is_without_padding(plan: Any) -> bool:
    """Whether the attention rows have no padding. A graph does not ask: one serves all batches."""
    return not torch.compiler.is_compiling() and plan.row_index.numel() == plan.row_place.numel()


class GPT1MLP(nn.Module):
    """Position-wise feed-forward layer."""

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.up_proj = GPT1Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = GPT1Linear(config.intermediate_size, config.hidden_size)
        self.down_proj.ends_in_residual = True
        self.act = ACT2FN[config.hidden_act]
        self.dropout = GPT1Dropout(config.resid_pdrop)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.down_proj(self.act(self.up_proj(hidden_states))))


class GPT1Block(GradientCheckpointingLayer):
    """Transformer block. Layer norms follow the residual sums, or optionally precede the sub-blocks, as in GPT-2."""

    def __init__(self, config: GPT1Config, layer_idx: int):
        super().__init__()
        self.do_layer_norm_before = config.do_layer_norm_before
        self.attn = GPT1Attention(config, layer_idx)
        self.ln_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.mlp = GPT1MLP(config)
        self.ln_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)

    def forward(
        self,
        hidden_states: torch.Tensor,  # [B, T, D]
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        if self.do_layer_norm_before:
            attention_output, _ = self.attn(self.ln_1(hidden_states), attention_mask, past_key_values, **kwargs)
            hidden_states = hidden_states + attention_output
            return hidden_states + self.mlp(self.ln_2(hidden_states))
        attention_output, _ = self.attn(hidden_states, attention_mask, past_key_values, **kwargs)
        hidden_states = self.ln_1(hidden_states + attention_output)
        return self.ln_2(hidden_states + self.mlp(hidden_states))


class GPT1PreTrainedModel(FolderMixin, PreTrainedModel):
    """Weights, loading and saving that all GPT-1 models share."""

    config: GPT1Config
    base_model_prefix = "transformer"
    # Skip padding in the decoder, and compute a context that the choices of an example share once. To switch this off,
    # set it to False on a model or pass `pack_sequences=False` to a trainer's arguments.
    pack_sequences = True
    supports_gradient_checkpointing = True
    _no_split_modules = ["GPT1Block"]
    _input_embed_layer = "tokens_embed"
    _skip_keys_device_placement = ["past_key_values", "cache"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": GPT1Block, "attentions": GPT1Attention}
    # Causal-mask buffers of openai-gpt and GPT-2 files written by old releases.
    _keys_to_ignore_on_load_unexpected = [r"attn\.(masked_)?bias$"]

    @PreTrainedModel.loss_function.setter
    def loss_function(self, function):
        raise UserError("`loss_function` is never called: no logits are kept. Compute your loss from `logits`.")

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        # CODEPATH: GPT-2 and GPT-3. The parent module is unsuitable: initialization may skip modules without weights.
        if getattr(module, "ends_in_residual", False) and self.config.rescale_prenorm_residual:
            std = self.config.initializer_range / math.sqrt(2 * self.config.num_hidden_layers)
            initialization.normal_(module.weight, mean=0.0, std=std)


class GPT1Model(GPT1PreTrainedModel):
    """The decoder without a head: token and learned position embeddings, then the blocks."""

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        config.validate()  # fields can change after the configuration was built
        self.tokens_embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions_embed = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.drop = GPT1Dropout(config.embd_pdrop)
        self.h = nn.ModuleList([GPT1Block(config, layer_idx) for layer_idx in range(config.num_hidden_layers)])
        norms_before = config.do_layer_norm_before
        self.ln_f = nn.LayerNorm(config.hidden_size, config.layer_norm_epsilon) if norms_before else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        rows: Any | None = None,
        cache: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        r"""
        Args:
            input_ids (`[B, T]`, int64): token ids.
            attention_mask (`[B, past + T]`): 1 for real tokens, 0 for padding on either side; or a 4D mask,
                which serves banded layers too; or a dictionary with a 4D mask for each layer type.
            token_type_ids (`[B, T]` or `[B, 1]`, int64): token ids whose embeddings are added, as by OpenAIGPT.
            position_ids (`[B, T]`, int64): default: a token's rank among the real tokens of its row. Without a mask
                and a given cache, a position that is not above the one before it begins another sequence.
            past_key_values, cache (`Cache`): keys and values of the preceding tokens; `cache` since transformers 5.24.
            inputs_embeds (`[B, T, D]`): embeddings, instead of `input_ids`.
            use_cache (`bool`): return them, too; default: `config.use_cache` outside of training.
            rows ([`tokenization.BatchPlan`]): the rows of attention of the plan that the other arguments follow.

        Raises:
            ValueError: neither or both of `input_ids` and `inputs_embeds`; more tokens than positions.
        """
        check_tokens(self.config, input_ids, inputs_embeds, token_type_ids)
        if inputs_embeds is None:
            inputs_embeds = self.tokens_embed(input_ids)
        past_key_values = cache if past_key_values is None else past_key_values
        num_past = past_key_values.get_seq_length() if hasattr(past_key_values, "get_seq_length") else 0  # not paged
        if rows is None:
            check_length(self.config, num_past, inputs_embeds.shape[1], position_ids)
        attention_mask = padding_mask(attention_mask, inputs_embeds, num_past)
        # Packed sequences are inferred from `position_ids` without a cache, so this gets only what the caller gave.
        masks, kwargs = attention_inputs(
            self.config, inputs_embeds, attention_mask, past_key_values, position_ids, **kwargs
        )
        if use_cache and past_key_values is None and not self.training:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None and isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2:
            ranks = attention_mask.long().cumsum(-1) - 1  # among the real tokens of each row
            position_ids = ranks[:, -inputs_embeds.shape[1] :].clamp(min=0)
        elif position_ids is None:
            position_ids = (torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device) + num_past)[None]

        embeddings = inputs_embeds + self.positions_embed(position_ids)
        if token_type_ids is not None:
            embeddings = embeddings + self.tokens_embed(token_type_ids)
        hidden_states = self.drop(embeddings)
        hidden_states = self.run_blocks(hidden_states, masks, past_key_values, rows=rows, **kwargs)
        cache = past_key_values if use_cache else None
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(hidden_states), **{CACHE: cache})

    def run_blocks(self, hidden_states: torch.Tensor, masks: dict, past_key_values: Any, **kwargs) -> torch.Tensor:
        """The last block's output `[B, T, D]` for the first's input; `masks` has the mask of each layer type."""
        for block in self.h[: self.config.num_hidden_layers]:  # fewer if generation exits early
            hidden_states = block(hidden_states, masks[block.attn.layer_type], past_key_values, **kwargs)
        return hidden_states


class GPT1GrowingLayer(DynamicLayer):
    """Keys and values with room for more tokens, so that a new token does not copy those before it."""

    room = None  # `[2, B, H, T + a quarter, D/H]`; copies of this layer share it, and how many tokens are written

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs) -> tuple:
        if torch.is_grad_enabled() or not can_read(key_states):  # where nothing may change in place
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        past, room = self.get_seq_length(), self.room
        end = past + key_states.shape[-2]
        is_own = room is not None and self.keys is self.written and past == room.num_written  # not after a reordering
        if not is_own or end > room.shape[-2] or room.is_inference() != torch.is_inference_mode_enabled():
            self.room = room = key_states.new_empty(2, *key_states.shape[:-2], 5 * end // 4 + 8, key_states.shape[-1])
            if past:
                room[0, ..., :past, :], room[1, ..., :past, :] = self.keys, self.values
        room[0, ..., past:end, :], room[1, ..., past:end, :] = key_states, value_states
        self.keys, self.values = room[..., :end, :]
        self.written, room.num_written = self.keys, end
        return self.keys, self.values


# ---- Checks of the decoder's arguments


def check_exactly_one(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
    if (input_ids is None) == (inputs_embeds is None):
        raise UserError("Exactly one of `input_ids` and `inputs_embeds` is needed.")


def check_ids(name: str, ids: torch.Tensor, vocab_size: int, ignored: int | None = None) -> None:
    """Checks that all ids are in the vocabulary or equal `ignored`."""
    if not is_whole(ids):
        raise UserError(f"`{name}` must contain token ids (torch.int64), but got {ids.dtype}.")
    if not can_read(ids):
        return
    is_wrong = (ids < 0) | (ids >= vocab_size)
    is_wrong = is_wrong if ignored is None else is_wrong & (ids != ignored)
    if is_wrong.any():
        place = first_place(is_wrong)
        others = "" if ignored is None else f", and {ignored} marks tokens without a target"
        raise UserError(
            f"`{name}` has {ids[place].item()} at {list(place)}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}{others}. Use the model's own tokenizer; if tokens were added to it, call "
            "`model.resize_token_embeddings(len(tokenizer))`."
        )


def check_tokens(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
) -> None:
    """Checks the decoder's `input_ids [B, T]` or `inputs_embeds [B, T, D]`, and its `token_type_ids`."""
    check_exactly_one(input_ids, inputs_embeds)
    name, given = ("input_ids", input_ids) if inputs_embeds is None else ("inputs_embeds", inputs_embeds)
    needed = ["B", "T"] if inputs_embeds is None else ["B", "T", config.hidden_size]
    fits = given.dim() == len(needed) and (inputs_embeds is None or given.shape[2] == config.hidden_size)
    if not fits or not given.numel():
        shape = f"[{', '.join(map(str, needed))}], at least one row and one token"
        raise UserError(f"`{name}` needs the shape {shape}, but got {list(given.shape)}.")
    if inputs_embeds is None:
        check_ids("input_ids", input_ids, config.vocab_size)
    if token_type_ids is not None:
        check_ids("token_type_ids", token_type_ids, config.vocab_size)


def check_targets(targets: torch.Tensor, tokens: torch.Tensor, vocab_size: int) -> None:
    """Checks that each of `tokens [B, T, …]` has a target: an id or −100."""
    needed = tokens.shape[:2]
    if targets.shape != needed:
        given = f"`labels` needs the shape {list(needed)}, one for each token, but got {list(targets.shape)}"
        raise UserError(f"{given}. Pass a copy of `input_ids`, with -100 at tokens without a target.")
    check_ids("labels", targets, vocab_size, ignored=-100)


def padding_mask(
    attention_mask: torch.Tensor | dict | None, inputs_embeds: torch.Tensor, num_past: int | torch.Tensor
) -> torch.Tensor | dict | None:
    """The decoder's attention mask, checked; a padding mask `[B, past + T]` is converted to booleans."""
    if not isinstance(attention_mask, torch.Tensor) or (attention_mask.dim() == 4 and not is_whole(attention_mask)):
        return attention_mask
    num_rows, length = inputs_embeds.shape[:2]
    if isinstance(num_past, torch.Tensor):  # a static cache keeps its length on the device
        num_past = int(num_past) if can_read(num_past) else attention_mask.shape[-1] - length
    needed = [num_rows, num_past + length]
    if attention_mask.dim() != 2 or list(attention_mask.shape) != needed:
        raise UserError(
            f"`attention_mask` needs the shape {needed}, one column for each token, including those in the cache, but "
            f"got {list(attention_mask.shape)} of {attention_mask.dtype}. A mask of pairs of tokens needs the shape "
            "[B, 1, T, past + T], and must be boolean, or hold numbers to add to the scores."
        )
    return real_tokens(attention_mask)


def check_length(
    config: PreTrainedConfig, num_past: int | torch.Tensor, num_new: int, position_ids: torch.Tensor | None = None
) -> None:
    """Checks that the model has enough positions for a sequence."""
    # A static cache keeps its length on the device: reading it would break a compiled graph, or wait at each token.
    if isinstance(num_past, torch.Tensor):
        num_past = int(num_past) if can_read(num_past) else 0
    length, limit = num_past + num_new, config.max_position_embeddings
    if position_ids is not None:  # the row may hold several sequences, or begin behind the first position
        length = int(position_ids.max()) + 1 if can_read(position_ids) else 0
    if length > limit:
        raise UserError(
            f"The sequence has {length} tokens, but the model has only {limit} positions (`max_position_embeddings`). "
            "Shorten the input: pass `truncation=True, max_length=…` to the tokenizer, `max_length` to the collator, "
            "`block_length` to `load_blocks` or a smaller `max_new_tokens` to `generate`."
        )


# ---- Heads


class GPT1TaskHead(nn.Module):
    """Scores of an example from the hidden states of its C sequences at the extract token.

    Source: equation 3 and figure 1 of the paper. As in the released code, all sequences of an example share one
    dropout mask, and the layer has a bias that starts at 0.
    """

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.has_choices = TRAVERSALS[config.traversal] is None
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, 1 if self.has_choices else config.num_labels)

    def forward(self, extracted: torch.Tensor, is_present: torch.BoolTensor | None = None) -> torch.Tensor:
        """Task logits `[B, K]` from `extracted [B, C, D]`; `[B, C]` for multiple choice, −∞ at absent choices."""
        extracted = extracted * self.dropout(torch.ones_like(extracted[:, :1]))
        if self.has_choices:
            task_logits = self.score(extracted).squeeze(-1)
            return task_logits if is_present is None else task_logits.masked_fill(~is_present, float("-inf"))
        return self.score(extracted.sum(1))


class GPT1LMHead(GPT1Linear):
    """Language-model head. With targets it returns the summed loss without storing the logits of all tokens.

    The loss is computed in `forward`, because FSDP, DeepSpeed ZeRO-3 and accelerate's offloading gather or move
    this module's weight around that call.
    """

    def forward(self, hidden_states: torch.Tensor, *targets: torch.Tensor) -> torch.Tensor | tuple:
        """Logits `[..., V]` of `hidden_states [..., D]`; with targets, see [`linear_cross_entropy`]."""
        if not targets:
            return super().forward(hidden_states)
        return linear_cross_entropy(hidden_states, self.weight, *targets)


class LMHeadMixin:
    """Shared part of the models with a language-model head: the head's tied weight, its resizing and its losses."""

    _tied_weights_keys = {"lm_head.weight": "transformer.tokens_embed.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def _get_resized_lm_head(self, *args, **kwargs) -> GPT1LMHead:
        head = super()._get_resized_lm_head(*args, **kwargs)
        head.__class__ = GPT1LMHead  # transformers makes a plain linear layer
        return head

    def _lm_loss(
        self, targets: Targets, num_rows: int, num_items: torch.Tensor | int, coefficient: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The weighted sum of −log P(target) divided by N, `[]`, and each row's sum, `[num_rows]`, without a gradient.

        N is `num_items`, and `coefficient` the factor of the first in the loss that is differentiated. Logits of all
        targets are in memory under `torch.func`, and if an adapter, a quantiser or a sharding has replaced the head.
        """
        hidden_states, target_ids, target_weights, rows = targets
        has_own_head = isinstance(self.lm_head, GPT1LMHead) and getattr(self, "_tp_size", None) in (None, 1)
        if has_own_head and not torch._C._are_functorch_transforms_active():
            dtype = torch.promote_types(hidden_states.dtype, torch.float32)
            expected_grad = hidden_states.new_ones((), dtype=dtype) * coefficient / num_items  # as autograd rounds it
            loss_sum, token_losses = self.lm_head(hidden_states, target_ids, target_weights, expected_grad)
        else:
            logits = self.lm_head(hidden_states).float()
            token_losses = nn.functional.cross_entropy(logits, target_ids, reduction="none")
            loss_sum = (token_losses * target_weights).sum()
        row_losses = token_losses.new_zeros(num_rows).index_add(0, rows, token_losses.detach() * target_weights)
        return loss_sum / num_items, row_losses


def check_extract_token(model: "GPT1TaskModel", inputs: dict[str, torch.Tensor | None]) -> None:
    """Warns once if texts lack the control tokens that the task head reads, or are one for a pair or the reverse.

    A caller that passes `mc_token_ids` has chosen the extract positions. Only the first batch waits for the device.
    """
    input_ids, token_id = inputs["input_ids"], model.config.extract_token_id
    is_chosen = input_ids is None or input_ids.is_meta or inputs["mc_token_ids"] is not None
    if is_chosen or is_traced() or model.has_checked_texts:
        return
    model.has_checked_texts = True
    is_lacking = (input_ids != (-1 if token_id is None else token_id)).all(-1)
    if inputs["attention_mask"] is not None:
        is_lacking = is_lacking & inputs["attention_mask"].bool().any(-1).view_as(is_lacking)
    if is_lacking.any():
        logger.warning(
            f"{int(is_lacking.sum())} of {is_lacking.numel()} sequences of the first batch lack the extract token [e] "
            f"(`config.extract_token_id` is {token_id}), at which the task head reads them: their texts were encoded "
            "without [s], [$] and [e], and the head reads the last token. Call `add_control_tokens(tokenizer, model)` "
            "(`from modeling_gpt1 import add_control_tokens`) after loading both and before encoding texts; for a "
            "pipeline, call `add_control_tokens(pipe.tokenizer, pipe.model)`."
        )
    elif input_ids.dim() == 2 and (delimiter := model.config.delimiter_token_id) is not None:
        is_wrong, needed = (input_ids == delimiter).any(-1), "`text` alone"
        if model.config.traversal == "entailment":
            is_wrong, needed = ~is_wrong, "`text` and `text_pair`"
        elif model.config.traversal != "classification" or model.config.columns is None:
            return  # a script without columns may have trained on pairs
        if is_wrong.any():
            logger.warning(
                f"{int(is_wrong.sum())} of {len(is_wrong)} sequences of the first batch are not what the traversal "
                f"{model.config.traversal!r} was trained on. Give the tokenizer or the pipeline {needed}."
            )


# ---- Models


@dataclass
class GPT1CausalLMOutput(CausalLMOutputWithPast):
    r"""Output of [`GPT1ForCausalLM`]: transformers' output with one more field.

    Args:
        example_losses (`[B, 2]`): each row's sum of −log P and number of targets, without a gradient. Only with
            labels and outside of training.
    """

    example_losses: torch.FloatTensor | None = None


@dataclass
class GPT1DoubleHeadsModelOutput(ModelOutput):
    r"""Output of [`GPT1DoubleHeadsModel`].

    Args:
        loss (`[]`): L3 = task_loss + λ · lm_loss.
        task_loss (`[]`): L2 / N.
        lm_loss (`[]`): auxiliary loss L1 / (C · N); `None` if λ is 0.
        task_logits (`[B, K]`, or `[B, C]` for multiple choice, −inf at absent choices): scores of classes or choices.
        lm_logits (`[B, C, T, V]`): next-token scores, if requested.
        example_losses (`[B, 3]`): each example's L2, L1 / C and number of labels, its weight in a mean, without a
            gradient; with labels, outside of training.
        hidden_states, attentions: as in transformers, with `B · C` as their batch.
    """

    loss: torch.FloatTensor | None = None
    task_loss: torch.FloatTensor | None = None
    lm_loss: torch.FloatTensor | None = None
    task_logits: torch.FloatTensor | None = None
    lm_logits: torch.FloatTensor | None = None
    example_losses: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


class GPT1ForCausalLM(LMHeadMixin, GPT1PreTrainedModel, GenerationMixin):
    """GPT-1 with the language-model head of pre-training: equations 1 and 2 of the paper."""

    decoder_class = GPT1Model
    # A fine-tuned folder continues texts without its task head.
    _keys_to_ignore_on_load_unexpected = [*GPT1PreTrainedModel._keys_to_ignore_on_load_unexpected, r"^task_head\."]

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        self.transformer = self.decoder_class(config)
        self.lm_head = GPT1LMHead(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | torch.Tensor = 0,
        skip_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        plan: Any | None = None,
        cache: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> GPT1CausalLMOutput:
        r"""
        Takes the arguments of [`GPT1Model`] and the following.

        Args:
            labels (`[B, T]`, int64): ids to predict, aligned with `input_ids` (shifted inside); −100 is ignored.
            logits_to_keep (`int` or 1-D tensor): positions with logits: the last n, or those listed; 0 keeps all.
            skip_logits (`bool`): return no `logits`; the loss needs none. Default: True in training with labels.
            num_items_in_batch (`int`): divisor of the summed loss. Default: the number of targets in this call.
            plan ([`tokenization.BatchPlan`]): the batch's plan, which `BlockCollator` makes.
        """
        if kwargs.get("shift_labels") is not None:
            raise UserError("`shift_labels`, the targets of sharded sequences, are not read. Pass `labels` alone.")
        plan = plan_to_follow(self, plan, input_ids, attention_mask, labels, **kwargs)
        # A mask makes the host wait; without one, positions would mark packed sequences.
        if plan is not None and position_ids is None and not can_read(input_ids):
            attention_mask = None
        skip_logits = self.training and labels is not None if skip_logits is None else skip_logits
        others = {"token_type_ids": token_type_ids, "position_ids": position_ids, "inputs_embeds": inputs_embeds}
        others["past_key_values"] = cache if past_key_values is None else past_key_values
        gives_loss_alone = skip_logits and (self.training or use_cache is False)  # else padding is in the output, too
        inputs = packed_inputs(self, plan if gives_loss_alone else None, input_ids, *others.values())
        inputs = inputs or {"input_ids": input_ids, "attention_mask": attention_mask, **others}
        outputs: BaseModelOutputWithPast = self.transformer(**inputs, use_cache=use_cache, return_dict=True, **kwargs)
        hidden_states = outputs.last_hidden_state  # [B, T, D], or packed [1, N, D]
        logits = loss = example_losses = None
        if not skip_logits:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.lm_head(hidden_states[:, kept, :])
        if labels is not None:
            check_targets(labels, input_ids if inputs_embeds is None else inputs_embeds, self.config.vocab_size)
            is_target = labels[:, 1:] != -100
            targets = read_labels(hidden_states, labels, plan)
            loss, row_losses = self._lm_loss(targets, len(labels), count_items(is_target, num_items_in_batch))
            example_losses = None if self.training else torch.stack([row_losses, is_target.sum(1)], dim=1)
        return GPT1CausalLMOutput(
            loss=loss,
            example_losses=example_losses,
            logits=logits,
            **{CACHE: outputs.get(CACHE)},
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def generate(self, inputs: torch.LongTensor | None = None, *args, **kwargs):
        """As in transformers; on a CPU, warns once of a prompt that ends in [e], after which nothing was trained."""
        ids, extract_token_id = kwargs.get("input_ids") if inputs is None else inputs, self.config.extract_token_id
        if extract_token_id is not None and isinstance(ids, torch.Tensor) and ids.numel() and can_read(ids):
            if (ids[..., -1] == extract_token_id).any():
                logger.warning_once(
                    "A prompt ends with the extract token [e], and the model was not trained on any token after it. "
                    "Pass `add_special_tokens=False`, or open the tokenizer with `add_bos_token=True`."
                )
        return super().generate(inputs, *args, **kwargs)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        for layer in getattr(model_kwargs.get(CACHE), "layers", ()):
            if type(layer) is DynamicLayer:
                layer.__class__ = GPT1GrowingLayer

    @staticmethod
    def create_masks_for_generate(config, inputs_embeds, attention_mask, **kwargs):
        """transformers' masks for a static cache; that for one token by two kernels instead of a dozen."""
        has_boolean_masks = way_of_packing(config) not in (None, VARIABLE_LENGTH)
        is_plain = has_boolean_masks and SLIDING_ATTENTION not in config.attention_of_layers
        if not is_plain or inputs_embeds.shape[1] > 1:
            return create_masks_for_generate(config, inputs_embeds, attention_mask, **kwargs)
        layer = kwargs[CACHE].layers[0]
        if attention_mask is None:  # `generate` leaves out a mask without padding
            mask = torch.arange(layer.max_cache_len, device=inputs_embeds.device)[None] <= layer.get_seq_length()
        else:
            mask = nn.functional.pad(attention_mask.bool(), (0, layer.max_cache_len - attention_mask.shape[1]))
        return mask[:, None, None]

    def _validate_generated_length(self, generation_config, input_ids_length, has_default_max_length):
        super()._validate_generated_length(generation_config, input_ids_length, has_default_max_length)
        length, limit = generation_config.max_length, self.config.max_position_embeddings
        if length > limit:
            more = f"pass `max_new_tokens` of at most {limit - input_ids_length} or " * (limit > input_ids_length)
            raise UserError(
                f"A prompt of {input_ids_length} tokens may become {length} (`max_length`, or with `max_new_tokens`), "
                f"but the model has only {limit} positions (`max_position_embeddings`): {more}shorten the prompt."
            )


class GPT1TaskModel(GPT1PreTrainedModel):
    """Base of the models with a task head. It reads `[B, C, T]` examples and scores them by `config.traversal`."""

    supported_traversals = tuple(TRAVERSALS)
    has_checked_texts = False
    decoder_class = GPT1Model
    output_class = SequenceClassifierOutput

    def __init__(self, config: GPT1Config):
        config = config_for_task(config, type(self))
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"  # makes Trainer count all labels other than −100: N
        self.transformer = self.decoder_class(config)
        self.task_head = GPT1TaskHead(config)
        if isinstance(self, LMHeadMixin):
            self.lm_head = GPT1LMHead(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        mc_token_ids: torch.LongTensor | None = None,
        choice_mask: torch.BoolTensor | None = None,
        labels: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        plan: Any | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput | MultipleChoiceModelOutput:
        """Takes [`GPT1DoubleHeadsModel`]'s arguments but those of L1; returns `logits` and, with labels, L2 / N."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
        inputs |= {"mc_token_ids": mc_token_ids, "choice_mask": choice_mask}
        inputs |= {"token_type_ids": token_type_ids, "position_ids": position_ids}
        _, outputs, task_logits = self._encode(inputs, plan=plan, **kwargs)
        loss = None if labels is None else task_loss(task_logits, labels, self.config, num_items_in_batch)
        return self.output_class(
            loss=loss, logits=task_logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _encode(
        self, inputs: dict[str, Any], plan: Any | None, **kwargs
    ) -> tuple[Sequences, BaseModelOutputWithPast, torch.Tensor]:
        """The examples of a call's `inputs`, the decoder's output for all their sequences, and the task logits."""
        check_exactly_one(inputs["input_ids"], inputs["inputs_embeds"])
        sequences = read_sequences(self, **inputs, plan=plan, **kwargs)
        check_extract_token(self, inputs)
        if sequences.input_ids is not None and can_read(sequences.input_ids):
            self.warn_if_padding_and_no_attention_mask(sequences.input_ids, inputs["attention_mask"])
        outputs = self.transformer(**{**kwargs, **sequences.decoder_inputs, "use_cache": False, "return_dict": True})
        task_logits = self.task_head(sequences.extract(outputs.last_hidden_state), sequences.is_present)
        return sequences, outputs, task_logits


class GPT1DoubleHeadsModel(LMHeadMixin, GPT1TaskModel):
    """GPT-1 with the language-model head and the task head: fine-tuning with L3 = L2 + λ · L1.

    Sources: equations 3 to 5 and figure 1 of the paper; the normalisation of the loss is that of the released code.
    """

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        mc_token_ids: torch.LongTensor | None = None,
        choice_mask: torch.BoolTensor | None = None,
        labels: torch.Tensor | None = None,
        lm_mask: torch.BoolTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_lm_logits: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
        plan: Any | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> GPT1DoubleHeadsModelOutput:
        r"""
        Args:
            input_ids (`[B, C, T]`, or `[B, T]` if C is 1; int64): the examples' sequences. Similarity also reads
                `[B, T]` rows `[s] a [$] b [e]` and builds the reverse order itself.
            attention_mask (like `input_ids`): 1 for real tokens.
            mc_token_ids (`[B, C]`, int64): position of the extract token. Default: the last real token.
            choice_mask (`[B, C]`, bool): False where an example has fewer choices.
            labels (`[B]`; int64 class or choice, float for regression): the task's labels; `[B, K]` of 0 and 1 for
                multi-label classification. The label −100 is ignored in L2, L1 and N.
            lm_mask (`[B, C, T]`, or `[B, T]` if C is 1; bool): True for the targets of the auxiliary loss, such as the
                reply of a dialogue. Default: all real tokens after the first of a sequence.
            token_type_ids, position_ids (like `lm_mask`), inputs_embeds (`[B, C, T, D]`): see [`GPT1Model`].
            output_lm_logits (`bool`): return `lm_logits` too.
            num_items_in_batch (`int`): N, labels other than −100 in the whole optimizer step, one per example or,
                for multi-label classification, up to K. Default: those in the batch.
            plan ([`tokenization.BatchPlan`]): the batch's plan, which `TraversalCollator` makes.

        Raises:
            ValueError: shapes that do not fit the traversal; the auxiliary loss without `input_ids`.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
        inputs |= {"mc_token_ids": mc_token_ids, "choice_mask": choice_mask, "lm_mask": lm_mask}
        inputs |= {"token_type_ids": token_type_ids, "position_ids": position_ids}
        sequences, outputs, task_logits = self._encode(inputs, plan=plan, **kwargs)
        hidden_states, losses, lm_logits = outputs.last_hidden_state, {}, None
        if labels is not None:
            losses_of_task = task_losses(task_logits, labels, self.config)  # [B]
            losses_of_lm = torch.zeros_like(losses_of_task)
            counts = count_labels(labels)
            num_items = count_items(counts, num_items_in_batch)
            loss_of_task = (losses_of_task * counts).sum() / num_items
            losses = {"loss": loss_of_task.clone(), "task_loss": loss_of_task}  # Trainer scales the loss in place
            lm_coef = float(self.config.lm_coef)
            if lm_coef > 0:
                targets = sequences.read_targets(hidden_states, counts)
                losses["lm_loss"], losses_of_lm = self._lm_loss(targets, len(task_logits), num_items, lm_coef)
                losses["loss"] = loss_of_task + lm_coef * losses["lm_loss"]
            if not self.training:
                losses_of_lm = losses_of_lm / counts.clamp(min=1)
                losses["example_losses"] = torch.stack([losses_of_task.detach(), losses_of_lm, counts], dim=1)
        if output_lm_logits:
            lm_logits = self.lm_head(sequences.padded(hidden_states)).unflatten(0, sequences.shape)
        return GPT1DoubleHeadsModelOutput(
            **losses,
            task_logits=task_logits,
            lm_logits=lm_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class GPT1ForSequenceClassification(GPT1TaskModel):
    """GPT-1 with the task head alone, for classification, entailment, similarity and regression."""

    supported_traversals = tuple(name for name, num_sequences in TRAVERSALS.items() if num_sequences is not None)


class GPT1ForMultipleChoice(GPT1TaskModel):
    """GPT-1 with the task head alone, for multiple choice."""

    supported_traversals = tuple(name for name, num_sequences in TRAVERSALS.items() if num_sequences is None)
    output_class = MultipleChoiceModelOutput


__all__ = ["GPT1CausalLMOutput", "GPT1DoubleHeadsModel", "GPT1DoubleHeadsModelOutput", "GPT1ForCausalLM"]
__all__ += ["GPT1ForMultipleChoice", "GPT1ForSequenceClassification", "GPT1Model", "GPT1PreTrainedModel"]

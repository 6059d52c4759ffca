# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""GPT-1: a post-layer-norm Transformer decoder, its language-model head and task head; options give GPT-2 and GPT-3.

Sources: "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), sections 3 and 4.1, and
the released code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py); [`GPT1Config`] names
those of the options. Attention, masks, caches and loading are those of transformers. How it is fast is in
`kernels_gpt1.py`, how a batch's plan is followed in `packing_gpt1.py`, and the objective in `loss_gpt1.py`.

Shapes: B examples, C sequences per example, T tokens, D hidden, V vocabulary, K classes, H heads.
"""

# The user chooses traversal, regression and λ for a task; they are not traits of particular checkpoints:
# trf-ignore: TRF041 config.traversal, config.lm_coef

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask, create_masks_for_generate, create_sliding_window_causal_mask
from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    CausalLMOutputWithPast,
    ModelOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple, logging
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .checks_gpt1 import (
    can_read,
    check_exactly_one,
    check_length,
    check_no_past,
    check_targets,
    check_texts,
    check_token_labels,
    check_tokens,
    is_traced,
    padding_mask,
)
from .configuration_gpt1 import (
    FULL_ATTENTION,
    IGNORED_LABEL,
    SLIDING_ATTENTION,
    TRAVERSALS,
    GPT1Config,
    UserError,
    config_for_task,
    has_choices,
)
from .kernels_gpt1 import (
    GPT1Dropout,
    GPT1Linear,
    has_one_product,
    is_quantized,
    let_grow,
    linear_layer,
    mask_of_one_token,
    one_product,
)
from .layouts_gpt1 import FolderMixin, register_foreign_layouts
from .loss_gpt1 import (
    count_items,
    count_labels,
    linear_cross_entropy,
    span_loss,
    task_loss,
    task_losses,
    token_loss,
)
from .packing_gpt1 import (
    MASKED_ROWS,
    VARIABLE_LENGTH,
    Plan,
    Sequences,
    Targets,
    from_rows,
    lengths_for_flash_attention,
    packed_inputs,
    padded_inputs,
    plan_to_follow,
    read_labels,
    read_sequences,
    to_rows,
    way_of_packing,
)

logger = logging.get_logger(__name__)

register_foreign_layouts()

# What transformers calls keys and values of earlier tokens: `cache` since 5.24. Our models read both names.
CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"

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

    Where `position_ids [B, T]` mark several sequences in a batch row, flash attention gets their lengths, by which it
    keeps them apart. transformers would read the positions in each layer, and those of a single batch row only.
    """
    if isinstance(attention_mask, dict):  # `generate` may have built the masks already
        return attention_mask, kwargs
    if attention_mask is None and past_key_values is None and position_ids is not None:
        position_ids = without_gaps(position_ids)
        if "cu_seq_lens_q" not in kwargs and way_of_packing(config) == VARIABLE_LENGTH:
            positions = position_ids.expand(inputs_embeds.shape[:2])
            (starts, _), (longest, _) = prepare_fa_kwargs_from_position_ids(positions)
            kwargs = {**kwargs, **lengths_for_flash_attention(starts, int(longest))}
    arguments = {
        "config": config,
        "inputs_embeds": inputs_embeds,
        "attention_mask": attention_mask,
        CACHE: past_key_values,
        "position_ids": position_ids,
    }
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
    sequences = restarts.cumsum(1)  # the number of each place's sequence; ONNX has no `cummax`
    starts = torch.zeros_like(places).scatter_add(1, sequences, places * restarts)
    return places - starts.gather(1, sequences)


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
    """Softmax attention in plain torch: query, key and value `[B, H, T, D/H]` to `[B, T, H, D/H]`.

    The mask is boolean, True where a query sees a key, or is added to the scores.
    """
    attention_weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    # At least float32, and at least the mask's dtype: its minimum would overflow to −∞, and padding alone give NaN.
    attention_weights = attention_weights.to(torch.promote_types(query.dtype, torch.float32))
    if attention_mask is not None and attention_mask.dtype == torch.bool:  # a 4D mask of the caller's
        lowest = torch.finfo(attention_weights.dtype).min  # not −∞: a row of padding would give NaN
        attention_weights = attention_weights.masked_fill(~attention_mask, lowest)
    elif attention_mask is not None:
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
        self.q_proj = linear_layer(config, config.hidden_size, config.hidden_size)
        self.k_proj = linear_layer(config, config.hidden_size, config.hidden_size)
        self.v_proj = linear_layer(config, config.hidden_size, config.hidden_size)
        self.o_proj = linear_layer(config, config.hidden_size, config.hidden_size)
        self.o_proj.ends_in_residual = True
        self.resid_dropout = GPT1Dropout(config.resid_pdrop)

    def forward(
        self,
        hidden_states: torch.Tensor,  # [B, T, D]
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        rows: Plan | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if has_one_product(hidden_states, self.q_proj, self.k_proj, self.v_proj):
            joined = one_product(hidden_states, self.q_proj, self.k_proj, self.v_proj)  # [B, T, 3 · D]
            if rows is not None:
                joined = to_rows(rows, joined)
            query, key, value = joined.chunk(3, dim=-1)
        else:  # three explicit calls: inference engines that parse this code can fuse them
            query = self.q_proj(hidden_states)
            key = self.k_proj(hidden_states)
            value = self.v_proj(hidden_states)
            if rows is not None:
                query = to_rows(rows, query)
                key = to_rows(rows, key)
                value = to_rows(rows, value)
        head_shape = (*query.shape[:-1], -1, self.head_dim)
        query = query.view(head_shape).transpose(1, 2)  # [B, H, T, D/H]; with a plan [R, H, L, D/H]
        key = key.view(head_shape).transpose(1, 2)
        value = value.view(head_shape).transpose(1, 2)
        if past_key_values is not None:
            past_and_new = past_key_values.update(key, value, self.layer_idx, kwargs=kwargs)
            # In a window of 1 a token sees only itself, and so says the mask for a sliding layer of the cache. But the
            # layer itself drops nothing then.
            if self.sliding_window != 1 or not past_key_values.layers[self.layer_idx].is_sliding:
                key, value = past_and_new

        attention_function: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        if rows is not None:
            kwargs["is_causal"] = True  # the rows' masks show nothing above the diagonal
        kwargs["sliding_window"] = self.sliding_window  # for kernels that take no mask
        kwargs["dropout"] = self.config.attn_pdrop if self.training else 0.0
        kwargs["scaling"] = self.scaling
        attention_output, attention_weights = attention_function(self, query, key, value, attention_mask, **kwargs)
        attention_output = attention_output.reshape(*head_shape[:-2], -1)  # [B, T, D]; from engines [B · T, D]
        if rows is not None:
            attention_output = from_rows(rows, attention_output)
        return self.resid_dropout(self.o_proj(attention_output)), attention_weights


class GPT1MLP(nn.Module):
    """Position-wise feed-forward layer."""

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.up_proj = linear_layer(config, config.hidden_size, config.intermediate_size)
        self.down_proj = linear_layer(config, config.intermediate_size, config.hidden_size)
        self.down_proj.ends_in_residual = True
        if config.hidden_act not in ACT2FN:
            raise UserError(
                f"`hidden_act` is {config.hidden_act!r}, but it must be one of transformers' activations: "
                f"{', '.join(sorted(ACT2FN))}."
            )
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
        # CODEPATH: GPT-2 and GPT-3
        if config.do_layer_norm_before:
            self.ln_f = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        else:
            self.ln_f = nn.Identity()
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
        rows: Plan | None = None,
        cache: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        r"""
        Args:
            input_ids (`[B, T]`, int64): token ids.
            attention_mask (`[B, past + T]`): 1 for real tokens, 0 for padding on either side; or a 4D mask,
                which serves banded layers too; or a dictionary with a 4D mask for each layer type.
            token_type_ids (`[B, T]` or `[B, 1]`, int64): token ids whose embeddings are added, as by OpenAIGPT.
            position_ids (`[B, T]`, int64): default: a token's rank among the real tokens of its batch row. Without a
                mask and a given cache, a position that is not above the one before it begins another sequence.
            past_key_values, cache (`Cache`): keys and values of the preceding tokens; `cache` since transformers 5.24.
                Gradient checkpointing in training leaves an empty one empty, and refuses another one.
            inputs_embeds (`[B, T, D]`): embeddings, instead of `input_ids`.
            use_cache (`bool`): return them, too; default: `config.use_cache` outside of training.
            rows ([`Plan`]): the plan that the other arguments follow, for its rows of attention.

        Raises:
            ValueError: neither or both of `input_ids` and `inputs_embeds`; more tokens than positions.
        """
        check_tokens(self.config, input_ids, inputs_embeds, token_type_ids)
        if inputs_embeds is None:
            inputs_embeds = self.tokens_embed(input_ids)
        length = inputs_embeds.shape[1]
        if past_key_values is None:
            past_key_values = cache
        num_past = 0
        if hasattr(past_key_values, "get_seq_length"):  # not paged
            num_past = past_key_values.get_seq_length()
        if rows is None:
            check_length(self.config, num_past, length, position_ids)
        if past_key_values is not None and self.is_replayed_in_backward():
            check_no_past(num_past)
            past_key_values = None
        attention_mask = padding_mask(attention_mask, inputs_embeds, num_past)
        # Packed sequences are inferred from `position_ids` without a cache, so this gets only what the caller gave.
        masks, kwargs = attention_inputs(
            self.config, inputs_embeds, attention_mask, past_key_values, position_ids, **kwargs
        )
        if use_cache and past_key_values is None and not self.training:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            if isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2:
                ranks = attention_mask.long().cumsum(-1) - 1  # among the real tokens of each batch row
                position_ids = ranks[:, -length:].clamp(min=0)
            else:
                position_ids = (torch.arange(length, device=inputs_embeds.device) + num_past)[None]

        embeddings = inputs_embeds + self.positions_embed(position_ids)
        if token_type_ids is not None:
            embeddings = embeddings + self.tokens_embed(token_type_ids)
        hidden_states = self.drop(embeddings)
        hidden_states = self.run_blocks(hidden_states, masks, past_key_values, rows=rows, **kwargs)
        cache = past_key_values if use_cache else None
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(hidden_states), **{CACHE: cache})

    def is_replayed_in_backward(self) -> bool:
        """Whether the backward pass runs the blocks again, which would write into a cache again."""
        is_checkpointed = any(block.gradient_checkpointing for block in self.h)
        return is_checkpointed and self.training and torch.is_grad_enabled()

    def run_blocks(
        self, hidden_states: torch.Tensor, masks: dict, past_key_values: Cache | None, **kwargs
    ) -> torch.Tensor:
        """The last block's output `[B, T, D]` for the first's input; `masks` has the mask of each layer type."""
        for block in self.h[: self.config.num_hidden_layers]:  # fewer if generation exits early
            hidden_states = block(hidden_states, masks[block.attn.layer_type], past_key_values, **kwargs)
        return hidden_states


# ---- Heads


class GPT1TaskHead(nn.Module):
    """Scores of an example from the hidden states of its C sequences at the extract token.

    Source: equation 3 and figure 1 of the paper. As in the released code, all sequences of an example share one
    dropout mask, and the layer has a bias that starts at 0.
    """

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.has_choices = has_choices(config.traversal)
        self.dropout = nn.Dropout(config.classifier_dropout)
        num_scores = 1 if self.has_choices else config.num_labels  # of a sequence, or of an example
        self.score = nn.Linear(config.hidden_size, num_scores)

    def forward(self, extracted: torch.Tensor, is_present: torch.BoolTensor | None = None) -> torch.Tensor:
        """Task logits `[B, K]` from `extracted [B, C, D]`; `[B, C]` for multiple choice, −∞ at absent choices."""
        extracted = extracted.to(self.score.bias.dtype)  # float32 on a quantised decoder in 16 bits
        extracted = extracted * self.dropout(torch.ones_like(extracted[:, :1]))
        if not self.has_choices:
            return self.score(extracted.sum(1))
        task_logits = self.score(extracted).squeeze(-1)
        if is_present is not None:
            task_logits = task_logits.masked_fill(~is_present, float("-inf"))
        return task_logits


class GPT1LMHead(GPT1Linear):
    """Language-model head. With targets it returns the summed loss without storing the logits of all tokens.

    The loss is computed in `forward`, because FSDP, DeepSpeed ZeRO-3 and accelerate's offloading gather or move
    this module's weight around that call.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        target_ids: torch.LongTensor | None = None,
        target_weights: torch.Tensor | None = None,
        expected_grad: torch.Tensor | float = 1.0,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Logits `[..., V]` of `hidden_states [..., D]`; with targets, see [`linear_cross_entropy`]."""
        if target_ids is None:
            return super().forward(hidden_states)
        return linear_cross_entropy(hidden_states, self.weight, target_ids, target_weights, expected_grad)


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
        self, targets: Targets, num_examples: int, num_items: torch.Tensor | int, coefficient: float = 1.0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss and the losses of examples, from the sum of −log P(target), each with its target's weight.

        Logits of all targets are in memory under `torch.func`, and if an adapter, a quantiser or a sharding has
        replaced the head.

        Args:
            targets: of all examples.
            num_examples: B.
            num_items: N, by which the sum is divided.
            coefficient: the factor of this loss in the one that is differentiated.

        Returns:
            the sum of all examples divided by N, `[]`, and each example's sum, `[B]`, without a gradient.
        """
        has_own_head = isinstance(self.lm_head, GPT1LMHead) and getattr(self, "_tp_size", None) in (None, 1)
        if has_own_head and not torch._C._are_functorch_transforms_active():
            dtype = torch.promote_types(targets.hidden_states.dtype, torch.float32)
            one = targets.hidden_states.new_ones((), dtype=dtype)
            expected_grad = one * coefficient / num_items  # as autograd rounds it
            loss_sum, token_losses = self.lm_head(targets.hidden_states, targets.ids, targets.weights, expected_grad)
        else:
            logits = self.lm_head(targets.hidden_states).float()
            token_losses = nn.functional.cross_entropy(logits, targets.ids, reduction="none")
            loss_sum = (token_losses * targets.weights).sum()
        weighted_losses = token_losses.detach() * targets.weights
        example_losses = token_losses.new_zeros(num_examples).index_add(0, targets.examples, weighted_losses)
        return loss_sum / num_items, example_losses


# ---- Models


@dataclass
class GPT1CausalLMOutput(CausalLMOutputWithPast):
    r"""Output of [`GPT1ForCausalLM`]: transformers' output with one more field.

    Args:
        example_losses (`[B, 2]`): each batch row's sum of −log P and number of targets, without a gradient.
            Only with labels and outside of training.
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

    @property
    def logits(self):
        """Not there: an AttributeError that names the scores of both heads."""
        raise AttributeError(
            "The output of the double heads has no `logits`: read `task_logits`, the task's scores, or `lm_logits`, "
            "the next tokens', which `output_lm_logits=True` asks for."
        )


def speaker_types(input_ids: torch.LongTensor, config: GPT1Config) -> torch.LongTensor:
    """The id of each token's speaker, `[B, T]`, from `input_ids [B, T]`.

    A turn begins with the token of its speaker. The delimiter begins the model's reply, and what stands before the
    first turn is the model's, too.
    """
    own_id, user_id = config.speaker_token_ids
    is_own = (input_ids == own_id) | (input_ids == config.delimiter_token_id)
    is_users = input_ids == user_id
    places = torch.arange(input_ids.shape[1], device=input_ids.device)
    last_own = torch.where(is_own, places, -1).cummax(-1).values
    last_of_user = torch.where(is_users, places, -1).cummax(-1).values
    return torch.where(last_of_user > last_own, user_id, own_id)


class GPT1ForCausalLM(LMHeadMixin, GPT1PreTrainedModel, GenerationMixin):
    """GPT-1 with the language-model head of pre-training: equations 1 and 2 of the paper.

    Examples:
        >>> from modeling_gpt1 import NOVELS, GPT1ForCausalLM
        >>> from tokenization import GPT1Tokenizer
        >>> model, tokenizer = GPT1ForCausalLM.from_pretrained(NOVELS), GPT1Tokenizer.from_pretrained(NOVELS)
        >>> batch = tokenizer("The old farmer went home.", return_tensors="pt")
        >>> model(**batch).logits.shape
        torch.Size([1, 6, 8495])
    """

    decoder_class = GPT1Model
    # A fine-tuned folder continues texts without its task head.
    _keys_to_ignore_on_load_unexpected = [*GPT1PreTrainedModel._keys_to_ignore_on_load_unexpected, r"^task_head\."]

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        self.transformer = self.decoder_class(config)
        self.lm_head = GPT1LMHead(config.hidden_size, config.vocab_size, bias=False)
        self.loss_type = "ForCausalLM"  # makes Trainer count shifted labels, whatever the name of a subclass
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
        plan: Plan | None = None,
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
            plan ([`Plan`]): the batch's plan, which `BlockCollator` makes.
        """
        if kwargs.get("shift_labels") is not None:
            raise UserError("`shift_labels`, the targets of sharded sequences, are not read. Pass `labels` alone.")
        if skip_logits is None:
            skip_logits = self.training and labels is not None
        plan = plan_to_follow(self, plan, input_ids, attention_mask, labels, **kwargs)
        inputs = {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "past_key_values": cache if past_key_values is None else past_key_values,
        }
        gives_loss_alone = skip_logits and (self.training or use_cache is False)  # else padding is in the output, too
        packed = packed_inputs(self, plan, **inputs) if gives_loss_alone else None
        if packed is None:
            inputs = padded_inputs(plan, {**inputs, "attention_mask": attention_mask})
        else:
            inputs = packed
        outputs: BaseModelOutputWithPast = self.transformer(**inputs, use_cache=use_cache, return_dict=True, **kwargs)
        hidden_states = outputs.last_hidden_state  # [B, T, D], or packed [1, N, D]
        logits = loss = example_losses = None
        if not skip_logits:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.lm_head(hidden_states[:, kept, :])
        if labels is not None:
            check_targets(labels, input_ids if inputs_embeds is None else inputs_embeds, self.config.vocab_size)
            is_target = labels[:, 1:] != IGNORED_LABEL
            targets = read_labels(hidden_states, labels, plan, is_packed=packed is not None)
            loss, losses_of_lm = self._lm_loss(targets, labels.shape[0], count_items(is_target, num_items_in_batch))
            if not self.training:
                example_losses = torch.stack([losses_of_lm, is_target.sum(1)], dim=1)
        return GPT1CausalLMOutput(
            loss=loss,
            example_losses=example_losses,
            logits=logits,
            **{CACHE: outputs.get(CACHE)},
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def generate(self, inputs: torch.LongTensor | None = None, *args, **kwargs):
        """As in transformers; on a CPU, warns once of a prompt that ends in [e], after which nothing was trained.

        A dialogue model reads the speaker of each token as its type, which pipelines and servers do not pass.
        """
        input_ids = kwargs.get("input_ids") if inputs is None else inputs
        # CODEPATH: dialogue models, which examples/dialogue.py trains, have speakers; openai-gpt and GPT-2 have none.
        if self.config.speaker_token_ids is not None and isinstance(input_ids, torch.Tensor):
            kwargs.setdefault("token_type_ids", speaker_types(input_ids, self.config))
        if self._ends_in_extract_token(input_ids):
            logger.warning_once(
                "A prompt ends with the extract token [e], and the model was not trained on any token after it. "
                "Pass `add_special_tokens=False`, or open the tokenizer with `add_bos_token=True`."
            )
        return super().generate(inputs, *args, **kwargs)

    def init_continuous_batching(self, *args, **kwargs):
        """As in transformers, whose `generate_batch` begins here; refuses a dialogue model."""
        if self.config.speaker_token_ids is not None:
            raise UserError(
                "Continuous batching passes no speakers, and this is a dialogue model, which reads them "
                "(`speaker_token_ids`). Call `generate`."
            )
        return super().init_continuous_batching(*args, **kwargs)

    def _ends_in_extract_token(self, input_ids: torch.LongTensor | None) -> bool:
        """Whether a prompt ends in [e], as far as it can be read without waiting for a device."""
        extract_token_id = self.config.extract_token_id
        if extract_token_id is None or not isinstance(input_ids, torch.Tensor):
            return False
        if not input_ids.numel() or not can_read(input_ids):
            return False
        return bool((input_ids[..., -1] == extract_token_id).any())

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        let_grow(model_kwargs.get(CACHE))

    @staticmethod
    def create_masks_for_generate(config, inputs_embeds, attention_mask, **kwargs):
        """As in transformers; the mask of one token takes fewer kernels."""
        reads_boolean_mask = way_of_packing(config) == MASKED_ROWS
        is_banded = SLIDING_ATTENTION in config.attention_of_layers
        if inputs_embeds.shape[1] > 1 or is_banded or not reads_boolean_mask:
            return create_masks_for_generate(config, inputs_embeds, attention_mask, **kwargs)
        return mask_of_one_token(kwargs[CACHE].layers[0], attention_mask, inputs_embeds.device)

    def _prepare_generated_length(
        self, generation_config, has_default_max_length, *, input_ids_length, inputs_tensor, **kwargs
    ):
        generation_config = super()._prepare_generated_length(
            generation_config,
            has_default_max_length,
            input_ids_length=input_ids_length,
            inputs_tensor=inputs_tensor,
            **kwargs,
        )
        prompt_length = inputs_tensor.shape[1]  # of ids or embeddings
        num_uncounted = prompt_length - input_ids_length  # embeddings, which `max_length` does not count
        if num_uncounted and has_default_max_length and generation_config.max_new_tokens is None:
            room = self.config.max_position_embeddings - num_uncounted
            generation_config.max_length = max(min(generation_config.max_length, room), input_ids_length + 1)
        self._check_generated_length(prompt_length, num_uncounted + generation_config.max_length)
        return generation_config

    def _check_generated_length(self, prompt_length: int, length: int) -> None:
        """Refuses a text that may become longer than the model's positions; warns beyond the trained ones."""
        limit = self.config.max_position_embeddings
        num_trained = getattr(self.config, "trained_positions", None)  # the LSTM has no positions
        if num_trained is not None and num_trained < length <= limit:
            logger.warning_once(
                f"The text may become {length} tokens, but only the first {num_trained} of the model's {limit} "
                "positions were trained (`trained_positions`): what comes behind them is not to be relied on. Pass a "
                "smaller `max_new_tokens` or a shorter prompt."
            )
        if length <= limit:
            return
        remedy = "shorten the prompt"
        if prompt_length < limit:
            remedy = f"pass `max_new_tokens` of at most {limit - prompt_length} or {remedy}"
        raise UserError(
            f"A prompt of {prompt_length} tokens may become {length} (`max_length`, or with `max_new_tokens`), "
            f"but the model has only {limit} positions (`max_position_embeddings`): {remedy}."
        )


class GPT1TaskModel(GPT1PreTrainedModel):
    """Base of the models with a task head. It reads `[B, C, T]` examples and scores them by `config.traversal`."""

    supported_traversals = tuple(TRAVERSALS)
    class_weights: Sequence[float] | None = None
    """Factor of each class in the task's loss, K numbers, in training alone. Not saved; a trainer sets it."""
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
        if is_quantized(config):  # transformers' quantisers skip what is kept in float32, and a task head must train
            self._keep_in_fp32_modules.add("task_head")

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
        plan: Plan | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput | MultipleChoiceModelOutput:
        """Takes [`GPT1DoubleHeadsModel`]'s arguments but those of L1; returns `logits` and, with labels, L2 / N."""
        _, outputs, task_logits = self._encode(
            input_ids=input_ids,
            attention_mask=attention_mask,
            mc_token_ids=mc_token_ids,
            choice_mask=choice_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            plan=plan,
            **kwargs,
        )
        loss = None
        if labels is not None:
            loss = task_loss(task_logits, labels, self.config, num_items_in_batch, self._weights_of_classes())
        return self.output_class(
            loss=loss, logits=task_logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _weights_of_classes(self) -> Sequence[float] | None:
        """The class weights in training; outside of it losses have none."""
        return self.class_weights if self.training else None

    def _encode(
        self,
        input_ids: torch.LongTensor | None,
        attention_mask: torch.Tensor | None,
        mc_token_ids: torch.LongTensor | None,
        choice_mask: torch.BoolTensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor | None,
        inputs_embeds: torch.Tensor | None,
        plan: Plan | None,
        lm_mask: torch.BoolTensor | None = None,
        **kwargs,
    ) -> tuple[Sequences, BaseModelOutputWithPast, torch.Tensor]:
        """The examples of a call's arguments, the decoder's output for all their sequences, and the task logits."""
        check_exactly_one(input_ids, inputs_embeds)
        sequences = read_sequences(
            self,
            input_ids=input_ids,
            attention_mask=attention_mask,
            mc_token_ids=mc_token_ids,
            choice_mask=choice_mask,
            lm_mask=lm_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            plan=plan,
            **kwargs,
        )
        if mc_token_ids is None:  # else the caller has chosen the extract positions
            self._check_first_texts(input_ids, attention_mask)
        if sequences.input_ids is not None and can_read(sequences.input_ids):
            self.warn_if_padding_and_no_attention_mask(sequences.input_ids, attention_mask)
        arguments = {**kwargs, **sequences.decoder_inputs, "use_cache": False, "return_dict": True}
        outputs: BaseModelOutputWithPast = self.transformer(**arguments)
        task_logits = self.task_head(sequences.extract(outputs.last_hidden_state), sequences.is_present)
        return sequences, outputs, task_logits

    def _check_first_texts(self, input_ids: torch.LongTensor | None, attention_mask: torch.Tensor | None) -> None:
        """Warns of texts without control tokens. Only the first batch waits for the device."""
        if self.has_checked_texts or input_ids is None or input_ids.is_meta or is_traced():
            return
        self.has_checked_texts = True
        check_texts(self.config, input_ids, attention_mask)


class GPT1DoubleHeadsModel(LMHeadMixin, GPT1TaskModel):
    """GPT-1 with the language-model head and the task head: fine-tuning with L3 = L2 + λ · L1.

    Sources: equations 3 to 5 and figure 1 of the paper; the normalisation of the loss is that of the released code.

    Examples:
        >>> import torch
        >>> from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel
        >>> sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = GPT1DoubleHeadsModel(GPT1Config(**sizes, num_labels=3, extract_token_id=19)).eval()
        >>> output = model(input_ids=torch.tensor([[1, 2, 3, 19]]), labels=torch.tensor([2]))
        >>> output.task_logits.shape
        torch.Size([1, 3])
        >>> bool(torch.isclose(output.loss, output.task_loss + 0.5 * output.lm_loss))
        True
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
        plan: Plan | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> GPT1DoubleHeadsModelOutput:
        r"""
        Args:
            input_ids (`[B, C, T]`, or `[B, T]` if C is 1; int64): the examples' sequences. Similarity also reads
                pairs `[s] a [$] b [e]` as `[B, T]`, and builds the reverse order itself.
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
            plan ([`Plan`]): the batch's plan, which `TraversalCollator` makes.

        Raises:
            ValueError: shapes that do not fit the traversal; the auxiliary loss without `input_ids`.
        """
        sequences, outputs, task_logits = self._encode(
            input_ids=input_ids,
            attention_mask=attention_mask,
            mc_token_ids=mc_token_ids,
            choice_mask=choice_mask,
            lm_mask=lm_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            plan=plan,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        losses = {}
        if labels is not None:
            losses = self._losses(sequences, hidden_states, task_logits, labels, num_items_in_batch)
        lm_logits = None
        if output_lm_logits:
            lm_logits = self.lm_head(sequences.padded(hidden_states)).unflatten(0, sequences.shape)
        return GPT1DoubleHeadsModelOutput(
            **losses,
            task_logits=task_logits,
            lm_logits=lm_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _losses(
        self,
        sequences: Sequences,
        hidden_states: torch.Tensor,
        task_logits: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None,
    ) -> dict[str, torch.Tensor]:
        """L3 and its parts: the fields `loss`, `task_loss`, `lm_loss` and `example_losses` of the output."""
        lm_coef = float(self.config.lm_coef)
        losses_of_task = task_losses(task_logits, labels, self.config, self._weights_of_classes())  # [B]
        losses_of_lm = torch.zeros_like(losses_of_task)
        counts = count_labels(labels)
        num_items = count_items(counts, num_items_in_batch)
        loss_of_task = (losses_of_task * counts).sum() / num_items
        losses = {"loss": loss_of_task.clone(), "task_loss": loss_of_task}  # Trainer scales the loss in place
        if lm_coef > 0:
            targets = sequences.read_targets(hidden_states, counts)
            losses["lm_loss"], losses_of_lm = self._lm_loss(targets, task_logits.shape[0], num_items, lm_coef)
            losses["loss"] = loss_of_task + lm_coef * losses["lm_loss"]
        if not self.training:
            losses_of_lm = losses_of_lm / counts.clamp(min=1)
            losses["example_losses"] = torch.stack([losses_of_task.detach(), losses_of_lm, counts], dim=1)
        return losses


class GPT1ForSequenceClassification(GPT1TaskModel):
    """GPT-1 with the task head alone, for classification, entailment, similarity and regression."""

    supported_traversals = tuple(traversal for traversal in TRAVERSALS if not has_choices(traversal))


class GPT1ForMultipleChoice(GPT1TaskModel):
    """GPT-1 with the task head alone, for multiple choice."""

    supported_traversals = tuple(traversal for traversal in TRAVERSALS if has_choices(traversal))
    output_class = MultipleChoiceModelOutput


class GPT1ForTokenClassification(GPT1PreTrainedModel):
    """GPT-1 with a class for each token, such as of named entities. A token's class depends on those before it alone.

    Source: `GPT2ForTokenClassification` of transformers, whose folders it opens.

    Examples:
        >>> import torch
        >>> from modeling_gpt1 import GPT1Config, GPT1ForTokenClassification
        >>> sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = GPT1ForTokenClassification(GPT1Config(**sizes, num_labels=3))
        >>> model(torch.tensor([[1, 2, 3, 4]]), labels=torch.tensor([[0, 2, -100, 1]])).logits.shape
        torch.Size([1, 4, 3])
    """

    decoder_class = GPT1Model

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        self.loss_type = "ForTokenClassification"  # Trainer counts the labels of all tokens, none is shifted
        self.transformer = self.decoder_class(config)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()
        if is_quantized(config):
            self._keep_in_fp32_modules.add("classifier")

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        r"""
        Takes the arguments of [`GPT1Model`] and the following; returns `logits` `[B, T, K]` and, with labels, `loss`.

        Args:
            labels (`[B, T]`, int64): the class of each token; −100 is ignored.
            num_items_in_batch (`int`): divisor of the summed loss, the labels other than −100 in the whole optimizer
                step. Default: those in this call.

        Raises:
            ValueError: `labels` have another shape than the tokens, or a class that the model does not have.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        outputs: BaseModelOutputWithPast = self.transformer(
            **{**kwargs, **inputs, "use_cache": False, "return_dict": True}
        )
        hidden_states = outputs.last_hidden_state.to(self.classifier.bias.dtype)
        logits = self.classifier(self.dropout(hidden_states))
        loss = None
        if labels is not None:
            check_token_labels(labels, logits)
            loss = token_loss(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class GPT1ForQuestionAnswering(GPT1PreTrainedModel):
    """GPT-1 with two scores for each token: that an answer begins, and that it ends there.

    Source: `GPT2ForQuestionAnswering` of transformers, whose folders it opens. Put the question before the context: a
    token sees only those before it.

    Examples:
        >>> import torch
        >>> from modeling_gpt1 import GPT1Config, GPT1ForQuestionAnswering
        >>> sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = GPT1ForQuestionAnswering(GPT1Config(**sizes))
        >>> model(torch.tensor([[1, 2, 3, 4]])).end_logits.shape
        torch.Size([1, 4])
    """

    decoder_class = GPT1Model

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        self.transformer = self.decoder_class(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()
        if is_quantized(config):
            self._keep_in_fp32_modules.add("qa_outputs")

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        r"""
        Takes the arguments of [`GPT1Model`] and the following; returns `start_logits` and `end_logits`, `[B, T]`, and,
        with positions, `loss`.

        Args:
            start_positions, end_positions (`[B]`, int64): the first and the last token of the answer. A position of T
                or more is ignored: the answer was cut off.
            num_items_in_batch (`int`): divisor of the summed losses, the examples in the whole optimizer step.
                Default: the positions in this call that are not ignored. Trainer does not count them, and averages
                the losses of accumulated batches.

        Raises:
            ValueError: positions of another shape.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        outputs: BaseModelOutputWithPast = self.transformer(
            **{**kwargs, **inputs, "use_cache": False, "return_dict": True}
        )
        hidden_states = outputs.last_hidden_state.to(self.qa_outputs.bias.dtype)
        scores = self.qa_outputs(hidden_states)  # [B, T, 2]
        start_logits = scores[..., 0].contiguous()
        end_logits = scores[..., 1].contiguous()
        loss = None
        if start_positions is not None and end_positions is not None:
            start_loss = span_loss(start_logits, start_positions, num_items_in_batch)
            end_loss = span_loss(end_logits, end_positions, num_items_in_batch)
            loss = (start_loss + end_loss) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits,
            end_logits=end_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


# Trainer's label smoothing shifts the labels of the models that stand here; registering with Auto classes adds none.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[GPT1Config.model_type] = GPT1ForCausalLM.__name__

__all__ = [
    "GPT1CausalLMOutput",
    "GPT1DoubleHeadsModel",
    "GPT1DoubleHeadsModelOutput",
    "GPT1ForCausalLM",
    "GPT1ForMultipleChoice",
    "GPT1ForQuestionAnswering",
    "GPT1ForSequenceClassification",
    "GPT1ForTokenClassification",
    "GPT1Model",
    "GPT1PreTrainedModel",
]

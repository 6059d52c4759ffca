# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""The LSTM that the paper compares its Transformer with, under the same heads and the same objective.

Source: section 5 of the paper, which gives no detail but what `configuration_gpt1_lstm.py` quotes. Here a linear layer
maps the units to the width of the embeddings, which the language-model head shares. Layer norms come before and after:
without them, embeddings drawn from N(0, 0.02) would hardly move the gates.

Shapes: B examples, T tokens, D hidden, U units.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .checks_gpt1 import can_read, check_tokens, padding_mask
from .configuration_gpt1 import UserError
from .configuration_gpt1_lstm import GPT1LSTMConfig
from .kernels_gpt1 import GPT1Dropout
from .modeling_gpt1 import (
    CACHE,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForQuestionAnswering,
    GPT1ForSequenceClassification,
    GPT1ForTokenClassification,
    GPT1PreTrainedModel,
)

State = tuple[torch.Tensor, torch.Tensor]  # hidden and cell state after the last token, [B, U] each


class GPT1LSTMStateLayer(DynamicLayer):
    """Cache of one LSTM layer's state, in place of keys and values; beam search and repeats reorder it alike."""

    is_croppable = False
    cumulative_length = 0  # tokens read; `reset` of transformers knows this name

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, num_tokens: int = 1, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores the state after `num_tokens` more tokens, `[B, U]` each."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self.values = key_states, value_states
        self.cumulative_length += num_tokens
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.cumulative_length

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: a state has no tokens that could be removed."""
        raise UserError(
            "The state of an LSTM cannot go back to an earlier token, which assisted generation needs. Pass a GPT-1 "
            "as `assistant_model`, or leave it out."
        )


def has_lstm_of_autocast() -> bool:
    """Whether the CPU can train an LSTM in the type of autocast; true without autocast.

    On a CPU without AVX-512, torch asks oneDNN for an LSTM in bfloat16 that oneDNN does not have, and raises an error.
    In float16 it was seen to fail even on a CPU with AVX-512 FP16, so float16 counts as missing on every CPU.
    """
    is_built_with_onednn = torch._C._has_mkldnn
    if not torch.is_autocast_enabled("cpu") or not is_built_with_onednn:
        return True
    is_bfloat16 = torch.get_autocast_dtype("cpu") == torch.bfloat16
    return is_bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()


class GPT1LSTMLayer(GradientCheckpointingLayer):
    """One LSTM layer between layer norms; its inputs and outputs have the width of the embeddings."""

    def __init__(self, config: GPT1LSTMConfig):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.lstm = nn.LSTM(config.hidden_size, config.lstm_hidden_size, batch_first=True)
        self.dropout = GPT1Dropout(config.resid_pdrop)
        self.c_proj = nn.Linear(config.lstm_hidden_size, config.hidden_size)
        self.ln_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)

    def forward(
        self,
        hidden_states: torch.Tensor,  # [B, T, D]
        real_tokens: torch.BoolTensor | None = None,  # [B, T]
        state: State | None = None,
    ) -> tuple[torch.Tensor, State]:
        hidden_states = self.ln_1(hidden_states)
        if state is not None:
            state = tuple(part[None].contiguous() for part in state)  # [1, B, U], as nn.LSTM has it
        if hidden_states.device.type == "cpu" and not has_lstm_of_autocast():
            with torch.autocast("cpu", enabled=False):
                hidden_states = hidden_states.to(self.lstm.weight_hh_l0.dtype)
                output, state = self._read(hidden_states, real_tokens, state)
        else:
            output, state = self._read(hidden_states, real_tokens, state)
        hidden, cell = state
        return self.ln_2(self.c_proj(self.dropout(output))), (hidden[0], cell[0])

    def _read(
        self, hidden_states: torch.Tensor, real_tokens: torch.BoolTensor | None, state: State | None
    ) -> tuple[torch.Tensor, State]:
        """Runs the LSTM; returns its outputs and the state after each sequence's last token, `[1, B, U]`."""
        if real_tokens is None:
            return self.lstm(hidden_states, state)
        return self._skip_padding(hidden_states, real_tokens, state)

    def _skip_padding(
        self, hidden_states: torch.Tensor, real_tokens: torch.BoolTensor, state: State | None
    ) -> tuple[torch.Tensor, State]:
        """Runs the LSTM over the real tokens only, wherever they are; returns the state after each sequence's last."""
        if hidden_states.shape[1] == 1:  # a sequence whose new token is padding keeps its state
            output, new_state = self.lstm(hidden_states, state)
            return output, self._states_of(real_tokens.any(1), new_state, state)
        order = (~real_tokens).long().argsort(dim=1, stable=True)[..., None]  # real tokens first
        lengths = real_tokens.sum(1)
        aligned = hidden_states.gather(1, order.expand_as(hidden_states))
        # A sequence of padding alone reads one token; its output and state are discarded.
        packed = pack_padded_sequence(aligned, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        output, new_state = self.lstm(packed, state)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=hidden_states.shape[1])
        state = self._states_of(lengths > 0, new_state, state)
        return output.gather(1, order.argsort(dim=1).expand_as(output)), state

    @staticmethod
    def _states_of(is_read: torch.BoolTensor, new_state: State, old_state: State | None) -> State:
        """The new state for the sequences `[B]` that were read, and the old state for the others."""
        if old_state is None:
            old_state = tuple(torch.zeros_like(part) for part in new_state)
        is_read = is_read[None, :, None]
        return tuple(torch.where(is_read, new, old) for new, old in zip(new_state, old_state, strict=True))


class GPT1LSTMPreTrainedModel(GPT1PreTrainedModel):
    """Weights, loading and saving that all GPT-1 models with an LSTM share."""

    config: GPT1LSTMConfig
    _no_split_modules = ["GPT1LSTMLayer"]
    _tp_plan = {}
    _supports_flash_attn = False
    _supports_sdpa = False
    _supports_flex_attn = False
    _supports_attention_backend = False
    _can_compile_fullgraph = False
    _is_stateful = True
    _can_record_outputs = {"hidden_states": GPT1LSTMLayer}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        """As in transformers, with a bias of 1 for the forget gates (Jozefowicz et al. 2015, section 4.2)."""
        super()._init_weights(module)
        if isinstance(module, nn.LSTM):
            bias = module.bias_ih_l0
            forget_gate = torch.arange(len(bias), device=bias.device) // module.hidden_size == 1
            init.copy_(bias, forget_gate.to(bias.dtype))


class GPT1LSTMModel(GPT1LSTMPreTrainedModel):
    """The LSTM without a head: token embeddings, then the layers."""

    def __init__(self, config: GPT1LSTMConfig):
        super().__init__(config)
        self.tokens_embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.drop = GPT1Dropout(config.embd_pdrop)
        self.h = nn.ModuleList([GPT1LSTMLayer(config) for _ in range(config.num_hidden_layers)])
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
        cache: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        r"""
        Takes the arguments of [`GPT1Model`]. Padding is skipped wherever it is, `past_key_values` is the state after
        the preceding tokens, and `position_ids` change nothing, because an LSTM uses only the order of tokens.

        Raises:
            ValueError: neither or both of `input_ids` and `inputs_embeds`; a mask of the wrong shape; positions that
                restart within a row, which without a mask mark several sequences there; an export with mask or cache.
        """
        if torch.compiler.is_exporting() and (use_cache or attention_mask is not None):
            raise UserError(
                "An LSTM cannot be exported with a cache or a mask. Pass `use_cache=False` and no `attention_mask`."
            )
        check_tokens(self.config, input_ids, inputs_embeds, token_type_ids)
        if inputs_embeds is None:
            inputs_embeds = self.tokens_embed(input_ids)
        if token_type_ids is not None:
            inputs_embeds = inputs_embeds + self.tokens_embed(token_type_ids)
        if past_key_values is None:
            past_key_values = cache
        if use_cache and past_key_values is None and not self.training:
            past_key_values = self.new_state()
        state_layers = self._state_layers(past_key_values)
        num_past = 0 if past_key_values is None else past_key_values.get_seq_length()
        length = inputs_embeds.shape[1]
        real_tokens = None  # all are
        if attention_mask is not None:
            real_tokens = self._real_tokens(attention_mask, inputs_embeds, num_past)
        elif position_ids is not None and length > 1 and (position_ids.diff() <= 0).any():
            raise UserError(
                "`position_ids` restart within a row, but an LSTM would carry its state from a sequence to the next. "
                "Put each sequence into its own row."
            )

        hidden_states = self.drop(inputs_embeds)
        for layer, state_layer in zip(self.h, state_layers, strict=True):
            state = None
            if state_layer is not None and state_layer.is_initialized:
                state = (state_layer.keys, state_layer.values)
            hidden_states, state = layer(hidden_states, real_tokens, state)
            if state_layer is not None:
                state_layer.update(*state, num_tokens=length)
        cache = past_key_values if use_cache else None
        return BaseModelOutputWithPast(last_hidden_state=hidden_states, **{CACHE: cache})

    def _state_layers(self, past_key_values: Cache | None) -> list[GPT1LSTMStateLayer | None]:
        """Where each layer's state is kept; `None` for each if it is not."""
        if past_key_values is None:
            return [None] * len(self.h)
        num_states = sum(isinstance(layer, GPT1LSTMStateLayer) for layer in past_key_values.layers)
        if num_states != len(self.h):
            raise UserError(
                "`past_key_values` is a cache of keys and values, which an LSTM has not. Pass "
                "`model.transformer.new_state()`, or leave `past_key_values` out."
            )
        return past_key_values.layers

    @staticmethod
    def _real_tokens(
        attention_mask: torch.Tensor, inputs_embeds: torch.Tensor, num_past: int
    ) -> torch.BoolTensor | None:
        """The mask of the new tokens, `[B, T]`; `None` if there is no padding, as far as the host can read."""
        if attention_mask.dim() != 2:
            raise UserError(
                f"`attention_mask` has the shape {list(attention_mask.shape)}, but an LSTM reads tokens in their "
                "order: it needs the shape [B, past + T], 1 for real tokens and 0 for padding."
            )
        real_tokens = padding_mask(attention_mask, inputs_embeds, num_past)[:, num_past:]
        may_wait = inputs_embeds.shape[1] > 1 or can_read(real_tokens)  # not at each new token
        if may_wait and real_tokens.all():
            return None
        return real_tokens

    def new_state(self) -> Cache:
        """The state before the first token."""
        return Cache(layers=[GPT1LSTMStateLayer() for _ in self.h])


class GPT1LSTMForCausalLM(GPT1LSTMPreTrainedModel, GPT1ForCausalLM):
    """The LSTM with the language-model head of pre-training."""

    decoder_class = GPT1LSTMModel

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the cache holds an LSTM state

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        # `forward` makes no cache in training mode or under gradient checkpointing.
        if generation_config.use_cache and model_kwargs.get(CACHE) is None:
            model_kwargs[CACHE] = self.transformer.new_state()


class GPT1LSTMDoubleHeadsModel(GPT1LSTMPreTrainedModel, GPT1DoubleHeadsModel):
    """The LSTM with the language-model head and the task head: fine-tuning with L3 = L2 + λ · L1."""

    decoder_class = GPT1LSTMModel


class GPT1LSTMForSequenceClassification(GPT1LSTMPreTrainedModel, GPT1ForSequenceClassification):
    """The LSTM with the task head alone, for classification, entailment, similarity and regression."""

    decoder_class = GPT1LSTMModel


class GPT1LSTMForMultipleChoice(GPT1LSTMPreTrainedModel, GPT1ForMultipleChoice):
    """The LSTM with the task head alone, for multiple choice."""

    decoder_class = GPT1LSTMModel


class GPT1LSTMForTokenClassification(GPT1LSTMPreTrainedModel, GPT1ForTokenClassification):
    """The LSTM with a class for each token, such as of named entities."""

    decoder_class = GPT1LSTMModel


class GPT1LSTMForQuestionAnswering(GPT1LSTMPreTrainedModel, GPT1ForQuestionAnswering):
    """The LSTM with two scores for each token: that an answer begins, and that it ends there."""

    decoder_class = GPT1LSTMModel


# Trainer's label smoothing shifts the labels of the models that stand here; registering with Auto classes adds none.
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[GPT1LSTMConfig.model_type] = GPT1LSTMForCausalLM.__name__

__all__ = [
    "GPT1LSTMDoubleHeadsModel",
    "GPT1LSTMForCausalLM",
    "GPT1LSTMForMultipleChoice",
    "GPT1LSTMForQuestionAnswering",
    "GPT1LSTMForSequenceClassification",
    "GPT1LSTMForTokenClassification",
    "GPT1LSTMModel",
    "GPT1LSTMPreTrainedModel",
]

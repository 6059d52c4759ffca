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
"""GPT-1: a post-layer-norm Transformer decoder, its language-model head and its task head; GPT-2 and GPT-3 by options.

Sources: "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), sections 3 and 4.1, and
the released code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py); of the options, see
[`GPT1Config`]. Attention, masks, caches and loading are those of transformers.

Shapes: B examples, C sequences per example, T tokens, D hidden, V vocabulary, K classes, H heads.
"""

# Traversal, regression and λ are the user's choice for a task, not a trait of some checkpoints:
# trf-ignore: TRF041 config.traversal, config.lm_coef, config.is_regression

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
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
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention_gpt1 import (
    GPT1Dropout,
    attends_to_packed_rows,
    causal_masks,
    eager_attention_forward,
    sdpa_or_blockwise_attention_forward,
)
from .batch_gpt1 import EncodedExamples, both_orders, count_sequences, flatten_sequences, last_attended
from .configuration_gpt1 import TRAVERSALS, GPT1Config
from .layouts_gpt1 import contiguous_state_dict, register_foreign_layouts
from .loss_gpt1 import (
    linear_cross_entropy,
    next_token_targets,
    select_packed_targets,
    select_targets,
    sequence_mean_weights,
    task_losses,
    weighted_lm_loss,
)
from .unpadding_gpt1 import PackedSequences, pack_sequences

register_foreign_layouts()


class GPT1Attention(nn.Module):
    """Multi-head causal self-attention with biases on all four projections."""

    def __init__(self, config: GPT1Config, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = True
        self.sliding_window = config.window_of_layer(layer_idx)
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.o_proj.ends_in_residual = True
        self.resid_dropout = GPT1Dropout(config.resid_pdrop)

    def forward(
        self,
        hidden_states: torch.Tensor,  # [B, T, D]
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        packing: PackedSequences | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        # Written out, so that engines which read this code can fuse the three.
        projected = [self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)]
        if packing is not None:
            projected = [packing.to_rows(tensor) for tensor in projected]
            kwargs["sees_past_only"] = True
        head_shape = (*projected[0].shape[:-1], -1, self.head_dim)
        query, key, value = (tensor.view(head_shape).transpose(1, 2) for tensor in projected)  # [B, H, T, D/H]
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)

        attention_function: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        if attention_function is sdpa_attention_forward:
            attention_function = sdpa_or_blockwise_attention_forward
        attention_output, attention_weights = attention_function(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.config.attn_pdrop if self.training else 0.0,
            scaling=self.scaling,
            sliding_window=self.sliding_window,  # of kernels that take no mask
            **kwargs,
        )
        attention_output = attention_output.reshape(*head_shape[:-2], -1)  # [B, T, D]; engines give [B · T, D]
        if packing is not None:
            attention_output = packing.from_rows(attention_output)
        return self.resid_dropout(self.o_proj(attention_output)), attention_weights


class GPT1MLP(nn.Module):
    """Position-wise feed-forward layer."""

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)
        self.down_proj.ends_in_residual = True
        self.act = ACT2FN[config.hidden_act]
        self.dropout = GPT1Dropout(config.resid_pdrop)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.down_proj(self.act(self.up_proj(hidden_states))))


class GPT1Block(GradientCheckpointingLayer):
    """Transformer block whose layer norms follow the residual sums, or as in GPT-2 come before the sub-blocks."""

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


class GPT1LMHead(nn.Linear):
    """Language-model head. With targets it gives the summed loss without holding the logits of all tokens.

    The loss is computed in `forward`, so that whatever gathers or moves this module's weight around its call
    (FSDP, DeepSpeed ZeRO-3, accelerate's offloading) does so for the loss too.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        target_ids: torch.LongTensor | None = None,
        target_weights: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Logits `[..., V]` of `hidden_states [..., D]`; with targets, see [`linear_cross_entropy`]."""
        if target_ids is None:
            return super().forward(hidden_states)
        return linear_cross_entropy(hidden_states, self.weight, target_ids, target_weights)


class GPT1TaskHead(nn.Module):
    """Scores of an example from the hidden states of its C sequences at the extract token.

    Source: equation 3 and figure 1 of the paper. As in the released code, one dropout mask serves all sequences of an
    example and the layer has a bias that starts at 0.
    """

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.traversal = config.traversal
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, 1 if self.traversal == "multiple_choice" else config.num_labels)

    def forward(self, extracted: torch.Tensor) -> torch.Tensor:
        """Task logits `[B, K]`, or `[B, C]` for multiple choice, of `extracted [B, C, D]`."""
        extracted = extracted * self.dropout(torch.ones_like(extracted[:, :1]))
        if self.traversal == "multiple_choice":
            return self.score(extracted).squeeze(-1)
        return self.score(extracted.sum(1))


class GPT1PreTrainedModel(PreTrainedModel):
    """Weights, loading and saving that all GPT-1 models share."""

    config: GPT1Config
    base_model_prefix = "transformer"
    supports_gradient_checkpointing = True
    _no_split_modules = ["GPT1Block"]
    _skip_keys_device_placement = ["past_key_values"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": GPT1Block, "attentions": GPT1Attention}
    # Causal-mask buffers of openai-gpt and GPT-2 files written by old releases.
    _keys_to_ignore_on_load_unexpected = [r"attn\.(masked_)?bias$"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        # CODEPATH: GPT-2 and GPT-3. Not for the parent, as modules without weights of their own may be left out.
        if getattr(module, "ends_in_residual", False) and self.config.rescale_prenorm_residual:
            std = self.config.initializer_range / math.sqrt(2 * self.config.num_hidden_layers)
            initialization.normal_(module.weight, mean=0.0, std=std)

    def save_pretrained(self, *args, **kwargs):
        """As in transformers; the layout on disk is this class's own, whatever layout was read."""
        kwargs["save_original_format"] = False
        if any(not weight.is_contiguous() for weight in self.parameters()):  # see `order_weights_for_generation`
            kwargs["state_dict"] = contiguous_state_dict(kwargs.get("state_dict") or self.state_dict())
        return super().save_pretrained(*args, **kwargs)

    def set_output_embeddings(self, new_embeddings: nn.Module):
        # Resizing an untied head makes a plain layer, whose weights and marks stay.
        if type(new_embeddings) is nn.Linear and new_embeddings.bias is None:
            new_embeddings.__class__ = GPT1LMHead
        super().set_output_embeddings(new_embeddings)

    def push_to_hub(self, repo_id: str, **kwargs):
        """As in transformers, with this package's model card; an upload that fails says where the model lies."""
        if __package__ != "modeling_gpt1":  # a copy that came with a model, without the package
            return super().push_to_hub(repo_id, **kwargs)
        # By name: what is imported by a statement travels to the hub with this file.
        return import_module(".hub.push", __package__).push_model(self, repo_id, **kwargs)

    @property
    def _has_fused_lm_loss(self) -> bool:
        return isinstance(self.lm_head, GPT1LMHead) and getattr(self, "_tp_size", None) in (None, 1)


class GPT1Model(GPT1PreTrainedModel):
    """The decoder without a head: token and learned position embeddings, then the blocks."""

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        # Fields that were changed after the configuration was made, as those given to `from_pretrained` are.
        config.validate_architecture()
        config.validate_layer_type()
        self.tokens_embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions_embed = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.drop = GPT1Dropout(config.embd_pdrop)
        self.h = nn.ModuleList([GPT1Block(config, layer_idx) for layer_idx in range(config.num_hidden_layers)])
        norms_before = config.do_layer_norm_before
        self.ln_f = nn.LayerNorm(config.hidden_size, config.layer_norm_epsilon) if norms_before else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.tokens_embed

    def set_input_embeddings(self, value: nn.Embedding):
        self.tokens_embed = value

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
        packing: PackedSequences | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        r"""
        Args:
            input_ids (`[B, T]`, int64): token ids.
            attention_mask (`[B, past + T]`): 1 for real tokens, 0 for padding on either side; or a 4D mask,
                which then is that of banded layers too, or a dictionary of 4D masks by the layers' type.
            token_type_ids (`[B, T]`, int64): token ids whose embeddings are added, as in transformers' OpenAIGPT.
            position_ids (`[B, T]`, int64): default: a token's rank among the real tokens of its row. Positions that
                restart within a row mark packed sequences, which stay apart if there is no mask and no cache.
            past_key_values (`Cache`): keys and values of the tokens before.
            inputs_embeds (`[B, T, D]`): instead of `input_ids`.
            use_cache (`bool`): return `past_key_values`; default: `config.use_cache` outside of training.
            packing (`PackedSequences`): where the tokens of `input_ids` and `position_ids`, which are its own, belong;
                for scaled-dot-product attention without a cache.

        Returns:
            `BaseModelOutputWithPast` with `last_hidden_state [B, T, D]`.

        Raises:
            ValueError: neither or both of `input_ids` and `inputs_embeds`; more tokens than positions.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Exactly one of `input_ids` and `inputs_embeds` is needed.")
        if inputs_embeds is None:
            inputs_embeds = self.tokens_embed(input_ids)
        if use_cache and past_key_values is None and not self.training:
            past_key_values = DynamicCache(config=self.config)

        num_past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if packing is not None:
            masks = packing.masks(self.config.sliding_window)
        else:
            self._check_length(num_past, inputs_embeds.shape[1], position_ids)
            # The mask function reads packed sequences from `position_ids`, so it sees only those of the caller.
            masks = causal_masks(self.config, inputs_embeds, attention_mask, past_key_values, position_ids)
        if position_ids is None:
            position_ids = self._default_position_ids(inputs_embeds, attention_mask, num_past)

        embeddings = inputs_embeds + self.positions_embed(position_ids)
        if token_type_ids is not None:
            embeddings = embeddings + self.tokens_embed(token_type_ids)
        hidden_states = self.drop(embeddings)
        layers = self.h[: self.config.num_hidden_layers]  # fewer where a generation exits early
        for block, layer_type in zip(layers, self.config.attention_of_layers, strict=False):
            hidden_states = block(
                hidden_states,
                attention_mask=masks[layer_type],
                past_key_values=past_key_values,
                position_ids=position_ids,
                packing=packing,
                **kwargs,
            )
        return BaseModelOutputWithPast(
            last_hidden_state=self.ln_f(hidden_states),
            past_key_values=past_key_values if use_cache else None,
        )

    def _check_length(self, num_past: int | torch.Tensor, num_new: int, position_ids: torch.Tensor | None = None):
        # A static cache counts on the device: reading it would break a compiled graph.
        if isinstance(num_past, torch.Tensor):
            num_past = 0 if torch.compiler.is_compiling() else int(num_past)
        length, limit = num_past + num_new, self.config.max_position_embeddings
        if length > limit and position_ids is not None:  # of several sequences in one row, perhaps
            length = 0 if torch.compiler.is_compiling() else int(position_ids.max()) + 1
        if length > limit:
            raise ValueError(
                f"The sequence has {length} tokens, but the model has positions for {limit} "
                "(`max_position_embeddings`). Shorten the input: pass `truncation=True, max_length=…` to the "
                "tokenizer, `max_length` to the collator or a smaller `max_new_tokens` to `generate`."
            )

    @staticmethod
    def _default_position_ids(
        inputs_embeds: torch.Tensor, attention_mask: torch.Tensor | None, num_past: int | torch.Tensor
    ) -> torch.LongTensor:
        num_new = inputs_embeds.shape[1]
        if not isinstance(attention_mask, torch.Tensor) or attention_mask.dim() != 2:
            return (torch.arange(num_new, device=inputs_embeds.device) + num_past)[None]
        ranks = attention_mask.long().cumsum(-1) - 1
        return ranks[:, -num_new:].clamp(min=0)


@dataclass
class GPT1CausalLMOutput(CausalLMOutputWithPast):
    r"""Output of [`GPT1ForCausalLM`]: that of transformers and one field more.

    Args:
        example_losses (`[B, 2]`): outside of training with labels: the sum of −log P and the number of targets of
            each row, without a gradient.
    """

    example_losses: torch.FloatTensor | None = None


class GPT1ForCausalLM(GPT1PreTrainedModel, GenerationMixin):
    """GPT-1 with the language-model head of pre-training: equation 1 and 2 of the paper."""

    _tied_weights_keys = {"lm_head.weight": "transformer.tokens_embed.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}
    decoder_class = GPT1Model

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
        **kwargs: Unpack[TransformersKwargs],
    ) -> GPT1CausalLMOutput:
        r"""
        Args (beside those of [`GPT1Model`]):
            labels (`[B, T]`, int64): ids to predict, aligned with `input_ids` (shifted inside); −100 is ignored.
            logits_to_keep (`int` or 1-D tensor): give logits of the last n or of these positions; 0: of all.
            skip_logits (`bool`): leave `logits` out; the loss needs none. Default: in training with labels.
            num_items_in_batch (`int`): divisor of the summed loss. Default: the number of targets given here.
            shift_labels (`[B, T]`, int64): instead of `labels`, the target of each position; for shards of sequences.

        Returns:
            [`GPT1CausalLMOutput`] with `loss []` where there are labels and `logits [B, T, V]` where not skipped.
        """
        # Not in the signature: Trainer needs every argument there that has "label" in its name.
        shift_labels = kwargs.pop("shift_labels", None)
        outputs: BaseModelOutputWithPast = self.transformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state  # [B, T, D]
        has_targets = labels is not None or shift_labels is not None
        if skip_logits is None:
            skip_logits = self.training and has_targets
        logits = None
        if not skip_logits:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.lm_head(hidden_states[:, kept, :])
        loss = example_losses = None
        if has_targets:
            if shift_labels is None:
                hidden_states, shift_labels = hidden_states[:, :-1], labels[:, 1:]
            is_target = (shift_labels != -100).float()
            num_targets = is_target.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
            targets = select_targets(hidden_states, shift_labels, is_target)
            num_rows = len(shift_labels)
            loss_sum, row_losses = weighted_lm_loss(self.lm_head, *targets, num_rows, self._has_fused_lm_loss)
            loss = loss_sum / num_targets
            if not self.training:
                example_losses = torch.stack([row_losses, is_target.sum(1)], dim=1)
        return GPT1CausalLMOutput(
            loss=loss,
            example_losses=example_losses,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _validate_generated_length(self, generation_config, input_ids_length, has_default_max_length):
        super()._validate_generated_length(generation_config, input_ids_length, has_default_max_length)
        limit = self.config.max_position_embeddings
        if generation_config.max_length > limit:
            raise ValueError(
                f"Generation up to {generation_config.max_length} tokens (`max_length`, or the prompt and "
                f"`max_new_tokens`) was asked for, but the model has positions for {limit} "
                f"(`max_position_embeddings`). The prompt has {input_ids_length} tokens: pass `max_new_tokens` of at "
                f"most {max(limit - input_ids_length, 0)} or shorten the prompt."
            )


@dataclass
class GPT1DoubleHeadsModelOutput(ModelOutput):
    r"""Output of [`GPT1DoubleHeadsModel`].

    Args:
        loss (`[]`): L3 = task_loss + λ · lm_loss.
        task_loss (`[]`): L2 / N.
        lm_loss (`[]`): auxiliary loss L1 / (C · N); `None` where λ is 0.
        task_logits (`[B, K]`, or `[B, C]` for multiple choice, −inf at absent choices): scores of classes or choices.
        lm_logits (`[B, C, T, V]`): next-token scores, where asked for.
        example_losses (`[B, 2]`): outside of training with labels: L2 and L1 / C of each example, without a gradient.
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


_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")  # of the decoder


# trf-ignore: TRF013 - subclasses call post_init when all their heads are there.
class GPT1TaskModel(GPT1PreTrainedModel):
    """Base of the models with a task head: reads `[B, C, T]` examples and scores them by `config.traversal`."""

    supported_traversals = TRAVERSALS
    # Leave padding out of the decoder and compute what the choices of an example share once. False on a model, or
    # `GPT1TrainingArguments(pack_sequences=False)`, switches it off.
    pack_sequences = True
    decoder_class = GPT1Model

    def __init__(self, config: GPT1Config):
        config = self._with_traversal(config)
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"  # Trainer then counts one item per label, that is per example
        self.transformer = self.decoder_class(config)
        self.task_head = GPT1TaskHead(config)

    @classmethod
    def _with_traversal(cls, config: GPT1Config) -> GPT1Config:
        if config.traversal is None:
            config = copy.deepcopy(config)
            config.traversal = cls.supported_traversals[0]
        if config.problem_type is None and config.is_regression:
            config = copy.deepcopy(config)
            config.problem_type = "regression"  # pipelines read the scores by it
        if config.traversal not in cls.supported_traversals:
            family = cls.decoder_class.__name__.removesuffix("Model")
            raise ValueError(
                f"{cls.__name__} scores the traversals {', '.join(cls.supported_traversals)}, but this "
                f"configuration's `traversal` is {config.traversal!r}. Open it with "
                f"{family}{_CLASS_OF_TRAVERSAL[config.traversal]} or {family}DoubleHeadsModel."
            )
        if config.traversal == "multiple_choice" and config.problem_type not in (None, "single_label_classification"):
            raise ValueError(
                f"`problem_type` is {config.problem_type!r}, but the task head of the traversal 'multiple_choice' "
                "knows 'single_label_classification'."
            )
        if config.problem_type == "regression" and config.num_labels != 1:
            raise ValueError(
                f"`problem_type` is 'regression', which has one score, but `num_labels` is {config.num_labels}. "
                "Pass `num_labels=1`."
            )
        return config

    def _encode(
        self,
        inputs: tuple[torch.Tensor | None, ...],
        mc_token_ids: torch.LongTensor | None,
        choice_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> EncodedExamples:
        """Run the decoder over all sequences and score the examples; `inputs` are those of `_INPUTS`."""
        inputs = dict(zip(_INPUTS, inputs, strict=True))
        traversal, input_ids, mask = self.config.traversal, inputs["input_ids"], inputs["attention_mask"]
        if traversal == "similarity" and input_ids is not None and input_ids.dim() == 2:
            inputs["input_ids"] = both_orders(input_ids, mask, self.config.delimiter_token_id)
            inputs["attention_mask"] = None if mask is None else mask[:, None].expand(-1, 2, -1)
            mc_token_ids = None if mc_token_ids is None else mc_token_ids.reshape(-1, 1).expand(-1, 2)
        num_choices = count_sequences(traversal, inputs["input_ids"], inputs["inputs_embeds"])
        given = inputs["input_ids"] if inputs["inputs_embeds"] is None else inputs["inputs_embeds"][..., 0]
        num_examples, length = given.shape[0], given.shape[-1]
        shape = (num_examples, num_choices)
        flat = {name: flatten_sequences(name, tensor, (*shape, length)) for name, tensor in inputs.items()}

        packing = self._pack(flat, num_choices, **kwargs)
        decoder_inputs = flat
        if packing is not None:
            decoder_inputs = {"input_ids": packing.input_ids, "position_ids": packing.position_ids, "packing": packing}
        outputs = self.transformer(**decoder_inputs, **{**kwargs, "use_cache": False, "return_dict": True})
        hidden_states = outputs.last_hidden_state  # [S, T, D], packed [1, N, D]
        if mc_token_ids is None:
            mc_token_ids = last_attended(flat["attention_mask"], length)
        else:
            mc_token_ids = flatten_sequences("mc_token_ids", mc_token_ids, shape)
        rows = torch.arange(num_examples * num_choices, device=hidden_states.device)
        if packing is None:
            extracted = hidden_states[rows, mc_token_ids]
        else:
            extracted = hidden_states[0, packing.packed_index[rows, mc_token_ids]]
        task_logits = self.task_head(extracted.unflatten(0, shape))
        sequence_weights = torch.full(shape, 1 / num_choices, device=hidden_states.device)
        if choice_mask is not None:
            if traversal != "multiple_choice":
                raise ValueError(
                    f"`choice_mask` marks the choices that an example has, but the traversal {traversal!r} has none. "
                    "Leave it out."
                )
            present = flatten_sequences("choice_mask", choice_mask, shape).view(shape).bool()
            task_logits = task_logits.masked_fill(~present, float("-inf"))
            sequence_weights = present / present.sum(-1, keepdim=True)
        return EncodedExamples(
            flat["input_ids"], flat["attention_mask"], outputs, task_logits, sequence_weights.flatten(), packing
        )

    def _pack(
        self, flat: dict[str, torch.Tensor | None], num_choices: int, **kwargs: Unpack[TransformersKwargs]
    ) -> PackedSequences | None:
        """The sequences packed, or `None` where that saves nothing or something needs them as they are."""
        asked_for = [
            kwargs.get(name, getattr(self.config, name)) for name in ("output_hidden_states", "output_attentions")
        ]
        others = [tensor for name, tensor in flat.items() if name not in ("input_ids", "attention_mask")]
        is_traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        is_causal = kwargs.get("is_causal", getattr(self.config, "is_causal", True))
        can_pack = attends_to_packed_rows(self.config) and is_causal and not any(asked_for) and not is_traced
        if not (self.pack_sequences and can_pack) or any(tensor is not None for tensor in others):
            return None
        if flat["input_ids"].is_meta:  # not the model's device, which is "meta" for offloaded weights
            return None
        self.transformer._check_length(0, flat["input_ids"].shape[1])
        return pack_sequences(flat["input_ids"], flat["attention_mask"], num_choices, self.config.hidden_size)

    def _task_losses(self, task_logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """L2 of each example, `[B]`."""
        is_multi_label = self.config.problem_type == "multi_label_classification"
        needed = task_logits.shape[: 2 if is_multi_label else 1]
        if labels.shape != needed:
            raise ValueError(
                f"`labels` are the task's labels, one {'row ' if is_multi_label else ''}per example: shape "
                f"{list(needed)} is needed, but got {list(labels.shape)}. Language-modelling targets are taken from "
                "`input_ids`."
            )
        return task_losses(task_logits, labels, self.config.is_regression)

    def _task_loss(
        self, task_logits: torch.Tensor, labels: torch.Tensor | None, num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor | None:
        """L2 / N."""
        if labels is None:
            return None
        num_items = len(task_logits) if num_items_in_batch is None else num_items_in_batch
        return self._task_losses(task_logits, labels).sum() / num_items


class GPT1DoubleHeadsModel(GPT1TaskModel):
    """GPT-1 with the language-model head and the task head: fine-tuning with L3 = L2 + λ · L1.

    Sources: equations 3 to 5 and figure 1 of the paper; the loss's normalisation is the released code's.
    """

    _tied_weights_keys = {"lm_head.weight": "transformer.tokens_embed.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def __init__(self, config: GPT1Config):
        super().__init__(config)
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
        lm_mask: torch.BoolTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        output_lm_logits: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> GPT1DoubleHeadsModelOutput:
        r"""
        Args:
            input_ids (`[B, C, T]`, or `[B, T]` where C is 1; int64): the examples' sequences. Similarity also reads
                `[B, T]` rows `[s] a [$] b [e]` and makes the other order itself.
            attention_mask (like `input_ids`): 1 for real tokens.
            mc_token_ids (`[B, C]`, int64): position of the extract token. Default: the last real token.
            choice_mask (`[B, C]`, bool): False where an example has fewer choices.
            labels (`[B]`; int64 class or choice, float for regression; `[B, K]` 0 or 1 for multi-label
                classification): the task's labels.
            lm_mask (like `input_ids`, bool): False where a token is no target of the auxiliary loss, such as all of a
                dialogue but the reply. Default: all real tokens after the first of a sequence are targets.
            token_type_ids, position_ids (like `input_ids`), inputs_embeds (`[B, C, T, D]`): see [`GPT1Model`].
            output_lm_logits (`bool`): give `lm_logits` too.
            num_items_in_batch (`int`): N, examples of the whole optimizer step. Default: B.

        Raises:
            ValueError: shapes that the traversal does not have; the auxiliary loss without `input_ids`.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        encoded = self._encode(inputs, mc_token_ids, choice_mask, **kwargs)
        loss = task_loss = lm_loss = lm_logits = example_losses = None
        if labels is not None:
            num_items = len(encoded.task_logits) if num_items_in_batch is None else num_items_in_batch
            task_losses = self._task_losses(encoded.task_logits, labels)
            lm_losses = torch.zeros_like(task_losses)
            task_loss = task_losses.sum() / num_items
            loss = task_loss.clone()  # Trainer scales the loss in place
            if self.config.lm_coef > 0:
                lm_loss_sum, lm_losses = self._lm_losses(encoded, lm_mask)
                lm_loss = lm_loss_sum / num_items
                loss = task_loss + self.config.lm_coef * lm_loss
            if not self.training:
                example_losses = torch.stack([task_losses.detach(), lm_losses], dim=1)
        if output_lm_logits:
            hidden_states = encoded.outputs.last_hidden_state
            hidden_states = hidden_states if encoded.packing is None else encoded.packing.unpack(hidden_states)
            lm_logits = self.lm_head(hidden_states)
            lm_logits = lm_logits.unflatten(0, (encoded.task_logits.shape[0], -1))
        return GPT1DoubleHeadsModelOutput(
            loss=loss,
            task_loss=task_loss,
            lm_loss=lm_loss,
            task_logits=encoded.task_logits,
            lm_logits=lm_logits,
            example_losses=example_losses,
            hidden_states=encoded.outputs.hidden_states,
            attentions=encoded.outputs.attentions,
        )

    def _lm_losses(
        self, encoded: EncodedExamples, lm_mask: torch.BoolTensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Σ L1 / C over the examples, `[]`, and each example's part of it, `[B]`."""
        if encoded.input_ids is None:
            raise ValueError(
                "The auxiliary language-modelling loss needs `input_ids`, but only `inputs_embeds` were given. Pass "
                "`input_ids`, or set `config.lm_coef = 0`."
            )
        num_examples = len(encoded.task_logits)
        target_ids, is_target = next_token_targets(encoded.input_ids, encoded.attention_mask)
        if lm_mask is not None:
            shape = (num_examples, len(target_ids) // num_examples, encoded.input_ids.shape[-1])
            is_target = is_target & flatten_sequences("lm_mask", lm_mask, shape)[:, 1:].bool()
        target_weights = sequence_mean_weights(is_target, encoded.sequence_weights)
        hidden_states = encoded.outputs.last_hidden_state
        if encoded.packing is None:
            *targets, rows = select_targets(hidden_states[:, :-1], target_ids, target_weights)
            examples = rows // (len(target_ids) // num_examples)
        else:
            *targets, examples = select_packed_targets(hidden_states, encoded.packing, target_weights)
        return weighted_lm_loss(self.lm_head, *targets, examples, num_examples, self._has_fused_lm_loss)


class GPT1ForSequenceClassification(GPT1TaskModel):
    """GPT-1 with the task head alone, for classification, entailment, similarity and regression."""

    supported_traversals = ("classification", "entailment", "similarity")

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        mc_token_ids: torch.LongTensor | None = None,
        labels: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        """Arguments as in [`GPT1DoubleHeadsModel`]; `logits [B, K]`, and L2 / N as `loss` where there are labels."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        encoded = self._encode(inputs, mc_token_ids, **kwargs)
        loss = self._task_loss(encoded.task_logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss,
            logits=encoded.task_logits,
            hidden_states=encoded.outputs.hidden_states,
            attentions=encoded.outputs.attentions,
        )


class GPT1ForMultipleChoice(GPT1TaskModel):
    """GPT-1 with the task head alone, for multiple choice."""

    supported_traversals = ("multiple_choice",)

    def __init__(self, config: GPT1Config):
        super().__init__(config)
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
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput:
        """Arguments as in [`GPT1DoubleHeadsModel`]; `logits [B, C]`, and L2 / N as `loss` where there are labels."""
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        encoded = self._encode(inputs, mc_token_ids, choice_mask, **kwargs)
        loss = self._task_loss(encoded.task_logits, labels, num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss,
            logits=encoded.task_logits,
            hidden_states=encoded.outputs.hidden_states,
            attentions=encoded.outputs.attentions,
        )


_CLASS_OF_TRAVERSAL = {
    **dict.fromkeys(GPT1ForSequenceClassification.supported_traversals, "ForSequenceClassification"),
    **dict.fromkeys(GPT1ForMultipleChoice.supported_traversals, "ForMultipleChoice"),
}


__all__ = [
    "GPT1CausalLMOutput",
    "GPT1DoubleHeadsModel",
    "GPT1DoubleHeadsModelOutput",
    "GPT1ForCausalLM",
    "GPT1ForMultipleChoice",
    "GPT1ForSequenceClassification",
    "GPT1Model",
    "GPT1PreTrainedModel",
]

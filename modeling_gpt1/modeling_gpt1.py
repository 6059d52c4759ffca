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
"""GPT-1: a post-layer-norm Transformer decoder, its language-model head and task head; options give GPT-2 and GPT-3.

Sources: "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), sections 3 and 4.1, and
the released code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py); [`GPT1Config`] names
those of the options. Attention, masks, caches and loading are those of transformers.

Shapes: B examples, C sequences per example, T tokens, D hidden, V vocabulary, K classes, H heads.
"""

# The user chooses traversal, regression and λ for a task; they are not traits of particular checkpoints:
# trf-ignore: TRF041 config.traversal, config.lm_coef, config.is_regression

import math
from collections.abc import Callable

import torch
from torch import nn
from transformers import PreTrainedModel, initialization
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, MultipleChoiceModelOutput, SequenceClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .attention_gpt1 import (
    GPT1Dropout,
    causal_masks,
    check_length,
    default_position_ids,
    eager_attention_forward,
    packing_for,
    with_lengths,
)
from .batch_gpt1 import Examples, GPT1CausalLMOutput, GPT1DoubleHeadsModelOutput, TaskInputs, read_examples
from .checks_gpt1 import check_position_ids, check_targets, check_tokens, padding_mask
from .configuration_gpt1 import TRAVERSALS, GPT1Config, config_for_task
from .decoding_gpt1 import GPT1GenerationMixin, GPT1Linear
from .layouts_gpt1 import FolderMixin, register_foreign_layouts
from .loss_gpt1 import ExtractTokenCheck, FineTuningLosses, GPT1LMHead, GPT1TaskHead, LMHeadMixin, task_loss
from .plan_gpt1 import plan_to_follow
from .unpadding_gpt1 import BatchPlan, PackedSequences

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
        packing: PackedSequences | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        # Three explicit calls: inference engines that parse this code can fuse them.
        projected = [self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)]
        if packing is not None:
            projected = [packing.to_rows(tensor) for tensor in projected]
            kwargs["sees_past_only"] = True  # read by blockwise attention
        head_shape = (*projected[0].shape[:-1], -1, self.head_dim)
        query, key, value = (tensor.view(head_shape).transpose(1, 2) for tensor in projected)  # [B, H, T, D/H]
        if past_key_values is not None:
            past_and_new = past_key_values.update(key, value, self.layer_idx)
            # In a window of 1 a token sees only itself, but transformers' cache drops nothing then.
            key, value = past_and_new if self.sliding_window != 1 else (key, value)

        attention_function: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        attention_output, attention_weights = attention_function(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.config.attn_pdrop if self.training else 0.0,
            scaling=self.scaling,
            sliding_window=self.sliding_window,  # for kernels that take no mask
            **kwargs,
        )
        attention_output = attention_output.reshape(*head_shape[:-2], -1)  # [B, T, D]; from engines [B · T, D]
        if packing is not None:
            attention_output = packing.from_rows(attention_output)
        return self.resid_dropout(self.o_proj(attention_output)), attention_weights


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
    supports_gradient_checkpointing = True
    _no_split_modules = ["GPT1Block"]
    _input_embed_layer = "tokens_embed"
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
        # CODEPATH: GPT-2 and GPT-3. The parent module is unsuitable: initialization may skip modules without weights.
        if getattr(module, "ends_in_residual", False) and self.config.rescale_prenorm_residual:
            std = self.config.initializer_range / math.sqrt(2 * self.config.num_hidden_layers)
            initialization.normal_(module.weight, mean=0.0, std=std)


class GPT1Model(GPT1PreTrainedModel):
    """The decoder without a head: token and learned position embeddings, then the blocks."""

    def __init__(self, config: GPT1Config):
        super().__init__(config)
        # Fields can change after the configuration was built, for example by arguments of `from_pretrained`.
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
                which serves banded layers too; or a dictionary with a 4D mask for each layer type.
            token_type_ids (`[B, T]`, int64): token ids whose embeddings are added, as in transformers' OpenAIGPT.
            position_ids (`[B, T]`, int64): default: a token's rank among the real tokens of its row. Without a mask
                and a given cache, a position that is not above the one before it begins another sequence.
            past_key_values (`Cache`): keys and values of the preceding tokens.
            inputs_embeds (`[B, T, D]`): embeddings, instead of `input_ids`.
            use_cache (`bool`): return `past_key_values`; default: `config.use_cache` outside of training.
            packing (`PackedSequences`): layout of a packed batch, with its own ids, positions and masks; without a
                cache.

        Raises:
            ValueError: neither or both of `input_ids` and `inputs_embeds`; more tokens than positions.
        """
        check_tokens(self.config, input_ids, inputs_embeds, token_type_ids)
        if inputs_embeds is None:
            inputs_embeds = self.tokens_embed(input_ids)
        num_past = past_key_values.get_seq_length() if past_key_values is not None else 0
        if packing is None:
            check_length(self.config, num_past, inputs_embeds.shape[1], position_ids)
            check_position_ids(self.config, position_ids, inputs_embeds.shape[:2])
        attention_mask = padding_mask(attention_mask, inputs_embeds, num_past)
        # Both infer packed sequences from `position_ids` without a cache, so they get only what the caller gave.
        given = inputs_embeds, attention_mask, past_key_values, position_ids
        masks, kwargs = causal_masks(self.config, *given), with_lengths(self.config, *given, **kwargs)
        if use_cache and past_key_values is None and not self.training:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            position_ids = default_position_ids(inputs_embeds, attention_mask, num_past)

        embeddings = inputs_embeds + self.positions_embed(position_ids)
        if token_type_ids is not None:
            embeddings = embeddings + self.tokens_embed(token_type_ids)
        hidden_states = self.drop(embeddings)
        layers = self.h[: self.config.num_hidden_layers]  # fewer if generation exits early
        for block, layer_type in zip(layers, self.config.attention_of_layers, strict=False):
            hidden_states = block(
                hidden_states,
                attention_mask=masks[layer_type],
                past_key_values=past_key_values,
                packing=packing,
                **kwargs,
            )
        return BaseModelOutputWithPast(
            last_hidden_state=self.ln_f(hidden_states),
            past_key_values=past_key_values if use_cache else None,
        )


class GPT1ForCausalLM(LMHeadMixin, GPT1PreTrainedModel, GPT1GenerationMixin):
    """GPT-1 with the language-model head of pre-training: equations 1 and 2 of the paper."""

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
        plan: BatchPlan | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> GPT1CausalLMOutput:
        r"""
        Takes the arguments of [`GPT1Model`] and the following.

        Args:
            labels (`[B, T]`, int64): ids to predict, aligned with `input_ids` (shifted inside); −100 is ignored.
            logits_to_keep (`int` or 1-D tensor): positions with logits: the last n, or those listed; 0 keeps all.
            skip_logits (`bool`): return no `logits`; the loss needs none. Default: True in training with labels.
            num_items_in_batch (`int`): divisor of the summed loss. Default: the number of targets in this call.
            plan ([`BatchPlan`]): the batch's plan, made on the host by `planner_of(model)`. Default: made here.
            shift_labels (`[B, T]`, int64): each position's own target, instead of `labels`; for sharded sequences.
        """
        # Not in the signature: Trainer requires every argument there whose name contains "label".
        shift_labels = kwargs.pop("shift_labels", None)
        plan = None if past_key_values is not None else plan_to_follow(plan, self.config, input_ids, **kwargs)
        attention_mask = attention_mask if plan is None else plan.needed_mask(attention_mask, position_ids)
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
        targets = labels if shift_labels is None else shift_labels
        check_targets(targets, hidden_states, self.config.vocab_size)
        if skip_logits is None:
            skip_logits = self.training and targets is not None
        logits = loss = example_losses = None
        if not skip_logits:
            kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.lm_head(hidden_states[:, kept, :])
        if targets is not None:
            loss, example_losses = self.next_token_loss(hidden_states, labels, shift_labels, num_items_in_batch, plan)
        return GPT1CausalLMOutput(
            loss=loss,
            example_losses=example_losses,
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class GPT1TaskModel(GPT1PreTrainedModel):
    """Base of the models with a task head. It reads `[B, C, T]` examples and scores them by `config.traversal`."""

    supported_traversals = TRAVERSALS
    # Skip padding in the decoder, and compute a context that the choices of an example share once. To switch this off,
    # set it to False on a model or pass `GPT1TrainingArguments(pack_sequences=False)`.
    pack_sequences = True
    decoder_class = GPT1Model
    output_class = SequenceClassifierOutput

    def __init__(self, config: GPT1Config):
        config = config_for_task(config, type(self))
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"  # makes Trainer count all labels other than −100: N
        self.transformer = self.decoder_class(config)
        self.task_head = GPT1TaskHead(config)
        self._check_extract_token = ExtractTokenCheck()
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
        plan: BatchPlan | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput | MultipleChoiceModelOutput:
        """Takes the arguments of [`GPT1DoubleHeadsModel`]; returns `logits` and, with labels, L2 / N as `loss`."""
        inputs = TaskInputs(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, mc_token_ids, choice_mask
        )
        _, outputs, task_logits = self._encode(inputs, plan=plan, **kwargs)
        loss = None if labels is None else task_loss(task_logits, labels, self.config, num_items_in_batch)
        return self.output_class(
            loss=loss, logits=task_logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _encode(self, inputs: TaskInputs, **kwargs) -> tuple[Examples, BaseModelOutputWithPast, torch.Tensor]:
        """The examples, the decoder's output for all their sequences, and the task logits."""
        self._check_extract_token(self.config, inputs)
        plan = kwargs.pop("plan")
        packing = packing_for(self, **kwargs)
        plan = plan_to_follow(plan, self.config, inputs.input_ids, packing, **kwargs)
        examples = read_examples(self.config, inputs, packing, plan)
        decoder_inputs = examples.sequences.decoder_inputs(self.config)
        outputs = self.transformer(**decoder_inputs, **{**kwargs, "use_cache": False, "return_dict": True})
        return examples, outputs, self.task_head(examples.extract(outputs.last_hidden_state), examples.is_present)


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
        plan: BatchPlan | None = None,
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
            plan ([`BatchPlan`]): the batch's plan, made on the host by `planner_of(model)`. Default: made here.

        Raises:
            ValueError: shapes that do not fit the traversal; the auxiliary loss without `input_ids`.
        """
        inputs = TaskInputs(
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, mc_token_ids, choice_mask, lm_mask
        )
        examples, outputs, task_logits = self._encode(inputs, plan=plan, **kwargs)
        hidden_states, losses, lm_logits = outputs.last_hidden_state, FineTuningLosses(), None
        if labels is not None:
            losses = self.fine_tuning_losses(task_logits, labels, examples, hidden_states, num_items_in_batch)
        if output_lm_logits:
            lm_logits = self.lm_head(examples.sequences.padded(hidden_states)).unflatten(0, examples.shape)
        return GPT1DoubleHeadsModelOutput(
            loss=losses.loss,
            task_loss=losses.task_loss,
            lm_loss=losses.lm_loss,
            example_losses=losses.example_losses,
            task_logits=task_logits,
            lm_logits=lm_logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class GPT1ForSequenceClassification(GPT1TaskModel):
    """GPT-1 with the task head alone, for classification, entailment, similarity and regression."""

    supported_traversals = ("classification", "entailment", "similarity")
    output_class = SequenceClassifierOutput


class GPT1ForMultipleChoice(GPT1TaskModel):
    """GPT-1 with the task head alone, for multiple choice."""

    supported_traversals = ("multiple_choice",)
    output_class = MultipleChoiceModelOutput


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

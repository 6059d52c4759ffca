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
"""Batches of examples with several sequences: the task models' inputs, extract positions and targets.

Sources: figure 1 and section 3.3 of "Improving Language Understanding by Generative Pre-Training"; the targets of L1
and their weights are those of the released code
(https://github.com/openai/finetune-transformer-lm/blob/master/train.py).

Shapes: B examples, C sequences per example, T tokens, D hidden; S = B · C sequences, N target tokens.
"""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast, ModelOutput
from transformers.utils import logging

from .attention_gpt1 import VARIABLE_LENGTH, check_length
from .checks_gpt1 import can_read, check_exactly_one, check_extracted, check_not_empty, first_place, real_tokens
from .configuration_gpt1 import GPT1Config
from .unpadding_gpt1 import BatchPlan, PackedSequences, Targets, pack_sequences

logger = logging.get_logger(__name__)

# Sequences per example; None means any number.
NUM_SEQUENCES = {"classification": 1, "entailment": 1, "similarity": 2, "multiple_choice": None}


@dataclass
class TaskInputs:
    """Arguments of a task model, `[B, C, …]`, or `[B, …]` if C is 1: see [`GPT1DoubleHeadsModel`]."""

    input_ids: torch.LongTensor | None = None
    attention_mask: torch.Tensor | None = None
    token_type_ids: torch.LongTensor | None = None
    position_ids: torch.LongTensor | None = None
    inputs_embeds: torch.Tensor | None = None
    mc_token_ids: torch.LongTensor | None = None
    choice_mask: torch.BoolTensor | None = None
    lm_mask: torch.BoolTensor | None = None


@dataclass
class PaddedSequences:
    """Sequences that the decoder reads with their padding; [`PackedSequences`] have none."""

    input_ids: torch.LongTensor | None  # [S, T]
    attention_mask: torch.Tensor | None  # [S, T]
    token_type_ids: torch.LongTensor | None  # [S, T]
    position_ids: torch.LongTensor | None  # [S, T]
    inputs_embeds: torch.Tensor | None  # [S, T, D]
    num_choices: int  # C
    plan: BatchPlan | None

    def decoder_inputs(self, config: GPT1Config) -> dict:
        """Arguments for the decoder, which builds the attention masks itself."""
        mask = self.attention_mask
        return {
            "input_ids": self.input_ids,
            "attention_mask": mask if self.plan is None else self.plan.needed_mask(mask, self.position_ids),
            "token_type_ids": self.token_type_ids,
            "position_ids": self.position_ids,
            "inputs_embeds": self.inputs_embeds,
        }

    def padded(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The decoder's output unchanged, `[S, T, …]`."""
        return hidden_states

    def extract(self, hidden_states: torch.Tensor, positions: torch.LongTensor | int) -> torch.Tensor:
        """Hidden state of each sequence at its position, `[S, D]`, from `[S, T, D]` and `positions [S]`."""
        rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)  # `len` would be fixed in a graph
        return hidden_states[rows, positions]

    def place_targets(self, target_weights: torch.Tensor) -> Targets:
        """Targets with the weights `target_weights [S, T-1]`: see [`PackedSequences`]."""
        sources = predicting_places(self.input_ids, self.attention_mask)
        num_sequences, length = self.input_ids.shape
        starts = torch.arange(num_sequences, device=sources.device)[:, None] * length
        tokens = starts + torch.arange(1, length, device=sources.device)
        return select_targets(starts + sources, tokens, target_weights, starts // (length * self.num_choices))


@dataclass
class Examples:
    """A batch of B examples; the C sequences of an example follow one another."""

    padded: PaddedSequences
    sequences: PaddedSequences | PackedSequences  # as the decoder reads them
    shape: tuple[int, int]  # B, C
    positions: torch.LongTensor | int  # [S], position of the extract token
    is_present: torch.BoolTensor | None  # [B, C], False where an example has fewer choices
    lm_mask: torch.BoolTensor | None  # [S, T], False where a token is not a target
    planned_targets: Targets | None = None  # targets of a batch plan, if there is one

    def extract(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states at the extract tokens, `[B, C, D]`: the task head's input."""
        return self.sequences.extract(hidden_states, self.positions).unflatten(0, self.shape)

    def targets(
        self, hidden_states: torch.Tensor, counts: torch.LongTensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """The M targets of Σ L1 / C: hidden states `[M, D]`, ids, weights and examples `[M]`.

        Args:
            counts (`[B]`): how often each example counts in the sum.

        Raises:
            ValueError: the examples were given without `input_ids`.
        """
        targets = self.place_targets() if self.planned_targets is None else self.planned_targets
        hidden_states, ids, weights, examples = targets.read(hidden_states, self.sequences.input_ids)
        return hidden_states, ids, weights * counts[examples], examples

    def place_targets(self) -> Targets:
        """The targets and their weights in Σ L1 / C, including those of examples without a label."""
        if self.padded.input_ids is None:
            raise ValueError(
                "The auxiliary language-modelling loss needs `input_ids`, but only `inputs_embeds` were given. Pass "
                "`input_ids`, or set `config.lm_coef = 0`."
            )
        _, is_target = next_token_targets(self.padded.input_ids, self.padded.attention_mask)
        if self.lm_mask is not None:
            is_target = is_target & self.lm_mask[:, 1:].bool()
        if self.is_present is None:
            sequence_weights = torch.full(self.shape, 1 / self.shape[1], device=is_target.device)
        else:
            sequence_weights = self.is_present / self.is_present.sum(-1, keepdim=True)
        return self.sequences.place_targets(sequence_mean_weights(is_target, sequence_weights.flatten()))


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


def read_examples(
    config: GPT1Config, inputs: TaskInputs, way_of_packing: str | None, plan: BatchPlan | None = None
) -> Examples:
    """The examples of a batch, packed if there is a way and packing saves work. A plan, if given, decides instead.

    The planner has checked the values of a planned batch, so none is read here.

    Raises:
        ValueError: shapes that do not fit the traversal; more tokens than positions.
    """
    traversal, input_ids, mask = config.traversal, inputs.input_ids, real_tokens(inputs.attention_mask)
    mc_token_ids = inputs.mc_token_ids
    if traversal == "similarity" and input_ids is not None and input_ids.dim() == 2:
        input_ids = both_orders(input_ids, mask, config.delimiter_token_id, is_checked=plan is not None)
        mask = None if mask is None else mask[:, None].expand(-1, 2, -1)
        mc_token_ids = None if mc_token_ids is None else mc_token_ids.reshape(-1, 1).expand(-1, 2)
    num_choices = count_sequences(traversal, input_ids, inputs.inputs_embeds)
    given = input_ids if inputs.inputs_embeds is None else inputs.inputs_embeds[..., 0]
    shape, length = (given.shape[0], num_choices), given.shape[-1]
    padded = PaddedSequences(
        input_ids=flatten_sequences("input_ids", input_ids, (*shape, length)),
        attention_mask=flatten_sequences("attention_mask", mask, (*shape, length)),
        token_type_ids=flatten_sequences("token_type_ids", inputs.token_type_ids, (*shape, length)),
        position_ids=flatten_sequences("position_ids", inputs.position_ids, (*shape, length)),
        inputs_embeds=flatten_sequences("inputs_embeds", inputs.inputs_embeds, (*shape, length, config.hidden_size)),
        num_choices=num_choices,
        plan=plan,
    )
    if mc_token_ids is None:
        positions = last_attended(padded.attention_mask, length)
    else:
        positions = flatten_sequences("mc_token_ids", mc_token_ids, shape)
    if inputs.choice_mask is not None and traversal != "multiple_choice":
        raise ValueError(f"`choice_mask` was given, but the traversal {traversal!r} has no choices. Leave it out.")
    is_present = flatten_sequences("choice_mask", inputs.choice_mask, shape)
    is_present = None if is_present is None else is_present.view(shape).bool()
    if is_present is not None and can_read(is_present) and not is_present.any(1).all():
        (example,) = first_place(~is_present.any(1))
        raise ValueError(
            f"`choice_mask` marks every choice of example {example} as absent. Remove the example or correct the mask."
        )
    if plan is not None:
        packed = None if plan.packing is None else plan.packing.with_ids(padded.input_ids)
    else:
        packed = without_padding(config, padded, way_of_packing) if way_of_packing else None
    # A packed batch has no hidden states for padding, and packing has already made the host wait for the batch.
    if plan is None and (packed is not None or can_read(given)):
        check_extracted(positions, padded.attention_mask, is_present, (*shape, length))
    return Examples(
        padded=padded,
        sequences=packed or padded,
        shape=shape,
        positions=positions,
        is_present=is_present,
        lm_mask=flatten_sequences("lm_mask", inputs.lm_mask, (*shape, length)),
        planned_targets=None if plan is None else plan.targets,
    )


def without_padding(config: GPT1Config, padded: PaddedSequences, way: str) -> PackedSequences | None:
    """The packed sequences, or `None` if packing saves nothing or there are token types, positions or embeddings."""
    others = (padded.token_type_ids, padded.position_ids, padded.inputs_embeds)
    # Ids on the meta device have no values. The model's device says less: it is "meta" for offloaded weights too.
    if any(tensor is not None for tensor in others) or padded.input_ids.is_meta:
        return None
    check_length(config, 0, padded.input_ids.shape[1])
    # A band counts padding within a sequence too, which packed sequences lack.
    if config.sliding_window is not None and has_holes(padded.attention_mask):
        return None
    can_share = shares_beginnings(config, way)
    return pack_sequences(padded.input_ids, padded.attention_mask, padded.num_choices, config.hidden_size, can_share)


def shares_beginnings(config: GPT1Config, way: str) -> bool:
    """Whether attention can read a beginning that the choices of an example share; a warning says so if not."""
    if way != VARIABLE_LENGTH:
        return True
    if config.traversal == "multiple_choice":
        logger.warning_once(
            f"The attention {config._attn_implementation!r} computes the context of an example once for each choice, "
            "as it takes no mask by which the choices could share it. Pass attn_implementation='flex_attention' or "
            "'sdpa' to compute it once."
        )
    return False


def has_holes(attention_mask: torch.BoolTensor | None) -> bool:
    """Whether padding lies between the real tokens of a sequence. The host waits for the device."""
    if attention_mask is None:
        return False
    num_spans = attention_mask[:, 0] + (attention_mask[:, 1:] & ~attention_mask[:, :-1]).sum(1)
    return bool((num_spans > 1).any())


def count_sequences(traversal: str, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> int:
    """C of `input_ids [B, C, T]` or `inputs_embeds [B, C, T, D]`; 1 if that dimension is left out.

    Raises:
        ValueError: neither or both are given; the number of sequences does not fit the traversal.
    """
    check_exactly_one(input_ids, inputs_embeds)
    name, given, hidden = (
        ("input_ids", input_ids, "") if input_ids is not None else ("inputs_embeds", inputs_embeds, ", D")
    )
    num_dims = 4 if hidden else 3
    has_choices = given.dim() == num_dims
    num_choices = given.shape[1] if has_choices else 1
    needed = NUM_SEQUENCES[traversal]
    fits = has_choices if needed is None else num_choices == needed
    if not fits or given.dim() not in (num_dims - 1, num_dims):
        shape = {None: "[B, C, T%s]", 1: "[B, T%s]", 2: "[B, 2, T%s]"}[needed] % hidden
        raise ValueError(
            f"The traversal {traversal!r} needs `{name}` of shape {shape}, but got {list(given.shape)}. "
            "TraversalCollator makes such batches."
        )
    check_not_empty(name, given.shape)
    return num_choices


def flatten_sequences(name: str, tensor: torch.Tensor | None, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Reshapes `[B, C, …]` to `[B · C, …]`; `tensor` must have this `shape`, but may omit a C of 1.

    Raises:
        ValueError: `tensor` has another shape.
    """
    if tensor is None:
        return None
    if tensor.shape == shape:
        return tensor.flatten(0, 1)
    if shape[1] == 1 and tensor.shape == shape[:1] + shape[2:]:
        return tensor
    raise ValueError(f"`{name}` needs shape {list(shape)} here, but got {list(tensor.shape)}.")


def last_attended(attention_mask: torch.Tensor | None, length: int) -> torch.LongTensor | int:
    """Index `[S]` of each sequence's last real token, for padding on either side; without a mask, the last index."""
    if attention_mask is None:
        return length - 1
    return length - 1 - attention_mask.flip(-1).long().argmax(-1)


def both_orders(
    input_ids: torch.LongTensor,
    attention_mask: torch.Tensor | None,
    delimiter_token_id: int | None,
    is_checked: bool = False,
) -> torch.LongTensor:
    """Both orders `[B, 2, T]` of rows `[s] a [$] b [e]` in `[B, T]`: as given, and with the segments swapped.

    Raises:
        ValueError: a row without exactly one delimiter.
    """
    if attention_mask is not None and attention_mask.shape != input_ids.shape:
        raise ValueError(
            f"`attention_mask` needs shape {list(input_ids.shape)} here, but got {list(attention_mask.shape)}."
        )
    real = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    is_delimiter = (input_ids == delimiter_token_id) & real.bool() if delimiter_token_id is not None else real < 0
    counts = is_delimiter.sum(-1)
    if torch.compiler.is_compiling():  # a graph cannot raise depending on values
        torch._assert_async((counts == 1).all(), "Similarity reads rows with one delimiter each.")
    elif not is_checked and (counts != 1).any():
        raise ValueError(
            "Similarity reads both orders of a pair: `input_ids` of shape [B, 2, T], or rows `[s] a [$] b [e]` with "
            f"one delimiter (`config.delimiter_token_id` is {delimiter_token_id}), but the rows have "
            f"{counts.tolist()} delimiters. Give the tokenizer a `text` and a `text_pair`."
        )
    positions = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
    start = real.argmax(-1, keepdim=True)
    end = start + real.sum(-1, keepdim=True) - 1
    middle = is_delimiter.long().argmax(-1, keepdim=True)
    new_middle = start + end - middle
    source = torch.where(positions < new_middle, positions - start + middle, positions - new_middle + start)
    source = torch.where(positions == new_middle, middle, source)
    source = torch.where((positions <= start) | (positions >= end), positions, source)
    return torch.stack([input_ids, input_ids.gather(1, source)], dim=1)


def next_token_targets(
    input_ids: torch.Tensor, attention_mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets of L1: every real token after the first real one of its sequence.

    Args:
        input_ids (`torch.LongTensor` of shape `[B, T]`): token ids.
        attention_mask (`torch.Tensor` of shape `[B, T]`, *optional*): 1 for real tokens, wherever they are.

    Returns:
        `target_ids [B, T-1]` and `is_target [B, T-1]` (bool). The real token before a target predicts it.
    """
    target_ids = input_ids[:, 1:]
    if attention_mask is None:
        return target_ids, torch.ones_like(target_ids, dtype=torch.bool)
    real = attention_mask.bool()
    if can_read(real) and real[:, 0].all():
        return target_ids, real[:, 1:]
    return target_ids, real[:, 1:] & (real.cumsum(1)[:, :-1] > 0)


def predicting_places(input_ids: torch.LongTensor, attention_mask: torch.BoolTensor | None) -> torch.LongTensor:
    """Index `[S, T-1]` of the position that predicts each token of `[S, T]` from the second on.

    That is the last real token before it: padding within a sequence is skipped. The index is 0 where there is none.
    """
    places = torch.arange(input_ids.shape[1] - 1, device=input_ids.device).expand_as(input_ids[:, 1:])
    return places if attention_mask is None else torch.where(attention_mask[:, :-1], places, 0).cummax(1).values


def sequence_mean_weights(is_target: torch.Tensor, sequence_weights: torch.Tensor) -> torch.Tensor:
    """Weights of target tokens whose weighted sum is a weighted sum of per-sequence means.

    Args:
        is_target (`torch.BoolTensor` of shape `[B, T]`): tokens that count.
        sequence_weights (`torch.Tensor` of shape `[B]`): factor of each sequence's mean.

    Returns:
        `torch.Tensor` of shape `[B, T]`; a sequence without a target has weights 0.
    """
    target_counts = is_target.sum(-1).clamp(min=1)
    return is_target * (sequence_weights / target_counts)[:, None]


def next_label_targets(labels: torch.LongTensor, shift: int = 1) -> Targets:
    """Targets of `labels [B, T]` without −100. Each is predicted `shift` positions before its own, 1 or 0."""
    num_rows, length = labels.shape
    starts = torch.arange(num_rows, device=labels.device)[:, None] * length
    tokens = starts + torch.arange(shift, length, device=labels.device)
    return select_targets(tokens - shift, tokens, labels[:, shift:].ne(-100).float(), starts // length)


def every_label(
    hidden_states: torch.Tensor, labels: torch.LongTensor
) -> tuple[torch.Tensor, torch.LongTensor, torch.Tensor, torch.LongTensor]:
    """As [`Targets.read`], for a graph, whose shapes cannot depend on data: all `labels [B, T]`; −100 has weight 0.

    `hidden_states [B, T, D]` predict the labels at the same positions.
    """
    rows = torch.arange(labels.shape[0], device=labels.device)[:, None].expand_as(labels).flatten()
    return hidden_states.flatten(0, 1), labels.flatten().clamp(min=0), labels.ne(-100).float().flatten(), rows


def select_targets(
    sources: torch.LongTensor, tokens: torch.LongTensor, weights: torch.Tensor, rows: torch.LongTensor
) -> Targets:
    """Flattens targets `[S, T]` and drops those of weight 0; `rows [S, 1]`.

    A compiled graph keeps all targets, because its shapes cannot depend on data.
    """
    parts = (sources, tokens, weights, rows.expand_as(tokens))
    if torch.compiler.is_compiling():
        return Targets(*(part.flatten() for part in parts))
    places = weights.flatten().nonzero()[:, 0]
    return Targets(*(part.flatten().index_select(0, places) for part in parts))

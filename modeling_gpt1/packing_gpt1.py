# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""A batch as the decoder reads it: padded, or by the plan that came with it; its extract positions and its targets.

A plan (`BatchPlan` of the package `tokenization`) is made where the batch is made. Without one the batch is padded, as
for every model of transformers. With one the decoder computes each real token once, all side by side, and attention
alone needs rows: [`to_rows`] and [`from_rows`] move its inputs there and back. In this file a row is one of these rows
of attention.

Sources: figure 1 and section 3.3 of "Improving Language Understanding by Generative Pre-Training"; the targets of L1
and their weights are those of the released code
(https://github.com/openai/finetune-transformer-lm/blob/master/train.py).

Shapes: B examples, C sequences per example, S = B · C, T tokens of a padded sequence, D hidden; N tokens that a plan
computes; R rows of attention of at most L tokens; M targets.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask, sdpa_mask
from transformers.utils import logging

from .checks_gpt1 import can_read, check_choices, check_extracted, is_traced, real_tokens
from .configuration_gpt1 import (
    FULL_ATTENTION,
    IGNORED_LABEL,
    SLIDING_ATTENTION,
    TRAVERSALS,
    UserError,
    has_choices,
)
from .kernels_gpt1 import MovedTokens

logger = logging.get_logger(__name__)

# How attention keeps packed sequences apart, by the function of transformers that makes its masks.
MASKED_ROWS = "masked rows"
VARIABLE_LENGTH = "variable length"
WAYS_OF_PACKING = {sdpa_mask: MASKED_ROWS, flash_attention_mask: VARIABLE_LENGTH}


# ---- Following a plan


class Plan(Protocol):
    """What of a batch depends on its values. It belongs to that batch alone; all padding is at the end of sequences.

    `tokenization.BatchPlan` is one, and says more. Fields after `target_sources` are `None` if the decoder computes
    padding, too, and the last two if no sequences share a beginning.

    Args:
        shape: shape of the batch's `input_ids`.
        num_tokens, num_targets: real tokens of the batch, and those of them after the first of their sequence.
        is_real (`[S, T]`): the batch's attention mask.
        target_tokens (`[M]`): each real token after the first of its sequence, as an index into the flat S · T places,
            or into the N tokens if there are any.
        target_sources (`[M]`): the token that predicts it.
        token_index (`[N]`): the computed tokens, as indices into the flat S · T places.
        position_ids (`[1, N]`): their positions.
        packed_index (`[S, T]`): the token of the N for each place of the batch, 0 for padding.
        row_index (`[R, L]`): the token of the N for each place of the rows, 0 for padding.
        row_is_padding (`[R, L]`): True at the rows' padding.
        row_place (`[N]`): the place of each token in the flat R · L places.
        row_sequence (`[R, L]`): the sequence at each place of the rows, −1 for padding.
        row_is_shared (`[R, L]`): True in a beginning that several sequences share.
    """

    shape: tuple[int, ...]
    num_tokens: int
    num_targets: int
    is_real: torch.BoolTensor
    target_tokens: torch.LongTensor
    target_sources: torch.LongTensor
    token_index: torch.LongTensor | None
    position_ids: torch.LongTensor | None
    packed_index: torch.LongTensor | None
    row_index: torch.LongTensor | None
    row_is_padding: torch.BoolTensor | None
    row_place: torch.LongTensor | None
    row_sequence: torch.LongTensor | None
    row_is_shared: torch.BoolTensor | None

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Plan":
        """The plan on a device."""


def plan_to_follow(
    model: PreTrainedModel,
    plan: Plan | None,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    labels: torch.Tensor | None = None,
    token_type_ids: torch.Tensor | None = None,
    **kwargs,
) -> Plan | None:
    """The plan on the batch's device; `None` if there is none, if it belongs to another batch, or if padding is read.

    Values are compared on the CPU, where a plan that does not fit is left out with a warning. Another device compares
    them without the host, and stops with the same sentence. The batch is `[S, T]`; `labels` are a language model's.
    """
    if plan is None or input_ids is None or input_ids.is_meta:
        return None
    if is_traced() or reads_padding(model, **kwargs):
        return None
    refusal = (  # CUDA takes no message of 255 bytes or more
        f"The batch does not belong to its `plan`, which was made for `input_ids` of shape {list(plan.shape)}. Remove "
        "`plan` from the batch, or make the collator with `plan=False`, where code changes or cuts batches."
    )
    plan = plan.to(input_ids.device, non_blocking=True)
    given = [tensor for tensor in (input_ids, attention_mask, labels) if tensor is not None]
    if any(tensor.shape != plan.is_real.shape for tensor in given):
        logger.warning_once(refusal)
        return None
    fits = belongs_to(plan, input_ids, attention_mask, labels, token_type_ids)
    if not can_read(fits):
        torch._assert_async(fits, refusal)
    elif not fits:
        logger.warning_once(refusal)
        return None
    return plan


def reads_padding(model: PreTrainedModel, **kwargs) -> bool:
    """Whether a call's result depends on the places of padding, which a plan leaves out."""
    config = model.config

    def setting(name: str, default: bool) -> bool:
        return kwargs.get(name, getattr(config, name, default))

    if not setting("is_causal", True):
        return True
    if setting("output_hidden_states", False) or setting("output_attentions", False):
        return True
    # NEFTune's noise depends on the padded length.
    return bool(getattr(model.get_input_embeddings(), "neftune_noise_alpha", None))


def belongs_to(
    plan: Plan,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None,
    labels: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
) -> torch.BoolTensor:
    """Whether a plan was made for a batch of its shape, `[]`."""
    is_real = plan.is_real
    fits = is_real.all() if attention_mask is None else is_real.eq(attention_mask).all()
    if plan.row_is_shared is not None:  # what is shared must be equal
        for ids in (input_ids, token_type_ids):
            if ids is not None:
                computed = ids.take(plan.token_index)[plan.packed_index]
                fits = fits & (computed.eq(ids) | ~is_real).all()
    if labels is not None:
        fits = fits & (labels.eq(IGNORED_LABEL) | is_real)[:, 1:].all()
    return fits


def way_of_packing(config: PreTrainedConfig) -> str | None:
    """How the attention that a model uses keeps packed sequences apart; `None` if it cannot."""
    return WAYS_OF_PACKING.get(ALL_MASK_ATTENTION_FUNCTIONS.get(config._attn_implementation))


def packed_inputs(
    model: PreTrainedModel,
    plan: Plan | None,
    input_ids: torch.LongTensor,
    token_type_ids: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
    past_key_values: Cache | None = None,
) -> dict[str, Any] | None:
    """Arguments for the decoder that follows a plan, with all that its attention needs; `input_ids [S, T]`.

    `None` if it computes padding, too: by the plan, by attention that cannot keep sequences apart, because it refuses
    the length, or because the batch has more than its ids and token types.
    """
    config = model.config
    if plan is None or plan.token_index is None or not model.pack_sequences:
        return None
    if input_ids.shape[1] > config.max_position_embeddings:
        return None
    others = (position_ids, inputs_embeds, past_key_values)
    if any(other is not None for other in others):
        return None
    way = way_of_packing(config) if model._supports_attention_backend else None
    if way == MASKED_ROWS:
        for_attention = {"attention_mask": row_masks(plan, config.sliding_window), "rows": plan}
    elif way == VARIABLE_LENGTH and plan.row_is_shared is None:  # without masks, nothing can be shared
        for_attention = lengths_of_rows(plan, input_ids.shape[1])
        for_attention["attention_mask"] = {FULL_ATTENTION: None, SLIDING_ATTENTION: None}
    else:
        return None
    packed = {"input_ids": input_ids.take(plan.token_index)[None], "position_ids": plan.position_ids, **for_attention}
    if token_type_ids is not None:
        packed["token_type_ids"] = token_type_ids.expand_as(input_ids).take(plan.token_index)[None]
    return packed


def padded_inputs(plan: Plan | None, inputs: dict[str, Any]) -> dict[str, Any]:
    """Arguments for the decoder of a batch that is padded: `inputs`, in which a plan saves a device its mask.

    A mask makes the host wait, and the plan says that all padding is at the end, where no real token sees it. With
    positions but without a mask, though, a batch row would be taken for several sequences.
    """
    if plan is None or inputs["position_ids"] is not None or can_read(inputs["input_ids"]):
        return inputs
    return {**inputs, "attention_mask": None}


def row_masks(plan: Plan, sliding_window: int | None) -> dict[str, torch.BoolTensor | None]:
    """The mask for each layer type, `[R, 1, L, L]`: True where a query sees a key, its own sequence's or a shared one.

    In banded layers a token sees its sequence's last `sliding_window` tokens. `None` is a causal mask.
    """
    mask = None
    if plan.row_sequence is not None:
        is_own = plan.row_sequence[:, :, None] == plan.row_sequence[:, None, :]
        mask = (is_own | plan.row_is_shared[:, None, :]).tril()[:, None]
    if sliding_window is None:
        return {FULL_ATTENTION: mask}
    positions = plan.position_ids[0, plan.row_index]  # [R, L]
    band = (positions[:, :, None] - positions[:, None, :] < sliding_window)[:, None]
    banded_mask = band.tril() if mask is None else band & mask
    return {FULL_ATTENTION: mask, SLIDING_ATTENTION: banded_mask}


def lengths_of_rows(plan: Plan, length: int) -> dict[str, Any]:
    """The rows' lengths for flash attention; `length` is T."""
    starts = nn.functional.pad(plan.row_index[:, 0], (0, 1), value=plan.num_tokens).int()
    longest = plan.row_index.shape[1]
    if longest == 1:  # a graph would be made for this number alone; any larger one serves
        longest = length
    return lengths_for_flash_attention(starts, longest)


def lengths_for_flash_attention(starts: torch.IntTensor, longest: int) -> dict[str, Any]:
    """Arguments of transformers' flash attention; `starts` `[R + 1]`: index of each row's first token, and N."""
    return {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": longest, "max_length_k": longest}


def to_rows(plan: Plan, hidden_states: torch.Tensor) -> torch.Tensor:
    """Moves a plan's tokens `[1, N, D]` to its rows of attention `[R, L, D]`; their padding holds arbitrary values."""
    shape = (*plan.row_index.shape, -1)
    if has_full_rows(plan):
        return hidden_states.view(shape)
    return MovedTokens.apply(hidden_states.flatten(0, 1), plan.row_index, plan.row_place, None).view(shape)


def from_rows(plan: Plan, hidden_states: torch.Tensor) -> torch.Tensor:
    """Inverse of [`to_rows`]: from `[R, L, D]` to `[1, N, D]`. The rows' padding gets no gradient."""
    tokens = hidden_states.flatten(0, 1)
    if has_full_rows(plan):
        return tokens[None]
    return MovedTokens.apply(tokens, plan.row_place, plan.row_index, plan.row_is_padding)[None]


def has_full_rows(plan: Plan) -> bool:
    """Whether the rows of attention have no padding. A graph does not ask: one serves all batches."""
    return not torch.compiler.is_compiling() and plan.row_index.numel() == plan.row_place.numel()


# ---- Examples


class Targets(NamedTuple):
    """The tokens that a language-modelling loss predicts."""

    hidden_states: torch.Tensor  # [M, D], which predict
    ids: torch.LongTensor  # [M], to be predicted
    weights: torch.Tensor  # [M], of each −log P in the sum
    examples: torch.LongTensor  # [M], the example that each belongs to


@dataclass
class Sequences:
    """The B examples of a batch, as the decoder reads their sequences; those of an example follow one another."""

    input_ids: torch.LongTensor | None  # [S, T]
    attention_mask: torch.BoolTensor | None  # [S, T]
    lm_mask: torch.BoolTensor | None  # [S, T], False where a token is not a target
    is_present: torch.BoolTensor | None  # [B, C], False where an example has fewer choices
    positions: torch.LongTensor | int  # [S], position of the extract token
    shape: tuple[int, int]  # B, C
    decoder_inputs: dict[str, Any]
    plan: Plan | None  # the plan that is followed
    packed_index: torch.LongTensor | None  # [S, T], the plan's, if the decoder leaves padding out

    def extract(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states at the extract tokens, `[B, C, D]`: the task head's input."""
        num_examples, num_sequences = self.shape
        sequences = torch.arange(num_examples * num_sequences, device=hidden_states.device)
        if self.packed_index is None:
            extracted = hidden_states[sequences, self.positions]
        else:
            extracted = hidden_states[0, self.packed_index[sequences, self.positions]]
        return extracted.unflatten(0, self.shape)

    def padded(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The decoder's output as `[S, T, …]`, whose padding holds arbitrary finite values."""
        return hidden_states if self.packed_index is None else hidden_states[0, self.packed_index]

    def read_targets(self, hidden_states: torch.Tensor, counts: torch.LongTensor) -> Targets:
        """The targets of Σ L1 / C. A token that several sequences share is one target with their summed weight.

        Args:
            hidden_states: the decoder's output.
            counts (`[B]`): the weights of the examples.
        """
        if self.input_ids is None:
            raise UserError(
                "The auxiliary language-modelling loss needs `input_ids`, but only `inputs_embeds` were given. Pass "
                "`input_ids`, or set `config.lm_coef = 0`."
            )
        real_targets = next_tokens(self.input_ids, self.attention_mask)
        weights = self._weights_of(real_targets)
        if self.packed_index is not None:
            sources = self.plan.target_sources
            places = self.plan.token_index[self.plan.target_tokens]
            weights_of_tokens = weights.new_zeros(self.plan.num_tokens)
            weights_of_tokens.scatter_add_(0, self.packed_index.flatten(), weights.flatten())
            weights = weights_of_tokens[self.plan.target_tokens]
            if self.lm_mask is not None and can_read(weights):  # the head computes only what the loss reads
                is_read = weights > 0
                places, sources, weights = places[is_read], sources[is_read], weights[is_read]
        elif self.plan is not None:
            places, sources = predicted_places(self.attention_mask, real_targets, self.plan.num_targets)
            weights = weights.flatten()[places]
        else:
            places, sources = predicted_places(self.attention_mask, weights)
            weights = weights.flatten()[places]
        examples = places // (self.input_ids.shape[1] * self.shape[1])
        return Targets(
            hidden_states=hidden_states.flatten(0, 1).index_select(0, sources),
            ids=self.input_ids.flatten()[places],
            weights=weights * counts[examples],
            examples=examples,
        )

    def _weights_of(self, is_target: torch.BoolTensor) -> torch.Tensor:
        """The weight of each token in the sum of an example's L1 / C, `[S, T]`: 0 for those that are not targets."""
        if self.lm_mask is not None:
            is_target = is_target & self.lm_mask.bool()
        if self.is_present is None:
            of_sequences = torch.full(self.shape, 1 / self.shape[1], device=is_target.device)
        else:
            of_sequences = self.is_present / self.is_present.sum(-1, keepdim=True)
        num_targets = is_target.sum(-1).clamp(min=1)
        return is_target * (of_sequences.flatten() / num_targets)[:, None]


def read_sequences(
    model: PreTrainedModel,
    input_ids: torch.LongTensor | None = None,
    attention_mask: torch.Tensor | None = None,
    mc_token_ids: torch.LongTensor | None = None,
    choice_mask: torch.BoolTensor | None = None,
    lm_mask: torch.BoolTensor | None = None,
    token_type_ids: torch.LongTensor | None = None,
    position_ids: torch.LongTensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
    plan: Plan | None = None,
    **kwargs,
) -> Sequences:
    """The examples of a task model's arguments, see [`GPT1DoubleHeadsModel`]."""
    config = model.config
    mask = real_tokens(attention_mask)
    if TRAVERSALS[config.traversal].is_symmetric and input_ids is not None and input_ids.dim() == 2:
        input_ids = both_orders(input_ids, mask, config.delimiter_token_id)
        mask = None if mask is None else mask[:, None].expand(-1, 2, -1)
        mc_token_ids = None if mc_token_ids is None else mc_token_ids.reshape(-1, 1).expand(-1, 2)
    given = input_ids if inputs_embeds is None else inputs_embeds[..., 0]
    length = given.shape[-1]
    shape = (given.shape[0], count_sequences(config.traversal, given))  # B, C
    if choice_mask is not None and not has_choices(config.traversal):
        raise UserError(f"`choice_mask` is given, but traversal {config.traversal!r} has no choices. Leave it out.")
    if token_type_ids is not None and token_type_ids.shape[-1] == 1:  # a type for all tokens
        token_type_ids = token_type_ids.expand(*token_type_ids.shape[:-1], length)

    def flat(name: str, tensor: torch.Tensor | None, *more: int) -> torch.Tensor | None:
        return flatten_sequences(name, tensor, (*shape, *more))

    mask = flat("attention_mask", mask, length)
    is_present = flat("choice_mask", choice_mask)
    if is_present is not None:
        is_present = is_present.view(shape).bool()
    inputs = {
        "input_ids": flat("input_ids", input_ids, length),
        "attention_mask": mask,
        "token_type_ids": flat("token_type_ids", token_type_ids, length),
        "position_ids": flat("position_ids", position_ids, length),
        "inputs_embeds": flat("inputs_embeds", inputs_embeds, length, config.hidden_size),
    }
    positions = last_attended(mask, length) if mc_token_ids is None else flat("mc_token_ids", mc_token_ids)
    types = inputs["token_type_ids"]
    plan = plan_to_follow(model, plan, inputs["input_ids"], mask, token_type_ids=types, **kwargs)
    packed = packed_inputs(model, plan, inputs["input_ids"], token_type_ids=types, position_ids=position_ids)
    # Padding that is left out has no hidden states of its own.
    if can_read(given) or (packed is not None and mc_token_ids is not None):
        check_choices(is_present)
        check_extracted(positions, mask, is_present, shape, length)
    return Sequences(
        input_ids=inputs["input_ids"],
        attention_mask=mask,
        lm_mask=flat("lm_mask", lm_mask, length),
        is_present=is_present,
        positions=positions,
        shape=shape,
        decoder_inputs=padded_inputs(plan, inputs) if packed is None else packed,
        plan=plan,
        packed_index=None if packed is None else plan.packed_index,
    )


def count_sequences(traversal: str, tokens: torch.Tensor) -> int:
    """C of `tokens [B, C, T]`; 1 if that dimension is left out."""
    num_given = tokens.shape[1] if tokens.dim() == 3 else 1
    needed = TRAVERSALS[traversal].num_sequences
    if needed is None:
        fits = tokens.dim() == 3
        shape = "[B, C, T]"
    else:
        fits = tokens.dim() in (2, 3) and num_given == needed
        shape = "[B, T]" if needed == 1 else f"[B, {needed}, T]"
    if not fits:
        how = "TraversalCollator makes such batches."
        if needed == 1:
            how += ' For several sequences per example, give the configuration `traversal="multiple_choice"`.'
        raise UserError(
            f"The traversal {traversal!r} needs tokens of shape {shape}, but got {list(tokens.shape)}. {how}"
        )
    return num_given


def flatten_sequences(name: str, tensor: torch.Tensor | None, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Reshapes `[B, C, …]` to `[B · C, …]`; `tensor` must have this `shape`, but may omit a C of 1."""
    if tensor is None:
        return None
    if tensor.shape == shape:
        return tensor.flatten(0, 1)
    needed = shape
    if shape[1] == 1:
        needed = (shape[0], *shape[2:])
        if tensor.shape == needed:
            return tensor
    remedy = ""
    if name == "attention_mask":
        remedy = " Pass 1 for real tokens and 0 for padding, like `input_ids`."
    raise UserError(f"`{name}` needs shape {list(needed)} here, but got {list(tensor.shape)}.{remedy}")


def last_attended(attention_mask: torch.Tensor | None, length: int) -> torch.LongTensor | int:
    """Index `[S]` of each sequence's last real token, for padding on either side; −1 without a mask."""
    if attention_mask is None:
        return -1  # `length - 1` would fix the length of an exported program
    return length - 1 - attention_mask.flip(-1).long().argmax(-1)


def both_orders(
    input_ids: torch.LongTensor, attention_mask: torch.Tensor | None, delimiter_token_id: int | None
) -> torch.LongTensor:
    """Both orders `[B, 2, T]` of `[s] a [$] b [e]` in `[B, T]`: as given, and with the segments swapped."""
    real = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    if delimiter_token_id is None:
        is_delimiter = torch.zeros_like(input_ids, dtype=torch.bool)
    else:
        is_delimiter = (input_ids == delimiter_token_id) & real.bool()
    counts = is_delimiter.sum(-1)
    if torch.compiler.is_compiling():  # a graph cannot raise depending on values
        torch._assert_async((counts == 1).all(), "Similarity reads rows with one delimiter each.")
    elif (counts != 1).any():
        raise UserError(
            "Similarity reads both orders of a pair: `input_ids` of shape [B, 2, T], or rows `[s] a [$] b [e]` with "
            f"one delimiter (`config.delimiter_token_id` is {delimiter_token_id}), but the rows have "
            f"{counts.tolist()} delimiters. Give the tokenizer a `text` and a `text_pair`."
        )
    # Places `[B, 1]` of [s], [$] and [e], and of [$] in the reverse order.
    start = real.argmax(-1, keepdim=True)
    end = start + real.sum(-1, keepdim=True) - 1
    middle = is_delimiter.long().argmax(-1, keepdim=True)
    new_middle = start + end - middle
    places = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
    source = torch.where(places < new_middle, places - start + middle, places - new_middle + start)
    source = torch.where(places == new_middle, middle, source)
    source = torch.where((places <= start) | (places >= end), places, source)
    return torch.stack([input_ids, input_ids.gather(1, source)], dim=1)


# ---- Targets


def next_tokens(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.BoolTensor:
    """The targets of L1, `[S, T]`: every real token after the first real one of its sequence, wherever padding is."""
    real = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    return real.bool() & (real.cumsum(1) > 1)


def predicted_places(
    attention_mask: torch.BoolTensor | None, weights: torch.Tensor, num_targets: int | None = None
) -> tuple[torch.LongTensor, torch.LongTensor]:
    """Flat places of the targets of a padded batch, and of the real tokens that predict them, `[M]` each.

    Tokens with a weight `[S, T]` of 0 are left out; a compiled graph keeps them, because its shapes cannot depend on
    values. If `num_targets` is not given, the host waits for it.
    """
    places = torch.arange(weights.numel(), device=weights.device)
    previous = torch.arange(weights.shape[1], device=weights.device).expand_as(weights) - 1
    if attention_mask is not None:  # the last real token before each; padding within a sequence is skipped
        last_real = torch.where(attention_mask, previous + 1, 0).cummax(1).values
        previous = nn.functional.pad(last_real[:, :-1], (1, 0))
    starts = places.view_as(weights)[:, :1]  # of the sequences
    sources = (starts + previous.clamp(min=0)).flatten()
    if is_traced():
        return places, sources
    if num_targets is None:
        targets = weights.flatten().nonzero()[:, 0]
    else:
        targets = weights.flatten().nonzero_static(size=num_targets)[:, 0]
    return targets, sources.index_select(0, targets)


def read_labels(hidden_states: torch.Tensor, labels: torch.LongTensor, plan: Plan | None, is_packed: bool) -> Targets:
    """The targets of a language model's `labels [B, T]` without −100; each of the B is an example.

    `hidden_states` are those of all tokens `[B, T, D]`, or with `is_packed` of the plan's alone `[1, N, D]`. A plan
    has the places of the targets either way; labels of −100 there get the weight 0.
    """
    if plan is None:
        places = torch.arange(labels.numel(), device=labels.device).view_as(labels)[:, 1:]
        if is_traced():  # shapes of a graph cannot depend on values
            places = places.flatten()
        else:
            places = places[labels[:, 1:] != IGNORED_LABEL]
        sources = places - 1
    elif plan.token_index is None:
        places = plan.target_tokens
        sources = plan.target_sources
    else:
        places = plan.token_index.index_select(0, plan.target_tokens)
        sources = plan.target_sources if is_packed else places - 1
    ids = labels.flatten().index_select(0, places)
    return Targets(
        hidden_states=hidden_states.flatten(0, 1).index_select(0, sources),
        ids=ids.clamp(min=0),
        weights=ids.ne(IGNORED_LABEL).float(),
        examples=places // labels.shape[1],
    )

# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""A batch as the decoder reads it: padded, or by the plan that came with it; its extract positions and its targets.

A plan (`BatchPlan` of the package `tokenization`) is made where the batch is made. Without one the batch is padded, as
for every model of transformers. With one the decoder computes each real token once, all in one row, and only attention
needs rows of its own: the modules of `modeling_gpt1.py` move its inputs there and back.

Sources: figure 1 and section 3.3 of "Improving Language Understanding by Generative Pre-Training"; the targets of L1
and their weights are those of the released code
(https://github.com/openai/finetune-transformer-lm/blob/master/train.py).

Shapes: B examples, C sequences per example, S = B · C, T tokens of a padded sequence, D hidden; N tokens that a plan
computes; R rows of attention of at most L tokens; M targets.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, flash_attention_mask, sdpa_mask
from transformers.utils import logging

from .configuration_gpt1 import FULL_ATTENTION, SLIDING_ATTENTION, TRAVERSALS, UserError

logger = logging.get_logger(__name__)

# How attention keeps packed sequences apart, by the function of transformers that makes its masks.
MASKED_ROWS, VARIABLE_LENGTH = "masked rows", "variable length"
WAYS_OF_PACKING = {sdpa_mask: MASKED_ROWS, flash_attention_mask: VARIABLE_LENGTH}

Targets = tuple[torch.Tensor, torch.LongTensor, torch.Tensor, torch.LongTensor]  # [M, D], and ids, weights, rows [M]


# ---- Following a plan


def plan_to_follow(
    model: PreTrainedModel,
    plan: Any | None,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    labels: torch.Tensor | None = None,
    **kwargs,
) -> Any | None:
    """The plan on the batch's device; `None` if there is none, if it belongs to another batch, or if padding is read.

    Values are compared on the CPU, where a plan that does not fit is left out with a warning. Another device compares
    them without the host, and stops with the same sentence. The batch is `[S, T]`; `labels` are a language model's.
    """
    if plan is None or input_ids is None or input_ids.is_meta:
        return None
    config = model.config
    reads_padding = not kwargs.get("is_causal", getattr(config, "is_causal", True)) or any(
        kwargs.get(name, getattr(config, name)) for name in ("output_hidden_states", "output_attentions")
    )
    if reads_padding or is_traced():
        return None
    if getattr(model.get_input_embeddings(), "neftune_noise_alpha", None):  # this noise depends on the padded length
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
    is_real = plan.is_real
    fits = (is_real if attention_mask is None else is_real.eq(attention_mask)).all()
    if plan.row_is_shared is not None:
        fits = fits & (input_ids.take(plan.token_index)[plan.packed_index].eq(input_ids) | ~is_real).all()
    if labels is not None:
        fits = fits & (labels.eq(-100) | is_real)[:, 1:].all()
    if not can_read(fits):
        torch._assert_async(fits, refusal)
    elif not fits:
        logger.warning_once(refusal)
        return None
    return plan


def way_of_packing(config: PreTrainedConfig) -> str | None:
    """How the attention that a model uses keeps packed sequences apart; `None` if it cannot."""
    return WAYS_OF_PACKING.get(ALL_MASK_ATTENTION_FUNCTIONS.get(config._attn_implementation))


def row_masks(plan: Any, sliding_window: int | None) -> dict[str, torch.BoolTensor | None]:
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
    return {FULL_ATTENTION: mask, SLIDING_ATTENTION: band.tril() if mask is None else band & mask}


def lengths_for_flash_attention(starts: torch.IntTensor, longest: int) -> dict:
    """Arguments of transformers' flash attention; `starts` `[R + 1]`: index of each row's first token, and N."""
    return {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": longest, "max_length_k": longest}


# ---- Examples


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
    plan: Any | None  # the plan that is followed
    packed_index: torch.LongTensor | None  # [S, T], the plan's, if the decoder leaves padding out

    def extract(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states at the extract tokens, `[B, C, D]`: the task head's input."""
        rows = torch.arange(self.shape[0] * self.shape[1], device=hidden_states.device)
        places = (rows, self.positions) if self.packed_index is None else (0, self.packed_index[rows, self.positions])
        return hidden_states[places].unflatten(0, self.shape)

    def padded(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The decoder's output as `[S, T, …]`, whose padding holds arbitrary finite values."""
        return hidden_states if self.packed_index is None else hidden_states[0, self.packed_index]

    def read_targets(self, hidden_states: torch.Tensor, counts: torch.LongTensor) -> Targets:
        """The targets of Σ L1 / C: predicting hidden states `[M, D]`, ids, weights and examples `[M]`.

        A token that several sequences share is one target with their summed weight. `counts [B]` weigh the examples.
        """
        if self.input_ids is None:
            needs = "The auxiliary language-modelling loss needs `input_ids`, but only `inputs_embeds` were given"
            raise UserError(f"{needs}. Pass `input_ids`, or set `config.lm_coef = 0`.")
        is_target = real_targets = next_tokens(self.input_ids, self.attention_mask)
        if self.lm_mask is not None:
            is_target = is_target & self.lm_mask.bool()
        if self.is_present is None:
            of_sequences = torch.full(self.shape, 1 / self.shape[1], device=is_target.device)
        else:
            of_sequences = self.is_present / self.is_present.sum(-1, keepdim=True)
        weights = is_target * (of_sequences.flatten() / is_target.sum(-1).clamp(min=1))[:, None]  # [S, T]
        if self.packed_index is not None:
            sources, places = self.plan.target_sources, self.plan.token_index[self.plan.target_tokens]
            weights_of_tokens = weights.new_zeros(self.plan.num_tokens)
            weights_of_tokens.scatter_add_(0, self.packed_index.flatten(), weights.flatten())
            weights = weights_of_tokens[self.plan.target_tokens]
        else:
            counted = (weights, None) if self.plan is None else (real_targets, self.plan.num_targets)
            places, sources = predicted_places(self.attention_mask, *counted)
            weights = weights.flatten()[places]
        examples = places // (self.input_ids.shape[1] * self.shape[1])
        ids, predicting = self.input_ids.flatten()[places], hidden_states.flatten(0, 1).index_select(0, sources)
        return predicting, ids, weights * counts[examples], examples


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
    plan: Any | None = None,
    **kwargs,
) -> Sequences:
    """The examples of a task model's arguments, see [`GPT1DoubleHeadsModel`]."""
    config, mask = model.config, real_tokens(attention_mask)
    if config.traversal == "similarity" and input_ids is not None and input_ids.dim() == 2:
        input_ids = both_orders(input_ids, mask, config.delimiter_token_id)
        mask = None if mask is None else mask[:, None].expand(-1, 2, -1)
        mc_token_ids = None if mc_token_ids is None else mc_token_ids.reshape(-1, 1).expand(-1, 2)
    given = input_ids if inputs_embeds is None else inputs_embeds[..., 0]
    shape, length = (given.shape[0], count_sequences(config.traversal, given)), given.shape[-1]

    def flat(name: str, tensor: torch.Tensor | None, *more: int) -> torch.Tensor | None:
        return flatten_sequences(name, tensor, (*shape, *more))

    if choice_mask is not None and TRAVERSALS[config.traversal] is not None:
        raise UserError(f"`choice_mask` is given, but traversal {config.traversal!r} has no choices. Leave it out.")
    if token_type_ids is not None and token_type_ids.shape[-1] == 1:  # a type for all tokens
        token_type_ids = token_type_ids.expand(*token_type_ids.shape[:-1], length)
    mask, is_present = flat("attention_mask", mask, length), flat("choice_mask", choice_mask)
    is_present = None if is_present is None else is_present.view(shape).bool()
    inputs = {
        "input_ids": flat("input_ids", input_ids, length),
        "attention_mask": mask,
        "token_type_ids": flat("token_type_ids", token_type_ids, length),
        "position_ids": flat("position_ids", position_ids, length),
        "inputs_embeds": flat("inputs_embeds", inputs_embeds, length, config.hidden_size),
    }
    positions = last_attended(mask, length) if mc_token_ids is None else flat("mc_token_ids", mc_token_ids)
    plan = plan_to_follow(model, plan, inputs["input_ids"], mask, **kwargs)
    for_decoder = packed_inputs(model, plan, inputs["input_ids"], token_type_ids, position_ids)
    packed_index = None if for_decoder is None else plan.packed_index
    if can_read(given) or (for_decoder and mc_token_ids is not None):  # padding has no hidden states of its own
        check_extracted(positions, mask, is_present, (*shape, length))
    if for_decoder is None:
        is_planned = plan is not None and position_ids is None and not can_read(given)
        for_decoder = inputs | {"attention_mask": None} if is_planned else inputs  # a mask would make the host wait
    lm_mask = flat("lm_mask", lm_mask, length)
    return Sequences(inputs["input_ids"], mask, lm_mask, is_present, positions, shape, for_decoder, plan, packed_index)


def packed_inputs(model: PreTrainedModel, plan: Any | None, input_ids: torch.LongTensor, *others) -> dict | None:
    """Arguments for the decoder that follows a plan, with all that its attention needs; `input_ids [S, T]`.

    `None` if it computes padding, too: by the plan, by attention that cannot keep sequences apart, or because it reads
    `others` with their padding or refuses the length.
    """
    config, way = model.config, way_of_packing(model.config) if model._supports_attention_backend else None
    is_packed = plan is not None and plan.token_index is not None and way is not None and model.pack_sequences
    if not is_packed or input_ids.shape[1] > config.max_position_embeddings or others != (None,) * len(others):
        return None
    if way == VARIABLE_LENGTH and plan.row_is_shared is not None:  # without masks, nothing can be shared
        return None
    inputs = {"input_ids": input_ids.take(plan.token_index)[None], "position_ids": plan.position_ids}
    if way == MASKED_ROWS:
        return {**inputs, "attention_mask": row_masks(plan, config.sliding_window), "rows": plan}
    starts = nn.functional.pad(plan.row_index[:, 0], (0, 1), value=plan.num_tokens).int()
    no_masks = dict.fromkeys((FULL_ATTENTION, SLIDING_ATTENTION))
    longest = input_ids.shape[1] if plan.row_index.shape[1] == 1 else plan.row_index.shape[1]
    return {**inputs, "attention_mask": no_masks, **lengths_for_flash_attention(starts, longest)}


def count_sequences(traversal: str, tokens: torch.Tensor) -> int:
    """C of `tokens [B, C, T]`; 1 if that dimension is left out."""
    num_choices = tokens.shape[1] if tokens.dim() == 3 else 1
    needed = TRAVERSALS[traversal]
    fits = tokens.dim() == 3 if needed is None else num_choices == needed
    if not fits or tokens.dim() not in (2, 3):
        shape = {None: "[B, C, T]", 1: "[B, T]", 2: "[B, 2, T]"}[needed]
        needs = f"The traversal {traversal!r} needs tokens of shape {shape}, but got {list(tokens.shape)}"
        raise UserError(f"{needs}. TraversalCollator makes such batches.")
    return num_choices


def flatten_sequences(name: str, tensor: torch.Tensor | None, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Reshapes `[B, C, …]` to `[B · C, …]`; `tensor` must have this `shape`, but may omit a C of 1."""
    if tensor is None:
        return None
    if tensor.shape == shape:
        return tensor.flatten(0, 1)
    if shape[1] == 1 and tensor.shape == shape[:1] + shape[2:]:
        return tensor
    remedy = " Pass 1 for real tokens and 0 for padding, like `input_ids`." if name == "attention_mask" else ""
    needed = list(shape[:1] + shape[2:] if shape[1] == 1 else shape)
    raise UserError(f"`{name}` needs shape {needed} here, but got {list(tensor.shape)}.{remedy}")


def last_attended(attention_mask: torch.Tensor | None, length: int) -> torch.LongTensor | int:
    """Index `[S]` of each sequence's last real token, for padding on either side; −1 without a mask."""
    if attention_mask is None:
        return -1  # `length - 1` would fix the length of an exported program
    return length - 1 - attention_mask.flip(-1).long().argmax(-1)


def both_orders(
    input_ids: torch.LongTensor, attention_mask: torch.Tensor | None, delimiter_token_id: int | None
) -> torch.LongTensor:
    """Both orders `[B, 2, T]` of rows `[s] a [$] b [e]` in `[B, T]`: as given, and with the segments swapped."""
    real = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    is_delimiter = (input_ids == delimiter_token_id) & real.bool() if delimiter_token_id is not None else real < 0
    counts = is_delimiter.sum(-1)
    if torch.compiler.is_compiling():  # a graph cannot raise depending on values
        torch._assert_async((counts == 1).all(), "Similarity reads rows with one delimiter each.")
    elif (counts != 1).any():
        raise UserError(
            "Similarity reads both orders of a pair: `input_ids` of shape [B, 2, T], or rows `[s] a [$] b [e]` with "
            f"one delimiter (`config.delimiter_token_id` is {delimiter_token_id}), but the rows have "
            f"{counts.tolist()} delimiters. Give the tokenizer a `text` and a `text_pair`."
        )
    places = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
    start = real.argmax(-1, keepdim=True)
    end = start + real.sum(-1, keepdim=True) - 1
    middle = is_delimiter.long().argmax(-1, keepdim=True)
    new_middle = start + end - middle
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
    sources = (places.view_as(weights)[:, :1] + previous.clamp(min=0)).flatten()
    if not is_traced():
        is_target = weights.flatten()
        places = is_target.nonzero() if num_targets is None else is_target.nonzero_static(size=num_targets)
        places = places[:, 0]
        sources = sources.index_select(0, places)
    return places, sources


def read_labels(hidden_states: torch.Tensor, labels: torch.LongTensor, plan: Any | None) -> Targets:
    """The targets of a language model's `labels [B, T]` without −100, as in [`Sequences.read_targets`].

    A plan has their places, also if its tokens were not packed; labels of −100 there get the weight 0.
    """
    if plan is not None:
        sources, places = plan.target_sources, plan.target_tokens
        if plan.token_index is not None:
            places = plan.token_index.index_select(0, places)
            sources = places - 1 if hidden_states.shape[:2] == labels.shape else sources
    else:
        places = torch.arange(labels.numel(), device=labels.device).view_as(labels)[:, 1:]
        # Shapes of a graph cannot depend on values.
        places = places.flatten() if is_traced() else places[labels[:, 1:] != -100]
        sources = places - 1
    ids = labels.flatten().index_select(0, places)
    weights = ids.ne(-100).float()
    rows = places // labels.shape[1]
    return hidden_states.flatten(0, 1).index_select(0, sources), ids.clamp(min=0), weights, rows


# ---- Checks. Shapes and types are always checked, values on the CPU alone: no check makes the host wait.


def can_read(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values can be read: on the CPU, without waiting for a device, and outside of a graph."""
    return tensor.device.type == "cpu" and not is_traced()


def is_traced() -> bool:
    """Whether a graph is made or `torch.func` transforms the call, so that tensors may have no values."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active()


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor has an integer dtype."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def first_place(is_wrong: torch.BoolTensor) -> tuple[int, ...]:
    """Indices of the first true value."""
    return tuple(is_wrong.nonzero()[0].tolist())


def real_tokens(attention_mask: torch.Tensor | None) -> torch.BoolTensor | None:
    """Converts a mask of 0 and 1, of any shape and type, to booleans."""
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return attention_mask
    is_real = attention_mask.bool()
    if can_read(attention_mask) and not attention_mask.eq(is_real).all():
        raise UserError(
            f"`attention_mask` has the value {attention_mask[attention_mask != is_real][0].item()}, but only 1 (a "
            "real token) and 0 (padding) are valid. Correct the mask, or leave it out if nothing is padded."
        )
    return is_real


def check_extracted(
    positions: torch.LongTensor | int,
    attention_mask: torch.BoolTensor | None,
    is_present: torch.BoolTensor | None,
    shape: tuple[int, int, int],
) -> None:
    """Checks that each example has a choice, and that the task head reads each sequence at one of its real tokens."""
    if is_present is not None and can_read(is_present) and not is_present.any(1).all():
        absent = f"`choice_mask` marks every choice of example {first_place(~is_present.any(1))[0]} as absent"
        raise UserError(f"{absent}. Remove the example or correct the mask.")
    if isinstance(positions, int):
        return
    places = positions.clamp(0, shape[-1] - 1)
    is_wrong = places != positions
    if attention_mask is not None:
        is_wrong = is_wrong | ~attention_mask.gather(1, places[:, None])[:, 0]
    is_wrong = is_wrong.view(shape[:2])
    if is_present is not None:
        is_wrong = is_wrong & is_present
    if not can_read(is_wrong):
        torch._assert_async(~is_wrong.any(), "`mc_token_ids` has a position in padding. Correct or leave it out.")
    elif is_wrong.any():
        example, choice = first_place(is_wrong)
        position = positions.view(shape[:2])[example, choice].item()
        raise UserError(
            f"Sequence {choice} of example {example} has no real token at {position}, where its extract token was "
            "expected. Correct `attention_mask`, leave `mc_token_ids` out to read the last real token, or set "
            "`choice_mask` to False for a choice that the example does not have."
        )

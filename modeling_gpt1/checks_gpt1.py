# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks of the models' arguments: what cannot be computed is refused in a sentence.

Shapes and types are always checked, values on the CPU alone: no check makes the host wait for its device.

Shapes: B examples, C sequences per example, S = B · C, T tokens, D hidden, V vocabulary.
"""

import torch
from transformers import PreTrainedConfig
from transformers.utils import logging

from .configuration_gpt1 import IGNORED_LABEL, TRAVERSALS, UserError

logger = logging.get_logger(__name__)


# ---- Questions about a tensor


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


# ---- Tokens and targets


def check_exactly_one(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
    """Checks that a call gives tokens in one of the two ways."""
    if (input_ids is None) == (inputs_embeds is None):
        raise UserError("Exactly one of `input_ids` and `inputs_embeds` is needed.")


def check_ids(name: str, ids: torch.Tensor, vocab_size: int, ignored: int | None = None) -> None:
    """Checks that all ids are in the vocabulary or equal `ignored`."""
    if not is_whole(ids):
        raise UserError(f"`{name}` must contain token ids (torch.int64), but got {ids.dtype}.")
    if not can_read(ids):
        return
    is_wrong = (ids < 0) | (ids >= vocab_size)
    exception = ""
    if ignored is not None:
        is_wrong = is_wrong & (ids != ignored)
        exception = f", and {ignored} marks tokens without a target"
    if is_wrong.any():
        place = first_place(is_wrong)
        raise UserError(
            f"`{name}` has {ids[place].item()} at {list(place)}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}{exception}. Use the model's own tokenizer; if tokens were added to it, call "
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
    if inputs_embeds is None:
        check_shape_of_tokens("input_ids", input_ids, "[B, T]", fits=input_ids.dim() == 2)
        check_ids("input_ids", input_ids, config.vocab_size)
    else:
        fits = inputs_embeds.dim() == 3 and inputs_embeds.shape[2] == config.hidden_size
        check_shape_of_tokens("inputs_embeds", inputs_embeds, f"[B, T, {config.hidden_size}]", fits)
    if token_type_ids is not None:
        check_ids("token_type_ids", token_type_ids, config.vocab_size)


def check_shape_of_tokens(name: str, tokens: torch.Tensor, needed: str, fits: bool) -> None:
    """Checks that tokens have the shape that is `needed`, and that there are any."""
    if not fits or not tokens.numel():
        raise UserError(
            f"`{name}` needs the shape {needed}, at least one row and one token, but got {list(tokens.shape)}."
        )


def check_targets(targets: torch.Tensor, tokens: torch.Tensor, vocab_size: int) -> None:
    """Checks that each of `tokens [B, T, …]` has a target: an id, or −100 for none."""
    needed = tokens.shape[:2]
    if targets.shape != needed:
        raise UserError(
            f"`labels` needs the shape {list(needed)}, one for each token, but got {list(targets.shape)}. Pass a copy "
            f"of `input_ids`, with {IGNORED_LABEL} at tokens without a target."
        )
    check_ids("labels", targets, vocab_size, ignored=IGNORED_LABEL)


def check_token_labels(labels: torch.Tensor, logits: torch.Tensor) -> None:
    """Checks that each token has a class that the model with `logits [B, T, K]` has, or −100 for none."""
    *needed, num_labels = logits.shape
    if list(labels.shape) != needed or not is_whole(labels):
        raise UserError(
            f"`labels` need the shape {needed} of torch.int64, the class of each token, but got {list(labels.shape)} "
            f"of {labels.dtype}. Use DataCollatorForTokenClassification, with {IGNORED_LABEL} at tokens without a "
            "class."
        )
    if not can_read(labels):
        return
    is_wrong = ((labels < 0) | (labels >= num_labels)) & (labels != IGNORED_LABEL)
    if is_wrong.any():
        place = first_place(is_wrong)
        raise UserError(
            f"`labels` has {labels[place].item()} at {list(place)}, but the model has classes 0 to {num_labels - 1}, "
            f"and {IGNORED_LABEL} marks tokens without one. Open the model with `num_labels` of your data."
        )


def check_length(
    config: PreTrainedConfig, num_past: int | torch.Tensor, num_new: int, position_ids: torch.Tensor | None = None
) -> None:
    """Checks that the model has enough positions for a sequence."""
    if position_ids is not None:  # several sequences may share a batch row, or one begin behind the first position
        length = int(position_ids.max()) + 1 if can_read(position_ids) else 0
        if can_read(position_ids) and position_ids.min() < 0:
            place = first_place(position_ids < 0)
            raise UserError(
                f"`position_ids` has {position_ids[place].item()} at {list(place)}, but positions begin at 0. Ranks "
                "among the real tokens need `.clamp(min=0)` at padding; or leave `position_ids` out."
            )
    else:
        length = (known_length(num_past) or 0) + num_new
    limit = config.max_position_embeddings
    if length > limit:
        raise UserError(
            f"The sequence has {length} tokens, but the model has only {limit} positions (`max_position_embeddings`). "
            "Shorten the input: pass `truncation=True, max_length=…` to the tokenizer, `max_length` to the collator, "
            "`block_length` to `load_blocks` or a smaller `max_new_tokens` to `generate`."
        )


def check_no_past(num_past: int | torch.Tensor) -> None:
    """Checks that a cache is empty where the backward pass would write into it again."""
    length = known_length(num_past)
    if length != 0:
        number = "" if length is None else f"{length} "
        raise UserError(
            f"The cache holds {number}tokens, but with gradient checkpointing the backward pass would write into it "
            "again. Call `model.gradient_checkpointing_disable()`, pass all tokens at once without a cache, or, if "
            "nothing is trained, call the model in `torch.no_grad()`."
        )


def known_length(num_past: int | torch.Tensor) -> int | None:
    """The length of a cache; `None` where reading it would break a graph or wait at each token.

    A static cache keeps its length on the device.
    """
    if not isinstance(num_past, torch.Tensor):
        return num_past
    return int(num_past) if can_read(num_past) else None


# ---- Masks


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


def padding_mask(
    attention_mask: torch.Tensor | dict | None, inputs_embeds: torch.Tensor, num_past: int | torch.Tensor
) -> torch.Tensor | dict | None:
    """The decoder's attention mask, checked; a padding mask `[B, past + T]` is converted to booleans."""
    if not isinstance(attention_mask, torch.Tensor):
        return attention_mask
    if attention_mask.dim() == 4 and not is_whole(attention_mask):
        return attention_mask
    batch_size, length = inputs_embeds.shape[:2]
    num_past = known_length(num_past)
    if num_past is None:
        num_past = attention_mask.shape[-1] - length
    needed = [batch_size, num_past + length]
    if attention_mask.dim() != 2 or list(attention_mask.shape) != needed:
        raise UserError(
            f"`attention_mask` needs the shape {needed}, one column for each token, including those in the cache, but "
            f"got {list(attention_mask.shape)} of {attention_mask.dtype}. A mask of pairs of tokens needs the shape "
            "[B, 1, T, past + T], and must be boolean, or hold numbers to add to the scores."
        )
    return real_tokens(attention_mask)


# ---- Examples of a task


def check_choices(is_present: torch.BoolTensor | None) -> None:
    """Checks that each example has a choice, `[B, C]`."""
    if is_present is None or not can_read(is_present):
        return
    has_none = ~is_present.any(1)
    if has_none.any():
        raise UserError(
            f"`choice_mask` marks every choice of example {first_place(has_none)[0]} as absent. Remove the example or "
            "correct the mask."
        )


def check_extracted(
    positions: torch.LongTensor | int,
    attention_mask: torch.BoolTensor | None,
    is_present: torch.BoolTensor | None,
    shape: tuple[int, int],
    length: int,
) -> None:
    """Checks that the task head reads each sequence at one of its real tokens.

    Args:
        positions (`[S]`): the extract positions; a number is that of sequences without padding.
        attention_mask (`[S, T]`): True for real tokens.
        is_present (`[B, C]`): False where an example has fewer choices.
        shape: B and C.
        length: T.
    """
    if isinstance(positions, int):
        return
    places = positions.clamp(0, length - 1)
    is_wrong = places != positions
    if attention_mask is not None:
        is_wrong = is_wrong | ~attention_mask.gather(1, places[:, None])[:, 0]
    is_wrong = is_wrong.view(shape)
    if is_present is not None:
        is_wrong = is_wrong & is_present
    if not can_read(is_wrong):
        torch._assert_async(~is_wrong.any(), "`mc_token_ids` has a position in padding. Correct or leave it out.")
    elif is_wrong.any():
        example, choice = first_place(is_wrong)
        position = positions.view(shape)[example, choice].item()
        raise UserError(
            f"Sequence {choice} of example {example} has no real token at {position}, where its extract token was "
            "expected. Correct `attention_mask`, leave `mc_token_ids` out to read the last real token, or set "
            "`choice_mask` to False for a choice that the example does not have."
        )


def check_texts(config: PreTrainedConfig, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None) -> None:
    """Warns if texts lack the control tokens that the task head reads, or are one for a pair or the reverse."""
    extract_id = -1 if config.extract_token_id is None else config.extract_token_id
    is_lacking = (input_ids != extract_id).all(-1)
    if attention_mask is not None:
        is_lacking = is_lacking & attention_mask.bool().any(-1).view_as(is_lacking)
    if is_lacking.any():
        logger.warning(
            f"{int(is_lacking.sum())} of {is_lacking.numel()} sequences of the first batch lack the extract token [e] "
            f"(`config.extract_token_id` is {config.extract_token_id}), at which the task head reads them: their "
            "texts were encoded without [s], [$] and [e], and the head reads the last token. Call "
            "`add_control_tokens(tokenizer, model)` (`from modeling_gpt1 import add_control_tokens`) after loading "
            "both and before encoding texts; for a pipeline, call `add_control_tokens(pipe.tokenizer, pipe.model)`."
        )
        return
    if input_ids.dim() != 2 or config.delimiter_token_id is None:
        return
    has_delimiter = (input_ids == config.delimiter_token_id).any(-1)
    if TRAVERSALS[config.traversal].num_segments > 1:
        is_wrong = ~has_delimiter
        needed = "`text` and `text_pair`"
    elif config.columns is not None:  # a script without columns may have trained on pairs
        is_wrong = has_delimiter
        needed = "`text` alone"
    else:
        return
    if is_wrong.any():
        logger.warning(
            f"{int(is_wrong.sum())} of {len(is_wrong)} sequences of the first batch are not what the traversal "
            f"{config.traversal!r} was trained on. Give the tokenizer or the pipeline {needed}."
        )

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
"""Checks of models and configurations: each refuses shapes that do not fit, or invalid values, with one sentence.

Shapes and types are always checked. Values are read only if they are on the CPU or the host waits for the device
anyway, so no check makes a step on an accelerator wait.

Shapes: B examples, C sequences per example, T tokens, S = B · C.
"""

import os
import re
from functools import wraps

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")


class GPT1ConfigError(StrictDataclassError, ValueError):
    """A configuration field has the wrong type or an impossible value; the message is one sentence about it."""


def in_a_sentence(config_class: type) -> type:
    """Decorator above `@strict`: it turns errors into [`GPT1ConfigError`], whose text omits the names of checks."""

    def tell(method):
        @wraps(method)
        def told(self, *args, **kwargs):
            try:
                return method(self, *args, **kwargs)
            except GPT1ConfigError:
                raise
            except StrictDataclassError as error:
                cause, text = error.__cause__, str(error.__cause__)
                if method.__name__ == "__strict_setattr__":
                    name, value = args
                    kind = getattr(self.__dataclass_fields__[name].type, "__name__", None)
                    kind = kind or self.__dataclass_fields__[name].type
                    needed = f"it must be of type {kind}" if isinstance(cause, TypeError) else text
                    text = f"`{name}` is {value!r}, but {needed}."
                raise GPT1ConfigError(text) from cause

        return told

    for name in ("__init__", "__setattr__", "validate"):
        setattr(config_class, name, tell(getattr(config_class, name)))
    return config_class


def check_num_labels(num_labels: int):
    if not isinstance(num_labels, int) or isinstance(num_labels, bool) or num_labels < 1:
        raise ValueError(
            f"`num_labels` is {num_labels!r}, but it must be a whole number of at least 1: the number of classes, or "
            "1 for regression."
        )


def check_problem_type(problem_type: str | None):
    if problem_type is not None and problem_type not in PROBLEM_TYPES:
        raise ValueError(
            f"`problem_type` is {problem_type!r}, but it must be one of {', '.join(PROBLEM_TYPES)}, or None: "
            "regression where `num_labels` is 1, else one class for each example."
        )


def check_place(name: str | os.PathLike):
    """Checks that a name is an existing file or folder, or could be a model on the hub.

    Raises:
        OSError: the name is neither.
    """
    name = os.fspath(name)
    if not os.path.exists(name) and re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", name) is None:
        raise OSError(
            f"{name!r} is neither an existing folder nor a model name on the hub (`owner/name`). Give a folder that "
            "`save_pretrained` wrote, with `config.json` in it."
        )


def can_read(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values can be read: on the CPU, without waiting for a device, and outside of a graph."""
    return tensor.device.type == "cpu" and not (torch.compiler.is_compiling() or torch.jit.is_tracing())


def first_place(is_wrong: torch.BoolTensor) -> tuple[int, ...]:
    """Indices of the first true value."""
    return tuple(is_wrong.nonzero()[0].tolist())


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor has an integer dtype."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def check_exactly_one(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
    """Checks that a call has exactly one of the two inputs."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Exactly one of `input_ids` and `inputs_embeds` is needed.")


def check_not_empty(name: str, shape: torch.Size) -> None:
    """Checks that a batch has at least one row and one token."""
    if 0 in shape:
        raise ValueError(
            f"`{name}` has the shape {list(shape)}, but a batch needs at least one row and one token. Skip empty "
            "batches, and give every text at least one token."
        )


def check_tokens(
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
) -> None:
    """Checks the decoder's `input_ids [B, T]` or `inputs_embeds [B, T, D]`, and its `token_type_ids`.

    Raises:
        ValueError: neither or both are given; the shape or type is wrong; an id has no embedding.
    """
    check_exactly_one(input_ids, inputs_embeds)
    name, given = ("input_ids", input_ids) if inputs_embeds is None else ("inputs_embeds", inputs_embeds)
    needed = ["B", "T"] if inputs_embeds is None else ["B", "T", config.hidden_size]
    if given.dim() != len(needed) or (inputs_embeds is not None and given.shape[2] != config.hidden_size):
        raise ValueError(
            f"`{name}` needs the shape [{', '.join(map(str, needed))}], rows of tokens, but got {list(given.shape)}."
        )
    check_not_empty(name, given.shape)
    if inputs_embeds is None:
        check_ids("input_ids", input_ids, config.vocab_size)
    if token_type_ids is not None:
        if token_type_ids.shape not in (given.shape[:2], (1, given.shape[1])):
            raise ValueError(
                f"`token_type_ids` needs the shape {list(given.shape[:2])}, one id per token, but got "
                f"{list(token_type_ids.shape)}."
            )
        check_ids("token_type_ids", token_type_ids, config.vocab_size)


def check_ids(name: str, ids: torch.Tensor, vocab_size: int, ignored: int | None = None) -> None:
    """Checks that all ids are in the vocabulary or equal `ignored`.

    Raises:
        ValueError: the type is wrong, or an id is not in the vocabulary.
    """
    if not is_whole(ids):
        raise ValueError(f"`{name}` must contain token ids (torch.int64), but got {ids.dtype}.")
    if not can_read(ids):
        return
    is_wrong = (ids < 0) | (ids >= vocab_size)
    is_wrong = is_wrong if ignored is None else is_wrong & (ids != ignored)
    if is_wrong.any():
        place = first_place(is_wrong)
        others = "" if ignored is None else f", and {ignored} marks tokens without a target"
        raise ValueError(
            f"`{name}` has {ids[place].item()} at {list(place)}, but the vocabulary has ids 0 to "
            f"{vocab_size - 1}{others}. Use the model's own tokenizer; if tokens were added to it, call "
            "`model.resize_token_embeddings(len(tokenizer))`."
        )


def warn_of_ended_prompts(config: PreTrainedConfig, input_ids: torch.Tensor | None) -> None:
    """Warns once if one of the `[B, T]` prompts ends in the extract token: no model was trained on tokens after it."""
    if config.extract_token_id is None or not isinstance(input_ids, torch.Tensor) or not input_ids.numel():
        return
    if can_read(input_ids) and (input_ids[..., -1] == config.extract_token_id).any():
        logger.warning_once(
            "A prompt ends with the extract token [e], and the model was not trained on any token after it. Encode "
            "prompts without it: pass `add_special_tokens=False`, or open the tokenizer with `add_bos_token=True`."
        )


def check_position_ids(config: PreTrainedConfig, position_ids: torch.Tensor | None, shape: torch.Size) -> None:
    """Checks that there is a valid position for each of `[B, T]` tokens.

    Raises:
        ValueError: the shape or type is wrong; the model lacks a position.
    """
    if position_ids is None:
        return
    if position_ids.shape not in (shape, (1, shape[1])) or not is_whole(position_ids):
        raise ValueError(
            f"`position_ids` needs the shape {list(shape)}, a whole number for each token, but got "
            f"{list(position_ids.shape)} of {position_ids.dtype}."
        )
    limit = config.max_position_embeddings
    if can_read(position_ids):
        is_wrong = (position_ids < 0) | (position_ids >= limit)
        if is_wrong.any():
            raise ValueError(
                f"`position_ids` has {position_ids[is_wrong][0].item()}, but the model has positions 0 to {limit - 1} "
                f"(`max_position_embeddings` is {limit})."
            )


def check_targets(targets: torch.Tensor | None, hidden_states: torch.Tensor, vocab_size: int) -> None:
    """Checks that each of `hidden_states [B, T, D]` has a target: an id or −100.

    Raises:
        ValueError: the shape or type is wrong; an id is not in the vocabulary.
    """
    if targets is None:
        return
    needed = hidden_states.shape[:2]
    if targets.shape != needed:
        raise ValueError(
            f"`labels` needs the shape {list(needed)}, one for each token, but got {list(targets.shape)}. Pass a copy "
            "of `input_ids`, with -100 at tokens without a target."
        )
    check_ids("labels", targets, vocab_size, ignored=-100)


def real_tokens(attention_mask: torch.Tensor | None) -> torch.BoolTensor | None:
    """Converts a mask of 0 and 1, of any shape and type, to booleans.

    Raises:
        ValueError: a value is neither 0 nor 1.
    """
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return attention_mask
    if can_read(attention_mask):
        is_wrong = attention_mask != attention_mask.bool()
        if is_wrong.any():
            raise ValueError(
                f"`attention_mask` has the value {attention_mask[is_wrong][0].item()}, but only 1 (a real token) and "
                "0 (padding) are valid. Correct the mask, or leave it out if nothing is padded."
            )
    return attention_mask.bool()


def padding_mask(
    attention_mask: torch.Tensor | dict | None, inputs_embeds: torch.Tensor, num_past: int | torch.Tensor
) -> torch.Tensor | dict | None:
    """The decoder's attention mask; a padding mask is converted to booleans.

    Args:
        attention_mask (`[B, past + T]`, or ready masks): see the decoder's `forward`.
        inputs_embeds (`[B, T, D]`): the new tokens.
        num_past (`int`): number of tokens in the cache.

    Raises:
        ValueError: the shape is wrong, or a value of a padding mask is neither 0 nor 1.
    """
    if not isinstance(attention_mask, torch.Tensor):
        return attention_mask
    num_rows, length = inputs_embeds.shape[:2]
    if attention_mask.dim() == 4 and not is_whole(attention_mask):
        return attention_mask
    if isinstance(num_past, torch.Tensor):  # a static cache keeps its length on the device
        num_past = int(num_past) if can_read(num_past) else attention_mask.shape[-1] - length
    needed = [num_rows, num_past + length]
    if attention_mask.dim() != 2 or list(attention_mask.shape) != needed:
        raise ValueError(
            f"`attention_mask` needs the shape {needed}, one column for each token, including those in the cache, but "
            f"got {list(attention_mask.shape)} of {attention_mask.dtype}. A 4-dimensional mask must be boolean, or "
            "hold numbers to add to the scores."
        )
    return real_tokens(attention_mask)


def check_extracted(
    positions: torch.LongTensor | int,
    attention_mask: torch.BoolTensor | None,
    is_present: torch.BoolTensor | None,
    shape: tuple[int, int, int],
) -> None:
    """Checks that the task head reads each sequence at one of its real tokens.

    Args:
        positions (`[S]`, or one for all): positions of the extract tokens.
        attention_mask (`[S, T]`, *optional*): True for real tokens.
        is_present (`[B, C]`, *optional*): False for choices that an example lacks; their positions are not checked.
        shape: B, C, T.

    Raises:
        ValueError: a position is outside of its sequence or in padding.
    """
    if isinstance(positions, int):
        return
    length = shape[-1]
    is_wrong = (positions < 0) | (positions >= length)
    if attention_mask is not None:
        is_real = attention_mask.gather(1, positions.clamp(0, length - 1)[:, None])[:, 0]
        is_wrong = is_wrong | ~is_real
    is_wrong = is_wrong.view(shape[:2])
    if is_present is not None:
        is_wrong = is_wrong & is_present
    if not is_wrong.any():
        return
    example, choice = first_place(is_wrong)
    position = positions.view(shape[:2])[example, choice].item()
    named = f"sequence {choice} of example {example}"
    if attention_mask is not None and not attention_mask.view(shape)[example, choice].any():
        raise ValueError(
            f"The `attention_mask` of {named} has no real token, so there is nothing to score. Remove the example, or "
            "set `choice_mask` to False for a choice that it does not have."
        )
    place = f"from 0 to {length - 1}" if not 0 <= position < length else "that of a real token, not of padding"
    raise ValueError(
        f"`mc_token_ids` is {position} for {named}, but the position of the extract token must be {place}. Leave "
        "`mc_token_ids` out to read the last real token of each sequence."
    )


def checked_classes(labels: torch.Tensor, task_logits: torch.Tensor, has_choices: bool) -> torch.LongTensor:
    """The class or choice of each example, `[B]`, as int64; −100 means no label.

    Args:
        labels (`[B]`): whole numbers.
        task_logits (`[B, K]`): scores, −∞ at choices that an example lacks.
        has_choices: whether these are scores of choices.

    Raises:
        ValueError: the type is wrong; there is no such class or choice.
    """
    if not is_whole(labels):
        example = ""
        if labels.is_floating_point() and can_read(labels):
            (first,) = first_place(labels != labels.round()) if (labels != labels.round()).any() else (0,)
            example = f", {labels[first].item()} for example {first}"
        raise ValueError(
            f"`labels` must be indices of {'choices' if has_choices else 'classes'} (torch.int64), but got "
            f"{labels.dtype}{example}. Pass `labels.long()` if they are whole numbers, or open the model with "
            "`num_labels=1` for regression."
        )
    labels = labels.long()
    if not can_read(labels):
        return labels
    num_labels = task_logits.shape[1]
    is_counted = labels != -100
    is_wrong = ((labels < 0) | (labels >= num_labels)) & is_counted
    if is_wrong.any():
        (example,) = first_place(is_wrong)
        raise ValueError(
            f"The label of example {example} is {labels[example].item()}, but there are {num_labels} "
            f"{'choices' if has_choices else 'classes (`num_labels`)'}: a label must be from 0 to {num_labels - 1}, "
            "or -100 for none."
        )
    if has_choices and can_read(task_logits):
        scores = task_logits.detach().gather(1, labels.clamp(min=0)[:, None])[:, 0]
        is_absent = scores.isneginf() & is_counted
        if is_absent.any():
            (example,) = first_place(is_absent)
            raise ValueError(
                f"The label of example {example} is {labels[example].item()}, but `choice_mask` marks that choice as "
                "absent. Correct the label or the mask."
            )
    return labels


def check_numbers(labels: torch.Tensor) -> None:
    """Checks that the `labels [B]` of a regression are finite.

    Raises:
        ValueError: a label is not finite.
    """
    if can_read(labels) and not labels.isfinite().all():
        (example,) = first_place(~labels.isfinite())
        raise ValueError(
            f"The label of example {example} is {labels[example].item()}, but regression needs finite numbers, or "
            "-100 for none. Correct or remove the row."
        )


def check_several_labels(labels: torch.Tensor) -> None:
    """Checks that multi-label targets `[B, K]` are from 0 to 1, or −100 for none.

    Raises:
        ValueError: a label is another number.
    """
    if not can_read(labels) or labels.dtype == torch.bool:
        return
    is_wrong = ~((labels >= 0) & (labels <= 1)) & (labels != -100)
    if is_wrong.any():
        example, label = first_place(is_wrong)
        raise ValueError(
            f"Label {label} of example {example} is {labels[example, label].item()}, but it must be from 0 (the class "
            "does not apply) to 1 (it applies), or -100 for none."
        )

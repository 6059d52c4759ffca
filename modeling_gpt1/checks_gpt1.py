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
"""What the models refuse, each with a sentence: shapes that do not fit, and values that mean nothing.

Shapes and types are compared always. Values are read only where they lie on the CPU, or where the host waits for the
device anyway: a step on an accelerator does not wait for a check.

Shapes: B examples, C sequences per example, T tokens, S = B · C.
"""

import torch


def can_read(tensor: torch.Tensor) -> bool:
    """Whether the values of a tensor are there without waiting for a device, and not in a graph."""
    return tensor.device.type == "cpu" and not (torch.compiler.is_compiling() or torch.jit.is_tracing())


def first_place(is_wrong: torch.BoolTensor) -> tuple[int, ...]:
    """Indices of the first true value."""
    return tuple(is_wrong.nonzero()[0].tolist())


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of whole numbers."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def check_exactly_one(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> None:
    """Whether a call has tokens, and says once which."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Exactly one of `input_ids` and `inputs_embeds` is needed.")


def real_tokens(attention_mask: torch.Tensor | None) -> torch.BoolTensor | None:
    """A mask of 0 and 1, of any shape and type, as booleans.

    Raises:
        ValueError: another value.
    """
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return attention_mask
    if can_read(attention_mask):
        is_wrong = (attention_mask != 0) & (attention_mask != 1)
        if is_wrong.any():
            raise ValueError(
                f"`attention_mask` has the value {attention_mask[is_wrong][0].item()}, but 1 marks a real token and 0 "
                "marks padding. Pass such a mask, or none where nothing is padded."
            )
    return attention_mask.bool()


def padding_mask(
    attention_mask: torch.Tensor | dict | None, inputs_embeds: torch.Tensor, num_past: int | torch.Tensor
) -> torch.Tensor | dict | None:
    """The mask that a decoder was given, with one of padding as booleans.

    Args:
        attention_mask (`[B, past + T]`, or ready masks): see the decoder's `forward`.
        inputs_embeds (`[B, T, D]`): the new tokens.
        num_past (`int`): the tokens before them.

    Raises:
        ValueError: another shape, or values that are neither 0 nor 1.
    """
    if not isinstance(attention_mask, torch.Tensor):
        return attention_mask
    num_rows, length = inputs_embeds.shape[:2]
    if attention_mask.dim() == 4 and not is_whole(attention_mask):
        return attention_mask
    if isinstance(num_past, torch.Tensor):  # of a static cache, which counts on the device
        num_past = int(num_past) if can_read(num_past) else attention_mask.shape[-1] - length
    needed = [num_rows, num_past + length]
    if attention_mask.dim() != 2 or list(attention_mask.shape) != needed:
        raise ValueError(
            f"`attention_mask` needs the shape {needed}, a column for each token and for those in the cache before "
            f"them, but got {list(attention_mask.shape)} of {attention_mask.dtype}. A mask of 4 dimensions is one of "
            "booleans, or of numbers that are added to the scores."
        )
    return real_tokens(attention_mask)


def check_extracted(
    positions: torch.LongTensor | int,
    attention_mask: torch.BoolTensor | None,
    is_present: torch.BoolTensor | None,
    shape: tuple[int, int, int],
) -> None:
    """Whether each sequence is read at a real token of its own.

    Args:
        positions (`[S]`, or one for all): places of the extract tokens.
        attention_mask (`[S, T]`, *optional*): True for real tokens.
        is_present (`[B, C]`, *optional*): False for choices that an example does not have, whose places are not read.
        shape: B, C, T.

    Raises:
        ValueError: a place outside of the sequence or in its padding.
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
            f"The `attention_mask` of {named} has no real token, so there is nothing to score. Leave the example out, "
            "or mark a choice that it does not have by False in `choice_mask`."
        )
    place = f"one of the places 0 to {length - 1}" if not 0 <= position < length else "a real token, not padding"
    raise ValueError(
        f"`mc_token_ids` is {position} for {named}, but it must be {place}: that of the extract token. Leave "
        "`mc_token_ids` out for the last real token of each sequence."
    )

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
"""Examples of several sequences as one batch of sequences: shapes, both orders of a pair, the extract position.

Source: figure 1 and section 3.3 of "Improving Language Understanding by Generative Pre-Training".

Shapes: B examples, C sequences per example, T tokens, D hidden; S = B · C sequences.
"""

from dataclasses import dataclass

import torch
from transformers.modeling_outputs import BaseModelOutputWithPast

from .unpadding_gpt1 import PackedSequences

# Sequences per example; None: any number.
NUM_SEQUENCES = {"classification": 1, "entailment": 1, "similarity": 2, "multiple_choice": None}


@dataclass
class EncodedExamples:
    """What the task models know after the decoder has run; sequences are flattened, `S = B · C`."""

    input_ids: torch.LongTensor | None  # [S, T]
    attention_mask: torch.Tensor | None  # [S, T]
    outputs: BaseModelOutputWithPast  # last_hidden_state [S, T, D], or [1, N, D] of packed sequences
    task_logits: torch.Tensor  # [B, K] or [B, C]
    sequence_weights: torch.Tensor  # [S], 1 / C of the example, 0 for absent choices
    packing: PackedSequences | None


def count_sequences(traversal: str, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> int:
    """C of `input_ids [B, C, T]` or `inputs_embeds [B, C, T, D]`; 1 where the dimension is left out.

    Raises:
        ValueError: neither or both are given; another number of sequences than the traversal has.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Exactly one of `input_ids` and `inputs_embeds` is needed.")
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
    return num_choices


def flatten_sequences(name: str, tensor: torch.Tensor | None, shape: tuple[int, ...]) -> torch.Tensor | None:
    """`[B, C, …]` to `[B · C, …]`; `tensor` has the leading `shape`, in which a C of 1 may be left out.

    Raises:
        ValueError: another leading shape.
    """
    if tensor is None:
        return None
    if tensor.shape[: len(shape)] == shape:
        return tensor.flatten(0, 1)
    if shape[1] == 1 and tensor.shape[: len(shape) - 1] == shape[:1] + shape[2:]:
        return tensor
    raise ValueError(f"`{name}` needs shape {list(shape)} here, but got {list(tensor.shape)}.")


def last_attended(attention_mask: torch.Tensor | None, length: int) -> torch.LongTensor | int:
    """Index `[S]` of each sequence's last real token, for padding on either side; of the last token without a mask."""
    if attention_mask is None:
        return length - 1
    return length - 1 - attention_mask.flip(-1).long().argmax(-1)


def both_orders(
    input_ids: torch.LongTensor, attention_mask: torch.Tensor | None, delimiter_token_id: int | None
) -> torch.LongTensor:
    """`[B, 2, T]` of rows `[s] a [$] b [e]` in `[B, T]`: as given, and with the segments exchanged.

    Raises:
        ValueError: a row without exactly one delimiter.
    """
    real = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    is_delimiter = (input_ids == delimiter_token_id) & real.bool() if delimiter_token_id is not None else real < 0
    counts = is_delimiter.sum(-1)
    if torch.compiler.is_compiling():  # a graph cannot raise by what it reads
        torch._assert_async((counts == 1).all(), "Similarity reads rows with one delimiter each.")
    elif (counts != 1).any():
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

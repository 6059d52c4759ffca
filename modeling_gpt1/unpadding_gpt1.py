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
"""Packing: a batch without its padding, in which the sequences of one example share their common beginning.

All parts of the decoder except attention work on each token alone. The tokens of a whole batch can therefore lie in
one row without padding, and only attention needs them in separate rows: see Zeng et al. 2022, "Boosting Distributed
Training Performance of the Unpadded BERT Model". Attention is causal, so a token depends on nothing after it. The
choices of one example begin with the same context and can share its hidden states, in training too. One row of
attention then holds the context and all choices, and each choice sees the context and itself.

Everything that depends on a batch's values, shapes included, is planned once. Either the collator plans on the host,
and the model follows the plan without waiting for its device; or the model plans by itself.

Shapes: B examples, C sequences per example, S = B · C, T tokens of a padded sequence, D hidden; N tokens in all;
R rows of attention of at most L tokens; M targets.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from transformers.masking_utils import flex_attention_mask

from .attention_gpt1 import BLOCK_MASK, MASKED_ROWS, VARIABLE_LENGTH, lengths_for_flash_attention, way_of_packing
from .checks_gpt1 import can_read
from .configuration_gpt1 import FULL_ATTENTION, SLIDING_ATTENTION, GPT1Config


class PackedSequences(NamedTuple):
    """The N tokens that the decoder computes for a padded batch, and the place of each in that batch."""

    input_ids: torch.LongTensor | None  # [1, N]; None in a plan, which gets the ids of the batch later
    position_ids: torch.LongTensor  # [1, N]
    packed_index: torch.LongTensor  # [S, T]; index into the N tokens for each place of the batch, 0 for padding
    token_index: torch.LongTensor  # [N]; index of each token into the flat S · T places
    example_index: torch.LongTensor  # [N]; example that each token belongs to
    # The rows of attention; the next two are None where it reads the N tokens as they lie.
    row_index: torch.LongTensor | None  # [R, L]; index into the N tokens for each place of the rows, 0 for padding
    row_place: torch.LongTensor | None  # [N]; index of each token into the flat R · L places
    row_sequence: torch.LongTensor | None  # [R, L]; sequence at each place of the rows, −1 for padding
    row_is_shared: torch.BoolTensor | None  # [R, L]; True in a shared beginning; both are None if there is none

    @property
    def attention_mask(self) -> torch.BoolTensor | None:
        """Mask `[R, 1, L, L]`, True where a query sees a key: its own sequence's or a shared one; `None`: causal."""
        if self.row_sequence is None:
            return None
        is_own = self.row_sequence[:, :, None] == self.row_sequence[:, None, :]
        return (is_own | self.row_is_shared[:, None, :]).tril()[:, None]

    def with_ids(self, input_ids: torch.LongTensor | None) -> "PackedSequences":
        """The same packing with the ids `[S, T]` of a batch."""
        ids = None if input_ids is None else input_ids.flatten().index_select(0, self.token_index)[None]
        return self._replace(input_ids=ids)

    def to_rows(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Moves `[1, N, …]` to the attention rows `[R, L, …]`; their padding holds arbitrary finite values."""
        if self.row_index is None:
            return hidden_states
        if self.row_index.numel() == self.row_place.numel():
            return hidden_states.unflatten(1, self.row_index.shape).squeeze(0)
        return hidden_states[0].index_select(0, self.row_index.flatten()).unflatten(0, self.row_index.shape)

    def from_rows(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Inverse of `to_rows`: from `[R, L, …]` to `[1, N, …]`."""
        if self.row_index is None:
            return hidden_states
        if self.row_index.numel() == self.row_place.numel():
            return hidden_states.flatten(0, 1)[None]
        return hidden_states.flatten(0, 1).index_select(0, self.row_place)[None]

    def masks(self, sliding_window: int | None) -> dict[str, torch.BoolTensor | None]:
        """The mask for each layer type; in banded layers a token sees its sequence's last `sliding_window` tokens."""
        mask = self.attention_mask
        if sliding_window is None:
            return {FULL_ATTENTION: mask}
        positions = self.position_ids[0, self.row_index]  # [R, L]
        band = (positions[:, :, None] - positions[:, None, :] < sliding_window)[:, None]
        return {FULL_ATTENTION: mask, SLIDING_ATTENTION: band.tril() if mask is None else band & mask}

    def block_masks(self, sliding_window: int | None) -> dict[str, BlockMask]:
        """As `masks`, among the N tokens as they lie, for flex attention."""
        rows = self.row_place // self.row_index.shape[1]  # [N]
        if self.row_sequence is not None:
            sequences, is_shared = (row.take(self.row_place) for row in (self.row_sequence, self.row_is_shared))
        positions = self.position_ids[0]

        def is_seen(batch, head, query, key):
            is_of_row = (key <= query) & (rows[query] == rows[key])
            if self.row_sequence is None:
                return is_of_row
            return is_of_row & (is_shared[key] | (sequences[query] == sequences[key]))

        def is_near(batch, head, query, key):
            return is_seen(batch, head, query, key) & (positions[query] - positions[key] < sliding_window)

        functions = {FULL_ATTENTION: is_seen}
        if sliding_window is not None:
            functions[SLIDING_ATTENTION] = is_near
        return {
            layer_type: flex_attention_mask(1, len(rows), len(rows), mask_function=function, device=rows.device)
            for layer_type, function in functions.items()
        }

    def decoder_inputs(self, config: GPT1Config) -> dict:
        """Arguments for the decoder, with all that its attention needs."""
        way = way_of_packing(config)
        inputs = {"input_ids": self.input_ids, "position_ids": self.position_ids, "packing": self}
        if way == MASKED_ROWS:
            return {**inputs, "attention_mask": self.masks(config.sliding_window)}
        inputs["packing"] = self._replace(row_index=None, row_place=None)
        if way == BLOCK_MASK:
            return {**inputs, "attention_mask": self.block_masks(config.sliding_window)}
        starts = nn.functional.pad(self.row_index[:, 0], (0, 1), value=len(self.token_index)).int()
        no_masks = dict.fromkeys((FULL_ATTENTION, SLIDING_ATTENTION))
        lengths = lengths_for_flash_attention(starts, self.row_index.shape[1])
        return {**inputs, "attention_mask": no_masks, **lengths}

    def suits(self, way: str | None) -> bool:
        """Whether attention that keeps sequences apart in this way can read these."""
        return way is not None and (way != VARIABLE_LENGTH or self.row_is_shared is None)

    def padded(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Moves `[1, N, …]` to the padded batch `[S, T, …]`, whose padding holds arbitrary finite values."""
        return hidden_states[0, self.packed_index]

    def extract(self, hidden_states: torch.Tensor, positions: torch.LongTensor | int) -> torch.Tensor:
        """Hidden state of each sequence at its position, `[S, D]`, from `[1, N, D]` and `positions [S]`."""
        rows = torch.arange(self.packed_index.shape[0], device=hidden_states.device)
        return hidden_states[0, self.packed_index[rows, positions]]

    def place_targets(self, target_weights: torch.Tensor) -> "Targets":
        """Targets of a batch. A token that several sequences share is one target with their summed weight.

        Args:
            target_weights (`torch.Tensor` of shape `[S, T-1]`): weight of each token from the second on,
                0 where a token is not a target.
        """
        weights = target_weights.new_zeros(len(self.token_index))
        weights.scatter_add_(0, self.packed_index[:, 1:].flatten(), target_weights.flatten())
        tokens = weights.nonzero()[:, 0]
        sources = tokens - 1
        if self.row_is_shared is not None:  # the shared beginning, at the start of a row, predicts the next token
            positions = self.position_ids[0].index_select(0, tokens)
            first = (self.position_ids[0].index_select(0, sources) >= positions).nonzero()[:, 0]
            row_places = self.row_place.index_select(0, tokens.index_select(0, first)) % self.row_index.shape[1]
            sources.index_add_(0, first, positions.index_select(0, first) - row_places)
        weights, examples = (tensor.index_select(0, tokens) for tensor in (weights, self.example_index))
        return Targets(sources, tokens, weights, examples)


class Targets(NamedTuple):
    """The M targets of a language-modelling loss; indices refer to the decoder's tokens, flattened."""

    sources: torch.LongTensor  # [M]; indices of the hidden states that predict the targets
    tokens: torch.LongTensor  # [M]; indices of the target ids
    weights: torch.FloatTensor  # [M]; factors in the weighted sum; never 0 outside of a compiled graph
    rows: torch.LongTensor  # [M]; row or example of each target

    def read(
        self, hidden_states: torch.Tensor, ids: torch.LongTensor
    ) -> tuple[torch.Tensor, torch.LongTensor, torch.Tensor, torch.LongTensor]:
        """Hidden states `[M, D]`, ids, weights and rows `[M]`, from `hidden_states [·, ·, D]` and `ids [·, ·]`."""
        predicting = hidden_states.flatten(0, 1).index_select(0, self.sources)
        return predicting, ids.flatten().index_select(0, self.tokens), self.weights, self.rows


@dataclass
class BatchPlan:
    """Everything that depends on a batch's values, computed before the batch leaves the host.

    A plan is valid only for the batch that it was made for. A model ignores it if it gets a part of the batch. Code
    that changes masks, targets or shared beginnings must drop the plan.

    Args:
        shape: shape of the batch's `input_ids`.
        is_right_padded: whether all padding is at the end of its row, where a causal decoder never sees it; False for
            a packed batch, which needs no check.
        num_tokens: number of real tokens by the attention mask, in a language model's batch.
        packing: the batch without padding, if packing saves work.
        targets: targets of the language-modelling loss, if there is one.
    """

    shape: torch.Size
    is_right_padded: bool
    num_tokens: int | None = None
    packing: PackedSequences | None = None
    targets: Targets | None = None

    def needed_mask(
        self, attention_mask: torch.Tensor | None, position_ids: torch.Tensor | None
    ) -> torch.Tensor | None:
        """The mask that a causal decoder needs: `None` for padding on the right, as a mask makes the host wait.

        The mask stays if the caller gives positions, which without a mask would mark packed sequences.
        """
        if attention_mask is None or can_read(attention_mask) or position_ids is not None:
            return attention_mask
        return None if self.is_right_padded else attention_mask

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "BatchPlan":
        """The plan on a device."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "BatchPlan":
        """The plan in page-locked memory; a DataLoader calls this."""
        return self._with(torch.Tensor.pin_memory)

    def _with(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "BatchPlan":
        parts = {"packing": self.packing, "targets": self.targets}
        return replace(self, **{name: part and each(part, change) for name, part in parts.items()})


def each(parts: tuple, change: Callable) -> tuple:
    """The same [`PackedSequences`] or [`Targets`] with changed fields."""
    return type(parts)(*[None if part is None else change(part) for part in parts])


def pack_sequences(
    input_ids: torch.LongTensor,
    attention_mask: torch.Tensor | None,
    num_choices: int,
    hidden_size: int,
    can_share: bool = True,
) -> PackedSequences | None:
    """Packs a batch, and computes the common beginning of an example's sequences once if that saves work.

    The common beginning ends before the last token of the shortest sequence.

    Args:
        input_ids (`[S, T]`, int64): the sequences; those of one example follow one another.
        attention_mask (`[S, T]`, *optional*): 1 for real tokens, wherever they are.
        num_choices: C.
        hidden_size: D, used to compare the cost of tokens with that of attention pairs.
        can_share: False if attention cannot read a beginning that several sequences share.

    Returns:
        The packed batch; `None` if it would have as many tokens as the padded one, or none.
    """
    real = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    ids, real = input_ids.numpy(force=True), real.numpy(force=True)
    is_aligned = not (real[:, 1:] > real[:, :-1]).any()
    packed, _ = pack_arrays(ids, real, real.sum(1), is_aligned, num_choices, hidden_size, can_share)
    if packed is None:
        return None
    return each(packed, lambda part: torch.from_numpy(part).to(input_ids.device)).with_ids(input_ids)


def pack_arrays(
    ids: Any, real: Any, lengths: Any, is_aligned: bool, num_choices: int, hidden_size: int, can_share: bool
) -> tuple[PackedSequences | None, Any]:
    """As [`pack_sequences`], but arrays of numpy without ids, as short ones take a third of the time of tensors.

    The sequence of each token `[N]` is returned too.

    Args:
        ids, real (`[S, T]`): the sequences, and True for their real tokens.
        lengths (`[S]`): numbers of real tokens.
        is_aligned: whether all padding lies on the right.
        num_choices, hidden_size, can_share: as in [`pack_sequences`].
    """
    num_sequences, length = ids.shape
    numbers = count_to(ids.size)  # every range below is the beginning of this one
    ranks = numbers[:length]  # a token's rank is its place among the real ones of its sequence
    if not is_aligned:
        ids = ids[numbers[:num_sequences, None], (~real).argsort(1, kind="stable")]  # real tokens first
    prefixes, left_out = None, 0  # [B] tokens to compute once; [S] those that another sequence computes
    examples = numbers[: num_sequences // num_choices].repeat(num_choices)  # [S]
    if num_choices > 1 and can_share:
        of_examples = ids.reshape(-1, num_choices, length), lengths.reshape(-1, num_choices)
        prefixes = _shared_lengths(*of_examples, ranks, hidden_size)
        prefixes = prefixes if prefixes.any() else None
    if prefixes is not None:
        left_out = prefixes.take(examples) * (lengths > 0)
        left_out[::num_choices] = 0
    counts = lengths - left_out
    ends = counts.cumsum()
    num_tokens = int(ends[-1])  # N
    if num_tokens in (0, ids.size):
        return None, None

    starts = ends - counts
    shifts = starts - left_out  # what added to a token's rank gives its index among the N tokens
    sequences = numbers[:num_sequences].repeat(counts)  # [N]
    positions = numbers[:num_tokens] - shifts.take(sequences)
    ranks = ranks if is_aligned else real.cumsum(1) - 1  # [T] or [S, T]
    packed_index, is_computed = shifts[:, None] + ranks, real
    if prefixes is not None:
        is_left_out = ranks < left_out[:, None]
        packed_index -= is_left_out * (shifts - starts[::num_choices].take(examples))[:, None]
        is_computed = real > is_left_out
    packed_index *= real
    token_index = is_computed.reshape(-1).nonzero()[0]
    if is_aligned and prefixes is None and lengths.min() > 0 and lengths.max() == length:
        attention_rows = packed_index, token_index, None, None  # the attention rows are the batch's rows
    else:
        heads = ((lengths > 0) & (left_out == 0)).nonzero()[0]  # [R]; the first sequence of each row
        row_prefixes = None if prefixes is None else prefixes.take(examples.take(heads))
        attention_rows = _attention_rows(starts.take(heads), row_prefixes, sequences, numbers)
    examples = sequences if num_choices == 1 else examples.take(sequences)
    return PackedSequences(None, positions[None], packed_index, token_index, examples, *attention_rows), sequences


def count_to(size: int) -> Any:
    """The array 0, 1, 2, … of this size, for reading only."""
    return _count_to(1 << size.bit_length())[:size]


@lru_cache(maxsize=4)
def _count_to(size: int) -> Any:
    return torch.arange(size).numpy()


def _shared_lengths(ids: Any, lengths: Any, ranks: Any, hidden_size: int) -> Any:
    """How many leading tokens of an example's sequences to compute once, `[B]`; 0 if one long row would be more work.

    Args:
        ids, lengths (`[B, C, T]`, `[B, C]`): the sequences with their real tokens first, and how many these are.
        ranks (`[T]`): 0, 1, 2, …
    """
    is_other = ids[:, 1:] != ids[:, :1]
    num_present, shortest = (lengths > 0).sum(1), lengths.min(1)
    if not shortest.all():  # the shortest of the choices that are there; the first must be, and another
        is_other &= lengths[:, 1:, None] > 0
        shortest = (lengths + (lengths == 0) * len(ranks)).min(1) * (lengths[:, 0] > 0) * (num_present > 1)
    num_shared = (is_other.any(1) | (ranks >= shortest[:, None] - 1)).argmax(1)
    num_tokens = lengths.sum(1)
    row_lengths = num_tokens - (num_present - 1) * num_shared
    # In units of 4 · D operations: 24 · D² for each token in matrices, 4 · D for each pair in attention.
    cost = 6 * hidden_size * num_tokens + (lengths * lengths).sum(1)
    return num_shared * (row_lengths * (6 * hidden_size + row_lengths) < cost)


def _attention_rows(starts: Any, prefixes: Any | None, sequences: Any, numbers: Any) -> tuple:
    """The `row_…` fields of [`PackedSequences`].

    Args:
        starts, prefixes (`[R]`): index of each row's first token; its shared tokens, `None` if no row has any.
        sequences (`[N]`): sequence of each token.
        numbers: 0, 1, 2, …
    """
    lengths = -starts
    lengths[:-1] += starts[1:]
    lengths[-1] += len(sequences)
    places = numbers[: lengths.max()]
    is_filled = places < lengths[:, None]
    row_index = (starts[:, None] + places) * is_filled  # [R, L]
    row_place = is_filled.reshape(-1).nonzero()[0]
    if prefixes is None:
        return row_index, row_place, None, None
    return row_index, row_place, (sequences.take(row_index) + 1) * is_filled - 1, places < prefixes[:, None]

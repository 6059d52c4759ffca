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
from typing import NamedTuple

import torch

from .checks_gpt1 import can_read
from .configuration_gpt1 import FULL_ATTENTION, SLIDING_ATTENTION, GPT1Config


class PackedSequences(NamedTuple):
    """The N tokens that the decoder computes for a padded batch, and the place of each in that batch."""

    input_ids: torch.LongTensor | None  # [1, N]; None in a plan, which gets the ids of the batch later
    position_ids: torch.LongTensor  # [1, N]
    packed_index: torch.LongTensor  # [S, T]; index into the N tokens for each place of the batch, 0 for padding
    token_index: torch.LongTensor  # [N]; index of each token into the flat S · T places
    example_index: torch.LongTensor  # [N]; example that each token belongs to
    row_index: torch.LongTensor  # [R, L]; index into the N tokens for each place of the attention rows, 0 for padding
    row_place: torch.LongTensor  # [N]; index of each token into the flat R · L places
    row_sequence: torch.LongTensor | None  # [R, L]; sequence at each place of the attention rows, −1 for padding
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
        if self.row_index.numel() == self.row_place.numel():
            return hidden_states.unflatten(1, self.row_index.shape).squeeze(0)
        return hidden_states[0].index_select(0, self.row_index.flatten()).unflatten(0, self.row_index.shape)

    def from_rows(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Inverse of `to_rows`: from `[R, L, …]` to `[1, N, …]`."""
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

    def decoder_inputs(self, config: GPT1Config) -> dict:
        """Arguments for the decoder, with the attention masks."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.masks(config.sliding_window),
            "position_ids": self.position_ids,
            "packing": self,
        }

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
        weights = weights.index_add(0, self.packed_index[:, 1:].flatten(), target_weights.flatten())
        tokens = weights.nonzero()[:, 0]
        sources = tokens - 1
        if self.row_is_shared is not None:  # the shared beginning, at the start of a row, predicts the next token
            positions = self.position_ids[0]
            follows = positions.index_select(0, sources) + 1 == positions.index_select(0, tokens)
            first = (~follows).nonzero()[:, 0]
            rows = self.row_place[tokens[first]] // self.row_index.shape[1]
            sources[first] = self.row_index[rows, 0] + positions[tokens[first]] - 1
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
        def changed(part: PackedSequences | Targets | None) -> PackedSequences | Targets | None:
            return None if part is None else type(part)(*(None if field is None else change(field) for field in part))

        return replace(self, packing=changed(self.packing), targets=changed(self.targets))


def pack_sequences(
    input_ids: torch.LongTensor, attention_mask: torch.Tensor | None, num_choices: int, hidden_size: int
) -> PackedSequences | None:
    """Packs a batch, and computes the common beginning of an example's sequences once if that saves work.

    The common beginning ends before the last token of the shortest sequence.

    Args:
        input_ids (`[S, T]`, int64): the sequences; those of one example follow one another.
        attention_mask (`[S, T]`, *optional*): 1 for real tokens, wherever they are.
        num_choices: C.
        hidden_size: D, used to compare the cost of tokens with that of attention pairs.

    Returns:
        The packed batch; `None` if it would have as many tokens as the padded one, or none.
    """
    real = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    is_aligned = not (real[:, 1:] > real[:, :-1]).any()  # all padding lies on the right
    ranks = real.cumsum(1) - 1  # [S, T]
    lengths = ranks[:, -1] + 1  # [S]
    prefix = None
    if num_choices > 1:
        prefix = _shared_lengths(input_ids, real, is_aligned, lengths.view(-1, num_choices), hidden_size)
    is_computed, num_computed = real, lengths
    if prefix is not None:  # all sequences but the first leave out the context, which the first computes
        is_first = torch.arange(num_choices, device=input_ids.device) == 0
        num_left_out = (prefix[:, None] * (~is_first & (lengths > 0).view(-1, num_choices))).flatten()
        is_computed, num_computed = real & (ranks >= num_left_out[:, None]), lengths - num_left_out
    places = is_computed.flatten().nonzero()[:, 0]  # [N]
    if len(places) in (0, input_ids.numel()):
        return None

    starts = num_computed.cumsum(0) - num_computed
    if prefix is None:
        packed_index = ranks + starts[:, None]
    else:
        starts_of_example = starts.view(-1, num_choices)[:, :1].expand(-1, num_choices).reshape(-1, 1)
        is_shared = ranks < num_left_out[:, None]
        packed_index = ranks + torch.where(is_shared, starts_of_example, (starts - num_left_out)[:, None])
    packed_index = packed_index.masked_fill(~real, 0)
    sequences = torch.arange(len(lengths), device=input_ids.device)
    sequences = sequences.repeat_interleave(num_computed, output_size=len(places))
    examples = sequences if num_choices == 1 else sequences // num_choices
    positions = ranks.flatten().index_select(0, places)
    if prefix is None and is_aligned and real[:, 0].all() and real[:, -1].any():
        rows = packed_index, places, None, None  # the attention rows are the batch's rows
    else:
        rows = _attention_rows(sequences, examples, positions, prefix, lengths)
    packed = PackedSequences(None, positions[None], packed_index, places, examples, *rows)
    return packed.with_ids(input_ids)


def _shared_lengths(
    input_ids: torch.LongTensor, real: torch.BoolTensor, is_aligned: bool, lengths: torch.LongTensor, hidden_size: int
) -> torch.LongTensor | None:
    """Number of leading tokens that an example's sequences share, `[B]`; `None` if no example has any.

    Args:
        input_ids, real (`[S, T]`), lengths (`[B, C]`): the sequences, their real tokens and their lengths.
    """
    if not is_aligned:
        order = (~real).long().argsort(dim=1, stable=True)  # real tokens first in each sequence
        input_ids = input_ids.gather(1, order)
    aligned_ids = input_ids.unflatten(0, lengths.shape)  # [B, C, T]
    is_equal = (aligned_ids == aligned_ids[:, :1]) | (lengths == 0)[..., None]
    num_equal = is_equal.all(1).long().cumprod(-1).sum(-1)
    examples = torch.cat([num_equal[:, None], lengths], 1).tolist()
    shared = [_worth_sharing(*example, hidden_size=hidden_size) for example in examples]
    return torch.tensor(shared, device=input_ids.device) if any(shared) else None


def _worth_sharing(num_equal: int, *lengths: int, hidden_size: int) -> int:
    """How many of an example's equal leading tokens to compute once; 0 if one long row would be more work."""

    def cost(length: int) -> int:  # in units of 4 · D operations: 24 · D² per token in matrices, 4 · D per pair
        return length * (6 * hidden_size + length)

    present = [length for length in lengths if length > 0]
    if len(present) < 2 or lengths[0] == 0:
        return 0
    num_shared = min(num_equal, min(present) - 1)
    row_length = sum(present) - (len(present) - 1) * num_shared
    return num_shared if cost(row_length) < sum(map(cost, present)) else 0


def _attention_rows(
    sequences: torch.LongTensor,
    examples: torch.LongTensor,
    positions: torch.LongTensor,
    prefix: torch.LongTensor | None,
    lengths: torch.LongTensor,
) -> tuple[torch.LongTensor, torch.LongTensor, torch.LongTensor | None, torch.BoolTensor | None]:
    """The `row_…` fields of [`PackedSequences`]; `sequences`, `examples` and `positions` of the tokens are `[N]`."""
    starts_row = lengths > 0
    if prefix is not None:
        starts_row = starts_row.view(len(prefix), -1).clone()
        starts_row[:, 1:] &= prefix[:, None] == 0
        starts_row = starts_row.flatten()
    rows = (starts_row.cumsum(0) - 1).index_select(0, sequences)  # [N]
    row_lengths = torch.bincount(rows)  # [R]
    row_starts = row_lengths.cumsum(0) - row_lengths
    tokens = torch.arange(len(sequences), device=sequences.device)
    places = torch.arange(int(row_lengths.max()), device=sequences.device)  # [L]
    is_padding = places >= row_lengths[:, None]
    row_index = (row_starts[:, None] + places).masked_fill(is_padding, 0)  # [R, L]
    row_place = rows * len(places) + tokens - row_starts.index_select(0, rows)
    if prefix is None:
        return row_index, row_place, None, None
    is_shared = (positions < prefix.index_select(0, examples)).take(row_index).masked_fill(is_padding, False)
    return row_index, row_place, sequences.take(row_index).masked_fill(is_padding, -1), is_shared

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
"""Sequences without their padding, and what the sequences of one example have in common only once.

The decoder's layers work on each token alone, but for attention. So the tokens of a whole batch can lie in one row
without padding, and only attention needs them in rows of their own: see Zeng et al. 2022, "Boosting Distributed
Training Performance of the Unpadded BERT Model". Attention is causal, so a token depends on nothing after it: the
choices of one example, which begin with the same context, can share its hidden states, in training too. One row of
attention then holds the context and all choices, each of which sees the context and itself.

Shapes: B examples, C sequences per example, S = B · C, T tokens of a padded sequence, D hidden; N tokens in all;
R rows of attention of at most L tokens.
"""

from typing import NamedTuple

import torch

from .configuration_gpt1 import FULL_ATTENTION, SLIDING_ATTENTION, GPT1Config


class PackedSequences(NamedTuple):
    """The N tokens that the decoder computes for a padded batch, and where each of them belongs."""

    input_ids: torch.LongTensor  # [1, N]
    position_ids: torch.LongTensor  # [1, N]
    packed_index: torch.LongTensor  # [S, T]; place in the N of each token of the batch, 0 for padding
    example_index: torch.LongTensor  # [N]; example of each token
    row_index: torch.LongTensor  # [R, L]; place in the N of each place of the attention's rows, 0 for padding
    row_place: torch.LongTensor  # [N]; place of each token in the R · L
    attention_mask: torch.BoolTensor | None  # [R, 1, L, L]; True where a query sees a key; None: all before it

    def to_rows(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`[1, N, …]` to the rows of attention, `[R, L, …]`, with anything finite in their padding."""
        if self.row_index.numel() == self.row_place.numel():
            return hidden_states.unflatten(1, self.row_index.shape).squeeze(0)
        return hidden_states[0].index_select(0, self.row_index.flatten()).unflatten(0, self.row_index.shape)

    def from_rows(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The reverse of `to_rows`: `[R, L, …]` to `[1, N, …]`."""
        if self.row_index.numel() == self.row_place.numel():
            return hidden_states.flatten(0, 1)[None]
        return hidden_states.flatten(0, 1).index_select(0, self.row_place)[None]

    def masks(self, sliding_window: int | None) -> dict[str, torch.BoolTensor | None]:
        """The mask for each type of layer; in banded layers a token sees its sequence's last `sliding_window`."""
        if sliding_window is None:
            return {FULL_ATTENTION: self.attention_mask}
        positions = self.position_ids[0, self.row_index]  # [R, L]
        mask = (positions[:, :, None] - positions[:, None, :] < sliding_window)[:, None]
        mask = mask.tril() if self.attention_mask is None else mask & self.attention_mask
        return {FULL_ATTENTION: self.attention_mask, SLIDING_ATTENTION: mask}

    def decoder_inputs(self, config: GPT1Config) -> dict:
        """What the decoder reads, with the masks."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.masks(config.sliding_window),
            "position_ids": self.position_ids,
            "packing": self,
        }

    def padded(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`[1, N, …]` as the padded batch, `[S, T, …]`, with anything finite in its padding."""
        return hidden_states[0, self.packed_index]

    def extract(self, hidden_states: torch.Tensor, positions: torch.LongTensor | int) -> torch.Tensor:
        """`[S, D]`, the hidden state of each sequence at its position `[S]`, of `[1, N, D]`."""
        rows = torch.arange(self.packed_index.shape[0], device=hidden_states.device)
        return hidden_states[0, self.packed_index[rows, positions]]

    def targets(
        self, hidden_states: torch.Tensor, target_weights: torch.Tensor, sources: torch.LongTensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """As `select_targets`; what several sequences share is one target of their summed weight.

        Args:
            hidden_states (`torch.Tensor` of shape `[1, N, D]`): hidden states of the packed tokens.
            target_weights (`torch.Tensor` of shape `[S, T-1]`): factor of each token after the first of its sequence.
            sources (`torch.LongTensor` of shape `[S, T-1]`): place in its sequence that predicts each of them.

        Returns:
            Hidden states, ids, weights and the example of each target.
        """
        is_target = target_weights != 0
        targets, sources = self.packed_index[:, 1:][is_target], self.packed_index.gather(1, sources)[is_target]
        num_tokens = hidden_states.shape[1]
        # A packed token is predicted from one place, however many sequences it stands for.
        weights = target_weights.new_zeros(num_tokens).index_add(0, targets, target_weights[is_target])
        source_of = torch.zeros_like(self.input_ids[0]).scatter(0, targets, sources)
        tokens = weights.nonzero()[:, 0]
        hidden_states = hidden_states[0].index_select(0, source_of[tokens])
        return hidden_states, self.input_ids[0, tokens], weights[tokens], self.example_index[tokens]


def pack_sequences(
    input_ids: torch.LongTensor, attention_mask: torch.Tensor | None, num_choices: int, hidden_size: int
) -> PackedSequences | None:
    """Packs a batch, with the common beginning of an example's sequences once where that saves work.

    The common beginning ends before the last token of the shortest sequence.

    Args:
        input_ids (`[S, T]`, int64): the sequences, those of one example one after the other.
        attention_mask (`[S, T]`, *optional*): 1 for real tokens, wherever they are.
        num_choices: C.
        hidden_size: D, which decides between the cost of tokens and of their pairs.

    Returns:
        The packed batch, or `None` where it has as many tokens as the padded one.
    """
    real = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
    order = (~real).long().argsort(dim=1, stable=True)  # [S, T]; the real tokens of each sequence first
    lengths = real.sum(1)
    aligned_ids = input_ids.gather(1, order)
    by_example = (-1, num_choices)
    prefix = _shared_lengths(aligned_ids.unflatten(0, by_example), lengths.unflatten(0, by_example), hidden_size)

    ranks = torch.arange(input_ids.shape[1], device=input_ids.device)
    is_first = torch.arange(num_choices, device=input_ids.device) == 0
    is_repeated = (ranks < prefix[:, None, None]) & ~is_first[:, None]  # [B, C, T]
    is_computed = (ranks < lengths[:, None]) & ~is_repeated.flatten(0, 1)  # [S, T], aligned
    sequences, computed_ranks = is_computed.nonzero(as_tuple=True)  # [N]
    if len(sequences) == input_ids.numel() or len(sequences) == 0:
        return None

    packed = (is_computed.flatten().cumsum(0) - 1).view(-1, num_choices, input_ids.shape[1])
    packed = torch.where(is_repeated, packed[:, :1], packed).flatten(0, 1).clamp(min=0)
    row_index, row_place, mask = _attention_rows(sequences, computed_ranks, prefix, lengths, num_choices)
    return PackedSequences(
        input_ids=aligned_ids[sequences, computed_ranks][None],
        position_ids=computed_ranks[None],
        packed_index=torch.zeros_like(order).scatter(1, order, packed).masked_fill(~real, 0),
        example_index=sequences // num_choices,
        row_index=row_index,
        row_place=row_place,
        attention_mask=mask,
    )


def _shared_lengths(aligned_ids: torch.LongTensor, lengths: torch.LongTensor, hidden_size: int) -> torch.LongTensor:
    """Number of leading tokens that an example's sequences share, `[B]`; `aligned_ids [B, C, T]`, `lengths [B, C]`."""
    is_absent = lengths == 0
    is_equal = (aligned_ids == aligned_ids[:, :1]) | is_absent[..., None]
    common = is_equal.all(1).long().cumprod(-1).sum(-1)
    shortest = lengths.masked_fill(is_absent, aligned_ids.shape[-1]).amin(-1)
    common = torch.minimum(common, (shortest - 1).clamp(min=0))
    num_present = (~is_absent).sum(-1)
    row_lengths = lengths.sum(-1) - (num_present - 1) * common
    costs = _cost(lengths, hidden_size).sum(-1)
    is_worth_it = (num_present > 1) & ~is_absent[:, 0] & (_cost(row_lengths, hidden_size) < costs)
    return common * is_worth_it


def _cost(lengths: torch.LongTensor, hidden_size: int) -> torch.LongTensor:
    """Arithmetic for rows of these lengths, in 4 · D operations: 24 · D² in a token's matrices, 4 · D in a pair."""
    return lengths * (6 * hidden_size + lengths)


def _attention_rows(
    sequences: torch.LongTensor,
    ranks: torch.LongTensor,
    prefix: torch.LongTensor,
    lengths: torch.LongTensor,
    num_choices: int,
) -> tuple[torch.LongTensor, torch.LongTensor, torch.BoolTensor | None]:
    """`row_index`, `row_place` and `attention_mask` of [`PackedSequences`]; `sequences`, `ranks` of tokens, `[N]`."""
    starts_row = (lengths > 0).view(-1, num_choices)
    starts_row[:, 1:] &= prefix[:, None] == 0
    rows = (starts_row.flatten().cumsum(0) - 1)[sequences]  # [N]
    row_lengths = torch.bincount(rows)  # [R]
    row_starts = row_lengths.cumsum(0) - row_lengths
    tokens = torch.arange(len(sequences), device=sequences.device)
    places = torch.arange(int(row_lengths.max()), device=sequences.device)  # [L]
    is_token = places < row_lengths[:, None]
    row_index = (row_starts[:, None] + places).masked_fill(~is_token, 0)  # [R, L]
    row_place = rows * len(places) + tokens - row_starts[rows]
    if not prefix.any():
        return row_index, row_place, None
    is_shared = (ranks < prefix[sequences // num_choices])[row_index] & is_token
    choice = sequences[row_index].masked_fill(~is_token, -1)
    mask = (choice[:, :, None] == choice[:, None, :]) | is_shared[:, None, :]
    return row_index, row_place, (mask & (places[:, None] >= places))[:, None]

"""A batch's plan: which tokens a model computes, and where. It is made with the batch, on the host, by numpy.

A shape that depends on values, such as the number of real tokens, makes the host wait for its device. A plan therefore
travels with its batch, and GPT-1's models follow it: they compute each real token once, without padding, and a
beginning that the sequences of an example share once for all of them (Zeng et al. 2022, "Boosting Distributed Training
Performance of the Unpadded BERT Model"). All parts of a decoder but attention work on each token alone, so the tokens
of a batch lie in one row there. Attention is causal, so the beginning depends on nothing after it: a row of attention
holds the beginning and what each sequence adds, and these see the beginning and themselves.

Shapes: B examples, C sequences per example, S = B · C, T tokens of a padded sequence; N tokens that are computed; R
rows of attention of at most L tokens; M targets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from ..errors import UserError

# D of the paper's model. A shared token saves 24 · D² operations; each pair that attention adds costs 4 · D.
HIDDEN_SIZE = 768
# Blocks with a smaller share of real tokens leave padding out; others have little to gain.
LEAST_REAL = 0.9


@dataclass(eq=False)
class BatchPlan:
    """What of a batch depends on its values. It belongs to that batch alone, and a model checks that it does.

    All padding is at the end of its row, where a causal decoder never sees it.

    Args:
        shape: shape of the batch's `input_ids`.
        num_tokens, num_targets: real tokens of the batch, and those of them after the first of their sequence.
        is_real (`[S, T]`): the batch's attention mask.
        target_tokens (`[M]`): each real token after the first of its sequence, as an index into the flat S · T places,
            or into the N tokens if there are any.
        target_sources (`[M]`): the token that predicts it.
        token_index (`[N]`): the computed tokens, as indices into the flat S · T places. `None`, as all that follow, if
            all places are computed.
        position_ids (`[1, N]`): their positions.
        packed_index (`[S, T]`): the token of the N for each place of the batch, 0 for padding.
        row_index (`[R, L]`): the token of the N for each place of attention's rows, 0 for padding.
        row_is_padding (`[R, L]`): True at the padding of attention's rows.
        row_place (`[N]`): the place of each token in the flat R · L places.
        row_sequence (`[R, L]`): the sequence at each place of the rows, −1 for padding; `None` if nothing is shared.
        row_is_shared (`[R, L]`): True in a shared beginning; `None` if nothing is shared.
    """

    shape: tuple[int, ...]
    num_tokens: int
    num_targets: int
    is_real: torch.BoolTensor
    target_tokens: torch.LongTensor
    target_sources: torch.LongTensor
    token_index: torch.LongTensor | None = None
    position_ids: torch.LongTensor | None = None
    packed_index: torch.LongTensor | None = None
    row_index: torch.LongTensor | None = None
    row_is_padding: torch.BoolTensor | None = None
    row_place: torch.LongTensor | None = None
    row_sequence: torch.LongTensor | None = None
    row_is_shared: torch.BoolTensor | None = None

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "BatchPlan":
        """The plan on a device."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "BatchPlan":
        """The plan in page-locked memory; a DataLoader calls this."""
        return self._with(torch.Tensor.pin_memory)

    def _with(self, change: Callable[[torch.Tensor], torch.Tensor]) -> "BatchPlan":
        changed = {}
        for field in fields(self):
            part = getattr(self, field.name)
            if torch.is_tensor(part):
                changed[field.name] = change(part)
        return replace(self, **changed)


def plan_blocks(attention_mask: torch.Tensor) -> BatchPlan:
    """The plan of a language model's blocks, padded on the right: all places are computed unless many are padding.

    Args:
        attention_mask (`[B, T]`): 1 for real tokens.
    """
    is_real = attention_mask.numpy().astype(bool)
    if 0 < is_real.mean() < LEAST_REAL:
        return plan_batch(attention_mask, num_shared=[0] * len(is_real))
    is_behind_first = np.arange(is_real.shape[1]) > 0
    targets = np.flatnonzero(is_real & is_behind_first)
    return _plan(attention_mask.shape, is_real, target_tokens=targets, target_sources=targets - 1)


def plan_batch(attention_mask: torch.Tensor, num_shared: Sequence[int]) -> BatchPlan:
    """The plan of a batch of examples. It computes all places if there is no padding and nothing to share.

    Args:
        attention_mask (`[B, C, T]`, or `[B, T]` if C is 1): 1 for real tokens.
        num_shared (`[B]`): tokens with which all sequences of an example begin, at most as many as any of them has.

    Raises:
        ValueError: a sequence has padding before a token.
    """
    shape = attention_mask.shape
    num_examples, length = shape[0], shape[-1]
    is_real = attention_mask.numpy().reshape(-1, length).astype(bool)  # [S, T]
    num_sequences = len(is_real)
    num_choices = num_sequences // num_examples
    if (is_real[:, 1:] > is_real[:, :-1]).any():
        raise UserError(
            "`attention_mask` has padding before a token, but a plan needs all padding at the end of a sequence. Pad "
            "on the right, or make batches without a plan (`plan=False`)."
        )
    # Of each sequence, [S]: its tokens, those of them that another sequence computes, and the others.
    lengths = is_real.sum(1)
    examples = np.repeat(np.arange(num_examples), num_choices)
    prefixes = _prefixes_that_pay(np.asarray(num_shared), lengths.reshape(-1, num_choices))  # [B]
    left_out = prefixes[examples] * (lengths > 0)
    left_out[::num_choices] = 0  # the first sequence of an example computes the shared beginning
    counts = lengths - left_out
    ends = counts.cumsum()
    num_tokens = int(ends[-1])
    if num_tokens == is_real.size:
        places = np.arange(num_tokens).reshape(is_real.shape)
        targets = places[:, 1:].reshape(-1)
        return _plan(shape, is_real, target_tokens=targets, target_sources=targets - 1)

    starts = ends - counts
    starts_of_beginning = starts[::num_choices][examples]
    shifts = starts - left_out  # added to a token's rank in its sequence, they give its index among the N
    ranks = np.arange(length)[None]
    is_left_out = ranks < left_out[:, None]
    packed_index = ranks + np.where(is_left_out, starts_of_beginning[:, None], shifts[:, None])
    sequences = np.repeat(np.arange(num_sequences), counts)  # [N]
    positions = np.arange(num_tokens) - shifts[sequences]  # [N]
    heads = np.flatnonzero((lengths > 0) & (left_out == 0))  # the first sequence of each row of attention
    is_shared = prefixes.any()
    rows = _attention_rows(starts[heads], prefixes[examples[heads]] if is_shared else None, sequences)
    targets = np.flatnonzero(positions)
    sources = targets - 1
    if is_shared:  # the shared beginning, at the start of a row, predicts the first token that each sequence adds
        is_first_added = positions[sources] >= positions[targets]
        first_added = targets[is_first_added]
        row_length = rows["row_index"].shape[1]
        places_in_row = rows["row_place"][first_added] % row_length
        sources[is_first_added] += positions[first_added] - places_in_row
    return _plan(
        shape,
        is_real,
        target_tokens=targets,
        target_sources=sources,
        token_index=np.flatnonzero(is_real & ~is_left_out),
        position_ids=positions[None],
        packed_index=packed_index * is_real,
        **rows,
    )


def _plan(shape: Sequence[int], is_real: np.ndarray, **arrays: np.ndarray) -> BatchPlan:
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    num_tokens = int(is_real.sum())
    num_sequences_with_tokens = int(is_real.any(1).sum())
    num_targets = num_tokens - num_sequences_with_tokens
    return BatchPlan(tuple(shape), num_tokens, num_targets, torch.from_numpy(is_real), **tensors)


def _prefixes_that_pay(num_shared: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """How many of the shared tokens `[B]` to compute once, from them and the lengths of the sequences `[B, C]`.

    It is 0 where one long row of attention would be more work.
    """
    num_shared = num_shared * (lengths[:, 0] > 0)  # the first sequence holds the beginning
    num_tokens = lengths.sum(1)
    num_sequences = (lengths > 0).sum(1)
    row_lengths = num_tokens - (num_sequences - 1) * num_shared
    # Operations in units of 4 · D: 6 · D for a token (24 · D²), 1 for a pair of attention.
    cost_of_each = 6 * HIDDEN_SIZE * num_tokens + (lengths * lengths).sum(1)
    cost_of_one_row = 6 * HIDDEN_SIZE * row_lengths + row_lengths * row_lengths
    return num_shared * (cost_of_one_row < cost_of_each)


def _attention_rows(starts: np.ndarray, prefixes: np.ndarray | None, sequences: np.ndarray) -> dict[str, np.ndarray]:
    """The `row_…` fields of a plan, from each row's first token and shared tokens, and each token's sequence."""
    lengths = np.diff(starts, append=len(sequences))
    places = np.arange(lengths.max())
    is_filled = places < lengths[:, None]
    row_index = (starts[:, None] + places) * is_filled
    rows = {
        "row_index": row_index,
        "row_is_padding": ~is_filled,
        "row_place": np.flatnonzero(is_filled),
    }
    if prefixes is not None:
        rows["row_sequence"] = np.where(is_filled, sequences[row_index], -1)
        rows["row_is_shared"] = places < prefixes[:, None]
    return rows

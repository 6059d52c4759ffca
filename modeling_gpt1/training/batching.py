"""Training rows of similar length share a batch, so that batches have little padding.

transformers' [`LengthGroupedSampler`] sorts within groups of up to 50 updates drawn at random; evaluations do not.
"""

from collections.abc import Mapping, Sequence, Sized

import datasets
import torch
from torch.utils.data import RandomSampler, Sampler
from transformers import Trainer
from transformers.trainer_pt_utils import LengthGroupedSampler

from .arguments import seed_of_data


class SeededLengthGroupedSampler(LengthGroupedSampler):
    """transformers' order of rows by length, which the seed and the number of the epoch decide alone."""

    def __init__(self, batch_size: int, lengths: list[int], seed: int):
        super().__init__(batch_size, lengths=lengths, generator=torch.Generator().manual_seed(seed))
        self.seed = seed

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(self.seed + epoch)


def length_sampler(trainer: Trainer, rows: Sequence) -> Sampler:
    """The order of the training rows by length; at random if their lengths are unknown."""
    args = trainer.args
    lengths = read_lengths(rows, trainer.data_collator, args.length_column_name)
    if lengths is None:
        return RandomSampler(rows)
    # Groups of an update: it sees the same rows however they are split into batches and processes.
    return SeededLengthGroupedSampler(trainer.get_total_train_batch_size(args), lengths, seed_of_data(args))


def read_lengths(rows: Sequence, collator, column: str) -> list[int] | None:
    """The length of each row from the collator, a column of lengths, or token ids; `None` where there is none."""
    if callable(getattr(collator, "lengths", None)):  # any collator may be given
        return collator.lengths(rows)
    if isinstance(rows, datasets.Dataset) and column in rows.column_names:
        return list(rows[column])
    if len(rows) > 0 and isinstance(rows[0], Mapping) and isinstance(rows[0].get("input_ids"), Sized):
        return [len(rows[index]["input_ids"]) for index in range(len(rows))]
    return None

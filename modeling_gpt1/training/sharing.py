"""Spreading the rows of an update over several processes, so that each row counts once even if they divide unevenly.

DistributedDataParallel needs the same number of micro-batches from every process. accelerate fills the last ones with
rows from the beginning, which are then trained twice. Here the order of the rows is padded with empty places instead.
A micro-batch skips empty places. A micro-batch without any row holds one example with the labels −100, which the
models ignore. A stream has no end, so every batch of it is full.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import DataLoader, IterableDataset, Sampler, Subset

from ..configuration_gpt1 import IGNORED_LABEL


class EndlessStream(IterableDataset):
    """A stream that begins again where it ends, in the order of its next pass.

    Every process and every worker of a DataLoader reads its own copy from the beginning. accelerate sees no files, so
    it lets each process keep every n-th batch: an update has the same rows as with one process.
    """

    def __init__(self, rows: IterableDataset):
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        for number in count():
            if hasattr(self.rows, "set_epoch"):
                self.rows.set_epoch(number)
            is_empty = True
            for row in self.rows:
                is_empty = False
                yield row
            if is_empty:  # as for a worker without a file
                return


class UncountedBatch(dict):
    """A batch without rows: it holds one example with the labels −100."""


class SharedRows(Subset):
    """All of a data set's rows. Of a batch of places it returns those with a row; `None` is an empty place."""

    def __init__(self, rows: Sequence):
        super().__init__(rows, range(len(rows)))

    def __getitems__(self, places: list[int | None]) -> list:
        return super().__getitems__([place for place in places if place is not None])


class FilledSampler(Sampler):
    """The order of `sampler`, padded at the end with empty places (`None`) to a multiple."""

    def __init__(self, sampler: Sampler, multiple: int):
        self.sampler = sampler
        self.multiple = multiple

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.sampler) + self._num_empty

    def __iter__(self) -> Iterator[int | None]:
        yield from self.sampler
        for _ in range(self._num_empty):
            yield None

    @property
    def _num_empty(self) -> int:
        return -len(self.sampler) % self.multiple


class CollatorOfRows:
    """Wraps a collator: a batch without rows is made of `rows[0]`, which counts for nothing."""

    def __init__(self, collator: Callable[[list], dict], rows: Sequence):
        self.collator = collator
        self.rows = rows

    def __call__(self, rows: list) -> dict:
        if rows:
            return self.collator(rows)
        batch = self.collator([self.rows[0]])
        labels = {name: torch.full_like(batch[name], IGNORED_LABEL) for name in batch if "label" in name}
        return UncountedBatch({**batch, **labels})


def share_rows(loader: DataLoader) -> None:
    """Makes each of a loader's [`SharedRows`] count once, after accelerate has split it over several processes.

    A loader with `drop_last` stays as it is.
    """
    shard = loader.batch_sampler
    if not isinstance(shard, BatchSamplerShard) or shard.drop_last:
        return
    multiple = shard.batch_size * (1 if shard.split_batches else shard.num_processes)
    shard.batch_sampler.sampler = FilledSampler(shard.batch_sampler.sampler, multiple)
    loader.base_dataloader.collate_fn = CollatorOfRows(loader.collate_fn, loader.dataset.dataset)

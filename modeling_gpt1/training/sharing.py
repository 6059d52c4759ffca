"""Spreading the rows of an update over several processes, so that each row counts once even if they divide unevenly.

DistributedDataParallel needs the same number of micro-batches from every process. accelerate fills the last ones with
rows from the beginning, which are then trained twice. Here the order of the rows is padded with empty places instead.
A micro-batch skips empty places. A micro-batch without any row holds one example with the labels −100, which the
models ignore.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from accelerate.data_loader import BatchSamplerShard, IterableDatasetShard
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler


class NoRow:
    """An empty place; `example` is any row of the same kind."""

    def __init__(self, example: Any):
        self.example = example


class UncountedBatch(dict):
    """A batch without rows: it holds one example with the labels −100."""


class SharedRows(Dataset):
    """Indexed rows. Of a batch of places it returns those with a row; `None` is an empty place."""

    def __init__(self, rows: Sequence):
        self.rows = rows

    def __getattr__(self, name: str) -> Any:
        if name == "rows" or name.startswith("__"):  # a starting worker asks before `rows` exists
            raise AttributeError(name)
        return getattr(self.rows, name)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def __getitems__(self, places: list[int | None]) -> list:
        indices = [place for place in places if place is not None]
        if not indices:
            return [NoRow(self.rows[0])]
        if callable(getattr(self.rows, "__getitems__", None)):
            return self.rows.__getitems__(indices)
        return [self.rows[index] for index in indices]


class SharedStream(IterableDataset):
    """A stream that every process reads from the beginning, keeping only its own rows. An update has the same rows as
    with one process, spread over all of them.

    accelerate gives each process its own files if there are enough. Files differ in length, so one process would begin
    another pass, with a shorter update, while others still have rows.

    Args:
        rows: a stream. If it is a `datasets` stream with several shards, each DataLoader worker reads its own.
    """

    def __init__(self, rows: IterableDataset):
        self.rows = rows
        self.multiple = 1  # a pass is padded to a multiple of this

    def __iter__(self) -> Iterator[Any]:
        num_rows, row = 0, None
        for row in self.rows:
            num_rows += 1
            yield row
        for _ in range(-num_rows % self.multiple):
            yield NoRow(row)

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self.rows, "set_epoch"):
            self.rows.set_epoch(epoch)


def check_whole(rows: IterableDataset) -> None:
    """Refuses a stream that was split over the processes beforehand: split again, it would lose rows."""
    if getattr(rows, "_distributed", None) is not None:
        raise ValueError(
            "The stream was split over the processes beforehand (`split_dataset_by_node`), and the trainer would "
            "split it again and lose rows. Pass the whole stream: each process reads its own rows."
        )


class FilledSampler(Sampler):
    """The order of `sampler`, padded at the end with empty places (`None`) to a multiple."""

    def __init__(self, sampler: Sampler, multiple: int):
        self.sampler, self.multiple = sampler, multiple

    def __getattr__(self, name: str) -> Any:
        if name == "sampler" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.sampler, name)

    def __len__(self) -> int:
        return len(self.sampler) + -len(self.sampler) % self.multiple

    def __iter__(self) -> Iterator[int | None]:
        yield from self.sampler
        yield from [None] * (-len(self.sampler) % self.multiple)


class CollatorOfRows:
    """Wraps a collator: makes the batch from existing rows only."""

    def __init__(self, collator: Callable[[list], dict]):
        self.collator = collator

    def __call__(self, rows: list) -> dict:
        own = [row for row in rows if not isinstance(row, NoRow)]
        if own:
            return self.collator(own)
        batch = self.collator([rows[0].example])
        labels = {name: torch.full_like(batch[name], -100) for name in batch if "label" in name}
        return UncountedBatch({**batch, **labels})


def share_rows(loader: DataLoader) -> None:
    """Makes each row of a loader count once, after accelerate has split the loader over several processes.

    The loader's rows are [`SharedRows`] or a [`SharedStream`]. A loader with `drop_last` stays as it is.
    """
    shard = loader.dataset if isinstance(loader.dataset, IterableDatasetShard) else loader.batch_sampler
    if not isinstance(shard, (BatchSamplerShard, IterableDatasetShard)) or shard.drop_last:
        return
    multiple = shard.batch_size * (1 if shard.split_batches else shard.num_processes)
    if isinstance(shard, IterableDatasetShard):
        shard.dataset.multiple = multiple
    elif isinstance(shard.batch_sampler, BatchSampler):
        shard.batch_sampler.sampler = FilledSampler(shard.batch_sampler.sampler, multiple)
    loader.base_dataloader.collate_fn = CollatorOfRows(loader.collate_fn)

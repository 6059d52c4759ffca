"""Rows of an update that are spread over several processes: each counts once, whether or not they divide evenly.

DistributedDataParallel needs as many micro-batches from every process. accelerate fills the last ones with rows from
the beginning, which are then trained twice. Here the order of the rows is filled up with places for which there is no
row: a micro-batch leaves them out, and one that has no row at all holds an example whose labels are −100, which the
models count for nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderDispatcher, IterableDatasetShard
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler


class NoRow:
    """A place without a row; `example` is any row of the same kind."""

    def __init__(self, example: Any):
        self.example = example


class UncountedBatch(dict):
    """A batch without a row: one example, whose labels are −100."""


class SharedRows(Dataset):
    """Rows with an index, and of a batch of places those that have a row; `None` is a place without one."""

    def __init__(self, rows: Sequence):
        self.rows = rows

    def __getattr__(self, name: str) -> Any:
        if name == "rows" or name.startswith("__"):  # asked for before there are rows, by a worker that is started
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
    """A stream that all processes read from its beginning, each to keep its own rows: those that one process would
    give to an update are spread over all of them.

    accelerate gives each process files of its own if there are enough. Those are of unequal length, so that one
    process would begin another pass, and a shorter update, where the others still have rows.

    Args:
        rows: a stream; of a stream of `datasets` with several shards, each worker of a DataLoader reads its own.
    """

    def __init__(self, rows: IterableDataset):
        self.rows = rows
        self.multiple = 1  # of rows and places without one, in a pass

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


class FilledSampler(Sampler):
    """The order of `sampler`, and at its end places without a row, `None`, up to a multiple."""

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
    """Makes the batch of the rows that there are."""

    def __init__(self, collator: Callable[[list], dict]):
        self.collator = collator

    def __call__(self, rows: list) -> dict:
        own = [row for row in rows if not isinstance(row, NoRow)]
        if own:
            return self.collator(own)
        batch = self.collator([rows[0].example])
        return UncountedBatch({**batch, "labels": torch.full_like(batch["labels"], -100)})


def share_rows(loader: DataLoader) -> None:
    """Lets each row of a loader count once, where accelerate has cut it over several processes.

    The loader's rows are [`SharedRows`] or a [`SharedStream`]. A loader that leaves out what does not divide
    (`drop_last`) stays as it is.

    Raises:
        ValueError: the first process reads the rows for all.
    """
    if isinstance(loader, DataLoaderDispatcher):
        raise ValueError(
            "`dispatch_batches` is True (`accelerator_config`), but then the first process gives some rows to two "
            "processes where they do not divide evenly. Leave it out: each process reads its own rows."
        )
    shard = loader.dataset if isinstance(loader.dataset, IterableDatasetShard) else loader.batch_sampler
    if not isinstance(shard, (BatchSamplerShard, IterableDatasetShard)) or shard.drop_last:
        return
    if shard.batch_size is None:  # the batches of `batch_rebalance` are those of a process already
        return
    multiple = shard.batch_size * (1 if shard.split_batches else shard.num_processes)
    if isinstance(shard, IterableDatasetShard):
        shard.dataset.multiple = multiple
    elif isinstance(shard.batch_sampler, BatchSampler):
        shard.batch_sampler.sampler = FilledSampler(shard.batch_sampler.sampler, multiple)
    loader.base_dataloader.collate_fn = CollatorOfRows(loader.collate_fn)

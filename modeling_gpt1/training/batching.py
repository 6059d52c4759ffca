"""Batching rows of similar length, so that batches have little padding.

Training has transformers' [`LengthGroupedSampler`], which sorts within groups of up to 50 updates drawn at random.
Evaluation reads the longest rows first and returns its predictions in the order of the data set.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from numbers import Real
from typing import Any

import datasets
import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler, Sampler, SequentialSampler
from transformers import EvalPrediction
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import EvalLoopOutput, has_length
from transformers.utils import logging

logger = logging.get_logger(__name__)

GROUP_BY_LENGTH = "group_by_length"


class LengthGrouping:
    """Groups a trainer's rows by length, and evaluates in the order of the data set.

    With `train_sampling_strategy="group_by_length"` the lengths are those of the column `args.length_column_name`, of
    the data collator's method `lengths`, or of the rows' own `input_ids`; rows without lengths are shuffled in
    training and evaluated in order. Results of `evaluate` and `predict`, inputs of metrics, and the loaders of
    `get_eval_dataloader` and `get_test_dataloader` keep the order of the data set. With
    `dataloader_persistent_workers` the loader of an earlier `evaluate` is returned, which has that one's order.
    """

    def __init__(self, trainer):
        self._trainer = weakref.proxy(trainer)  # no reference cycle: a deleted trainer frees its memory at once
        self._known_lengths = weakref.WeakKeyDictionary()  # lengths of each data set, read once
        self._restores_order = False  # whether results of a loader made at this time are put back in order

    def applies_to(self, rows: Any) -> bool:
        return self._trainer.args.train_sampling_strategy == GROUP_BY_LENGTH and has_length(rows)

    def train_sampler(self, rows: Sized, batch_size: int) -> Sampler:
        """Sampler that orders the rows in training, for batches of `batch_size` per device."""
        args, lengths = self._trainer.args, self._lengths_of(rows)
        if lengths is None:
            return RandomSampler(rows)
        # Rows per update: each update sees the same rows however they are split into batches and processes.
        num_rows = batch_size * args.gradient_accumulation_steps * args.world_size
        return SeededLengthGroupedSampler(num_rows, lengths, args.seed if args.data_seed is None else args.data_seed)

    def eval_sampler(self, rows: Sized) -> Sampler:
        """Sampler that orders the rows in an evaluation."""
        args = self._trainer.args
        # Keep the data set's order when metrics are computed per batch; and for preprocessed logits, which may have
        # no entry per row to put back in order.
        in_order = args.batch_eval_metrics or not args.eval_do_concat_batches
        in_order = in_order or self._trainer.preprocess_logits_for_metrics is not None or not self._restores_order
        lengths = None if in_order else self._lengths_of(rows)
        return SequentialSampler(rows) if lengths is None else LongestFirstSampler(lengths)

    def _lengths_of(self, rows: Sized) -> np.ndarray | None:
        try:
            lengths = self._known_lengths.get(rows)
        except TypeError:  # some data sets cannot be keys, such as a list
            return read_lengths(rows, self._trainer)
        if lengths is None or len(lengths) != len(rows):
            lengths = read_lengths(rows, self._trainer)
            if lengths is not None:
                self._known_lengths[rows] = lengths
        return lengths

    @contextmanager
    def restoring_order(self) -> Iterator[None]:
        """Within this context, evaluation loaders may read the longest rows first."""
        before, self._restores_order = self._restores_order, True
        try:
            yield
        finally:
            self._restores_order = before

    @contextmanager
    def results_in_order(self, dataloader: DataLoader) -> Iterator[Callable[[EvalLoopOutput], EvalLoopOutput]]:
        """Gives a function that puts the results in the order of the data set; the metrics get them so here."""
        sampler, compute_metrics = sampler_of(dataloader), self._trainer.compute_metrics
        if not isinstance(sampler, LongestFirstSampler):
            yield lambda output: output
            return

        def compute_in_order(prediction: EvalPrediction) -> dict:
            parts = ("predictions", "label_ids", "inputs", "losses")
            return compute_metrics(
                EvalPrediction(**{part: sampler.restore(getattr(prediction, part)) for part in parts})
            )

        if compute_metrics is not None:
            self._trainer.compute_metrics = compute_in_order
        try:
            yield lambda output: output._replace(
                predictions=sampler.restore(output.predictions), label_ids=sampler.restore(output.label_ids)
            )
        finally:
            self._trainer.compute_metrics = compute_metrics


class SeededLengthGroupedSampler(LengthGroupedSampler):
    """transformers' order of rows by length, which the seed and the number of the epoch decide alone.

    Args:
        batch_size (`int`): rows per update; a group has 50 updates, or a quarter of the rows if that is less.
        lengths (`np.ndarray`): length of each row.
        seed (`int`): seed of the first epoch's order.
    """

    def __init__(self, batch_size: int, lengths: np.ndarray, seed: int):
        super().__init__(batch_size, lengths=lengths.tolist(), generator=torch.Generator())
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed(self.seed + self.epoch)
        return super().__iter__()


class LongestFirstSampler(Sampler):
    """Orders rows from the longest to the shortest, so that a lack of memory shows at once."""

    def __init__(self, lengths: np.ndarray):
        self.order = np.argsort(-lengths, kind="stable")

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        return map(int, self.order)

    def restore(self, results: Any) -> Any:
        """Puts arrays with an entry per row in the order of the data set, also in tuples, lists and dictionaries."""
        if isinstance(results, Mapping):
            return type(results)({name: self.restore(part) for name, part in results.items()})
        if isinstance(results, (tuple, list)):
            return type(results)(self.restore(part) for part in results)
        # Some results have no entry per row, such as losses of batches.
        if not isinstance(results, np.ndarray) or results.ndim == 0 or len(results) != len(self.order):
            return results
        return results[np.argsort(self.order)]


def sampler_of(dataloader: DataLoader) -> Sampler | None:
    """The sampler that orders the rows, inside accelerate's shards of batches for several processes."""
    batches = dataloader.batch_sampler
    while hasattr(batches, "batch_sampler"):
        batches = batches.batch_sampler
    return getattr(batches, "sampler", None)


def read_lengths(rows: Sized, trainer) -> np.ndarray | None:
    """The length of each row from a column of numbers, the collator, or token ids; `None` where there is none."""
    args, collator, tokenizer = trainer.args, trainer.data_collator, trainer.processing_class
    lengths, name = None, "input_ids" if tokenizer is None else tokenizer.model_input_names[0]
    if isinstance(rows, datasets.Dataset) and args.length_column_name in rows.column_names:
        lengths = list(rows[args.length_column_name])
    if lengths and all(isinstance(length, Real) for length in lengths):
        return np.asarray(lengths)
    if callable(getattr(collator, "lengths", None)):
        return np.asarray(collator.lengths(rows))
    if len(rows) > 0 and isinstance(rows[0], Mapping) and isinstance(rows[0].get(name), Sized):
        return np.asarray([len(rows[index][name]) for index in range(len(rows))])
    logger.info("The lengths of the rows are unknown, so the rows are not grouped by length.")
    return None

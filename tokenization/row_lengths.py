"""The lengths of a data set's rows, counted when they are needed and kept beside the data set's files.

To group rows of like length, a trainer needs the lengths of a few rows at a time and the longest row of all. GPT-1's
tokenizer makes at most a token of a character, so texts that are far shorter than the longest need not be tokenised to
know that they are not the longest. A row takes 4 bytes.
"""

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.compute
from datasets import Dataset, is_caching_enabled
from datasets.fingerprint import Hasher
from transformers.utils import logging

# Part of the name of a kept file. Raise it when the same rows and tokenizer give other lengths.
LENGTHS_VERSION = "1.0.0"
SCANNED_ROWS, COUNTED_ROWS = 1 << 13, 1 << 10  # at once
# A letter or digit here is neither part of an HTML entity nor of an escape code, so a token has it.
WORD = "(?:^| )[A-Za-z0-9]"
# A character of n bytes becomes at most 1 + 5 (n - 1) others: "…" three, a composed letter up to three.
MORE_TOKENS_PER_BYTE = 5

logger = logging.get_logger(__name__)


class RowLengths:
    """The number of tokens of each row's longest sequence, cut to a limit. Places are given as for a numpy array.

    Args:
        rows ([`datasets.Dataset`]): the rows; they must outlive this object.
        count: the lengths of some rows that stand at these places of the data set, before they are cut.
        limit: the length to which a batch cuts a row.
        columns: the columns of text.
        num_special: tokens of a sequence beside those of the texts; None where the tokenizer is not GPT-1's, whose
            rules are known, so that all rows are counted at once.
        key: the name under which the lengths are kept; None keeps nothing.

    Raises:
        ValueError: from `count`, for the first row that cannot be used.
    """

    def __init__(
        self,
        rows: Dataset,
        count: Callable[[list[Mapping], Sequence[int]], list[int]],
        limit: int,
        columns: Sequence[str],
        num_special: int | None,
        key: str | None,
    ):
        self.limit, self._count = limit, count
        self._rows = weakref.proxy(rows)  # a data set may be the key of its lengths
        self._path = None if key is None else _path_of(rows, key)
        # Of rows that are not counted yet, the most tokens that they can have, below zero.
        self._counts = self._kept()
        self._num_kept = 0 if self._counts is None else int((self._counts >= 0).sum())
        if self._counts is None:
            self._counts = np.full(len(rows), -np.iinfo(np.int32).max, np.int32)
            has_word = np.zeros(len(rows), bool)
            if num_special is not None:
                has_word = self._scan(columns, num_special)
            self._read(np.flatnonzero(~has_word))

    def __len__(self) -> int:
        return len(self._counts)

    def __getitem__(self, places: int | slice | Sequence[int]) -> np.ndarray:
        places = np.arange(len(self))[places] if isinstance(places, slice) else np.asarray(places)
        self._read(np.atleast_1d(places))
        return np.minimum(self._counts[places], self.limit)

    def longest(self) -> np.ndarray:
        """The places of all rows of the greatest length."""
        while True:
            greatest = min(self._counts.max(initial=0), self.limit)
            longer = np.flatnonzero((self._counts < 0) & (np.minimum(-self._counts, self.limit) >= greatest))
            if not len(longer):
                break
            self._read(longer[np.argsort(self._counts[longer])[:COUNTED_ROWS]])
        self.keep()
        return np.flatnonzero(np.minimum(self._counts, self.limit) == greatest)

    def num_cut(self) -> int:
        """How many rows are longer than the limit."""
        self._read(np.flatnonzero(abs(self._counts) > self.limit))
        self.keep()
        return int((self._counts > self.limit).sum())

    def keep(self) -> None:
        """Writes the lengths that are known to a file, for other processes and runs."""
        num_known = int((self._counts >= 0).sum())
        if self._path is None or num_known == self._num_kept:
            return
        staging = self._path.with_suffix(f".{os.getpid()}")
        try:
            with staging.open("wb") as file:
                np.save(file, self._counts)
            staging.replace(self._path)
        except OSError as error:
            logger.warning(f"The lengths of the rows are not kept for another run: {error}")
            staging.unlink(missing_ok=True)
            self._path = None
        self._num_kept = num_known

    def _kept(self) -> np.ndarray | None:
        if self._path is None or not self._path.exists():
            return None
        try:
            return np.load(self._path)
        except (OSError, EOFError, ValueError) as error:
            logger.warning(f"The kept lengths of the rows are counted again: {self._path} cannot be read ({error}).")
            return None

    def _read(self, places: np.ndarray) -> None:
        places = np.unique(places[self._counts[places] < 0])
        for start in range(0, len(places), COUNTED_ROWS):
            chunk = places[start : start + COUNTED_ROWS]
            self._counts[chunk] = self._count(self._rows.__getitems__(chunk.tolist()), chunk)
        if len(places) and (self._counts >= 0).all():
            self.keep()

    def _scan(self, columns: Sequence[str], num_special: int) -> np.ndarray:
        """Bounds all lengths by the sizes of the texts. Returns which rows have a word in each of their texts."""
        has_word = np.zeros(len(self), bool)
        features = [self._rows.features.get(column) for column in columns]
        if any(getattr(feature, "dtype", None) not in ("string", "large_string") for feature in features):
            return has_word
        tables = self._rows.select_columns(list(columns)).with_format("arrow")
        for start in range(0, len(self), SCANNED_ROWS):
            table = tables[start : start + SCANNED_ROWS]
            part = slice(start, start + len(table))
            bounds = num_special
            has_word[part] = True
            for texts in table.columns:
                has_word[part] &= pyarrow.compute.match_substring_regex(texts, WORD).fill_null(False).to_numpy()
                characters = pyarrow.compute.utf8_length(texts).fill_null(0).to_numpy()
                num_bytes = pyarrow.compute.binary_length(texts).fill_null(0).to_numpy()
                bounds = bounds + characters + MORE_TOKENS_PER_BYTE * (num_bytes - characters)
            self._counts[part] = -bounds
        return has_word


def has_no_format(rows: object) -> bool:
    """Whether these are the rows of a `datasets.Dataset` as they stand in its columns, without a format."""
    if not isinstance(rows, Dataset) or rows.format["type"] is not None:
        return False
    return set(rows.format["columns"]) == set(rows.column_names)


def key_of(rows: Dataset, *settings: object) -> str:
    """A name for all that the lengths of these rows depend on."""
    return Hasher.hash((LENGTHS_VERSION, rows._fingerprint, *settings))


def _path_of(rows: Dataset, key: str) -> Path | None:
    """A file beside those of the data set; None for rows in memory, and where the caching of `datasets` is off."""
    files = rows.cache_files if is_caching_enabled() else []
    return Path(files[0]["filename"]).parent / f"lengths-{key}.npy" if files else None


__all__ = ["RowLengths", "has_no_format", "key_of"]

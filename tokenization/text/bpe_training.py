"""Learns the merges of a BPE from a stream of text: the same text always gives the same merges."""

import json
import os
from collections.abc import Iterable, Iterator
from itertools import repeat

from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from ..errors import UserError

DEFAULT_MERGES = 40_000  # the paper's
REPEATED_WORDS = 1 << 10


def texts_to_learn_from(files_or_iterator: str | os.PathLike | Iterable) -> Iterable[str]:
    """The texts of a corpus, as of `training_texts`, or those of an iterator. A list means files."""
    if not isinstance(files_or_iterator, (str, os.PathLike, list, tuple)):
        return files_or_iterator
    from .documents import training_texts  # imports datasets, which takes a second

    try:
        return training_texts(files_or_iterator)
    except UserError as error:
        if isinstance(files_or_iterator, os.PathLike):
            raise
        raise UserError(f"{error} Texts of your own are passed as an iterator, such as `iter(texts)`.") from error


def check_num_merges(num_merges: int) -> None:
    """Refuses a negative number before any text is read."""
    if num_merges < 0:
        raise UserError(f"`num_merges` is {num_merges}, but must be at least 0.")


def count_words(backend: Tokenizer, texts: Iterable[str], show_progress: bool) -> dict[str, int]:
    """How often each word occurs in the texts, as the backend's normalizer and pre-tokenizer make them."""
    counter = Tokenizer(BPE())
    if backend.normalizer is not None:
        counter.normalizer = backend.normalizer
    counter.pre_tokenizer = backend.pre_tokenizer
    trainer = BpeTrainer(vocab_size=0, show_progress=show_progress)
    counter.train_from_iterator(texts, trainer=trainer)
    return json.loads(trainer.__getstate__())["BpeTrainer"]["words"]


def learn_merges(
    words: dict[str, int],
    alphabet: list[str],
    num_merges: int,
    min_frequency: int = 2,
    show_progress: bool = True,
    **affixes: str,
) -> list[tuple[str, str]]:
    """The merges of counted words, most frequent first.

    Args:
        words: how often each word occurs. None has a space in it.
        alphabet: the symbols that words are made of, with their affixes.
        num_merges: merges to learn; fewer if the words have no more.
        min_frequency: a pair of symbols seen less often is not merged.
        show_progress: show a progress bar.
        affixes: `end_of_word_suffix` or `continuing_subword_prefix` of the symbols.
    """
    # The trainer numbers symbols with an affix in the order in which it meets them, which changes from run to run, and
    # breaks ties between merges by number. Symbols given as special tokens keep the same numbers.
    trainer = BpeTrainer(
        vocab_size=len(alphabet) + num_merges,
        min_frequency=min_frequency,
        special_tokens=alphabet,
        show_progress=show_progress,
        **affixes,
    )
    backend = Tokenizer(BPE(**affixes))
    backend.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    backend.train_from_iterator(_repeated(words), trainer=trainer)
    merges = json.loads(backend.to_str())["model"]["merges"]
    return [tuple(pair) for pair in merges[:num_merges]]


def _repeated(words: dict[str, int]) -> Iterator[str]:
    """Every word as often as it was counted, in strings of bounded length."""
    for word, count in words.items():
        whole, rest = divmod(count, REPEATED_WORDS)
        yield from repeat(f"{word} " * REPEATED_WORDS, whole)
        yield f"{word} " * rest

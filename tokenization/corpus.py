"""A corpus for pre-training as blocks of tokens: tokenised in pieces, cut, and prepared on disk or streamed.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018): contiguous
sequences of 512 tokens from books. The token ids are those of each whole document tokenised at once.
"""

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache

import multiprocess
import pyarrow.compute
from datasets import Dataset, Features, IterableDataset, List, Value
from datasets.exceptions import DatasetGenerationError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from .blocks import check_block_length, cut_blocks
from .documents import MOST_CHARACTERS, Source, check_corpus, generate_pieces

BATCH_CHARACTERS = 1 << 20  # tokenised in one call, by all threads of the tokenizer
# How far word_rules.py looks for a "<" around an HTML entity, with room for the entity. No other rule looks beyond a
# space between two letters.
CONTEXT_CHARACTERS = 1024
# Part of the cache's name. Raise it when the same corpus and options give different rows.
BLOCKS_VERSION = "1.0.2"


def load_blocks(
    source: Source,
    tokenizer: PreTrainedTokenizerBase,
    block_length: int = 512,
    name: str | None = None,
    split: str = "train",
    text_column: str = "text",
    fix_text: bool = False,
    mix_documents: bool = False,
    streaming: bool = False,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    document_per: str = "file",
) -> Dataset | IterableDataset:
    """
    Contiguous blocks of tokens for pre-training.

    Every token of the corpus is in exactly one block. The last block of a document may be shorter, but has at least 2
    tokens (the block before it gives one up if necessary). Only documents of a single token, which have no target, are
    left out.

    Args:
        source, name, split, text_column, fix_text, document_per: as in `load_documents`.
        tokenizer: a fast one; the ids are those of whole documents, without control tokens. A tokenizer other than
            GPT-1's must begin a token at each space between two letters, as byte-level BPE does. Over a million
            characters without such a space are cut at another one or, without any, within a word.
        block_length: tokens per block.
        mix_documents: let blocks continue into the next document. Files are read in shards of 1 MB or more, and the
            last block of a shard may be shorter.
        streaming: tokenise while training instead of beforehand. The stream has as many shards as the corpus, for
            `split_dataset_by_node` and the workers of a DataLoader. Its `state_dict` does not hold the rows in the
            buffer of `shuffle`: to resume a shuffled stream, skip the rows already read, as Trainer does.
        num_proc: processes that tokenise beforehand, one shard each at a time. Default: this one, with the threads of
            the tokenizer (TOKENIZERS_PARALLELISM).
        cache_dir: where prepared blocks are kept. Default: that of `datasets`. Blocks are prepared again when a file,
            the tokenizer or an option changes; the output of an interrupted run is never used.

    Returns:
        Rows of `input_ids`, 16-bit integers if the vocabulary fits, else 32-bit: on disk, or as a stream.

    Raises:
        ValueError: as in `load_documents`; `block_length` is below 3; `num_proc` for a stream.
        ImportError: `fix_text` without ftfy.
    """
    check_block_length(block_length)
    if streaming and num_proc is not None:
        raise ValueError(
            f"num_proc is {num_proc}, but a stream is tokenised where it is read. Leave num_proc out and give the "
            "DataLoader workers (dataloader_num_workers), or leave streaming out."
        )
    reading = check_corpus(source, name, split, text_column, fix_text, document_per)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    gen_kwargs = {
        **reading,
        "tokenizer": backend.to_str(),
        "block_length": block_length,
        "mix_documents": mix_documents,
    }
    features = Features({"input_ids": List(Value("uint16" if len(tokenizer) <= 1 << 16 else "uint32"))})
    if streaming:
        return IterableDataset.from_generator(_generate_blocks, features=features, gen_kwargs=gen_kwargs)
    try:
        return Dataset.from_generator(
            _generate_blocks,
            features=features,
            gen_kwargs=gen_kwargs,
            num_proc=num_proc,
            cache_dir=cache_dir,
            version=BLOCKS_VERSION,
        )
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None  # the file that cannot be read


def count_tokens(blocks: Dataset) -> int:
    """Tokens of the blocks that `load_blocks` prepared, from Arrow's row lengths, without reading any token."""
    lengths = pyarrow.compute.list_value_length(blocks.data.column("input_ids")).to_numpy()
    return int((lengths if blocks._indices is None else lengths[blocks._indices.column(0).to_numpy()]).sum())


def _generate_blocks(
    shards: list,
    text_column: str,
    ftfy_version: str | None,
    tokenizer: str,
    block_length: int,
    mix_documents: bool,
) -> Iterator[dict]:
    if multiprocess.parent_process() is not None:  # processes that tokenise beside each other need no threads
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for shard in shards:
        ids = _tokenise(_parts(generate_pieces([shard], text_column, ftfy_version)), _backend(tokenizer))
        ids = ((starts_document and not mix_documents, part) for starts_document, part in ids)
        yield from ({"input_ids": block} for block in cut_blocks(ids, block_length) if len(block) > 1)


@lru_cache(maxsize=1)
def _backend(serialised: str) -> Tokenizer:
    backend = Tokenizer.from_str(serialised)
    backend.encode_special_tokens = True  # text that spells a control token stays text
    return backend


def _tokenise(parts: Iterable[tuple[bool, str]], backend: Tokenizer) -> Iterator[tuple[bool, list[int]]]:
    """For each part, whether a document begins with it, and its ids."""
    for batch in _batches(parts):
        starts, texts = zip(*batch, strict=True)
        encodings = backend.encode_batch_fast(list(texts), add_special_tokens=False)
        yield from zip(starts, (encoding.ids for encoding in encodings), strict=True)


def _parts(pieces: Iterable[dict]) -> Iterator[tuple[bool, str]]:
    """The same text cut before words, and whether a document begins with a part.

    A line end is no such place: its tokens may reach into the text on both sides.
    """
    text, starts_document = "", True
    for piece in pieces:
        if piece["starts_document"]:
            if text:
                yield starts_document, text
            text, starts_document = "", True
        searched = max(0, len(text) - CONTEXT_CHARACTERS)
        text += piece["text"]
        if end := _place_to_cut(text, searched):
            yield starts_document, text[:end]
            text, starts_document = text[end:], False
    if text:
        yield starts_document, text


def _place_to_cut(text: str, searched: int) -> int:
    """Where a cut leaves the tokens as they are; 0 if nowhere yet, nor in the first `searched` characters."""
    place = max(0, len(text) - CONTEXT_CHARACTERS)
    while (place := text.rfind(" ", searched, place)) > 0:
        near = text[max(0, place - CONTEXT_CHARACTERS) : place + CONTEXT_CHARACTERS]
        if text[place - 1].isalpha() and text[place + 1].isalpha() and not ("<" in near and "&" in near):
            return place
    return 0 if len(text) < MOST_CHARACTERS else max(0, text.rfind(" ")) or len(text)


def _batches(parts: Iterable[tuple[bool, str]]) -> Iterator[list[tuple[bool, str]]]:
    batch, characters = [], 0
    for part in parts:
        batch.append(part)
        characters += len(part[1])
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


__all__ = ["count_tokens", "load_blocks"]

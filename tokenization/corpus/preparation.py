"""A corpus for pre-training as blocks of tokens: tokenised in pieces, cut, and prepared on disk or streamed.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018): contiguous
sequences of 512 tokens from books. The token ids are those of each whole document tokenised at once.
"""

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import multiprocess
import numpy as np
import pyarrow.compute
from datasets import Dataset, Features, IterableDataset, List, Value, config
from datasets.exceptions import DatasetGenerationError
from datasets.io.generator import GeneratorDatasetInputStream
from multiprocess.pool import RemoteTraceback
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..text.documents import Source, check_corpus, generate_pieces
from .blocks import check_block_length, cut_blocks

BATCH_PIECES = 32  # tokenised in one call, by all threads of the tokenizer
# Part of the cache's name. Raise it when the same corpus and options give different rows.
BLOCKS_VERSION = "1.0.3"


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
    """Contiguous blocks of tokens for pre-training.

    Every token of the corpus is in exactly one block. The last block of a document may be shorter, but has at least 2
    tokens (the block before it gives one up if necessary). Only documents of a single token, which have no target, are
    left out.

    Args:
        source, name, split, text_column, fix_text, document_per: as in `training_texts`.
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
        ValueError: as in `training_texts`; `block_length` is below 3; `num_proc` for a stream; no block; damaged
            blocks in the cache.
        ImportError: `fix_text` without ftfy.
    """
    check_block_length(block_length)
    if streaming and num_proc is not None:
        raise UserError(
            f"`num_proc` is {num_proc}, but `streaming` tokenises the text while it is read. Leave `num_proc` out and "
            "pass `dataloader_num_workers`, or leave `streaming` out."
        )
    reading = check_corpus(source, name, split, text_column, fix_text, document_per)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    arguments = {
        **reading,
        "tokenizer": backend.to_str(),
        "block_length": block_length,
        "mix_documents": mix_documents,
    }
    id_type = "uint16" if len(tokenizer) <= 1 << 16 else "uint32"
    features = Features({"input_ids": List(Value(id_type))})
    if streaming:
        return IterableDataset.from_generator(_generate_blocks, features=features, gen_kwargs=arguments)
    try:
        preparation = GeneratorDatasetInputStream(  # as `Dataset.from_generator`, but it names its folder
            _generate_blocks,
            features=features,
            gen_kwargs=arguments,
            num_proc=num_proc,
            cache_dir=cache_dir,
            version=BLOCKS_VERSION,
        )
    except json.JSONDecodeError as error:
        raise UserError(
            f"The description of prepared blocks (dataset_info.json) cannot be read: {error}. Delete the folder "
            f"`generator` in {cache_dir or config.HF_DATASETS_CACHE}, and they are prepared again."
        ) from error
    folder = preparation.builder.cache_dir
    is_prepared = os.path.isdir(folder)
    try:
        return preparation.read()
    except (OSError, pyarrow.ArrowException) as error:
        if not is_prepared:
            raise
        raise UserError(
            f"The prepared blocks in {folder} cannot be read: {str(error).rstrip('.')}. Delete that folder, and they "
            "are prepared again."
        ) from error
    except DatasetGenerationError as error:
        if not isinstance(error.__cause__, RemoteTraceback):
            raise (error.__cause__ or error) from None  # the file that cannot be read
        refusal = _refusal_of_another_process(error.__cause__)
        if refusal is None:
            raise
        raise refusal from None
    except ValueError as error:
        if "no data" not in str(error):
            raise
        raise UserError(
            "No document has two tokens, so there is no next token to predict. Pass `mix_documents`, which joins "
            "documents."
        ) from error


def count_tokens(blocks: Dataset) -> int:
    """Tokens of the blocks that `load_blocks` prepared, from Arrow's row lengths, without reading any token."""
    return int(lengths_of(blocks).sum())


def lengths_of(blocks: Dataset) -> np.ndarray:
    """Tokens of each block that `load_blocks` prepared."""
    lengths = pyarrow.compute.list_value_length(blocks.data.column("input_ids")).to_numpy()
    if blocks._indices is not None:  # of rows that were selected or shuffled
        lengths = lengths[blocks._indices.column(0).to_numpy()]
    return lengths


def unigram_perplexity(blocks: Dataset) -> float:
    """Perplexity of the blocks by the frequencies of their tokens alone: that of a model which learns no order."""
    ids = pyarrow.compute.list_flatten(blocks.with_format("arrow")[:]["input_ids"])
    counts = pyarrow.compute.value_counts(ids).field("counts").to_numpy()
    num_tokens = counts.sum()
    entropy = np.log(num_tokens) - counts @ np.log(counts) / num_tokens  # = -sum(n / N * log(n / N))
    return float(np.exp(entropy))


def _refusal_of_another_process(traceback: RemoteTraceback) -> UserError | None:
    """The `UserError` in the text of a traceback, which is all that `datasets` lets out of a process."""
    name = f"{UserError.__module__}.{UserError.__qualname__}: "
    sentences = [line.removeprefix(name) for line in str(traceback).splitlines() if line.startswith(name)]
    return UserError(sentences[-1]) if sentences else None


def _generate_blocks(
    shards: list, text_column: str, ftfy_version: str | None, tokenizer: str, block_length: int, mix_documents: bool
) -> Iterator[dict]:
    if multiprocess.parent_process() is not None:  # processes that tokenise beside each other need no threads
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for shard in shards:
        pieces = generate_pieces([shard], text_column, ftfy_version)
        id_lists = _tokenise(pieces, _backend(tokenizer))
        if mix_documents:
            id_lists = ((False, ids) for _, ids in id_lists)
        for block in cut_blocks(id_lists, block_length):
            if len(block) > 1:
                yield {"input_ids": block}


@lru_cache(maxsize=1)
def _backend(serialised: str) -> Tokenizer:
    backend = Tokenizer.from_str(serialised)
    backend.encode_special_tokens = True  # text that spells a control token stays text
    return backend


def _tokenise(pieces: Iterator[dict], backend: Tokenizer) -> Iterator[tuple[bool, list[int]]]:
    """For each piece, whether a document begins with it, and its ids."""
    while batch := list(islice(pieces, BATCH_PIECES)):
        encodings = backend.encode_batch_fast([piece["text"] for piece in batch], add_special_tokens=False)
        for piece, encoding in zip(batch, encodings, strict=True):
            yield piece["starts_document"], encoding.ids

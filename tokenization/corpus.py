"""A corpus for pre-training: files or a data set of the hub, read as a stream, cleaned, tokenised and cut into blocks.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018): contiguous
sequences of 512 tokens from books that ftfy cleaned. Documents are read in pieces, so that memory does not grow with
the corpus or with one document that can be cut, and the token ids are those of each whole document tokenised at once.
"""

import glob
import itertools
import lzma
import os
import re
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import fsspec
import numpy as np
import pyarrow.compute
from datasets import Dataset, Features, IterableDataset, List, Value, load_dataset, load_dataset_builder
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .blocks import check_block_length, cut_blocks
from .tokenization_gpt1 import NEWLINE

KINDS = {".txt": "text", ".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
READER_OPTIONS = {"csv": {"keep_default_na": False}}  # a document "NA" is text
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")

PIECE_CHARACTERS = 1 << 16
BATCH_CHARACTERS = 1 << 20  # tokenised in one call, by as many threads as the tokenizer has
SHARD_BYTES = 1 << 20
# How far word_rules.py looks for a "<" around an HTML entity, with room for the entity. No other rule looks beyond the
# end of a line, nor beyond a space between two letters.
CONTEXT_CHARACTERS = 1024
WORD_GAP = re.compile("[a-z] (?=[a-z])")
BEFORE_WORD = re.compile("(?<=[a-z])(?= [a-z])")
# Part of the cache's name: to be raised when the same corpus and options give other rows.
BLOCKS_VERSION = "1.0.0"

Source = str | os.PathLike | Sequence[str | os.PathLike]

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class FileShard:
    """Files of one kind that are read one after another; size and time of change are there for the cache's name."""

    kind: str
    files: tuple[tuple[str, int, int], ...]

    def documents(self, text_column: str) -> Iterator[Iterable[str]]:
        """The chunks of text of each document."""
        for path, _, _ in self.files:
            if self.kind == "text":
                yield _read_text(path)
            else:
                for number, row in enumerate(_read_rows(path, self.kind)):
                    yield _chunks(_text_of(row, text_column, f"{path}, row {number}"))


@dataclass(frozen=True)
class HubShard:
    """One of the parts into which `datasets` divides a data set of the hub."""

    name: str
    config: str | None
    split: str
    revision: str
    index: int
    num_shards: int

    def documents(self, text_column: str) -> Iterator[Iterable[str]]:
        """The chunks of text of each document."""
        rows = _hub_rows(self.name, self.config, self.split, self.revision)
        for number, row in enumerate(rows.shard(self.num_shards, self.index)):
            yield _chunks(_text_of(row, text_column, f"{self.name}, split {self.split}, row {number}"))


@dataclass(frozen=True)
class BlockCounts:
    """What a prepared corpus holds.

    Attributes:
        rows: blocks.
        tokens: tokens of all blocks.
        short_rows: blocks that are shorter than `block_length`: the ends of documents.
        left_out_tokens: documents of a single token, which are in no block because they have no target.
    """

    rows: int
    tokens: int
    short_rows: int
    left_out_tokens: int


def load_documents(
    source: Source,
    name: str | None = None,
    split: str = "train",
    text_column: str = "text",
    fix_text: bool = False,
) -> IterableDataset:
    """
    Streams the text of a corpus.

    Args:
        source: a path, a pattern such as `books/*.txt`, a folder of files of one kind, a data set of the hub, or a
            list of these. Files end in .txt (a file is a document), .jsonl, .json, .csv or .parquet (a row is a
            document, without text if it is null), all but .parquet also with .gz, .bz2, .xz or .zst after it.
        name: configuration of a data set of the hub.
        split: split of a data set of the hub.
        text_column: column of the text, where a row is a document.
        fix_text: clean the text with ftfy, as the paper does; a line longer than a piece is cleaned in parts.

    Returns:
        Rows of `text`, a piece of about 64 K characters at most that ends at a line end, and `starts_document`; a
        longer line is cut between two Latin letters, and is one piece where it has no such place. Pieces
        of a document follow each other; joined they are its text.

    Raises:
        ValueError: a file that is missing, of an unknown kind or not UTF-8 text, a missing column, or no text at all;
            what first comes to light while a corpus is read raises there.
        ImportError: `fix_text` without ftfy.
    """
    features = Features({"text": Value("string"), "starts_document": Value("bool")})
    gen_kwargs = _reading(source, name, split, text_column, fix_text)
    return IterableDataset.from_generator(_generate_pieces, features=features, gen_kwargs=gen_kwargs)


def training_texts(
    source: Source,
    name: str | None = None,
    split: str = "train",
    text_column: str = "text",
    fix_text: bool = False,
) -> Iterator[str]:
    """
    The pieces of `load_documents` as strings, for `GPT1Tokenizer.train`; same arguments and errors.
    """
    pieces = _generate_pieces(**_reading(source, name, split, text_column, fix_text))
    return (piece["text"] for piece in pieces)


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
) -> Dataset | IterableDataset:
    """
    Contiguous blocks of tokens for pre-training.

    Every token of the corpus is in exactly one block: the end of a document is a shorter block, of 2 tokens at least
    (the block before it gives one up where it must). Only a document of a single token, which has no target, is left
    out; `count_blocks` says how many were.

    Args:
        source, name, split, text_column, fix_text: as in `load_documents`.
        tokenizer: a fast one; its ids are those of whole documents, without control tokens. One that is not GPT-1's
            must begin a token at each space between two letters, as byte-level BPE does.
        block_length: tokens of a block.
        mix_documents: a block may go on into the next document. Files are read in shards of 1 MB or more, and the last
            block of a shard is shorter.
        streaming: tokenise while training instead of beforehand. The stream has as many shards as the corpus, for
            `split_dataset_by_node` and the workers of a DataLoader. Its `state_dict` does not hold the rows in the
            buffer of `shuffle`: to go on with a shuffled stream, skip the rows that were read, as Trainer does.
        num_proc: processes that tokenise beforehand, a shard at a time. Default: this one, with the threads of the
            tokenizer (TOKENIZERS_PARALLELISM).
        cache_dir: where prepared blocks are kept. Default: that of `datasets`. Blocks are prepared again when a file,
            the tokenizer or an option changes; what an interrupted run wrote is never used.

    Returns:
        Rows of `input_ids`, 16-bit integers where the vocabulary fits, on disk; or a stream of them.

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
    reading = _reading(source, name, split, text_column, fix_text)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    gen_kwargs = {
        **reading,
        "tokenizer": backend.to_str(),
        "newline_id": backend.token_to_id(NEWLINE),
        "block_length": block_length,
        "mix_documents": mix_documents,
    }
    features = Features({"input_ids": List(Value("uint16" if len(tokenizer) <= 1 << 16 else "uint32"))})
    if streaming:
        return IterableDataset.from_generator(_generate_trainable_blocks, features=features, gen_kwargs=gen_kwargs)
    return _prepared(features, gen_kwargs, num_proc, cache_dir, source)


def count_blocks(blocks: Dataset, block_length: int = 512) -> BlockCounts:
    """
    Counts the blocks that `load_blocks` prepared, from the row lengths that Arrow has, without reading a token.
    """
    prepared = _row_lengths(blocks)
    lengths = prepared if blocks._indices is None else prepared[blocks._indices.column(0).to_numpy()]
    left_out = int((prepared == 1).sum() - (lengths == 1).sum())
    return BlockCounts(len(lengths), int(lengths.sum()), int((lengths < block_length).sum()), left_out)


def _row_lengths(blocks: Dataset) -> np.ndarray:
    """Tokens of each row on disk, also of those that a selection left out."""
    return pyarrow.compute.list_value_length(blocks.data.column("input_ids")).to_numpy()


def _prepared(features: Features, gen_kwargs: dict, num_proc, cache_dir, source: Source) -> Dataset:
    try:
        blocks = Dataset.from_generator(
            _generate_blocks,
            features=features,
            gen_kwargs=gen_kwargs,
            num_proc=num_proc,
            cache_dir=cache_dir,
            version=BLOCKS_VERSION,
        )
    except DatasetGenerationError as error:
        # Of the cause in another process only the printed traceback comes back.
        causes = re.findall("^ValueError: (.*)", "".join(traceback.format_exception(error)), re.MULTILINE)
        if not causes:
            raise
        raise ValueError(causes[-1]) from error
    lengths = _row_lengths(blocks)
    single = int((lengths == 1).sum())
    if single:
        logger.warning(f"{single} documents of one token are left out of the blocks: they have no target.")
        blocks = blocks.select(np.flatnonzero(lengths > 1))
    if len(blocks) == 0:
        raise ValueError(f"{source} has no document of two tokens or more. Give a corpus with text in it.")
    return blocks


def _reading(source: Source, name: str | None, split: str, text_column: str, fix_text: bool) -> dict:
    """The arguments of `_generate_pieces`, checked by reading the first piece."""
    if fix_text and find_spec("ftfy") is None:
        raise ImportError("fix_text cleans the corpus with ftfy, which is not installed: pip install ftfy")
    reading = {
        "shards": _shards([source] if isinstance(source, (str, os.PathLike)) else source, name, split),
        "text_column": text_column,
        "ftfy_version": version("ftfy") if fix_text else None,
    }
    if not any(piece["text"].strip() for piece in _generate_pieces(**reading)):
        raise ValueError(f"{source} has no text. Give a corpus with text in it.")
    return reading


# ---- From a source to shards.


def _shards(sources: Sequence[str | os.PathLike], name: str | None, split: str) -> list:
    hub_shards, files = [], []
    for source in sources:
        if _is_hub_name(source):
            hub_shards += _hub_shards(source, name, split)
        elif name is not None:
            raise ValueError(f"{source} is no data set of the hub and has no configuration {name}. Leave name out.")
        else:
            files += _find_files(os.path.abspath(source))
    return [*_file_shards(dict.fromkeys(files)), *hub_shards]


def _is_hub_name(source: str | os.PathLike) -> bool:
    if isinstance(source, os.PathLike) or os.path.exists(source) or glob.has_magic(source):
        return False
    return HUB_NAME.fullmatch(source) is not None and _kind(source) is None


def _hub_shards(source: str, name: str | None, split: str) -> list[HubShard]:
    try:
        builder = load_dataset_builder(source, name)
    except (DatasetNotFoundError, ConnectionError) as error:
        raise ValueError(
            f"{source} is no file or folder, and as a data set of the hub it cannot be read: {error}"
        ) from error
    rows = _hub_rows(source, name, split, builder.hash)
    return [HubShard(source, name, split, builder.hash, index, rows.num_shards) for index in range(rows.num_shards)]


@lru_cache(maxsize=1)
def _hub_rows(source: str, name: str | None, split: str, revision: str) -> IterableDataset:
    return load_dataset(source, name, split=split, revision=revision, streaming=True)


def _file_shards(paths: Iterable[str]) -> list[FileShard]:
    """Files that follow each other and are of one kind, up to the one that makes them a shard's size."""
    shards, files, total = [], [], 0
    for kind, group in itertools.groupby(paths, _checked_kind):
        for path in group:
            stat = os.stat(path)
            files.append((path, stat.st_size, stat.st_mtime_ns))
            total += stat.st_size
            if total >= SHARD_BYTES:
                shards.append(FileShard(kind, tuple(files)))
                files, total = [], 0
        if files:
            shards.append(FileShard(kind, tuple(files)))
            files, total = [], 0
    return shards


def _find_files(source: str) -> list[str]:
    """The file, the files that the pattern matches, or those of the folder and its folders."""
    if os.path.isfile(source):
        return [source]
    if os.path.isdir(source):
        found = Path(source).rglob("*")
        found = [path for path in found if not any(part[0] == "." for part in path.relative_to(source).parts)]
    else:
        found = [Path(path) for path in glob.glob(source, recursive=True)]
    files = sorted(str(path) for path in found if path.is_file())
    if not files:
        raise ValueError(
            f"{source} matches no file. Give the path of a file or folder, or a pattern such as books/*.txt."
        )
    kinds = {_checked_kind(path): path for path in files}
    if os.path.isdir(source) and len(kinds) > 1:
        first, second, *_ = kinds.values()
        raise ValueError(
            f"{source} has files of more than one kind: {first} and {second}. Give a pattern such as {source}/*.txt."
        )
    return files


def _kind(path: str) -> str | None:
    stem, ending = os.path.splitext(path)
    if ending not in COMPRESSIONS:
        return KINDS.get(ending)
    kind = KINDS.get(os.path.splitext(stem)[1])
    return None if kind == "parquet" else kind  # compressed inside


def _checked_kind(path: str) -> str:
    kind, ending = _kind(path), os.path.splitext(path)[1]
    if kind is None:
        raise ValueError(
            f"{path} is of an unknown kind. The files of a corpus end in {', '.join(KINDS)}, all but .parquet also "
            f"with {', '.join(COMPRESSIONS)} after it."
        )
    if ending in COMPRESSIONS and COMPRESSIONS[ending] not in fsspec.available_compressions():
        raise ValueError(f"{path} cannot be unpacked without the package zstandard: pip install zstandard")
    return kind


# ---- From shards to pieces of text.


def _generate_pieces(shards: list, text_column: str, ftfy_version: str | None) -> Iterator[dict]:
    for shard in shards:
        for chunks in shard.documents(text_column):
            clean = _cleaner() if ftfy_version else None
            for number, piece in enumerate(_pieces(chunks)):
                yield {"text": clean(piece) if clean else piece, "starts_document": number == 0}


def _read_text(path: str) -> Iterator[str]:
    try:
        with fsspec.open(path, "rt", encoding="utf-8", compression="infer", newline=None) as file:
            while chunk := file.read(PIECE_CHARACTERS):
                yield chunk
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason}). Convert it to UTF-8.") from error
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _read_rows(path: str, kind: str) -> Iterator[dict]:
    try:
        options = READER_OPTIONS.get(kind, {})
        rows = load_dataset(kind, data_files=glob.escape(path), split="train", streaming=True, **options)
        yield from rows
    except StopIteration:  # of the JSON reader, for a file without rows
        return
    except (ValueError, *UNREADABLE) as error:
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error


def _text_of(row: dict, text_column: str, place: str) -> str:
    if text_column not in row:
        raise ValueError(f"{place} has no column {text_column}; it has {', '.join(row)}. Name the column of the text.")
    text = row[text_column]
    if text is not None and not isinstance(text, str):
        raise ValueError(
            f"{place}: column {text_column} holds {text!r}, which is no text. Name the column of the text."
        )
    return text or ""


def _chunks(text: str) -> Iterator[str]:
    return (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))


def _pieces(chunks: Iterable[str]) -> Iterator[str]:
    """Cuts a document at line ends, and a line that is longer than a piece between two words."""
    pending = ""
    for chunk in chunks:
        pending += chunk
        while len(pending) >= PIECE_CHARACTERS and (end := pending.rfind("\n") + 1 or _word_cut(pending)):
            yield pending[:end]
            pending = pending[end:]
    if pending:
        yield pending


def _word_cut(line: str) -> int:
    """Where a long line can be cut and give the same tokens: 0 if nowhere."""
    for gap in reversed(list(WORD_GAP.finditer(line, 0, len(line) - CONTEXT_CHARACTERS))):
        end = gap.end()
        entity_before = "&" in line[max(0, end - CONTEXT_CHARACTERS) : end]
        if not (entity_before and "<" in line[end : end + CONTEXT_CHARACTERS]):
            return end
    return 0


def _cleaner() -> Callable[[str], str]:
    """ftfy for the pieces of a document: as in a whole text, HTML entities are left alone from the first "<" on."""
    import ftfy

    config = ftfy.TextFixerConfig(explain=False)

    def clean(piece: str) -> str:
        nonlocal config
        fixed = ftfy.fix_text(piece, config)
        if "<" in piece:
            config = config._replace(unescape_html=False)
        return fixed

    return clean


# ---- From pieces of text to blocks.


def _generate_blocks(
    shards: list,
    text_column: str,
    ftfy_version: str | None,
    tokenizer: str,
    newline_id: int | None,
    block_length: int,
    mix_documents: bool,
) -> Iterator[dict]:
    for shard in shards:
        pieces = _generate_pieces([shard], text_column, ftfy_version)
        if newline_id is None:
            ids = _tokenise_as_is(_cut_before_words(pieces), _backend(tokenizer))
        else:
            ids = _tokenise(pieces, _backend(tokenizer), newline_id)
        ids = ((starts_document and not mix_documents, piece) for starts_document, piece in ids)
        for block in cut_blocks(ids, block_length):
            yield {"input_ids": block}


def _generate_trainable_blocks(**kwargs) -> Iterator[dict]:
    """Without documents of one token; on disk they stay, so that they can be counted."""
    left_out = 0
    for row in _generate_blocks(**kwargs):
        if len(row["input_ids"]) > 1:
            yield row
        else:
            left_out += 1
    if left_out:
        logger.warning(f"{left_out} documents of one token were left out of the stream: they have no target.")


@lru_cache(maxsize=1)
def _backend(serialised: str) -> Tokenizer:
    backend = Tokenizer.from_str(serialised)
    backend.encode_special_tokens = True  # text that spells a control token stays text
    return backend


def _tokenise(pieces: Iterable[dict], backend: Tokenizer, newline_id: int) -> Iterator[tuple[bool, list[int]]]:
    """Whether a document begins, and GPT-1's ids, which joined are those of the whole document.

    The tokenizer strips both ends of a text, so the line break between two pieces is put back.
    """
    context, has_tokens, newline = "", False, False
    for batch in _batches(pieces):
        prefixes = []
        for piece in batch:
            context = "" if piece["starts_document"] else context
            prefixes.append(_context_prefix(context, piece["text"]))
            context = (context + piece["text"])[-CONTEXT_CHARACTERS:]
        texts = [prefix + piece["text"] for prefix, piece in zip(prefixes, batch, strict=True)]
        encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
        for piece, prefix, encoding in zip(batch, prefixes, encodings, strict=True):
            ids = encoding.ids[2:] if prefix else encoding.ids
            if piece["starts_document"]:
                has_tokens = newline = False
            yield piece["starts_document"], [newline_id, *ids] if has_tokens and newline and ids else ids
            newline = piece["text"].endswith("\n")
            has_tokens = has_tokens or bool(ids)


def _cut_before_words(pieces: Iterable[dict]) -> Iterator[dict]:
    """The same text in pieces of another cut: not at line ends, whose spaces may belong to tokens of both sides."""
    text, starts_document = "", True
    for piece in pieces:
        if piece["starts_document"] and text:
            yield {"text": text, "starts_document": starts_document}
            text, starts_document = "", True
        looked_through = max(0, len(text) - 1)
        text += piece["text"]
        end = max((place.start() for place in BEFORE_WORD.finditer(text, looked_through)), default=0)
        if end > 0:
            yield {"text": text[:end], "starts_document": starts_document}
            text, starts_document = text[end:], False
    if text:
        yield {"text": text, "starts_document": starts_document}


def _tokenise_as_is(pieces: Iterable[dict], backend: Tokenizer) -> Iterator[tuple[bool, list[int]]]:
    """Whether a document begins, and the ids of each piece."""
    for batch in _batches(pieces):
        encodings = backend.encode_batch_fast([piece["text"] for piece in batch], add_special_tokens=False)
        yield from ((piece["starts_document"], encoding.ids) for piece, encoding in zip(batch, encodings, strict=True))


def _context_prefix(context: str, text: str) -> str:
    """A line of two tokens that stands for a "<" before the piece: an HTML entity soon after one stays as it is."""
    sign = context.rfind("<")
    if sign < 0 or "&" not in text[:CONTEXT_CHARACTERS]:
        return ""
    return "<" + " " * (len(context) - sign - 2) + "\n"


def _batches(pieces: Iterable[dict]) -> Iterator[list[dict]]:
    batch, characters = [], 0
    for piece in pieces:
        batch.append(piece)
        characters += len(piece["text"])
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


__all__ = ["BlockCounts", "count_blocks", "load_blocks", "load_documents", "training_texts"]

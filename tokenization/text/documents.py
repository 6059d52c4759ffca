"""The text of a corpus: files or a data set of the hub, read as a stream of documents in pieces, cleaned on request.

Memory grows neither with the corpus nor with a document, but with the longest line where lines are asked for.
"""

import glob
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

import fsspec
from datasets import IterableDataset, load_dataset, load_dataset_builder
from datasets.exceptions import DatasetNotFoundError
from transformers.utils import logging

from ..errors import UserError
from ..file_kinds import COMPRESSIONS, CORPUS_FILES, reader_options, to_utf8
from ..wording import nearest

logger = logging.get_logger(__name__)

UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")

PIECE_CHARACTERS = 1 << 16
# How far word_rules.py looks for a "<" around an HTML entity, with room for the entity. No other rule looks beyond a
# space between two letters.
CONTEXT_CHARACTERS = 1024
MOST_CHARACTERS = 1 << 20  # the most of a text that is held while it has no place to be cut
SHARD_BYTES = 1 << 20

Source = str | os.PathLike | Sequence[str | os.PathLike]


@dataclass(frozen=True)
class Shard:
    """A part of a corpus; its fields become part of the cache's name."""

    kind: str  # of its files, or "hub"
    parts: tuple[tuple, ...]  # files with their sizes and times, or arguments of `_hub_split` and its number and place
    document_per: str = "file"

    def documents(self, text_column: str) -> Iterator[Iterable[str]]:
        """The chunks of text of each document."""
        for part in self.parts:
            if self.kind == "text":
                yield from DOCUMENTS[self.document_per](_read_text(part[0]))
                continue
            is_hub = self.kind == "hub"  # `iter`: otherwise a DataLoader's worker would get a share of its own rows
            rows = _hub_split(*part[:4]).shard(*part[4:]).iter(1) if is_hub else _read_rows(part[0], self.kind)
            for number, row in enumerate(rows):
                yield _chunks(_text_of(row, text_column, f"{part[0]}, row {number}"))


def training_texts(
    source: Source,
    name: str | None = None,
    split: str = "train",
    text_column: str = "text",
    fix_text: bool = False,
    document_per: str = "file",
) -> Iterator[str]:
    """Streams the text of a corpus, for `GPT1Tokenizer.train`.

    Args:
        source: a path, a pattern such as `books/*.txt`, a folder of files of one kind, a data set of the hub, or a
            list of these. Files end in .jsonl, .json, .csv or .parquet (one document per row, empty if null), or hold
            text, as .txt files do. All but .parquet may be compressed (.gz, .bz2, .xz or .zst after it).
        name: configuration of a data set of the hub.
        split: split of a data set of the hub.
        text_column: column of the text, where a row is a document.
        fix_text: clean the text with ftfy, as the paper does, piece by piece.
        document_per: what of a text file is a document: the "file", a "line" that is not blank, or what ends with a
            "blank_line".

    Returns:
        Pieces of about 64 K characters that end before a word, so that their tokens are those they have in the whole
        document. Over a million characters without two neighbouring words are cut at another space or, without any,
        within a word.

    Raises:
        ValueError: a file that is missing or not UTF-8 text, a missing column, or no text at all; a fault after the
            first text is raised while the corpus is read.
        ImportError: `fix_text` without ftfy.
    """
    reading = check_corpus(source, name, split, text_column, fix_text, document_per)
    return (piece["text"] for piece in generate_pieces(**reading))


def check_corpus(
    source: Source, name: str | None, split: str, text_column: str, fix_text: bool, document_per: str
) -> dict:
    """The arguments of `generate_pieces`, checked by reading the first piece."""
    if document_per not in DOCUMENTS:
        raise UserError(f"document_per is {document_per!r}; it must be one of {', '.join(DOCUMENTS)}.")
    sources = [source] if isinstance(source, (str, os.PathLike)) else source
    reading = {
        "shards": _shards(sources, name, split, document_per),
        "text_column": text_column,
        "ftfy_version": version("ftfy") if fix_text else None,
    }
    if not any(piece["text"].strip() for piece in generate_pieces(**reading)):
        raise UserError(f"{', '.join(map(str, sources))} has no text. Give a corpus with text in it.")
    return reading


# ---- From a source to shards.


def _shards(sources: Sequence[str | os.PathLike], name: str | None, split: str, document_per: str) -> list:
    hub_shards, files = [], []
    for source in sources:
        if _is_hub_name(source):
            hub_shards += _hub_shards(source, name, split)
        elif name is not None:
            raise UserError(f"{source} is no data set of the hub, so it has no configuration {name}. Leave name out.")
        else:
            files += find_files(os.path.abspath(source))
    return [*_file_shards(dict.fromkeys(files), document_per), *hub_shards]


def _is_hub_name(source: str | os.PathLike) -> bool:
    if isinstance(source, os.PathLike) or os.path.exists(source) or source.endswith((*CORPUS_FILES, *COMPRESSIONS)):
        return False
    return HUB_NAME.fullmatch(source) is not None


def _hub_shards(source: str, name: str | None, split: str) -> list[Shard]:
    try:
        builder = load_dataset_builder(source, name)
    except (DatasetNotFoundError, ConnectionError) as error:
        what = "is not a file or folder, and it cannot be read as a data set of the hub"
        raise UserError(f"{source} {what}: {error}") from error
    num_shards = _hub_split(source, name, split, builder.hash).num_shards
    parts = ((source, name, split, builder.hash, num_shards, index) for index in range(num_shards))
    return [Shard("hub", (part,)) for part in parts]


@lru_cache(maxsize=1)
def _hub_split(source: str, name: str | None, split: str, revision: str) -> IterableDataset:
    return load_dataset(source, name, split=split, revision=revision, streaming=True)


def _file_shards(paths: Iterable[str], document_per: str) -> list[Shard]:
    """Groups consecutive files of one kind into shards; a shard is complete once it has `SHARD_BYTES` or more."""
    shards = []
    for kind, group in groupby(paths, _kind):
        parts, total = [], 0
        for path in group:
            stat = os.stat(path)
            parts.append((path, stat.st_size, stat.st_mtime_ns))
            total += stat.st_size
            if total >= SHARD_BYTES:
                shards.append(Shard(kind, tuple(parts), document_per))
                parts, total = [], 0
        shards += [Shard(kind, tuple(parts), document_per)] if parts else []
    return shards


def find_files(source: str) -> list[str]:
    """The file itself, the files that match the pattern, or all visible files below the folder."""
    is_folder = os.path.isdir(source)
    found = [source] if os.path.isfile(source) else glob.glob(source, recursive=True)
    if is_folder:  # links to other folders are not followed: they may lead back
        below = (path.relative_to(source) for path in Path(source).rglob("*"))
        found = [Path(source, path) for path in below if not any(part.startswith(".") for part in path.parts)]
    files = sorted(path for path in map(str, found) if os.path.isfile(path))
    if not files:
        shown = source if len(source) < 300 else f"{source.removeprefix(os.getcwd() + os.sep)[:60]!r}, and so on,"
        raise UserError(f"{shown} matches no file. Give the path of a file or folder, or a pattern, as books/*.txt.")
    for path in files:
        if path.lower().endswith(".zip"):  # of which fsspec reads the first file alone
            raise UserError(f"{path} is an archive. Unpack it, and give the folder of its files.")
        if _ending(path) not in CORPUS_FILES:
            if "\0" in next(_read_text(path), ""):  # which refuses what is not UTF-8
                raise UserError(f"{path} holds no text. Leave it out.")
            logger.warning_once(f"Files that end in {_ending(path)!r} are read as text.")
    kinds = {_kind(path): path for path in files}
    if is_folder and len(kinds) > 1:
        first, second, *_ = kinds.values()
        how = f"Give a pattern such as {source}/*.txt."
        raise UserError(f"{source} has files of more than one kind: {first} and {second}. {how}")
    return files


def _ending(path: str) -> str:
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in COMPRESSIONS else ending


def _kind(path: str) -> str:
    """The kind of a file by its ending; any other ending is that of a text."""
    return CORPUS_FILES.get(_ending(path), "text")


# ---- From shards to pieces of text.


def generate_pieces(shards: list, text_column: str, ftfy_version: str | None) -> Iterator[dict]:
    if ftfy_version:
        from ftfy import fix_text
    for shard in shards:
        for chunks in shard.documents(text_column):
            for number, piece in enumerate(_pieces(chunks)):
                yield {"text": fix_text(piece) if ftfy_version else piece, "starts_document": number == 0}


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    pending = []  # of one line, joined once: it may have many chunks
    for chunk in chunks:
        first, *lines = chunk.split("\n")
        pending.append(first)
        for line in lines:
            yield "".join(pending) + "\n"
            pending = [line]
    if any(pending):
        yield "".join(pending)


def _is_text(line: str) -> bool:
    return not line.isspace()


# The documents of a text file, as the chunks of text of each.
DOCUMENTS: dict[str, Callable[[Iterable[str]], Iterable[Iterable[str]]]] = {
    "file": lambda chunks: [chunks],
    "line": lambda chunks: map(_chunks, filter(_is_text, _lines(chunks))),
    "blank_line": lambda chunks: (list(lines) for found, lines in groupby(_lines(chunks), _is_text) if found),
}


def _read_text(path: str) -> Iterator[str]:
    try:
        with fsspec.open(path, "rt", encoding="utf-8", compression="infer", newline=None) as file:
            while chunk := file.read(PIECE_CHARACTERS):
                yield chunk
    except UnicodeDecodeError as error:
        remedy = f"{to_utf8(path, error)} Otherwise leave it out."
        raise UserError(f"{path} is not UTF-8 text ({error.reason}). {remedy}") from error
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def _read_rows(path: str, kind: str) -> Iterator[dict]:
    if kind != "parquet":
        next(_read_text(path), "")  # the reader of JSON takes bytes of another encoding without a word
    try:
        options = reader_options(kind, path)
        rows = load_dataset(kind, data_files=glob.escape(path), split="train", streaming=True, **options)
        yield from rows.iter(1)
    except StopIteration:  # from the JSON reader, for a file without rows
        return
    except (ValueError, *UNREADABLE) as error:
        raise UserError(f"{path} cannot be read as {kind}: {error}") from error


def _text_of(row: dict, text_column: str, place: str) -> str:
    if text_column not in row:
        raise UserError(
            f"{place} has no column {text_column!r}{nearest(text_column, row)}; it has "
            f"{', '.join(map(repr, row))}. Name the column of the text in `text_column`."
        )
    (text,) = row[text_column]
    if text is not None and not isinstance(text, str):
        raise UserError(f"{place}: column {text_column!r} holds {text!r}, no text. Name the column of the text.")
    return text or ""


def _chunks(text: str) -> Iterator[str]:
    return (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))


def _pieces(chunks: Iterable[str]) -> Iterator[str]:
    """Cuts a document before words.

    A line end is no such place: its tokens may reach into the text on both sides.
    """
    pending = ""
    for chunk in chunks:
        searched = max(0, len(pending) - CONTEXT_CHARACTERS)
        pending += chunk
        if len(pending) >= PIECE_CHARACTERS and (end := _place_to_cut(pending, searched)):
            yield pending[:end]
            pending = pending[end:]
    if pending:
        yield pending


def _place_to_cut(text: str, searched: int) -> int:
    """Where a cut leaves the tokens as they are; 0 if nowhere yet, nor in the first `searched` characters."""
    place = max(0, len(text) - CONTEXT_CHARACTERS)
    while (place := text.rfind(" ", searched, place)) > 0:
        near = text[max(0, place - CONTEXT_CHARACTERS) : place + CONTEXT_CHARACTERS]
        if text[place - 1].isalpha() and text[place + 1].isalpha() and not ("<" in near and "&" in near):
            return place
    return 0 if len(text) < MOST_CHARACTERS else max(0, text.rfind(" ")) or len(text)

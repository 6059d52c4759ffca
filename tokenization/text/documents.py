"""The text of a corpus: files or a data set of the hub, read as a stream of documents in pieces, cleaned on request.

Memory grows neither with the corpus nor with a document, but with the longest line where lines are asked for, and with
a JSON file that is one value.
"""

import glob
import lzma
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from datasets import IterableDataset, load_dataset, load_dataset_builder
from datasets.exceptions import DatasetNotFoundError
from fsspec.utils import infer_compression
from transformers.utils import logging

from ..errors import UserError
from ..file_kinds import COMPRESSIONS, CORPUS_FILES, csv_options, data_file, is_zst, json_rows, open_text, to_utf8
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
class FileShard:
    """Some files of one kind. The fields become part of the cache's name: a changed file is another shard."""

    kind: str
    """`text`, or the builder of `datasets` that reads rows of which each is a document."""
    files: tuple[tuple[str, int, int], ...]
    """Path, size in bytes and time of the last change in nanoseconds."""
    document_per: str
    """What of a text file is a document: a key of `DOCUMENTS`."""

    def documents(self, text_column: str) -> Iterator[Iterable[str]]:
        """The chunks of text of each document."""
        for path, _, _ in self.files:
            if self.kind == "text":
                yield from DOCUMENTS[self.document_per](_read_text(path))
            else:
                yield from _documents_of_rows(_read_rows(path, self.kind, text_column), text_column, path)


@dataclass(frozen=True)
class HubShard:
    """A part of a data set of the hub. The fields become part of the cache's name."""

    source: str
    name: str | None
    split: str
    revision: str
    num_shards: int
    index: int

    def documents(self, text_column: str) -> Iterator[Iterable[str]]:
        """The chunks of text of each document."""
        whole = _hub_split(self.source, self.name, self.split, self.revision)
        rows = whole.shard(self.num_shards, self.index)
        # Without `iter`, a DataLoader's worker would get a share of its own rows.
        yield from _documents_of_rows(rows.iter(1), text_column, self.source)


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
            text, as .txt files do. All but .parquet may be compressed (.gz, .bz2, .xz, or .zst with zstandard
            installed). A file is read once, whatever symbolic links lead to it.
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
        ValueError: a file that is missing or not UTF-8 text, a missing column, half a character, or no text at all; a
            fault after the first text is raised while the corpus is read.
        ImportError: `fix_text` without ftfy.
    """
    reading = check_corpus(source, name, split, text_column, fix_text, document_per)
    return (piece["text"] for piece in generate_pieces(**reading))


def check_corpus(
    source: Source, name: str | None, split: str, text_column: str, fix_text: bool, document_per: str
) -> dict:
    """The arguments of `generate_pieces`, checked by reading the first piece."""
    if document_per not in DOCUMENTS:
        raise UserError(f"`document_per` is {document_per!r}, but must be one of {', '.join(DOCUMENTS)}.")
    sources = [source] if isinstance(source, (str, os.PathLike)) else source
    reading = {
        "shards": _shards(sources, name, split, document_per),
        "text_column": text_column,
        "ftfy_version": version("ftfy") if fix_text else None,
    }
    if not any(piece["text"].strip() for piece in generate_pieces(**reading)):
        raise UserError(f"{', '.join(map(str, sources))} has no text. Pass files with text in them.")
    return reading


# ---- From a source to shards.


def _shards(
    sources: Sequence[str | os.PathLike], name: str | None, split: str, document_per: str
) -> list[FileShard | HubShard]:
    hub_shards: list[HubShard] = []
    files: list[str] = []
    for source in sources:
        if _is_hub_name(source):
            hub_shards += _hub_shards(source, name, split)
        elif name is not None:
            raise UserError(
                f"{source} is not a data set of the hub, so it has no configuration {name!r}. Leave `name` out."
            )
        else:
            files += find_files(os.path.abspath(source))
    different_files: dict[str, str] = {}
    for file in files:
        different_files.setdefault(os.path.realpath(file), file)
    return [*_file_shards(different_files.values(), document_per), *hub_shards]


def _is_hub_name(source: str | os.PathLike) -> bool:
    if isinstance(source, os.PathLike) or os.path.exists(source) or source.endswith((*CORPUS_FILES, *COMPRESSIONS)):
        return False
    return HUB_NAME.fullmatch(source) is not None


def _hub_shards(source: str, name: str | None, split: str) -> list[HubShard]:
    try:
        revision = load_dataset_builder(source, name).hash
    except (DatasetNotFoundError, ConnectionError) as error:
        raise UserError(
            f"{source} is not a file or folder, and it cannot be read as a data set of the hub: {error}"
        ) from error
    num_shards = _hub_split(source, name, split, revision).num_shards
    return [HubShard(source, name, split, revision, num_shards, index) for index in range(num_shards)]


@lru_cache(maxsize=1)
def _hub_split(source: str, name: str | None, split: str, revision: str) -> IterableDataset:
    return load_dataset(source, name, split=split, revision=revision, streaming=True)


def _file_shards(paths: Iterable[str], document_per: str) -> list[FileShard]:
    """Groups consecutive files of one kind into shards; a shard is complete once it has `SHARD_BYTES` or more."""
    shards: list[FileShard] = []
    for kind, paths_of_kind in groupby(paths, _kind):
        files: list[tuple[str, int, int]] = []
        num_bytes = 0
        for path in paths_of_kind:
            stat = os.stat(path)
            files.append((path, stat.st_size, stat.st_mtime_ns))
            num_bytes += stat.st_size
            if num_bytes >= SHARD_BYTES:
                shards.append(FileShard(kind, tuple(files), document_per))
                files = []
                num_bytes = 0
        if files:
            shards.append(FileShard(kind, tuple(files), document_per))
    return shards


def find_files(source: str) -> list[str]:
    """The file itself, the files that match the pattern, or all visible files below the folder."""
    is_folder = os.path.isdir(source)
    if is_folder:
        files = _files_below(source)
    elif os.path.isfile(source):
        files = [source]
    else:
        files = sorted(path for path in glob.glob(source, recursive=True) if os.path.isfile(path))
    if not files:
        raise UserError(
            f"{_shortened(source)} matches no file. Pass the path of a file or folder, or a pattern such as "
            "books/*.txt."
        )
    for path in files:
        _check_file(path)
    one_of_kind = {_kind(path): path for path in files}
    if is_folder and len(one_of_kind) > 1:
        first, second, *_ = one_of_kind.values()
        raise UserError(
            f"{source} has files of more than one kind: {first} and {second}. Pass a pattern such as {source}/*.txt."
        )
    return files


def _files_below(folder: str) -> list[str]:
    """The files of a folder and its own folders, without hidden ones."""
    files: list[str] = []
    for path in Path(folder).rglob("*"):  # links to other folders are not followed: they may lead back
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.is_file():
            files.append(str(path))
        elif path.is_symlink() and path.is_dir() and not path.resolve().is_relative_to(Path(folder).resolve()):
            logger.warning_once(f"{path} is a link to another folder, which is not read. Pass that folder as well.")
    return sorted(files)


def _shortened(source: str) -> str:
    """A source for a message: a whole text may have been given in place of its path."""
    if len(source) < 300:
        return source
    beginning = source.removeprefix(os.getcwd() + os.sep)[:60]
    return f"{beginning!r}, and so on,"


def _check_file(path: str) -> None:
    """Refuses archives and what is not text; files of unknown endings are read as text."""
    if path.lower().endswith(".zip"):  # of which fsspec reads the first file alone
        raise UserError(f"{path} is an archive. Unpack it, and pass the folder of its files.")
    if path.lower().endswith(".zst") and infer_compression(path) is None:  # fsspec would read it as it is
        raise UserError(
            f"{path} is compressed by Zstandard, which needs a package that is not installed. Run `pip install "
            "zstandard`, or unpack the file."
        )
    if _ending(path) not in CORPUS_FILES:
        beginning = next(_read_text(path), "")  # this refuses what is not UTF-8
        if "\0" in beginning:
            raise UserError(f"{path} is not a text file. Leave it out.")
        logger.warning_once(f"Files that end in {_ending(path)!r} are read as text.")


def _ending(path: str) -> str:
    """The ending of a file's name without that of its compression."""
    stem, ending = os.path.splitext(path.lower())
    if ending in COMPRESSIONS:
        return os.path.splitext(stem)[1]
    return ending


def _kind(path: str) -> str:
    """The kind of a file by its ending; any other ending is that of a text."""
    return CORPUS_FILES.get(_ending(path), "text")


# ---- From shards to pieces of text.


def generate_pieces(
    shards: list[FileShard | HubShard], text_column: str, ftfy_version: str | None
) -> Iterator[dict[str, str | bool]]:
    """The pieces of all documents, each as its `text` and whether it `starts_document`.

    Args:
        shards: parts of a corpus.
        text_column: column of the text, where a row is a document.
        ftfy_version: that of the ftfy which cleans the text, as part of the cache's name. `None`: leave it as it is.
    """
    clean = _ftfy() if ftfy_version else None
    for shard in shards:
        for chunks in shard.documents(text_column):
            for number, piece in enumerate(_pieces(chunks)):
                text = clean(piece) if clean else piece
                yield {"text": text, "starts_document": number == 0}


def _ftfy() -> Callable[[str], str]:
    from ftfy import fix_text  # an optional package

    return fix_text


def _lines(chunks: Iterable[str]) -> Iterator[str]:
    """The lines of a text, each with its end."""
    pending: list[str] = []  # of one line, joined once: it may have many chunks
    for chunk in chunks:
        first, *lines = chunk.split("\n")
        pending.append(first)
        for line in lines:
            yield "".join(pending) + "\n"
            pending = [line]
    if any(pending):
        yield "".join(pending)


def _whole_text(chunks: Iterable[str]) -> Iterator[Iterable[str]]:
    yield chunks


def _each_line(chunks: Iterable[str]) -> Iterator[Iterable[str]]:
    for line in _lines(chunks):
        if not line.isspace():
            yield _chunks(line)


def _each_block_of_lines(chunks: Iterable[str]) -> Iterator[Iterable[str]]:
    for is_blank, lines in groupby(_lines(chunks), str.isspace):
        if not is_blank:
            yield list(lines)


# The documents of a text file, as the chunks of text of each.
DOCUMENTS: dict[str, Callable[[Iterable[str]], Iterator[Iterable[str]]]] = {
    "file": _whole_text,
    "line": _each_line,
    "blank_line": _each_block_of_lines,
}


def _read_text(path: str) -> Iterator[str]:
    try:
        with open_text(path, encoding="utf-8-sig") as file:  # without a byte order mark
            while chunk := file.read(PIECE_CHARACTERS):
                yield chunk
    except UnicodeDecodeError as error:
        remedy = f"{to_utf8(path, error)} Otherwise leave it out."
        raise UserError(f"{path} is not UTF-8 text ({error.reason}). {remedy}") from error
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read: {str(error).rstrip('.')}. Correct it, or leave it out.") from error


def _read_rows(path: str, kind: str, text_column: str) -> Iterator[dict]:
    """The rows of a file, each with lists of one cell; of a JSON file, only the column of the text."""
    if kind != "parquet":
        next(_read_text(path), "")  # which says how a text that is not UTF-8 becomes it
    try:
        if kind == "json":
            yield from _read_json(path, text_column)
        else:
            options = csv_options(path) if kind == "csv" else {}
            rows = load_dataset(kind, data_files=data_file(path), split="train", streaming=True, **options)
            yield from rows.iter(1)
            if is_zst(path):  # the reader of tables is silent where the file is cut off
                for _ in _read_text(path):
                    pass
    except UserError:
        raise
    except (ValueError, *UNREADABLE) as error:
        reason = str(error).rstrip(".")
        raise UserError(f"{path} cannot be read as {kind}: {reason}. Correct it, or leave it out.") from error


def _read_json(path: str, text_column: str) -> Iterator[dict]:
    """The rows with the column of the text alone, which some of them may lack."""
    found: dict[str, None] = {}
    for row in json_rows(path):
        found.update(dict.fromkeys(row))
        yield {text_column: [row.get(text_column)]}
    if found:
        _check_column(found, text_column, path)


def _documents_of_rows(rows: Iterable[dict], text_column: str, source: str) -> Iterator[Iterable[str]]:
    """The chunks of text of each row; a row holds lists of one cell."""
    for number, row in enumerate(rows):
        yield _chunks(_text_of(row, text_column, f"{source}, row {number}"))


def _text_of(row: dict[str, list], text_column: str, place: str) -> str:
    _check_column(row, text_column, place)
    (text,) = row[text_column]
    if text is not None and not isinstance(text, str):
        raise UserError(
            f"{place}: column {text_column!r} holds {text!r}, which is not a text. Pass the name of the column with "
            "the text as `text_column`."
        )
    if text is None:
        return ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{place}: column {text_column!r} has half a character, {text[error.start]!r}, at place {error.start:,}. "
            "Write the whole character, or leave it out."
        ) from error
    return text


def _check_column(names: Collection[str], text_column: str, place: str) -> None:
    if text_column not in names:
        raise UserError(
            f"{place} has no column {text_column!r}{nearest(text_column, names)}; it has "
            f"{', '.join(map(repr, names))}. Pass the name of the column with the text as `text_column`."
        )


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
        end = _place_to_cut(pending, searched) if len(pending) >= PIECE_CHARACTERS else 0
        if end > 0:
            yield pending[:end]
            pending = pending[end:]
    if pending:
        yield pending


def _place_to_cut(text: str, searched: int) -> int:
    """Where a cut leaves the tokens as they are; 0 if nowhere yet, nor in the first `searched` characters."""
    place = max(0, len(text) - CONTEXT_CHARACTERS)
    while (place := text.rfind(" ", searched, place)) > 0:
        if _is_between_words(text, place):
            return place
    if len(text) < MOST_CHARACTERS:
        return 0
    last_space = text.rfind(" ")
    return last_space if last_space > 0 else len(text)


def _is_between_words(text: str, place: int) -> bool:
    """Whether the space at a place has a letter on both sides, and no HTML entity that a "<" may change is near."""
    near = text[max(0, place - CONTEXT_CHARACTERS) : place + CONTEXT_CHARACTERS]
    may_have_entity = "<" in near and "&" in near
    return text[place - 1].isalpha() and text[place + 1].isalpha() and not may_have_entity

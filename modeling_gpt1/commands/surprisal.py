r"""Writes the surprisal of each word of texts, in bits, by a language model of any family.

    gpt1 surprisal gpt1-novels --texts "The old farmer went home."
    gpt1 surprisal out/books --file stimuli.csv --text_column sentence --keep item --output_file words.csv

There is a row for each word between two white spaces, with its punctuation. See docs/surprisal.md.
"""

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TextIO

import pandas as pd
import pyarrow as pa
from transformers.hf_argparser import HfArg

from tokenization import open_tokenizer
from tokenization.errors import UserError
from tokenization.file_kinds import ROW_FILES
from tokenization.rows.cells import Number, as_json, as_text, read_cells, without_formula
from tokenization.rows.records import UNREADABLE
from tokenization.wording import counted

from .. import word_surprisals
from ..families import family_of_checkpoint
from ..inference.surprisal import COLUMNS, check_text
from ..storage.locking import writer_of_new_file
from ..storage.reading import one_save
from ..storage.writing import atomic_file
from .models import LinesOfCSV, OpenedModel, opening, read_with_model
from .rows import check_unknown, read_utf8_lines, report_formulas

FORMATS = (".csv", ".jsonl", ".parquet")
COLUMNS_OF_TEXT = ("word", "tokens")  # of the words
TABLES = tuple(ROW_FILES)


@dataclass
class SurprisalArguments(OpenedModel):
    """Which texts, and where to write."""

    texts: list[str] = HfArg(default_factory=list, help="Texts to score.")
    file: str | None = HfArg(
        default=None, help="File of texts: rows in .csv, .tsv, .json, .jsonl or .parquet, or else a text per line."
    )
    text_column: str = HfArg(default="text", help="Column of --file with the text.")
    delimiter: str | None = HfArg(default=None, help="Delimiter of a .csv file. Default: detect it.")
    keep: list[str] = HfArg(default_factory=list, help="Columns of --file to copy to each word of their row.")
    output_file: str | None = HfArg(
        default=None, help="New file for the words, .csv, .jsonl or .parquet. Default: the terminal, as CSV."
    )
    stride: int | None = HfArg(
        default=None,
        help="Tokens by which the window moves over a text that is longer than the model reads. Default: half of it.",
    )
    tokenizer_name: str | None = HfArg(default=None, help="Tokenizer: a folder or a hub id. Default: the model's.")
    batch_tokens: int = HfArg(default=2048, help="Tokens per batch, including padding.")
    dtype: Literal["float32", "bfloat16", "float16"] = HfArg(default="float32", help="Data type of the weights.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")

    def __post_init__(self):
        if bool(self.texts) == (self.file is not None):
            given = "both were" if self.texts else "neither was"
            raise UserError(f"Exactly one of --texts and --file is needed, but {given} given.")
        if self.output_file is not None and not self.output_file.endswith(FORMATS):
            raise UserError(
                f"--output_file {self.output_file} must end in .csv, .jsonl or .parquet, the form to write."
            )
        self.keep = list(dict.fromkeys(self.keep))
        own = [name for name in self.keep if name in COLUMNS]
        if own:
            raise UserError(f"--keep {own[0]} is the name of a column that is written. Rename it, or join by `text`.")
        if not self.is_table and (self.text_column != "text" or self.delimiter is not None):
            raise UserError(f"--text_column and --delimiter need a --file with columns: {', '.join(TABLES)}.")
        if self.keep and not self.is_table:
            raise UserError(f"--keep {self.keep[0]} needs a --file with columns: {', '.join(TABLES)}.")

    @property
    def is_table(self) -> bool:
        return self.file is not None and self.file.lower().endswith(TABLES)


ARGUMENTS = (SurprisalArguments,)


def main(arguments: list[str]) -> None:
    args = read_with_model("surprisal", arguments)
    texts, kept = read_texts(args)
    with one_save(args.model), opening(f"--model {args.model}"):
        tokenizer = open_tokenizer(args.tokenizer_name or args.model, args.trust_remote_code)
        family = family_of_checkpoint(args.model, trust_remote_code=args.trust_remote_code)
        model = family.open_language_model(args.model, dtype=args.dtype, trust_remote_code=args.trust_remote_code)
    check_unknown(tokenizer, texts, args.file or "the texts")
    model = model.eval().to(args.device)
    with nullcontext() if args.output_file is None else writer_of_new_file(args.output_file):
        words = word_surprisals(model, tokenizer, texts, stride=args.stride, batch_tokens=args.batch_tokens)
        for name in args.keep:
            cells = [kept[number][name] for number in words["text"]]
            words[name] = pd.Series(cells, index=words.index, dtype=object)  # each cell keeps its kind
        write(words, args.output_file, args.keep)
    if args.output_file is not None:
        print(describe(words, len(texts)))
        print(f"written to {args.output_file}")


def read_texts(args: SurprisalArguments) -> tuple[list[str], list[dict[str, Any]]]:
    """The texts, and the cells of --keep for each of them."""
    if args.file is None:
        for number, text in enumerate(args.texts):
            check_text(text, f"Text {number} of --texts")
        return args.texts, []
    if not args.is_table:
        return read_lines(Path(args.file)), []
    cells = read_cells(args.file, args.keep, args.delimiter, args.text_column)
    if not cells:
        raise UserError(f"--file {args.file} has no rows.")
    for number, row in enumerate(cells):
        found = row[args.text_column]
        if not isinstance(found, str) or isinstance(found, Number) or not found.strip():
            shown = str(found) if isinstance(found, Number) else repr(found)
            raise UserError(
                f"Row {number} of {args.file} has {shown} as {args.text_column!r}, where a text is needed. "
                "Name the column of texts with --text_column, or leave out rows without one."
            )
        check_text(found, f"Row {number} of {args.file}")
    kept = [{name: row[name] for name in args.keep} for row in cells]
    return [row[args.text_column] for row in cells], kept


def read_lines(path: Path) -> list[str]:
    """The lines of a file. A blank one is a text without words, so that `text` counts lines."""
    lines = read_utf8_lines("--file", path)
    if not any(line.strip() for line in lines):
        raise UserError(f"--file {path} has no texts. Write one per line.")
    if lines[-1] == "":  # behind the last line end
        lines.pop()
    return lines


def write(words: pd.DataFrame, file: str | None, kept: list[str]) -> None:
    """Writes the words in the form that the file's name ends in; without a file, to the terminal.

    The columns that were kept are texts in CSV. The other forms keep the kinds of their cells.
    """
    if file is None:
        write_csv(words, kept, sys.stdout)
        return
    with atomic_file(file) as output:
        if file.endswith(".csv"):
            write_csv(words, kept, output)
        elif file.endswith(".jsonl"):
            output.writelines(as_json(row) + "\n" for row in words.to_dict("records"))
        else:
            with_kinds(words, kept).to_parquet(output.buffer, index=False)


def write_csv(words: pd.DataFrame, kept: list[str], file: TextIO) -> None:
    """Writes the words as CSV, in which no text is run as a formula by a spreadsheet."""
    texts = {name: words[name].map(as_text) for name in kept}
    for name in COLUMNS_OF_TEXT:
        texts[name] = words[name]
    cells = {name: column.map(without_formula) for name, column in texts.items()}
    words.assign(**cells).to_csv(LinesOfCSV(file), index=False, lineterminator="\r\n")
    report_formulas(chain.from_iterable(texts.values()))


def with_kinds(words: pd.DataFrame, kept: list[str]) -> pd.DataFrame:
    """The numbers of a JSON file as numbers; a column that Parquet cannot hold, as one of several kinds, as texts."""
    columns = {}
    for name in kept:
        cells = [json.loads(cell) if isinstance(cell, Number) else cell for cell in words[name]]
        try:
            pa.array(cells, from_pandas=True)
        except UNREADABLE:
            cells = [as_text(cell) for cell in words[name]]
        columns[name] = pd.Series(cells, index=words.index, dtype=object)
    return words.assign(**columns)


def describe(words: pd.DataFrame, num_texts: int) -> str:
    """The numbers of texts and words, and the mean surprisal."""
    numbers = f"{counted(num_texts, 'text')}, {counted(len(words), 'word')}"
    return f"{numbers}, {words['bits'].mean():.2f} bits a word" if len(words) else numbers

r"""Classifies, scores or chooses for each row of a file, with a model that `gpt1 finetune` wrote.

    gpt1 predict out/own --file new.csv
    gpt1 predict out/own --file new.csv --output_file predictions.csv --keep id

The folder knows its traversal, its columns and the names of its classes. There is a line per row of the file, in its
order. If a row cannot be read, the command exits with 1. See docs/own-data.md.
"""

import csv
import json
import re
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedConfig
from transformers.hf_argparser import HfArg

from tokenization import Task, load_files
from tokenization.errors import UserError
from tokenization.rows.columns import check_columns
from tokenization.rows.files import read_file
from tokenization.rows.metrics import compute
from tokenization.wording import counted

from .. import prepare_finetuning
from ..configuration_gpt1 import is_regression
from ..families import family_of_checkpoint, family_of_config
from ..inference.predictions import number_of, predict_rows
from ..storage.reading import one_save
from ..storage.writing import atomic_file
from ..training.callbacks import readable
from . import finetune
from .arguments import OpenedModel, check_unknown, read_with_model, some_texts

FORMULA = re.compile(r"(?![-+]?[\d.]+$)[=+\-@]")  # a text that a spreadsheet would run; a number is none
FIELDS = ("index", "label", "scores", "score", "truncated", "error")


@dataclass
class PredictionArguments(OpenedModel):
    """Which rows, and where to write."""

    file: str = HfArg(help="The rows: a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file.")
    delimiter: str | None = HfArg(default=None, help="What separates the cells of a .csv file. Default: found in it.")
    output_file: str | None = HfArg(default=None, help="Where to write: .csv, or JSON lines. Default: the terminal.")
    columns: list[str] = HfArg(default_factory=list, help="role=column pairs, where others than in fine-tuning.")
    keep: list[str] = HfArg(default_factory=list, help="Columns of the file that the output has, too.")
    metric_name: str | None = HfArg(default=None, help="Score of labelled rows, such as f1_macro.")
    skip_bad_rows: bool = HfArg(default=False, help="Exit with 0 even if some rows cannot be read.")
    batch_size: int = HfArg(default=32, help="Rows per batch.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")

    def __post_init__(self):
        super().__post_init__()
        own = [name for name in self.keep if name in FIELDS or name.startswith("score_")]
        if own:
            how = "Rename the column (a label's is then given by --columns label=NAME), or join by `index`"
            raise UserError(f"--keep {own[0]} is the name of a prediction's own field. {how}.")
        if self.output_file is not None and not self.output_file.endswith((".csv", ".jsonl")):
            raise UserError(f"--output_file {self.output_file} must end in .csv or .jsonl, the form to write.")


def load_rows(args: PredictionArguments, config: PreTrainedConfig) -> tuple[Task, Dataset]:
    """The task that a fine-tuned folder stores, and the file's rows, whose labels are numbers if all can be."""
    given = finetune.parse_columns(args.columns)
    columns = {**(config.columns or {}), **given}
    has_head = family_of_config(config).has_task(config)
    if config.traversal is None or not columns or not has_head:
        lacks = "traversal or no columns (--columns) of a task" if has_head else "task head at [e]"
        raise UserError(f"{args.model} has no {lacks}. Pass a folder that `gpt1 finetune` wrote.")
    options = {"regression": is_regression(config), "label_names": list(config.id2label.values())}
    load = partial(load_files, traversal=config.traversal, delimiter=args.delimiter, **options)
    try:
        task, splits = load({"test": args.file}, columns=columns)
        task = finetune.check_labels(task, splits, config)
    except ValueError as error:
        task, splits = load({"test": args.file}, columns={**columns, "label": "no column"})
        task = finetune.check_labels(task, splits, config)
        print(f"The predictions have no score. {error}", file=sys.stderr)
    else:
        if args.metric_name or "label" in given:
            check_columns(args.file, splits["test"].column_names, "label", task.columns["label"])
    return replace(task, metrics=(args.metric_name,)) if args.metric_name else task, splits["test"]


def as_cells(record: dict) -> dict:
    """A record as a line of a .csv file."""
    cells, label, scores = dict(record), record.get("label"), record.get("scores")
    if isinstance(scores, dict):
        del cells["scores"]
        cells |= {f"score_{name}": score for name, score in scores.items()}
    elif scores is not None:
        cells["scores"] = " ".join(map(str, scores))
    if isinstance(label, list):
        cells["label"] = "|".join(label)
    return {key: f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell for key, cell in cells.items()}


def without_time(cell: Any) -> Any:
    """A date as it was written, where the reader of JSON has made a time of it."""
    return str(cell).removesuffix(" 00:00:00") if isinstance(cell, datetime) else cell


def main(arguments: list[str]) -> None:
    args = read_with_model("predict", arguments)
    with one_save(args.model):
        family = family_of_checkpoint(args.model, trust_remote_code=args.trust_remote_code)
        config = family.open_config(args.model, args.trust_remote_code)
        task, rows = load_rows(args, config)
        opening = {"both_orders": family.reads_both_orders(config), "trust_remote_code": args.trust_remote_code}
        parts = prepare_finetuning(args.model, task, **opening)
    model, collator = parts["model"].eval().to(args.device), parts["data_collator"]
    collator.max_length = min(collator.max_length, collator.tokenizer.model_max_length)
    check_unknown(collator.tokenizer, some_texts(rows, task), args.file)
    if args.keep:
        kept = read_file(args.file, delimiter=args.delimiter)  # with labels as they are
        check_columns(args.file, kept.column_names, None, args.keep)
        kept = kept.select_columns(args.keep)
    num_bad = num_cut = 0
    predicted, answered = Counter(), []  # labels; pairs of prediction and label
    with atomic_file(args.output_file) if args.output_file else nullcontext(sys.stdout) as file:
        writer = None
        if args.output_file and args.output_file.endswith(".csv"):
            scores = [f"score_{name}" for name in task.label_names] or ["scores"]
            cells = ["score"] if task.regression else ["label", *scores]
            writer = csv.DictWriter(file, ["index", *args.keep, *cells, "truncated", "error"], lineterminator="\n")
            writer.writeheader()
        predictions = predict_rows(rows, task, model, collator, args.batch_size)
        for place, (found, row) in enumerate(zip(predictions, rows, strict=True)):
            cells = {name: without_time(cell) for name, cell in kept[place].items()} if args.keep else {}
            record = {"index": place, **cells, **found}
            num_bad += "error" in found
            num_cut += "truncated" in found
            if (label := found.get("label")) is not None:
                predicted.update(["|".join(label) if isinstance(label, list) else str(label)])
            if "error" not in found and collator.is_labelled(row):
                answered.append((number_of(found, task), row[task.columns["label"]]))
            if writer is None:
                print(json.dumps(record, ensure_ascii=False, default=str), file=file, flush=True)
            else:
                writer.writerow(as_cells(record))
    tell = partial(print, file=sys.stdout if args.output_file else sys.stderr)
    bad = f", {num_bad} could not be read: those with the field `error`" if num_bad else ""
    if args.output_file or bad:
        where = f"; written to {args.output_file}" if args.output_file else ""
        tell(f"{len(rows) - num_bad} of {counted(len(rows), 'row')} predicted{bad}{where}")
    if answered:
        scores = {}
        for name in task.metrics:
            scores |= compute(name, *np.array(answered).swapaxes(0, 1))
        tell(f"{counted(len(answered), 'row')} {'has' if len(answered) == 1 else 'have'} a label · {readable(scores)}")
    finetune.warn_of_one_class(predicted, args.file)
    texts = chain(predicted, *(rows[name] for name in args.keep))
    if writer is not None and any(isinstance(text, str) and FORMULA.match(text) for text in texts):
        print("In front of a text that a spreadsheet would run as a formula stands an apostrophe.", file=sys.stderr)
    if num_cut:
        length = f"{collator.max_length} tokens: those with the field `truncated`."
        print(f"{num_cut} of {len(rows)} rows were cut to {length}", file=sys.stderr)
    if num_bad and not args.skip_bad_rows:
        sys.exit(1)

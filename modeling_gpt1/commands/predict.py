r"""Classifies, scores or chooses for each row of a file, with a model that `gpt1 finetune` wrote.

    gpt1 predict out/own --file new.csv
    gpt1 predict out/own --file new.csv --output_file predictions.csv --keep id

The folder knows its traversal, its columns and the names of its classes. There is a line per row of the file, in its
order. If a row cannot be read, the command exits with 1. See docs/own-data.md.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedConfig
from transformers.hf_argparser import HfArg

from tokenization import Task, load_files
from tokenization.errors import UserError
from tokenization.rows.cells import as_json, as_text, read_cells, without_formula
from tokenization.rows.columns import check_columns
from tokenization.rows.metrics import compute
from tokenization.wording import counted

from .. import prepare_finetuning
from ..configuration_gpt1 import is_regression
from ..families import family_of_checkpoint, family_of_config
from ..inference.predictions import number_of, predict_rows
from ..storage.reading import one_save
from ..training.callbacks import readable
from .finetune.arguments import parse_columns
from .models import LinesOfCSV, OpenedModel, open_output, opening, read_with_model
from .rows import check_labels, check_unknown, describe_recall, report_formulas, some_texts, warn_of_one_class

# Fields of a prediction, which no column may be called that is copied beside them.
FIELDS = ("index", "label", "scores", "score", "truncated", "error")
FAILED = 1  # exit code


@dataclass
class PredictionArguments(OpenedModel):
    """Which rows, and where to write."""

    file: str = HfArg(help="File of rows to predict: .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet.")
    delimiter: str | None = HfArg(default=None, help="Delimiter of a .csv file. Default: detect it.")
    output_file: str | None = HfArg(
        default=None, help="New file for the predictions, .csv or .jsonl. Default: the terminal, as JSON lines."
    )
    columns: list[str] = HfArg(
        default_factory=list, help="Which column is what, such as text=Message. Default: as in fine-tuning."
    )
    keep: list[str] = HfArg(default_factory=list, help="Input columns to copy into the output.")
    metric_name: str | None = HfArg(
        default=None, help="Metric of labelled rows, such as f1_macro. Default: accuracy, or Pearson's correlation."
    )
    skip_bad_rows: bool = HfArg(default=False, help="Exit with status 0 even if some rows cannot be read.")
    batch_size: int = HfArg(default=32, help="Rows per batch.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")

    def __post_init__(self):
        self.keep = list(dict.fromkeys(self.keep))  # a .csv file with two columns of a name cannot be read
        own = [name for name in self.keep if name in FIELDS or name.startswith("score_")]
        if own:
            raise UserError(
                f"--keep {own[0]} is also a field of each prediction. Rename the column (pass a label's new name as "
                "--columns label=NAME), or leave it out and join the files by `index`."
            )
        if self.output_file is not None and not self.output_file.endswith((".csv", ".jsonl")):
            raise UserError(f"--output_file is {self.output_file}, but must end in .csv or .jsonl.")


ARGUMENTS = (PredictionArguments,)


def main(arguments: list[str]) -> None:
    """Exits with status 1 if a row cannot be read."""
    prediction = Prediction(read_with_model("predict", arguments))
    prediction.open_model()
    prediction.read_kept_columns()
    prediction.write()
    prediction.report()
    if prediction.num_bad and not prediction.args.skip_bad_rows:
        sys.exit(FAILED)


class Prediction:
    """A fine-tuned model, the rows of a file, and what is counted while they are predicted."""

    def __init__(self, args: PredictionArguments) -> None:
        self.args = args
        self.num_bad = 0  # rows that cannot be read
        self.num_cut = 0  # rows that were cut to the maximum length
        self.labels: Counter[str] = Counter()  # that were predicted
        self.labelled: list[tuple[Any, Any]] = []  # prediction and label of each labelled row

    # ---- Before a row is predicted

    def open_model(self) -> None:
        args = self.args
        code = {"trust_remote_code": args.trust_remote_code}
        with one_save(args.model):
            with opening(f"--model {args.model}"):
                family = family_of_checkpoint(args.model, **code)
                config = family.open_config(args.model, **code)
            self.task, self.rows = load_rows(args, config)
            with opening(f"The tokenizer of {args.model}"):
                tokenizer = family.open_tokenizer(args.model, **code)
            both_orders = family.reads_both_orders(config)
            parts = prepare_finetuning(args.model, self.task, tokenizer, both_orders=both_orders, **code)
        self.model = parts["model"].eval().to(args.device)
        self.collator = parts["data_collator"]
        self.collator.max_length = min(self.collator.max_length, self.collator.tokenizer.model_max_length)
        check_unknown(self.collator.tokenizer, some_texts(self.rows, self.task), args.file)

    def read_kept_columns(self) -> None:
        """Reads the columns of --keep as the file has them."""
        self.kept: list[dict[str, Any]] = [{}] * len(self.rows)
        if self.args.keep:
            self.kept = read_cells(self.args.file, self.args.keep, self.args.delimiter)
        if self.is_table:
            self.kept = [{name: as_text(cell) for name, cell in row.items()} for row in self.kept]

    # ---- Predicting

    def write(self) -> None:
        """Predicts the rows and writes a line for each."""
        with open_output(self.args.output_file) as file:
            if self.is_table:
                writer = csv.DictWriter(LinesOfCSV(file), self.column_names(), lineterminator="\r\n")
                writer.writeheader()
                for record in self.records():
                    writer.writerow(as_cells(record))
            else:
                for record in self.records():
                    print(as_json(record), file=file, flush=True)

    @property
    def is_table(self) -> bool:
        return self.args.output_file is not None and self.args.output_file.endswith(".csv")

    def column_names(self) -> list[str]:
        """The columns of a .csv file."""
        if self.task.regression:
            own = ["score"]
        else:
            scores = [f"score_{name}" for name in self.task.label_names]
            own = ["label", *(scores or ["scores"])]
        return ["index", *self.args.keep, *own, "truncated", "error"]

    def records(self) -> Iterator[dict[str, Any]]:
        """Each row's prediction with the columns of --keep. Counts what the report needs."""
        predictions = predict_rows(self.rows, self.task, self.model, self.collator, self.args.batch_size)
        for index, (prediction, row, kept) in enumerate(zip(predictions, self.rows, self.kept, strict=True)):
            self.count(prediction, row)
            yield {"index": index, **kept, **prediction}

    def count(self, prediction: dict[str, Any], row: dict[str, Any]) -> None:
        is_bad = "error" in prediction
        self.num_bad += is_bad
        self.num_cut += "truncated" in prediction
        label = prediction.get("label")
        if label is not None:
            self.labels["|".join(label) if isinstance(label, list) else str(label)] += 1
        if not is_bad and self.collator.is_labelled(row):
            self.labelled.append((number_of(prediction, self.task), row[self.task.columns["label"]]))

    # ---- After the last row

    def report(self) -> None:
        """Says how many rows were predicted, the scores of labelled rows, and what looks wrong."""
        output_file = self.args.output_file
        print_line = partial(print, file=sys.stdout if output_file else sys.stderr)
        if output_file or self.num_bad:
            print_line(self.describe_rows())
        if self.labelled:
            print_line(self.describe_scores())
        warn_of_one_class(self.labels, self.args.file)
        if self.is_table:
            kept = chain.from_iterable(row.values() for row in self.kept)
            report_formulas(chain(self.labels, kept))
        if self.num_cut:
            cut = f"{self.num_cut} of {len(self.rows)} rows were cut to {self.collator.max_length} tokens"
            print(f"{cut}: those with the field `truncated`.", file=sys.stderr)

    def describe_rows(self) -> str:
        line = f"{len(self.rows) - self.num_bad} of {counted(len(self.rows), 'row')} predicted"
        if self.num_bad:
            line += f", {self.num_bad} could not be read: those with the field `error`"
        if self.args.output_file:
            line += f"; written to {self.args.output_file}"
        return line

    def describe_scores(self) -> str:
        predictions, labels = np.array(self.labelled).swapaxes(0, 1)
        scores: dict[str, float] = {}
        for name in self.task.metrics:
            scores |= compute(name, predictions, labels)
        have = "has" if len(self.labelled) == 1 else "have"
        line = f"{counted(len(self.labelled), 'row')} {have} a label · {readable(scores)}"
        recall = describe_recall(predictions, labels, self.task)
        return f"{line}\n{recall}" if recall else line


def load_rows(args: PredictionArguments, config: PreTrainedConfig) -> tuple[Task, Dataset]:
    """The task that a fine-tuned folder stores, and the file's rows, whose labels are numbers if all can be."""
    given = parse_columns(args.columns)
    columns = {**(config.columns or {}), **given}
    has_head = family_of_config(config).has_task(config)
    if config.traversal is None or not columns or not has_head:
        if not has_head:
            raise UserError(f"{args.model} has no task head. Pass a folder that `gpt1 finetune` wrote.")
        raise UserError(
            f"The config.json of {args.model} names no traversal or no columns. Pass --columns, or a folder that "
            "`gpt1 finetune` wrote."
        )
    try:
        task, rows = read_rows(args, config, columns)
    except UserError as error:
        task, rows = read_rows(args, config, {**columns, "label": "no column"})
        print(f"No score: {error}", file=sys.stderr)
    else:
        if args.metric_name or "label" in given:
            check_columns(args.file, rows.column_names, "label", task.columns["label"])
    if args.metric_name:
        task = replace(task, metrics=(args.metric_name,))
    return task, rows


def read_rows(args: PredictionArguments, config: PreTrainedConfig, columns: dict) -> tuple[Task, Dataset]:
    """The file's rows, with the task that columns and configuration make."""
    task, splits = load_files(
        {"test": args.file},
        config.traversal,
        columns,
        delimiter=args.delimiter,
        regression=is_regression(config),
        label_names=list(config.id2label.values()),
        hide_unknown_labels=True,
    )
    return check_labels(task, splits, config), splits["test"]


def as_cells(record: dict) -> dict:
    """A record as a line of a .csv file."""
    cells = dict(record)
    label, scores = record.get("label"), record.get("scores")
    if isinstance(scores, dict):
        del cells["scores"]
        cells |= {f"score_{name}": score for name, score in scores.items()}
    elif scores is not None:
        cells["scores"] = " ".join(map(str, scores))
    if isinstance(label, list):
        cells["label"] = "|".join(label)
    return {key: without_formula(cell) for key, cell in cells.items()}

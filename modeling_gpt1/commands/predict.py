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
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from os.path import samefile
from pathlib import Path

import torch
from datasets import Dataset
from transformers.hf_argparser import HfArg

from tokenization import Task
from tokenization.rows import check_columns, read_file

from .. import prepare_finetuning
from ..configuration_gpt1 import has_choices, is_regression
from ..hub.model_kinds import is_of_gpt1
from ..inference.task_scores import TaskScores
from ..storage.reading import one_save
from ..storage.writing import atomic_file
from ..training.preparation import open_task_config
from .arguments import DeviceArguments, at_revision, check_model, check_unknown, parser_of
from .finetune import describe_prediction, has_task_head, parse_columns, some_texts

FIELDS = ("index", "label", "scores", "score", "truncated", "error")


@dataclass
class PredictionArguments(DeviceArguments):
    """Which model, which rows, and where to write."""

    file: str = HfArg(help="The rows: a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file.")
    delimiter: str | None = HfArg(default=None, help="What separates the cells of a .csv file. Default: found in it.")
    model: str | None = HfArg(default=None, help="The fine-tuned model. The flag itself may be left out.")
    revision: str | None = HfArg(default=None, help="Branch of the hub, or checkpoint in the folder of a run.")
    output_file: str | None = HfArg(default=None, help="Where to write: .csv, or JSON lines. Default: the terminal.")
    columns: list[str] = HfArg(default_factory=list, help="role=column pairs. Default: those used for fine-tuning.")
    max_length: int | None = HfArg(default=None, help="Tokens per sequence. Default: that of the fine-tuning.")
    keep: list[str] = HfArg(default_factory=list, help="Columns of the file that the output has, too.")
    skip_bad_rows: bool = HfArg(default=False, help="Exit with 0 even if some rows cannot be read.")
    batch_size: int = HfArg(default=32, help="Rows per batch.")
    tokenizer_name: str | None = HfArg(default=None, help="Tokenizer: folder or hub id. Default: the model's.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")

    def __post_init__(self):
        super().__post_init__()
        own = [name for name in self.keep if name in FIELDS or name.startswith("score_")]
        if own:
            raise ValueError(
                f"--keep {own[0]} is the name of a prediction's own field. Rename the column of the file."
            )
        if self.output_file is not None and Path(self.output_file).exists() and samefile(self.file, self.output_file):
            raise ValueError(
                f"--output_file {self.output_file} is the --file, whose rows the predictions would replace. Pass "
                "another name."
            )


class Predictor:
    """A fine-tuned model with the task settings that its folder stores."""

    def __init__(self, args: PredictionArguments):
        config = open_task_config(args.model, trust_remote_code=args.trust_remote_code)
        if config.traversal is None or not has_task_head(config):
            lacks = "names no task" if has_task_head(config) else "has no task head"
            raise ValueError(f"--model {args.model} {lacks}. Pass a folder that `gpt1 finetune` wrote.")
        columns = parse_columns(args.columns) or config.columns
        if not columns:
            raise ValueError(
                f"The config of {args.model} does not say which columns it was fine-tuned on. Pass --columns, such as "
                "--columns text=review."
            )
        self.columns = {role: column for role, column in columns.items() if role != "label"}
        self.is_regression, self.batch_size = is_regression(config), args.batch_size
        self.has_several_labels = config.problem_type == "multi_label_classification"
        is_class = not has_choices(config.traversal) and not self.is_regression
        self.class_names = tuple(config.id2label.values()) if is_class else ()
        parts = prepare_finetuning(
            args.model,
            Task(args.model, config.traversal, {"label": "label", **columns}, self.class_names, self.is_regression),
            args.tokenizer_name,
            max_length=args.max_length,
            both_orders=getattr(config, "both_orders", False),
            trust_remote_code=args.trust_remote_code,
        )
        self.model, self.collator = parts["model"].eval().to(args.device), parts["data_collator"]
        if args.max_length is None:
            self.collator.max_length = min(self.collator.max_length, parts["processing_class"].model_max_length)
        self.scores = self.model if is_of_gpt1(self.model) else TaskScores(self.model)

    @property
    def texts(self) -> list[str]:
        """The columns that the model reads."""
        return [name for names in self.columns.values() for name in ([names] if isinstance(names, str) else names)]

    def predict(self, rows: Dataset, keep: list[str]) -> Iterator[dict]:
        """Yields one record per row, with the columns to keep."""
        for first in range(0, len(rows), self.batch_size):
            records, batch, cut = [], [], []
            for row in rows.select(range(first, min(first + self.batch_size, len(rows)))):
                records.append({"index": first + len(records), **{name: row[name] for name in keep}})
                read = {name: row[name] for name in self.texts}  # a label may be anything
                try:
                    (length,) = self.collator.lengths([read], uncut=True)
                except ValueError as error:
                    records[-1]["error"] = re.sub(r"^Row 0 of the data( \(.*?\))?: ", "", str(error))
                else:
                    batch.append(read)
                    cut.append({"truncated": True} if length > self.collator.max_length else {})
            logits = iter(self.logits(batch) if batch else ())
            for record in records:
                if "error" not in record:
                    record |= self.describe(next(logits)) | cut.pop(0)
                yield record

    @torch.inference_mode()
    def logits(self, rows: list[dict]) -> torch.Tensor:
        batch = {name: tensor.to(self.model.device) for name, tensor in self.collator(rows).items()}
        output = self.scores(**batch)
        return output["task_logits" if self.scores is self.model else "logits"].cpu().double()

    def describe(self, logits: torch.Tensor) -> dict:
        record = describe_prediction(logits, self.is_regression, self.class_names, self.has_several_labels)
        if self.class_names:
            record["scores"] = dict(zip(self.class_names, record["scores"], strict=True))
        return record

    @property
    def cells(self) -> list[str]:
        """The columns of the scores in a .csv file."""
        if self.is_regression:
            return ["score"]
        return ["label", *(f"score_{name}" for name in self.class_names)] if self.class_names else ["label", "scores"]


def as_cells(record: dict) -> dict:
    """A record as a line of a .csv file."""
    record, found = dict(record), record.get("scores")
    if isinstance(found, dict):
        del record["scores"]
        record |= {f"score_{name}": score for name, score in found.items()}
    elif found is not None:
        record["scores"] = " ".join(map(str, found))
    if isinstance(record.get("label"), list):
        record["label"] = "|".join(record["label"])
    return record


ARGUMENTS = (PredictionArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("predict")
    parser.add_argument("folder", nargs="?", help="the fine-tuned model, as --model")
    args, positional = parser.read(arguments)
    args.model = positional.folder or args.model
    if args.model is None:
        raise ValueError("No model was given. Write its folder or hub id after `gpt1 predict`.")
    args.model = at_revision(args.model, args.revision)
    check_model("--model", args.model)
    rows = read_file(Path(args.file), delimiter=args.delimiter)
    with one_save(args.model):
        predictor = Predictor(args)
    for role, columns in {**predictor.columns, "--keep": args.keep}.items():
        check_columns(args.file, rows.column_names, role, columns)
    check_unknown(predictor.collator.tokenizer, some_texts(rows, predictor.texts), args.file)
    num_bad = num_cut = 0
    with atomic_file(args.output_file) if args.output_file else nullcontext(sys.stdout) as file:
        as_csv = str(args.output_file).endswith(".csv")
        if as_csv:
            fields = ["index", *args.keep, *predictor.cells, "truncated", "error"]
            writer = csv.DictWriter(file, fields, lineterminator="\n")
            writer.writeheader()
        for record in predictor.predict(rows, args.keep):
            num_bad += "error" in record
            num_cut += "truncated" in record
            if as_csv:
                writer.writerow(as_cells(record))
            else:
                print(json.dumps(record, ensure_ascii=False), file=file, flush=True)
    bad = f", {num_bad} could not be read: those with the field `error`" if num_bad else ""
    if args.output_file or bad:
        where = f"; written to {args.output_file}" if args.output_file else ""
        told = f"{len(rows) - num_bad} of {len(rows)} rows predicted{bad}{where}"
        print(told, file=sys.stdout if args.output_file else sys.stderr)
    if num_cut:
        length = predictor.collator.max_length
        told = f"{num_cut} of {len(rows)} rows were cut to {length} tokens: those with the field `truncated`."
        print(told, file=sys.stderr)
    if num_bad and not args.skip_bad_rows:
        sys.exit(1)

r"""Classifies, scores or chooses for each row of a file, with a model that `gpt1 finetune` wrote.

    gpt1 predict out/own --file new.csv
    gpt1 predict out/own --file new.csv --output_file predictions.csv --keep id

The folder knows its traversal, its columns and the names of its classes. There is a line per row of the file, in its
order: an object at the terminal and in a .jsonl file, columns in a .csv file, with `score_<class>` for each class. Its
fields are `index`; `label` and `scores`, or `score`; `truncated` where the row was cut; `error` instead of these where
it cannot be read. If there are such rows, the command exits with 1. See docs/own-data.md.
"""

import csv
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from os.path import samefile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers.hf_argparser import HfArg

from tokenization import Task
from tokenization.metrics import compute, find_metric
from tokenization.rows import HOLDS, check_columns, is_missing, read_file

from .. import prepare_finetuning
from ..configuration_gpt1 import has_choices, is_regression
from ..hub.model_kinds import is_of_gpt1
from ..inference.task_scores import TaskScores
from ..storage.reading import one_save
from ..storage.writing import atomic_file
from ..training.callbacks import readable
from ..training.preparation import open_task_config
from .arguments import TOKENIZER, DeviceArguments, at_revision, check_model, check_unknown, parser_of
from .finetune import describe_prediction, has_task_head, parse_columns, some_texts

ENDINGS = (".jsonl", ".csv")
# A text that a spreadsheet would run; a number is none.
FORMULA = re.compile(r"(?![-+]?[\d.]+$)[=+\-@\t\r]")
FIELDS = ("index", "label", "scores", "score", "truncated", "error")
CHUNK = 1024  # rows that are sorted by length and written as one group


@dataclass
class PredictionArguments(DeviceArguments):
    """Which model, which rows, and where to write."""

    file: str = HfArg(help="The rows: a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file.")
    delimiter: str | None = HfArg(default=None, help="What separates the cells of a .csv file. Default: found in it.")
    model: str | None = HfArg(default=None, help="The fine-tuned model. The flag itself may be left out.")
    revision: str | None = HfArg(default=None, help="Branch of the hub, or checkpoint in the folder of a run.")
    output_file: str | None = HfArg(default=None, help="Where to write: .jsonl or .csv. Default: the terminal.")
    columns: list[str] = HfArg(default_factory=list, help="role=column pairs. Default: those used for fine-tuning.")
    max_length: int | None = HfArg(default=None, help="Tokens per sequence. Default: that of the fine-tuning.")
    keep: list[str] = HfArg(default_factory=list, help="Columns of the file that the output has, too.")
    metric_name: str | None = HfArg(default=None, help="Score of labelled rows, such as f1_macro. Default: accuracy.")
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
        if self.output_file is None:
            return
        if not self.output_file.endswith(ENDINGS):
            raise ValueError(
                f"--output_file {self.output_file} has an unknown file type. Pass a name that ends in "
                f"{' or '.join(ENDINGS)}."
            )
        if Path(self.output_file).exists() and samefile(self.file, self.output_file):
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
        self.label_column = columns.get("label", "label")
        self.is_regression, self.batch_size = is_regression(config), args.batch_size
        self.metric_name = args.metric_name
        self.has_several_labels = config.problem_type == "multi_label_classification"
        is_class = not has_choices(config.traversal) and not self.is_regression
        self.class_names = tuple(config.id2label.values()) if is_class else ()
        columns = {"label": "label", **columns}
        parts = prepare_finetuning(
            args.model,
            Task(args.model, config.traversal, columns, self.class_names, self.is_regression),
            args.tokenizer_name,
            max_length=args.max_length,
            both_orders=getattr(config, "both_orders", False),
            trust_remote_code=args.trust_remote_code,
        )
        self.model, self.collator = parts["model"].eval().to(args.device), parts["data_collator"]
        if args.max_length is None:
            self.collator.max_length = min(self.collator.max_length, parts["processing_class"].model_max_length)
        self.scores = self.model if is_of_gpt1(self.model) else TaskScores(self.model)

    def predict(self, rows: Dataset, keep: Sequence[str] = ()) -> Iterator[dict]:
        """Yields one record per row, with the columns to keep.

        Counts the rows that were cut, `num_cut`, and those that cannot be read, `num_bad`; and collects the pairs of
        prediction and label, `answered`, of the rows that have a label. `num_other` have one that is no class.
        """
        self.num_cut = self.num_bad = 0
        self.answered, self.num_other = [], 0
        needed = [name for names in self.columns.values() for name in ([names] if isinstance(names, str) else names)]
        for first in range(0, len(rows), CHUNK):
            records, lengths = [], {}
            whole = rows.select(range(first, min(first + CHUNK, len(rows)))).to_list()
            chunk = [{name: row[name] for name in needed} for row in whole]  # a label may be anything
            for place, row in enumerate(chunk):
                records.append({"index": first + place, **{name: whole[place][name] for name in keep}})
                try:
                    (lengths[place],) = self.collator.lengths([row], uncut=True)
                except ValueError as error:
                    records[place]["error"] = re.sub(r"^Row 0 of the data( \(.*?\))?: ", "", str(error))
            places = sorted(lengths, key=lengths.get)
            cut = [place for place in places if lengths[place] > self.collator.max_length]
            for start in range(0, len(places), self.batch_size):
                batch = places[start : start + self.batch_size]
                for place, logits in zip(batch, self.logits([chunk[place] for place in batch]), strict=True):
                    records[place].update(self.describe(logits))
            for place in cut:
                records[place]["truncated"] = True
            self.num_cut += len(cut)
            self.num_bad += len(chunk) - len(places)
            for place in places:
                found = records[place]["score" if self.is_regression else "label"]
                label = self.label_of(given := self.given(whole[place]))
                if label is not None:
                    self.answered.append((self.label_of(found), label))
                self.num_other += label is None and not is_missing(given) and given != -1
            yield from records

    def given(self, row: dict) -> Any:
        """The row's label; where it may have several, their list, also from a column of 0 and 1 for each."""
        parts = self.label_column.split(",")
        if self.has_several_labels and len(parts) > 1 and set(parts) <= row.keys():
            return [name for name in parts if HOLDS.get(str(row[name]).strip().lower())]
        return row.get(self.label_column)

    def label_of(self, given: Any) -> float | list[float] | None:
        """The number of a label: its own, or the place of its class. None without a label that this model gives."""
        if self.has_several_labels:
            is_known = isinstance(given, list) and set(map(str, given)) <= set(self.class_names)
            return [float(name in map(str, given)) for name in self.class_names] if is_known else None
        if str(given) in self.class_names:
            return self.class_names.index(str(given))
        try:
            number = float(given)
        except (TypeError, ValueError):
            return None
        is_place = 0 <= number < (len(self.class_names) or math.inf) and number.is_integer()
        return number if self.is_regression or is_place else None

    def metrics(self) -> dict[str, float]:
        """Metrics of the rows with a label, if any: by default accuracy; for numbers the correlations."""
        if not self.answered:
            return {}
        predictions, references = np.array(self.answered).swapaxes(0, 1)
        names = ("pearson", "spearmanr") if self.is_regression else ("accuracy",)
        if self.has_several_labels:
            names = ("f1_micro", "accuracy")
        names = (self.metric_name,) if self.metric_name else names
        return {name: score for each in names for name, score in compute(each, predictions, references).items()}

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


def write_csv(records: Iterator[dict], file, predictor: Predictor, keep: Sequence[str] = ()) -> None:
    scores = ["score"] if predictor.is_regression else ["label", "scores"]
    if predictor.class_names:
        scores = ["label", *(f"score_{name}" for name in predictor.class_names)]
    writer = csv.DictWriter(file, ["index", *keep, *scores, "truncated", "error"], lineterminator="\n")
    writer.writeheader()
    for record in records:
        found = record.pop("scores", None)
        if isinstance(found, dict):
            record |= {f"score_{name}": score for name, score in found.items()}
        elif found is not None:
            record["scores"] = " ".join(map(str, found))
        if isinstance(record.get("label"), list):
            record["label"] = "|".join(record["label"])
        if FORMULA.match(str(record.get("label"))):
            record["label"] = f"'{record['label']}"
        writer.writerow(record)


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
    check_model("--tokenizer_name", args.tokenizer_name, TOKENIZER)
    if args.metric_name is not None:
        find_metric(args.metric_name)
    rows = read_file(args.file, delimiter=args.delimiter)
    with one_save(args.model):
        predictor = Predictor(args)
    for role, columns in {**predictor.columns, "--keep": args.keep}.items():
        check_columns(args.file, rows.column_names, role, columns)
    texts = [name for names in predictor.columns.values() for name in ([names] if isinstance(names, str) else names)]
    check_unknown(predictor.collator.tokenizer, some_texts(rows, texts), args.file)
    records = predictor.predict(rows, args.keep)
    with atomic_file(args.output_file) if args.output_file else nullcontext(sys.stdout) as file:
        if str(args.output_file).endswith(".csv"):
            write_csv(records, file, predictor, args.keep)
        else:
            for record in records:
                print(json.dumps(record, ensure_ascii=False), file=file, flush=True)
    tell = partial(print, file=sys.stdout if args.output_file else sys.stderr)
    bad = f", {predictor.num_bad} could not be read: those with the field `error`" if predictor.num_bad else ""
    if args.output_file or bad:
        where = f"; written to {args.output_file}" if args.output_file else ""
        tell(f"{len(rows) - predictor.num_bad} of {len(rows)} rows predicted{bad}{where}")
    if figures := predictor.metrics():
        other = f" ({predictor.num_other} more have one that is no class of the model)" if predictor.num_other else ""
        tell(f"{len(predictor.answered)} rows have a label{other} · {readable(figures)}")
    if predictor.num_cut:
        length = predictor.collator.max_length
        print(
            f"{predictor.num_cut} of {len(rows)} rows were cut to {length} tokens: those with the field `truncated`.",
            file=sys.stderr,
        )
    if predictor.num_bad and not args.skip_bad_rows:
        sys.exit(1)

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
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from os.path import samefile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel
from transformers.hf_argparser import HfArg

from tokenization import Task, TraversalCollator
from tokenization.metrics import compute
from tokenization.rows import HOLDS, check_columns, counted, is_missing, read_file

from .. import prepare_finetuning
from ..configuration_gpt1 import has_choices, is_regression
from ..hub.model_kinds import is_of_gpt1
from ..inference.task_scores import TaskScores
from ..storage.reading import one_save
from ..storage.writing import atomic_file
from ..training.callbacks import readable
from ..training.preparation import open_task_config
from .arguments import OpenedModel, check_unknown, read_with_model
from .finetune import describe_prediction, has_task_head, parse_columns, some_texts, texts_of, warn_of_one_class

FORMULA = re.compile(r"(?![-+]?[\d.]+$)[=+\-@]")  # a text that a spreadsheet would run; a number is none
FIELDS = ("index", "label", "scores", "score", "truncated", "error")


@dataclass
class PredictionArguments(OpenedModel):
    """Which rows, and where to write."""

    file: str = HfArg(help="The rows: a .jsonl, .jsonl.gz, .json, .csv, .tsv or .parquet file.")
    delimiter: str | None = HfArg(default=None, help="What separates the cells of a .csv file. Default: found in it.")
    output_file: str | None = HfArg(default=None, help="Where to write: .csv, or JSON lines. Default: the terminal.")
    columns: list[str] = HfArg(default_factory=list, help="role=column pairs. Default: those used for fine-tuning.")
    keep: list[str] = HfArg(default_factory=list, help="Columns of the file that the output has, too.")
    metric_name: str | None = HfArg(default=None, help="Score of labelled rows, such as f1_macro.")
    skip_bad_rows: bool = HfArg(default=False, help="Exit with 0 even if some rows cannot be read.")
    batch_size: int = HfArg(default=32, help="Rows per batch.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")

    def __post_init__(self):
        super().__post_init__()
        own = [name for name in self.keep if name in FIELDS or name.startswith("score_")]
        if own:
            raise ValueError(
                f"--keep {own[0]} is the name of a prediction's own field. Rename the column of the file."
            )
        if self.output_file is not None and not self.output_file.endswith((".csv", ".jsonl")):
            raise ValueError(
                f"--output_file {self.output_file} must end in .csv or .jsonl, which says how it is written."
            )
        if self.output_file is not None and Path(self.output_file).exists() and samefile(self.file, self.output_file):
            raise ValueError(
                f"--output_file {self.output_file} is the --file, whose rows the predictions would replace. Pass "
                "another name."
            )


def open_task(args: PredictionArguments) -> tuple[Task, PreTrainedModel, TraversalCollator]:
    """The task that a fine-tuned folder stores, its model and what makes batches for it."""
    config = open_task_config(args.model, trust_remote_code=args.trust_remote_code)
    columns = parse_columns(args.columns) or config.columns
    if config.traversal is None or not columns or not has_task_head(config):
        lacks = "traversal or no columns (--columns) of a task" if has_task_head(config) else "task head"
        raise ValueError(f"--model {args.model} has no {lacks}. Pass a folder that `gpt1 finetune` wrote.")
    several, regression = config.problem_type == "multi_label_classification", is_regression(config)
    of_task = ("pearson", "spearmanr") if regression else ("f1_micro", "accuracy") if several else ("accuracy",)
    task = Task(
        args.model,
        config.traversal,
        {"label": "label", **columns},
        () if regression or has_choices(config.traversal) else tuple(config.id2label.values()),
        regression=regression,
        multi_label=several,
        metrics=(args.metric_name,) if args.metric_name else of_task,
    )
    opening = {"both_orders": getattr(config, "both_orders", False), "trust_remote_code": args.trust_remote_code}
    parts = prepare_finetuning(args.model, task, **opening)
    collator = parts["data_collator"]
    collator.max_length = min(collator.max_length, collator.tokenizer.model_max_length)
    return task, parts["model"].eval().to(args.device), collator


def predict_rows(
    rows: Dataset, task: Task, model: PreTrainedModel, collator: TraversalCollator, args: PredictionArguments
) -> Iterator[dict]:
    """Yields one record per row."""
    scores_of = model if is_of_gpt1(model) else TaskScores(model)
    for first in range(0, len(rows), args.batch_size):
        records, batch = [], []
        for place, row in enumerate(rows.select(range(first, min(first + args.batch_size, len(rows)))), first):
            records.append({"index": place, **{name: row[name] for name in args.keep}})
            read = {name: row[name] for name in texts_of(task)}  # a label may be anything
            try:
                _, num_cut = collator.check([read])
            except ValueError as error:
                records[-1]["error"] = re.sub(r"^Row 0 of the data( \(.*?\))?: ", "", str(error))
            else:
                batch.append((read, records[-1], {"truncated": True} if num_cut else {}))
        if batch:
            inputs = collator([read for read, *_ in batch])
            with torch.inference_mode():
                output = scores_of(**{name: tensor.to(model.device) for name, tensor in inputs.items()})
            logits = output["task_logits" if scores_of is model else "logits"].cpu().double()
            for (_, record, cut), of_row in zip(batch, logits, strict=True):
                record |= describe_prediction(of_row, task) | cut
        yield from records


def label_of(row: dict, task: Task) -> Any:
    """A row's label, None without one; of several labels their list, also from a column of 0 and 1 for each."""
    column = task.columns["label"]
    parts = column.split(",")
    if task.multi_label and len(parts) > 1 and set(parts) <= row.keys():
        return [name for name in parts if HOLDS.get(str(row[name]).strip().lower())]
    label = row.get(column)
    return None if is_missing(label) or (label in (-1, "-1") and not task.regression) else label


def number_of(label: Any, task: Task, num_choices: int) -> float | list[float] | None:
    """A label as the place of its class, as 0 or 1 for each, or as a number; None if the model gives no such."""
    names = {name: place for place, name in enumerate(task.label_names)}
    if task.multi_label:
        is_known = isinstance(label, list) and set(label) <= names.keys()
        return [float(name in label) for name in names] if is_known else None
    if task.regression:
        with suppress(TypeError, ValueError):
            return float(label)
        return None
    ids = {} if any(map(str.isdigit, names)) else {str(place): place for place in range(num_choices)}
    return (ids | names).get(str(label))


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
    if FORMULA.match(str(cells.get("label"))):
        cells["label"] = f"'{cells['label']}"
    return cells


ARGUMENTS = (PredictionArguments,)


def main(arguments: list[str]) -> None:
    args = read_with_model("predict", arguments)
    rows = read_file(Path(args.file), delimiter=args.delimiter)
    with one_save(args.model):
        task, model, collator = open_task(args)
    for role, columns in {**task.columns, None: args.keep}.items():
        if role != "label":
            check_columns(args.file, rows.column_names, role, columns)
    check_unknown(collator.tokenizer, some_texts(rows, task), args.file)
    num_bad = num_cut = 0
    predicted, answered, other = Counter(), [], []  # labels; pairs of prediction and label
    with atomic_file(args.output_file) if args.output_file else nullcontext(sys.stdout) as file:
        writer = None
        if args.output_file and args.output_file.endswith(".csv"):
            scores = [f"score_{name}" for name in task.label_names] or ["scores"]
            found = ["score"] if task.regression else ["label", *scores]
            writer = csv.DictWriter(file, ["index", *args.keep, *found, "truncated", "error"], lineterminator="\n")
            writer.writeheader()
        for record, row in zip(predict_rows(rows, task, model, collator, args), rows, strict=True):
            num_bad += "error" in record
            num_cut += "truncated" in record
            predicted.update([str(record["label"])] if "label" in record else [])
            given = None if "error" in record else label_of(row, task)
            if given is not None:
                found, num_choices = record.get("label", record.get("score")), len(record.get("scores", ()))
                pair = [number_of(label, task, num_choices) for label in (found, given)]
                (other if pair[1] is None else answered).append(pair)
            if writer is None:
                print(json.dumps(record, ensure_ascii=False), file=file, flush=True)
            else:
                writer.writerow(as_cells(record))
    tell = partial(print, file=sys.stdout if args.output_file else sys.stderr)
    bad = f", {num_bad} could not be read: those with the field `error`" if num_bad else ""
    if args.output_file or bad:
        where = f"; written to {args.output_file}" if args.output_file else ""
        tell(f"{len(rows) - num_bad} of {counted(len(rows), 'row')} predicted{bad}{where}")
    if answered or other:
        scores = {}
        for name in task.metrics if answered else ():
            scores |= compute(name, *np.array(answered).swapaxes(0, 1))
        more = f" ({len(other)} more have one that is no class of the model)" if other else ""
        have = f"{counted(len(answered), 'row')} {'has' if len(answered) == 1 else 'have'} a label{more}"
        tell(" · ".join(filter(None, [have, readable(scores)])))
    warn_of_one_class(predicted, args.file)
    if num_cut:
        length = f"{collator.max_length} tokens: those with the field `truncated`."
        print(f"{num_cut} of {len(rows)} rows were cut to {length}", file=sys.stderr)
    if num_bad and not args.skip_bad_rows:
        sys.exit(1)

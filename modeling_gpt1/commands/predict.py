r"""Classifies, scores or chooses for each row of a file, with a model that `gpt1 finetune` wrote.

    gpt1 predict out/own --file new.csv
    gpt1 predict out/own --file new.csv --output_file predictions.csv

The folder knows its traversal, its columns and the names of its classes. There is a line per row of the file, in its
order: an object at the terminal and in a .jsonl file, columns in a .csv file, with `score_<class>` for each class. Its
fields are `index`; `label` and `scores`, or `score`; `truncated` where the row was cut; `error` instead of these where
it cannot be read. See docs/own-data.md.
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
from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification, PreTrainedModel
from transformers.hf_argparser import HfArg

from tokenization import TraversalCollator, open_tokenizer
from tokenization.rows import check_columns, check_file, read_file

from .. import GPT1Config, GPT1LSTMConfig
from ..hub.model_kinds import is_regression
from ..inference.task_scores import TaskScores
from ..storage.writing import atomic_file
from ..training.checks import check_length
from ..training.preparation import DEFAULT_LENGTH, longest_sequence, open_family_tokenizer, open_task_config
from .arguments import TOKENIZER, DeviceArguments, check_model, parser_of
from .finetune import describe_prediction, parse_columns

ENDINGS = (".jsonl", ".csv")
CHUNK = 1024  # rows that are sorted by length and written as one group


@dataclass
class PredictionArguments(DeviceArguments):
    """Which model, which rows, and where to write."""

    file: str = HfArg(help="The rows: a .jsonl, .jsonl.gz, .csv or .parquet file.")
    model: str | None = HfArg(default=None, help="The fine-tuned model. The flag itself may be left out.")
    output_file: str | None = HfArg(default=None, help="Where to write: .jsonl or .csv. Default: the terminal.")
    columns: list[str] = HfArg(default_factory=list, help="role=column pairs. Default: those used for fine-tuning.")
    max_length: int | None = HfArg(default=None, help="Tokens per sequence. Default: that of the fine-tuning.")
    batch_size: int = HfArg(default=32, help="Rows per batch.")
    tokenizer_name: str | None = HfArg(default=None, help="Tokenizer: folder or hub id. Default: the model's.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")

    def __post_init__(self):
        super().__post_init__()
        check_file("--file", Path(self.file))
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
        self.config = open_task_config(args.model, trust_remote_code=args.trust_remote_code)
        is_of_gpt1 = isinstance(self.config, (GPT1Config, GPT1LSTMConfig))
        if self.config.traversal is None:
            has = "has no task head: it is a language model" if is_of_gpt1 else "names no task"
            raise ValueError(f"--model {args.model} {has}. Pass a folder that `gpt1 finetune` wrote.")
        columns = parse_columns(args.columns) or self.config.columns
        if not columns:
            raise ValueError(
                f"The config of {args.model} does not say which columns it was fine-tuned on. Pass --columns, such as "
                "--columns text=review."
            )
        self.columns = {role: column for role, column in columns.items() if role != "label"}
        self.batch_size = args.batch_size
        self.model = self._open(args)
        tokenizer_name = args.tokenizer_name or args.model
        if is_of_gpt1:
            tokenizer = open_tokenizer(tokenizer_name)
            longest = min(self.config.max_position_embeddings, tokenizer.model_max_length)
        else:
            tokenizer = open_family_tokenizer(tokenizer_name, args.trust_remote_code)
            longest = longest_sequence(self.model, tokenizer) or DEFAULT_LENGTH
        self.scores = self.model if is_of_gpt1 else TaskScores(self.model)
        self.collator = TraversalCollator(
            tokenizer,
            self.config.traversal,
            self.columns,
            max_length=args.max_length or longest,
            both_orders=getattr(self.config, "both_orders", False),
        )
        if not is_of_gpt1:
            check_length(self.collator, longest_sequence(self.model))

    def _open(self, args: PredictionArguments) -> PreTrainedModel:
        is_choice = self.config.traversal == "multiple_choice"
        auto_class = AutoModelForMultipleChoice if is_choice else AutoModelForSequenceClassification
        options = {"config": self.config, "dtype": torch.float32, "trust_remote_code": args.trust_remote_code}
        model, loading = auto_class.from_pretrained(args.model, output_loading_info=True, **options)
        if missing := ", ".join(sorted(loading["missing_keys"])):
            raise ValueError(
                f"--model {args.model} lacks weights: {missing}. Pass a folder that `gpt1 finetune` wrote."
            )
        return model.eval().to(args.device)

    @property
    def class_names(self) -> list[str] | None:
        """Class names in the order of their ids. None for multiple choice and regression."""
        is_class = self.config.traversal != "multiple_choice" and not is_regression(self.config)
        return list(self.config.id2label.values()) if is_class else None

    def predict(self, rows: Dataset) -> Iterator[dict]:
        """Yields one record per row, and counts in `num_cut` the rows that were cut."""
        self.num_cut = 0
        for first in range(0, len(rows), CHUNK):
            records, lengths = [], {}
            chunk = rows.select(range(first, min(first + CHUNK, len(rows)))).to_list()
            for place, row in enumerate(chunk):
                records.append({"index": first + place})
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
            yield from records

    @torch.inference_mode()
    def logits(self, rows: list[dict]) -> torch.Tensor:
        batch = {name: tensor.to(self.model.device) for name, tensor in self.collator(rows).items()}
        return self.scores(**batch)["logits"].cpu().double()

    def describe(self, logits: torch.Tensor) -> dict:
        record = describe_prediction(logits, is_regression(self.config), self.class_names)
        if self.class_names is not None:
            record["scores"] = dict(zip(self.class_names, record["scores"], strict=True))
        return record


def write_csv(records: Iterator[dict], file, predictor: Predictor) -> None:
    scores = ["score"] if is_regression(predictor.config) else ["label", "scores"]
    if predictor.class_names is not None:
        scores = ["label", *(f"score_{name}" for name in predictor.class_names)]
    writer = csv.DictWriter(file, ["index", *scores, "truncated", "error"], lineterminator="\n")
    writer.writeheader()
    for record in records:
        found = record.pop("scores", None)
        if isinstance(found, dict):
            record |= {f"score_{name}": score for name, score in found.items()}
        elif found is not None:
            record["scores"] = " ".join(map(str, found))
        writer.writerow(record)


ARGUMENTS = (PredictionArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("predict")
    parser.add_argument("folder", nargs="?", help="the fine-tuned model, as --model")
    args, positional = parser.read(arguments)
    args.model = positional.folder or args.model
    if args.model is None:
        raise ValueError("No model was given. Write its folder or hub id after `gpt1 predict`.")
    check_model("--model", args.model)
    check_model("--tokenizer_name", args.tokenizer_name, TOKENIZER)
    rows = read_file(Path(args.file))
    predictor = Predictor(args)
    for role, columns in predictor.columns.items():
        check_columns(args.file, rows.column_names, role, columns)
    records = predictor.predict(rows)
    with atomic_file(args.output_file) if args.output_file else nullcontext(sys.stdout) as file:
        if str(args.output_file).endswith(".csv"):
            write_csv(records, file, predictor)
        else:
            for record in records:
                print(json.dumps(record, ensure_ascii=False), file=file, flush=True)
    if args.output_file:
        print(f"{len(rows)} rows predicted, written to {args.output_file}")
    if predictor.num_cut:
        length = predictor.collator.max_length
        print(
            f"{predictor.num_cut} of {len(rows)} rows were cut to {length} tokens: those with the field `truncated`.",
            file=sys.stderr,
        )

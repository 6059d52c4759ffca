r"""Fine-tunes GPT-1 on a task of the paper or on data of your own, with language modelling as auxiliary objective.

A task of the paper, from the hub, starting from the released weights:

    gpt1 finetune --task sst2 --model_name_or_path openai-community/openai-gpt \
        --do_train --do_eval --do_predict --output_dir out/sst2

The same from a folder with train.jsonl, validation.jsonl, … (or a folder of such folders), with a fresh small model:

    gpt1 finetune --task rte --data_dir data --tokenizer_name my-tokenizer \
        --config_overrides hidden_size=256,num_hidden_layers=4,num_attention_heads=4 \
        --do_train --do_eval --output_dir out/rte

Files of your own (.jsonl, .jsonl.gz, .csv or .parquet): say which column plays which role of the traversal.

    gpt1 finetune --train_file train.csv --validation_file dev.csv --traversal entailment \
        --columns premise=text hypothesis=claim label=verdict --model_name_or_path my-gpt1 \
        --do_train --do_eval --output_dir out/own

Predictions for a new file by a model that is already fine-tuned:

    gpt1 finetune --test_file new.jsonl --traversal entailment --columns premise=text hypothesis=claim \
        --model_name_or_path out/own --do_predict --output_dir out/new

More than one GPU, then two processes on the CPU:

    accelerate launch --num_processes 4 -m modeling_gpt1.commands finetune --task sst2 …
    torchrun --nproc_per_node 2 -m modeling_gpt1.commands finetune --task sst2 … --use_cpu

An interrupted run goes on with `--resume_from_checkpoint true`, and with `auto` the same command starts a run and goes
on with it, as a scheduler that restarts jobs needs; `--push_to_hub --hub_model_id me/sst2-gpt1` uploads model,
tokenizer, card and results at the end, and where that fails prints the command that does it later; rows of like length
share a batch, and `--train_sampling_strategy random` shuffles them all alike; `--help` lists every argument. Roles of
`--columns`: `text` (classification); `premise`, `hypothesis` (entailment);
`text_a`, `text_b` (similarity); `context`, `choices` and, if there is one, `question` (multiple_choice); `label`. A
role may have several columns: `choices=ending1,ending2`.

Written to the output folder: model, tokenizer and card (README.md) of a training, train_results.json,
eval_results.json, predict_results.json, all_results.json and predictions.jsonl. The last has a line per row of the
test split: `index`; `label`, the name of the class or the index of the choice, with `scores`, the probabilities of all
of them; or `score`, the number that regression predicts. A task with two test splits gets predictions_<split>.jsonl
each.
"""

import ast
import dataclasses
import json
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset, DatasetDict
from transformers import HfArgumentParser, PreTrainedConfig, PreTrainedModel, set_seed

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1LSTMConfig,
    GPT1LSTMDoubleHeadsModel,
    GPT1Trainer,
    GPT1TrainingArguments,
)
from modeling_gpt1.commands.common import end_after_failed_push
from modeling_gpt1.training.checkpoint import last_whole_checkpoint, newest_whole_checkpoint
from modeling_gpt1.training.launch import check_launch, end_processes
from modeling_gpt1.training.transfer import check_n_transfer, keep_first_layers
from tokenization import (
    TASKS,
    GPT1Tokenizer,
    Task,
    TraversalCollator,
    add_control_tokens,
    compute_metrics_for,
    get_task,
    load_task,
    open_tokenizer,
)
from tokenization.tasks import FILE_BUILDERS, TRAINER_PADDING, predictions_from_logits, read_file
from tokenization.traversal import TRAVERSALS

logger = logging.getLogger(__name__)

# Which splits each flag works on, where the files are the user's own.
OWN_SPLITS = {"do_train": ("train",), "do_eval": ("validation",), "do_predict": ("test",)}
# By model type; whatever is not the LSTM, such as openai-gpt, opens as GPT-1.
CONFIG_CLASSES = {GPT1Config.model_type: GPT1Config, GPT1LSTMConfig.model_type: GPT1LSTMConfig}
# Fields of the configuration that follow from the tokenizer and the data.
DERIVED_FIELDS = ("vocab_size", "traversal", "num_labels", "id2label", "label2id", "problem_type")


@dataclass
class ModelArguments:
    """Where the model comes from."""

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A gpt1 or openai-gpt checkpoint: folder or hub id. Default: a fresh model."}
    )
    config_overrides: str | None = field(
        default=None,
        metadata={"help": "Fields of a fresh model: hidden_size=256,num_hidden_layers=4. Default: the paper's size."},
    )
    model_type: str | None = field(
        default=None,
        metadata={
            "help": f"Of a fresh model: {' or '.join(CONFIG_CLASSES)}. Default: the first.",
            "choices": list(CONFIG_CLASSES),
        },
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "Tokenizer: folder or hub id. Default: the one beside the model."}
    )
    n_transfer: int | None = field(
        default=None,
        metadata={
            "help": "Layers that come from the checkpoint, with the embeddings: 0 is these alone, -1 nothing. "
            "The others start afresh. Default: all."
        },
    )
    ignore_mismatched_sizes: bool = field(
        default=False, metadata={"help": "Start a new task head where the checkpoint's has another number of classes."}
    )
    license: str | None = field(
        default=None,
        metadata={"help": "Licence in the model card, such as mit. Default: that of a hub model that is fine-tuned."},
    )

    def __post_init__(self):
        if self.model_name_or_path is None and self.tokenizer_name is None:
            raise ValueError(
                "There is neither a model nor a tokenizer. Pass --model_name_or_path to fine-tune a checkpoint, or "
                "--tokenizer_name (and --config_overrides) to train a fresh model."
            )
        for flag, value in (("--config_overrides", self.config_overrides), ("--model_type", self.model_type)):
            if self.model_name_or_path is not None and value is not None:
                raise ValueError(
                    f"{flag} {value} describes a fresh model, but --model_name_or_path {self.model_name_or_path} is a "
                    "trained one. Leave one of them out."
                )
        if self.model_name_or_path is None and self.n_transfer is not None:
            raise ValueError(
                f"--n_transfer {self.n_transfer} is the number of layers that come from a checkpoint, but there is "
                "none. Pass --model_name_or_path, or leave it out."
            )


@dataclass
class DataArguments:
    """What to train, evaluate and predict on: a task of the paper, or files of one's own."""

    task: str | None = field(default=None, metadata={"help": f"A task of the paper: {', '.join(TASKS)}."})
    data_dir: str | None = field(
        default=None, metadata={"help": "Folder with the task's files, a file per split. Default: download."}
    )
    train_file: str | None = field(default=None, metadata={"help": "Your own file to train on."})
    validation_file: str | None = field(default=None, metadata={"help": "Your own file to evaluate on."})
    test_file: str | None = field(default=None, metadata={"help": "Your own file to predict; labels are optional."})
    traversal: str | None = field(
        default=None, metadata={"help": f"Input transformation of your own files: {', '.join(TRAVERSALS)}."}
    )
    columns: list[str] = field(
        default_factory=list, metadata={"help": "role=column pairs of your own files; label=label is the default."}
    )
    num_labels: int | None = field(
        default=None, metadata={"help": "Number of classes of your own files. Default: found in the labels."}
    )
    regression: bool = field(default=False, metadata={"help": "The labels of your own files are numbers to predict."})
    max_length: int | None = field(
        default=None, metadata={"help": "Most tokens of a sequence. Default: the positions that the model has."}
    )
    pad_to_multiple_of: int | None = field(
        default=None, metadata={"help": "Pad batches to a multiple of this length, such as 8 for half precision."}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on the first so many rows only."})
    max_eval_samples: int | None = field(
        default=None, metadata={"help": "Evaluate and predict the first so many rows of each split only."}
    )

    def __post_init__(self):
        if self.task is None:
            self._check_own_files()
        else:
            self._check_task_alone()
            self.traversal = get_task(self.task).traversal

    @property
    def files(self) -> dict[str, str]:
        """Split to the user's own file."""
        files = {"train": self.train_file, "validation": self.validation_file, "test": self.test_file}
        return {split: file for split, file in files.items() if file is not None}

    def _check_task_alone(self) -> None:
        own = [f"{split}_file" for split in self.files]
        own += [name for name in ("traversal", "columns", "num_labels", "regression") if getattr(self, name)]
        if own:
            raise ValueError(
                f"--task {self.task} brings its own data and columns, but --{own[0]} was given too. Leave out --task "
                f"to use your own files, or --{own[0]} to use the task."
            )

    def _check_own_files(self) -> None:
        if not self.files:
            raise ValueError(
                "There is no data. Pass --task with a task of the paper, or --train_file, --validation_file or "
                "--test_file with --traversal and --columns."
            )
        if self.data_dir is not None:
            raise ValueError(
                f"--data_dir {self.data_dir} is where --task finds its files. Pass --task, or leave it out."
            )
        if self.traversal not in TRAVERSALS:
            given = "is missing" if self.traversal is None else f"is {self.traversal!r}"
            raise ValueError(f"--traversal {given}; your own files need one of {', '.join(TRAVERSALS)}.")
        if self.traversal == "multiple_choice" and (self.regression or self.num_labels is not None):
            flag = "--regression" if self.regression else "--num_labels"
            raise ValueError(f"{flag} does not go with multiple_choice, whose label is the index of the right choice.")
        if self.regression and self.num_labels is not None:
            raise ValueError("--num_labels counts classes, and --regression has none. Leave one of them out.")
        parse_columns(self.columns)
        for split, file in self.files.items():
            check_file(f"--{split}_file", Path(file))


def parse_columns(pairs: list[str]) -> dict[str, str | list[str]]:
    """Role to column name, or to names: `["choices=a,b"]` becomes `{"choices": ["a", "b"], "label": "label"}`."""
    if not pairs:
        raise ValueError(
            "--columns is missing; your own files need a column for each role, such as --columns text=review "
            "label=stars."
        )
    columns: dict[str, str | list[str]] = {}
    for pair in pairs:
        role, _, names = pair.partition("=")
        if not role or not names:
            raise ValueError(f"--columns has {pair!r}; role=column is needed, such as text=review.")
        columns[role] = names.split(",") if "," in names else names
    return {"label": "label", **columns}


def check_file(flag: str, path: Path) -> None:
    if not path.is_file():
        raise ValueError(f"{flag} {path} does not exist. Pass the path of a file.")
    if not path.name.endswith(tuple(FILE_BUILDERS)):
        raise ValueError(f"{flag} {path} is of an unknown kind. Pass a file that ends in {', '.join(FILE_BUILDERS)}.")


def check_run(training_args: GPT1TrainingArguments) -> None:
    """What a run is to do and where, before it loads anything."""
    if not (training_args.do_train or training_args.do_eval or training_args.do_predict):
        raise ValueError("There is nothing to do. Pass --do_train, --do_eval or --do_predict.")
    if training_args.push_to_hub and not training_args.do_train:
        raise ValueError("--push_to_hub uploads what a training made. Pass --do_train, or leave it out.")
    check_launch(training_args)
    if training_args.do_train:
        check_output_folder(training_args)


def where_to_resume(training_args: GPT1TrainingArguments) -> str | bool | None:
    """A checkpoint's folder, True for the last one of the output folder, or None for a new run."""
    given = training_args.resume_from_checkpoint
    if given is not None and given.lower() == "auto":
        return newest_whole_checkpoint(training_args.output_dir)
    return True if given is not None and given.lower() == "true" else given


def check_output_folder(training_args: GPT1TrainingArguments) -> None:
    folder, resume = Path(training_args.output_dir), where_to_resume(training_args)
    is_new = training_args.resume_from_checkpoint is None
    if is_new and folder.is_dir() and any(folder.iterdir()):
        raise ValueError(
            f"--output_dir {folder} is not empty. Pass --resume_from_checkpoint true to go on with the run that wrote "
            "it, or another folder."
        )
    if resume is True:
        last_whole_checkpoint(folder)
    if isinstance(resume, str) and not Path(resume).is_dir():
        raise ValueError(
            f"--resume_from_checkpoint {resume} is no folder. Pass a checkpoint-<step> folder, or true for the last "
            "one in --output_dir."
        )


def load_config(model_args: ModelArguments) -> GPT1Config | GPT1LSTMConfig:
    if model_args.model_name_or_path is not None:
        return config_class_of(model_args.model_name_or_path).from_pretrained(model_args.model_name_or_path)
    config_class = CONFIG_CLASSES[model_args.model_type or GPT1Config.model_type]
    return config_class(**parse_overrides(model_args.config_overrides or "", config_class))


def config_class_of(model: str) -> type[GPT1Config] | type[GPT1LSTMConfig]:
    """That of a folder or hub id."""
    config_dict, _ = PreTrainedConfig.get_config_dict(model)
    return CONFIG_CLASSES.get(config_dict.get("model_type"), GPT1Config)


def parse_overrides(text: str, config_class: type[PreTrainedConfig] = GPT1Config) -> dict[str, Any]:
    """`"hidden_size=256,resid_pdrop=0.0"` as keyword arguments of the configuration."""
    known = {config_field.name for config_field in dataclasses.fields(config_class)} | set(config_class.attribute_map)
    overrides = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        if name in DERIVED_FIELDS:
            raise ValueError(f"--config_overrides sets {name}, which the tokenizer and the data decide. Leave it out.")
        if name not in known or not value:
            raise ValueError(
                f"--config_overrides has {pair!r}; field=value is needed, with a field of {config_class.__name__} "
                "such as hidden_size=256."
            )
        overrides[name] = parse_value(value)
    return overrides


def parse_value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a bare word, such as the name of an activation
        return text


def load_data(data_args: DataArguments, config: GPT1Config, training_args: GPT1TrainingArguments):
    """The task and its splits; the main process of each machine reads first and the others use its cache."""
    with training_args.main_process_first(desc="reading the data"):
        if data_args.task is None:
            remedy = "Pass its file: --train_file to train, --validation_file to evaluate, --test_file to predict."
            check_splits(training_args, OWN_SPLITS, data_args.files, remedy)
            return load_own_files(data_args, config, training_args.do_train)
        task = get_task(data_args.task)
        splits = load_task(task, data_args.data_dir)
    needed = {"do_train": (task.train_split,), "do_eval": task.validation_splits, "do_predict": task.test_splits}
    check_splits(training_args, needed, splits, "Add its file to --data_dir, or leave the flag out.")
    return task, splits


def check_splits(training_args: GPT1TrainingArguments, needed: dict, available: Collection[str], remedy: str) -> None:
    for flag, names in needed.items():
        if getattr(training_args, flag) and not set(names) & set(available):
            raise ValueError(
                f"--{flag} needs a split {' or '.join(names)}, but the data has: {', '.join(available)}. {remedy}"
            )


def load_own_files(data_args: DataArguments, config: GPT1Config, training: bool) -> tuple[Task, DatasetDict]:
    columns = parse_columns(data_args.columns)
    splits = {split: read_file(Path(file)) for split, file in data_args.files.items()}
    for split, rows in splits.items():
        if split != "test" and columns["label"] not in rows.column_names:
            raise ValueError(
                f"{data_args.files[split]} has no column {columns['label']!r} for the role label; its columns are: "
                f"{', '.join(rows.column_names)}. Pass --columns … label=<column>."
            )
    classes = not data_args.regression and data_args.traversal != "multiple_choice"
    label_names = find_label_names(data_args, splits, config, training) if classes else ()
    task = Task(
        name=Path(next(iter(data_args.files.values()))).name.partition(".")[0],
        traversal=data_args.traversal,
        columns=columns,
        label_names=label_names,
        regression=data_args.regression,
        metrics=("pearson", "spearmanr") if data_args.regression else ("accuracy",),
    )
    if classes:
        splits = {split: encode_labels(rows, task, data_args.files[split]) for split, rows in splits.items()}
    return task, DatasetDict(splits)


def find_label_names(
    data_args: DataArguments, splits: dict[str, Dataset], config: GPT1Config, training: bool
) -> tuple[str, ...]:
    """Class names in the order of their ids: from the training file, or from the model if it is not trained now."""
    if training:
        column = parse_columns(data_args.columns)["label"]
        source = f"Column {column!r} of {data_args.train_file}"
        names = class_names(splits["train"].unique(column), data_args.num_labels, source)
    else:
        source = "The model"
        names = tuple(config.id2label[label_id] for label_id in range(config.num_labels))
    if data_args.num_labels not in (None, len(names)):
        raise ValueError(
            f"{source} has {len(names)} classes ({', '.join(names)}), but --num_labels is {data_args.num_labels}. "
            "Correct the data or the number."
        )
    if len(names) < 2:
        raise ValueError(f"{source} has only the class {names[0]}; at least two are needed.")
    return names


def class_names(labels: list, num_labels: int | None, source: str) -> tuple[str, ...]:
    """Texts in alphabetical order; integers are the ids themselves if 0 is among them, else names."""
    if all(type(label) is int for label in labels) and 0 not in labels:
        return tuple(map(str, sorted(labels)))
    if all(type(label) is int for label in labels):
        ids = range(num_labels or len(labels))
        if not set(labels) <= set(ids):
            raise ValueError(
                f"{source} has the classes {', '.join(map(str, sorted(labels)))}; class ids are needed, integers "
                f"from 0 to {len(ids) - 1}. Correct the data, or pass the number of classes as --num_labels."
            )
        return tuple(map(str, ids))
    for label in labels:
        if not isinstance(label, str | bool):
            raise ValueError(
                f"{source} has the label {label!r}; a class is needed in every row: a text, or an integer from 0. "
                "Correct the data, or pass --regression to predict numbers."
            )
    return tuple(sorted(map(str, labels)))


def encode_labels(rows: Dataset, task: Task, file: str) -> Dataset:
    """Class names become ids; a test file may have no labels."""
    column = task.columns["label"]
    labels = [label for label in rows.unique(column) if label is not None] if column in rows.column_names else []
    if all(type(label) is int and str(label) not in task.label_names for label in labels):
        return rows  # ids already, or nothing to encode
    ids = {name: label_id for label_id, name in enumerate(task.label_names)}
    unknown = [label for label in labels if str(label) not in ids]
    if unknown:
        raise ValueError(
            f"Column {column!r} of {file} has the label {unknown[0]!r}; the classes are {', '.join(ids)}. Correct the "
            "data."
        )
    label_ids = [None if label is None else ids[str(label)] for label in rows[column]]
    return rows.remove_columns(column).add_column(column, label_ids)


def check_transfer(model_args: ModelArguments, config: GPT1Config, training: bool) -> None:
    if model_args.n_transfer is None:
        return
    if not training:
        raise ValueError(
            f"--n_transfer {model_args.n_transfer} gives up layers that only training can replace. Pass --do_train, "
            "or leave it out."
        )
    check_n_transfer(config, model_args.n_transfer)


def check_is_trained(config: GPT1Config, data_args: DataArguments, model_args: ModelArguments) -> None:
    if config.traversal != data_args.traversal:
        has = "none" if config.traversal is None else f"one for {config.traversal}"
        raise ValueError(
            f"Without --do_train the model must have a task head for {data_args.traversal}, but "
            f"{model_args.model_name_or_path or 'a fresh model'} has {has}. Pass --do_train, or a fine-tuned model as "
            "--model_name_or_path."
        )


def check_task_head(config: GPT1Config, task: Task, model_args: ModelArguments, training: bool) -> None:
    has_head = config.traversal is not None
    if has_head and config.num_labels != task.num_labels and not (training and model_args.ignore_mismatched_sizes):
        raise ValueError(
            f"The task head of {model_args.model_name_or_path} has {config.num_labels} scores, but {task.name} needs "
            f"{task.num_labels}. Pass --do_train and --ignore_mismatched_sizes to train a new head."
        )


def complete_config(config: GPT1Config, task: Task) -> None:
    """Tells the configuration the task: traversal, kind of problem and, where there are classes, their names."""
    config.traversal = task.traversal
    config.problem_type = "regression" if task.regression else None
    if task.label_names:
        config.problem_type = "single_label_classification"
    names = task.label_names or ("LABEL_0",)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: label_id for label_id, name in enumerate(names)}


def make_collator(data_args: DataArguments, config: GPT1Config, task: Task, tokenizer) -> TraversalCollator:
    return TraversalCollator(
        tokenizer,
        task.traversal,
        task.columns,
        max_length=data_args.max_length or config.max_position_embeddings,
        pad_to_multiple_of=data_args.pad_to_multiple_of,
        num_labels=len(task.label_names) or None,
        regression=task.regression,
        # -1 is a number like others where the user's own labels are numbers.
        hidden_label=None if task.regression and task.hub_path is None else -1,
    )


def choose_rows(data_args: DataArguments, training_args: GPT1TrainingArguments, task: Task, splits: DatasetDict):
    """Splits to train, evaluate and predict on: those that are asked for, up to the numbers of samples."""
    wanted = {
        "train": (training_args.do_train, (task.train_split,), data_args.max_train_samples),
        "eval": (training_args.do_eval, task.validation_splits, data_args.max_eval_samples),
        "predict": (training_args.do_predict, task.test_splits, data_args.max_eval_samples),
    }
    return {
        use: {name: first_rows(splits[name], limit) for name in names if asked and name in splits}
        for use, (asked, names, limit) in wanted.items()
    }


def evaluation_set(splits: dict[str, Dataset]) -> Dataset | dict[str, Dataset] | None:
    """One split as itself, so that its metrics are called `eval_…`; several as `eval_<split>_…`."""
    return next(iter(splits.values())) if len(splits) == 1 else splits or None


def first_rows(rows: Dataset, limit: int | None) -> Dataset:
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def check_rows(collator: TraversalCollator, chosen: dict[str, dict[str, Dataset]]) -> None:
    """Reads every row once, so that a bad one stops the run now and not hours later."""
    for use, splits in chosen.items():
        for name, rows in splits.items():
            num_examples, num_truncated = collator.check(rows)
            cut = f"{num_truncated} of them cut to {collator.max_length} tokens"
            logger.info(f"{use}: {num_examples} examples of {name}, {cut}")


def load_model(
    model_args: ModelArguments, config: GPT1Config | GPT1LSTMConfig, tokenizer: GPT1Tokenizer
) -> PreTrainedModel:
    """The checkpoint, or what is to be kept of it, or a fresh model; with embeddings for the control tokens."""
    model_class = GPT1LSTMDoubleHeadsModel if isinstance(config, GPT1LSTMConfig) else GPT1DoubleHeadsModel
    if model_args.model_name_or_path is None:
        config.vocab_size = len(tokenizer)
        model = model_class(config)
    else:
        model = model_class.from_pretrained(
            model_args.model_name_or_path,
            config=config,
            dtype=torch.float32,  # of the weights; --bf16 computes in half precision
            ignore_mismatched_sizes=model_args.ignore_mismatched_sizes,
        )
        if model_args.n_transfer is not None:
            keep_first_layers(model, model_args.n_transfer)
    add_control_tokens(tokenizer, model)
    return model


def train(trainer: GPT1Trainer) -> None:
    result = trainer.train(resume_from_checkpoint=where_to_resume(trainer.args))
    trainer.save_model(_internal_call=True)  # is pushed at the end, with all results
    trainer.save_state()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)


def evaluate(trainer: GPT1Trainer) -> None:
    metrics = trainer.evaluate()
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


def predict(trainer: GPT1Trainer, task: Task, splits: dict[str, Dataset]) -> None:
    """Writes a file of predictions per split, and the metrics of the splits that have labels."""
    metrics = {}
    for name, rows in splits.items():
        suffix = "" if len(splits) == 1 else f"_{name}"
        output = trainer.predict(rows, metric_key_prefix=f"predict{suffix}")
        metrics.update(output.metrics)
        if trainer.is_world_process_zero():
            write_predictions(Path(trainer.args.output_dir, f"predictions{suffix}.jsonl"), task, output.predictions)
    trainer.log_metrics("predict", metrics)
    trainer.save_metrics("predict", metrics)


def write_predictions(path: Path, task: Task, task_logits: np.ndarray) -> None:
    predictions = predictions_from_logits(task, task_logits)
    with path.open("w", encoding="utf-8") as file:
        for index, (prediction, logits) in enumerate(zip(predictions, task_logits, strict=True)):
            row = {"index": index, **describe_prediction(task, prediction, logits)}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    logger.info(f"{len(predictions)} predictions written to {path}")


def describe_prediction(task: Task, prediction: np.generic, logits: np.ndarray) -> dict[str, Any]:
    if task.regression:
        return {"score": float(prediction)}
    if task.traversal == "multiple_choice":
        # The places of choices that this row does not have.
        logits = logits[np.isfinite(logits) & (logits != TRAINER_PADDING)]
    scores = torch.from_numpy(logits).double().softmax(-1).tolist()
    return {"label": task.label_names[prediction] if task.label_names else int(prediction), "scores": scores}


def publish(trainer: GPT1Trainer, model_args: ModelArguments, task: Task) -> None:
    """Writes the card, and uploads the output folder with it where --push_to_hub asks for that."""
    start = model_args.model_name_or_path
    facts = {
        # A folder of this machine means nothing to the readers of the card, and a start of which nothing is left less.
        "finetuned_from": None if start is None or Path(start).exists() or model_args.n_transfer == -1 else start,
        "license": model_args.license,
        "dataset": task.name,
        "dataset_tags": task.hub_path,
        "dataset_args": task.hub_config,
        "dataset_split": task.validation_splits[0] if len(task.validation_splits) == 1 else None,
    }
    if trainer.args.push_to_hub:
        trainer.push_to_hub(**facts)
    else:
        trainer.create_model_card(**facts)


def set_up_logging(training_args: GPT1TrainingArguments) -> None:
    logging.basicConfig(format="%(message)s")
    logger.setLevel(logging.INFO if training_args.should_log else logging.WARNING)
    transformers.utils.logging.set_verbosity(training_args.get_process_log_level())


@end_after_failed_push()
def main(arguments: list[str] | None = None) -> None:
    parser = HfArgumentParser((ModelArguments, DataArguments, GPT1TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses(arguments)
    check_run(training_args)
    set_up_logging(training_args)
    set_seed(training_args.seed)

    config = load_config(model_args)
    check_transfer(model_args, config, training_args.do_train)
    if not training_args.do_train:
        check_is_trained(config, data_args, model_args)
    task, splits = load_data(data_args, config, training_args)
    check_task_head(config, task, model_args, training_args.do_train)
    complete_config(config, task)
    tokenizer = open_tokenizer(model_args.tokenizer_name or model_args.model_name_or_path)
    add_control_tokens(tokenizer)
    collator = make_collator(data_args, config, task, tokenizer)
    chosen = choose_rows(data_args, training_args, task, splits)
    if training_args.process_index == 0:
        check_rows(collator, chosen)

    model = load_model(model_args, config, tokenizer)
    trainer = GPT1Trainer(
        model,
        training_args,
        data_collator=collator,
        train_dataset=chosen["train"].get(task.train_split),
        eval_dataset=evaluation_set(chosen["eval"]),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for(task),
    )
    if training_args.do_train:
        train(trainer)
    if training_args.do_eval:
        evaluate(trainer)
    if training_args.do_predict:
        predict(trainer, task, chosen["predict"])
    if training_args.do_train:
        publish(trainer, model_args, task)
    end_processes(trainer)

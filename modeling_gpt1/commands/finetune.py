r"""Fine-tunes GPT-1 on a task of the paper or on data of your own, with language modelling as auxiliary objective.
Models of other families, such as BERT, BART or Llama, are fine-tuned with transformers' own classifiers.

    gpt1 finetune --task sst2 --model openai-community/openai-gpt \
        --do_train --do_eval --do_predict --output_dir out/sst2
    gpt1 finetune --train_file train.csv --validation_file dev.csv --traversal entailment \
        --columns premise=text hypothesis=claim label=verdict --model my-gpt1 \
        --do_train --do_eval --output_dir out/own
    accelerate launch --num_processes 4 -m modeling_gpt1.commands finetune --task sst2 …

Written to the output folder: model, tokenizer, card (README.md), the results of each split, and predictions.jsonl of
the test split. See docs/finetune.md and docs/own-data.md.
"""

import csv
import json
import logging
import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, DatasetDict, load_dataset
from transformers import PreTrainedConfig, set_seed
from transformers.hf_argparser import HfArg

from tokenization import TASKS, Task, TraversalCollator, get_task, load_files, load_task
from tokenization.errors import UserError
from tokenization.rows.columns import PLACE
from tokenization.rows.traversals import TRAVERSALS
from tokenization.wording import counted, listed

from .. import GPT1Trainer, GPT1TrainingArguments, prepare_finetuning
from ..configuration_gpt1 import is_regression
from ..families import family_of_checkpoint, family_of_config
from ..families.opening import without_reports
from ..inference.predictions import describe_prediction
from ..storage.writing import atomic_file
from ..training.callbacks import readable
from ..training.launch import check_launch, end_processes
from . import runs
from .arguments import at_revision, check_model, check_unknown, parser_of, some_texts

logger = logging.getLogger(__name__)
SPLITS = {"train": "train", "eval": "validation", "predict": "test"}  # by use
MANY_ROWS = 20  # that should not all be of one class
KEPT_AT_A_RESUME = "task train_file dataset_name dataset_config_name train_split max_train_samples max_length".split()
KEPT_AT_A_RESUME += ["columns"]
OF_OWN_FILES = "dataset_name traversal columns num_labels delimiter skip_bad_rows regression".split()


@dataclass
class StartArguments(runs.ModelArguments):
    """What training starts from."""

    revision: str | None = HfArg(default=None, help="Branch of the hub, or checkpoint in the folder of a run.")
    auto_model: bool = HfArg(default=False, help="Open openai-gpt and GPT-2 with transformers' own classifiers.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")
    n_transfer: int | None = HfArg(default=None, help="Layers to keep; 0: the embeddings, -1: nothing. Default: all.")
    ignore_mismatched_sizes: bool = HfArg(default=False, help="Start a new head for other classes.")
    lora_r: int | None = HfArg(default=None, help="Train a LoRA adapter of this rank. Default: all weights.")

    def __post_init__(self):
        if self.model is None and (self.tokenizer_name is None or self.n_transfer is not None):
            how = "--tokenizer_name (and --config_overrides)"
            how += "" if self.n_transfer is None else " without --n_transfer"
            raise UserError(f"No --model was given. Pass one, or {how} to train a fresh model.")
        super().__post_init__()


@dataclass
class DataArguments:
    """What to train, evaluate and predict on: a task of the paper, or files of one's own."""

    task: str | None = HfArg(default=None, help=f"A task of the paper: {', '.join(TASKS)}.")
    data_dir: str | None = HfArg(default=None, help="Its files, one per split. Default: download.")
    train_file: str | None = HfArg(default=None, help="Your own file to train on.")
    validation_file: str | None = HfArg(default=None, help="Your own file to evaluate on.")
    test_file: str | None = HfArg(default=None, help="Your own file to predict.")
    dataset_name: str | None = HfArg(default=None, help="Data set of the hub, or folder of one, in place of files.")
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of that data set.")
    train_split: str = HfArg(default="train", help="Split of that data set to train on.")
    validation_split: str = HfArg(default="validation", help="Its split to evaluate on.")
    test_split: str = HfArg(default="test", help="Its split to predict.")
    traversal: str | None = HfArg(default=None, help="That of your own files.", metadata={"choices": TRAVERSALS})
    columns: list[str] = HfArg(default_factory=list, help="role=column pairs of your own files.")
    num_labels: int | None = HfArg(default=None, help="Classes of your own files. Default: those of the labels.")
    delimiter: str | None = HfArg(default=None, help="What separates the cells of .csv files. Default: found in them.")
    skip_bad_rows: bool = HfArg(default=False, help="Leave out rows without a text or a right label.")
    regression: bool = HfArg(default=False, help="Your labels are numbers to predict.")
    metric_name: str | None = HfArg(default=None, help="Score, of scikit-learn or evaluate. Default: the task's.")
    max_length: int | None = HfArg(default=None, help="Tokens per sequence. Default: the model's number of positions.")
    both_orders: bool = HfArg(default=False, help="Read similarity pairs in both orders, as GPT-1 always does.")
    pad_to_multiple_of: int | None = HfArg(default=None, help="Pad batches to a multiple of this length, such as 8.")
    max_train_samples: int | None = HfArg(default=None, help="Train on this many rows, drawn with the seed.")
    max_eval_samples: int | None = HfArg(default=None, help="Evaluate on this many rows of each split.")
    max_predict_samples: int | None = HfArg(default=None, help="Predict this many rows of each split.")

    def __post_init__(self):
        files = {"train": self.train_file, "validation": self.validation_file, "test": self.test_file}
        self.files = {split: file for split, file in files.items() if file is not None}
        own = [*(f"{split}_file" for split in self.files), *(name for name in OF_OWN_FILES if getattr(self, name))]
        if self.task is not None:
            self.traversal = get_task(self.task).traversal
            if own:
                raise UserError(
                    f"--task {self.task} brings its own data and columns, but --{own[0]} was given too. Leave out "
                    f"--task to use your own files, or --{own[0]} to use the task."
                )
        elif bool(self.files) == (self.dataset_name is not None) or self.data_dir is not None:
            given = "Files and a data set were given" if self.files and self.dataset_name else "No data was given"
            raise UserError(
                f"{given}. Pass --task with a task of the paper (and --data_dir), or --train_file, "
                "--validation_file or --test_file, or --dataset_name, with --traversal and --columns."
            )
        parse_columns(self.columns)

    def source_of(self, split: str) -> str:
        """The file of a split, or its name."""
        return self.files.get(split, f"split {split!r}")

    def complete(self, config: PreTrainedConfig, is_training: bool) -> dict[str, str | list[str]]:
        """Column by role of the user's own files. A fine-tuned model supplies roles that the arguments leave out."""
        self.traversal = self.traversal or config.traversal
        is_same = self.traversal == config.traversal
        self.regression |= is_same and not is_training and is_regression(config)
        columns = {**((is_same and config.columns) or {}), **parse_columns(self.columns)}
        if self.traversal is None or not columns:
            missing = "columns" if self.traversal else "traversal"
            raise UserError(
                f"--{missing} is missing; your own files need --traversal, one of {', '.join(TRAVERSALS)}, and a "
                "column for each role, such as --columns text=review label=stars."
            )
        return columns


def parse_columns(pairs: list[str]) -> dict[str, str | list[str]]:
    """Maps each role to one or several column names: `['choices=a,"b,c"']` becomes `{"choices": ["a", "b,c"]}`."""
    columns: dict[str, str | list[str]] = {}
    for pair in pairs:
        role, _, names = pair.partition("=")
        if not role or not names or role in columns:
            raise UserError(f"--columns has {pair!r}; each role is needed once: role=column, or role=column,column.")
        if re.search(r"[,\s]\w+=", names):
            raise UserError(f"--columns has {pair!r} as one. Write several pairs, as in --columns text=a label=b.")
        columns[role] = parts if len(parts := next(csv.reader([names]))) > 1 else parts[0]
    return columns


def check_run(training_args: GPT1TrainingArguments, data_args: DataArguments, lora_r: int | None) -> str | None:
    """Checks what the run is asked to do and its output folder; returns the checkpoint that it resumes from."""
    if not (training_args.do_train or training_args.do_eval or training_args.do_predict):
        raise UserError("There is nothing to do. Pass --do_train, --do_eval or --do_predict.")
    check_launch(training_args)
    for name, usual in (("prediction_loss_only", False), ("eval_do_concat_batches", True), ("label_names", None)):
        if getattr(training_args, name) != usual:
            raise UserError(f"--{name} leaves no predictions to write. Leave it out.")
    if not training_args.do_train:
        if training_args.push_to_hub:
            raise UserError("--push_to_hub uploads a model after training. Pass --do_train, or leave it out.")
        return None
    kept = {name: getattr(data_args, name) for name in KEPT_AT_A_RESUME}
    return runs.check_output_folder(training_args, {**kept, "lora_r": lora_r})


def check_head(config: PreTrainedConfig, data_args: DataArguments, model_args: StartArguments) -> None:
    """Checks that a model that is not trained has the head of the task."""
    if model_args.n_transfer is not None:
        raise UserError(f"--n_transfer {model_args.n_transfer} leaves layers to train. Pass --do_train as well.")
    has = config.traversal if family_of_config(config).has_task(config) else None
    if has is None or has != (data_args.traversal or has):
        raise UserError(
            f"Without --do_train the model must have a task head for {data_args.traversal or 'your files'}, named in "
            f"its config.json, but {model_args.model or 'a fresh model'} has {f'one for {has}' if has else 'none'}. "
            "Pass --do_train, or a fine-tuned model as --model."
        )


def check_labels(task: Task, splits: DatasetDict, config: PreTrainedConfig) -> Task:
    """Checks that a model that is not trained gives as many labels as the rows have: one or several."""
    has_several = config.problem_type == "multi_label_classification"
    is_labelled = any(task.columns["label"] in rows.column_names for rows in splits.values())
    if is_labelled and has_several != task.multi_label:
        gives, have = ("several labels" if several else "one label" for several in (has_several, task.multi_label))
        how = "Pass rows of its kind, or --do_train to train it for these"
        raise UserError(f"The model gives each row {gives} (`problem_type`), but the rows have {have}. {how}.")
    return replace(task, multi_label=has_several)


def load_data(
    data_args: DataArguments, config: PreTrainedConfig, training_args: GPT1TrainingArguments
) -> tuple[Task, DatasetDict]:
    """Loads the task and its splits. The main process of each machine reads first; the others use its cache."""
    with training_args.main_process_first(desc="reading the data"):
        if data_args.task is not None:
            task = get_task(data_args.task)
            return task, load_task(task, data_args.data_dir)
        columns, files = data_args.complete(config, training_args.do_train), data_args.files
        if data_args.dataset_name is not None:
            found = load_dataset(data_args.dataset_name, data_args.dataset_config_name)
            names = {split: getattr(data_args, f"{split}_split") for split in SPLITS.values()}
            files = {split: found[name] for split, name in names.items() if name in found}
        # A model that this run does not train keeps its own classes.
        label_names = None if training_args.do_train else list(config.id2label.values())
        options = {name: getattr(data_args, name) for name in "regression num_labels delimiter skip_bad_rows".split()}
        return load_files(files, data_args.traversal, columns, label_names=label_names, **options)


def choose_rows(data_args: DataArguments, training_args: GPT1TrainingArguments, task: Task, splits: DatasetDict):
    """The splits that the run trains, evaluates and predicts on, each as the indices of its chosen rows."""
    seed = training_args.seed if training_args.data_seed is None else training_args.data_seed
    uses, chosen = {"train": (task.train_split,), "eval": task.validation_splits, "predict": task.test_splits}, {}
    for use, names in uses.items():
        is_asked, limit = getattr(training_args, f"do_{use}"), getattr(data_args, f"max_{use}_samples")
        names = [name for name in names if is_asked and name in splits]
        if is_asked and not names:
            flag = "--eval_strategy" if use == "eval" and training_args.eval_strategy != "no" else f"--do_{use}"
            place = "Add its file to --data_dir" if data_args.task else f"Pass --{SPLITS[use]}_file"
            raise UserError(
                f"{flag} needs a split for it, but the data has: {', '.join(splits)}. {place}, or leave {flag} out; "
                f"of a data set of the hub, name the split as --{SPLITS[use]}_split."
            )
        chosen[use] = {name: draw_places(len(splits[name]), limit, seed) for name in names}
    return chosen


def draw_places(num_rows: int, limit: int | None, seed: int) -> np.ndarray:
    """All row indices, or `limit` of them drawn at random and sorted, so that a sorted file is sampled throughout."""
    return np.sort(np.random.default_rng(seed).permutation(num_rows)[:limit])


def check_rows(
    collator: TraversalCollator, chosen: dict[str, dict], task: Task, data_args: DataArguments, is_allowed: bool
) -> list[str]:
    """Reads every row once, so that a bad row stops the run at the start. Returns a line about each split."""
    lines = []
    for use, splits in chosen.items():
        for name, rows in splits.items():
            source = data_args.source_of(name)
            try:
                num_rows, num_cut = collator.check(rows, source, needs_labels=use != "predict")
            except ValueError as error:
                marks = " `gpt1 predict` marks such rows and predicts the others." if use == "predict" else ""
                raise UserError(f"{error}{marks}") from error
            share = check_unknown(collator.tokenizer, some_texts(rows, task), source, is_allowed or use == "predict")
            counts = Counter()
            for of_row in rows[task.columns["label"]] if not task.regression and use != "predict" else ():
                counts.update(np.flatnonzero(of_row) if task.multi_label else [of_row])
            if use == "train" and len(counts) > max(MANY_ROWS, counts.total() / 2):
                label = task.columns["label"]
                logger.warning(f"Column {label!r} has {len(counts):,} classes in {num_rows:,} rows: is it the label?")
            elif use == "train" and not data_args.max_train_samples:
                if once := [name for at, name in enumerate(task.label_names) if counts[at] == 1]:
                    each = f"has each of these classes: {listed(once)}"
                    logger.warning(f"A single row of {source} {each}. Is one mistyped?")
            names = task.label_names or range(max(counts, default=-1) + 1)
            has_rows = counts if use != "train" else range(len(names))  # classes of an evaluation may have none
            numbers = [f"{name} {counts[place]:,}" for place, name in enumerate(names) if place in has_rows]
            of_classes = f" ({listed(numbers)})" if counts else ""
            cut = f", {num_cut:,} cut to {counted(collator.max_length, 'token')}" if num_cut else ""
            unknown = f", {share:.1%} of the tokens unknown"
            lines.append(f"{use}: {counted(num_rows, 'row')} of {source}{of_classes}{cut}{unknown}")
    return lines


def predict(trainer: GPT1Trainer, task: Task, splits: dict[str, Dataset], use: str, data_args: DataArguments) -> None:
    """Writes one file of predictions per split, one line per row, and the metrics of the splits.

    `index` is the row's place in the file, also behind rows that `skip_bad_rows` left out. A split in which a label
    is missing has no metrics.
    """
    label, metrics = task.columns["label"], {}
    for name, rows in splits.items():
        suffix = "" if len(splits) == 1 else f"_{name}"
        if label in rows.column_names and not all(map(trainer.data_collator.is_labelled, rows.select_columns(label))):
            rows = rows.remove_columns(label)
        output = trainer.predict(rows, metric_key_prefix=f"{use}{suffix}")
        metrics.update(output.metrics)
        if trainer.is_world_process_zero():
            source = data_args.source_of(name)
            found = [describe_prediction(of_row.double(), task) for of_row in torch.from_numpy(output.predictions)]
            warn_of_one_class(Counter(str(of_row["label"]) for of_row in found if "label" in of_row), source)
            path = Path(trainer.args.output_dir, f"{'eval_' if use == 'eval' else ''}predictions{suffix}.jsonl")
            with atomic_file(path) as file:
                for index, of_row in zip(rows[PLACE], found, strict=True):
                    file.write(json.dumps({"index": index, **of_row}, ensure_ascii=False) + "\n")
            logger.info(f"predictions of {counted(len(rows), 'row')} of {source}: {path}")
    if use == "eval":
        trainer.log(metrics)  # as `evaluate` does; the card reads the log
    elif figures := readable(metrics):
        logger.info(f"{' and '.join(map(data_args.source_of, splits))} · {figures}")
    trainer.save_metrics(use, metrics)


def warn_of_one_class(counts: Counter, source: str) -> None:
    """Says where many rows are predicted to be of one class."""
    if len(counts) == 1 and counts.total() >= MANY_ROWS:
        logger.warning(
            f"All {counts.total():,} rows of {source} are predicted as {min(counts)!r}. If that is wrong, fine-tune "
            "on more rows, for more epochs, with a lower or a higher --learning_rate, or from a pre-trained model."
        )


ARGUMENTS = (StartArguments, DataArguments, GPT1TrainingArguments)
BASICS = {
    "what to do": "do_train do_eval do_predict output_dir config",
    "data": "task data_dir train_file validation_file test_file traversal columns regression max_length "
    "max_train_samples max_eval_samples",
    "model": "model tokenizer_name family config_overrides",
    "training": "num_train_epochs max_steps learning_rate per_device_train_batch_size gradient_accumulation_steps "
    "lm_coef seed bf16 use_cpu",
    "watching, stopping, going on": "logging_steps eval_strategy save_strategy resume_from_checkpoint report_to "
    "push_to_hub",
}


def main(arguments: list[str]) -> None:
    parser = parser_of("finetune")
    model_args, data_args, training_args = parser.read(arguments)
    checkpoint = check_run(training_args, data_args, model_args.lora_r)
    runs.set_up_logging(training_args, parser)
    set_seed(training_args.seed)
    for flag, split in (("do_train", "train"), ("do_eval", "validation"), ("do_predict", "test")):
        if split in data_args.files and not getattr(training_args, flag):
            logger.warning(f"--{split}_file is checked, but not used without --{flag}.")
    if len({Path(file).resolve() for file in data_args.files.values()}) < len(data_args.files):
        logger.warning("One file is given for two uses: a score on rows that were trained on says little.")

    start, peft_config = at_revision(model_args.model, model_args.revision), None
    if model_args.lora_r is not None and training_args.do_train:
        from peft import LoraConfig  # of an extra

        peft_config = LoraConfig(r=model_args.lora_r, lora_alpha=2 * model_args.lora_r, lora_dropout=0.05)
    check_model("--model", start)
    opening = {"auto_model": model_args.auto_model, "trust_remote_code": model_args.trust_remote_code}
    if start is None:
        config = model_args.fresh_config()
        family = family_of_config(config)
    else:
        family = family_of_checkpoint(start, **opening)
        config = family.open_config(start, model_args.trust_remote_code)
    if not training_args.do_train:
        check_head(config, data_args, model_args)
    task, splits = load_data(data_args, config, training_args)
    if data_args.metric_name is not None:
        task = replace(task, metrics=(data_args.metric_name,))
    of_splits = [f"{split}_" for split in task.validation_splits] if len(task.validation_splits) > 1 else [""]
    scores = ("loss", *task.metrics, "task_loss", "lm_loss")
    runs.check_metric(training_args, [f"{of}{score}" for of in of_splits for score in scores])
    if not training_args.do_train:
        task = check_labels(task, splits, config)
    places = choose_rows(data_args, training_args, task, splits)
    with nullcontext() if checkpoint is None else without_reports():
        parts = prepare_finetuning(
            config if start is None else start,
            task,
            model_args.tokenizer_name,
            max_length=data_args.max_length,
            pad_to_multiple_of=data_args.pad_to_multiple_of,
            n_transfer=model_args.n_transfer,
            ignore_mismatched_sizes=model_args.ignore_mismatched_sizes and training_args.do_train,
            peft_config=peft_config,
            both_orders=data_args.both_orders or (not training_args.do_train and family.reads_both_orders(config)),
            **opening,
        )
    tokenizer, collator = parts["processing_class"], parts["data_collator"]
    if training_args.do_train:
        tokenizer.model_max_length = collator.max_length  # also where that is the model's own
    elif data_args.max_length is None:
        collator.max_length = min(collator.max_length, tokenizer.model_max_length)
    for name, rows in splits.items():
        splits[name] = rows if PLACE in rows.column_names else rows.add_column(PLACE, list(range(len(rows))))
    chosen = {use: {name: splits[name].select(at) for name, at in of_use.items()} for use, of_use in places.items()}
    is_first = training_args.process_index == 0
    lines = check_rows(collator, chosen, task, data_args, model_args.allow_unknown_text) if is_first else []
    trainer = GPT1Trainer(
        args=training_args,
        train_dataset=chosen["train"].get(task.train_split),
        # The metrics are named `eval_…` for one split and `eval_<split>_…` for several.
        eval_dataset=chosen["eval"] if len(chosen["eval"]) > 1 else next(iter(chosen["eval"].values()), None),
        **parts,
    )
    runs.use_readable_log(trainer, " and ".join(map(data_args.source_of, chosen["eval"])))
    was_trained = training_args.do_train and runs.train(trainer, start, lines, checkpoint, parser)
    if not training_args.do_train:
        for line in (runs.describe_start(trainer, start), *lines):
            logger.info(line)
    for use in ("eval", "predict"):
        if chosen[use]:
            predict(trainer, task, chosen[use], use, data_args)
    if was_trained:
        trainer.save_state()  # includes these evaluations
        runs.publish(
            trainer,
            None if model_args.n_transfer == -1 else start,  # -1 keeps no weights of the checkpoint
            "gpt1 predict {} --file ROWS.csv",
            license=model_args.license,
            language=model_args.language,
            dataset=task.name,
            dataset_tags=task.hub_path,
            dataset_args=task.hub_config,
            dataset_split=task.validation_splits[0] if len(task.validation_splits) == 1 else None,
        )
    end_processes(trainer)

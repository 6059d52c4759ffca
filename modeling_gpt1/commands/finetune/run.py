"""A run of `gpt1 finetune`: each step is a method, and what it finds is there for the steps after it."""

import json
import logging
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict, load_dataset
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.utils import is_matplotlib_available

from tokenization import Task, TraversalCollator, get_task, load_files, load_task
from tokenization.errors import UserError
from tokenization.rows.columns import PLACE
from tokenization.rows.metrics import confusion_matrix
from tokenization.rows.tasks import predictions_from_logits
from tokenization.wording import counted, listed

from ... import GPT1Trainer, GPT1TrainingArguments, prepare_finetuning
from ...families import family_of_checkpoint, family_of_config
from ...families.opening import without_reports
from ...families.probing import num_parameters
from ...inference.predictions import describe_prediction, texts_and_label
from ...storage.writing import atomic_file
from ...training.arguments import SEED_OF_SCORED_ROWS, draw_places, seed_of_data
from ...training.callbacks import readable
from ...training.launch import check_launch, end_processes
from ...training.measures import proposed_rate
from .. import runs
from ..arguments import CommandParser, parser_of
from ..confusion import MOST_CLASSES, write_confusion
from ..models import at_revision, check_model, opening
from ..rows import (
    MANY_ROWS,
    check_labels,
    check_unknown,
    describe_recall,
    some_texts,
    warn_of_majority,
    warn_of_one_class,
)
from .arguments import DataArguments, StartArguments

logger = logging.getLogger(__name__)
SPLIT_OF_USE = {"train": "train", "eval": "validation", "predict": "test"}
# Settings that a resumed run has in common with the run before.
KEPT_AT_A_RESUME = (
    "task",
    "train_file",
    "dataset_name",
    "dataset_config_name",
    "train_split",
    "validation_split",
    "max_train_samples",
    "max_length",
    "columns",
)
# Trainer's arguments that would leave no predictions to write, with the values that do.
NEEDED_FOR_PREDICTIONS = {
    "prediction_loss_only": False,
    "eval_do_concat_batches": True,
    "label_names": None,
    "batch_eval_metrics": False,
}
LORA_DROPOUT = 0.05
FAR_BELOW = 4  # times below the proposed learning rate


def main(arguments: list[str]) -> None:
    parser = parser_of("finetune")
    run = FineTuningRun(parser, *parser.read(arguments))
    run.check_settings()
    run.check_output_folder()
    run.set_up()
    run.open_config()
    run.load_data()
    run.check_metric()
    run.check_labels()
    run.choose_rows()
    run.prepare()
    run.check_rows()
    run.make_trainer()
    if run.train():
        with runs.owed_results(run.trainer):
            run.predict()
            run.publish()
    else:
        run.predict()
    end_processes(run.trainer)


class FineTuningRun:
    """The arguments of a run, and what its steps make of them.

    Args:
        parser: keeps the settings that the run writes.
        model_args: what training starts from.
        data_args: the data.
        args: Trainer's arguments.
    """

    def __init__(
        self,
        parser: CommandParser,
        model_args: StartArguments,
        data_args: DataArguments,
        args: GPT1TrainingArguments,
    ) -> None:
        self.parser = parser
        self.model_args = model_args
        self.data_args = data_args
        self.args = args
        self.checkpoint: str | None = None  # that the run resumes from
        self.lines: list[str] = []  # about the rows, logged when the run begins

    # ---- Checks before any work is done

    def check_settings(self) -> None:
        args = self.args
        if not (args.do_train or args.do_eval or args.do_predict):
            raise UserError("There is nothing to do. Pass --do_train, --do_eval or --do_predict.")
        check_launch(args)
        runs.check_reporters(args)
        for name, needed in NEEDED_FOR_PREDICTIONS.items():
            if getattr(args, name) != needed:
                raise UserError(f"--{name} leaves no predictions to write. Leave it out.")
        if self.data_args.validation_share is not None and not args.do_eval:
            split = self.data_args.validation_split
            raise UserError(
                f"--validation_split {split} holds rows out to evaluate on. Pass --do_eval, or leave it out."
            )
        if args.push_to_hub and not args.do_train:
            raise UserError("--push_to_hub uploads a model after training. Pass --do_train, or leave it out.")

    def check_output_folder(self) -> None:
        """Checks that training may write to its folder, and finds the checkpoint that it resumes from."""
        if self.args.do_train:
            kept = {name: getattr(self.data_args, name) for name in KEPT_AT_A_RESUME}
            kept["lora_r"] = self.model_args.lora_r
            kept["freeze_lm_head"] = self.model_args.freeze_lm_head
            kept["freeze"] = self.model_args.freeze
            self.checkpoint = runs.check_output_folder(self.args, self.model_args.model, kept)
        else:
            runs.check_no_results(self.args)

    def set_up(self) -> None:
        runs.set_up_logging(self.args, self.parser)
        set_seed(self.args.seed)
        files = self.data_args.files
        for use, split in SPLIT_OF_USE.items():
            if split in files and not self.is_for(use):
                logger.warning(f"--{split}_file is checked, but not used without --do_{use}.")
        if self.args.do_train and len({Path(file).resolve() for file in files.values()}) < len(files):
            logger.warning("The same file is given twice: a score on rows that a model was trained on says little.")

    def is_for(self, use: str) -> bool:
        """Whether the run trains, evaluates or predicts."""
        return getattr(self.args, f"do_{use}")

    # ---- Model and data

    def open_config(self) -> None:
        """Opens the configuration of the saved model, or makes that of a new one."""
        self.start = at_revision(self.model_args.model, self.model_args.revision)
        self.peft_config = self.make_peft_config()
        self.code = {"auto_model": self.model_args.auto_model, "trust_remote_code": self.model_args.trust_remote_code}
        check_model("--model", self.start)
        if self.start is None:
            self.config = self.model_args.make_config()
            self.family = family_of_config(self.config)
        else:
            with opening(f"--model {self.start}"):
                self.family = family_of_checkpoint(self.start, **self.code)
                self.config = self.family.open_config(self.start, self.model_args.trust_remote_code)
        if not self.args.do_train:
            self.check_head()

    def make_peft_config(self) -> Any | None:
        rank = self.model_args.lora_r
        if rank is None or not self.args.do_train:
            return None
        from peft import LoraConfig  # of an extra

        return LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=LORA_DROPOUT)

    def check_head(self) -> None:
        """Checks that a model that is not trained has the head of the task."""
        n_transfer = self.model_args.n_transfer
        if n_transfer is not None:
            raise UserError(f"--n_transfer {n_transfer} leaves layers to train. Pass --do_train as well.")
        if self.model_args.freeze is not None:
            raise UserError(f"--freeze {self.model_args.freeze} is for training. Pass --do_train, or leave it out.")
        head = self.config.traversal if self.family.has_task(self.config) else None
        needed = self.data_args.traversal or head
        if head is None or head != needed:
            has = "none" if head is None else f"one for {head}"
            raise UserError(
                f"Without --do_train the model must have a task head for {needed or 'your files'}, named in "
                f"its config.json, but {self.start or 'a new model'} has {has}. "
                "Pass --do_train, or a fine-tuned model as --model."
            )

    def load_data(self) -> None:
        """Loads the task and its splits. The main process of each machine reads first; the others use its cache."""
        with self.args.main_process_first(desc="reading the data"):
            if self.data_args.task is not None:
                self.task = get_task(self.data_args.task)
                self.splits = load_task(self.task, self.data_args.data_dir)
            else:
                self.task, self.splits = self.load_own_data()
        if self.data_args.metric_name is not None:
            self.task = replace(self.task, metrics=(self.data_args.metric_name,))

    def load_own_data(self) -> tuple[Task, DatasetDict]:
        self.data_args.take_from_model(self.config, self.args.do_train)
        files = self.data_args.files if self.data_args.dataset_name is None else self.splits_of_the_hub()
        # A model that this run does not train keeps its own classes.
        label_names = None if self.args.do_train else list(self.config.id2label.values())
        return load_files(
            files,
            self.data_args.traversal,
            self.data_args.column_of_role,
            label_names=label_names,
            regression=self.data_args.regression,
            num_labels=self.data_args.num_labels,
            delimiter=self.data_args.delimiter,
            skip_bad_rows=self.data_args.skip_bad_rows,
            validation_split=self.data_args.validation_share,
            seed=seed_of_data(self.args),
        )

    def splits_of_the_hub(self) -> dict[str, Dataset]:
        name = self.data_args.dataset_name
        with opening(f"--dataset_name {name}"):
            found = load_dataset(name, self.data_args.dataset_config_name)
        names = {
            "train": self.data_args.train_split,
            "validation": self.data_args.validation_split,
            "test": self.data_args.test_split,
        }
        if self.data_args.validation_share is not None:
            del names["validation"]
        return {split: found[name] for split, name in names.items() if name in found}

    def check_metric(self) -> None:
        """Checks the score that chooses the best checkpoint."""
        splits = self.task.validation_splits
        prefixes = [f"{split}_" for split in splits] if len(splits) > 1 else [""]
        scores = ("loss", *self.task.metrics, "task_loss", "lm_loss", "lm_perplexity")
        runs.check_metric(self.args, [f"{prefix}{score}" for prefix in prefixes for score in scores])

    def check_labels(self) -> None:
        """Checks that a model that is not trained gives as many labels as the rows have."""
        if not self.args.do_train:
            self.task = check_labels(self.task, self.splits, self.config)

    def choose_rows(self) -> None:
        """Chooses the rows to train on, to evaluate and to predict, by the names of their splits."""
        limits = {
            "train": self.data_args.max_train_samples,
            "eval": self.data_args.max_eval_samples,
            "predict": self.data_args.max_predict_samples,
        }
        self.places: dict[str, dict[str, np.ndarray]] = {}  # indices of the chosen rows, by use and split
        for use, limit in limits.items():
            names = self.splits_for(use)
            seed = seed_of_data(self.args) if use == "train" else SEED_OF_SCORED_ROWS
            self.places[use] = {name: draw_places(len(self.splits[name]), limit, seed) for name in names}

    def splits_for(self, use: str) -> list[str]:
        """The splits that the data has for a use; none if the run is not for it."""
        if not self.is_for(use):
            return []
        of_task = {
            "train": (self.task.train_split,),
            "eval": self.task.validation_splits,
            "predict": self.task.test_splits,
        }
        names = [name for name in of_task[use] if name in self.splits]
        if not names:
            is_by_strategy = use == "eval" and self.args.eval_strategy != "no"
            flag = f"--do_{use}"
            if is_by_strategy:
                flag = "--eval_strategy" if self.args.early_stopping_patience is None else "--early_stopping_patience"
            split = SPLIT_OF_USE[use]
            if self.data_args.task:
                remedy = "Add its file to --data_dir"
            else:
                remedy = f"Pass --{split}_file (or --{split}_split of a --dataset_name)"
                if split == "validation" and "train" in self.splits:
                    remedy += ", or --validation_split 0.2 to hold out a fifth of the training rows"
            raise UserError(
                f"{flag} needs {split} rows, but the data has only {', '.join(self.splits)}. {remedy}, or leave "
                f"{flag} out."
            )
        return names

    def prepare(self) -> None:
        """Opens or makes the model, its tokenizer and its collator, and selects the chosen rows."""
        # The weights of a checkpoint take the place of those that are new.
        with nullcontext() if self.checkpoint is None else without_reports():
            self.parts = prepare_finetuning(
                self.config if self.start is None else self.start,
                self.task,
                self.open_tokenizer(),
                lm_coef=self.args.lm_coef,
                freeze_lm_head=self.model_args.freeze_lm_head and self.args.do_train,
                max_length=self.data_args.max_length,
                pad_to_multiple_of=self.data_args.pad_to_multiple_of,
                n_transfer=self.model_args.n_transfer,
                freeze=self.model_args.freeze,
                ignore_mismatched_sizes=self.model_args.ignore_mismatched_sizes and self.args.do_train,
                peft_config=self.peft_config,
                both_orders=self.reads_both_orders(),
                **self.code,
            )
        self.limit_length(self.parts["processing_class"], self.parts["data_collator"])
        for name, rows in self.splits.items():
            if PLACE not in rows.column_names:
                self.splits[name] = rows.add_column(PLACE, list(range(len(rows))))
        self.chosen = {
            use: {name: self.splits[name].select(places) for name, places in of_use.items()}
            for use, of_use in self.places.items()
        }

    def open_tokenizer(self) -> PreTrainedTokenizerBase:
        place = self.model_args.tokenizer_name or self.start
        with opening(f"The tokenizer of {place}"):
            return self.family.open_tokenizer(place, self.model_args.trust_remote_code)

    def reads_both_orders(self) -> bool:
        was_trained_so = not self.args.do_train and self.family.reads_both_orders(self.config)
        return self.data_args.both_orders or was_trained_so

    def limit_length(self, tokenizer, collator: TraversalCollator) -> None:
        """Lets the saved tokenizer know the length of training, and a model that is not trained keep its own."""
        if self.args.do_train:
            tokenizer.model_max_length = collator.max_length
            self.note_length(collator.max_length)
        elif self.data_args.max_length is None:
            collator.max_length = min(collator.max_length, tokenizer.model_max_length)

    def note_length(self, max_length: int) -> None:
        """Adds a line about a length that was given, and keeps how many positions of a new model are trained."""
        if self.data_args.max_length is None:
            return
        self.lines.append(f"length: texts are cut to {counted(max_length, 'token')}, also by `gpt1 predict`")
        config = self.parts["model"].config
        if self.start is None and self.family.has_positions and max_length < config.max_position_embeddings:
            config.trained_positions = max_length

    # ---- Rows

    def check_rows(self) -> None:
        """Reads every row once, so that a bad row stops the run at the start. Adds a line about each split."""
        if self.args.process_index != 0:
            return
        for use, splits in self.chosen.items():
            for name, rows in splits.items():
                self.lines.append(self.check_split(use, rows, self.data_args.source_of(name)))

    def check_split(self, use: str, rows: Dataset, source: str) -> str:
        """Checks the rows of a split. Returns a line about them: classes, cut texts, unknown tokens."""
        collator = self.parts["data_collator"]
        try:
            num_rows, num_cut = collator.check(rows, source, needs_labels=use != "predict")
        except UserError as error:
            if use != "predict":
                raise
            raise UserError(f"{error} `gpt1 predict` marks such rows and predicts the others.") from error
        is_allowed = self.model_args.allow_unknown_text or use == "predict"
        share = check_unknown(collator.tokenizer, some_texts(rows, self.task), source, is_allowed)
        counts = Counter() if use == "predict" else count_classes(rows, self.task)
        if use == "train":
            self.warn_of_classes(counts, num_rows, source)
        line = f"{use}: {counted(num_rows, 'row')} of {source}"
        if counts:
            # Of an evaluation, classes without a row say nothing.
            line += f" ({listed(describe_classes(counts, self.task, with_empty=use == 'train'))})"
        if num_cut:
            line += f", {num_cut:,} cut to {counted(collator.max_length, 'token')}"
        return f"{line}, {share:.1%} of the tokens unknown"

    def warn_of_classes(self, counts: Counter, num_rows: int, source: str) -> None:
        """Warns of labels that look mistaken: nearly as many classes as rows, or classes of a single row."""
        if len(counts) > max(MANY_ROWS, counts.total() / 2):
            label = self.task.columns["label"]
            logger.warning(f"Column {label!r} has {len(counts):,} classes in {num_rows:,} rows: is it the label?")
        elif not self.data_args.max_train_samples:  # a draw may leave few rows of a class
            once = [name for index, name in enumerate(self.task.label_names) if counts[index] == 1]
            if once:
                has = f"has each of these classes: {listed(once)}"
                logger.warning(f"A single row of {source} {has}. Is one mistyped?")

    # ---- Training and results

    def make_trainer(self) -> None:
        evaluated = self.chosen["eval"]
        # The metrics are named `eval_…` for one split and `eval_<split>_…` for several.
        eval_dataset = evaluated if len(evaluated) > 1 else next(iter(evaluated.values()), None)
        self.trainer = GPT1Trainer(
            args=self.args,
            train_dataset=self.chosen["train"].get(self.task.train_split),
            eval_dataset=eval_dataset,
            **self.parts,
        )
        runs.use_readable_log(self.trainer, self.sources_of(evaluated))
        self.propose_rate()

    def propose_rate(self) -> None:
        """Warns of a learning rate that is far below what small models of GPT-1 were trained with."""
        is_measured = self.family.name == "gpt1" and self.peft_config is None
        is_new_run = self.args.do_train and self.checkpoint is None
        if not is_measured or not is_new_run or not self.args.should_log:
            return
        num_in_layers = num_parameters(self.trainer.model, exclude_embeddings=True)
        proposed = proposed_rate(num_in_layers)
        if self.args.learning_rate <= proposed / FAR_BELOW:
            logger.warning(
                f"The learning rate is {self.args.learning_rate:.3g}, at which a model of this size learns little: it "
                f"has {num_in_layers:,} parameters beside its embeddings. Runs of such models used about "
                f"{proposed:.1g}: pass --learning_rate {proposed:.1g}. The default is the paper's, for 85 M."
            )

    def sources_of(self, splits: dict[str, Dataset]) -> str:
        return " and ".join(self.data_args.source_of(name) for name in splits)

    def train(self) -> bool:
        """Trains or resumes, if the run is for it. Returns whether the run's results are still to be written."""
        if self.args.do_train:
            return runs.train(self.trainer, self.start, self.lines, self.checkpoint, self.parser)
        for line in (runs.describe_start(self.trainer, self.start), *self.lines):
            logger.info(line)
        return False

    def predict(self) -> None:
        """Evaluates and predicts, with a file of predictions for each split."""
        for use in ("eval", "predict"):
            if self.chosen[use]:
                self.predict_splits(use, self.chosen[use])

    def predict_splits(self, use: str, splits: dict[str, Dataset]) -> None:
        """Writes the predictions of each split, one line per row, and the metrics of all.

        A split in which a label is missing has no metrics.
        """
        metrics: dict[str, float] = {}
        for name, rows in splits.items():
            suffix = "" if len(splits) == 1 else f"_{name}"
            output = self.trainer.predict(self.without_missing_labels(rows), metric_key_prefix=f"{use}{suffix}")
            metrics.update(output.metrics)
            if self.trainer.is_world_process_zero():
                beginning = "eval_predictions" if use == "eval" else "predictions"
                path = Path(self.args.output_dir, f"{beginning}{suffix}.jsonl")
                source = self.data_args.source_of(name)
                self.write_predictions(path, output.predictions, rows, source, with_texts=use == "eval")
                if output.label_ids is not None and not self.task.regression:
                    predictions = predictions_from_logits(self.task, output.predictions)
                    if not self.task.multi_label:
                        warn_of_majority(predictions, output.label_ids, self.task, source)
                    if self.task.label_names:
                        picture = Path(self.args.output_dir, f"confusion_matrix{suffix}.png")
                        self.report_mistakes(predictions, output.label_ids, source, picture if use == "eval" else None)
        if use == "eval":
            self.trainer.log(metrics)  # as `evaluate` does; the card reads the log
        else:
            figures = readable(metrics)
            if figures:
                logger.info(f"{self.sources_of(splits)} · {figures}")
        self.trainer.save_metrics(use, metrics)

    def without_missing_labels(self, rows: Dataset) -> Dataset:
        """The rows, without their column of labels if some rows have none."""
        label = self.task.columns["label"]
        if label not in rows.column_names:
            return rows
        is_complete = all(map(self.trainer.data_collator.is_labelled, rows.select_columns(label)))
        return rows if is_complete else rows.remove_columns(label)

    def write_predictions(
        self, path: Path, predictions: np.ndarray, rows: Dataset, source: str, with_texts: bool
    ) -> None:
        """Writes a line per row. `index` is the row's place in the file, also behind rows that were skipped.

        Texts and labels are for those who look for mistakes.
        """
        found = [describe_prediction(logits.double(), self.task) for logits in torch.from_numpy(predictions)]
        warn_of_one_class(Counter(str(of_row["label"]) for of_row in found if "label" in of_row), source)
        with atomic_file(path) as file:
            for row, of_row in zip(rows, found, strict=True):
                record = {"index": row[PLACE]}
                if with_texts:
                    record |= texts_and_label(row, self.task)
                file.write(json.dumps({**record, **of_row}, ensure_ascii=False, default=str) + "\n")
        logger.info(f"predictions of {counted(len(rows), 'row')} of {source}: {path}")

    def report_mistakes(self, predictions: np.ndarray, labels: np.ndarray, source: str, picture: Path | None) -> None:
        """Logs the recall of each class, and draws the confusion matrix where matplotlib is installed."""
        logger.info(f"{source} · {describe_recall(predictions, labels, self.task)}")
        names = self.task.label_names
        is_wanted = picture is not None and not self.task.multi_label and len(names) <= MOST_CLASSES
        if is_wanted and is_matplotlib_available():
            write_confusion(picture, confusion_matrix(predictions, labels, len(names)), names)
            logger.info(f"confusion matrix of {source}: {picture}")

    def publish(self) -> None:
        self.trainer.save_state()  # includes these evaluations
        splits = self.task.validation_splits
        runs.publish(
            self.trainer,
            None if self.model_args.n_transfer == -1 else self.start,  # -1 keeps no weights of the checkpoint
            "gpt1 predict {} --file ROWS.csv",
            license=self.model_args.license,
            language=self.model_args.language,
            dataset=self.task.name,
            dataset_tags=self.task.hub_path,
            dataset_args=self.task.hub_config,
            dataset_split=splits[0] if len(splits) == 1 else None,
        )


def count_classes(rows: Dataset, task: Task) -> Counter:
    """The number of rows of each class, by its index; of a regression, none."""
    counts: Counter = Counter()
    if task.regression:
        return counts
    for label in rows[task.columns["label"]]:
        counts.update(np.flatnonzero(label) if task.multi_label else [label])
    return counts


def describe_classes(counts: Counter, task: Task, with_empty: bool) -> list[str]:
    """The name of each class with its number of rows; classes without a row only if that is wanted."""
    names = task.label_names or range(max(counts) + 1)
    return [f"{name} {counts[index]:,}" for index, name in enumerate(names) if with_empty or index in counts]

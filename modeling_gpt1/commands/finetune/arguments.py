"""The arguments of `gpt1 finetune`: what training starts from, and the data."""

import csv
import re
from dataclasses import dataclass

from transformers import PreTrainedConfig
from transformers.hf_argparser import HfArg

from tokenization import TASKS, get_task
from tokenization.errors import UserError
from tokenization.rows.held_out import check_share
from tokenization.rows.traversals import TRAVERSALS

from ... import GPT1TrainingArguments
from ...configuration_gpt1 import is_regression
from ...training.freezing import read_freezing
from ..starts import ModelArguments

# What is read of a data set of the hub alone.
OF_DATA_SET = {"dataset_config_name": None, "train_split": "train", "test_split": "test"}  # with their defaults
# What a task of the paper brings itself.
OF_OWN_DATA = ("dataset_name", "traversal", "columns", "num_labels", "delimiter", "skip_bad_rows", "regression")


@dataclass
class StartArguments(ModelArguments):
    """What training starts from."""

    revision: str | None = HfArg(default=None, help="Branch of the model on the hub, or a checkpoint in its folder.")
    auto_model: bool = HfArg(default=False, help="Open openai-gpt and GPT-2 with transformers' own classifiers.")
    trust_remote_code: bool = HfArg(default=False, help="Run the code that a model of another family brings.")
    n_transfer: int | None = HfArg(
        default=None, help="Layers to keep of the model; 0: only its embeddings; -1: nothing. Default: all."
    )
    freeze: str | None = HfArg(
        default=None,
        help="Weights to leave as they are: embeddings; a number, for these and as many first layers; or base, for "
        "everything but the head. Default: train all.",
    )
    ignore_mismatched_sizes: bool = HfArg(default=False, help="Start a new task head, such as for other classes.")
    freeze_lm_head: bool = HfArg(
        default=False, help="Do not train another family's output matrix, which --lm_coef needs."
    )
    lora_r: int | None = HfArg(default=None, help="Rank of a LoRA adapter to train. Default: train all weights.")

    def __post_init__(self):
        if self.model is None and self.tokenizer_name is None:
            raise UserError(
                "No --model was given. Pass one, or pass --tokenizer_name (and --config_overrides) to train a new "
                "model."
            )
        if self.model is None and self.n_transfer is not None:
            raise UserError(
                f"--n_transfer {self.n_transfer} keeps layers of a --model, but none was given. Pass one, or leave "
                "--n_transfer out."
            )
        if self.freeze is not None:
            read_freezing(self.freeze)  # refuses other words
        super().__post_init__()


@dataclass
class DataArguments:
    """What to train, evaluate and predict on: a task of the paper, or the user's own data."""

    task: str | None = HfArg(default=None, help=f"Task of the paper: {', '.join(TASKS)}.")
    data_dir: str | None = HfArg(default=None, help="Folder of --task with one file per split. Default: download.")
    train_file: str | None = HfArg(default=None, help="Your file of rows to train on.")
    validation_file: str | None = HfArg(default=None, help="Your file of rows to evaluate on.")
    test_file: str | None = HfArg(default=None, help="Your file of rows to predict.")
    dataset_name: str | None = HfArg(default=None, help="Data set of the hub or its folder, in place of files.")
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of --dataset_name.")
    train_split: str = HfArg(default="train", help="Split of --dataset_name to train on.")
    validation_split: str = HfArg(
        default="validation", help="Share of the training rows to evaluate on, such as 0.2, or a split's name."
    )
    test_split: str = HfArg(default="test", help="Split of --dataset_name to predict.")
    traversal: str | None = HfArg(
        default=None,
        help="Input format of your files: classification (one text), entailment, similarity or multiple_choice.",
        metadata={"choices": TRAVERSALS},
    )
    columns: list[str] = HfArg(
        default_factory=list, help="Which column of your files is what, such as text=Message label=Category."
    )
    num_labels: int | None = HfArg(default=None, help="Number of classes. Default: that of the labels in your files.")
    delimiter: str | None = HfArg(default=None, help="Delimiter of .csv files. Default: detect it.")
    skip_bad_rows: bool = HfArg(default=False, help="Skip rows without a text or with a wrong label.")
    regression: bool = HfArg(default=False, help="Predict numbers: the labels are not classes.")
    metric_name: str | None = HfArg(
        default=None, help="Metric, of scikit-learn or evaluate, such as f1_macro. Default: the task's."
    )
    max_length: int | None = HfArg(
        default=None, help="Longest sequence, in tokens; cut beyond. Default: the model's number of positions."
    )
    both_orders: bool = HfArg(
        default=False, help="Let another family read pairs of similarity in both orders, as GPT-1 always does."
    )
    pad_to_multiple_of: int | None = HfArg(default=None, help="Pad batches to a multiple of this length, such as 8.")
    max_train_samples: int | None = HfArg(default=None, help="Rows to train on, drawn with the seed. Default: all.")
    max_eval_samples: int | None = HfArg(default=None, help="Rows of each split to evaluate on. Default: all.")
    max_predict_samples: int | None = HfArg(default=None, help="Rows of each split to predict. Default: all.")

    def __post_init__(self):
        files = {"train": self.train_file, "validation": self.validation_file, "test": self.test_file}
        self.files = {split: file for split, file in files.items() if file is not None}
        self.validation_share = as_share(self.validation_split)
        if self.task is not None:
            self.traversal = self.traversal_of_task()
        else:
            self.check_source()
        self.check_data_set()
        self.check_validation()
        self.column_of_role = parse_columns(self.columns)

    def traversal_of_task(self) -> str:
        task = get_task(self.task)
        own = [f"{split}_file" for split in self.files] + [name for name in OF_OWN_DATA if getattr(self, name)]
        if own:
            raise UserError(
                f"--task {self.task} brings its own data and columns, but --{own[0]} was given too. Leave out "
                f"--task to use your own files, or --{own[0]} to use the task."
            )
        return task.traversal

    def check_source(self) -> None:
        """Checks that there is one source of own data."""
        has_files, has_data_set = bool(self.files), self.dataset_name is not None
        if has_files != has_data_set and self.data_dir is None:
            return
        if has_files and has_data_set:
            first = next(iter(self.files))
            raise UserError(f"--{first}_file and --dataset_name were both given. Leave one of them out.")
        if has_files or has_data_set:
            raise UserError(
                "--data_dir is for a --task, and none was given. Pass --task, or leave --data_dir out to use your own "
                "data."
            )
        raise UserError(
            "No data was given. Pass --task with a task of the paper; or, with --traversal and --columns, your own "
            "data as --train_file, --validation_file or --test_file, or as --dataset_name."
        )

    def check_data_set(self) -> None:
        """Refuses flags of a data set of the hub where the rows come from elsewhere."""
        if self.dataset_name is not None:
            return
        for name, default in OF_DATA_SET.items():
            if getattr(self, name) not in (default, ""):  # an empty text leaves a flag of a file out
                raise UserError(
                    f"--{name} {getattr(self, name)} is for --dataset_name, which was not given. Leave it out."
                )

    def check_validation(self) -> None:
        """Checks that the rows to evaluate on have one source."""
        given = f"--validation_split {self.validation_split}"
        if self.validation_share is None:
            if self.validation_split != "validation" and self.dataset_name is None:
                raise UserError(
                    f"{given} names a split of --dataset_name, which was not given. Pass the share of the training "
                    "rows to hold out, such as 0.2, or --validation_file."
                )
            return
        check_share(self.validation_share)
        if self.task is not None:
            raise UserError(f"--task {self.task} brings its own rows to evaluate on. Leave {given} out.")
        if self.validation_file is not None:
            raise UserError(f"{given} and --validation_file were both given. Leave one of them out.")
        if self.train_file is None and self.dataset_name is None:
            raise UserError(f"{given} holds out rows of --train_file. Pass it, or leave --validation_split out.")

    def source_of(self, split: str) -> str:
        """The file of a split, or its name."""
        if split == "validation" and self.validation_share is not None:
            split = "train"
        return self.files.get(split, f"split {split!r}")

    def take_from_model(self, config: PreTrainedConfig, is_training: bool) -> None:
        """Sets what the arguments leave out about the user's own data by a fine-tuned model: traversal and columns.

        A model of the same traversal that is not trained also decides whether numbers are predicted.
        """
        self.traversal = self.traversal or config.traversal
        if self.traversal == config.traversal:
            self.column_of_role = {**(config.columns or {}), **self.column_of_role}
            if not is_training and is_regression(config):
                self.regression = True
        if self.traversal is None or not self.column_of_role:
            missing = "columns" if self.traversal else "traversal"
            raise UserError(
                f"--{missing} is missing. Your own data needs --traversal, one of {', '.join(TRAVERSALS)}, and a "
                "column for each role, such as --columns text=review label=stars."
            )


def as_share(validation_split: str) -> float | None:
    """The share of the training rows to hold out; `None`: the text is the name of a split."""
    try:
        return float(validation_split)
    except ValueError:
        return None


def parse_columns(pairs: list[str]) -> dict[str, str | list[str]]:
    """Maps each role to one or several column names: `['choices=a,"b,c"']` becomes `{"choices": ["a", "b,c"]}`."""
    columns: dict[str, str | list[str]] = {}
    for pair in pairs:
        role, _, names = pair.partition("=")
        if role in columns:
            raise UserError(
                f"--columns has the role {role!r} twice. Write all its columns in one: {role}=column,column."
            )
        if not role or not names:
            raise UserError(f"--columns has {pair!r}, but needs role=column, or role=column,column.")
        if re.search(r"[,\s]\w+=", names):
            raise UserError(
                f"--columns has {pair!r} as one pair. Separate pairs by a space: --columns text=a label=b."
            )
        parts = next(csv.reader([names]))
        columns[role] = parts if len(parts) > 1 else parts[0]
    return columns


ARGUMENTS = (StartArguments, DataArguments, GPT1TrainingArguments)
BASICS = {
    "what to do": ("do_train", "do_eval", "do_predict", "output_dir", "config"),
    "data": (
        "task",
        "data_dir",
        "train_file",
        "validation_file",
        "test_file",
        "validation_split",
        "traversal",
        "columns",
        "regression",
        "max_length",
        "max_train_samples",
        "max_eval_samples",
    ),
    "model": ("model", "tokenizer_name", "family", "config_overrides"),
    "training": (
        "num_train_epochs",
        "max_steps",
        "learning_rate",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "lm_coef",
        "seed",
        "bf16",
        "use_cpu",
    ),
    "log, evaluation, checkpoints": (
        "logging_steps",
        "eval_strategy",
        "save_strategy",
        "resume_from_checkpoint",
        "report_to",
        "push_to_hub",
    ),
}

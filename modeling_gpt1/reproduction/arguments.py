"""Arguments of the experiments: which to run, with which models, tasks and seeds."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from transformers.hf_argparser import HfArg

from tokenization import get_task
from tokenization.errors import UserError

from ..inference.heuristics import get_heuristic

EXPERIMENTS = ("fine_tuning", "ablations", "layer_transfer", "baselines", "zero_shot")
# Columns of table 5, and the flags that `gpt1 finetune` gets for each.
VARIANTS: dict[str, list[str]] = {
    "full": [],
    "without_auxiliary": ["--lm_coef", "0"],
    "without_pretraining": ["--n_transfer", "-1"],
    "lstm": [],
}
TRANSFER = "transfer-"  # a variant of figure 2: behind it stands the number of layers that are transferred
PAPER_TASKS = ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "snli", "scitail", "story_cloze", "race"]
PRETRAIN = "pretrain"  # as a model: it is pre-trained here
REHEARSAL = "rehearsal"  # its folder in the output folder
REHEARSED_ROWS = 16  # that it evaluates
REHEARSED_BASELINE_ROWS = 1000  # that a linear model is fitted to: all rows of a large task take an hour
# The flags whose words are those of another command, with the flags that every cell sets itself.
OF_PRETRAIN = ("family", "output_dir", "resume_from_checkpoint", "push_to_hub", "config")
OF_FINETUNE = (
    "task",
    "model",
    "tokenizer_name",
    "data_dir",
    "output_dir",
    "seed",
    "n_transfer",
    "resume_from_checkpoint",
    "push_to_hub",
    "do_train",
    "do_eval",
    "do_predict",
    "logging_strategy",
    "logging_steps",
    "logging_first_step",
    "config",
)
PASSED_ON = {
    "--finetune_arguments": OF_FINETUNE,
    "--lstm_finetune_arguments": OF_FINETUNE,
    "--pretrain_arguments": OF_PRETRAIN,
    "--lstm_pretrain_arguments": OF_PRETRAIN,
}
# Flags that choose where a cell runs and what it logs, not what it gives: another device or logger repeats no cell.
NEUTRAL_FLAGS = (
    "use_cpu",
    "report_to",
    "run_name",
    "disable_tqdm",
    "log_level",
    "logging_steps",
    "logging_strategy",
    "logging_first_step",
    "dataloader_num_workers",
    "dataloader_pin_memory",
)


def layers_of(variant: str) -> int | None:
    """The number k of a variant `transfer-<k>`, which keeps the checkpoint's first k layers; None of any other."""
    return int(variant.removeprefix(TRANSFER)) if variant.startswith(TRANSFER) else None


@dataclass
class ReproduceArguments:
    """Which experiments to run with which models and data."""

    output_dir: str = HfArg(help="Folder for cells, logs and the report; finished cells in it are kept.")
    experiments: list[str] = HfArg(
        default_factory=lambda: list(EXPERIMENTS),
        help="Experiments to run. Default: all.",
        metadata={"choices": EXPERIMENTS},
    )
    model: str | None = HfArg(default=None, help=f"The Transformer: folder, hub id, or '{PRETRAIN}' to train it here.")
    lstm_model: str | None = HfArg(
        default=None, help=f"The LSTM of the variant lstm: folder, hub id, or '{PRETRAIN}' to train it here."
    )
    checkpoints: str | None = HfArg(
        default=None, help="Output folder of the Transformer's pre-training, for zero_shot."
    )
    lstm_checkpoints: str | None = HfArg(default=None, help="Output folder of the LSTM's pre-training, for zero_shot.")
    data_dir: str | None = HfArg(default=None, help="Folder with a folder per task. Default: the hub's data sets.")
    tasks: list[str] = HfArg(default_factory=PAPER_TASKS.copy, help="Tasks of fine_tuning, ablations and baselines.")
    variants: list[str] | None = HfArg(
        default=None,
        help="Variants of ablations. Default: all, lstm only with --lstm_model.",
        metadata={"choices": tuple(VARIANTS)},
    )
    transfer_tasks: list[str] = HfArg(default_factory=lambda: ["mnli", "race"], help="Tasks of layer_transfer.")
    transfer_layers: list[int] | None = HfArg(
        default=None, help="Numbers of transferred layers: -1 is nothing, 0 the embeddings."
    )
    seeds: list[int] = HfArg(default_factory=lambda: [1, 2, 3], help="Seeds of the fine-tuning runs.")
    zero_shot_tasks: list[str] = HfArg(
        default_factory=lambda: ["cola", "sst2", "race", "story_cloze", "dpr"], help="Tasks of zero_shot."
    )
    zero_shot_max_eval_samples: int | None = HfArg(
        default=None, help="Rows per task that zero_shot scores. Default: all."
    )
    zero_shot_max_train_samples: int | None = HfArg(
        default=None, help="Training rows for CoLA's threshold in zero_shot. Default: all."
    )
    tune: bool = HfArg(
        default=False,
        help="Choose learning rate and warm-up of each task and variant on a part of the training rows, then run the "
        "seeds with them. Default: the settings given after --finetune_arguments.",
    )
    tune_learning_rates: list[float] = HfArg(
        default_factory=lambda: [1e-4, 3e-4, 1e-3, 3e-3], help="Learning rates that --tune tries."
    )
    tune_warmups: list[float] = HfArg(
        default_factory=lambda: [0.002, 0.1], help="Warm-ups that --tune tries: updates, or below 1 a share of all."
    )
    tune_lm_coefs: list[float] = HfArg(
        default_factory=lambda: [0.0, 0.5], help="Values of λ that --tune tries where layers start fresh."
    )
    jobs: int = HfArg(default=1, help="Cells that run at once on the device.")
    title: str = HfArg(default="The paper's experiments", help="Heading of the report.")
    rehearse: int | None = HfArg(
        default=None, help="Number of updates of a trial run of one seed, which tells time and memory."
    )
    only_report: bool = HfArg(default=False, help="Write the report of what is finished; run nothing.")
    finetune_arguments: list[str] = HfArg(default_factory=list, help="At the end: flags of `gpt1 finetune`.")
    lstm_finetune_arguments: list[str] = HfArg(
        default_factory=list, help="At the end: flags of `gpt1 finetune` that override those for the LSTM."
    )
    pretrain_arguments: list[str] = HfArg(default_factory=list, help="At the end: flags of `gpt1 pretrain`.")
    lstm_pretrain_arguments: list[str] = HfArg(
        default_factory=list, help="At the end: flags of `gpt1 pretrain` that override those for the LSTM."
    )

    def __post_init__(self):
        for flag in ("tasks", "transfer_tasks"):
            setattr(self, flag, [get_task(name).name for name in getattr(self, flag)])
        self.zero_shot_tasks = [get_heuristic(name).task.name for name in self.zero_shot_tasks]
        for flag in ("tune_learning_rates", "tune_warmups"):
            check_given_once(flag, getattr(self, flag))
        for flag in ("tune_learning_rates", "tune_warmups", "tune_lm_coefs"):
            if not self.tune and getattr(self, flag) != type(self).__dataclass_fields__[flag].default_factory():
                raise UserError(f"--{flag} was given, but nothing is tuned. Pass --tune true, too, or leave it out.")
        for words in (self.finetune_arguments, self.lstm_finetune_arguments):
            if "class_weights" in as_settings(words):
                raise UserError(
                    "--class_weights was given to the runs. Their loss would be weighted, that of the class "
                    "frequencies is not, so it could not be told which runs failed to train. Leave it out."
                )
            if "metric_name" in as_settings(words):
                raise UserError(
                    "--metric_name was given to the runs. The report and the choice of settings read each task's own "
                    "score, as the paper does. Leave it out."
                )
        if self.variants is None:
            self.variants = [name for name in VARIANTS if name != "lstm" or self.lstm_model is not None]
        if "lstm" in self.variants and self.lstm_model is None:
            raise UserError(
                "The variant lstm needs a model. Pass one as --lstm_model, or leave lstm out of --variants."
            )
        if self.experiments == ["zero_shot"]:
            if not (PRETRAIN in (self.model, self.lstm_model) or self.checkpoints or self.lstm_checkpoints):
                raise UserError(
                    "--experiments zero_shot evaluates the checkpoints of a pre-training. Pass its output folder as "
                    "--checkpoints."
                )
        elif self.model is None:
            raise UserError("No model was given. Pass a pre-trained Transformer as --model: a folder or a hub id.")


def check_given_once(flag: str, values: list) -> None:
    """Refuses a value that is given twice: conditions of several λ would then have more trials than others."""
    for value, times in Counter(values).items():
        if times > 1:
            raise UserError(f"--{flag} has {value} twice. Write each value once.")


def rehearsal_of(arguments: ReproduceArguments) -> ReproduceArguments:
    """The same cells for the first seed, cut to a few updates and rows, in a folder of their own."""
    short = ["--max_steps", str(arguments.rehearse), "--skip_memory_metrics", "false"]
    rows = str(REHEARSED_ROWS)
    few_rows = ["--max_eval_samples", rows, "--max_predict_samples", rows]
    one_evaluation = ["--eval_strategy", "no", "--load_best_model_at_end", "false", "--max_eval_blocks", rows]
    one_evaluation.append("--max_words=")
    cut = {}
    for flag in PASSED_ON:  # the last of two flags counts
        name = flag.removeprefix("--")
        cut[name] = [*getattr(arguments, name), *short, *(one_evaluation if PRETRAIN in name else few_rows)]
    return replace(
        arguments,
        output_dir=str(Path(arguments.output_dir, REHEARSAL)),
        title=f"Rehearsal: {arguments.title}",
        seeds=arguments.seeds[:1],
        zero_shot_max_eval_samples=REHEARSED_ROWS,
        zero_shot_max_train_samples=REHEARSED_ROWS,
        **cut,
    )


def behind(words: list[str], own: list[str]) -> list[str]:
    """The words of a command without the flags that stand among its `own`, and these: some are refused twice."""
    kept, replaced, is_kept = [], as_settings(own), True
    for word in words:
        if word.startswith("--"):
            is_kept = word.removeprefix("--").partition("=")[0].replace("-", "_") not in replaced
        if is_kept:
            kept.append(word)
    return kept + own


def as_settings(
    command_line: list[str], refused: Iterable[str] = (), source: str = ""
) -> dict[str, str | bool | list[str]]:
    """Turns `["--learning_rate", "5e-4", "--bf16"]` into `{"learning_rate": "5e-4", "bf16": True}`.

    Settings that do not decide a cell's result are left out. Refused flags raise an error that names the `source`, the
    flag that they stand behind.
    """
    values: dict[str, list[str]] = {}
    name = None
    for word in command_line:
        if word.startswith("--"):
            name, has_value, value = word.removeprefix("--").partition("=")
            name = name.replace("-", "_")  # both spellings are accepted
            values[name] = [value] if has_value else []
        elif name is None:
            raise UserError(f"{source} begins with {word!r}. Begin with an argument such as --learning_rate.")
        else:
            values[name].append(word)
    for name in values:
        if name in refused:
            raise UserError(
                f"{source} has --{name}, which `gpt1 reproduce` sets for each cell. Leave it out; `gpt1 "
                "reproduce --help` explains how tasks, models, data and seeds are chosen."
            )
    return {name: as_value(words) for name, words in values.items() if name not in NEUTRAL_FLAGS}


def as_value(words: list[str]) -> str | bool | list[str]:
    """The words behind a flag as one value; a flag alone is True."""
    if not words:
        return True
    return words[0] if len(words) == 1 else words

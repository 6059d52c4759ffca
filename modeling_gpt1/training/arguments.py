"""Arguments of both trainers, with the hyper-parameters of the paper as defaults.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import TrainingArguments
from transformers.hf_argparser import HfArg

from tokenization.errors import UserError

from ..inference.devices import default_device

# Last words of the names of scores: those of which less is better, and those of which more is.
COSTS = frozenset(
    ("loss", "perplexity", "error", "deviance", "distance")
    + ("mse", "rmse", "msle", "rmsle", "mae", "mape", "smape", "mase", "wer", "cer", "ter")
)
MERITS = frozenset(
    ("score", "accuracy", "f1", "precision", "recall", "auc", "r2", "mcc", "kappa", "jaccard", "corrcoef")
    + ("correlation", "pearson", "pearsonr", "spearman", "spearmanr", "kendalltau", "variance", "measure")
    + ("bleu", "sacrebleu", "rouge", "rouge1", "rouge2", "rougel", "rougelsum", "meteor", "map", "mrr", "ndcg")
)
AVERAGES = ("_macro", "_micro", "_weighted", "_samples", "_ovr", "_ovo")  # endings of scikit-learn


@dataclass
class _SharedArguments(TrainingArguments):
    """Arguments that both trainers add or change."""

    output_dir: str = HfArg(default="trainer_output", help="Folder of the run. Default: trainer_output.")
    weight_decay: float = HfArg(default=0.01, help="Decoupled weight decay of matrices.")
    max_grad_norm: float = HfArg(default=1.0, help="Norm that gradients are clipped to.")
    ddp_find_unused_parameters: bool | None = HfArg(
        default=False, help="Let DDP look for parameters without a gradient."
    )
    # Trainer writes this into the model's configuration, so its own default would disable the cache in `generate`.
    use_cache: bool = HfArg(default=True, help="Let the saved model generate with a key-value cache.")
    # With the filter, Trainer replaces a loss that is not finite in its log by that of earlier updates, or by 0.
    logging_nan_inf_filter: bool = HfArg(default=False, help="Log earlier losses where one is not finite.")
    hub_strategy: str = HfArg(default="end", help="When to upload; only end, because checkpoints hold pickles.")
    pack_sequences: bool = HfArg(default=True, help="Skip padding, and compute a shared context once.")
    early_stopping_patience: int | None = HfArg(
        default=None, help="Stop after so many evaluations without a better score; keep the best weights."
    )

    def __post_init__(self):
        if self.early_stopping_patience is not None:
            self._evaluate_and_keep_the_best()
        if self.greater_is_better is None and self.metric_for_best_model is not None:
            self.greater_is_better = direction_of_score(self.metric_for_best_model)
        # Refused by the trainer, which knows by then that the run has such a score.
        self._is_direction_guessed = self.metric_for_best_model is not None and self.greater_is_better is None
        super().__post_init__()
        check_trains(self)
        if default_device().type == "cpu":
            # Otherwise PyTorch pins nothing and warns at every loader; transformers does the same with `use_cpu`.
            self.dataloader_pin_memory = False

    def _evaluate_and_keep_the_best(self) -> None:
        """Sets what early stopping needs, where it is not given: evaluations, each with a checkpoint."""
        if self.early_stopping_patience < 1:
            raise UserError(
                f"`early_stopping_patience` is {self.early_stopping_patience}, but must be at least 1: a number of "
                "evaluations."
            )
        if self.eval_strategy == "no":
            self.eval_strategy = "epoch"
        if self.eval_strategy == "epoch" and self.save_strategy == TrainingArguments.save_strategy:
            self.save_strategy = "epoch"
        elif self.eval_strategy == "steps" and self.save_steps == TrainingArguments.save_steps:
            self.save_steps = self.eval_steps or self.logging_steps
        if self.save_total_limit is None:
            self.save_total_limit = 2  # the best and the newest, which a resumed run needs
        self.load_best_model_at_end = True

    @property
    def device(self) -> torch.device:
        """The device of this process; the CPU is `"cpu"`, never `"cpu:0"`."""
        device = super().device
        # Trainer of 5.17 loads an optimizer's state with this as map_location, and torch knows no "cpu:0".
        return torch.device("cpu") if device.type == "cpu" else device


@dataclass
class GPT1TrainingArguments(_SharedArguments):
    r"""Arguments of [`GPT1Trainer`]: [`transformers.TrainingArguments`] with the paper's fine-tuning defaults.

    Args:
        lm_coef (`float`, *optional*): λ, weight of the auxiliary language-modelling loss. Default: the model's
            `config.lm_coef`, which is the paper's 0.5 unless it was changed; 0 for models of other families, which
            `prepare_finetuning` opens with it.
        pack_sequences (`bool`, defaults to `True`): skip padding, and compute a context that the choices of an example
            share once, if the attention allows it. The results stay the same; dropout of the context is shared.
        early_stopping_patience (`int`, *optional*): stop after so many evaluations that are no better than the best by
            `metric_for_best_model`, whose weights are kept. Default of `eval_strategy` is then "epoch".
        class_weights (`str`, `list` or `dict`, *optional*): weights of the classes in the task's loss, in training
            alone: `"balanced"`, a number for each class (an array or a tensor, too), or weights by name.

    Examples:
        >>> from modeling_gpt1 import GPT1TrainingArguments
        >>> arguments = GPT1TrainingArguments("runs/reviews")
        >>> arguments.learning_rate, arguments.per_device_train_batch_size
        (6.25e-05, 32)
    """

    lm_coef: float | None = HfArg(
        default=None,
        help="Weight λ of the auxiliary language-model loss. Default: 0.5 for GPT-1, 0 for other families.",
    )
    class_weights: list[str] | None = HfArg(
        default=None,
        help="Weights of the classes in the loss: balanced, by name (sad=2 happy=1) or in their order (2 1).",
    )
    learning_rate: float = HfArg(default=6.25e-5, help="Peak learning rate.")
    per_device_train_batch_size: int = HfArg(default=32, help="Examples per device and batch.")
    num_train_epochs: float = HfArg(default=3.0, help="Epochs of training.")
    lr_scheduler_type: str = HfArg(default="linear", help="Schedule of the learning rate, such as linear or cosine.")
    warmup_steps: float = HfArg(default=0.002, help="Warm-up in updates, or below 1 as a fraction of all.")
    train_sampling_strategy: str = HfArg(
        default="group_by_length", help="Order: random, sequential or group_by_length."
    )
    # The type of transformers' own field keeps the command line from taking "non_padding".
    include_num_input_tokens_seen: str = HfArg(default="no", help="Tokens to count: no, all or non_padding.")
    # The collator reads columns that are not arguments of the model.
    remove_unused_columns: bool = HfArg(default=False, help="Drop columns that the model's arguments do not name.")

    def __post_init__(self):
        self.class_weights = plain_numbers(self.class_weights)
        super().__post_init__()


@dataclass
class GPT1PretrainingArguments(_SharedArguments):
    r"""Arguments of [`GPT1PretrainingTrainer`]: those of [`transformers.TrainingArguments`] with the paper's
    pre-training defaults; a batch is 64 blocks of 512 tokens. `pack_sequences` leaves out the padding of short ones.
    """

    learning_rate: float = HfArg(default=2.5e-4, help="Peak learning rate.")
    per_device_train_batch_size: int = HfArg(default=64, help="Blocks per device and batch.")
    num_train_epochs: float = HfArg(default=100.0, help="Epochs of training.")
    lr_scheduler_type: str = HfArg(default="cosine", help="Schedule of the learning rate, such as linear or cosine.")
    warmup_steps: float = HfArg(default=2000, help="Warm-up in updates, or below 1 as a fraction of all.")
    include_num_input_tokens_seen: str = HfArg(default="non_padding", help="Tokens to count: no, all or non_padding.")


def plain_numbers(value: Any) -> Any:
    """A value without arrays and tensors, which no file of settings can hold."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain_numbers(number) for name, number in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_numbers(number) for number in value]
    return value


def direction_of_score(metric: str) -> bool | None:
    """True if more of a score is better, False if less is, by its name; `None` where the name does not say it."""
    name = metric.lower()
    for ending in AVERAGES:
        name = name.removesuffix(ending)
    if "neg_" in name:  # scikit-learn's negated errors
        return True
    if name.endswith("brier_score"):  # an error, despite its name
        return "d2_" in name
    last_word = name.rpartition("_")[2]
    if last_word in COSTS:
        return False
    return True if last_word in MERITS else None


def check_trains(args: TrainingArguments) -> None:
    """Refuses a run that would train nothing, and save a model that looks trained."""
    if args.max_steps > 0:
        return
    for name in ("max_steps", "num_train_epochs"):
        given = getattr(args, name)
        is_default = name == "max_steps" and given == -1
        if given <= 0 and not is_default:
            raise UserError(f"`{name}` is {given}, which trains nothing. Give a number above 0, or leave it out.")


# Of the rows to evaluate and to predict. It is not the run's: runs that are compared must be scored on the same rows.
SEED_OF_SCORED_ROWS = 0


def draw_places(num_rows: int, limit: int | None, seed: int) -> np.ndarray:
    """All row indices, or `limit` of them drawn at random and sorted, so that a sorted file is sampled throughout."""
    return np.sort(np.random.default_rng(seed).permutation(num_rows)[:limit])


def seed_of_data(args: TrainingArguments) -> int:
    """The seed by which training rows are drawn, held out and ordered: `data_seed`, or else the run's."""
    return args.seed if args.data_seed is None else args.data_seed


def sets_by_name(eval_dataset: Any) -> dict[str, Any]:
    """The data sets to evaluate, if there are several by their names; empty for a single one and for none."""
    return eval_dataset if isinstance(eval_dataset, dict) else {}


def check_arguments(args: TrainingArguments) -> None:
    """Refuses arguments that would train nothing, falsify the loss or publish a pickle."""
    check_trains(args)
    if getattr(args, "_is_direction_guessed", False):
        raise UserError(
            f"`metric_for_best_model` is {args.metric_for_best_model!r}, and it is not known whether a higher value "
            "is better. Pass `greater_is_better` as well: True for a score, False for an error."
        )
    if args.train_sampling_strategy == "batch_rebalance":
        raise UserError(
            "`train_sampling_strategy` is 'batch_rebalance', which trains some rows twice to fill the last update. "
            "Use 'group_by_length'."
        )
    if args.world_size > 1 and not args.average_tokens_across_devices:
        raise UserError(
            "`average_tokens_across_devices` is False: a process without rows would weaken the update. Leave it out."
        )
    if args.label_smoothing_factor:
        raise UserError(
            f"`label_smoothing_factor` is {args.label_smoothing_factor}, but label smoothing would replace the "
            "model's loss and with it the auxiliary objective. Leave it at 0."
        )
    if args.push_to_hub and args.hub_strategy != "end":
        raise UserError(
            f"`hub_strategy` is {str(args.hub_strategy.value)!r}, but a checkpoint pushed during training "
            'contains pickles with paths of this machine. Use `hub_strategy="end"`.'
        )

"""Trainers of GPT-1: pre-training on L1 and fine-tuning on L3 = L2 + λ·L1, the paper's hyper-parameters as defaults.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training". What [`transformers.Trainer`]
does stays there; these classes add defaults, the component losses, their exact evaluation, checks and the model card.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import datasets
import torch
from torch import nn
from transformers import PreTrainedModel, TrainingArguments

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..hub.push import PublishingTrainer
from .cpu_attention import choose_cpu_attention
from .launch import SharedStream, check_launch, check_sharding


@dataclass
class GPT1TrainingArguments(TrainingArguments):
    r"""Arguments of [`GPT1Trainer`]: [`transformers.TrainingArguments`] with the paper's fine-tuning defaults.

    Args:
        lm_coef (`float`, *optional*): λ, weight of the auxiliary language-modelling loss. Default: the model's
            `config.lm_coef`, which is the paper's 0.5 unless it was changed.
        pack_sequences (`bool`, defaults to `True`): leave padding out of the decoder and compute what the choices of
            an example have in common once, where the attention can; the results are the same but for dropout, which
            the choices then share in what they have in common.
    """

    lm_coef: float | None = field(
        default=None,
        metadata={"help": "Weight of the auxiliary language-modelling loss. Default: the model's own (paper: 0.5)."},
    )
    pack_sequences: bool = field(
        default=True, metadata={"help": "Leave out padding and compute what the choices of an example share once."}
    )
    learning_rate: float = field(default=6.25e-5, metadata={"help": "Peak learning rate."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Examples per device and micro-batch."})
    num_train_epochs: float = field(default=3.0, metadata={"help": "Passes over the training set."})
    lr_scheduler_type: str = field(default="linear", metadata={"help": "Learning-rate schedule."})
    warmup_steps: float = field(
        default=0.002, metadata={"help": "Warm-up: a fraction of all updates below 1, else their number."}
    )
    weight_decay: float = field(default=0.01, metadata={"help": "Decoupled weight decay of matrices."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Gradients are clipped to this norm."})
    train_sampling_strategy: str = field(
        default="group_by_length",
        metadata={
            "help": "Order of the training rows; by default rows of like length share a batch, in evaluation too.",
            "choices": ["random", "sequential", "group_by_length", "batch_rebalance"],
        },
    )
    # The collator reads the rows' own columns, which are no arguments of the model.
    remove_unused_columns: bool = field(
        default=False, metadata={"help": "Drop the columns that the model's forward does not name."}
    )
    ddp_find_unused_parameters: bool | None = field(
        default=False, metadata={"help": "Every parameter takes part in the loss, so nothing has to be found."}
    )
    # Trainer writes this into the model's configuration, where it would switch the cache off for `generate` too.
    use_cache: bool = field(default=True, metadata={"help": "The saved model generates with a key-value cache."})
    hub_strategy: str = field(
        default="end", metadata={"help": "Push when training ends; pushes of checkpoints would hold pickles."}
    )


@dataclass
class GPT1PretrainingArguments(TrainingArguments):
    r"""Arguments of [`GPT1PretrainingTrainer`]: those of [`transformers.TrainingArguments`] with the paper's
    pre-training defaults; a batch is 64 blocks of 512 tokens.
    """

    learning_rate: float = field(default=2.5e-4, metadata={"help": "Peak learning rate."})
    per_device_train_batch_size: int = field(default=64, metadata={"help": "Blocks per device and micro-batch."})
    num_train_epochs: float = field(default=100.0, metadata={"help": "Passes over the corpus."})
    lr_scheduler_type: str = field(default="cosine", metadata={"help": "Learning-rate schedule."})
    warmup_steps: float = field(
        default=2000, metadata={"help": "Warm-up: a fraction of all updates below 1, else their number."}
    )
    weight_decay: float = field(default=0.01, metadata={"help": "Decoupled weight decay of matrices."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Gradients are clipped to this norm."})
    include_num_input_tokens_seen: str = field(
        default="non_padding", metadata={"help": "Count the tokens seen; throughput is logged from it."}
    )
    ddp_find_unused_parameters: bool | None = field(
        default=False, metadata={"help": "Every parameter takes part in the loss, so nothing has to be found."}
    )
    # Trainer writes this into the model's configuration, where it would switch the cache off for `generate` too.
    use_cache: bool = field(default=True, metadata={"help": "The saved model generates with a key-value cache."})
    hub_strategy: str = field(
        default="end", metadata={"help": "Push when training ends; pushes of checkpoints would hold pickles."}
    )


class _GPT1BaseTrainer(PublishingTrainer):
    """What both trainers share: exact evaluation of losses, exact resume, checks, pushes with the model card."""

    def __init__(self, model=None, args: TrainingArguments | None = None, *others, **kwargs):
        if args is not None:
            check_arguments(args)
            check_launch(args)
        super().__init__(model, args, *others, **kwargs)
        if self.accelerator.dataloader_config.dispatch_batches is None:
            # Else the first process reads a stream for all of them, and fails where the batches differ in length.
            self.accelerator.dataloader_config.dispatch_batches = False
        self._eval_losses: list[torch.Tensor] = []  # `example_losses` of the evaluation under way
        self._check_model(_base_model(self.accelerator.unwrap_model(self.model)))

    def _get_dataloader(self, dataset, *args, is_training: bool = False, **kwargs):
        if self.args.world_size > 1 and isinstance(dataset, datasets.IterableDataset):
            # The rows that fill up the last batch of an evaluation count only if their number is known.
            dataset = SharedStream(dataset) if is_training else datasets.Dataset.from_list(list(dataset))
        return super()._get_dataloader(dataset, *args, is_training=is_training, **kwargs)

    def call_model_init(self, trial=None):
        model = super().call_model_init(trial)
        if hasattr(self, "_eval_losses"):  # the model of __init__ is checked there
            self._check_model(_base_model(model))
        return model

    def _check_model(self, model: PreTrainedModel) -> None:
        check_sharding(model)
        choose_cpu_attention(model, self.args.device)
        tokenizer = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if tokenizer is None:
            return
        check_vocabulary(model.config, tokenizer)
        for settings in (model.config, getattr(model, "generation_config", None)):
            if settings is not None and settings.pad_token_id is None:
                settings.pad_token_id = tokenizer.pad_token_id

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # Batches are weighed by what the model says of each example, so none needs the count of all.
        loss, outputs = super().compute_loss(model, inputs, True)
        if outputs.get("example_losses") is not None:
            self._eval_losses.append(self.gather_function(outputs["example_losses"]))
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, *args, metric_key_prefix: str = "eval", **kwargs):
        self._eval_losses = []
        output = super().evaluation_loop(*args, metric_key_prefix=metric_key_prefix, **kwargs)
        if self._eval_losses:
            losses = self._evaluated_losses(torch.cat(self._eval_losses).cpu().double())
            output.metrics.update({f"{metric_key_prefix}_{name}": loss for name, loss in losses.items()})
        return output

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        """Losses of a data set from the `example_losses [examples, 2]` of the model."""
        raise NotImplementedError


class GPT1Trainer(_GPT1BaseTrainer):
    r"""Fine-tunes a [`GPT1DoubleHeadsModel`] on L3, or a model with the task head alone on L2.

    `loss` in the logs is L3; `task_loss` and `lm_loss` beside it are the means of its parts since the last log, over
    accumulation steps and processes. Evaluation reports exact means over the data set: `eval_loss`, `eval_task_loss`
    and `eval_lm_loss`, whatever the batch size and the number of processes.

    Raises:
        ValueError: before training starts, if model, tokenizer and collator do not belong together.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._train_losses: torch.Tensor | None = None  # sums of [task_loss, lm_loss] since the last log
        self._train_losses_since = 0  # global step of the last log

    def _check_model(self, model: PreTrainedModel) -> None:
        if not hasattr(model, "task_head"):
            raise ValueError(
                f"GPT1Trainer fine-tunes models with a task head, but {type(model).__name__} has none. Open the "
                "checkpoint with GPT1DoubleHeadsModel, or pre-train it with GPT1PretrainingTrainer."
            )
        super()._check_model(model)
        if getattr(self.args, "lm_coef", None) is not None:
            model.config.lm_coef = self.args.lm_coef
            model.config.validate()
        if not getattr(self.args, "pack_sequences", True):  # True leaves a model alone that was told otherwise
            model.pack_sequences = False
        if model.config.lm_coef == 0 and hasattr(model, "lm_head") and not model.config.tie_word_embeddings:
            model.lm_head.requires_grad_(False)  # DDP waits for every gradient
        check_collator(model.config, self.data_collator)

    def train(self, *args, **kwargs):
        self._train_losses = None
        return super().train(*args, **kwargs)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if model.training and outputs.get("task_loss") is not None:
            task_loss, lm_loss = outputs["task_loss"].detach().float(), outputs.get("lm_loss")
            lm_loss = torch.zeros_like(task_loss) if lm_loss is None else lm_loss.detach().float()
            losses = torch.stack([task_loss.mean(), lm_loss.mean()])
            if self._train_losses is None:
                self._train_losses = torch.zeros_like(losses)
                self._train_losses_since = self.state.global_step
            self._train_losses += losses
        return (loss, outputs) if return_outputs else loss

    def _running_losses(self) -> dict[str, torch.Tensor]:
        losses = super()._running_losses()
        return losses if self._train_losses is None else {**losses, "parts": self._train_losses}

    def _set_running_losses(self, losses: dict[str, torch.Tensor]) -> None:
        super()._set_running_losses(losses)
        self._train_losses, self._train_losses_since = losses.get("parts"), self._globalstep_last_logged

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        task_loss, lm_loss = example_losses.mean(0).tolist()
        lm_coef = self.accelerator.unwrap_model(self.model).config.lm_coef
        losses = {"loss": task_loss + lm_coef * lm_loss, "task_loss": task_loss}
        return {**losses, "lm_loss": lm_loss} if lm_coef > 0 else losses

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs and self._train_losses is not None:
            num_steps = max(self.state.global_step - self._train_losses_since, 1)
            reduction = "sum" if self.args.average_tokens_across_devices else "mean"
            totals = self.accelerator.reduce(self._train_losses, reduction)
            task_loss, lm_loss = (totals / num_steps).tolist()
            logs["task_loss"] = task_loss
            if self.accelerator.unwrap_model(self.model).config.lm_coef > 0:
                logs["lm_loss"] = lm_loss
            self._train_losses = None
        super().log(logs, start_time)


class GPT1PretrainingTrainer(_GPT1BaseTrainer):
    r"""Pre-trains a [`GPT1ForCausalLM`] on blocks of contiguous text: rows with `input_ids` and `labels`.

    Logs `perplexity`, `tokens_per_second` and `mfu` beside `loss`, each since the last log. Throughput counts the
    tokens of all processes, padding excluded, over the time of training alone: not that of evaluation, samples and
    checkpoints. `mfu` is model FLOP utilisation: the arithmetic that these tokens need (not recomputation) over that
    of a matrix product, measured on the same device when training starts, on all devices. Neither is logged where
    `include_num_input_tokens_seen` was changed. Evaluation gives the exact mean over all target tokens, whatever the
    batch size, and its perplexity.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._peak_flops: float | None = None
        self._window_start: tuple[float, int] | None = None  # time and tokens seen at the last log

    def train(self, *args, **kwargs):
        self._window_start = None
        return super().train(*args, **kwargs)

    def training_step(self, *args, **kwargs):
        if self._window_start is None:
            self._peak_flops = measure_peak_flops(self.args.device, _compute_dtype(self.accelerator.mixed_precision))
            self._window_start = time.perf_counter(), self.state.num_input_tokens_seen
        return super().training_step(*args, **kwargs)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        # [B, T, V] logits of a whole evaluation set are of use to nobody who did not ask for them.
        if "labels" in inputs and self.compute_metrics is None:
            inputs, prediction_loss_only = {**inputs, "skip_logits": True, "use_cache": False}, True
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def _evaluate(self, *args, **kwargs):
        with self._time_left_out():
            return super()._evaluate(*args, **kwargs)

    def _save_checkpoint(self, *args, **kwargs):
        with self._time_left_out():
            super()._save_checkpoint(*args, **kwargs)

    @contextmanager
    def _time_left_out(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self._window_start is not None:
            self._window_start = self._window_start[0] + time.perf_counter() - start, self._window_start[1]

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        loss_sum, num_targets = example_losses.sum(0).tolist()
        loss = loss_sum / max(num_targets, 1)
        return {"loss": loss, "perplexity": perplexity(loss)}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs["perplexity"] = perplexity(logs["loss"])
            if self._window_start is not None and self.args.include_num_input_tokens_seen == "non_padding":
                logs.update(self._throughput())
        super().log(logs, start_time)

    def _throughput(self) -> dict[str, float]:
        now, tokens_seen = time.perf_counter(), self.state.num_input_tokens_seen
        tokens_per_second = (tokens_seen - self._window_start[1]) / (now - self._window_start[0])
        self._window_start = now, tokens_seen
        model = self.accelerator.unwrap_model(self.model)
        peak_flops = self._peak_flops * self.args.world_size * max(self.args.n_gpu, 1)
        mfu = tokens_per_second * training_flops_per_token(model) / peak_flops
        return {"tokens_per_second": tokens_per_second, "mfu": mfu}


def check_arguments(args: TrainingArguments) -> None:
    """Arguments that would spoil the loss or share a pickle.

    Raises:
        ValueError: label smoothing; pushes of checkpoints.
    """
    if args.label_smoothing_factor:
        raise ValueError(
            f"`label_smoothing_factor` is {args.label_smoothing_factor}, but label smoothing would replace the "
            "model's loss and with it the auxiliary objective. Leave it at 0."
        )
    if args.push_to_hub and args.hub_strategy != "end":
        raise ValueError(
            f"`hub_strategy` is {str(args.hub_strategy.value)!r}, but a checkpoint that is pushed while training "
            'holds pickles with paths of this machine. Use `hub_strategy="end"`.'
        )


def check_vocabulary(config: GPT1Config, tokenizer) -> None:
    """Whether model and tokenizer belong together; each learns from the other what it does not know yet.

    The configuration learns the ids of control tokens, the tokenizer the longest sequence.

    Raises:
        ValueError: vocabularies of different sizes, or control tokens with other ids.
    """
    spare = config.vocab_size - len(tokenizer)
    is_padded = 0 <= spare < 128 and config.vocab_size % 8 == 0  # `resize_token_embeddings(pad_to_multiple_of=…)`
    if spare != 0 and not is_padded:
        raise ValueError(
            f"The tokenizer has {len(tokenizer)} tokens, but the model's vocabulary has {config.vocab_size}. Call "
            "`tokenization.add_control_tokens(tokenizer, model)` to grow both together, or open the tokenizer saved "
            "with the model."
        )
    for name in ("start_token_id", "delimiter_token_id", "extract_token_id"):
        of_model, of_tokenizer = getattr(config, name), getattr(tokenizer, name, None)
        if of_model is None:
            setattr(config, name, of_tokenizer)
        elif of_tokenizer not in (None, of_model):
            raise ValueError(
                f"`{name}` is {of_model} in the model's configuration, but {of_tokenizer} in the tokenizer. Open the "
                "tokenizer saved with the model."
            )
    tokenizer.model_max_length = min(tokenizer.model_max_length, config.max_position_embeddings)


def check_collator(config: GPT1Config, data_collator) -> None:
    """Whether model and a TraversalCollator belong together; the collator learns the number of labels from the model.

    Raises:
        ValueError: another traversal, kind or number of labels, or sequences longer than the positions.
    """
    if getattr(data_collator, "traversal", None) is None:
        return
    if data_collator.traversal != config.traversal:
        raise ValueError(
            f"The collator makes {data_collator.traversal!r} batches, but the model scores {config.traversal!r}. Give "
            "both the same `traversal`."
        )
    multiple = data_collator.pad_to_multiple_of or 1
    longest = math.ceil(data_collator.max_length / multiple) * multiple
    if longest > config.max_position_embeddings:
        raise ValueError(
            f"The collator makes sequences of up to {longest} tokens (`max_length`, `pad_to_multiple_of`), but the "
            f"model has positions for {config.max_position_embeddings} (`max_position_embeddings`). Pass the collator "
            "a smaller `max_length`."
        )
    if config.traversal == "multiple_choice":
        return
    if data_collator.regression != config.is_regression:
        kinds = {True: "numbers (regression)", False: "classes"}
        raise ValueError(
            f"The collator's labels are {kinds[data_collator.regression]}, but the model predicts "
            f"{kinds[config.is_regression]}. Pass the collator `regression={config.is_regression}`, or the model "
            "`num_labels` and `problem_type`."
        )
    if data_collator.num_labels not in (None, config.num_labels):
        raise ValueError(
            f"The collator's `num_labels` is {data_collator.num_labels}, but the model's is {config.num_labels}."
        )
    data_collator.num_labels = config.num_labels


def _base_model(model: nn.Module) -> nn.Module:
    """The model that an adapter of PEFT wraps, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def perplexity(loss: float) -> float:
    """e to the mean −log P per token; infinity where that overflows."""
    return torch.tensor(loss, dtype=torch.float64).exp().item()


def training_flops_per_token(model: PreTrainedModel) -> float:
    """Floating-point operations per token of forward and backward, at sequences of full length.

    6 per weight of a matrix product (2 forward, 4 backward), the language-model head included, and 12 · D · T in each
    layer for the attention scores and sums (Chowdhery et al. 2022, "PaLM", appendix B), where T is the band of a
    banded layer. An LSTM has no attention.
    """
    config, multiplying = model.config, (nn.Linear, nn.LSTM)
    matrices = sum(
        weight.numel()
        for module in model.modules()
        if isinstance(module, multiplying)
        for weight in module.parameters(recurse=False)
        if weight.dim() == 2
    )
    if isinstance(config, GPT1LSTMConfig):
        return 6 * matrices
    length = config.max_position_embeddings
    windows = [config.window_of_layer(layer) or length for layer in range(config.num_hidden_layers)]
    return 6 * matrices + 12 * config.hidden_size * sum(min(window, length) for window in windows)


def measure_peak_flops(device: torch.device, dtype: torch.dtype, size: int = 1024, seconds: float = 0.3) -> float:
    """Floating-point operations per second of a `size` × `size` matrix product; the best of the rounds that fit."""
    if device.type == "cuda":
        size *= 8
    # No random numbers: they would move the state that dropout goes on from, and a resumed run with it.
    left, right = (torch.full((size, size), 0.5, device=device, dtype=dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + seconds
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        product = left @ right
        product[0, 0].item()  # waits for the device
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def _compute_dtype(mixed_precision: str) -> torch.dtype:
    """Of the matrix products; a launch configuration may have set it as well as the arguments."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mixed_precision, torch.float32)


__all__ = ["GPT1PretrainingArguments", "GPT1PretrainingTrainer", "GPT1Trainer", "GPT1TrainingArguments"]

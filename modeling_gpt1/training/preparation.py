"""Preparing a fine-tuning from a checkpoint and a task: model, tokenizer, collator and metrics."""

import os
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tokenization import TraversalCollator, add_control_tokens, open_tokenizer
from tokenization.tasks import Task, compute_metrics_for, get_task

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..modeling_gpt1 import GPT1DoubleHeadsModel
from ..modeling_gpt1_lstm import GPT1LSTMDoubleHeadsModel
from .transfer import check_n_transfer, keep_first_layers


def prepare_finetuning(
    model: str | os.PathLike | PreTrainedConfig,
    task: str | Task,
    tokenizer: str | os.PathLike | PreTrainedTokenizerBase | None = None,
    *,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    n_transfer: int | None = None,
    ignore_mismatched_sizes: bool = False,
) -> dict[str, Any]:
    """Prepares model, tokenizer, collator and metrics for a task, as keyword arguments of [`GPT1Trainer`].

    Model and tokenizer get the control tokens. The model's configuration gets the task's traversal and class names.

    Args:
        model (`str` or `PreTrainedConfig`): a gpt1, openai-gpt or GPT-2 checkpoint, folder or hub id; or the
            configuration of a fresh model, whose vocabulary size is taken from the tokenizer.
        task (`str` or `Task`): name of one of the paper's tasks, or the result of `tokenization.load_files`.
        tokenizer (`str` or `PreTrainedTokenizerBase`, *optional*): folder, hub id or tokenizer. Default: the
            checkpoint's own.
        max_length (`int`, *optional*): maximum tokens per sequence. Default: the model's number of positions.
        pad_to_multiple_of (`int`, *optional*): pad the length of a batch to a multiple of this.
        n_transfer (`int`, *optional*): number of layers kept from the checkpoint, see [`keep_first_layers`].
        ignore_mismatched_sizes (`bool`): start a new task head if the checkpoint's has another number of scores.

    Returns:
        `dict`: `model`, `processing_class`, `data_collator` and `compute_metrics`.

    Raises:
        ValueError: a fresh model without a tokenizer; a task head of another size; `n_transfer` out of range.
    """
    task = get_task(task) if isinstance(task, str) else task
    checkpoint = None if isinstance(model, PreTrainedConfig) else os.fspath(model)
    config = model if checkpoint is None else open_config(checkpoint)
    if checkpoint is None and tokenizer is None:
        raise ValueError("A fresh model has no tokenizer beside it. Pass one as `tokenizer`.")
    if n_transfer is not None:
        check_n_transfer(config, n_transfer)
    has_head = checkpoint is not None and config.traversal is not None
    if has_head and config.num_labels != task.num_labels and not ignore_mismatched_sizes:
        raise ValueError(
            f"The task head of {checkpoint} has {config.num_labels} scores, but {task.name} needs {task.num_labels}. "
            "Pass `ignore_mismatched_sizes` to train a new head."
        )
    set_task(config, task)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        tokenizer = open_tokenizer(tokenizer or checkpoint)
    add_control_tokens(tokenizer)
    collator = TraversalCollator(
        tokenizer,
        task.traversal,
        task.columns,
        max_length=max_length or config.max_position_embeddings,
        pad_to_multiple_of=pad_to_multiple_of,
        num_labels=len(task.label_names) or None,
        regression=task.regression,
        # In the user's own regression data −1 is an ordinary label.
        hidden_label=None if task.regression and task.hub_path is None else -1,
    )
    return {
        "model": _open_model(checkpoint, config, tokenizer, n_transfer, ignore_mismatched_sizes),
        "processing_class": tokenizer,
        "data_collator": collator,
        "compute_metrics": compute_metrics_for(task),
    }


def open_config(checkpoint: str) -> GPT1Config | GPT1LSTMConfig:
    """Opens the configuration of a folder or hub id. All but the LSTM open as GPT-1, such as openai-gpt."""
    config_dict, _ = PreTrainedConfig.get_config_dict(checkpoint)
    is_lstm = config_dict.get("model_type") == GPT1LSTMConfig.model_type
    return (GPT1LSTMConfig if is_lstm else GPT1Config).from_pretrained(checkpoint)


def set_task(config: PreTrainedConfig, task: Task) -> None:
    """Writes the task into the configuration: traversal, columns, problem type and, if there are any, class names."""
    config.traversal = task.traversal
    config.columns = dict(task.columns)
    config.problem_type = "regression" if task.regression else None
    if task.label_names:
        config.problem_type = "single_label_classification"
    names = task.label_names or ("LABEL_0",)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: label_id for label_id, name in enumerate(names)}


def _open_model(
    checkpoint: str | None,
    config: GPT1Config | GPT1LSTMConfig,
    tokenizer: PreTrainedTokenizerBase,
    n_transfer: int | None,
    ignore_mismatched_sizes: bool,
) -> PreTrainedModel:
    """The checkpoint's model, with all or only its first layers, or a fresh model; with control-token embeddings."""
    model_class = GPT1LSTMDoubleHeadsModel if isinstance(config, GPT1LSTMConfig) else GPT1DoubleHeadsModel
    if checkpoint is None:
        config.vocab_size = len(tokenizer)
        model = model_class(config)
    else:
        model = model_class.from_pretrained(
            checkpoint,
            config=config,
            dtype=torch.float32,  # dtype of the weights; the trainer's `bf16` computes in half precision
            ignore_mismatched_sizes=ignore_mismatched_sizes,
        )
        if n_transfer is not None:
            keep_first_layers(model, n_transfer)
    add_control_tokens(tokenizer, model)
    return model

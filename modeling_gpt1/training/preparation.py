"""Preparing a fine-tuning from a checkpoint and a task: model, tokenizer, collator and metrics."""

import os
from collections.abc import Callable
from typing import Any

from transformers import EvalPrediction, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from tokenization.errors import UserError
from tokenization.rows.tasks import Task, compute_metrics_for, get_task
from tokenization.wording import counted

from ..families import family_of_checkpoint, family_of_config
from ..families.adapters import add_adapter, keep_unpacked
from ..families.checks import num_embeddings
from ..families.opening import packaged, reset_heads
from .freezing import check_freezing, freeze_weights
from .transfer import keep_first_layers

logger = logging.get_logger(__name__)


def prepare_finetuning(
    model: str | os.PathLike | PreTrainedConfig,
    task: str | Task,
    tokenizer: str | os.PathLike | PreTrainedTokenizerBase | None = None,
    *,
    lm_coef: float | None = None,
    freeze_lm_head: bool = False,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    n_transfer: int | None = None,
    freeze: str | int | None = None,
    ignore_mismatched_sizes: bool = False,
    auto_model: bool = False,
    both_orders: bool = False,
    trust_remote_code: bool = False,
    peft_config: Any | None = None,
    quantization_config: Any | None = None,
    compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
) -> dict[str, Any]:
    """Prepares model, tokenizer, collator and metrics for a task, as keyword arguments of [`GPT1Trainer`].

    GPT-1's model and tokenizer get the control tokens. A model of another family is opened by
    `AutoModelForMultipleChoice` for multiple choice, otherwise by `AutoModelForSequenceClassification`, and reads what
    its own tokenizer writes around texts. The model's configuration gets the task's traversal and class names.

    Args:
        model (`str` or `PreTrainedConfig`): a checkpoint of gpt1, openai-gpt, GPT-2 or another family: folder, hub id
            or `gpt1-novels`; or the configuration of a new GPT-1, whose vocabulary size is taken from the tokenizer.
        task (`str` or `Task`): name of one of the paper's tasks, or the first result of `tokenization.load_files`.
        tokenizer (`str` or `PreTrainedTokenizerBase`, *optional*): folder, hub id or tokenizer. Default: the model's.
        lm_coef (`float`, *optional*): λ, the weight of the auxiliary language-model loss. Default: GPT-1's own, 0.5,
            and 0 for other families. Above 0, a causal decoder such as Llama's gets the output embeddings of its
            checkpoint beside the classifier; they are not saved with it. `GPT1TrainingArguments.lm_coef` overrides it.
        freeze_lm_head (`bool`): do not train an output matrix that is not the input embeddings.
        max_length (`int`, *optional*): maximum tokens per sequence. Default: the model's number of positions.
        pad_to_multiple_of (`int`, *optional*): pad the length of a batch to a multiple of this.
        n_transfer (`int`, *optional*): number of layers kept from the checkpoint, see [`keep_first_layers`].
        freeze (`str` or `int`, *optional*): weights that training leaves as they are: `"embeddings"`; a number k for
            these and the first k layers; or `"base"` for everything but the task head. Embeddings of new tokens, such
            as GPT-1's control tokens, then stay as they were drawn, and so does an output matrix that is tied to
            them. Default: train all.
        ignore_mismatched_sizes (`bool`): start a new task head, such as for other classes than the checkpoint's.
        auto_model (`bool`): open openai-gpt and GPT-2 as models of another family, not as GPT-1.
        both_orders (`bool`): let a model of another family read a similarity pair in both orders and average the
            scores; GPT-1 always reads both.
        trust_remote_code (`bool`): run the code that a model of another family brings.
        peft_config (`peft.PeftConfig`, *optional*): train an adapter of PEFT, such as `LoraConfig(r=16)`, with the
            task head and the embeddings of the control tokens. Default of its `target_modules`: all linear layers.
        quantization_config (*optional*): open the model in few bits, such as by `BitsAndBytesConfig`, below the
            adapter: QLoRA, section 3 of "QLoRA: Efficient Finetuning of Quantized LLMs" (Dettmers et al., 2023).
        compute_metrics (`Callable`, *optional*): the metrics, as Trainer takes them. Default: those of the task.

    Returns:
        `dict`: `model`, `processing_class`, `data_collator` and `compute_metrics`.

    Raises:
        ValueError: a new model without a tokenizer; a task head of another size; `n_transfer` out of range; `freeze`
            of a new model, beside an adapter, or of more layers than there are or are kept; a model
            of another family that has no head for the task, or positions for fewer than `max_length` tokens;
            `quantization_config` without an adapter or for a new model; `lm_coef` above 0 for a model that predicts
            no next tokens, or whose logits do not follow from its hidden states and output embeddings.

    Examples:
        >>> from modeling_gpt1 import NOVELS, prepare_finetuning
        >>> sorted(prepare_finetuning(NOVELS, "sst2"))
        ['compute_metrics', 'data_collator', 'model', 'processing_class']
    """
    task = get_task(task)
    if not isinstance(model, str | os.PathLike | PreTrainedConfig):
        raise UserError(f"`model` is a {type(model).__name__}. Pass a folder, a hub id or a configuration.")
    checkpoint = None if isinstance(model, PreTrainedConfig) else packaged(os.fspath(model))
    if checkpoint is None and tokenizer is None:
        raise UserError("`model` is a configuration, which has no tokenizer beside it. Pass one as `tokenizer`.")
    if checkpoint is None:
        config = model
        family = family_of_config(config)
    else:
        family = family_of_checkpoint(checkpoint, auto_model, trust_remote_code)
        config = family.open_config(checkpoint, trust_remote_code)
    if not family.has_head_for(task.traversal, config):
        raise UserError(
            f"transformers has no head for the traversal {task.traversal!r} of a model of type {config.model_type!r}. "
            "Pass a model of another family, such as BERT or GPT-1."
        )
    if quantization_config is not None and (checkpoint is None or peft_config is None):
        raise UserError(
            "`quantization_config` is for a saved model below an adapter: quantised weights do not train. Pass "
            "`peft_config`, such as `LoraConfig(r=16)`, and the model's folder, or leave `quantization_config` out."
        )
    if n_transfer is not None:
        check_transfer(n_transfer, family.resets_layers, config, checkpoint, peft_config)
    if freeze is not None:
        check_freezing(freeze, n_transfer, config, checkpoint is None, peft_config)
    if checkpoint is not None and not ignore_mismatched_sizes:
        family.check_head(checkpoint, config, task)
    set_task(config, task)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        tokenizer = family.open_tokenizer(tokenizer or checkpoint, trust_remote_code)
    collator = family.finetuning_collator(
        config,
        tokenizer,
        task,
        max_length=max_length,
        pad_to_multiple_of=pad_to_multiple_of,
        both_orders=both_orders,
    )
    if checkpoint is None:
        model = family.make_task_model(config, tokenizer)
    else:
        model = family.open_task_model(
            checkpoint,
            config,
            ignore_mismatched_sizes=ignore_mismatched_sizes,
            trust_remote_code=trust_remote_code,
            gets_adapter=peft_config is not None,
            gets_lm_head=bool(lm_coef),
            quantization_config=quantization_config,
        )
    if quantization_config is not None:
        keep_unpacked(model)
    if n_transfer is not None:
        keep_first_layers(model, n_transfer)
    num_tokens = num_embeddings(model)
    family.complete_task_model(model, tokenizer, collator, max_length)
    if ignore_mismatched_sizes:
        reset_heads(model)
    if max_length is not None:
        tokenizer.model_max_length = collator.max_length  # kept with the model, so that predictions read as much
    if freeze_lm_head and not lm_coef:
        raise UserError(
            "`freeze_lm_head` is for the auxiliary objective. Pass `lm_coef`, such as 0.5, or leave it out."
        )
    if lm_coef is not None:
        family.add_auxiliary_loss(
            model,
            checkpoint,
            tokenizer,
            lm_coef,
            freeze_lm_head=freeze_lm_head,
            trust_remote_code=trust_remote_code,
            quantization_config=quantization_config,
        )
    if freeze is not None:
        freeze_weights(model, freeze)
        num_new = num_embeddings(model) - num_tokens
        if num_new > 0:
            logger.warning(
                f"`freeze` leaves the embeddings of {counted(num_new, 'new token')} as they were drawn, because all "
                "embeddings are frozen."
            )
    if peft_config is not None:
        model = add_adapter(family, model, tokenizer, peft_config)
    return {
        "model": model,
        "processing_class": tokenizer,
        "data_collator": collator,
        "compute_metrics": compute_metrics or compute_metrics_for(task),
    }


def check_transfer(
    n_transfer: int, resets_layers: bool, config: PreTrainedConfig, checkpoint: str | None, peft_config: Any | None
) -> None:
    """Refuses `n_transfer` for a model whose layers cannot be reset, or are not saved."""
    if peft_config is not None:
        raise UserError(
            f"`n_transfer` is {n_transfer}, but an adapter is saved without the layers that would be reset. Leave "
            "`n_transfer` out, or train the whole model."
        )
    if checkpoint is None:
        raise UserError(f"`n_transfer` is {n_transfer}, but a new model has no trained layers to keep. Leave it out.")
    if not resets_layers:
        raise UserError(
            f"`n_transfer` is {n_transfer}, but only layers of a GPT-1 can be reset, and this is a model of type "
            f"{config.model_type!r}. Leave it out."
        )


def set_task(config: PreTrainedConfig, task: Task) -> None:
    """Writes the task into the configuration: traversal, columns, problem type and, if there are any, class names."""
    config.traversal = task.traversal
    config.columns = dict(task.columns)
    if task.label_names and task.multi_label:
        config.problem_type = "multi_label_classification"
    elif task.label_names:
        config.problem_type = "single_label_classification"
    elif task.regression:
        config.problem_type = "regression"
    else:
        config.problem_type = None
    names = task.label_names or ("LABEL_0",)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: label_id for label_id, name in enumerate(names)}

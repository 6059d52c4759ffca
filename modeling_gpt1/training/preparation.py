"""Preparing a fine-tuning from a checkpoint and a task: model, tokenizer, collator and metrics."""

import copy
import os
import re
from functools import partial
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from tokenization import TraversalCollator, add_control_tokens, open_tokenizer
from tokenization.errors import UserError
from tokenization.rows.tasks import Task, compute_metrics_for, get_task
from tokenization.text.control_tokens import keep_text_as_text

from ..configuration_gpt1 import GPT1Config, has_choices
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..hub.model_kinds import HEADS, packaged
from ..inference.probing import longest_sequence
from ..layouts_gpt1 import base_of_adapter, open_adapter
from ..modeling_gpt1 import GPT1DoubleHeadsModel
from ..modeling_gpt1_lstm import GPT1LSTMDoubleHeadsModel
from .checks import check_collator_of_family, check_length, match_vocabulary
from .transfer import keep_first_layers

logger = logging.get_logger(__name__)

OWN_TYPES = (GPT1Config.model_type, GPT1LSTMConfig.model_type)
# Folders of transformers that the classes of GPT-1 open.
OPENED_TYPES = ("openai-gpt", "gpt2")
DEFAULT_LENGTH = 512  # tokens, where neither model nor tokenizer has a limit


def prepare_finetuning(
    model: str | os.PathLike | PreTrainedConfig,
    task: str | Task,
    tokenizer: str | os.PathLike | PreTrainedTokenizerBase | None = None,
    *,
    max_length: int | None = None,
    pad_to_multiple_of: int | None = None,
    n_transfer: int | None = None,
    ignore_mismatched_sizes: bool = False,
    auto_model: bool = False,
    both_orders: bool = False,
    trust_remote_code: bool = False,
    peft_config: Any | None = None,
) -> dict[str, Any]:
    """Prepares model, tokenizer, collator and metrics for a task, as keyword arguments of [`GPT1Trainer`].

    GPT-1's model and tokenizer get the control tokens. A model of another family is opened by
    `AutoModelForMultipleChoice` for multiple choice, otherwise by `AutoModelForSequenceClassification`, and reads what
    its own tokenizer writes around texts. The model's configuration gets the task's traversal and class names.

    Args:
        model (`str` or `PreTrainedConfig`): a checkpoint of gpt1, openai-gpt, GPT-2 or another family: folder, hub id
            or `gpt1-novels`; or the configuration of a fresh GPT-1, whose vocabulary size is taken from the tokenizer.
        task (`str` or `Task`): name of one of the paper's tasks, or the first result of `tokenization.load_files`.
        tokenizer (`str` or `PreTrainedTokenizerBase`, *optional*): folder, hub id or tokenizer. Default: the model's.
        max_length (`int`, *optional*): maximum tokens per sequence. Default: the model's number of positions.
        pad_to_multiple_of (`int`, *optional*): pad the length of a batch to a multiple of this.
        n_transfer (`int`, *optional*): number of layers kept from the checkpoint, see [`keep_first_layers`].
        ignore_mismatched_sizes (`bool`): start a new task head, such as for other classes than the checkpoint's.
        auto_model (`bool`): open openai-gpt and GPT-2 as models of another family, not as GPT-1.
        both_orders (`bool`): let a model of another family read a similarity pair in both orders and average the
            scores; GPT-1 always reads both.
        trust_remote_code (`bool`): run the code that a model of another family brings.
        peft_config (`peft.PeftConfig`, *optional*): train an adapter of PEFT, such as `LoraConfig(r=16)`, with the
            task head and the embeddings of the control tokens. Default of its `target_modules`: all linear layers.

    Returns:
        `dict`: `model`, `processing_class`, `data_collator` and `compute_metrics`.

    Raises:
        ValueError: a fresh model without a tokenizer; a task head of another size; `n_transfer` out of range; a model
            of another family that has no head for the task, or positions for fewer than `max_length` tokens.
    """
    task = get_task(task)
    if not isinstance(model, str | os.PathLike | PreTrainedConfig):
        raise UserError(f"`model` is a {type(model).__name__}. Pass a folder, a hub id or a configuration.")
    checkpoint = None if isinstance(model, PreTrainedConfig) else packaged(os.fspath(model))
    if checkpoint is None and tokenizer is None:
        raise UserError("A fresh model has no tokenizer beside it. Pass one as `tokenizer`.")
    config = model if checkpoint is None else open_task_config(checkpoint, auto_model, trust_remote_code)
    is_own = isinstance(config, (GPT1Config, GPT1LSTMConfig))
    if n_transfer is not None and not (is_own and checkpoint and peft_config is None):
        what = f"a model of type {config.model_type!r}" if checkpoint else "a fresh model"
        raise UserError(
            f"`n_transfer` is {n_transfer}, but only layers of a saved GPT-1 can be reset, which is then trained "
            f"whole, and this is {what if peft_config is None else 'an adapter, saved without them'}. Leave it out."
        )
    if checkpoint is not None and not ignore_mismatched_sizes:
        _check_head(checkpoint, config, task)
    set_task(config, task)
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        place = tokenizer or checkpoint
        tokenizer = open_tokenizer(place) if is_own else open_family_tokenizer(place, trust_remote_code)
    options = {"num_labels": len(task.label_names) or None, "regression": task.regression}
    options |= {"multi_label": task.multi_label, "pad_to_multiple_of": pad_to_multiple_of}
    # In the user's own regression data −1 is an ordinary label.
    options["hidden_label"] = None if task.regression and task.hub_path is None else -1
    collator_of = partial(TraversalCollator, tokenizer, task.traversal, task.columns, **options)
    # dtype of the weights; the trainer's `bf16` computes in half precision
    opening = {"config": config, "dtype": torch.float32, "ignore_mismatched_sizes": ignore_mismatched_sizes}
    if is_own:
        add_control_tokens(tokenizer)
        collator = collator_of(max_length=config.max_position_embeddings if max_length is None else max_length)
        check_length(collator, config.max_position_embeddings, " (`max_position_embeddings`)")
        model_class = GPT1LSTMDoubleHeadsModel if isinstance(config, GPT1LSTMConfig) else GPT1DoubleHeadsModel
        if checkpoint is None:
            config.vocab_size = len(tokenizer)
            model = model_class(config)
        else:
            model = load_model(model_class, checkpoint, **opening)
            if n_transfer is not None:
                keep_first_layers(model, n_transfer)
        add_control_tokens(tokenizer, model)
    else:
        opening["trust_remote_code"] = trust_remote_code
        is_choice = has_choices(task.traversal)
        auto_class = AutoModelForMultipleChoice if is_choice else AutoModelForSequenceClassification
        base = base_of_adapter(checkpoint)
        if base is None:
            model = load_model(auto_class, checkpoint, **opening)
        elif peft_config is not None:
            told = f"{checkpoint} is an adapter of a {config.model_type}, on which no other can lie"
            raise UserError(f"{told}. Train it without `peft_config`, or save the model that this function opens.")
        else:
            model = open_adapter(auto_class.from_pretrained, checkpoint, base, **opening)
        match_vocabulary(model, tokenizer)
        longest = max_length or longest_sequence(model, tokenizer) or DEFAULT_LENGTH
        collator = collator_of(max_length=longest, both_orders=both_orders)
        check_collator_of_family(model, collator)
    if ignore_mismatched_sizes:  # `from_pretrained` has loaded a head of the same size
        fresh = heads_of(type(model)(model.config))
        for name, head in heads_of(model).items():
            head.load_state_dict(fresh[name].state_dict())
    if max_length is not None:
        tokenizer.model_max_length = collator.max_length  # kept with the model, so that predictions read as much
    return {
        "model": model if peft_config is None else add_adapter(model, tokenizer, peft_config),
        "processing_class": tokenizer,
        "data_collator": collator,
        "compute_metrics": compute_metrics_for(task),
    }


def add_adapter(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, peft_config: Any) -> torch.nn.Module:
    """The model with an adapter of PEFT, which is trained with the head and GPT-1's control tokens.

    Raises:
        ValueError: the model has no place, so that nobody could open the adapter.
    """
    from peft import PeftConfig, get_peft_model

    if not isinstance(peft_config, PeftConfig) or peft_config.task_type in ("CAUSAL_LM", "SEQ_2_SEQ_LM"):
        kind = getattr(peft_config, "task_type", type(peft_config).__name__)
        raise UserError(f"`peft_config` is a {kind}. Pass one like `LoraConfig(r=16)`, without another `task_type`.")
    if not model.name_or_path:
        raise UserError("An adapter is saved without its base, which is fresh. Save and open it, or train it whole.")
    peft_config = copy.deepcopy(peft_config)
    peft_config.modules_to_save = peft_config.modules_to_save or list(heads_of(model))
    if peft_config.target_modules is None:
        peft_config.target_modules = "all-linear"
    if hasattr(model, "task_head"):  # SEQ_CLS would save its layer `score`, as another module, beside the head
        peft_config.task_type = None
    tied = [name for name in ("lm_head", "tokens_embed") if name in peft_config.target_modules]
    if hasattr(model, "task_head") and tied == ["lm_head"]:  # merging would lose what the tokens' rows have learnt
        has = "`target_modules` has lm_head, which is one weight with the embeddings of the control tokens"
        raise UserError(f"{has}. Leave it out, or add tokens_embed.")
    if hasattr(model, "task_head") and getattr(peft_config, "trainable_token_indices", ()) is None and not tied:
        names = ("start_token_id", "delimiter_token_id", "extract_token_id")
        peft_config.trainable_token_indices = [getattr(tokenizer, name) for name in names]
    return get_peft_model(model, peft_config)


def _check_head(checkpoint: str, config: PreTrainedConfig, task: Task) -> None:
    """Refuses a checkpoint with a task head for other classes."""
    heads = [name for name in config.architectures or () if name.endswith(HEADS)]
    is_own = isinstance(config, (GPT1Config, GPT1LSTMConfig))
    if (config.traversal is None) if is_own else not heads:
        return
    # A head of multiple choice gives each choice one score, whatever the configuration calls `num_labels`.
    num_scores = 1 if not is_own and heads[0].endswith("ForMultipleChoice") else config.num_labels
    names = [str(config.id2label[number]) for number in range(config.num_labels)]
    # Names that nobody gave say nothing.
    is_known = task.label_names and not any(re.fullmatch(r"LABEL_\d+", name) for name in names)
    if num_scores != task.num_labels:
        facts = f"has {num_scores} scores, but {task.name} needs {task.num_labels}"
    elif is_known and [name.lower() for name in names] != [name.lower() for name in task.label_names]:
        facts = f"scores the classes {', '.join(names)}, but those of {task.name} are {', '.join(task.label_names)}"
    else:
        return
    raise UserError(f"The task head of {checkpoint} {facts}. Pass `ignore_mismatched_sizes` to train a new head.")


def heads_of(model: PreTrainedModel) -> dict[str, torch.nn.Module]:
    """The parts of a model with weights beside its base and its language-model head."""
    others = (model.base_model, model.get_output_embeddings())
    parts = {name: part for name, part in model.named_children() if all(part is not other for other in others)}
    return {name: part for name, part in parts.items() if any(True for _ in part.parameters())}


def open_task_config(checkpoint: str, auto_model: bool = False, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration of a folder or hub id, as the class that `prepare_finetuning` fine-tunes has it.

    Folders of openai-gpt and GPT-2 open as GPT-1, unless `auto_model` says otherwise or transformers' own classes
    fine-tuned them. The configuration of another family gets the task's fields, None if it has no task.
    """
    content = PreTrainedConfig.get_config_dict(checkpoint)[0]
    model_type = content.get("model_type")
    if model_type == GPT1LSTMConfig.model_type:
        return GPT1LSTMConfig.from_pretrained(checkpoint)
    is_opened = model_type in OPENED_TYPES and not auto_model and "traversal" not in content
    if is_opened or model_type in (None, GPT1Config.model_type):
        return GPT1Config.from_pretrained(checkpoint)
    config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=trust_remote_code)
    for name in ("traversal", "columns"):
        setattr(config, name, getattr(config, name, None))
    return config


def has_task_head(config: PreTrainedConfig) -> bool:
    """Whether the model has a task head, which reads the extract token in a GPT-1."""
    names = config.architectures if getattr(config, "extract_token_id", 0) is not None else ()
    return any(name.endswith(("DoubleHeadsModel", *HEADS)) for name in names or ())


def set_task(config: PreTrainedConfig, task: Task) -> None:
    """Writes the task into the configuration: traversal, columns, problem type and, if there are any, class names."""
    config.traversal = task.traversal
    config.columns = dict(task.columns)
    config.problem_type = "regression" if task.regression else None
    if task.label_names:
        config.problem_type = f"{'multi' if task.multi_label else 'single'}_label_classification"
    names = task.label_names or ("LABEL_0",)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: label_id for label_id, name in enumerate(names)}


def load_model(model_class, checkpoint: str, **opening: Any) -> PreTrainedModel:
    """`from_pretrained`, whose report is one line: a task head is new whenever a language model is fine-tuned."""
    reporter = logging.get_logger("transformers.modeling_utils")

    def is_other(record) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    reporter.addFilter(is_other)
    try:
        model, found = model_class.from_pretrained(checkpoint, output_loading_info=True, **opening)
    finally:
        reporter.removeFilter(is_other)
    new = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    if opening.get("ignore_mismatched_sizes"):  # heads of the same size become new, too
        new |= {f"{head}.{name}" for head, part in heads_of(model).items() for name in part.state_dict()}
    for what, names in (("New weights, drawn at random", new), ("Weights left out", found["unexpected_keys"])):
        if names:
            others = f" and {len(names) - 4} more" if len(names) > 4 else ""
            logger.warning(f"{what}: {', '.join(sorted(names)[:4])}{others}.")
    return model


def open_family_tokenizer(name_or_path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id. Without a padding token it pads with its end-of-text token."""
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    if tokenizer.pad_token is None and (end := tokenizer.eos_token) is not None:
        tokenizer.pad_token = end
        logger.warning(f"The tokenizer has no padding token: it pads with its end-of-text token, {end}.")
    keep_text_as_text(tokenizer)
    return tokenizer

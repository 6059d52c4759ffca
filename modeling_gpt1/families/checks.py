"""Checks, before any work is done, that model, collator, data and arguments fit together."""

import math
import re
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tokenization import TraversalCollator
from tokenization.errors import UserError
from tokenization.rows.tasks import Task
from tokenization.text.control_tokens import any_word

from ..configuration_gpt1 import GPT1Config, has_choices, is_regression
from .probing import limit_of_tokens, rounding_of, unchanged, whole_shape
from .task_scores import TaskScores, reads_choices

# ---- Tasks


def options_of_task(task: Task) -> dict[str, Any]:
    """Options of a TraversalCollator that follow from the task."""
    # In the user's own regression data −1 is an ordinary label.
    may_be_minus_one = task.regression and task.hub_path is None
    return {
        "num_labels": len(task.label_names) or None,
        "regression": task.regression,
        "multi_label": task.multi_label,
        "hidden_label": None if may_be_minus_one else -1,
    }


def check_same_head(checkpoint: str, config: PreTrainedConfig, task: Task, num_scores: int) -> None:
    """Refuses a checkpoint with a task head of so many scores if the task needs others."""
    names = [str(config.id2label[number]) for number in range(config.num_labels)]
    # Names that nobody gave say nothing.
    is_known = task.label_names and not any(re.fullmatch(r"LABEL_\d+", name) for name in names)
    if num_scores != task.num_labels:
        raise UserError(
            f"The task head of {checkpoint} has {num_scores} scores, but {task.name} needs {task.num_labels}. Pass "
            "`ignore_mismatched_sizes` to train a new head."
        )
    if is_known and [name.lower() for name in names] != [name.lower() for name in task.label_names]:
        raise UserError(
            f"The task head of {checkpoint} scores the classes {', '.join(names)}, but those of {task.name} are "
            f"{', '.join(task.label_names)}. Pass `ignore_mismatched_sizes` to train a new head."
        )


# ---- GPT-1


def check_collator(config: GPT1Config, data_collator: TraversalCollator) -> None:
    """Checks that the model and a TraversalCollator fit together, and tells it the model's number of labels."""
    if data_collator.traversal != config.traversal:
        raise UserError(
            f"The collator makes {data_collator.traversal!r} batches, but the model scores {config.traversal!r}. Give "
            "both the same `traversal`."
        )
    if not data_collator.is_of_gpt1:
        raise UserError(
            "The collator's tokenizer has no control tokens, so its sequences have the form of another family. Call "
            "`tokenization.add_control_tokens(tokenizer, model)` before making the collator."
        )
    check_length_of_collator(data_collator, config.max_position_embeddings, " (`max_position_embeddings`)")
    if not has_choices(config.traversal):
        check_labels(data_collator, is_regression(config), config.num_labels)


def check_length_of_collator(data_collator: TraversalCollator, num_positions: int | None, source: str = "") -> None:
    """Checks that a model has positions for the longest sequences of a TraversalCollator; None is no limit."""
    multiple = data_collator.pad_to_multiple_of or 1
    longest = math.ceil(data_collator.max_length / multiple) * multiple
    if num_positions is not None and longest > num_positions:
        raise UserError(
            f"The collator makes sequences of up to {longest} tokens (`max_length`, `pad_to_multiple_of`), but the "
            f"model has positions for {num_positions}{source}. Pass a smaller `max_length`."
        )


def check_labels(data_collator: TraversalCollator, is_regression: bool, num_labels: int) -> None:
    """Checks the kind and number of labels, and tells a TraversalCollator the model's number."""
    if data_collator.regression != is_regression:
        kinds = {True: "numbers (regression)", False: "classes"}
        raise UserError(
            f"The collator's labels are {kinds[data_collator.regression]}, but the model predicts "
            f"{kinds[is_regression]}. Pass the collator `regression={is_regression}`, or the model "
            "`num_labels` and `problem_type`."
        )
    if data_collator.num_labels not in (None, num_labels):
        raise UserError(
            f"The collator's `num_labels` is {data_collator.num_labels}, but the model's is {num_labels}. Give both "
            "the same number."
        )
    data_collator.num_labels = num_labels


# ---- Models of transformers


def match_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Checks that the model has an embedding for every token, and completes each from the other.

    The configuration gets the id of padding; the tokenizer's maximum length is limited to the model's positions.
    """
    check_embeddings(model, tokenizer)
    config = model.config.get_text_config()
    config.pad_token_id = tokenizer.pad_token_id  # decoders score the last token before it
    longest = limit_of_tokens(model, tokenizer)
    if longest is not None:
        tokenizer.model_max_length = longest


def check_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses a tokenizer with more tokens than the model has embeddings for, where it has a table of them."""
    num_tokens = num_embeddings(model)
    if 0 < num_tokens < len(tokenizer):
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, but the model has embeddings for {num_tokens}. Open the "
            "tokenizer saved with the model, or call `model.resize_token_embeddings(len(tokenizer))` and save it."
        )


def num_embeddings(model: PreTrainedModel) -> int:
    """Tokens that have an embedding of their own; 0 without a table of them."""
    try:
        table = model.get_input_embeddings()
    except NotImplementedError:  # of models without a table, such as CANINE, which hashes characters
        return 0
    weight = getattr(table, "weight", None)  # a class of embeddings may have none
    return 0 if weight is None else whole_shape(weight)[0]


def check_collator_of_classifier(model: PreTrainedModel, data_collator: TraversalCollator) -> None:
    """Checks that a model and a TraversalCollator fit together, and completes each from the other."""
    config = model.config
    if data_collator.is_of_gpt1:
        raise UserError(
            "The collator makes sequences of GPT-1, with control tokens, but the model is a "
            f"{type(model).__name__}. Make the collator with the model's own tokenizer."
        )
    if has_choices(data_collator.traversal):
        can_score = reads_choices(model) or config.num_labels == 1  # one score of a pair
    else:
        can_score = not reads_choices(model)
    if not can_score:
        raise UserError(
            f"The collator makes {data_collator.traversal!r} batches, which {type(model).__name__} cannot score. Open "
            "the model with AutoModelForSequenceClassification; for multiple_choice with AutoModelForMultipleChoice, "
            "or, where a family has none, with AutoModelForSequenceClassification and `num_labels=1`."
        )
    check_length_of_collator(data_collator, limit_of_tokens(model))
    for name in ("traversal", "columns", "both_orders"):
        setattr(config, name, getattr(data_collator, name))
    if not has_choices(data_collator.traversal):
        check_labels(data_collator, is_regression(config), config.num_labels)


def check_padding(model: PreTrainedModel, data_collator: TraversalCollator) -> None:
    """Refuses scores that depend on the padding of a batch, and so on its other rows: of a text beside a longer one.

    BERT scores its first token and XLNet its last column, so each reads padding on the wrong side. Some models mix all
    columns without a mask, as FNet does, on either side.

    Raises:
        ValueError: the scores differ; or the model cannot score the texts, as BART and T5 without an end-of-text
            token.
    """
    device = next(model.parameters()).device
    tokenizer = data_collator.tokenizer
    if device.type == "meta" or (data_collator.pad_to_multiple_of or 1) >= data_collator.max_length:
        return
    word = any_word(tokenizer)
    side = tokenizer.padding_side
    other_side = "left" if side == "right" else "right"
    scores = TaskScores(model)
    short, long = [torch.tensor(tokenizer(" ".join([word] * number))["input_ids"]) for number in (1, 12)]
    pad = partial(pad_sequence, batch_first=True, padding_side=side)

    def first_scores(texts: list[torch.Tensor]) -> torch.Tensor:
        ids = pad(texts, padding_value=tokenizer.pad_token_id).to(device)
        mask = pad([torch.ones_like(text) for text in texts]).to(device)
        if scores.reads_choices:
            ids, mask = ids[:, None], mask[:, None]
        return scores(input_ids=ids, attention_mask=mask)["logits"][0].float()

    try:
        with unchanged(model):
            alone = first_scores([short])
            beside = first_scores([short, long])
    except ValueError as error:
        raise UserError(
            f"{type(model).__name__} cannot score what {type(tokenizer).__name__} writes: {str(error).rstrip('.')}. "
            "If the model scores a text at its end-of-text token, let the tokenizer write that behind each text and "
            "pad with another `pad_token`, and save it."
        ) from error
    difference = (alone - beside).abs().max().item()
    if not difference <= rounding_of(model) * max(1.0, alone.abs().max().item()):  # NaN is no rounding, either
        raise UserError(
            f"The batches are padded on the {side}, where the scores of {type(model).__name__} depend on the padding, "
            "and so on the rows beside. Set the tokenizer's `padding_side` to "
            f'"{other_side}" and save it, or pad all batches to one length, with '
            f"`pad_to_multiple_of={data_collator.max_length}`."
        )

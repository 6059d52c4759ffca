"""Checks, before any work is done, that model, collator, data and arguments fit together."""

import math

import torch
from transformers import PreTrainedModel, TrainingArguments

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..hub.model_kinds import is_of_gpt1


def check_is_language_model(model: PreTrainedModel) -> None:
    """
    Raises:
        ValueError: the model is not one that GPT1PretrainingTrainer trains and measures.
    """
    name = type(model).__name__
    if not is_of_gpt1(model):
        fault, remedy = f"{name} is of another family", "Pass it to FamilyPretrainingTrainer"
    elif hasattr(model, "task_head"):
        fault, remedy = f"{name} has a task head", "Pass it to GPT1Trainer, or open the checkpoint with {}ForCausalLM"
    elif not hasattr(model, "lm_head"):
        fault, remedy = f"{name} has no language-model head", "Open the checkpoint with {}ForCausalLM"
    else:
        return
    raise ValueError(
        f"GPT1PretrainingTrainer pre-trains GPT1ForCausalLM and GPT1LSTMForCausalLM, but {fault}. "
        f"{remedy.format(family_of(model))}."
    )


def check_lm_head(model: PreTrainedModel, lm_coef: float | None) -> None:
    """
    Raises:
        ValueError: the auxiliary objective is asked of a model that has no language-model head.
    """
    if lm_coef and not hasattr(model, "lm_head"):
        raise ValueError(
            f"`lm_coef` is {lm_coef}, but {type(model).__name__} has no language-model head beside the task's. Open "
            f"the checkpoint with {family_of(model)}DoubleHeadsModel, or leave `lm_coef` out."
        )


def family_of(model: PreTrainedModel) -> str:
    """What the names of a model's classes begin with: GPT1 or GPT1LSTM."""
    return "GPT1LSTM" if isinstance(model.config, GPT1LSTMConfig) else "GPT1"


def check_prompts(model: torch.nn.Module, data_collator) -> None:
    """
    Raises:
        ValueError: an adapter of PEFT puts virtual tokens before the sequences of a TraversalCollator.
    """
    adapter = getattr(model, "active_peft_config", None)
    if getattr(adapter, "is_prompt_learning", False) and getattr(data_collator, "traversal", None) is not None:
        raise ValueError(
            f"The adapter puts virtual tokens before each sequence ({adapter.peft_type.value}), but the collator's "
            "`mc_token_ids` do not count them, so the task head would read other tokens. Use LoRA or another adapter "
            "that leaves the sequences as they are."
        )


def check_collator(config: GPT1Config, data_collator) -> None:
    """Checks that the model and a TraversalCollator fit together, and tells the collator the model's number of labels.

    Raises:
        ValueError: traversal, kind or number of labels differ, or sequences are longer than the model's positions.
    """
    if getattr(data_collator, "traversal", None) is None:
        return
    if data_collator.traversal != config.traversal:
        raise ValueError(
            f"The collator makes {data_collator.traversal!r} batches, but the model scores {config.traversal!r}. Give "
            "both the same `traversal`."
        )
    if not getattr(data_collator, "is_of_gpt1", True):
        raise ValueError(
            "The collator's tokenizer has no control tokens, so its sequences have the form of another family. Call "
            "`tokenization.add_control_tokens(tokenizer, model)` before making the collator."
        )
    check_length(data_collator, config.max_position_embeddings, " (`max_position_embeddings`)")
    if config.traversal != "multiple_choice":
        check_labels(data_collator, config.is_regression, config.num_labels)


def check_length(data_collator, num_positions: int | None, source: str = "") -> None:
    """Checks that a model has positions for the longest sequences of a TraversalCollator; None is no limit.

    Raises:
        ValueError: it has too few.
    """
    multiple = data_collator.pad_to_multiple_of or 1
    longest = math.ceil(data_collator.max_length / multiple) * multiple
    if num_positions is not None and longest > num_positions:
        raise ValueError(
            f"The collator makes sequences of up to {longest} tokens (`max_length`, `pad_to_multiple_of`), but the "
            f"model has positions for {num_positions}{source}. Pass a smaller `max_length`."
        )


def check_labels(data_collator, is_regression: bool, num_labels: int) -> None:
    """Checks the kind and number of labels, and tells a TraversalCollator the model's number.

    Raises:
        ValueError: they differ.
    """
    if data_collator.regression != is_regression:
        kinds = {True: "numbers (regression)", False: "classes"}
        raise ValueError(
            f"The collator's labels are {kinds[data_collator.regression]}, but the model predicts "
            f"{kinds[is_regression]}. Pass the collator `regression={is_regression}`, or the model "
            "`num_labels` and `problem_type`."
        )
    if data_collator.num_labels not in (None, num_labels):
        raise ValueError(
            f"The collator's `num_labels` is {data_collator.num_labels}, but the model's is {num_labels}. Give "
            "both the same number."
        )
    data_collator.num_labels = num_labels


def check_rebalanced(num_rows: int, args: TrainingArguments) -> None:
    """Checks that `batch_rebalance` uses each row once. transformers repeats rows in the last update of an epoch if it
    has fewer rows than micro-batches.

    Raises:
        ValueError: rows would be repeated.
    """
    num_batches = args.gradient_accumulation_steps * max(args.world_size, 1)
    left = num_rows % (args.train_batch_size * num_batches)
    if 0 < left < num_batches and not args.dataloader_drop_last:
        raise ValueError(
            f"`train_sampling_strategy` is 'batch_rebalance', and {num_rows} rows leave {left} for the last update of "
            f"a pass, fewer than its {num_batches} micro-batches (processes × `gradient_accumulation_steps`): some "
            "rows would be trained twice. Choose another strategy, such as 'group_by_length', or another batch size."
        )

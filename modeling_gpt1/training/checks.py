"""Checks, before any work is done, that model, collator, data and arguments fit together."""

import math

from transformers import TrainingArguments

from ..configuration_gpt1 import GPT1Config


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
            f"model has positions for {num_positions}{source}. Pass the collator a smaller `max_length`."
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
            "rows would be trained twice. Pass `dataloader_drop_last=True` to leave them out, or choose another "
            "strategy, such as 'group_by_length'."
        )

"""Whether model, tokenizer and collator belong together, before any work is done."""

import math

from ..configuration_gpt1 import GPT1Config


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

"""What the model card says of another family's classifier, in place of what it says of GPT-1."""

from typing import Any

from transformers import PreTrainedConfig

# Endings of the names of transformers' classifiers.
HEADS = ("ForSequenceClassification", "ForMultipleChoice")


def is_of_gpt1(model) -> bool:
    """Whether the model is this package's own, not a classifier of another family."""
    return model.config.model_type.startswith("gpt1")


def is_regression(config: PreTrainedConfig) -> bool:
    """Whether labels are numbers, not classes: as `problem_type` says, or by default if `num_labels` is 1."""
    if config.problem_type is not None:
        return config.problem_type == "regression"
    return config.num_labels == 1 and getattr(config, "traversal", None) != "multiple_choice"


def sequences_of(data_collator) -> dict[str, Any]:
    """The form of an example and the number of tokens, by the card's names; nothing of a collator that is not ours."""
    if not hasattr(data_collator, "describe"):
        return {}
    return {"traversal": data_collator.describe(), "longest": data_collator.max_length}

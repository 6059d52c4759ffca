"""What kind of model it is, of this package or of another family, as the model card and the trainers ask."""

from transformers import PreTrainedConfig

# Endings of the names of transformers' classifiers.
HEADS = ("ForSequenceClassification", "ForMultipleChoice")


def is_of_gpt1(model) -> bool:
    """Whether the model is this package's own, not a classifier of another family."""
    return model.config.model_type.startswith("gpt1")


def without_adapter(model):
    """The model inside a PEFT adapter, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_task_model(model) -> bool:
    """Whether the model has a task head."""
    return hasattr(model, "task_head") or type(model).__name__.endswith(HEADS)


def is_regression(config: PreTrainedConfig) -> bool:
    """Whether labels are numbers, not classes: as `problem_type` says, or by default if `num_labels` is 1."""
    if config.problem_type is not None:
        return config.problem_type == "regression"
    return config.num_labels == 1 and getattr(config, "traversal", None) != "multiple_choice"

"""What kind of model it is, of this package or of another family, as the model card and the trainers ask."""

from pathlib import Path

from .. import NOVELS

# Endings of the names of transformers' classifiers.
HEADS = ("ForSequenceClassification", "ForMultipleChoice")


def packaged(model: str | None) -> str | None:
    """The folder of the model that comes with the package, for its short name; a folder here of that name wins."""
    return NOVELS if model == Path(NOVELS).name and not Path(model).exists() else model


def is_of_gpt1(model) -> bool:
    """Whether the model is this package's own, not a classifier of another family."""
    return any(kind.__name__ == "GPT1BaseConfig" for kind in type(model.config).__mro__)  # also by a folder's code


def without_adapter(model):
    """The model inside a PEFT adapter, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def is_task_model(model) -> bool:
    """Whether the model has a task head."""
    return hasattr(model, "task_head") or type(model).__name__.endswith(HEADS)

"""Lets a model answer a question about itself before its use."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel


@contextmanager
def unchanged(model: PreTrainedModel) -> Iterator[None]:
    """The model answers without dropout and gradients. Afterwards it is as it was, and so are the random numbers.

    Some models change when they are called: BigBird replaces its attention for good when it reads a short batch.
    """
    parts = list(model.modules())
    modes = [(module, module.training) for module in parts]
    parts += {id(part.config): part.config for part in parts if hasattr(part, "config")}.values()
    dicts = [vars(part) for part in parts]
    dicts += [value for attributes in dicts for value in attributes.values() if isinstance(value, dict)]
    before = [(content, content.copy()) for content in dicts]  # a hook's handle, for one, holds its dict itself
    versions = _versions(model)
    device = next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        is_same = _versions(model) == versions  # RWKV scales its weights in place, and notes it in an attribute
        for content, copy in before if is_same else ():
            content.clear()
            content.update(copy)
        for module, was_training in modes:
            module.training = was_training


def _versions(model: PreTrainedModel) -> list[int]:
    return [weight._version for weight in model.parameters() if not weight.is_inference()]

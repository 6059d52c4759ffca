"""What a model says about itself before its use: how much it reads, and answers without a trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

NO_LIMIT = 10**6  # tokenizers without a limit name a far higher number


def longest_sequence(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> int | None:
    """How many tokens a model can read at once, as its positions and the tokenizer say; None without a limit."""
    limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None) or 0]
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if name.rpartition(".")[2] == "position_embeddings" and weight is not None:
            first = getattr(module, "padding_idx", None)  # RoBERTa's positions begin after that of padding
            limits.append(len(weight) - (0 if first is None else first + 1))
    if tokenizer is not None:
        limits.append(tokenizer.model_max_length)
    return min((limit for limit in limits if 0 < limit < NO_LIMIT), default=None)


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """The model answers without dropout and gradients; then its mode and the random numbers are as they were."""
    was_training, device = model.training, next(model.parameters()).device
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        model.train(was_training)

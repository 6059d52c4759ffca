"""What any model shows: its size, how long a text it reads, how much it rounds; calls that leave it as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..kernels_gpt1 import is_quantized

NO_LIMIT = 10**6  # tokenizers without a limit name a far higher number


def limit_of_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None = None) -> int | None:
    """How many tokens a model can read at once, as its positions and the tokenizer say; None without a limit."""
    limits = [getattr(model.config.get_text_config(), "max_position_embeddings", None) or 0]
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if name.rpartition(".")[2] == "position_embeddings" and weight is not None:
            first = getattr(module, "padding_idx", None)  # RoBERTa's positions begin after that of padding
            limits.append(whole_shape(weight)[0] - (0 if first is None else first + 1))
    if tokenizer is not None:
        limits.append(tokenizer.model_max_length)
    return min((limit for limit in limits if 0 < limit < NO_LIMIT), default=None)


def num_parameters(model: PreTrainedModel, only_trainable: bool = False, exclude_embeddings: bool = False) -> int:
    """As transformers' method, but also for weights that DeepSpeed's ZeRO-3 has cut, so that they are empty here."""
    if not any(hasattr(weight, "ds_shape") for weight in model.parameters()):
        return model.num_parameters(only_trainable=only_trainable, exclude_embeddings=exclude_embeddings)
    embeddings = [module.weight for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    left_out = {id(weight) for weight in embeddings} if exclude_embeddings else set()
    return sum(
        whole_shape(weight).numel()
        for weight in model.parameters()
        if id(weight) not in left_out and (weight.requires_grad or not only_trainable)
    )


def whole_shape(weight: torch.Tensor) -> torch.Size:
    """The shape of a weight, which DeepSpeed's ZeRO-3 notes where it cuts it over the processes."""
    return getattr(weight, "ds_shape", weight.shape)


def rounding_of(model: PreTrainedModel) -> float:
    """Differences of scores up to this, as a part of the largest, are rounding.

    An accelerator may multiply in fewer bits than the weights have, and by another kernel for another batch. So do
    quantised layers: those of LLM.int8 choose the columns that they multiply in 16 bits by all rows of the batch.
    """
    has_full_precision = model.dtype in (torch.float32, torch.float64) and not is_quantized(model.config)
    return 1e-3 if has_full_precision and model.device.type == "cpu" else 5e-2


@contextmanager
def unchanged(model: PreTrainedModel) -> Iterator[None]:
    """The model answers without dropout and gradients. Afterwards it is as it was, and so are the random numbers.

    Some models change when they are called: BigBird replaces its attention for good when it reads a short batch.
    """
    modules = list(model.modules())
    modes = [(module, module.training) for module in modules]
    configs = {id(module.config): module.config for module in modules if hasattr(module, "config")}
    dicts = [vars(part) for part in (*modules, *configs.values())]
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
        if is_same:
            for content, saved in before:
                for key in content.keys() - saved.keys():
                    del content[key]
                content.update(saved)  # never empty: another thread may run the model, too
        for module, was_training in modes:
            module.training = was_training


def _versions(model: PreTrainedModel) -> list[int]:
    return [weight._version for weight in model.parameters() if not weight.is_inference()]

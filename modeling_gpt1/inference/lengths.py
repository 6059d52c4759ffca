"""How many tokens a model reads at once."""

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

"""What the trainers measure: perplexity, tokens per second, FLOP utilisation; and a run's expected perplexity."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from transformers import PreTrainedModel

from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..families.probing import whole_shape

# Held-out perplexity of small models by tokens read, from docs/results/settings.md.
MEASURED = {0.75e6: 246, 3.0e6: 132, 15.0e6: 66, 59.9e6: 49}
MOST_EPOCHS = 3.25  # of these runs
LEAST_VOCABULARY = 4_000  # perplexities of smaller ones do not compare
# Learning rates of fine-tuning by parameters beside the embeddings: two of docs/results/paper.md, and the paper's own.
FINETUNING_RATES = {3.2e6: 1e-3, 25.2e6: 5e-4, 85.1e6: 6.25e-5}
# How long products of matrices are timed.
SECONDS_OF_PRODUCTS = 0.3


def perplexity(loss: float) -> float:
    """e to the mean −log P per token; infinity where that overflows."""
    return torch.tensor(loss, dtype=torch.float64).exp().item()


class Throughput:
    """Counts tokens per second of training time, without pauses, since the last log."""

    def __init__(self) -> None:
        # Time and tokens seen at the last log; None before the first update.
        self.window: tuple[float, int] | None = None

    def start(self, num_tokens: int) -> None:
        self.window = (time.perf_counter(), num_tokens)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent within; of nested pauses, the outermost counts."""
        began = time.perf_counter()
        window = self.window
        try:
            yield
        finally:
            if window is not None:
                start, num_tokens = window
                window = (start + time.perf_counter() - began, num_tokens)
            self.window = window

    def tokens_per_second(self, num_tokens: int) -> float:
        """Rate since the last call; `num_tokens` is the total since the start of the run."""
        now = time.perf_counter()
        start, num_before = self.window
        self.window = (now, num_tokens)
        return (num_tokens - num_before) / (now - start)


def training_flops_per_token(model: PreTrainedModel) -> float:
    """Floating-point operations per token of forward and backward, at sequences of full length.

    6 per weight of a matrix product (2 forward, 4 backward), including the language-model head, plus 12 · D · T per
    layer for the attention scores and sums (Chowdhery et al. 2022, "PaLM", appendix B). In a banded layer T is the
    width of the band. An LSTM has no attention.
    """
    config = model.config
    matrices = 0
    for name, module in model.named_modules():
        if name.endswith(("tokens_embed", "positions_embed")):  # the tied head counts under its own name
            continue
        shapes = [whole_shape(weight) for weight in module.parameters(recurse=False)]
        matrices += sum(shape.numel() for shape in shapes if len(shape) == 2)
    if isinstance(config, GPT1LSTMConfig):
        return 6 * matrices
    length = config.max_position_embeddings
    windows = [config.window_of_layer(layer) or length for layer in range(config.num_hidden_layers)]
    return 6 * matrices + 12 * config.hidden_size * sum(min(window, length) for window in windows)


@cache
def measure_peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a product of square matrices; the best of the rounds that fit."""
    size = 1024 if device.type == "cpu" else 8192
    # No random numbers: drawing them would change the dropout of the run, also after a resume.
    matrix = torch.full((size, size), 0.5, device=device, dtype=dtype)
    best = float("inf")
    end = time.perf_counter() + SECONDS_OF_PRODUCTS
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        (matrix @ matrix)[0, 0].item()  # waits for the device
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def proposed_rate(num_parameters: int) -> float:
    """The learning rate to fine-tune a GPT-1 of so many parameters beside its embeddings, between those measured."""
    sizes, rates = np.log(list(FINETUNING_RATES)), np.log(list(FINETUNING_RATES.values()))
    return float(np.exp(np.interp(np.log(num_parameters), sizes, rates)))


def describe_expectation(num_tokens: int | None, num_read: float) -> str:
    """The perplexity to expect of a run that reads so many tokens, by the runs of docs/results/settings.md."""
    if num_tokens is not None:
        num_read = min(num_read, MOST_EPOCHS * num_tokens)  # more epochs were not measured
    most = max(MEASURED)
    expected = np.exp(np.interp(np.log(num_read), np.log(list(MEASURED)), np.log(list(MEASURED.values()))))
    if num_read < min(MEASURED):
        about = "above"
    elif num_read <= most:
        about = "about"
    else:
        about = "below"
    page = "docs/results/settings.md"
    line = f"expected perplexity: {about} {expected:.0f} after {num_read / 1e6:,.2f} M tokens ({page})"
    if num_read < most / 2:
        line += f"; text that reads well needs {most / num_read:,.0f} times the tokens"
    return line

"""Means of the loss components since the last log, the objective of a search, and perplexity."""

from collections.abc import Callable, Sequence

import torch


class RunningLosses:
    """Sums of `[task_loss, lm_loss]` over the micro-batches of this process since the last log."""

    def __init__(self) -> None:
        self.sums: torch.Tensor | None = None
        self.since = 0  # global step of the last log

    def restart(self, step: int, sums: torch.Tensor | None = None) -> None:
        """Continues from `sums`, accumulated since the update `step`, or from zero."""
        self.sums, self.since = sums, step

    def add(self, task_loss: torch.Tensor, lm_loss: torch.Tensor | None, num_parts: int = 1) -> None:
        """Adds the losses of a micro-batch, of all its replicas if there are several, over `num_parts`."""
        task_loss = task_loss.detach().float().sum()
        lm_loss = torch.zeros_like(task_loss) if lm_loss is None else lm_loss.detach().float().sum()
        losses = torch.stack([task_loss, lm_loss]) / num_parts
        self.sums = losses if self.sums is None else self.sums + losses

    def means(self, step: int, reduce: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
        """Means per update up to `step`, combined over all processes by `reduce`; then restarts."""
        means = reduce(self.sums) / max(step - self.since, 1)
        self.restart(step)
        return means.tolist()


def weighted_means(example_losses: torch.Tensor) -> list[float]:
    """The mean of each loss over a data set, from `[examples, losses + 1]`; the last column is the weights."""
    losses, weights = example_losses[:, :-1], example_losses[:, -1:]
    return ((losses * weights).sum(0) / weights.sum().clamp(min=1)).tolist()


# What the trainers write into an evaluation: losses and figures of them, and transformers' times.
_NO_METRIC = (
    *("loss", "task_loss", "lm_loss", "mlm_loss", "sentence_loss", "denoising_loss", "perplexity"),
    *("sentence_accuracy", "runtime", "samples_per_second", "steps_per_second", "model_preparation_time"),
)


def objective_of(evaluation: dict[str, float], data_sets: Sequence[str] = (), needs_metrics: bool = False) -> float:
    """Sum of an evaluation's metrics, or its loss if there are none; summed over several data sets.

    Raises:
        ValueError: there are no metrics, but they are needed.
    """
    prefixes = tuple(f"eval_{data_set}_" for data_set in data_sets) or ("eval_",)
    written = {prefix + name for prefix in prefixes for name in _NO_METRIC}
    # The epoch and the number of tokens have no prefix.
    metrics = [value for name, value in evaluation.items() if name.startswith(prefixes) and name not in written]
    if needs_metrics and not metrics:
        raise ValueError(
            "The search maximises the sum of the metrics, but `compute_metrics` returned none: the evaluation has "
            f"{', '.join(evaluation)}. Return metrics of other names, or pass `direction`, and `compute_objective` if "
            "the loss is not the objective."
        )
    return sum(metrics or [evaluation[f"{prefix}loss"] for prefix in prefixes])


def perplexity(loss: float) -> float:
    """e to the mean −log P per token; infinity where that overflows."""
    return torch.tensor(loss, dtype=torch.float64).exp().item()

"""Means of the loss components since the last log, the objective of a search, and perplexity."""

from collections.abc import Callable

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


# Suffixes of evaluation entries that are not the user's metrics.
_NO_METRIC = ("_loss", "_perplexity", "_sentence_accuracy", "_runtime", "_per_second", "_time")


def objective_of(evaluation: dict[str, float]) -> float:
    """Sum of an evaluation's metrics, or its loss if there are none; summed over several data sets."""
    evaluation = {name: value for name, value in evaluation.items() if name.startswith("eval_")}  # no epoch, no tokens
    metrics = [value for name, value in evaluation.items() if not name.endswith(_NO_METRIC)]
    parts = ("_task_loss", "_lm_loss", "_mlm_loss", "_sentence_loss", "_denoising_loss")
    losses = [value for name, value in evaluation.items() if name.endswith("_loss") and not name.endswith(parts)]
    return sum(metrics or losses)


def perplexity(loss: float) -> float:
    """e to the mean −log P per token; infinity where that overflows."""
    return torch.tensor(loss, dtype=torch.float64).exp().item()

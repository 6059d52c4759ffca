"""What the trainers measure: means of losses, and tokens per second."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


class RunningLosses:
    """Sums of `[task_loss, lm_loss]` over the micro-batches of this process since the last log."""

    def __init__(self) -> None:
        self.sums: torch.Tensor | None = None
        self.since = 0  # global step of the last log

    def restart(self, step: int, sums: torch.Tensor | None = None) -> None:
        """Continues from `sums`, accumulated since the update `step`, or from zero."""
        self.sums, self.since = sums, step

    def add(self, task_loss: torch.Tensor, lm_loss: torch.Tensor | None) -> None:
        """Adds the losses of a micro-batch."""
        task_loss = task_loss.detach().float()
        losses = torch.stack([task_loss, torch.zeros_like(task_loss) if lm_loss is None else lm_loss.detach().float()])
        self.sums = losses if self.sums is None else self.sums + losses

    def means(self, step: int, reduce: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
        """Means per update up to `step`, combined over all processes by `reduce`; then restarts."""
        means = reduce(self.sums) / max(step - self.since, 1)
        self.restart(step)
        return means.tolist()


def perplexity(loss: float) -> float:
    """e to the mean −log P per token; infinity where that overflows."""
    return torch.tensor(loss, dtype=torch.float64).exp().item()


class Throughput:
    """Counts tokens per second of training time, without pauses, since the last log."""

    def __init__(self) -> None:
        self._window: tuple[float, int] | None = None  # time and tokens seen at the last log
        self._num_pauses = 0

    @property
    def is_running(self) -> bool:
        return self._window is not None

    def start(self, num_tokens: int) -> None:
        self._window = time.perf_counter(), num_tokens

    def stop(self) -> None:
        self._window = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent within; nested pauses count once."""
        start, self._num_pauses = time.perf_counter(), self._num_pauses + 1
        try:
            yield
        finally:
            self._num_pauses -= 1
            if self._window is not None and self._num_pauses == 0:
                self._window = self._window[0] + time.perf_counter() - start, self._window[1]

    def tokens_per_second(self, num_tokens: int) -> float:
        """Rate since the last call; `num_tokens` is the total since the start of the run."""
        now = time.perf_counter()
        (start, num_before), self._window = self._window, (now, num_tokens)
        return (num_tokens - num_before) / (now - start)

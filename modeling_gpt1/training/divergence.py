"""Divergence: a run with numbers that are not finite stops with a clear error, and its weights are not saved.

The checks add no wait for the device: losses and gradient norms are checked when they are logged, weights when they
are written.
"""

import math

import torch
from torch.distributed.tensor import DTensor

from .checkpoint import newest_whole_checkpoint


class DivergenceError(FloatingPointError):
    """A loss, a gradient norm or a weight is not finite."""


def check_logs(trainer, logs: dict[str, float], last_step: int, run_dir: str) -> None:
    """Checks that the logged values are finite.

    Args:
        trainer ([`transformers.Trainer`]): the trainer of the run.
        logs (`dict[str, float]`): logged values of all processes.
        last_step (`int`): step of the previous log, which was finite.
        run_dir (`str`): folder with the run's checkpoints.

    Raises:
        DivergenceError: the loss or the gradient norm is not finite.
    """
    names = ["loss", "train_loss"]
    if not trainer.accelerator.optimizer_step_was_skipped:  # as when the fp16 scaler searches for its scale
        names.append("grad_norm")
    found = [f"`{name}` is {logs[name]}" for name in names if not math.isfinite(logs.get(name, 0.0))]
    if found:
        where = f"after update {trainer.state.global_step} (the log before, of update {last_step}, was finite)"
        raise DivergenceError(f"{' and '.join(found)} {where}. {advice(run_dir)}")


def advice(run_dir: str) -> str:
    checkpoint = newest_whole_checkpoint(run_dir)
    last = (
        "There is no checkpoint to resume from"
        if checkpoint is None
        else f"The last complete checkpoint is {checkpoint}"
    )
    return (
        f"The run has diverged. {last}. Check the weights and the rows for errors, use a lower `learning_rate`, a "
        "longer warm-up or `bf16` instead of `fp16`, and start again. With `stop_at_divergence=False` a run "
        "continues, but writes no checkpoint whose weights are not finite."
    )


def has_finite_weights(trainer) -> bool:
    """Whether all weights are finite, in all processes. Each process checks the weights that it holds."""
    is_finite = torch.ones((), dtype=torch.bool, device=trainer.args.device)
    for weight in trainer.model.parameters():
        weight = weight.detach()
        weight = weight.to_local() if isinstance(weight, DTensor) else weight
        if weight.is_floating_point() and weight.numel() > 0 and not weight.is_meta:
            extremes = torch.stack(weight.aminmax())  # on a CPU in 1/20 of the time of `weight.isfinite()`
            is_finite &= extremes.isfinite().all().to(is_finite.device)
    return bool(trainer.accelerator.gather(is_finite.int()[None]).all())


__all__ = ["DivergenceError"]

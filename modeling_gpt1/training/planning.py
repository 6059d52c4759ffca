"""Batches leave the host with their plan, which the loader's workers make, so that no step waits for the device."""

from collections.abc import Callable
from typing import Any

from accelerate.data_loader import DataLoaderDispatcher
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, TrainingArguments

from ..plan_gpt1 import planner_of


class PlanningCollator:
    """A collator, any, whose batches carry the model's argument `plan` too.

    Args:
        collator: makes a batch of rows.
        planner: what [`planner_of`] gives for a model.
    """

    def __init__(self, collator: Callable[[list], Any], planner: Callable[[Any], Any]):
        self.collator, self.planner = collator, planner

    def __call__(self, rows: list) -> Any:
        batch = self.collator(rows)
        plan = self.planner(batch)
        if plan is not None:
            batch["plan"] = plan
        return batch


def plan_batches(loader: DataLoader, model: PreTrainedModel, args: TrainingArguments) -> None:
    """Lets a loader that accelerate has prepared plan for the model, in place.

    Batches that are cut into parts on the device, for several GPUs of one process, for other processes or by sequence,
    go without: each model would have to plan for its part. So do those of compiled models, which follow no plan.
    """
    is_cut = args.n_gpu > 1 or isinstance(loader, DataLoaderDispatcher)
    is_cut = is_cut or getattr(getattr(args, "parallelism_config", None), "sp_size", 1) > 1
    planner = None if is_cut or args.torch_compile else planner_of(model)
    if planner is not None and hasattr(loader, "base_dataloader"):
        loader.base_dataloader.collate_fn = PlanningCollator(loader.collate_fn, planner)

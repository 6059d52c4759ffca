"""Batch planning in the DataLoader's workers: each batch carries its plan, so no step waits for the device."""

from collections.abc import Callable
from typing import Any

from accelerate.data_loader import DataLoaderDispatcher
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, TrainingArguments

from ..plan_gpt1 import planner_of


class PlanningCollator:
    """Wraps any collator and adds the model's argument `plan` to its batches.

    Args:
        collator: makes a batch of rows.
        planner: the function that [`planner_of`] returns for a model.
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
    """Adds batch planning for a model to a loader that accelerate has prepared, in place.

    There is no planning for batches that are split on the device (several GPUs in one process, other processes,
    sequence parallelism), as each model would need a plan for its part; or for compiled models, which follow no plan.
    """
    is_cut = args.n_gpu > 1 or isinstance(loader, DataLoaderDispatcher)
    is_cut = is_cut or getattr(getattr(args, "parallelism_config", None), "sp_size", 1) > 1
    planner = None if is_cut or args.torch_compile else planner_of(model)
    if planner is not None and hasattr(loader, "base_dataloader"):
        loader.base_dataloader.collate_fn = PlanningCollator(loader.collate_fn, planner)

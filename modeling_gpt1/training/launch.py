"""Launching several processes: refuses those that would train separately, and ends all of them together."""

import dataclasses
import os

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel, Trainer, TrainingArguments

from tokenization.errors import UserError


def check_launch(args: TrainingArguments) -> None:
    """Checks that the launched processes train together.

    accelerate and torch give no warning if they do not: each process would train its own model on all rows, and all
    of them would write to one folder.
    """
    if args.world_size > 1:
        return
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched > 1:
        raise UserError(
            f"{launched} processes were launched, but each would train alone. Pass `use_cpu=True` where there is no "
            "accelerator for each of them."
        )
    # `accelerate launch` leaves these variables in the environment of its only process if several were requested on
    # one machine. The address of another machine may come from a cluster's own settings.
    asked_for_several = "ACCELERATE_USE_CPU" in os.environ and os.environ.get("MASTER_ADDR") == "127.0.0.1"
    if asked_for_several and "WORLD_SIZE" not in os.environ:
        raise UserError(
            "`accelerate launch` was given several processes, but started only one, as it does with --cpu. Use "
            "`torchrun --nproc_per_node N` and pass `use_cpu=True`, or launch with --num_processes 1."
        )


def set_up_fsdp(accelerator: Accelerator, model: PreTrainedModel) -> None:
    """Keeps losses and sums of gradients in float32 where accelerate's FSDP2 would round them to half precision."""
    if not accelerator.is_fsdp2:
        return
    plugin, config = accelerator.state.fsdp_plugin, model.config
    # Other families have other names for their dropouts.
    if plugin.activation_checkpointing and (getattr(config, "resid_pdrop", 0.1) or getattr(config, "attn_pdrop", 0)):
        raise UserError(
            "The launch configuration sets `fsdp_activation_checkpointing`, which computes activations again with "
            "other dropout masks, so the gradients would be wrong. Set it to false and pass "
            "`gradient_checkpointing=True`, or set the model's dropout to 0."
        )
    policy = plugin.mixed_precision_policy
    if policy is not None:
        plugin.mixed_precision_policy = dataclasses.replace(policy, reduce_dtype=torch.float32, output_dtype=None)


def end_processes(trainer: Trainer) -> None:
    """Waits for all processes and closes their process group. Call it last in a script that a launcher may start.

    Without this call a process can abort at exit: gloo's threads free tensors after the interpreter has ended. The
    wrapped model is freed first: closing a group that DistributedDataParallel still holds can hang.
    """
    trainer.accelerator.wait_for_everyone()
    trainer.model_wrapped = trainer.model
    trainer.accelerator.free_memory()
    trainer.accelerator.end_training()

"""Prints what a bug report needs: versions, platform, devices, installed extras.

    gpt1 env
    gpt1 env --check out/books

Names of users, folders and tokens are not part of it. With --check, compares the files of a run's checkpoints with the
checksums of their `checkpoint.json`, which takes about a second for each gigabyte, and exits with 1 if one is damaged.
"""

import os
import platform
import sys
from dataclasses import dataclass

import torch
from transformers.hf_argparser import HfArg

from ..hub.card import version_of
from ..inference.devices import accelerator_name, default_device
from .arguments import parser_of

PACKAGES = (
    "gpt1-hf",
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "datasets",
    "evaluate",
    "huggingface-hub",
    "safetensors",
    "numpy",
    "matplotlib",
    "ftfy",
    "lm_eval",
    "peft",
    "gradio",
    "scipy",
    "deepspeed",
    "bitsandbytes",
    "flash-attn",
    "kernels",
    "tensorboard",
)


@dataclass
class EnvironmentArguments:
    """What is printed."""

    check: str | None = HfArg(
        default=None,
        help="Folder of a run whose checkpoints are compared with their checksums; reads about 1 GB in a second. "
        "Default: report the environment.",
    )


ARGUMENTS = (EnvironmentArguments,)
DAMAGED = 1  # exit code


def main(arguments: list[str]) -> None:
    (args,) = parser_of("env").read(arguments)
    if args.check is None:
        report_environment()
    else:
        check_checkpoints(args.check)


def check_checkpoints(folder: str) -> None:
    """Prints a line for each checkpoint. Exits with status 1 if one is damaged."""
    from ..training.checkpoint import faults_of_checkpoints, has_checksums  # a report needs no trainer

    faults = faults_of_checkpoints(folder)
    for checkpoint, fault in faults.items():
        if fault is not None:
            state = f"damaged: {fault}"
        elif has_checksums(checkpoint):
            state = "as it was written"
        else:
            state = "of the sizes that were written; it has no checksums"
        print(f"{checkpoint}: {state}")
    if any(faults.values()):
        sys.exit(DAMAGED)


def report_environment() -> None:
    print(f"- system: {platform.system()} {platform.release()} {platform.machine()}")
    print(f"- Python: {platform.python_version()}")
    print(f"- devices: {describe_devices()}")
    print(f"- threads: {torch.get_num_threads()} of {os.cpu_count()} cores; CUDA of torch: {torch.version.cuda}")
    for name in PACKAGES:
        print(f"- {name}: {version_of(name) or 'not installed'}")


def describe_devices() -> str:
    device = default_device()
    if device.type == "cpu":
        return device.type
    return f"{torch.accelerator.device_count()} × {device.type} ({accelerator_name()})"

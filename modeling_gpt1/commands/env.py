"""Prints what a bug report needs: versions, platform, devices, installed extras.

    gpt1 env

Names of users, folders and tokens are not part of it.
"""

import os
import platform
from importlib.metadata import distributions

import torch

from ..inference.devices import accelerator_name, default_device
from .arguments import parser_of

ARGUMENTS = ()
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


def main(arguments: list[str]) -> None:
    parser_of("env").read(arguments)
    print(f"- system: {platform.system()} {platform.release()} {platform.machine()}")
    print(f"- Python: {platform.python_version()}")
    print(f"- devices: {describe_devices()}")
    print(f"- threads: {torch.get_num_threads()} of {os.cpu_count()} cores; CUDA of torch: {torch.version.cuda}")
    # Of two on the path, the first is imported.
    installed = {as_name(found.name): found.version for found in reversed([*distributions()])}
    for name in PACKAGES:
        print(f"- {name}: {installed.get(as_name(name), 'not installed')}")


def describe_devices() -> str:
    device = default_device()
    if device.type == "cpu":
        return device.type
    return f"{torch.accelerator.device_count()} × {device.type} ({accelerator_name()})"


def as_name(text: str) -> str:
    """The name of a distribution in its one normal spelling."""
    return text.lower().replace("_", "-")

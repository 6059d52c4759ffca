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

PACKAGES = "gpt1-hf torch transformers tokenizers accelerate datasets evaluate huggingface-hub safetensors numpy"
PACKAGES += " matplotlib ftfy lm_eval peft gradio scipy deepspeed bitsandbytes flash-attn kernels tensorboard"


def main(arguments: list[str]) -> None:
    parser_of("env").read(arguments)
    device = default_device()
    count = "" if device.type == "cpu" else f"{torch.accelerator.device_count()} × "
    print(f"- system: {platform.system()} {platform.release()} {platform.machine()}")
    print(f"- Python: {platform.python_version()}")
    print(f"- devices: {count}{device.type} ({accelerator_name()})" if count else f"- devices: {device.type}")
    print(f"- threads: {torch.get_num_threads()} of {os.cpu_count()} cores; CUDA of torch: {torch.version.cuda}")
    # Of two on the path, the first is imported.
    installed = {found.name.lower().replace("_", "-"): found.version for found in reversed([*distributions()])}
    for name in PACKAGES.split():
        print(f"- {name}: {installed.get(name.replace('_', '-'), 'not installed')}")

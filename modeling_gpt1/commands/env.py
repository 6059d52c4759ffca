"""Prints what a bug report needs: versions, platform, devices, attention kernels, installed extras.

    gpt1 env

Names of users, folders and tokens are not part of it.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch
from transformers.utils import is_flash_attn_2_available

from ..inference.devices import accelerator_name, default_device
from .arguments import parser_of

PACKAGES = "gpt1-hf torch transformers tokenizers accelerate datasets evaluate huggingface-hub safetensors numpy"
EXTRAS = "matplotlib ftfy lm_eval peft gradio scipy deepspeed bitsandbytes flash-attn kernels tensorboard"
# The values of these variables do not identify the user.
VARIABLES = "CUDA_VISIBLE_DEVICES HF_HUB_OFFLINE OMP_NUM_THREADS RANK TOKENIZERS_PARALLELISM WORLD_SIZE"


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def facts() -> dict[str, str]:
    device, names = default_device(), ["eager", "sdpa", "flex_attention"]
    names += ["flash_attention_2"] if is_flash_attn_2_available() else []
    count = "" if device.type == "cpu" else f"{torch.accelerator.device_count()} × "
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES.split()},
        "devices": f"{count}{device.type} ({accelerator_name()})" if count else device.type,
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "CUDA of torch": torch.version.cuda or "none",
        "attention": ", ".join(names),
        **{name: version_of(name) for name in EXTRAS.split()},
        **{name: os.environ[name] for name in VARIABLES.split() if name in os.environ},
    }


def main(arguments: list[str]) -> None:
    parser_of("env").read(arguments)
    for name, value in facts().items():
        print(f"- {name}: {value}")

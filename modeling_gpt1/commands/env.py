"""Prints what a bug report needs: versions, platform, devices, attention kernels, installed extras.

    gpt1 env

Names of users, folders and tokens are not part of it.
"""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch
from transformers.utils import is_flash_attn_2_available

from ..inference.devices import accelerator_name, default_device
from .arguments import CommandParser

PACKAGES = (
    "gpt1-hf torch transformers tokenizers accelerate datasets evaluate huggingface-hub safetensors numpy filelock"
)
EXTRAS = "matplotlib gradio ftfy peft deepspeed bitsandbytes flash-attn kernels tensorboard"
# The values of these variables do not identify the user.
VARIABLES = "CUDA_VISIBLE_DEVICES HF_HUB_OFFLINE OMP_NUM_THREADS RANK TOKENIZERS_PARALLELISM WORLD_SIZE"


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def devices() -> str:
    device = default_device()
    if device.type == "cpu":
        return "cpu"
    return f"{torch.accelerator.device_count()} × {device.type} ({accelerator_name()})"


def attention_kernels() -> str:
    """The kernels that a model can be opened with (`attn_implementation`), and those that `sdpa` chooses from."""
    sdpa = ["math"]
    if default_device().type == "cuda":
        backends = torch.backends.cuda
        enabled = {
            "flash": backends.flash_sdp_enabled(),
            "memory-efficient": backends.mem_efficient_sdp_enabled(),
            "cudnn": backends.cudnn_sdp_enabled(),
        }
        sdpa += [name for name, is_on in enabled.items() if is_on]
    names = ["eager", f"sdpa ({', '.join(sdpa)})", "flex_attention"]
    if is_flash_attn_2_available():
        names.append("flash_attention_2")
    if find_spec("kernels") is not None:
        names.append("kernels of the hub")
    return ", ".join(names)


def facts() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES.split()},
        "devices": devices(),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "CUDA of torch": torch.version.cuda or "none",
        "attention": attention_kernels(),
        **{name: version_of(name) for name in EXTRAS.split()},
        **{name: os.environ[name] for name in VARIABLES.split() if name in os.environ},
    }


def main(arguments: list[str]) -> None:
    CommandParser("env").read(arguments)
    for name, value in facts().items():
        print(f"- {name}: {value}")

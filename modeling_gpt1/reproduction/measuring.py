"""Runs a module as `python -m MODULE ARGUMENTS` does, and writes the peak memory of its process to a file.

python -m modeling_gpt1.reproduction.measuring memory.json modeling_gpt1.commands finetune …
"""

import json
import runpy
import sys
from pathlib import Path

import torch

from ..inference.devices import default_device


def peak_memory() -> dict[str, int | None]:
    """Most bytes that this process has held: `host`, and `device` on all accelerators, None where that is unknown."""
    device = default_device()
    module = None if device.type == "cpu" else torch.get_device_module(device)
    known = hasattr(module, "max_memory_reserved")
    reserved = sum(map(module.max_memory_reserved, range(module.device_count()))) if known else None
    return {"host": peak_host_memory(), "device": reserved}


def peak_host_memory() -> int | None:
    path = Path("/proc/self/status")  # `resource.getrusage` would begin with the peak of the process that started this
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def main(words: list[str]) -> None:
    path, module, *sys.argv[1:] = words
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        Path(path).write_text(json.dumps(peak_memory()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

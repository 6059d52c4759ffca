"""Starts the processes of a multi-process test and shows what they printed when something goes wrong."""

import faulthandler
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from packaging import version

ROOT = Path(__file__).resolve().parent.parent
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2")
# Port 0: a free one, as tests run beside each other.
ACCELERATE = (
    *("accelerate.commands.launch", "--main_process_port", "0"),
    *("--config_file", str(ROOT / "modeling_gpt1" / "commands" / "accelerate" / "ddp.yaml")),
)
# Trainer of 5.17 takes no models opened with a DistributedConfig, and several of its processes on the CPU cannot read
# an optimizer's state; that of 5.23 does both.
IS_AFTER_5_17 = version.parse(transformers.__version__) >= version.parse("5.18")
TIMEOUT = 600  # seconds; a launch takes about 15, and some machines are slow and busy


def launch(
    launcher: tuple[str, ...], script: Path | str, *arguments: str | Path, **environment: str
) -> tuple[int, str]:
    """Exit code of the launcher, and what it and its processes printed."""
    command = [sys.executable, *(("-m", *launcher) if launcher else ()), str(script), *map(str, arguments)]
    inherited = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "MASTER_ADDR")}
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **environment}
    process = subprocess.Popen(
        command,
        env={**inherited, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        pytest.fail(f"{' '.join(command)} did not end within {TIMEOUT} s. Its output ends:\n{output[-10000:]}")
    return process.returncode, output


def launch_well(*args, **kwargs) -> str:
    """The output of a launch that must succeed."""
    code, output = launch(*args, **kwargs)
    assert code == 0, output[-10000:]
    return output


def show_where_it_hangs() -> None:
    """Called by a script: should it hang, every thread prints its stack and the process ends before the test does."""
    faulthandler.dump_traceback_later(TIMEOUT - 60, exit=True)

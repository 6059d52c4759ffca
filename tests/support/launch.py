"""Starts the processes of a multi-process test and shows what they printed when something goes wrong."""

import faulthandler
import multiprocessing.connection
import os
import runpy
import sys
import tempfile
import time
import traceback
import uuid
from functools import partial
from pathlib import Path
from unittest import mock

import torch
import transformers
from packaging import version
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

ROOT = Path(__file__).resolve().parents[2]
# Port 0: a free one, as tests run beside each other.
ACCELERATE = (
    *("accelerate.commands.launch", "--main_process_port", "0"),
    *("--config_file", str(ROOT / "modeling_gpt1" / "commands" / "accelerate" / "ddp.yaml")),
)
# Trainer of 5.17 takes no models opened with a DistributedConfig, and several of its processes on the CPU cannot read
# an optimizer's state; that of 5.23 does both.
IS_AFTER_5_17 = version.parse(transformers.__version__) >= version.parse("5.18")


def python_path(*folders: Path) -> str:
    """For a new interpreter: these folders before those that this one was given, where its packages may lie."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


# Several processes cannot share a machine's one GPU as they would share several.
ON_THE_CPU = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
SETTINGS = {**ON_THE_CPU, "PYTHONPATH": python_path(ROOT, ROOT / "tests")}
TIMEOUT = 600  # seconds; a launch takes about 15, and some machines are slow and busy


def run_together(num_processes: int, program: Path | str, *arguments: str | Path, **environment: str) -> str:
    """The output of processes that train together and must succeed; see `fork_together`."""
    codes, output = fork_together(num_processes, program, *arguments, **environment)
    assert codes == [0] * num_processes, output[-10000:]
    return output


def fork_together(
    num_processes: int, program: Path | str, *arguments: str | Path, **environment: str
) -> tuple[list[int], str]:
    """Exit codes and output of processes that run a script, or a module by its name, as `torchrun` starts several.

    They are forked from a server that has imported torch, transformers and the package: the imports of fresh
    interpreters take longer than most tests. If one fails, the others are ended.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["modeling_gpt1.training.trainer"])
    settings = dict(SETTINGS)
    ranks = [{}]
    if num_processes > 1:
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        settings |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
        settings |= {"WORLD_SIZE": str(num_processes), "TORCHELASTIC_USE_AGENT_STORE": "True"}
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(num_processes)]
    settings |= environment
    words = [str(program), *map(str, arguments)]
    with tempfile.NamedTemporaryFile() as output, mock.patch.dict(os.environ, settings):
        processes = [
            context.Process(target=_become, args=(dict(os.environ, **of_rank), words, output.name))
            for of_rank in ranks
        ]
        for process in processes:
            process.start()
        end = time.monotonic() + TIMEOUT
        while any(process.exitcode is None for process in processes):
            if time.monotonic() > end or any(process.exitcode for process in processes):
                for process in processes:
                    process.join(5)  # one may be about to say what happened to another
                    process.kill()
            multiprocessing.connection.wait([process.sentinel for process in processes], timeout=1)
            for process in processes:
                process.join(0)
        return [process.exitcode for process in processes], Path(output.name).read_text(encoding="utf-8")


def restart_together(num_processes: int, program: Path | str, *arguments: str | Path, **environment: str) -> str:
    """The output of processes that torchrun's agent starts, and starts again once if one of them fails."""
    config = LaunchConfig(
        *(1, 1, num_processes),
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # as `--standalone`
        max_restarts=1,
        monitor_interval=0.1,
        start_method="forkserver",
        signals_to_handle="",  # those of the tests stay
    )
    words = [str(program), *map(str, arguments)]
    with tempfile.NamedTemporaryFile() as output, mock.patch.dict(os.environ, SETTINGS | environment):
        elastic_launch(config, _become_as_told)(dict(os.environ), words, output.name)
        return Path(output.name).read_text(encoding="utf-8")


def _become_as_told(environment: dict[str, str], words: list[str], output: str) -> None:
    """Where the agent has set the variables of this process."""
    try:
        _become({**environment, **os.environ}, words, output)
    except Exception:
        traceback.print_exc()  # of which the agent shows a part
        raise


def _become(environment: dict[str, str], words: list[str], output: str) -> None:
    """Runs a program in this process, which is new, with its output at the end of a file."""
    os.environ.clear()
    os.environ.update(environment)
    multiprocessing.set_start_method("fork", force=True)  # the server's own way would import all for each worker
    stream = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    sys.argv[:] = words
    run = runpy.run_path if words[0].endswith(".py") else partial(runpy.run_module, alter_sys=True)
    run(words[0], run_name="__main__")


def show_where_it_hangs() -> None:
    """Called by a script: should it hang, every thread prints its stack and the process ends before the test does."""
    faulthandler.dump_traceback_later(TIMEOUT - 60, exit=True)

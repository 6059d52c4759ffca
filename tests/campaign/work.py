"""One case in a process: its environment, its seed, and what is told of it."""

import atexit
import contextlib
import importlib
import os
import random
import re
import tempfile
import time
import traceback
from pathlib import Path

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
    "HF_HUB_ETAG_TIMEOUT": "2",
    "HF_HUB_DOWNLOAD_TIMEOUT": "2",
    "HF_TOKEN": "hf_write",
    "HF_HUB_OFFLINE": "0",  # the hub is a stand-in
}


def set_up(folder: str) -> None:
    """Before anything else is imported: the environment, and a stand-in for the hub."""
    from hub.stand_in import serve

    served = contextlib.ExitStack()
    hub = served.enter_context(serve())
    atexit.register(served.close)
    os.environ.update(ENVIRONMENT, HF_ENDPOINT=hub.url, HF_HOME=str(Path(folder, "home")), TMPDIR=folder)
    tempfile.tempdir = None
    import datasets
    import torch
    import transformers

    importlib.import_module("campaign.answers").HUB = hub
    torch.set_num_threads(1)
    datasets.disable_progress_bars()
    transformers.logging.disable_progress_bar()


def run_case(kind: str, seed: int, folder: str) -> str:
    """Runs a case and gives its name."""
    import torch

    cases = importlib.import_module(f"campaign.{kind}").CASES
    generator = random.Random(f"{kind} {seed}")
    torch.manual_seed(seed)
    case = generator.choices(list(cases), list(cases.values()))[0]
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{kind}-{seed}-") as own:
        try:
            case(generator, Path(own))
        except BaseException as error:
            error.case = case.__name__
            raise
    return case.__name__


def short(error: BaseException, folder: str) -> dict:
    """Message and last places of an error, without the folders of this machine."""
    where = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    message = re.sub(re.escape(folder) + r"[\w./-]*", "FOLDER", f"{type(error).__name__}: {error}")
    return {"case": getattr(error, "case", ""), "message": message[:600], "where": where[-4:]}


def work(connection, folder: str) -> None:
    """A process that runs the cases it is sent."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    set_up(folder)
    connection.send("ready")
    for kind, seed in iter(connection.recv, None):
        start = time.monotonic()
        try:
            outcome = {"case": run_case(kind, seed, folder)}
        except BaseException as error:
            outcome = short(error, folder)
        connection.send({"seconds": time.monotonic() - start, **outcome})

"""Runs of several processes on the CPU: FSDP2, streams of files, processes that die or hang, and restarts by torchrun.

    python benchmarks/processes.py                 # everything, about ten minutes
    python benchmarks/processes.py --only streams  # one of the checks
    python benchmarks/processes.py --save          # also benchmarks/results/<date>-processes.json

- `fsdp`: accelerate's FSDP2, as `fsdp2.yaml` sets it, beside one process. accelerate shards only on accelerators, so
  it takes processes on the CPU for such here. Largest relative difference of losses and gradient norms, largest
  difference of weights. The negative control is accelerate's own activation checkpointing, which draws other dropout
  masks.
- `streams`: three processes with two workers each read 1, 2, 5 and 7 files once. How often each row was trained on.
- `ends`: a process is killed (SIGKILL), sleeps for ever ("stuck") or is stopped (SIGSTOP). Seconds until the whole job
  has ended, and whether the launcher named a killed process. On two "machines" each process has a launcher of its own;
  a launcher there goes on while its own process hangs.
- `restart`: a process is killed, and `torchrun --max-restarts 1` starts the job again. Difference from an undisturbed
  run.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import datasets
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from harness import machine, save_result
from safetensors.torch import load_file
from transformers import TrainerCallback

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from modeling_gpt1.training.launch import end_processes

FSDP = Path(__file__).parent.parent / "modeling_gpt1" / "commands" / "accelerate" / "fsdp2.yaml"
TORCHRUN = ["-m", "torch.distributed.run"]
ROWS_PER_UPDATE, NUM_ROWS, LENGTH, TIMEOUT = 12, 40, 12, 20
RECOMPUTED = {"gradient_checkpointing": True}
CASES = {
    "float32": {},
    "odd vocabulary": {},
    "bfloat16": {"bf16": True},
    "accumulated": {"gradient_accumulation_steps": 2},
    "accumulated, synchronised each time": {
        "gradient_accumulation_steps": 2,
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}},
    },
    "dropout": {},
    "dropout, recomputed": RECOMPUTED,
    "dropout, recomputed by accelerate": {},
}
ENDS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


# ---- A process


class RecordingTrainer(GPT1PretrainingTrainer):
    """Remembers the first token of each row that counts."""

    def __init__(self, *args, **kwargs):
        self.seen: list[int] = []
        super().__init__(*args, **kwargs)

    def training_step(self, model, inputs, *args, **kwargs):
        counts = (inputs["labels"] != -100).any(1)
        self.seen += inputs["input_ids"][counts, 0].tolist()
        return super().training_step(model, inputs, *args, **kwargs)


class EndProcess(TrainerCallback):
    """Ends one process after the third update, in the launcher's first start."""

    def __init__(self, how: str, process: int, folder: Path):
        self.how, self.process, self.folder = how, process, folder

    def on_step_end(self, args, state, control, **kwargs):
        is_first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
        if is_first and args.process_index == self.process and state.global_step == 3:
            (self.folder / "ended").touch()
            ENDS.get(self.how, lambda: time.sleep(10_000))()


class EndAfterPass(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_training_stop = True


def make_row(index: int) -> dict[str, list[int]]:
    ids = [index] + [NUM_ROWS + (7 * index + 3 * place) % 16 for place in range(3 + index % (LENGTH - 3))]
    return {"input_ids": ids}


def generate_rows(files: list[range]):
    for file in files:
        yield from map(make_row, file)


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    labels = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-100)
    return {"input_ids": labels.clamp(min=0), "attention_mask": (labels != -100).long(), "labels": labels}


def make_trainer(case: str, folder: Path, num_files: int | None = None, **others) -> RecordingTrainer:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": LENGTH}
    dropout = {f"{place}_pdrop": 0.1 * ("dropout" in case) for place in ("embd", "resid", "attn")}
    vocab_size = NUM_ROWS + 16 + ("odd" in case)
    model = GPT1ForCausalLM(
        GPT1Config(vocab_size=vocab_size, initializer_range=0.1, pad_token_id=0, **size, **dropout)
    )
    arguments = {
        "max_steps": 6,
        "learning_rate": 0.01,
        "adam_epsilon": 1e-3,  # else Adam blows up rounding errors of gradients that are zero in exact arithmetic
        "warmup_steps": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
        **CASES.get(case, {}),
        **others,
    }
    accumulation = arguments.get("gradient_accumulation_steps", 1)
    arguments["per_device_train_batch_size"] = ROWS_PER_UPDATE // int(os.environ.get("WORLD_SIZE", 1)) // accumulation
    rows = datasets.Dataset.from_list([make_row(index) for index in range(NUM_ROWS)])
    if num_files is not None:
        ends = [NUM_ROWS * number**2 // num_files**2 for number in range(num_files + 1)]
        files = [range(*pair) for pair in zip(ends, ends[1:], strict=False)]
        rows = datasets.IterableDataset.from_generator(generate_rows, gen_kwargs={"files": files})
    made = GPT1PretrainingArguments(str(folder), **arguments)
    trainer = RecordingTrainer(model, made, data_collator=collate, train_dataset=rows)
    if case.endswith("by accelerate"):  # after the trainer's check, which would refuse it
        trainer.accelerator.state.fsdp_plugin.activation_checkpointing = True
    return trainer


def train(trainer: RecordingTrainer, name: str, folder: Path) -> None:
    """Trains, and writes the model to `folder/name` and the record of each process beside it."""
    trainer.train(resume_from_checkpoint="auto")
    trainer.save_model()
    logs = [[log["loss"], log["grad_norm"]] for log in trainer.state.log_history if "loss" in log]
    record = {"logs": logs, "seen": trainer.seen}
    (folder / f"{name}-{trainer.args.process_index}.json").write_text(json.dumps(record))


def run(check: str, folder: Path, how: str, process: int) -> None:
    """One process of several."""
    if check == "fsdp":
        os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        torch.distributed.init_process_group("gloo")
        PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
        for case in CASES:
            trainer = make_trainer(case, folder / case)
            train(trainer, case, folder)
    elif check == "streams":
        for num_files in (1, 2, 5, 7):
            name = f"{num_files} files"
            trainer = make_trainer(name, folder / name, num_files=num_files, dataloader_num_workers=2, max_steps=100)
            trainer.add_callback(EndAfterPass())
            train(trainer, name, folder)
    else:
        trainer = make_trainer(check, folder / check, ddp_timeout=TIMEOUT, save_strategy="steps", save_steps=2)
        trainer.add_callback(EndProcess(how, process, folder))
        train(trainer, check, folder)
    end_processes(trainer)


# ---- The launches


def command(launcher: list[str], check: str, folder: Path, how: str = "", process: int = -1) -> list[str]:
    ending = ["--how", how, "--process", str(process)] if how else []
    return [sys.executable, *launcher, __file__, "--worker", check, "--folder", str(folder), *ending]


def finish(launched: list[str], **environment: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(launched, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish_well(launched: list[str], **environment: str) -> None:
    done = finish(launched, **environment)
    if done.returncode != 0:
        raise RuntimeError(f"The launch failed:\n{done.stdout[-6000:]}")


def differences(folder: Path, other: Path, case: str, other_case: str) -> dict[str, float]:
    logs = [torch.tensor(record(path, name)["logs"]) for path, name in ((folder, case), (other, other_case))]
    files = [load_file(path / name / "model.safetensors") for path, name in ((folder, case), (other, other_case))]
    weights = max((weight - files[1][name]).abs().max().item() for name, weight in files[0].items())
    return {"logs, relative": ((logs[0] - logs[1]) / logs[1]).abs().max().item(), "weights": weights}


def record(folder: Path, name: str, process: int = 0) -> dict:
    return json.loads((folder / f"{name}-{process}.json").read_text())


def check_fsdp(folder: Path) -> list[dict]:
    one, rows = folder / "one", []
    for case in CASES:
        if "recomputed" not in case:
            (one / case).mkdir(parents=True)
            train(make_trainer(case, one / case), case, one)
    for num_processes in (2, 3):
        own = folder / f"fsdp-{num_processes}"
        own.mkdir()
        launcher = ["-m", "accelerate.commands.launch", "--config_file", str(FSDP), "--main_process_port", "0"]
        launcher += ["--num_processes", str(num_processes), "--mixed_precision", "no"]
        finish_well(command(launcher, "fsdp", own))
        for case in CASES:
            if case == "dropout":
                continue
            peer = (own, "dropout") if "dropout" in case else (one, case)
            about = "the same without it" if "dropout" in case else "one process"
            found = differences(own, peer[0], case, peer[1])
            rows.append({"case": case, "processes": num_processes, "beside": about, **found})
    return rows


def check_streams(folder: Path) -> list[dict]:
    finish_well(command([*TORCHRUN, "--standalone", "--nproc_per_node", "3"], "streams", folder))
    rows = []
    for num_files in (1, 2, 5, 7):
        seen = [record(folder, f"{num_files} files", process)["seen"] for process in range(3)]
        counts = torch.bincount(torch.tensor(sum(seen, [])), minlength=NUM_ROWS)
        rows.append({"files": num_files, "least": counts.min().item(), "most": counts.max().item(), "seen": seen})
    return rows


def check_ends(folder: Path) -> list[dict]:
    rows = []
    for how, process, num_machines in (
        *(("killed", process, machines) for process in (0, 1) for machines in (1, 2)),
        *((how, process, 1) for how in ("stuck", "stopped") for process in (0, 1)),
    ):
        own = folder / f"{how}-{process}-{num_machines}"
        own.mkdir()
        if num_machines == 1:
            launchers = [[*TORCHRUN, "--standalone", "--nproc_per_node", "2"]]
        else:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                place = ["--master_addr", "127.0.0.1", "--master_port", str(free.getsockname()[1])]
            launchers = [[*TORCHRUN, "--nnodes", "2", "--node_rank", str(rank), *place] for rank in range(2)]
        outputs = [(own / f"output-{number}").open("w") for number in range(len(launchers))]
        jobs = [
            subprocess.Popen(command(launcher, "ends", own, how, process), stdout=output, stderr=output)
            for launcher, output in zip(launchers, outputs, strict=True)
        ]
        codes = [job.wait() for job in jobs]
        seconds = time.time() - (own / "ended").stat().st_mtime
        text = "".join(Path(output.name).read_text() for output in outputs)
        is_named = f"exitcode: -9) local_rank: {process if num_machines == 1 else 0} " in text
        about = {"process": process, "how": how, "machines": num_machines}
        rows.append({**about, "ended": all(codes), "named": is_named, "seconds": round(seconds, 1)})
        print(rows[-1], flush=True)
    return rows


def check_restart(folder: Path) -> list[dict]:
    launcher = [*TORCHRUN, "--standalone", "--nproc_per_node", "2"]
    whole, killed = folder / "whole", folder / "killed"
    for path in (whole, killed):
        path.mkdir()
    finish_well(command(launcher, "restart", whole))
    restarting = [*launcher, "--max-restarts", "1"]
    finish_well(command(restarting, "restart", killed, "killed", 1), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    return [{"was killed": (killed / "ended").exists(), **differences(killed, whole, "restart", "restart")}]


CHECKS = {"restart": check_restart, "fsdp": check_fsdp, "streams": check_streams, "ends": check_ends}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="checks (default: all)")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/<date>-processes.json")
    parser.add_argument("--worker", choices=CHECKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--how", default="", help=argparse.SUPPRESS)
    parser.add_argument("--process", type=int, default=-1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        run(arguments.worker, arguments.folder, arguments.how, arguments.process)
        return
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only:
            Path(folder, name).mkdir()
            results[name] = CHECKS[name](Path(folder, name))
            for row in results[name]:
                print(name, {key: value for key, value in row.items() if key != "seen"}, flush=True)
    if arguments.save:
        save_result("processes", {**machine(), "ddp_timeout": TIMEOUT}, results)


if __name__ == "__main__":
    main()

"""Kills training runs with SIGKILL at random moments, resumes them, and compares the results bit by bit.

    python benchmarks/kill_and_resume.py                          # 4 kills of each run, some ten minutes
    python benchmarks/kill_and_resume.py --kills 2 --runs stream  # a quick look
    python benchmarks/kill_and_resume.py --save                   # also benchmarks/results/<date>-kill-and-resume.json

Each run trains a tiny model in its own process (one run in two processes, by torchrun), first without interruption,
then repeatedly with kills. Every other kill hits an update drawn uniformly from the whole run; the rest hit the run
while it writes a checkpoint. A killed run is started again with `resume_from_checkpoint="auto"`. A run is killed at
most `MOST_KILLS_OF_A_RUN` times, then it may end.

The following must equal the uninterrupted run bit by bit: the saved model; weights, optimizer, scheduler and random
state of the last checkpoint; every record of the log except times and throughput; tokens seen, training loss and the
name of the best checkpoint. Two negative controls must differ: a resume that forgets the losses since the last log, as
transformers' Trainer does, and one that does not skip the rows already seen. Any other outcome ends with exit code 1.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import datasets
import numpy as np
import psutil
import torch
from harness import machine, save_result
from safetensors.torch import load_file
from transformers import TrainerCallback

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Trainer,
    GPT1TrainingArguments,
)
from modeling_gpt1.training.checkpoint import INCOMPLETE_DIR, newest_whole_checkpoint
from modeling_gpt1.training.launch import end_processes

VOCABULARY, LENGTH, NUM_ROWS = 60, 16, 50
STEPS = {"logging_steps": 4, "save_steps": 3, "eval_strategy": "steps", "eval_steps": 6}
EPOCHS = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True, "save_total_limit": 1}
RUNS = {
    # An epoch has 17 batches in 6 updates of up to 3, so every epoch ends with a smaller update.
    "shuffled": {"max_steps": 40, "gradient_accumulation_steps": 3, "eval_on_start": True, **STEPS},
    "workers": {"num_train_epochs": 5, "dataloader_num_workers": 2, "bf16": True, "logging_steps": 5, **EPOCHS},
    # A pass has 13 batches in updates of 2, so one batch is left over.
    "stream": {"max_steps": 40, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, **STEPS},
    "fine-tuning": {"max_steps": 40, "train_sampling_strategy": "group_by_length", "save_total_limit": 2, **STEPS},
    "two processes": {"max_steps": 24, "gradient_accumulation_steps": 2, **STEPS},
}
LAUNCHERS = {"two processes": ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]}
CONTROLS = ("forgets the losses since the last log", "does not skip the rows seen")
MOST_KILLS_OF_A_RUN = 4
UPDATE = "update {} begins"


# ---- The run that is killed


def make_rows(num_rows: int, seed: int) -> list[dict]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, LENGTH + 1, (num_rows,), generator=generator).tolist()
    rows = [torch.randint(1, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]
    return [{"input_ids": row, "label": row[0] % 2} for row in rows]


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


def collate_examples(rows: list[dict]) -> dict[str, torch.Tensor]:
    return {**collate(rows), "labels": torch.tensor([row["label"] for row in rows])}


class SayUpdates(TrainerCallback):
    """Prints each update, so that the killing process knows how far this one is."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            print(UPDATE.format(state.global_step + 1), flush=True)


class ForgetLosses(TrainerCallback):
    """Discards the losses that this package's trainers restored. Runs after their callbacks."""

    def __init__(self, trainer):
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.trainer._tr_loss.zero_()
        self.trainer._globalstep_last_logged = state.global_step


def make_trainer(name: str, output_dir: str, control: str | None) -> GPT1Trainer | GPT1PretrainingTrainer:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": LENGTH}
    config = GPT1Config(vocab_size=VOCABULARY, traversal="classification", num_labels=2, **size)
    arguments = {
        "per_device_train_batch_size": 3,
        "warmup_steps": 3,
        "learning_rate": 1e-2,
        "remove_unused_columns": False,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
        "ignore_data_skip": control == "does not skip the rows seen",
        **RUNS[name],
    }
    data: list | datasets.IterableDataset = make_rows(NUM_ROWS, seed=1)
    if name == "stream":
        data = datasets.Dataset.from_list(data).to_iterable_dataset(num_shards=2).shuffle(seed=3, buffer_size=10)
    settings = {"train_dataset": data, "eval_dataset": make_rows(9, seed=2), "callbacks": [SayUpdates()]}
    if name == "fine-tuning":
        model = GPT1DoubleHeadsModel(config)
        made = GPT1TrainingArguments(output_dir, **arguments)
        return GPT1Trainer(model, made, data_collator=collate_examples, **settings)
    model = GPT1ForCausalLM(config)
    made = GPT1PretrainingArguments(output_dir, **arguments)
    return GPT1PretrainingTrainer(model, made, data_collator=collate, **settings)


def train(name: str, output_dir: str, control: str | None) -> None:
    """Runs the whole training in this process, unless it is killed."""
    trainer = make_trainer(name, output_dir, control)
    if control == "forgets the losses since the last log":
        trainer.add_callback(ForgetLosses(trainer))
    result = trainer.train(resume_from_checkpoint="auto")
    trainer.save_model()
    state = trainer.state
    if trainer.is_world_process_zero():
        facts = {
            "global_step": state.global_step,
            "training_loss": result.training_loss,
            "tokens_seen": state.num_input_tokens_seen,
            "total_flos": state.total_flos,
            "best_metric": state.best_metric,
            "best_checkpoint": os.path.basename(state.best_model_checkpoint or ""),
            "log_history": state.log_history,
        }
        Path(output_dir, "facts.json").write_text(json.dumps(facts))
    end_processes(trainer)


# ---- Killing


class Life:
    """A run's process, or its group of processes, from its start until it ends or is killed."""

    def __init__(self, name: str, folder: Path, control: str | None = None):
        self.folder = folder
        self.messages = Path(f"{folder}-messages.txt")
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, *LAUNCHERS.get(name, []), __file__, "--train", name, "--output_dir", str(folder)]
        command += ["--control", control] if control else []
        with self.messages.open("w") as messages:
            self.process = subprocess.Popen(command, stdout=messages, stderr=messages)

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def finish(self) -> None:
        if self.process.wait() != 0:
            raise RuntimeError(f"The run failed:\n{self.messages.read_text()[-4000:]}")

    def kill_at(self, update: int, seconds: float) -> bool:
        """Kills the run `seconds` after the update begins, or a later update if the run resumes after this one."""
        while self.is_alive and self.update() < update:
            time.sleep(0.002)
        time.sleep(seconds)
        return self.kill()

    def update(self) -> int:
        """The last update that began since this start. 0 before the first."""
        said = re.findall(UPDATE.format(r"(\d+)"), self.messages.read_text())
        return int(said[-1]) if said else 0

    def kill_while_writing(self, nth: int, seconds: float) -> bool:
        """Kills the run `seconds` after it begins to write the `nth` checkpoint from now."""
        seen: set[str] = set()
        while self.is_alive:
            if self.update() > 0:
                seen |= staged(self.folder)
            if len(seen) == nth:
                time.sleep(seconds)
                return self.kill()
            time.sleep(0.0005)
        return self.kill()

    def kill(self) -> bool:
        """Kills the run. Returns whether the kill came before the run's end."""
        if self.is_alive:
            launched = psutil.Process(self.process.pid)  # and its children: data loader workers or launched processes
            family = [launched, *launched.children(recursive=True)]
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family[1:])
        return self.process.wait() != 0


def staged(folder: Path) -> set[str]:
    try:
        return {name for name in os.listdir(folder / INCOMPLETE_DIR) if not name.startswith("deleted-")}
    except FileNotFoundError:
        return set()


# ---- Comparing


def without_times(record: dict) -> dict:
    return {key: value for key, value in record.items() if not key.endswith(("_runtime", "_per_second", "mfu"))}


def differences(folder: Path, expected: Path) -> list[str]:
    """Names of everything that differs in any bit."""
    facts, expected_facts = (json.loads((path / "facts.json").read_text()) for path in (folder, expected))
    for these in (facts, expected_facts):
        these["log_history"] = [without_times(record) for record in these["log_history"]]
    names = [name for name in expected_facts if not same(facts[name], expected_facts[name])]
    last, expected_last = (Path(newest_whole_checkpoint(path) or path) for path in (folder, expected))
    if last.name != expected_last.name:
        return [*names, "last checkpoint"]
    for one, other in ((folder, expected), (last, expected_last)):
        if not same(*(load_file(path / "model.safetensors") for path in (one, other))):
            names.append("model")
    for path in sorted(expected_last.glob("*.pt*")):
        if not same(*(torch.load(one, weights_only=False) for one in (last / path.name, path))):
            names.append(path.name)
    return names


def same(one, other) -> bool:
    """Whether two nested values are equal bit by bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    return bool(np.all(one == other))


def measure(name: str, num_kills: int, folder: Path, generator: random.Random) -> dict:
    whole = folder / "whole"
    life = Life(name, whole)
    life.finish()
    num_updates = life.update()
    print(f"{name}: {num_updates} updates", flush=True)
    kills, different, number = [], [], 0
    while len(kills) < num_kills:
        number += 1
        run = folder / f"killed-{number}"
        for _ in range(min(MOST_KILLS_OF_A_RUN, num_kills - len(kills))):
            life = Life(name, run)
            in_writing = len(kills) % 2 == 1
            if in_writing:
                was_killed = life.kill_while_writing(generator.randint(1, 4), generator.uniform(0, 0.05))
            else:
                was_killed = life.kill_at(generator.randint(1, num_updates), generator.uniform(0, 0.1))
            if not was_killed:
                break
            kills.append({"update": life.update(), "while_writing": bool(staged(run))})
            print(f"  kill {len(kills)}: {kills[-1]}", flush=True)
        else:
            Life(name, run).finish()
        found = differences(run, whole)
        different += found
        print(f"  run {number}: {', '.join(found) or 'equal to the bit'}", flush=True)
    writing = sum(kill["while_writing"] for kill in kills)
    return {"run": name, "updates": num_updates, "kills": kills, "while_writing": writing, "differences": different}


def measure_control(control: str, whole: Path, run: Path) -> dict:
    """Kills a run just after a checkpoint in the middle of a logging window. The control must differ."""
    if not whole.exists():
        Life("shuffled", whole).finish()
    life = Life("shuffled", run)
    while newest_whole_checkpoint(run) is None:
        time.sleep(0.0005)
    life.kill()
    Life("shuffled", run, control).finish()
    different = differences(run, whole)
    print(f"control that {control}: {', '.join(different) or 'EQUAL, so the comparison proves nothing'}", flush=True)
    return {"control": control, "differences": different}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=4, help="kills of each run (default: 4)")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS), help="runs to kill (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments of the kills (default: 0)")
    parser.add_argument("--save", action="store_true", help="write the outcome to benchmarks/results/<date>-….json")
    parser.add_argument("--train", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--output_dir", help=argparse.SUPPRESS)
    parser.add_argument("--control", choices=CONTROLS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        train(arguments.train, arguments.output_dir, arguments.control)
        return
    generator = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = [measure(run, arguments.kills, folder / run.replace(" ", "-"), generator) for run in arguments.runs]
        whole = folder / "shuffled" / "whole"
        controls = [measure_control(control, whole, folder / f"control-{n}") for n, control in enumerate(CONTROLS)]
    num_kills = sum(len(result["kills"]) for result in results)
    writing = sum(result["while_writing"] for result in results)
    failed = [result["run"] for result in results if result["differences"]]
    print(f"{num_kills} kills, {writing} of them while writing; runs that differ: {', '.join(failed) or 'none'}")
    if arguments.save:
        outcome = {"kills": num_kills, "while_writing": writing, "runs": results, "controls": controls}
        save_result("kill-and-resume", machine(), outcome)
    if failed or not all(control["differences"] for control in controls):
        sys.exit(1)


if __name__ == "__main__":
    main()

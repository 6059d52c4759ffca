"""Runs that accelerate's FSDP2 cuts over two processes; also run as a script by each of them.

As a script: `accelerate launch --config_file fsdp2.yaml tests/support/fsdp.py FOLDER` trains each of `MAKERS`, and
again from the checkpoint of its second update. It writes models to `FOLDER/NAME` and `FOLDER/NAME-resumed`, and what
each process recorded beside them.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from torch.distributed.tensor import DTensor

import support.families
import support.finetuning
import support.pretraining
from modeling_gpt1.training.launch import end_processes
from support.launch import show_where_it_hangs

SAVED_UPDATE, NUM_UPDATES = 2, 4  # of which three are a pass
ADAM = {"optim": "adamw_torch", "adam_epsilon": 1e-3, "learning_rate": 0.01}
LOGGED = ("step", "loss", "task_loss", "lm_loss", "grad_norm")


def make_trainer_of_eight_rows(make: Callable, case: str, folder: str | os.PathLike, num_processes: int, **others):
    batch = (8, 1) if num_processes == 1 else (8 // num_processes // 2, 2)
    return make(case, folder, *batch, max_steps=NUM_UPDATES, **ADAM, **others)


MAKERS = {
    "pretraining": partial(support.pretraining.make_pretraining_trainer, max_steps=NUM_UPDATES),
    "fine-tuning": partial(make_trainer_of_eight_rows, support.finetuning.make_finetuning_trainer, "multiple_choice"),
    "other family": partial(make_trainer_of_eight_rows, support.families.make_family_trainer, "bert pair"),
}
BLOCKS = {"other family": "BertLayer"}  # in place of the block that fsdp2.yaml names


def record_of(trainer, checkpoint: str | None = None) -> dict:
    with support.finetuning.resumes_after(0 if checkpoint is None else SAVED_UPDATE):
        trainer.train(resume_from_checkpoint=checkpoint)
    weights = list(trainer.model.parameters())
    own = sum(weight.to_local().numel() if isinstance(weight, DTensor) else weight.numel() for weight in weights)
    logs = [{key: log[key] for key in LOGGED if key in log} for log in trainer.state.log_history if "loss" in log]
    losses = {name: value for name, value in trainer.evaluate().items() if name.endswith("loss")}
    return {"logs": logs, "losses": losses, "own part": own / sum(weight.numel() for weight in weights)}


def take_processes_for_accelerators() -> None:
    """accelerate shards only on accelerators: it takes processes on the CPU for such here."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    torch.distributed.init_process_group("gloo")
    PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)


def main(folder: str) -> None:
    show_where_it_hangs()
    take_processes_for_accelerators()
    own_block = os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"]
    for name, make in MAKERS.items():
        os.environ["FSDP_TRANSFORMER_CLS_TO_WRAP"] = BLOCKS.get(name, own_block)
        checkpoint = None
        for case in (name, f"{name}-resumed"):
            saving = {"save_strategy": "steps", "save_steps": SAVED_UPDATE}
            trainer = make(Path(folder, case), int(os.environ["WORLD_SIZE"]), **saving)
            record = record_of(trainer, checkpoint)
            trainer.save_model()
            Path(folder, f"{case}-{os.environ['RANK']}.json").write_text(json.dumps(record), encoding="utf-8")
            checkpoint = str(Path(folder, name, f"checkpoint-{SAVED_UPDATE}"))
    end_processes(trainer)


if __name__ == "__main__":
    main(*sys.argv[1:])

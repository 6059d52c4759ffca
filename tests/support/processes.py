"""Runs of every kind of task whose rows do not divide by processes, batches and accumulation; also a script.

As a script: `torchrun --nproc_per_node N tests/support/processes.py FOLDER` trains every case and writes its record to
`FOLDER/CASE.pt`; and those of runs that go on from their first update to `FOLDER/CASE-resumed.pt`.
"""

import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState

import support.decoders
import support.families
import support.finetuning
import support.pretraining
from modeling_gpt1.training.launch import end_processes
from support.launch import IS_AFTER_5_17, show_where_it_hangs

# Rows, batch of each process, accumulation and order. In 2 and 3 processes the last update of an epoch has a short
# batch, a process without a row, or a micro-batch without one.
RUNS = {
    "classification": (11, 2, 3, "sequential"),
    **dict.fromkeys(
        ("similarity", "regression", "without auxiliary", "evaluated before", "uneven batches"),
        (9, 2, 2, "sequential"),
    ),
    "entailment": (1, 4, 2, "random"),
    "multiple_choice": (9, 2, 2, "group_by_length"),
    "few choices": (2, 1, 3, "sequential"),
    "blocks": (11, 2, 3, "random"),
    "few blocks": (4, 1, 1, "sequential"),
    "few of a stream": (7, 3, 1, None),
    "three files": (support.pretraining.NUM_ROWS, 1, 1, None),  # over two workers of each process
    # An encoder, which goes the way of all others, a decoder and encoder-decoders.
    **dict.fromkeys(
        ("bert choices", "bert both orders", "gpt2 pair", "bart pair", "t5 both orders"), (19, 2, 2, "sequential")
    ),
    # Decoders with the auxiliary objective: an output matrix of its own, a soft cap, a matrix that no loss reads.
    **dict.fromkeys(
        ("llama on both losses", "gemma2 on both losses", "llama with a weight of 0"), (19, 2, 2, "sequential")
    ),
}
DECODERS = {"llama on both losses": "llama", "gemma2 on both losses": "gemma2", "llama with a weight of 0": "llama"}
OF_THREE = ("entailment", "few blocks", "few of a stream", "three files")
RUNS_OF = {2: tuple(name for name in RUNS if name not in OF_THREE), 3: OF_THREE}  # by the number of processes
CASES = {"without auxiliary": "entailment"}
CASES |= dict.fromkeys(("few choices", "evaluated before", "uneven batches"), "multiple_choice")
OWN = {"without auxiliary": {"lm_coef": 0.0}, "uneven batches": {"accelerator_config": {"even_batches": False}}}
OWN["llama with a weight of 0"] = {"lm_coef": 0.0, "gradient_checkpointing": True}
LOGGED = ("loss", "task_loss", "lm_loss", "grad_norm", "perplexity", "epoch", "learning_rate")
# Whose second update is in the same epoch or pass, and uneven. Sums of three numbers depend on their order.
RESUMED = {2: ("multiple_choice",), 3: ("few of a stream",)} if IS_AFTER_5_17 else {2: (), 3: ()}


def make_trainer_of_run(name: str, folder: str | os.PathLike, num_processes: int, **others):
    """A trainer of `num_processes`, or one process that trains on the same rows an update."""
    num_rows, batch_size, accumulation, order = RUNS[name]
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    batch_size *= num_processes // world_size
    if name in RESUMED[num_processes]:
        # Else DistributedDataParallel puts the gradients in another order after the first update of each start, and
        # a sum of more than two numbers depends on it.
        others["ddp_find_unused_parameters"] = world_size > 2
    if name in DECODERS:
        decoder = Path(folder, "decoder")
        with PartialState(cpu=True).main_process_first():
            if not decoder.exists():
                support.decoders.write_decoder(DECODERS[name], decoder)
        parts = support.decoders.prepare_decoder(decoder)
        rows = support.finetuning.Rows("classification", num_rows)
        own = OWN.get(name, {})
        return support.decoders.make_decoder_trainer(parts, folder, batch_size, accumulation, rows, **own)
    if name in support.families.CASES:
        return support.families.make_family_trainer(name, folder, batch_size, accumulation, num_rows)
    if (case := CASES.get(name, name)) in support.finetuning.CASES:
        settings = {"max_steps": -1, "num_train_epochs": 2, "train_sampling_strategy": order, **others}
        settings |= OWN.get(name, {})
        trainer = support.finetuning.make_finetuning_trainer(case, folder, batch_size, accumulation, **settings)
        trainer.train_dataset = support.finetuning.Rows(case, num_rows)
        if name == "evaluated before":
            trainer.evaluate()
        return trainer
    settings = {"max_steps": 5, "per_device_train_batch_size": batch_size, **others}
    settings["gradient_accumulation_steps"] = accumulation
    if order is not None:
        settings["train_sampling_strategy"] = order
    trainer = support.pretraining.make_pretraining_trainer(folder, 1, is_stream=order is None, optim="sgd", **settings)
    rows = trainer.train_dataset
    if name == "three files":
        trainer.args.dataloader_num_workers = 2
        return trainer
    trainer.train_dataset = rows.take(num_rows) if order is None else rows.select(range(num_rows))
    return trainer


def record_of(trainer, checkpoint: str | None = None) -> dict:
    with support.finetuning.resumes_after(0 if checkpoint is None else 1):
        trainer.train(resume_from_checkpoint=checkpoint)
    logs = [{key: log[key] for key in LOGGED if key in log} for log in trainer.state.log_history if "loss" in log]
    weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    losses = {name: value for name, value in trainer.evaluate().items() if name.endswith("loss")}
    return {"logs": logs, "weights": weights, "tokens": trainer.state.num_input_tokens_seen, "evaluation": losses}


def main(folder: str) -> None:
    show_where_it_hangs()
    num_processes = int(os.environ["WORLD_SIZE"])
    for name in RUNS_OF[num_processes]:
        saving = {"save_strategy": "steps", "save_steps": 1} if name in RESUMED[num_processes] else {}
        trainer = make_trainer_of_run(name, Path(folder, name), num_processes, **saving)
        record = record_of(trainer)
        if trainer.is_world_process_zero():
            torch.save(record, Path(folder, f"{name}.pt"))
    for name in RESUMED[num_processes]:
        trainer = make_trainer_of_run(name, Path(folder, f"{name}-resumed"), num_processes)
        record = record_of(trainer, str(Path(folder, name, "checkpoint-1")))
        if trainer.is_world_process_zero():
            torch.save(record, Path(folder, f"{name}-resumed.pt"))
    end_processes(trainer)


if __name__ == "__main__":
    main(*sys.argv[1:])

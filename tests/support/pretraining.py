"""Pre-training runs that several processes make together; also run as a script by one of them.

As a script: `torchrun --nproc_per_node 2 tests/support/pretraining.py FOLDER CASE…` trains each case on 8 rows per
update, spread over the processes, and writes what each process saw to `FOLDER/CASE-<rank>.json`, the trained model to
`FOLDER/CASE`. The cases that go on from one process read the checkpoint or model that it left in `FOLDER/one`.
"""

import json
import os
import signal
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import datasets
import torch
from transformers import TrainerCallback

from modeling_gpt1 import GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from modeling_gpt1.commands.runs import check_output_folder
from modeling_gpt1.training.checkpoint import checkpoint_to_resume
from modeling_gpt1.training.launch import end_processes
from support.finetuning import QUIET, make_small_config
from support.launch import show_where_it_hangs

NUM_ROWS, ROWS_PER_UPDATE, NUM_UPDATES, SAVED_UPDATE, LENGTH = 24, 8, 6, 2, 12
# Files of unequal length, so that processes with files of their own would not end a pass together.
FILES = [list(range(10)), list(range(10, 13)), list(range(13, NUM_ROWS))]


def make_row(index: int) -> dict[str, list[int]]:
    """A block that begins with its index; each third one is the short end of a document."""
    length = LENGTH if index % 3 else 3 + index % 5
    return {"input_ids": [index] + [NUM_ROWS + (7 * index + 3 * place) % 16 for place in range(length - 1)]}


def generate_rows(files: list[list[int]]) -> Iterator[dict[str, list[int]]]:
    for file in files:
        yield from map(make_row, file)


def make_dataset(is_stream: bool) -> datasets.Dataset | datasets.IterableDataset:
    if is_stream:
        return datasets.IterableDataset.from_generator(generate_rows, gen_kwargs={"files": FILES})
    return datasets.Dataset.from_list([make_row(index) for index in range(NUM_ROWS)])


def make_language_model() -> GPT1ForCausalLM:
    torch.manual_seed(0)
    return GPT1ForCausalLM(make_small_config(NUM_ROWS + 16, max_position_embeddings=LENGTH, pad_token_id=0))


class Collator:
    """Pads a batch and remembers which rows went into it."""

    def __init__(self):
        self.seen: list[int] = []

    def __call__(self, rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        self.seen += [row["input_ids"][0] for row in rows]
        ids, labels = (
            torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(row["input_ids"]) for row in rows], batch_first=True, padding_value=padding
            )
            for padding in (0, -100)
        )
        return {"input_ids": ids, "attention_mask": (labels != -100).long(), "labels": labels}


def make_pretraining_trainer(
    output_dir: str | os.PathLike,
    num_processes: int,
    model: GPT1ForCausalLM | None = None,
    is_stream: bool = False,
    **kwargs,
) -> GPT1PretrainingTrainer:
    """8 rows per update: at once in one process, else in two micro-batches of each process."""
    accumulation = min(num_processes, 2)
    arguments = {
        **QUIET,
        "max_steps": NUM_UPDATES,
        "per_device_train_batch_size": ROWS_PER_UPDATE // accumulation // num_processes,
        "gradient_accumulation_steps": accumulation,
        "learning_rate": 0.01,
        # Else Adam blows up rounding errors of gradients that are zero in exact arithmetic, as of the key biases.
        "adam_epsilon": 1e-3,
        **kwargs,
    }
    args = GPT1PretrainingArguments(output_dir=str(output_dir), **arguments)
    rows = {"train_dataset": make_dataset(is_stream), "eval_dataset": make_dataset(is_stream)}
    return GPT1PretrainingTrainer(
        make_language_model() if model is None else model, args, data_collator=Collator(), **rows
    )


def train_and_record(trainer: GPT1PretrainingTrainer, resume_from_checkpoint: str | None = None) -> dict:
    """The record of a run: loss and gradient norm of each update, the rows this process saw, the evaluation."""
    trainer.train(resume_from_checkpoint=resume_from_checkpoint)
    seen = trainer.data_collator.seen.copy()
    log = [{key: of[key] for key in ("step", "loss", "grad_norm")} for of in trainer.state.log_history if "loss" in of]
    return {"log": log, "seen": seen, "eval_loss": trainer.evaluate()["eval_loss"]}


def refusal_to_train_alone(folder: Path) -> str | None:
    """What the trainer says where nothing tells the processes to meet on the CPU."""
    try:
        make_pretraining_trainer(folder / "alone", 1, use_cpu=False)
    except ValueError as error:
        return str(error)
    return None


class KillLastProcess(TrainerCallback):
    """As the kernel does when memory is short, unless the launcher started the process again."""

    def on_step_end(self, args, state, control, **kwargs):
        is_last = args.process_index == args.world_size - 1 and state.global_step == SAVED_UPDATE + 1
        if is_last and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)


def run_case(case: str, folder: Path, num_processes: int) -> tuple[GPT1PretrainingTrainer, dict]:
    output = folder / case
    if case == "map":
        trainer = make_pretraining_trainer(output, num_processes, save_strategy="steps", save_steps=SAVED_UPDATE)
        return trainer, train_and_record(trainer)
    if case == "resumed":
        trainer = make_pretraining_trainer(output, num_processes)
        return trainer, train_and_record(trainer, str(folder / "one" / f"checkpoint-{SAVED_UPDATE}"))
    if case == "restarted":
        saving = {"save_strategy": "steps", "save_steps": SAVED_UPDATE, "resume_from_checkpoint": "auto"}
        trainer = make_pretraining_trainer(output, num_processes, **saving)
        trainer.add_callback(KillLastProcess())
        check_output_folder(trainer.args, None, {})  # as the commands do
        trainer.accelerator.wait_for_everyone()  # before one process writes
        return trainer, train_and_record(trainer, checkpoint_to_resume("auto", output))
    raise ValueError(f"There is no case {case!r}.")


def main(folder: str, *cases: str) -> None:
    show_where_it_hangs()
    for case in cases:
        if case == "alone":
            record = refusal_to_train_alone(Path(folder))
        else:
            trainer, record = run_case(case, Path(folder), int(os.environ["WORLD_SIZE"]))
            trainer.save_model()
        Path(folder, f"{case}-{os.environ['RANK']}.json").write_text(json.dumps(record), encoding="utf-8")
    wrapped = weakref.ref(trainer.model_wrapped)
    end_processes(trainer)
    if wrapped() is not trainer.model and wrapped() is not None:
        raise RuntimeError("DistributedDataParallel outlives its process group.")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Speed and memory of fine-tuning with both losses, beside transformers' OpenAIGPTDoubleHeadsModel.

    python benchmarks/finetuning.py                         # 117 M parameters; about 20 minutes on 2 cores
    python benchmarks/finetuning.py --quick                 # tiny models and batches: a check of the script
    python benchmarks/finetuning.py --save                  # also results/<date>-finetuning.json

A step is forward in training mode (dropout 0.1), task loss + 0.5 · language-modelling loss, and backward, in float32
and under bfloat16 autocast. The optimizer is left out: its arithmetic and its state are the same for both models.
Ours uses the attention that GPT1Trainer chooses on a CPU; the built-in has only its own.

Both models read one openai-gpt checkpoint of random weights. Without dropout their losses and gradient norms must
agree to 1e-4 before anything is measured. The built-in's language-modelling loss is the mean over all tokens of the
batch; ours is the mean over each sequence's tokens, then over the sequences. All sequences of a step have full length,
so the two numbers are equal. The choices of an example begin with the same context, like those of RACE and Story
Cloze. `flat` is ours with `pack_sequences = False`, which computes the context once for each choice.

The pass covers 400 sentences in batches of 32, with the optimizer's updates and each side's defaults: ours in
batches of similar length, the built-in in random batches, with the label -100 at padding. The sentences are SST-2's in
OpenAI's BPE if the folder named by `GPT1_DATA_DIR` has sst2/train.jsonl and openai_gpt_bpe/, and otherwise random ids
of such lengths. Each round is a whole pass in a new order, after one batch that is not counted.

Each model runs in its own process. A round is one step of each model while the others are idle, and the order changes
from round to round. The script measures the peak of the process's resident memory during the step, wall-clock seconds,
and CPU seconds of all its threads, which exclude the time of other programs on a busy machine. The step's memory is
the peak above interpreter, libraries and weights. Ratios are computed round by round.
"""

import json
import os
import random
import tempfile
from pathlib import Path

import torch
import transformers
from harness import (
    MIB,
    SMALL,
    comparisons,
    main,
    out_of_the_file,
    released_tokenizer,
    resident_bytes,
    steps_of,
    timed,
    without_dropout,
)
from torch import nn
from torch.utils.data import RandomSampler
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel, OpenAIGPTLMHeadModel
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_gpt1 import GPT1DoubleHeadsModel
from modeling_gpt1.training.cpu_attention import choose_cpu_attention
from tokenization.batches.plan import plan_batch

OURS, FLAT, PEER = "GPT1DoubleHeadsModel", "GPT1DoubleHeadsModel flat", "OpenAIGPTDoubleHeadsModel"
# Name: B examples, C sequences per example, T tokens, number of tokens that the sequences share, and the target ratios
# of time in float32, of time in bfloat16 and of memory in float32.
SHAPES = {
    "RACE-shaped step": ((1, 4, 380, 360), (4.0, 4.0, 3.5)),
    "Story-Cloze-shaped step": ((8, 2, 64, 50), (2.5, 2.5, None)),
}
QUICK_SHAPES = {"RACE-shaped step": ((1, 4, 32, 20), (None, None, None))}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LM_COEF = 0.5
BATCH_SIZE = 32


def make_batch(shape: tuple[int, int, int, int], vocab_size: int) -> dict[str, torch.Tensor]:
    """Random sequences of full length with our collator's plan. The last token is read, and the first choice right."""
    *size, num_shared = shape
    input_ids = torch.randint(vocab_size, size, generator=torch.Generator().manual_seed(0))
    input_ids[:, :, :num_shared] = input_ids[:, :1, :num_shared]
    mask = torch.ones_like(input_ids)
    return {
        "input_ids": input_ids,
        "attention_mask": mask,
        "plan": plan_batch(mask, [num_shared] * len(mask)),
        "mc_token_ids": torch.full(size[:2], size[2] - 1),
        "labels": torch.zeros(size[0], dtype=torch.int64),
    }


def our_losses(model: GPT1DoubleHeadsModel, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    output = model(**batch)
    return {"loss": output.loss, "task_loss": output.task_loss, "lm_loss": output.lm_loss}


def peer_losses(model: OpenAIGPTDoubleHeadsModel, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    attention_mask = batch["attention_mask"].flatten(0, -2)  # the built-in reads only masks of shape [B · C, T]
    output = model(
        input_ids=batch["input_ids"],
        attention_mask=attention_mask,
        mc_token_ids=batch["mc_token_ids"],
        labels=batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100),
        mc_labels=batch["labels"],
    )
    loss = output.mc_loss + LM_COEF * output.loss
    return {"loss": loss, "task_loss": output.mc_loss, "lm_loss": output.loss}


MODELS = {
    OURS: (GPT1DoubleHeadsModel, our_losses),
    PEER: (OpenAIGPTDoubleHeadsModel, peer_losses),
    FLAT: (GPT1DoubleHeadsModel, our_losses),
}


class Worker:
    """One model in its own process."""

    def __init__(self, name: str, folder: str, dtype: str, threads: int, **fields):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        transformers.utils.logging.disable_progress_bar()
        model_class, self.losses = MODELS[name]
        self.model = model_class.from_pretrained(folder, dtype=torch.float32, **fields)
        self.dtype = DTYPES[dtype]
        if name == FLAT:
            self.model.pack_sequences = False
        choose_cpu_attention(self.model, "cpu")  # as GPT1Trainer does; it leaves the peer as it is
        out_of_the_file(self.model)
        self.model.train()

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            return self.losses(self.model, batch)["loss"]


class StepWorker(Worker):
    """Forward and backward of one batch. The parent process may call its methods."""

    def __init__(self, name: str, folder: str, dtype: str, threads: int, shape: tuple[int, int, int, int]):
        super().__init__(name, folder, dtype, threads)
        self.batch = make_batch(shape, self.model.config.vocab_size)

    def compare(self) -> dict[str, float]:
        """Losses and gradient norm in float32 without dropout."""
        return without_dropout(self.model, lambda: self.losses(self.model, self.batch))

    def warm_up(self) -> None:
        self.before = resident_bytes() / MIB  # interpreter, libraries and weights
        self.step()

    def step(self) -> dict[str, float]:
        """Time and memory of one forward and backward."""
        self.model.zero_grad()
        measured = timed(lambda: self.loss(self.batch).backward())
        return {**measured, "step MiB": measured["peak MiB"] - self.before}


class PassWorker(Worker):
    """Passes over the sentences, each in a new order."""

    def __init__(self, name: str, folder: str, dtype: str, threads: int, rows: list[dict]):
        fields = {} if name == PEER else {"traversal": "classification", "num_labels": 2}
        super().__init__(name, folder, dtype, threads, **fields)
        if name == PEER:  # its head has one score per choice; classes need two
            self.model.multiple_choice_head.summary = nn.Linear(self.model.config.n_embd, 2)
        lengths = [len(row["ids"]) for row in rows]
        generator = torch.Generator().manual_seed(0)
        if name == PEER:
            self.order = RandomSampler(rows, generator=generator)
        else:
            self.order = LengthGroupedSampler(BATCH_SIZE, lengths=lengths, generator=generator)
        self.rows = rows
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=6.25e-5, fused=True)

    def warm_up(self) -> None:
        self.train([pad(self.rows[:BATCH_SIZE])])

    def step(self) -> dict[str, float]:
        ordered = [self.rows[index] for index in self.order]
        batches = [pad(ordered[start : start + BATCH_SIZE]) for start in range(0, len(ordered), BATCH_SIZE)]
        return timed(self.train, batches)

    def train(self, batches: list[dict[str, torch.Tensor]]) -> None:
        for batch in batches:
            self.loss(batch).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()


def pad(rows: list[dict]) -> dict[str, torch.Tensor]:
    ids = [torch.tensor(row["ids"]) for row in rows]
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)[:, None]
    return {
        "input_ids": nn.utils.rnn.pad_sequence(ids, batch_first=True)[:, None],
        "attention_mask": mask,
        "plan": plan_batch(mask, [0] * len(mask)),
        "mc_token_ids": torch.tensor([[len(row) - 1] for row in ids]),
        "labels": torch.tensor([row["label"] for row in rows]),
    }


def sentences(number: int, vocab_size: int) -> list[dict]:
    """Rows `{"ids": […], "label": 0 or 1}` of SST-2 in OpenAI's BPE, or random rows of such lengths."""
    data_dir = os.environ.get("GPT1_DATA_DIR")
    if data_dir is None or vocab_size < 40478:
        generator = random.Random(0)
        lengths = [min(4 + int(generator.expovariate(1 / 10)), 70) for _ in range(number)]
        return [{"ids": generator.choices(range(vocab_size), k=n), "label": n % 2} for n in lengths]
    tokenizer = released_tokenizer(Path(data_dir) / "openai_gpt_bpe")
    with open(Path(data_dir) / "sst2" / "train.jsonl", encoding="utf-8") as file:
        rows = random.Random(0).sample([json.loads(line) for line in file], number)
    start, end = 0, 1  # any ids will do: the weights are random
    return [{"ids": [start, *tokenizer(row["sentence"])["input_ids"], end], "label": row["label"]} for row in rows]


def compare(rounds: int, threads: int, quick: bool) -> list[dict]:
    """The rows of `make bench`."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        config = write_checkpoint(OpenAIGPTDoubleHeadsModel, folder, quick)
        for dtype in DTYPES:
            for name, (shape, (*of_time, of_memory)) in (QUICK_SHAPES if quick else SHAPES).items():
                arguments = {model: (model, folder, dtype, threads, shape) for model in MODELS}
                measured = steps_of(StepWorker, arguments, tuple(MODELS), PEER, rounds)
                work = f"{name} {' × '.join(map(str, shape[:3]))}, {shape[3]} shared, {dtype}"
                targets = {(PEER, "seconds"): of_time[list(DTYPES).index(dtype)]}
                if dtype == "float32":
                    targets[PEER, "step MiB"] = of_memory
                rows += comparisons(work, measured, OURS, targets)
        texts = sentences(160 if quick else 400, config.vocab_size)
        write_checkpoint(OpenAIGPTLMHeadModel, folder, quick)  # the two-class head is newly initialised
        arguments = {name: (name, folder, "float32", threads, texts) for name in (OURS, PEER)}
        measured = steps_of(PassWorker, arguments, (), PEER, rounds)
        work = f"pass over {len(texts)} sentences, {BATCH_SIZE} of like length (peer: random), float32"
        return rows + comparisons(work, measured, OURS, {(PEER, "seconds"): 1.6})


def write_checkpoint(model_class: type, folder: str, quick: bool) -> OpenAIGPTConfig:
    """Writes random weights as an openai-gpt checkpoint, which all models read."""
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    config = OpenAIGPTConfig(**(SMALL if quick else {}))
    model_class(config).save_pretrained(folder)
    return config


if __name__ == "__main__":
    main(compare)

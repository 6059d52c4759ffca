"""Speed and memory of a pre-training step, beside transformers' OpenAIGPTLMHeadModel and GPT2LMHeadModel.

    python benchmarks/pretraining.py                        # 117 M parameters, blocks of 512, batch 4; about an hour
    python benchmarks/pretraining.py --quick --rounds 1     # tiny models: a check of the script
    python benchmarks/pretraining.py --compiled             # also ours under torch.compile
    python benchmarks/pretraining.py --save                 # also benchmarks/results/<date>-pretraining.json

A step is forward in training mode (dropouts 0.1), backward and fused AdamW, in float32 and under bfloat16 autocast.
All models have the paper's size. Ours uses the attention that GPT1PretrainingTrainer chooses on a CPU, GPT-2 torch's
scaled-dot-product attention; the built-in OpenAIGPT has only its own. Ours and the built-in read one openai-gpt
checkpoint of random weights, and without dropout their losses and gradient norms must agree to 1e-4 before anything is
measured.

Each model runs in its own process. A round is one step of each model while the others are idle, and the order changes
from round to round. The script measures tokens per wall-clock second, tokens per CPU second of all threads (which
excludes the time of other programs on a busy machine) and the peak of the process's resident memory. "Before" is the
memory of interpreter, libraries, weights and the optimizer's state. Ratios are computed round by round. The fraction
of the peak is the model's FLOP rate divided by that of a matrix product, both per CPU second of one thread and
measured in the same process. Cost against length is the FLOP rate per CPU second of our steps of 4 × 128, 256 and 512
tokens: if it is constant, a step's time grows as its arithmetic does.
"""

import tempfile
import time

import torch
import transformers
from harness import (
    MIB,
    SMALL,
    comparison,
    comparisons,
    main,
    out_of_the_file,
    resident_bytes,
    rounds_of,
    running_worker,
    steps_of,
    timed,
    without_dropout,
    write_peers,
)
from transformers import GPT2LMHeadModel, OpenAIGPTLMHeadModel

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.training.cpu_attention import choose_cpu_attention
from modeling_gpt1.training.measures import training_flops_per_token

OURS, COMPILED, PEER, GPT2 = "GPT1ForCausalLM", "GPT1ForCausalLM compiled", "OpenAIGPTLMHeadModel", "GPT2LMHeadModel"
MODEL_CLASSES = {OURS: GPT1ForCausalLM, COMPILED: GPT1ForCausalLM, PEER: OpenAIGPTLMHeadModel, GPT2: GPT2LMHeadModel}
LENGTHS = (128, 256, 512)
# Targets: speed and memory beside the built-in, the fraction of the matrix product's FLOP rate, and the FLOP rate of
# longer rows relative to the shortest.
MEMORY_TARGET = 2.0
PEAK_TARGET = 0.75
LENGTH_TARGET = 1 / 1.2
SPEED_TARGETS = {"float32": 1.3, "bfloat16": 2.0}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FRACTION, OF_STEP = "FLOP/s of the peak", "peak − before MiB"


class Worker:
    """One model, its optimizer and a batch. The parent process may call its methods."""

    def __init__(self, name: str, folder: str, dtype: str, shape: tuple[int, int], threads: int):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        transformers.utils.logging.disable_progress_bar()
        self.name = name
        self.dtype = DTYPES[dtype]
        self.threads = threads
        self.before = 0.0
        self.model = MODEL_CLASSES[name].from_pretrained(folder, dtype=torch.float32)
        out_of_the_file(self.model)
        choose_cpu_attention(self.model, "cpu")  # as GPT1PretrainingTrainer does; it leaves the peers as they are
        self.input_ids = torch.randint(self.model.config.vocab_size, shape)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self.run = torch.compile(self.model) if name == COMPILED else self.model

    def loss(self) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            cache = {} if self.name == PEER else {"use_cache": False}
            return self.run(input_ids=self.input_ids, labels=self.input_ids, **cache).loss

    def compare(self) -> dict[str, float]:
        """Loss and gradient norm in float32 without dropout."""
        ids = self.input_ids
        return without_dropout(self.model, lambda: {"loss": self.model(input_ids=ids, labels=ids).loss})

    def train(self) -> None:
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def warm_up(self) -> None:
        self.step()  # compiles and creates the optimizer's state
        self.before = resident_bytes() / MIB  # interpreter, libraries, weights and that state

    def step(self) -> dict[str, float]:
        """Speed and memory of one forward, backward and update."""
        measured = timed(self.train)
        tokens = self.input_ids.numel()
        by_processor = tokens / measured["CPU seconds"]
        return {
            "tokens/s": tokens / measured["seconds"],
            "tokens/CPU s": by_processor,
            "peak MiB": measured["peak MiB"],
            OF_STEP: measured["peak MiB"] - self.before,
            FRACTION: by_processor * self._flops_per_token() / self._peak_flops(),
        }

    def of_length(self, length: int) -> dict[str, float]:
        """The FLOPs of a step of rows of another length, divided by its CPU seconds. A first step warms up."""
        self.input_ids = torch.randint(self.model.config.vocab_size, (self.input_ids.shape[0], length))
        self.step()
        return {"GFLOP/CPU s": self.step()["tokens/CPU s"] * self._flops_per_token() / 1e9}

    def _flops_per_token(self) -> float:
        """Training FLOPs per token, the same for all models. Only ours keeps them all in plain linear layers."""
        config = self.model.config
        blocks = 12 * config.n_layer * config.n_embd**2
        attention = 12 * config.n_layer * config.n_embd * self.input_ids.shape[1]
        flops = 6 * (blocks + config.vocab_size * config.n_embd) + attention
        is_whole = self.input_ids.shape[1] == config.n_positions
        if self.name in (OURS, COMPILED) and is_whole and flops != training_flops_per_token(self.model):
            raise RuntimeError(f"{flops} is not what the trainer counts, {training_flops_per_token(self.model)}.")
        return flops

    def _peak_flops(self, size: int = 1024, rounds: int = 10) -> float:
        """Like `measure_peak_flops`, but per CPU second instead of per wall-clock second."""
        matrix = torch.full((size, size), 0.5, dtype=self.dtype)
        best = float("inf")
        for _ in range(rounds):
            start = time.process_time()
            matrix @ matrix
            best = min(best, time.process_time() - start)
        return 2 * size**3 / best


def compare(rounds: int, threads: int, quick: bool, compiled: bool = False) -> list[dict]:
    """The rows for `run.py`. `quick` trains tiny models on short rows."""
    batch, lengths = (2, (16, 32)) if quick else (4, LENGTHS)
    longest = max(lengths)
    names = [OURS, PEER, GPT2, *([COMPILED] if compiled else [])]
    with tempfile.TemporaryDirectory() as folder:
        folders = write_peers(folder, {**SMALL, "n_positions": longest} if quick else {})
        folders[OURS] = folders[PEER]  # ours reads the checkpoint of openai-gpt
        folders[COMPILED] = folders[PEER]
        rows = []
        for dtype in DTYPES:
            arguments = {name: (name, folders[name], dtype, (batch, longest), threads) for name in names}
            figures = steps_of(Worker, arguments, (OURS, PEER), PEER, rounds)
            work = f"pre-training step {batch} × {longest}, {dtype}"
            fractions = [figures[name].pop(FRACTION) for name in names][0]
            memory = {(PEER, measured): MEMORY_TARGET for measured in ("peak MiB", OF_STEP)}
            rows += comparisons(work, figures, OURS, {(PEER, "tokens/s"): SPEED_TARGETS[dtype], **memory})
            target = PEAK_TARGET if dtype == "float32" else None
            rows.append(comparison(work, FRACTION, "a matrix product", fractions, [1.0] * rounds, target))
        with running_worker(Worker, OURS, folders[OURS], "float32", (batch, longest), threads) as ask:
            of_lengths = rounds_of(lengths, rounds, lambda length: ask("of_length", length))
    # The cost of a FLOP in a step of longer rows, relative to a step of the shortest rows.
    shortest, *others = lengths
    unit = "GFLOP/CPU s"
    peer = f"ours, {batch} × {shortest}"
    for length in others:
        work = f"pre-training step {batch} × {length}, float32"
        rows.append(comparison(work, unit, peer, of_lengths[length][unit], of_lengths[shortest][unit], LENGTH_TARGET))
    return rows


if __name__ == "__main__":
    main(compare, compiled={"action": "store_true", "help": "measure ours under torch.compile too"})

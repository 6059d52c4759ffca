"""Speed and memory of a pre-training step, beside transformers' OpenAIGPTLMHeadModel and GPT2LMHeadModel.

    python benchmarks/pretraining.py                        # 117 M parameters, blocks of 512, batch 4; about an hour
    python benchmarks/pretraining.py --layers 2 --rounds 3  # a quick look
    python benchmarks/pretraining.py --compile              # also ours under torch.compile
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

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack

import torch
import transformers
from finetuning import TOLERANCE
from harness import (
    MIB,
    SMALL,
    comparison,
    format_summary,
    in_turns,
    machine,
    out_of_the_file,
    peak_resident_bytes,
    print_comparisons,
    reset_peak,
    resident_bytes,
    running_worker,
    save_result,
    summary,
    write_peers,
)
from transformers import GPT2LMHeadModel, OpenAIGPTLMHeadModel

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.training.cpu_attention import choose_cpu_attention
from modeling_gpt1.training.throughput import training_flops_per_token

OURS, COMPILED, PEER, GPT2 = "GPT1ForCausalLM", "GPT1ForCausalLM compiled", "OpenAIGPTLMHeadModel", "GPT2LMHeadModel"
MODEL_CLASSES = {
    OURS: GPT1ForCausalLM,
    COMPILED: GPT1ForCausalLM,
    PEER: OpenAIGPTLMHeadModel,
    GPT2: GPT2LMHeadModel,
}
LENGTHS = (128, 256, 512)
# Targets: speed and memory beside the built-in, the fraction of the matrix product's FLOP rate, and the FLOP rate of
# longer rows relative to the shortest.
MEMORY_TARGET, PEAK_TARGET, LENGTH_TARGET = 2.0, 0.75, 1 / 1.2
SPEED_TARGETS = {"float32": 1.3, "bfloat16": 2.0}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MEASURES = {
    "tokens_per_second": "tokens / s",
    "tokens_per_cpu_second": "tokens / CPU s",
    "peak_fraction": "of the peak",
    "peak_mib": "peak MiB",
    "step_mib": "peak − before MiB",
}


class Worker:
    """One model, its optimizer and a batch. The parent process may call its methods."""

    def __init__(self, name: str, folder: str, dtype: str, shape: tuple[int, int], threads: int):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        transformers.utils.logging.disable_progress_bar()
        self.name, self.dtype, self.threads = name, DTYPES[dtype], threads
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
        self.model.eval()
        loss = self.model(input_ids=self.input_ids, labels=self.input_ids).loss
        loss.backward()
        gradients = [parameter.grad for parameter in self.model.parameters()]
        values = {"loss": loss.item(), "gradient_norm": torch.nn.utils.get_total_norm(gradients).item()}
        self.optimizer.zero_grad()
        self.model.train()
        return values

    def resident_before(self) -> float:
        """Resident MiB of interpreter, libraries, weights and optimizer state, which the first step creates."""
        return resident_bytes() / MIB

    def step(self) -> dict[str, float]:
        """Time and memory of one forward, backward and update."""
        reset_peak()
        start, cpu_start = time.perf_counter(), time.process_time()
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        tokens_per_cpu_second = self.input_ids.numel() / cpu_seconds
        return {
            "tokens_per_second": self.input_ids.numel() / seconds,
            "tokens_per_cpu_second": tokens_per_cpu_second,
            "peak_fraction": tokens_per_cpu_second * self._flops_per_token() / self._peak_flops(),
            "peak_mib": peak_resident_bytes() / MIB,
        }

    def take_length(self, length: int) -> None:
        """Switches to rows of another length, and runs one step to warm up."""
        self.input_ids = torch.randint(self.model.config.vocab_size, (self.input_ids.shape[0], length))
        self.step()

    def flops_per_cpu_second(self) -> float:
        """The FLOPs of a step divided by its CPU seconds, in GFLOP / s."""
        return self.step()["tokens_per_cpu_second"] * self._flops_per_token() / 1e9

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


def check_agreement(values: dict[str, dict[str, float]]) -> None:
    for name, ours in values[OURS].items():
        peer = values[PEER][name]
        if abs(ours - peer) > TOLERANCE * max(1.0, abs(peer)):
            raise RuntimeError(f"The models disagree: {name} is {ours} and {peer}. Nothing was measured.")


def measure(names: list[str], folders: dict, dtype: str, shape: tuple[int, int], rounds: int, threads: int) -> dict:
    with ExitStack() as stack:
        ask = {
            name: stack.enter_context(running_worker(Worker, name, folders[name], dtype, shape, threads))
            for name in names
        }
        values = {name: ask[name]("compare") for name in (OURS, PEER)}
        check_agreement(values)
        for name in names:  # warm-up: compiles and creates the optimizer state
            ask[name]("step")
        before = {name: ask[name]("resident_before") for name in names}
        steps: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for name in in_turns(names, rounds):
            steps[name].append(ask[name]("step"))
    for name in names:
        for step in steps[name]:
            step["step_mib"] = step["peak_mib"] - before[name]
    columns = {name: {measure: [step[measure] for step in steps[name]] for measure in MEASURES} for name in names}
    return {"dtype": dtype, "without_dropout": values, "resident_mib_before": before, "columns": columns}


def measure_lengths(folder: str, lengths: Sequence[int], batch: int, rounds: int, threads: int) -> dict:
    """GFLOP per CPU second of our steps of rows of each length, in float32: `{length: [figure of each round]}`."""
    columns: dict[int, list[float]] = {length: [] for length in lengths}
    with running_worker(Worker, OURS, folder, "float32", (batch, max(lengths)), threads) as ask:
        for length in in_turns(list(lengths), rounds):
            ask("take_length", length)
            columns[length].append(ask("flops_per_cpu_second"))
    return columns


def ratios(ours: dict[str, list[float]], peer: dict[str, list[float]]) -> dict[str, list[float]]:
    """Our figure divided by the peer's, round by round."""
    return {name: [a / b for a, b in zip(ours[name], peer[name], strict=True)] for name in MEASURES}


def summaries(columns: dict[str, dict[str, list[float]]], float32: dict) -> dict[str, dict[str, dict]]:
    """Medians and ranges of each model and of our ratio to each peer, for bfloat16 also to OpenAIGPT in float32."""
    table = dict(columns)
    for name in columns:
        if name != OURS:
            table[f"ours / {name}"] = ratios(columns[OURS], columns[name])
    if "summaries" in float32:
        rounds = {measure: values["rounds"] for measure, values in float32["summaries"][PEER].items()}
        table[f"ours / {PEER} float32"] = ratios(columns[OURS], rounds)
    return {
        name: {measure: summary(column) for measure, column in measures.items()} for name, measures in table.items()
    }


def print_result(result: dict) -> None:
    print(f"\n{result['dtype']}; without dropout, ours and the built-in's:")
    for name, value in result["without_dropout"][OURS].items():
        print(f"  {name}: {value:.6f} and {result['without_dropout'][PEER][name]:.6f}")
    print(f"  {'median (least … most)':38}" + "".join(f"{header:>25}" for header in MEASURES.values()))
    for name, measures in result["summaries"].items():
        cells = [format_summary(measures[measure], "/" in name) for measure in MEASURES]
        print(f"  {name:38}" + "".join(f"{cell:>25}" for cell in cells), flush=True)


def write_checkpoints(folder: str, **sizes: int) -> dict[str, str]:
    """Writes the checkpoints of the built-in models by `write_peers`. Ours reads that of openai-gpt."""
    folders = write_peers(folder, sizes)
    return folders | dict.fromkeys((OURS, COMPILED), folders[PEER])


def compare(rounds: int, threads: int, quick: bool) -> list[dict]:
    """The rows for `run.py`. `quick` trains tiny models on short rows."""
    batch, lengths = (2, (16, 32)) if quick else (4, LENGTHS)
    with tempfile.TemporaryDirectory() as folder:
        folders = write_checkpoints(folder, **({**SMALL, "n_positions": max(lengths)} if quick else {}))
        rows = []
        for dtype in DTYPES:
            result = measure([OURS, PEER, GPT2], folders, dtype, (batch, max(lengths)), rounds, threads)
            rows += step_comparisons(f"pre-training step {batch} × {max(lengths)}, {dtype}", result["columns"])
        columns = measure_lengths(folders[OURS], lengths, batch, rounds, threads)
        return [*rows, *length_comparisons(columns, batch)]


def step_comparisons(work: str, columns: dict[str, dict[str, list[float]]]) -> list[dict]:
    """The rows of one dtype."""
    ours, rows = columns[OURS], []
    for peer in (PEER, GPT2):
        dtype = next(name for name in SPEED_TARGETS if name in work)
        speed, memory = (SPEED_TARGETS[dtype], MEMORY_TARGET) if peer == PEER else (None, None)
        for measure, target in (
            ("tokens_per_second", speed),
            ("tokens_per_cpu_second", None),
            ("peak_mib", memory),
            ("step_mib", memory),
        ):
            header = MEASURES[measure].replace(" / ", "/")
            rows.append(comparison(work, header, peer, ours[measure], columns[peer][measure], target))
    fractions = ours["peak_fraction"]
    whole, target = [1.0] * len(fractions), PEAK_TARGET if "float32" in work else None
    rows.append(comparison(work, "FLOP/s of the peak", "a matrix product", fractions, whole, target))
    return rows


def length_comparisons(columns: dict[int, list[float]], batch: int) -> list[dict]:
    """The cost of a FLOP in a step of longer rows, relative to a step of the shortest rows."""
    shortest, *others = columns
    peer = f"ours, {batch} × {shortest}"
    return [
        comparison(
            f"pre-training step {batch} × {length}, float32",
            "GFLOP/CPU s",
            peer,
            columns[length],
            columns[shortest],
            LENGTH_TARGET,
        )
        for length in others
    ]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of one step of each model (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process (default: 1)")
    parser.add_argument("--layers", type=int, default=12, help="blocks of each model (default: 12)")
    parser.add_argument("--batch", type=int, default=4, help="rows of 512 tokens in a step (default: 4)")
    parser.add_argument("--compile", action="store_true", help="measure ours under torch.compile too")
    parser.add_argument("--save", action="store_true", help="write the figures to benchmarks/results/<date>-….json")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    about = {**machine(arguments.threads), "layers": arguments.layers, "batch": [arguments.batch, 512]}
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    names = [name for name in MODEL_CLASSES if name != COMPILED or arguments.compile]
    with tempfile.TemporaryDirectory() as folder:
        folders = write_checkpoints(folder, n_layer=arguments.layers)
        results: list[dict] = []
        for dtype in DTYPES:
            shape = (arguments.batch, 512)
            results.append(measure(names, folders, dtype, shape, arguments.rounds, arguments.threads))
            results[-1]["summaries"] = summaries(results[-1].pop("columns"), results[0])
            print_result(results[-1])
        lengths = measure_lengths(folders[OURS], LENGTHS, arguments.batch, arguments.rounds, arguments.threads)
    print("\nGFLOP per CPU second against length:")
    print_comparisons(length_comparisons(lengths, arguments.batch))
    if arguments.save:
        save_result("pretraining", about, {"steps": results, "gflop_per_cpu_second_by_length": lengths})


if __name__ == "__main__":
    main()

"""Memory and time of a fine-tuning step with both losses, beside transformers' OpenAIGPTDoubleHeadsModel.

    python benchmarks/double_heads_step.py                    # 117 M parameters, a few minutes on 2 cores
    python benchmarks/double_heads_step.py --small --rounds 3 # a quick look
    python benchmarks/double_heads_step.py --save             # also benchmarks/results/<date>-double-heads-step.json

A step is forward in training mode (dropout 0.1), task loss + 0.5 · language-modelling loss, and backward, in float32.
The optimizer is left out: its arithmetic and its state of 2 × 4 bytes per weight are the same for both models.

Both models read one openai-gpt checkpoint of random weights. Without dropout their losses and gradient norms must
agree to 1e-4 before anything is measured. The built-in's language-modelling loss is the mean over all tokens of the
batch, padding included where `labels` is `input_ids`; ours is the mean over each sequence's real tokens, then over the
sequences. All sequences here have full length, where the two are the same number.

Each model runs in a process of its own. What is measured, in rounds of one step of each model while the other is idle,
with the order turned round by round: the peak of the process's resident memory during the step, seconds on the clock,
and CPU seconds of all its threads, which leave out what other programs of a busy machine took. "Before" is the memory
of interpreter, libraries and weights. Ratios are taken round by round.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack

import torch
import transformers
from harness import (
    MIB,
    format_summary,
    in_turns,
    machine,
    peak_resident_bytes,
    reset_peak,
    resident_bytes,
    running_worker,
    save_result,
    summary,
)
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel

from modeling_gpt1 import GPT1DoubleHeadsModel

OURS, PEER = "GPT1DoubleHeadsModel", "OpenAIGPTDoubleHeadsModel"
SHAPES = ((4, 2, 80), (1, 4, 380))  # B examples, C sequences per example, T tokens
SMALL_SHAPES = ((2, 2, 16), (1, 4, 32))
SMALL_CONFIG = {"vocab_size": 1000, "n_embd": 64, "n_layer": 2, "n_head": 2}
MEASURES = {
    "peak_mib": "peak MiB",
    "step_mib": "peak − before MiB",
    "seconds": "seconds",
    "cpu_seconds": "CPU seconds",
}
LM_COEF = 0.5
TOLERANCE = 1e-4


def make_batch(shape: tuple[int, int, int], vocab_size: int) -> dict[str, torch.Tensor]:
    """Random sequences of full length that end in the extract token's position; the first choice is right."""
    generator = torch.Generator().manual_seed(0)
    return {
        "input_ids": torch.randint(vocab_size, shape, generator=generator),
        "attention_mask": torch.ones(shape, dtype=torch.int64),
        "mc_token_ids": torch.full(shape[:2], shape[2] - 1),
        "labels": torch.zeros(shape[0], dtype=torch.int64),
    }


def our_losses(model: GPT1DoubleHeadsModel, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    output = model(**batch)
    return {"loss": output.loss, "task_loss": output.task_loss, "lm_loss": output.lm_loss}


def peer_losses(model: OpenAIGPTDoubleHeadsModel, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    output = model(
        input_ids=batch["input_ids"],
        attention_mask=batch["attention_mask"].flatten(0, 1),  # it reads masks of [B · C, T] only
        mc_token_ids=batch["mc_token_ids"],
        labels=batch["input_ids"],
        mc_labels=batch["labels"],
    )
    loss = output.mc_loss + LM_COEF * output.loss
    return {"loss": loss, "task_loss": output.mc_loss, "lm_loss": output.loss}


MODELS = {OURS: (GPT1DoubleHeadsModel, our_losses), PEER: (OpenAIGPTDoubleHeadsModel, peer_losses)}


class Worker:
    """One model and one batch, in a process of its own; its methods are what the parent may ask for."""

    def __init__(self, name: str, folder: str, shape: tuple[int, int, int], threads: int):
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        model_class, self.losses = MODELS[name]
        self.model = model_class.from_pretrained(folder, dtype=torch.float32)
        for parameter in self.model.parameters():  # out of the mapped file, whose pages would count as the process's
            parameter.data = parameter.data.clone()
        self.batch = make_batch(shape, self.model.config.vocab_size)

    def compare(self) -> dict[str, float]:
        """Losses and gradient norm without dropout."""
        self.model.eval()
        losses = self.losses(self.model, self.batch)
        losses["loss"].backward()
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        values = {name: loss.item() for name, loss in losses.items()}
        values["gradient_norm"] = torch.nn.utils.get_total_norm(gradients).item()
        self.model.zero_grad(set_to_none=True)
        self.model.train()
        return values

    def resident_before(self) -> float:
        """Resident MiB of interpreter, libraries and weights."""
        return resident_bytes() / MIB

    def step(self) -> dict[str, float]:
        """What one forward and backward takes."""
        self.model.zero_grad(set_to_none=True)
        reset_peak()
        start, cpu_start = time.perf_counter(), time.process_time()
        self.losses(self.model, self.batch)["loss"].backward()
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        return {"peak_mib": peak_resident_bytes() / MIB, "seconds": seconds, "cpu_seconds": cpu_seconds}


def check_agreement(values: dict[str, dict[str, float]]) -> None:
    for name, ours in values[OURS].items():
        peer = values[PEER][name]
        if abs(ours - peer) > TOLERANCE * max(1.0, abs(peer)):
            raise RuntimeError(
                f"The models disagree: {name} is {ours} and {peer}. Nothing was measured; find out why before you "
                "trust either."
            )


def measure(folder: str, shape: tuple[int, int, int], rounds: int, threads: int) -> dict:
    with ExitStack() as stack:
        ask = {name: stack.enter_context(running_worker(Worker, name, folder, shape, threads)) for name in MODELS}
        values = {name: ask[name]("compare") for name in MODELS}
        check_agreement(values)
        before = {name: ask[name]("resident_before") for name in MODELS}
        for name in MODELS:  # warm-up
            ask[name]("step")
        steps: dict[str, list[dict[str, float]]] = {name: [] for name in MODELS}
        for name in in_turns(list(MODELS), rounds):
            steps[name].append(ask[name]("step"))
    for name in MODELS:
        for step in steps[name]:
            step["step_mib"] = step["peak_mib"] - before[name]
    return {"shape": shape, "without_dropout": values, "resident_mib_before": before, **summaries(steps)}


def summaries(steps: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, dict]]:
    """Per model and for the ratio, ours over the built-in's: below 1 is less memory or less time."""
    columns = {name: {measure: [step[measure] for step in steps[name]] for measure in MEASURES} for name in MODELS}
    columns["ratio"] = {
        measure: [ours / peer for ours, peer in zip(columns[OURS][measure], columns[PEER][measure], strict=True)]
        for measure in MEASURES
    }
    return {
        name: {measure: summary(column) for measure, column in measures.items()} for name, measures in columns.items()
    }


def print_result(result: dict) -> None:
    examples, choices, tokens = result["shape"]
    print(f"\n{examples} examples × {choices} choices × {tokens} tokens, ours and the built-in's without dropout:")
    for name, value in result["without_dropout"][OURS].items():
        print(f"  {name}: {value:.6f} and {result['without_dropout'][PEER][name]:.6f}")
    print(f"  {'median (least … most)':28}" + "".join(f"{header:>26}" for header in MEASURES.values()))
    for name in (*MODELS, "ratio"):
        cells = [format_summary(result[name][measure], name == "ratio") for measure in MEASURES]
        print(f"  {name:28}" + "".join(f"{cell:>26}" for cell in cells), flush=True)


def write_checkpoint(folder: str, small: bool) -> int:
    """Random weights as an openai-gpt checkpoint, which both models read; returns the number of parameters."""
    torch.manual_seed(0)
    model = OpenAIGPTDoubleHeadsModel(OpenAIGPTConfig(**(SMALL_CONFIG if small else {})))
    model.save_pretrained(folder)
    return model.num_parameters()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds of one step of each model (default: 7)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of each process")
    parser.add_argument("--small", action="store_true", help="a tiny model and tiny batches: a check of the script")
    parser.add_argument("--save", action="store_true", help="write the figures to benchmarks/results/<date>-….json")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    transformers.utils.logging.disable_progress_bar()
    about = machine(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        about["parameters"] = write_checkpoint(folder, arguments.small)
        print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
        results = []
        for shape in SMALL_SHAPES if arguments.small else SHAPES:
            results.append(measure(folder, shape, arguments.rounds, arguments.threads))
            print_result(results[-1])
    if arguments.save:
        save_result("double-heads-step", about, results)


if __name__ == "__main__":
    main()

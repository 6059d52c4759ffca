"""Pre-trains every family on the same novels, asks and fine-tunes each alike, and writes one page of tables.

    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --list  # what is left to do
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families         # hours
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --page  # the page so far
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --save  # as dated files

`books` has novels in train/*.txt and validation/*.txt, `data` a folder per task. Every family has the same tokenizer,
blocks of 512 tokens, 4 layers of 256 and number of tokens. Its learning rate is the best of four short runs by its own
held-out loss: those of two families do not compare. Fine-tuning has one recipe for all, with several seeds.

A step is one command of `gpt1` in a folder of its own. A finished step is never repeated, and a killed one goes on
from its last checkpoint. The processor time of all attempts counts, and the largest resident memory of any.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from families_page import Row, draw, page
from harness import machine, save_result
from torch import nn
from transformers import MODEL_FOR_MULTIPLE_CHOICE_MAPPING

from modeling_gpt1.storage.writing import write_atomically
from modeling_gpt1.training.families import FAMILIES
from modeling_gpt1.training.task_models import OPENED_TYPES, OWN_TYPES
from tokenization import GPT1Tokenizer, get_task, training_texts

SIZES = "hidden_size=256,num_hidden_layers=4,num_attention_heads=4,intermediate_size=1024"
LSTM_SIZES = "hidden_size=256,lstm_hidden_size=768"
NUM_MERGES, BLOCK_LENGTH, BATCH = 8000, 512, 8
WARMUP = 200  # updates; with fewer, models with norms after the sums stay at the loss of mere word frequencies
LEARNING_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3)
# Rows to train on; `None` takes all.
TASKS = {
    **dict.fromkeys(("sst2", "cola", "stsb", "rte", "story_cloze")),
    "snli": 20_000,
    "mnli": 10_000,
    "qqp": 10_000,
}
FINE_TUNING = "--num_train_epochs 3 --per_device_train_batch_size 32 --learning_rate 5e-4 --warmup_steps 0.1 --bf16"
FINE_TUNING += " --save_strategy epoch --save_total_limit 1 --report_to none --disable_tqdm true"
ZERO_SHOT_TASKS = ("blimp", "story_cloze")


@dataclass(frozen=True)
class Step:
    """One command of `gpt1`, without the name of its output."""

    folder: Path
    words: tuple[str, ...]
    output: str
    """The flag that names the output."""
    result: str
    """The file that the finished command leaves."""

    @property
    def is_done(self) -> bool:
        return (self.folder / "done.json").is_file()


# ---- Steps


def pretraining(arguments: argparse.Namespace, family: str, tokens: float, learning_rate: float) -> Step:
    updates = max(1, round(tokens / (BATCH * BLOCK_LENGTH)))
    part = max(1, updates // 20)
    flags = {
        "train_files": f"{arguments.books}/train",
        "validation_files": f"{arguments.books}/validation",
        "family": family,
        "tokenizer_name": arguments.work_dir / "tokenizer",
        "block_length": BLOCK_LENGTH,
        "config_overrides": LSTM_SIZES if family == "gpt1-lstm" else SIZES,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "max_steps": updates,
        "learning_rate": learning_rate,
        "warmup_steps": WARMUP,
        "logging_steps": part,
        "eval_strategy": "steps",
        "eval_steps": part,
        "max_eval_blocks": 256,
        "save_steps": part,
        "save_total_limit": 1,
        "resume_from_checkpoint": "auto",
        "bf16": True,
        "use_cpu": not torch.cuda.is_available(),  # bf16 on a CPU needs this flag
        "report_to": "none",
        "disable_tqdm": True,
    }
    folder = arguments.work_dir / family / f"pretrain-{tokens:g}-{learning_rate:g}"
    return Step(folder, words_of("pretrain", flags), "--output_dir", "all_results.json")


def fine_tuning(arguments: argparse.Namespace, model: Step, task: str, seed: int) -> Step:
    flags = {"task": task, "data_dir": arguments.data_dir, "model": model.folder / "out", "seed": seed}
    limits = [limit for limit in (TASKS[task], arguments.train_rows) if limit is not None]
    if limits:
        flags["max_train_samples"] = min(limits)
    if not torch.cuda.is_available():
        flags["use_cpu"] = True
    words = (*words_of("finetune", flags), "--do_train", "--do_eval", *FINE_TUNING.split())
    words += ("--resume_from_checkpoint", "auto")
    return Step(model.folder.parent / f"{task}-{seed}", words, "--output_dir", "eval_results.json")


def asking(arguments: argparse.Namespace, model: Step) -> Step:
    flags = {"model": model.folder / "out", "data_dir": arguments.data_dir}
    if arguments.zero_shot_rows is not None:
        flags["max_eval_samples"] = arguments.zero_shot_rows
    words = (*words_of("zero-shot", flags), "--tasks", *ZERO_SHOT_TASKS)
    return Step(model.folder.parent / "zero-shot", words, "--output_file", "")


def words_of(command: str, flags: dict) -> tuple[str, ...]:
    return command, *(word for name, value in flags.items() for word in (f"--{name}", str(value)))


def sweep(arguments: argparse.Namespace, family: str) -> list[Step]:
    return [pretraining(arguments, family, arguments.sweep_tokens, rate) for rate in LEARNING_RATES]


def best_rate(arguments: argparse.Namespace, family: str) -> float | None:
    """The learning rate whose run ended with the lowest held-out loss; `None` while one is missing."""
    steps = sweep(arguments, family)
    if not all(step.is_done for step in steps):
        return None
    losses = [read(step.folder / "out" / step.result)["eval_loss"] for step in steps]
    return LEARNING_RATES[losses.index(min(losses))]


def tasks_of(family: str) -> list[str]:
    """The tasks for which the family has a head: transformers' BART has none for multiple choice."""
    config = FAMILIES[family].config_class
    has_choices = config.model_type in (*OWN_TYPES, *OPENED_TYPES) or config in MODEL_FOR_MULTIPLE_CHOICE_MAPPING
    return [task for task in TASKS if has_choices or get_task(task).traversal != "multiple_choice"]


def steps_of(arguments: argparse.Namespace, family: str) -> list[Step]:
    """All steps of a family that are known yet, in their order."""
    rate = best_rate(arguments, family)
    if rate is None:
        return sweep(arguments, family)
    model = pretraining(arguments, family, arguments.tokens, rate)
    tuned = [fine_tuning(arguments, model, task, seed) for task in tasks_of(family) for seed in range(arguments.seeds)]
    return [*sweep(arguments, family), model, asking(arguments, model), *tuned]


def run(step: Step) -> None:
    """Runs a step to its end, and counts the processor time of all its attempts."""
    step.folder.mkdir(parents=True, exist_ok=True)
    before = read(step.folder / "attempts.json") if (step.folder / "attempts.json").is_file() else {}
    command = [sys.executable, "-m", "modeling_gpt1.commands", *step.words, step.output, str(step.folder / "out")]
    with (step.folder / "output.txt").open("a", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    attempts = {
        "processor_seconds": round(before.get("processor_seconds", 0) + usage.ru_utime + usage.ru_stime, 1),
        "peak_bytes": max(before.get("peak_bytes", 0), usage.ru_maxrss * 1024),
    }
    write(step.folder / "attempts.json", attempts)
    if process.returncode != 0:
        raise SystemExit(f"{step.folder}: status {process.returncode}. Its output.txt ends with the reason.")
    write(step.folder / "done.json", attempts)


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, content: dict) -> None:
    write_atomically(path, json.dumps(content, indent=2) + "\n")


# ---- What was measured


def read_row(arguments: argparse.Namespace, family: str) -> Row | None:
    """What is known of a family; `None` before its long run is done."""
    rate = best_rate(arguments, family)
    model = None if rate is None else pretraining(arguments, family, arguments.tokens, rate)
    if model is None or not model.is_done:
        return None
    opened = FAMILIES[family].model_class.from_pretrained(model.folder / "out")
    results, records = read(model.folder / "out" / model.result), read(model.folder / "out" / "trainer_state.json")
    speeds = [record["tokens_per_second"] for record in records["log_history"] if "tokens_per_second" in record]
    cost = {**read(model.folder / "done.json"), "tokens": results["num_input_tokens_seen"]}
    cost["tokens_per_second"] = statistics.median(speeds)
    losses = {name.removeprefix("eval_"): value for name, value in results.items() if name.endswith("_loss")}
    losses = {name: value for name, value in losses.items() if name != "train_loss"}
    row = Row(opened.num_parameters(), count_without_embeddings(opened), cost, rate, losses)
    row.curve = curve_of(records["log_history"])
    asked = asking(arguments, model)
    if asked.is_done:
        (answers,) = read(asked.folder / "out")["results"]
        row.zero_shot, row.method = answers["tasks"], answers["method"]
    for task in tasks_of(family):
        steps = [fine_tuning(arguments, model, task, seed) for seed in range(arguments.seeds)]
        row.scores[task] = [score_of(task, read(step.folder / "out" / step.result)) for step in steps if step.is_done]
    return row


def curve_of(records: list[dict]) -> list[tuple[int, float, float]]:
    """Tokens read, hours of training and held-out loss at each evaluation.

    The hours are those of the updates by their logged speeds: evaluations, saving and other processes do not count.
    """
    points, hours, before = [], 0.0, 0
    for record in records:
        tokens = record.get("num_input_tokens_seen", before)
        if "tokens_per_second" in record:
            hours, before = hours + (tokens - before) / record["tokens_per_second"] / 3600, tokens
        elif "eval_loss" in record:
            points.append((tokens, round(hours, 4), round(record["eval_loss"], 4)))
    return points


def score_of(task: str, results: dict) -> float:
    """The paper's metric; of MNLI the mean of both validation sets."""
    metric = get_task(task).metrics[0]
    return statistics.fmean(value for name, value in results.items() if name.endswith(f"_{metric}"))


def count_without_embeddings(model: nn.Module) -> int:
    """Parameters but those of embeddings, and of a head that shares them."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    embedded = {id(weight): weight.numel() for weight in tables}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in embedded)


# ---- The script


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=Path, required=True, help="folder with train/*.txt and validation/*.txt")
    parser.add_argument("--data_dir", type=Path, required=True, help="folder with a folder per task")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--tokens", type=float, default=15e6, help="tokens of text of the long run")
    parser.add_argument("--sweep_tokens", type=float, default=3e6, help="tokens of text of each run of the sweep")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of fine-tuning")
    parser.add_argument("--train_rows", type=int, help="most rows of a task to fine-tune on; default: see TASKS")
    parser.add_argument("--zero_shot_rows", type=int, help="of each task without fine-tuning; default: all")
    parser.add_argument("--list", action="store_true", help="print the steps that are left, and run nothing")
    parser.add_argument("--page", action="store_true", help="print the page so far, and run nothing")
    parser.add_argument("--save", action="store_true", help="write the page, its curves and its figures, all dated")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    if arguments.list:
        left = [step for family in arguments.families for step in steps_of(arguments, family) if not step.is_done]
        print("\n".join(str(step.folder) for step in left))
        return
    if not (arguments.page or arguments.save):
        if not (arguments.work_dir / "tokenizer").is_dir():
            texts = training_texts(f"{arguments.books}/train")
            GPT1Tokenizer.train(texts, NUM_MERGES).save_pretrained(arguments.work_dir / "tokenizer")
        for family in arguments.families:
            while left := [step for step in steps_of(arguments, family) if not step.is_done]:
                print(left[0].folder, flush=True)
                run(left[0])
    found = {family: read_row(arguments, family) for family in arguments.families}
    rows = {family: row for family, row in found.items() if row is not None}
    text = page(rows, TASKS, sys.argv[1:] if words is None else words)
    print(text)
    if arguments.save:
        path = save_result("families", machine(), {family: vars(row) for family, row in rows.items()})
        draw(rows).savefig(path.with_suffix(".png"))
        path.with_suffix(".md").write_text(f"{text}\n\n![Learning curves]({path.stem}.png)\n", encoding="utf-8")


if __name__ == "__main__":
    main()

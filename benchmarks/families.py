"""Pre-trains every family on the same novels, asks and fine-tunes each alike, and writes one page of tables.

    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --list  # what is left to do
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families         # hours
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --page  # the page so far
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --save  # as dated files

`books` has novels in train/*.txt and validation/*.txt, `data` a folder per task. Every family has the same tokenizer,
blocks of 512 tokens, 4 layers of 256 and number of tokens. Its learning rate is the best of four short runs by its own
held-out loss: those of two families do not compare. Fine-tuning has one recipe for all but the learning rate, and
several seeds. That rate is the best of four by accuracy on held-out training rows of SST-2 and SNLI.

A step is one command of `gpt1` in a folder of its own; `--jobs` of them run at once, of all families alike. A finished
step is never repeated, and a killed one goes on from its last checkpoint. The processor time of all attempts counts,
and the largest resident memory of any.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import torch
from families_page import Row, draw, page
from harness import machine, save_result
from torch import nn
from transformers import MODEL_FOR_MULTIPLE_CHOICE_MAPPING

from modeling_gpt1.storage.writing import write_atomically
from modeling_gpt1.training.families import FAMILIES
from modeling_gpt1.training.preparation import OPENED_TYPES, OWN_TYPES
from tokenization import GPT1Tokenizer, get_task, load_task, training_texts

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
FINE_TUNING = "--num_train_epochs 3 --per_device_train_batch_size 32 --warmup_steps 0.1 --bf16"
FINE_TUNING += " --save_strategy epoch --save_total_limit 1 --report_to none --disable_tqdm true"
FINE_TUNING_RATES = (1e-4, 2.5e-4, 5e-4, 1e-3)
# The rate is chosen on training rows of these tasks: so many train, so many are held out.
RATE_TASKS, RATE_TRAIN_ROWS, RATE_HELD_OUT = ("sst2", "snli"), 10_000, 2_000
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


def train_rows(arguments: argparse.Namespace, task: str) -> int | None:
    """The most rows to train on; `None` for all."""
    return min((limit for limit in (TASKS[task], arguments.train_rows) if limit is not None), default=None)


def fine_tuning(arguments: argparse.Namespace, model: Step, task: str, rate: float, seed: int) -> Step:
    flags = {"task": task, "data_dir": arguments.data_dir, "seed": seed}
    if (limit := train_rows(arguments, task)) is not None:
        flags["max_train_samples"] = limit
    return finetune_step(model, f"{task}-{rate:g}-{seed}", rate, flags)


def rate_trial(arguments: argparse.Namespace, model: Step, task: str, rate: float) -> Step:
    """Fine-tuning that is scored on held-out training rows."""
    train, held_out = rate_files(arguments, task)
    columns = [f"{role}={name}" for role, name in get_task(task).columns.items()]
    flags = {"train_file": train, "validation_file": held_out, "traversal": get_task(task).traversal}
    return finetune_step(model, f"rate-{task}-{rate:g}", rate, flags, "--columns", *columns)


def finetune_step(model: Step, name: str, rate: float, flags: dict, *words: str) -> Step:
    flags = {"model": model.folder / "out", "learning_rate": rate, **flags}
    if not torch.cuda.is_available():
        flags["use_cpu"] = True
    words = (*words_of("finetune", flags), *words, "--do_train", "--do_eval", *FINE_TUNING.split())
    words += ("--resume_from_checkpoint", "auto")
    return Step(model.folder.parent / name, words, "--output_dir", "eval_results.json")


def rate_files(arguments: argparse.Namespace, task: str) -> tuple[Path, Path]:
    folder = arguments.work_dir / "rates" / task
    return folder / "train.jsonl", folder / "held_out.jsonl"


def check_data(arguments: argparse.Namespace) -> None:
    """Stops before hours of pre-training if a task could not be fine-tuned after them."""
    for task in map(get_task, TASKS):
        found = load_task(task, arguments.data_dir)
        missing = [name for name in (task.train_split, *task.validation_splits) if name not in found]
        if missing:
            names = " and no ".join(missing)
            raise SystemExit(f"{arguments.data_dir}: {task.name} has no split {names}. Add its file.")


def write_rate_files(arguments: argparse.Namespace) -> None:
    for task in RATE_TASKS:
        train, held_out = rate_files(arguments, task)
        rows = load_task(task, arguments.data_dir)[get_task(task).train_split].shuffle(seed=0)
        count = min(RATE_TRAIN_ROWS, arguments.train_rows or RATE_TRAIN_ROWS, len(rows) - RATE_HELD_OUT)
        parts = {held_out: range(RATE_HELD_OUT), train: range(RATE_HELD_OUT, RATE_HELD_OUT + count)}
        train.parent.mkdir(parents=True, exist_ok=True)
        for path, places in parts.items():
            write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows.select(places)))


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


def long_run(arguments: argparse.Namespace, family: str) -> Step | None:
    """The run whose model is measured; `None` while its learning rate is not known."""
    rate = best_rate(arguments, family)
    return None if rate is None else pretraining(arguments, family, arguments.tokens, rate)


def best_fine_tuning_rate(arguments: argparse.Namespace, model: Step) -> float | None:
    """The rate with the highest mean accuracy on held-out rows; `None` while a run is missing."""
    rates = arguments.fine_tuning_rates
    if len(rates) == 1:
        return rates[0]
    means = []
    for rate in rates:
        steps = [rate_trial(arguments, model, task, rate) for task in RATE_TASKS]
        if not all(step.is_done for step in steps):
            return None
        means.append(statistics.fmean(read(step.folder / "out" / step.result)["eval_accuracy"] for step in steps))
    return rates[means.index(max(means))]


def stages_of(arguments: argparse.Namespace, family: str) -> list[list[Step]]:
    """The steps of a family that are known yet. A stage needs all steps of the stages before it."""
    model = long_run(arguments, family)
    if model is None:
        return [sweep(arguments, family)]
    rates = arguments.fine_tuning_rates if len(arguments.fine_tuning_rates) > 1 else ()
    trials = [rate_trial(arguments, model, task, rate) for task in RATE_TASKS for rate in rates]
    stages = [sweep(arguments, family), [model], trials]
    rate = best_fine_tuning_rate(arguments, model)
    if rate is not None:
        seeds = range(arguments.seeds)
        tuned = [fine_tuning(arguments, model, task, rate, seed) for seed in seeds for task in tasks_of(family)]
        stages.append([asking(arguments, model), *tuned])
    return stages


def steps_to_begin(arguments: argparse.Namespace) -> list[Step]:
    """The steps that no unfinished step holds up: early stages first, and in a stage the same step of all families."""
    found = []
    for family in arguments.families:
        stages = enumerate(stages_of(arguments, family))
        left = ((number, place, step) for number, stage in stages for place, step in enumerate(stage))
        left = [entry for entry in left if not entry[2].is_done]
        found += [entry for entry in left if entry[0] == left[0][0]]
    return [step for *_, step in sorted(found, key=lambda entry: entry[:2])]


def run_all(arguments: argparse.Namespace) -> None:
    """Runs all steps, `jobs` at once. After a failure the running ones end, and no further one begins."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // arguments.jobs)))
    running: dict[Future, Step] = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        while True:
            ready = [step for step in steps_to_begin(arguments) if step not in running.values()]
            for step in ready[: arguments.jobs - len(running)]:
                print(step.folder, flush=True)
                running[pool.submit(run, step)] = step
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                del running[future]
                future.result()


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
    model = long_run(arguments, family)
    if model is None or not model.is_done:
        return None
    opened = FAMILIES[family].model_class.from_pretrained(model.folder / "out")
    results, records = read(model.folder / "out" / model.result), read(model.folder / "out" / "trainer_state.json")
    speeds = [record["tokens_per_second"] for record in records["log_history"] if "tokens_per_second" in record]
    cost = {**read(model.folder / "done.json"), "tokens": results["num_input_tokens_seen"]}
    cost["tokens_per_second"] = statistics.median(speeds)
    losses = {name.removeprefix("eval_"): value for name, value in results.items() if name.endswith("_loss")}
    losses = {name: value for name, value in losses.items() if name != "train_loss"}
    rate = best_fine_tuning_rate(arguments, model)
    learning_rate = best_rate(arguments, family)
    row = Row(opened.num_parameters(), count_without_embeddings(opened), cost, learning_rate, losses, rate)
    row.curve = curve_of(records["log_history"])
    asked = asking(arguments, model)
    if asked.is_done:
        (answers,) = read(asked.folder / "out")["results"]
        row.zero_shot, row.method = answers["tasks"], answers["method"]
    for task in tasks_of(family) if rate is not None else ():
        steps = [fine_tuning(arguments, model, task, rate, seed) for seed in range(arguments.seeds)]
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
    parser.add_argument("--fine_tuning_rates", nargs="+", type=float, default=FINE_TUNING_RATES, metavar="RATE")
    parser.add_argument("--jobs", type=int, default=1, help="steps that run at once, on an equal share of the cores")
    parser.add_argument("--train_rows", type=int, help="most rows of a task to fine-tune on; default: see TASKS")
    parser.add_argument("--zero_shot_rows", type=int, help="of each task without fine-tuning; default: all")
    parser.add_argument("--list", action="store_true", help="print the steps that are left, and run nothing")
    parser.add_argument("--page", action="store_true", help="print the page so far, and run nothing")
    parser.add_argument("--save", action="store_true", help="write the page, its curves and its figures, all dated")
    arguments = parser.parse_args(words)
    if arguments.jobs < 1:
        parser.error(f"--jobs is {arguments.jobs}, but at least 1 step must run.")
    return arguments


def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    if arguments.list:
        steps = (step for family in arguments.families for stage in stages_of(arguments, family) for step in stage)
        print("\n".join(str(step.folder) for step in steps if not step.is_done))
        return
    if not (arguments.page or arguments.save):
        check_data(arguments)
        if not (arguments.work_dir / "tokenizer").is_dir():
            texts = training_texts(f"{arguments.books}/train")
            GPT1Tokenizer.train(texts, NUM_MERGES).save_pretrained(arguments.work_dir / "tokenizer")
        if len(arguments.fine_tuning_rates) > 1:
            write_rate_files(arguments)
        run_all(arguments)
    found = {family: read_row(arguments, family) for family in arguments.families}
    rows = {family: row for family, row in found.items() if row is not None}
    words = [word for word in (sys.argv[1:] if words is None else words) if word not in ("--page", "--save")]
    about = {**machine(), "jobs": arguments.jobs, "fine_tuning": FINE_TUNING, "command": shlex.join(words)}
    about["rows"] = {task: limit for task in TASKS if (limit := train_rows(arguments, task)) is not None}
    if torch.cuda.is_available():
        about["accelerator"] = torch.cuda.get_device_name()
    text = page(rows, TASKS, about)
    print(text)
    if arguments.save:
        path = save_result("families", about, {family: vars(row) for family, row in rows.items()})
        draw(rows).savefig(path.with_suffix(".png"))
        path.with_suffix(".md").write_text(f"{text}\n\n![Learning curves]({path.stem}.png)\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Whether the auxiliary objective helps a decoder of transformers: scores with λ > 0 beside those with λ = 0.

    python benchmarks/decoder_objective.py --data_dir data --output_dir runs/decoder-objective   # hours on one core
    python benchmarks/decoder_objective.py --output_dir runs/decoder-objective --save            # dated files of it

The decoder is the model of the package, pre-trained on novels, as `gpt1 convert` writes it: transformers' openai-gpt.
Its classifier is fine-tuned with `prepare_finetuning(…, auto_model=True, lm_coef=λ)` and `TaskTrainer`.

A condition is a task, a number of training rows and λ. Every condition has the same trials, one of each learning rate,
with one seed. A trial trains without a part of the training rows and is scored on that part. The rate of the highest
score is chosen; of equal ones that with the lowest task loss. Then the seeds run with it, on rows drawn from all
training rows, and are scored on the task's labelled test rows, else its validation rows. A seed draws the same rows
for each λ.

A finished cell is a file in the folder of the run, and is never repeated: the same command goes on.
"""

import argparse
import gzip
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from harness import default_data, machine, read_json, save_result, write_json
from transformers import PrinterCallback, logging
from transformers.utils.logging import disable_progress_bar

from modeling_gpt1 import NOVELS, GPT1TrainingArguments, TaskTrainer, prepare_finetuning
from modeling_gpt1.conversion import convert_checkpoint
from modeling_gpt1.families.opening import without_reports
from modeling_gpt1.reproduction.baselines import score_baseline
from modeling_gpt1.reproduction.scores import Scores, constant_answer, difference, estimate, resample
from modeling_gpt1.reproduction.training_rows import cut, drawn, has_failed, load_training_rows, loss_of_frequencies
from modeling_gpt1.reproduction.tuning import TUNING_SEED, best_trial
from modeling_gpt1.training.checkpoint import DivergenceError
from tokenization import get_task, load_task
from tokenization.rows.metrics import compute
from tokenization.rows.tasks import predictions_from_logits

TASKS = ("sst2", "cola", "story_cloze")
ROWS = (500, 4000)
LM_COEFS = (0.0, 0.1, 0.5, 1.0)
LEARNING_RATES = (1e-4, 3e-4, 1e-3)
SEEDS = (1, 2, 3, 4, 5)
SETTINGS = {
    "num_train_epochs": 3,
    "warmup_steps": 0.1,
    "per_device_train_batch_size": 32,
    "per_device_eval_batch_size": 64,
}
SCORED = {"sst2": "validation", "cola": "validation", "story_cloze": "test"}  # GLUE hides its test labels
BASELINE = "ngrams"


@dataclass(frozen=True)
class Condition:
    """What is tuned and then trained with several seeds; without λ the linear model of n-grams."""

    task: str
    rows: int
    lm_coef: float | None

    @property
    def name(self) -> str:
        model = BASELINE if self.lm_coef is None else f"lambda{self.lm_coef:g}"
        return f"{self.task}-{self.rows}-{model}"


@dataclass(frozen=True)
class Cell:
    """A run."""

    condition: Condition
    seed: int
    learning_rate: float | None = None
    is_trial: bool = False

    @property
    def name(self) -> str:
        rate = "" if self.learning_rate is None else f"-rate{self.learning_rate:g}"
        return f"{self.condition.name}{rate}-{'trial' if self.is_trial else f'seed{self.seed}'}"

    @property
    def facts(self) -> dict:
        return {
            "task": self.condition.task,
            "rows": self.condition.rows,
            "lm_coef": self.condition.lm_coef,
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            "is_trial": self.is_trial,
        }


# ---- A run


class Runs:
    """Runs cells, each once, in a folder that keeps their results."""

    def __init__(self, data_dir: Path, output_dir: Path):
        self.data_dir = str(data_dir)
        self.output_dir = output_dir
        (output_dir / "cells").mkdir(parents=True, exist_ok=True)

    @cached_property
    def start(self) -> str:
        """The folder of the decoder that all runs begin from."""
        folder = self.output_dir / "openai-gpt"
        if not folder.is_dir():
            convert_checkpoint(NOVELS, folder)
        return str(folder)

    @cached_property
    def folder_of_runs(self) -> str:
        """Where the trainer of a cell writes, which is not kept; each process has its own."""
        return tempfile.mkdtemp()

    def result(self, cell: Cell) -> dict:
        """What came of a cell, which runs if it has not yet."""
        path = self.output_dir / "cells" / f"{cell.name}.json"
        found = read_json(path)
        if found is None:
            began = time.process_time()
            found = {**cell.facts, **(self.fit(cell) if cell.condition.lm_coef is None else self.train(cell))}
            found["cpu_seconds"] = round(time.process_time() - began, 1)
            write_json(path, found)
            print(f"{time.strftime('%H:%M')} {described(cell, found)}", flush=True)
        return found

    def rows_of(self, cell: Cell) -> tuple[Dataset, Dataset]:
        """The rows that a run trains on, and those that it is scored on."""
        task = get_task(cell.condition.task)
        training_rows = load_training_rows(task, self.data_dir)
        if cell.is_trial:
            training_rows, scored = cut(training_rows, task)
        else:
            scored = load_task(task, self.data_dir)[SCORED[task.name]]
        return drawn(training_rows, {"max_train_samples": cell.condition.rows}, "train", cell.seed), scored

    def train(self, cell: Cell) -> dict:
        """Fine-tunes the decoder, and keeps its score and its answers."""
        task = get_task(cell.condition.task)
        rows, scored = self.rows_of(cell)
        with without_reports():
            parts = prepare_finetuning(self.start, task, lm_coef=cell.condition.lm_coef, auto_model=True)
        arguments = GPT1TrainingArguments(
            self.folder_of_runs,
            learning_rate=cell.learning_rate,
            seed=cell.seed,
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            **SETTINGS,
        )
        trainer = TaskTrainer(args=arguments, train_dataset=rows, **parts)
        trainer.remove_callback(PrinterCallback)
        found = {"train_rows": len(rows)}
        try:
            trainer.train()
        except DivergenceError:
            return {**found, "metrics": {}, "training": about_training(math.nan, rows, task)}
        losses = [record.get("task_loss", record["loss"]) for record in trainer.state.log_history if "loss" in record]
        found["training"] = about_training(losses[-1], rows, task)
        label = task.columns["label"]
        logits = trainer.predict(scored.remove_columns(label)).predictions
        labels = np.asarray(scored[label][:])
        predictions = predictions_from_logits(task, logits)
        task_loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels))
        metric = task.metrics[0]
        found["metrics"] = {"task_loss": task_loss.item(), **compute(metric, predictions, labels)}
        if not cell.is_trial:
            found["answers"] = {"labels": as_text(labels), "predictions": as_text(predictions)}
        return found

    def fit(self, cell: Cell) -> dict:
        """Fits the linear model of n-grams to the rows that the runs with this seed train on."""
        task = get_task(cell.condition.task)
        split = SCORED[task.name]
        splits = {split: load_task(task, self.data_dir)[split]}
        settings = {"max_train_samples": cell.condition.rows}
        rows = load_training_rows(task, self.data_dir)
        found = score_baseline(task, BASELINE, rows, splits, settings, cell.seed)
        metric = task.metrics[0]
        score = next(score for name, score in found["metrics"].items() if name.endswith(metric))
        return {"metrics": {metric: score}, "answers": found["answers"][split], "penalty": found["penalty"]}


def about_training(task_loss: float, rows: Dataset, task) -> dict:
    """The training loss of the last epoch, beside that of the class frequencies."""
    return {"task_loss": task_loss, "loss_of_frequencies": loss_of_frequencies(rows, task)}


def as_text(numbers: np.ndarray) -> str:
    return " ".join(map(str, numbers.tolist()))


def described(cell: Cell, found: dict) -> str:
    scores = ", ".join(f"{name} {score:.3f}" for name, score in found["metrics"].items())
    failed = ", failed to train" if has_failed(found) else ""
    return f"{cell.name}: {scores or 'diverged'}{failed}, {found['cpu_seconds']:.0f} s"


# ---- The grid


def conditions(arguments: argparse.Namespace) -> Iterator[Condition]:
    """All numbers of rows of the first kind come before those of the next: they take the least time."""
    for rows in arguments.rows:
        for task in arguments.tasks:
            yield Condition(task, rows, None)
            for lm_coef in arguments.lm_coefs:
                yield Condition(task, rows, lm_coef)


def run_condition(runs: Runs, condition: Condition, rates: Sequence[float], seeds: Sequence[int]) -> None:
    rate = None
    if condition.lm_coef is not None:
        trials = [runs.result(Cell(condition, TUNING_SEED, rate, is_trial=True)) for rate in rates]
        rate = chosen_rate(trials)
    for seed in seeds:
        runs.result(Cell(condition, seed, rate))


def chosen_rate(trials: list[dict]) -> float:
    """The rate of the best of a condition's trials; of equal ones, and of none with a score, the first."""
    metric = get_task(trials[0]["task"]).metrics[0]
    described_trials = [
        {
            "learning_rate": trial["learning_rate"],
            "score": trial["metrics"].get(metric),
            "task_loss": trial["metrics"].get("task_loss"),
            "failed": has_failed(trial),
        }
        for trial in trials
    ]
    return (best_trial(described_trials) or described_trials[0])["learning_rate"]


# ---- What came of it


def scores_of(cells: Sequence[dict]) -> Scores:
    """Scores × 100 by seed, of the runs that trained, and those of resampled rows."""
    found = {}
    for cell in cells:
        if not has_failed(cell):
            metric = get_task(cell["task"]).metrics[0]
            resampled = resample(cell["answers"]["labels"], cell["answers"]["predictions"], metric)
            found[cell["seed"]] = np.append(100 * cell["metrics"][metric], resampled)
    return found


def effects_of(cells: Sequence[dict]) -> list[dict]:
    """The mean score of each condition whose seeds are all there, and its difference to λ = 0."""
    seeds_of: dict[Condition, list[dict]] = {}
    trials_of: dict[Condition, list[dict]] = {}
    for cell in cells:
        of = trials_of if cell["is_trial"] else seeds_of
        of.setdefault(Condition(cell["task"], cell["rows"], cell["lm_coef"]), []).append(cell)
    for condition, trials in trials_of.items():  # of a rate that later trials replaced, runs may be left
        runs = seeds_of.get(condition, [])
        seeds_of[condition] = [run for run in runs if run["learning_rate"] == chosen_rate(trials)]
    found = []
    for condition, runs in seeds_of.items():
        if not runs:
            continue
        scores = scores_of(runs)
        metric = get_task(condition.task).metrics[0]
        labels = next((run["answers"]["labels"] for run in runs if "answers" in run), None)
        effect = {
            "task": condition.task,
            "rows": condition.rows,
            "lm_coef": condition.lm_coef,
            "train_rows": runs[0].get("train_rows"),
            "learning_rate": runs[0]["learning_rate"],
            "seeds": len(runs),
            "failed": sum(map(has_failed, runs)),
            "one_answer": None if labels is None else round(constant_answer(labels, metric), 4),
            "score": round(estimate(scores).value, 4) if scores else None,
            "by_seed": {str(seed): round(of_seed[0], 4) for seed, of_seed in sorted(scores.items())},
        }
        without = scores_of(seeds_of.get(Condition(condition.task, condition.rows, 0.0), []))
        if condition.lm_coef != 0 and scores and without:
            of_both = difference(scores, without)
            effect["difference"] = round(of_both.value, 4)
            effect["interval"] = None if of_both.interval is None else [round(end, 4) for end in of_both.interval]
        effect["trials"] = {
            f"{trial['learning_rate']:g}": trial["metrics"].get(metric) for trial in trials_of.get(condition, [])
        }
        found.append(effect)
    return found


def finished_cells(folder: Path, num_seeds: int) -> list[dict]:
    """The results of the conditions whose seeds have all run, in the order of the grid."""
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / "cells").glob("*.json"))]

    def condition_of(cell: dict) -> Condition:
        return Condition(cell["task"], cell["rows"], cell["lm_coef"])

    counts: dict[Condition, int] = {}
    for cell in cells:
        counts[condition_of(cell)] = counts.get(condition_of(cell), 0) + (not cell["is_trial"])
    whole = [cell for cell in cells if counts[condition_of(cell)] >= num_seeds]

    def order(cell: dict) -> tuple:
        lm_coef = -1 if cell["lm_coef"] is None else cell["lm_coef"]
        return TASKS.index(cell["task"]), cell["rows"], lm_coef, not cell["is_trial"], cell["seed"]

    return sorted(whole, key=order)


def save(folder: Path, num_seeds: int) -> None:
    """Writes the dated files: the effects, and the cells with the answer to each row."""
    cells = finished_cells(folder, num_seeds)
    content = {"settings": SETTINGS, "learning_rates": LEARNING_RATES, "effects": effects_of(cells)}
    path = save_result("decoder-objective", machine(threads=torch.get_num_threads()), content)
    packed = gzip.compress(json.dumps(cells).encode(), mtime=0)
    cells_path = path.with_name(f"{path.stem}-cells.json.gz")
    cells_path.write_bytes(packed)
    print(f"written: {cells_path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path, default=default_data(), help="Folder of the tasks' rows.")
    parser.add_argument("--output_dir", type=Path, default="runs/decoder-objective", help="Folder of the run.")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="Tasks. Default: all.")
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS, help="Numbers of training rows.")
    parser.add_argument("--lm_coefs", nargs="+", type=float, default=LM_COEFS, help="Values of λ.")
    parser.add_argument(
        "--learning_rates", nargs="+", type=float, default=LEARNING_RATES, help="Rates that are tried."
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, help="Seeds of each condition.")
    parser.add_argument("--save", action="store_true", help="Write dated files of the conditions that are finished.")
    arguments = parser.parse_args()
    if arguments.save:
        save(arguments.output_dir, len(arguments.seeds))
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    logging.set_verbosity_error()
    disable_progress_bar()
    runs = Runs(arguments.data_dir, arguments.output_dir)
    for condition in conditions(arguments):
        run_condition(runs, condition, arguments.learning_rates, arguments.seeds)


if __name__ == "__main__":
    main()

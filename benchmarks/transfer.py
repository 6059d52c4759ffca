"""What pre-training is worth: tasks fine-tuned from a checkpoint against the same architecture from scratch.

Every cell (task, start, seed) is a run of examples/finetune.py with the same arguments; both starts share the
checkpoint's tokenizer, sizes and dropouts, and a seed also orders the rows. A finished cell is never run again.

    python benchmarks/transfer.py --checkpoint runs/books --data_dir data --work_dir runs/transfer
    python benchmarks/transfer.py … --tasks rte stsb --seeds 1 2 3 --epochs 3 --save   # results/<date>-transfer.json
"""

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from harness import machine, save_result

from modeling_gpt1 import GPT1Config

ROOT = Path(__file__).resolve().parent.parent
# The paper's metric of each task, on the split that has labels: the test split of Story Cloze, else validation.
METRICS = {
    "sst2": "eval_accuracy",
    "cola": "eval_matthews_correlation",
    "rte": "eval_accuracy",
    "mrpc": "eval_f1",
    "stsb": "eval_pearson",
    "story_cloze": "predict_accuracy",
}
STARTS = ("scratch", "pretrained")


def config_overrides(checkpoint: Path) -> str:
    """The checkpoint's sizes and dropouts, where they are not the defaults, as `--config_overrides`."""
    config, default = GPT1Config.from_pretrained(checkpoint), GPT1Config()
    own = {config_field.name for config_field in dataclasses.fields(GPT1Config)}
    own &= set(GPT1Config.__annotations__) - {"vocab_size", "pad_token_id"}
    changed = {name: getattr(config, name) for name in sorted(own) if getattr(config, name) != getattr(default, name)}
    return ",".join(f"{name}={value}" for name, value in changed.items())


def command(arguments, task: str, start: str, seed: int, output_dir: Path) -> list[str]:
    model = ["--model_name_or_path", str(arguments.checkpoint)]
    if start == "scratch":
        model = ["--tokenizer_name", str(arguments.checkpoint)]
        model += ["--config_overrides", config_overrides(arguments.checkpoint)]
    return [
        *(sys.executable, str(ROOT / "examples" / "finetune.py"), "--task", task, *model, "--seed", str(seed)),
        *("--data_dir", str(arguments.data_dir), "--output_dir", str(output_dir), "--do_train", "--do_eval"),
        *(["--do_predict"] if METRICS[task].startswith("predict") else []),
        *("--num_train_epochs", str(arguments.epochs), "--learning_rate", str(arguments.learning_rate)),
        *("--per_device_train_batch_size", "32", "--per_device_eval_batch_size", "64", "--warmup_steps", "0.1"),
        *("--save_strategy", "no", "--disable_tqdm", "true", *arguments.finetune_arguments),
    ]


def run_cell(arguments, task: str, start: str, seed: int) -> dict:
    """Metrics of one run; those of an earlier call where it ended well."""
    folder = arguments.work_dir / f"{task}-{start}-{seed}"
    finished = folder / "cell.json"
    if not finished.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with (folder / "log.txt").open("w") as log:
            subprocess.run(command(arguments, task, start, seed, folder / "run"), stdout=log, stderr=log, check=True)
        metrics = json.loads((folder / "run" / "all_results.json").read_text())
        cell = {"task": task, "start": start, "seed": seed, "metrics": metrics}
        partial = finished.with_suffix(".partial")
        partial.write_text(json.dumps(cell))
        partial.rename(finished)
        shutil.rmtree(folder / "run")
    return json.loads(finished.read_text())


def summarise(cells: list[dict]) -> list[dict]:
    """Median, lowest and highest of the paper's metric, × 100, of each task and start."""
    rows = []
    for task, start in dict.fromkeys((cell["task"], cell["start"]) for cell in cells):
        values = [
            100 * cell["metrics"][METRICS[task]] for cell in cells if (cell["task"], cell["start"]) == (task, start)
        ]
        spread = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
        rows.append({"task": task, "metric": METRICS[task], "start": start, "seeds": len(values), **spread})
    return rows


def print_table(rows: list[dict]) -> None:
    print(f"{'task':<13}{'metric × 100':<28}{'start':<12}{'seeds':>6}{'median':>8}{'lowest':>8}{'highest':>8}")
    for row in rows:
        numbers = "".join(f"{row[name]:>8.1f}" for name in ("median", "lowest", "highest"))
        print(f"{row['task']:<13}{row['metric']:<28}{row['start']:<12}{row['seeds']:>6}{numbers}")


def settings_of(arguments) -> dict:
    return {
        "architecture": config_overrides(arguments.checkpoint),
        "epochs": arguments.epochs,
        "learning_rate": arguments.learning_rate,
        "batch_size": 32,
        "finetune_arguments": arguments.finetune_arguments,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, help="folder that examples/pretrain.py wrote")
    parser.add_argument("--data_dir", type=Path, default=Path(os.environ.get("GPT1_DATA_DIR", "data")))
    parser.add_argument("--work_dir", type=Path, default=Path("runs/transfer"), help="finished cells are kept here")
    parser.add_argument("--tasks", nargs="+", choices=list(METRICS), default=list(METRICS))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning_rate", type=float, default=5e-4)
    parser.add_argument("--save", action="store_true", help="write a dated JSON file")
    parser.add_argument(
        "--finetune_arguments", nargs=argparse.REMAINDER, default=[], help="the rest goes to examples/finetune.py"
    )
    arguments = parser.parse_args()
    if arguments.checkpoint is None or not (arguments.checkpoint / "config.json").is_file():
        print(f"Nothing was measured: --checkpoint {arguments.checkpoint} is no folder with a model.")
        return
    cells = []
    for seed in arguments.seeds:
        for task in arguments.tasks:
            for start in arguments.starts:
                cells.append(run_cell(arguments, task, start, seed))
                value = cells[-1]["metrics"][METRICS[task]]
                print(f"{task}, {start}, seed {seed}: {METRICS[task]} {value:.4f}", flush=True)
    rows = summarise(cells)
    print_table(rows)
    if arguments.save:
        content = {"settings": settings_of(arguments), "summary": rows, "cells": cells}
        save_result("transfer", {**machine(), "datasets": version("datasets")}, content)


if __name__ == "__main__":
    main()

"""Trackio: a run of `gpt1 finetune` that trains, evaluates and predicts, recorded in a folder."""

import sqlite3
from pathlib import Path

from figures import Figure, finetune, report

REQUIREMENTS = ("trackio==0.43.0",)
METRICS = ("train/loss", "train/lm_perplexity", "eval/accuracy")


def main() -> list[Figure]:
    finetune("trackio", TRACKIO_DIR="records")
    (database,) = Path("records").glob("*.db")
    rows = sqlite3.connect(database).execute("select run_name, metrics from metrics").fetchall()
    logged = "".join(str(metrics) for _, metrics in rows)
    return [
        Figure("runs that were recorded", len({name for name, _ in rows}), equals=1),
        Figure("metrics of 3 that it has", sum(f'"{name}"' in logged for name in METRICS), equals=3),
    ]


if __name__ == "__main__":
    report(main)

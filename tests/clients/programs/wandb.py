"""wandb: a run of `gpt1 finetune` that trains, evaluates and predicts, recorded offline."""

import json
from pathlib import Path

from figures import Figure, finetune, report

REQUIREMENTS = ("wandb==0.31.0",)
METRICS = ("train/loss", "train/lm_perplexity", "eval/accuracy")


def main() -> list[Figure]:
    finetune("wandb", WANDB_MODE="offline", WANDB_DIR=".")
    runs = list(Path("wandb").glob("offline-run-*"))
    summary = json.loads((runs[0] / "files" / "wandb-summary.json").read_text(encoding="utf-8"))
    return [
        Figure("runs that were recorded", len(runs), equals=1),
        Figure("metrics of 3 that it has", sum(name in summary for name in METRICS), equals=3),
    ]


if __name__ == "__main__":
    report(main)

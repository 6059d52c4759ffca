"""wandb: a run of `gpt1 finetune` that trains, evaluates and predicts, recorded offline."""

from pathlib import Path

from figures import Figure, finetune, report

REQUIREMENTS = ("wandb==0.31.0",)
METRICS = ("train/loss", "train/lm_perplexity", "eval/accuracy")


def main() -> list[Figure]:
    finetune("wandb", WANDB_MODE="offline", WANDB_DIR=".")
    runs = list(Path("wandb").glob("offline-run-*"))
    (record,) = runs[0].glob("*.wandb")
    logged = record.read_bytes()
    return [
        Figure("runs that were recorded", len(runs), equals=1),
        Figure("metrics of 3 that it has", sum(name.encode() in logged for name in METRICS), equals=3),
    ]


if __name__ == "__main__":
    report(main)

"""Comet: a run of `gpt1 finetune` that trains, evaluates and predicts, recorded offline."""

from pathlib import Path
from zipfile import ZipFile

from figures import Figure, finetune, report

REQUIREMENTS = ("comet-ml==3.58.8",)
METRICS = ("train/loss", "train/lm_perplexity", "eval/accuracy")


def main() -> list[Figure]:
    finetune("comet_ml", COMET_START_ONLINE="0", COMET_OFFLINE_DIRECTORY="archives")
    archives = list(Path("archives").glob("*.zip"))
    with ZipFile(archives[0]) as archive:
        messages = archive.read("messages.json").decode()
    return [
        Figure("archives of a run that trains, evaluates and predicts", len(archives), equals=1),
        Figure("metrics of 3 that it has", sum(f'"{name}"' in messages for name in METRICS), equals=3),
    ]


if __name__ == "__main__":
    report(main)

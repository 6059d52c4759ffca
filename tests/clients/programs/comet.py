"""Comet: a run of `gpt1 finetune` that trains, evaluates and predicts, recorded offline."""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from figures import Figure, report

REQUIREMENTS = ("comet-ml==3.58.8",)


def main() -> list[Figure]:
    rows = [{"sentence": f"a {word} film", "label": label} for word in ("slow", "fine") for label in (0, 1)]
    folder = Path("data/sst2")
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "modeling_gpt1.commands", "finetune", "--task", "sst2", "--data_dir", "data"]
    command += ["--model", "gpt1-novels", "--output_dir", "run", "--do_train", "--do_eval", "--do_predict"]
    command += ["--max_steps", "2", "--logging_steps", "1", "--report_to", "comet_ml"]
    offline = {"COMET_START_ONLINE": "0", "COMET_OFFLINE_DIRECTORY": "archives"}
    subprocess.run(command, check=True, env={**os.environ, **offline})
    archives = list(Path("archives").glob("*.zip"))
    with ZipFile(archives[0]) as archive:
        messages = archive.read("messages.json").decode()
    logged = [name for name in ("train/loss", "train/lm_perplexity", "eval/accuracy") if name in messages]
    return [
        Figure("archives of a run that trains, evaluates and predicts", len(archives), equals=1),
        Figure("names in it, of train/loss, train/lm_perplexity and eval/accuracy", len(logged), equals=3),
    ]


if __name__ == "__main__":
    report(main)

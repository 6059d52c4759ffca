"""From the start of a program to its first update: fine-tuning on many short rows.

    python benchmarks/starts.py                     # 400,000 pairs and 67,349 sentences; some fifteen minutes
    python benchmarks/starts.py --only sentences
    python benchmarks/starts.py --quick --rounds 1  # few rows: a check of the script
    python benchmarks/starts.py --save              # also benchmarks/results/<date>-starts.json

Every start has its own process. Ours is `gpt1 finetune` with a tiny fresh model; the peer is the usual recipe on the
same rows with the same tokenizer: `datasets` maps them to ids, and Trainer groups them by length. Both run twice with
one cache: the second run finds what the first kept. A figure ends with the first update of the optimizer. The rows are
made of drawn words, with the numbers of rows of GLUE's QQP and SST-2. Memory is the peak that no file backs (Linux).
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness import comparison, kernel_figure, main, rounds_of

NUM_ROWS = {"pairs": 400_000, "sentences": 67_349}
COLUMNS = {"pairs": ["text_a=one", "text_b=two"], "sentences": ["text=one"]}
TRAVERSALS = {"pairs": "similarity", "sentences": "classification"}
LIMITS = {"pairs": 10.0, "sentences": 5.0}  # CPU seconds
TINY = {"n_embd": 64, "n_layer": 2, "n_head": 2}
TRAINING = {"per_device_train_batch_size": 32, "use_cpu": True, "report_to": "none", "disable_tqdm": True}


def write_rows(path: Path, number: int, seed: int = 0) -> None:
    """Two texts of 3 to some 80 words in each row, and a label. Frequent words are drawn often."""
    draw = random.Random(seed)
    syllables = [a + b + c for a in "bcdfglmnprst" for b in "aeiou" for c in ("", "n", "r", "st")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(20_000)]
    drawn = iter(draw.choices(words, [1 / rank for rank in range(1, len(words) + 1)], k=number * 26))
    with path.open("w", encoding="utf-8") as file:
        for _ in range(number):
            sizes = [max(3, min(80, round(draw.lognormvariate(2.2, 0.45)))) for _ in range(2)]
            one, two = (" ".join(next(drawn, "last") for _ in range(size)) + "?" for size in sizes)
            file.write(json.dumps({"one": one, "two": two, "label": draw.randint(0, 1)}) + "\n")


# ---- One start, in its own process


def finetune(rows: str, case: str, folder: str) -> None:
    from modeling_gpt1.commands.entry import main

    sizes = ",".join(f"{name}={size}" for name, size in TINY.items())
    data = ["--train_file", rows, "--traversal", TRAVERSALS[case], "--columns", *COLUMNS[case], "label=label"]
    settings = [word for name, value in TRAINING.items() for word in (f"--{name}", str(value))]
    model = ["--tokenizer_name", f"{folder}/tokenizer", "--config_overrides", sizes]
    main(["finetune", *data, *model, *settings, "--do_train", "--output_dir", tempfile.mkdtemp(dir=folder)])


def finetune_as_peer(rows: str, case: str, folder: str) -> None:
    from datasets import load_dataset
    from transformers import (
        DataCollatorWithPadding,
        OpenAIGPTConfig,
        OpenAIGPTForSequenceClassification,
        Trainer,
        TrainingArguments,
    )

    from tokenization import GPT1Tokenizer

    tokenizer = GPT1Tokenizer.from_pretrained(f"{folder}/tokenizer")
    columns = [column.partition("=")[2] for column in COLUMNS[case]]

    def tokenise(batch):
        return tokenizer(*(batch[column] for column in columns), truncation=True, max_length=512)

    data = load_dataset("json", data_files=rows, split="train").map(tokenise, batched=True)
    config = OpenAIGPTConfig(**TINY, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    arguments = TrainingArguments(tempfile.mkdtemp(dir=folder), train_sampling_strategy="group_by_length", **TRAINING)
    collator = DataCollatorWithPadding(tokenizer)
    model = OpenAIGPTForSequenceClassification(config)
    Trainer(model, arguments, collator, data, processing_class=tokenizer).train()


def run_alone(start: str, *arguments: str) -> None:
    """Prints the figures of this process at the first update, and ends it there."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    sampled = [0]

    def sample() -> None:
        while True:
            sampled[0] = max(sampled[0], kernel_figure("RssAnon"))
            time.sleep(0.005)

    def end(*_) -> None:
        print(json.dumps({"CPU seconds": sum(os.times()[:4]), "peak MiB": sampled[0] / 1024}), flush=True)
        os._exit(0)

    register_optimizer_step_post_hook(end)
    threading.Thread(target=sample, daemon=True).start()
    {"gpt1": finetune, "peer": finetune_as_peer}[start](*arguments)


def run(start: str, case: str, rows: Path, folder: str, cache: str) -> dict[str, float]:
    """Calls `run_alone` in a new process."""
    environment = {**os.environ, "HF_DATASETS_CACHE": cache, "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, "--alone", start, str(rows), case, folder]
    child = subprocess.run(command, env=environment, capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{child.stderr[-2000:]}")
    return json.loads(child.stdout.splitlines()[-1])


def compare_case(case: str, number: int, rounds: int, folder: str) -> list[dict]:
    rows = Path(folder, f"{case}.jsonl")
    again = ("first run", "second run")
    write_rows(rows, number)
    peer = "datasets.map and Trainer"
    limit = LIMITS[case]

    def measure(start: str) -> dict[str, dict[str, float]]:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            return {name: run(start, case, rows, folder, cache) for name in again}

    figures = rounds_of(["gpt1", "peer"], rounds, measure)
    table = []
    for name in again:
        work = f"finetune, {number} {case}: first update, {name}"
        for unit in ("CPU seconds", "peak MiB"):
            ours, theirs = ([figure[unit] for figure in figures[start][name]] for start in ("gpt1", "peer"))
            if unit == "CPU seconds":
                table.append(comparison(work, unit, f"limit {limit:.0f} s", ours, [limit] * rounds, 1.0))
            table.append(comparison(work, unit, peer, ours, theirs))
    return table


# ---- Result


def compare(rounds: int, quick: bool, only: tuple[str, ...] = tuple(NUM_ROWS)) -> list[dict]:
    """The rows for `run.py`. `quick` takes few rows."""
    from tokenization import GPT1Tokenizer, training_texts

    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder, "texts.jsonl"), 1000 if quick else 20_000)
        merges = 500 if quick else 20_000
        texts = training_texts(Path(folder, "texts.jsonl"), text_column="one")
        tokenizer = GPT1Tokenizer.train(texts, num_merges=merges, show_progress=False)
        tokenizer.save_pretrained(f"{folder}/tokenizer")
        numbers = {case: 2000 if quick else NUM_ROWS[case] for case in only}
        return [row for case, number in numbers.items() for row in compare_case(case, number, rounds, folder)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        run_alone(*sys.argv[2:])
    else:
        main(compare, only={"nargs": "+", "choices": tuple(NUM_ROWS), "default": tuple(NUM_ROWS)})

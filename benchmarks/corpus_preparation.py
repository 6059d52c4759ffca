"""Memory and speed of preparing a corpus for pre-training, for 10 MB of novels, all of them, and ten times as many.

The peer is the usual recipe of language-model scripts: `datasets` reads lines, maps them to token ids with the same
tokenizer, and joins each thousand lines into blocks. Each run has its own process. Memory is the peak of that process,
with and without the pages of memory-mapped files (Linux).

    python benchmarks/corpus_preparation.py --books data/books/train --openai_bpe data/openai_gpt_bpe
    GPT1_DATA_DIR=data python benchmarks/corpus_preparation.py            # the same two folders
    python benchmarks/corpus_preparation.py … --threads 2 --num_proc 2    # more threads, or more processes, for all
    python benchmarks/corpus_preparation.py … --save                      # also results/<date>-corpus-preparation.json
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import chain
from pathlib import Path

from datasets import load_dataset
from harness import (
    MIB,
    PrivatePeak,
    default_data,
    kernel_figure,
    machine,
    peak_resident_bytes,
    private_bytes,
    released_tokenizer,
    save_result,
)

from tokenization import GPT1Tokenizer, count_blocks, load_blocks

PACKAGES = ("datasets", "pyarrow")  # besides those that every result names
BLOCK_LENGTH = 512
CORPORA = ("10 MB", "all", "all in one file", "ten times")
PEER_CORPORA = ("10 MB", "all")


def write_corpus(name: str, books: list[Path], folder: Path) -> None:
    """Writes the files of a corpus. Copies are links if the disk supports them."""
    if name == "all in one file":
        with (folder / "all.txt").open("wb") as file:
            for book in books:
                file.write(book.read_bytes())
        return
    chosen = books
    if name == "10 MB":
        sizes = [sum(book.stat().st_size for book in books[:count]) for count in range(len(books) + 1)]
        chosen = books[: next((count for count, size in enumerate(sizes) if size >= 10e6), len(books))]
    for copy in range(10 if name == "ten times" else 1):
        for book in chosen:
            try:
                os.link(book, folder / f"{book.stem}-{copy}.txt")
            except OSError:
                shutil.copyfile(book, folder / f"{book.stem}-{copy}.txt")


def prepare(files: list[str], tokenizer: GPT1Tokenizer, num_proc: int | None, cache: str) -> dict:
    counts = count_blocks(load_blocks(files, tokenizer, BLOCK_LENGTH, num_proc=num_proc, cache_dir=cache))
    return {"rows": counts.rows, "tokens_in_rows": counts.tokens, "tokens_left_out": counts.left_out_tokens}


def prepare_as_peer(files: list[str], tokenizer: GPT1Tokenizer, num_proc: int | None, cache: str) -> dict:
    def tokenise(rows):
        ids = tokenizer(rows["text"], add_special_tokens=False, return_attention_mask=False, verbose=False)
        return {"input_ids": ids["input_ids"], "length": list(map(len, ids["input_ids"]))}

    def group(rows):
        ids = list(chain(*rows["input_ids"]))
        whole = len(ids) // BLOCK_LENGTH * BLOCK_LENGTH
        return {"input_ids": [ids[start : start + BLOCK_LENGTH] for start in range(0, whole, BLOCK_LENGTH)]}

    lines = load_dataset("text", data_files=files, split="train", cache_dir=cache)
    ids = lines.map(tokenise, batched=True, remove_columns=["text"], num_proc=num_proc)
    blocks = ids.map(group, batched=True, remove_columns=ids.column_names, num_proc=num_proc)
    in_rows = len(blocks) * BLOCK_LENGTH
    return {"rows": len(blocks), "tokens_in_rows": in_rows, "tokens_left_out": sum(ids["length"]) - in_rows}


def measure(preparer: str, folder: Path, openai_bpe: Path, num_proc: int | None) -> dict:
    """Prepares the corpus once in this process and measures time and memory."""
    tokenizer = released_tokenizer(openai_bpe)
    files = sorted(str(path) for path in folder.glob("*.txt"))
    before = {
        "start_mib": kernel_figure("/proc/self/status", "VmRSS") / 1024,
        "start_anonymous_mib": private_bytes() / MIB,
    }
    start, processor_start = time.perf_counter(), sum(os.times()[:4])
    function = prepare if preparer == "gpt1-hf" else prepare_as_peer
    with PrivatePeak() as private, tempfile.TemporaryDirectory() as cache:
        counts = function(files, tokenizer, num_proc, cache)
        seconds, processor_seconds = time.perf_counter() - start, sum(os.times()[:4]) - processor_start
    megabytes = sum(os.path.getsize(path) for path in files) / 1e6
    spent = {"seconds": seconds, "processor_seconds": processor_seconds}
    memory = {**before, "peak_mib": peak_resident_bytes() / MIB, "peak_anonymous_mib": private.bytes / MIB}
    return {"files": len(files), "megabytes": megabytes, **counts, **spent, **memory}


def run(preparer: str, corpus: str, folder: Path, arguments) -> dict:
    """Calls `measure` in a new process."""
    options = [f"--measure={preparer}", "--books", str(folder), "--openai_bpe", str(arguments.openai_bpe)]
    options += ["--num_proc", str(arguments.num_proc)] if arguments.num_proc else []
    parallel = {"TOKENIZERS_PARALLELISM": str(arguments.threads > 1).lower()}
    environment = {**os.environ, **parallel, "RAYON_NUM_THREADS": str(arguments.threads), "HF_HUB_OFFLINE": "1"}
    environment["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
    command = [sys.executable, __file__, *options]
    child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    row = {"preparer": preparer, "corpus": corpus, **json.loads(child.stdout.splitlines()[-1])}
    print(
        f"{preparer:<10}{corpus:<17}{row['files']:>6}{row['megabytes']:>8.1f}{row['seconds']:>8.1f}"
        f"{row['megabytes'] / row['seconds']:>6.2f}{row['megabytes'] / row['processor_seconds']:>8.2f}"
        f"{row['peak_mib']:>10.0f}{row['peak_anonymous_mib']:>11.0f}"
        f"{row['start_anonymous_mib']:>10.0f}{row['tokens_in_rows']:>12}{row['tokens_left_out']:>10}",
        flush=True,
    )
    return row


def measure_all(arguments) -> list[dict]:
    books = sorted(arguments.books.glob("*.txt"))
    print(
        f"{'preparer':<10}{'corpus':<17}{'files':>6}{'MB':>8}{'s':>8}{'MB/s':>6}{'MB/CPUs':>8}{'peak MiB':>10}"
        f"{'anonymous':>11}{'at start':>10}{'in rows':>12}{'left out':>10}"
    )
    rows = []
    for corpus in arguments.corpora:
        with tempfile.TemporaryDirectory() as folder:
            write_corpus(corpus, books, Path(folder))
            rows.append(run("gpt1-hf", corpus, Path(folder), arguments))
            if corpus in PEER_CORPORA:
                rows.append(run("peer", corpus, Path(folder), arguments))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = default_data()
    parser.add_argument("--books", type=Path, default=data / "books" / "train", help="folder of .txt files")
    parser.add_argument(
        "--openai_bpe",
        type=Path,
        default=data / "openai_gpt_bpe",
        help="folder of encoder_bpe_40000.json and vocab_40000.bpe",
    )
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--threads", type=int, default=1, help="threads of the tokenizer")
    parser.add_argument("--num_proc", type=int, help="processes that tokenise; their memory is not counted")
    parser.add_argument("--save", action="store_true", help="write a dated JSON file")
    parser.add_argument("--measure", choices=("gpt1-hf", "peer"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not list(arguments.books.glob("*.txt")):
        print(f"Nothing was measured: {arguments.books} has no .txt files. Pass --books, or set GPT1_DATA_DIR.")
        return
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.books, arguments.openai_bpe, arguments.num_proc)))
        return
    rows = measure_all(arguments)
    if arguments.save:
        about = {**machine(arguments.threads), "num_proc": arguments.num_proc, "block_length": BLOCK_LENGTH}
        save_result("corpus-preparation", {**about, "versions": {name: version(name) for name in PACKAGES}}, rows)


if __name__ == "__main__":
    main()

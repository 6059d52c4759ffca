"""Learning GPT-1's BPE from a folder of books: time and memory beside the bare `tokenizers` trainer, and a check.

`GPT1Tokenizer.train` prepares text as the released code does and learns 40 000 merges. The peer is what a user of
`tokenizers` would write: lower case, words split from punctuation, the library's `BpeTrainer` on the files, and a
vocabulary of the same size. Every training runs in its own process with one thread, and the two take turns. Each of
ours has another `PYTHONHASHSEED`, and one more runs with two threads: the saved files must be identical byte by byte.
The vocabulary then encodes all the books, where no character may be unknown.

    python benchmarks/bpe_training.py --books data/books/train
    GPT1_DATA_DIR=data python benchmarks/bpe_training.py                   # the same folder
    python benchmarks/bpe_training.py --books data/books/train --save      # also results/<date>-bpe-training.json
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import MIB, default_data, machine, peak_resident_bytes, save_result

OURS, PEER = "GPT1Tokenizer.train", "tokenizers.BpeTrainer"


def train_ours(files: list[str], num_merges: int, output: str):
    from tokenization import GPT1Tokenizer

    def train():
        return GPT1Tokenizer.train(files, num_merges, show_progress=False)

    return train, lambda tokenizer: tokenizer.backend_tokenizer.save(output)


def train_peer(files: list[str], num_merges: int, output: str):
    from tokenizers import Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    def train():
        tokenizer = Tokenizer(BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = BpeTrainer(
            vocab_size=num_merges + 478,  # GPT-1's vocabulary has 478 tokens besides the merges
            min_frequency=2,
            special_tokens=["<unk>"],
            end_of_word_suffix="</w>",
            show_progress=False,
        )
        tokenizer.train(files, trainer)
        return tokenizer

    return train, lambda tokenizer: tokenizer.save(output)


def run_alone(name: str, files: list[str], num_merges: int, output: str) -> dict:
    """Trains once in this process. Measures wall-clock seconds, CPU seconds and peak memory."""
    train, save = {OURS: train_ours, PEER: train_peer}[name](files, num_merges, output)
    before = peak_resident_bytes() / MIB
    clock, processor = time.perf_counter(), time.process_time()
    tokenizer = train()
    result = {
        "seconds": time.perf_counter() - clock,
        "processor_seconds": time.process_time() - processor,
        "peak_mebibytes": peak_resident_bytes() / MIB,
        "mebibytes_before": before,
    }
    save(tokenizer)
    saved = Path(output).read_bytes()
    merges = len(json.loads(saved)["model"]["merges"])
    return {**result, "merges": merges, "sha256": hashlib.sha256(saved).hexdigest()}


def run_in_a_process(name: str, arguments: argparse.Namespace, output: Path, hash_seed: int, threads: int) -> dict:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "RAYON_NUM_THREADS": str(threads)}
    environment["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    command = [sys.executable, __file__, "--books", str(arguments.books), "--num_merges", str(arguments.num_merges)]
    command += ["--alone", name, "--output", str(output)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"{name} failed:\n{run.stderr}")
    result = json.loads(run.stdout.splitlines()[-1])
    print(f"{name:<24}{result['seconds']:>8.1f} s{result['peak_mebibytes']:>8.0f} MiB", flush=True)
    return {**result, "hash_seed": hash_seed, "threads": threads}


def count_unknown(tokenizer_json: Path, books: list[Path]) -> dict:
    """The numbers of unknown tokens and of all tokens when this tokenizer encodes the books."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    tokenizer.encode_special_tokens = True
    unknown_id, unknown, tokens = tokenizer.token_to_id("<unk>"), 0, 0
    for book in books:
        ids = tokenizer.encode(book.read_text(encoding="utf-8"), add_special_tokens=False).ids
        unknown, tokens = unknown + ids.count(unknown_id), tokens + len(ids)
    return {"unknown": unknown, "tokens": tokens}


def measure(arguments: argparse.Namespace, books: list[Path]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "ours.json"
        runs = {OURS: [], PEER: []}
        for repeat in range(arguments.repeats):
            runs[OURS].append(run_in_a_process(OURS, arguments, output, hash_seed=repeat, threads=1))
            runs[PEER].append(run_in_a_process(PEER, arguments, Path(folder) / "peer.json", repeat, threads=1))
        two_threads = run_in_a_process(OURS, arguments, output, hash_seed=arguments.repeats, threads=2)
        files = {run["sha256"] for run in [*runs[OURS], two_threads]}
        return {
            "books": len(books),
            "megabytes": sum(book.stat().st_size for book in books) / 1e6,
            "runs": runs,
            "run_with_two_threads": two_threads,
            "different_files_of_ours": len(files),
            "different_files_of_peer": len({run["sha256"] for run in runs[PEER]}),
            "encoded": count_unknown(output, books),
        }


def print_table(result: dict) -> None:
    """Prints the medians of both, their ratio, and the result of the check of the vocabulary."""
    columns = ("seconds", "processor_seconds", "peak_mebibytes", "mebibytes_before", "merges")
    medians = {
        name: {column: statistics.median(run[column] for run in runs) for column in columns}
        for name, runs in result["runs"].items()
    }
    print(f"\n{result['books']} books, {result['megabytes']:.1f} MB, medians of {len(result['runs'][OURS])}")
    print(f"{'':<24}" + "".join(f"{column:>19}" for column in columns))
    for name, row in medians.items():
        print(f"{name:<24}" + "".join(f"{row[column]:>19.1f}" for column in columns))
    print(f"{'ours / peer':<24}" + "".join(f"{medians[OURS][c] / medians[PEER][c]:>19.2f}" for c in columns))
    print(f"different tokenizer.json: {result['different_files_of_ours']} of ours, 2 threads and all hash seeds;")
    print(f"  {result['different_files_of_peer']} of the peer's")
    print(f"unknown tokens in the books: {result['encoded']['unknown']} of {result['encoded']['tokens']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = default_data()
    parser.add_argument("--books", type=Path, default=data / "books" / "train", help="folder of .txt files")
    parser.add_argument("--num_merges", type=int, default=40_000, help="merges to learn")
    parser.add_argument("--repeats", type=int, default=3, help="trainings of each; the medians count")
    parser.add_argument("--save", action="store_true", help="write a dated JSON file")
    parser.add_argument("--alone", choices=(OURS, PEER), help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    books = sorted(arguments.books.glob("*.txt"))
    if not books:
        print(f"Nothing was measured: {arguments.books} has no .txt files. Pass --books, or set GPT1_DATA_DIR.")
        return
    if arguments.alone:
        print(json.dumps(run_alone(arguments.alone, list(map(str, books)), arguments.num_merges, arguments.output)))
        return
    result = measure(arguments, books)
    print_table(result)
    if arguments.save:
        save_result("bpe-training", machine(), result)


if __name__ == "__main__":
    main()

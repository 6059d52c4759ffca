"""How often GPT1Tokenizer equals the released preparation on a folder of books, and its speed beside a peer.

The peer is transformers' OpenAIGPTTokenizer with the same vocabulary. The reference is ftfy + the released punctuation
rules + spaCy + BPE (tests/tokenization/text/oracle.py).

Speed is measured on novels as paragraphs in one batch, on whole documents of growing length (the cost per byte must
not grow with the length), and on 1,000,000 short rows, through `tokenizer(list)` and through `datasets.map`, on one
and two threads. Each tokenizer runs in its own process. Each round takes its share of the rows, so that all rounds
together take all rows. Without the data folder, agreement is not measured, and speed is measured on generated text:
sentences of invented words, frequent ones short and rare ones long, with the punctuation of prose, and a BPE trained
on them.

    python benchmarks/tokenizer_parity.py --data data                # its books/validation, openai_gpt_bpe and sst2
    GPT1_DATA_DIR=data python benchmarks/tokenizer_parity.py         # the same
    python benchmarks/tokenizer_parity.py --data data --save         # also results/<date>-tokenizer-parity.json
    python benchmarks/tokenizer_parity.py --quick --rounds 2         # a small part of it, without the agreement
"""

import argparse
import itertools
import json
import os
import random
import runpy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from harness import (
    MIB,
    comparison_table,
    comparisons,
    default_data,
    machine,
    released_tokenizer,
    resident_bytes,
    rounds_of,
    running_workers,
    save_result,
    timed,
)
from transformers import OpenAIGPTTokenizer

from tokenization import GPT1Tokenizer

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("spacy", "ftfy", "datasets")
OURS, PEER = "GPT1Tokenizer", "OpenAIGPTTokenizer"
TARGETS = {1: 1.5, 2: 1.2}  # by the number of threads: paragraphs per second, beside the peer
NUM_ROWS, ROWS_A_CALL, ROWS_A_MAP_BATCH = 1_000_000, 100_000, 1000
DOCUMENT_MEGABYTES = (0.5, 1, 2, 5)


def paragraphs_of(book: str) -> list[str]:
    """The paragraphs of a book, which has one per line and blank lines between them."""
    return [line for line in book.split("\n") if line.strip()]


def make_tokenizer(name: str, vocab: dict, merges: list):
    return {OURS: GPT1Tokenizer, PEER: OpenAIGPTTokenizer}[name](vocab=vocab, merges=merges)


def vocab_and_merges(tokenizer) -> tuple[dict, list]:
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def measure_agreement(data: Path) -> list[dict]:
    """How many paragraphs of each book both tokenizers read as the reference does."""
    vocab, merges = vocab_and_merges(released_tokenizer(data / "openai_gpt_bpe"))
    tokenizers = {name: make_tokenizer(name, vocab, merges) for name in (OURS, PEER)}
    oracle = runpy.run_path(str(ROOT / "tests" / "tokenization" / "text" / "oracle.py"))["Oracle"](vocab, merges)
    rows = []
    for book in sorted((data / "books" / "validation").glob("*.txt")):
        paragraphs = paragraphs_of(book.read_text(encoding="utf-8"))
        expected = [oracle.ids(paragraph) for paragraph in paragraphs]
        for name, tokenizer in tokenizers.items():
            found = tokenizer(paragraphs, add_special_tokens=False, verbose=False)["input_ids"]
            exact = sum(a == b for a, b in zip(expected, found, strict=True))
            counts = {"paragraphs": len(expected), "exact_paragraphs": exact}
            rows.append({"book": book.stem, "tokenizer": name, **counts})
    return rows


# ---- Speed


@dataclass
class Material:
    """The texts to tokenise: paragraphs, documents by length in MB, and short rows that are repeated."""

    vocab: dict
    merges: list
    paragraphs: list[str]
    documents: dict[float, str]
    sentences: list[str]
    rows_a_round: int


def load_material(data: Path, rounds: int, quick: bool) -> Material:
    """Material from the data folder, or generated if the folder is absent."""
    megabytes = DOCUMENT_MEGABYTES[: 2 if quick else None]
    books = sorted((data / "books" / "validation").glob("*.txt"))
    sentences = data / "sst2" / "train.jsonl"
    if books and sentences.is_file():
        vocab, merges = vocab_and_merges(released_tokenizer(data / "openai_gpt_bpe"))
        prose = [book.read_text(encoding="utf-8") for book in books]
        with sentences.open(encoding="utf-8") as lines:
            short = [json.loads(line)["sentence"] for line in lines]
    else:
        short = made_sentences(20_000)
        prose = ["\n\n".join(" ".join(short[start : start + 4]) for start in range(0, len(short), 4))]
        vocab, merges = vocab_and_merges(GPT1Tokenizer.train(iter(prose), 8000, show_progress=False))
    everything = "\n".join(prose)
    everything *= 1 + int(megabytes[-1] * 1e6) // len(everything)
    return Material(
        vocab=vocab,
        merges=merges,
        paragraphs=[paragraph for text in prose[: 1 if quick else None] for paragraph in paragraphs_of(text)],
        documents={size: everything[: int(size * 1e6)] for size in megabytes},
        sentences=short,
        rows_a_round=20_000 if quick else NUM_ROWS // rounds,
    )


def made_sentences(count: int) -> list[str]:
    """Sentences of invented words. The n-th word's frequency is proportional to 1 / n, and its length grows with n."""
    generator = random.Random(1)
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "ing")]
    words = ["".join(generator.choices(syllables, k=1 + len(str(number)) // 2)) for number in range(1, 20_001)]
    weights = list(itertools.accumulate(1 / number for number in range(1, 20_001)))
    sentences = []
    for _ in range(count):
        chosen = generator.choices(words, cum_weights=weights, k=generator.randint(4, 20))
        chosen[len(chosen) // 2] += generator.choice([",", ";", "'s", " --", ""])
        sentences.append(" ".join(chosen).capitalize() + generator.choice([".", ".", "!", "?", '."']))
    return sentences


class TokenizerWorker:
    """One tokenizer in its own process. The process's environment sets the number of threads."""

    def __init__(self, name: str, material: Material):
        self.tokenizer = make_tokenizer(name, material.vocab, material.merges)
        self.material = material
        self.rows = itertools.cycle(material.sentences)

    def run(self, work: str, size: float) -> dict[str, float]:
        """Does a work once. Returns MB per wall-clock and per CPU second, and the peak of memory above the start."""
        import datasets

        datasets.disable_progress_bars()
        if work == "paragraphs":
            texts = self.material.paragraphs
        elif work == "document":
            texts = self.material.documents[size]
        else:
            texts = list(itertools.islice(self.rows, self.material.rows_a_round))
        num_megabytes = len("".join(texts).encode()) / 1e6
        before = resident_bytes() / MIB
        measured = timed({"rows": self.in_calls, "map": self.by_map}.get(work, self.tokenise), texts)
        return {
            "MB/s": num_megabytes / measured["seconds"],
            "MB/CPU s": num_megabytes / measured["CPU seconds"],
            "peak MiB": measured["peak MiB"] - before,
        }

    def tokenise(self, texts: str | list[str]) -> dict:
        return self.tokenizer(texts, add_special_tokens=False, verbose=False)

    def in_calls(self, rows: list[str]) -> None:
        for start in range(0, len(rows), ROWS_A_CALL):
            self.tokenise(rows[start : start + ROWS_A_CALL])

    def by_map(self, rows: list[str]) -> None:
        from datasets import Dataset

        Dataset.from_dict({"text": rows}).map(
            lambda batch: self.tokenise(batch["text"]),
            batched=True,
            batch_size=ROWS_A_MAP_BATCH,
            remove_columns=["text"],
            keep_in_memory=True,
            new_fingerprint="measured",
        )


def works_of(material: Material) -> list[tuple[str, float, str]]:
    """The method, size and description of every work."""
    megabytes = sum(len(paragraph.encode()) for paragraph in material.paragraphs) / 1e6
    rows = f"{material.rows_a_round:,} short rows a round"
    return [
        ("paragraphs", 0, f"{len(material.paragraphs):,} paragraphs, {megabytes:.1f} MB, one batch"),
        *(("document", size, f"one document of {size:g} MB") for size in material.documents),
        ("rows", 0, f"{rows}, {ROWS_A_CALL:,} a call"),
        ("map", 0, f"{rows}, datasets.map"),
    ]


def compare(rounds: int, quick: bool, data: Path | None = None) -> list[dict]:
    """The rows of `make bench`. `quick` takes less text; without the folder `data` it is generated."""
    material = load_material(data or default_data(), rounds, quick)
    rows = []
    names = (OURS, PEER)
    for threads in TARGETS:
        # A worker's thread pool gets its size when it is first used.
        os.environ |= {"TOKENIZERS_PARALLELISM": str(threads > 1).lower(), "RAYON_NUM_THREADS": str(threads)}
        with running_workers(TokenizerWorker, {name: (name, material) for name in names}) as ask:
            for name in ask:
                ask[name]("run", "paragraphs", 0)  # fills the word cache before the measurement
            for work, size, description in works_of(material):
                figures = rounds_of(names, rounds, lambda name, work=work, size=size: ask[name]("run", work, size))
                if work not in ("rows", "map"):
                    for of_name in figures.values():
                        del of_name["peak MiB"]
                # Of wall clock and memory beside the built-in tokenizer alone.
                target = TARGETS[threads] if work == "paragraphs" else 1.0
                description = f"tokenise {description}, {threads} thread{'s' * (threads > 1)}"
                targets = {(PEER, "MB/s"): target, (PEER, "peak MiB"): target}
                rows += comparisons(description, figures, OURS, targets)
    return rows


# ---- Report


def print_agreement(rows: list[dict]) -> None:
    """Prints one line per book and tokenizer, and one for all books."""
    print(f"{'book':<28}{'tokenizer':<20}{'paragraphs':>11}{'exact %':>10}")
    for name in (OURS, PEER):
        own = [row for row in rows if row["tokenizer"] == name]
        totals = {count: sum(row[count] for row in own) for count in ("paragraphs", "exact_paragraphs")}
        for row in [*own, {"book": "all", **totals}]:
            exact = 100 * row["exact_paragraphs"] / row["paragraphs"]
            print(f"{row['book']:<28}{name:<20}{row['paragraphs']:>11}{exact:>10.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder of the data sets")
    parser.add_argument("--rounds", type=int, default=5, help="timed passes of each tokenizer, in turns")
    parser.add_argument("--quick", action="store_true", help="speed alone, on less text")
    parser.add_argument("--save", action="store_true", help="write a dated JSON file")
    arguments = parser.parse_args()
    has_books = any((arguments.data / "books" / "validation").glob("*.txt"))
    found = measure_agreement(arguments.data) if has_books and not arguments.quick else []
    if found:
        print_agreement(found)
    else:
        print("Agreement was not measured: it needs --data (or GPT1_DATA_DIR) with books/validation, and no --quick.")
    rows = compare(arguments.rounds, arguments.quick, arguments.data)
    print(comparison_table(rows))
    if arguments.save:
        about = {**machine(), **{name: version(name) for name in PACKAGES}}
        save_result("tokenizer-parity", about, {"agreement": found, "speed": rows})


if __name__ == "__main__":
    main()

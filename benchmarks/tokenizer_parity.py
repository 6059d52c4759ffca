"""How often GPT1Tokenizer equals the released preparation on a folder of books, and its speed beside a peer.

The peer is transformers' OpenAIGPTTokenizer; the reference is ftfy + the released punctuation rules + spaCy + BPE
(tests/tokenization/oracle.py).

    python benchmarks/tokenizer_parity.py --books data/books/validation --openai_bpe data/openai_gpt_bpe
    GPT1_DATA_DIR=data python benchmarks/tokenizer_parity.py         # the same two folders
    python benchmarks/tokenizer_parity.py --books … --openai_bpe … --save  # also results/<date>-tokenizer-parity.json
"""

import argparse
import datetime
import difflib
import importlib.util
import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

from transformers import OpenAIGPTTokenizer

from tokenization import GPT1Tokenizer

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tokenizers", "transformers", "spacy", "ftfy")


def load_oracle():
    """The oracle's module, which lives with the tests."""
    spec = importlib.util.spec_from_file_location("oracle", ROOT / "tests" / "tokenization" / "oracle.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def paragraphs_of(book: Path) -> list[str]:
    """A paragraph a line; blank lines lie between."""
    return [line for line in book.read_text(encoding="utf-8").split("\n") if line.strip()]


def wrong_tokens(expected: list[int], found: list[int]) -> int:
    """Number of tokens in the places where two id lists differ."""
    if expected == found:
        return 0
    matcher = difflib.SequenceMatcher(None, expected, found, autojunk=False)
    return sum(max(b - a, d - c) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal")


def agreement(expected: list[list[int]], found: list[list[int]]) -> dict:
    """Paragraphs that are equal, and tokens outside the places that differ, of all."""
    wrong = [wrong_tokens(a, b) for a, b in zip(expected, found, strict=True)]
    tokens = sum(map(len, expected))
    return {
        "paragraphs": len(expected),
        "exact_paragraphs": sum(count == 0 for count in wrong),
        "tokens": tokens,
        "equal_tokens": tokens - sum(wrong),
    }


def seconds(tokenizer, paragraphs: list[str]) -> float:
    """Processor time of one pass over all paragraphs in one batch."""
    start = time.process_time()
    tokenizer(paragraphs, add_special_tokens=False, verbose=False)
    return time.process_time() - start


def fastest(tokenizers: dict, paragraphs: list[str], repeats: int) -> dict[str, float]:
    """The fastest of several passes of each, in turns, so that other load on the machine meets all of them."""
    passes = [{name: seconds(tokenizer, paragraphs) for name, tokenizer in tokenizers.items()} for _ in range(repeats)]
    return {name: min(times[name] for times in passes) for name in tokenizers}


def measure(arguments) -> dict:
    """Agreement a book, agreement of the peer, and throughput of both."""
    encoder, merges = (arguments.openai_bpe / name for name in ("encoder_bpe_40000.json", "vocab_40000.bpe"))
    ours = GPT1Tokenizer.from_openai(encoder, merges)
    model = json.loads(ours.backend_tokenizer.to_str())["model"]
    pairs = [tuple(pair) for pair in model["merges"]]
    peer = OpenAIGPTTokenizer(vocab=model["vocab"], merges=pairs)
    oracle = load_oracle().Oracle(model["vocab"], pairs)
    rows, everything = [], []
    for book in sorted(arguments.books.glob("*.txt")):
        paragraphs = paragraphs_of(book)
        expected = [oracle.ids(paragraph) for paragraph in paragraphs]
        for name, tokenizer in (("GPT1Tokenizer", ours), ("OpenAIGPTTokenizer", peer)):
            found = tokenizer(paragraphs, add_special_tokens=False, verbose=False)["input_ids"]
            rows.append({"book": book.stem, "tokenizer": name, **agreement(expected, found)})
        everything += paragraphs
    speed = fastest({"GPT1Tokenizer": ours, "OpenAIGPTTokenizer": peer}, everything, arguments.repeats)
    megabytes = sum(len(paragraph.encode()) for paragraph in everything) / 1e6
    return {"agreement": rows, "megabytes": megabytes, "seconds": speed}


def total(rows: list[dict], tokenizer: str) -> dict:
    """One row for all books."""
    chosen = [row for row in rows if row["tokenizer"] == tokenizer]
    counts = {key: sum(row[key] for row in chosen) for key in chosen[0] if key not in ("book", "tokenizer")}
    return {"book": "all", "tokenizer": tokenizer, **counts}


def print_table(result: dict) -> None:
    """A line a book and tokenizer, then the speeds and their ratio."""
    rows = result["agreement"] + [total(result["agreement"], name) for name in result["seconds"]]
    print(f"{'book':<28}{'tokenizer':<20}{'paragraphs':>11}{'exact %':>10}{'tokens':>10}{'equal %':>10}")
    for row in rows:
        exact = 100 * row["exact_paragraphs"] / row["paragraphs"]
        equal = 100 * row["equal_tokens"] / row["tokens"]
        print(
            f"{row['book']:<28}{row['tokenizer']:<20}{row['paragraphs']:>11}{exact:>10.3f}{row['tokens']:>10}{equal:>10.4f}"
        )
    for name, spent in result["seconds"].items():
        print(f"{name:<20}{result['megabytes'] / spent:>8.2f} MB/s of processor time, one thread")
    ratio = result["seconds"]["OpenAIGPTTokenizer"] / result["seconds"]["GPT1Tokenizer"]
    print(f"GPT1Tokenizer runs at {ratio:.2f} of OpenAIGPTTokenizer's speed")


def write(result: dict) -> Path:
    """A dated file with the machine and the versions."""
    today = datetime.date.today().isoformat()
    machine = {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    result = {"date": today, **machine, "versions": {name: version(name) for name in PACKAGES}, **result}
    path = Path(__file__).parent / "results" / f"{today}-tokenizer-parity.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("GPT1_DATA_DIR", "data"))
    parser.add_argument(
        "--books", type=Path, default=data / "books" / "validation", help="folder of .txt files, a paragraph a line"
    )
    parser.add_argument(
        "--openai_bpe",
        type=Path,
        default=data / "openai_gpt_bpe",
        help="folder of encoder_bpe_40000.json and vocab_40000.bpe",
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed passes of each tokenizer; the fastest counts")
    parser.add_argument("--save", action="store_true", help="write a dated JSON file")
    arguments = parser.parse_args()
    if not list(arguments.books.glob("*.txt")):
        print(f"Nothing was measured: {arguments.books} has no .txt files. Pass --books, or set GPT1_DATA_DIR.")
        return
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread for both tokenizers
    result = measure(arguments)
    print_table(result)
    if arguments.save:
        print(f"written to {write(result)}")


if __name__ == "__main__":
    main()

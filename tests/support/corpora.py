"""Corpora of a few books, and the ids of their texts."""

import random
from pathlib import Path

WORDS = "the old farmer walked to the market because he needed a new plough and nobody knew why".split()


def write_books(folder: Path, sizes: list[int], seed: int = 0) -> list[Path]:
    """A text file of so many words each, a few words a line; no two lines are alike."""
    generator = random.Random(seed)
    books = folder / "books"
    books.mkdir()
    for number, size in enumerate(sizes):
        lines = [" ".join([*generator.choices(WORDS, k=9), f"{number} {line}"]) for line in range(size // 10)]
        (books / f"book{number:02}.txt").write_text("\n\n".join(lines))
    return sorted(books.iterdir())


def ids_of(tokenizer, text: str) -> list[int]:
    """The ids of a text alone."""
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def rows_of(blocks) -> list[list[int]]:
    """The ids of each block of a data set or stream."""
    return [row["input_ids"] for row in blocks]

"""How much of a task's scored rows the pre-training text holds: n-grams, rows, and scores with and without these rows.

Source: section 4 of "Language Models are Unsupervised Multitask Learners" (GPT-2, 8-grams) and appendix C of "Language
Models are Few-Shot Learners" (GPT-3, 13-grams). An n-gram is n words in a row, of letters and digits alone, in lower
case. A row overlaps if one of the n-grams of its texts is in the corpus. Each text counts by itself: a premise's words
do not continue in its hypothesis. A text of fewer than n words has no n-gram.
"""

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from tokenization import Task
from tokenization.rows.metrics import compute

from .arguments import TRANSFER
from .training_rows import has_failed

NGRAMS = (8, 13)  # of GPT-2's and of GPT-3's papers
WORD = re.compile(r"[^\W_]+")
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word of a gram loses its digits


def words_of(text: str) -> list[str]:
    return WORD.findall(text.lower())


def gram_hashes(words: Sequence[str], length: int) -> np.ndarray:
    """A 64-bit number for each n-gram; equal n-grams have equal numbers within a process."""
    count = len(words) - length + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    of_words = np.fromiter(map(hash, words), np.int64, len(words)).view(np.uint64)
    hashes = np.zeros(count, np.uint64)
    for start in range(length):
        hashes = hashes * MULTIPLIER + of_words[start : start + count]
    return hashes


def texts_of(row: Mapping, task: Task) -> list[str]:
    """The texts of a row, choices one by one."""
    texts = []
    for name in task.text_columns:
        texts += [row[name]] if isinstance(row[name], str) else row[name]
    return texts


@dataclass(frozen=True)
class ScoredRows:
    """A split that is scored, with the n-grams of its rows."""

    task: Task
    split: str
    rows: Dataset

    def hashes(self, length: int) -> list[np.ndarray]:
        """The n-grams of each row."""
        found = []
        for row in self.rows:
            of_texts = [gram_hashes(words_of(text), length) for text in texts_of(row, self.task)]
            found.append(np.concatenate(of_texts))
        return found


def found_in_corpus(pieces: Iterable[Mapping], wanted: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Which of the wanted n-grams, sorted numbers by their length, a corpus has: booleans in their order.

    Args:
        pieces: of the corpus, each with its `text` and whether it `starts_document`, as `generate_pieces` gives them.
            An n-gram may go from one piece of a document to the next, not from one document to another.
        wanted: the n-grams that are looked for.
    """
    found = {length: np.zeros(len(hashes), bool) for length, hashes in wanted.items()}
    longest = max(wanted, default=1)
    before: list[str] = []
    for piece in pieces:
        if piece["starts_document"]:
            before = []
        words = before + words_of(piece["text"])
        for length, hashes in wanted.items():
            if len(hashes):
                in_piece = gram_hashes(words, length)
                indices = np.searchsorted(hashes, in_piece).clip(max=len(hashes) - 1)
                found[length][indices[hashes[indices] == in_piece]] = True
        before = words[1 - longest :] if longest > 1 else []
    return found


def overlaps_of(pieces: Iterable[Mapping], all_rows: Sequence[ScoredRows], lengths: Sequence[int]) -> list[dict]:
    """Reads a corpus once, and says of each split and length how much of it the corpus has.

    Returns:
        For each split and length a dict: `task`, `split`, `ngram`, `ngrams` (of all rows), `ngrams_found`, `share`
        (None without any), `rows`, `rows_with_ngrams`, and `overlapping`, the indices of the rows that overlap.
    """
    of_rows = {(number, length): rows.hashes(length) for number, rows in enumerate(all_rows) for length in lengths}
    wanted = {}
    for length in lengths:
        every = [hashes for (_, of_length), found in of_rows.items() if of_length == length for hashes in found]
        wanted[length] = np.unique(np.concatenate([np.zeros(0, np.uint64), *every]))
    in_corpus = found_in_corpus(pieces, wanted)
    described = []
    for (number, length), hashes_of_rows in of_rows.items():
        known = wanted[length][in_corpus[length]]
        counts = [int(np.isin(hashes, known).sum()) for hashes in hashes_of_rows]
        num_ngrams = sum(map(len, hashes_of_rows))
        described.append(
            {
                "task": all_rows[number].task.name,
                "split": all_rows[number].split,
                "ngram": length,
                "ngrams": num_ngrams,
                "ngrams_found": sum(counts),
                "share": sum(counts) / num_ngrams if num_ngrams else None,
                "rows": len(hashes_of_rows),
                "rows_with_ngrams": sum(len(hashes) > 0 for hashes in hashes_of_rows),
                "overlapping": [index for index, count in enumerate(counts) if count],
            }
        )
    return described


def rows_in_training(task: Task, scored: Dataset, training: Dataset) -> list[int]:
    """The indices of the scored rows whose texts are, all of them and as they stand, a training row's."""
    known = Counter(tuple(texts_of(row, task)) for row in training)
    return [index for index, row in enumerate(scored) if tuple(texts_of(row, task)) in known]


# ---- Scores with and without rows


def scores_without(cells: Iterable[Mapping], task: Task, split: str, rows: int, left_out: Sequence[int]) -> list[dict]:
    """Mean scores × 100 of the runs of a task on all rows of a split, and without some.

    A run that failed to train is counted beside them, and is in no mean.

    Args:
        cells: those of a report's cells.json.gz.
        task, split: whose runs are looked at.
        rows: of the split; runs that answered another number of rows are left out.
        left_out: indices of the rows without which the second score is.

    Returns:
        For each variant a dict: `variant`, `seeds`, `failed` (to train), `with`, and `without`. The scores are None if
        all runs failed, `without` also if no row is left.
    """
    kept = np.setdiff1d(np.arange(rows), left_out)
    metric = task.metrics[0]
    found: dict[str, list[tuple[float, float]]] = {}
    failed: Counter[str] = Counter()
    for cell in cells:
        if cell.get("task") != task.name:
            continue
        answers = cell.get("answers", {}).get(split)
        has_diverged = has_failed(cell) and not cell.get("answers")
        if answers is None and not has_diverged:
            continue
        if answers is not None and len(answers["labels"].split()) != rows:
            continue
        variant = cell["variant"]
        if variant == "transfer":
            variant = f"{TRANSFER}{cell['n_transfer']}"
        scores = found.setdefault(variant, [])
        if has_failed(cell):
            failed[variant] += 1
            continue
        labels = np.array(answers["labels"].split(), dtype=np.float64)
        predictions = np.array(answers["predictions"].split(), dtype=np.float64)
        score_of_all = compute(metric, predictions, labels)[metric]
        score_of_kept = compute(metric, predictions[kept], labels[kept])[metric] if len(kept) else float("nan")
        scores.append((100 * score_of_all, 100 * score_of_kept))
    return [
        {
            "variant": variant,
            "seeds": len(scores),
            "failed": failed[variant],
            "with": statistics.fmean(score for score, _ in scores) if scores else None,
            "without": statistics.fmean(score for _, score in scores) if scores and len(kept) else None,
        }
        for variant, scores in found.items()
    ]

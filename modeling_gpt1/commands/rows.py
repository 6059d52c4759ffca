"""What the commands check of rows and texts before they compute, and what they say about predictions."""

import logging
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from tokenization import Task
from tokenization.errors import UserError
from tokenization.file_kinds import to_utf8
from tokenization.rows.cells import is_formula
from tokenization.rows.metrics import counts_of_recall
from tokenization.text.control_tokens import unknown_share
from tokenization.wording import MOST_LISTED, counted

logger = logging.getLogger(__name__)
UNKNOWN_ROWS = 1000  # whose texts are looked at for unknown tokens
REPORTED_SHARE = 0.05  # of unknown tokens
REFUSED_SHARE = 0.5
MANY_ROWS = 20  # that should not all be of one class


def read_utf8_lines(flag: str, path: Path) -> list[str]:
    """The lines of a text file that a flag names. Other characters that end lines may stand in a text."""
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{flag} {path} is not UTF-8 text. {to_utf8(path, error)}") from error


def check_unknown(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], source: str, is_allowed: bool = True
) -> float:
    """The share of unknown tokens in some texts. Above 5 % it is reported; above one half it may be refused."""
    share, examples = unknown_share(tokenizer, texts)
    shown = ", ".join(repr(text[:60]) for text in examples)
    if share > REFUSED_SHARE and not is_allowed:
        raise UserError(
            f"The tokenizer does not know {share:.0%} of the tokens of {source}, as in {shown}. Pass a --model that "
            "was trained on such texts, or --allow_unknown_text."
        )
    if share > REPORTED_SHARE:
        print(f"{share:.0%} of the tokens of {source} are unknown to the tokenizer, as in {shown}.", file=sys.stderr)
    return share


def some_texts(rows: Dataset | list[dict], task: Task) -> list[str]:
    """The texts of evenly drawn rows."""
    distance = math.ceil(len(rows) / UNKNOWN_ROWS) or 1
    drawn = [rows[place] for place in range(0, len(rows), distance)]
    return [row[column] for column in task.text_columns for row in drawn if isinstance(row.get(column), str)]


def check_labels(task: Task, splits: DatasetDict, config: PreTrainedConfig) -> Task:
    """Checks that a model that is not trained gives as many labels as the rows have: one or several."""
    has_several = config.problem_type == "multi_label_classification"
    is_labelled = any(task.columns["label"] in rows.column_names for rows in splits.values())
    if is_labelled and has_several != task.multi_label:
        if has_several:
            raise UserError(
                "The model predicts several labels for a row (`problem_type`), but each row has one label. Pass other "
                "rows, or --do_train to train the model for these."
            )
        raise UserError(
            "The model predicts one label for a row (`problem_type`), but the rows have lists of labels. Pass other "
            "rows, or --do_train to train the model for these."
        )
    return replace(task, multi_label=has_several)


def report_formulas(cells: Iterable) -> None:
    """Says what `without_formula` does to the cells of a .csv file, if it does something to one of them."""
    if any(is_formula(cell) for cell in cells):
        said = "In front of a text that a spreadsheet would run as a formula stands an apostrophe."
        print(said, file=sys.stderr)


def warn_of_one_class(counts: Counter, source: str) -> None:
    """Warns where many rows are predicted to be of one class."""
    if len(counts) == 1 and counts.total() >= MANY_ROWS:
        logger.warning(
            f"All {counts.total():,} rows of {source} are predicted as {min(counts)!r}. If that is wrong, fine-tune "
            "on more rows, for more epochs, with a lower or a higher --learning_rate, or from a pre-trained model."
        )


def warn_of_majority(predictions: np.ndarray, labels: np.ndarray, task: Task, source: str) -> None:
    """Warns where many rows are predicted no better than by their most frequent class.

    Args:
        predictions, labels: ids of classes, or places of choices, `[N]`.
    """
    if len(labels) < MANY_ROWS:
        return
    counts = np.bincount(labels.astype(np.int64))
    most_frequent = int(counts.argmax())
    share = counts.max() / len(labels)
    accuracy = (predictions == labels).mean()
    if accuracy <= share:
        answer = task.label_names[most_frequent] if task.label_names else most_frequent
        logger.warning(
            f"The accuracy on {source}, {accuracy:.3f}, is no better than that of always answering {answer!r}, "
            f"{share:.3f}: the model has learnt nothing that shows. Try another --learning_rate or more epochs."
        )


def describe_recall(predictions: np.ndarray, labels: np.ndarray, task: Task) -> str:
    """The recall of each class that has rows: `recall: happy 0.500 (1 of 2) · sad 1.00 (3 of 3)`.

    Of many classes, those with the least. A task without named classes has none.

    Args:
        predictions, labels: ids of classes, `[N]`, or 0 and 1 for each class, `[N, K]`.
    """
    if not task.label_names:
        return ""
    found, of = counts_of_recall(predictions.astype(int), labels.astype(int), len(task.label_names))
    ids = np.flatnonzero(of)
    title = "recall"
    if len(ids) > MOST_LISTED:
        title = f"least recall of {counted(len(ids), 'class')}"
        ids = ids[np.argsort(found[ids] / of[ids], kind="stable")][:MOST_LISTED]
    shares = [f"{task.label_names[at]} {found[at] / of[at]:#.3g} ({found[at]:,} of {of[at]:,})" for at in ids]
    return f"{title}: {' · '.join(shares)}"

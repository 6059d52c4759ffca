"""Baselines beside every task, by scikit-learn: what a linear model of n-grams scores on the same rows.

Two inputs are given to it. `ngrams` has all texts of a row. `ngrams_of_last` has the last alone, which should not
suffice: the hypothesis without its premise, or the endings without their story. A score above chance shows what the
rows give away.

A feature is a word or two neighbouring words, with where they stand: in the last text, in those before it, in both,
or in the last alone. Of pairs without an order it is in both or in one. The share of common words is a feature, too,
in tenths. Classes are predicted by logistic regression, numbers by ridge regression; of several choices the one with
the highest score is taken. The penalty is chosen on the part of the training rows that fine-tuning is tuned on.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from datasets import Dataset
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from tokenization import Task
from tokenization.rows.metrics import compute
from tokenization.rows.traversals import TRAVERSALS

from .training_rows import cut, drawn

BASELINES = ("ngrams", "ngrams_of_last")
PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
WORD = re.compile(r"\w+|[^\w\s]")


def baselines_of(task: Task) -> tuple[str, ...]:
    """Those that a task has: the last text alone is a part of the input where the texts have an order."""
    traversal = TRAVERSALS[task.traversal]
    if traversal.is_symmetric or len(traversal.roles) == 1:
        return BASELINES[:1]
    return BASELINES


# ---- Features


def grams(text: str) -> set[str]:
    """The words of a text and its pairs of neighbouring words."""
    words = WORD.findall(text.lower())
    return {*words, *map(" ".join, zip(words, words[1:], strict=False))}


def features_of_text(text: str) -> Iterator[str]:
    for gram in grams(text):
        yield f"last: {gram}"


def features_of_pair(pair: tuple[str, str], is_ordered: bool) -> Iterator[str]:
    """The features of a text behind a context, or of two texts without an order."""
    context, last = map(grams, pair)
    common = context & last
    share = len(common) / max(1, len(last) if is_ordered else len(context | last))
    yield f"common: {round(10 * share)} tenths"
    for gram in common:
        yield f"both: {gram}"
    if not is_ordered:
        for gram in context ^ last:
            yield f"one: {gram}"
        return
    for gram in last - common:
        yield f"new: {gram}"
    for gram in last:
        yield f"last: {gram}"
    for gram in context:
        yield f"context: {gram}"


@dataclass(frozen=True)
class Inputs:
    """What a linear model reads of a task: an example for each row, or for each choice of each row."""

    task: Task
    last_alone: bool

    @property
    def has_choices(self) -> bool:
        return TRAVERSALS[self.task.traversal].has_choices

    def analyzer(self):
        traversal = TRAVERSALS[self.task.traversal]
        if self.last_alone or len(traversal.roles) == 1:
            return features_of_text
        return partial(features_of_pair, is_ordered=not traversal.is_symmetric)

    def examples(self, row: Mapping) -> list:
        """The inputs of a row, one for each choice; texts, or pairs of the context and the last text."""
        roles = TRAVERSALS[self.task.traversal].roles
        optional = TRAVERSALS[self.task.traversal].optional_roles
        columns = self.task.columns
        before = [row[columns[role]] for role in (*roles[:-1], *optional) if role in columns]
        last = columns[roles[-1]]
        if not self.has_choices:
            lasts = [row[last]]
        elif isinstance(last, str):
            lasts = row[last]
        else:
            lasts = [row[name] for name in last]
        if self.last_alone or not before:
            return lasts
        return [("\n".join(before), text) for text in lasts]


# ---- The linear model


class LinearModel:
    """A linear model of n-grams with one penalty."""

    def __init__(self, inputs: Inputs, penalty: float):
        self.inputs = inputs
        self.vectorizer = CountVectorizer(analyzer=inputs.analyzer(), dtype=np.float64)
        if inputs.task.regression:
            self.model = Ridge(alpha=penalty)
        else:
            self.model = LogisticRegression(C=1 / penalty, max_iter=1000)

    def fit(self, rows: Dataset) -> "LinearModel":
        examples, targets = [], []
        for row in rows:
            label = row[self.inputs.task.columns["label"]]
            of_row = self.inputs.examples(row)
            examples += of_row
            targets += [index == label for index in range(len(of_row))] if self.inputs.has_choices else [label]
        self.model.fit(self.vectorizer.fit_transform(examples), targets)
        return self

    def predict(self, rows: Dataset) -> np.ndarray:
        """A class, a number or the index of a choice for each row."""
        of_rows = [self.inputs.examples(row) for row in rows]
        features = self.vectorizer.transform([example for of_row in of_rows for example in of_row])
        if not self.inputs.has_choices:
            return self.model.predict(features)
        scores = self.model.decision_function(features)
        ends = np.cumsum([len(of_row) for of_row in of_rows])
        return np.array([of_row.argmax() for of_row in np.split(scores, ends[:-1])])


def labels_of(rows: Dataset, task: Task) -> np.ndarray:
    return np.asarray(rows[task.columns["label"]][:])


def score_baseline(
    task: Task, variant: str, training_rows: Dataset, splits: Mapping[str, Dataset], settings: Mapping, seed: int
) -> dict:
    """Fits a baseline on the training rows of a run with these settings and seed, and scores it.

    Args:
        task: what is predicted.
        variant: one of `BASELINES`.
        training_rows: all of the task.
        splits: the labelled splits that are scored.
        settings: those of `gpt1 finetune` that choose rows.
        seed: the run's.

    Returns:
        `metrics` and `answers`, as fine-tuned cells have them, the chosen `penalty`, and the held-out scores of all.
    """
    inputs = Inputs(task, variant == "ngrams_of_last")
    first_metric = task.metrics[0]
    training, held_out = cut(training_rows, task)
    held_out = drawn(held_out, settings, "eval", seed)  # as many as the trials of fine-tuning are scored on
    few = drawn(training, settings, "train", seed)
    held_out_scores = {}
    for penalty in PENALTIES:
        predictions = LinearModel(inputs, penalty).fit(few).predict(held_out)
        scores = compute(first_metric, predictions, labels_of(held_out, task))
        held_out_scores[penalty] = scores[first_metric]
    best = max(held_out_scores, key=held_out_scores.get)  # of equal ones the first, which is the smallest
    model = LinearModel(inputs, best).fit(drawn(training_rows, settings, "train", seed))
    metrics, answers = {}, {}
    for use, prefix, names in (("eval", "eval", task.validation_splits), ("predict", "predict", task.test_splits)):
        for split in names:
            if split not in splits:
                continue
            rows = drawn(splits[split], settings, use, seed)
            predictions, labels = model.predict(rows), labels_of(rows, task)
            name = prefix if len(names) == 1 else f"{prefix}_{split}"
            for metric in task.metrics:
                metrics |= {f"{name}_{key}": score for key, score in compute(metric, predictions, labels).items()}
            answers[split] = {
                "labels": " ".join(map(str, labels.tolist())),
                "predictions": " ".join(map(str, predictions.tolist())),
            }
    return {"metrics": metrics, "answers": answers, "penalty": best, "penalties": held_out_scores}

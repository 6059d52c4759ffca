"""Judges which of the paper's qualitative claims the measured scores support. The rules account for the spread.

Source of the claims: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), section 5,
table 5 and figure 2. `RULES` says in words what counts as a difference and which verdict follows.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .bootstrap import Scores, in_common, interval
from .published import PUBLISHED

Outcome = Literal["better", "worse", "level"]

RULES = (
    "Two settings are compared by the difference of their mean scores over the seeds, and its 95 % interval: rows and "
    "seeds are drawn again 1000 times, the same rows for both settings. Where both have two seeds or more in common, "
    "these alone are compared, and the same are drawn for both. They differ if the interval excludes 0. With three "
    "seeds it is a little too narrow. A single seed on either side decides nothing. Where runs kept no predictions, "
    "two settings differ if the lowest score of one is above the highest of the other.",
    "A claim holds if all of its comparisons support it. It does not hold if none supports it and at least one "
    "contradicts it. It is mixed if some support and some contradict it. Everything else is undecided: no comparison "
    "contradicts it, but at least one interval includes 0.",
    "Zero-shot curves have no seeds. Their mean over the last third of the checkpoints is compared with their mean "
    "over the first third, or with another model's. A difference counts if it is at least two standard errors of a "
    "score on that many rows. One curve varies more than another if its mean change from checkpoint to checkpoint is "
    "more than a quarter larger.",
)

# Approximate number of training rows. Where `max_train_samples` is smaller, that number counts.
TRAINING_ROWS = {
    **{"rte": 2490, "mrpc": 3668, "stsb": 5749, "cola": 8551, "sst2": 67349, "qnli": 104743, "qqp": 363846},
    **{"mnli": 392702, "snli": 549367, "scitail": 23097, "story_cloze": 1497},
    **{"race": 87866, "race-m": 25421, "race-h": 62445},
}
# In table 5 the auxiliary objective helps on every data set with more rows than this. Of the others it helps only RTE.
LARGE = 100_000
STANDARD_ERRORS = 2
ONE_SEED = "one seed, spread unknown"
MORE_VARIATION = 1.25


@dataclass(frozen=True)
class Comparison:
    """The comparison of two settings in one column of a table or at one step of a curve."""

    outcome: Outcome
    text: str


def claim(text: str, paper: str, comparisons: Sequence[Comparison], why_none: str, agree: Outcome = "better") -> dict:
    """One claim of the report with its verdict.

    Args:
        text: the claim.
        paper: what the paper's figures say about the claim.
        comparisons: the measured comparisons.
        why_none: text in place of evidence if there are no comparisons.
        agree: the outcome that supports the claim.
    """
    evidence = "; ".join(comparison.text for comparison in comparisons) + "." if comparisons else why_none
    return {
        **{"claim": text, "paper": paper, "verdict": verdict(comparisons, agree), "evidence": evidence},
        "comparisons": [(comparison.outcome, comparison.text) for comparison in comparisons],
    }


def verdict(comparisons: Sequence[Comparison], agree: Outcome = "better") -> str:
    outcomes = {comparison.outcome for comparison in comparisons}
    if not outcomes:
        return "not measured"
    if outcomes == {agree}:
        return "holds"
    if not outcomes - {agree, "level"}:
        return "undecided"
    return "mixed" if agree in outcomes else "does not hold"


def compare(label: str, first: Scores, second: Scores) -> Comparison:
    """Compares the first with the second. "better" means that the first scores higher, by the rules of `RULES`."""
    first, second = in_common(first, second)
    difference = statistics.fmean(first.values()) - statistics.fmean(second.values())
    outcome, remark = outcome_of(first, second)
    return Comparison(outcome, f"{label} {show(first)} against {show(second)}, {signed(difference)} ({remark})")


def outcome_of(first: Scores, second: Scores) -> tuple[Outcome, str]:
    if min(len(first), len(second)) < 2:
        return "level", ONE_SEED
    if first.resampled and second.resampled:
        low, high = interval(first.resampled, second.resampled)
        outcome = "better" if low > 0 else "worse" if high < 0 else "level"
        return outcome, f"95 % interval {signed(low)} to {signed(high)}"
    if min(first.values()) > max(second.values()):
        return "better", "ranges apart"
    if max(first.values()) < min(second.values()):
        return "worse", "ranges apart"
    return "level", "within the seeds' range"


def show(scores: Scores) -> str:
    """Median and range as text, such as "54.2 [53.1–55.0]"."""
    values = scores.values()
    spread = f" [{show_range(min(values), max(values))}]" if len(scores) > 1 else ""
    return decimal(statistics.median(values)) + spread


def show_range(lowest: float, highest: float, digits: int = 1) -> str:
    """A range such as "53.1–55.0". With a negative number "−1.2 to 0.5", since a dash would look like a minus sign."""
    return f"{decimal(lowest, digits)}{'–' if lowest >= 0 else ' to '}{decimal(highest, digits)}"


def decimal(value: float, digits: int = 1) -> str:
    """A number with a true minus sign, and never "−0.0"."""
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def signed(value: float, digits: int = 1) -> str:
    text = decimal(value, digits)
    return text if text.startswith("−") else f"+{text}"


# ---- Table 5


@dataclass(frozen=True)
class Table5:
    """The content of table 5.

    Args:
        scores: scores by row, column and seed.
        labels: name of each column.
        averages: averages over the columns `averaged`, by row and seed.
        averaged: those of the paper's columns that every row has.
        rows_to_train: number of training rows by column, for columns trained on fewer than all rows.
    """

    scores: Mapping[str, Mapping[str, Scores]]
    labels: Mapping[str, str]
    averages: Mapping[str, Scores]
    averaged: Sequence[str]
    rows_to_train: Mapping[str, int]

    def by_task(self, first: str, second: str) -> dict[str, Comparison]:
        columns = [column for column in self.scores.get(first, {}) if column in self.scores.get(second, {})]
        return {
            column: compare(self.labels[column], self.scores[first][column], self.scores[second][column])
            for column in columns
        }

    def on_average(self, first: str, second: str) -> list[Comparison]:
        if not (self.averages.get(first) and self.averages.get(second)):
            return []
        label = f"Average of {', '.join(self.labels[column] for column in self.averaged)}:"
        return [compare(label, self.averages[first], self.averages[second])]

    def size(self, column: str) -> int:
        return min(TRAINING_ROWS[column], self.rows_to_train.get(column, TRAINING_ROWS[column]))


def ablation_claims(table: Table5) -> list[dict]:
    return [*pretraining_claims(table), *auxiliary_claims(table), *lstm_claims(table)]


def pretraining_claims(table: Table5) -> list[dict]:
    paper = PUBLISHED["table-5"]
    none = "Needs the full model and the one without pre-training on a task."
    return [
        claim(
            "Pre-training raises the average score (section 5, table 5).",
            f"{paper['full']['average']} against {paper['without_pretraining']['average']}.",
            table.on_average("full", "without_pretraining"),
            none,
        ),
        claim(
            "Without pre-training every task scores lower (section 5, table 5).",
            "Lower on all eight tasks, by 2.2 (RTE) to 51.1 (STS-B).",
            list(table.by_task("full", "without_pretraining").values()),
            none,
        ),
    ]


def auxiliary_claims(table: Table5) -> list[dict]:
    by_task = table.by_task("full", "without_auxiliary")
    in_order = sorted(by_task, key=table.size)
    large = [by_task[column] for column in in_order if table.size(column) > LARGE]
    small = [by_task[column] for column in in_order if table.size(column) <= LARGE]
    none = "Needs the full model and the one without the auxiliary objective on a data set of {} training rows."
    return [
        claim(
            "The auxiliary objective helps on the larger data sets (section 5, table 5).",
            f"Over {LARGE:,} training rows: QNLI +1.2, QQP +0.5, MNLI +0.7.".replace(",000", " 000"),
            large,
            none.format("more than 100 000"),
        ),
        claim(
            "The smaller data sets do better without the auxiliary objective (section 5, table 5).",
            "With it RTE +1.6, MRPC −2.6, STS-B −1.2, CoLA −2.5, SST-2 −0.7: better without it on all but RTE.",
            small,
            none.format("at most 100 000"),
            agree="worse",
        ),
    ]


def lstm_claims(table: Table5) -> list[dict]:
    paper = PUBLISHED["table-5"]
    by_task = table.by_task("full", "lstm")
    mrpc = by_task.pop("mrpc", None)
    none = "Needs the Transformer and the LSTM, both pre-trained, on {}."
    return [
        claim(
            "The Transformer has a higher average score than an LSTM (section 5, table 5).",
            f"{paper['full']['average']} against {paper['lstm']['average']}; the text says 5.6 less for the LSTM.",
            table.on_average("full", "lstm"),
            none.format("a task"),
        ),
        claim(
            "The Transformer is ahead of the LSTM on every task but MRPC (section 5, table 5).",
            "Ahead by 0.8 (SST-2) to 15.1 (CoLA) on the seven others.",
            list(by_task.values()),
            none.format("a task other than MRPC"),
        ),
        claim(
            "On MRPC the LSTM is ahead of the Transformer (section 5, table 5).",
            "82.3 (Transformer) against 83.2 (LSTM).",
            [mrpc] if mrpc else [],
            none.format("MRPC"),
            agree="worse",
        ),
    ]


# ---- Figure 2, left


def transfer_claims(curves: Mapping[str, Mapping[int, Scores]], num_layers: int) -> list[dict]:
    """The claims about transferred layers.

    Args:
        curves: scores by task name and number of transferred layers. −1 transfers nothing, 0 only the embeddings.
        num_layers: number of layers of the model.
    """
    embeddings, steps, ends = [], [], []
    for name, curve in curves.items():
        if 0 in curve and -1 in curve:
            embeddings.append(compare(f"{name}: embeddings alone, against nothing,", curve[0], curve[-1]))
        numbers = sorted(number for number in curve if number >= 0)
        if len(numbers) < 3:  # the two ends say nothing about the layers between them
            numbers = []
        for fewer, more in zip(numbers, numbers[1:], strict=False):
            steps.append(compare(f"{name}: {layers(more)}, against {fewer},", curve[more], curve[fewer]))
        if 0 in curve and num_layers in curve:
            label = f"{name}: all {num_layers} layers, against embeddings alone,"
            ends.append(compare(label, curve[num_layers], curve[0]))
    none = "Needs a task fine-tuned with {}."
    return [
        claim(
            "Transferring the embeddings alone already helps (section 5, figure 2 left).",
            "Stated in the text; the figure begins at 0 layers.",
            embeddings,
            none.format("nothing transferred, and with the embeddings alone"),
        ),
        claim(
            "Each transferred layer helps further (section 5, figure 2 left).",
            "Both curves rise from layer to layer on RACE and MultiNLI.",
            steps,
            none.format("several numbers of layers transferred"),
        ),
        claim(
            "All layers together help well beyond the embeddings (section 5, figure 2 left).",
            "Up to 9 points on MultiNLI.",
            ends,
            none.format("the embeddings alone, and with all layers"),
        ),
    ]


def layers(number: int) -> str:
    return f"{number} layer{'' if number == 1 else 's'}"


# ---- Figure 2, right


@dataclass(frozen=True)
class Curve:
    """A task's normalised zero-shot score over the updates of pre-training.

    Args:
        points: pairs of updates and score, in order. 0 is guessing, 1 the best model known to the paper.
        error: standard error of a score on the task's rows, on the same scale.
    """

    points: Sequence[tuple[int, float]]
    error: float

    def end(self, last: bool) -> float:
        """Mean score over the last or the first third of the points."""
        third = max(1, len(self.points) // 3)
        return statistics.fmean(y for _, y in (self.points[-third:] if last else self.points[:third]))

    def variation(self, updates: set[int]) -> float:
        """Mean change from checkpoint to checkpoint, among the checkpoints of the given updates."""
        values = [y for x, y in self.points if x in updates]
        return statistics.fmean(abs(after - before) for before, after in zip(values, values[1:], strict=False))


def standard_error(score: float, num_rows: int, metric: str) -> float:
    """Standard error of an accuracy, or approximately that of a correlation, on `num_rows` rows."""
    variance = score * (1 - score) if metric == "accuracy" else (1 - score**2) ** 2
    # A score of 0 or 1 on a few rows is not certain: keep the error above 0.
    return math.sqrt(max(variance, 1 / num_rows) / num_rows)


# With fewer checkpoints there are no thirds to compare and no changes to average.
FEWEST_CHECKPOINTS = 4


def zero_shot_claims(transformer: Mapping[str, Curve], lstm: Mapping[str, Curve]) -> list[dict]:
    """The claims about the curves of both models, which are given by task."""
    long_enough = {name: curve for name, curve in transformer.items() if len(curve.points) >= FEWEST_CHECKPOINTS}
    both = [name for name in transformer if name in lstm]
    common = {name: {x for x, _ in transformer[name].points} & {x for x, _ in lstm[name].points} for name in both}
    none = f"Needs zero-shot scores of at least {FEWEST_CHECKPOINTS} checkpoints"
    return [
        claim(
            "Zero-shot performance rises over pre-training (section 5, figure 2 right).",
            "The Transformer's four curves rise steadily over the updates.",
            [rise(name, curve) for name, curve in long_enough.items()],
            f"{none}.",
        ),
        claim(
            "The LSTM's zero-shot performance stays below the Transformer's (figure 2 right).",
            "Its curves end lower.",
            [above(name, transformer[name], lstm[name]) for name in both],
            "Needs zero-shot scores of checkpoints of both models.",
        ),
        claim(
            "The LSTM's zero-shot performance varies more (section 5, figure 2 right).",
            "Stated in the text about the LSTM's curves.",
            [
                steadier(name, transformer[name], lstm[name], common[name])
                for name in both
                if len(common[name]) >= FEWEST_CHECKPOINTS
            ],
            f"{none} at the same updates of both models.",
        ),
    ]


def rise(name: str, curve: Curve) -> Comparison:
    first, last = curve.end(last=False), curve.end(last=True)
    return by_errors(f"{name}: {decimal(first, 2)} to {decimal(last, 2)}", last - first, curve.error)


def above(name: str, transformer: Curve, lstm: Curve) -> Comparison:
    ours, theirs = transformer.end(last=True), lstm.end(last=True)
    error = max(transformer.error, lstm.error)
    return by_errors(f"{name}: {decimal(ours, 2)} against {decimal(theirs, 2)}", ours - theirs, error)


def by_errors(label: str, difference: float, error: float) -> Comparison:
    threshold = STANDARD_ERRORS * error
    outcome = "level" if abs(difference) <= threshold else "better" if difference > 0 else "worse"
    return Comparison(outcome, f"{label}, {signed(difference, 2)} (two standard errors: {decimal(threshold, 2)})")


def steadier(name: str, transformer: Curve, lstm: Curve, updates: set[int]) -> Comparison:
    """Compares how much two curves vary. "better" means that the LSTM varies more."""
    ours, theirs = transformer.variation(updates), lstm.variation(updates)
    more, less = theirs > MORE_VARIATION * ours, ours > MORE_VARIATION * theirs
    outcome = "better" if more else "worse" if less else "level"
    figures = f"mean change {decimal(theirs, 3)} (LSTM) against {decimal(ours, 3)} (Transformer)"
    return Comparison(outcome, f"{name}: {figures}")

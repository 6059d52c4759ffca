"""Judges which of the paper's qualitative claims the measured scores support.

Source of the claims: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), section 5,
table 5 and figure 2. `RULES` says in words what counts as a difference and which verdict follows.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import f, norm

from .published import PUBLISHED
from .scores import FEWEST_SEEDS, LEVEL, Estimate, Scores, difference, holm
from .tables import COLUMNS

RULES = (
    "Two settings are compared by the difference of their mean scores at the seeds that both have. Its error has two "
    "parts: that of the seeds, and that of the test rows, which all seeds share and which is measured on 1000 "
    "resamples of them. The 95 % interval counts both, and that a few seeds tell little of their spread (Behrens and "
    "Fisher). Fewer than three seeds decide nothing, nor do runs that kept no answers.",
    "A comparison counts if its p value is below 0.05. The p values are Holm's, so that all comparisons of a claim "
    "together are wrong in at most 5 % of cases; an interval is of its own comparison alone. A claim holds if all of "
    "its comparisons support it. It does not hold if none supports it and at least one contradicts it. It is mixed if "
    "some support and some contradict it. Everything else is undecided: no comparison contradicts it, but at least "
    "one does not count.",
    "Zero-shot curves have one pre-training run each, so only the error of the rows counts. Their mean over the last "
    "third of the checkpoints is compared with their mean over the first third, or with another model's; answers are "
    "taken to have nothing in common, which makes the error the largest possible. One curve varies more than another "
    "if half its mean squared change from checkpoint to checkpoint exceeds the other's and the rows' variance "
    "together, by an F test.",
)

# Approximate number of training rows. Where `max_train_samples` is smaller, that number counts.
TRAINING_ROWS = {
    **{"rte": 2490, "mrpc": 3668, "stsb": 5749, "cola": 8551, "sst2": 67349, "qnli": 104743, "qqp": 363846},
    **{"mnli": 392702, "snli": 549367, "scitail": 23097, "story_cloze": 1497},
    **{"race": 87866, "race-m": 25421, "race-h": 62445},
}
# In table 5 the auxiliary objective helps on every data set with more rows than this. Of the others it helps only RTE.
LARGE = 100_000
# With fewer checkpoints there are no thirds to compare and no changes to average.
FEWEST_CHECKPOINTS = 4


@dataclass(frozen=True)
class Comparison:
    """Two settings in one column of a table or at one step of a curve."""

    text: str  # what was compared, with the figures
    difference: float  # above 0 if the first is better
    p: float | None  # two-sided p value of no difference; None if it decides nothing
    remark: str = ""  # the interval, or why there is none


def judge(comparisons: Sequence[Comparison], sign: int = 1) -> tuple[str, list[dict]]:
    """The verdict of a claim, and what is told of each comparison: its outcome, its text and its corrected p value.

    Args:
        sign: 1 if the claim says that the first is better, −1 if it says the second.
    """
    corrected = iter(holm([comparison.p for comparison in comparisons if comparison.p is not None]))
    told = []
    for comparison in comparisons:
        p = None if comparison.p is None else next(corrected)
        counts = p is not None and p < LEVEL
        outcome = ("better" if comparison.difference > 0 else "worse") if counts else "level"
        remarks = filter(None, (comparison.remark, None if p is None else f"p {show_p(p)}"))
        told.append({"outcome": outcome, "text": f"{comparison.text} ({', '.join(remarks)})", "p": p})
    outcomes = {of["outcome"] for of in told}
    agree = "better" if sign > 0 else "worse"
    if not outcomes:
        return "not measured", told
    if outcomes == {agree}:
        return "holds", told
    if not outcomes - {agree, "level"}:
        return "undecided", told
    return ("mixed" if agree in outcomes else "does not hold"), told


def compare(label: str, first: Scores, second: Scores) -> Comparison:
    """Compares the first with the second at the seeds that both have."""
    common = set(first) & set(second)
    ours, theirs = (scores.at(common) if common else scores for scores in (first, second))
    found = difference(first, second)
    text = f"{label} {show(ours)} against {show(theirs)}, {found.value:+.1f}"
    return Comparison(text, found.value, found.p, show_certainty(found))


def show_certainty(found: Estimate) -> str:
    if found.num_seeds < FEWEST_SEEDS:
        return f"fewer than {FEWEST_SEEDS} seeds decide nothing"
    if found.interval is None:
        return "no answers kept"
    low, high = found.interval
    return f"95 % interval {low:+.1f} to {high:+.1f}"


def show(scores: Scores) -> str:
    """Median and range as text, such as "54.2 [53.1 to 55.0]"."""
    values = scores.values()
    spread = f" [{min(values):.1f} to {max(values):.1f}]" if len(scores) > 1 else ""
    return f"{statistics.median(values):.1f}{spread}"


def show_p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


# ---- What is compared


@dataclass(frozen=True)
class Curve:
    """A task's normalised zero-shot score over the updates of pre-training: 0 is guessing, 1 the best known model."""

    points: Sequence[tuple[int, float, float]]  # updates, score and its standard error on the task's rows, in order
    note: str = ""  # what the scale and the rows are

    @property
    def error(self) -> float:
        return self.points[-1][2]

    def end(self, last: bool) -> float:
        """Mean score over the last or the first third of the points."""
        third = max(1, len(self.points) // 3)
        return statistics.fmean(y for _, y, _ in (self.points[-third:] if last else self.points[:third]))

    def at(self, updates: set[int]) -> list[float]:
        return [y for x, y, _ in self.points if x in updates]


def standard_error(score: float, num_rows: int, metric: str) -> float:
    """Standard error of an accuracy, or approximately that of a correlation, on `num_rows` rows."""
    variance = score * (1 - score) if metric == "accuracy" else (1 - score**2) ** 2
    # A score of 0 or 1 on a few rows is not certain: keep the error above 0.
    return math.sqrt(max(variance, 1 / num_rows) / num_rows)


@dataclass(frozen=True)
class Measured:
    """All scores that claims are about."""

    scores: Mapping[str, Mapping[str, Scores]]  # the rows of table 5: scores by row and column
    averages: Mapping[str, Scores]  # averages over the columns `averaged`, by row
    averaged: Sequence[str]  # those of the paper's columns that every row has
    rows_to_train: Mapping[str, int]  # of columns that are trained on fewer than all rows
    transfer: Mapping[str, Mapping[int, Scores]]  # by task and number of layers; −1 is nothing, 0 the embeddings
    num_layers: int  # of the model
    zero_shot: Mapping[str, Mapping[str, Curve]]  # curves by family and task

    def size(self, column: str) -> int:
        return min(TRAINING_ROWS[column], self.rows_to_train.get(column, TRAINING_ROWS[column]))

    def tasks(self, other: str, wanted: Callable[[str], bool] = lambda column: True) -> list[Comparison]:
        """The full method against another row of table 5, in each wanted column, the smallest data set first."""
        ours, theirs = self.scores.get("full", {}), self.scores.get(other, {})
        columns = sorted((column for column in ours if column in theirs and wanted(column)), key=self.size)
        return [compare(COLUMNS[column].label, ours[column], theirs[column]) for column in columns]

    def average(self, other: str) -> list[Comparison]:
        ours, theirs = self.averages.get("full"), self.averages.get(other)
        label = f"Average of {', '.join(COLUMNS[column].label for column in self.averaged)}:"
        return [compare(label, ours, theirs)] if ours and theirs else []

    def layers(self, pairs: Callable[[Mapping[int, Scores], int], Iterable[tuple[int, int]]]) -> list[Comparison]:
        """Numbers of transferred layers against others, of the tasks that have both."""
        return [
            compare(f"{name}: {name_of_layers(more)} against {name_of_layers(fewer)},", curve[more], curve[fewer])
            for name, curve in self.transfer.items()
            for more, fewer in pairs(curve, self.num_layers)
            if more in curve and fewer in curve
        ]

    def curves(self) -> list[tuple[str, Curve, Curve]]:
        """The tasks that both models have zero-shot curves of."""
        ours, theirs = self.zero_shot.get("gpt1", {}), self.zero_shot.get("gpt1-lstm", {})
        return [(name, ours[name], theirs[name]) for name in ours if name in theirs]


def name_of_layers(number: int) -> str:
    names = {-1: "nothing", 0: "embeddings alone", 1: "1 layer"}
    return names.get(number, f"{number} layers")


def steps(curve: Mapping[int, Scores], _: int) -> Iterable[tuple[int, int]]:
    """Each number of layers and the next smaller one; the two ends alone say nothing about the layers between them."""
    numbers = sorted(number for number in curve if number >= 0)
    return zip(numbers[1:], numbers, strict=False) if len(numbers) > 2 else ()


def rises(measured: Measured) -> list[Comparison]:
    return [
        by_rows(name, "after", c.end(last=True), c.end(last=False), c.error, c.error)
        for name, c in measured.zero_shot.get("gpt1", {}).items()
        if len(c.points) >= FEWEST_CHECKPOINTS
    ]


def above(measured: Measured) -> list[Comparison]:
    return [
        by_rows(name, "against", ours.end(last=True), theirs.end(last=True), ours.error, theirs.error)
        for name, ours, theirs in measured.curves()
    ]


def by_rows(name: str, word: str, first: float, second: float, *errors: float) -> Comparison:
    difference_of_ends, error = first - second, math.hypot(*errors)
    text = f"{name}: {first:.2f} {word} {second:.2f}, {difference_of_ends:+.2f}"
    p = float(2 * norm.sf(abs(difference_of_ends) / error))
    return Comparison(text, difference_of_ends, p, f"standard error {error:.2f}")


def varies(measured: Measured) -> list[Comparison]:
    """Whether the LSTM's curves vary more, at the updates that both curves have."""
    found = []
    for name, ours, theirs in measured.curves():
        common = {x for x, *_ in ours.points} & {x for x, *_ in theirs.points}
        if len(common) >= FEWEST_CHECKPOINTS:
            found.append(by_variation(name, ours.at(common), theirs.at(common), max(ours.error, theirs.error)))
    return found


def by_variation(name: str, ours: Sequence[float], theirs: Sequence[float], error: float) -> Comparison:
    """Source of the degrees of freedom: von Neumann's mean square successive difference."""
    our_variance, their_variance = (float(np.mean(np.diff(values) ** 2) / 2) for values in (ours, theirs))
    less, more = sorted((our_variance, their_variance))
    freedom = 2 * (len(ours) - 1) ** 2 / (3 * len(ours) - 4)
    p = min(1.0, float(2 * f.sf(more / (less + error**2), freedom, freedom)))
    deviations = f"{math.sqrt(their_variance):.3f} (LSTM) against {math.sqrt(our_variance):.3f} (Transformer)"
    text = f"{name}: standard deviation {deviations}"
    return Comparison(text, their_variance - our_variance, p, f"rows alone {error:.3f}")


# ---- The claims


@dataclass(frozen=True)
class Claim:
    """One of the paper's claims."""

    text: str
    paper: str  # what the paper's figures say about it
    comparisons: Callable[[Measured], list[Comparison]]  # compares what was measured
    sign: int = 1  # −1 if it says that the second of two settings is better


def means(row: str) -> str:
    return f"{PUBLISHED['table-5']['full']['average']} against {PUBLISHED['table-5'][row]['average']}"


CLAIMS = (
    Claim(
        "Pre-training raises the average score (section 5, table 5).",
        f"{means('without_pretraining')}.",
        lambda measured: measured.average("without_pretraining"),
    ),
    Claim(
        "Without pre-training every task scores lower (section 5, table 5).",
        "Lower on all eight tasks, by 2.2 (RTE) to 51.1 (STS-B).",
        lambda measured: measured.tasks("without_pretraining"),
    ),
    Claim(
        "The auxiliary objective helps on the larger data sets (section 5, table 5).",
        "Over 100 000 training rows: QNLI +1.2, QQP +0.5, MNLI +0.7.",
        lambda measured: measured.tasks("without_auxiliary", lambda column: measured.size(column) > LARGE),
    ),
    Claim(
        "The smaller data sets do better without the auxiliary objective (section 5, table 5).",
        "With it RTE +1.6, MRPC −2.6, STS-B −1.2, CoLA −2.5, SST-2 −0.7: better without it on all but RTE.",
        lambda measured: measured.tasks("without_auxiliary", lambda column: measured.size(column) <= LARGE),
        sign=-1,
    ),
    Claim(
        "The Transformer has a higher average score than an LSTM (section 5, table 5).",
        f"{means('lstm')}; the text says 5.6 less for the LSTM.",
        lambda measured: measured.average("lstm"),
    ),
    Claim(
        "The Transformer is ahead of the LSTM on every task but MRPC (section 5, table 5).",
        "Ahead by 0.8 (SST-2) to 15.1 (CoLA) on the seven others.",
        lambda measured: measured.tasks("lstm", lambda column: column != "mrpc"),
    ),
    Claim(
        "On MRPC the LSTM is ahead of the Transformer (section 5, table 5).",
        "82.3 (Transformer) against 83.2 (LSTM).",
        lambda measured: measured.tasks("lstm", lambda column: column == "mrpc"),
        sign=-1,
    ),
    Claim(
        "Transferring the embeddings alone already helps (section 5, figure 2 left).",
        "Stated in the text; the figure begins at 0 layers.",
        lambda measured: measured.layers(lambda curve, num_layers: [(0, -1)]),
    ),
    Claim(
        "Each transferred layer helps further (section 5, figure 2 left).",
        "Both curves rise from layer to layer on RACE and MultiNLI.",
        lambda measured: measured.layers(steps),
    ),
    Claim(
        "All layers together help well beyond the embeddings (section 5, figure 2 left).",
        "Up to 9 points on MultiNLI.",
        lambda measured: measured.layers(lambda curve, num_layers: [(num_layers, 0)]),
    ),
    Claim(
        "Zero-shot performance rises over pre-training (section 5, figure 2 right).",
        "The Transformer's four curves rise steadily over the updates.",
        rises,
    ),
    Claim(
        "The LSTM's zero-shot performance stays below the Transformer's (figure 2 right).",
        "Its curves end lower.",
        above,
    ),
    Claim(
        "The LSTM's zero-shot performance varies more (section 5, figure 2 right).",
        "Stated in the text about the LSTM's curves.",
        varies,
    ),
)


def judge_claims(measured: Measured) -> list[dict]:
    """Each claim with its verdict and its comparisons."""
    found = []
    for claim in CLAIMS:
        verdict, told = judge(claim.comparisons(measured), claim.sign)
        found.append({"claim": claim.text, "paper": claim.paper, "verdict": verdict, "comparisons": told})
    return found

"""Judges which of the paper's qualitative claims the measured scores support.

Source of the claims: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), section 5,
table 5 and figure 2. `RULES` says in words what counts as a difference and which verdict follows.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import f, norm

from .published import PUBLISHED
from .scores import FEWEST_SEEDS, LEVEL, Scores, difference, holm
from .tables import AVERAGES, COLUMNS, Cells, without_parts

RULES = [
    "Two settings are compared by the difference of their mean scores at the seeds that both have. Its 95 % interval "
    "includes the error of the seeds and that of the rows, which all seeds share; 1000 resamples measure it. It "
    "includes, too, that a few seeds show little of their spread (Behrens and Fisher), and that seeds which happen to "
    "agree vary at least by what rows and seeds do together. Fewer than three seeds decide nothing, nor do runs that "
    "kept no answers to the same rows. All of it is about one pre-trained checkpoint: how another pre-training would "
    "end is in no interval.",
    "A run fails to train if its training loss does not end 1 % below that of the class frequencies. It is an outcome "
    "of its own: counted beside the mean, and in no mean or difference. Where no seed trained with both settings, "
    "their comparison neither supports nor contradicts. An average is over scores of one kind: accuracy, correlation "
    "or F1.",
    "A comparison is significant if its p value is below 0.05, by Holm's correction over all comparisons of a claim; "
    "only then does it support or contradict. A claim holds if all of its comparisons support it. It does not hold if "
    "none supports it and at least one contradicts it. It is mixed if some support and some contradict it. Everything "
    "else is undecided.",
    "Of zero-shot curves the last third of the checkpoints is compared with the first, or with another model's; only "
    "the error of the rows is included. One curve varies more than another if half its mean squared change from "
    "checkpoint to checkpoint exceeds the other's and the rows' variance together, by an F test.",
]

# In table 5 the auxiliary objective helps on every data set with more rows than this. Of the others it helps only RTE.
LARGE = 100_000
# With fewer checkpoints there are no thirds to compare and no changes to average.
FEWEST_CHECKPOINTS = 4


@dataclass(frozen=True)
class Comparison:
    """Two settings in one column of a table or at one step of a curve."""

    text: str  # what was compared, with the difference and its certainty
    difference: float  # above 0 if the first is better
    p: float | None  # two-sided p value of no difference; None if it decides nothing


def judge(comparisons: Sequence[Comparison], sign: int = 1) -> tuple[str, list[dict]]:
    """The verdict of a claim that the first is better, or of sign −1 the second, and what each comparison says."""
    corrected = iter(holm([comparison.p for comparison in comparisons if comparison.p is not None]))
    judged = []
    for comparison in comparisons:
        p = None if comparison.p is None else next(corrected)
        is_significant = p is not None and p < LEVEL
        if not is_significant:
            outcome = "level"
        else:
            outcome = "better" if comparison.difference > 0 else "worse"
        judged.append({"outcome": outcome, "text": comparison.text + show_p(p), "p": p})
    outcomes = {of["outcome"] for of in judged}
    agree = "better" if sign > 0 else "worse"
    if not outcomes:
        return "not measured", judged
    if outcomes == {agree}:
        return "holds", judged
    if not outcomes - {agree, "level"}:
        return "undecided", judged
    return ("mixed" if agree in outcomes else "does not hold"), judged


def show_p(p: float | None) -> str:
    """A p value behind the text of its comparison."""
    if p is None:
        return ""
    return ", p < 0.001" if p < 0.001 else f", p {p:.2g}"


def compare(label: str, first: Scores, second: Scores, failed: int = 0) -> Comparison:
    """Compares the means of the first and the second at the seeds that both have; `failed` runs are in neither."""
    failures = f", {failed} run{'' if failed == 1 else 's'} failed to train" if failed else ""
    if not first.keys() & second.keys():
        return Comparison(f"{label} no difference, no seed trained with both settings{failures}", 0.0, None)
    found = difference(first, second)
    certainty = "no answers to the same rows kept"
    if found.num_seeds < FEWEST_SEEDS:
        certainty = f"fewer than {FEWEST_SEEDS} seeds decide nothing"
    elif found.interval is not None:
        certainty = "95 % interval {:+.1f} to {:+.1f}".format(*found.interval)
    return Comparison(f"{label} {found.value:+.1f}, {certainty}{failures}", found.value, found.p)


# ---- What is compared


def compare_tasks(cells: Cells, other: str, wanted: Callable[[str], bool] = lambda column: True) -> list[Comparison]:
    """The full method against another row of table 5, in each wanted column, the smallest data set first."""
    measured = [key for key in COLUMNS if all(cells.seeds(key, row) for row in ("full", other))]
    keys = sorted(filter(wanted, without_parts(measured)), key=cells.training_rows)
    failed = {key: len(cells.failed(key, "full")) + len(cells.failed(key, other)) for key in keys}
    return [
        compare(COLUMNS[key].label, cells.scores(key, "full"), cells.scores(key, other), failed[key]) for key in keys
    ]


def compare_averages(cells: Cells, other: str) -> list[Comparison]:
    """The full method's averages, one of each kind of score, against those of another row of table 5."""
    comparisons = []
    for key, (label, _) in AVERAGES.items():
        averaged = cells.averaged[key]
        if averaged and all(cells.seeds(key, row) for row in ("full", other)):
            names = ", ".join(COLUMNS[of_task].label for of_task in averaged)
            failed = sum(len(cells.failed(of_task, row)) for of_task in averaged for row in ("full", other))
            ours, theirs = cells.scores(key, "full"), cells.scores(key, other)
            comparisons.append(compare(f"{label} of {names}:", ours, theirs, failed))
    return comparisons


def compare_layers(cells: Cells, pairs: Callable[[Iterable[int]], Iterable[tuple[int, int]]]) -> list[Comparison]:
    """Numbers of transferred layers against others, of the tasks that have both."""
    comparisons = []
    for key, curve in cells.transfer().items():
        for more, fewer in pairs(curve):
            if more in curve and fewer in curve:
                label = f"{COLUMNS[key].label}, {more} layers against {fewer}:"
                failed = sum(len(cells.failed(key, cells.row_of_layers(number))) for number in (more, fewer))
                comparisons.append(compare(label, curve[more], curve[fewer], failed))
    return comparisons


def steps(curve: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Each number of layers and the next smaller one; the two ends alone say nothing about the layers between them."""
    numbers = sorted(number for number in curve if number >= 0)
    return zip(numbers[1:], numbers, strict=False) if len(numbers) > 2 else ()


def compare_thirds(cells: Cells) -> list[Comparison]:
    """The last third of each of the Transformer's zero-shot curves against its first."""
    return [
        by_rows(task, "after", third_of(curve, last=True), third_of(curve, last=False))
        for task, curve in cells.curves("gpt1").items()
        if len(curve) >= FEWEST_CHECKPOINTS
    ]


def compare_ends(cells: Cells) -> list[Comparison]:
    """The last third of the Transformer's curve against the LSTM's, of each task that has both."""
    curves = curves_of_both(cells)
    return [by_rows(task, "against", *(third_of(curve, last=True) for curve in both)) for task, both in curves]


def curves_of_both(cells: Cells) -> list[tuple[str, tuple[list, list]]]:
    """The tasks that both models have zero-shot curves of."""
    ours, theirs = cells.curves("gpt1"), cells.curves("gpt1-lstm")
    return [(task, (ours[task], theirs[task])) for task in ours if task in theirs]


def third_of(curve: Sequence[tuple], last: bool) -> tuple[float, float]:
    """Mean score over the last or the first third of a curve, and the error of one score."""
    number = max(1, len(curve) // 3)
    third = curve[-number:] if last else curve[:number]
    error = curve[-1][2]
    return statistics.fmean(score for _, score, *_ in third), error


def by_rows(task: str, word: str, first: tuple[float, float], second: tuple[float, float]) -> Comparison:
    """Compares two scores, each with its error."""
    gain, error = first[0] - second[0], math.hypot(first[1], second[1])
    p = float(2 * norm.sf(abs(gain) / error))
    text = f"{task}: {first[0]:.2f} {word} {second[0]:.2f}, {gain:+.2f}, standard error {error:.2f}"
    return Comparison(text, gain, p)


def compare_variation(cells: Cells) -> list[Comparison]:
    """Whether the LSTM's curves vary more, at the updates that both curves have."""
    found = []
    for task, both in curves_of_both(cells):
        common = set.intersection(*({step for step, *_ in curve} for curve in both))
        if len(common) >= FEWEST_CHECKPOINTS:
            ours, theirs = ([score for step, score, *_ in curve if step in common] for curve in both)
            found.append(by_variation(task, ours, theirs, max(curve[-1][2] for curve in both)))
    return found


def by_variation(name: str, ours: Sequence[float], theirs: Sequence[float], error: float) -> Comparison:
    """Source of the degrees of freedom: von Neumann's mean square successive difference."""
    our_variance, their_variance = (float(np.mean(np.diff(values) ** 2) / 2) for values in (ours, theirs))
    less, more = sorted((our_variance, their_variance))
    freedom = 2 * (len(ours) - 1) ** 2 / (3 * len(ours) - 4)
    p = min(1.0, float(2 * f.sf(more / (less + error**2), freedom, freedom)))
    deviations = f"{math.sqrt(their_variance):.3f} (LSTM) against {math.sqrt(our_variance):.3f} (Transformer)"
    text = f"{name}: standard deviation {deviations}, rows alone {error:.3f}"
    return Comparison(text, their_variance - our_variance, p)


# ---- The claims


@dataclass(frozen=True)
class Claim:
    """One of the paper's claims."""

    text: str
    paper: str  # what the paper's figures say about it
    comparisons: Callable[[Cells], list[Comparison]]
    sign: int = 1  # −1 if it says that the second of two settings is better


MEANS = {row: scores["average"] for row, scores in PUBLISHED["table-5"].items()}
CLAIMS = (
    Claim(
        "Pre-training raises the average score (section 5, table 5).",
        f"{MEANS['full']} against {MEANS['without_pretraining']}.",
        lambda cells: compare_averages(cells, "without_pretraining"),
    ),
    Claim(
        "Without pre-training every task scores lower (section 5, table 5).",
        "Lower on all eight tasks, by 2.2 (RTE) to 51.1 (STS-B).",
        lambda cells: compare_tasks(cells, "without_pretraining"),
    ),
    Claim(
        "The auxiliary objective helps on the larger data sets (section 5, table 5).",
        "Over 100 000 training rows: QNLI +1.2, QQP +0.5, MNLI +0.7.",
        lambda cells: compare_tasks(cells, "without_auxiliary", lambda column: cells.training_rows(column) > LARGE),
    ),
    Claim(
        "The smaller data sets do better without the auxiliary objective (section 5, table 5).",
        "With it RTE +1.6, MRPC −2.6, STS-B −1.2, CoLA −2.5, SST-2 −0.7: better without it on all but RTE.",
        lambda cells: compare_tasks(cells, "without_auxiliary", lambda column: cells.training_rows(column) <= LARGE),
        sign=-1,
    ),
    Claim(
        "The Transformer has a higher average score than an LSTM (section 5, table 5).",
        f"{MEANS['full']} against {MEANS['lstm']}; the text says 5.6 less for the LSTM.",
        lambda cells: compare_averages(cells, "lstm"),
    ),
    Claim(
        "The Transformer is ahead of the LSTM on every task but MRPC (section 5, table 5).",
        "Ahead by 0.8 (SST-2) to 15.1 (CoLA) on the seven others.",
        lambda cells: compare_tasks(cells, "lstm", lambda column: column != "mrpc"),
    ),
    Claim(
        "On MRPC the LSTM is ahead of the Transformer (section 5, table 5).",
        "82.3 (Transformer) against 83.2 (LSTM).",
        lambda cells: compare_tasks(cells, "lstm", lambda column: column == "mrpc"),
        sign=-1,
    ),
    Claim(
        "Transferring the embeddings alone already helps (section 5, figure 2 left).",
        "Stated in the text; the figure begins at 0 layers.",
        lambda cells: compare_layers(cells, lambda curve: [(0, -1)]),
    ),
    Claim(
        "Each transferred layer helps further (section 5, figure 2 left).",
        "Both curves rise from layer to layer on RACE and MultiNLI.",
        lambda cells: compare_layers(cells, steps),
    ),
    Claim(
        "All layers together help well beyond the embeddings (section 5, figure 2 left).",
        "Up to 9 points on MultiNLI.",
        lambda cells: compare_layers(cells, lambda curve: [(cells.num_layers, 0)]),
    ),
    Claim(
        "Zero-shot performance rises over pre-training (section 5, figure 2 right).",
        "The Transformer's four curves rise steadily over the updates.",
        compare_thirds,
    ),
    Claim(
        "The LSTM's zero-shot performance stays below the Transformer's (figure 2 right).",
        "Its curves end lower.",
        compare_ends,
    ),
    Claim(
        "The LSTM's zero-shot performance varies more (section 5, figure 2 right).",
        "Stated in the text about the LSTM's curves.",
        compare_variation,
    ),
)


def judge_claims(cells: Cells) -> list[dict]:
    """Each claim with its verdict and its comparisons."""
    found = []
    for claim in CLAIMS:
        verdict, judged = judge(claim.comparisons(cells), claim.sign)
        found.append({"claim": claim.text, "paper": claim.paper, "verdict": verdict, "comparisons": judged})
    return found

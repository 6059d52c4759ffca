"""What each part of the method is worth on each task: differences with 95 % intervals, rows and seeds.

They stand first in the report. A verdict is made of some of them, with Holm's correction; these intervals have none.
Fewer than three seeds have none: theirs would be over the rows alone, and would cover the truth too rarely.
"""

from dataclasses import dataclass

from .scores import difference
from .tables import COLUMNS, Cells, without_parts

# The first setting against the second. A number is one of transferred layers.
PAIRS = (
    ("full", "without_pretraining"),
    ("full", 0),
    (0, "without_pretraining"),
    ("full", "without_auxiliary"),
    ("full", "lstm"),
    ("full", "ngrams"),
    ("full", "ngrams_of_last"),
    ("without_pretraining", "ngrams"),
)
SHORT = {
    "full": "full method",
    "without_pretraining": "no pre-training",
    "without_auxiliary": "no auxiliary objective",
    "lstm": "LSTM",
    "ngrams": "n-grams",
    "ngrams_of_last": "n-grams of the last text",
    0: "embeddings alone",
}


@dataclass(frozen=True)
class Effect:
    """The difference of two settings on a task."""

    label: str
    first: str
    second: str
    value: float | None
    """None if no seed trained with both settings."""
    interval: tuple[float, float] | None
    """Over rows and seeds; None with fewer than three seeds or without answers."""
    seeds: int
    rows: int | None
    failed: int

    def describe(self) -> dict:
        """What report.json says of it; scores × 100."""
        return {
            "task": self.label,
            "first": self.first,
            "second": self.second,
            "difference": None if self.value is None else round(self.value, 4),
            "interval": None if self.interval is None else [round(end, 4) for end in self.interval],
            "seeds": self.seeds,
            "rows": self.rows,
            "failed": self.failed,
        }


def effects_of(cells: Cells) -> list[Effect]:
    """All differences that were measured, by pairs, each over its tasks."""
    found = []
    for first, second in PAIRS:
        # Runs of different seeds have different training rows.
        for key in without_parts([key for key in COLUMNS if cells.seeds(key, first) & cells.seeds(key, second)]):
            estimate = None
            ours, theirs = cells.scores(key, first), cells.scores(key, second)
            if ours.keys() & theirs.keys():
                estimate = difference(ours, theirs)
            baselines = cells.baselines(key)
            found.append(
                Effect(
                    label=COLUMNS[key].label,
                    first=SHORT[first],
                    second=SHORT[second],
                    value=None if estimate is None else estimate.value,
                    interval=estimate.interval if estimate is not None and estimate.decides else None,
                    seeds=0 if estimate is None else estimate.num_seeds,
                    rows=None if baselines is None else baselines["rows"],
                    failed=len(cells.failed(key, first)) + len(cells.failed(key, second)),
                )
            )
    return found

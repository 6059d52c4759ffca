"""Tables 2 to 5: finished cells, looked up by the paper's columns and rows, beside the paper's scores.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenization import get_task

from .published import PUBLISHED
from .scores import Scores, average, constant_answer, estimate, guessing, resample


@dataclass(frozen=True)
class Column:
    """A task as a column of the paper's tables."""

    label: str  # the column's name in the paper
    task: str  # the task that was scored
    parts: tuple[str, ...] = ()  # of the validation and test splits, whose scores are averaged; none if each is one

    @property
    def metric(self) -> str:
        return get_task(self.task).metrics[0]

    def metric_keys(self, split: str) -> list[str]:
        """Names of the score in the all_results.json of `gpt1 finetune`."""
        prefix = "predict" if split == "test" else "eval"
        return [f"{prefix}_{split}_{part}_{self.metric}" for part in self.parts] or [f"{prefix}_{self.metric}"]

    def splits(self, split: str) -> list[str]:
        """Names of the splits that a score is the mean of."""
        return [f"{split}_{part}" for part in self.parts] or [split]


COLUMNS = {
    "mnli-m": Column("MNLI-m", "mnli", ("matched",)),
    "mnli-mm": Column("MNLI-mm", "mnli", ("mismatched",)),
    "snli": Column("SNLI", "snli"),
    "scitail": Column("SciTail", "scitail"),
    "qnli": Column("QNLI", "qnli"),
    "rte": Column("RTE", "rte"),
    "story_cloze": Column("Story Cloze", "story_cloze"),
    "race-m": Column("RACE-m", "race-middle"),
    "race-h": Column("RACE-h", "race-high"),
    "race": Column("RACE", "race"),
    "cola": Column("CoLA", "cola"),
    "sst2": Column("SST-2", "sst2"),
    "mrpc": Column("MRPC", "mrpc"),
    "stsb": Column("STS-B", "stsb"),
    "qqp": Column("QQP", "qqp"),
    "mnli": Column("MNLI", "mnli", ("matched", "mismatched")),
}
LABELS = {column.task: column.label for column in COLUMNS.values()}
# Columns that are parts of another column in tables 2 and 3.
PARTS = ("mnli-m", "mnli-mm", "race-m", "race-h")
METRIC_NAMES = {
    "accuracy": "accuracy",
    "matthews_correlation": "Matthews correlation",
    "f1": "F1",
    "pearson": "Pearson correlation",
}
ROW_LABELS = {
    "full": "Transformer, auxiliary LM (full)",
    "without_pretraining": "Transformer, without pre-training",
    "without_auxiliary": "Transformer, without auxiliary LM",
    "lstm": "LSTM, auxiliary LM",
}
TABLES_OF_RESULTS = {
    "table-2": ("Table 2: natural language inference", "mnli-m mnli-mm snli scitail qnli rte".split()),
    "table-3": ("Table 3: question answering and commonsense reasoning", "story_cloze race-m race-h race".split()),
    "table-4": ("Table 4: semantic similarity and classification (GLUE)", "cola sst2 mrpc stsb qqp".split()),
}
# Columns of the paper's table 5. Other measured tasks stand after them and count in no average.
ABLATION_COLUMNS = tuple("cola sst2 mrpc stsb qqp mnli qnli rte".split())


# ---- Finished cells


class Cells:
    """Finished cells, looked up by task and row.

    Args:
        cells: cells as a `CellStore` keeps them, of one model of each family.
        unfinished: missing cells, with `kind`, `task`, `variant`, `n_transfer`, `seed` and `reason`, such as "not run
            yet" or the text of an error.
    """

    def __init__(self, cells: Sequence[Mapping], unfinished: Sequence[Mapping] = ()):
        self.fine_tuning = [cell for cell in cells if cell["kind"] == "fine_tuning"]
        self.zero_shot = [cell for cell in cells if cell["kind"] == "zero_shot"]
        self.unfinished = unfinished
        self.common = common_settings([cell["settings"] for cell in self.fine_tuning])

    def of(self, task: str, place: str | int) -> list[Mapping]:
        """The cells of a row of table 5, or of a number of transferred layers, in the order of seeds."""
        found = [cell for cell in self.fine_tuning if cell["task"] == task and place_of(cell) == place]
        return sorted(found, key=lambda cell: cell["seed"])

    def split(self, column: Column) -> str:
        """The split that a task is scored on: "test" if every run has test scores, else "validation"."""
        runs = [cell["metrics"] for cell in self.fine_tuning if cell["task"] == column.task]
        return "test" if all(key in run for run in runs for key in column.metric_keys("test")) else "validation"

    def scores(self, key: str, place: str | int) -> Scores:
        """The scores of a column × 100, by seed, without runs that have no finite score."""
        column, found, resampled = COLUMNS[key], {}, {}
        split = self.split(column)
        for cell in self.of(column.task, place):
            values = [cell["metrics"].get(name, math.nan) for name in column.metric_keys(split)]
            if all(map(math.isfinite, values)):
                found[cell["seed"]] = 100 * statistics.fmean(values)
                if answers := answers_of(cell, column.splits(split)):
                    of_splits = [resample(of["labels"], of["predictions"], column.metric) for of in answers]
                    resampled[cell["seed"]] = np.mean(of_splits, axis=0)
        return Scores(found, resampled if len(resampled) == len(found) else None)

    def baselines(self, key: str) -> dict[str, float] | None:
        """What a column's rows are, or None if that is unknown: their number `rows`, and what guessing (`chance`) and
        always the same answer (`majority`) score × 100 on them.
        """
        column = COLUMNS[key]
        task, splits = get_task(column.task), column.splits(self.split(column))
        for cell in self.fine_tuning:
            if cell["task"] == column.task and (answers := answers_of(cell, splits)):
                labels = [rows["labels"] for rows in answers]
                num_answers = len(task.label_names) or len(set(labels[0].split()))
                return {
                    "rows": sum(len(of_split.split()) for of_split in labels),
                    "chance": statistics.fmean(guessing(of_split, column.metric, num_answers) for of_split in labels),
                    "majority": statistics.fmean(constant_answer(of_split, column.metric) for of_split in labels),
                }
        return None

    def why_missing(self, task: str, place: str | int) -> str:
        """Why scores are missing, seed by seed. Empty if none is missing."""
        names, seeds = {task, get_task(task).folder}, {}  # the runs of RACE score its parts
        for cell in self.unfinished:
            if cell["kind"] == "fine_tuning" and cell["task"] in names and place_of(cell) == place:
                seeds.setdefault(cell["reason"], []).append(str(cell["seed"]))
        return "; ".join(f"seed {', '.join(of_reason)}: {reason}" for reason, of_reason in seeds.items())

    def settings(self, column: Column, place: str | int) -> str:
        """The split that is scored, and the arguments in which these runs differ from the others."""
        own = common_settings([cell["settings"] for cell in self.of(column.task, place)])
        differ = [f"{name} {plain(value)}" for name, value in own.items() if name not in self.common]
        return "; ".join([self.split(column), *differ])


def plain(value: object) -> str:
    """A setting as text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def answers_of(cell: Mapping, splits: Sequence[str]) -> list[Mapping[str, str]]:
    """Labels and predictions of these splits, or nothing if the cell lacks one."""
    kept = cell.get("answers", {})
    return [kept[split] for split in splits] if all(split in kept for split in splits) else []


def place_of(cell: Mapping) -> str | int:
    """The cell's row of table 5, or its number of transferred layers."""
    return cell["n_transfer"] if cell["variant"] == "transfer" else cell["variant"]


def common_settings(all_settings: Sequence[Mapping]) -> dict:
    """The settings that are equal in all cells."""
    first = all_settings[0] if all_settings else {}
    return {name: value for name, value in first.items() if all((name, value) in of.items() for of in all_settings)}


# ---- The tables


def measured(scores: Scores) -> dict | None:
    """What a cell of a table tells of some scores."""
    if not scores:
        return None
    values = list(scores.values())
    ends = {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
    interval = estimate(scores).interval
    return {
        **{name: round(value, 4) for name, value in ends.items()},
        "seeds": sorted(scores),
        **({"interval": [round(end, 4) for end in interval]} if interval else {}),
    }


def entry(paper: float | None, scores: Scores, settings: str, missing: str = "") -> dict:
    found = measured(scores)
    missing = missing if found else missing or "not measured"
    return {"paper": paper, "measured": found, "settings": settings if found else "", "missing": missing}


def cell_of(cells: Cells, table: str, row: str, key: str) -> dict:
    column, paper = COLUMNS[key], PUBLISHED[table].get(row, {}).get(key)
    missing = cells.why_missing(column.task, row)
    return entry(paper, cells.scores(key, row), cells.settings(column, row), missing)


def describe_column(cells: Cells, key: str) -> dict:
    column = COLUMNS[key]
    named = {"key": key, "label": column.label, "metric": METRIC_NAMES[column.metric]}
    return {**named, "baselines": cells.baselines(key)}


def table_of_results(cells: Cells, table: str) -> dict:
    """One of tables 2 to 4, with the paper's own model."""
    title, keys = TABLES_OF_RESULTS[table]
    own = {key: cell_of(cells, table, "full", key) for key in keys}
    return {
        **{"id": table, "title": title, "caption": "Scores × 100. The paper's figures are on the test sets."},
        "columns": [describe_column(cells, key) for key in keys],
        "rows": [{"key": "full", "label": "Finetuned Transformer LM", "cells": own}],
    }


def gather_table_5(cells: Cells) -> dict:
    """What [`Measured`] takes of table 5."""
    extras = [key for key in COLUMNS if key not in (*ABLATION_COLUMNS, *PARTS)]
    scores = {}
    for row in ROW_LABELS:
        of_row = {key: found for key in (*ABLATION_COLUMNS, *extras) if (found := cells.scores(key, row))}
        scores |= {row: of_row} if of_row else {}
    averaged = [key for key in ABLATION_COLUMNS if scores and all(key in of_row for of_row in scores.values())]
    return {
        **{"scores": scores, "averaged": averaged},
        "averages": {
            row: average([of_row[key] for key in averaged]) if averaged else Scores() for row, of_row in scores.items()
        },
        "rows_to_train": cut_rows(cells),
    }


def cut_rows(cells: Cells) -> dict[str, int]:
    """The largest number of training rows of each column whose runs all tell it, by a limit or by what they read."""
    found: dict[str, int] = {}
    for key, column in COLUMNS.items():
        runs = [cell for cell in cells.fine_tuning if cell["task"] == column.task]
        limits = [cell.get("train_rows", cell["settings"].get("max_train_samples")) for cell in runs]
        if limits and None not in limits:
            found[key] = max(map(int, limits))
    return found


def table_5(cells: Cells, table) -> dict:
    """Table 5; `table` is what was [`Measured`]. Its average is over the tasks that every measured row has."""
    extras = dict.fromkeys(key for of_row in table.scores.values() for key in of_row if key not in ABLATION_COLUMNS)
    keys = [*ABLATION_COLUMNS, *extras]
    rows = []
    for row, label in ROW_LABELS.items():
        of_row = {key: cell_of(cells, "table-5", row, key) for key in keys}
        rows.append({"key": row, "label": label, "cells": {"average": average_cell(table, row), **of_row}})
    every = set(table.averaged) == set(ABLATION_COLUMNS)
    names = ", ".join(COLUMNS[key].label for key in table.averaged) or "no task"
    known, baselines = [cells.baselines(key) for key in table.averaged], None
    if known and None not in known:
        baselines = {name: statistics.fmean(of_task[name] for of_task in known) for name in ("chance", "majority")}
    metric = "of the paper's eight tasks" if every else f"of {names}"
    average_column = {"key": "average", "label": "Average", "metric": metric, "baselines": baselines}
    return {
        "id": "table-5",
        "title": "Table 5: ablations",
        "caption": (
            "Scores × 100. The average is over those of the paper's eight tasks that every measured row has, seed by "
            "seed; the paper's is that of its own figures for them. Tasks that are not in the paper's table come last "
            "and count in no average."
        ),
        "columns": [average_column, *(describe_column(cells, key) for key in keys)],
        "rows": rows,
    }


def average_cell(table, row: str) -> dict:
    paper = PUBLISHED["table-5"][row]
    mean = paper["average"]
    if set(table.averaged) != set(ABLATION_COLUMNS):
        mean = round(statistics.fmean(paper[key] for key in table.averaged), 2) if table.averaged else None
    return entry(mean, table.averages.get(row, Scores()), "mean over the tasks, seed by seed")

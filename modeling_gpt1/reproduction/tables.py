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

from .published import ABLATION_COLUMNS, PUBLISHED
from .scores import NUM_RESAMPLES, Scores, average, constant_answer, estimate, resample
from .training_rows import has_failed


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


# By the keys of published.py, in the order of the report.
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
# An average is over scores of one kind alone; Matthews' correlation of two classes is Pearson's.
AVERAGES = {
    "average-accuracy": ("Average accuracy", ("accuracy",)),
    "average-correlation": ("Average correlation", ("matthews_correlation", "pearson")),
    "average-f1": ("Average F1", ("f1",)),
}
# Columns of tables 2 and 3 that are parts of another column, which stands behind them.
PARTS = {"mnli-m": "mnli", "mnli-mm": "mnli", "race-m": "race", "race-h": "race"}
ROW_LABELS = {
    "full": "Transformer, auxiliary LM (full)",
    "without_pretraining": "Transformer, without pre-training",
    "without_auxiliary": "Transformer, without auxiliary LM",
    "lstm": "LSTM, auxiliary LM",
}
BASELINE_LABELS = {
    "ngrams": "Linear model of n-grams",
    "ngrams_of_last": "Linear model of n-grams, last text alone",
}
TITLES = {
    "table-2": "Table 2: natural language inference",
    "table-3": "Table 3: question answering and commonsense reasoning",
    "table-4": "Table 4: semantic similarity and classification (GLUE)",
    "table-5": "Table 5: ablations",
}
# Approximate number of training rows, by task. Where `max_train_samples` is smaller, that number counts.
TRAINING_ROWS = {
    "rte": 2490,
    "mrpc": 3668,
    "stsb": 5749,
    "cola": 8551,
    "sst2": 67349,
    "qnli": 104743,
    "qqp": 363846,
    "mnli": 392702,
    "snli": 549367,
    "scitail": 23097,
    "story_cloze": 1497,
    "race": 87866,
    "race-middle": 25421,
    "race-high": 62445,
}


def without_parts(keys: Sequence[str]) -> list[str]:
    """Some columns without the parts of those that are among them: the whole stands for its parts."""
    return [key for key in keys if PARTS.get(key) not in keys]


# ---- Finished cells


class Cells:
    """Finished cells, looked up by the paper's columns and rows.

    Args:
        cells: cells as a `CellStore` keeps them, of one model of each family.
        unfinished: missing cells, with `kind`, `task`, `variant`, `n_transfer`, `seed` and `reason`, such as "not run
            yet" or the text of an error.
        num_layers: of the Transformer.
    """

    def __init__(self, cells: Sequence[Mapping], unfinished: Sequence[Mapping] = (), num_layers: int = 12):
        # A model of a whole task was scored on its parts, too. They come first: a cell of the part itself counts then.
        parts = [
            {**cell, "task": task, "metrics": metrics, "answers": {}}
            for cell in cells
            for task, metrics in cell.get("parts", {}).items()
        ]
        self.fine_tuning = [*parts, *(cell for cell in cells if cell["kind"] == "fine_tuning")]
        self.baseline = [cell for cell in cells if cell["kind"] == "baseline"]
        self.zero_shot = [cell for cell in cells if cell["kind"] == "zero_shot"]
        self.unfinished, self.num_layers = unfinished, num_layers
        self.common = common_settings(self.fine_tuning)
        rows = [{key for key in COLUMNS if key not in PARTS and self.seeds(key, row)} for row in ROW_LABELS]
        measured = [row for row in rows if row]
        # Those of the paper's columns that every measured row has.
        common = [key for key in ABLATION_COLUMNS if measured and all(key in row for row in measured)]
        self.averaged = {
            average_key: [key for key in common if COLUMNS[key].metric in metrics]
            for average_key, (_, metrics) in AVERAGES.items()
        }

    def of(self, task: str, row: str | int) -> list[Mapping]:
        """The cells of a row of table 5, a number of transferred layers or a baseline, in the order of seeds.

        Of two cells with one seed it is the last: that of a part itself, not that of the whole task.
        """
        every = [*self.fine_tuning, *self.baseline]
        found = {cell["seed"]: cell for cell in every if cell["task"] == task and row_of(cell) == row}
        return [found[seed] for seed in sorted(found)]

    def split(self, column: Column) -> str:
        """The split that a task is scored on: "test" if every run has test scores, else "validation".

        Without runs, or if all of them diverged, that of its baselines.
        """
        runs: list[Mapping] = []
        for cells in (self.fine_tuning, self.baseline):
            # A run that diverged has no metrics.
            runs = runs or [cell["metrics"] for cell in cells if cell["task"] == column.task and cell["metrics"]]
        has_test_scores = runs and all(key in run for run in runs for key in column.metric_keys("test"))
        return "test" if has_test_scores else "validation"

    def scores(self, key: str, row: str | int) -> Scores:
        """The scores of a column × 100, by seed, without runs that failed to train or have no finite score.

        Runs that were scored on other rows than each other have no error of the rows: it is not one that all share.
        """
        if key in AVERAGES:
            of_columns = [self.scores(averaged, row) for averaged in self.averaged[key]]
            return average(of_columns) if of_columns else {}
        column = COLUMNS[key]
        split = self.split(column)
        found = {}
        labels_of_seed = {}
        for cell in self.of(column.task, row):
            if has_failed(cell):
                continue
            score = 100 * statistics.fmean(cell["metrics"].get(name, math.nan) for name in column.metric_keys(split))
            if math.isfinite(score):
                answers = answers_of(cell, column.splits(split))
                labels_of_seed[cell["seed"]] = tuple(rows["labels"] for rows in answers)
                resampled = [resample(rows["labels"], rows["predictions"], column.metric) for rows in answers]
                mean_resampled = np.mean(resampled, axis=0) if resampled else np.full(NUM_RESAMPLES, math.nan)
                found[cell["seed"]] = np.append(score, mean_resampled)
        if len(set(labels_of_seed.values())) > 1:
            without_resamples = np.full(NUM_RESAMPLES, math.nan)
            return {seed: np.append(of_seed[0], without_resamples) for seed, of_seed in found.items()}
        return found

    def failed(self, key: str, row: str | int) -> list[int]:
        """The seeds of a column's runs that failed to train: an outcome of its own, which no mean has.

        Of an average, the seeds at which a run of one of its tasks failed.
        """
        if key in AVERAGES:
            return sorted({seed for averaged in self.averaged[key] for seed in self.failed(averaged, row)})
        return [cell["seed"] for cell in self.of(COLUMNS[key].task, row) if has_failed(cell)]

    def seeds(self, key: str, row: str | int) -> set[int]:
        """The seeds of a setting's finished runs, with those that failed to train."""
        return {*self.scores(key, row), *self.failed(key, row)}

    def baselines(self, key: str) -> dict[str, float] | None:
        """The number of a column's scored `rows`, and what the best constant answer scores × 100 on them (`majority`);
        None if its runs kept no answers.
        """
        if key in AVERAGES:
            known = [self.baselines(averaged) for averaged in self.averaged[key]]
            if not known or not all(known):
                return None
            return {"majority": statistics.fmean(baseline["majority"] for baseline in known)}
        column = COLUMNS[key]
        splits = column.splits(self.split(column))
        for cell in (*self.fine_tuning, *self.baseline):
            if cell["task"] == column.task and (answers := answers_of(cell, splits)):
                labels = [rows["labels"] for rows in answers]
                majority = statistics.fmean(constant_answer(of_split, column.metric) for of_split in labels)
                return {"rows": sum(len(of_split.split()) for of_split in labels), "majority": majority}
        return None

    def training_rows(self, key: str) -> int:
        """How many rows the runs of a column are trained on at most; a limit counts if all runs tell one."""
        runs = [cell for cell in self.fine_tuning if cell["task"] == COLUMNS[key].task]
        limits = [cell.get("train_rows", cell["settings"].get("max_train_samples")) for cell in runs]
        of_task = TRAINING_ROWS[COLUMNS[key].task]
        return min(of_task, max(map(int, limits))) if limits and None not in limits else of_task

    def transfer(self) -> dict[str, dict[int, Scores]]:
        """Scores by column and number of transferred layers, of the tasks with points between the two ends.

        The ends are rows of table 5: −1 layers is the row without pre-training, all layers is the full method. A
        number whose runs all failed to train has no scores.
        """
        measured_rows = {row_of(cell) for cell in self.fine_tuning}
        numbers = {row for row in measured_rows if isinstance(row, int)}
        rows = {number: self.row_of_layers(number) for number in sorted({-1, *numbers, self.num_layers})}
        keys = without_parts([key for key in COLUMNS if any(self.seeds(key, number) for number in numbers)])
        return {
            key: {number: self.scores(key, row) for number, row in rows.items() if self.seeds(key, row)}
            for key in keys
        }

    def row_of_layers(self, number: int) -> str | int:
        """The row of a number of transferred layers: the number itself, or at the two ends a row of table 5."""
        return {-1: "without_pretraining", self.num_layers: "full"}.get(number, number)

    def curves(self, family: str) -> dict[str, list[tuple[int, float, float, str]]]:
        """A family's zero-shot scores over the checkpoints by task: updates, normalised score, its error, what it is.

        A normalised score is 0 for guessing and 1 for the best known model.
        """
        found: dict[str, list] = {}
        checkpoints = [cell for cell in self.zero_shot if cell["family"] == family]
        for cell in sorted(checkpoints, key=lambda cell: cell["step"]):
            for name, result in cell["tasks"].items():
                low, high, metric, num_rows = (result[key] for key in ("chance", "best_known", "metric", "num_rows"))
                note = f"0 is {show_metric(metric)} {100 * low:.1f}, 1 is {100 * high:.1f}; {num_rows} rows of "
                note += f"{result['split']}; bars are two standard errors"
                error = standard_error(result[metric], num_rows, metric) / (high - low)
                found.setdefault(LABELS.get(name, name), []).append((cell["step"], result["normalised"], error, note))
        return found

    def why_missing(self, task: str, row: str | int) -> str:
        """Why scores are missing, seed by seed. Empty if none is missing."""
        names = {task, get_task(task).folder}  # the runs of RACE score its parts
        missing = [cell for cell in self.unfinished if cell["kind"] == "fine_tuning" and cell["task"] in names]
        return "; ".join(f"seed {cell['seed']}: {cell['reason']}" for cell in missing if row_of(cell) == row)

    def settings(self, column: Column, row: str | int) -> str:
        """The split that is scored, and the arguments in which these runs differ from the others."""
        own = common_settings(self.of(column.task, row))
        differ = [f"{name} {plain(value)}" for name, value in own.items() if name not in self.common]
        return "; ".join([self.split(column), *differ])


def standard_error(score: float, num_rows: int, metric: str) -> float:
    """Standard error of an accuracy, or approximately that of a correlation, on `num_rows` rows."""
    variance = score * (1 - score) if metric == "accuracy" else (1 - score**2) ** 2
    # A score of 0 or 1 on a few rows is not certain: keep the error above 0.
    return math.sqrt(max(variance, 1 / num_rows) / num_rows)


def show_metric(name: str) -> str:
    return name.replace("_", " ").capitalize()


def plain(value: object) -> str:
    """A setting as text."""
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if value is None or isinstance(value, str):
        return value or "unknown"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value, default=str)


def answers_of(cell: Mapping, splits: Sequence[str]) -> list[Mapping[str, str]]:
    """Labels and predictions of these splits, or nothing if the cell lacks one."""
    kept = cell.get("answers", {})
    return [kept[split] for split in splits] if all(split in kept for split in splits) else []


def row_of(cell: Mapping) -> str | int:
    """The cell's row of table 5, or its number of transferred layers."""
    return cell["n_transfer"] if cell["variant"] == "transfer" else cell["variant"]


def common_settings(cells: Sequence[Mapping]) -> dict:
    """The settings that are equal in all cells."""
    all_settings = [cell["settings"] for cell in cells]
    first = all_settings[0] if all_settings else {}
    return {name: first[name] for name in first if all((name, first[name]) in one.items() for one in all_settings)}


# ---- The tables


def describe_table(cells: Cells, name: str) -> dict:
    """A table with its measured scores and the published ones, whose rows and columns it has.

    Behind the published rows stand the baselines that were measured, behind the paper's columns other measured tasks.
    """
    published = PUBLISHED[name]
    keys = [key for key in published["full"] if key in COLUMNS]
    if name == "table-5":
        others = [key for key in COLUMNS if key not in keys and any(cells.seeds(key, row) for row in published)]
        keys = without_parts([*keys, *others])
        keys = [*(key for key in AVERAGES if cells.averaged[key]), *keys]
    labels = {row: ROW_LABELS[row] for row in published}
    for row, label in BASELINE_LABELS.items():
        if any(cells.scores(key, row) for key in keys):
            labels[row] = label
    columns = [{"key": key, **describe_column(cells, key), "baselines": cells.baselines(key)} for key in keys]
    rows = [
        {"key": row, "label": label, "cells": {key: describe_cell(cells, name, row, key) for key in keys}}
        for row, label in labels.items()
    ]
    return {"id": name, "title": TITLES[name], "columns": columns, "rows": rows}


def describe_column(cells: Cells, key: str) -> dict[str, str]:
    if key in COLUMNS:
        return {"label": COLUMNS[key].label, "metric": show_metric(COLUMNS[key].metric)}
    label, _ = AVERAGES[key]
    names = ", ".join(COLUMNS[averaged].label for averaged in cells.averaged[key])
    return {"label": label, "metric": f"of {names}"}


def describe_cell(cells: Cells, table: str, row: str, key: str) -> dict:
    published = PUBLISHED[table].get(row, {})
    if key in COLUMNS:
        column, paper = COLUMNS[key], published.get(key)
        settings, missing = cells.settings(column, row), cells.why_missing(column.task, row)
    else:
        of_paper = [published[averaged] for averaged in cells.averaged[key] if averaged in published]
        paper = round(statistics.fmean(of_paper), 2) if of_paper else None
        settings, missing = "mean over the tasks, seed by seed", ""
    found = describe_scores(cells.scores(key, row))
    failed = cells.failed(key, row)
    if not found and not failed:
        missing = missing or "not measured"
    return {
        "paper": paper,
        "measured": found,
        "failed": failed,
        "settings": settings if found else "",
        "missing": missing,
    }


def describe_scores(scores: Scores) -> dict | None:
    """What a cell of a table tells of some scores."""
    if not scores:
        return None
    values = [float(of_seed[0]) for of_seed in scores.values()]
    found = {
        "mean": round(statistics.fmean(values), 4),
        "median": round(statistics.median(values), 4),
        "lowest": round(min(values), 4),
        "highest": round(max(values), 4),
        "seeds": sorted(scores),
    }
    interval = estimate(scores).interval
    if interval is not None:
        found["interval"] = [round(end, 4) for end in interval]
    return found

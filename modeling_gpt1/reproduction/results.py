"""Finished cells, looked up by column and row of the paper's tables, by transferred layers and by checkpoint."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tokenization import get_task

from .page import plain
from .scores import Scores, constant_answer, guessing, resample


@dataclass(frozen=True)
class Column:
    """A task as a column of the paper's tables.

    Args:
        label: the column's name in the paper.
        task: name of the task that was scored.
        parts: parts of the validation and test splits, whose scores are averaged. Empty if each is one split.
    """

    label: str
    task: str
    parts: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        return get_task(self.task).metrics[0]

    def metric_keys(self, split: str) -> list[str]:
        """Names of the score in the all_results.json of `gpt1 finetune`."""
        prefix = "predict" if split == "test" else "eval"
        if not self.parts:
            return [f"{prefix}_{self.metric}"]
        return [f"{prefix}_{split}_{part}_{self.metric}" for part in self.parts]

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
# Columns that are parts of another column in tables 2 and 3.
PARTS = ("mnli-m", "mnli-mm", "race-m", "race-h")
METRIC_NAMES = {
    "accuracy": "accuracy",
    "matthews_correlation": "Matthews correlation",
    "f1": "F1",
    "pearson": "Pearson correlation",
}
# Arguments that distinguish the cells of one experiment, or that only name a place.
NO_SETTINGS = {
    *("task", "seed", "n_transfer", "model_name_or_path", "tokenizer_name", "data_dir", "output_dir"),
    *("model_fingerprint", "data"),
}


class Cells:
    """Finished cells, looked up by task and row.

    Args:
        cells: cells as a `CellStore` keeps them, of one model of each family.
        unfinished: missing cells, with `task`, `variant`, `n_transfer`, `seed` and `reason`, such as "not run yet"
            or the text of an error. Those of `kind` "zero_shot" have `family`, `step` and `reason`.

    Raises ValueError if two cells have the same task, variant and seed.
    """

    def __init__(self, cells: Sequence[Mapping], unfinished: Sequence[Mapping] = ()):
        fine_tuning = [cell for cell in cells if cell["kind"] == "fine_tuning"]
        self.fine_tuning = [cell for cell in fine_tuning if "size" not in cell]
        self.sizes = [cell for cell in fine_tuning if "size" in cell]
        self.zero_shot = [cell for cell in cells if cell["kind"] == "zero_shot"]
        self.positions = [cell for cell in cells if cell["kind"] == "positions"]
        self.unfinished_positions = [cell for cell in unfinished if cell.get("kind") == "positions"]
        kinds = ("zero_shot", "positions")
        self.unfinished = [cell for cell in unfinished if cell.get("kind") not in kinds and "size" not in cell]
        self.unfinished_sizes = [cell for cell in unfinished if "size" in cell]
        self.unfinished_zero_shot = [cell for cell in unfinished if cell.get("kind") == "zero_shot"]
        check_no_twins(self.fine_tuning, lambda cell: (cell["task"], place_of(cell), cell["seed"]))
        check_no_twins(self.sizes, lambda cell: (cell["task"], place_of(cell), cell["size"], cell["seed"]))
        check_no_twins(self.zero_shot, lambda cell: (cell["family"], cell["model"], cell["step"]))
        self.common = common_settings([cell["settings"] for cell in self.fine_tuning])

    def of(self, task: str, place: str | int) -> list[Mapping]:
        """The cells of a row of table 5, or of a number of transferred layers, in the order of seeds."""
        found = [cell for cell in self.fine_tuning if cell["task"] == task and place_of(cell) == place]
        return sorted(found, key=lambda cell: cell["seed"])

    def split(self, column: Column) -> str:
        """The split that a task is scored on: "test" if every run has test scores, else "validation"."""
        runs = [cell["metrics"] for cell in (*self.fine_tuning, *self.sizes) if cell["task"] == column.task]
        return "test" if all(key in run for run in runs for key in column.metric_keys("test")) else "validation"

    def scores(self, key: str, place: str | int) -> Scores:
        """The scores of a column × 100, by seed. Runs without a finite score are left out."""
        column = COLUMNS[key]
        return self.scores_of(self.of(column.task, place), column)

    def scores_of(self, cells: Sequence[Mapping], column: Column) -> Scores:
        split, found, resampled = self.split(column), {}, {}
        for cell in cells:
            values = [cell["metrics"].get(name, math.nan) for name in column.metric_keys(split)]
            if all(math.isfinite(value) for value in values):
                found[cell["seed"]] = 100 * statistics.fmean(values)
                if answers := answers_of(cell, column.splits(split)):
                    resampled[cell["seed"]] = np.mean(
                        [resample(rows["labels"], rows["predictions"], column.metric) for rows in answers], axis=0
                    )
        return Scores(found, resampled if len(resampled) == len(found) else None)

    def of_size(self, key: str, variant: str, size: int) -> Scores:
        """The scores of a variant trained on that many rows."""
        column = COLUMNS[key]
        cells = [cell for cell in self.with_sizes(column) if cell["variant"] == variant and num_rows_of(cell) == size]
        return self.scores_of(cells, column)

    def with_sizes(self, column: Column) -> list[Mapping]:
        """The cells of a column's task, if some have a number of training rows of their own."""
        is_asked_for = any(cell["task"] == column.task for cell in self.sizes)
        cells = [*self.fine_tuning, *self.sizes] if is_asked_for else []
        return [cell for cell in cells if cell["task"] == column.task]

    def baselines(self, key: str) -> dict[str, float] | None:
        """What guessing and always the same answer score × 100 on a column's rows, or None if these are unknown."""
        column = COLUMNS[key]
        task, splits = get_task(column.task), column.splits(self.split(column))
        for cell in (*self.fine_tuning, *self.sizes):
            if cell["task"] == column.task and (answers := answers_of(cell, splits)):
                labels = [rows["labels"] for rows in answers]
                num_answers = len(task.label_names) or len(set(labels[0].split()))
                return {
                    "chance": statistics.fmean(guessing(of_split, column.metric, num_answers) for of_split in labels),
                    "majority": statistics.fmean(constant_answer(of_split, column.metric) for of_split in labels),
                }
        return None

    def why_missing(self, task: str, place: str | int) -> str:
        """Why scores are missing, seed by seed. Empty if none is missing."""
        names = {task, get_task(task).folder}  # the parts of RACE are scored by the runs of the whole task
        reasons: dict[str, list[str]] = {}
        for cell in self.unfinished:
            if cell["task"] in names and place_of(cell) == place:
                reasons.setdefault(str(cell["reason"]), []).append(str(cell["seed"]))
        return "; ".join(f"seed {', '.join(seeds)}: {reason}" for reason, seeds in reasons.items())

    def settings(self, column: Column, place: str | int) -> str:
        """The split that is scored, and the arguments in which these runs differ from the others."""
        runs = self.of(column.task, place)
        own = common_settings([cell["settings"] for cell in runs])
        own = {name: value for name, value in own.items() if name not in self.common}
        return "; ".join([self.split(column), *(f"{name} {plain(value)}" for name, value in own.items())])


def answers_of(cell: Mapping, splits: Sequence[str]) -> list[Mapping[str, str]]:
    """Labels and predictions of these splits, or nothing if the cell lacks one."""
    kept = cell.get("answers", {})
    return [kept[split] for split in splits] if all(split in kept for split in splits) else []


def num_rows_of(cell: Mapping) -> int | None:
    """The number of training rows that a cell was limited to."""
    limit = cell.get("size", cell["settings"].get("max_train_samples"))
    return None if limit is None else int(limit)


def place_of(cell: Mapping) -> str | int:
    """The cell's row of table 5, or its number of transferred layers."""
    return cell["n_transfer"] if cell["variant"] == "transfer" else cell["variant"]


def check_no_twins(cells: Sequence[Mapping], place: Callable[[Mapping], tuple]) -> None:
    seen: dict[tuple, Mapping] = {}
    for cell in cells:
        twin = seen.setdefault(place(cell), cell)
        if twin is not cell:
            names = ", ".join(map(str, place(cell)))
            differ = sorted(
                name
                for name in {**twin["settings"], **cell["settings"]}
                if twin["settings"].get(name) != cell["settings"].get(name)
            )
            raise ValueError(
                f"Two cells are for {names}; they differ in {', '.join(differ) or 'no setting'}. Pass the cells of "
                "one set of settings."
            )


def common_settings(all_settings: Sequence[Mapping]) -> dict:
    """The settings that are equal in all cells, without the arguments of `NO_SETTINGS`."""
    if not all_settings:
        return {}
    first, *others = all_settings
    return {
        name: value
        for name, value in first.items()
        if name not in NO_SETTINGS and all(name in other and other[name] == value for other in others)
    }

"""Tables 2 to 5: the scores of finished cells beside the paper's.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5.
"""

import statistics
from collections.abc import Mapping, Sequence

from .claims import Measured
from .published import BEST_BEFORE, PUBLISHED, STORY_CLOZE_RELEASED_MEDIAN
from .results import COLUMNS, METRIC_NAMES, PARTS, Cells
from .scores import Scores, average, estimate

ROW_LABELS = {
    "full": "Transformer, auxiliary LM (full)",
    "without_pretraining": "Transformer, without pre-training",
    "without_auxiliary": "Transformer, without auxiliary LM",
    "lstm": "LSTM, auxiliary LM",
}
TABLES_OF_RESULTS = {
    "table-2": ("Table 2: natural language inference", ("mnli-m", "mnli-mm", "snli", "scitail", "qnli", "rte")),
    "table-3": ("Table 3: question answering and commonsense reasoning", ("story_cloze", "race-m", "race-h", "race")),
    "table-4": (
        "Table 4: semantic similarity and classification (GLUE)",
        ("cola", "sst2", "mrpc", "stsb", "qqp", "glue"),
    ),
}
# Columns of the paper's table 5. Other measured tasks stand after them and count in no average.
ABLATION_COLUMNS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")

RELEASED_MEDIAN = f"The median of ten Story Cloze runs by the released code is {STORY_CLOZE_RELEASED_MEDIAN}."
NEEDS_SERVER = "needs a submission to the benchmark's server"
NOT_ASKED = "not requested"


def measured(scores: Scores) -> dict | None:
    if not scores:
        return None
    values = scores.values()
    found = {
        "median": round(statistics.median(values), 4),
        "lowest": round(min(values), 4),
        "highest": round(max(values), 4),
        "seeds": sorted(scores),
    }
    if interval := estimate(scores).interval:
        found["interval"] = [round(end, 4) for end in interval]
    return found


def cell_of(cells: Cells, table: str, row: str, key: str) -> dict:
    paper = PUBLISHED[table].get(row, {}).get(key)
    if key not in COLUMNS:
        return {"paper": paper, "measured": None, "settings": "", "missing": NEEDS_SERVER}
    column = COLUMNS[key]
    scores, missing = cells.scores(key, row), cells.why_missing(column.task, row)
    values = measured(scores)
    lacking = [str(cell["seed"]) for cell in cells.of(column.task, row) if cell["seed"] not in scores]
    if values and lacking:
        reason = f"seed {', '.join(lacking)}: no {METRIC_NAMES[column.metric]} in the results"
        missing = "; ".join(filter(None, (missing, reason)))
    if values is None and not missing:
        ran = bool(cells.of(column.task, row))
        missing = f"no {METRIC_NAMES[column.metric]} in the runs' results" if ran else NOT_ASKED
    settings = cells.settings(column, row) if values else ""
    return {"paper": paper, "measured": values, "settings": settings, "missing": missing or None}


def describe_column(cells: Cells, key: str) -> dict:
    if key == "glue":
        return {"key": key, "label": "GLUE", "metric": "the benchmark's average", "baselines": None}
    column = COLUMNS[key]
    named = {"key": key, "label": column.label, "metric": METRIC_NAMES[column.metric]}
    return {**named, "baselines": cells.baselines(key)}


def average_baselines(cells: Cells, keys: Sequence[str]) -> dict[str, float] | None:
    found = [cells.baselines(key) for key in keys]
    if not found or None in found:
        return None
    return {name: statistics.fmean(of_task[name] for of_task in found) for name in ("chance", "majority")}


def table_of_results(cells: Cells, table: str) -> dict:
    """One of tables 2 to 4, with the paper's own model and the best earlier figure."""
    title, keys = TABLES_OF_RESULTS[table]
    before = {
        key: {"paper": figure, "measured": None, "settings": whose, "missing": None}
        for key, (figure, whose) in BEST_BEFORE[table].items()
    }
    rows = [
        {
            **{"key": "full", "label": "Finetuned Transformer LM"},
            "cells": {key: cell_of(cells, table, "full", key) for key in keys},
        },
        {"key": "before", "label": "Best before the paper", "only_paper": True, "cells": before},
    ]
    return {
        "id": table,
        "title": title,
        "caption": "Scores × 100. The paper's figures, and the earlier ones that it prints, are on the test sets."
        + (f" {RELEASED_MEDIAN}" if table == "table-3" else ""),
        "columns": [describe_column(cells, key) for key in keys],
        "rows": rows,
    }


def gather_table_5(cells: Cells) -> dict:
    """What [`Measured`] takes of table 5."""
    extras = [key for key in COLUMNS if key not in (*ABLATION_COLUMNS, *PARTS)]
    extras = [key for key in extras if any(cells.scores(key, row) for row in ROW_LABELS)]
    scores = {
        row: {key: found for key in (*ABLATION_COLUMNS, *extras) if (found := cells.scores(key, row))}
        for row in ROW_LABELS
    }
    scores = {row: of_row for row, of_row in scores.items() if of_row}
    averaged = [key for key in ABLATION_COLUMNS if scores and all(key in of_row for of_row in scores.values())]
    return dict(
        scores=scores,
        labels={key: column.label for key, column in COLUMNS.items()},
        averages={row: averages(of_row, averaged) for row, of_row in scores.items()},
        averaged=averaged,
        rows_to_train=cut_rows(cells),
    )


def averages(of_row: Mapping[str, Scores], columns: Sequence[str]) -> Scores:
    """The average over the columns, by seed, for every seed that all columns have."""
    if not columns:
        return Scores()
    return average([of_row[column] for column in columns])


def cut_rows(cells: Cells) -> dict[str, int]:
    """The largest number of training rows of each column whose runs all tell it, by a limit or by what they read."""
    found: dict[str, int] = {}
    for key, column in COLUMNS.items():
        runs = [cell for cell in cells.fine_tuning if cell["task"] == column.task]
        limits = [cell.get("train_rows", cell["settings"].get("max_train_samples")) for cell in runs]
        if limits and None not in limits:
            found[key] = max(map(int, limits))
    return found


def table_5(cells: Cells, table: Measured) -> dict:
    extras = dict.fromkeys(
        key for of_row in table.scores.values() for key in of_row if key not in (*ABLATION_COLUMNS, "average")
    )
    keys = [*ABLATION_COLUMNS, *extras]
    rows = []
    for row, label in ROW_LABELS.items():
        of_row = {key: cell_of(cells, "table-5", row, key) for key in keys}
        rows.append({"key": row, "label": label, "cells": {**average_cells(table, row), **of_row}})
    every = set(table.averaged) == set(ABLATION_COLUMNS)
    baselines = average_baselines(cells, table.averaged)
    columns = [{"key": "average", "label": "Average", "metric": "of the paper's eight tasks", "baselines": None}]
    if every:
        columns[0]["baselines"] = baselines
    else:
        names = ", ".join(table.labels[key] for key in table.averaged) or "no task"
        common = {"key": "average-common", "label": "Average", "metric": f"of {names}"}
        columns.append({**common, "baselines": baselines})
    return {
        "id": "table-5",
        "title": "Table 5: ablations",
        "caption": (
            "Scores × 100. The first average is the paper's own column. The second is over those of its tasks that "
            "every measured row has; there the paper's figure is the mean of its own figures for them. Averages are "
            "taken seed by seed. Tasks that are not in the paper's table come last and count in no average."
        ),
        "columns": [*columns, *(describe_column(cells, key) for key in keys)],
        "rows": rows,
    }


def average_cells(table: Measured, row: str) -> dict[str, dict]:
    paper, found = PUBLISHED["table-5"][row], measured(table.averages.get(row, Scores()))
    settings = "mean over the tasks, seed by seed" if found else ""
    why = None if found else "no task that every row has" if not table.averaged else "no seed that all its tasks have"
    if row not in table.scores:
        why = "nothing was measured in this row"
    if set(table.averaged) == set(ABLATION_COLUMNS):
        return {"average": {"paper": paper["average"], "measured": found, "settings": settings, "missing": why}}
    part = round(statistics.fmean(paper[key] for key in table.averaged), 2) if table.averaged else None
    return {
        "average": {
            **{"paper": paper["average"], "measured": None, "settings": ""},
            "missing": "not every task was measured",
        },
        "average-common": {"paper": part, "measured": found, "settings": settings, "missing": why},
    }

"""Builds the content of the report: tables and figures of finished cells beside the paper's, and claims.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5, figure 2.
"""

import statistics
from collections.abc import Mapping, Sequence
from datetime import date as calendar_date

from .claims import (
    RULES,
    STANDARD_ERRORS,
    Curve,
    Scores,
    Table5,
    ablation_claims,
    decimal,
    standard_error,
    transfer_claims,
    zero_shot_claims,
)
from .published import BEST_BEFORE, PUBLISHED, STORY_CLOZE_RELEASED_MEDIAN
from .results import COLUMNS, METRIC_NAMES, PARTS, Cells, place_of

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
# ---- Tables


def measured(scores: Scores) -> dict | None:
    if not scores:
        return None
    values = scores.values()
    return {
        "median": round(statistics.median(values), 4),
        "lowest": round(min(values), 4),
        "highest": round(max(values), 4),
        "seeds": sorted(scores),
    }


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


def describe_column(key: str) -> dict:
    if key == "glue":
        return {"key": key, "label": "GLUE", "metric": "the benchmark's average"}
    return {"key": key, "label": COLUMNS[key].label, "metric": METRIC_NAMES[COLUMNS[key].metric]}


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
        "columns": [describe_column(key) for key in keys],
        "rows": rows,
    }


def gather_table_5(cells: Cells) -> Table5:
    extras = [key for key in COLUMNS if key not in (*ABLATION_COLUMNS, *PARTS)]
    extras = [key for key in extras if any(cells.scores(key, row) for row in ROW_LABELS)]
    scores = {
        row: {key: found for key in (*ABLATION_COLUMNS, *extras) if (found := cells.scores(key, row))}
        for row in ROW_LABELS
    }
    scores = {row: of_row for row, of_row in scores.items() if of_row}
    averaged = [key for key in ABLATION_COLUMNS if scores and all(key in of_row for of_row in scores.values())]
    return Table5(
        scores=scores,
        labels={key: column.label for key, column in COLUMNS.items()},
        averages={row: averages(of_row, averaged) for row, of_row in scores.items()},
        averaged=averaged,
        rows_to_train=cut_rows(cells),
    )


def averages(of_row: Mapping[str, Scores], columns: Sequence[str]) -> Scores:
    """The average over the columns, by seed, for every seed that all columns have."""
    if not columns:
        return {}
    seeds = set.intersection(*(set(of_row[column]) for column in columns))
    return {seed: statistics.fmean(of_row[column][seed] for column in columns) for seed in sorted(seeds)}


def cut_rows(cells: Cells) -> dict[str, int]:
    """The largest `max_train_samples` of each column whose runs all had one."""
    found: dict[str, int] = {}
    for key, column in COLUMNS.items():
        limits = [c["settings"].get("max_train_samples") for c in cells.fine_tuning if c["task"] == column.task]
        if limits and None not in limits:
            found[key] = max(map(int, limits))
    return found


def table_5(cells: Cells, table: Table5) -> dict:
    extras = dict.fromkeys(
        key for of_row in table.scores.values() for key in of_row if key not in (*ABLATION_COLUMNS, "average")
    )
    keys = [*ABLATION_COLUMNS, *extras]
    rows = []
    for row, label in ROW_LABELS.items():
        of_row = {key: cell_of(cells, "table-5", row, key) for key in keys}
        rows.append({"key": row, "label": label, "cells": {**average_cells(table, row), **of_row}})
    every = set(table.averaged) == set(ABLATION_COLUMNS)
    columns = [{"key": "average", "label": "Average", "metric": "of the paper's eight tasks"}]
    if not every:
        names = ", ".join(table.labels[key] for key in table.averaged) or "no task"
        columns.append({"key": "average-common", "label": "Average", "metric": f"of {names}"})
    return {
        "id": "table-5",
        "title": "Table 5: ablations",
        "caption": (
            "Scores × 100. The first average is the paper's own column. The second is over those of its tasks that "
            "every measured row has; there the paper's figure is the mean of its own figures for them. Averages are "
            "taken seed by seed. Tasks that are not in the paper's table come last and count in no average."
        ),
        "columns": [*columns, *(describe_column(key) for key in keys)],
        "rows": rows,
    }


def average_cells(table: Table5, row: str) -> dict[str, dict]:
    paper, found = PUBLISHED["table-5"][row], measured(table.averages.get(row, {}))
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


# ---- Figures


def transfer_curves(cells: Cells, num_layers: int) -> dict[str, dict[int, Scores]]:
    """Scores by task name and number of transferred layers, for tasks with points between the two ends.

    The ends are rows of table 5: −1 layers is the row without pre-training, all layers is the full method.
    """
    places = {-1: "without_pretraining", num_layers: "full"}
    numbers = {place for cell in cells.fine_tuning if isinstance(place := place_of(cell), int)}
    curves = {}
    for key, column in COLUMNS.items():
        if key not in PARTS and any(cells.scores(key, number) for number in numbers):
            curve = {number: cells.scores(key, places.get(number, number)) for number in sorted({*numbers, *places})}
            curves[column.label] = {number: scores for number, scores in curve.items() if scores}
    return curves


def figure_2_left(cells: Cells, curves: Mapping[str, Mapping[int, Scores]]) -> dict:
    splits = {column.label: cells.split(column) for column in COLUMNS.values()}
    series = [
        {
            **{"label": name, "panel": name, "dashed": False},
            **{"note": f"{splits[name]} split; bars from the lowest to the highest seed", "remark": ""},
            "points": [{"x": number, **spread(scores)} for number, scores in curve.items()],
        }
        for name, curve in curves.items()
    ]
    return {
        "id": "figure-2-left",
        "title": "Figure 2, left: layers transferred from pre-training",
        "caption": (
            "Score after fine-tuning against the number of blocks taken from the pre-trained model; the others start "
            "fresh. 0 is the embeddings alone, “none” nothing at all. The median of the seeds."
        ),
        "x_label": "layers transferred",
        "y_label": "score × 100",
        "x_scale": "linear",
        "x_names": {"-1": "none"},
        "shared_y": False,
        "series": series,
        "paper": (
            "RACE and MultiNLI, 0 to 12 layers, on the validation sets: both rise with every layer; all layers bring "
            "up to 9 points on MultiNLI."
        ),
        "missing": None if series else "No run with only some of the layers transferred was requested and finished.",
    }


def spread(scores: Scores) -> dict:
    values = measured(scores)
    return {"y": values["median"], "lowest": values["lowest"], "highest": values["highest"]}


FAMILIES = {"gpt1": "Transformer", "gpt1-lstm": "LSTM"}
ZERO_SHOT_NAMES = {
    "cola": "CoLA: linguistic acceptability",
    "sst2": "SST-2: sentiment analysis",
    "race": "RACE: question answering",
    "race-middle": "RACE-m: question answering",
    "race-high": "RACE-h: question answering",
    "story_cloze": "Story Cloze: how a story ends",
    "dpr": "DPRD: Winograd schema resolution",
}


def zero_shot_curves(cells: Cells) -> dict[str, dict[str, Curve]]:
    """Curves by family and task."""
    curves: dict[str, dict[str, Curve]] = {}
    for family in FAMILIES:
        of_family = sorted(checkpoints(cells, family), key=lambda cell: cell["step"])
        for name in dict.fromkeys(name for cell in of_family for name in cell["tasks"]):
            of_task = [(cell["step"], cell["tasks"][name]) for cell in of_family if name in cell["tasks"]]
            points = [(step, found["normalised"]) for step, found in of_task]
            curves.setdefault(family, {})[name] = Curve(points, normalised_error(of_task[-1][1]))
    return curves


def checkpoints(cells: Cells, family: str) -> list[Mapping]:
    return [cell for cell in cells.zero_shot if cell["family"] == family and cell["step"] is not None]


def normalised_error(found: Mapping) -> float:
    error = standard_error(found[found["metric"]], found["num_rows"], found["metric"])
    return error / (found["best_known"] - found["chance"])


def figure_2_right(cells: Cells, curves: Mapping[str, Mapping[str, Curve]]) -> dict:
    tasks = dict.fromkeys(name for of_family in curves.values() for name in of_family)
    series = [
        {
            **{"label": FAMILIES[family], "panel": ZERO_SHOT_NAMES.get(name, name), "dashed": family == "gpt1-lstm"},
            **{"note": scale_note(cells, name), "remark": remark_on(cells, family, name)},
            "points": [{"x": x, "y": round(y, 4), "lowest": None, "highest": None} for x, y in of_family[name].points],
        }
        for name in tasks
        for family, of_family in curves.items()
        if name in of_family
    ]
    return {
        "id": "figure-2-right",
        "title": "Figure 2, right: zero-shot performance over pre-training",
        "caption": (
            "How checkpoints of the language models score without fine-tuning, by the heuristics of section 5, on a "
            "scale from 0 (guessing) to 1 (the best model known to the paper)."
            + of_models_themselves(cells)
            + missing_checkpoints(cells)
        ),
        "x_label": "updates of pre-training",
        "y_label": "0: guessing, 1: best known",
        "x_scale": "log",
        "x_names": {},
        "shared_y": True,
        "series": series,
        "paper": (
            "Sentiment analysis, Winograd schema resolution, linguistic acceptability and question answering, over "
            "10³ to 10⁶ updates: the Transformer's curves (solid) rise steadily, the LSTM's (dashed) lie lower and "
            "vary more. The figure has no Story Cloze."
        ),
        "missing": None if series else "No evaluation of a pre-training checkpoint was requested and finished.",
    }


def of_models_themselves(cells: Cells) -> str:
    """A sentence with the scores of models without checkpoints, which are not points of a curve."""
    return "".join(
        f" The {FAMILIES[cell['family']]} itself, not a checkpoint of its pre-training: "
        + ", ".join(
            f"{ZERO_SHOT_NAMES.get(name, name)} {decimal(found['normalised'], 2)}"
            for name, found in cell["tasks"].items()
        )
        + "."
        for cell in cells.zero_shot
        if cell["step"] is None
    )


def missing_checkpoints(cells: Cells) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in cells.unfinished_zero_shot:
        place = "the model itself" if cell["step"] is None else str(cell["step"])
        reasons.setdefault((FAMILIES[cell["family"]], str(cell["reason"])), []).append(place)
    parts = [f"{family} {', '.join(places)}: {reason}" for (family, reason), places in reasons.items()]
    return f" Missing, by updates: {'; '.join(parts)}." if parts else ""


def scale_note(cells: Cells, name: str) -> str:
    """A note on what 0 and 1 mean and how precise a score is."""
    found = next(cell["tasks"][name] for cell in cells.zero_shot if name in cell["tasks"])
    metric = METRIC_NAMES[found["metric"]]
    ends = f"0 is {metric} {100 * found['chance']:.1f}, 1 is {100 * found['best_known']:.1f}"
    error = STANDARD_ERRORS * normalised_error(found)
    return f"{ends}; {found['num_rows']} rows of {found['split']}, two standard errors about {error:.2f}"


def remark_on(cells: Cells, family: str, name: str) -> str:
    """A remark on a score that never changes, as on SST-2 if one of its two words always has more tokens."""
    scores = [cell["tasks"][name]["normalised"] for cell in checkpoints(cells, family) if name in cell["tasks"]]
    if len(scores) < 2 or len(set(scores)) > 1:
        return ""
    return f"The {FAMILIES[family]}'s score never changes, as when every answer is the same."


# ---- The report


def build_report(
    cells: Sequence[Mapping],
    *,
    title: str,
    models: Sequence[Mapping] = (),
    environment: Mapping | None = None,
    commands: Sequence[str] = (),
    unfinished: Sequence[Mapping] = (),
    date: str | None = None,
) -> dict:
    """The content of report.json.

    Args:
        cells: the finished cells, dictionaries of `kind` "fine_tuning" (`task`, `variant`, `n_transfer`, `lm_coef`,
            `seed`, `model`, `settings`, `metrics` as in all_results.json of `gpt1 finetune`, `seconds`) or
            "zero_shot" (`model`, `family`, `step`, `tokens`, `tasks`, `settings`).
        title: heading of the report.
        models: `name`, `parameters`, `config` (fields that differ from the paper's model) and `pretraining`
            (`tokens`, `updates`, `perplexity`) of each model, the Transformer first.
        environment: machine and versions.
        commands: the commands as they were typed.
        unfinished: cells that were requested and are missing, as [`Cells`] takes them.
        date: YYYY-MM-DD; default: today.

    Raises ValueError if two cells have the same task, variant and seed.
    """
    found = Cells(cells, unfinished)
    num_layers = models[0]["config"].get("num_hidden_layers", 12) if models else 12
    ablations = gather_table_5(found)
    transfer, zero_shot = transfer_curves(found, num_layers), zero_shot_curves(found)
    return {
        "title": title,
        "date": date or calendar_date.today().isoformat(),
        "environment": dict(environment or {}),
        "models": [dict(model) for model in models],
        "settings": {
            "seeds": sorted({cell["seed"] for cell in found.fine_tuning}),
            "fine_tuning": found.common,
        },
        "commands": list(commands),
        "measured": what_was_measured(found),
        "tables": [*(table_of_results(found, table) for table in TABLES_OF_RESULTS), table_5(found, ablations)],
        "figures": [figure_2_left(found, transfer), figure_2_right(found, zero_shot)],
        "rules": list(RULES),
        "claims": [
            *ablation_claims(ablations),
            *transfer_claims(transfer, num_layers),
            *zero_shot_claims(
                {ZERO_SHOT_NAMES.get(name, name): curve for name, curve in zero_shot.get("gpt1", {}).items()},
                {ZERO_SHOT_NAMES.get(name, name): curve for name, curve in zero_shot.get("gpt1-lstm", {}).items()},
            ),
        ],
    }


def what_was_measured(cells: Cells) -> dict:
    return {
        # A part of a task that was scored by the run of the whole task took no time of its own.
        "fine_tuning_runs": sum(cell["seconds"] > 0 for cell in cells.fine_tuning),
        "fine_tuning_seconds": round(sum(cell["seconds"] for cell in cells.fine_tuning)),
        "tasks": sorted({cell["task"] for cell in cells.fine_tuning}),
        "zero_shot_checkpoints": len(cells.zero_shot),
        "zero_shot_tasks": sorted({name for cell in cells.zero_shot for name in cell["tasks"]}),
        "unfinished": len(cells.unfinished) + len(cells.unfinished_zero_shot),
    }

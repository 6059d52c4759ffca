"""The report: its content, a headline, tables and figures beside the paper's, and claims; and its HTML page.

The page has its style sheet and its figures as inline SVG. The templates escape every text of a report. Nothing is
fetched, not even fonts, and there is no script.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5, figure 2.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date as calendar_date
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .claims import RULES, Measured, decimal, judge_claims, show_certainty, show_range, signed
from .figures import (
    auxiliary_sizes,
    draw,
    figure_2_left,
    figure_2_right,
    learning_curves,
    loss_by_position,
    panels,
    transfer_curves,
    zero_shot_curves,
)
from .published import PAPER_MODEL, PAPER_URL
from .scores import difference
from .tables import TABLES_OF_RESULTS, Cells, gather_table_5, plain, table_5, table_of_results

# What the full method is compared with in table 5.
GAINS = {
    "without_pretraining": "points by pre-training",
    "without_auxiliary": "points by the auxiliary objective",
    "lstm": "points by the Transformer in an LSTM's place",
}


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
    """
    found, models = Cells(cells, unfinished), [finite(model) for model in models]
    num_layers = models[0]["config"].get("num_hidden_layers", 12) if models else 12
    transfer, zero_shot = transfer_curves(found, num_layers), zero_shot_curves(found)
    scores = Measured(**gather_table_5(found), transfer=transfer, num_layers=num_layers, zero_shot=zero_shot)
    claims = judge_claims(scores)
    seeds = sorted({cell["seed"] for cell in (*found.fine_tuning, *found.sizes)})
    return {
        "title": title,
        "date": date or calendar_date.today().isoformat(),
        "environment": dict(environment or {}),
        "models": models,
        "settings": {"seeds": seeds, "fine_tuning": found.common},
        "commands": list(commands),
        "headline": headline(scores, models, claims),
        "measured": what_was_measured(found),
        "tables": [*(table_of_results(found, table) for table in TABLES_OF_RESULTS), table_5(found, scores)],
        "figures": [
            figure_2_left(found, transfer),
            figure_2_right(found),
            auxiliary_sizes(found),
            learning_curves(models),
            loss_by_position(found),
        ],
        "rules": list(RULES),
        "claims": claims,
    }


def finite(value: Any) -> Any:
    """The value with None for each number that JSON lacks, such as the perplexity of a run that diverged."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def headline(scores: Measured, models: Sequence[Mapping], claims: Sequence[Mapping]) -> list[dict]:
    """The report in a few numbers: `value`, `label` and `note` of each."""
    tasks = ", ".join(scores.labels[column] for column in scores.averaged)
    found = []
    for row, label in GAINS.items():
        if scores.averages.get("full") and scores.averages.get(row):
            gain = difference(scores.averages["full"], scores.averages[row])
            found.append((signed(gain.value), label, f"{show_certainty(gain)}; average of {tasks}"))
    for model in models:
        pretraining = model.get("pretraining") or {}
        if pretraining.get("perplexity") is not None:
            tokens = pretraining.get("tokens")
            note = "" if tokens is None else f"after {tokens / 1e6:,.1f} M tokens"
            found.append((f"{pretraining['perplexity']:.1f}", f"held-out perplexity, {model['name']}", note))
    holding = sum(claim["verdict"] == "holds" for claim in claims)
    absent = sum(claim["verdict"] == "not measured" for claim in claims)
    note = f"{absent} not measured" if absent else ""
    found.append((f"{holding} of {len(claims) - absent}", "measured claims of the paper hold at this size", note))
    return [dict(zip(("value", "label", "note"), item, strict=True)) for item in found]


def what_was_measured(cells: Cells) -> dict:
    runs = [*cells.fine_tuning, *cells.sizes]
    timed = [cell for cell in runs if cell["seconds"] is not None]  # the others are parts of a task that another ran
    return {
        "fine_tuning_runs": len(timed),
        "fine_tuning_seconds": round(sum(cell["seconds"] for cell in timed)),
        "fine_tuning_processor_seconds": round(sum(cell.get("processor_seconds", 0) for cell in timed)),
        "tasks": sorted({cell["task"] for cell in runs}),
        "zero_shot_checkpoints": len(cells.zero_shot),
        "zero_shot_tasks": sorted({name for cell in cells.zero_shot for name in cell["tasks"]}),
        "unfinished": len(cells.unfinished),
    }


# ---- The page

# (light, dark). Text has the contrast of WCAG level AA with its background, 4.5 : 1. Lines of curves have 3 : 1.
COLOURS = {
    "page": ("#ffffff", "#18181b"),
    "panel": ("#f8fafc", "#1f1f23"),
    "ink": ("#1f2937", "#e5e7eb"),
    "faint": ("#4b5563", "#a1a1aa"),
    "line": ("#d1d5db", "#3f3f46"),
    "link": ("#1d4ed8", "#93c5fd"),
    "transformer": ("#1d4ed8", "#60a5fa"),
    "lstm": ("#c2410c", "#fb923c"),
    "holds": ("#166534", "#86efac"),
    "fails": ("#991b1b", "#fca5a5"),
    "mixed": ("#854d0e", "#fde047"),
}
# Sign and colour.
VERDICTS = {
    "holds": ("✓", "holds"),
    "does not hold": ("✗", "fails"),
    "mixed": ("±", "mixed"),
    "undecided": ("?", "mixed"),
    "not measured": ("–", "faint"),
}
BASELINES = {"rows": "Rows", "chance": "Chance", "majority": "Constant"}
OUTCOMES = {"better": "▲", "worse": "▼", "level": "="}
Line = list[list[str]]  # a line of a table: of each cell its text, and more texts in small print


def page(report: Mapping) -> str:
    """The whole page."""
    settings = {name: value for name, value in report["settings"].items() if name != "fine_tuning"}
    settings |= report["settings"].get("fine_tuning", {})
    return TEMPLATES.get_template("page.html").render(report=report, settings=settings)


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def spaced(number: float | None) -> str:
    return "unknown" if number is None else f"{number:,}".replace(",", " ")


# ---- Lines of tables, the first of which has the heads


def lines_of_models(models: Iterable[Mapping]) -> list[Line]:
    heads = "Model, Parameters, Without embeddings, Configuration, Tokens read, Updates, Processor hours, Perplexity"
    lines = [[[head] for head in heads.split(", ")]]
    for model in (*models, PAPER_MODEL):
        training = model.get("pretraining") or {}
        perplexity = training.get("perplexity")
        lines.append(
            [
                *([model["name"]], [spaced(model.get("parameters"))]),
                [spaced(model.get("parameters_without_embeddings"))],
                [", ".join(f"{name} {plain(value)}" for name, value in model.get("config", {}).items())],
                *([spaced(training.get(name))] for name in ("tokens", "updates", "processor_hours")),
                ["unknown" if perplexity is None else f"{perplexity:.1f}"],
            ]
        )
    return lines


def lines_of_table(table: Mapping) -> list[Line]:
    """A line per task: for each row of the paper's table its figure and the measured one, then the settings."""
    before = [row for row in table["rows"] if "only_paper" in row]
    rows = [row for row in table["rows"] if row not in before]
    known = {name for column in table["columns"] for name in column["baselines"] or ()}
    baselines = {name: head for name, head in BASELINES.items() if name in known}
    heads = ["Task", *baselines.values()]
    heads += [f"{row['label']}: {what}" for row in rows for what in ("paper", "measured")]
    lines = [[[head] for head in (*heads, "Settings", *(row["label"] for row in before))]]
    for column in table["columns"]:
        cells = [row["cells"][column["key"]] for row in rows]
        line = [[column["label"], column["metric"]]]
        values = column["baselines"] or {}
        shows = {name: spaced if name == "rows" else decimal for name in baselines}
        line += [[show(values[name]) if name in values else ""] for name, show in shows.items()]
        line += [shown for cell in cells for shown in ([show_paper(cell)], show_measured(cell))]
        settings = {row["label"]: cell["settings"] for row, cell in zip(rows, cells, strict=True) if cell["measured"]}
        apart = len(set(settings.values())) > 1
        line.append([f"{label}: {own}" for label, own in settings.items()] if apart else [*settings.values(), ""][:1])
        earlier = [row["cells"][column["key"]] for row in before]
        lines.append([*line, *([show_paper(cell), cell["settings"]] for cell in earlier)])
    return lines


def show_paper(cell: Mapping) -> str:
    return "" if cell["paper"] is None else decimal(cell["paper"])


def show_measured(cell: Mapping) -> list[str]:
    scores, lines = cell["measured"], []
    if scores:
        many = f"{show_range(scores['lowest'], scores['highest'])}, {len(scores['seeds'])} seeds"
        lines = [decimal(scores["median"]), "1 seed" if len(scores["seeds"]) == 1 else many]
        lines += [f"95 %: {show_range(*scores['interval'])}"] if "interval" in scores else []
    return [*lines, *([cell["missing"]] if cell["missing"] else [])] or [""]


def lines_of_panel(figure: Mapping, all_series: Sequence[Mapping]) -> list[Line]:
    """The numbers of a panel, for those who do not see it."""
    digits = 2 if figure["shared_y"] else 1
    lines = [[[figure["x_label"]], *([series["label"]] for series in all_series)]]
    for x in sorted({point["x"] for series in all_series for point in series["points"]}):
        of_x = [next((point for point in series["points"] if point["x"] == x), None) for series in all_series]
        lines.append([[figure["x_names"].get(str(x), str(x))], *([show_point(point, digits)] for point in of_x)])
    return lines


def show_point(point: Mapping | None, digits: int) -> str:
    if point is None:
        return ""
    has_bar = point["lowest"] is not None and point["lowest"] != point["highest"]
    bar = f" ({show_range(point['lowest'], point['highest'], digits)})" if has_bar else ""
    return decimal(point["y"], digits) + bar


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters.update(duration=duration, plain=plain)
TEMPLATES.globals.update(
    **{"COLOURS": COLOURS, "VERDICTS": VERDICTS, "OUTCOMES": OUTCOMES, "PAPER_URL": PAPER_URL},
    **{"lines_of_models": lines_of_models, "lines_of_table": lines_of_table, "lines_of_panel": lines_of_panel},
    **{"panels": panels, "draw": partial(draw, colours=COLOURS)},
)

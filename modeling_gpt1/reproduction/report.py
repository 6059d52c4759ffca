"""The report: its content, tables and figures beside the paper's, and claims; and its HTML page.

The page holds its style sheet and figures. The templates escape every text of a report. Nothing is fetched, not even
fonts, and there is no script.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5, figure 2.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date as calendar_date
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .claims import RULES, judge_claims
from .figures import as_link, figure_2_left, figure_2_right, panels
from .published import PAPER_MODEL, PAPER_URL
from .tables import TABLES, Cells, describe_table, plain


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
        models: `name`, `parameters`, `config` (its sizes) and `pretraining`
            (`tokens`, `updates`, `perplexity`) of each model, the Transformer first.
        environment: machine and versions.
        commands: the commands as they were typed.
        unfinished: cells that were requested and are missing, as [`Cells`] takes them.
        date: YYYY-MM-DD; default: today.
    """
    num_layers = models[0]["config"].get("num_hidden_layers", 12) if models else 12
    found = Cells(cells, unfinished, num_layers)
    seeds = sorted({cell["seed"] for cell in found.fine_tuning})
    return {
        "title": title,
        "date": date or calendar_date.today().isoformat(),
        "environment": dict(environment or {}),
        "models": list(models),
        "settings": {"seeds": seeds, "fine_tuning": found.common},
        "commands": list(commands),
        "measured": what_was_measured(found),
        "tables": [describe_table(found, name) for name in TABLES],
        "figures": [figure_2_left(found), figure_2_right(found)],
        "rules": list(RULES),
        "claims": judge_claims(found),
    }


def what_was_measured(cells: Cells) -> dict:
    timed = [cell for cell in cells.fine_tuning if cell["seconds"] is not None]  # the others are parts of a task
    return {
        "fine_tuning_runs": len(timed),
        "fine_tuning_seconds": round(sum(cell["seconds"] for cell in timed)),
        "tasks": sorted({cell["task"] for cell in cells.fine_tuning}),
        "zero_shot_checkpoints": len(cells.zero_shot),
        "unfinished": len(cells.unfinished),
    }


# ---- The page

# Sign and colour.
VERDICTS = {
    "holds": ("✓", "holds"),
    "does not hold": ("✗", "fails"),
    "mixed": ("±", "mixed"),
    "undecided": ("?", "mixed"),
    "not measured": ("–", "faint"),
}
BASELINES = {"rows": "Rows", "majority": "Constant"}
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


def lines_of_models(models: Iterable[Mapping]) -> list[Line]:
    """A line per model, below the heads."""
    heads = "Model, Parameters, Without embeddings, Configuration, Tokens read, Updates, Perplexity"
    lines = [[[head] for head in heads.split(", ")]]
    for model in (*models, PAPER_MODEL):
        training = model.get("pretraining") or {}
        config = ", ".join(f"{name} {plain(value)}" for name, value in model.get("config", {}).items())
        sizes = (model.get("parameters"), model.get("parameters_without_embeddings"))
        read = (training.get("tokens"), training.get("updates"))
        texts = [model["name"], *map(number, sizes), config, *map(number, read), number(training.get("perplexity"))]
        lines.append([[text] for text in texts])
    return lines


def number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.1f}"


def lines_of_table(table: Mapping) -> list[Line]:
    """Below the heads a line per task: for each row of the paper's table its figure, the measured one and settings."""
    heads = ["Task", *BASELINES.values()]
    heads += [f"{row['label']}: {what}" for row in table["rows"] for what in ("paper", "measured")]
    lines = [[[head] for head in heads]]
    for column in table["columns"]:
        values = column["baselines"] or {}
        line = [[column["label"], column["metric"]]]
        line += [[number(values[name]) if name in values else ""] for name in BASELINES]
        for row in table["rows"]:
            cell = row["cells"][column["key"]]
            line += [["" if cell["paper"] is None else f"{cell['paper']:.1f}"], show_measured(cell)]
        lines.append(line)
    return lines


def show_measured(cell: Mapping) -> list[str]:
    scores, lines = cell["measured"], []
    if scores:
        seeds = f"{len(scores['seeds'])} seed{'' if len(scores['seeds']) == 1 else 's'}"
        lines = [f"{scores['median']:.1f}", f"{scores['lowest']:.1f} to {scores['highest']:.1f}, {seeds}"]
        lines += ["95 %: {:.1f} to {:.1f}".format(*scores["interval"])] if "interval" in scores else []
        lines.append(cell["settings"])
    return [*lines, cell["missing"] or ""]


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters.update(duration=duration, plain=plain)
TEMPLATES.globals.update(
    **{"VERDICTS": VERDICTS, "OUTCOMES": OUTCOMES, "PAPER_URL": PAPER_URL},
    **{"lines_of_models": lines_of_models, "lines_of_table": lines_of_table, "panels": panels, "as_link": as_link},
)

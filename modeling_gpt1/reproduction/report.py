"""The report: its content, tables and figures beside the paper's, and claims; and its HTML page.

The page holds its style sheet and figures. The templates escape every text of a report. Nothing is fetched, not even
fonts, and there is no script.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5, figure 2.
"""

from collections.abc import Mapping, Sequence
from datetime import date as calendar_date
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .claims import RULES, judge_claims
from .figures import as_link, figure_2_left, figure_2_right, panels
from .published import PAPER_MODEL, PAPER_URL
from .tables import TITLES, Cells, describe_table, plain


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
    found = Cells(cells, unfinished, models[0]["config"].get("num_hidden_layers", 12) if models else 12)
    return {
        "title": title,
        "date": date or calendar_date.today().isoformat(),
        "environment": dict(environment or {}),
        "models": list(models),
        "settings": {
            "seeds": sorted({cell["seed"] for cell in found.fine_tuning}),
            "fine_tuning": found.common,
        },
        "commands": list(commands),
        "measured": {
            "fine_tuning_runs": sum(cell["kind"] == "fine_tuning" for cell in cells),
            "tasks": sorted({cell["task"] for cell in found.fine_tuning}),
            "zero_shot_checkpoints": len(found.zero_shot),
            "unfinished": len(unfinished),
        },
        "tables": [describe_table(found, name) for name in TITLES],
        "figures": [figure_2_left(found), figure_2_right(found)],
        "rules": list(RULES),
        "claims": judge_claims(found),
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
OUTCOMES = {"better": "▲", "worse": "▼", "level": "="}


def page(report: Mapping) -> str:
    """The whole page."""
    settings = {"seeds": report["settings"]["seeds"], **report["settings"]["fine_tuning"]}
    models = {}
    for model in (*report["models"], PAPER_MODEL):
        sizes = {name: model.get(name) for name in ("parameters", "parameters_without_embeddings")}
        models[model["name"]] = {**sizes, **model["config"], **model["pretraining"]}
    return TEMPLATES.get_template("page.html").render(report=report, settings=settings, models=models)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters["plain"] = plain
TEMPLATES.globals |= {"VERDICTS": VERDICTS, "OUTCOMES": OUTCOMES, "PAPER_URL": PAPER_URL}
TEMPLATES.globals |= {"panels": panels, "as_link": as_link}

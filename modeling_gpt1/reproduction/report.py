"""The report: its content, tables and figures beside the paper's, and claims; and its HTML page.

The page holds its style sheet and figures. The templates escape every text of a report. Nothing is fetched, not even
fonts, and there is no script.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5, figure 2.
"""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .claims import RULES, judge_claims
from .effects import effects_of
from .figures import as_link, figure_2_left, figure_2_right, forest_link, tuning_curves
from .published import PAPER_URL
from .tables import TITLES, Cells, describe_table, plain


def build_report(
    cells: Sequence[Mapping],
    unfinished: Sequence[Mapping] = (),
    *,
    title: str,
    models: Sequence[Mapping] = (),
    environment: Mapping | None = None,
    commands: Sequence[str] = (),
    tuning: Sequence[Mapping] = (),
    date: str | None = None,
) -> dict:
    """The content of report.json.

    Args:
        cells, unfinished: the finished and the missing cells, as [`Cells`] takes them.
        title: the heading.
        models: of each its `name`, `parameters`, `config` (its sizes) and `pretraining`, the Transformer first.
        environment: machine and versions.
        commands: as they were typed.
        tuning: the trials of each condition, and the chosen one.
        date: `2018-06-11`. Default: today.
    """
    found = Cells(cells, unfinished, models[0]["config"].get("num_hidden_layers", 12) if models else 12)
    figures = [figure_2_left(found), figure_2_right(found)]
    if tuning:
        figures.append(tuning_curves(tuning))
    return {
        "title": title,
        "date": date or datetime.date.today().isoformat(),
        "environment": environment or {},
        "models": list(models),
        "commands": list(commands),
        "tuning": list(tuning),
        "settings": {"seeds": sorted({cell["seed"] for cell in found.fine_tuning}), **found.common},
        "measured": {
            "fine_tuning_runs": sum(cell["kind"] == "fine_tuning" for cell in cells),
            "tasks": sorted({cell["task"] for cell in found.fine_tuning}),
            "zero_shot_checkpoints": len(found.zero_shot),
            "unfinished": len(unfinished),
        },
        "effects": [effect.describe() for effect in effects_of(found)],
        "tables": [describe_table(found, name) for name in TITLES],
        "figures": figures,
        "rules": RULES,
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
    return TEMPLATES.get_template("page.html").render(report=report)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters["plain"] = plain
TEMPLATES.globals |= {
    "VERDICTS": VERDICTS,
    "OUTCOMES": OUTCOMES,
    "PAPER_URL": PAPER_URL,
    "as_link": as_link,
    "forest_link": forest_link,
}

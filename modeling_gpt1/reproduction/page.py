"""Renders the report as one HTML page with its style sheet and its figures as inline SVG.

The templates escape every text of a report. Nothing is fetched, not even fonts, and there is no script.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .claims import decimal, show_range
from .figures import draw, panels
from .published import PAPER_MODEL, PAPER_URL
from .tables import plain

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
OUTCOMES = {"better": "▲", "worse": "▼", "level": "="}


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


def settings_of(key: str, rows: Sequence[Mapping]) -> dict[str, str]:
    """The settings of a line by the label of the paper's row. If all are equal, one entry with an empty label."""
    own = {row["label"]: row["cells"][key]["settings"] for row in rows if row["cells"][key]["measured"]}
    return own if len(set(own.values())) > 1 else {"": next(iter(own.values()), "")}


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.filters.update(decimal=decimal, duration=duration, plain=plain, spaced=spaced)
TEMPLATES.globals.update(
    **{
        "COLOURS": COLOURS,
        "VERDICTS": VERDICTS,
        "OUTCOMES": OUTCOMES,
        "PAPER_MODEL": PAPER_MODEL,
        "PAPER_URL": PAPER_URL,
    },
    **{"panels": panels, "draw": partial(draw, colours=COLOURS), "settings_of": settings_of, "show_range": show_range},
)

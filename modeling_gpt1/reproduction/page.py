"""Renders the report as one HTML page with its style sheet and its figures as inline SVG.

The templates escape every text of a report. Nothing is fetched, not even fonts, and there is no script.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    known = {name for column in table["columns"] for name in column["baselines"] or ()}  # older reports lack `rows`
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
        for cell in cells:
            line += [[show_paper(cell)], show_measured(cell)]
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
        line = [[figure["x_names"].get(str(x), str(x))]]
        for series in all_series:
            point = next((point for point in series["points"] if point["x"] == x), None)
            text = decimal(point["y"], digits) if point else ""
            if point and point["lowest"] is not None and point["lowest"] != point["highest"]:
                text += f" ({show_range(point['lowest'], point['highest'], digits)})"
            line.append([text])
        lines.append(line)
    return lines


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

"""The figures of the report: what each one draws, as points of curves, and the drawing by matplotlib.

Source: figure 2 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018).
"""

import base64
import io
import math
from collections.abc import Mapping

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from .tables import COLUMNS, Cells, describe_scores

FAMILIES = {"gpt1": "Transformer", "gpt1-lstm": "LSTM"}
STYLES = {  # told apart without colours, too
    "Transformer": {"fmt": "o-", "color": "#1d4ed8"},
    "LSTM": {"fmt": "s--", "color": "#c2410c", "markerfacecolor": "none"},
}


def point(x: float, y: float, lowest: float, highest: float) -> dict:
    return {"x": x, "y": round(y, 4), "lowest": round(lowest, 4), "highest": round(highest, 4)}


def figure_2_left(cells: Cells) -> dict:
    splits, panels = {column.label: cells.split(column) for column in COLUMNS.values()}, {}
    for name, curve in cells.transfer().items():
        found = {number: describe_scores(scores) for number, scores in curve.items()}
        points = [point(number, *(of[key] for key in ("median", "lowest", "highest"))) for number, of in found.items()]
        note = f"{splits[name]} split; bars from the lowest to the highest seed"
        panels[name] = {"note": note, "curves": {"Transformer": points}}
    return {
        "id": "figure-2-left",
        "title": "Figure 2, left: layers transferred from pre-training",
        "caption": "Score after fine-tuning against the number of blocks taken from the pre-trained model; the others "
        "start fresh. 0 is the embeddings alone, −1 nothing at all. The median of the seeds.",
        **{"x_label": "layers transferred", "y_label": "score × 100", "x_scale": "linear", "shared_y": False},
        "panels": panels,
    }


def figure_2_right(cells: Cells) -> dict:
    panels = {}
    for family, label in FAMILIES.items():
        for name, curve in cells.curves(family).items():
            points = [point(step, score, score - 2 * error, score + 2 * error) for step, score, error, _ in curve]
            panels.setdefault(name, {"note": curve[0][-1], "curves": {}})["curves"][label] = points
    return {
        "id": "figure-2-right",
        "title": "Figure 2, right: zero-shot performance over pre-training",
        "caption": "How checkpoints of the language models score without fine-tuning, by the heuristics of section 5, "
        "on a scale from 0 (guessing) to 1 (the best model known to the paper).",
        **{"x_label": "updates of pre-training", "y_label": "0: guessing, 1: best known"},
        **{"x_scale": "log", "shared_y": True},
        "panels": panels,
    }


def draw(of_figure: Mapping) -> Figure:
    """A figure with a picture for each of its panels."""
    panels = of_figure["panels"]
    columns = min(3, len(panels))
    lines = math.ceil(len(panels) / columns)
    drawing = Figure(figsize=(4.2 * columns, 3 * lines), layout="constrained")
    all_axes = drawing.subplots(lines, columns, squeeze=False, sharey=of_figure["shared_y"]).flat
    for axes in all_axes[len(panels) :]:
        axes.set_axis_off()
    for axes, (title, panel) in zip(all_axes, panels.items(), strict=False):
        for label, points in panel["curves"].items():
            x, y, lowest, highest = zip(*(of.values() for of in points), strict=True)
            bars = [[abs(middle - end) for middle, end in zip(y, ends, strict=True)] for ends in (lowest, highest)]
            axes.errorbar(x, y, yerr=bars, label=label, markersize=5, **STYLES[label])
        if of_figure["x_scale"] == "log":  # a checkpoint before the first update stands at the left
            above_zero = [of["x"] for points in panel["curves"].values() for of in points if of["x"] > 0]
            axes.set_xscale("symlog", linthresh=min(above_zero, default=1))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(title=title, xlabel=of_figure["x_label"], ylabel=of_figure["y_label"])
        axes.grid(axis="y", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if len(panel["curves"]) > 1:
            axes.legend(frameon=False)
    return drawing


def as_link(of_figure: Mapping) -> str:
    """The drawing as a link that a page shows as an image: an SVG file inside the link."""
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "", "text.parse_math": False, "font.size": 9}):
        draw(of_figure).savefig(file, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"

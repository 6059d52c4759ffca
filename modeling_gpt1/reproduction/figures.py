"""The figures of the report: what each one draws, as points of curves, and the drawing by matplotlib.

Source: figure 2 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018).
"""

import base64
import io
import math
from collections.abc import Iterable, Mapping

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from .claims import Curve, standard_error
from .scores import Scores
from .tables import COLUMNS, LABELS, METRIC_NAMES, PARTS, Cells, measured, place_of

FAMILIES = {"gpt1": "Transformer", "gpt1-lstm": "LSTM"}
TRANSFORMER_STYLE = {"fmt": "o-", "color": "#1d4ed8"}
LSTM_STYLE = {"fmt": "s--", "color": "#c2410c", "markerfacecolor": "none"}  # told apart without colours, too


def point(x: float, y: float, lowest: float | None = None, highest: float | None = None) -> dict:
    ends = {"y": y, "lowest": lowest, "highest": highest}
    return {"x": x, **{name: None if value is None else round(value, 4) for name, value in ends.items()}}


def curve(panel: str, points: Iterable[Mapping], note: str, family: str = "gpt1", label: str = "") -> dict:
    """A curve of the panel with that title; `note` tells of the panel."""
    named = {"label": label or panel, "panel": panel, "dashed": family == "gpt1-lstm"}
    return {**named, "note": note, "points": list(points)}


# ---- Figure 2


def transfer_curves(cells: Cells, num_layers: int) -> dict[str, dict[int, Scores]]:
    """Scores by task name and number of transferred layers, for tasks with points between the two ends.

    The ends are rows of table 5: −1 layers is the row without pre-training, all layers is the full method.
    """
    places = {-1: "without_pretraining", num_layers: "full"}
    numbers = {place for cell in cells.fine_tuning if isinstance(place := place_of(cell), int)}
    curves = {}
    for key, column in COLUMNS.items():
        if key not in PARTS and any(cells.scores(key, number) for number in numbers):
            found = {number: cells.scores(key, places.get(number, number)) for number in sorted({*numbers, *places})}
            curves[column.label] = {number: scores for number, scores in found.items() if scores}
    return curves


def figure_2_left(cells: Cells, curves: Mapping[str, Mapping[int, Scores]]) -> dict:
    splits, series = {column.label: cells.split(column) for column in COLUMNS.values()}, []
    for name, found in curves.items():
        medians = ((number, measured(scores)) for number, scores in found.items())
        points = (point(number, *(of[key] for key in ("median", "lowest", "highest"))) for number, of in medians)
        series.append(curve(name, points, f"{splits[name]} split; bars from the lowest to the highest seed"))
    return {
        "id": "figure-2-left",
        "title": "Figure 2, left: layers transferred from pre-training",
        "caption": "Score after fine-tuning against the number of blocks taken from the pre-trained model; the others "
        "start fresh. 0 is the embeddings alone, −1 nothing at all. The median of the seeds.",
        **{"x_label": "layers transferred", "y_label": "score × 100", "x_scale": "linear", "shared_y": False},
        "paper": "RACE and MultiNLI, 0 to 12 layers, on the validation sets: both rise with every layer; all layers "
        "bring up to 9 points on MultiNLI.",
        "series": series,
    }


def zero_shot_curves(cells: Cells) -> dict[str, dict[str, Curve]]:
    """The curves over the checkpoints, by family and name of the task."""
    found: dict[str, dict[str, Curve]] = {}
    checkpoints = [cell for cell in cells.zero_shot if cell["step"] is not None]
    for cell in sorted(checkpoints, key=lambda cell: (cell["family"], cell["step"])):
        for name, of in cell["tasks"].items():
            low, high, metric = of["chance"], of["best_known"], of["metric"]
            note = f"0 is {METRIC_NAMES[metric]} {100 * low:.1f}, 1 is {100 * high:.1f}; {of['num_rows']} rows of "
            note += f"{of['split']}; bars are two standard errors"
            error = standard_error(of[metric], of["num_rows"], metric) / (high - low)
            curves = found.setdefault(cell["family"], {})
            points = curves.setdefault(LABELS.get(name, name), Curve([], note)).points
            points.append((cell["step"], of["normalised"], error))
    return found


def figure_2_right(cells: Cells, curves: Mapping[str, Mapping[str, Curve]]) -> dict:
    series, caption = [], ""
    for family, tasks in curves.items():
        for name, of_task in tasks.items():
            drawn = (point(step, score, score - 2 * error, score + 2 * error) for step, score, error in of_task.points)
            series.append(curve(name, drawn, of_task.note, family, FAMILIES[family]))
    for cell in cells.zero_shot:  # models without checkpoints are no points of a curve
        if cell["step"] is None:
            told = ", ".join(f"{LABELS.get(name, name)} {of['normalised']:.2f}" for name, of in cell["tasks"].items())
            caption += f" The {FAMILIES[cell['family']]} itself, not a checkpoint of its pre-training: {told}."
    return {
        "id": "figure-2-right",
        "title": "Figure 2, right: zero-shot performance over pre-training",
        "caption": "How checkpoints of the language models score without fine-tuning, by the heuristics of section 5, "
        f"on a scale from 0 (guessing) to 1 (the best model known to the paper).{caption}",
        **{"x_label": "updates of pre-training", "y_label": "0: guessing, 1: best known"},
        **{"x_scale": "log", "shared_y": True},
        "paper": "Sentiment analysis, Winograd schema resolution, linguistic acceptability and question answering, "
        "over 10³ to 10⁶ updates: the Transformer's curves (solid) rise steadily, the LSTM's (dashed) lie lower and "
        "vary more. The figure has no Story Cloze.",
        "series": series,
    }


# ---- The drawing


def panels(of_figure: Mapping) -> dict[str, list[Mapping]]:
    """The curves of each panel by its title."""
    found: dict[str, list[Mapping]] = {}
    for series in of_figure["series"]:
        found.setdefault(series["panel"], []).append(series)
    return found


def draw(of_figure: Mapping) -> Figure:
    """A figure with a picture for each of its panels."""
    found = panels(of_figure)
    columns = min(3, len(found))
    lines = math.ceil(len(found) / columns)
    drawing = Figure(figsize=(4.2 * columns, 3 * lines), layout="constrained")
    all_axes = drawing.subplots(lines, columns, squeeze=False, sharey=of_figure["shared_y"]).flat
    for axes in all_axes[len(found) :]:
        axes.set_axis_off()
    for axes, (title, all_series) in zip(all_axes, found.items(), strict=False):
        for series in all_series:
            points = series["points"]
            bars = [[0 if p[end] is None else abs(p["y"] - p[end]) for p in points] for end in ("lowest", "highest")]
            axes.errorbar(
                *([p[axis] for p in points] for axis in ("x", "y")),
                yerr=bars if any(map(any, bars)) else None,
                **{"label": series["label"], "markersize": 5 if len(points) <= 30 else 0},
                **(LSTM_STYLE if series["dashed"] else TRANSFORMER_STYLE),
            )
        if of_figure["x_scale"] == "log":  # a checkpoint before the first update stands at the left
            above_zero = [p["x"] for series in all_series for p in series["points"] if p["x"] > 0]
            axes.set_xscale("symlog", linthresh=min(above_zero, default=1))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(title=title, xlabel=of_figure["x_label"], ylabel=of_figure["y_label"])
        axes.grid(axis="y", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if len(all_series) > 1:
            axes.legend(frameon=False)
    return drawing


def as_link(of_figure: Mapping) -> str:
    """The drawing as a link that a page shows as an image: an SVG file inside the link."""
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "", "text.parse_math": False, "font.size": 9}):
        draw(of_figure).savefig(file, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"

"""The figures of the report: what each one draws, as points of curves, and the drawing by matplotlib.

Source: figure 2 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018).
"""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from tokenization import get_task

from .arguments import layers_of
from .tables import COLUMNS, LABELS, ROW_LABELS, Cells, describe_scores, show_metric
from .tuning import exactly

FAMILIES = {"gpt1": "Transformer", "gpt1-lstm": "LSTM"}
STYLES = {  # distinct without colours, too
    "Transformer": {"fmt": "o-", "color": "#1d4ed8"},
    "LSTM": {"fmt": "s--", "color": "#c2410c", "markerfacecolor": "none"},
}


USUAL_STYLE = {"fmt": "o-"}  # in matplotlib's colours


def point(x: float, y: float, lowest: float, highest: float) -> dict:
    return {"x": x, "y": round(y, 4), "lowest": round(lowest, 4), "highest": round(highest, 4)}


def figure_2_left(cells: Cells) -> dict:
    panels = {}
    for key, curve in cells.transfer().items():
        found = {number: describe_scores(scores) for number, scores in curve.items() if scores}
        points = [point(number, of["median"], of["lowest"], of["highest"]) for number, of in found.items()]
        note = f"{cells.split(COLUMNS[key])} split; bars from the lowest to the highest seed"
        failed = {number: len(cells.failed(key, cells.row_of_layers(number))) for number in curve}
        shares = [f"{of} of {of + len(curve[number])} with {number}" for number, of in failed.items() if of]
        if shares:
            note += f"; runs that failed to train, by the number of layers: {', '.join(shares)}"
        panels[COLUMNS[key].label] = {"note": note, "curves": {"Transformer": points}}
    return {
        "id": "figure-2-left",
        "title": "Figure 2, left: layers transferred from pre-training",
        "caption": "Score after fine-tuning against the number of blocks taken from the pre-trained model; the others "
        "start fresh. 0 is the embeddings alone, −1 nothing at all. The median of the seeds.",
        "x_label": "layers transferred",
        "y_label": "score × 100",
        "x_scale": "linear",
        "shared_y": False,
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
        "x_label": "updates of pre-training",
        "y_label": "0: guessing, 1: best known",
        "x_scale": "log",
        "shared_y": True,
        "panels": panels,
    }


def tuning_curves(tuning: Sequence[Mapping]) -> dict:
    """Held-out scores over the tried learning rates, a panel for each condition, a curve for each warm-up and λ."""
    panels = {}
    for condition in tuning:
        curves: dict[str, list[dict]] = {}
        for trial in condition["trials"]:
            if trial["score"] is not None:
                at = trial["learning_rate"]
                curve = curves.setdefault(name_of_settings(trial), [])
                curve.append(point(at, *[trial["score"]] * 3))
        if condition["trials"]:
            task, variant = condition["task"], condition["variant"]
            note = f"{show_metric(get_task(task).metrics[0])} × 100 on rows held out of training"
            if condition["chosen"] is not None:
                rate = exactly(condition["chosen"]["learning_rate"])
                note += f"; chosen: {rate}, {name_of_settings(condition['chosen'])}"
                note += where_it_stands(condition)
            if diverged := sum(trial["score"] is None for trial in condition["trials"]):
                note += f"; {diverged} diverged and {'has' if diverged == 1 else 'have'} no point"
            failed = [trial for trial in condition["trials"] if trial["failed"] and trial["score"] is not None]
            if failed:
                names = [f"{exactly(trial['learning_rate'])} ({name_of_settings(trial)})" for trial in failed]
                note += f"; failed to train: {', '.join(names)}"
            panels[f"{LABELS.get(task, task)}: {name_of_condition(variant)}"] = {"note": note, "curves": curves}
    return {
        "id": "tuning",
        "title": "Tuning",
        "caption": "Score on a part of the training rows against the learning rate, one run each. The seeds have the "
        "settings of the best run that trained. A curve has the points of one warm-up and, where layers start fresh, "
        "one λ.",
        "x_label": "learning rate",
        "y_label": "held-out score × 100",
        "x_scale": "powers",
        "shared_y": False,
        "panels": panels,
    }


def name_of_condition(variant: str) -> str:
    """A variant in words: a row of table 5, or what was transferred."""
    if variant in ROW_LABELS:
        return ROW_LABELS[variant]
    number = layers_of(variant)
    if number == 0:
        return "Transformer, embeddings alone"
    return f"Transformer, first {number} layers" if number > 1 else "Transformer, first layer"


def name_of_settings(trial: Mapping) -> str:
    name = f"warm-up {exactly(trial['warmup_steps'])}"
    return name if trial["lm_coef"] is None else f"{name}, λ {exactly(trial['lm_coef'])}"


def where_it_stands(condition: Mapping) -> str:
    """Says so where the best learning rate is the lowest or the highest that was tried."""
    rates = [trial["learning_rate"] for trial in condition["trials"]]
    chosen = condition["chosen"]["learning_rate"]
    if chosen == max(rates):
        return ", the highest rate tried"
    if chosen == min(rates):
        return ", the lowest rate tried"
    return ""


def draw_forest(effects: Sequence[Mapping]) -> Figure:
    """Differences with their intervals, one a line, the first at the top; those without an interval are left out."""
    shown = [effect for effect in effects if effect["interval"] is not None]
    drawing = Figure(figsize=(9, 0.9 + 0.26 * len(shown)), layout="constrained")
    axes = drawing.subplots()
    labels = []
    for y, effect in enumerate(shown):
        low, high = effect["interval"]
        axes.plot([low, high], [y, y], color="#1d4ed8", linewidth=1.6)
        axes.plot([effect["difference"]], [y], "o", color="#1d4ed8", markersize=4)
        rows = "" if effect["rows"] is None else f", {effect['rows']:,} rows"
        failed = "" if not effect["failed"] else f", {effect['failed']} failed to train"
        seeds = f"{effect['seeds']} seed{'' if effect['seeds'] == 1 else 's'}"
        labels.append(f"{effect['task']}: {effect['first']} − {effect['second']} ({seeds}{rows}{failed})")
    axes.axvline(0, color="#4b5563", linewidth=0.8)
    axes.set_yticks(range(len(shown)), labels)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlabel("difference of scores × 100, with its 95 % interval over rows and seeds")
    axes.grid(axis="x", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return drawing


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
            x = [of["x"] for of in points]
            y = [of["y"] for of in points]
            below = [abs(of["y"] - of["lowest"]) for of in points]
            above = [abs(of["y"] - of["highest"]) for of in points]
            axes.errorbar(x, y, yerr=[below, above], label=label, markersize=5, **STYLES.get(label, USUAL_STYLE))
        if of_figure["x_scale"] == "log":  # a checkpoint before the first update stands at the left
            above_zero = [of["x"] for points in panel["curves"].values() for of in points if of["x"] > 0]
            axes.set_xscale("symlog", linthresh=min(above_zero, default=1))
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        elif of_figure["x_scale"] == "powers":
            axes.set_xscale("log")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(title=title, xlabel=of_figure["x_label"], ylabel=of_figure["y_label"])
        axes.grid(axis="y", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if len(panel["curves"]) > 1:
            axes.legend(frameon=False)
    return drawing


def forest_link(effects: Sequence[Mapping]) -> str:
    return as_link(effects, draw_forest)


def as_link(content: Any, draw_it: Callable[[Any], Figure] = draw) -> str:
    """The drawing as a link that a page shows as an image: an SVG file inside the link."""
    file = io.BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "", "text.parse_math": False, "font.size": 9}):
        draw_it(content).savefig(file, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"

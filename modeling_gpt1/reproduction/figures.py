"""The figures of the report: what each one draws, as points of curves, and the drawing by matplotlib.

Source: figure 2 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018).
"""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from .claims import Curve, compare, decimal, standard_error
from .scores import Scores, difference
from .tables import COLUMNS, METRIC_NAMES, PARTS, Cells, by_reason, measured, place_of

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


def point(x: float, y: float, lowest: float | None = None, highest: float | None = None) -> dict:
    ends = {"y": y, "lowest": lowest, "highest": highest}
    return {"x": x, **{name: None if value is None else round(value, 4) for name, value in ends.items()}}


def curve(panel: str, points: Iterable[Mapping], note: str, family: str = "gpt1", label: str = "") -> dict:
    """A curve of the panel with that title; `note` tells of the panel."""
    named = {"label": label or panel, "panel": panel, "dashed": family == "gpt1-lstm"}
    return {**named, "note": note, "points": list(points)}


def figure(name: str, title: str, caption: str, labels: tuple[str, str], series: Sequence[Mapping], **told) -> dict:
    """A figure of report.json.

    Args:
        labels: what the axes are.
        told: `paper`, what the paper has; `missing`, why there are no curves; `x_scale`, "log" or "linear"; `x_names`,
            names of ticks; `shared_y`, whether all panels have one y axis.
    """
    defaults = {"x_scale": "log", "x_names": {}, "shared_y": True, "series": list(series)}
    axes = {"x_label": labels[0], "y_label": labels[1]}
    return {"id": name, "title": title, "caption": caption, **axes, **defaults, **told} | (
        {"missing": None} if series else {}
    )


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
    return figure(
        "figure-2-left",
        "Figure 2, left: layers transferred from pre-training",
        "Score after fine-tuning against the number of blocks taken from the pre-trained model; the others start "
        "fresh. 0 is the embeddings alone, “none” nothing at all. The median of the seeds.",
        ("layers transferred", "score × 100"),
        series,
        x_scale="linear",
        x_names={"-1": "none"},
        shared_y=False,
        paper="RACE and MultiNLI, 0 to 12 layers, on the validation sets: both rise with every layer; all layers "
        "bring up to 9 points on MultiNLI.",
        missing="No run with only some of the layers transferred was requested and finished.",
    )


def zero_shot_answers(cells: Cells) -> dict[str, dict[str, list[tuple[int, Mapping]]]]:
    """By family and readable name of the task: updates and result of each checkpoint, in order."""
    found: dict[str, dict[str, list]] = {}
    checkpoints = [cell for cell in cells.zero_shot if cell["step"] is not None]
    for cell in sorted(checkpoints, key=lambda cell: (cell["family"], cell["step"])):
        for name, of in cell["tasks"].items():
            found.setdefault(cell["family"], {}).setdefault(readable(name), []).append((cell["step"], of))
    return found


def readable(name: str) -> str:
    return ZERO_SHOT_NAMES.get(name, name)


def zero_shot_curves(cells: Cells) -> dict[str, dict[str, Curve]]:
    """Curves by family and readable name of the task."""
    return {
        family: {
            name: Curve([(step, of["normalised"]) for step, of in points], normalised_error(points[-1][1]))
            for name, points in tasks.items()
        }
        for family, tasks in zero_shot_answers(cells).items()
    }


def normalised_error(found: Mapping) -> float:
    error = standard_error(found[found["metric"]], found["num_rows"], found["metric"])
    return error / (found["best_known"] - found["chance"])


def figure_2_right(cells: Cells) -> dict:
    answers, series, caption = zero_shot_answers(cells), [], ""
    for name in dict.fromkeys(name for of_family in answers.values() for name in of_family):
        by_family = {family: tasks[name] for family, tasks in answers.items() if name in tasks}
        _, first = next(iter(by_family.values()))[0]
        note = (
            f"0 is {METRIC_NAMES[first['metric']]} {100 * first['chance']:.1f}, 1 is {100 * first['best_known']:.1f}; "
            f"{first['num_rows']} rows of {first['split']}; bars are two standard errors"
        )
        for family, points in by_family.items():
            with_bars = ((step, of["normalised"], 2 * normalised_error(of)) for step, of in points)
            drawn = (point(step, score, score - error, score + error) for step, score, error in with_bars)
            series.append(curve(name, drawn, note, family, FAMILIES[family]))
    for cell in cells.zero_shot:  # models without checkpoints are no points of a curve
        if cell["step"] is None:
            told = (f"{readable(name)} {decimal(of['normalised'], 2)}" for name, of in cell["tasks"].items())
            caption += f" The {FAMILIES[cell['family']]} itself, not a checkpoint of its pre-training: "
            caption += f"{', '.join(told)}."
    missing = by_reason(
        ((FAMILIES[cell["family"]], str(cell["reason"])), "the model itself" if cell["step"] is None else cell["step"])
        for cell in cells.unfinished_of("zero_shot")
    )
    if missing:
        parts = (f"{family} {places}: {reason}" for (family, reason), places in missing.items())
        caption += f" Missing, by updates: {'; '.join(parts)}."
    return figure(
        "figure-2-right",
        "Figure 2, right: zero-shot performance over pre-training",
        "How checkpoints of the language models score without fine-tuning, by the heuristics of section 5, on a "
        f"scale from 0 (guessing) to 1 (the best model known to the paper).{caption}",
        ("updates of pre-training", "0: guessing, 1: best known"),
        series,
        paper="Sentiment analysis, Winograd schema resolution, linguistic acceptability and question answering, over "
        "10³ to 10⁶ updates: the Transformer's curves (solid) rise steadily, the LSTM's (dashed) lie lower and vary "
        "more. The figure has no Story Cloze.",
        missing="No evaluation of a pre-training checkpoint was requested and finished.",
    )


# ---- Beyond the paper's figure 2


def auxiliary_sizes(cells: Cells) -> dict:
    """What the auxiliary objective adds, against the number of training rows."""
    series = []
    for key, column in COLUMNS.items():
        points, remarks = [], []
        for size in cells.sizes_of(column.task) if key not in PARTS else ():
            with_it, without = (cells.scores(key, variant, size) for variant in ("full", "without_auxiliary"))
            if with_it and without:
                found, told = difference(with_it, without), compare(f"{size} rows:", with_it, without)
                points.append(point(size, found.value, *(found.interval if found.decides else ())))
                remarks.append(f"{told.text} ({told.remark})")
        if points:
            series.append(curve(column.label, points, f"{cells.split(column)} split; {'; '.join(remarks)}"))
    return figure(
        "auxiliary-sizes",
        "The auxiliary objective against the size of the training set",
        "Score with the auxiliary objective minus the score without it, on the same rows. Bars are 95 % intervals "
        "over rows and seeds.",
        ("training rows", "difference of scores × 100"),
        series,
        shared_y=False,
        paper="No such figure. From table 5 it concludes that larger data sets gain and smaller ones do not.",
        missing="No run of the experiment auxiliary_sizes was requested and finished.",
    )


def learning_curves(models: Sequence[Mapping]) -> dict:
    """The held-out loss of each model over the tokens of its pre-training, where it is finite."""
    series, caption = [], "Loss on held-out text over the tokens that were read in training."
    for model in models:
        found = (model.get("pretraining") or {}).get("curve", ())
        points = [point(tokens, math.log(perplexity)) for tokens, perplexity in found if perplexity is not None]
        if left_out := len(found) - len(points):
            caption += f" Evaluations of {model['name']} without a finite loss: {left_out}."
        if points:
            note = "e to this loss is the perplexity"
            series.append(curve("Held-out loss", points, note, model.get("family", "gpt1"), model["name"]))
    return figure(
        "learning-curves",
        "Learning curves of pre-training",
        caption,
        ("tokens", "nats per token"),
        series,
        paper="No such figure. It tells a final perplexity of 18.4 for the Transformer.",
        missing="No folder of a pre-training with finite evaluations was given.",
    )


def loss_by_position(cells: Cells) -> dict:
    """The held-out loss of each model by the number of tokens that it has read."""
    series = []
    for cell in cells.positions:
        note = f"{cell['num_blocks']} blocks; bars are two standard errors"
        points = []
        for part in cell["ranges"]:
            ends = [part["loss"] + errors * part["error"] for errors in (-2, 2)] if part["error"] else []
            points.append(point(part["first"], part["loss"], *ends))
        series.append(curve("Held-out loss", points, note, cell["family"], FAMILIES[cell["family"]]))
    reasons = "; ".join(f"{FAMILIES[cell['family']]}: {cell['reason']}" for cell in cells.unfinished_of("positions"))
    return figure(
        "loss-by-position",
        "Loss by the number of tokens read",
        "Mean loss of the next token after 1 token, 2 to 3, 4 to 7, and so on: how much a model gains from a longer "
        f"context.{f' Missing: {reasons}.' if reasons else ''}",
        ("tokens read, at least", "nats per token"),
        series,
        paper="No such figure. It gives the Transformer's structured memory as the reason for its lead.",
        missing="No run of the experiment loss_by_position was requested and finished.",
    )


# ---- The drawing


def panels(of_figure: Mapping) -> list[list[Mapping]]:
    """The curves of each panel."""
    found: dict[str, list[Mapping]] = {}
    for series in of_figure["series"]:
        found.setdefault(series["panel"], []).append(series)
    return list(found.values())


def draw(of_figure: Mapping, all_series: Sequence[Mapping], colours: Mapping[str, tuple[str, str]]) -> str:
    """One panel as inline SVG whose colours are the page's.

    Args:
        colours: by name, a pair of which the first is drawn, and then replaced by the page's variable of that name.
    """
    ink, faint, line = (colours[name][0] for name in ("ink", "faint", "line"))
    style = {"svg.fonttype": "none", "svg.hashsalt": "", "text.parse_math": False, "font.size": 9, "grid.color": line}
    style |= dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color", "text.color"), ink)
    style["axes.edgecolor"] = faint
    with rc_context(style):
        drawing = Figure(figsize=(4.2, 2.8), layout="constrained")
        axes = drawing.subplots()
        for series in all_series:
            name = "lstm" if series["dashed"] else "transformer"
            points = series["points"]
            bars = [[0 if p[end] is None else abs(p["y"] - p[end]) for p in points] for end in ("lowest", "highest")]
            axes.errorbar(
                *([p[axis] for p in points] for axis in ("x", "y")),
                yerr=bars if any(map(any, bars)) else None,
                **{"color": colours[name][0], "label": series["label"], "markersize": 5 if len(points) <= 30 else 0},
                **({"fmt": "s--", "markerfacecolor": "none"} if series["dashed"] else {"fmt": "o-"}),
            )
        if of_figure["shared_y"]:
            every = [p[key] for s in of_figure["series"] for p in s["points"] for key in ("y", "lowest", "highest")]
            values = [value for value in every if value is not None]
            room = 0.05 * (max(values) - min(values)) or 0.05
            axes.set_ylim(min(values) - room, max(values) + room)
        ticks = sorted({p["x"] for series in all_series for p in series["points"]})
        above_zero = [x for x in ticks if x > 0]
        if of_figure["x_scale"] == "log" and above_zero:  # a value before the first update stands at the left
            axes.set_xscale("symlog", linthresh=above_zero[0]) if ticks[0] <= 0 else axes.set_xscale("log")
            if len(ticks) <= 4:
                axes.set_xticks(ticks)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.xaxis.set_minor_formatter("")
        elif len(ticks) <= 14:
            axes.set_xticks(ticks, [of_figure["x_names"].get(str(x), f"{x:g}") for x in ticks])
        axes.set(xlabel=of_figure["x_label"], ylabel=of_figure["y_label"])
        axes.grid(axis="y", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if len(all_series) > 1:
            axes.legend(frameon=False)
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawing.savefig(file, format="svg", transparent=True, metadata=nothing)
    return inline(file.getvalue(), f"{of_figure['id']}-{panels(of_figure).index(list(all_series))}", colours)


def inline(svg: str, name: str, colours: Mapping[str, tuple[str, str]]) -> str:
    """An SVG file as a part of a page, where no other picture has its ids."""
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", svg[svg.index("<svg ") :])
    svg = re.sub(r' (width|height)="[^"]*pt"', "", svg, count=2)
    svg = re.sub(r"<style.*?</style>|font-family: [^;]*; ", "", svg, flags=re.DOTALL)
    for colour, (light, _) in colours.items():
        if colour in ("ink", "faint", "line", "transformer", "lstm"):
            svg = svg.replace(light, f"var(--{colour})")
    svg = re.sub(r"\s*\n\s*", " ", re.sub(r"(\.\d\d)\d+", r"\1", svg))
    return Markup(svg)

"""The figures of the report: what each one draws, as points of curves.

Source: figure 2 of "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018).
"""

import math
from collections.abc import Mapping, Sequence

from .claims import Curve, compare, decimal, standard_error
from .results import COLUMNS, METRIC_NAMES, PARTS, Cells, num_rows_of, place_of
from .scores import Scores, difference
from .tables import measured


def transfer_curves(cells: Cells, num_layers: int) -> dict[str, dict[int, Scores]]:
    """Scores by task name and number of transferred layers, for tasks with points between the two ends.

    The ends are rows of table 5: −1 layers is the row without pre-training, all layers is the full method.
    """
    places = {-1: "without_pretraining", num_layers: "full"}
    numbers = {place for cell in cells.fine_tuning if isinstance(place := place_of(cell), int)}
    curves = {}
    for key, column in COLUMNS.items():
        if key not in PARTS and any(cells.scores(key, number) for number in numbers):
            curve = {number: cells.scores(key, places.get(number, number)) for number in sorted({*numbers, *places})}
            curves[column.label] = {number: scores for number, scores in curve.items() if scores}
    return curves


def figure_2_left(cells: Cells, curves: Mapping[str, Mapping[int, Scores]]) -> dict:
    splits = {column.label: cells.split(column) for column in COLUMNS.values()}
    series = [
        {
            **{"label": name, "panel": name, "dashed": False},
            **{"note": f"{splits[name]} split; bars from the lowest to the highest seed", "remark": ""},
            "points": [{"x": number, **spread(scores)} for number, scores in curve.items()],
        }
        for name, curve in curves.items()
    ]
    return {
        "id": "figure-2-left",
        "title": "Figure 2, left: layers transferred from pre-training",
        "caption": (
            "Score after fine-tuning against the number of blocks taken from the pre-trained model; the others start "
            "fresh. 0 is the embeddings alone, “none” nothing at all. The median of the seeds."
        ),
        "x_label": "layers transferred",
        "y_label": "score × 100",
        "x_scale": "linear",
        "x_names": {"-1": "none"},
        "shared_y": False,
        "series": series,
        "paper": (
            "RACE and MultiNLI, 0 to 12 layers, on the validation sets: both rise with every layer; all layers bring "
            "up to 9 points on MultiNLI."
        ),
        "missing": None if series else "No run with only some of the layers transferred was requested and finished.",
    }


def spread(scores: Scores) -> dict:
    values = measured(scores)
    return {"y": values["median"], "lowest": values["lowest"], "highest": values["highest"]}


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


def zero_shot_curves(cells: Cells) -> dict[str, dict[str, Curve]]:
    """Curves by family and task."""
    curves: dict[str, dict[str, Curve]] = {}
    for family in FAMILIES:
        of_family = sorted(checkpoints(cells, family), key=lambda cell: cell["step"])
        for name in dict.fromkeys(name for cell in of_family for name in cell["tasks"]):
            of_task = [(cell["step"], cell["tasks"][name]) for cell in of_family if name in cell["tasks"]]
            points = [(step, found["normalised"]) for step, found in of_task]
            curves.setdefault(family, {})[name] = Curve(points, normalised_error(of_task[-1][1]))
    return curves


def checkpoints(cells: Cells, family: str) -> list[Mapping]:
    return [cell for cell in cells.zero_shot if cell["family"] == family and cell["step"] is not None]


def normalised_error(found: Mapping) -> float:
    error = standard_error(found[found["metric"]], found["num_rows"], found["metric"])
    return error / (found["best_known"] - found["chance"])


def figure_2_right(cells: Cells, curves: Mapping[str, Mapping[str, Curve]]) -> dict:
    tasks = dict.fromkeys(name for of_family in curves.values() for name in of_family)
    series = [
        {
            **{"label": FAMILIES[family], "panel": ZERO_SHOT_NAMES.get(name, name), "dashed": family == "gpt1-lstm"},
            **{"note": scale_note(cells, name), "remark": remark_on(cells, family, name)},
            "points": [{"x": x, "y": round(y, 4), "lowest": None, "highest": None} for x, y in of_family[name].points],
        }
        for name in tasks
        for family, of_family in curves.items()
        if name in of_family
    ]
    return {
        "id": "figure-2-right",
        "title": "Figure 2, right: zero-shot performance over pre-training",
        "caption": (
            "How checkpoints of the language models score without fine-tuning, by the heuristics of section 5, on a "
            "scale from 0 (guessing) to 1 (the best model known to the paper)."
            + of_models_themselves(cells)
            + missing_checkpoints(cells)
        ),
        "x_label": "updates of pre-training",
        "y_label": "0: guessing, 1: best known",
        "x_scale": "log",
        "x_names": {},
        "shared_y": True,
        "series": series,
        "paper": (
            "Sentiment analysis, Winograd schema resolution, linguistic acceptability and question answering, over "
            "10³ to 10⁶ updates: the Transformer's curves (solid) rise steadily, the LSTM's (dashed) lie lower and "
            "vary more. The figure has no Story Cloze."
        ),
        "missing": None if series else "No evaluation of a pre-training checkpoint was requested and finished.",
    }


def of_models_themselves(cells: Cells) -> str:
    """A sentence with the scores of models without checkpoints, which are not points of a curve."""
    return "".join(
        f" The {FAMILIES[cell['family']]} itself, not a checkpoint of its pre-training: "
        + ", ".join(
            f"{ZERO_SHOT_NAMES.get(name, name)} {decimal(found['normalised'], 2)}"
            for name, found in cell["tasks"].items()
        )
        + "."
        for cell in cells.zero_shot
        if cell["step"] is None
    )


def missing_checkpoints(cells: Cells) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for cell in cells.unfinished_zero_shot:
        place = "the model itself" if cell["step"] is None else str(cell["step"])
        reasons.setdefault((FAMILIES[cell["family"]], str(cell["reason"])), []).append(place)
    parts = [f"{family} {', '.join(places)}: {reason}" for (family, reason), places in reasons.items()]
    return f" Missing, by updates: {'; '.join(parts)}." if parts else ""


def scale_note(cells: Cells, name: str) -> str:
    """A note on what 0 and 1 mean and how precise a score is."""
    found = next(cell["tasks"][name] for cell in cells.zero_shot if name in cell["tasks"])
    metric = METRIC_NAMES[found["metric"]]
    ends = f"0 is {metric} {100 * found['chance']:.1f}, 1 is {100 * found['best_known']:.1f}"
    error = 2 * normalised_error(found)
    return f"{ends}; {found['num_rows']} rows of {found['split']}, two standard errors about {error:.2f}"


def remark_on(cells: Cells, family: str, name: str) -> str:
    """A remark on a score that never changes, as on SST-2 if one of its two words always has more tokens."""
    scores = [cell["tasks"][name]["normalised"] for cell in checkpoints(cells, family) if name in cell["tasks"]]
    if len(scores) < 2 or len(set(scores)) > 1:
        return ""
    return f"The {FAMILIES[family]}'s score never changes, as when every answer is the same."


# ---- Beyond the paper's figure 2


def auxiliary_sizes(cells: Cells) -> dict:
    """What the auxiliary objective adds, against the number of training rows."""
    series = []
    for key, column in COLUMNS.items():
        sizes = sorted({num_rows_of(cell) for cell in cells.with_sizes(column)} - {None})
        points, remarks = [], []
        for size in sizes if key not in PARTS else ():
            with_it, without = (cells.of_size(key, variant, size) for variant in ("full", "without_auxiliary"))
            if with_it and without:
                points.append({"x": size, **difference_of(with_it, without)})
                found = compare(f"{size} rows:", with_it, without)
                remarks.append(f"{found.text} ({found.remark})")
        if points:
            note = f"{cells.split(column)} split; {'; '.join(remarks)}"
            series.append(
                {
                    "label": column.label,
                    "panel": column.label,
                    "dashed": False,
                    "note": note,
                    "remark": "",
                    "points": points,
                }
            )
    return {
        "id": "auxiliary-sizes",
        "title": "The auxiliary objective against the size of the training set",
        "caption": (
            "Score with the auxiliary objective minus the score without it, on the same rows. Bars are 95 % intervals "
            "over rows and seeds."
        ),
        **{"x_label": "training rows", "y_label": "difference of scores × 100"},
        **{"x_scale": "log", "x_names": {}, "shared_y": False},
        "series": series,
        "paper": "No such figure. From table 5 it concludes that larger data sets gain and smaller ones do not.",
        "missing": None if series else "No run of the experiment auxiliary_sizes was requested and finished.",
    }


def difference_of(first: Scores, second: Scores) -> dict:
    """A point with the difference of the means, and its 95 % interval if there are three seeds or more."""
    found = difference(first, second)
    low, high = found.interval if found.decides else (None, None)
    return {
        name: None if value is None else round(value, 4)
        for name, value in zip(("y", "lowest", "highest"), (found.value, low, high), strict=True)
    }


def learning_curves(models: Sequence[Mapping]) -> dict:
    """The held-out loss of each model over the tokens of its pre-training, where it is finite."""
    series = []
    for model in models:
        curve = (model.get("pretraining") or {}).get("curve", ())
        points = [
            {"x": tokens, "y": round(math.log(perplexity), 4), "lowest": None, "highest": None}
            for tokens, perplexity in curve
            if perplexity is not None
        ]
        left_out = len(curve) - len(points)
        remark = f"Evaluations of {model['name']} without a finite loss: {left_out}." if left_out else ""
        if points:
            series.append(
                {
                    **{"label": model["name"], "panel": "Held-out loss", "dashed": model.get("family") == "gpt1-lstm"},
                    **{"note": "e to this loss is the perplexity", "remark": remark, "points": points},
                }
            )
    return {
        "id": "learning-curves",
        "title": "Learning curves of pre-training",
        "caption": "Loss on held-out text over the tokens that were read in training.",
        **{"x_label": "tokens", "y_label": "nats per token", "x_scale": "log", "x_names": {}, "shared_y": True},
        "series": series,
        "paper": "No such figure. It tells a final perplexity of 18.4 for the Transformer.",
        "missing": None if series else "No folder of a pre-training with finite evaluations was given.",
    }


def loss_by_position(cells: Cells) -> dict:
    """The held-out loss of each model by the number of tokens that it has read."""
    series = [
        {
            **{"label": FAMILIES[cell["family"]], "panel": "Held-out loss", "dashed": cell["family"] == "gpt1-lstm"},
            **{"note": f"{cell['num_blocks']} blocks; bars are two standard errors", "remark": ""},
            "points": [
                {"x": part["first"], "y": round(part["loss"], 4), **error_bar(part["loss"], part["error"])}
                for part in cell["ranges"]
            ],
        }
        for cell in cells.positions
    ]
    reasons = "; ".join(f"{FAMILIES[cell['family']]}: {cell['reason']}" for cell in cells.unfinished_positions)
    return {
        "id": "loss-by-position",
        "title": "Loss by the number of tokens read",
        "caption": (
            "Mean loss of the next token after 1 token, 2 to 3, 4 to 7, and so on: how much a model gains from a "
            f"longer context.{f' Missing: {reasons}.' if reasons else ''}"
        ),
        **{"x_label": "tokens read, at least", "y_label": "nats per token"},
        **{"x_scale": "log", "x_names": {}, "shared_y": True},
        "series": series,
        "paper": "No such figure. It gives the Transformer's structured memory as the reason for its lead.",
        "missing": None if series else "No run of the experiment loss_by_position was requested and finished.",
    }


def error_bar(value: float, error: float | None) -> dict:
    if error is None:
        return {"lowest": None, "highest": None}
    return {"lowest": round(value - 2 * error, 4), "highest": round(value + 2 * error, 4)}

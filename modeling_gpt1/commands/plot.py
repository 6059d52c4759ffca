r"""Draws the curves of training runs: loss, held-out perplexity, learning rate, gradient norm and throughput.

One run, or several in one picture, against the tokens seen:

    gpt1 plot runs/books --output_file curves.png
    gpt1 plot runs/small runs/large --output_file curves.png

Against updates instead: `--x steps`. A run is an output folder: the `trainer_state.json` of the folder or
of its newest checkpoint is read, so that a run that is still going on is drawn up to its last checkpoint.
Needs matplotlib: `pip install -e ".[plot]"`.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformers.hf_argparser import HfArg
from transformers.trainer_utils import get_last_checkpoint

from .arguments import parser_of

TOKENS = "num_input_tokens_seen"
FEW = 30  # a curve with fewer points, such as evaluations, gets markers


@dataclass(frozen=True)
class Panel:
    """The panel of one logged metric."""

    title: str
    key: str
    log_scale: bool = False


PANELS = (
    Panel("training loss", "loss"),
    Panel("held-out perplexity", "eval_perplexity", log_scale=True),
    Panel("held-out loss of masked tokens", "eval_mlm_loss"),
    Panel("held-out loss of restored tokens", "eval_denoising_loss"),
    Panel("learning rate", "learning_rate"),
    Panel("gradient norm", "grad_norm", log_scale=True),
    Panel("tokens per second", "tokens_per_second"),
    Panel("model FLOP utilisation", "mfu"),
)


@dataclass
class PlotArguments:
    """What to draw, and where to."""

    output_file: str = HfArg(default="curves.png", help="File of the picture: .png, .svg or .pdf.")
    x: Literal["tokens", "steps"] = HfArg(default="tokens", help="Horizontal axis of the curves.")


def read_run(folder: Path) -> list[dict]:
    """The records of a run's log, from the folder's state or its newest checkpoint's, whichever has more."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder. Pass the output folders of runs.")
    folders = filter(None, (folder, get_last_checkpoint(folder)))
    paths = [path for folder in folders if (path := Path(folder, "trainer_state.json")).exists()]
    if not paths:
        raise ValueError(
            f"{folder} has no log: neither trainer_state.json nor a checkpoint with one. Pass the `--output_dir` of a "
            "run."
        )
    return max(map(read_state, paths), key=lambda state: state["global_step"])["log_history"]


def read_state(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{path} is not valid JSON: {error}. Remove it to use the log of a checkpoint instead."
        ) from error


def names_of(folders: list[Path]) -> list[str]:
    """The folders' names, or their paths if two folders share a name."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def points(records: list[dict], key: str, x_key: str) -> list[tuple[float, float]]:
    """The (x, y) points at which a metric was logged. Values that are not finite are left out."""
    return [(record[x_key], record[key]) for record in records if math.isfinite(record.get(key, math.nan))]


def draw(runs: dict[str, list[dict]], x: str):
    """Draws one panel per logged metric and one colour per run."""
    from matplotlib.figure import Figure  # imported only to draw
    from matplotlib.lines import Line2D

    x_key = TOKENS if x == "tokens" else "step"
    drawn = {panel.key for panel in PANELS}
    for name, records in runs.items():
        if any(drawn & record.keys() and x_key not in record for record in records):
            raise ValueError(f"{name} has not counted its tokens (`include_num_input_tokens_seen`). Pass --x steps.")
    curves = {panel: [points(records, panel.key, x_key) for records in runs.values()] for panel in PANELS}
    curves = {panel: of_runs for panel, of_runs in curves.items() if any(of_runs)}
    if not curves:
        raise ValueError(
            f"Nothing has been logged yet by {', '.join(runs)}. A run logs every --logging_steps updates, 500 by "
            "default."
        )
    columns = min(len(curves), 2)
    rows = math.ceil(len(curves) / columns)
    figure = Figure(figsize=(5.2 * columns, 2.7 * rows + 0.5), layout="constrained")
    for place, (panel, of_runs) in enumerate(curves.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        draw_panel(axes, panel, of_runs)
        if place > len(curves) - columns:
            axes.set_xlabel("tokens seen" if x == "tokens" else "updates")
    lines = [Line2D([], [], color=f"C{index}") for index in range(len(runs))]
    figure.legend(lines, list(runs), loc="outside upper center", ncols=min(len(runs), 4), frameon=False)
    return figure


def draw_panel(axes, panel: Panel, of_runs: list[list[tuple[float, float]]]) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter

    for index, curve in enumerate(of_runs):
        marker = "o" if len(curve) < FEW else ""
        axes.plot([x for x, _ in curve], [y for _, y in curve], marker=marker, lw=1.2, ms=3, color=f"C{index}")
    axes.set_title(panel.title, fontsize="medium")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if panel.log_scale:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


ARGUMENTS = (PlotArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("plot")
    parser.add_argument("runs", nargs="+", type=Path, help="output folders of runs")
    plot_args, positional = parser.read(arguments)
    runs = dict(zip(names_of(positional.runs), map(read_run, positional.runs), strict=True))
    draw(runs, plot_args.x).savefig(plot_args.output_file, dpi=150)
    print(f"written to {plot_args.output_file}")

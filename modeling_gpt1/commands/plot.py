r"""Draws the curves of training runs: loss, held-out perplexity, learning rate, gradient norm and throughput.

    gpt1 plot runs/books --output_file curves.png
    gpt1 plot runs/small runs/large --output_file curves.png --x steps

A run is an output folder: the `trainer_state.json` of the folder or of its newest checkpoint is read, so that a run
that is still going on is drawn up to its last checkpoint. Needs matplotlib: the extra `plot`.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from transformers.hf_argparser import HfArg
from transformers.trainer_utils import get_last_checkpoint

from .arguments import parser_of

# Title by metric.
PANELS = {
    "loss": "training loss",
    "eval_perplexity": "held-out perplexity",
    "eval_mlm_loss": "held-out loss of masked tokens",
    "eval_denoising_loss": "held-out loss of restored tokens",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "tokens_per_second": "tokens per second",
}
LOGARITHMIC = ("eval_perplexity", "grad_norm")
FEW = 30  # a curve with fewer points, such as evaluations, gets markers


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
        raise ValueError(f"{folder} has no log, trainer_state.json. Pass the `--output_dir` of a run.")
    states = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return max(states, key=lambda state: state["global_step"])["log_history"]


def names_of(folders: list[Path]) -> list[str]:
    """The folders' names, or their paths if two folders share a name."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def draw(runs: dict[str, list[dict]], x: str):
    """Draws one panel per logged metric and one colour per run. Values that are not finite are left out."""
    from matplotlib.figure import Figure  # imported only to draw
    from matplotlib.ticker import EngFormatter

    x_key = "num_input_tokens_seen" if x == "tokens" else "step"
    shown = [key for key in PANELS if any(math.isfinite(r.get(key, math.nan)) for run in runs.values() for r in run)]
    if not shown:
        raise ValueError(f"Nothing has been logged yet by {', '.join(runs)}; see the --logging_steps of a run.")
    columns = min(len(shown), 2)
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(5.2 * columns, 2.7 * rows + 0.5), layout="constrained")
    for place, key in enumerate(shown, start=1):
        axes = figure.add_subplot(rows, columns, place, title=PANELS[key])
        for index, (name, records) in enumerate(runs.items()):
            records = [record for record in records if math.isfinite(record.get(key, math.nan))]
            if any(x_key not in record for record in records):
                raise ValueError(f"{name} has not counted its tokens. Pass --x steps.")
            points = [record[x_key] for record in records], [record[key] for record in records]
            axes.plot(*points, marker="o" if len(records) < FEW else "", lw=1.2, ms=3, color=f"C{index}")
        axes.set(
            xlabel="tokens seen" if x == "tokens" else "updates", yscale="log" if key in LOGARITHMIC else "linear"
        )
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(alpha=0.3)
    lines = figure.axes[0].get_lines()
    legend = figure.legend(lines, list(runs), loc="outside upper center", ncols=min(len(runs), 4), frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar in a folder's name is a dollar
    return figure


ARGUMENTS = (PlotArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("plot")
    parser.add_argument("runs", nargs="+", type=Path, help="output folders of runs")
    plot_args, positional = parser.read(arguments)
    runs = dict(zip(names_of(positional.runs), map(read_run, positional.runs), strict=True))
    draw(runs, plot_args.x).savefig(plot_args.output_file, dpi=150)
    print(f"written to {plot_args.output_file}")

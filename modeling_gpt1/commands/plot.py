r"""Draws the curves of training runs: losses, perplexity, scores, learning rate, gradient norm and throughput.

    gpt1 plot runs/books --output_file curves.png
    gpt1 plot runs/small runs/large --output_file curves.png

A run is an output folder: the `trainer_state.json` of the folder or of its newest checkpoint is read, so that a run
that is still going on is drawn up to its last checkpoint, and a stopped one up to where it stopped. Needs matplotlib:
the extra `plot`.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from transformers.hf_argparser import HfArg
from transformers.trainer_utils import get_last_checkpoint

from tokenization.errors import UserError

from ..storage.writing import atomic_file
from .arguments import parser_of

# Title by metric. The scores of an evaluation are not listed: each has a panel.
PANELS = {
    "loss": "training loss",
    "task_loss": "task loss",
    "lm_loss": "auxiliary loss",
    "eval_perplexity": "held-out perplexity",
    "eval_mlm_loss": "held-out loss of masked tokens",
    "eval_denoising_loss": "held-out loss of restored tokens",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "tokens_per_second": "tokens per second",
    "mfu": "model FLOP utilisation",
}
HELD_OUT = ("eval_perplexity", "eval_mlm_loss", "eval_denoising_loss")
# Endings of what an evaluation logs beside its loss and scores.
NO_SCORES = ("_runtime", "_per_second", "_time", "_task_loss", "_lm_loss", "_lm_perplexity")
LOGARITHMIC = ("eval_perplexity", "grad_norm")
ENDINGS = (".png", ".svg", ".pdf")
LOG = "trainer_state.json"


@dataclass
class PlotArguments:
    """What to draw, and where to."""

    output_file: str = HfArg(default="curves.png", help="File of the picture, which ends in .png, .svg or .pdf.")

    def __post_init__(self):
        if not self.output_file.endswith(ENDINGS):
            raise UserError(f"--output_file {self.output_file} is no .png, .svg or .pdf. Write one of these endings.")


ARGUMENTS = (PlotArguments,)


def read_run(folder: Path) -> list[dict]:
    """The records of a run's log, from the folder's state or its newest checkpoint's, whichever has more."""
    if folder.is_file():  # the log itself
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. Pass the `--output_dir` of a run.")
    newest = get_last_checkpoint(folder)
    folders = [folder] if newest is None else [folder, Path(newest)]
    paths = [path / LOG for path in folders if (path / LOG).exists()]
    if not paths:
        raise UserError(
            f"{folder} has no log, {LOG}, which a run writes with its first checkpoint and when it ends or is "
            "interrupted. Pass the `--output_dir` of a run."
        )
    states = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return max(states, key=lambda state: state["global_step"])["log_history"]


def has_figure(record: dict, key: str) -> bool:
    """Whether a record of a log has a finite figure of a metric."""
    value = record.get(key)
    return isinstance(value, int | float) and math.isfinite(value)


def panels_of(records: list[dict]) -> dict[str, str]:
    """The title of each panel by its metric: the losses and scores of evaluations stand behind the training's losses.

    A loss of pre-training stands there as a perplexity, or under the name of its objective.
    """
    keys = dict.fromkeys(key for record in records for key in record if key.startswith("eval_"))
    scores = {key: title_of_score(key) for key in keys if key not in PANELS and not key.endswith(NO_SCORES)}
    if any(key in keys for key in HELD_OUT):
        scores.pop("eval_loss", None)
    titles = {}
    for key, title in PANELS.items():
        if key == "learning_rate":
            titles |= scores
        titles[key] = title
    return {key: title for key, title in titles.items() if any(has_figure(record, key) for record in records)}


def title_of_score(key: str) -> str:
    """What an evaluation's figure is called: `evaluation loss`, `accuracy`, `validation matched accuracy`."""
    name = key.removeprefix("eval_").replace("_", " ")
    return "evaluation loss" if name == "loss" else name


def draw(runs: dict[str, list[dict]]):
    """Draws one panel per logged metric and one colour per run. Values that are not finite are left out.

    The horizontal axis has tokens if all runs have counted them, else updates.
    """
    from matplotlib.figure import Figure  # imported only to draw

    records = [record for run in runs.values() for record in run]
    shown = panels_of(records)
    if not shown:
        raise UserError(
            f"{', '.join(runs)} has logged nothing yet. Wait, or start runs with a smaller --logging_steps."
        )
    drawn = [record for record in records if any(key in record for key in shown)]
    has_tokens = all("num_input_tokens_seen" in record for record in drawn)
    x_key, x_label = ("num_input_tokens_seen", "tokens seen") if has_tokens else ("step", "updates")
    figure = Figure(figsize=(8, 2.7 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), squeeze=False)[:, 0]
    for axes, (key, title) in zip(panels, shown.items(), strict=True):
        for name, run in runs.items():
            points = [(record[x_key], record[key]) for record in run if has_figure(record, key)]
            shown_name = f" {name}" if name.startswith("_") else name  # else matplotlib leaves it out
            axes.plot([x for x, _ in points], [y for _, y in points], ".-", label=shown_name)
        axes.set(title=title, xlabel=x_label, yscale="log" if key in LOGARITHMIC else "linear")
        axes.grid(alpha=0.3)
    figure.axes[0].legend()
    return figure


def main(arguments: list[str]) -> None:
    parser = parser_of("plot")
    parser.add_argument("runs", nargs="+", type=Path, help="Output folders of runs.")
    plot_args, positional = parser.read(arguments)
    runs = {str(folder).replace("$", r"\$"): read_run(folder) for folder in positional.runs}  # no formula
    from matplotlib import rc_context

    path = plot_args.output_file
    with rc_context({"axes.formatter.min_exponent": 4}), atomic_file(path) as file:  # 90 rather than 9 × 10¹
        draw(runs).savefig(file.buffer, dpi=150, format=path[-3:])
    print(f"written to {path}")

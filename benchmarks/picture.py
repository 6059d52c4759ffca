"""Draws the picture of `make bench`: a bar for every ratio. A separate file, so that workers need no matplotlib."""

from collections.abc import Sequence

from harness import format_summary, is_met
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter, StrMethodFormatter

COLOURS = {True: "tab:green", False: "tab:red", None: "tab:gray"}


def draw(rows: Sequence[dict]) -> Figure:
    """Draws a bar for each ratio from 1 to its median, with its spread and a black mark at its target."""
    rows = list(rows)[::-1]  # draws the first row at the top
    figure = Figure(figsize=(12, 1.4 + 0.34 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        draw_row(axes, place, row)
    axes.set_yticks(range(len(rows)), [f"{row['work']} — {row['measure']}" for row in rows], fontsize="small")
    axes.set_ylim(-0.7, len(rows) - 0.3)
    draw_scale(axes, rows)
    legend = [Patch(color=COLOURS[True], label="target met"), Patch(color=COLOURS[False], label="target missed")]
    legend.append(Patch(color=COLOURS[None], label="no target"))
    legend.append(Line2D([], [], color="black", marker="|", ls="", ms=10, mew=2.5, label="target"))
    figure.legend(handles=legend, loc="outside upper center", ncols=4, frameon=False)
    return figure


def draw_row(axes, place: int, row: dict) -> None:
    ratio = row["ratio"]
    axes.barh(place, ratio["median"] - 1, left=1, height=0.62, color=COLOURS[is_met(row)], alpha=0.75)
    axes.plot([ratio["least"], ratio["most"]], [place, place], color="black", lw=1.2)
    if row["target"] is not None:
        axes.plot(row["target"], place, color="black", marker="|", ms=13, mew=2.5)
    # The numbers stand in a separate column beside the axes, where no bar reaches.
    text = f"× {format_summary(ratio, True)}  {row['peer']}"
    axes.annotate(text, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")


def draw_scale(axes, rows: Sequence[dict]) -> None:
    """Draws a logarithmic scale, so that twice as good and half as good are equally far from 1."""
    ends = [1.0, *(row["ratio"][end] for row in rows for end in ("least", "most"))]
    ends += [row["target"] for row in rows if row["target"] is not None]
    axes.set_xscale("log")
    axes.set_xlim(min(ends) / 1.15, max(ends) * 1.15)
    ticks = [1 / 20, 1 / 10, 1 / 5, 1 / 2, 1, 2, 5, 10, 20, 50, 100, 200]
    axes.set_xticks([tick for tick in ticks if min(ends) / 1.15 <= tick <= max(ends) * 1.15])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1, color="black", lw=0.8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("how many times better than the peer (median, least … most)")

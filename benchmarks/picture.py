"""Draws the picture of `make bench`: a panel for each kind of work. A separate file: workers need no matplotlib."""

from collections.abc import Sequence
from textwrap import fill

from harness import format_summary, is_met
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter, NullLocator, StrMethodFormatter

COLOURS = {True: "tab:green", False: "tab:red"}
WIDTH, ROW, PANEL = 10, 0.42, 0.95  # inches: of the figure, of a bar, and of what a panel has besides its bars
DPI = 100  # 1,000 pixels wide
LABEL, PEER = 50, 30  # characters of a line
TICKS = (1 / 20, 1 / 10, 1 / 5, 1 / 2, 1, 2, 5, 10, 20, 50, 100, 200)


def draw(panels: dict[str, Sequence[dict]]) -> Figure:
    """Draws for each ratio a bar from 1 to its median, with its spread and a black mark at its target.

    Args:
        panels (`dict[str, Sequence[dict]]`): by the name of a kind of work, its rows, made by `harness.comparison`
            with a target.

    Returns:
        The figure, a panel below the other. All have one logarithmic scale, so that bars of two panels compare.
    """
    heights = [PANEL + ROW * len(rows) for rows in panels.values()]
    figure = Figure(figsize=(WIDTH, 0.5 + sum(heights)), dpi=DPI, layout="constrained")
    columns = figure.subplots(len(panels), height_ratios=heights, squeeze=False)[:, 0]
    ends = limits([row for rows in panels.values() for row in rows])
    for axes, (title, rows) in zip(columns, panels.items(), strict=True):
        draw_panel(axes, title, list(rows)[::-1], ends)  # draws the first row at the top
    columns[-1].set_xlabel("how many times better than the peer (median, least … most)")
    legend = [Patch(color=COLOURS[True], label="target met"), Patch(color=COLOURS[False], label="target missed")]
    legend.append(Line2D([], [], color="black", marker="|", ls="", ms=10, mew=2.5, label="target"))
    figure.legend(handles=legend, loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_panel(axes, title: str, rows: Sequence[dict], ends: tuple[float, float]) -> None:
    for place, row in enumerate(rows):
        draw_row(axes, place, row)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_yticks(range(len(rows)), [f"{fill(row['work'], LABEL)}\n{row['measure']}" for row in rows], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xscale("log")
    axes.set_xlim(*ends)
    axes.set_xticks([tick for tick in TICKS if ends[0] <= tick <= ends[1]])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color="black", lw=0.8)
    axes.grid(axis="x", alpha=0.3)


def draw_row(axes, place: int, row: dict) -> None:
    ratio = row["ratio"]
    axes.barh(place, ratio["median"] - 1, left=1, height=0.62, color=COLOURS[is_met(row)], alpha=0.75)
    axes.plot([ratio["least"], ratio["most"]], [place, place], color="black", lw=1.2)
    axes.plot(row["target"], place, color="black", marker="|", ms=13, mew=2.5)
    # The numbers stand in a separate column beside the axes, where no bar reaches.
    text = f"× {format_summary(ratio, True)}\n{fill(row['peer'], PEER)}"
    axes.annotate(text, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)


def limits(rows: Sequence[dict]) -> tuple[float, float]:
    ends = [1.0, *(row["ratio"][end] for row in rows for end in ("least", "most")), *(row["target"] for row in rows)]
    return min(ends) / 1.15, max(ends) * 1.15

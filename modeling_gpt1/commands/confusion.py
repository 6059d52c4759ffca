"""The picture of a confusion matrix: how many rows of each class are predicted as each. Needs the extra `plot`."""

import numpy as np

from ..storage.writing import atomic_file

MOST_CLASSES = 50  # whose names can be read beside each other
MOST_NUMBERS = 20  # classes whose cells have room for numbers
LONGEST_NAME = 40  # letters of a class's name that are shown


def draw_confusion(counts: np.ndarray, names: tuple[str, ...]):
    """Draws a matrix of counts, `[K, K]`: true classes downwards, predicted classes to the right.

    The colour of a cell is its share of the true class.
    """
    from matplotlib.figure import Figure  # imported only to draw

    labels = [name[:LONGEST_NAME].replace("$", r"\$") for name in names]  # no formula
    size = 3 + 0.35 * len(names)
    figure = Figure(figsize=(size, size), layout="constrained")
    axes = figure.subplots()
    shares = counts / counts.sum(1, keepdims=True).clip(min=1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), labels, rotation=90)
    axes.set_yticks(range(len(names)), labels)
    axes.set(xlabel="predicted", ylabel="true")
    if len(names) <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour)
    return figure


def write_confusion(path: str, counts: np.ndarray, names: tuple[str, ...]) -> None:
    """Writes the picture as .png."""
    with atomic_file(path) as file:
        draw_confusion(counts, names).savefig(file.buffer, dpi=150, format="png")

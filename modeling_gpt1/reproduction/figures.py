"""Positions of the points, ticks and names of the report's charts."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# Size of a chart, in SVG user units.
WIDTH, HEIGHT = 360, 236
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 44
MARK = 3.5


@dataclass(frozen=True)
class Scale:
    """Maps values to positions along an axis and has the axis's ticks.

    Args:
        low, high: ends of the axis, after `transform`.
        start, end: positions of the two ends.
        ticks: values that are labelled.
        is_log: whether the axis is logarithmic. Values of 0 or less then stand at `low`, the left end.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: Sequence[float]
    is_log: bool = False

    @property
    def digits(self) -> int:
        """Number of decimal digits that tell the ticks apart."""
        step = min(after - before for before, after in zip(self.ticks, self.ticks[1:], strict=False))
        return max(0, -math.floor(math.log10(step) + 1e-9))

    def __call__(self, value: float) -> float:
        if self.is_log:
            value = math.log10(value) if value > 0 else self.low
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def panels(figure: Mapping) -> list[list[Mapping]]:
    """The curves of each panel."""
    found: dict[str, list[Mapping]] = {}
    for series in figure["series"]:
        found.setdefault(series["panel"], []).append(series)
    return list(found.values())


def points_of(all_series: Iterable[Mapping]) -> list[Mapping]:
    return [point for series in all_series for point in series["points"]]


def style_of(series: Mapping) -> str:
    return "lstm" if series["dashed"] else "transformer"


def has_spread(point: Mapping) -> bool:
    return point["lowest"] is not None and point["lowest"] != point["highest"]


def scale_y(points: Sequence[Mapping]) -> Scale:
    values = [point[name] for point in points for name in ("y", "lowest", "highest") if point[name] is not None]
    ticks = round_ticks(min(values), max(values))
    return Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP, ticks)


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from at most `low` to at least `high`, in equal steps."""
    if high - low < 1e-6:  # a flat curve
        low, high = low - 0.05 * max(1, abs(low)), high + 0.05 * max(1, abs(high))
    power = 10 ** math.floor(math.log10((high - low) / most))
    for step in (factor * power for factor in (1, 2, 5, 10, 20)):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= most:
            break
    return [round(index * step, 10) for index in range(first, last + 1)]


def scale_x(figure: Mapping, points: Sequence[Mapping]) -> Scale:
    values = sorted({point["x"] for point in points})
    above_zero = [value for value in values if value > 0]
    if figure["x_scale"] == "log" and above_zero:
        low, high = math.log10(above_zero[0]), math.log10(above_zero[-1])
        room = max(high - low, 0.5)
        # A value measured before the first update gets its own position at the left.
        low = low - 0.25 * room if values[0] <= 0 else low - 0.02 * room
        return Scale(low, high + 0.04 * room, LEFT, WIDTH - RIGHT, log_ticks(values), is_log=True)
    room = 0.04 * max(values[-1] - values[0], 1)
    ticks = values if len(values) <= 8 else values[::2]
    return Scale(values[0] - room, values[-1] + room, LEFT, WIDTH - RIGHT, ticks)


def log_ticks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times powers of ten, or only the powers if there are many."""
    low, high = next(value for value in values if value > 0), values[-1]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 100 else (1,)
    ticks = [factor * 10**power for power in powers for factor in factors if low <= factor * 10**power <= high]
    return [*([0] if values[0] <= 0 else []), *(ticks or [low, high])]


def name_of(figure: Mapping, tick: float) -> str:
    """The name of a tick: its own name if it has one, else a number such as "2000" or "1M"."""
    if str(tick) in figure["x_names"]:
        return figure["x_names"][str(tick)]
    for unit, power in (("M", 10**6), ("k", 10**3)):
        if tick >= 10 * power or (tick >= power and tick % power == 0):
            return f"{tick / power:g}{unit}"
    return f"{tick:g}"

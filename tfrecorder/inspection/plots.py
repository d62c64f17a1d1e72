"""Plots: values in, the shapes of an SVG out; `plot.html.jinja` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Measures of every plot, in its own units; about as many pixels on a page.
WIDTH, HEIGHT = 360, 204
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 8, 22

#: Limits for the bins of a histogram, by the smallest split: few values in many bins are noise.
FEWEST_BINS, MOST_BINS = 8, 32

#: Values by split.
Series = Mapping[str, Sequence[float]]

#: Turns a value into the text at an axis.
Format = Callable[[float], str]


@dataclass(frozen=True)
class Tick:
    """A grid line from one point to another, and the text next to it.

    Attributes:
        x1, y1, x2, y2: the ends of the line, in pixels.
        words: the value there.
        x, y: where the text is.
        anchor: which part of the text is at that point, as in SVG's `text-anchor`.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    words: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Shape:
    """A path in the colour of its split.

    Attributes:
        split: whose values it shows.
        kind: curve or area, as the style sheet names them.
        path: as in the attribute `d` of an SVG path.
    """

    split: str
    kind: str
    path: str


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes:
        title: above the plot.
        description: the plot in words, for those who cannot see it.
        ticks: the ticks of both axes.
        shapes: the shapes of all splits.
        note: below the plot; empty if there is nothing to say.
        width, height: in pixels.
    """

    title: str
    description: str
    ticks: Sequence[Tick]
    shapes: Sequence[Shape]
    note: str = ""
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True)
class Axis:
    """A range of values mapped to a range of pixels.

    Attributes:
        low, high: the range of values.
        start, end: the range of pixels.
    """

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value is, in pixels."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the range, about five."""
        step = _round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= size * (1 - 1e-9))


def histogram(
    series: Series, form: Format, title: str, span: tuple[float, float] | None = None
) -> Plot:
    """The distribution of each split's values, as shares of the split.

    Args:
        series: values by split.
        form: how a value is written at the axis.
        title: the plot's title.
        span: the range of the axis.  By default it runs from the 1st to the 99th percentile of all
            values, and those outside it are counted below the plot: otherwise one huge image would
            squeeze all others into one bar.
    """
    values = np.concatenate([np.asarray(numbers, dtype=float) for numbers in series.values()])
    low, high = span or _middle(values)
    margin = 0.0 if high - low > 1e-9 else 0.5  # an axis has some length even for one value
    axis = Axis(low - margin, high + margin, _LEFT, WIDTH - _RIGHT)
    fewest = min(len(numbers) for numbers in series.values() if len(numbers))
    bins = min(max(int(2 * math.sqrt(fewest)), FEWEST_BINS), MOST_BINS)
    edges = np.linspace(axis.low, axis.high, bins + 1)
    shares = {
        split: np.histogram(numbers, edges)[0] / len(numbers)
        for split, numbers in series.items()
        if len(numbers)
    }
    most = max(float(of_split.max()) for of_split in shares.values())
    up = Axis(0, most * 1.05, HEIGHT - _BOTTOM, _TOP)
    largest = max(shares, key=lambda split: len(series[split]))
    curves = []
    for split, of_split in shares.items():
        path = _steps(of_split, edges, axis, up)
        kinds = ("area", "curve") if split == largest else ("curve",)
        curves += [Shape(split, kind, path) for kind in kinds]
    ticks = _ticks(axis, up, form)
    return Plot(title, _described(series, form), ticks, curves, _beyond(values, low, high, form))


def _middle(values: np.ndarray) -> tuple[float, float]:
    """The 1st and the 99th percentile, both actual values; with fewer than a hundred, the ends."""
    low = np.percentile(values, 1, method="lower")
    return float(low), float(np.percentile(values, 99, method="higher"))


def _beyond(values: np.ndarray, low: float, high: float, form: Format) -> str:
    """How many values a histogram leaves out, and how far out they are."""
    below, above = values[values < low], values[values > high]
    parts = []
    if len(below):
        parts.append(f"{len(below):,} below {form(low)}, down to {form(float(below.min()))}")
    if len(above):
        parts.append(f"{len(above):,} above {form(high)}, up to {form(float(above.max()))}")
    return f"not shown: {'; '.join(parts)}" if parts else ""


def _steps(shares: np.ndarray, edges: np.ndarray, axis: Axis, up: Axis) -> str:
    points = [f"M{axis.place(edges[0]):.1f} {up.place(0):.1f}"]
    for share, end in zip(shares, edges[1:], strict=True):
        points.append(f"V{up.place(float(share)):.1f}H{axis.place(float(end)):.1f}")
    return "".join(points) + f"V{up.place(0):.1f}"


def _ticks(across: Axis, up: Axis, form: Format) -> list[Tick]:
    """Grid lines and the text next to them, those of the vertical axis, of shares, first."""
    left, right, bottom = float(_LEFT), float(WIDTH - _RIGHT), float(HEIGHT - _BOTTOM)
    ticks = []
    for value in up.ticks():
        y = up.place(value)
        ticks.append(Tick(left, y, right, y, f"{value:.0%}", left - 6, y + 3.5, "end"))
    for value in across.ticks():
        x = across.place(value)
        words = form(value)
        ticks.append(Tick(x, bottom, x, bottom + 4, words, x, bottom + 16, "middle"))
    return ticks


def _described(series: Series, form: Format) -> str:
    """The plot in words."""
    return "; ".join(
        f"{split}: {form(min(own))} to {form(max(own))}, median {form(float(np.median(own)))}"
        for split, own in series.items()
        if len(own)
    )


def of_split(split: str) -> str:
    """The style sheet's class that gives a split its colour."""
    name = split.lower() if split in ("TRAIN", "VALIDATION", "TEST") else "other"
    return f"of-{name}"

"""Plots: values in, the shapes of an SVG out; `plot.html.jinja` draws them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: The edges of every plot within its picture of 360 x 204, in its own units; about as many pixels
#: on a page.
_LEFT = 40
_RIGHT = 352
_TOP = 8
_BOTTOM = 182

#: Limits for the bins of a histogram, by the smallest split: few values in many bins are noise.
FEWEST_BINS = 8
MOST_BINS = 32

#: Values by split; each split has some.
Series = Mapping[str, Sequence[float]]

#: Turns a value into the text at an axis.
Format = Callable[[float], str]


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes:
        title: above the plot.
        description: the plot in words, for those who cannot see it.
        across, up: where the ticks of each axis are, in pixels, and the text at each.
        curves: a path for each split, as in the attribute `d` of an SVG path.
        largest: the split with the most values, whose curve is filled.
        note: below the plot; empty if there is nothing to say.
    """

    title: str
    description: str
    across: Sequence[tuple[float, str]]
    up: Sequence[tuple[float, str]]
    curves: Mapping[str, str]
    largest: str
    note: str


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

    def ticks(self, form: Format) -> list[tuple[float, str]]:
        """Where round values within the range are, about five, and the text at each."""
        size = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(size))
        step = next(
            step * power for step in (1, 2, 2.5, 5, 10) if step * power >= size * (1 - 1e-9)
        )
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [number * step for number in range(first, last + 1)]
        return [(self.place(value), form(value)) for value in values]


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
    axis = Axis(low - margin, high + margin, _LEFT, _RIGHT)
    fewest = min(map(len, series.values()))
    bins = min(max(int(2 * math.sqrt(fewest)), FEWEST_BINS), MOST_BINS)
    edges = np.linspace(axis.low, axis.high, bins + 1)
    shares = {
        split: np.histogram(numbers, edges)[0] / len(numbers) for split, numbers in series.items()
    }
    most = max(float(of_split.max()) for of_split in shares.values())
    up = Axis(0, most * 1.05, _BOTTOM, _TOP)
    return Plot(
        title=title,
        description=_described(series, form),
        across=axis.ticks(form),
        up=up.ticks("{:.0%}".format),
        curves={split: _steps(of_split, edges, axis, up) for split, of_split in shares.items()},
        largest=max(shares, key=lambda split: len(series[split])),
        note=_beyond(values, low, high, form),
    )


def _middle(values: np.ndarray) -> tuple[float, float]:
    """The 1st and the 99th percentile, both actual values; with fewer than a hundred, the ends."""
    low = np.percentile(values, 1, method="lower")
    return float(low), float(np.percentile(values, 99, method="higher"))


def _beyond(values: np.ndarray, low: float, high: float, form: Format) -> str:
    """How many values a histogram leaves out, and how far out they are."""
    below = values[values < low]
    above = values[values > high]
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


def _described(series: Series, form: Format) -> str:
    """The plot in words."""
    return "; ".join(
        f"{split}: {form(min(own))} to {form(max(own))}, median {form(float(np.median(own)))}"
        for split, own in series.items()
    )


def of_split(split: str) -> str:
    """The style sheet's class that gives a split its colour."""
    name = split.lower() if split in ("TRAIN", "VALIDATION", "TEST") else "other"
    return f"of-{name}"

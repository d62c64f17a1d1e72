"""Plots: values in, the shapes of an SVG out; `plot.html.jinja` draws them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

#: Measures of every plot, in its own units; about as many pixels on a page.
WIDTH, HEIGHT = 360, 204
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 8, 22

#: Limits for the bins of a histogram, by the smallest split: few values in many bins are noise.
FEWEST_BINS, MOST_BINS = 8, 32

#: If the largest value is more than this many times the smallest, an axis is logarithmic.
_LOG_RATIO = 8

#: Values by split.
Series = Mapping[str, Sequence[float]]

#: Turns a value into the text at an axis.
Words = Callable[[float], str]


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
        kind: curve, area or dots, as the style sheet names them.
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
        low, high: the range of values; their logarithms on a logarithmic axis.
        start, end: the range of pixels.
        log: whether the axis is logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool

    def place(self, value: float) -> float:
        """Where a value is, in pixels."""
        at = math.log(value) if self.log else value
        share = (at - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def edges(self, bins: int) -> np.ndarray:
        """The bounds of bins that are equally wide on the page."""
        edges = np.linspace(self.low, self.high, bins + 1)
        return np.exp(edges) if self.log else edges

    def ticks(self) -> list[float]:
        """Round values within the range, about five."""
        return self._log_ticks() if self.log else self._linear_ticks()

    def _linear_ticks(self) -> list[float]:
        step = _round_step((self.high - self.low) / 4)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        low, high = math.exp(self.low) * (1 - 1e-9), math.exp(self.high) * (1 + 1e-9)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = [step * 10.0**power for power in powers for step in steps]
            ticks = [tick for tick in ticks if low <= tick <= high]
            if len(ticks) <= 6:
                return ticks
        return ticks[:: -(-len(ticks) // 6)]


def _axis(low: float, high: float, start: float, end: float, log: bool = False) -> Axis:
    """An axis that has some length even if all values are the same."""
    if log:
        low, high = math.log(low), math.log(high)
    room = 0.5 if high - low < 1e-9 else 0.0
    return Axis(low - room, high + room, start, end, log)


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= size * (1 - 1e-9))


def histogram(
    series: Series, words: Words, title: str, span: tuple[float, float] | None = None
) -> Plot:
    """The distribution of each split's values, as shares of the split.

    Args:
        series: values by split.
        words: how a value is written at the axis.
        title: the plot's title.
        span: the range of the axis.  By default it runs from the 1st to the 99th percentile of all
            values, and those outside it are counted below the plot: otherwise one huge image would
            squeeze all others into one bar.
    """
    values = np.concatenate([np.asarray(some, dtype=float) for some in series.values()])
    low, high = span or _middle(values)
    axis = _axis(low, high, _LEFT, WIDTH - _RIGHT, log=not span and _is_wide(low, high))
    edges = axis.edges(_bins(min(len(some) for some in series.values() if len(some))))
    shares = {
        split: np.histogram(_within(some, low, high, edges), edges)[0] / len(some)
        for split, some in series.items()
        if len(some)
    }
    most = max(float(of_split.max()) for of_split in shares.values())
    up = _axis(0, most * 1.05, HEIGHT - _BOTTOM, _TOP)
    largest = max(shares, key=lambda split: len(series[split]))
    curves = []
    for split, of_split in shares.items():
        path = _steps(of_split, edges, axis, up)
        kinds = ("area", "curve") if split == largest else ("curve",)
        curves += [Shape(split, kind, path) for kind in kinds]
    ticks = _ticks(axis, up, words, lambda share: f"{share:.0%}")
    return Plot(title, _described(series, words), ticks, curves, _beyond(values, low, high, words))


def _middle(values: np.ndarray) -> tuple[float, float]:
    """The 1st and the 99th percentile, both actual values; with fewer than a hundred, the ends."""
    low = np.percentile(values, 1, method="lower")
    return float(low), float(np.percentile(values, 99, method="higher"))


def _within(some: Sequence[float], low: float, high: float, edges: np.ndarray) -> np.ndarray:
    kept = np.asarray(some, dtype=float)
    kept = kept[(kept >= low) & (kept <= high)]
    return np.clip(kept, edges[0], edges[-1])  # taking the logarithm and back may miss an end


def _beyond(values: np.ndarray, low: float, high: float, words: Words) -> str:
    """How many values a histogram leaves out, and how far out they are."""
    below, above = values[values < low], values[values > high]
    parts = []
    if len(below):
        parts.append(f"{len(below):,} below {words(low)}, down to {words(float(below.min()))}")
    if len(above):
        parts.append(f"{len(above):,} above {words(high)}, up to {words(float(above.max()))}")
    return f"not shown: {'; '.join(parts)}" if parts else ""


def _is_wide(low: float, high: float) -> bool:
    return low > 0 and high / low > _LOG_RATIO


def _bins(values: int) -> int:
    return min(max(int(2 * math.sqrt(values)), FEWEST_BINS), MOST_BINS)


def _steps(shares: np.ndarray, edges: np.ndarray, axis: Axis, up: Axis) -> str:
    points = [f"M{axis.place(edges[0]):.1f} {up.place(0):.1f}"]
    for share, end in zip(shares, edges[1:], strict=True):
        points.append(f"V{up.place(float(share)):.1f}H{axis.place(float(end)):.1f}")
    return "".join(points) + f"V{up.place(0):.1f}"


def scatter(series: Mapping[str, Sequence[tuple[int, int]]], title: str) -> Plot:
    """Width and height of each split as dots, larger where more images share a place."""
    pairs = [pair for some in series.values() for pair in some]
    axes = []
    for place, (start, end) in enumerate(((_LEFT, WIDTH - _RIGHT), (HEIGHT - _BOTTOM, _TOP))):
        low, high = (pick(pair[place] for pair in pairs) for pick in (min, max))
        wide = _is_wide(low, high)
        room = (low / 1.15, high * 1.15) if wide else _roomy(low, high)
        axes.append(_axis(*room, start, end, log=wide))
    across, up = axes
    dots = [_dots(split, some, across, up) for split, some in series.items()]
    ticks = _ticks(across, up, _number, _number)
    words = "; ".join(
        f"{split}: {min(w for w, _ in some):,} to {max(w for w, _ in some):,} wide, "
        f"{min(h for _, h in some):,} to {max(h for _, h in some):,} high"
        for split, some in series.items()
        if some
    )
    return Plot(title, words, ticks, dots)


def _roomy(low: float, high: float) -> tuple[float, float]:
    room = (high - low) * 0.06 or max(high * 0.1, 1)
    return max(low - room, 0), high + room


def _dots(split: str, pairs: Sequence[tuple[int, int]], across: Axis, up: Axis) -> Shape:
    """All dots of a split as one path: for each 2-pixel place, a circle made of two arcs."""
    at = Counter((round(across.place(x) / 2) * 2, round(up.place(y) / 2) * 2) for x, y in pairs)
    path = "".join(
        f"M{x - radius:g} {y}a{radius:g} {radius:g} 0 1 0 {2 * radius:g} 0"
        f"a{radius:g} {radius:g} 0 1 0 {-2 * radius:g} 0"
        for (x, y), count in at.items()
        for radius in [round(min(2 + math.sqrt(count / len(pairs)) * 8, 9), 1)]
    )
    return Shape(split, "dots", path)


def _ticks(across: Axis, up: Axis, across_words: Words, up_words: Words) -> list[Tick]:
    """Grid lines and the text next to them, those of the vertical axis first."""
    left, right, bottom = float(_LEFT), float(WIDTH - _RIGHT), float(HEIGHT - _BOTTOM)
    ticks = []
    for value in up.ticks():
        y = up.place(value)
        ticks.append(Tick(left, y, right, y, up_words(value), left - 6, y + 3.5, "end"))
    for value in across.ticks():
        x = across.place(value)
        words = across_words(value)
        ticks.append(Tick(x, bottom, x, bottom + 4, words, x, bottom + 16, "middle"))
    return ticks


def _described(series: Series, words: Words) -> str:
    """The plot in words."""
    return "; ".join(
        f"{split}: {words(min(some))} to {words(max(some))}, median {words(float(np.median(some)))}"
        for split, some in series.items()
        if len(some)
    )


def _number(value: float) -> str:
    return f"{value:,.0f}"


def of_split(split: str) -> str:
    """The style sheet's class that gives a split its colour."""
    known = split.lower() if split in ("TRAIN", "VALIDATION", "TEST") else "other"
    return f"of-{known}"

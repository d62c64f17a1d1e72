"""Plots as inline SVG: values in, markup out; colours and type are the style sheet's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tfrecorder.inspection.markup import Html, element, join

#: Of every plot, in its own units; about as many pixels on a page.
WIDTH, HEIGHT = 360, 204
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 8, 8, 22

#: Of a histogram, by the smallest split: few values in many bins are noise.
FEWEST_BINS, MOST_BINS = 8, 32

#: Beyond this ratio of the largest to the smallest value an axis is logarithmic.
_LOG_RATIO = 8

#: Values by split.
Series = Mapping[str, Sequence[float]]

#: A value as the words beside an axis.
Words = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """A range of values laid on a range of pixels.

    Attributes:
        low, high: of the values; their logarithms on a logarithmic axis.
        start, end: of the pixels.
        log: whether it is logarithmic.
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
    """An axis that has some length even where all values are the same."""
    if log:
        low, high = math.log(low), math.log(high)
    room = 0.5 if high - low < 1e-9 else 0.0
    return Axis(low - room, high + room, start, end, log)


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= size * (1 - 1e-9))


def histogram(
    series: Series, words: Words, title: str, span: tuple[float, float] | None = None
) -> Html:
    """How the values of each split are spread, as shares of the split.

    Args:
        series: values by split.
        words: how a value is written at the axis.
        title: of the plot.
        span: the range of the axis; by the values, if not given.
    """
    values = np.concatenate([np.asarray(some, dtype=float) for some in series.values()])
    low, high = span or (float(values.min()), float(values.max()))
    axis = _axis(low, high, _LEFT, WIDTH - _RIGHT, log=not span and _is_wide(low, high))
    edges = axis.edges(_bins(min(len(some) for some in series.values() if len(some))))
    shares = {
        split: np.histogram(np.clip(some, edges[0], edges[-1]), edges)[0] / len(some)
        for split, some in series.items()
        if len(some)
    }
    most = max(float(of_split.max()) for of_split in shares.values())
    up = _axis(0, most * 1.05, HEIGHT - _BOTTOM, _TOP)
    largest = max(shares, key=lambda split: len(series[split]))
    curves = [
        _steps(split, of_split, edges, axis, up, filled=split == largest)
        for split, of_split in shares.items()
    ]
    frame = _frame(axis, up, words, lambda share: f"{share:.0%}")
    return _plot(title, _described(series, words), frame, *curves)


def _is_wide(low: float, high: float) -> bool:
    return low > 0 and high / low > _LOG_RATIO


def _bins(values: int) -> int:
    return min(max(int(2 * math.sqrt(values)), FEWEST_BINS), MOST_BINS)


def _steps(
    split: str, shares: np.ndarray, edges: np.ndarray, axis: Axis, up: Axis, filled: bool
) -> Html:
    points = [f"M{axis.place(edges[0]):.1f} {up.place(0):.1f}"]
    for share, end in zip(shares, edges[1:], strict=True):
        points.append(f"V{up.place(float(share)):.1f}H{axis.place(float(end)):.1f}")
    path = "".join(points) + f"V{up.place(0):.1f}"
    return element(
        "g",
        element("path", class_="area", d=path) if filled else None,
        element("path", class_="curve", d=path),
        class_=of_split(split),
    )


def scatter(series: Mapping[str, Sequence[tuple[int, int]]], title: str) -> Html:
    """Width and height of each split as dots, larger where more fall on one place."""
    pairs = [pair for some in series.values() for pair in some]
    axes = []
    for place, (start, end) in enumerate(((_LEFT, WIDTH - _RIGHT), (HEIGHT - _BOTTOM, _TOP))):
        low, high = (pick(pair[place] for pair in pairs) for pick in (min, max))
        wide = _is_wide(low, high)
        room = (low / 1.15, high * 1.15) if wide else _roomy(low, high)
        axes.append(_axis(*room, start, end, log=wide))
    across, up = axes
    dots = [_dots(split, some, across, up) for split, some in series.items()]
    frame = _frame(across, up, _number, _number)
    words = "; ".join(
        f"{split}: {min(w for w, _ in some):,} to {max(w for w, _ in some):,} wide, "
        f"{min(h for _, h in some):,} to {max(h for _, h in some):,} high"
        for split, some in series.items()
        if some
    )
    return _plot(title, words, frame, *dots)


def _roomy(low: float, high: float) -> tuple[float, float]:
    room = (high - low) * 0.06 or max(high * 0.1, 1)
    return max(low - room, 0), high + room


def _dots(split: str, pairs: Sequence[tuple[int, int]], across: Axis, up: Axis) -> Html:
    """All dots of a split as one path: a circle of two arcs for each place of two pixels."""
    at = Counter((round(across.place(x) / 2) * 2, round(up.place(y) / 2) * 2) for x, y in pairs)
    path = "".join(
        f"M{x - radius:g} {y}a{radius:g} {radius:g} 0 1 0 {2 * radius:g} 0"
        f"a{radius:g} {radius:g} 0 1 0 {-2 * radius:g} 0"
        for (x, y), count in at.items()
        for radius in [round(min(2 + math.sqrt(count / len(pairs)) * 8, 9), 1)]
    )
    return element("path", class_=f"dots {of_split(split)}", d=path)


def _frame(across: Axis, up: Axis, across_words: Words, up_words: Words) -> Html:
    """Grid lines and the words beside them."""
    bottom = HEIGHT - _BOTTOM
    parts = []
    for tick in up.ticks():
        y = up.place(tick)
        parts.append(element("line", class_="grid", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y))
        parts.append(_text(up_words(tick), _LEFT - 6, y + 3.5, "end"))
    for tick in across.ticks():
        x = across.place(tick)
        parts.append(element("line", class_="grid", x1=x, x2=x, y1=bottom, y2=bottom + 4))
        parts.append(_text(across_words(tick), x, bottom + 16, "middle"))
    return join(*parts)


def _text(words: str, x: float, y: float, anchor: str) -> Html:
    return element("text", words, x=float(x), y=float(y), text_anchor=anchor)


def _plot(title: str, description: str, *parts: Html) -> Html:
    picture = element(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}. {description}",
    )
    return element("figure", element("figcaption", title), picture, class_="plot")


def _described(series: Series, words: Words) -> str:
    """The plot in words: what a reader who does not see it is told."""
    return "; ".join(
        f"{split}: {words(min(some))} to {words(max(some))}, median {words(float(np.median(some)))}"
        for split, some in series.items()
        if len(some)
    )


def _number(value: float) -> str:
    return f"{value:,.0f}"


def of_split(split: str) -> str:
    """The class of the style sheet that gives a split its colour."""
    known = split.lower() if split in ("TRAIN", "VALIDATION", "TEST") else "other"
    return f"of-{known}"


def legend(splits: Sequence[str]) -> Html:
    """Which colour is which split."""
    keys = [
        element("span", element("span", class_=f"key {of_split(split)}"), split) for split in splits
    ]
    return element("p", *keys, class_="legend")

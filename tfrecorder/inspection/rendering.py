"""Values to HTML: templates by Jinja, and plots as the shapes of an SVG.

Every value is escaped, and a missing name is an error.  `plot.html.jinja` draws the plots.
"""

from __future__ import annotations

import base64
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrecorder.display.tables import readable_bytes
from tfrecorder.inspection.record_values import Box, RecordView, colour_of

if TYPE_CHECKING:
    from jinja2 import Environment

#: Characters that HTML forbids or that move the cursor.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def render(template: str, **values: Any) -> str:
    """Fill in a template from `templates/`."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tfrecorder.inspection"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "base64": lambda data: base64.b64encode(data).decode("ascii"),
        "coordinate": "{:.5g}".format,
        "number": "{:,}".format,
        "percent": "{:.1%}".format,
        "readable_bytes": readable_bytes,
        "of_split": of_split,
        "box_colours": box_colours,
        "colour_of": colour_of,
        "source_row": source_row,
    }
    return environment


def _visible(value: Any) -> Any:
    """What a template prints: another template's markup as it is, text without control characters.

    Jinja calls it for each value before it escapes the value.
    """
    return value if hasattr(value, "__html__") else _CONTROL.sub(_picture, str(value))


def _picture(match: re.Match[str]) -> str:
    """A control character as Unicode's picture of it, from U+2400."""
    return chr(0x2400 + ord(match[0])) if match[0] < " " else "�"


def source_row(view: RecordView) -> str:
    """Where a record came from: its row in the source, else its number in its split."""
    return f"row {view.row}" if view.row else f"record {view.number:,}"


def box_colours(boxes: Sequence[Box]) -> dict[str, str]:
    """The colour of each class of object in a picture."""
    return {box.name: box.colour for box in sorted(boxes, key=lambda box: box.name)}


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
    series: Series,
    form: Format,
    title: str,
    span: tuple[float, float] | None = None,
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
    # An axis has some length even for one value, and no two ticks are the same.
    margin = 0.0 if form(low) != form(high) else 0.5
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
        description=_plot_in_words(series, form),
        across=[(axis.place(low), form(low))] if margin else axis.ticks(form),
        up=up.ticks("{:.0%}".format),
        curves={split: _steps(of_split, edges, axis, up) for split, of_split in shares.items()},
        largest=max(shares, key=lambda split: len(series[split])),
        note=_beyond(values, low, high, form),
    )


def _middle(values: np.ndarray) -> tuple[float, float]:
    """The 1st and the 99th percentile, both actual values; with fewer than a hundred, the ends."""
    low = np.percentile(values, 1, method="lower")
    return float(low), float(np.percentile(values, 99, method="higher"))


def _beyond(
    values: np.ndarray,
    low: float,
    high: float,
    form: Format,
) -> str:
    """How many values a histogram leaves out, and how far out they are."""
    below = values[values < low]
    above = values[values > high]
    parts = []
    if len(below) and form(low) != form(float(below.min())):
        parts.append(f"{len(below):,} below {form(low)}, down to {form(float(below.min()))}")
    if len(above) and form(high) != form(float(above.max())):
        parts.append(f"{len(above):,} above {form(high)}, up to {form(float(above.max()))}")
    return f"not shown: {'; '.join(parts)}" if parts else ""


def _steps(
    shares: np.ndarray,
    edges: np.ndarray,
    axis: Axis,
    up: Axis,
) -> str:
    points = [f"M{axis.place(edges[0]):.1f} {up.place(0):.1f}"]
    for share, end in zip(shares, edges[1:], strict=True):
        points.append(f"V{up.place(float(share)):.1f}H{axis.place(float(end)):.1f}")
    return "".join(points) + f"V{up.place(0):.1f}"


def _plot_in_words(series: Series, form: Format) -> str:
    """The plot in words."""
    return "; ".join(
        f"{split}: {form(min(own))} to {form(max(own))}, median {form(float(np.median(own)))}"
        for split, own in series.items()
    )


def of_split(split: str) -> str:
    """The style sheet's class that gives a split its colour."""
    name = split.lower() if split in ("TRAIN", "VALIDATION", "TEST") else "other"
    return f"of-{name}"

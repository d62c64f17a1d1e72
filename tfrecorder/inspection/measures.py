"""How large and how bright the images of a dataset are, and which of them are unlike the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from tfrecorder.display.tables import counted
from tfrecorder.inspection.record_values import RecordView

#: The grey levels of a near-constant image, and of one of low contrast, from 0 to 255, deviate by
#: less from their mean.
NEAR_CONSTANT = 4.0
LOW_CONTRAST = 8.0

#: Nearly all pixels of a dark image are below the first grey level, of a bright one above the
#: second.
_DARK = 64
_BRIGHT = 192

#: An image is of an odd size if it is so many times smaller or larger than the median, and of an
#: odd shape if its longer side is, measured by its shorter one, so many times as long.
_SIZES = 4
_SHAPES = 3

#: An image is blurred if it has more of `blur_of`.  None of 215 sharp photographs had more than
#: 0.53; smoothed by a Gaussian of 4 pixels, 95 % of 202 had more than 0.69.
_BLURRED = 0.6

_COLUMNS = ["split", "number", "row", "height", "width", "brightness", "contrast"]


class Unusual(NamedTuple):
    """Some images that are unlike others.

    Attributes:
        name: what they are, in a word or two.
        words: how that is meant.
        images: rows of `measured`, the oddest first.
        among: how many images were looked at, in words; "" for all that are known.
    """

    name: str
    words: str
    images: pd.DataFrame
    among: str = ""


def measured(looks: pd.DataFrame | None, seen: Iterable[RecordView]) -> pd.DataFrame:
    """The images whose size and grey levels are known.

    Args:
        looks: what the tables know of all images, as `looks_of` gives it; None if there is nothing.
        seen: the records that were decoded; what the tables do not know is known of these.

    Returns:
        A row for each: its `split`, `number` and `row`; `height` and `width` in pixels, of its file
        or, if the tables do not know it, of its record; `brightness` and `contrast`, mean and
        deviation of the grey levels from 0 to 255.
    """
    views = ([getattr(view, name) for name in _COLUMNS] for view in seen if view.width)
    images = pd.DataFrame(views, columns=_COLUMNS)
    if looks is not None:
        levels = {"brightness": looks["mean"] / 100, "contrast": looks["deviation"] / 100}
        noted = looks.assign(**levels)[_COLUMNS].dropna()
        images = pd.concat([noted, images]).drop_duplicates(["split", "number"])
    return images.astype(dict.fromkeys(_COLUMNS[3:], float)).reset_index(drop=True)


def unusual(images: pd.DataFrame) -> list[Unusual]:
    """The images that are unlike others; of several kinds that an image is of, the first."""
    if images.empty:
        return []
    sides = images[["height", "width"]]
    brightness = images["brightness"]
    contrast = images["contrast"]
    shorter = sides.min(axis=1)
    shape = sides.max(axis=1) / sides.min(axis=1)
    side = shorter.median()
    ratio = shape.median()
    small = side / _SIZES
    large = side * _SIZES
    levels = "their grey levels vary by less than {:g} of 255"
    pixels = "nearly all of their pixels are {} the grey level {} of 255"
    odd_side = f"their shorter side is below {small:,.0f} or above {large:,.0f} pixels"
    odd_shape = f"their sides stand at more than {ratio * _SHAPES:.1f} : 1"
    # Of each kind what must be below 0.
    kinds = {
        ("near-constant", levels.format(NEAR_CONSTANT)): contrast - NEAR_CONSTANT,
        ("of low contrast", levels.format(LOW_CONTRAST)): contrast - LOW_CONTRAST,
        ("dark", pixels.format("below", _DARK)): brightness + 2 * contrast - _DARK,
        ("bright", pixels.format("above", _BRIGHT)): _BRIGHT - brightness + 2 * contrast,
        ("of an odd size", f"{odd_side}, the median is {side:,.0f}"): (
            np.log(_SIZES) - np.log(shorter / side).abs()
        ),
        ("of an odd shape", f"{odd_shape}, the median at {ratio:.1f} : 1"): (
            _SHAPES * ratio - shape
        ),
    }
    groups = []
    rest = pd.Series(True, images.index)
    for (name, words), excess in kinds.items():
        chosen = excess[rest & (excess < 0)].sort_values(kind="stable").index
        rest[chosen] = False
        if len(chosen):
            groups.append(Unusual(name, words, images.loc[chosen]))
    return groups


def blurred(seen: Iterable[RecordView]) -> list[Unusual]:
    """The blurred images among those of which that is known."""
    columns = [*_COLUMNS, "blur"]
    views = [[getattr(view, name) for name in columns] for view in seen if view.blur is not None]
    images = pd.DataFrame(views, columns=columns).sort_values("blur", ascending=False)
    chosen = images[images["blur"] > _BLURRED]
    words = "smoothing hardly changes their edges"
    among = counted(len(views), "image") + " looked at in full size"
    return [Unusual("blurred", words, chosen, among)] if len(chosen) else []

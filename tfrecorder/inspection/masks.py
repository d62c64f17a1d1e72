"""Masks as people see them: outlined over their picture, and compared with its boxes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

from tfrecorder.images import pixels
from tfrecorder.inspection.record_values import PALETTE, Box

#: Means to leave a pixel out, beside other values than 0.
VOID = 255

#: The filters' reach, of which an outline gets half, and how strongly what is within is tinted.
_REACH = 5
_TINT = 0.15

#: Pixels of a stripe.
_STRIPE = 3

#: A box is beside the mask's objects if they have less than this share of its area.
_HARDLY = 0.01


def mask_in(data: bytes) -> Image.Image:
    """The numbers of a mask's pixels; of one with a palette, its colours' numbers.

    Raises:
        ValueError: nothing decodes the mask.
    """
    image = pixels.picture(data)
    return Image.fromarray(np.asarray(image if image.mode == "P" else image.convert("L")))


def levels_in(statistics: Mapping[str, Any], column: str) -> list[int]:
    """The values of a column of masks."""
    splits = statistics.get(column, {}).values()
    return sorted({value for figures in splits for value in figures.get("shares", ())})


def has_void(levels: Collection[int]) -> bool:
    """Whether 255 stands for pixels to leave out, by the values of masks."""
    return VOID in levels and not {*levels} <= {0, VOID}


def outlined(
    picture: Image.Image,
    mask: Image.Image,
    levels: Collection[int],
) -> Image.Image:
    """A picture with the outlines of its mask: 0 is not drawn, and 255 is striped where it is void.

    Args:
        picture: RGB.
        levels: the values of all masks of the dataset; if empty, those of this one count.
    """
    small = mask.resize(picture.size, Image.Resampling.NEAREST)
    numbers = np.asarray(small, int)
    highest, lowest = (
        np.asarray(small.filter(extreme(_REACH)))
        for extreme in (ImageFilter.MaxFilter, ImageFilter.MinFilter)
    )
    weight = np.where(highest != lowest, 1.0, _TINT) * (numbers > 0)
    colours = np.array(PALETTE, np.float32)[(numbers - 1) % len(PALETTE)]
    if has_void(levels or np.unique(numbers).tolist()):
        void = numbers == VOID
        stripes = np.indices(numbers.shape).sum(axis=0) // _STRIPE % 2
        colours[void] = 255 * stripes[void][:, None]
        weight[void] = 1
    under = np.asarray(picture, np.float32)
    return Image.fromarray((under + (colours - under) * weight[..., None]).astype(np.uint8))


def beside_mask(
    boxes: Sequence[Box],
    mask: Image.Image,
    levels: Collection[int],
) -> tuple[Box, ...]:
    """The boxes that hold (nearly) nothing of a mask but 0 and what is void."""
    table = [value > 0 for value in range(256)]
    table[VOID] = not has_void(levels or np.unique(np.asarray(mask)).tolist())
    objects = mask.point(table)
    width, height = mask.size
    beside = []
    for box in boxes:
        edges = box.xmin * width, box.ymin * height, box.xmax * width, box.ymax * height
        part = np.asarray(objects.crop(edges), int)
        if part.sum() < _HARDLY * part.size:
            beside.append(box)
    return tuple(beside)

"""Masks as people see them: outlined over their picture, and compared with its boxes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from tfrecorder.images import pixels
from tfrecorder.images.header import sniff
from tfrecorder.inspection.record_values import PALETTE, Box

#: Means to leave a pixel out, beside other values than 0.
VOID = 255

#: How strongly the pixels within an outline are tinted.
_TINT = 0.15

#: The outline's width is the picture's longer side by this, and a stripe has so many pixels.
_THIN = 128
_STRIPE = 3

#: A box is beside the mask's objects if they have less than this share of its area.
_HARDLY = 0.01


def classes_in(mask: bytes) -> np.ndarray:
    """The numbers of a mask's pixels.

    Args:
        mask: an encoded image of class numbers; of one with a palette, its colours' numbers.

    Raises:
        ValueError: nothing decodes the mask.
    """
    if sniff(mask) == "png":
        numbers = pixels.samples_of(mask)
        if numbers.shape[-1] == 1:
            return numbers[..., 0]
    image = pixels.picture(mask)
    return np.asarray(image if image.mode in ("P", "L") else image.convert("L"))


def levels_in(statistics: Mapping[str, Any], column: str) -> dict[int, float]:
    """The values of a column of masks, each with its largest share of the pixels of a split."""
    levels: dict[int, float] = {}
    for stats in statistics.get(column, {}).values():
        for value, share in stats.get("shares", {}).items():
            levels[value] = max(share, levels.get(value, 0.0))
    return dict(sorted(levels.items()))


def is_void(value: int, levels: Collection[int]) -> bool:
    """Whether a value stands for pixels to leave out, by all values of the masks."""
    return value == VOID and any(level not in (0, VOID) for level in levels)


def colour_of(value: int) -> tuple[int, int, int]:
    """The colour in which a value is outlined."""
    return PALETTE[(value - 1) % len(PALETTE)]


def outlined(
    picture: Image.Image,
    classes: np.ndarray,
    levels: Collection[int],
) -> Image.Image:
    """A picture with the outlines of its mask.

    0 is not drawn, and 255 is striped where it is void.

    Args:
        picture: RGB.
        classes: of the pixels of the mask, which may have another size.
        levels: the values of all masks of the dataset.
    """
    height, width = classes.shape
    down = np.arange(picture.height) * height // picture.height
    across = np.arange(picture.width) * width // picture.width
    classes = classes[down][:, across].astype(int)
    void = (classes == VOID) & is_void(VOID, {*levels, *np.unique(classes).tolist()})
    is_drawn = (classes > 0) & ~void
    edge = is_drawn & _differs(classes, max(1, max(picture.size) // _THIN))
    weight = np.where(edge, 1.0, np.where(is_drawn, _TINT, 0.0))[..., None]
    colours = np.array(PALETTE, np.float32)[(classes - 1) % len(PALETTE)]
    mixed = np.asarray(picture, np.float32) * (1 - weight) + colours * weight
    stripe = np.indices(classes.shape).sum(axis=0) // _STRIPE % 4
    mixed[void & (stripe == 0)] = 0
    mixed[void & (stripe == 1)] = 255
    return Image.fromarray(mixed.astype(np.uint8))


def _differs(classes: np.ndarray, reach: int) -> np.ndarray:
    """Whether a pixel so near, above, below or beside, has another class."""
    differs = np.zeros(classes.shape, bool)
    for step in range(1, reach + 1):
        down = classes[step:] != classes[:-step]
        across = classes[:, step:] != classes[:, :-step]
        differs[step:] |= down
        differs[:-step] |= down
        differs[:, step:] |= across
        differs[:, :-step] |= across
    return differs


def beside_mask(
    boxes: Sequence[Box],
    classes: np.ndarray,
    levels: Collection[int],
) -> tuple[Box, ...]:
    """The boxes that hold (nearly) nothing of the mask but 0 and what is void."""
    objects = classes > 0
    if is_void(VOID, {*levels, *np.unique(classes).tolist()}):
        objects &= classes != VOID
    height, width = classes.shape
    beside = []
    for box in boxes:
        top, bottom = math.floor(box.ymin * height), math.ceil(box.ymax * height)
        left, right = math.floor(box.xmin * width), math.ceil(box.xmax * width)
        part = objects[top:bottom, left:right]
        if part.size and part.mean() < _HARDLY:
            beside.append(box)
    return tuple(beside)

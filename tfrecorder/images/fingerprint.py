"""What an image looks like, in three numbers: near copies have nearly the same."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from PIL import Image

from tfrecorder.images.pixels import decode, jpeg_shape, of_picture

#: How many cosine waves a picture is compared with along each side; their signs are the hash.
WAVES = 8

#: The fewest pixels a side that show them all, if the image has as many.
LEAST_SIDE = 2 * WAVES

#: The most pixels a side that are looked at.  OpenBLAS multiplies matrices beyond this with threads
#: of its own.
_MOST_SIDE = 160


#: Height and width.
Size = tuple[int, int]


class Fingerprint(NamedTuple):
    """What an image looks like; None if nobody looked.

    Attributes:
        hash: 63 bits, the signs of the discrete cosine transform's lowest frequencies, the lowest
            first.  Copies that were resized or encoded again differ in few bits.
        mean, deviation: of the grey levels from 0 to 255, in hundredths; the deviation is that of
            patches of up to 8 x 8 pixels, so noise does not count.
    """

    hash: int | None
    mean: int | None
    deviation: int | None


UNKNOWN = Fingerprint(None, None, None)


@dataclass(frozen=True)
class Look:
    """What a fingerprint is made of.

    Attributes:
        gray: a small picture of the image's grey levels from 0 to 255, of [height, width].
        size: height and width of the image.
    """

    gray: np.ndarray = field(compare=False)
    size: Size


def _waves(length: int, extent: float) -> np.ndarray:
    """The first cosine waves over so many pixels; the last may lie partly beyond the image.

    Args:
        length: how many pixels.
        extent: the image's side, in these pixels.

    Returns:
        float32 of [WAVES, length].
    """
    pixels = np.arange(length)
    angles = (pixels + 0.5) * (math.pi / extent)
    waves = np.cos(np.outer(np.arange(WAVES), angles))
    inside = np.clip(extent - pixels, 0, 1)
    return (waves * inside / extent).astype(np.float32)


@functools.lru_cache(maxsize=2**10)
def _seen_as(shape: Size, size: Size) -> tuple[int, np.ndarray, np.ndarray]:
    """Each how many pixels of a picture are looked at, and the waves down and across."""
    step = (max(shape) - 1) // _MOST_SIDE + 1
    waves = []
    for pixels, extent in zip(shape, extent_of(shape, size), strict=True):
        looked_at = -(-pixels // step)
        waves.append(_waves(looked_at, extent / step))
    down, across = waves
    return step, down, across.T


def extent_of(shape: Size, size: Size) -> tuple[float, float]:
    """The sides of an image, in pixels of a smaller picture of it.

    A JPEG is decoded at a number of eighths of its size, rounded up.

    Args:
        shape: of the picture.
        size: of the image.
    """
    for eighths in range(1, 8):
        extent = size[0] * eighths / 8, size[1] * eighths / 8
        if (math.ceil(extent[0]), math.ceil(extent[1])) == shape:
            return extent
    return shape


def fingerprints_of(looks: Sequence[Look]) -> list[Fingerprint]:
    """The fingerprints of some images: of many at once each takes a fraction of the time."""
    amounts = np.empty((len(looks), WAVES, WAVES), np.float32)
    variances = np.empty(len(looks))
    for at, look in enumerate(looks):
        step, down, across = _seen_as(look.gray.shape, look.size)
        pixels = look.gray[::step, ::step].astype(np.float32)
        np.dot(down.dot(pixels), across, amounts[at])
        pixels -= amounts[at, 0, 0]
        variances[at] = np.vdot(pixels, pixels) / pixels.size
    is_positive = amounts.reshape(-1, WAVES**2) > 0
    signs = np.packbits(is_positive, axis=1).view(">i8")[:, 0]
    signs &= 2**63 - 1  # not the first, which is that of the mean
    means = amounts[:, 0, 0]
    grey_levels = np.array([means, np.sqrt(variances)])
    levels = np.rint(100 * grey_levels).astype(int)
    return [*map(Fingerprint, signs.tolist(), *levels.tolist())]


def gray_of(data: bytes, side: int = LEAST_SIDE) -> np.ndarray | None:
    """A grey picture of a JPEG or PNG, uint8 of [height, width]; None if it cannot be decoded.

    Args:
        side: the fewest pixels a side, if the image has as many.
    """
    try:
        gray = decode(data, 1, least=(side, side))[:, :, 0]
    except ValueError:
        return None
    if jpeg_shape(data) is not None:  # which is small already
        return gray
    return _reduced(gray, side)


def gray_in(picture: Image.Image) -> np.ndarray:
    """As `gray_of`, of a picture that is decoded."""
    return _reduced(of_picture(picture, 1)[:, :, 0], LEAST_SIDE)


def _reduced(gray: np.ndarray, side: int) -> np.ndarray:
    ratio = next((ratio for ratio in (8, 4, 2) if min(gray.shape) >= ratio * side), 1)
    return np.asarray(Image.fromarray(gray).reduce(ratio))

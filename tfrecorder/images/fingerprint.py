"""What an image looks like, in three numbers: near copies have nearly the same."""

from __future__ import annotations

import functools
import io
import math
from typing import NamedTuple

import numpy as np
from PIL import Image

#: What Pillow raises for many pixels, which `max_pixels` may allow.
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)

#: How many cosine waves a picture is compared with along each side; their signs are the hash.
WAVES = 8

#: The fewest pixels a side that show them all, if the image has as many.
LEAST_SIDE = 2 * WAVES

#: The most pixels a side that are looked at.  OpenBLAS multiplies matrices beyond this with threads
#: of its own.
_MOST_SIDE = 160


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


@functools.lru_cache(maxsize=2**10)
def _waves(length: int, extent: float) -> np.ndarray:
    """The first cosine waves over so many pixels; the last may lie partly beyond the image.

    Args:
        length: how many pixels.
        extent: the image's side, in these pixels.

    Returns:
        float32 of [WAVES, length].
    """
    pixels = np.arange(length)
    waves = np.cos(np.outer(np.arange(WAVES), (pixels + 0.5) * (math.pi / extent)))
    return (waves * np.clip(extent - pixels, 0, 1) / extent).astype(np.float32)


def extent_of(shape: tuple[int, int], size: tuple[int, int]) -> tuple[float, float]:
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


def fingerprint_of(gray: np.ndarray, size: tuple[int, int]) -> Fingerprint:
    """The fingerprint of an image.

    Args:
        gray: a picture of its grey levels from 0 to 255, of [height, width].
        size: height and width of the image.
    """
    extent = extent_of(gray.shape, size)
    step = (max(gray.shape) - 1) // _MOST_SIDE + 1
    pixels = gray[::step, ::step].astype(np.float32)
    rows, columns = map(_waves, pixels.shape, (extent[0] / step, extent[1] / step))
    amounts = rows @ pixels @ columns.T
    mean = float(amounts[0, 0])
    pixels -= mean
    deviation = math.sqrt(np.vdot(pixels, pixels) / pixels.size)
    signs = int.from_bytes(np.packbits(amounts > 0).tobytes(), "big")
    # Not the first sign, which is that of the mean.
    return Fingerprint(signs & (2**63 - 1), round(100 * mean), round(100 * deviation))


def gray_of(data: bytes, side: int = LEAST_SIDE) -> np.ndarray | None:
    """A grey picture of a JPEG or PNG that was accepted; None if Pillow refuses it.

    Args:
        side: the fewest pixels a side, if the image has as many.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            image.draft("L", (side, side))
            if image.mode.startswith("I"):  # 16 bits
                return np.asarray(image).astype(np.float32) / 257
            gray = image.convert("L")
            least = min(gray.size) if image.format == "PNG" else 0
    except (OSError, ValueError, SyntaxError, *_BOMBS):
        return None
    ratio = next((ratio for ratio in (8, 4, 2) if least >= ratio * side), 1)
    return np.asarray(gray.reduce(ratio))

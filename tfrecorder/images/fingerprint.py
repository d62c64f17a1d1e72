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
_WAVES = 8

#: The fewest pixels a side that show them all, if the image has as many.
LEAST_SIDE = 2 * _WAVES

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


@functools.lru_cache(maxsize=_MOST_SIDE)
def _waves(length: int) -> np.ndarray:
    """The first cosine waves over so many pixels, float32 of [_WAVES, length]."""
    middles = (np.arange(length) + 0.5) * (math.pi / length)
    return np.cos(np.outer(np.arange(_WAVES), middles)).astype(np.float32) / length


def fingerprint_of(gray: np.ndarray) -> Fingerprint:
    """The fingerprint of grey levels, uint8 of [height, width]."""
    step = (max(gray.shape) - 1) // _MOST_SIDE + 1
    pixels = gray[::step, ::step].astype(np.float32)
    height, width = pixels.shape
    amounts = _waves(height) @ pixels @ _waves(width).T
    mean = float(amounts[0, 0])
    pixels -= mean
    deviation = math.sqrt(np.vdot(pixels, pixels) / pixels.size)
    signs = int.from_bytes(np.packbits(amounts > 0).tobytes(), "big")
    # Not the first sign, which is that of the mean.
    return Fingerprint(signs & (2**63 - 1), round(100 * mean), round(100 * deviation))


def gray_of(data: bytes) -> np.ndarray | None:
    """A small grey picture of a JPEG or PNG that was accepted; None if Pillow refuses it."""
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
            image.draft("L", (LEAST_SIDE, LEAST_SIDE))
            if image.mode.startswith("I"):  # 16 bits
                return np.asarray(image).astype(np.float32) / 257
            gray = image.convert("L")
    except (OSError, ValueError, SyntaxError, *_BOMBS):
        return None
    return np.asarray(gray.reduce(max(1, min(8, min(gray.size) // LEAST_SIDE))))

"""Encoded images in, small pictures and their grey levels out."""

from __future__ import annotations

import contextlib
import io
import math
import struct
import warnings
from collections.abc import Iterator

import numpy as np
from PIL import Image

from tfrecorder.images.reencode import encoded

#: The longer side of a picture on the page, in pixels.
SIDE = 256
#: The longer side of a picture that is one of many.
SMALL_SIDE = 128

#: The formats that records may hold; no others are tried.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP")

#: The middle of an image whose blur is measured has at most so many pixels a side, and is smoothed
#: over so many.  An image of more pixels takes seconds and is not looked at.
_MIDDLE = 512
_SMOOTHED = 9
_MOST_PIXELS = 2**26

#: Colours of the classes of a mask, in turn; strong on light and on dark pixels.
PALETTE = (
    (230, 57, 70),
    (29, 120, 212),
    (244, 162, 30),
    (20, 160, 110),
    (150, 80, 200),
    (0, 170, 190),
    (214, 60, 150),
    (120, 150, 20),
)
_MASK_SHARE = 0.5


#: What Pillow raises for damaged bytes.
_FAILURES = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    struct.error,
    Image.DecompressionBombError,
)


class UnshownError(Exception):
    """An image that cannot be shown; the message says why."""


def read_picture(data: bytes, side: int = SIDE) -> tuple[Image.Image, tuple[int, int]]:
    """Decode an image no larger than needed.

    Args:
        data: an encoded image.
        side: the longer side you want; an image is never enlarged.

    Returns:
        RGB pixels, and the width and height of the stored image.

    Raises:
        UnshownError: Pillow cannot decode it.
    """
    with _as_unshown():
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
        size = image.size
        image.draft("RGB", (side, side))  # a JPEG is decoded at a fraction of its size
        pixels = _to_rgb(image)
        pixels.thumbnail((side, side), Image.Resampling.BOX)
    return pixels, size


def _to_rgb(image: Image.Image) -> Image.Image:
    """RGB as training sees it: no transparency, and only the upper 8 of 16 bits."""
    if image.mode.startswith("I"):
        high = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        return Image.fromarray(high).convert("RGB")
    image.info.pop("transparency", None)  # Pillow warns of what it cannot keep of it
    return image.convert("RGB")


def blur_of(data: bytes) -> float | None:
    """How blurred the middle of an image is: 0 if smoothing takes all of its edges, 1 if none.

    By Crété, Dolmiere, Ladret and Nicolas, "The Blur Effect", 2007: what is sharp loses by
    smoothing, what is blurred hardly does.  None for an image that is flat, tiny or huge.

    Args:
        data: an encoded image, which is decoded in its full size.

    Raises:
        UnshownError: Pillow cannot decode it.
    """
    with _as_unshown():
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
        if math.prod(image.size) > _MOST_PIXELS:
            return None
        left, top = (max(0, (side - _MIDDLE) // 2) for side in image.size)
        middle = _to_rgb(image).crop(
            (left, top, min(image.width, left + _MIDDLE), min(image.height, top + _MIDDLE))
        )
    grey = np.asarray(middle.convert("L"), np.float64)
    return max(filter(None, (_edges_left(grey), _edges_left(grey.T))), default=None)


def _edges_left(grey: np.ndarray) -> float | None:
    """The share of the differences from row to row that is left if columns are smoothed."""
    if len(grey) < 2 * _SMOOTHED:
        return None
    sums = np.cumsum(np.pad(grey, ((1, 0), (0, 0))), axis=0)
    smooth = (sums[_SMOOTHED:] - sums[:-_SMOOTHED]) / _SMOOTHED
    rim = _SMOOTHED // 2
    before, after = (np.abs(np.diff(rows, axis=0)) for rows in (grey[rim:-rim], smooth))
    total = before.sum()
    return float(1 - np.maximum(before - after, 0).sum() / total) if total else None


def lay_mask(pixels: Image.Image, mask: bytes) -> Image.Image:
    """A picture with a mask over it: each class has a colour, except 0 and 255, which mean none.

    Args:
        pixels: RGB.
        mask: an encoded image of class numbers; if it has a palette, its colours are used.

    Raises:
        UnshownError: Pillow cannot decode the mask.
    """
    with _as_unshown():
        image = Image.open(io.BytesIO(mask), formats=_FORMATS)
        image.load()
    numbers = image if image.mode in ("P", "L") else image.convert("L")
    classes = np.asarray(numbers.resize(pixels.size, Image.Resampling.NEAREST))
    colours = np.array(PALETTE, dtype=np.float32)[(classes.astype(np.int64) - 1) % len(PALETTE)]
    under = np.asarray(pixels, dtype=np.float32)
    mixed = under * (1 - _MASK_SHARE) + colours * _MASK_SHARE
    shown = ((classes > 0) & (classes < 255))[..., None]
    return Image.fromarray(np.where(shown, mixed, under).astype(np.uint8))


def to_jpeg(pixels: Image.Image) -> bytes:
    """A picture as a small JPEG."""
    return encoded(pixels, "JPEG", quality=72, optimize=True)


@contextlib.contextmanager
def _as_unshown() -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        words = str(error).partition(" <_io")[0]  # Pillow names its own buffer
        raise UnshownError(words or type(error).__name__) from error


@contextlib.contextmanager
def large_images_allowed() -> Iterator[None]:
    """Silence Pillow's warning about large images: conversion has accepted them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield

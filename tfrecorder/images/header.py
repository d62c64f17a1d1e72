"""What an image says about itself: size, channels, orientation; and whether it is too large."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tfrecorder.images.rejects import Reject

# TensorFlow refuses a JPEG of this many decoded bytes, and a PNG of this many pixels.
_TENSORFLOW_LIMIT = 2**29
_LARGEST_SIDE = 1_000_000  # of a PNG, a limit of libpng; a JPEG's is 65,535


class Header(NamedTuple):
    """What an image says about itself.

    Attributes:
        channels: as TensorFlow counts them.
        orientation: of EXIF.
        reduced: what training will not see of it, as keys of `reduced.REDUCED`.
    """

    height: int
    width: int
    channels: int
    orientation: int
    reduced: tuple[str, ...] = ()


def check_size(height: int, width: int, samples: int, max_pixels: int | None) -> None:
    """Rejects an image that is too large; `samples` is how many are stored per pixel.

    None for `max_pixels` switches the check off.
    """
    if max_pixels is None:
        return
    if height * width > max_pixels:
        raise Reject(
            "check", "too_large", f"{width} x {height} pixels are more than max_pixels={max_pixels}"
        )
    if max(height, width) > _LARGEST_SIDE:
        raise Reject(
            "check",
            "too_large",
            f"{width} x {height}: TensorFlow reads at most {_LARGEST_SIDE} pixels a side",
        )
    if height * width * samples >= _TENSORFLOW_LIMIT:
        raise Reject(
            "check",
            "too_large",
            f"{width} x {height} pixels of {samples} samples are more than TensorFlow decodes",
        )


def exif_orientation(exif: bytes) -> int:
    """The orientation (1 to 8) in an EXIF block, a TIFF without pixels; 1 if absent or junk.

    Source: Exif 2.3, section 4.6.4, tag 0x0112 of the first directory.
    """
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        start = struct.unpack_from(order + "I", exif, 4)[0]
        count = struct.unpack_from(order + "H", exif, start)[0]
        for i in range(count):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", exif, start + 2 + 12 * i)
            if tag == 0x0112:
                return value if kind == 3 and 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1

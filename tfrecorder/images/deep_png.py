"""PNG of 16 bits a channel, whole: Pillow holds so many only of grey pixels.

Pillow's decoder makes pixels of 8 bits from such colours, but lets the caller choose which bytes it
takes: the upper ones, or the lower ones.
"""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

#: The names by which Pillow's decoder takes the upper and the lower bytes, by its name for both.
_BYTES = {
    "RGB;16B": ("RGB;16B", "RGB;16L"),
    "RGBA;16B": ("RGBA;16B", "RGBA;16L"),
}
#: Its name for grey with alpha, whose four bytes are those of a pixel of RGBA.
_GREY_ALPHA = "LA;16B"

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = {1: 0, 2: 4, 3: 2, 4: 6}
_UP = 2  # the filter that stores what differs from the row above


def decode(data: bytes | memoryview) -> np.ndarray:
    """The pixels of a PNG of 16 bits, uint16 of [height, width, channels].

    Raises:
        OSError, SyntaxError, EOFError: as Pillow, for a damaged one.
        ValueError: it is none of 16 bits.
    """
    with Image.open(io.BytesIO(data), formats=("PNG",)) as opened:
        form = str(opened.tile[0].args)
    if form == _GREY_ALPHA:
        pairs = _raw(data, "RGBA")
        return pairs.view(">u2").astype(np.uint16)
    if form in _BYTES:
        upper, lower = (_raw(data, name) for name in _BYTES[form])
        return upper.astype(np.uint16) << 8 | lower
    pixels = _raw(data, form)
    if pixels.dtype.itemsize == 1:
        raise ValueError("the image has 8 bits a channel, not 16")
    return pixels.astype(np.uint16)[:, :, None]


def _raw(data: bytes | memoryview, form: str) -> np.ndarray:
    """The pixels that Pillow's decoder makes of bytes that it takes by this name."""
    with Image.open(io.BytesIO(data), formats=("PNG",)) as opened:
        opened.tile = [tile._replace(args=form) for tile in opened.tile]
        opened.load()
        return np.asarray(opened)


def encode(pixels: np.ndarray) -> bytes:
    """A PNG of uint16 pixels of [height, width, channels], 1 to 4 channels."""
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    filtered = np.empty((height, 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = _UP
    filtered[:, 1:] = rows
    filtered[1:, 1:] -= rows[:-1]
    header = struct.pack(">IIBBBBB", width, height, 16, _COLOURS[channels], 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 1)), (b"IEND", b"")]
    return SIGNATURE + b"".join(chunk(kind, content) for kind, content in parts)


def chunk(kind: bytes, content: bytes) -> bytes:
    """A chunk of a PNG, with its length and checksum."""
    sum_of = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", sum_of)

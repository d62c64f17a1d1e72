"""Group 4 fax data in a TIFF: is every row of the picture in the data?

If such data end early, libtiff takes that for the end of the strip and says nothing.  The missing
rows then hold whatever was in its memory: pixels that nobody stored, different at each run.  So the
picture is encoded again.  The code is canonical: the same rows give the same bits.  If the file has
other bits, some row did not come from them.

Source: ITU-T T.6, section 2.2 (the coding procedure leaves the encoder no choice).
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageChops, TiffImagePlugin

from tfrecorder.images.rejects import Reject

_COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _ROWS_PER_STRIP = 259, 262, 266, 278
_STRIP_OFFSETS, _STRIP_BYTES = 273, 279
_GROUP_4 = 4
_ANY_ROWS = 2**31  # bytes per strip, so that all rows go into one

#: Each byte with its bits reversed, as with FillOrder 2.
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def check_rows(
    pixels: Image.Image, tags: TiffImagePlugin.ImageFileDirectory_v2, data: bytes
) -> None:
    """Raise a Reject if a TIFF has Group 4 data that do not hold all of its rows.

    Args:
        pixels: as decoded, not turned by an orientation.
        tags: of the first picture.
        data: the whole file.
    """
    if tags.get(_COMPRESSION) != _GROUP_4:
        return
    offsets, sizes = tags.get(_STRIP_OFFSETS, ()), tags.get(_STRIP_BYTES, ())
    if pixels.mode != "1" or not offsets or len(offsets) != len(sizes):
        words = "Group 4 fax data that are not black and white in strips"
        raise Reject("convert", "unsupported", words)
    if not tags.get(_PHOTOMETRIC, 0):  # 0 is white here, and the code works on bits
        pixels = ImageChops.invert(pixels)
    bits = np.asarray(pixels)
    height = min(tags.get(_ROWS_PER_STRIP, pixels.height), pixels.height)
    tops = range(0, pixels.height, max(1, height))
    for top, offset, size in zip(tops, offsets, sizes, strict=False):
        strip = data[offset : offset + size]
        if tags.get(_FILL_ORDER, 1) == 2:
            strip = strip.translate(_REVERSED)
        # Not with `crop`, which checks the part against the process's limit of pixels.
        rows = Image.fromarray(bits[top : top + height])
        if not strip.startswith(_coded(rows)):
            words = f"the TIFF's fax data do not hold the rows from {top} on"
            raise Reject("check", "damaged", words)
    if len(tops) > len(offsets):
        raise Reject("check", "truncated", "the TIFF has fewer strips than its height needs")


def _coded(pixels: Image.Image) -> bytes:
    """Rows of bits as Group 4 fax data, with the mark at the end."""
    out = io.BytesIO()
    pixels.save(out, "TIFF", compression="group4", strip_size=_ANY_ROWS)
    file = out.getvalue()
    # Only the tags: opened as an image, it would be checked against the process's limit of pixels.
    tags = TiffImagePlugin.ImageFileDirectory_v2(file[:8])
    out.seek(tags.next)
    tags.load(out)
    offset, size = tags[_STRIP_OFFSETS][0], tags[_STRIP_BYTES][0]
    return file[offset : offset + size]

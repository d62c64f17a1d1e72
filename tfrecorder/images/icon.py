"""The largest picture of an icon (ICO): a PNG, or an icon of this picture alone.

An icon is a list of places, then the pictures: PNG files, or bitmaps of twice the height, whose
second half is a mask.  Source: Microsoft, "Icons in Win32", 1995.
"""

from __future__ import annotations

import struct

from tfrecorder.images.deep_png import SIGNATURE
from tfrecorder.images.header import check_size
from tfrecorder.images.rejects import Reject

_HEAD = struct.Struct("<HHH")
_BITMAP = struct.Struct("<IiiHHI12xI")
#: Width and height (0 stands for 256), colours, reserved, planes, bits, size and place.
_ENTRY = struct.Struct("<BBBBHHII")


def largest_picture(data: bytes, max_pixels: int) -> bytes:
    """The file of the largest picture, of which icons have the same one in several sizes.

    Raises:
        Reject: the icon ends before it; or it is a bitmap that is too large, of another size than
            the list says, or of a kind that icons do not have.
    """
    count = _HEAD.unpack_from(data)[2]
    listed = data[_HEAD.size :][: count * _ENTRY.size]
    if not listed or len(listed) < count * _ENTRY.size:
        raise Reject("check", "truncated", "the icon ends in the list of its pictures")
    entry = max(_ENTRY.iter_unpack(listed), key=lambda row: (_side(row[0]) * _side(row[1]), row[5]))
    bits, size, at = entry[5:]
    picture = data[at : at + size]
    if len(picture) < size:
        raise Reject("check", "truncated", "the icon ends in its largest picture")
    if picture.startswith(SIGNATURE):
        return picture
    width = _side(entry[0])
    height = _side(entry[1])
    check_size(height, width, 4, max_pixels)
    if size < _BITMAP.size:
        raise Reject("check", "damaged", "the icon's largest picture has no header")
    head, *sides, _, bits, compression, colours = _BITMAP.unpack_from(picture)
    if head != 40 or compression or bits not in (1, 4, 8, 24, 32) or colours > 1 << bits:
        raise Reject(
            "check",
            "unsupported",
            "the icon's picture is "
            f"a bitmap of {bits} bits, {colours} colours and the compression "
            f"{compression}; save it as a PNG",
        )
    if sides != [width, 2 * height]:
        raise Reject(
            "check",
            "damaged",
            f"the icon lists {width} x {height} pixels, its picture has {sides[0]} x "
            f"{sides[1]}, the mask with it",
        )
    palette = 4 * (colours or 1 << bits) if bits <= 8 else 0
    mask = _row(width, 1) if bits < 32 else 0
    if size < 40 + palette + height * (_row(width, bits) + mask):
        raise Reject("check", "truncated", "the icon's largest picture has too few bytes")
    # With the bits that the picture states: from the list's, Pillow concludes where the mask is.
    alone = (*entry[:5], bits, size, _HEAD.size + _ENTRY.size)
    return _HEAD.pack(0, 1, 1) + _ENTRY.pack(*alone) + picture


def _side(stored: int) -> int:
    return stored or 256


def _row(width: int, bits: int) -> int:
    """Bytes of a row of pixels, which are a multiple of four."""
    return (width * bits + 31) // 32 * 4

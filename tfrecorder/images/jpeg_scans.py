"""How much work the scans of a JPEG take, counted before any decoder is called.

A progressive JPEG stores its picture in several scans, and a decoder goes through all pixels for
each scan, however few bytes it has.  757 scans of 9500 x 9400 pixels, which the standard allows,
fit into a file of 270 KB and take 20 s, and 20 s again in each epoch of training.  Encoders write 6
scans for a grey picture and 10 for a coloured one; those that search for the smallest file write up
to 60.

Source: ITU-T T.81, annex B (markers), G.1 (progressive scans).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from tfrecorder.images.cost import too_expensive
from tfrecorder.images.rejects import Reject

#: Pixels that the scans may visit: this many, plus this many per pixel of the picture.  One visit
#: takes 0.2 to 0.4 ns, and an image that a decoder complains about is decoded twice.
_VISITS = 500_000_000
_VISITS_A_PIXEL = 120

#: A scan that refines coefficients looks at each in turn; ten of them take as long as one visit.
_COEFFICIENTS_A_VISIT = 10

#: The most segments before and between the scans; a file of 1 GiB holds 16,384 full ones.
SEGMENTS = 100_000

#: Frames: baseline, extended, progressive; the same with arithmetic coding.
FRAMES = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_PROGRESSIVE = frozenset((0xC2, 0xCA))
_SCAN = 0xDA
END = 0xD9

# What ends a scan's data: not a stuffed zero, a restart, or a fill byte.
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")


def markers(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """(marker, where its segment begins) from `at` to the end of the image, as libjpeg finds them.

    Raises:
        Reject: there are too many.
    """
    for _ in range(SEGMENTS):
        match = _MARKER.search(data, at)
        if match is None:
            return
        marker = match[1][0]
        at = match.end()
        yield marker, at
        if marker == END:
            return
        at += max(int.from_bytes(data[at : at + 2], "big"), 2)
    raise too_many_segments()


def too_many_segments() -> Reject:
    """The reject for a JPEG that is nearly all markers."""
    return too_expensive(f"the JPEG has more than {SEGMENTS:,} segments")


def check_scans(data: bytes, frame_at: int) -> None:
    """Rejects a JPEG whose scans visit its pixels far more often than any encoder's do.

    A component counts as if it had all pixels; most JPEGs store their colours with fewer.

    Args:
        data: the file.
        frame_at: where its frame header's marker is, after the 0xFF.

    Raises:
        Reject: it is too expensive.
    """
    height, width, of_frame = struct.unpack_from(">HHB", data, frame_at + 4)
    is_progressive = data[frame_at] in _PROGRESSIVE
    scans = 0
    visits = 0.0
    for marker, start in markers(data, frame_at - 1):
        if marker != _SCAN:
            continue
        components = min(data[start + 2], 4) if start + 2 < len(data) else 0
        if components == of_frame and not is_progressive and not scans:
            return  # as in nearly every JPEG: after a scan of all, libjpeg decodes no other
        last = data[start + 3 + 2 * components : start + 6 + 2 * components]
        refines = is_progressive and len(last) == 3 and last[0] and last[2] >> 4
        refined = max(last[1] - last[0] + 1, 0) if refines else 0
        scans += 1
        visits += components * width * height * (1 + refined / _COEFFICIENTS_A_VISIT)
    bound = _VISITS + _VISITS_A_PIXEL * width * height
    if visits > bound:
        raise too_expensive(
            f"{scans:,} scans of {width} x {height} pixels visit {visits / 1e6:,.0f} million "
            f"pixels, more than the {bound / 1e6:,.0f} million that a JPEG of this size may"
        )

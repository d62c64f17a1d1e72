"""Metadata cut out of a JPEG or PNG; its pixels stay as they are encoded.

Kept is what says how the pixels look: sizes, colours, profile and orientation.

Source: ITU-T T.81, annex B (markers); PNG (W3C, third edition), 11.3 (ancillary chunks).
"""

from __future__ import annotations

from tfrecorder.images.check import CheckedImage
from tfrecorder.images.deep_png import chunk
from tfrecorder.images.jpeg_scans import END, markers
from tfrecorder.images.png import chunks

#: How the application segments of a JPEG begin that are kept.
_SEGMENTS = (b"JFIF\0", b"ICC_PROFILE\0", b"Adobe")
_APPLICATION_OR_COMMENT = frozenset((*range(0xE0, 0xF0), 0xFE))

#: The chunks of a PNG that are kept, beside those that no PNG can lack: these have a capital.
_CHUNKS = frozenset(b"tRNS gAMA cHRM sRGB iCCP cICP sBIT bKGD pHYs acTL fcTL fdAT".split())

#: An EXIF block with an orientation alone, before and after its number.
_EXIF = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", bytes(7)


def without_metadata(image: CheckedImage) -> CheckedImage:
    """An image without EXIF (but for its orientation), XMP, IPTC, comments, and what follows it.

    Raises:
        Reject: it ends too early, which `check="header"` does not find.
    """
    exif = bytes((image.orientation,)).join(_EXIF) if image.orientation != 1 else b""
    cut = _cut_jpeg if image.format == "jpeg" else _cut_png
    return image._replace(data=cut(image.data, exif))


def _cut_jpeg(data: bytes, exif: bytes) -> bytes:
    parts = [data[:2]]
    start = 2
    if exif:
        parts.append(b"\xff\xe1" + (len(exif) + 8).to_bytes(2, "big") + b"Exif\0\0" + exif)
    for marker, at in markers(data, 2):
        if marker == END:
            data = data[:at]
        elif marker in _APPLICATION_OR_COMMENT and not data.startswith(_SEGMENTS, at + 2):
            parts.append(data[start : at - 2])
            start = at + max(int.from_bytes(data[at : at + 2], "big"), 2)
    return b"".join((*parts, data[start:]))


def _cut_png(data: bytes, exif: bytes) -> bytes:
    parts = [data[:8]]
    start = 8
    for kind, _, end in chunks(data):
        if kind[:1].isupper() or kind in _CHUNKS:
            parts.append(data[start:end])
        if kind == b"IHDR" and exif:
            parts.append(chunk(b"eXIf", exif))
        if kind == b"IEND":
            break
        start = end
    return b"".join(parts)

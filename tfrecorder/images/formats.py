"""Which image format a file is, by its first bytes."""

from __future__ import annotations

import re

from tfrecorder.images.rejects import Reject

#: What is re-encoded as PNG; JPEG and PNG themselves are kept.
REENCODED = ("bmp", "gif", "webp", "tiff", "ppm", "avif")

# The first bytes (at most 16) of what we read, and of what people have by mistake.  Formats that
# Pillow reads by running another program (EPS) or without a signature of its own (TGA) stay out.
_MAGIC = {
    "jpeg": rb"\xff\xd8\xff",
    "png": rb"\x89PNG\r\n\x1a\n",
    "bmp": rb"BM",
    "gif": rb"GIF8[79]a",
    "webp": rb"RIFF....WEBP",
    "tiff": rb"II\*\0|MM\0\*|II\+\0|MM\0\+",
    "ppm": rb"P[1-6][\s#]",
    "avif": rb"....ftypavi[fs]",
    "a HEIC image": rb"....ftyp(?:hei|hev|mif1|msf1)",
    "a JPEG 2000 image": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    "a JPEG XL image": rb"\0\0\0\x0cJXL |\xff\x0a",
    "an icon": rb"\0\0[\1\2]\0",
    "PostScript": rb"%!PS|\xc5\xd0\xd3\xc6",
    "a PDF": rb"%PDF",
    "HTML, XML or SVG": rb"(?:\xef\xbb\xbf)?\s*<",
    "JSON": rb"\s*[{\[]",
    "a zip file": rb"PK\3\4",
    "a gzip file": rb"\x1f\x8b",
    "a Photoshop file": rb"8BPS",
}
_SNIFF = re.compile(b"|".join(b"(%s)" % magic for magic in _MAGIC.values()), re.DOTALL)
_KINDS = tuple(_MAGIC)
_READ = frozenset(("jpeg", "png", *REENCODED))


def sniff(data: bytes) -> str:
    """The format of a file: "jpeg", "png" or one of `REENCODED`.

    Raises:
        Reject: no bytes, or no format that is read here.
    """
    if data[:3] == b"\xff\xd8\xff":  # nearly always
        return "jpeg"
    if not data:
        raise Reject("check", "empty", "the file has no bytes")
    match = _SNIFF.match(data)
    kind = _KINDS[match.lastindex - 1] if match and match.lastindex else None
    if kind in _READ:
        return kind
    if kind:
        raise Reject("check", "not_an_image", f"the file is {kind}, which is not supported")
    detail = f"no known image format begins with the bytes {data[:8].hex(' ')}"
    raise Reject("check", "not_an_image", detail)

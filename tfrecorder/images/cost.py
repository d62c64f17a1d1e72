"""What an image may cost to check: CPU time grows no faster than its pixels and its bytes.

The promise: an accepted image takes at most 1 s, plus 0.1 s per megapixel, plus 0.1 s per megabyte
of its file.  Seconds differ between machines and cannot be known beforehand.  So for each format we
count, before calling the decoder, what it would do often, and reject an image that is over a bound.
The bounds are several times what encoders make, and a third or less of what the promise allows on
two cores of 2024.  JPEG, PNG and TIFF are counted where they are read; the small formats are
counted here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from tfrecorder.images.rejects import Reject

#: The most bytes of a PPM's header.  Pillow reads each in Python: 0.3 s for these, 10 s for 50 MB.
_NETPBM_HEADER = 1 << 20

#: The most blocks of data before a GIF's first picture, and the most comment blocks among them.
#: Pillow reads each in Python, and copies the whole comment again for each of its blocks.
_GIF_BLOCKS = 50_000
_GIF_COMMENT_BLOCKS = 4_000

_COMMENT = re.compile(rb"#[^\r\n]*(?:[\r\n]|\Z)")
# What comes next in a GIF: an extension with its label, a picture, or the end.
_GIF_NEXT = re.compile(rb"!.|[,;]", re.DOTALL)
_GIF_COMMENT = b"!\xfe"
_GIF_PICTURE = b","
_GIF_END = b";"


def too_expensive(detail: str) -> Reject:
    """The reject for an image that takes too long to decode; `detail` has the numbers."""
    return Reject("check", "too_expensive", detail)


def check_netpbm(data: bytes) -> None:
    """Rejects a PPM, PGM or PBM whose header is longer than any program writes."""
    fields = 3 if data[1:2] in b"14" else 4  # with the magic number
    for size in (512, _NETPBM_HEADER):
        words = _COMMENT.sub(b"", data[:size]).split(None, fields)
        if len(words) > fields or size >= len(data):
            return
    raise too_expensive(f"comments make the header longer than {_NETPBM_HEADER:,} bytes")


def check_gif(data: bytes) -> None:
    """Rejects a GIF with too many blocks of comments and other extensions before its picture."""
    blocks = comments = 0
    inside = b""
    for begins, size in _gif_blocks(data):
        inside = begins or inside
        blocks += size
        comments += inside == _GIF_COMMENT and not begins
        if comments > _GIF_COMMENT_BLOCKS:
            raise too_expensive(f"the GIF has more than {_GIF_COMMENT_BLOCKS:,} blocks of comments")
        if blocks > _GIF_BLOCKS:
            raise too_expensive(
                f"more than {_GIF_BLOCKS:,} blocks come before the GIF's first picture"
            )
        if begins in (_GIF_PICTURE, _GIF_END):
            return


def gif_is_animated(data: bytes) -> bool:
    """Whether a second picture follows the first of a GIF, whose beginning is sound."""
    pictures = (begins for begins, _ in _gif_blocks(data) if begins == _GIF_PICTURE)
    return len(list(itertools.islice(pictures, 2))) > 1


def _gif_blocks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The blocks of a GIF: what begins with one, b"" for data; and how many Pillow counts for it.

    Bytes between blocks it skips one by one.
    """
    at = 13 + _gif_colours(data, 10)
    while match := _GIF_NEXT.search(data, at):
        yield match[0], match.start() - at
        at = match.end()
        if match[0] == _GIF_END:
            return
        if match[0] == _GIF_PICTURE:
            at += 10 + _gif_colours(data, at + 8)
        while at < len(data) and data[at]:
            at += 1 + data[at]
            yield b"", 1
        at += 1
    yield _GIF_END, max(len(data) - at, 0)


def _gif_colours(data: bytes, at: int) -> int:
    """The bytes of the table of colours that the flags at a place announce."""
    flags = data[at] if at < len(data) else 0
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0

"""Image bytes in, checked bytes with their true shape out.

    checked = check_image(data)             # raises Reject
    checked.format, checked.height, checked.width, checked.channels

An image accepted with check="decode" or "strict" decodes in TensorFlow without error, to the
recorded shape.  JPEG (`jpeg.py`) and PNG (`png.py`) keep their own bytes; BMP, GIF (first frame),
WebP, TIFF, PPM, TGA, ICO (largest picture), AVIF and HEIC are decoded by Pillow and rewritten as
PNG, without loss.
Nothing here imports TensorFlow or Beam, changes a global setting of Pillow, or depends on one.
The reasons for a reject are listed in `rejects.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from tfrecorder.images import formats, jpeg, png
from tfrecorder.images.fingerprint import Look, gray_of
from tfrecorder.images.icon import largest_picture
from tfrecorder.images.limits import DEFAULT_MAX_PIXELS
from tfrecorder.images.memory import Room, unlimited
from tfrecorder.images.reencode import reencode
from tfrecorder.images.rejects import Reject


class CheckedImage(NamedTuple):
    """An accepted image.

    Attributes:
        data: the bytes to store: the source's own if JPEG or PNG, else a lossless PNG.
        format: "jpeg" or "png".
        height, width: pixels, as TensorFlow decodes `data`: 1 and up.  An EXIF orientation is
            not applied.
        channels: 1 to 4, as TensorFlow decodes `data` with channels=0: 3 for a CMYK JPEG,
            4 for a PNG palette with transparency.
        orientation: the EXIF orientation of the source, 1 to 8.
        warning: the decoder's message if the image is suspect, else None.
        look: a small picture of the source, if it was decoded to see it.
        reduced: what training will not see of the source, as keys of `reduced.REDUCED`.
        depth: bits of a channel that readers give: 8 or 16.
    """

    data: bytes
    format: str
    height: int
    width: int
    channels: int
    orientation: int
    warning: str | None
    look: Look | None = None
    reduced: tuple[str, ...] = ()
    depth: int = 8


def check_image(
    data: bytes,
    check: str = "decode",
    max_pixels: int = DEFAULT_MAX_PIXELS,
    room: Room = unlimited,
    fingerprints: bool = False,
    depth: int = 8,
) -> CheckedImage:
    """Checks an image, and turns it into PNG if it is neither JPEG nor PNG.

    Args:
        data: the whole file.
        check: how much to check of a JPEG or PNG; other formats are always decoded in full.
            "decode": TensorFlow will decode it; a decoder's complaint makes it suspect.
            "strict": the same, but a suspect is rejected.
            "header": only the headers: format, size, channels, the number of a JPEG's scans.
        max_pixels: the largest height times width; a larger image is refused before decoding.
        room: `room(size)` is held while that many bytes of pixels are in memory, so that
            several threads can share what there is.
        fingerprints: also decode what is not decoded for the check, for its fingerprint.
        depth: bits of a channel that the schema declares; with 16, an image of 8 is rejected.

    Raises:
        Reject: the image cannot be used; `rejects.py` lists the codes.

    Thread safe; the decoders release the interpreter lock.

        >>> check_image(b"")
        Traceback (most recent call last):
        tfrecorder.images.rejects.Reject: empty: the file has no bytes
    """
    kind = formats.sniff(data)
    if kind == "ico":
        data = largest_picture(data, max_pixels)
        kind = formats.sniff(data)
    warning = None
    gray = None
    if kind not in ("jpeg", "png"):
        data, found = reencode(data, kind, max_pixels, room, depth)
        kind = "png"
    elif check == "header":
        found = (jpeg if kind == "jpeg" else png).read_header(data, max_pixels)
    elif kind == "jpeg":
        found, seen = jpeg.check(data, max_pixels, room)
        warning, gray = (seen, None) if isinstance(seen, str) else (None, seen)
    else:
        found, warning = png.check(data, max_pixels)
    reduced = found.reduced
    if depth == 16:
        if "depth" not in reduced:
            raise Reject(
                "check",
                "depth",
                "it has 8 bits a channel, the schema's `Image(depth=16)` declares 16",
            )
        reduced = tuple(word for word in reduced if word != "depth")
    if warning and check == "strict":
        raise Reject("check", "suspect", warning)
    if gray is None and fingerprints:
        with room(found.height * found.width * 4):
            gray = gray_of(data)
    look = None if gray is None else Look(gray, found[:2])
    return CheckedImage(data, kind, *found[:4], warning, look, reduced, depth)

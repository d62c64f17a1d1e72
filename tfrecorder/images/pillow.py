"""A picture of Pillow as an image file."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, TypeGuard

from tfrecorder.images.rejects import Reject

if TYPE_CHECKING:
    from PIL import Image

#: One row may hold the same picture as another, and neither decoding nor its file can be shared.
_lock = threading.Lock()


def is_picture(value: object) -> TypeGuard[Image.Image]:
    """True of a picture; Pillow is not imported for it."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def file_of(picture: Image.Image) -> bytes:
    """The file that a picture was opened from, if nothing has decoded it yet; else a PNG of it.

    Once pixels are decoded they may have been changed, which Pillow does not note.  A PNG holds
    them without loss; a mode that it does not have, such as CMYK, becomes RGB.

    Raises:
        Reject: it cannot be decoded, or PNG cannot hold its pixels.
    """
    with _lock:
        if (data := _own_file(picture)) is not None:
            return data
        try:
            pixels = picture.copy()
        except Exception as error:  # a plugin may raise anything
            words = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise Reject("check", "damaged", f"Pillow cannot decode it: {words}") from None
    from tfrecorder.images.reencode import as_png

    return as_png(pixels)


def _own_file(picture: Any) -> bytes | None:
    """The whole file of a picture that is not decoded, if it is of a format that is read here."""
    from PIL import ImageFile

    from tfrecorder.images.formats import ending_of

    if not isinstance(picture, ImageFile.ImageFile) or not picture.tile or picture.tell():
        return None
    file = picture.fp
    drafted = getattr(picture, "decoderconfig", ())
    if file is None or getattr(file, "closed", False) or drafted:
        return None
    place = file.tell()
    file.seek(0)
    data = file.read()
    file.seek(place)
    return bytes(data) if ending_of(data) else None

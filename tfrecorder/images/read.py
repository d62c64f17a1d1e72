"""Read one image file and check it."""

from __future__ import annotations

from collections.abc import Callable

from tfrecorder import storage
from tfrecorder.images.rejects import Reject


def read_image(uri: str, base: str, note_retry: Callable[[], None] = lambda: None) -> bytes:
    """The bytes of an image's file.

    Raises:
        Reject: it cannot be read.
    """
    try:
        return storage.read_bytes(storage.resolve(uri, base), note_retry)
    except storage.UnreadableError as error:
        raise Reject("read", error.code, error.detail) from None

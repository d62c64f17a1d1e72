"""Memory to decode images into, which a thread keeps from one image to the next."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

#: Bytes up to which it is kept: the pages of a fresh array cost a tenth of the decoding time.
MOST_KEPT = 2**24

#: For how many sizes, and up to which, a thread keeps memory that can be had as bytes.
SIZES = 8
MOST_AS_BYTES = 2**21


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.files: dict[int, io.BytesIO] = {}
        self.buffer = bytearray()


_OF_THREAD = _OfThread()


def filled(shape: tuple[int, ...], fill: Callable[[Any], np.ndarray]) -> np.ndarray:
    """What `fill` makes in a buffer for uint8 of this shape; valid until the next call.

    Of the sizes that come first it has its memory from a `bytes`; see `bytes_of`.
    """
    size = math.prod(shape)
    files = _OF_THREAD.files
    if size not in files:
        if len(files) == SIZES or size > MOST_AS_BYTES:
            return fill(_kept_buffer(size))
        files[size] = io.BytesIO(bytes(size))
    with files[size].getbuffer() as buffer:
        made = fill(buffer).shape
    # In CPython this is the object that has the memory, and no copy, now that no buffer is open.
    return np.frombuffer(files[size].getvalue(), np.uint8).reshape(made)


def bytes_of(pixels: np.ndarray) -> bytes:
    """Pixels as bytes; without a copy if they have all of their memory from a `bytes`."""
    owner = getattr(pixels.base, "base", None)
    if isinstance(owner, bytes) and len(owner) == pixels.nbytes:
        return owner
    return pixels.tobytes()


def _kept_buffer(size: int) -> bytearray | None:
    """This thread's buffer of at least this size; None if that is too large to keep."""
    if size > MOST_KEPT:
        return None
    if len(_OF_THREAD.buffer) < size:
        _OF_THREAD.buffer = bytearray(size)
    return _OF_THREAD.buffer

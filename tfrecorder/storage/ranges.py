"""A remote file that can be seeked and read in parts, with one request for each part."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import BinaryIO, cast

from tfrecorder.storage.retry import retried
from tfrecorder.storage.store import TransientError

#: The least bytes per request: about the rows of one shard's plan.
PART_BYTES = 2**18


def in_parts(path: str, size: int, read_range: Callable[[int, int], bytes]) -> BinaryIO:
    """A file of which only the requested parts are read.

    Args:
        path: of the file.
        size: of the file, in bytes.
        read_range: reads the bytes from one offset up to, not including, another in one request;
            raises a TransientError if another attempt may succeed.

    >>> data = bytes(range(100))
    >>> file = in_parts("memory://a", 100, lambda start, end: data[start:end])
    >>> file.seek(-2, os.SEEK_END), file.read()
    (98, b'bc')
    """
    return cast(BinaryIO, io.BufferedReader(_Parts(path, size, read_range), PART_BYTES))


class _Parts(io.RawIOBase):
    def __init__(self, path: str, size: int, read_range: Callable[[int, int], bytes]) -> None:
        self._path = path
        self._size = size
        self._read_range = read_range
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        start = self._at
        end = min(self._at + len(buffer), self._size)
        if start >= end:
            return 0
        data = retried(lambda: self._whole(start, end), self._path)
        buffer[: len(data)] = data
        self._at = end
        return len(data)

    def _whole(self, start: int, end: int) -> bytes:
        data = self._read_range(start, end)
        if len(data) != end - start:
            raise TransientError(f"received {len(data):,} of {end - start:,} bytes")
        return data

"""Reading a file that somebody still writes."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

#: Seconds between two looks at how far the file has grown.
LOOK_SECONDS = 0.02


class AbandonedError(Exception):
    """The writer gave up: what was read so far is not to be kept."""


class Growing:
    """A file that is written from its beginning to its end, and read meanwhile by other threads.

    Args:
        writer: the unbuffered file by which it is written, open for reading too.  How far that is
            tells its position, not the file's size: room may be asked for ahead.
    """

    def __init__(self, writer: BinaryIO) -> None:
        self._writer = writer
        self._size: int | None = None
        self._abandoned = False
        self._over = threading.Event()

    def end(self) -> None:
        """All is written."""
        self._size = self._writer.tell()
        self._over.set()

    def abandon(self) -> None:
        """Nothing more will be written; unless the end was told, readers fail."""
        self._abandoned = self._size is None
        self._over.set()

    def wait(self, size: int) -> int | None:
        """Wait until the file has `size` bytes, or all it will ever have: then their number.

        Raises:
            AbandonedError: the writer gave up.
        """
        while not self._over.is_set() and self._writer.tell() < size:
            self._over.wait(LOOK_SECONDS)
        if self._abandoned:
            raise AbandonedError
        return self._size

    @contextlib.contextmanager
    def reader(self) -> Iterator[Reader]:
        """The file from its beginning."""
        # A descriptor of its own: the writer may be closed while this one still reads.
        with open(os.dup(self._writer.fileno()), "rb", buffering=0) as file:
            yield Reader(self, file)


@dataclass
class Reader:
    """What a client's upload needs of a file."""

    _growing: Growing
    _file: BinaryIO
    _at: int = 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        """The next `size` bytes, waited for; fewer only at the end of the file."""
        end = self._growing.wait(self._at + size)
        left = size if end is None else min(size, end - self._at)
        parts = []
        while left and (part := os.pread(self._file.fileno(), left, self._at)):
            parts.append(part)
            self._at += len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

"""Files of stores as files of Python: read in parts, and written to a store that cannot append.

A remote file can be seeked, with one request for each part that is read.  One that is written is
first a local file, and copied to the store when it is complete or while it grows.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import CancelledError, Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import BinaryIO, cast

from tfrecorder.storage.retry import retried
from tfrecorder.storage.store import TransientError, UnwritableError, sums_of


@contextlib.contextmanager
def spooled(final: str, upload: Callable[[str], None]) -> Iterator[BinaryIO]:
    """A temporary file to write; if the block succeeds, `upload` is called with its path.

    So a shard is on this machine's disk once, never in memory, and a failed upload can be retried.

    Args:
        final: the path that it is uploaded to.

    Raises:
        UnwritableError: there is no room for the temporary file, or `upload` failed.
        UnreachableError: `upload` kept failing until the retries ended.
    """
    with tempfile.NamedTemporaryFile(prefix="tfrecorder-", buffering=0) as temporary:
        with _room_missed():
            yield cast(BinaryIO, temporary.file)
        retried(lambda: upload(temporary.name), final)


@contextlib.contextmanager
def followed(
    final: str,
    upload: Callable[[Reader, int | None], None],
    piece: int,
) -> Iterator[BinaryIO]:
    """A temporary file to write from start to end, uploaded as it is written.

    Args:
        final: the path that it is uploaded to.
        upload: called with a reader and the file's size (None while it still grows); reads wait
            for bytes that are not written yet.  It runs in a separate thread, and again after a
            failure that may pass.  Its upload must not appear anywhere before the reader's end.
        piece: the upload begins once this many bytes are written, or the whole file.

    Raises:
        UnwritableError: there is no room for the temporary file, or `upload` failed.
        UnreachableError: `upload` kept failing until the retries ended.
    """
    # Without a name, so that nothing is left behind however this process ends.
    with tempfile.TemporaryFile(buffering=0) as temporary:
        file = cast(BinaryIO, temporary)
        # A separate descriptor: the writer may be closed while the upload still reads.
        growing = Growing(file, os.dup(file.fileno()))
        failures = []

        def attempt() -> None:
            upload(Reader(growing), growing.wait(piece))

        def follow() -> None:
            try:
                retried(attempt, final)
            except CancelledError:  # the writer gave up
                return
            except BaseException as error:
                failures.append(error)
            finally:
                os.close(growing.descriptor)

        # A daemon: nobody waits for an upload that Ctrl-C has made pointless.
        run = copy_context().run  # with this thread's context, which says who waits for it
        thread = threading.Thread(
            target=run,
            args=(follow,),
            name="tfrecorder-upload",
            daemon=True,
        )
        thread.start()
        try:
            with _room_missed():
                yield file
            growing.end()
            thread.join()
        finally:
            growing.abandon()
        if failures:
            raise failures[0]


@contextlib.contextmanager
def _room_missed() -> Iterator[None]:
    """A block in which the error of a full disk names the temporary folder."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UnwritableError(
            f"no space left in {tempfile.gettempdir()}, where a shard is kept until its upload; "
            "free some, or set TMPDIR to a larger disk"
        ) from error


#: Seconds between checks of how far the file has grown.
LOOK_SECONDS = 0.02


class Growing:
    """A file that is written from start to end while other threads read it.

    Args:
        writer: the unbuffered file being written, also open for reading.  Its position shows how
            much is written; its size does not, because space may be reserved ahead.
        descriptor: of the same file, to read from.
    """

    def __init__(
        self,
        writer: BinaryIO,
        descriptor: int,
    ) -> None:
        self._writer = writer
        self.descriptor = descriptor
        self._size: Future[int] = Future()

    def end(self) -> None:
        """Everything is written."""
        self._size.set_result(self._writer.tell())

    def abandon(self) -> None:
        """Nothing more will be written; readers fail unless `end` was called."""
        self._size.cancel()

    def wait(self, size: int) -> int | None:
        """Wait until the file has `size` bytes or is complete; returns its size if complete.

        Raises:
            CancelledError: the writer gave up: do not keep what was read so far.
        """
        while not self._size.done() and self._writer.tell() < size:
            futures.wait([self._size], LOOK_SECONDS)
        return self._size.result() if self._size.done() else None


@dataclass
class Reader:
    """What a client's upload needs of a file."""

    _growing: Growing
    _at: int = 0

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        """Wait for the next `size` bytes and return them; fewer only at the end of the file."""
        end = self._growing.wait(self._at + size)
        left = size if end is None else min(size, end - self._at)
        parts = []
        while left and (part := os.pread(self._growing.descriptor, left, self._at)):
            parts.append(part)
            self._at += len(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def again(self) -> Reader:
        """The same file from its start."""
        return Reader(self._growing)

    def sums(self) -> tuple[int, int]:
        """Size and CRC32C of the file; waits until it is fully written."""
        return sums_of(self.again().read)


#: The least bytes per request: about the rows of one shard's plan.
PART_BYTES = 2**18


def in_parts(
    path: str,
    size: int,
    read_range: Callable[[int, int], bytes],
) -> BinaryIO:
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
    def __init__(
        self,
        path: str,
        size: int,
        read_range: Callable[[int, int], bytes],
    ) -> None:
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

    def seek(
        self,
        offset: int,
        whence: int = os.SEEK_SET,
    ) -> int:
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

    def _whole(
        self,
        start: int,
        end: int,
    ) -> bytes:
        data = self._read_range(start, end)
        if len(data) != end - start:
            raise TransientError(f"received {len(data):,} of {end - start:,} bytes")
        return data

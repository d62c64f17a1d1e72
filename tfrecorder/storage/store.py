"""What every store of files can do, and how it fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol

from tfrecorder.errors import TfrecorderError

#: Refused rather than read: no image of this size fits a record, which ends at 2 GiB.
MAX_FILE_BYTES = 2**30


class UnreadableError(TfrecorderError):
    """A file cannot be read, and would not be if it were tried again.

    Attributes:
        code: what is wrong, in one word: not_found, no_permission, not_a_file, too_large,
            bad_name, no_credentials or read_failed.
        detail: the system's words, without the path.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class UnwritableError(OSError):
    """A file cannot be written, and would not be if it were tried again; its words say why."""


class TransientError(Exception):
    """A request failed in a way that may pass: a time-out, a reset connection, a busy server."""


def too_large(size: int) -> UnreadableError:
    """The error of a file beyond `MAX_FILE_BYTES`; `size` is what it has, at least."""
    return UnreadableError("too_large", f"{size:,} bytes; at most {MAX_FILE_BYTES:,}")


def is_transient(status: int) -> bool:
    """True for an HTTP status after which another attempt may succeed.

    Source: https://cloud.google.com/storage/docs/retry-strategy
    """
    return status in (408, 429) or 500 <= status < 600


class Store(Protocol):
    """Files by their full paths, scheme included.

    Every method may raise TransientError, whose caller tries again (`retry.retried`); those that
    read UnreadableError, those that write UnwritableError or another OSError.
    """

    def read(self, path: str) -> bytes:
        """A whole file of at most `MAX_FILE_BYTES`."""

    def open(self, path: str) -> BinaryIO:
        """A file to read and seek in, without holding it in memory."""

    def fetch(self, path: str, file: BinaryIO) -> None:
        """Copy a whole file of any size into an empty local one."""

    def size(self, path: str) -> int | None:
        """A file's size in bytes; None where there is no such file."""

    def crc32c(self, path: str) -> int | None:
        """The CRC32C that the store itself keeps of a file; None where it keeps none."""

    def names(self, folder: str) -> dict[str, int | None]:
        """What lies in a folder, by name: a file's size, None for a folder; empty without it."""

    def files(self, folder: str) -> Iterator[str]:
        """The paths of all files below a folder, relative to it, in any order."""

    def is_folder(self, path: str) -> bool:
        """True where something lies below this path."""

    def publish(self, folder: str, name: str) -> AbstractContextManager[BinaryIO]:
        """A file that stands as `name` below a folder only once the block ends well.

        It is written from its beginning to its end, without seeking.
        """

    def put_new(self, folder: str, name: str, data: bytes) -> bool | None:
        """Write a short file below a folder where none stands; False if another does, which stays.

        None of a store that cannot decide between two who write at once: nothing was written.
        """

    def remove(self, folder: str, name: str) -> None:
        """Remove a file below a folder, or a folder with all in it; nothing where there is none."""

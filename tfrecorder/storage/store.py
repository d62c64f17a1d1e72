"""What every store of files can do, and how it fails."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import BinaryIO, Protocol, TypeVar

from tfrecorder.errors import TfrecorderError

T = TypeVar("T")

#: Refused rather than read: no image of this size fits a record, which ends at 2 GiB.
MAX_FILE_BYTES = 2**30


#: Codes of what says nothing of the file: whoever asks has to mend how.
OF_THE_READER = frozenset(("no_credentials", "no_user_project", "wrong_setup"))


class UnreadableError(TfrecorderError):
    """A file cannot be read, and would not be if it were tried again.

    Attributes:
        code: what is wrong, in one word: not_found, no_permission, not_a_file, too_large,
            bad_name, no_credentials, no_user_project, wrong_setup or read_failed.
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
    """A request failed in a way that may pass: a time-out, a reset connection, a busy server.

    Attributes:
        after: seconds that the server asks to wait before the next attempt; 0 where it asks none.
    """

    def __init__(self, words: str, after: float = 0) -> None:
        super().__init__(words)
        self.after = after


def seconds_to_wait(header: str | None) -> float:
    """What a header `Retry-After` asks for: seconds, or a time; 0 without one.

    >>> seconds_to_wait("7"), seconds_to_wait("soon"), seconds_to_wait(None)
    (7.0, 0.0, 0.0)
    """
    told = (header or "").strip()
    if told.isdecimal():
        return float(told)
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except ValueError:
        return 0.0


#: What a disk answers whose cable, server or daemon is away for a moment, what a network does, and
#: what a process does that has too many files open.  None of it is a property of the file.
_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "EREMOTEIO", "ESTALE", "EAGAIN", "ETIMEDOUT", "ENOTCONN", "ENOLINK", "ENODEV"),
        *("ECONNRESET", "ECONNABORTED", "ECONNREFUSED", "EPIPE", "ESHUTDOWN", "ENETRESET"),
        *("EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH"),
        *("EMFILE", "ENFILE", "ENOMEM", "ENOBUFS"),
    )
    if hasattr(errno, name)  # not every system has all of them
)


def may_pass(error: BaseException) -> bool:
    """True for a failure after which another attempt may succeed: of a store, or of the system."""
    # The last is a name that has no address at the moment.
    if isinstance(error, (TransientError, TimeoutError, ConnectionError, socket.gaierror)):
        return True
    return isinstance(error, OSError) and error.errno in _PASSING


class OtherStandsError(Exception):
    """Another file stands where one was to be written than the one that was to be replaced."""


def asked(request: Callable[[], T], meaning: Callable[[Exception], Exception | None]) -> T:
    """What a request of a store returns, its failures in our terms.

    Args:
        meaning: of a failure of the packages behind the store; None where it is another fault.
    """
    try:
        return request()
    except (UnreadableError, UnwritableError, TransientError, OtherStandsError):
        raise
    except Exception as error:
        meant = meaning(error)
        if meant is None:
            raise
        raise meant from error


def told(request: Callable[[], T], meaning: Callable[[Exception], Exception | None]) -> T:
    """The same for requests that write."""
    try:
        return asked(request, meaning)
    except UnreadableError as error:
        raise UnwritableError(error.detail) from error


@dataclass(frozen=True)
class Description:
    """What a store says about a file without sending it.

    Attributes:
        size: in bytes, as it is stored.
        crc32c: None where the store keeps none.
        generation: another number for each time the file is written, or for other bytes; 0 where
            the store has none.
        content: all its bytes, where a listing gives those of short files; else None.
    """

    size: int
    crc32c: int | None = None
    generation: int = 0
    content: bytes | None = None

    def is_of(self, size: int, crc32c: int) -> bool:
        """Whether a file has this size and checksum, as far as the store knows."""
        return self.size == size and self.crc32c in (None, crc32c)


def described(sizes: Mapping[str, int | None]) -> dict[str, Description]:
    """The files among names, by their sizes; None is a folder's."""
    return {name: Description(size) for name, size in sizes.items() if size is not None}


#: Bytes read at a time where a file is summed.
_SUMMED_BYTES = 2**20


def sums_of(read: Callable[[int], bytes]) -> tuple[int, int]:
    """Size and CRC32C of all that a function still reads."""
    import google_crc32c

    size = crc = 0
    while data := read(_SUMMED_BYTES):
        size, crc = size + len(data), google_crc32c.extend(crc, data)
    return size, crc


class Claim(Protocol):
    """Who may replace what stands under some names of a store with generations."""

    def is_held(self) -> bool:
        """True once whatever stands there may be replaced."""

    def take(self) -> None:
        """Hold the claim, or see that it still is; raises what its owner likes where it is not.

        Who looks what stands, takes the claim and then replaces just that, never replaces what a
        later holder has put there.
        """


def put_claimed(
    claim: Claim,
    look: Callable[[], Description | None],
    put: Callable[[int], object],
    is_ours: Callable[[Description], bool],
) -> None:
    """Put a file that replaces other bytes only where the claim to them is held.

    Args:
        look: describes what stands there.
        put: puts the file over a generation, 0 for none; raises an OtherStandsError where another
            stands.
        is_ours: whether what stands there has the bytes of the file.
    """
    generation = 0
    if claim.is_held():
        standing = look()
        generation = 0 if standing is None else standing.generation
        claim.take()  # after the look: whoever takes it from now on replaces what we saw
    try:
        put(generation)
    except OtherStandsError:
        standing = look()
        # An upload of ours, whose answer was lost, or one of the same shard by another worker.
        if standing is None or not is_ours(standing):
            claim.take()
            put_claimed(claim, look, put, is_ours)


def too_large(size: int) -> UnreadableError:
    """The error of a file beyond `MAX_FILE_BYTES`; `size` is what it has, at least."""
    return UnreadableError("too_large", f"{size:,} bytes; at most {MAX_FILE_BYTES:,}")


def is_transient(status: int) -> bool:
    """True for an HTTP status after which another attempt may succeed, whatever the service.

    Source: https://cloud.google.com/storage/docs/retry-strategy
    """
    return status in (408, 429) or 500 <= status < 600


class Store(Protocol):
    """Files by their full paths, scheme included.

    Every method may raise what `may_pass`, whose caller tries again (`retry.retried`); those that
    read UnreadableError, those that write UnwritableError or another OSError.
    """

    def read(self, path: str) -> bytes:
        """A whole file of at most `MAX_FILE_BYTES`."""

    def open(self, path: str) -> BinaryIO:
        """A file to read and seek in, without holding it in memory."""

    def fetch(self, path: str, file: BinaryIO) -> None:
        """Copy a whole file of any size into an empty local one."""

    def size(self, path: str) -> int | None:
        """A file's size in bytes; None if there is no such file."""

    def describe(self, path: str) -> Description | None:
        """What the store says about a file; None if there is no such file."""

    def version(self, path: str) -> Hashable:
        """Another value once a file was replaced; None if there is no such file."""

    def descriptions(self, folder: str) -> dict[str, Description]:
        """The files right in a folder, by name; empty without it."""

    def names(self, folder: str) -> dict[str, int | None]:
        """What lies in a folder, by name: a file's size, None for a folder; empty without it."""

    def files(self, folder: str) -> Iterator[str]:
        """The paths of all files below a folder, relative to it, in any order."""

    def is_folder(self, path: str) -> bool:
        """True where something lies below this path."""

    def publish(
        self, folder: str, name: str, claim: Claim | None = None, listed: bool = False
    ) -> AbstractContextManager[BinaryIO]:
        """A file that stands as `name` below a folder only once the block ends well.

        It is written from its beginning to its end, without seeking.  With a claim, in a store with
        generations, a file of other bytes that stands there is replaced only once that is held.
        Of a short file listings give the content too where `listed` is set, if the store can.
        """

    def put_over(self, folder: str, name: str, data: bytes, generation: int) -> int | None:
        """Write a short file below a folder where this generation stands, 0 for none.

        Gives the new generation.  Listings then give its content too.
        None of a store without generations: nothing was written.

        Raises:
            OtherStandsError: another generation stands there, of other bytes.
        """

    def remove(self, folder: str, name: str) -> None:
        """Remove a file below a folder, or a folder with all in it; nothing if there is none."""

    def move(self, folder: str, name: str, new: str) -> None:
        """Give a file below a folder another name there, and replace the file that has it.

        Nothing where it has its new name already: the old one is gone, the new one is there.
        """

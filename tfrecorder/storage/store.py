"""What every file store can do, and how it fails."""

from __future__ import annotations

import contextlib
import errno
import shutil
import socket
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from tfrecorder.errors import PackageError, TfrecorderError

T = TypeVar("T")

#: Larger files are refused: no image of this size fits a record, which is limited to 2 GiB.
MAX_FILE_BYTES = 2**30


#: The `Cache-Control` of a file on a bucket that may be replaced.  Without it, Google Cloud Storage
#: lets caches serve an old version of a public object for an hour.
#: Source: https://cloud.google.com/storage/docs/caching
FRESH = "no-cache"

#: Error codes that are not about the file: the reader's setup has to be fixed.
OF_THE_READER = frozenset(("no_credentials", "no_user_project", "wrong_setup"))


class UnreadableError(TfrecorderError):
    """A file cannot be read, and a retry would not help.

    Attributes:
        code: what is wrong, in one word: not_found, no_permission, not_a_file, too_large,
            bad_name, no_credentials, no_user_project, wrong_setup, replaced or read_failed; over
            http(s) also private_host, or unreachable for as long as any request is retried.
        detail: the system's message, without the path.
    """

    def __init__(
        self,
        code: str,
        detail: str,
    ) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class UnwritableError(OSError):
    """A file cannot be written, and a retry would not help; the message says why."""


class TransientError(Exception):
    """A request failed in a way that may pass: a time-out, a reset connection, a busy server.

    Attributes:
        after: seconds that the server asks us to wait before the next attempt; 0 if it does not.
    """

    def __init__(
        self,
        words: str,
        after: float = 0,
    ) -> None:
        super().__init__(words)
        self.after = after


#: The errors of a disk whose cable, server or daemon is briefly away, of a network, and of a
#: process with too many open files.  None of them is about the file itself.
_NAMES = """
    EIO EREMOTEIO ESTALE EAGAIN ETIMEDOUT ENOTCONN ENOLINK ENODEV
    ECONNRESET ECONNABORTED ECONNREFUSED EPIPE ESHUTDOWN ENETRESET
    EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH
    EMFILE ENFILE ENOMEM ENOBUFS
"""
_PASSING = frozenset(
    getattr(errno, name)
    for name in _NAMES.split()
    if hasattr(errno, name)  # not every system has all of them
)


def may_pass(error: BaseException) -> bool:
    """True for a failure, of a store or of the system, after which another attempt may succeed."""
    # gaierror: a host name that cannot be resolved right now.
    if isinstance(error, (TransientError, TimeoutError, ConnectionError, socket.gaierror)):
        return True
    return isinstance(error, OSError) and error.errno in _PASSING


class OtherStandsError(Exception):
    """A file was to be replaced, but another one is there by now."""


@contextlib.contextmanager
def translated(translate: Callable[[Exception], Exception | None]) -> Iterator[None]:
    """A block of requests of a store, whose failures are raised as our errors.

    Args:
        translate: gives our error for a failure of the packages behind the store, and None for
            another fault.
    """
    try:
        yield
    except (UnreadableError, UnwritableError, TransientError, OtherStandsError, PackageError):
        raise
    except Exception as error:
        ours = translate(error)
        if ours is None:
            raise
        raise ours from error


def unless_missing(request: Callable[[], T]) -> T | None:
    """What a request gives; None if there is no such file."""
    try:
        return request()
    except UnreadableError as error:
        if error.code != "not_found":
            raise
        return None


def split_path(path: str) -> tuple[str, str]:
    """The bucket or container of a path, with its scheme, and the name of an object in it.

    >>> split_path("s3://bucket/a/b.jpg")
    ('s3://bucket', 'a/b.jpg')
    """
    scheme, _, rest = path.partition("://")
    bucket, _, name = rest.partition("/")
    if not bucket:
        raise UnreadableError("bad_name", f"{path!r} names no bucket; write {scheme}://BUCKET/NAME")
    return f"{scheme}://{bucket}", name


class Description(NamedTuple):
    """What a store says about a file without sending it.

    Attributes:
        size: in bytes, as stored.
        crc32c: None if the store keeps none.
        version: the store's own name for what is there, which changes whenever the file is written,
            or whenever its bytes change; empty if the store cannot write over a named version.
        written: when it was written, in a text; empty if the store does not tell, or has versions.
    """

    size: int
    crc32c: int | None = None
    version: str = ""
    written: str = ""

    def is_of(
        self,
        size: int,
        crc32c: int,
    ) -> bool:
        """Whether a file has this size and checksum, as far as the store knows."""
        return self.size == size and self.crc32c in (None, crc32c)


#: The values of a `Description`.
Described = tuple[int, int | None, str, str]


class Descriptions(UserDict[str, Any]):
    """Files by name; each description is made when it is asked for, of a plain tuple in `data`.

    Of the 100,000 objects of a large dataset the garbage collector makes more work than the listing
    of their folder is: it looks through the whole process.  Plain tuples it lets go.
    """

    def __getitem__(self, name: str) -> Description:
        return Description._make(self.data[name])


#: Bytes of a file that are fetched in one request.
FETCHED_TOGETHER = 2**24

#: Bytes read at a time for a checksum.
_SUMMED_BYTES = 2**20


def sums_of(read: Callable[[int], bytes]) -> tuple[int, int]:
    """Size and CRC32C of everything a function reads until it returns nothing."""
    import google_crc32c

    size = crc = 0
    while data := read(_SUMMED_BYTES):
        size = size + len(data)
        crc = google_crc32c.extend(crc, data)
    return size, crc


class Claim(Protocol):
    """The right to replace existing files under some names of a store with versions."""

    def is_held(self) -> bool:
        """True once the files there may be replaced."""

    def take(self) -> None:
        """Take the claim, or check that it is still held; raises an error of its owner if not.

        Look at the file that is there, take the claim, then replace exactly that file: this never
        replaces a file written by a later holder.
        """


def too_large(size: int) -> UnreadableError:
    """The error for a file larger than `MAX_FILE_BYTES`; it has at least `size` bytes."""
    return UnreadableError("too_large", f"{size:,} bytes; at most {MAX_FILE_BYTES:,}")


def is_transient(status: int) -> bool:
    """True for an HTTP status after which another attempt may succeed, whatever the service.

    Source: https://cloud.google.com/storage/docs/retry-strategy
    """
    return status in (408, 429) or 500 <= status < 600


#: What else an HTTP status says of a file, whatever the service.
CODES_OF_STATUS = {401: "no_permission", 403: "no_permission", 404: "not_found", 410: "not_found"}


#: A file to write; see `Store.publish`.
Writing = AbstractContextManager[BinaryIO]


class Store(Protocol):
    """Files by their full paths, scheme included; a store inherits what it does as most do.

    Every method may raise errors that `may_pass`; the caller retries those (`retry.retried`).
    A refusal is an UnreadableError; where files are written, `storage.files` makes it an
    UnwritableError.  Methods that write may raise another OSError too.
    """

    def read(self, path: str) -> bytes:
        """A whole file of at most `MAX_FILE_BYTES`."""

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        """A whole file as `read` gives it, and the version of exactly these bytes.

        The version is "" where a store has none.
        """
        return self.read(path), ""

    def open(
        self,
        path: str,
        expected: Description | None = None,
    ) -> BinaryIO:
        """A file to read and seek in, without holding it in memory.

        An `expected` description is of the file to read: another one in its place is an
        UnreadableError, here or when it is read.
        """

    def fetch(
        self,
        path: str,
        file: BinaryIO,
    ) -> None:
        """Copy a whole file of any size into an empty local one."""
        with self.open(path) as source:
            shutil.copyfileobj(source, file, FETCHED_TOGETHER)

    def describe(self, path: str) -> Description | None:
        """What the store says about a file; None if there is no such file."""

    def version(self, path: str) -> str | None:
        """A text that changes when the file is replaced; None if there is no such file."""

    def listing(self, folder: str) -> Mapping[str, Described | None]:
        """What is in a folder, by name; None for a folder; empty if there is no such folder."""

    def names(self, folder: str) -> Iterable[str]:
        """The names in a folder; a store that can tell them for less than `listing` does."""
        return self.listing(folder)

    def files(self, folder: str) -> Iterator[str]:
        """The paths of all files below a folder, relative to it, in any order."""

    def is_folder(self, path: str) -> bool:
        """True if there is anything below this path."""

    def publish(
        self,
        folder: str,
        name: str,
        claim: Claim | None = None,
    ) -> Writing:
        """A file that appears as `name` below a folder only if the block succeeds.

        It is written from start to end, without seeking.  In a store with versions, a claim
        means that an existing file with other bytes is replaced only once the claim is held.
        A bucket tells caches to ask again (`FRESH`) for a file without a claim: it may be replaced.
        """

    def put_claimed(
        self,
        path: str,
        claim: Claim,
        put: Callable[[str], object],
        is_ours: Callable[[Description], bool],
    ) -> None:
        """Put a file that replaces other bytes only if the claim to them is held.

        Args:
            put: puts the file over a version, empty for no file; raises an OtherStandsError if
                another one is there.
            is_ours: whether the file that is there has our bytes.
        """
        version = ""
        if claim.is_held():
            standing = self.describe(path)
            version = "" if standing is None else standing.version
            claim.take()  # after the look: whoever takes it from now on replaces what we saw
        try:
            put(version)
        except OtherStandsError:
            standing = self.describe(path)
            # Ours: an upload whose response was lost, or another worker's upload of the same shard.
            if standing is None or not is_ours(standing):
                claim.take()
                self.put_claimed(path, claim, put, is_ours)

    def replaces_conditionally(self) -> bool:
        """Whether `put_over` writes, or a lock of ours can guard what it would replace."""
        return True

    def keeps_removed(self, folder: str) -> str | None:
        """For how long it keeps what is removed, in words; "" if it keeps nothing.

        None if nobody can tell.
        """
        return None

    def put_over(
        self,
        folder: str,
        name: str,
        data: bytes,
        version: str,
    ) -> str | None:
        """Write a short file below a folder over this version, empty for no file.

        Returns the new version.  A store without versions returns None and writes nothing.

        Raises:
            OtherStandsError: another version with other bytes is there.
        """
        path = f"{folder}/{name}"
        try:
            return self.put_at(path, data, version)
        except OtherStandsError:
            # An earlier attempt of ours may have written it, and the response was lost.
            standing = unless_missing(lambda: self.read_versioned(path))
            if standing is None or standing[0] != data:
                raise
            return standing[1]

    def put_at(
        self,
        path: str,
        data: bytes,
        version: str,
    ) -> str | None:
        """The request of `put_over`; raises an OtherStandsError whatever the other bytes are."""
        return None

    def remove(
        self,
        folder: str,
        name: str,
    ) -> None:
        """Remove a file below a folder, or a folder and all in it; nothing if there is none."""

    def remove_file(
        self,
        folder: str,
        name: str,
    ) -> None:
        """Remove a file below a folder; where a folder may have its name too, that may stay."""
        self.remove(folder, name)

    def sync(
        self,
        folder: str,
        names: Collection[str],
    ) -> None:
        """See `storage.sync`; nothing where what the service has answered for is kept."""
        return

    def link(
        self,
        folder: str,
        name: str,
        new: str,
    ) -> None:
        """Give a file below a folder a second name, replacing any file with that name."""
        # Through a buffer: a write to the file itself may take only part of a piece.
        with (
            self.publish(folder, new) as file,
            open(file.fileno(), "wb", closefd=False) as whole,
        ):
            self.fetch(f"{folder}/{name}", whole)

    def move(
        self,
        folder: str,
        name: str,
        new: str,
        version: str = "",
    ) -> None:
        """Rename a file below a folder, replacing any file with the new name.

        Does nothing if it has been renamed already: the old name is gone, the new one is there.

        Args:
            version: of the file, as far as it is known.
        """
        try:
            self.move_at(folder, name, new, version)
        except UnreadableError as error:
            if error.code != "not_found" or self.describe(f"{folder}/{new}") is None:
                raise

    def move_at(
        self,
        folder: str,
        name: str,
        new: str,
        version: str = "",
    ) -> None:
        """The requests of `move`; an UnreadableError if there is no such file."""
        self.link(folder, name, new)
        self.remove(folder, name)

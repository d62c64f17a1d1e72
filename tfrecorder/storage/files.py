"""Reading files by path or uri, and what is in folders: from the store of each scheme.

A scheme has one store in this process.  This module and `writing.py` retry transient failures.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, TypeVar, cast

from tfrecorder.core.threads import map_at_once
from tfrecorder.storage.folders import held_open
from tfrecorder.storage.local import LocalStore, check_locale, other_form
from tfrecorder.storage.retry import retried
from tfrecorder.storage.store import (
    Described,
    Description,
    Descriptions,
    Store,
    TransientError,
    UnreadableError,
    sums_of,
)
from tfrecorder.storage.uris import WEB, is_local, resolve, scheme

_LOCAL = LocalStore()

#: By scheme, once used; http and https are one, since a host has so many connections for both.
_REMOTE: dict[str, Store] = {}

T = TypeVar("T")
R = TypeVar("R")

#: Concurrent requests to a remote store: each waits for a response, not for a core.
REMOTE_THREADS = 16

#: Concurrent requests of `each`, whose files are small: done-records and lists of rejects.
_SMALL_REQUESTS = 32


class FoldersRead:
    """The local folders that one conversion has seen, and all folders above them.

    An unmounted disk answers "no such file", as if its files had never existed, and often leaves an
    empty folder in its place.  A missing image is a problem of its row; a missing disk is not.

    Args:
        folder: one that existed when the conversion was planned.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._known: set[str] = set()
        if folder is not None:
            self.add(folder)

    def add(self, folder: str) -> None:
        """Add a folder: a file was just read from it."""
        while folder not in self._known:  # nearly always it is
            self._known.add(folder)
            folder = os.path.dirname(folder)

    def vanished(self, path: str) -> str | None:
        """The folder above a missing file that existed before and is gone or empty now.

        None if there is no such folder: then only the file is missing.
        """
        folder = os.path.dirname(path)
        while folder not in self._known:
            above = os.path.dirname(folder)
            if above == folder:
                return None
            folder = above
        return None if _holds_anything(folder) else folder


def store_of(path: str) -> Store:
    """The store that a path or uri is in; its client is created on first use."""
    kind = scheme(path)
    if not kind:
        check_locale(path)
        return _LOCAL
    kind = WEB[-1] if kind in WEB else kind
    # Of several that threads make at the same time, all take one.
    return _REMOTE.get(kind) or _REMOTE.setdefault(kind, _made(kind))


def read_bytes(path: str) -> bytes:
    """A whole regular file.

    Raises:
        UnreadableError: it is missing, a folder, a device or a pipe, it is larger than
            `MAX_FILE_BYTES`, access is denied, or reading fails.
        UnreachableError: its store or disk did not answer, as in every function here.
    """
    return retried(lambda: store_of(path).read(path), path)


def read_versioned(path: str) -> tuple[bytes, str]:
    """A whole file, and its `version`, taken so that both belong together.

    Raises:
        UnreadableError: as `read_bytes`.
    """
    return retried(lambda: store_of(path).read_versioned(path), path)


def read_source(
    path: str,
    folders: FoldersRead,
    note_retry: Callable[[], None] = lambda: None,
) -> tuple[bytes, int | None]:
    """`read_bytes` for a file named by a source; and when it had last been written before that.

    The time is in ns since 1970, and None for a file that is not on a disk.

    If it is missing and a folder that existed before is now gone or empty, a disk went away.  The
    disk may come back, so we wait for it.

    Args:
        folders: the folders read from so far; the file's own is added.
    """

    store = store_of(path)
    local = store if isinstance(store, LocalStore) else None

    def read() -> tuple[bytes, int | None]:
        try:
            return (store.read(path), None) if local is None else local.read_dated(path)
        except UnreadableError as error:
            if error.code == "not_found" and local is not None and (other := other_form(path)):
                return local.read_dated(other)
            if error.code == "not_found" and (gone := folders.vanished(path)) is not None:
                raise TransientError(
                    f"its folder {gone} was there before, but is now gone or empty"
                ) from error
            raise

    dated = retried(read, path, note_retry)
    if local is not None:
        folders.add(path.rpartition("/")[0])
    return dated


def open_seekable(path: str, expected: Described | None = None) -> BinaryIO:
    """A file to read in parts.

    Args:
        expected: what the store said about the file before; reads nothing that was written since.

    Raises:
        UnreadableError: as `read_bytes`; or, also when it is read, it was replaced.
    """
    description = None if expected is None else Description._make(expected)
    return retried(lambda: store_of(path).open(path, description), path)


@contextlib.contextmanager
def local_copy(path: str) -> Iterator[str]:
    """A local path with a file's content: the file's own path, or that of a temporary copy.

    Raises:
        UnreadableError: as `read_bytes`.
    """
    if is_local(path):
        yield resolve(path, "")
        return
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="tfrecorder-") as copy:

        def fetch() -> None:
            copy.truncate(0)
            copy.seek(0)
            try:
                store_of(path).fetch(path, cast(BinaryIO, copy.file))
            except OSError as error:  # on this machine: its disk is full
                raise UnreadableError("read_failed", error.strerror or str(error)) from error

        retried(fetch, path)
        copy.flush()
        yield copy.name


def size(path: str) -> int | None:
    """A file's size in bytes; None if there is no such file.

    Raises:
        UnreadableError: as `read_bytes`, except for a missing file.
    """
    description = describe(path)
    return None if description is None else description.size


def size_or_none(path: str) -> int | None:
    """A file's size in bytes, or None if it cannot be read."""
    try:
        return size(path)
    except UnreadableError:
        return None


def describe(path: str) -> Description | None:
    """What the store says about a file: size, CRC32C, version; None if there is no such file.

    Raises:
        UnreadableError: as `read_bytes`, except for a missing file.
    """
    return retried(lambda: store_of(path).describe(path), path)


def version(path: str) -> str | None:
    """A text that changes when the file is replaced; None if there is no such file.

    Raises:
        UnreadableError: as `read_bytes`, except for a missing file.
    """
    return retried(lambda: store_of(path).version(path), path)


def sums(path: str) -> tuple[int, int]:
    """A file's size and CRC32C: as the store keeps them, else computed by reading the file.

    Raises:
        UnreadableError: as `read_bytes`.
    """
    description = describe(path)
    if description is not None and description.crc32c is not None:
        return description.size, description.crc32c
    with local_copy(path) as copy, open_seekable(copy) as file:
        return sums_of(file.read)


def exists(path: str) -> bool:
    """True for a file or a folder.

    Raises:
        UnreadableError: as `is_folder`.
    """
    return _listed(path, store_of(path).describe) is not None or is_folder(path)


def is_folder(path: str) -> bool:
    """True if there is anything below a path, or if it is a local folder.

    Raises:
        UnreadableError: the store does not answer, or access is denied; the message names the path.
    """
    return _listed(path, store_of(path).is_folder)


def sizes(folder: str) -> dict[str, int | None]:
    """What is in a folder, by name, sorted: a file's size in bytes, None for a folder.

    Empty if there is no such folder.

    Raises:
        UnreadableError: as `is_folder`.
    """
    listing = sorted(_listed(folder, store_of(folder).listing).items())
    return {name: None if file is None else file[0] for name, file in listing}


def descriptions(folder: str) -> Descriptions:
    """The files directly in a folder, by name, as `describe` gives them, from one listing.

    Raises:
        UnreadableError: as `is_folder`.
    """
    listing = _listed(folder, store_of(folder).listing)
    return Descriptions({name: file for name, file in listing.items() if file is not None})


def names(folder: str) -> list[str]:
    """The names in a folder, sorted; none if there is no such folder."""
    return sorted(_listed(folder, store_of(folder).names))


def files_below(folder: str) -> list[str]:
    """The paths of all files below a folder, relative to it, sorted."""
    return sorted(_listed(folder, lambda folder: list(store_of(folder).files(folder))))


def _listed(path: str, request: Callable[[str], T]) -> T:
    try:
        return retried(lambda: request(path), path)
    except UnreadableError as error:
        raise UnreadableError(error.code, f"{path} cannot be read: {error.detail}") from error


@contextlib.contextmanager
def failing_as(kind: type[Exception], path: str) -> Iterator[None]:
    """A block in which a failed read raises this kind of error, with path and reason."""
    try:
        yield
    except UnreadableError as error:
        words = str(error)  # may name a path below this one
        raise kind(f"{words}." if path in words else f"{path} cannot be read: {words}.") from error


def each(
    work: Callable[[T], R],
    things: Collection[T],
    path: str,
) -> list[R]:
    """The results of `work` for each thing, in order; concurrent if `path` is on a remote store."""
    if is_local(path) or len(things) < 2:
        with held_open():
            return [work(thing) for thing in things]
    return map_at_once(work, things, _SMALL_REQUESTS)


def refusal(kind: str) -> str | None:
    """Why files of a scheme cannot be read or written, and the remedy; None if they can.

    Images alone are read over http(s).

    Raises:
        PackageError: an extra is missing.

    >>> refusal("gs"), refusal("https")
    (None, 'put the files on a disk or into a bucket first')
    """
    if kind in ("", "gs"):
        return None
    from tfrecorder.storage import fsspec_store, object_clients

    if kind in object_clients.SCHEMES:
        object_clients.check_packages(kind)
        return None
    return fsspec_store.refusal(kind)


def is_unsigned(path: str) -> bool:
    """Whether requests for a file carry no credentials, so that only a public file can be read.

    Makes no request.
    """
    return scheme(path) == "gs" and cast(Any, store_of(path)).is_unsigned()


def _made(kind: str) -> Store:
    if kind == "gs":
        from tfrecorder.storage.gcs import BucketStore

        return BucketStore()
    if kind in WEB:
        from tfrecorder.storage.web_store import WebStore

        return cast(Any, WebStore())  # without the methods that write
    from tfrecorder.storage.fsspec_store import FsspecStore
    from tfrecorder.storage.object_clients import SCHEMES

    words = refusal(kind)
    if words is not None:
        raise UnreadableError("read_failed", f"{kind}:// cannot be reached: {words}")
    if kind not in SCHEMES:
        return FsspecStore(kind)
    from tfrecorder.storage.object_store import ObjectStore

    return ObjectStore()


def _holds_anything(folder: str) -> bool:
    try:
        with os.scandir(folder or ".") as entries:
            return next(entries, None) is not None
    except OSError:
        return False

"""Files by path or uri: everything this package reads or writes goes through here.

Each scheme has its own store (`stores.py`).  This module retries transient failures.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from typing import BinaryIO, TypeVar, cast

from tfrecorder.core.threads import map_at_once
from tfrecorder.errors import UnreachableError
from tfrecorder.storage.known_folders import KnownFolders
from tfrecorder.storage.retry import impatient, retried
from tfrecorder.storage.store import (
    Claim,
    Description,
    OtherStandsError,
    TransientError,
    UnreadableError,
    UnwritableError,
    sums_of,
)
from tfrecorder.storage.stores import store_of
from tfrecorder.storage.uris import is_local, resolve

T = TypeVar("T")
R = TypeVar("R")

#: Concurrent requests to a remote store: each waits for a response, not for a core.
REMOTE_THREADS = 16

#: Concurrent requests of `each`, whose files are small: done-records and lists of rejects.
_SMALL_REQUESTS = 32


# ---------------------------------------------------------------------------------------------
# Reading.


def read_bytes(path: str, note_retry: Callable[[], None] = lambda: None) -> bytes:
    """A whole regular file.

    Args:
        note_retry: called before each retry.

    Raises:
        UnreadableError: it is missing, a folder, a device or a pipe, it is larger than
            `MAX_FILE_BYTES`, access is denied, or reading fails.
        UnreachableError: its store or disk did not answer, as in every function here.
    """
    return retried(lambda: store_of(path).read(path), path, note_retry)


def read_versioned(path: str) -> tuple[bytes, str]:
    """A whole file, and its `version`, taken so that both belong together.

    Raises:
        UnreadableError: as `read_bytes`.
    """
    return retried(lambda: store_of(path).read_versioned(path), path)


def read_source(
    path: str, folders: KnownFolders, note_retry: Callable[[], None] = lambda: None
) -> bytes:
    """`read_bytes` for a file named by a source.

    If it is missing and a folder that existed before is now gone or empty, a disk went away.  The
    disk may come back, so we wait for it.

    Args:
        folders: the folders read from so far; the file's own is added.
    """

    def read() -> bytes:
        try:
            return store_of(path).read(path)
        except UnreadableError as error:
            if error.code == "not_found" and (gone := folders.vanished(path)) is not None:
                words = f"its folder {gone} was there before, but is now gone or empty"
                raise TransientError(words) from error
            raise

    data = retried(read, path, note_retry)
    if is_local(path):
        folders.add(os.path.dirname(path))
    return data


def open_seekable(path: str) -> BinaryIO:
    """A file to read in parts.

    Raises:
        UnreadableError: as `read_bytes`.
    """
    return retried(lambda: store_of(path).open(path), path)


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
            store_of(path).fetch(path, cast(BinaryIO, copy.file))

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
    return {name: None if file is None else file.size for name, file in listing}


def descriptions(folder: str) -> dict[str, Description]:
    """The files directly in a folder, by name, as `describe` gives them, from one listing.

    Raises:
        UnreadableError: as `is_folder`.
    """
    listing = _listed(folder, store_of(folder).listing)
    return {name: file for name, file in listing.items() if file is not None}


def names(folder: str) -> list[str]:
    """The names in a folder, sorted; none if there is no such folder."""
    return list(sizes(folder))


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


# ---------------------------------------------------------------------------------------------
# Writing.


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """A block that writes: a store's refusal is an OSError, as that of a disk is."""
    try:
        yield
    except UnreadableError as error:
        raise UnwritableError(error.detail) from error


@contextlib.contextmanager
def publish(output_dir: str, name: str, claim: Claim | None = None) -> Iterator[BinaryIO]:
    """A file to write that appears under its final name only if the block succeeds.

    Args:
        output_dir: the dataset directory.
        name: the final name below it, as `layout` gives it.
        claim: in a store with versions (gs, s3, az), an existing file with other bytes is
            replaced only once the claim is held.

    Raises:
        OSError: it cannot be written.
    """
    with _writing(), store_of(output_dir).publish(output_dir, name, claim) as file:
        yield file


def publish_by(
    output_dir: str,
    name: str,
    write: Callable[[BinaryIO], None],
    claim: Claim | None = None,
) -> None:
    """`publish` what `write` writes; `write` is called again after a transient disk failure.

    Uploads to remote stores are retried by the store itself.
    """

    def attempt() -> None:
        with publish(output_dir, name, claim) as file:
            write(file)

    retried(attempt, os.path.join(output_dir, name))


def publish_bytes(output_dir: str, name: str, data: bytes, claim: Claim | None = None) -> None:
    """`publish` these bytes."""
    publish_by(output_dir, name, lambda file: write_all(file, data), claim)


def replaces_conditionally(path: str) -> bool:
    """Whether a file can be replaced so that no other writer's change to it is lost.

    On gs://, s3:// and az:// by `publish_over`, on a local disk under a lock.
    """
    return store_of(path).replaces_conditionally()


def publish_over(output_dir: str, name: str, data: bytes, version: str) -> str:
    """`publish_bytes` over one version (empty: no file yet); returns the new version.

    A store without versions replaces whatever is there, and returns an empty text.

    Raises:
        OtherStandsError: another version with other bytes is there.
        OSError: it cannot be written.
    """
    path = os.path.join(output_dir, name)
    with _writing():
        made = retried(lambda: store_of(output_dir).put_over(output_dir, name, data, version), path)
    if made is None:
        publish_bytes(output_dir, name, data)
    return made or ""


def publish_new(output_dir: str, name: str, data: bytes) -> bool:
    """`publish_bytes` unless another file already has that name: then False, and it is kept.

    If two writers race on gs://, s3:// or az://, the loser finds out; elsewhere both may win.

    Raises:
        OSError: it cannot be written, or the existing file cannot be read.
    """
    path = os.path.join(output_dir, name)
    try:
        with _writing():
            made = retried(lambda: store_of(output_dir).put_over(output_dir, name, data, ""), path)
            if made is None and size(path) is not None:
                return read_bytes(path) == data
    except OtherStandsError:
        return False
    if made is None:
        publish_bytes(output_dir, name, data)
    return True


def overwrite(folder: str, name: str, text: str) -> None:
    """`publish` a short note; losing it does no harm, so nothing is retried or raised."""
    with impatient(), contextlib.suppress(OSError, UnreachableError):
        publish_bytes(folder, name, text.encode())


def remove(folder: str, name: str) -> None:
    """Remove a file below a folder, or a folder and everything in it; nothing if there is none.

    Raises:
        OSError: it cannot be removed.
    """
    with _writing():
        retried(lambda: store_of(folder).remove(folder, name), os.path.join(folder, name))


def sync(folder: str, names: Collection[str]) -> None:
    """Wait until files survive a power cut: their bytes, and their names in their folders.

    Syncs the files, each folder from theirs up to `folder`, and the entry of `folder` itself.
    Without names, these folders alone: for a removal, say.  On a bucket this does nothing.

    Raises:
        OSError: it is not certain; nothing is retried, because a disk reports a lost write once.
    """
    with _writing():
        store_of(folder).sync(folder, names)


def link(folder: str, name: str, new: str) -> None:
    """Give a file below a folder a second name, replacing any file with that name.

    Locally a hard link if possible, else a copy; on a bucket a copy made by the service.

    Raises:
        OSError: it cannot be linked or copied, or there is no such file.
    """
    with _writing():
        retried(lambda: store_of(folder).link(folder, name, new), os.path.join(folder, name))


def move(folder: str, name: str, new: str) -> None:
    """Rename a file below a folder, replacing any file with the new name.

    Does nothing if the file has been renamed already.  On a bucket this is a copy made by the
    service, then a removal: an interruption between the two leaves both files.

    Raises:
        OSError: it cannot be moved, or there is no such file.
    """
    with _writing():
        retried(lambda: store_of(folder).move(folder, name, new), os.path.join(folder, name))


def remove_all(folder: str, unwanted: Collection[str]) -> None:
    """`remove` many names below a folder, in any order."""
    each(lambda name: remove(folder, name), unwanted, folder)


def write_all(file: BinaryIO, *parts: bytes) -> None:
    """Write whole buffers: an unbuffered write may take only part of them."""
    expected = sum(map(len, parts))
    written = os.writev(file.fileno(), parts)
    if written < expected:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[file.write(rest) :]


# ---------------------------------------------------------------------------------------------
# Stores.


def each(work: Callable[[T], R], things: Collection[T], path: str) -> list[R]:
    """The results of `work` for each thing, in order; concurrent if `path` is on a remote store."""
    if is_local(path) or len(things) < 2:
        return [work(thing) for thing in things]
    return map_at_once(work, things, _SMALL_REQUESTS)

"""Writing, moving and removing files by path or uri."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import BinaryIO, TypeVar

from tfrecorder.errors import UnreachableError
from tfrecorder.storage.files import each, read_bytes, size, store_of
from tfrecorder.storage.folders import sync_opened
from tfrecorder.storage.retry import impatient, retried
from tfrecorder.storage.store import (
    Claim,
    Description,
    OtherStandsError,
    Store,
    UnreadableError,
    UnwritableError,
    split_path,
)
from tfrecorder.storage.uris import is_local

T = TypeVar("T")

#: What every operation needs of a bucket, as a remedy.
_RIGHTS = (
    "Whoever writes a dataset must be able to create, replace and delete objects (on gs://, the "
    "role Storage Object User), and no retention policy or hold may keep them"
)


#: Bytes of a file that the disk begins to write together.
_PIECE_BYTES = 2**22


@contextlib.contextmanager
def _writing(name: str) -> Iterator[None]:
    """A block that writes: a store's refusal is an OSError with the name, as that of a disk is."""
    try:
        yield
    except UnreadableError as error:
        remedy = f". {_RIGHTS}" if error.code == "no_permission" else ""
        raise UnwritableError(f"{name}: {error.detail}{remedy}") from error


def _asked(
    folder: str,
    name: str,
    request: Callable[[Store], T],
) -> T:
    """The answer to a request to write a file below a folder, which is retried."""
    with _writing(name):
        return retried(lambda: request(store_of(folder)), os.path.join(folder, name))


@contextlib.contextmanager
def publish(
    output_dir: str,
    name: str,
    claim: Claim | None = None,
) -> Iterator[BinaryIO]:
    """A file to write that appears under its final name only if the block succeeds.

    Args:
        output_dir: the dataset directory.
        name: the final name below it, as `layout` gives it.
        claim: in a store with versions (gs, s3, az), an existing file with other bytes is
            replaced only once the claim is held.

    Raises:
        OSError: it cannot be written.
    """
    with _writing(name), store_of(output_dir).publish(output_dir, name, claim) as file:
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


def publish_bytes(
    output_dir: str,
    name: str,
    data: bytes,
    claim: Claim | None = None,
    lasting: bool = False,
) -> None:
    """`publish` these bytes.

    Args:
        lasting: on a disk they are kept before the name is: no power cut leaves it without them.
    """

    def write(file: BinaryIO) -> None:
        write_all(file, data)
        if lasting and is_local(output_dir):
            sync_opened(os.dup(file.fileno()))

    publish_by(output_dir, name, write, claim)


def publish_all(
    output_dir: str,
    files: Mapping[str, bytes],
    claim: Claim | None = None,
    lasting: bool = False,
) -> None:
    """`publish_bytes` of files by name; at once on a remote store, for which one mostly waits."""
    each(
        lambda name: publish_bytes(output_dir, name, files[name], claim, lasting),
        files,
        output_dir,
    )


def keeps_removed(folder: str) -> str:
    """What to know of what is removed from a folder: that its store keeps it; "" if it does not.

    Raises:
        UnreachableError: the store does not answer.
    """
    place = folder if is_local(folder) else split_path(folder)[0]
    try:
        words = retried(lambda: store_of(folder).keeps_removed(folder), folder)
    except UnreadableError as error:
        return f"whether {place} keeps removed objects is not known ({error}); ask its owner"
    if words is None:
        return (
            f"whether {place} keeps removed objects or older versions is not known; ask its owner"
        )
    return f"{place} keeps removed objects {words}" if words else ""


def replaces_conditionally(path: str) -> bool:
    """Whether a file can be replaced so that no other writer's change to it is lost.

    On gs://, s3:// and az:// by `publish_over`, on a local disk under a lock.
    """
    return store_of(path).replaces_conditionally()


def publish_over(
    output_dir: str,
    name: str,
    data: bytes,
    version: str,
    lasting: bool = True,
) -> str:
    """`publish_bytes` over one version (empty: no file yet); returns the new version.

    A store without versions replaces whatever is there, and returns an empty text.

    Raises:
        OtherStandsError: another version with other bytes is there.
        OSError: it cannot be written.
    """
    made = _asked(output_dir, name, lambda store: store.put_over(output_dir, name, data, version))
    if made is None:
        publish_bytes(output_dir, name, data, lasting=lasting)
    return made or ""


def publish_new(
    output_dir: str,
    name: str,
    data: bytes,
) -> bool:
    """`publish_bytes` unless another file already has that name: then False, and it is kept.

    If two writers race on gs://, s3:// or az://, the loser finds out; elsewhere both may win.

    Raises:
        OSError: it cannot be written, or the existing file cannot be read.
    """
    try:
        made = _asked(output_dir, name, lambda store: store.put_over(output_dir, name, data, ""))
    except OtherStandsError:
        return False
    if made is not None:
        return True
    path = os.path.join(output_dir, name)
    with _writing(name):
        if size(path) is not None:
            return read_bytes(path) == data
    publish_bytes(output_dir, name, data, lasting=True)
    return True


def overwrite(
    folder: str,
    name: str,
    text: str,
) -> None:
    """`publish` a short note; losing it does no harm, so nothing is retried or raised."""
    with impatient(), contextlib.suppress(OSError, UnreachableError):
        publish_bytes(folder, name, text.encode())


def remove(folder: str, name: str) -> None:
    """Remove a file below a folder, or a folder and everything in it; nothing if there is none.

    Raises:
        OSError: it cannot be removed.
    """
    _asked(folder, name, lambda store: store.remove(folder, name))


def sync(folder: str, names: Collection[str]) -> None:
    """Wait until files survive a power cut: their bytes, and their names in their folders.

    Syncs the files, each folder from theirs up to `folder`, and the entry of `folder` itself.
    Without names, these folders alone: for a removal, say.  On a bucket this does nothing.

    Raises:
        OSError: it is not certain; nothing is retried, because a disk reports a lost write once.
    """
    with _writing(folder):
        store_of(folder).sync(folder, names)


def link(
    folder: str,
    name: str,
    new: str,
) -> None:
    """Give a file below a folder a second name, replacing any file with that name.

    Locally a hard link if possible, else a copy; on a bucket a copy made by the service.

    Raises:
        OSError: it cannot be linked or copied, or there is no such file.
    """
    _asked(folder, name, lambda store: store.link(folder, name, new))


def move(
    folder: str,
    name: str,
    new: str,
) -> None:
    """Rename a file below a folder, replacing any file with the new name.

    Does nothing if the file has been renamed already.  On a bucket this is a copy made by the
    service, then a removal: an interruption between the two leaves both files.

    Raises:
        OSError: it cannot be moved, or there is no such file.
    """
    move_all(folder, {name: new}, {})


def move_all(
    folder: str,
    names: Mapping[str, str],
    listed: Mapping[str, Description],
) -> None:
    """`move` files below a folder, each to its new name.

    Args:
        listed: what a listing has told of some of them, which are then not asked for.
    """

    def rename(name: str) -> None:
        version = listed[name].version if name in listed else ""
        _asked(folder, name, lambda store: store.move(folder, name, names[name], version))

    each(rename, names, folder)


def remove_files(folder: str, unwanted: Collection[str]) -> None:
    """Remove files below a folder, in any order; as `remove`, but none of them is a folder."""
    each(lambda name: _remove_file(folder, name), unwanted, folder)


def _remove_file(folder: str, name: str) -> None:
    _asked(folder, name, lambda store: store.remove_file(folder, name))


def remove_possible(
    folder: str,
    files: Collection[str],
    folders: Collection[str] = (),
) -> list[str]:
    """Remove files below a folder, and folders with all in them, as far as that goes.

    Returns:
        The refusals, each with the name.
    """
    refusals = []

    def attempt(remove: Callable[[str, str], None], name: str) -> None:
        try:
            remove(folder, name)
        except OSError as error:
            refusals.append(str(error))

    each(partial(attempt, _remove_file), files, folder)
    each(partial(attempt, remove), folders, folder)
    return sorted(refusals)


def write_all(file: BinaryIO, *parts: bytes) -> None:
    """Write whole buffers: an unbuffered write may take only part of them.

    On Linux, the disk begins to write each piece of the file once it is full.  Otherwise the sync
    at the end would wait for all of it.
    """
    expected = sum(map(len, parts))
    written = os.writev(file.fileno(), parts)
    if written < expected:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[file.write(rest) :]
    if hasattr(os, "posix_fadvise"):  # macOS has none
        with contextlib.suppress(OSError):  # a pipe has no pieces
            _send_pieces(file, expected)


def _send_pieces(file: BinaryIO, written: int) -> None:
    """Let the disk begin to write the pieces of a file that its last bytes have filled."""
    end = file.tell()
    begin = (end - written) // _PIECE_BYTES * _PIECE_BYTES
    whole = end // _PIECE_BYTES * _PIECE_BYTES - begin
    if whole:
        # Linux begins to write what is new, and frees only what is on the disk already.
        os.posix_fadvise(file.fileno(), begin, whole, os.POSIX_FADV_DONTNEED)

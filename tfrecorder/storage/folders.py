"""Folders below the one the user named: opened one by one, never through a link.

A dataset may come from anybody, and a link in it may lead anywhere.  So each folder is opened
relative to the one above it, and files are written, moved and removed relative to the opened
folder.  This leaves no moment between check and use when a link could replace a folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import stat
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextvars import ContextVar

from tfrecorder.core.threads import map_at_once
from tfrecorder.storage.store import UnwritableError

#: Our folder in a dataset.  In a path, the user did not choose this name or anything after it.
PRIVATE = "_tfrecorder"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_NOT_THROUGH_LINKS = _FOLDER | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK

#: The errors for a link or file opened this way: Linux, macOS, FreeBSD.
_LINK_OR_FILE = frozenset((errno.ENOTDIR, errno.ELOOP, errno.EMLINK))

#: The errors of a disk that has nothing to sync, such as a mounted bucket.
_NO_SYNC = frozenset((errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EROFS))

#: The errors of a disk without locks, and of a lock that somebody else holds.
_NO_LOCKS = frozenset((errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK))
_HELD = frozenset((errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES))

#: Files that are synced at a time: a disk with a journal writes it once for those that wait, which
#: takes a fifth of the time.
SYNCED_TOGETHER = 8

#: The folders that `held_open` holds, by their paths; None outside of it.
_held = ContextVar[dict[str, int] | None]("_held", default=None)


@contextlib.contextmanager
def inside(
    folder: str,
    name: str,
    make: bool = False,
) -> Iterator[tuple[int, str]]:
    """The opened folder that holds a file, and the file's name in it.

    Args:
        folder: a directory that the user named, which may be a link, or one below its
            `_tfrecorder`.
        name: the file's path below it, with a "/" after each folder.
        make: create missing folders.

    Raises:
        UnwritableError: one of the folders below the user's is a link, or is not a folder.
        FileNotFoundError: one is missing.
        OSError: one cannot be opened or created.
    """
    above, _, last = f"{folder}/{name}".rpartition("/")
    held = _held.get()
    if held is not None and above in held and last.strip("."):
        yield held[above], last
        return
    opened = _walked(folder, name, make)
    if held is not None:
        held[above] = opened
        yield opened, last
        return
    try:
        yield opened, last
    finally:
        os.close(opened)


@contextlib.contextmanager
def held_open() -> Iterator[None]:
    """A block of this thread in which `inside` opens each folder once, however many files it has.

    None of these folders may be removed or replaced in the block.
    """
    held: dict[str, int] = {}
    before = _held.set(held)
    try:
        yield
    finally:
        _held.reset(before)
        for opened in held.values():
            os.close(opened)


def _walked(
    folder: str,
    name: str,
    make: bool,
) -> int:
    """The opened folder that holds a file; see `inside`."""
    top, names = _divided(folder, name)
    opened = _opened_top(top, make)
    for depth, below in enumerate(names[:-1], 1):
        above = opened
        try:
            opened = _opened(above, below, "/".join(names[:depth]), make)
        finally:
            os.close(above)
    return opened


def _divided(folder: str, name: str) -> tuple[str, list[str]]:
    """The directory that the user named, and the names from there to a file."""
    parts = folder.split("/")
    at = parts.index(PRIVATE) if PRIVATE in parts else len(parts)
    top = os.path.join("/" if folder.startswith("/") else ".", *parts[:at])
    names = [part for part in (*parts[at:], *name.split("/")) if part]
    if not names or not {".", ".."}.isdisjoint(names):
        raise UnwritableError(f"{name!r} is not a name below a dataset")
    return top, names


def _opened_top(path: str, make: bool) -> int:
    try:
        return os.open(path, _FOLDER)
    except FileNotFoundError:
        if not make:
            raise
        os.makedirs(path, exist_ok=True)  # not first: of a failing disk it says "file exists"
        return os.open(path, _FOLDER)


def _opened(
    above: int,
    name: str,
    path: str,
    make: bool,
) -> int:
    try:
        return os.open(name, _NOT_THROUGH_LINKS, dir_fd=above)
    except FileNotFoundError:
        if not make:
            raise
        with contextlib.suppress(FileExistsError):  # another thread just made it
            os.mkdir(name, dir_fd=above)
        return _opened(above, name, path, make=False)
    except OSError as error:
        if error.errno not in _LINK_OR_FILE:
            raise
        raise UnwritableError(_refusal(above, name, path)) from error


def _refusal(
    above: int,
    name: str,
    path: str,
) -> str:
    mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):  # a folder by now; a moment ago it was a link
        return (
            f"{path} is a link, and nothing is written through a link inside a dataset; remove it, "
            "or replace it with the folder that it leads to"
        )
    return f"{path} is a file where a folder belongs; remove it"


def refuse_links(folder: str, names: Iterable[str]) -> None:
    """Raise an UnwritableError if one of these folders below a directory is a link."""
    for name in names:
        with contextlib.suppress(FileNotFoundError), inside(folder, f"{name}/file"):
            continue


def move(
    folder: str,
    old: str,
    new: str,
) -> None:
    """Rename a file below a directory, replacing any file with the new name.

    Raises:
        OSError: it cannot be moved; see `inside`.
    """
    with inside(folder, old) as (here, name), inside(folder, new, make=True) as (there, final):
        os.replace(name, final, src_dir_fd=here, dst_dir_fd=there)


def sync(folder: str, names: Collection[str]) -> None:
    """See `storage.sync`.

    Above the directory, each folder of the same disk: we may have made any of them.
    """

    files: dict[str, list[str]] = {"": []}
    for name in names:
        above, last = os.path.split(name)
        files.setdefault(above, []).append(last)
        while above := os.path.dirname(above):
            files.setdefault(above, [])
    for holder, in_holder in files.items():
        with inside(folder, os.path.join(holder, "any")) as (opened, _):
            map_at_once(functools.partial(_sync_file, opened), in_holder, SYNCED_TOGETHER)
            sync_opened(os.dup(opened))
    path = os.path.realpath(folder)
    device = os.stat(folder).st_dev
    with contextlib.suppress(PermissionError):  # who cannot look into it did not make it
        while (path := os.path.dirname(path)) and os.stat(path).st_dev == device:
            sync_opened(os.open(path, _FOLDER))
            if path == "/":
                break


def _sync_file(above: int, name: str) -> None:
    sync_opened(os.open(name, _FILE, dir_fd=above))


def sync_opened(descriptor: int) -> None:
    """Sync a file or folder, and close it."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def remove(folder: str, name: str) -> None:
    """Remove a file, a link, or a folder and everything in it; nothing if there is none.

    Raises:
        OSError: it cannot be removed; see `inside`.
    """
    with contextlib.suppress(FileNotFoundError), inside(folder, name) as (above, last):
        if stat.S_ISDIR(os.stat(last, dir_fd=above, follow_symlinks=False).st_mode):
            _remove_folder(above, last)
        else:
            os.unlink(last, dir_fd=above)


def _remove_folder(above: int, name: str) -> None:
    """Remove a folder of any depth with three descriptors, by moving its subfolders up."""
    top = os.open(name, _NOT_THROUGH_LINKS, dir_fd=above)
    try:
        waiting = _cleared(top, top)
        while waiting:
            subfolder = waiting.pop()
            below = os.open(subfolder, _NOT_THROUGH_LINKS, dir_fd=top)
            try:
                waiting += _cleared(below, top)
            finally:
                os.close(below)
            os.rmdir(subfolder, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=above)


def _cleared(folder: int, top: int) -> list[str]:
    """Remove a folder's files and move its subfolders into `top`; returns their new names."""
    with os.scandir(folder) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    moved = []
    for name, is_folder in entries:
        with contextlib.suppress(FileNotFoundError):  # its writer removed it first
            if is_folder:
                new = uuid.uuid4().hex
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(new)
            else:
                os.unlink(name, dir_fd=folder)
    return moved


@contextlib.contextmanager
def locked(folder: str, name: str) -> Iterator[bool]:
    """Hold a lock file while the block runs; the lock is released if the process dies.

    On a disk without locks, as on a bucket, the block runs without one.

    Returns:
        False if another process or thread holds the lock.

    Raises:
        OSError: the file cannot be created or opened; see `inside`.
    """
    with inside(folder, name, make=True) as (above, last):
        descriptor = _opened_lock(above, last, f"{folder}/{name}")
    try:
        yield _is_free(descriptor)
    finally:
        # Closing alone is not enough: a process forked in the meantime has the descriptor too.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _opened_lock(
    above: int,
    name: str,
    path: str,
) -> int:
    try:
        return os.open(name, _LOCK, 0o666, dir_fd=above)
    except PermissionError as error:
        raise UnwritableError(
            error.errno,
            f"you do not have the right to write {path}; its owner gives it to the group with "
            "`chmod -R g+w` of the directory",
        ) from error
    except OSError as error:
        if error.errno not in _LINK_OR_FILE:
            raise
        raise UnwritableError(f"{path} is a link; remove it") from error


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        if error.errno not in _NO_LOCKS:
            raise
    return True

"""Files: reading images, and publishing output so that a final name never holds a partial file.

All paths of this package go through here, so that a storage scheme is added in this one place.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from typing import BinaryIO

from tfrecorder import layout

#: Refused rather than read: no image of this size fits a record, which ends at 2 GiB.
MAX_FILE_BYTES = 2**30

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class UnreadableError(Exception):
    """A file cannot be read.

    Attributes:
        code: what is wrong, in one word: not_found, no_permission, not_a_file, too_large,
            bad_name or read_failed.
        detail: the system's words, without the path.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


def scheme(uri: str) -> str:
    """The storage scheme of a uri, in lower case; "" for a local path.

    >>> scheme("gs://bucket/a.jpg"), scheme("a.jpg")
    ('gs', '')
    """
    match = _SCHEME.match(uri)
    return match[1].lower() if match else ""


def supported_schemes() -> tuple[str, ...]:
    """The schemes that images can be read from; "" stands for local paths."""
    return ("",)


def resolve(uri: str, base: str) -> str:
    """A uri as a path to open: a relative one is taken from the folder `base`."""
    return os.path.join(base, uri)


_CODES = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.EISDIR: "not_a_file",
    errno.ENXIO: "not_a_file",
    errno.ELOOP: "bad_name",
    errno.ENAMETOOLONG: "bad_name",
}


def read_bytes(path: str) -> bytes:
    """A whole regular file.

    Raises:
        UnreadableError: it is missing, not permitted, a folder, device or pipe, larger than
            `MAX_FILE_BYTES`, or fails on the way.
    """
    try:
        # Non-blocking, or a named pipe without a writer would be waited for without end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return _read_regular(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        code = _CODES.get(error.errno or 0, "read_failed")
        raise UnreadableError(code, os.strerror(error.errno or errno.EIO)) from error
    except ValueError as error:  # a NUL, or what the file system cannot encode
        raise UnreadableError("bad_name", "the uri has a character no path can have") from error


def _read_regular(descriptor: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError("not_a_file", "it is a folder, a device or a pipe")
    if status.st_size > MAX_FILE_BYTES:
        raise UnreadableError("too_large", f"{status.st_size:,} bytes; at most {MAX_FILE_BYTES:,}")
    # One byte more than there should be: a file that just grew is then read on, not cut.
    data = os.read(descriptor, status.st_size + 1)
    if len(data) == status.st_size:
        return data
    parts = [data]
    while data := os.read(descriptor, 1 << 20):
        parts.append(data)
        if sum(map(len, parts)) > MAX_FILE_BYTES:
            raise UnreadableError("too_large", f"it grows beyond {MAX_FILE_BYTES:,} bytes")
    return b"".join(parts)


def size_or_none(path: str) -> int | None:
    """A file's size in bytes, or None where it cannot be had."""
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return None


def exists(path: str) -> bool:
    return os.path.exists(path)


def names(folder: str) -> list[str]:
    """The names in a folder, sorted; none where there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def publish(output_dir: str, name: str) -> Iterator[BinaryIO]:
    """A file to write that appears under its final name only when the block ends well.

    Args:
        output_dir: the dataset directory.
        name: the final name below it, as `layout` gives it.
    """
    final = os.path.join(output_dir, name)
    temporary = os.path.join(output_dir, layout.TMP, f"{os.path.basename(name)}.{uuid.uuid4().hex}")
    for folder in (os.path.dirname(temporary), os.path.dirname(final)):
        os.makedirs(folder, exist_ok=True)
    try:
        with open(temporary, "wb", buffering=0) as file:
            yield file
        os.replace(temporary, final)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise


def publish_bytes(output_dir: str, name: str, data: bytes) -> None:
    """`publish` of bytes that are at hand."""
    with publish(output_dir, name) as file:
        write_all(file, data)


def overwrite(path: str, text: str) -> None:
    """A short note whose loss or half-written state harms nobody."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def write_all(file: BinaryIO, *parts: bytes) -> None:
    """Write buffers whole: an unbuffered write may take only a part of them."""
    expected = sum(map(len, parts))
    written = os.writev(file.fileno(), parts)
    if written < expected:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[file.write(rest) :]


#: Bytes of room that a growing file asks for at a time.
_ROOM = 2**25


@contextlib.contextmanager
def appending(file: BinaryIO) -> Iterator[Callable[..., None]]:
    """`write_all` for a large file, with room for it asked for ahead.

    A file system that finds room for each write anew takes a fifth longer to write (ext4).  Where
    it cannot find room ahead, or not so much, the file grows as any other.
    """
    written = room = 0

    def append(*parts: bytes) -> None:
        nonlocal written, room
        written += sum(map(len, parts))
        if written > room:
            room = written + _ROOM
            _find_room(file.fileno(), room)
        write_all(file, *parts)

    yield append
    file.truncate(written)


def _find_room(descriptor: int, size: int) -> None:
    """Extend a file to `size` bytes if the file system has a way that writes nothing.

    Not `os.posix_fallocate`, which writes into every block where there is no such way.
    """
    fallocate = _fallocate()
    if fallocate is not None:
        fallocate(descriptor, 0, 0, size)  # its failure changes nothing


@functools.cache
def _fallocate() -> Callable[..., int] | None:
    import ctypes

    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if fallocate is not None:
        # A descriptor, a mode, and two numbers of 64 bits: fallocate(2).
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return fallocate


def remove(path: str) -> None:
    """Remove a file, or a folder with all in it; nothing where there is none."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

"""The local disk, by the standard library."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import unicodedata
import uuid
from collections.abc import Collection, Iterable, Iterator
from typing import BinaryIO

from tfrecorder.errors import OptionError, OutputError, TfrecorderError
from tfrecorder.storage import folders
from tfrecorder.storage.store import (
    MAX_FILE_BYTES,
    Claim,
    Described,
    Description,
    Store,
    TransientError,
    UnreadableError,
    UnwritableError,
    may_pass,
    too_large,
    unless_missing,
)
from tfrecorder.storage.uris import given_path, scheme

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

#: Where incomplete files are kept, below the folder being written.
TMP = f"{folders.PRIVATE}/tmp"

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

_SPECIAL = "it is a folder, a device or a pipe"


_ENCODING = sys.getfilesystemencoding()


def check_locale(path: str) -> None:
    """Raise a TfrecorderError if a path has characters that this process's locale does not have.

    In a UTF-8 locale such a character is a fault of the name.
    """
    if _ENCODING != "utf-8" and path.encode(_ENCODING, "replace").decode(_ENCODING) != path:
        raise TfrecorderError(
            f"the locale of this process ({_ENCODING}) does not have all characters of {path!a}: "
            "set PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8."
        )


class LocalStore(Store):
    """Paths of this machine."""

    def read(self, path: str) -> bytes:
        return self.read_dated(path)[0]

    def read_dated(self, path: str) -> tuple[bytes, int]:
        """A whole file, and when it had last been written before that, in ns since 1970."""
        try:
            # Non-blocking: a named pipe without a writer would block forever.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                return _read_regular(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _as_unreadable(error) from error
        except ValueError as error:  # a NUL, or a character the file system cannot encode
            raise UnreadableError("bad_name", "the uri has a character no path can have") from error

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        try:
            with self.open(path) as file:
                version = _version(file)
                data, _ = _read_regular(file.fileno())
                if _version(file) != version:
                    raise TransientError("it was written while it was read")
                return data, version
        except OSError as error:
            raise _as_unreadable(error) from error

    def open(
        self,
        path: str,
        expected: Description | None = None,
    ) -> BinaryIO:
        try:
            # An opener that does not wait for the writer of a named pipe.
            file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
        except OSError as error:
            raise _as_unreadable(error) from error
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            file.close()
            raise UnreadableError("not_a_file", _SPECIAL)
        if expected not in (None, _values(status)):
            file.close()
            raise UnreadableError("replaced", "it was replaced")
        return file

    def describe(self, path: str) -> Description | None:
        status = _status(path)
        if status is None or stat.S_ISDIR(status.st_mode):
            return None
        return Description._make(_values(status))

    def version(self, path: str) -> str | None:
        file = unless_missing(lambda: self.open(path))  # a network disk may cache old answers
        if file is None:
            return None
        with file:
            return _version(file)

    def listing(
        self,
        folder: str,
        only_names: bool = False,
    ) -> dict[str, Described | None]:
        try:
            with os.scandir(folder or ".") as entries:
                if not only_names:
                    return {entry.name: _described(entry) for entry in entries}
                every = list(entries)
                # One is described: who may list a folder but not enter it is told so here too.
                next(filter(None, map(_described, every)), None)
                return dict.fromkeys(entry.name for entry in every)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise _as_unreadable(error) from error

    def names(self, folder: str) -> Iterable[str]:
        return self.listing(folder, only_names=True)

    def files(self, folder: str) -> Iterator[str]:
        for where, _, names in os.walk(folder, onerror=_refuse_unless_missing):
            for name in names:
                yield os.path.relpath(os.path.join(where, name), folder)

    def is_folder(self, path: str) -> bool:
        status = _status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    @contextlib.contextmanager
    def publish(
        self,
        folder: str,
        name: str,
        claim: Claim | None = None,
    ) -> Iterator[BinaryIO]:
        with _made_aside(folder, name) as (aside, temporary):
            descriptor = os.open(temporary, _NEW, 0o666, dir_fd=aside)
            with open(descriptor, "wb", buffering=0) as file:
                yield file

    def keeps_removed(self, folder: str) -> str | None:
        return ""

    def remove(
        self,
        folder: str,
        name: str,
    ) -> None:
        folders.remove(folder, name)

    def sync(
        self,
        folder: str,
        names: Collection[str],
    ) -> None:
        folders.sync(folder, names)

    def link(
        self,
        folder: str,
        name: str,
        new: str,
    ) -> None:
        """A hard link, else a copy: on a disk without links, or for a file with too many."""
        with (
            _made_aside(folder, new) as (aside, temporary),
            folders.inside(folder, name) as (above, last),
        ):
            try:
                os.link(last, temporary, src_dir_fd=above, dst_dir_fd=aside)
            except FileNotFoundError:
                raise
            except OSError:
                descriptor = os.open(temporary, _NEW, 0o666, dir_fd=aside)
                with open(descriptor, "wb") as file:
                    self.fetch(f"{folder}/{name}", file)

    def move(
        self,
        folder: str,
        name: str,
        new: str,
        version: str = "",
    ) -> None:
        try:
            folders.move(folder, name, new)
        except FileNotFoundError:
            with folders.inside(folder, new) as (above, last):
                os.stat(last, dir_fd=above, follow_symlinks=False)  # raises if nowhere


@contextlib.contextmanager
def _made_aside(folder: str, name: str) -> Iterator[tuple[int, str]]:
    """Where to make a file below a folder that gets its name if the block succeeds.

    Returns:
        The opened folder, and the file's name in it until then.
    """
    unready = f"{TMP}/{os.path.basename(name)}.{uuid.uuid4().hex}"
    with (
        folders.inside(folder, unready, make=True) as (aside, temporary),
        folders.inside(folder, name, make=True) as (above, final),
    ):
        try:
            yield aside, temporary
            # A link with the final name is replaced, not followed.
            os.replace(temporary, final, src_dir_fd=aside, dst_dir_fd=above)
        finally:
            # Also after the rename, which does nothing to another link of the same file.
            with contextlib.suppress(FileNotFoundError):
                os.stat(temporary, dir_fd=aside, follow_symlinks=False)  # mostly it is gone
                os.unlink(temporary, dir_fd=aside)


def _version(file: BinaryIO) -> str:
    status = os.fstat(file.fileno())
    return f"{status.st_dev} {status.st_ino} {status.st_mtime_ns} {status.st_size}"


def _values(status: os.stat_result) -> Described:
    # Not by its inode: a mounted bucket gives a file another one whenever it likes.
    return status.st_size, None, "", str(status.st_mtime_ns)


def _described(entry: os.DirEntry[str]) -> Described | None:
    """A file by its size, 0 for a broken link or a file that just vanished; None for a folder.

    Raises:
        OSError: of any other file: the folder can be listed, but not entered.
    """
    try:
        return None if entry.is_dir() else _values(entry.stat())
    except OSError as error:
        if isinstance(error, FileNotFoundError) or entry.is_symlink():
            return Description(0)
        raise


def _status(path: str) -> os.stat_result | None:
    """The status of what a path leads to; None if nothing is there or the name is impossible."""
    try:
        return os.stat(path)
    except OSError as error:
        if _CODES.get(error.errno or 0) in ("not_found", "bad_name"):
            return None
        raise _as_unreadable(error) from error
    except ValueError:  # a NUL, or a character the file system cannot encode
        return None


def other_form(path: str) -> str | None:
    """A path that is there and has another form of Unicode in its names; None if there is none."""
    if path.isascii():
        return None
    where = ""
    for part in path.split("/"):
        forms = [part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD"))]
        there = [form for form in forms if os.path.lexists(f"{where}{form}" or "/")]
        if not there:
            return None
        where += f"{there[0]}/"
    return where[:-1]


def _as_unreadable(error: OSError) -> Exception:
    words = os.strerror(error.errno or errno.EIO)
    if may_pass(error):
        return TransientError(words)
    return UnreadableError(_CODES.get(error.errno or 0, "read_failed"), words)


def _refuse_unless_missing(error: OSError) -> None:
    """Raise our error for a folder that cannot be listed, unless it is not there any more."""
    ours = _as_unreadable(error)
    if not isinstance(ours, UnreadableError):
        raise ours from error
    if ours.code != "not_found":
        raise UnreadableError(ours.code, f"{ours.detail}: {error.filename}") from error


def _read_regular(descriptor: int) -> tuple[bytes, int]:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError("not_a_file", _SPECIAL)
    if status.st_size > MAX_FILE_BYTES:
        raise too_large(status.st_size)
    # One byte more than expected: if the file just grew, we keep reading and do not cut it off.
    try:
        data = os.read(descriptor, status.st_size + 1)
    except OSError as error:
        # An empty file needs no read from a disk: this is a system file, such as /proc/self/mem.
        if status.st_size or error.errno != errno.EIO:
            raise
        raise UnreadableError("read_failed", os.strerror(errno.EIO)) from error
    if len(data) == status.st_size:
        return data, status.st_mtime_ns
    parts = [data]
    while data := os.read(descriptor, 1 << 20):
        parts.append(data)
        if sum(map(len, parts)) > MAX_FILE_BYTES:
            raise too_large(sum(map(len, parts)))
    return b"".join(parts), status.st_mtime_ns


#: The prefix of a file's name until the file is complete.
TEMPORARY = ".tfrecorder-"


def write_whole(
    path: str,
    data: bytes,
    how: str = "",
) -> None:
    """Write a file that appears whole or not at all, replacing any existing one.

    Args:
        how: as for `failing_writes`.

    Raises:
        OutputError: it cannot be written.
    """
    folder = os.path.dirname(path) or "."
    temporary = os.path.join(folder, f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with failing_writes(path, how):
            with open(temporary, "xb") as file:
                file.write(data)
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # of a failed write, the write's own error is told
            os.remove(temporary)


_NO_RIGHT = " Ask for the right to write there, or give another path."
_NO_SPACE = " Free space there and repeat the call{}."
_REMEDIES = {
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _NO_RIGHT),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), _NO_SPACE),
}


@contextlib.contextmanager
def failing_writes(path: str, how: str = "; what is finished is kept") -> Iterator[None]:
    """A block in which a failed write raises an OutputError, with path and reason.

    Args:
        how: what to say of a repeated call, if there was no space.
    """
    try:
        yield
    except OSError as error:
        remedy = ""
        if not isinstance(error, UnwritableError):  # which says its own
            remedy = _REMEDIES.get(error.errno or 0, "").format(how)
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}.{remedy}"
        ) from error


def local_path(name: str, value: str | os.PathLike[str]) -> str:
    """An argument as a path to write to.

    Raises:
        OptionError: it is not a path on this machine.
    """
    path = given_path(value) if isinstance(value, (str, os.PathLike)) else ""
    if not isinstance(path, str) or not path:
        raise OptionError.of(name, value, "give a path.")
    if scheme(path):
        raise OptionError.of(name, value, "give a local path, without a scheme.")
    return path

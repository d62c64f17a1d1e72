"""All other schemes (hdfs, oci, memory, …), by fsspec and the package it needs for each."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from typing import Any, BinaryIO

from tfrecorder.errors import install
from tfrecorder.storage.remote_files import in_parts, spooled
from tfrecorder.storage.store import (
    MAX_FILE_BYTES,
    Claim,
    Description,
    Store,
    TransientError,
    UnreadableError,
    Writing,
    is_transient,
    may_pass,
    too_large,
    translated,
    unless_missing,
)

#: Schemes that fsspec knows but that do not store a data set's files, or not by themselves.
NO_STORAGE = frozenset(
    (
        "http",
        "https",
        "data",
        "file",
        "local",
        "zip",
        "tar",
        "libarchive",
        "reference",
        "blockcache",
        "filecache",
        "simplecache",
        "cached",
        "dir",
        "generic",
        "jupyter",
        "jlab",
        "git",
        "github",
        "gist",
        "asynclocal",
        "async_wrapper",
        "dask",
        "ftp",
        "gs",
        "gcs",
    )
)

#: Schemes where a file appears only once it is complete; elsewhere we rename it when it is.
_WHOLE_UPLOADS = frozenset(("oci", "oss", "memory"))


#: The names under which some file systems tell, in listings too, when a file was written.
_WRITTEN = ("mtime", "modificationTime")

_CODES: dict[type[Exception], str] = {
    FileNotFoundError: "not_found",
    PermissionError: "no_permission",
    IsADirectoryError: "not_a_file",
    NotADirectoryError: "not_found",
}


def _meaning(error: Exception) -> Exception:  # packages behind fsspec raise what they like
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return UnreadableError(code, _words(error))
    if _passes(error):
        return TransientError(_words(error))
    return UnreadableError("read_failed", _words(error))


def _passes(error: BaseException) -> bool:
    """Whether a failure may pass: by its own status and kind, or by those of its cause."""
    status = getattr(error, "status_code", None) or getattr(error, "status", None)
    if (isinstance(status, int) and is_transient(status)) or may_pass(error):
        return True
    return error.__cause__ is not None and _passes(error.__cause__)


def _words(error: BaseException) -> str:
    """The first line of an error's message, or the error's kind."""
    return (str(error) or type(error).__name__).splitlines()[0]


@translated(_meaning)
def _system(path: str) -> tuple[Any, str]:
    """The file system of a path, and the path in that file system's form."""
    import fsspec

    return fsspec.core.url_to_fs(path)


@translated(_meaning)
def _stated(system: Any, name: str) -> Any:
    """What a file system says about a file or folder."""
    return system.info(name)


def _info(system: Any, name: str) -> Any:
    """The same; None if there is none.

    Not by its `exists`, which takes every failure for a missing file.
    """
    return unless_missing(lambda: _stated(system, name))


def _described(info: Any) -> Description | None:
    if info["type"] == "directory":
        return None
    written = next((str(info[name]) for name in _WRITTEN if name in info), "")
    return Description(int(info["size"]), written=written)


class FsspecStore(Store):
    """Files of one scheme, through the file system that fsspec has for it."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    @translated(_meaning)
    def read(self, path: str) -> bytes:
        system, name = _system(path)
        if (size := system.size(name) or 0) > MAX_FILE_BYTES:
            raise too_large(size)
        return bytes(system.cat_file(name))

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        version = self.version(path)
        data = self.read(path)
        if version is None or self.version(path) != version:
            raise TransientError("it was written while it was read")
        return data, version

    def open(
        self,
        path: str,
        expected: Description | None = None,
    ) -> BinaryIO:
        system, name = _system(path)
        info = _stated(system, name)
        if info["type"] == "directory":
            raise UnreadableError("not_a_file", f"{path} is a folder")
        if expected not in (None, _described(info)):
            raise UnreadableError("replaced", "it was replaced")

        @translated(_meaning)
        def read_range(start: int, end: int) -> bytes:
            return bytes(system.cat_file(name, start=start, end=end))

        return in_parts(path, int(info["size"]), read_range)

    def describe(self, path: str) -> Description | None:
        info = _info(*_system(path))
        return None if info is None else _described(info)

    def version(self, path: str) -> str | None:
        system, name = _system(path)
        system.invalidate_cache(name)
        info = _info(system, name)
        # Each file system has its own names for times, tags and numbers.
        return None if info is None else repr(sorted(info.items()))

    @translated(_meaning)
    def listing(self, folder: str) -> dict[str, Description | None]:
        system, name = _system(folder)
        system.invalidate_cache(name)
        try:
            infos = system.ls(name, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {
            posixpath.basename(info["name"].rstrip("/")): _described(info)
            for info in infos
            if info["name"].rstrip("/") != name.rstrip("/")
        }

    @translated(_meaning)
    def files(self, folder: str) -> Iterator[str]:
        system, name = _system(folder)
        root = f"{name.rstrip('/')}/"
        system.invalidate_cache(name)
        every = map(str, system.find(name))
        return (file[len(root) :] for file in every if file.startswith(root))

    @translated(_meaning)
    def is_folder(self, path: str) -> bool:
        system, name = _system(path)
        return bool(system.isdir(name))

    def publish(
        self,
        folder: str,
        name: str,
        claim: Claim | None = None,
    ) -> Writing:
        whole = f"{folder}/{name}"
        system, final = _system(whole)

        @translated(_meaning)
        def upload(local: str) -> None:
            if self._scheme in _WHOLE_UPLOADS:
                system.put_file(local, final)
                return
            parent, base = posixpath.split(final)
            system.makedirs(parent, exist_ok=True)
            temporary = posixpath.join(parent, f".{base}.{uuid.uuid4().hex}")
            try:
                system.put_file(local, temporary)
                system.mv(temporary, final)
            except BaseException:
                if system.exists(temporary):
                    system.rm_file(temporary)
                raise

        return spooled(whole, upload)

    def replaces_conditionally(self) -> bool:
        return False

    @translated(_meaning)
    def remove(
        self,
        folder: str,
        name: str,
    ) -> None:
        system, path = _system(f"{folder}/{name}")
        system.invalidate_cache(path)
        info = _info(system, path)
        if info is not None and info["type"] == "directory":
            system.rm(path, recursive=True)
        elif info is not None:
            system.rm_file(path)  # `rm` would take the name for a pattern

    @translated(_meaning)
    def move(
        self,
        folder: str,
        name: str,
        new: str,
        version: str = "",
    ) -> None:
        system, source = _system(f"{folder}/{name}")
        _, target = _system(f"{folder}/{new}")
        system.invalidate_cache()
        if _info(system, source) is None and _info(system, target) is not None:
            return
        if self._scheme in _WHOLE_UPLOADS:
            system.cp_file(source, target)  # `mv` would take the names for patterns
            system.rm_file(source)
            return
        system.makedirs(posixpath.dirname(target), exist_ok=True)
        system.mv(source, target)


def refusal(scheme: str) -> str | None:
    """Why files cannot be read from a scheme, and what to do; None if they can.

    >>> refusal("http")
    'put the files on a disk or into a bucket first'
    """
    if scheme in NO_STORAGE:
        return "put the files on a disk or into a bucket first"
    try:
        import fsspec
    except ImportError:
        return f"run `{install('fsspec')}` for storage other than gs, s3 and az"
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError:
        return "there is no such storage"
    except (ImportError, OSError) as error:  # its words say what to install
        return str(error).splitlines()[0].rstrip(".")
    return None

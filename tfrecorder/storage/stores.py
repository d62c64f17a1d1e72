"""Which store serves a path or uri; each scheme has one in this process."""

from __future__ import annotations

import functools
from typing import Any, cast

from tfrecorder.storage.local import LocalStore, check_locale
from tfrecorder.storage.store import Store, UnreadableError
from tfrecorder.storage.uris import scheme

_LOCAL = LocalStore()


def refusal(kind: str) -> str | None:
    """Why files of a scheme cannot be read or written, and the remedy; None if they can.

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


def store_of(path: str) -> Store:
    """The store that a path or uri is in."""
    kind = scheme(path)
    if not kind:
        check_locale(path)
    return remote_store(kind) if kind else _LOCAL


@functools.cache
def remote_store(kind: str) -> Store:
    """The one store of a scheme in this process; its client is created on first use."""
    if kind == "gs":
        from tfrecorder.storage.gcs import BucketStore

        return BucketStore()
    from tfrecorder.storage.fsspec_store import FsspecStore
    from tfrecorder.storage.object_clients import SCHEMES

    words = refusal(kind)
    if words is not None:
        raise UnreadableError("read_failed", f"{kind}:// cannot be reached: {words}")
    if kind not in SCHEMES:
        return FsspecStore(kind)
    from tfrecorder.storage.object_store import ObjectStore

    return ObjectStore()

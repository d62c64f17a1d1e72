"""Which store serves a path or uri; each scheme has one in this process."""

from __future__ import annotations

from typing import Any, cast

from tfrecorder.storage.local import LocalStore, check_locale
from tfrecorder.storage.store import Store, UnreadableError
from tfrecorder.storage.uris import WEB, scheme

_LOCAL = LocalStore()

#: By scheme, once used; http and https are one, since a host has so many connections for both.
_REMOTE: dict[str, Store] = {}


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


def store_of(path: str) -> Store:
    """The store that a path or uri is in; its client is created on first use."""
    kind = scheme(path)
    if not kind:
        check_locale(path)
        return _LOCAL
    kind = WEB[-1] if kind in WEB else kind
    # Of several that threads make at the same time, all take one.
    return _REMOTE.get(kind) or _REMOTE.setdefault(kind, _made(kind))


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

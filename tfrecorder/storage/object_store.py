"""S3 and Azure Blob Storage (s3, az and the like) by obstore, Rust's object_store for Python."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, TypeVar

import obstore

from tfrecorder.core.threads import ThreadPool, result_of
from tfrecorder.storage.object_clients import Client, connect, meaning, refuse_forks, unusable
from tfrecorder.storage.remote_files import in_parts, spooled
from tfrecorder.storage.store import (
    FRESH,
    MAX_FILE_BYTES,
    Claim,
    Description,
    OtherStandsError,
    Store,
    TransientError,
    UnreadableError,
    Writing,
    split_path,
    sums_of,
    too_large,
    translated,
    unless_missing,
)

T = TypeVar("T")

#: Bytes of a file to read or send at a time.
_PART_BYTES = 2**23

#: Larger files are uploaded in parts if the write is unconditional.  A conditional write sends the
#: whole file in one request, up to 5 GB.
_AT_ONCE = 2**30

#: Larger files use the client for uploads: the response may take longer than `read_timeout`.
_SHORT_BYTES = 2**20

#: Names per page of a listing.
_PAGE = 1000


class ObjectStore(Store):
    """Objects `scheme://bucket/name`; a folder is a prefix of object names.

    An object's version is its entity tag.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connected: dict[str, Client] = {}

    def read(self, path: str) -> bytes:
        return self.read_versioned(path)[0]

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        def read(client: Client, name: str) -> tuple[bytes, str]:
            answer = _answered(obstore.get(client.short, name))
            if answer.meta["size"] > MAX_FILE_BYTES:
                raise too_large(answer.meta["size"])
            return answer.bytes().to_bytes(), answer.meta["e_tag"]

        return self._request(path, read)

    def open(
        self,
        path: str,
        expected: Description | None = None,
    ) -> BinaryIO:
        if expected is not None and expected.version:
            size = expected.size
            tag = expected.version
        else:
            meta = self._request(path, _head)
            size = meta["size"]
            tag = meta["e_tag"]
            if expected is not None and expected.size != size:
                raise UnreadableError("replaced", "it was replaced")

        def read_range(start: int, end: int) -> bytes:
            # From the object just described, so that two versions are never mixed.
            options: Any = {"range": (start, end), "if_match": tag}
            try:
                return self._request(
                    path,
                    lambda client, name: (
                        obstore.get(client.short, name, options=options).bytes().to_bytes()
                    ),
                )
            except OtherStandsError as error:
                raise UnreadableError(
                    "replaced",
                    f"it was replaced while it was read ({error})",
                ) from error

        return in_parts(path, size, read_range)

    def fetch(
        self,
        path: str,
        file: BinaryIO,
    ) -> None:
        def fetch(client: Client, name: str) -> None:
            answer = _answered(obstore.get(client.short, name))
            for part in answer.stream(min_chunk_size=_PART_BYTES):
                file.write(part)

        self._request(path, fetch)

    def describe(self, path: str) -> Description | None:
        meta = self._meta(path)
        return None if meta is None else _description(meta)

    def version(self, path: str) -> str | None:
        meta = self._meta(path)
        return None if meta is None else meta["e_tag"]

    def listing(self, folder: str) -> dict[str, Description | None]:
        listing = self._request(
            folder,
            lambda client, name: obstore.list_with_delimiter(client.short, name.strip("/") or None),
        )
        cut = len(_prefix(folder))
        files = {meta["path"][cut:]: _description(meta) for meta in listing["objects"]}
        files.pop("", None)  # the empty object that stands for the folder itself
        return {**files, **{prefix[cut:]: None for prefix in listing["common_prefixes"]}}

    def files(self, folder: str) -> Iterator[str]:
        cut = len(_prefix(folder))
        names = [meta["path"][cut:] for page in self._pages(folder) for meta in page]
        return iter(_without_markers([name for name in names if name]))

    def is_folder(self, path: str) -> bool:
        return next(self._pages(path), None) is not None

    def publish(
        self,
        folder: str,
        name: str,
        claim: Claim | None = None,
    ) -> Writing:
        path = f"{folder}/{name}"

        def upload(local: str) -> None:
            data = _mapped(local)
            if claim is None or not _is_conditional():
                self._put(path, data, "overwrite", is_fresh=claim is None)
                return

            def is_ours(standing: Description) -> bool:
                if standing.size != len(data):
                    return False
                with self.open(path) as there, open(local, "rb") as here:
                    return sums_of(there.read) == sums_of(here.read)

            self.put_claimed(
                path,
                claim,
                lambda version: self._put(path, data, _mode(version)),
                is_ours,
            )

        return spooled(path, upload)

    def replaces_conditionally(self) -> bool:
        return _is_conditional()

    def put_at(
        self,
        path: str,
        data: bytes,
        version: str,
    ) -> str | None:
        return self._put(path, data, _mode(version), is_fresh=True) if _is_conditional() else None

    def remove(
        self,
        folder: str,
        name: str,
    ) -> None:
        path = f"{folder}/{name}"

        self.remove_file(folder, name)
        for page in self._pages(path):
            self._delete(path, [meta["path"] for meta in page])

    def remove_file(
        self,
        folder: str,
        name: str,
    ) -> None:
        self._delete(f"{folder}/{name}")

    def link(
        self,
        folder: str,
        name: str,
        new: str,
    ) -> None:
        source = f"{folder}/{name}"
        target = f"{folder}/{new}"
        to = split_path(target)[1]

        self._request(source, lambda client, name: obstore.copy(client.short, name, to))
        old = self.describe(source)
        copy = self.describe(target)
        if old is not None and (copy is None or copy.size != old.size):
            raise TransientError("the copy is not there")  # a gateway answered

    def _put(
        self,
        path: str,
        data: Any,
        mode: Any,
        is_fresh: bool = False,
    ) -> str:
        """Upload to the final name and return its tag: the object appears whole or not at all."""

        def put(client: Client, name: str) -> str:
            sender = client.short if len(data) <= _SHORT_BYTES else client.uploads
            in_parts = mode == "overwrite" and len(data) > _AT_ONCE
            done = obstore.put(
                sender,
                name,
                data,
                mode=mode,
                use_multipart=in_parts,
                chunk_size=_PART_BYTES,
                max_concurrency=4,
                attributes={"Cache-Control": FRESH} if is_fresh else None,
            )
            return done["e_tag"] or ""

        return self._request(path, put)

    def _delete(
        self,
        path: str,
        names: Sequence[str] = (),
    ) -> None:
        """Remove an object, or these names in its bucket; nothing if there are none."""

        def delete(client: Client, name: str) -> None:
            try:
                obstore.delete(client.short, list(names) or name)
            except FileNotFoundError:  # from Azure, which may then have left some
                for left in names:
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(client.short, left)

        self._request(path, delete)

    def _meta(self, path: str) -> Any:
        """What the service says about an object; None if there is none."""
        if not split_path(path)[1]:
            return None
        return unless_missing(lambda: self._request(path, _head))

    def _pages(self, folder: str) -> Iterator[list[Any]]:
        """The objects below a folder at any depth, a page of the listing at a time."""
        pages = self._request(
            folder,
            lambda client, name: obstore.list(
                client.short,
                name.strip("/") or None,
                chunk_size=_PAGE,
            ),
        )
        while page := self._request(folder, lambda client, name: next(pages, None)):
            yield list(page)

    def _request(
        self,
        path: str,
        request: Callable[[Client, str], T],
    ) -> T:
        """Call `request` with a client and an object's name; its failures raise our errors."""
        place, name = split_path(path)
        client = self._client(place)
        with translated(partial(meaning, client=client)):
            return _interruptible(lambda: request(client, name))

    def _client(self, place: str) -> Client:
        refuse_forks()
        with self._lock, translated(unusable):
            if place not in self._connected:
                self._connected[place] = connect(place)
            return self._connected[place]


def _interruptible(request: Callable[[], T]) -> T:
    """Make a request so that Ctrl-C ends the wait for it; obstore itself would not notice."""
    if threading.current_thread() is not threading.main_thread():
        return request()
    with ThreadPool(1) as pool:
        return result_of(pool.submit(request))


def _prefix(folder: str) -> str:
    """The prefix of the names of the objects below a folder."""
    name = split_path(folder)[1].strip("/")
    return f"{name}/" if name else ""


def _without_markers(names: list[str]) -> list[str]:
    """These names without those of folders: some tools keep an empty object for each folder."""
    folders = set()
    for name in names:
        while (name := os.path.dirname(name)) and name not in folders:
            folders.add(name)
    return [name for name in names if name not in folders]


def _head(client: Client, name: str) -> Any:
    return _answered(obstore.head(client.short, name))


def _answered(answer: Any) -> Any:
    """An answer about an object: the service always names the tag, a gateway's page does not."""
    if not getattr(answer, "meta", answer)["e_tag"]:
        raise TransientError("what came back has no entity tag, so it is not the service's answer")
    return answer


def _description(meta: Any) -> Description:
    tag = meta["e_tag"] if _is_conditional() else None
    if tag and not tag.endswith('"'):  # in a listing of Azure
        tag = f'"{tag}"'
    return Description(meta["size"], version=tag or "")


def _mode(version: str) -> Any:
    """obstore's mode for a write over this version, empty for no object."""
    return {"e_tag": version} if version else "create"


def _is_conditional() -> bool:
    """Whether conditional writes are on; some S3 servers do not support them."""
    return os.environ.get("AWS_CONDITIONAL_PUT", "").lower() != "disabled"


def _mapped(path: str) -> Any:
    """A file's bytes, which stay on disk until they are sent."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

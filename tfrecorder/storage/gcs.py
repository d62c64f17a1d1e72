"""Google Cloud Storage: images by short requests, all else by its own client; one a process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, TypeVar, cast

import google_crc32c

from tfrecorder.storage.gcs_get import (
    Ask,
    answer_words,
    asker,
    decode_crc32c,
    describe_object,
    failure_words,
    is_rate_limit,
    read_object,
)
from tfrecorder.storage.ranges import in_parts
from tfrecorder.storage.store import (
    Claim,
    Description,
    OtherStandsError,
    TransientError,
    UnreadableError,
    UnwritableError,
    is_transient,
    may_pass,
)
from tfrecorder.storage.upload import Reader, followed
from tfrecorder.threads import map_at_once

T = TypeVar("T")

#: Connections that its own client keeps open: as many as a pool of threads may use at a time.
CONNECTIONS = 128

#: Seconds to wait for a connection, and for each answer.
TIMEOUT = (10, 60)

#: Bytes of a file that go up in one request while it is still being written.  The service takes
#: multiples of 256 KiB; what is smaller in all goes up at once, in its end.
PIECE = 2**24

#: The status of an upload in pieces whose session the service has ended.
GONE = 410

#: The status of a request that wants another generation to stand there.
NOT_THAT_GENERATION = 412

#: What a listing with checksums is to tell, of some 20 fields an object.
_LISTED = "items(name,size,crc32c,generation),nextPageToken"

#: Requests under way where many objects are removed.
REMOVALS = 16

NO_CREDENTIALS = (
    "there are no Google Cloud credentials: run `gcloud auth application-default login`, or set "
    "GOOGLE_APPLICATION_CREDENTIALS to a service account's key file"
)


class BucketStore:
    """Objects `gs://bucket/name`; a folder is what the names of objects begin with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: Any = None
        self._ask: Ask | None = None

    def read(self, path: str) -> bytes:
        bucket, name = split_path(path)
        return _asked(lambda: read_object(self._asker(), bucket, name))

    def open(self, path: str) -> BinaryIO:
        blob = self._blob(path)
        _asked(lambda: blob.reload(retry=None, timeout=TIMEOUT))

        def read_range(start: int, end: int) -> bytes:
            # Of the generation that was just looked at: no two of them are mixed.
            wanted = {"start": start, "end": end - 1}
            return cast(
                bytes,
                _asked(lambda: blob.download_as_bytes(**wanted, retry=None, timeout=TIMEOUT)),
            )

        return in_parts(path, blob.size, read_range)

    def fetch(self, path: str, file: BinaryIO) -> None:
        _asked(lambda: self._blob(path).download_to_file(file, retry=None, timeout=TIMEOUT))

    def size(self, path: str) -> int | None:
        found = self.describe(path)
        return None if found is None else found.size

    def describe(self, path: str) -> Description | None:
        bucket, name = split_path(path)
        if not name:  # which the service would take for a listing
            return None
        try:
            return _asked(lambda: describe_object(self._asker(), bucket, name))
        except UnreadableError as error:
            if error.code == "not_found":
                return None
            raise

    def descriptions(self, folder: str) -> dict[str, Description]:
        prefix = _prefix(folder)

        def ask() -> dict[str, Description]:
            found = self._list(folder, delimiter="/", fields=_LISTED)
            return {
                blob.name[len(prefix) :]: Description(
                    blob.size, decode_crc32c(blob.crc32c), blob.generation
                )
                for blob in found
                if blob.name != prefix
            }

        return _asked(ask)

    def names(self, folder: str) -> dict[str, int | None]:
        prefix = _prefix(folder)

        def ask() -> dict[str, int | None]:
            found = self._list(folder, delimiter="/")
            sizes = {blob.name[len(prefix) :]: blob.size for blob in found if blob.name != prefix}
            folders = {name[len(prefix) : -1]: None for name in found.prefixes}
            return {**sizes, **folders}

        return _asked(ask)

    def files(self, folder: str) -> Iterator[str]:
        prefix = _prefix(folder)
        names = _asked(lambda: [blob.name for blob in self._list(folder)])
        return (name[len(prefix) :] for name in names if not name.endswith("/"))

    def is_folder(self, path: str) -> bool:
        return bool(_asked(lambda: list(self._list(path, max_results=1))))

    def publish(
        self, folder: str, name: str, claim: Claim | None = None
    ) -> AbstractContextManager[BinaryIO]:
        path = f"{folder}/{name}"

        def upload(file: Reader, size: int | None) -> None:
            if claim is None:
                _told(lambda: self._upload(path, file, size))
            else:
                self._upload_claimed(path, file, size, claim)

        return followed(path, upload, PIECE)

    def _upload(
        self, path: str, file: Reader, size: int | None, generation: int | None = None
    ) -> None:
        """One upload to the final name: the object is there whole, or not at all."""
        blob = self._blob(path, chunk_size=PIECE)
        with _in_session():
            blob.upload_from_file(
                file,
                size=size,
                content_type="application/octet-stream",
                checksum="crc32c",
                if_generation_match=generation,
                retry=None,
                timeout=TIMEOUT,
            )

    def _upload_claimed(self, path: str, file: Reader, size: int | None, claim: Claim) -> None:
        """An upload that replaces other bytes only where the claim to them is held."""
        generation = 0
        if claim.is_held():
            standing = _told(lambda: self.describe(path))
            generation = 0 if standing is None else standing.generation
            claim.take()  # after the look: whoever takes it from now on replaces what we saw
        try:
            _told(lambda: self._upload(path, file, size, generation))
        except OtherStandsError:
            standing = _told(lambda: self.describe(path))
            # An upload of ours, whose answer was lost, or one of the same shard by another worker.
            if standing is None or not standing.is_of(*file.sums()):
                claim.take()
                self._upload_claimed(path, file.again(), size, claim)

    def put_over(self, folder: str, name: str, data: bytes, generation: int) -> int | None:
        path = f"{folder}/{name}"

        def put() -> int:
            blob = self._blob(path)
            try:
                with _in_session():
                    blob.upload_from_string(
                        data,
                        content_type="application/octet-stream",
                        checksum="crc32c",
                        if_generation_match=generation,
                        retry=None,
                        timeout=TIMEOUT,
                    )
            except OtherStandsError:
                # An attempt of ours, whose answer was lost, may have put it.
                standing = self.describe(path)
                if standing is None or not standing.is_of(len(data), google_crc32c.value(data)):
                    raise
                return standing.generation
            return int(blob.generation)

        return _told(put)

    def remove(self, folder: str, name: str) -> None:
        path = f"{folder}/{name}"

        def delete(blob: Any) -> None:
            from google.api_core.exceptions import NotFound

            try:
                blob.delete(retry=None, timeout=TIMEOUT)
            except NotFound:
                return

        _told(lambda: delete(self._blob(path)))
        below = _told(lambda: list(self._list(path)))
        map_at_once(lambda blob: _told(lambda: delete(blob)), below, REMOVALS)

    def move(self, folder: str, name: str, new: str) -> None:
        source, target = self._blob(f"{folder}/{name}"), self._blob(f"{folder}/{new}")

        def move() -> None:
            from google.api_core.exceptions import NotFound, PreconditionFailed

            try:
                source.reload(retry=None, timeout=TIMEOUT)
                _rewrite(source, target)
                # What is deleted is what was copied.
                source.delete(if_generation_match=source.generation, retry=None, timeout=TIMEOUT)
            except NotFound:
                if self.size(f"{folder}/{new}") is None:
                    raise
            except PreconditionFailed as error:  # replaced or moved meanwhile: look again
                raise TransientError(_words(error)) from error

        _told(move)

    def _blob(self, path: str, chunk_size: int | None = None) -> Any:
        bucket, name = split_path(path)
        return self._client().bucket(bucket).blob(name, chunk_size=chunk_size)

    def _list(self, folder: str, **more: Any) -> Any:
        """The objects below a folder; a delimiter gives those directly in it, and `.prefixes`."""
        bucket, prefix = split_path(folder)[0], _prefix(folder)
        return self._client().list_blobs(bucket, prefix=prefix, retry=None, timeout=TIMEOUT, **more)

    def _client(self) -> Any:
        with self._lock:
            if self._found is None:
                self._found = _connect()
            return self._found

    def _asker(self) -> Ask:
        client = self._client()
        with self._lock:
            if self._ask is None:
                self._ask = asker(client.api_endpoint, client._credentials, TIMEOUT)
            return self._ask


def split_path(path: str) -> tuple[str, str]:
    """The bucket and the name of an object.

    >>> split_path("gs://bucket/a/b.jpg")
    ('bucket', 'a/b.jpg')
    """
    bucket, _, name = path[len("gs://") :].partition("/")
    if not bucket:
        raise UnreadableError("bad_name", f"{path!r} names no bucket; write gs://BUCKET/NAME")
    return bucket, name


def _prefix(folder: str) -> str:
    name = split_path(folder)[1].rstrip("/")
    return f"{name}/" if name else ""


def _connect() -> Any:
    import requests.adapters
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    # A project is asked for only where buckets are made or listed, which nothing here does.
    project = os.environ.get("GOOGLE_CLOUD_PROJECT", "unused")
    try:
        client = storage.Client(project=project)
    except DefaultCredentialsError as error:
        raise UnreadableError("no_credentials", NO_CREDENTIALS) from error
    adapter = requests.adapters.HTTPAdapter(pool_connections=4, pool_maxsize=CONNECTIONS)
    for scheme in ("https://", "http://"):
        client._http.mount(scheme, adapter)
    return client


def _asked(request: Callable[[], T]) -> T:
    """What a request returns, its failures in our terms."""
    try:
        return request()
    except Exception as error:
        meant = _in_our_terms(error)
        if meant is None:
            raise
        raise meant from error


@contextlib.contextmanager
def _in_session() -> Iterator[None]:
    """An upload whose session the service may end: then another attempt begins a new one.

    Source: https://cloud.google.com/storage/docs/json_api/v1/status-codes#410-gone
    """
    from google.api_core.exceptions import GoogleAPICallError

    try:
        yield
    except GoogleAPICallError as error:
        if error.code == GONE:
            raise TransientError(_words(error)) from error
        if error.code == NOT_THAT_GENERATION:
            raise OtherStandsError from error
        raise


def _rewrite(source: Any, target: Any) -> None:
    """Copy an object within the service, the generation of it that was looked at."""
    token = ""
    while token is not None:  # a large object to another place takes several requests
        token, _, _ = target.rewrite(
            source,
            token=token or None,
            if_source_generation_match=source.generation,
            retry=None,
            timeout=TIMEOUT,
        )


def _in_our_terms(error: Exception) -> UnreadableError | TransientError | None:
    """What a failed request means; None where it is no failure of the service."""
    import requests
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

    match error:
        case exceptions.NotFound():
            return UnreadableError("not_found", _words(error))
        case exceptions.Unauthorized():  # though its client has asked for a new token twice
            return TransientError(_words(error))
        case exceptions.Forbidden() if is_rate_limit(getattr(error.response, "text", "")):
            return TransientError(_words(error))
        case exceptions.Forbidden():
            return UnreadableError("no_permission", _words(error))
        case exceptions.GoogleAPICallError():
            if error.code is not None and is_transient(int(error.code)):
                return TransientError(_words(error))
            return UnreadableError("read_failed", _words(error))
        case InvalidResponse():
            status = int(getattr(error.response, "status_code", 0))
            if status == 401 or is_transient(status):
                return TransientError(f"the server answered {status}")
            return UnreadableError("read_failed", str(error))
        case DataCorruption() | TransportError() | requests.RequestException() | ConnectionError():
            # A body that was cut short among them: it is not what its checksum says.
            return TransientError(_words(error))
        case GoogleAuthError() if error.retryable:  # who gives tokens is busy
            return TransientError(_words(error))
        case GoogleAuthError():
            return UnreadableError("no_credentials", f"{NO_CREDENTIALS} ({_words(error)})")
        case OSError() if may_pass(error):
            return TransientError(_words(error))
        case OSError():  # of this machine: a file of certificates, a full disk
            return UnreadableError("read_failed", _words(error))
    return None


def _told(request: Callable[[], T]) -> T:
    """The same for requests that write."""
    try:
        return _asked(request)
    except UnreadableError as error:
        raise UnwritableError(error.detail) from error


def _words(error: Exception) -> str:
    """What went wrong, in a line, without the address of the request."""
    from google.api_core.exceptions import GoogleAPICallError

    response = error.response if isinstance(error, GoogleAPICallError) else None
    if response is None:
        return failure_words(error)
    return answer_words(response.status_code, response.text, response.reason)

"""Google Cloud Storage: uploads by Google's client, everything else by short requests.

There is one store per process.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple, TypeVar

from tfrecorder.core.threads import map_at_once
from tfrecorder.storage import gcs_requests
from tfrecorder.storage.connections import NO_CREDENTIALS, Access, access, find_credentials
from tfrecorder.storage.remote_files import Reader, followed, in_parts
from tfrecorder.storage.store import (
    FRESH,
    Claim,
    Description,
    OtherStandsError,
    Store,
    TransientError,
    UnreadableError,
    Writing,
    may_pass,
    split_path,
    translated,
    unless_missing,
)

T = TypeVar("T")

#: Seconds to wait for a connection, and for each response.
TIMEOUT = (10, 60)

#: Bytes sent in one request while a file is still being written.  The service takes multiples of
#: 256 KiB.  A smaller file goes up in one request when it is complete.
PIECE = 2**24

#: The status of a resumable upload whose session the service has ended.
#: Source: https://cloud.google.com/storage/docs/json_api/v1/status-codes#410-gone
GONE = 410

#: Concurrent requests when many objects are removed.
REMOVALS = 16


class Connection(NamedTuple):
    """The service, accessed in one way.

    Attributes:
        client: Google's own client, for uploads.
        ask: makes short requests with the same credentials.
        unsigned: there are no credentials, so only public objects can be read.
    """

    client: Any
    ask: gcs_requests.Ask
    unsigned: bool


class BucketStore(Store):
    """Objects `gs://bucket/name`; a folder is a prefix of object names.

    An object's version is its generation.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connected: dict[Access, Connection] = {}

    def read(self, path: str) -> bytes:
        return self._at(path).read()[0]

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        return self._at(path).read_versioned()

    def open(
        self,
        path: str,
        expected: Description | None = None,
    ) -> BinaryIO:
        at = self._at(path)  # here: Arrow reads in its own threads, without our context
        description = expected or at.describe()

        def read(start: int, end: int) -> bytes:
            # From the version just described, so that two versions are never mixed.
            return at.read_range(description.version, start, end)

        return in_parts(path, description.size, read)

    def fetch(
        self,
        path: str,
        file: BinaryIO,
    ) -> None:
        self._at(path).fetch(file)

    def describe(self, path: str) -> Description | None:
        if not split_path(path)[1]:  # the service would take it for a listing
            return None
        return unless_missing(lambda: self._at(path).describe())

    def version(self, path: str) -> str | None:
        description = self.describe(path)
        return None if description is None else description.version

    def listing(self, folder: str) -> dict[str, Description | None]:
        return self._list(folder, delimiter="/")

    def files(self, folder: str) -> Iterator[str]:
        return (name for name in self._list(folder) if not name.endswith("/"))

    def is_folder(self, path: str) -> bool:
        return bool(self._at(_below(path)).below(most=1)[0])

    def publish(
        self,
        folder: str,
        name: str,
        claim: Claim | None = None,
    ) -> Writing:
        path = f"{folder}/{name}"

        def upload(file: Reader, size: int | None) -> None:
            if claim is None:
                self._upload(path, file, size)
                return
            self.put_claimed(
                path,
                claim,
                put=lambda version: self._upload(path, file.again(), size, version, is_fresh=False),
                is_ours=lambda standing: standing.is_of(*file.sums()),
            )

        return followed(path, upload, PIECE)

    def keeps_removed(self, folder: str) -> str | None:
        return self._at(folder).keeps_removed()

    def put_at(
        self,
        path: str,
        data: bytes,
        version: str,
    ) -> str | None:
        return self._upload(path, io.BytesIO(data), len(data), version)

    def remove(
        self,
        folder: str,
        name: str,
    ) -> None:
        self.remove_file(folder, name)
        at = self._at(_below(f"{folder}/{name}"))
        map_at_once(lambda name: replace(at, name=name).delete(), at.below()[0], REMOVALS)

    def remove_file(
        self,
        folder: str,
        name: str,
    ) -> None:
        self._at(f"{folder}/{name}").delete()

    def link(
        self,
        folder: str,
        name: str,
        new: str,
    ) -> None:
        self._copy(f"{folder}/{name}", f"{folder}/{new}")

    def move_at(
        self,
        folder: str,
        name: str,
        new: str,
        version: str = "",
    ) -> None:
        self._copy(f"{folder}/{name}", f"{folder}/{new}", version, is_moved=True)

    def _copy(
        self,
        path: str,
        new: str,
        listed: str = "",
        is_moved: bool = False,
    ) -> None:
        source = self._at(path)
        try:
            version = listed or source.describe().version
            source.copy(self._at(new), version)
            if is_moved:  # delete exactly the version that was copied
                source.delete(version)
        except OtherStandsError as error:  # replaced or moved in between: look again
            if not listed:
                raise TransientError(str(error)) from error
            self._copy(path, new, is_moved=is_moved)

    def is_unsigned(self) -> bool:
        """Whether there are no credentials, so that only public objects can be read."""
        return self._connection().unsigned

    def _upload(
        self,
        path: str,
        file: Reader | BinaryIO,
        size: int | None,
        version: str | None = None,
        is_fresh: bool = True,
    ) -> str:
        """Upload to the final name, and return the version: it appears whole, or not at all.

        With a version it is put only over that one, empty for no object.
        """
        at = self._at(path)
        connection = self._connection()
        if connection.unsigned:
            raise UnreadableError("no_credentials", NO_CREDENTIALS)
        billed = connection.client.bucket(at.bucket, user_project=access().user_project)
        blob = billed.blob(at.name, chunk_size=PIECE)
        if is_fresh:
            blob.cache_control = FRESH
        with translated(_in_our_terms):
            blob.upload_from_file(
                file,
                size=size,
                content_type="application/octet-stream",
                checksum="crc32c",
                if_generation_match=None if version is None else int(version or 0),
                retry=None,
                timeout=TIMEOUT,
            )
        return str(blob.generation)

    def _list(
        self,
        folder: str,
        delimiter: str = "",
    ) -> dict[str, Description | None]:
        """The objects below a folder; with a delimiter, those directly in it, and its folders."""
        at = self._at(_below(folder))
        objects, folders = at.below(delimiter)
        objects.pop(at.name, None)  # the empty object that stands for the folder itself
        listing = {**objects, **{name.removesuffix("/"): None for name in folders}}
        return {name[len(at.name) :]: description for name, description in listing.items()}

    def _at(self, path: str) -> gcs_requests.BucketObject:
        place, name = split_path(path)
        return gcs_requests.BucketObject(self._connection().ask, place.partition("://")[2], name)

    def _connection(self) -> Connection:
        chosen = access()
        with self._lock, translated(_in_our_terms):
            if chosen not in self._connected:
                self._connected[chosen] = _connect(chosen)
            return self._connected[chosen]


def _below(folder: str) -> str:
    """The prefix of the paths of the objects below a folder."""
    return f"gs://{folder.removeprefix('gs://').rstrip('/')}/"


def _connect(chosen: Access) -> Connection:
    from google.auth.credentials import AnonymousCredentials
    from google.auth.exceptions import DefaultCredentialsError
    from google.cloud import storage

    unsigned = False
    if os.environ.get("STORAGE_EMULATOR_HOST"):  # an emulator needs none
        credentials: Any = AnonymousCredentials()
    else:
        try:
            credentials = find_credentials(chosen.account, storage.Client.SCOPE)
        except DefaultCredentialsError as error:
            named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
            if named or chosen.account is not None:  # an account was named
                words = str(error).partition("\n")[0].rstrip(".")
                where = f"GOOGLE_APPLICATION_CREDENTIALS={named}: {words}"
                raise UnreadableError(
                    "no_credentials",
                    where if named else NO_CREDENTIALS,
                ) from error
            credentials = AnonymousCredentials()
            unsigned = True
    # A project is needed only to create or list buckets, and nothing here does that.
    project = os.environ.get("GOOGLE_CLOUD_PROJECT", "unused")
    client = storage.Client(project=project, credentials=credentials)
    signed = None if unsigned else credentials
    ask = gcs_requests.asker(client.api_endpoint, signed, TIMEOUT, chosen.user_project)
    return Connection(client, ask, unsigned)


def _in_our_terms(error: Exception) -> Exception | None:
    """Our error for a failure of Google's packages or the system; None for any other failure."""
    import requests
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage.exceptions import DataCorruption

    match error:
        case GoogleAPICallError() if error.code == GONE:  # the next attempt starts a new session
            return TransientError(gcs_requests.failure_words(error))
        case GoogleAPICallError():
            answer: Any = error.response
            return gcs_requests.refused(
                answer.status_code,
                answer.text,
                answer.reason,
                answer.headers,
            )
        case GoogleAuthError():
            return gcs_requests.token_failure(error)
        case DataCorruption() | requests.RequestException():
            # This includes a body that was cut short: its checksum does not match.
            return TransientError(gcs_requests.failure_words(error))
        case OSError() if may_pass(error):
            return TransientError(gcs_requests.failure_words(error))
        case OSError():  # on this machine: a certificate file, a full disk
            return UnreadableError("read_failed", gcs_requests.failure_words(error))
    return None

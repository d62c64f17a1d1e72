"""The buckets and objects of the loopback server, held in memory.

Preconditions are checked and the object is replaced under one lock, so that of two writers with
`ifGenerationMatch=0` exactly one wins, as on the real service.
"""

from __future__ import annotations

import base64
import bisect
import dataclasses
import hashlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import google_crc32c

#: The most names that one page of a listing holds.
PAGE = 1000

#: The real generations are microseconds since 1970 too: large, and growing.
_FIRST_GENERATION = 1_700_000_000_000_000


class Refused(Exception):
    """A request that the service answers with an error.

    Attributes:
        status: the HTTP status.
        reason: the service's own word for it, as notFound.
        message: for people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class StoredObject:
    """One generation of an object."""

    bucket: str
    name: str
    data: bytes
    generation: int
    content_type: str
    updated: str
    metadata: Mapping[str, str]
    crc32c: str
    md5: str
    cache_control: str = ""

    def resource(self) -> dict[str, Any]:
        """The object as the JSON API describes it."""
        return {
            "kind": "storage#object",
            "id": f"{self.bucket}/{self.name}/{self.generation}",
            "name": self.name,
            "bucket": self.bucket,
            "generation": str(self.generation),
            "metageneration": "1",
            "contentType": self.content_type,
            "contentEncoding": "",
            "storageClass": "STANDARD",
            "size": str(len(self.data)),
            "crc32c": self.crc32c,
            "md5Hash": self.md5,
            "etag": base64.b64encode(str(self.generation).encode()).decode(),
            "timeCreated": self.updated,
            "updated": self.updated,
            "metadata": dict(self.metadata),
            **({"cacheControl": self.cache_control} if self.cache_control else {}),
        }


@dataclass(frozen=True)
class Preconditions:
    """What must hold of the object that stands there, or the request is refused."""

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Preconditions:
        def number(key: str) -> int | None:
            return int(query[key]) if key in query else None

        return cls(
            number("ifGenerationMatch"),
            number("ifGenerationNotMatch"),
            number("ifMetagenerationMatch"),
        )

    @classmethod
    def of_source(cls, query: Mapping[str, str]) -> Preconditions:
        """Those on the object that is copied."""
        wanted = query.get("ifSourceGenerationMatch")
        return cls(None if wanted is None else int(wanted))

    def check(self, standing: StoredObject | None) -> None:
        generation = standing.generation if standing else 0
        metageneration = 1 if standing else 0  # metadata are never changed here
        if (
            self.generation_match not in (None, generation)
            or self.generation_not_match == generation
            or self.metageneration_match not in (None, metageneration)
        ):
            message = "At least one of the pre-conditions you specified did not hold."
            raise Refused(412, "conditionNotMet", message)


@dataclass(frozen=True)
class Upload:
    """An object as it is asked for: what the uploader says of it, ahead of its bytes."""

    bucket: str
    name: str
    content_type: str
    metadata: Mapping[str, str]
    crc32c: str | None
    md5: str | None
    preconditions: Preconditions
    cache_control: str = ""


@dataclass(frozen=True)
class Listing:
    """One page of names."""

    objects: Sequence[StoredObject]
    prefixes: Sequence[str]
    next_page: str | None


class Store:
    """Buckets, each with its objects in the order of their names' UTF-8 bytes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._buckets: dict[str, dict[str, StoredObject]] = {}
        self._names: dict[str, list[bytes]] = {}
        self._generations = itertools.count(_FIRST_GENERATION)
        #: Of buckets by name: raises where an object that stands may not go.
        self.keeps: dict[str, Callable[[str], None]] = {}

    def create_bucket(self, bucket: str) -> None:
        with self._lock:
            if bucket in self._buckets:
                raise Refused(409, "conflict", "Your previous request to create it succeeded.")
            self._buckets[bucket] = {}
            self._names[bucket] = []

    def buckets(self) -> list[str]:
        with self._lock:
            return sorted(self._buckets)

    def bucket(self, bucket: str) -> dict[str, StoredObject]:
        try:
            return self._buckets[bucket]
        except KeyError:
            raise Refused(404, "notFound", "The specified bucket does not exist.") from None

    def get(
        self,
        bucket: str,
        name: str,
        preconditions: Preconditions = Preconditions(),
        generation: int | None = None,
    ) -> StoredObject:
        with self._lock:
            standing = self.bucket(bucket).get(name)
            if standing is None or generation not in (None, standing.generation):
                raise Refused(404, "notFound", f"No such object: {bucket}/{name}")
            preconditions.check(standing)
            return standing

    def check(self, upload: Upload) -> None:
        """Refuse an upload that could not be stored even now."""
        with self._lock:
            upload.preconditions.check(self.bucket(upload.bucket).get(upload.name))

    def put(self, upload: Upload, data: bytes) -> StoredObject:
        crc32c = base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
        md5 = base64.b64encode(hashlib.md5(data).digest()).decode()
        for kind, said, found in (("CRC32C", upload.crc32c, crc32c), ("MD5", upload.md5, md5)):
            if said not in (None, found):
                message = f'Provided {kind} "{said}" doesn\'t match calculated {kind} "{found}".'
                raise Refused(400, "invalid", message)
        with self._lock:
            self.check(upload)
            if upload.name in self._buckets[upload.bucket]:
                self._refuse_kept(upload.bucket, upload.name)
            stored = StoredObject(
                upload.bucket,
                upload.name,
                data,
                next(self._generations),
                upload.content_type,
                datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                upload.metadata,
                crc32c,
                md5,
                upload.cache_control,
            )
            if upload.name not in self._buckets[upload.bucket]:
                bisect.insort(self._names[upload.bucket], upload.name.encode())
            self._buckets[upload.bucket][upload.name] = stored
            return stored

    def delete(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        with self._lock:
            self.get(bucket, name, preconditions)
            self._refuse_kept(bucket, name)
            del self._buckets[bucket][name]
            names = self._names[bucket]
            del names[bisect.bisect_left(names, name.encode())]

    def _refuse_kept(self, bucket: str, name: str) -> None:
        if bucket in self.keeps:
            self.keeps[bucket](name)

    def copy(self, source: StoredObject, bucket: str, name: str, must: Preconditions) -> Any:
        kind, metadata, cache = source.content_type, source.metadata, source.cache_control
        upload = Upload(bucket, name, kind, metadata, None, None, must, cache)
        return self.put(upload, source.data)

    def list(self, bucket: str, query: Mapping[str, str]) -> Listing:
        """A page of a bucket's names: objects, and what the names share up to the delimiter."""
        prefix = query.get("prefix", "").encode()
        delimiter = query.get("delimiter", "").encode()
        most = min(PAGE, int(query.get("maxResults", PAGE)))
        start = query.get("startOffset", "").encode()
        end = query.get("endOffset", "").encode()
        after = base64.urlsafe_b64decode(query.get("pageToken", "").encode())
        with self._lock:
            objects, names = self.bucket(bucket), self._names[bucket]
            found: list[StoredObject] = []
            prefixes: list[str] = []
            last = b""
            for at in itertools.count(bisect.bisect_left(names, max(prefix, start, after))):
                if at == len(names) or not names[at].startswith(prefix):
                    return Listing(found, prefixes, None)
                name = names[at]
                if end and name >= end:
                    return Listing(found, prefixes, None)
                cut = name.find(delimiter, len(prefix)) if delimiter else -1
                shown = name if cut < 0 else name[: cut + len(delimiter)]
                if shown == last or (after and shown <= after):
                    continue
                if len(found) + len(prefixes) == most:
                    token = base64.urlsafe_b64encode(last).decode()
                    return Listing(found, prefixes, token)
                last = shown
                if cut < 0:
                    found.append(objects[name.decode()])
                else:
                    prefixes.append(shown.decode())
        raise AssertionError("the names never end")


def compose(store: Store, upload: Upload, names: Sequence[str]) -> StoredObject:
    """Store the objects of one bucket, one after another, as one."""
    parts = [store.get(upload.bucket, name) for name in names]
    if not upload.content_type:
        upload = dataclasses.replace(upload, content_type=parts[0].content_type)
    return store.put(upload, b"".join(part.data for part in parts))

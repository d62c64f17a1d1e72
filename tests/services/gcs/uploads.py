"""Uploads in several requests (the resumable kind) and in one (the multipart kind)."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.gcs.objects import Preconditions, Refused, Store, StoredObject, Upload

#: All but the last piece of a resumable upload is kept in multiples of this.
UNIT = 256 * 1024

_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


def described(bucket: str, query: Mapping[str, str], said: Mapping[str, Any], kind: str) -> Upload:
    """What an uploader says of an object, in the query and in JSON."""
    name = query.get("name") or said.get("name")
    if not name:
        raise Refused(400, "required", "Required parameter: name")
    return Upload(
        bucket,
        str(name),
        str(said.get("contentType") or kind or "application/octet-stream"),
        said.get("metadata") or {},
        said.get("crc32c"),
        said.get("md5Hash"),
        Preconditions.of(query),
        str(said.get("cacheControl") or ""),
    )


def parse_multipart(content_type: str, body: bytes) -> tuple[dict[str, Any], str, bytes]:
    """A multipart/related body: what is said of the object, its content type, and its bytes."""
    found = re.search(r"""boundary=["']?([^"';]+)""", content_type)
    if found is None:
        raise Refused(400, "badContent", "Missing multipart boundary")
    mark = b"--" + found[1].encode()
    end = body.rfind(b"\r\n" + mark + b"--")
    parts = body[:end].split(mark + b"\r\n", 2) if end >= 0 else []
    if len(parts) != 3:
        raise Refused(400, "badContent", "Malformed multipart body.")
    said = parts[1].split(b"\r\n\r\n", 1)[1]
    head, data = parts[2].split(b"\r\n\r\n", 1)
    kind = re.search(rb"(?i)content-type:\s*(\S+)", head)
    return json.loads(said), kind[1].decode() if kind else "", data


@dataclass
class _Session:
    upload: Upload
    received: bytearray = field(default_factory=bytearray)
    stored: StoredObject | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class Sessions:
    """Resumable uploads under way.  An object is stored when its last byte is there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, _Session] = {}

    def start(self, upload: Upload) -> str:
        """Begin an upload; its id."""
        self._store.check(upload)
        upload_id = secrets.token_urlsafe(24)
        self._sessions[upload_id] = _Session(upload)
        return upload_id

    def cancel(self, upload_id: str) -> None:
        self._session(upload_id)
        del self._sessions[upload_id]

    def upload(self, upload_id: str) -> Upload:
        """What was said at the start."""
        return self._session(upload_id).upload

    def _session(self, upload_id: str) -> _Session:
        try:
            return self._sessions[upload_id]
        except KeyError:
            raise Refused(404, "notFound", f"No such upload: {upload_id}") from None

    def receive(
        self, upload_id: str, content_range: str, hashes: Mapping[str, str], body: bytes
    ) -> tuple[StoredObject | None, int]:
        """Take a piece, or a question for how much is there (a range without numbers).

        Args:
            hashes: the checksums of the whole, by crc32c and md5, if the last piece gives them.

        Returns:
            The object where it is now stored, else None, and the bytes received so far.
        """
        session = self._session(upload_id)
        found = _RANGE.fullmatch(content_range or f"bytes 0-{len(body) - 1}/{len(body)}")
        if content_range and found is None:
            raise Refused(400, "invalid", f"Invalid Content-Range: {content_range}")
        first, total = (found[1], found[3]) if found else ("0", "0")  # an empty body, no range
        with session.lock:
            if session.stored:
                return session.stored, len(session.received)
            if first is not None:
                _append(session.received, int(first), body, last=total != "*")
            if total == "*" or len(session.received) < int(total):
                return None, len(session.received)
            session.stored = self._finish(session, int(total), hashes)
            return session.stored, len(session.received)

    def _finish(self, session: _Session, total: int, hashes: Mapping[str, str]) -> StoredObject:
        if len(session.received) > total:
            raise Refused(400, "invalid", f"{len(session.received)} bytes for an end at {total}")
        data = bytes(session.received)
        said = session.upload
        upload = Upload(
            said.bucket,
            said.name,
            said.content_type,
            said.metadata,
            hashes.get("crc32c") or said.crc32c,
            hashes.get("md5") or said.md5,
            said.preconditions,
            said.cache_control,
        )
        return self._store.put(upload, data)


def _append(received: bytearray, first: int, body: bytes, *, last: bool) -> None:
    """Add a piece; what was there already is passed over, as the service does."""
    if first > len(received):
        message = f"The piece begins at {first}, but only {len(received)} bytes are there."
        raise Refused(400, "invalid", message)
    fresh = body[len(received) - first :]
    if not last:
        fresh = fresh[: len(fresh) - (len(received) + len(fresh)) % UNIT]
    received += fresh

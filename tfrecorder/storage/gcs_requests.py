"""Requests to Google Cloud Storage's JSON API without Google's client: everything but uploads.

google-cloud-storage's own download of an image takes about five times the CPU, and its client keeps
only ten connections, fewer than the threads that make requests.
Sources: https://cloud.google.com/storage/docs/json_api/v1/objects and, for requesting only some
fields, https://cloud.google.com/storage/docs/json_api#partial-response
"""

from __future__ import annotations

import base64
import contextlib
import math
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import Any, BinaryIO

import google_crc32c

from tfrecorder.core.text import read_json
from tfrecorder.display.tables import counted
from tfrecorder.storage.connections import NO_CREDENTIALS, NO_USER_PROJECT, Answer, sender
from tfrecorder.storage.retry import patience
from tfrecorder.storage.store import (
    CODES_OF_STATUS,
    MAX_FILE_BYTES,
    Description,
    OtherStandsError,
    TransientError,
    UnreadableError,
    is_transient,
    sums_of,
    too_large,
    unless_missing,
)

#: Sends a request (path, method, headers).  If it succeeds, the response can be read inside the
#: block.
Ask = Callable[..., AbstractContextManager[Answer]]

#: The status of a request that expected another generation.
_NOT_THAT_GENERATION = 412

#: What the service says, as a reason in JSON or in the text of a refused download, where a status
#: means something else than usual: of too many requests; and of a requester-pays bucket if its
#: reader names no project to bill, or one that it may not use.
#: Sources: https://cloud.google.com/storage/docs/json_api/v1/status-codes#403-forbidden and
#: https://cloud.google.com/storage/docs/requester-pays
_TOO_MANY = re.compile(
    r'"reason":\s*"(?:(?:user)?rateLimit|quota|dailyLimit)Exceeded"'
    r"|\A\s*(?:The )?(?:\w+ )?(?:rate limit|quota)\b",
    re.IGNORECASE,
)
_NOBODY_PAYS = re.compile(r"user project|serviceusage\.services\.use", re.IGNORECASE)

#: A CRC32C among the checksums of an object.
_CRC32C = re.compile(r"\bcrc32c=([A-Za-z0-9+/]{6}==)")

#: Bytes of an answer in JSON, at most: a page of a listing has two million.
_MOST_TEXT = 2**26

#: Bytes that are unpacked at a time: a file of zeros is a thousandth of its size.
_UNPACKED = 2**20

#: The fields to request, out of an object's 20 or so.
_DESCRIBED = "size,crc32c,generation"

_NOT_WHOLE = "the bytes received are not those that are stored"
_NOT_AN_ANSWER = "what came back is not an answer from the service"
_NOT_ZIPPED = "its Content-Encoding is gzip, but it is not zipped; correct it in the bucket"


def asker(
    endpoint: str,
    credentials: Any,
    timeout: tuple[float, float],
    user_project: str | None = None,
) -> Ask:
    """A function that makes requests over kept-alive connections; threads may share it.

    It raises TransientError, UnreadableError and OtherStandsError, also inside its block.

    Args:
        endpoint: of the service, such as "https://storage.googleapis.com".
        credentials: of google-auth; None if there are none, so that only public objects can be
            read.
        timeout: seconds for a connection, and for each wait for a part of a response.
        user_project: the project to bill.
    """
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    send = sender(endpoint, timeout)
    tokens = Request()
    billed = "" if user_project is None else f"userProject={urllib.parse.quote(user_project)}"

    @contextlib.contextmanager
    def ask(
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] = {},
    ) -> Iterator[Answer]:
        if credentials is None and method != "GET":
            raise UnreadableError("no_credentials", NO_CREDENTIALS)
        if billed:
            path = f"{path}{'&' if '?' in path else '?'}{billed}"
        try:
            for is_last in (credentials is None, True):
                signed = dict(headers)
                if credentials is not None:
                    credentials.before_request(tokens, method, f"{endpoint}{path}", signed)
                with send(method, path, signed) as response:
                    if response.status != 401 or is_last:
                        yield _granted(response, unsigned=credentials is None)
                        return
                credentials.refresh(tokens)  # a token can become invalid before it expires
        except GoogleAuthError as error:
            raise token_failure(error) from error
        except (OSError, HTTPException) as error:
            raise TransientError(failure_words(error)) from error

    return ask


def token_failure(error: Any) -> Exception:
    """Our error for one of google-auth's: the token server may be busy, or a gateway answered."""
    from google.auth.exceptions import TransportError

    is_passing = error.retryable or isinstance(error.__cause__, ValueError)
    if is_passing or isinstance(error, TransportError):
        return TransientError(failure_words(error))
    return UnreadableError("no_credentials", f"{NO_CREDENTIALS} ({failure_words(error)})")


@dataclass(frozen=True)
class BucketObject:
    """An object of a bucket, or with a prefix as its name the objects below that; and who asks.

    Attributes:
        ask: makes the requests.
        bucket: the bucket's name.
        name: the object's name.
    """

    ask: Ask
    bucket: str
    name: str

    @property
    def _bucket_path(self) -> str:
        return f"/storage/v1/b/{urllib.parse.quote(self.bucket, safe='')}"

    @property
    def _path(self) -> str:
        return f"{self._bucket_path}/o/{urllib.parse.quote(self.name, safe='')}"

    @property
    def _media(self) -> str:
        return f"/download{self._path}?alt=media"

    def read_versioned(self) -> tuple[bytes, str]:
        """The bytes, checked as in `read`, and their version."""
        data, version = self.read()
        if version is None:
            standing = self.describe()
            if not standing.is_of(len(data), google_crc32c.value(data)):
                raise TransientError(_NOT_WHOLE)
            version = standing.version
        return data, version

    def read(self) -> tuple[bytes, str | None]:
        """The bytes, checked against the stored checksum if they come as stored; their version.

        The version is None if a gateway took its header away.
        """
        with self.ask(self._media) as response:
            data = b"".join(response.pieces(patience().seconds, MAX_FILE_BYTES))
            self._check_whole(response, len(data), google_crc32c.value(data))
            # A gzipped object is sent as stored only if its owner forbids decompression in transit.
            is_zipped = response.headers["Content-Encoding"] == "gzip"
            return _unzipped(data) if is_zipped else data, response.headers["X-Goog-Generation"]

    def fetch(self, file: BinaryIO) -> None:
        """Copy the bytes to a file, checked as in `read`."""
        with self.ask(self._media) as response:
            is_zipped = response.headers["Content-Encoding"] == "gzip"
            unzip = Unzip()
            pieces = response.pieces(patience().seconds, math.inf)

            def read(most: int) -> bytes:
                data = next(pieces, b"")
                try:
                    for part in unzip(data) if is_zipped else [data]:
                        file.write(part)
                except OSError as error:  # on this machine: its disk is full
                    raise UnreadableError("read_failed", failure_words(error)) from error
                return data

            self._check_whole(response, *sums_of(read))
            if is_zipped:
                unzip.end()

    def read_range(
        self,
        version: str,
        start: int,
        end: int,
    ) -> bytes:
        """The bytes from `start` up to, not including, `end` of one version."""
        wanted = {"Range": f"bytes={start}-{end - 1}"}
        with self.ask(f"{self._media}&generation={version}", headers=wanted) as response:
            if response.status != 206:  # the page of a gateway may be as long as the range
                raise TransientError(_NOT_WHOLE)
            return b"".join(response.pieces(patience().seconds, MAX_FILE_BYTES))

    def describe(self) -> Description:
        """The size, checksum and version."""
        return _description(_json(self.ask, f"{self._path}?fields={_DESCRIBED}"))

    def below(
        self,
        delimiter: str = "",
        most: int | None = None,
    ) -> tuple[dict[str, Description], list[str]]:
        """The objects whose names begin with this one, and with a delimiter the folders too.

        Args:
            delimiter: names with one after the prefix are cut there and listed as folders.
            most: stop after this many objects.
        """
        query = {"prefix": self.name, "delimiter": delimiter}
        query["fields"] = f"items(name,{_DESCRIBED}),prefixes,nextPageToken"
        if most is not None:
            query["maxResults"] = str(most)
        objects = {}
        folders = []
        while True:
            asked = urllib.parse.urlencode({name: value for name, value in query.items() if value})
            page = _json(self.ask, f"{self._bucket_path}/o?{asked}")
            objects.update({item["name"]: _description(item) for item in page.get("items", ())})
            folders += page.get("prefixes", ())
            query["pageToken"] = page.get("nextPageToken", "")
            if not query["pageToken"] or (most is not None and len(objects) >= most):
                return objects, folders

    def delete(self, version: str | None = None) -> None:
        """Remove the object, or only the given version of it; nothing if there is none."""
        only = "" if version is None else f"?ifGenerationMatch={version}"

        def delete() -> None:
            with self.ask(f"{self._path}{only}", "DELETE") as response:
                if _text(response).lstrip().startswith(b"<"):
                    raise TransientError(_NOT_AN_ANSWER)

        unless_missing(delete)

    def copy(
        self,
        target: BucketObject,
        version: str,
    ) -> None:
        """Copy one version to another object, within the service."""
        path = f"{self._path}/rewriteTo{target._path.removeprefix('/storage/v1')}"
        query = {"ifSourceGenerationMatch": version}
        done = False
        while not done:  # a large object going to another location takes several requests
            answer = _json(self.ask, f"{path}?{urllib.parse.urlencode(query)}", "POST")
            done = bool(answer.get("done"))
            query["rewriteToken"] = answer.get("rewriteToken", "")

    def keeps_removed(self) -> str:
        """For how long the bucket keeps removed objects, in words; "" if it keeps none.

        Sources: https://cloud.google.com/storage/docs/soft-delete and
        https://cloud.google.com/storage/docs/object-versioning
        """
        about = _json(self.ask, f"{self._bucket_path}?fields=softDeletePolicy,versioning")
        seconds = int(about.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
        days = counted(round(seconds / 86400), "day")
        words = [f"for {days} after they are removed (soft delete)"] if seconds else []
        if about.get("versioning", {}).get("enabled"):
            words.append("as older versions until these are removed too (versioning)")
        return ", and ".join(words)

    def _check_whole(
        self,
        response: Answer,
        size: int,
        crc: int,
    ) -> None:
        """Compare the size and CRC32C of a whole answer with those of the stored object.

        Nothing is compared if the service unpacked the object on the way.

        Raises:
            TransientError: the answer is not the object, or cannot be compared: a gateway took the
                headers away, or answers itself.
        """
        sent = response.headers.get("Content-Encoding", "identity")
        is_unpacked = response.headers.get("X-Goog-Stored-Content-Encoding", sent) != sent
        # All in one header or one header each, in any order.
        hashes = ",".join(response.headers.get_all("X-Goog-Hash", []))
        match = _CRC32C.search(hashes)
        stored = decode_crc32c(match[1]) if match else None
        if stored is None and response.length is None and not response.chunked:
            raise TransientError("the answer ended within the headers, or has no length")
        if stored is None and not is_unpacked:
            fields = _json(self.ask, f"{self._path}?fields={_DESCRIBED},contentEncoding")
            is_unpacked = fields.get("contentEncoding") == "gzip" != sent
            stored = crc if _description(fields).is_of(size, crc) else None
        if not is_unpacked and stored != crc:
            raise TransientError(_NOT_WHOLE)


def _text(response: Answer) -> bytes:
    return b"".join(response.pieces(patience().seconds, _MOST_TEXT))


def _json(
    ask: Ask,
    path: str,
    method: str = "GET",
) -> dict[str, Any]:
    with ask(path, method) as response:
        text = _text(response)
    with contextlib.suppress(ValueError):
        answer = read_json(text)
        if isinstance(answer, dict):
            return answer
    raise TransientError(_NOT_AN_ANSWER)


def _description(fields: Mapping[str, Any]) -> Description:
    try:
        crc = decode_crc32c(fields.get("crc32c"))
        return Description(int(fields["size"]), crc, str(int(fields["generation"])))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TransientError("what came back does not describe an object") from error


def _granted(response: Answer, unsigned: bool = False) -> Answer:
    """The response of a successful request; raises the matching error for any other."""
    if 200 <= response.status < 300:
        return response
    text = ""
    with contextlib.suppress(UnreadableError):  # a page that is longer than any message
        text = _text(response).decode(errors="replace")
    error = refused(response.status, text, response.reason, response.headers)
    denied = isinstance(error, UnreadableError) and error.code == "no_permission"
    if unsigned and (denied or response.status == 401):
        raise UnreadableError("no_credentials", f"{NO_CREDENTIALS} ({error})")
    raise error


def refused(
    status: int,
    text: str,
    reason: str | None,
    headers: Mapping[str, str] | HTTPMessage,
) -> UnreadableError | TransientError | OtherStandsError:
    """The error that an unsuccessful response means, with the service's words."""
    words = answer_words(status, text, reason)
    # A 401 gets here only after a token refresh; the next attempt refreshes it again.
    if status == 401 or is_transient(status) or (status == 403 and _TOO_MANY.search(text)):
        later = headers.get("Retry-After") or ""  # or a date, which this service does not send
        return TransientError(words, float(later) if later.isdecimal() else 0)
    if status == _NOT_THAT_GENERATION:
        return OtherStandsError(words)
    if status in (400, 403) and _NOBODY_PAYS.search(text):
        return UnreadableError("no_user_project", f"{NO_USER_PROJECT} ({words})")
    return UnreadableError(CODES_OF_STATUS.get(status, "read_failed"), words)


class Unzip:
    """Unpacks gzip piece by piece; a file may be several, one after another."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """What a piece holds, in parts.

        Raises:
            UnreadableError: it is not zipped.
        """
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")  # with which tapes are filled
                if not data:
                    return
                self._member = zlib.decompressobj(wbits=31)
            try:
                yield self._member.decompress(data, _UNPACKED)
            except zlib.error as error:
                raise UnreadableError("read_failed", _NOT_ZIPPED) from error
            data = self._member.unused_data or self._member.unconsumed_tail

    def end(self) -> None:
        """Raise an UnreadableError if more pieces should have come."""
        if not self._member.eof:
            raise UnreadableError("read_failed", _NOT_ZIPPED)


def _unzipped(data: bytes) -> bytes:
    whole = bytearray()
    unzip = Unzip()
    for part in unzip(data):
        whole += part
        if len(whole) > MAX_FILE_BYTES:
            raise too_large(len(whole))
    unzip.end()
    return bytes(whole)


def decode_crc32c(encoded: str | None) -> int | None:
    """A checksum in the service's base64 form, as a number."""
    return None if encoded is None else int.from_bytes(base64.b64decode(encoded), "big")


def answer_words(
    status: int,
    text: str,
    reason: str | None,
) -> str:
    """The service's words for a refusal, in one line.

    Args:
        text: JSON with a message, a line of text, or the HTML page of a proxy in between.
        reason: the status in words.

    >>> answer_words(404, '{"error": {"message": "No such object: b/o"}}', "Not Found")
    '404 No such object: b/o'
    >>> answer_words(502, "<!DOCTYPE html>", "Bad Gateway")
    '502 Bad Gateway'
    """
    with contextlib.suppress(LookupError, TypeError, ValueError):  # not JSON
        text = str(read_json(text)["error"]["message"] or "")
    words = reason or "no reason was given"
    if text.strip() and not text.lstrip().startswith("<"):
        words = text.strip().splitlines()[0]
    return f"{status} {words[:200].rstrip('.')}"


def failure_words(error: BaseException) -> str:
    """A failed connection in words: those of the innermost error that libraries have wrapped.

    >>> failure_words(OSError("aborted", ConnectionResetError(104, "Connection reset by peer")))
    'Connection reset by peer'
    """
    for inner in (getattr(error, "reason", None), *error.args, error.__cause__):
        if isinstance(inner, BaseException):
            return failure_words(inner)
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(words).splitlines()[0].rstrip(".: ")

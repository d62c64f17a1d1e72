"""What is asked of Google Cloud Storage without its client, by its JSON API: all but uploads.

google-cloud-storage's own download of an image takes about five times the CPU, and its client keeps
ten connections, which is fewer than there are threads that ask.
Sources: https://cloud.google.com/storage/docs/json_api/v1/objects and, for the parts of a
description that are wanted, https://cloud.google.com/storage/docs/json_api#partial-response
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import re
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import Any, BinaryIO

import google_crc32c

from tfrecorder.storage.connections import sender
from tfrecorder.storage.credentials import NO_CREDENTIALS, NO_USER_PROJECT
from tfrecorder.storage.store import (
    MAX_FILE_BYTES,
    Description,
    OtherStandsError,
    TransientError,
    UnreadableError,
    is_transient,
    seconds_to_wait,
    too_large,
)

#: A request by its path, method and headers: a block in which the answer of a request that was
#: granted can be read.
Ask = Callable[..., AbstractContextManager[HTTPResponse]]

_CODES = {403: "no_permission", 404: "not_found", 410: "not_found"}

#: The status of a request that wants another generation to stand there.
_NOT_THAT_GENERATION = 412

#: Why a 403 is no matter of rights, but of how much was asked for.
#: Source: https://cloud.google.com/storage/docs/json_api/v1/status-codes#403-forbidden
_RATE_LIMITS = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded")
_LIMIT_WORDS = re.compile(r"(The )?(\w+ )?(rate limit|quota)\b", re.IGNORECASE)

#: What is said where a bucket's reader pays and names no project, or one that it may not use.
#: Source: https://cloud.google.com/storage/docs/requester-pays
_PAYER_WORDS = re.compile(r"user project|serviceusage\.services\.use", re.IGNORECASE)

#: The longest answer that is read for its words.
_ERROR_BYTES = 65536

#: What is wanted of the some 20 fields of an object.
_DESCRIBED = "size,crc32c,generation"

#: Under which an object's metadata hold its content in base64, and where that is too long,
#: compressed: a listing gives these of 1,000 objects at once, where their bytes would take a
#: request each.
_CONTENT, _ZIPPED = "tfrecorder-content", "tfrecorder-content-deflated"

#: The longest that is kept so: the service allows metadata of 8 KiB.
#: Source: https://cloud.google.com/storage/quotas#objects
_CONTENT_BYTES = 4096

#: The longest content that is compressed for it.
_MOST_ZIPPED = 2**16

#: Bytes read at a time of a file that goes to the disk.
_PART_BYTES = 2**20

_NOT_WHOLE = "the bytes that came are not those that are stored"
_NOT_ZIPPED = "its Content-Encoding is gzip, but it is not zipped; correct it in the bucket"


def asker(
    endpoint: str, credentials: Any, timeout: tuple[float, float], user_project: str | None = None
) -> Ask:
    """A function that makes requests over connections that it keeps; threads may share it.

    Where its block begins, and in it, TransientError, UnreadableError and OtherStandsError say what
    went wrong.

    Args:
        endpoint: of the service, as "https://storage.googleapis.com".
        credentials: of google-auth; None where there are none: what is public can be read.
        timeout: seconds for a connection, and for each wait for a part of an answer.
        user_project: that is billed.
    """
    from google.auth.transport.requests import Request

    send, tokens = sender(endpoint, timeout), Request()
    billed = "" if user_project is None else f"userProject={urllib.parse.quote(user_project)}"

    def signed(method: str, path: str, headers: Mapping[str, str]) -> dict[str, str]:
        found = dict(headers)
        if credentials is not None:
            credentials.before_request(tokens, method, f"{endpoint}{path}", found)
        return found

    @contextlib.contextmanager
    def ask(
        path: str, method: str = "GET", headers: Mapping[str, str] = {}
    ) -> Iterator[HTTPResponse]:
        if credentials is None and method != "GET":
            raise UnreadableError("no_credentials", NO_CREDENTIALS)
        if billed:
            path = f"{path}{'&' if '?' in path else '?'}{billed}"
        try:
            with send(method, path, signed(method, path, headers)) as response:
                if response.status != 401 or credentials is None:
                    yield _granted(response, unsigned=credentials is None)
                    return
            credentials.refresh(tokens)  # a token can end before its time
            with send(method, path, signed(method, path, headers)) as response:
                yield _granted(response)
        except (OSError, HTTPException) as error:
            raise TransientError(failure_words(error)) from error

    return ask


def read_object(ask: Ask, bucket: str, name: str) -> bytes:
    """An object's bytes, which are those that are stored."""
    with ask(_media(bucket, name)) as response:
        if response.length is not None and response.length > MAX_FILE_BYTES:
            raise too_large(response.length)
        stored = _stored_crc32c(response)
        data = response.read()
        if stored is not None and google_crc32c.value(data) != stored:
            raise TransientError(_NOT_WHOLE)
        # What is stored zipped is sent so only where its owner forbids another form.
        return _unzipped(data) if response.headers["Content-Encoding"] == "gzip" else data


def fetch_object(ask: Ask, bucket: str, name: str, file: BinaryIO) -> None:
    """Copy an object's bytes, which are those that are stored, to a file."""
    with ask(_media(bucket, name)) as response:
        stored, crc = _stored_crc32c(response), 0
        is_zipped = response.headers["Content-Encoding"] == "gzip"
        unzip = zlib.decompressobj(wbits=31).decompress if is_zipped else bytes
        while data := response.read(_PART_BYTES):
            crc = google_crc32c.extend(crc, data)
            try:
                file.write(unzip(data))
            except OSError as error:  # of this machine: its disk is full
                raise UnreadableError("read_failed", failure_words(error)) from error
            except zlib.error as error:
                raise UnreadableError("read_failed", _NOT_ZIPPED) from error
        if response.length or (stored is not None and crc != stored):
            raise TransientError(_NOT_WHOLE)


def read_range(ask: Ask, bucket: str, name: str, generation: int, start: int, end: int) -> bytes:
    """The bytes from one offset up to another, not included, of one generation of an object."""
    wanted = {"Range": f"bytes={start}-{end - 1}"}
    with ask(f"{_media(bucket, name)}&generation={generation}", headers=wanted) as response:
        return response.read()


def describe_object(ask: Ask, bucket: str, name: str) -> Description:
    """An object's size, checksum and generation."""
    return _description(_json(ask, f"{_place(bucket, name)}?fields={_DESCRIBED}"))


def list_objects(
    ask: Ask,
    bucket: str,
    prefix: str,
    delimiter: str = "",
    most: int | None = None,
    contents: bool = False,
) -> tuple[dict[str, Description], list[str]]:
    """The objects whose names begin with a prefix; and the folders, where a delimiter is given.

    Args:
        delimiter: names are listed up to the first one after the prefix only.
        most: so many objects are enough.
        contents: also those that stand in `content_metadata`.
    """
    query = {"prefix": prefix, "delimiter": delimiter}
    wanted = f"{_DESCRIBED},metadata" if contents else _DESCRIBED
    query["fields"] = f"items(name,{wanted}),prefixes,nextPageToken"
    if most is not None:
        query["maxResults"] = str(most)
    objects: dict[str, Description] = {}
    folders: list[str] = []
    while True:
        asked = urllib.parse.urlencode({name: value for name, value in query.items() if value})
        page = _json(ask, f"/storage/v1/b/{urllib.parse.quote(bucket, safe='')}/o?{asked}")
        objects.update({one["name"]: _description(one) for one in page.get("items", ())})
        folders += page.get("prefixes", ())
        query["pageToken"] = page.get("nextPageToken", "")
        if not query["pageToken"] or (most is not None and len(objects) >= most):
            return objects, folders


def delete_object(ask: Ask, bucket: str, name: str, generation: int | None = None) -> None:
    """Remove an object, where a generation is given that one; nothing if there is none."""
    only = "" if generation is None else f"?ifGenerationMatch={generation}"
    try:
        with ask(f"{_place(bucket, name)}{only}", "DELETE") as response:
            response.read()
    except UnreadableError as error:
        if error.code != "not_found":
            raise


def copy_object(
    ask: Ask, bucket: str, name: str, new_bucket: str, new_name: str, generation: int
) -> None:
    """Copy a generation of an object within the service."""
    target = _place(new_bucket, new_name).removeprefix("/storage/v1")
    path = f"{_place(bucket, name)}/rewriteTo{target}"
    query, done = {"ifSourceGenerationMatch": str(generation)}, False
    while not done:  # a large object to another place takes several requests
        found = _json(ask, f"{path}?{urllib.parse.urlencode(query)}", "POST")
        done, query["rewriteToken"] = bool(found.get("done")), found.get("rewriteToken", "")


def _place(bucket: str, name: str) -> str:
    quoted = (urllib.parse.quote(part, safe="") for part in (bucket, name))
    return "/storage/v1/b/{}/o/{}".format(*quoted)


def _media(bucket: str, name: str) -> str:
    return f"/download{_place(bucket, name)}?alt=media"


def _json(ask: Ask, path: str, method: str = "GET") -> dict[str, Any]:
    with ask(path, method) as response:
        text = response.read()
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    raise TransientError("what came is not an answer of the service")


def _description(found: Mapping[str, Any]) -> Description:
    try:
        crc = decode_crc32c(found.get("crc32c"))
        size, generation = int(found["size"]), int(found["generation"])
        return Description(size, crc, generation, _content(found.get("metadata"), size, crc))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TransientError("what came is not a description of an object") from error


def content_metadata(data: bytes) -> dict[str, str] | None:
    """The metadata that let a listing give an object's content; None where it is too long."""
    name, kept = _CONTENT, data
    if len(data) > _CONTENT_BYTES:
        name, kept = _ZIPPED, zlib.compress(data[:_MOST_ZIPPED])
    if len(kept) > _CONTENT_BYTES or len(data) > _MOST_ZIPPED:
        return None
    return {name: base64.b64encode(kept).decode()}


def _content(metadata: Any, size: int, crc: int | None) -> bytes | None:
    """An object's content by its metadata, where the service's own checksum proves it."""
    try:
        if _ZIPPED in metadata:
            unzip = zlib.decompressobj()
            data = unzip.decompress(base64.b64decode(metadata[_ZIPPED]), _MOST_ZIPPED)
        else:
            data = base64.b64decode(metadata[_CONTENT])
    except (LookupError, TypeError, ValueError, zlib.error):
        return None
    return data if (len(data), google_crc32c.value(data)) == (size, crc) else None


def _granted(response: HTTPResponse, unsigned: bool = False) -> HTTPResponse:
    """The answer to a request that was granted; else the error that it means."""
    if 200 <= response.status < 300:
        return response
    text = response.read(_ERROR_BYTES).decode(errors="replace")
    error = refused(response.status, text, response.reason, response.headers)
    denied = isinstance(error, UnreadableError) and error.code == "no_permission"
    if unsigned and (denied or response.status == 401):
        raise UnreadableError("no_credentials", f"{NO_CREDENTIALS} ({error})")
    raise error


def refused(
    status: int, text: str, reason: str | None, headers: Mapping[str, str] | HTTPMessage
) -> UnreadableError | TransientError | OtherStandsError:
    """What an answer means that grants nothing, with the service's words."""
    words = answer_words(status, text, reason)
    # A 401 comes here only after a new token was asked for; the next attempt asks for another.
    if status == 401 or is_transient(status) or (status == 403 and is_rate_limit(text)):
        return TransientError(words, seconds_to_wait(headers.get("Retry-After")))
    if status == _NOT_THAT_GENERATION:
        return OtherStandsError(words)
    if status in (400, 403) and _PAYER_WORDS.search(text):
        return UnreadableError("no_user_project", f"{NO_USER_PROJECT} ({words})")
    return UnreadableError(_CODES.get(status, "read_failed"), words)


def _unzipped(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError("read_failed", _NOT_ZIPPED) from error


def _stored_crc32c(response: HTTPResponse) -> int | None:
    """The CRC32C of the bytes to come; None where they are sent in another form than stored.

    Raises:
        TransientError: nothing says how many bytes will come, or what they are: the head of the
            answer may have been cut.
    """
    sent = response.headers.get("Content-Encoding", "identity")
    stored = None
    if response.headers.get("X-Goog-Stored-Content-Encoding", "identity") == sent:
        # All in one header, or each in its own, in any order.
        told = ",".join(response.headers.get_all("X-Goog-Hash", [])).split(",")
        sums: dict[str, str] = dict(one.strip().partition("=")[::2] for one in told)
        try:
            stored = decode_crc32c(sums.get("crc32c"))
        except ValueError as error:  # not base64: the header is not what was sent
            raise TransientError(_NOT_WHOLE) from error
    if stored is None and response.length is None and not response.chunked:
        raise TransientError("the answer ended within the headers, or has no length")
    return stored


def decode_crc32c(told: str | None) -> int | None:
    """A checksum as the service writes it, in base64, as a number."""
    return None if told is None else int.from_bytes(base64.b64decode(told), "big")


def answer_words(status: int, text: str, reason: str | None) -> str:
    """The service's words for a refusal, in a line.

    Args:
        text: JSON with a message, a line of text, or the page of a proxy between us.
        reason: the status in words.

    >>> answer_words(404, '{"error": {"message": "No such object: b/o"}}', "Not Found")
    '404 No such object: b/o'
    >>> answer_words(502, "<!DOCTYPE html>", "Bad Gateway")
    '502 Bad Gateway'
    """
    with contextlib.suppress(LookupError, TypeError, ValueError):  # no JSON
        text = str(json.loads(text)["error"]["message"] or "")
    lines = [] if text.lstrip().startswith("<") else text.strip().splitlines()
    return f"{status} {(lines or [reason or 'no reason was given'])[0][:200].rstrip('.')}"


def is_rate_limit(text: str) -> bool:
    """Whether the service refuses for the moment only, because too much was asked for.

    Args:
        text: of an answer of the status 403: JSON with reasons or, to a download, words alone.

    >>> is_rate_limit('{"error": {"errors": [{"reason": "rateLimitExceeded"}]}}')
    True
    >>> is_rate_limit("User Rate Limit Exceeded"), is_rate_limit("Permission denied")
    (True, False)
    """
    try:
        reasons = [one.get("reason") for one in json.loads(text)["error"]["errors"]]
    except (AttributeError, LookupError, TypeError, ValueError):
        return _LIMIT_WORDS.match(text.strip()) is not None
    return any(reason in _RATE_LIMITS for reason in reasons)


def failure_words(error: BaseException) -> str:
    """A failed connection in words: of the failure that libraries have wrapped, one by one.

    >>> failure_words(OSError("aborted", ConnectionResetError(104, "Connection reset by peer")))
    'Connection reset by peer'
    """
    for inner in (getattr(error, "reason", None), *error.args, error.__cause__):
        if isinstance(inner, BaseException):
            return failure_words(inner)
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(words).splitlines()[0].rstrip(".: ")

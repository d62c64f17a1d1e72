"""What is asked of Google Cloud Storage for each image: its bytes, its size; by one GET.

By the standard library and google-auth: google-cloud-storage's own download takes 0.95 ms of CPU,
the same by urllib3 0.35 (0.5 in 16 threads, where what is done in Python makes them wait for each
other), this one 0.17 (0.22).
Sources: https://cloud.google.com/storage/docs/json_api/v1/objects/get and, for the parts of a
description that are wanted, https://cloud.google.com/storage/docs/json_api#partial-response
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import os
import re
import ssl
import time
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.client import HTTPException, HTTPMessage, HTTPResponse
from types import FunctionType
from typing import Any, BinaryIO
from urllib.parse import SplitResult

from tfrecorder.storage.store import (
    MAX_FILE_BYTES,
    Description,
    TransientError,
    UnreadableError,
    is_transient,
    too_large,
)

#: A GET of a path of the service: a block in which its answer, of the status 200, can be read.
Ask = Callable[[str], AbstractContextManager[HTTPResponse]]

_CODES = {403: "no_permission", 404: "not_found", 410: "not_found"}

#: Why a 403 is no matter of rights, but of how much was asked for.
#: Source: https://cloud.google.com/storage/docs/json_api/v1/status-codes#403-forbidden
_RATE_LIMITS = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded")
_LIMIT_WORDS = re.compile(r"(The )?(\w+ )?(rate limit|quota)\b", re.IGNORECASE)

#: The longest answer that is read for its words.
_ERROR_BYTES = 65536


def asker(endpoint: str, credentials: Any, timeout: tuple[float, float]) -> Ask:
    """A function that makes GETs over connections that it keeps; threads may share it.

    In its block, and where it begins, TransientError and UnreadableError tell what went wrong.

    Args:
        endpoint: of the service, as "https://storage.googleapis.com".
        credentials: of google-auth.
        timeout: seconds for a connection, and for each wait for a part of an answer.
    """
    from google.auth.transport.requests import Request

    get, tokens = getter(endpoint, timeout), Request()

    def headers(path: str) -> dict[str, str]:
        found: dict[str, str] = {}
        credentials.before_request(tokens, "GET", f"{endpoint}{path}", found)
        return found

    @contextlib.contextmanager
    def ask(path: str) -> Iterator[HTTPResponse]:
        try:
            with get(path, headers(path)) as response:
                if response.status != 401:
                    yield _granted(response)
                    return
            credentials.refresh(tokens)  # a token can end before its time
            with get(path, headers(path)) as response:
                yield _granted(response)
        except (OSError, HTTPException) as error:
            raise TransientError(failure_words(error)) from error

    return ask


def read_object(ask: Ask, bucket: str, name: str) -> bytes:
    """An object's bytes, which are those that are stored."""
    with ask(f"/download{_place(bucket, name)}?alt=media") as response:
        if response.length is not None and response.length > MAX_FILE_BYTES:
            raise too_large(response.length)
        data = response.read()
        if not _is_whole(data, response.headers):
            raise TransientError("the bytes that came are not those that are stored")
        # What is stored zipped is sent so only where its owner forbids another form.
        return _unzipped(data) if response.headers["Content-Encoding"] == "gzip" else data


def describe_object(ask: Ask, bucket: str, name: str) -> Description:
    """An object's size, checksum and generation."""
    with ask(f"{_place(bucket, name)}?fields=size,crc32c,generation") as response:
        text = response.read()
    try:
        found = json.loads(text)
        crc = decode_crc32c(found.get("crc32c"))
        return Description(int(found["size"]), crc, int(found["generation"]))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise TransientError("what came is no description of an object") from error


def _place(bucket: str, name: str) -> str:
    quoted = (urllib.parse.quote(part, safe="") for part in (bucket, name))
    return "/storage/v1/b/{}/o/{}".format(*quoted)


def _granted(response: HTTPResponse) -> HTTPResponse:
    """An answer of the status 200; else the error that it means, with the service's words."""
    if response.status == 200:
        return response
    text = response.read(_ERROR_BYTES).decode(errors="replace")
    words = answer_words(response.status, text, response.reason)
    # A 401 comes here only after a new token was asked for; the next attempt asks for another.
    passes = response.status == 401 or (response.status == 403 and is_rate_limit(text))
    if passes or is_transient(response.status):
        raise TransientError(words)
    raise UnreadableError(_CODES.get(response.status, "read_failed"), words)


def _unzipped(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        words = "its Content-Encoding is gzip, but it is not zipped; correct it in the bucket"
        raise UnreadableError("read_failed", words) from error


def _is_whole(data: bytes, headers: HTTPMessage) -> bool:
    """Whether data have the CRC32C that is told of the object, if they are what is stored."""
    import google_crc32c

    sent = headers.get("Content-Encoding", "identity")
    if headers.get("X-Goog-Stored-Content-Encoding", "identity") != sent:
        return True
    # All in one header, or each in one of its own, in any order.
    told = ",".join(headers.get_all("X-Goog-Hash", [])).split(",")
    sums: dict[str, str] = dict(one.strip().partition("=")[::2] for one in told)
    try:
        stored = decode_crc32c(sums.get("crc32c"))
    except ValueError:  # no base64: the header is not what was sent
        return False
    return stored is None or google_crc32c.value(data) == stored


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


#: A GET of a path with headers: a block in which its answer can be read.
Get = Callable[[str, dict[str, str]], AbstractContextManager[http.client.HTTPResponse]]

#: The longest line of an answer's head, and the most of them: those of the standard library.
_MAX_LINE = 65536
_MAX_HEADERS = 100

#: Variables that name a file or a folder of certificates, the first that is set.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")

#: Seconds after which a connection that nobody used is not used again: its other side may be gone.
IDLE = 4


def getter(endpoint: str, timeout: tuple[float, float]) -> Get:
    """A function that makes GETs over connections that it keeps; threads may share it.

    A connection is kept where its answer was read to the end.  As many are open as there are
    threads that ask at a time.

    Args:
        endpoint: of the service, as "https://storage.googleapis.com".
        timeout: seconds for a connection, and for each wait for a part of an answer.

    Raises:
        UnreadableError: the environment names a proxy that cannot be used.

    The function raises OSError and http.client.HTTPException, in its block too.
    """
    connect = _connector(urllib.parse.urlsplit(endpoint), timeout[0])
    kept: list[tuple[http.client.HTTPConnection, float]] = []

    def connection() -> http.client.HTTPConnection:
        # No lock: threads take from the list and add to it in one step each, the latest first.
        with contextlib.suppress(IndexError):
            while True:
                found, since = kept.pop()
                if time.monotonic() - since < IDLE:
                    return found
                found.close()
        opened = connect()
        opened.response_class = _Response
        opened.connect()
        opened.sock.settimeout(timeout[1])
        return opened

    @contextlib.contextmanager
    def get(path: str, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        used = connection()
        try:
            used.request("GET", path, headers=headers)
            response = used.getresponse()
            yield response
            if response.isclosed() and used.sock is not None:
                kept.append((used, time.monotonic()))
                return
        except BaseException:
            used.close()
            raise
        used.close()

    return get


def _read_headers(head: BinaryIO, **_: object) -> http.client.HTTPMessage:
    """The headers of an answer, of which the status has been read."""
    found = http.client.HTTPMessage()
    for _number in range(_MAX_HEADERS):
        line = head.readline(_MAX_LINE + 1)
        if len(line) > _MAX_LINE:
            raise http.client.LineTooLong("header line")
        if not line.endswith(b"\n"):
            # What ends here may lack its length, and would be taken for a whole answer.
            raise http.client.HTTPException("the connection ended within the headers")
        if line in (b"\r\n", b"\n"):
            return found
        name, _colon, value = line.decode("latin-1").partition(":")
        found[name] = value.strip()
    raise http.client.HTTPException(f"got more than {_MAX_HEADERS} headers")


def _where(function: Any, **names: object) -> Any:
    """A copy of a function in which some global names mean something else."""
    found = {**function.__globals__, **names}
    copied = FunctionType(function.__code__, found, function.__name__, function.__defaults__)
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


class _Response(http.client.HTTPResponse):
    """An answer whose headers are split at their colons.

    The standard library has them read as those of an e-mail.  That is most of what a GET takes in
    Python, for which the threads of a process wait for each other: of 16 that read images of 88 KB
    each gets a third more without it.
    """

    begin = _where(http.client.HTTPResponse.begin, parse_headers=_read_headers)


def _connector(endpoint: SplitResult, timeout: float) -> Callable[[], http.client.HTTPConnection]:
    """What makes a connection, not yet open, with the proxy and certificates that are set."""
    host = endpoint.hostname or ""
    if endpoint.scheme != "https":
        return lambda: http.client.HTTPConnection(host, endpoint.port, timeout=timeout)
    proxy, context = _proxy(endpoint), _certificates()

    def connect() -> http.client.HTTPConnection:
        if proxy is None:
            return http.client.HTTPSConnection(
                host, endpoint.port, timeout=timeout, context=context
            )
        through = http.client.HTTPSConnection(
            proxy.hostname or "", proxy.port or 80, timeout=timeout, context=context
        )
        through.set_tunnel(host, endpoint.port, _authorization(proxy))
        return through

    return connect


def _proxy(endpoint: SplitResult) -> SplitResult | None:
    proxies = urllib.request.getproxies()
    kind = endpoint.scheme if proxies.get(endpoint.scheme) else "all"
    named = proxies.get(kind)
    if not named or urllib.request.proxy_bypass(endpoint.hostname or ""):
        return None
    address = named if "://" in named else f"http://{named}"
    with contextlib.suppress(ValueError):  # brackets without an end, or a port that is no number
        proxy = urllib.parse.urlsplit(address)
        if proxy.scheme == "http" and proxy.port != 0:
            return proxy
    spoken, _, place = address.partition("://")
    raise UnreadableError(
        "read_failed",
        f"{kind}_proxy={spoken}://{place.rpartition('@')[2]} cannot be used: give one as "
        f"http://HOST:PORT, or name {endpoint.hostname} in no_proxy",
    )


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    parts = (urllib.parse.unquote(part or "") for part in (proxy.username, proxy.password))
    encoded = base64.b64encode(":".join(parts).encode()).decode()
    return {"Proxy-Authorization": f"Basic {encoded}"}


def _certificates() -> ssl.SSLContext:
    import certifi

    variable = next((name for name in _BUNDLES if os.environ.get(name)), None)
    if variable is None:
        return ssl.create_default_context(cafile=certifi.where())
    named = os.environ[variable]
    try:
        if os.path.isdir(named):
            return ssl.create_default_context(capath=named)
        return ssl.create_default_context(cafile=named)
    except OSError as error:
        words = f"{variable}={named} has no certificates: name a file with some, or unset it"
        raise UnreadableError("read_failed", words) from error

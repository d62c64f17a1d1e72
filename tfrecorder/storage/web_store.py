"""Images behind http(s) uris, read by plain GETs: nothing is listed, and nothing written.

A table may come from a stranger.  So its uris lead to public addresses only, unless the caller
allows others, also after a redirect; a connection goes to the very address that was checked.  No
words of a server are passed on, since they may quote a signature.
"""

from __future__ import annotations

import contextlib
import email.utils
import http.client
import ipaddress
import os
import queue
import socket
import ssl
import time
from functools import cached_property
from typing import NoReturn, cast
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import google_crc32c

from tfrecorder.storage.connections import Answer, access, certificates, is_idle
from tfrecorder.storage.retry import patience
from tfrecorder.storage.store import (
    CODES_OF_STATUS,
    MAX_FILE_BYTES,
    Description,
    TransientError,
    UnreadableError,
    is_transient,
    unless_missing,
)
from tfrecorder.storage.uris import WEB, scheme
from tfrecorder.version import __version__

#: Connections of this process to a host, those that wait for the next request included; and to so
#: many hosts some are kept for it.
CONNECTIONS = 4
KEPT_HOSTS = 64

REDIRECTS = 5

#: How many addresses of a host are tried.
ADDRESSES = 4

#: Seconds to wait for a connection, and for each part of an answer.
TIMEOUT = (10, 60)

#: The addresses of IPv6 that may be public.
_UNICAST = ipaddress.IPv6Network("2000::/3")

#: What stands in a path and a query as it is.
_PLAIN = "%/:=&?~+!$,;'@()*[]"

#: A connection, where it leads, and since when it waits.
_Kept = tuple[http.client.HTTPConnection, object, float]


class WebStore:
    """Files of servers that anybody may run; paths are uris without a signature."""

    def __init__(self) -> None:
        #: By host.
        self._slots: dict[str, queue.LifoQueue[_Kept | None]] = {}
        #: By host and by path: when it first failed without a success since, and when it last did.
        self._failing: dict[str, tuple[float, float]] = {}

    def read(self, path: str) -> bytes:
        signed = place = access().signed.get(path, path)
        for _ in range(REDIRECTS + 1):
            parts = _parsed(place)
            try:
                answer = self._asked(parts, parts.hostname or "", signed != path)
            except TransientError as error:
                raise self._failed(path, parts.netloc, error) from None
            self._failing.pop(parts.netloc, None)
            if isinstance(answer, bytes):
                self._failing.pop(path, None)
                return answer
            with contextlib.suppress(ValueError):
                place = urljoin(place, answer)
        raise UnreadableError("read_failed", f"more than {REDIRECTS} redirects")

    def describe(self, path: str) -> Description | None:
        # Not by a HEAD: a signature is of one method.
        data = unless_missing(lambda: self.read(path))
        return None if data is None else Description(len(data), google_crc32c.value(data))

    def listing(self, folder: str) -> NoReturn:
        raise UnreadableError(
            "read_failed",
            f"{scheme(folder)}:// cannot be listed: put the files on a disk or into a bucket",
        )

    read_versioned = open = fetch = version = names = files = is_folder = listing

    def _asked(
        self,
        parts: SplitResult,
        host: str,
        is_signed: bool,
    ) -> bytes | str:
        """The file that a server sends, or where it says that it is."""
        slots = self._slots.setdefault(host, _slots())
        kept = None
        leads_to = (parts.scheme, parts.netloc, access().private_hosts, os.getpid())
        used, of, since = slots.get() or (None, None, 0.0)
        try:
            if used is not None and (of != leads_to or not is_idle(used, since)):
                used.close()
                used = None
            used = used or self._opened(parts, host)
            response = _response(used, parts)
            if response.status == http.HTTPStatus.OK:
                data = _body(response)
                if used.sock is not None and len(self._slots) <= KEPT_HOSTS:
                    kept = used, leads_to, time.monotonic()
                return data
            if 300 <= response.status < 400 and (place := response.headers["Location"]):
                return str(place)
            raise _refused(response, is_signed)
        except ssl.SSLCertVerificationError as error:
            raise UnreadableError("read_failed", error.verify_message) from error
        except (ValueError, http.client.InvalidURL):
            raise UnreadableError("bad_name", _NO_URI) from None
        except OSError as error:
            raise TransientError(error.strerror or str(error) or type(error).__name__) from error
        except http.client.HTTPException as error:  # whose words may quote what was asked
            raise TransientError(f"no answer of HTTP ({type(error).__name__})") from None
        finally:
            if used is not None and kept is None:
                used.close()
            slots.put(kept)

    def _failed(
        self,
        path: str,
        host: str,
        error: TransientError,
    ) -> Exception:
        """The error, final for a path or a host that has failed for as long as any is retried.

        Otherwise each row of a dead host would wait as long, and those of a slow one without end.
        """
        now = time.monotonic()
        long = patience().seconds
        for key in (path, host):
            first, last = self._failing.get(key, (now, now))
            first = now if now - last > 10 * long else first
            self._failing[key] = first, now
            if now - first >= long:
                self._failing.pop(path, None)
                return UnreadableError("unreachable", str(error))
        return error

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return certificates()

    def _opened(
        self,
        parts: SplitResult,
        host: str,
    ) -> http.client.HTTPConnection:
        is_tls = parts.scheme == "https"
        port = parts.port or (http.client.HTTPS_PORT if is_tls else http.client.HTTP_PORT)
        opened = http.client.HTTPConnection(host, port)
        opened.response_class = Answer
        opened.sock = _connected(host, port)
        if is_tls:
            opened.sock = self._context.wrap_socket(
                opened.sock,
                server_hostname=host,
                do_handshake_on_connect=False,
            )
        return opened


def _slots() -> queue.LifoQueue[_Kept | None]:
    """The right to each connection to a host, with the connection if one was kept."""
    slots: queue.LifoQueue[_Kept | None] = queue.LifoQueue()
    for _ in range(CONNECTIONS):
        slots.put(None)
    return slots


_NO_URI = "it leads to no http(s) uri of a host, or to one with a password"


def _parsed(uri: str) -> SplitResult:
    with contextlib.suppress(ValueError):
        parts = urlsplit(uri)
        if parts.hostname and parts.scheme in WEB and "@" not in parts.netloc:
            return parts
    raise UnreadableError("bad_name", _NO_URI)


def _connected(host: str, port: int) -> socket.socket:
    """A socket to the first address of a host that answers; all of them must be allowed."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(info[4][0]) for info in answers]
    if not access().private_hosts and not all(map(_is_public, addresses)):
        words = f"{host} has a private address, which is not allowed"
        raise UnreadableError("private_host", words)
    *first, last = [(address, port) for address in addresses[:ADDRESSES]]
    seconds = min(TIMEOUT[0], patience().seconds)
    for place in first:
        with contextlib.suppress(OSError):
            return socket.create_connection(place, seconds)
    return socket.create_connection(last, seconds)


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):  # many forms outside of _UNICAST hold one of IPv4
        return ip.is_global and ip in _UNICAST and ip.sixtofour is None
    return ip.is_global and not ip.is_multicast


def _response(used: http.client.HTTPConnection, parts: SplitResult) -> Answer:
    """The answer to a GET, once its headers are there."""
    used.sock.settimeout(min(TIMEOUT[1], patience().seconds))
    if isinstance(used.sock, ssl.SSLSocket):
        used.sock.do_handshake()
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"User-Agent": f"tfrecorder/{__version__}"}
    headers["Host"] = parts.netloc.encode("idna").decode()  # as it was signed
    used.request("GET", quote(target, safe=_PLAIN), headers=headers)
    return cast(Answer, used.getresponse())


def _body(response: Answer) -> bytes:
    stated = {*response.headers.get_all("Content-Length", [])}
    if not response.chunked and {str(response.length)} != (stated or {"None"}):
        raise TransientError("the length that it states is none")
    data = b"".join(response.pieces(patience().seconds, MAX_FILE_BYTES))
    if not data and response.length is None and not response.chunked:
        # Perhaps the end came within the headers.
        raise TransientError("received nothing, and no word of its length")
    response.close()
    return data


def _refused(response: http.client.HTTPResponse, is_signed: bool) -> Exception:
    """The error for an answer that is neither a file nor a redirect."""
    status = response.status
    words = f"{status} {http.client.responses.get(status, '')}".rstrip()
    if is_transient(status):
        later = response.headers["Retry-After"] or ""
        seconds = 0.0
        with contextlib.suppress(ValueError):
            date = None if later.isdecimal() else email.utils.parsedate_to_datetime(later)
            seconds = float(later) if date is None else date.timestamp() - time.time()
        return TransientError(words, seconds)
    if status in (401, 403):
        words += ", with the signature of the source" if is_signed else ", without a signature"
    return UnreadableError(CODES_OF_STATUS.get(status, "read_failed"), words)

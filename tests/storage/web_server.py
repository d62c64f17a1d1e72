"""A hostile web server on this machine; every address 127.x.y.z counts as another host."""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from PIL import Image


def picture(number: int) -> bytes:
    """A small PNG, another for each number."""
    pixels = np.full((4, 4, 3), (number % 251, number // 251 % 251, 7), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = b"%x\r\n%b\r\n" % (len(picture(5)), picture(5))  # as a chunk
BUSY = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nRetry-After: "
TO = b"HTTP/1.1 302 To\r\nContent-Length: 0\r\nLocation: "


def framed(length: bytes, data: bytes = picture(5)) -> bytes:
    return b"%bContent-Length: %b\r\n\r\n%b" % (OK, length, data)


#: Answers that keep no rule: how each begins, and what comes again and again, after how many
#: seconds; and the reason that a conversion gives, "" for a record.
RUDE: dict[str, tuple[bytes, bytes, float, str]] = {
    "status-drips": (b"HTTP/1.1 ", b"2", 0.05, "unreachable"),
    "status-line-without-end": (b"HTTP/1.1 200 ", b"K" * 4096, 0, "unreachable"),
    "header-drips": (OK + b"X-Long: ", b"x", 0.05, "unreachable"),
    "headers-without-end": (OK, b"X: y\r\n", 0, "unreachable"),
    "continue-without-end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0, "unreachable"),
    "continue-drips": (b"", b"HTTP/1.1 100 Go\r\n\r\n", 0.05, "unreachable"),
    "continue-headers": (b"HTTP/1.1 100 Go\r\n", b"X: y\r\n", 0.05, "unreachable"),
    "body-drips": (framed(b"1000", b""), b"x", 0.05, "unreachable"),
    "body-drips-without-length": (OK + b"\r\n", b"x", 0.05, "unreachable"),
    "nothing-comes": (framed(b"1000", b""), b"", 0.05, "unreachable"),
    "chunk-size-drips": (CHUNKED, b"0", 0.05, "unreachable"),
    "chunk-extension-drips": (CHUNKED + b"5;x=", b"x", 0.05, "unreachable"),
    "chunk-extension-without-end": (CHUNKED + b"5;x=", b"x" * 4096, 0, "unreachable"),
    "chunks-drip": (CHUNKED, b"1\r\nx\r\n", 0.05, "unreachable"),
    "chunk-ends-late": (CHUNKED + b"5\r\nhello", b"", 0.05, "unreachable"),
    "chunk-negative": (CHUNKED + b"-5\r\n", b"x" * 4096, 0, "too_large"),
    "chunk-huge": (CHUNKED + b"f" * 99 + b"\r\n", b"x" * 4096, 0, "too_large"),
    "chunk-no-number": (CHUNKED + b"zz\r\nhello", b"", 0, "unreachable"),
    "trailers-without-end": (CHUNKED + WHOLE + b"0\r\n", b"X: y\r\n", 0, "unreachable"),
    "trailers-drip": (CHUNKED + WHOLE + b"0\r\n", b"X: y\r\n", 0.05, "unreachable"),
    "trailer-drips": (CHUNKED + WHOLE + b"0\r\nX: ", b"y", 0.05, "unreachable"),
    "trailers": (CHUNKED + WHOLE + b"0\r\nX: y\r\n\r\n", b"", 0, ""),
    "length-negative": (framed(b"-5"), b"", 0, "unreachable"),
    "length-of-no-number": (framed(b"five"), b"", 0, "unreachable"),
    "length-of-two": (framed(b"9\r\nContent-Length: 99"), b"", 0, "unreachable"),
    "length-huge": (framed(b"9" * 99), b"", 0, "too_large"),
    "length-of-a-thousand-digits": (framed(b"9" * 9999), b"", 0, "unreachable"),
    "length-too-small": (framed(b"9"), b"", 0, "truncated"),
    "no-status": (picture(5), b"", 0, "unreachable"),
    "version-2": (b"HTTP/2.0 200 OK\r\n\r\n" + picture(5), b"", 0, "unreachable"),
    "status-no-number": (b"HTTP/1.1 OK OK\r\n\r\n", b"", 0, "unreachable"),
    "status-too-large": (b"HTTP/1.1 99999 OK\r\n\r\n", b"", 0, "unreachable"),
    "part": (framed(b"5").replace(b"200 OK", b"206 Part"), b"", 0, "read_failed"),
    "hints": (framed(b"5").replace(b"200 OK", b"103 Hints"), b"", 0, "read_failed"),
    "not-modified": (framed(b"0").replace(b"200 OK", b"304 Old"), b"", 0, "read_failed"),
    "zipped": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + WHOLE, b"", 0, "not_an_image"),
    "closed": (b"", b"", 0, "unreachable"),
    "to-itself": (TO + b"to-itself\r\n\r\n", b"", 0, "read_failed"),
    "to-nothing": (TO + b"\r\n\r\n", b"", 0, "read_failed"),
    "to-file": (TO + b"file:///etc/passwd\r\n\r\n", b"", 0, "bad_name"),
    "to-ftp": (TO + b"ftp://127.0.0.1/a.png\r\n\r\n", b"", 0, "bad_name"),
    "to-data": (TO + b"data:image/png;base64,AAAA\r\n\r\n", b"", 0, "bad_name"),
    "to-gs": (TO + b"gs://bucket/a.png\r\n\r\n", b"", 0, "bad_name"),
    "to-a-password": (TO + b"http://me:word@127.0.0.1/\r\n\r\n", b"", 0, "bad_name"),
    "to-no-host": (TO + b"http:///a.png\r\n\r\n", b"", 0, ""),
    "to-half-a-host": (TO + b"http://[::1\r\n\r\n", b"", 0, "read_failed"),
    "to-a-port-of-no-number": (TO + b"http://127.0.0.1:x/\r\n\r\n", b"", 0, "bad_name"),
    "to-port-0": (TO + b"http://127.0.0.1:0/\r\n\r\n", b"", 0, "unreachable"),
    "to-port-99999": (TO + b"http://127.0.0.1:99999/\r\n\r\n", b"", 0, "bad_name"),
    "to-a-long-host": (TO + b"http://%b/\r\n\r\n" % (b"a" * 999), b"", 0, "bad_name"),
    "to-a-long-path": (TO + b"/%b\r\n\r\n" % (b"a" * 60_000), b"", 0, ""),
    "to-a-line-break": (TO + b"/a\rX: y\r\n\r\n", b"", 0, ""),
    "busy-negative": (BUSY + b"-1\r\n\r\n", b"", 0, "unreachable"),
    "busy-for-ever": (BUSY + b"9" * 999 + b"\r\n\r\n", b"", 0, "unreachable"),
    "busy-in-words": (BUSY + b"soon\r\n\r\n", b"", 0, "unreachable"),
    "busy-not-a-number": (BUSY + b"NaN\r\n\r\n", b"", 0, "unreachable"),
    "busy-a-digit-of-latin-1": (BUSY + b"\xb2\r\n\r\n", b"", 0, "unreachable"),
    "busy-until-9999": (BUSY + b"Fri, 31 Dec 9999 23:59:59 -2359\r\n\r\n", b"", 0, "unreachable"),
    "busy-since-1": (BUSY + b"Mon, 01 Jan 0001 00:00:00 -0000\r\n\r\n", b"", 0, "unreachable"),
    "busy-day-99": (BUSY + b"Mon, 99 Jan 2026 00:00:00 +9999\r\n\r\n", b"", 0, "unreachable"),
}


def is_established(connection: socket.socket) -> bool:
    """False once its client has closed it, which its handler may learn late."""
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\1"


class WebServer(ThreadingHTTPServer):
    """Answers by the first part of a path, and sees how each host is asked.

    Attributes:
        asked: (host, path with query, time) of each request.
        opened, most: connections to each host, now (and some that their client has closed) and at
            most.
        signed: what a query must have for a picture in /signed/.
        stop_at: once this file is there, no request is answered, and `stopped` is True.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, certificate: Path | None = None) -> None:
        super().__init__(("0.0.0.0", 0), Handler)
        self.asked: list[tuple[str, str, float]] = []
        self.most: Counter[str] = Counter()
        self.opened: defaultdict[str, set[socket.socket]] = defaultdict(set)
        self.signed, self.scheme = "", "http"
        self.stop_at: Path | None = None
        self.stopped = False
        if certificate is not None:
            context, self.scheme = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "https"
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, True, do_handshake_on_connect=False)
        self.lock, self.over = threading.Lock(), threading.Event()

    def uri(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.server_address[1]}/{path}"

    def handle_error(self, *_: Any) -> None:
        """Nothing: clients go away."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def setup(self) -> None:
        super().setup()
        self.host = self.connection.getsockname()[0]
        with self.server.lock:
            opened = self.server.opened[self.host]
            opened.add(self.connection)
            now = sum(map(is_established, opened))
            self.server.most[self.host] = max(self.server.most[self.host], now)

    def finish(self) -> None:
        with self.server.lock:
            self.server.opened[self.host].discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.asked.append((self.host, self.path, time.monotonic()))
            paths = [(host, path) for host, path, _ in self.server.asked]
            before = paths.count((self.host, self.path)) - 1
        kind, _, name = urlsplit(self.path).path.strip("/").partition("/")
        number = int(name) if name.isdecimal() else 0
        query = parse_qs(urlsplit(self.path).query)
        data = picture(number)
        if self.server.stop_at is not None and self.server.stop_at.exists():
            self.server.stopped, kind = True, "hang"
        if rude := RUDE.keys() & self.path.split("/"):
            kind, name = "rude", min(rude)
        match kind:
            case "rude":
                self._be_rude(*RUDE[name][:3])
            case "smuggled":  # a second answer, to nothing that was asked
                more = framed(b"%d" % len(picture(250)), picture(250))
                self.wfile.write(framed(b"%d" % len(data), data) + more * (number + 1))
            case "busy" if not before:
                self._send(429, b"later", **{"Retry-After": "1"})
            case "always":
                self._send(503, b"never")
            case "gone":
                self._send(404, b"")
            case "hang":
                self.connection.recv(1)  # until its client goes
                self.close_connection = True
            case "drip":
                self._drip(data)
            case "loop":
                self._send(302, b"", Location=f"/loop/{number + 1}")
            case "moved":
                self._send(301, b"", Location=f"/pictures/{number}")
            case "to":
                self._send(302, b"", Location=query["place"][0])
            case "endless":
                self._endless()
            case "html":
                self._send(200, b"<!DOCTYPE html><html><body>Please log in</body></html>")
            case "cut":
                self._send(200, data[: len(data) // 2], **{"Content-Length": str(len(data))})
                self.close_connection = True
            case "garbage":
                self.wfile.write(b"\0\1\2 no HTTP" + self.path.encode() + b"\r\n\r\n")
                self.close_connection = True
            case "signed" if not self.server.signed or self.server.signed not in self.path:
                self._send(403, f"SignatureDoesNotMatch {self.path}".encode())
            case _:
                self._send(200, data)

    def _send(self, status: int, data: bytes, **headers: str) -> None:
        # What a server says of a refusal may quote what it was asked.
        self.send_response(status, None if status == 200 else f"No {self.path}")
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _be_rude(self, start: bytes, again: bytes, seconds: float) -> None:
        self.close_connection = True
        self.wfile.write(start)
        while (again or seconds) and not self.server.over.wait(seconds):
            self.wfile.write(again)

    def _endless(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not self.server.over.is_set():
            self.wfile.write(bytes(2**16))

    def _drip(self, data: bytes) -> None:
        """A header without an end, a byte at a time."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not self.server.over.wait(0.05):
            self.wfile.write(b"x")

    do_DELETE = do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Iterator[WebServer]:
    """A server until the end of the block; over TLS, with a file of its certificate and key."""
    with WebServer(certificate) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()

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
        match kind:
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

    def _endless(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not self.server.over.is_set():
            self.wfile.write(bytes(2**16))

    def _drip(self, data: bytes) -> None:
        """A header without an end, a byte at a time."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not self.server.over.wait(0.05):
            self.wfile.write(b"x")

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

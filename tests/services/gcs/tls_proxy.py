"""A proxy on loopback that plays `*.googleapis.com`: for clients that have no other address.

TensorFlow's own gs:// reader speaks to www.googleapis.com and storage.googleapis.com and to nothing
else.  It goes through `https_proxy`, though, and trusts the certificates in `CURL_CA_BUNDLE`.  So
this proxy takes its CONNECT, ends the encryption with a certificate made here, and hands every byte
on to the loopback server, which knows by the Host header how it was addressed.  A CONNECT to
anywhere else is refused: no test reaches the network.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import socketserver
import ssl
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.gcs.certificates import write_certificates, write_service_account
from services.gcs.control import Gcs

_CONNECT = re.compile(rb"CONNECT ([a-z0-9.-]+\.googleapis\.com):443 HTTP/1\.[01]\r\n")


@dataclass(frozen=True)
class TlsProxy:
    """A running proxy.

    Attributes:
        url: its address.
        authority: a file with the certificate of the authority that signed its own.
        key: a service account's key file, with which a client gets a token from the server behind.
    """

    url: str
    authority: Path
    key: Path

    def environment(self) -> dict[str, str]:
        """The variables with which a process takes this proxy for the whole Google Cloud.

        For TensorFlow, and for google-cloud-storage where `STORAGE_EMULATOR_HOST` is not set.
        """
        return {
            "https_proxy": self.url,
            "HTTPS_PROXY": self.url,
            "no_proxy": "127.0.0.1,localhost",
            "NO_PROXY": "127.0.0.1,localhost",
            "CURL_CA_BUNDLE": str(self.authority),
            "REQUESTS_CA_BUNDLE": str(self.authority),
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.key),
            "GOOGLE_CLOUD_PROJECT": "loopback",
            # Else TensorFlow and google-auth look for the metadata server of a virtual machine.
            "NO_GCE_CHECK": "true",
        }


class _Proxy(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, gcs: Gcs, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        address = urllib.parse.urlsplit(gcs.url)
        self.behind = (address.hostname, address.port)
        self.context = context

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away on purpose are no news; anything else is."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


class _Tunnel(socketserver.BaseRequestHandler):
    server: _Proxy
    request: socket.socket

    def handle(self) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            # Byte by byte: what follows the head belongs to the encryption.
            byte = self.request.recv(1)
            if not byte:
                return
            head += byte
        if _CONNECT.match(head) is None:
            words = b"This proxy leads to googleapis.com alone, on loopback."
            length = f"Content-Length: {len(words)}".encode()
            self.request.sendall(b"HTTP/1.1 403 Forbidden\r\n" + length + b"\r\n\r\n" + words)
            return
        self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with (
            self.server.context.wrap_socket(self.request, server_side=True) as client,
            socket.create_connection(self.server.behind) as server,
        ):
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _relay(client, server)


def _relay(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Hand bytes on, both ways, until one side ends.

    One thread, because one encrypted socket must not be read and written at the same time.
    """
    while True:
        if client.pending():
            ready: list[socket.socket] = [client]
        else:
            ready = select.select([client, server], [], [])[0]
        for source in ready:
            data = source.recv(1 << 18)
            if not data:
                return
            (server if source is client else client).sendall(data)


@contextlib.contextmanager
def tls_proxy(gcs: Gcs, folder: Path) -> Iterator[TlsProxy]:
    """A proxy in front of a loopback server.

    Args:
        folder: where its certificates and the key file are written.
    """
    authority, own = write_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    server = _Proxy(gcs, context)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        key = write_service_account(folder / "service-account.json", f"{gcs.url}/token")
        yield TlsProxy(f"http://127.0.0.1:{server.server_address[1]}", authority, key)
    finally:
        server.shutdown()
        server.server_close()

"""A door before the loopback server: shut, nobody listens there, as if the server were gone."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.gcs.control import Gcs


@dataclass
class Door:
    """An address that leads to a server while it is open; shut, connections are refused there."""

    to: tuple[str, int]
    at: tuple[str, int] = ("127.0.0.1", 0)
    _through: set[socket.socket] = field(default_factory=set)
    _listening: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http://{self.at[0]}:{self.at[1]}"

    def open(self) -> None:
        """Let requests through, at the same address as before."""
        self._listening = socket.create_server(self.at, backlog=256)
        self.at = self._listening.getsockname()
        threading.Thread(target=self._admit, args=(self._listening,), daemon=True).start()

    def shut(self) -> None:
        """End every connection and refuse others."""
        listening, self._listening = self._listening, None
        for one in (listening, *self._through.copy()):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._through.clear()

    def _admit(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # shut
            while True:
                client = listening.accept()[0]
                server = socket.create_connection(self.to)
                self._through |= {client, server}
                for ways in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=ways, daemon=True).start()

    def _pass_on(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 16):
                there.sendall(data)
        for one in (here, there):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            self._through.discard(one)


@contextlib.contextmanager
def door(gcs: Gcs) -> Iterator[Door]:
    """An open door before a server."""
    host, _, port = gcs.url.removeprefix("http://").partition(":")
    found = Door((host, int(port)))
    found.open()
    try:
        yield found
    finally:
        found.shut()

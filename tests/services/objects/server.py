"""moto's S3 on loopback, in threads, with a record of what it was asked, and faults on demand.

    python -m services.objects.server     prints its address, and ends with its standard input

moto looks at a condition of a write and then writes, in two steps, between which another thread may
do the same; here writes come one after the other, as S3 has it for each object.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from services.objects import PAGE

ADMIN = "/_test/"

Answer = Iterable[bytes]


class Door:
    """What stands before the service: it counts, delays and refuses."""

    def __init__(self, service: Callable[..., Answer]) -> None:
        self._service = service
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._over = threading.Event()  # the faults are: nobody waits for what stalls
        self._faults: list[dict[str, Any]] = []
        self._asked: list[tuple[str, str, str]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Answer:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        path = path.encode("latin-1").decode()
        if path.startswith(ADMIN):
            return self._admin(path.removeprefix(ADMIN), environ, start_response)
        with self._lock:
            self._asked.append((method, path, environ.get("HTTP_AUTHORIZATION", "")))
            fault = next((one for one in self._faults if _meets(one, method, path)), None)
            if fault is not None and fault["times"] is not None:
                fault["times"] -= 1
        if fault is None or fault["kind"] == "stall" or fault["after"]:
            answer = self._answer(method, environ, start_response if fault is None else _nobody)
            if fault is None:
                return answer
        if fault["kind"] == "drop":
            _drop(environ["werkzeug.socket"])
        if fault["kind"] == "stall":
            if self._over.wait(fault["seconds"]):
                _drop(environ["werkzeug.socket"])
            return self._answer(method, environ, start_response)
        if not fault["after"]:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        body = b"" if method == "HEAD" else fault["body"].encode()
        start_response(f"{fault['status']} Injected", [("Content-Length", str(len(body)))])
        return [body]

    def _answer(
        self, method: str, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Answer:
        if method in ("PUT", "POST", "DELETE"):
            with self._writing:
                return list(self._service(environ, start_response))
        return self._service(environ, start_response)

    def _admin(
        self, what: str, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Answer:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock:
            if what == "fault":
                self._faults.append(json.loads(body))
            if what in ("mend", "reset"):
                self._faults.clear()
                self._over.set()
                self._over = threading.Event()
            asked = json.dumps(self._asked).encode()
            if what in ("forget", "reset"):
                self._asked.clear()
        start_response("200 OK", [("Content-Length", str(len(asked)))])
        return [asked]


def _meets(fault: dict[str, Any], method: str, path: str) -> bool:
    wanted = method in fault["method"].split("|") or fault["method"] == "*"
    return wanted and fnmatchcase(path, fault["path"]) and fault["times"] != 0


def _nobody(*_: Any) -> Callable[[bytes], None]:
    """For an answer that is lost."""
    return lambda data: None


def _drop(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


class _Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, *_: Any) -> None:
        """Nothing: the door keeps what tests ask for."""


def main() -> None:
    os.environ["MOTO_S3_DEFAULT_MAX_KEYS"] = str(PAGE)
    app = Door(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.port}", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()

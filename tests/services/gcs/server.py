"""A Google Cloud Storage on loopback: objects in memory, many requests at once, faults on demand.

It speaks what google-cloud-storage, Beam and TensorFlow's own gs:// reader use of the service: the
JSON API, its uploads, and plain downloads.  The package gcp-storage-emulator was looked at first.
Its server class can be made to serve several requests at once, but not the rest: it passes over
`ifGenerationMatch` (two writers both win), pages of listings, generations, and ranges beyond the
end; and a client that asks how much of its upload has arrived makes it publish an empty object.
Tests of "whole or not at all" would prove nothing there.

    python -m services.gcs.server     prints its address, and ends with its standard input
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from services.gcs.faults import Fault
from services.gcs.messages import Answer, Request, error, ok
from services.gcs.objects import Refused
from services.gcs.service import Call, Service

ADMIN = "/_test/"

_INJECTED = {
    403: ("forbidden", "Permission 'storage.objects' denied on resource (injected)."),
    404: ("notFound", "No such object (injected)."),
    408: ("requestTimeout", "Request timed out (injected)."),
    429: ("rateLimitExceeded", "The rate limit is exceeded (injected)."),
    503: ("backendError", "We encountered an internal error, try again (injected)."),
}


PAGE = b"<!DOCTYPE html><title>Guest network: log in</title>"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, service: Service) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service = service

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away on purpose are no news; anything else is."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the journal keeps what tests ask for."""

    def _handle(self) -> None:
        service = self.server.service
        request = Request.of(self.command, self.path, self.headers, self._body())
        if request.path == f"{ADMIN}reset":
            # What still stalls belongs to the old service, and puts nothing into the new one.
            self.server.service = Service()
            self._send(ok({}))
            return
        if request.path.startswith(ADMIN):
            self._send(Call("", "", lambda: service.admin(request)).answer(request))
            return
        call = service.understand(request)
        fault = service.journal.begin(call.operation, call.target)
        outcome, send = self._serve(service, request, call, fault)
        # Noted before it is sent: who has the answer may ask at once what was answered.
        service.journal.end(call.operation, call.target, outcome)
        send()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _handle

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(parts)

    def _serve(
        self, service: Service, request: Request, call: Call, fault: Fault | None
    ) -> tuple[str, Callable[[], None]]:
        """Do a request, as far as the fault allows; its outcome, and what sends the response."""
        if fault is None:
            return self._told(call.answer(request))
        if fault.kind == "stall" and not fault.after:
            time.sleep(fault.seconds)
        if fault.kind == "cut" and request.method != "GET":
            if call.operation == "piece":
                service.half_a_piece(request)
            return "reset", self._reset
        if fault.kind in ("page", "empty"):
            return self._told(Answer(200, PAGE if fault.kind == "page" else b"", "text/html"))
        done = fault.after or fault.kind in ("stall", "cut", "flip", "bare")
        answer = call.answer(request) if done else None
        if fault.kind == "stall" and fault.after:
            time.sleep(fault.seconds)
        if fault.kind == "reset":
            return "reset", self._reset
        if fault.kind == "status":
            reason, message = _INJECTED.get(fault.status, ("injected", "An injected fault."))
            if fault.reason:
                reason = fault.reason
                message = re.sub("([A-Z])", r" \1", reason).capitalize() + " (injected)."
            refusal = error(Refused(fault.status, reason, message), request)
            later = (("Retry-After", fault.retry_after),) if fault.retry_after else ()
            return self._told(dataclasses.replace(refusal, headers=(*refusal.headers, *later)))
        assert answer is not None
        if fault.kind == "flip" and answer.body:
            answer = dataclasses.replace(answer, body=bytes([answer.body[0] ^ 1]) + answer.body[1:])
        if fault.kind == "bare" or fault.bare:
            answer = dataclasses.replace(answer, headers=())
        if fault.kind == "cut":
            return "cut", partial(self._send, answer, cut=True)
        return self._told(answer)

    def _told(self, answer: Answer) -> tuple[str, Callable[[], None]]:
        return str(answer.status), partial(self._send, answer)

    def _send(self, answer: Answer, *, cut: bool = False) -> None:
        self.send_response(answer.status)
        for key, value in answer.headers:
            self.send_header(key, value)
        if answer.body:
            self.send_header("Content-Type", answer.content_type)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: len(answer.body) // 2] if cut else answer.body)
        self.wfile.flush()
        self.close_connection = self.close_connection or cut

    def _reset(self) -> None:
        """End the connection as a failing network does: the client reads ECONNRESET."""
        now = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        os.close(self.connection.detach())
        self.close_connection = True


def serve(service: Service) -> tuple[str, ThreadingHTTPServer]:
    """Answer requests on a free port, from threads of this process.

    Returns:
        The address, and the server: its `shutdown()` and `server_close()` end it.
    """
    server = _Server(service)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}", server


if __name__ == "__main__":
    print(serve(Service())[0], flush=True)
    sys.stdin.read()

"""Connections that are kept open, against a server that counts them."""

from __future__ import annotations

import base64
import gzip
import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import pytest
from google.auth.credentials import AnonymousCredentials

from tfrecorder.stores import connections
from tfrecorder.stores.gcs_get import asker, read_object
from tfrecorder.stores.store import TransientError, UnreadableError

TIMEOUT = (5.0, 5.0)


class Counting(http.server.ThreadingHTTPServer):
    """A server that answers with `body`, or the path, and counts connections and CONNECTs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.connections = 0
        self.tunnels: list[tuple[str, str | None]] = []
        self.headers: dict[str, str] = {}
        self.body: bytes | None = None
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Counting

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        body = self.path.encode() if self.server.body is None else self.server.body
        self.send_response(200)
        for name, value in {"Content-Length": len(body), **self.server.headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self) -> None:
        self.server.tunnels.append((self.path, self.headers["Proxy-Authorization"]))
        self.send_error(407, "this proxy knows you not")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Counting]:
    with Counting() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def read(get: connections.Get, path: str) -> bytes:
    with get(path, {}) as response:
        return response.read()


def test_headers_are_found_in_any_spelling(server: Counting) -> None:
    server.headers = {"x-goog-hash": "crc32c=AAAA", "X-Empty": "", "X-Colons": " a:b "}
    with connections.getter(server.url, TIMEOUT)("/", {}) as response:
        assert response.headers["X-Goog-Hash"] == "crc32c=AAAA"
        assert response.headers.get("x-empty") == ""
        assert response.headers["X-COLONS"] == "a:b"
        assert response.headers["X-Other"] is None
        response.read()


def test_an_answer_in_chunks_is_read_to_its_end(server: Counting) -> None:
    server.headers = {"Transfer-Encoding": "chunked"}
    server.body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    get = connections.getter(server.url, TIMEOUT)
    assert [read(get, "/"), read(get, "/")] == [b"abcde", b"abcde"]
    assert server.connections == 1


def test_a_connection_that_the_server_closes_is_not_kept(server: Counting) -> None:
    server.headers = {"Connection": "close"}
    get = connections.getter(server.url, TIMEOUT)
    assert [read(get, "/a"), read(get, "/b")] == [b"/a", b"/b"]
    assert server.connections == 2


@pytest.mark.parametrize("headers", [{f"X-{n}": "" for n in range(101)}, {"X": "y" * 70_000}])
def test_a_head_without_end_is_no_answer(server: Counting, headers: dict[str, str]) -> None:
    server.headers = headers
    with pytest.raises(TransientError, match="header"):
        read_object(asker(server.url, AnonymousCredentials(), TIMEOUT), "b", "o")


def test_a_connection_is_used_again(server: Counting) -> None:
    get = connections.getter(server.url, TIMEOUT)
    assert [read(get, f"/{number}") for number in range(5)] == [b"/0", b"/1", b"/2", b"/3", b"/4"]
    assert server.connections == 1


def test_threads_share_connections(server: Counting) -> None:
    get = connections.getter(server.url, TIMEOUT)
    paths = [f"/{number}" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda path: read(get, path), paths)) == [p.encode() for p in paths]
    assert server.connections <= 8


def test_one_that_nobody_used_for_long_is_not_used_again(
    server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = connections.getter(server.url, TIMEOUT)
    read(get, "/a")
    monkeypatch.setattr(connections, "IDLE", 0)
    assert read(get, "/b") == b"/b"
    assert server.connections == 2


def test_one_that_the_server_ends_is_replaced(server: Counting) -> None:
    server.headers = {"Connection": "close"}
    get = connections.getter(server.url, TIMEOUT)
    assert [read(get, "/a"), read(get, "/b")] == [b"/a", b"/b"]
    assert server.connections == 2


def test_what_is_left_of_an_answer_is_not_taken_for_the_next(server: Counting) -> None:
    get = connections.getter(server.url, TIMEOUT)
    with get("/long", {}) as response:
        assert response.read(2) == b"/l"
    with pytest.raises(RuntimeError), get("/longer", {}):
        raise RuntimeError
    assert read(get, "/b") == b"/b"
    assert server.connections == 3


def test_a_proxy_is_told_who_asks(server: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    address = server.url.replace("http://", "http://me:p%40ss@")
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, address)
    get = connections.getter("https://storage.googleapis.com", TIMEOUT)
    with pytest.raises(OSError, match="407 this proxy knows you not"):
        read(get, "/a")
    assert server.tunnels == [("storage.googleapis.com:443", "Basic bWU6cEBzcw==")]


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "https://me:secret@proxy.example:3128")
    with pytest.raises(UnreadableError, match=r"https_proxy=https://proxy\.example") as caught:
        connections.getter("https://storage.googleapis.com", TIMEOUT)
    assert "no_proxy" in str(caught.value)
    assert "secret" not in str(caught.value)


# ---------------------------------------------------------------------------------------------
# Objects that are stored zipped, and sent so: `Cache-Control: no-transform`.


def zipped(server: Counting, stored: bytes, crc: int) -> bytes:
    """What is read of an object whose Content-Encoding is gzip."""
    server.body = stored
    server.headers = {
        "Content-Encoding": "gzip",
        "X-Goog-Stored-Content-Encoding": "gzip",
        "X-Goog-Hash": f"crc32c={base64.b64encode(crc.to_bytes(4, 'big')).decode()}",
    }
    return read_object(asker(server.url, AnonymousCredentials(), TIMEOUT), "bkt", "a.jpg")


def test_what_is_stored_zipped_is_unzipped_and_checked(server: Counting) -> None:
    stored = gzip.compress(b"data")
    assert zipped(server, stored, google_crc32c.value(stored)) == b"data"
    with pytest.raises(TransientError, match="not those that are stored"):
        zipped(server, stored, 1)


@pytest.mark.parametrize(
    "stored", [b"\xff\xd8\xff\xe0 a JPEG", gzip.compress(b"data")[:-9], b"\x1f\x8b\x08" + bytes(20)]
)
def test_what_is_only_called_zipped_is_unreadable_for_good(server: Counting, stored: bytes) -> None:
    with pytest.raises(UnreadableError, match="correct it in the bucket") as caught:
        zipped(server, stored, google_crc32c.value(stored))
    assert caught.value.code == "read_failed"

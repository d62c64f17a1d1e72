"""Connections that are kept open, and gateways that disturb them: the inner law of a request.

A server counts the connections.  A gateway takes headers away, flips bits, and asks to log in; none
of that is about a row: it is waited for, and never makes a reject or a wrong byte.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import http.server
import io
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import google_crc32c
import pandas as pd
import pytest
from google.auth.credentials import AnonymousCredentials
from services.gcs.control import Gcs
from services.gcs.server import PAGE
from services.gcs.tls_proxy import TlsProxy
from support import PHOTOS, error_of, run, shorten_patience, shorten_pauses
from web_server import RUDE, serving

import tfrecorder
from tfrecorder import storage
from tfrecorder.errors import UnreachableError
from tfrecorder.storage import connections
from tfrecorder.storage.gcs_requests import BucketObject, asker
from tfrecorder.storage.store import TransientError, UnreadableError

pytest_plugins = ["services.gcs.fixtures"]


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


def read(send: connections.Send, path: str) -> bytes:
    with send("GET", path, {}) as response:
        return response.read()


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of a server that answers one GET with these bytes, and ends the connection."""

    def serve() -> None:
        connection = listening.accept()[0]
        listening.close()  # who asks again is refused, and need not wait
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def read_answer(answer: bytes) -> bytes:
    """What is read of an object where the service answers so."""
    with answering(answer) as url:
        return BucketObject(asker(url, AnonymousCredentials(), TIMEOUT), "bkt", "a.jpg").read()[0]


@pytest.mark.parametrize("head", [b"", b"Server: x\r\n", b"Server: x\r\nContent-Len"])
def test_an_answer_that_ends_in_its_head_is_not_an_empty_object(head: bytes) -> None:
    with pytest.raises(TransientError, match="ended within the headers"):
        read_answer(b"HTTP/1.1 200 OK\r\n" + head)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_checksum_is_found_in_headers_of_any_order(order: tuple[int, int]) -> None:
    hashes = (b"X-Goog-Hash: crc32c=AAAAAA==", b"X-Goog-Hash: md5=XUFAKrxLKna5cZ2REBfFkg==")
    lines = [b"HTTP/1.1 200 OK", *(hashes[at] for at in order), b"Content-Length: 5", b"", b"hello"]
    with pytest.raises(TransientError, match="not those that are stored"):
        read_answer(b"\r\n".join(lines))


@pytest.mark.parametrize("header", [b"Content-Length: 5, 5", b"Content-Length:", b"colonless"])
def test_an_answer_without_a_length_is_whole_where_its_checksum_says_so(header: bytes) -> None:
    crc = base64.b64encode(google_crc32c.value(b"hello").to_bytes(4, "big"))
    answer = b"HTTP/1.1 200 OK\r\nX-Goog-Hash: crc32c=%b\r\n%b\r\n\r\nhello"
    assert read_answer(answer % (crc, header)) == b"hello"
    with pytest.raises(TransientError, match="has no length"):
        read_answer(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\nhello")


def test_a_checksum_that_makes_no_sense_is_asked_for_again() -> None:
    with pytest.raises(TransientError):  # from a server that answers once
        read_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Goog-Hash: crc32c=A\r\n\r\nhello")


@pytest.mark.parametrize(("message", "words"), [("null", "403 Forbidden"), ("5", "403 5")])
def test_a_refusal_whose_message_is_no_text(message: str, words: str) -> None:
    body = f'{{"error": {{"message": {message}}}}}'
    with pytest.raises(UnreadableError) as caught:
        read_answer(f"HTTP/1.1 403 Forbidden\r\n\r\n{body}".encode())
    assert (caught.value.code, str(caught.value)) == ("no_permission", words)


def test_headers_are_found_in_any_spelling(server: Counting) -> None:
    server.headers = {"x-goog-hash": "crc32c=AAAA", "X-Empty": "", "X-Colons": " a:b"}
    with connections.sender(server.url, TIMEOUT)("GET", "/", {}) as response:
        assert response.headers["X-Goog-Hash"] == "crc32c=AAAA"
        assert response.headers.get("x-empty") == ""
        assert response.headers["X-COLONS"] == "a:b"
        assert response.headers["X-Other"] is None
        response.read()


def test_an_answer_in_chunks_is_read_to_its_end(server: Counting) -> None:
    server.headers = {"Transfer-Encoding": "chunked"}
    server.body = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    send = connections.sender(server.url, TIMEOUT)
    assert [read(send, "/"), read(send, "/")] == [b"abcde", b"abcde"]
    assert server.connections == 1


@pytest.mark.parametrize("headers", [{f"X-{n}": "" for n in range(101)}, {"X": "y" * 70_000}])
def test_a_head_without_end_is_no_answer(server: Counting, headers: dict[str, str]) -> None:
    server.headers = headers
    with pytest.raises(TransientError, match="header"):
        BucketObject(asker(server.url, AnonymousCredentials(), TIMEOUT), "b", "o").read()


def test_a_connection_is_used_again(server: Counting) -> None:
    send = connections.sender(server.url, TIMEOUT)
    assert [read(send, f"/{number}") for number in range(5)] == [b"/0", b"/1", b"/2", b"/3", b"/4"]
    assert server.connections == 1


@pytest.mark.parametrize("body", [b"", b"x", bytes(700_000)])
def test_a_connection_is_kept_whatever_is_asked_of_the_service(
    server: Counting, body: bytes
) -> None:
    crc = base64.b64encode(google_crc32c.value(body).to_bytes(4, "big")).decode()
    server.headers, server.body = {"X-Goog-Hash": f"crc32c={crc}"}, body
    at = BucketObject(asker(server.url, AnonymousCredentials(), TIMEOUT), "bkt", "a.jpg")
    for _ in range(3):
        assert at.read()[0] == body
        at.fetch(io.BytesIO())
        with contextlib.suppress(TransientError):
            at.describe()
    assert server.connections == 1


@pytest.mark.slow
def test_threads_share_connections(server: Counting) -> None:
    send = connections.sender(server.url, TIMEOUT)
    paths = [f"/{number}" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda path: read(send, path), paths)) == [p.encode() for p in paths]
    assert server.connections <= 8


def test_one_that_nobody_used_for_long_is_not_used_again(
    server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = connections.sender(server.url, TIMEOUT)
    read(send, "/a")
    monkeypatch.setattr(connections, "IDLE", 0)
    assert read(send, "/b") == b"/b"
    assert server.connections == 2


def test_one_that_the_server_ends_is_replaced(server: Counting) -> None:
    server.headers = {"Connection": "close"}
    send = connections.sender(server.url, TIMEOUT)
    assert [read(send, "/a"), read(send, "/b")] == [b"/a", b"/b"]
    assert server.connections == 2


def test_a_fork_does_not_use_its_parents_connections(server: Counting) -> None:
    send = connections.sender(server.url, TIMEOUT)
    assert read(send, "/parent") == b"/parent"
    child = os.fork()
    if not child:
        os._exit(0 if read(send, "/child") == b"/child" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.connections == 2
    assert read(send, "/again") == b"/again"
    assert server.connections == 2, "the parent's is still its own"


def test_what_is_left_of_an_answer_is_not_taken_for_the_next(server: Counting) -> None:
    send = connections.sender(server.url, TIMEOUT)
    with send("GET", "/long", {}) as response:
        assert response.read(2) == b"/l"
    with pytest.raises(RuntimeError), send("GET", "/longer", {}):
        raise RuntimeError
    assert read(send, "/b") == b"/b"
    assert server.connections == 3


def test_a_proxy_is_told_who_asks(server: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    address = server.url.replace("http://", "http://me:p%40ss@")
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, address)
    send = connections.sender("https://storage.googleapis.com", TIMEOUT)
    with pytest.raises(OSError, match="407 this proxy knows you not"):
        read(send, "/a")
    assert server.tunnels == [("storage.googleapis.com:443", "Basic bWU6cEBzcw==")]


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the variables that lead past a connection of our own, or away from it."""
    proxies = ("https_proxy", "all_proxy", "no_proxy")
    for name in (*proxies, "requests_ca_bundle", "curl_ca_bundle"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("no_variables")
def test_a_proxy_for_all_is_one_for_https(
    server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", server.url)
    send = connections.sender("https://storage.googleapis.com", TIMEOUT)
    with pytest.raises(OSError, match="407"):
        read(send, "/a")
    assert server.tunnels == [("storage.googleapis.com:443", None)]


@pytest.mark.usefixtures("no_variables")
def test_a_proxy_without_a_port_is_at_that_of_http(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setenv("https_proxy", "http://proxy.example")
    with pytest.raises(ConnectionRefusedError):
        read(connections.sender("https://storage.googleapis.com", TIMEOUT), "/a")
    assert asked == [("proxy.example", 80)]


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("place", ["proxy.example:one", "[::1", "proxy.example:99999"])
def test_a_proxy_with_a_wrong_address_is_named(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("https_proxy", f"http://me:secret@{place}")
    with pytest.raises(UnreadableError, match="give one as http://HOST:PORT") as caught:
        connections.sender("https://storage.googleapis.com", TIMEOUT)
    assert f"https_proxy=http://{place} cannot be used" in str(caught.value)


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_certificates_that_are_not_there_are_named(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for place in ("/none.pem", __file__):
        monkeypatch.setenv(variable, place)
        with pytest.raises(UnreadableError, match=f"{variable}={place} has no certificates"):
            connections.sender("https://storage.googleapis.com", TIMEOUT)


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "https://me:secret@proxy.example:3128")
    with pytest.raises(UnreadableError, match=r"https_proxy=https://proxy\.example") as caught:
        connections.sender("https://storage.googleapis.com", TIMEOUT)
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
    return BucketObject(asker(server.url, AnonymousCredentials(), TIMEOUT), "bkt", "a.jpg").read()[
        0
    ]


def test_what_is_stored_zipped_is_unzipped_and_checked(server: Counting) -> None:
    stored = gzip.compress(b"data")
    assert zipped(server, stored, google_crc32c.value(stored)) == b"data"
    with pytest.raises(TransientError, match="not those that are stored"):
        zipped(server, stored, 1)


@pytest.mark.parametrize(
    "stored",
    [b"\xff\xd8\xff\xe0 a JPEG", gzip.compress(b"data")[:-9], b"\x1f\x8b\x08" + bytes(20)],
    ids=["an image", "cut", "zeros"],  # gzip holds the time, and a test has one name
)
def test_what_is_only_called_zipped_is_unreadable_for_good(server: Counting, stored: bytes) -> None:
    with pytest.raises(UnreadableError, match="correct it in the bucket") as caught:
        zipped(server, stored, google_crc32c.value(stored))
    assert caught.value.code == "read_failed"


PACKED = [os.urandom(70_000), b"", bytes(3 * 2**20), b"last"]


@pytest.mark.parametrize(
    "stored",
    [
        b"".join(map(gzip.compress, PACKED)),
        b"".join(gzip.compress(part, 0) + bytes(99_999) for part in PACKED),
    ],
    ids=["several", "padded"],
)
def test_all_that_gzip_packed_is_unpacked(server: Counting, stored: bytes) -> None:
    assert zipped(server, stored, google_crc32c.value(stored)) == gzip.decompress(stored)
    at = BucketObject(asker(server.url, AnonymousCredentials(), TIMEOUT), "bkt", "a.csv")
    copy = io.BytesIO()
    at.fetch(copy)
    assert copy.getvalue() == b"".join(PACKED)
    server.body, server.headers = stored[:-9], {"Content-Encoding": "gzip"}
    crc = base64.b64encode(google_crc32c.value(stored[:-9]).to_bytes(4, "big")).decode()
    server.headers["X-Goog-Hash"] = f"crc32c={crc}"
    if stored[-1]:  # padding may be cut
        with pytest.raises(UnreadableError, match="correct it in the bucket"):
            at.fetch(io.BytesIO())


def test_what_would_unpack_to_more_than_a_record_is_not_unpacked(
    server: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfrecorder.storage.gcs_requests.MAX_FILE_BYTES", 2**22)
    stored = gzip.compress(bytes(2**28))
    tracemalloc.start()
    with pytest.raises(UnreadableError) as caught:
        zipped(server, stored, google_crc32c.value(stored))
    assert caught.value.code == "too_large"
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()


# -------------------------------------------------------------------- answers that keep no rule


@pytest.mark.slow
def test_no_request_waits_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_patience(monkeypatch, 0.4)
    jobs = []

    def ask(job: Callable[[], object]) -> float:
        began = time.monotonic()
        with contextlib.suppress(TransientError, UnreadableError):
            job()
        return time.monotonic() - began

    with serving() as web, ThreadPoolExecutor(64) as pool:
        of_service = asker(web.uri("").rstrip("/"), AnonymousCredentials(), (1, 0.4))
        for name, (*_, reason) in RUDE.items():
            at = BucketObject(of_service, name, "a")
            jobs += [at.describe, at.delete, functools.partial(at.read_range, "1", 0, 9)]
            if reason != "too_large":  # what a disk has room for is copied to it
                jobs += [at.read, functools.partial(at.fetch, io.BytesIO())]
        assert max(pool.map(ask, jobs)) < 10
        assert len(web.asked) >= len(jobs)


# -------------------------------------------------------------- a gateway between us and the bucket

DATA = os.urandom(300_000)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def copied(path: str) -> bytes:
    with storage.local_copy(path) as copy:
        return Path(copy).read_bytes()


def opened(path: str) -> bytes:
    with storage.open_seekable(path) as file:
        return file.read()


READ: list[Callable[[str], bytes]] = [storage.read_bytes, copied, opened]


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("kind", ["page", "empty", "cut", "flip"])
def test_a_download_that_is_not_the_object_is_asked_for_again(
    gcs: Gcs, read: Callable[[str], bytes], kind: str
) -> None:
    if kind == "flip" and read is opened:
        pytest.skip("a part of an object has no checksum")
    gcs.put("gs://bkt/a", DATA)
    gcs.inject(kind, operation="download", times=3, bare=True)
    assert read("gs://bkt/a") == DATA
    assert gcs.count("download") >= 4


@pytest.mark.parametrize("kind", ["cut", "flip"])
def test_a_description_that_is_damaged_is_asked_for_again(gcs: Gcs, kind: str) -> None:
    gcs.put("gs://bkt/a", DATA)
    gcs.inject(kind, operation="metadata", times=3)
    assert storage.size("gs://bkt/a") == len(DATA)
    assert gcs.count("metadata", "bkt/a") == 4


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("data", [DATA, b""], ids=len)
def test_what_comes_without_headers_is_compared_with_the_description(
    gcs: Gcs, read: Callable[[str], bytes], data: bytes
) -> None:
    gcs.put("gs://bkt/a", data)
    gcs.inject("bare")
    assert read("gs://bkt/a") == data


def test_a_page_as_long_as_the_range_is_not_taken_for_it(gcs: Gcs) -> None:
    gcs.put("gs://bkt/a", DATA[: len(PAGE)])
    gcs.inject("page", operation="download", times=3)
    assert opened("gs://bkt/a") == DATA[: len(PAGE)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["page", "empty", "flip", "bare"])
def test_a_gateway_makes_no_reject_and_no_wrong_byte(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    uris = [f"gs://bkt/in/{row}.jpg" for row in range(6)]
    for row, uri in enumerate(uris):
        gcs.put(uri, PHOTOS[row].read_bytes())
    table = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "x"})
    tfrecorder.convert(table, "calm", num_shards=2)
    gcs.inject(kind, operation="download", object="bkt/in/*", bare=True)
    if kind != "bare":
        shorten_patience(monkeypatch)
        assert "gs://bkt/in/" in error_of(UnreachableError, table, num_shards=2)
        gcs.mend()
    result = tfrecorder.convert(table, "out", num_shards=2)
    assert (result.records, len(result.rejects)) == (6, 0)
    for calm in Path("calm").glob("*.tfrecord"):
        assert Path("out", calm.name).read_bytes() == calm.read_bytes()


READ_ONE = """
import sys
from tfrecorder import storage
sys.stdout.buffer.write(storage.read_bytes("gs://bkt/a"))
storage.publish_bytes("gs://bkt", "b", b"x")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["page", "empty"])
def test_a_token_server_behind_a_login_page_is_waited_for(
    gcs: Gcs, tls: TlsProxy, kind: str
) -> None:
    gcs.put("gs://bkt/a", b"data")
    gcs.inject(kind, operation="other", times=1)
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    done = run("-c", READ_ONE, env={**own, **tls.environment()})
    assert done.stdout == "data"

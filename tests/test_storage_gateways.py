"""A gateway between us and the bucket: it takes headers away, flips bits, and asks to log in.

None of what it does is about a row: it is waited for, and never makes a reject or a wrong byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from gcs.control import Gcs
from gcs.server import PAGE
from gcs.tls_proxy import TlsProxy
from objects.control import S3
from support import PHOTOS, error_of, run, shorten_patience, shorten_pauses

import tfrecorder
from tfrecorder import UnreachableError, storage

pytest_plugins = ["gcs.fixtures", "objects.fixtures"]

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


@pytest.mark.parametrize("read", READ[:2])
@pytest.mark.parametrize("kind", ["page", "empty", "flip"])
def test_a_download_that_is_not_the_object_is_asked_for_again(
    gcs: Gcs, read: Callable[[str], bytes], kind: str
) -> None:
    gcs.put("gs://bkt/a", DATA)
    gcs.inject(kind, operation="download", times=3, bare=True)
    assert read("gs://bkt/a") == DATA
    assert gcs.count("download") >= 4


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


JSON: dict[str, Callable[[], object]] = {
    "size": lambda: storage.size("gs://bkt/in/a"),
    "names": lambda: storage.names("gs://bkt/in"),
    "files": lambda: storage.files_below("gs://bkt/in"),
    "folder": lambda: storage.is_folder("gs://bkt/in"),
    "publish": lambda: storage.publish_bytes("gs://bkt/out", "b", b"x"),
    "move": lambda: storage.move("gs://bkt/in", "a", "b"),
}
#: The answer to a removal is empty, if all is well.
OPERATIONS = {**JSON, "remove": lambda: storage.remove("gs://bkt/in", "a")}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "page") for name in OPERATIONS), *((name, "empty") for name in JSON)],
)
def test_an_answer_that_is_not_the_services_is_asked_for_again(
    gcs: Gcs, name: str, kind: str
) -> None:
    def outcome(*faults: str) -> tuple[object, list[str]]:
        for uri in ("gs://bkt/in/a", "gs://bkt/in/deep/c"):
            gcs.put(uri, b"x")
        for fault in faults:
            gcs.inject(fault, times=3)
        return OPERATIONS[name](), gcs.names("gs://bkt")

    expected = outcome()
    gcs.reset()
    gcs.create_bucket("bkt")
    assert outcome(kind) == expected


S3_READ = [lambda read=read: read("s3://bkt/in/a") for read in READ]
S3_OPERATIONS: dict[str, Callable[[], object]] = {
    **dict(zip(("read", "copied", "opened"), S3_READ, strict=True)),
    "size": lambda: storage.size("s3://bkt/in/a"),
    "publish": lambda: storage.publish_bytes("s3://bkt/in", "b", b"x"),
    "move": lambda: storage.move("s3://bkt/in", "a", "b"),
    "remove": lambda: storage.remove("s3://bkt/in", "a"),
}


@pytest.mark.parametrize("body", [PAGE.decode(), ""], ids=["page", "empty"])
@pytest.mark.parametrize("name", S3_OPERATIONS)
def test_an_answer_that_is_not_from_s3_is_asked_for_again(s3: S3, name: str, body: str) -> None:
    def outcome(times: int) -> tuple[object, list[str]]:
        for uri in ("s3://bkt/in/a", "s3://bkt/in/deep/c"):
            s3.put(uri, DATA)
        # The listing before a removal is spared: an HTML page is an empty one to obstore.
        for method in ("HEAD", "PUT", "POST", "DELETE"):
            s3.inject("status", status=200, body=body, method=method, times=times)
        s3.inject("status", status=200, body=body, path="/bkt/in/a", times=times)
        return S3_OPERATIONS[name](), s3.names("s3://bkt/")

    expected = outcome(0)
    s3.reset()
    s3.create_bucket("bkt")
    assert outcome(1) == expected


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


@pytest.mark.parametrize("kind", ["page", "empty"])
def test_a_token_server_behind_a_login_page_is_waited_for(
    gcs: Gcs, tls: TlsProxy, kind: str
) -> None:
    gcs.put("gs://bkt/a", b"data")
    gcs.inject(kind, operation="other", times=1)
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    done = run("-c", READ_ONE, env={**own, **tls.environment()})
    assert done.stdout == "data"

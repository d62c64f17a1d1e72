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
from support import PHOTOS, error_of, run, shorten_patience, shorten_pauses

import tfrecorder
from tfrecorder import UnreachableError, storage

pytest_plugins = ["gcs.fixtures"]

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

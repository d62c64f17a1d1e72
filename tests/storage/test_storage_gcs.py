"""Files on gs://, as `tfrecorder.storage` reads and publishes them; against a loopback server.

The inner law: the contract of storage, where only gs:// does a thing in this way.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from services.gcs.control import Gcs
from services.gcs.tls_proxy import TlsProxy
from support import PHOTOS, patience, photo_frame, run, shorten_patience, shorten_pauses, wait_for

import tfrecorder
from tfrecorder import storage
from tfrecorder.errors import OutputError, SourceError, UnreachableError
from tfrecorder.storage import gcs as gcs_store, gcs_requests, retry

pytest_plugins = ["services.gcs.fixtures"]

#: Larger files are uploaded in several requests.
EIGHT = 8 * 1024 * 1024
PIECE = gcs_store.PIECE

PASSING = [
    {"kind": "status", "status": 408},
    {"kind": "status", "status": 429},
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 503},
    {"kind": "reset"},
    {"kind": "cut"},
]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked for again at once."""
    shorten_pauses(monkeypatch)


def unreadable(path: str) -> storage.UnreadableError:
    with pytest.raises(storage.UnreadableError) as caught:
        storage.read_bytes(path)
    return caught.value


def test_a_file_is_read_by_one_request(gcs: Gcs) -> None:
    data = os.urandom(100_000)
    gcs.put("gs://bkt/photos/a b%2F#?ü.jpg", data)
    assert storage.read_bytes("gs://bkt/photos/a b%2F#?ü.jpg") == data
    assert gcs.count("download") == gcs.count() == 1


def test_parts_of_a_file_are_read_by_one_request_each(gcs: Gcs) -> None:
    gcs.put("gs://bkt/a", os.urandom(2_000_000))
    with storage.open_seekable("gs://bkt/a") as file:
        for offset in (1_999_000, 0):
            file.seek(offset)
            file.read(1000)
    assert gcs.count("download", outcome="206") == 2


@pytest.mark.slow
def test_many_files_are_read_at_once_over_connections_that_are_kept(
    gcs: Gcs, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [f"gs://bkt/{number}" for number in range(64)]
    for path in paths:
        gcs.put(path, path.encode())
    gcs.inject("stall", seconds=1, operation="download")
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(32) as pool:
        assert list(pool.map(storage.read_bytes, paths)) == [path.encode() for path in paths]
    gcs.mend()
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(32) as pool:
        assert list(pool.map(storage.size, paths)) == [len(path) for path in paths]
    assert gcs.peak() == 32
    # Of urllib3, when it throws a connection away; other tests' leftovers may log as well.
    assert not [record for record in caplog.records if record.name.startswith("urllib3")]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("gs://bkt/none.jpg", "not_found", "No such object: bkt/none.jpg"),
        ("gs://elsewhere/a.jpg", "not_found", "bucket does not exist"),
        ("gs://bkt/secret.jpg", "no_permission", "denied"),
        ("gs://bkt/odd.jpg", "read_failed", "400"),
    ],
)
def test_what_cannot_be_read_is_asked_for_once(gcs: Gcs, path: str, code: str, words: str) -> None:
    gcs.put("gs://bkt/secret.jpg", b"")
    gcs.inject("status", status=403, object="bkt/secret.jpg")
    gcs.inject("status", status=400, object="bkt/odd.jpg")
    error = unreadable(path)
    assert error.code == code
    assert words in error.detail
    assert "http" not in error.detail, "the request's address helps nobody"
    assert gcs.count("download") == 1
    with pytest.raises(OSError, match="does not exist"):
        storage.publish_bytes("gs://elsewhere", "a", b"")


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_what_fails_in_passing_is_tried_again_and_counted(
    gcs: Gcs, fault: dict[str, object]
) -> None:
    data = os.urandom(300_000)
    gcs.put("gs://bkt/a", data)
    gcs.inject(operation="download", times=3, **fault)
    retries: list[None] = []
    folders = storage.FoldersRead()
    read, _ = storage.read_source("gs://bkt/a", folders, lambda: retries.append(None))
    assert read == data
    assert len(retries) == 3
    assert gcs.count("download", "bkt/a") == 4


@pytest.mark.slow
@pytest.mark.parametrize(("later", "seconds"), [("2", 2.0), ("soon", 0.0)])
@pytest.mark.parametrize("upload", [False, True])
def test_a_server_that_asks_to_wait_is_waited_for(
    gcs: Gcs,
    monkeypatch: pytest.MonkeyPatch,
    later: str,
    seconds: float,
    upload: bool,
) -> None:
    gcs.put("gs://bkt/a", b"data")
    gcs.inject("status", status=429, retry_after=later, times=1, operation="download|upload")
    began = time.monotonic()
    if upload:
        storage.publish_bytes("gs://bkt", "a", b"more")
    else:
        assert storage.read_bytes("gs://bkt/a") == b"data"
    assert seconds <= time.monotonic() - began < seconds + 1.9


def test_a_server_is_not_waited_for_longer_than_the_patience(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch)
    gcs.put("gs://bkt/a", b"data")
    gcs.inject("status", status=503, retry_after="3600")
    began = time.monotonic()
    with pytest.raises(UnreachableError):
        storage.read_bytes("gs://bkt/a")
    assert patience().seconds <= time.monotonic() - began < 10


def test_a_server_that_stalls_is_given_up_and_asked_again(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs_store, "TIMEOUT", (0.2, 0.2))
    gcs.put("gs://bkt/a", b"data")
    for operation in ("download", "metadata"):
        gcs.inject("stall", seconds=1, operation=operation, times=1)
    store = gcs_store.BucketStore()  # which begins with these seconds
    assert retry.retried(lambda: store.read("gs://bkt/a"), "gs://bkt/a") == b"data"
    assert retry.retried(lambda: store.version("gs://bkt/a"), "gs://bkt/a")
    assert gcs.count("download") == gcs.count("metadata") == 2


@pytest.mark.parametrize("name", ["in//a.jpg", "in/cat//a.jpg", "in//cat/a.jpg"])
def test_a_folder_without_a_name_is_named(gcs: Gcs, name: str) -> None:
    for other in (name, "in/dog/b.jpg"):
        gcs.put(f"gs://bkt/{other}", PHOTOS[0].read_bytes())
    words = "is in a folder without a name, between // in the bucket; move it, or list"
    with pytest.raises(SourceError, match=words):
        tfrecorder.validate("gs://bkt/in")
    gcs.put("gs://bkt/out//a.jpg", b"")
    with pytest.raises(OutputError, match=r"gs://bkt/out holds '//', which does not belong"):
        tfrecorder.convert(photo_frame(3), "gs://bkt/out")


def test_what_fits_no_record_is_not_read(gcs: Gcs, monkeypatch: pytest.MonkeyPatch) -> None:
    gcs.put("gs://bkt/big", b"x" * 1000)
    monkeypatch.setattr(gcs_requests, "MAX_FILE_BYTES", 999)
    assert unreadable("gs://bkt/big").code == "too_large"


@pytest.mark.parametrize("operation", ["metadata", "copy", "delete"])
def test_a_move_whose_answer_is_lost_is_ended(gcs: Gcs, operation: str) -> None:
    gcs.put("gs://bkt/a/from", b"new")
    gcs.inject("reset", operation=operation, after=True, times=1)
    storage.move("gs://bkt/a", "from", "to")
    assert gcs.names("gs://bkt/") == ["a/to"]


@pytest.mark.slow
def test_a_move_takes_away_what_it_has_copied_and_nothing_newer(gcs: Gcs) -> None:
    gcs.put("gs://bkt/a/from", b"first")
    gcs.inject("stall", operation="delete", seconds=0.5, times=1)
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(storage.move, "gs://bkt/a", "from", "to")
        wait_for(lambda: gcs.names("gs://bkt/a/to"))
        gcs.put("gs://bkt/a/from", b"second")
        moving.result()
    assert gcs.get("gs://bkt/a/to") == b"second"
    assert gcs.names("gs://bkt/") == ["a/to"]
    gcs.put("gs://bkt/a/from", b"third")
    gcs.inject("status", status=403, operation="delete")
    with pytest.raises(OSError, match="denied"):
        storage.move("gs://bkt/a", "from", "to")


def test_a_size_is_asked_for_by_one_request(gcs: Gcs) -> None:
    gcs.put("gs://bkt/photos/a b%2F#?ü.jpg", b"0123456789")
    assert storage.size("gs://bkt/photos/a b%2F#?ü.jpg") == 10
    assert storage.describe("gs://bkt/none") is None
    assert storage.size("gs://elsewhere/none") is None
    assert storage.size("gs://bkt") is None, "a bucket is not an object"
    assert gcs.count("metadata") == gcs.count() == 3


@pytest.mark.slow
def test_a_folder_of_more_names_than_an_answer_holds(gcs: Gcs) -> None:
    names = [f"{number:04d}" for number in range(2100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: gcs.put(f"gs://bkt/out/{name}", b""), names))
    gcs.inject("status", status=503, operation="list", probability=0.3)
    assert storage.names("gs://bkt/out") == names
    assert storage.files_below("gs://bkt") == [f"out/{name}" for name in names]
    gcs.mend()
    storage.remove("gs://bkt", "out")
    assert gcs.names("gs://bkt/") == []


@pytest.mark.parametrize(
    "size",
    [0, 1000, EIGHT + 1000, 2 * PIECE + 1000, 2 * PIECE],
    ids=["empty", "small", "large", "in pieces", "in whole pieces"],
)
@pytest.mark.parametrize("fault", [None, *PASSING], ids=str)
def test_what_is_published_is_there_whole(
    gcs: Gcs, size: int, fault: dict[str, object] | None
) -> None:
    data = os.urandom(size)
    if fault:
        gcs.inject(operation="upload|start|piece", times=3, **fault)
    storage.publish_bytes("gs://bkt/out", "deeper/a.bin", data)
    assert gcs.get("gs://bkt/out/deeper/a.bin") == data
    assert gcs.names("gs://bkt/") == ["out/deeper/a.bin"]


def test_an_upload_whose_session_the_service_ended_begins_anew(gcs: Gcs) -> None:
    data = os.urandom(PIECE + 1000)
    gcs.inject("status", status=410, operation="piece", times=2)
    storage.publish_bytes("gs://bkt/out", "a", data)
    assert gcs.get("gs://bkt/out/a") == data
    assert gcs.count("start") == 3


def test_a_large_file_goes_up_while_it_is_written(gcs: Gcs) -> None:
    with storage.publish("gs://bkt/out", "a") as file:
        file.write(bytes(PIECE + 1))
        soon = time.monotonic() + 20
        while not gcs.count("piece", "bkt/out/a"):
            assert time.monotonic() < soon, "nothing was uploaded before the end"
            time.sleep(0.01)
        assert gcs.files("gs://bkt/out") == {}
        file.write(b"end")
    assert gcs.get("gs://bkt/out/a") == bytes(PIECE + 1) + b"end"


def test_a_large_file_given_up_half_way_appears_nowhere(gcs: Gcs) -> None:
    def write() -> None:
        with storage.publish("gs://bkt/out", "a") as file:
            file.write(bytes(PIECE + 1))
            while not gcs.count("piece", "bkt/out/a"):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    time.sleep(0.2)
    assert gcs.files("gs://bkt/out") == {}
    assert "tfrecorder-upload" not in {thread.name for thread in threading.enumerate()}


def test_no_temporary_file_is_left(
    gcs: Gcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with storage.publish("gs://bkt/out", "a") as file:
        file.write(b"data")
        # Or a worker process that Ctrl-C or the system ends would leave it.
        assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_service_itself_with_a_token_by_a_proxy(gcs: Gcs, tls: TlsProxy) -> None:
    """Everything as in the cloud: https, the service's own address, a service account's key."""
    code = (
        "from tfrecorder import storage\n"
        "storage.publish_bytes('gs://bkt/out', 'a', b'data')\n"
        "print(storage.read_bytes('gs://bkt/out/a'), storage.size('gs://bkt/out/a'))\n"
        "print(storage.sizes('gs://bkt'))\n"
    )
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    for drop in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # either is enough
        env = {**own, **tls.environment()}
        del env[drop]
        gcs.inject("status", status=401, operation="download", object="bkt/out/a", times=1)
        found = run("-c", code, env=env)
        assert found.stdout == "b'data' 4\n{'out': None}\n", found.stderr
    assert gcs.count("download", "bkt/out/a", "200") == 2
    assert gcs.count("download", "bkt/out/a", "401") == 2, "a token ended before its time"


@pytest.mark.slow
def test_who_gives_tokens_may_be_busy(gcs: Gcs, tls: TlsProxy) -> None:
    """google-auth itself asks four times; then it is our turn."""
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    gcs.put("gs://bkt/a", b"data")
    gcs.inject("status", status=503, operation="other", times=4)
    code = "from tfrecorder import storage\nprint(storage.read_bytes('gs://bkt/a'))"
    found = run("-c", code, env={**own, **tls.environment()})
    assert found.stdout == "b'data'\n", found.stderr
    assert gcs.count("other", outcome="503") == 4


@pytest.mark.slow
def test_certificates_that_are_not_there_are_told(gcs: Gcs, tls: TlsProxy, tmp_path: Path) -> None:
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    env = {**own, **tls.environment(), "REQUESTS_CA_BUNDLE": str(tmp_path / "none.pem")}
    found = run("-m", "tfrecorder", "verify", "gs://bkt/out", env=env)
    assert (found.returncode, found.stderr.count("\n")) == (1, 1), found.stderr
    assert "none.pem" in found.stderr


@pytest.mark.slow
def test_without_credentials_the_remedy_is_told(gcs: Gcs, tls: TlsProxy, tmp_path: Path) -> None:
    gcs.put("gs://bkt/a", b"not for everybody")
    gcs.rule("bkt", unsigned="none")
    code = (
        "from tfrecorder import storage\n"
        "try:\n    storage.read_bytes('gs://bkt/a')\n"
        "except storage.UnreadableError as error:\n    print(error.code, error.detail)\n"
    )
    drop = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT")
    env = {**os.environ, **tls.environment(), "HOME": str(tmp_path)}
    found = run("-c", code, env={key: value for key, value in env.items() if key not in drop})
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("no_credentials ")
    assert "gcloud auth application-default login" in found.stdout


@pytest.mark.slow
def test_a_key_file_that_is_not_there_is_not_the_same_as_none(tmp_path: Path) -> None:
    code = "from tfrecorder import storage\nstorage.read_bytes('gs://bkt/a')"
    env = {key: value for key, value in os.environ.items() if key != "STORAGE_EMULATOR_HOST"}
    env["GOOGLE_APPLICATION_CREDENTIALS"] = str(tmp_path / "key.json")
    found = run("-c", code, env=env)
    assert f"GOOGLE_APPLICATION_CREDENTIALS={tmp_path / 'key.json'}: " in found.stderr
    assert "not found" in found.stderr


@pytest.mark.slow
def test_local_files_need_no_client(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom tfrecorder import storage\n"
        f"storage.publish_bytes({str(tmp_path)!r}, 'a', b'data')\n"
        f"storage.read_bytes({str(tmp_path / 'a')!r})\n"
        "print('google.cloud.storage' in sys.modules, 'fsspec' in sys.modules)"
    )
    assert run("-c", code).stdout.split() == ["False", "False"], sys.version


def test_a_bucket_that_does_not_tell_what_it_keeps_is_said_to_be_unknown(gcs: Gcs) -> None:
    gcs.put("gs://bkt/a", b"")
    gcs.rule("bkt", unsigned="none")
    said = storage.keeps_removed("gs://bkt/out")
    assert said.startswith("whether gs://bkt keeps removed objects is not known (")

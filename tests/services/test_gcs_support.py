"""The loopback Google Cloud Storage that other tests rely on, by the clients that it stands in for.

What a test of "whole or not at all" proves is worth what this server is worth.
"""

from __future__ import annotations

import http.client
import io
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.cloud.storage.exceptions import DataCorruption
from google.cloud.storage.retry import DEFAULT_RETRY
from support import TESTS, framed, wait_for

from services.gcs.control import Gcs, in_thread
from services.gcs.tls_proxy import TlsProxy

pytest_plugins = ["services.gcs.fixtures"]

QUARTER = 256 * 1024
#: Larger ones are uploaded in pieces by the client.
EIGHT = 8 * 1024 * 1024
#: The client's own retries, soon enough for a test.
RETRY = DEFAULT_RETRY.with_delay(initial=0.01, maximum=0.05).with_timeout(5)


@pytest.fixture
def bucket(gcs: Gcs) -> storage.Bucket:
    """The bucket bkt, by the real client."""
    options = {"api_endpoint": gcs.url}
    client = storage.Client("loopback", AnonymousCredentials(), client_options=options)
    return client.bucket("bkt")


def upload(bucket: storage.Bucket, name: str, data: bytes, **options: object) -> storage.Blob:
    blob = bucket.blob(name)
    blob.upload_from_string(data, retry=RETRY, **options)
    return blob


def test_an_object_comes_back_with_its_checksums(bucket: storage.Bucket) -> None:
    data = os.urandom(100_000)
    upload(bucket, "a folder/ü%2F?#.bin", data, content_type="image/jpeg")
    blob = bucket.get_blob("a folder/ü%2F?#.bin")
    assert blob.download_as_bytes(checksum="crc32c") == data
    assert blob.download_as_bytes(checksum="md5") == data
    assert (blob.size, blob.content_type) == (len(data), "image/jpeg")
    assert blob.generation > 0


def test_an_upload_whose_checksum_does_not_fit_is_refused(bucket: storage.Bucket) -> None:
    blob = bucket.blob("a")
    blob.crc32c = "AAAAAA=="
    with pytest.raises(exceptions.BadRequest, match="CRC32C"):
        blob.upload_from_string(b"data", checksum=None)
    assert not blob.exists()


def test_listings_with_prefix_delimiter_and_pages(bucket: storage.Bucket, gcs: Gcs) -> None:
    names = ["a", "b/1", "b/2", "b/c/3", "b.", "é", "z"]
    for name in names:
        gcs.put(f"gs://bkt/{name}", b"")

    def listed(**options: object) -> tuple[list[str], list[str]]:
        found = bucket.client.list_blobs("bkt", **options)
        return [blob.name for blob in found], sorted(found.prefixes)

    in_order = sorted(names, key=str.encode)
    assert listed() == (in_order, [])
    assert listed(page_size=2) == (in_order, [])
    assert listed(prefix="b/") == (["b/1", "b/2", "b/c/3"], [])
    assert listed(delimiter="/", page_size=1) == (["a", "b.", "z", "é"], ["b/"])
    assert listed(prefix="b/", delimiter="/") == (["b/1", "b/2"], ["b/c/"])
    assert listed(max_results=3)[0] == in_order[:3]
    assert listed(prefix="none") == ([], [])


def test_some_fields_of_an_object(gcs: Gcs) -> None:
    gcs.put("gs://bkt/a", b"data")
    url = f"{gcs.url}/storage/v1/b/bkt/o/a"
    whole = requests.get(url, timeout=5).json()
    some = requests.get(url, {"fields": "size,crc32c"}, timeout=5).json()
    assert some == {"size": "4", "crc32c": whole["crc32c"]}
    assert requests.get(url, {"fields": "size,crc"}, timeout=5).status_code == 400


def test_copy_and_compose(bucket: storage.Bucket) -> None:
    one, two = upload(bucket, "1", b"one"), upload(bucket, "2", b"two")
    bucket.copy_blob(one, bucket, "3")
    both = bucket.blob("both")
    both.compose([bucket.blob("3"), two])
    assert both.download_as_bytes() == b"onetwo"
    bucket.blob("4").rewrite(both)
    assert bucket.blob("4").download_as_bytes() == b"onetwo"


def test_an_upload_in_pieces_is_there_when_its_last_byte_is(
    bucket: storage.Bucket, gcs: Gcs
) -> None:
    data = os.urandom(EIGHT + 5)
    seen: list[list[str]] = []

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            seen.append(gcs.names("gs://bkt/"))
            return super().read(size)

    bucket.blob("big", chunk_size=EIGHT // 2).upload_from_file(Watched(data), size=len(data))
    assert seen == [[]] * 3
    assert gcs.get("gs://bkt/big") == data
    assert gcs.count("piece", "bkt/big", "308") == 2
    assert gcs.count("piece", "bkt/big", "200") == 1


@pytest.mark.parametrize("kind", ["cut", "reset", "status"])
def test_a_broken_upload_in_pieces_goes_on(bucket: storage.Bucket, gcs: Gcs, kind: str) -> None:
    data = os.urandom(EIGHT + 5)
    gcs.inject(kind, operation="piece", times=2)
    blob = bucket.blob("big", chunk_size=EIGHT // 2)
    blob.upload_from_file(io.BytesIO(data), size=len(data), if_generation_match=0, retry=RETRY)
    assert gcs.get("gs://bkt/big") == data
    outcome = {"cut": "reset", "status": "503"}.get(kind, kind)
    assert gcs.count("piece", outcome=outcome) == 2


def test_how_far_an_upload_has_come(bucket: storage.Bucket, gcs: Gcs) -> None:
    data = os.urandom(2 * QUARTER + 5)
    session = bucket.blob("big").create_resumable_upload_session(if_generation_match=0)

    def send(content_range: str, body: bytes = b"") -> tuple[int, str | None]:
        response = requests.put(session, body, headers={"Content-Range": f"bytes {content_range}"})
        return response.status_code, response.headers.get("Range")

    assert send("*/*") == (308, None)
    assert send(f"5-{len(data)}/*", data[5:])[0] == 400, "a gap"
    # All but the last piece is kept in whole quarters of a mebibyte.
    assert send(f"0-{QUARTER + 6}/*", data[: QUARTER + 7]) == (308, f"bytes=0-{QUARTER - 1}")
    assert send("*/*") == (308, f"bytes=0-{QUARTER - 1}")
    assert gcs.names("gs://bkt/") == []
    assert send(f"{QUARTER}-{len(data) - 1}/{len(data)}", data[QUARTER:])[0] == 200
    assert send("*/*")[0] == 200
    assert gcs.get("gs://bkt/big") == data
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("big").create_resumable_upload_session(if_generation_match=0)


def test_an_upload_of_unknown_length(bucket: storage.Bucket, gcs: Gcs) -> None:
    with bucket.blob("stream", chunk_size=QUARTER).open("wb") as file:
        for _ in range(5):
            file.write(b"x" * 100_000)
    assert gcs.get("gs://bkt/stream") == b"x" * 500_000


def test_a_download_that_is_cut_short_is_noticed(bucket: storage.Bucket, gcs: Gcs) -> None:
    data = os.urandom(1_000_000)
    gcs.put("gs://bkt/a", data)
    gcs.inject("cut", operation="download", times=1)
    with (
        urllib.request.urlopen(f"{gcs.url}/bkt/a") as response,
        pytest.raises(http.client.IncompleteRead),
    ):
        response.read()
    gcs.inject("cut", operation="download", times=1)
    assert bucket.blob("a").download_as_bytes(retry=RETRY) == data
    assert gcs.count("download", "bkt/a", "206") == 1, "the client goes on where it was cut"
    gcs.inject("flip", operation="download", times=1)
    with pytest.raises(DataCorruption):
        bucket.blob("a").download_as_bytes(retry=RETRY)


def test_faults_that_pass(bucket: storage.Bucket, gcs: Gcs) -> None:
    for name in ("a", "b"):
        gcs.put(f"gs://bkt/{name}", name.encode())
    gcs.inject("status", status=503, operation="download", times=2, each=True)
    for name in ("a", "b"):
        assert bucket.blob(name).download_as_bytes(retry=RETRY) == name.encode()
        assert gcs.count("download", f"bkt/{name}", "503") == 2
        assert gcs.count("download", f"bkt/{name}") == 3
    gcs.forget_requests()
    assert gcs.count() == 0


def test_a_request_from_before_a_reset_changes_nothing(bucket: storage.Bucket, gcs: Gcs) -> None:
    gcs.inject("stall", seconds=0.3, operation="upload")
    late = threading.Thread(target=upload, args=(bucket, "late.bin", b"late"))
    late.start()
    wait_for(lambda: gcs.count("upload", "*late.bin", "under way"))
    gcs.reset()
    gcs.create_bucket("bkt")
    late.join()
    assert gcs.names("gs://bkt/") == []


@pytest.mark.slow
def test_a_share_of_requests_fails_the_same_ones_in_any_order(
    bucket: storage.Bucket, gcs: Gcs
) -> None:
    names = [f"{number}" for number in range(300)]
    for name in names:
        gcs.put(f"gs://bkt/{name}", b"")

    def failed(order: list[str], seed: int) -> set[str]:
        gcs.mend()
        gcs.forget_requests()
        gcs.inject("status", operation="download", probability=0.1, seed=seed)

        def fails(name: str) -> bool:
            try:
                bucket.blob(name).download_as_bytes(retry=None)
            except exceptions.ServiceUnavailable:
                return True
            return False

        with ThreadPoolExecutor(4) as pool:
            return {name for name, one in zip(order, pool.map(fails, order), strict=True) if one}

    first = failed(names, seed=0)
    assert 10 < len(first) < 60
    assert failed(names[::-1], seed=0) == first
    assert failed(names, seed=1) != first


def test_many_requests_at_once(bucket: storage.Bucket, gcs: Gcs) -> None:
    gcs.put("gs://bkt/a", b"")
    gcs.inject("stall", seconds=0.3, operation="download")
    started = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: bucket.blob("a").download_as_bytes(), range(8)))
    assert 0.3 < time.monotonic() - started < 8 * 0.3
    assert gcs.peak() >= 8  # the client may ask for the bucket besides


def test_a_server_in_this_process_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread() as gcs:
        gcs.create_bucket("bkt")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.environment()["STORAGE_EMULATOR_HOST"])
        upload(storage.Client().bucket("bkt"), "a", b"data")
        assert gcs.get("gs://bkt/a") == b"data"
        assert gcs.count("upload", "bkt/a", "200") == gcs.count("upload") == 1


def test_a_server_ends_with_the_process_that_started_it() -> None:
    code = (
        "import time\nfrom services.gcs.control import in_process\n"
        "with in_process() as gcs:\n    print(gcs.url, flush=True)\n    time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=TESTS, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    gcs = Gcs(parent.stdout.readline().strip())
    gcs.create_bucket("bkt")
    parent.send_signal(signal.SIGKILL)
    parent.communicate(timeout=10)
    wait_for(lambda: not answers(gcs), seconds=10)


def answers(gcs: Gcs) -> bool:
    try:
        gcs.requests()
    except OSError:
        return False
    return True


READ_BY_TENSORFLOW = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
import tensorflow as tf
names = sorted(tf.io.gfile.listdir("gs://bkt/out"))
paths = [f"gs://bkt/out/{name}" for name in names if not name.endswith("/")]
print(names, tf.io.gfile.stat(paths[0]).length, tf.io.gfile.exists("gs://bkt/none"))
records = [record.numpy() for record in tf.data.TFRecordDataset(paths)]
print(records == [b"%d" % number * 1000 for number in range(20)] * 2)
with tf.io.gfile.GFile("gs://bkt/written", "wb") as file:
    file.write(b"by TensorFlow" * 100000)

from google.cloud import storage
assert "STORAGE_EMULATOR_HOST" not in os.environ
client = storage.Client()
print(client._connection.API_BASE_URL, client.bucket("bkt").blob("out/a").exists())
"""


@pytest.mark.slow
def test_tensorflow_itself_reads_and_writes_gs(
    bucket: storage.Bucket, gcs: Gcs, tls: TlsProxy
) -> None:
    records = [b"%d" % number * 1000 for number in range(20)]
    for name in ("a", "b"):
        upload(bucket, f"out/{name}", b"".join(map(framed, records)))
    upload(bucket, "out/deeper/c", b"")
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    process = subprocess.run(
        [sys.executable, "-c", READ_BY_TENSORFLOW],
        env={**own, **tls.environment()},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert process.returncode == 0, process.stderr
    size = sum(len(record) + 16 for record in records)
    assert process.stdout.splitlines() == [
        f"['a', 'b', 'deeper/'] {size} False",
        "True",
        "https://storage.googleapis.com True",
    ]
    assert gcs.get("gs://bkt/written") == b"by TensorFlow" * 100_000
    assert gcs.count("download", "bkt/out/?", "206") >= 2


def test_the_proxy_leads_nowhere_else(tls: TlsProxy) -> None:
    address = tls.url.removeprefix("http://")
    for host in ("example.com", "googleapis.com.example.com"):
        connection = http.client.HTTPSConnection(address, timeout=5)
        connection.set_tunnel(host, 443)
        with pytest.raises(OSError, match="403"):
            connection.request("GET", "/")


def test_faults_reach_the_other_side_of_the_proxy(gcs: Gcs, tls: TlsProxy) -> None:
    import ssl

    gcs.put("gs://bkt/a", b"x" * 1000)
    context = ssl.create_default_context(cafile=str(tls.authority))
    gcs.inject("cut", operation="download", times=1)
    for expected in ("IncompleteRead", 1000):
        connection = http.client.HTTPSConnection(
            tls.url.removeprefix("http://"), timeout=5, context=context
        )
        connection.set_tunnel("storage.googleapis.com", 443)
        connection.request("GET", "/bkt/a")
        try:
            found: object = len(connection.getresponse().read())
        except http.client.IncompleteRead as error:
            found = type(error).__name__
        assert found == expected


def test_a_wrong_fault_is_an_error(gcs: Gcs) -> None:
    for wrong in (
        {"kind": "statu"},
        {"kind": "status", "operation": "downlod"},
        {"kind": "cut", "after": True},
    ):
        with pytest.raises(ValueError):
            gcs.inject(**wrong)


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()
    with in_thread() as gcs:
        gcs.create_bucket("bkt")
    wait_for(lambda: threading.active_count() <= before, seconds=5)

"""What may pass is waited for: for two minutes, and until nobody wants it any more.

A missing image is a property of its row; a service or a disk that is away is not.

The inner law: how requests of storage wait for what may pass.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from services.gcs.control import Gcs
from services.gcs.tls_proxy import TlsProxy
from support import (
    CSV,
    PHOTOS,
    done_shards,
    end_by_ctrl_c,
    error_of,
    forget_services,
    public_files,
    run,
    set_patience,
    shorten_patience,
    shorten_pauses,
    start,
    wait_for,
    written,
)

import tfrecorder
from tfrecorder import storage
from tfrecorder.errors import ImagesUnreachableError, UnreachableError
from tfrecorder.plan.make_plan import sample_rows
from tfrecorder.plan.preflight import OPENED_ROWS

pytest_plugins = ["services.gcs.fixtures"]

OUT = "gs://bkt/out"


@pytest.fixture(autouse=True)
def _forget_services() -> Iterator[None]:
    """What one test has seen of a service is no matter of the next."""
    forget_services()
    yield
    forget_services()


@contextlib.contextmanager
def soon(act: Callable[[], object], seconds: float) -> Iterator[None]:
    """A block in whose midst something is done."""
    timer = threading.Timer(seconds, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def make_images(folder: Path, rows: int) -> pd.DataFrame:
    """So many photographs in a folder, and a frame of their relative paths."""
    folder.mkdir(parents=True)
    names = [f"{row:03d}.jpg" for row in range(rows)]
    for row, name in enumerate(names):
        shutil.copy(PHOTOS[row % len(PHOTOS)], folder / name)
    uris = [f"{folder.name}/{name}" for name in names]
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris})


# ---------------------------------------------------------------------------------------- waiting


@pytest.mark.slow
def test_threads_that_all_wait_for_a_service_go_on_once_it_is_back(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_pauses(monkeypatch, 1 / 10)  # with pauses up to half a second
    paths = [f"gs://bkt/{number}" for number in range(64)]
    for path in paths:
        gcs.put(path, b"data")
    gcs.inject("status", status=429)
    with soon(gcs.mend, seconds=3), ThreadPoolExecutor(16) as pool:
        assert list(pool.map(storage.read_bytes, paths)) == [b"data"] * 64
    assert gcs.count("download", outcome="429") < 16 * 20, "their pauses grow"


@pytest.mark.slow
def test_a_share_of_failures_does_not_hold_up_the_others(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_patience(monkeypatch, first_pause=5)
    paths = [f"gs://bkt/{number}" for number in range(400)]
    for path in paths:
        gcs.put(path, b"data")
    gcs.inject("status", object="bkt/7|bkt/120", times=1, each=True)
    done: list[str] = []

    def read(path: str) -> None:
        storage.read_bytes(path)
        done.append(path)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(read, paths))
    assert gcs.count("download", outcome="503") == 2
    assert done.index("gs://bkt/7") > 300, "while one request pauses, the others go on"


@pytest.mark.slow
def test_one_object_that_always_fails_is_given_up_though_others_are_answered(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch, 1)
    for name in ("good", "bad"):
        gcs.put(f"gs://bkt/{name}", b"data")
    gcs.inject("status", object="bkt/bad")
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.02):
            storage.read_bytes("gs://bkt/good")

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(go_on)
        try:
            with pytest.raises(UnreachableError, match=r"^gs://bkt/bad could not be reached"):
                storage.read_bytes("gs://bkt/bad")
        finally:
            over.set()
        going.result()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "passes"),
    [("rateLimitExceeded", True), ("userRateLimitExceeded", True), ("forbidden", False)],
)
def test_a_403_passes_where_its_reason_is_a_rate_limit(gcs: Gcs, reason: str, passes: bool) -> None:
    gcs.put("gs://bkt/a", b"data")
    acts: list[Callable[[], object]] = [
        lambda: storage.read_bytes("gs://bkt/a"),
        lambda: storage.size("gs://bkt/a"),
        lambda: storage.names("gs://bkt"),
        lambda: storage.publish_bytes("gs://bkt", "a", b"data"),
        lambda: storage.publish_new("gs://bkt", "b", b"data"),
        lambda: storage.remove("gs://bkt", "c"),
    ]
    for act in acts:
        gcs.forget_requests()
        # Not that of a bucket: after a 404 the client asks for it, some time later.
        operations = "download|metadata|list|upload|delete"
        gcs.inject("status", status=403, reason=reason, times=1, operation=operations)
        with contextlib.nullcontext() if passes else pytest.raises(Exception, match="Forbidden"):
            act()
        assert gcs.count(outcome="403") == 1
        gcs.mend()


@pytest.mark.slow
def test_a_token_is_renewed_until_one_is_taken(gcs: Gcs, tls: TlsProxy) -> None:
    gcs.put("gs://bkt/a", b"data")
    gcs.inject("status", status=401, operation="download", times=3)
    gcs.inject("status", status=401, operation="upload", times=3)
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    code = (
        "from tfrecorder import storage\n"
        "print(storage.read_bytes('gs://bkt/a'))\n"
        "storage.publish_bytes('gs://bkt', 'b', b'data')"
    )
    found = run("-c", code, env={**own, **tls.environment()})
    assert (found.returncode, found.stdout) == (0, "b'data'\n"), found.stderr
    assert gcs.count("download", outcome="401") == gcs.count("upload", outcome="401") == 3
    # How often google-auth renews a token within one upload differs between its versions.
    renewed = gcs.count("other") - 1
    assert 1 + 1 <= renewed <= 3 + 3, "a token for each that was refused, of six"


# --------------------------------------------------------------------------- rows of a conversion


@pytest.mark.slow
def test_credentials_that_end_are_no_property_of_an_image(
    gcs: Gcs, tls: TlsProxy, tmp_path: Path
) -> None:
    uris = [f"gs://bkt/{row}.jpg" for row in range(OPENED_ROWS + 20)]
    for uri in uris:
        gcs.put(uri, PHOTOS[0].read_bytes())
    opened = set(sample_rows(len(uris), OPENED_ROWS, 0))
    last = next(row for row in range(len(uris)) if row not in opened)
    pd.DataFrame({"split": "TRAIN", "image_uri": uris}).to_csv(tmp_path / "a.csv", index=False)
    own = {key: value for key, value in os.environ.items() if key not in gcs.environment()}
    gcs.inject("status", status=401, object=f"bkt/{last}.jpg", operation="download")
    gcs.inject("stall", seconds=0.05, operation="download")
    code = "import tfrecorder\ntfrecorder.convert('a.csv', 'out', num_shards=1)"
    process = start(code, env={**own, **tls.environment()}, cwd=tmp_path)
    wait_for(lambda: gcs.count("download") > 10)
    gcs.inject("status", status=400, operation="other")  # no further token
    words = process.communicate(timeout=60)[1].splitlines()[-1]
    assert f"UnreachableError: gs://bkt/{last}.jpg cannot be read" in words
    assert "gcloud auth" in words
    assert not (tmp_path / "out/dataset_info.json").exists()


@pytest.mark.slow
def test_a_disk_that_fails_and_recovers_loses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch, 1 / 6)
    frame = make_images(Path("images"), OPENED_ROWS + 50)
    tfrecorder.convert(frame, "calm", num_shards=3)
    bad = _fail(frame)
    with soon(lambda: os.replace("kept", bad), seconds=3):
        result = tfrecorder.convert(frame, "out", num_shards=3)
    assert not result.rejects
    assert result.retries > 1
    assert public_files("out") == public_files("calm")


@pytest.mark.slow
def test_a_disk_that_goes_on_failing_fails_the_shard_and_never_the_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shorten_patience(monkeypatch, 1)
    frame = make_images(Path("images"), OPENED_ROWS + 50)
    tfrecorder.convert(frame, "calm", num_shards=3)
    bad = _fail(frame)
    words = error_of(UnreachableError, frame, num_shards=3)
    assert f"{bad} could not be reached for " in words
    assert "s: Input/output error. Shards that are done are kept in" in words
    assert words.endswith("run the same conversion again to continue.")
    assert len(words.splitlines()) == 1
    assert "dataset_info.json" not in public_files("out")
    assert not any(b"read/" in path.read_bytes() for path in Path("out").glob("**/done/*"))
    os.replace("kept", bad)
    assert not tfrecorder.convert(frame, "out", num_shards=3).rejects
    assert public_files("out") == public_files("calm")


def _fail(frame: pd.DataFrame) -> Path:
    """Make an image fail with EIO when it is read, one that is not opened before the launch."""
    opened = set(sample_rows(len(frame), OPENED_ROWS, 0))
    row = next(row for row in range(len(frame)) if row not in opened)
    path = Path.cwd() / frame["image_uri"][row]
    os.replace(path, "kept")
    path.symlink_to(_unreadable())
    return path


def _unreadable() -> Path:
    """A file of this system that always fails with "Input/output error", as a bad disk does.

    The delay of a device that does not suspend is one, whatever the device.
    """
    for path in Path("/sys/devices").rglob("autosuspend_delay_ms"):
        try:
            path.read_bytes()
        except OSError as error:
            if error.errno == errno.EIO:
                return path
    pytest.skip("no file of this system fails with an I/O error")


@pytest.mark.slow
@pytest.mark.parametrize("comes_back", [True, False])
def test_images_of_a_folder_that_vanishes_meanwhile_are_not_missing(
    monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    shorten_pauses(monkeypatch, 1 / 6)
    if not comes_back:
        shorten_patience(monkeypatch, 1.5)
    frame = make_images(Path("disk/images"), 600)
    frame["image_uri"] = "disk/" + frame["image_uri"]
    tfrecorder.convert(frame, "calm", num_shards=12)
    Path("elsewhere").mkdir()

    def take_away() -> None:
        wait_for(lambda: done_shards("out") > 1)
        os.rename("disk/images", "elsewhere/images")  # what is left is as a disk's empty place
        if comes_back:
            time.sleep(2)
            os.rename("elsewhere/images", "disk/images")

    taking = threading.Thread(target=take_away)
    taking.start()
    if comes_back:
        result = tfrecorder.convert(frame, "out", num_shards=12, num_threads=1)
        taking.join()
        assert result.retries > 0
    else:
        words = error_of(UnreachableError, frame, num_shards=12, num_threads=1)
        taking.join()
        assert "was there before, but is now gone or empty. Shards that are done" in words
        os.rename("elsewhere/images", "disk/images")
        result = tfrecorder.convert(frame, "out", num_shards=12)
    assert not result.rejects
    assert public_files("out") == public_files("calm")


def test_an_image_that_alone_is_missing_is_a_reject_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = make_images(Path("images"), 20)
    (Path.cwd() / frame["image_uri"][7]).unlink()
    began = time.monotonic()
    result = tfrecorder.convert(frame, "out")
    assert (result.rejects, result.retries) == ({"read/not_found": 1}, 0)
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_too_few_open_files_are_waited_for_by_reads_and_writes() -> None:
    """A failure of the system itself, in its own process; the output's disk fails with it."""
    code = (
        "import os, resource, threading, tfrecorder\n"
        "from tfrecorder import storage\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "def limit(number): resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))\n"
        "folders = storage.FoldersRead()\n"
        f"storage.read_source({str(PHOTOS[0])!r}, folders)\n"
        "storage.publish_bytes('out', 'a', b'old')\n"
        "for act in (lambda: len(storage.read_source(" + repr(str(PHOTOS[0])) + ", folders)[0]),\n"
        "            lambda: storage.publish_bytes('out', 'a', b'new')):\n"
        "    limit(len(os.listdir('/proc/self/fd')) - 1)\n"
        "    timer = threading.Timer(1, limit, [soft]); timer.start()\n"
        "    print(act()); timer.join()\n"
        "print(open('out/a').read())\n"
    )
    ended = run("-c", code)
    assert ended.stdout.split() == [str(PHOTOS[0].stat().st_size), "None", "new"], ended.stderr


def test_read_rejects_of_older_datasets_are_tried_again() -> None:
    frame = make_images(Path("images"), 20)
    image = Path.cwd() / frame["image_uri"][7]
    image.rename("kept")
    written(frame, num_shards=1)
    done = Path("out/_tfrecorder/done/train-00000.json")
    # As a version wrote it for which a time-out was a reject.
    done.write_text(done.read_text().replace("read/not_found", "read/read_failed"))
    Path("kept").rename(image)
    assert tfrecorder.convert(frame, "out", num_shards=1).rejects == {}


# -------------------------------------------------------------------------------- people who wait


@pytest.mark.slow
@pytest.mark.parametrize("out", ["out", OUT])
@pytest.mark.parametrize("moment", ["images", "before the launch"])
def test_ctrl_c_is_heard_while_everything_waits(
    gcs: Gcs, tmp_path: Path, out: str, moment: str
) -> None:
    uris = [f"gs://bkt/in/{row}.jpg" for row in range(200)]
    for row, uri in enumerate(uris):
        gcs.put(uri, PHOTOS[row % len(PHOTOS)].read_bytes())
    pd.DataFrame({"split": "TRAIN", "image_uri": uris}).to_csv(tmp_path / "a.csv", index=False)
    code = f"import tfrecorder\ntfrecorder.convert('a.csv', {out!r}, num_shards=2)"
    gcs.inject("stall", seconds=0.05, operation="download", object="bkt/in/*")
    process = start(code, cwd=tmp_path)
    seen = OPENED_ROWS + 20 if moment == "images" else 20
    wait_for(lambda: gcs.count("download", "bkt/in/*") > seen)
    gcs.mend()
    gcs.inject("status", status=503)
    time.sleep(3)  # so that every thread pauses for seconds
    words = end_by_ctrl_c(process, seconds=8)
    assert "Run the same conversion again to continue" in words.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_bar_says_that_it_waits_and_for_what(gcs: Gcs, tmp_path: Path, workers: int) -> None:
    uris = [f"gs://bkt/in/{row}.jpg" for row in range(400)]
    for row, uri in enumerate(uris):
        gcs.put(uri, PHOTOS[row % len(PHOTOS)].read_bytes())
    pd.DataFrame({"split": "TRAIN", "image_uri": uris}).to_csv(tmp_path / "a.csv", index=False)
    code = (
        "import tfrecorder\n"
        "print(tfrecorder.convert('a.csv', 'out', num_shards=4, progress=True, "
        f"num_workers={workers}).records)"
    )
    gcs.inject("stall", seconds=0.05, operation="download")
    process = start(code, cwd=tmp_path)
    wait_for(lambda: gcs.count("download") > OPENED_ROWS + 50)
    gcs.mend()
    gcs.inject("status", status=429)
    time.sleep(8)
    gcs.mend()
    told, words = process.communicate(timeout=60)
    assert told == "400\n", words
    assert "Waiting for gs://bkt (" in words
    assert " s so far): 429 The rate limit is exceeded" in words
    assert "Waiting" not in words.splitlines()[-1].split("\r")[-1], "the last look"


@pytest.mark.slow
def test_what_looks_at_a_dataset_waits_too_and_says_so(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tfrecorder.convert(CSV, OUT, num_shards=2)
    shorten_pauses(monkeypatch, 1 / 12)
    for look in (tfrecorder.status, tfrecorder.info, tfrecorder.verify, tfrecorder.repair):
        forget_services()
        caplog.clear()
        gcs.inject("status", status=503)
        with soon(gcs.mend, seconds=1), caplog.at_level(logging.WARNING, "tfrecorder"):
            look(OUT)
        assert [one.message.partition(" (")[0] for one in caplog.records] == [
            "Waiting for gs://bkt"
        ], look


@pytest.mark.slow
def test_a_wait_is_printed_where_nobody_has_configured_a_log(gcs: Gcs) -> None:
    tfrecorder.convert(CSV, OUT, num_shards=1)
    gcs.inject("status", status=503)

    def mend() -> None:
        wait_for(lambda: gcs.count(outcome="503"))
        time.sleep(5)
        gcs.mend()

    with soon(mend, seconds=0):
        ended = run("-m", "tfrecorder", "status", OUT)
    assert ended.returncode == 0
    assert ended.stderr.startswith("Waiting for gs://bkt (")
    assert ended.stderr.count("\n") == 1


def test_a_bucket_that_is_away_before_the_launch_leaves_nothing(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch)
    gcs.inject("status", status=503)
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": ["gs://bkt/a.jpg"]})
    words = error_of(ImagesUnreachableError, frame)
    assert words.startswith("gs://bkt/a.jpg could not be reached for ")
    assert words.endswith("Nothing was written.")

"""Sizes that a bucket is asked for before the launch: the number of shards follows from them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from services.gcs.control import Gcs
from support import PHOTOS, error_of, shorten_patience, shorten_pauses

import tfrecorder
from tfrecorder.errors import ImagesUnreachableError, OutputError

pytest_plugins = ["services.gcs.fixtures"]

OUT = "gs://bkt/out"
IMAGES = "bkt/in/*"
ROWS = 40
#: Requests that a process makes at the same time.
THREADS = 16
#: Of these the sizes make more shards than a small data set gets anyway.
SMALL = {"shard_size": "256KB"}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked for again at once."""
    shorten_pauses(monkeypatch)


@pytest.fixture
def frame(gcs: Gcs) -> pd.DataFrame:
    """A frame of photographs on gs://, and one large object that would make many shards."""
    uris = [f"gs://bkt/in/{number}.jpg" for number in range(ROWS)]
    for uri, path in zip(uris, PHOTOS * ROWS, strict=False):
        gcs.put(uri, path.read_bytes())
    gcs.put(uris[-1], PHOTOS[0].read_bytes() + bytes(2_000_000))
    return pd.DataFrame({"split": "TRAIN", "image_uri": uris})


@pytest.fixture
def calm(frame: pd.DataFrame, gcs: Gcs, tmp_path: Path) -> int:
    """The number of shards where nothing fails."""
    result = tfrecorder.convert(frame, tmp_path / "calm", **SMALL)
    gcs.forget_requests()
    return result.splits["TRAIN"].shards


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [{"kind": "status", "status": 503}, {"kind": "reset"}, {"kind": "cut"}, {"kind": "flip"}],
    ids=str,
)
def test_sizes_that_fail_in_passing_do_not_change_the_shards(
    gcs: Gcs, frame: pd.DataFrame, calm: int, fault: dict[str, object]
) -> None:
    gcs.inject(operation="metadata", object=IMAGES, times=3, each=True, **fault)
    result = tfrecorder.convert(frame, OUT, **SMALL)
    assert gcs.count("metadata", IMAGES) == 4 * ROWS
    assert result.splits["TRAIN"].shards == calm > 8


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, ROWS - 1])
def test_a_size_that_is_never_told_ends_the_conversion_before_anything_is_written(
    gcs: Gcs, frame: pd.DataFrame, calm: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch)
    bad = f"bkt/in/{number}.jpg"
    gcs.inject("status", status=503, operation="metadata", object=bad)
    message = error_of(ImagesUnreachableError, frame, OUT, **SMALL)
    assert f"gs://{bad} could not be reached for" in message
    assert "503" in message
    assert "Nothing was written." in message
    assert gcs.names(OUT) == []
    gcs.mend()
    assert tfrecorder.convert(frame, OUT, **SMALL).splits["TRAIN"].shards == calm


@pytest.mark.slow
@pytest.mark.parametrize("status", [403, 404])
def test_an_image_without_a_size_is_a_reject_like_any_other(
    gcs: Gcs, frame: pd.DataFrame, status: int
) -> None:
    gcs.inject("status", status=status, object="bkt/in/7.jpg")
    result = tfrecorder.convert(frame, OUT, **SMALL)
    code = {403: "no_permission", 404: "not_found"}[status]
    assert result.rejects == {f"read/{code}": 1}
    assert gcs.count("metadata", "bkt/in/7.jpg") == 1


@pytest.mark.slow
def test_sizes_are_asked_for_only_where_shards_follow_from_them(
    gcs: Gcs, frame: pd.DataFrame, calm: int
) -> None:
    gcs.inject("status", status=403, operation="upload", object="*train-00003.tfrecord")
    error_of(OutputError, frame, OUT, **SMALL)
    assert gcs.count("metadata", IMAGES) == ROWS
    gcs.mend()
    gcs.forget_requests()
    # What was begun goes on, with the shards that it has, though a size cannot be had now.
    gcs.inject("status", status=403, operation="metadata", object="bkt/in/0.jpg")
    assert tfrecorder.convert(frame, OUT, **SMALL).splits["TRAIN"].shards == calm
    tfrecorder.convert(frame, f"{OUT}-told", num_shards=2)
    assert gcs.count("metadata", IMAGES) == 0


def test_a_bucket_that_is_down_is_noticed_soon_whoever_decides_the_shards(
    gcs: Gcs, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_patience(monkeypatch)
    gcs.inject("status", status=503, object=IMAGES)
    for more in (SMALL, {"num_shards": 2}):
        gcs.forget_requests()
        message = error_of(ImagesUnreachableError, frame, OUT, **more)
        assert "could not be reached for" in message
        # Each thread asks for one image as long as the patience lasts, and may begin another.
        assert 0 < len(gcs.asked(IMAGES)) <= 2 * THREADS < ROWS
    assert gcs.names(OUT) == []

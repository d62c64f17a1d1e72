"""Datasets on s3:// and az://, made, read and grown, against moto and Azurite on loopback."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.growing_cases import QUIET, table, timeless
from helpers.public_types import ConversionResult
from helpers.streaming_cases import TO_ITS_END, Numbered
from support import (
    CSV,
    PHOTOS,
    SAMPLES,
    content_of,
    error_of,
    photo_frame,
    public_files,
    put,
    run,
    shorten_patience,
    shorten_pauses,
)

import tfrecorder
from services.objects.control import S3
from tfrecorder.errors import OutputError, UnreachableError

pytest_plugins = ["services.objects.fixtures"]

SHARDS = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}  # those of the fixture `dataset`
SOURCE = "s3://bkt/photos.csv"
OUT = "s3://bkt/sets/out"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked for again at once."""
    shorten_pauses(monkeypatch)


@pytest.fixture
def photos(s3: S3) -> S3:
    """A server that holds the bundled photographs with their CSV."""
    s3.put(SOURCE, CSV.read_bytes())
    s3.put_folder("s3://bkt/photos", SAMPLES / "photos")
    return s3


def convert(**options: Any) -> ConversionResult:
    return tfrecorder.convert(SOURCE, OUT, num_shards=SHARDS, **QUIET, **options)


@pytest.mark.slow
def test_source_images_and_output_on_s3(photos: S3, dataset: Path) -> None:
    result = convert()
    assert photos.files(OUT) == public_files(dataset), "the local conversion's bytes"
    assert (result.records, result.rejects, result.retries) == (len(PHOTOS), {}, 0)
    left = {name.split("/")[3] for name in photos.names(f"{OUT}/_tfrecorder/")}
    assert not left & {"tmp", "progress", "failure.json", "lock"}
    assert tfrecorder.verify(OUT, progress=False).ok
    assert tfrecorder.info(OUT).records == len(PHOTOS)
    assert tfrecorder.status(OUT).committed
    photos.forget_requests()
    assert convert().was_finished
    assert photos.count("PUT") == 0


@pytest.mark.slow
def test_the_same_on_azure(azure: str, dataset: Path) -> None:
    put(azure, "photos.csv", CSV.read_bytes())
    for path in PHOTOS:
        name = path.relative_to(SAMPLES).as_posix()
        put(azure, name, path.read_bytes())
    out = f"{azure}/sets/out"
    result = tfrecorder.convert(f"{azure}/photos.csv", out, num_shards=SHARDS, **QUIET)
    assert result.records == len(PHOTOS)
    for name, data in public_files(dataset).items():
        assert content_of(f"{out}/{name}") == data
    assert tfrecorder.verify(out, progress=False).ok
    assert len(tfrecorder.Records(out, "TRAIN", decode=False)) == 36
    tfrecorder.convert(CSV, out, num_shards=1, overwrite=True, **QUIET)
    assert tfrecorder.verify(out, progress=False).ok
    assert tfrecorder.append(table(0, 4), out, **QUIET).rows_there == 4
    assert tfrecorder.append(table(0, 4), out, duplicates="keep", **QUIET).records == 4


@pytest.mark.slow
def test_a_folder_is_a_source(photos: S3, tmp_path: Path) -> None:
    photos.put("s3://bkt/photos/", b"")
    photos.put("s3://bkt/photos/cat/", b"")
    tfrecorder.convert("s3://bkt/photos/", OUT, **QUIET)
    tfrecorder.convert(SAMPLES / "photos", tmp_path / "local", **QUIET)
    assert photos.files(OUT) == public_files(tmp_path / "local")


@pytest.mark.slow
def test_worker_processes_and_the_command_line(photos: S3, dataset: Path) -> None:
    shards = ",".join(f"{name}={count}" for name, count in SHARDS.items())
    options = ("--num-shards", shards, "--num-workers", 2)
    done = run("-m", "tfrecorder", "convert", SOURCE, OUT, *options)
    assert done.returncode == 0, done.stderr
    assert photos.files(OUT) == public_files(dataset)
    told = run("-m", "tfrecorder", "info", OUT)
    assert told.returncode == 0, told.stderr


@pytest.mark.slow
def test_parts_on_several_machines(photos: S3, dataset: Path) -> None:
    tfrecorder.parts.stage(SOURCE, OUT, num_shards=SHARDS)
    for number in (2, 1):
        tfrecorder.parts.work(OUT, part=(number, 2), progress=False)
    tfrecorder.parts.commit(OUT)
    assert photos.files(OUT) == public_files(dataset)


@pytest.mark.slow
def test_nothing_is_lost_where_requests_fail_in_passing(photos: S3, dataset: Path) -> None:
    photos.inject("status", method="GET", path="/bkt/photos/*", times=5)
    photos.inject("drop", method="GET", path="/bkt/photos/*", times=5)
    photos.inject("status", method="PUT", times=5, after=True)
    photos.inject("drop", method="PUT", path="*.tfrecord", times=2)
    result = convert()
    assert not result.rejects
    assert photos.files(OUT) == public_files(dataset)
    assert tfrecorder.verify(OUT, progress=False).ok


@pytest.mark.slow
def test_what_was_interrupted_goes_on(photos: S3, dataset: Path) -> None:
    photos.refuse(403, "AccessDenied", method="PUT", path="*/train-00001.tfrecord")
    assert "AccessDenied" in error_of(OutputError, SOURCE, OUT, num_shards=SHARDS, **QUIET)
    photos.mend()
    kept = {name for name in photos.names(OUT) if name.endswith(".json") and "/done/" in name}
    photos.forget_requests()
    assert convert().records == len(PHOTOS)
    again = {path for method, path, _ in photos.requests() if method == "PUT" and "/done/" in path}
    assert kept
    assert not {f"/bkt/{name}" for name in kept} & again
    assert photos.files(OUT) == public_files(dataset)


@pytest.mark.slow
def test_another_plan_is_refused_and_an_overwrite_replaces_all(photos: S3) -> None:
    convert()
    words = error_of(OutputError, SOURCE, OUT, num_shards=1, **QUIET)
    assert "overwrite=True" in words
    tfrecorder.convert(SOURCE, OUT, num_shards=1, overwrite=True, **QUIET)
    assert sum(name.endswith(".tfrecord") for name in photos.names(OUT)) == 3
    assert tfrecorder.verify(OUT, progress=False).ok


@pytest.mark.slow
def test_damage_is_found_and_repaired(photos: S3) -> None:
    convert()
    shard = f"{OUT}/train-00000.tfrecord"
    photos.put(shard, photos.get(shard)[:-1] + b"x")
    report = tfrecorder.verify(OUT, progress=False)
    assert not report.ok
    assert tfrecorder.repair(OUT, progress=False).files == ("train-00000.tfrecord",)
    assert tfrecorder.verify(OUT, progress=False).ok


def test_rows_whose_images_may_not_be_read_are_rejects(s3: S3) -> None:
    for number in range(12):
        s3.put(f"s3://bkt/{number}.jpg", PHOTOS[number].read_bytes())
    s3.refuse(403, "AccessDenied", path="/bkt/3.jpg")
    frame = photo_frame(12).assign(image_uri=[f"s3://bkt/{number}.jpg" for number in range(12)])
    result = tfrecorder.convert(frame, "out", num_shards=1)
    assert result.records == 11
    assert result.rejects == {"read/no_permission": 1}


def test_a_bucket_that_is_not_there(s3: S3) -> None:
    assert "NoSuchBucket" in error_of(OutputError, photo_frame(2), "s3://nowhere/out")


def test_credentials_that_are_refused_are_no_rejects(photos: S3) -> None:
    photos.refuse(403, "InvalidAccessKeyId", method="GET", path="/bkt/photos/*")
    words = error_of(tfrecorder.TfrecorderError, SOURCE, "out", **QUIET)
    assert "set AWS_PROFILE, or AWS_ACCESS_KEY_ID" in words
    assert not list(Path("out").glob("*.tfrecord"))


@pytest.mark.slow
def test_records_and_batches_are_read_by_ranges(photos: S3, dataset: Path) -> None:
    convert()
    photos.forget_requests()
    local = tfrecorder.Records(dataset, "TRAIN", inputs="all", decode=False)
    there = tfrecorder.Records(OUT, "TRAIN", inputs="all", decode=False)
    assert there[[30, 2, 17, 18, 2]] == local[[30, 2, 17, 18, 2]]
    assert pickle.loads(pickle.dumps(there))[7] == local[7]
    assert list(there) == list(local)
    options: dict[str, Any] = {"batch_size": 7, "image_size": 30, "seed": 3}
    pairs = zip(
        tfrecorder.batches(OUT, "TRAIN", **options),
        tfrecorder.batches(dataset, "TRAIN", **options),
        strict=True,
    )
    for (images, labels), (same_images, same_labels) in pairs:
        np.testing.assert_array_equal(images, same_images)
        np.testing.assert_array_equal(labels, same_labels)
    assert len(tfrecorder.to_frame(OUT)) == len(PHOTOS)


@pytest.mark.slow
def test_a_dataset_grows(photos: S3) -> None:
    tfrecorder.convert(table(0, 12), OUT, num_shards=2, **QUIET)
    assert tfrecorder.append(table(0, 20), OUT, **QUIET).records == 8
    tfrecorder.convert(table(0, 12), "out", num_shards=2, **QUIET)
    tfrecorder.append(table(0, 20), "out", **QUIET)
    below = [path for path in Path("out").rglob("*") if path.is_file() and path.name != "lock"]
    here = {path.relative_to("out").as_posix(): path.read_bytes() for path in below}
    names = [name.removeprefix("sets/out/") for name in photos.names(f"{OUT}/")]
    there = {name: photos.get(f"{OUT}/{name}") for name in names}
    assert timeless(there) == timeless(here)
    assert tfrecorder.append(table(0, 20), OUT, **QUIET).was_finished
    assert tfrecorder.verify(OUT, progress=False).ok


@pytest.mark.slow
def test_a_stream_counts_each_row_once(s3: S3) -> None:
    tfrecorder.stream(Numbered(20), OUT, every_rows=10, **TO_ITS_END)
    s3.inject("status", method="PUT", after=True, times=4)
    tfrecorder.stream(Numbered(40), OUT, every_rows=10, **TO_ITS_END)
    tfrecorder.stream(Numbered(40), "out", every_rows=10, **TO_ITS_END)
    there, here = (sorted(tfrecorder.to_frame(out)["image_uri"]) for out in (OUT, "out"))
    assert there == here
    assert len(set(there)) == len(there) == 28
    assert not [name for name in s3.names(f"{OUT}/") if "/spool/" in name]
    assert tfrecorder.verify(OUT, progress=False).ok


def test_a_bucket_that_fails_for_good_is_named(photos: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_patience(monkeypatch)
    photos.inject("status", status=503, method="GET", path="/bkt/photos.csv")
    with pytest.raises(UnreachableError, match=r"s3://bkt/photos.csv could not be reached.*503"):
        convert()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_bucket_where_nobody_may_delete_is_refused_before_the_first_image(photos: S3) -> None:
    photos.forget_requests()
    photos.refuse(403, "AccessDenied", method="POST|DELETE")
    for _ in range(2):  # also where a probe stands
        with pytest.raises(OutputError, match=r"_tfrecorder/probe: .*403(.|\n)*replace and delete"):
            convert()
    assert photos.count("GET", "/bkt/photos/") == 0
    photos.mend()
    assert convert().records == 52
    assert tfrecorder.verify(OUT, progress=False).ok

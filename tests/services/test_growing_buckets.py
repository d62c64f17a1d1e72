"""Appending to a dataset in a bucket, against a loopback server."""

from __future__ import annotations

import contextlib
import io
import itertools
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers.growing_cases import QUIET, table, timeless
from support import PHOTOS, shorten_pauses

import tfrecorder
from services.gcs.control import Gcs
from tfrecorder.errors import OutputError

pytest_plugins = ["services.gcs.fixtures"]

OUT = "gs://bkt/sets/out"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may pass is asked for again at once."""
    shorten_pauses(monkeypatch)


@pytest.fixture
def grown(gcs: Gcs) -> Gcs:
    tfrecorder.convert(table(0, 12), OUT, num_shards=2, **QUIET)
    return gcs


def local_files(directory: str) -> dict[str, bytes]:
    paths = [path for path in Path(directory).rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def files_in(gcs: Gcs) -> dict[str, bytes]:
    names = gcs.names(f"{OUT}/")
    return {name.removeprefix("sets/out/"): gcs.get(f"gs://bkt/{name}") for name in names}


@pytest.mark.slow
def test_a_bucket_holds_the_bytes_of_a_disk(grown: Gcs) -> None:
    tfrecorder.append(table(0, 20), OUT, **QUIET)
    tfrecorder.convert(table(0, 12), "out", num_shards=2, **QUIET)
    tfrecorder.append(table(0, 20), "out", **QUIET)
    assert timeless(files_in(grown)) == timeless(local_files("out"))
    assert tfrecorder.info(OUT).records == 20
    assert tfrecorder.info(OUT, at=0).records == 12
    assert tfrecorder.generations(OUT) == [1, 0]
    assert len(tfrecorder.Records(OUT, "TRAIN", decode=False)) == 20
    assert tfrecorder.verify(OUT, progress=False).ok
    assert tfrecorder.append(table(0, 20), OUT, **QUIET).was_finished


def test_images_in_a_bucket_are_known_by_their_uris(gcs: Gcs) -> None:
    for day in ("mon", "tue"):
        gcs.put(f"gs://bkt/photos/{day}/a.jpg", PHOTOS[day == "tue"].read_bytes())
    rows = pd.DataFrame({"image_uri": ["a.jpg"], "split": "TRAIN"})
    tfrecorder.convert(rows, OUT, base="gs://bkt/photos/mon", **QUIET)
    more = {"base": "gs://bkt/photos/tue/", **QUIET}
    assert tfrecorder.append(rows, OUT, **more).records == 1
    for uri in ("a.jpg", "gs://bkt/photos/mon/a.jpg", "GS://bkt/photos/mon/a.jpg"):
        assert tfrecorder.append(rows.assign(image_uri=uri), OUT, **more).rows_there == 1


def _photos(gcs: Gcs, folder: str, names: list[str]) -> pd.DataFrame:
    """The first photographs under these names, in a folder of a bucket."""
    for name, photo in zip(names, PHOTOS, strict=False):
        gcs.put(f"gs://bkt/{folder}/{name}", photo.read_bytes())
    uris = [f"gs://bkt/{folder}/{name}" for name in names]
    return pd.DataFrame({"image_uri": uris, "split": "TRAIN", "label": "a"})


@pytest.mark.slow
def test_the_bytes_of_images_in_a_bucket_are_compared_without_reading_them(gcs: Gcs) -> None:
    tfrecorder.convert(_photos(gcs, "old", ["a.jpg", "b.jpg"]), OUT, **QUIET)
    rows = _photos(gcs, "new", ["0.jpg", "1.jpg", "2.jpg"])
    gcs.forget_requests()
    report = tfrecorder.validate(rows, against=OUT)
    assert report["code"].tolist() == ["same_bytes"] * 2
    assert report["message"][0] == "'gs://bkt/new/0.jpg' is 'gs://bkt/old/a.jpg' in TRAIN"
    assert gcs.count("download", "*/new/*") == 0
    result = tfrecorder.append(rows, OUT, duplicates="content", **QUIET)
    assert (result.records, result.rows_there) == (1, 2)


@pytest.mark.slow
def test_many_new_images_of_a_folder_in_a_bucket_are_listed_not_asked_for(gcs: Gcs) -> None:
    tfrecorder.convert(_photos(gcs, "old", ["a.jpg"]), OUT, **QUIET)
    gcs.put("gs://bkt/new/0007.jpg", PHOTOS[0].read_bytes())
    uris = [f"gs://bkt/new/{number:04d}.jpg" for number in range(2000)]
    rows = pd.DataFrame({"image_uri": uris, "split": "TRAIN", "label": "a"})
    gcs.forget_requests()
    report = tfrecorder.validate(rows, against=OUT)
    assert report[["code", "row"]].to_numpy().tolist() == [["same_bytes", 7]]
    assert gcs.count("*", "*/new/*.jpg") == 0
    assert gcs.count("list") <= 3


@pytest.mark.slow
def test_opening_costs_one_listing_and_one_manifest_however_often_it_grew(grown: Gcs) -> None:
    for rows in (14, 16):
        tfrecorder.append(table(0, rows), OUT, **QUIET)
    grown.forget_requests()
    tfrecorder.Records(OUT, "TRAIN")
    assert (grown.count("list"), grown.count("download", "*/commits/*")) == (1, 1)
    grown.forget_requests()
    tfrecorder.Records(OUT, "TRAIN", at=0)
    assert (grown.count("list"), grown.count("download", "*/commits/*")) == (1, 2)


@pytest.mark.slow
def test_of_two_appends_at_once_one_has_the_number(
    grown: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_planned, written = threading.Barrier(2), itertools.count()
    open_writer = pq.ParquetWriter.__init__

    def staged_together(*given: Any, **more: Any) -> None:
        """At the rows of the plan, which is what is written first."""
        if next(written) < 2:
            both_planned.wait(60)
        open_writer(*given, **more)

    monkeypatch.setattr(pq.ParquetWriter, "__init__", staged_together)
    errors: list[str] = []

    def add(first: int) -> None:
        try:
            tfrecorder.append(table(first, 4), OUT, **QUIET)
        except OutputError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=add, args=(first,)) for first in (12, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors, "both have the same number"
    assert all("\n" not in words for words in errors)
    monkeypatch.undo()
    for first in (12, 20, 12):  # of which one must be run again before the other
        with contextlib.suppress(OutputError):
            tfrecorder.append(table(first, 4), OUT, **QUIET)
    assert [one.records for one in tfrecorder.info(OUT).generations.values()] == [12, 4, 4]
    assert tfrecorder.verify(OUT, progress=False).ok


@pytest.mark.slow
@pytest.mark.parametrize("first", [12, 16])  # the same rows, others
def test_what_another_append_began_meanwhile_stays_as_it_is(grown: Gcs, first: int) -> None:
    """On a bucket nothing is locked while a table is read, which may take long."""

    class Meanwhile(io.StringIO):
        def read(self, *given: Any) -> str:
            if not self.tell():
                tfrecorder.append(table(first, 4), OUT, stage_only=True, num_shards=2, **QUIET)
                tfrecorder.parts.work(OUT, part=(1, 2), progress=False)
            return super().read(*given)

    text = table(12, 4).to_csv(index=False)
    given = {"num_shards": 2, **QUIET}
    if first == 12:
        assert tfrecorder.append(Meanwhile(text), OUT, **given).shards_before == 1
    else:
        with pytest.raises(OutputError, match="an unfinished append: run the same append again"):
            tfrecorder.append(Meanwhile(text), OUT, **given)
        assert tfrecorder.parts.work(OUT, part=(1, 2), progress=False).shards_before == 1
        tfrecorder.parts.work(OUT, part=(2, 2), progress=False)
        tfrecorder.parts.commit(OUT)
    assert tfrecorder.info(OUT).records == 16
    assert tfrecorder.verify(OUT, progress=False).ok

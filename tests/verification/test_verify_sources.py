"""`verify(sources=True)`: which source files are not those that were converted."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
from helpers.growing_cases import QUIET, drawn, table
from services.gcs.control import Gcs
from services.objects.control import S3
from support import PHOTOS, invoke, list_folders_of, records, shorten_patience

import tfrecorder
from tfrecorder.errors import UnreachableError

pytest_plugins = ["services.gcs.fixtures", "services.objects.fixtures"]


@pytest.fixture
def photos() -> pd.DataFrame:
    """Twelve photographs in the folder `photos`, converted to `out`."""
    Path("photos").mkdir()
    for number in range(12):
        shutil.copy(PHOTOS[number], f"photos/{number}.jpg")
    uris = [f"photos/{number}.jpg" for number in range(12)]
    frame = pd.DataFrame({"split": ["TRAIN", "TEST"] * 6, "image_uri": uris, "label": "x"})
    frame.to_csv("all.csv", index=False)
    tfrecorder.convert("all.csv", "out", num_shards=2, **QUIET)
    return frame


def others(out: str = "out") -> dict[str, str]:
    """The code of each source file that is not as it was, by its uri."""
    report = tfrecorder.verify(out, sources=True, **QUIET)
    assert report.ok == report.faults.empty
    uris = report.faults["message"].str.extract(r"'(.*?)'")[0]
    return dict(zip(uris, report.faults["code"], strict=True))


def edit(path: str) -> None:
    """Change one byte; the size stays."""
    data = bytearray(Path(path).read_bytes())
    data[-3] ^= 1
    Path(path).write_bytes(data)


# ---------------------------------------------------------------------------------------------
# On a disk.


def test_what_changed_vanished_and_was_replaced_is_named(photos: pd.DataFrame) -> None:
    assert others() == {}
    edit("photos/0.jpg")
    shutil.copy(PHOTOS[30], "photos/1.jpg")
    Path("photos/2.jpg").unlink()
    Path("photos/3.jpg").unlink()
    Path("photos/3.jpg").mkdir()
    changed, vanished = "source_changed", "source_vanished"
    assert others() == {
        "photos/0.jpg": changed,
        "photos/1.jpg": changed,
        "photos/2.jpg": vanished,
        "photos/3.jpg": vanished,
    }
    report = tfrecorder.verify("out", sources=True, **QUIET)
    assert report.sources == {
        "compared": 12,
        "changed": 2,
        "vanished": 2,
        "unreadable": 0,
        "from_bytes": 0,
        "unknown": 0,
    }
    assert tfrecorder.verify("out", **QUIET).ok


def test_each_is_named_with_its_record(photos: pd.DataFrame) -> None:
    for number in range(12):
        edit(f"photos/{number}.jpg")
    for row in tfrecorder.verify("out", sources=True, **QUIET).faults.itertuples():
        record = records("out", row.file.removesuffix(".tfrecord"))[row.record]
        assert f"row {record['image/source_id'].decode()}," in row.message
        assert record["image/filename"].decode() in row.message
        index = Path("out/_tfrecorder/index", f"{row.file}.idx").read_text().splitlines()
        assert index[row.record].startswith(f"{row.offset} ")


def test_the_bytes_decide_where_only_the_time_is_another(photos: pd.DataFrame) -> None:
    os.utime("photos/0.jpg", (1, 1))
    shutil.copy(PHOTOS[1], "photos/1.jpg")
    Path("photos").rename("away")
    shutil.copytree("away", "photos", copy_function=shutil.copyfile)
    assert others() == {}


def test_a_file_with_its_size_and_time_is_not_read(photos: pd.DataFrame) -> None:
    """What is said of the time in the docs: only who sets it back can deceive it."""
    status = os.stat("photos/0.jpg")
    edit("photos/0.jpg")
    os.utime("photos/0.jpg", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert others() == {}


@pytest.mark.slow
def test_a_dataset_that_was_copied_or_compacted_or_appended_to_knows_its_sources(
    photos: pd.DataFrame,
) -> None:
    tfrecorder.append(table(20, 3), "out", **QUIET)
    edit("photos/5.jpg")
    shutil.copytree("out", "copy", copy_function=shutil.copyfile)
    tfrecorder.compact("out", "compacted", **QUIET)
    tfrecorder.compact("out", **QUIET)
    for out in ("out", "copy", "compacted"):
        assert others(out) == {"photos/5.jpg": "source_changed"}, out
        assert tfrecorder.verify(out, sources=True, **QUIET).sources["compared"] == 15


@pytest.mark.slow
def test_an_update_keeps_what_is_known_and_reads_again_if_asked(photos: pd.DataFrame) -> None:
    shutil.copy(PHOTOS[30], "photos/3.jpg")
    Path("photos/4.jpg").unlink()
    before = {"photos/3.jpg": "source_changed", "photos/4.jpg": "source_vanished"}
    frame = photos.assign(label=["x"] * 3 + ["y"] * 9)
    assert tfrecorder.update(frame, "out", **QUIET).changes.corrected == 9
    assert others() == before
    tfrecorder.undo("out")
    assert others() == before
    tfrecorder.update(frame, "out", reread=True, **QUIET)
    assert others() == {"photos/4.jpg": "source_vanished"}


def test_only_records_have_a_source() -> None:
    Path("a.jpg").write_bytes(b"no image")
    frame = pd.concat([table(0, 3), table(3, 2).assign(image_uri=["a.jpg", "gone.jpg"])])
    tfrecorder.convert(frame, "out", max_reject_fraction=1.0, **QUIET)
    Path("a.jpg").unlink()
    report = tfrecorder.verify("out", sources=True, **QUIET)
    assert (report.ok, report.sources["compared"]) == (True, 3)


def test_images_that_came_as_bytes_are_counted() -> None:
    frame = table(0, 6).astype({"image_uri": object})
    frame.loc[:1, "image_uri"] = [path.read_bytes() for path in PHOTOS[:2]]
    tfrecorder.convert(frame, "out", **QUIET)
    report = tfrecorder.verify("out", sources=True, **QUIET)
    assert (report.ok, report.sources["compared"], report.sources["from_bytes"]) == (True, 4, 2)
    assert "source files: 4 compared, 2 from bytes" in str(report)


def test_masks_and_every_image_of_a_row_are_compared() -> None:
    images, masks = drawn("images", 3, (20, 10)), drawn("masks", 3, (20, 10), "L")
    schema = tfrecorder.schema.Schema(
        split=tfrecorder.schema.Split(),
        left_uri=tfrecorder.schema.Image(),
        right_uri=tfrecorder.schema.Image(),
        mask_uri=tfrecorder.schema.Mask(of="left_uri"),
    )
    frame = pd.DataFrame({"split": "TRAIN", "left_uri": images, "right_uri": images[::-1]})
    tfrecorder.convert(frame.assign(mask_uri=masks), "out", schema=schema, **QUIET)
    Path(masks[1]).unlink()
    Path(images[0]).write_bytes(Path(images[1]).read_bytes())
    report = tfrecorder.verify("out", sources=True, **QUIET)
    assert (report.sources["compared"], report.sources["changed"]) == (9, 2)
    assert report.faults["code"].tolist().count("source_vanished") == 1


def test_a_dataset_without_images_has_no_sources() -> None:
    frame = pd.DataFrame({"split": "TRAIN", "x": [1.0, 2.0]})
    schema = tfrecorder.schema.Schema(split=tfrecorder.schema.Split(), x=tfrecorder.schema.Number())
    tfrecorder.convert(frame, "out", schema=schema, **QUIET)
    report = tfrecorder.verify("out", sources=True, **QUIET)
    assert (report.ok, report.sources["compared"]) == (True, 0)


@pytest.mark.parametrize("options", [{}, {"short_side": 8}], ids=str)
def test_a_damaged_table_is_one_fault_and_one_made_again_knows_files_that_it_holds(
    photos: pd.DataFrame, options: dict[str, int]
) -> None:
    if options:
        tfrecorder.convert(photos, "out", overwrite=True, num_shards=4, **options, **QUIET)
    min(Path("out/_tfrecorder/tables").iterdir()).unlink()
    report = tfrecorder.verify("out", sources=True, **QUIET)
    assert [fault.code for fault in report.found] == ["missing"]
    rows = 12 - report.sources["compared"]
    tfrecorder.repair("out", **QUIET)
    report = tfrecorder.verify("out", sources=True, **QUIET)
    assert report.ok
    unknown = rows if options else 0
    assert (report.sources["compared"], report.sources["unknown"]) == (12 - unknown, unknown)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_no_vanished_one(photos: pd.DataFrame) -> None:
    edit("photos/0.jpg")
    Path("photos/0.jpg").chmod(0)
    assert others() == {"photos/0.jpg": "source_unreadable"}


def test_words_and_exit_code_on_the_command_line(photos: pd.DataFrame) -> None:
    finished = invoke("verify", "out", "--sources")
    assert finished.exit_code == 0
    assert "source files: 12 compared" in finished.stdout
    edit("photos/0.jpg")
    Path("photos/1.jpg").unlink()
    finished = invoke("verify", "out", "--sources")
    assert finished.exit_code == 1
    assert "source files: 12 compared, 1 changed, 1 vanished" in finished.stdout
    assert "`update` with --reread converts source files" in finished.stdout
    assert "tfrecorder repair" not in finished.stdout
    listed = pd.read_csv(io.StringIO(invoke("verify", "out", "--sources", "--csv").stdout))
    assert {*listed["code"]} == {"source_changed", "source_vanished"}
    assert '"changed": 1' in invoke("verify", "out", "--sources", "--json").stdout


# ---------------------------------------------------------------------------------------------
# In a bucket.


def in_bucket(gcs: Gcs, count: int) -> None:
    """Photographs in a folder of a bucket, converted to `out`."""
    for number in range(count):
        gcs.put(f"gs://bkt/photos/{number}.jpg", PHOTOS[number % len(PHOTOS)].read_bytes())
    uris = [f"gs://bkt/photos/{number}.jpg" for number in range(count)]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "x"})
    tfrecorder.convert(frame, "out", num_shards=3, **QUIET)
    gcs.forget_requests()


@pytest.mark.parametrize("count", [10, 120])
def test_of_a_bucket_nothing_is_read_but_what_changed(
    gcs: Gcs, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_folders_of(monkeypatch, 100)
    in_bucket(gcs, count)
    assert others() == {}
    if count == 120:
        assert (gcs.count("list"), gcs.count("metadata")) == (1, 0)
    assert gcs.count("download") == 0
    gcs.put("gs://bkt/photos/3.jpg", PHOTOS[3].read_bytes()[:-1] + b"x")
    gcs.put("gs://bkt/photos/4.jpg", PHOTOS[40].read_bytes())
    gcs.delete("gs://bkt/photos/5.jpg")
    gcs.put("gs://bkt/photos/6.jpg", PHOTOS[6].read_bytes())
    assert others() == {
        "gs://bkt/photos/3.jpg": "source_changed",
        "gs://bkt/photos/4.jpg": "source_changed",
        "gs://bkt/photos/5.jpg": "source_vanished",
    }
    assert gcs.count("download", outcome="200") == 2


@pytest.mark.slow
def test_a_folder_that_may_not_be_listed_is_asked_file_by_file(
    gcs: Gcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_folders_of(monkeypatch, 100)
    in_bucket(gcs, 110)
    gcs.inject("status", status=403, operation="list")
    assert others() == {}
    assert gcs.count("metadata") == 110


def test_a_bucket_that_is_down_is_an_error_not_a_loss(gcs: Gcs, monkeypatch) -> None:
    in_bucket(gcs, 10)
    shorten_patience(monkeypatch)
    gcs.inject("status", status=503, object="bkt/photos/7.jpg")
    with pytest.raises(UnreachableError, match=r"gs://bkt/photos/7\.jpg could not be reached"):
        tfrecorder.verify("out", sources=True, **QUIET)


def test_an_object_that_may_not_be_read_is_no_vanished_one(gcs: Gcs) -> None:
    in_bucket(gcs, 10)
    gcs.inject("status", status=403, object="bkt/photos/7.jpg")
    assert others() == {"gs://bkt/photos/7.jpg": "source_unreadable"}


def test_a_store_without_checksums_is_read(s3: S3) -> None:
    for number in range(6):
        s3.put(f"s3://bkt/photos/{number}.jpg", PHOTOS[number].read_bytes())
    uris = [f"s3://bkt/photos/{number}.jpg" for number in range(6)]
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": uris, "label": "x"})
    tfrecorder.convert(frame, "out", **QUIET)
    assert others() == {}
    s3.put("s3://bkt/photos/3.jpg", PHOTOS[3].read_bytes()[:-1] + b"x")
    assert others() == {"s3://bkt/photos/3.jpg": "source_changed"}

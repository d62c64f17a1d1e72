"""Images that come as bytes, in every form a cell may have: each once in the spool, none lost."""

from __future__ import annotations

import io
import os
import shutil
import time
import urllib.parse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from cell_cases import DATA, content, data_uri, images_of, spooled
from PIL import Image
from support import PHOTOS, done_shards, dry_run, photo_frame, public_files, records, rejects
from torture.steps import Moment, convert_until

import tfrecorder
from tfrecorder import ValidationError
from tfrecorder.errors import OutputError, RejectedError, SourceError

pytest_plugins = ["services.gcs.fixtures"]


def of_cells(cells: list[Any], **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"split": "TRAIN", "image_uri": pd.Series(cells, dtype=object), "label": "a", **columns}
    )


def of_bytes(rows: int = len(DATA)) -> pd.DataFrame:
    """The frame of `photo_frame` with the bytes of each image in the place of its path."""
    return photo_frame(rows).assign(image_uri=[DATA[row % len(DATA)] for row in range(rows)])


# -------------------------------------------------------------------------------- forms of a cell


CELLS: dict[str, Any] = {
    "bytes": DATA[0],
    "bytearray": bytearray(DATA[0]),
    "memoryview": memoryview(DATA[0]),
    "dict": {"bytes": DATA[0], "path": None},
    "data uri": data_uri(DATA[0]),
    "data uri in capitals": "DATA" + data_uri(DATA[0])[4:],
    "data uri without padding": data_uri(DATA[0]).rstrip("="),
    "data uri with escapes": "data:image/jpeg," + "".join(f"%{byte:02X}" for byte in DATA[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", CELLS)
def test_an_image_is_stored_as_it_came_under_the_name_of_its_content(form: str) -> None:
    result = tfrecorder.convert(of_cells([CELLS[form]]), "out", progress=False)
    assert (result.records, result.rejects) == (1, {})
    assert images_of("out") == {content(DATA[0]): DATA[0]}
    assert not spooled()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "%"], ids=["", "with a sign that is no escape"])
def test_escapes_in_a_data_uri_cost_little_more_than_base64(end: str) -> None:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (2500, 2500, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, "JPEG", quality=95)  # 7 MB
    escaped = f"data:image/jpeg,{urllib.parse.quote(file.getvalue())}{end}"

    def seconds(uri: str) -> float:
        began = time.process_time()
        tfrecorder.validate(of_cells([uri]), progress=False)
        return time.process_time() - began

    base64_seconds = min(seconds(data_uri(file.getvalue())) for _ in range(2))
    assert seconds(escaped) < base64_seconds + 0.6, "less than a tenth of a second a MB"


def test_a_path_that_comes_with_bytes_is_the_name_and_one_without_is_read() -> None:
    cells = [
        {"bytes": DATA[0], "path": "cats/1.jpg"},
        {"bytes": DATA[1], "path": "cats/1.jpg"},  # another image of that name
        {"bytes": DATA[2], "path": "/of/another/machine.jpg"},
        {"bytes": None, "path": str(PHOTOS[3])},
        str(PHOTOS[4]),
        PHOTOS[5],
    ]
    tfrecorder.convert(of_cells(cells), "out", shuffle=False, num_shards=1, progress=False)
    stored = [(one["image/filename"].decode(), one["image/encoded"]) for one in records("out")]
    assert stored == [
        ("cats/1.jpg", DATA[0]),
        ("cats/1.jpg", DATA[1]),
        ("/of/another/machine.jpg", DATA[2]),
        *((str(PHOTOS[row]), DATA[row]) for row in (3, 4, 5)),
    ]
    assert tfrecorder.verify("out", progress=False).ok


def test_a_picture_of_pillow_gives_its_file_or_its_exact_pixels() -> None:
    opened, loaded, changed = (Image.open(PHOTOS[row]) for row in (0, 1, 2))
    loaded.load()
    changed.putpixel((0, 0), (1, 2, 3))
    made = Image.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3))
    wide = Image.fromarray(np.arange(20, dtype=np.uint16).reshape(4, 5) * 3000)
    small = Image.open(PHOTOS[3])
    small.thumbnail((20, 20))
    pictures = [opened, loaded, changed, made, wide, small, opened]
    frame = of_cells(pictures)
    tfrecorder.convert(frame, "out", shuffle=False, num_shards=1, progress=False)
    stored = [one["image/encoded"] for one in records("out")]
    assert stored[0] == stored[6] == DATA[0]
    for picture, data in zip(pictures[1:6], stored[1:6], strict=True):
        again = Image.open(io.BytesIO(data))
        assert again.format == "PNG"
        assert np.array_equal(np.asarray(again), np.asarray(picture))
    assert frame["image_uri"][0] is opened  # the frame is as it was, and so is the picture
    assert np.asarray(opened).shape[2] == 3


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "PNG", "WEBP"])
def test_a_picture_of_several_frames_that_was_changed_is_not_its_file(kind: str) -> None:
    frames = [Image.new("L", (8, 8), shade) for shade in (10, 200)]
    file = io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:], lossless=True)
    changed, second = Image.open(file), Image.open(io.BytesIO(file.getvalue()))
    changed.putpixel((0, 0), 77 if changed.mode in "LP" else (77, 77, 77))
    second.seek(1)
    tfrecorder.convert(of_cells([changed, second]), "out", shuffle=False, num_shards=1)
    for picture, record in zip((changed, second), records("out"), strict=True):
        again = Image.open(io.BytesIO(record["image/encoded"]))
        assert np.array_equal(np.asarray(again.convert("RGB")), np.asarray(picture.convert("RGB")))


@pytest.mark.slow
def test_a_format_that_is_not_kept_becomes_a_png_as_from_a_file() -> None:
    bitmap = io.BytesIO()
    Image.open(PHOTOS[0]).save(bitmap, "BMP")
    Path("a.bmp").write_bytes(bitmap.getvalue())
    tfrecorder.convert(of_cells(["a.bmp"]), "file", progress=False)
    tfrecorder.convert(of_cells([bitmap.getvalue()]), "bytes", progress=False)
    name = content(bitmap.getvalue(), ".bmp")
    assert images_of("bytes") == {name: images_of("file")["a.bmp"]}


@pytest.mark.slow
def test_bytes_and_files_make_the_same_records_but_for_the_name() -> None:
    options = {"num_shards": 2, "image_size": 32, "progress": False}
    tfrecorder.convert(photo_frame(), "files", **options)
    tfrecorder.convert(of_bytes(), "bytes", **options)
    files, memory = records("files"), records("bytes")
    for one in (*files, *memory):
        del one["image/filename"]
    assert files == memory
    assert len(tfrecorder.Records("bytes", "TRAIN")) == len(PHOTOS)


def test_a_column_of_arrow() -> None:
    frame = of_bytes(4)
    frame["image_uri"] = frame["image_uri"].astype(pd.ArrowDtype(pa.binary()))
    tfrecorder.convert(frame, "out", progress=False)
    assert images_of("out") == {content(data): data for data in DATA[:4]}


def test_a_schema_with_an_image_and_a_mask_as_bytes() -> None:
    mask = io.BytesIO()
    Image.fromarray(np.zeros((4, 5), np.uint8)).save(mask, "PNG")
    picture = Image.fromarray(np.zeros((4, 5, 3), np.uint8))
    frame = pd.DataFrame({"split": "TRAIN", "image_uri": [picture], "mask_uri": [mask.getvalue()]})
    tfrecorder.convert(frame, "out", progress=False)
    (record,) = records("out")
    assert record["image/segmentation/class/encoded"] == mask.getvalue()
    assert record["image/segmentation/class/filename"].decode() == content(mask.getvalue(), ".png")


def test_boxes_a_row_each_belong_to_the_image_of_the_same_bytes() -> None:
    edges = {"x_min": [0.1, 0.2, 0.3], "y_min": 0.1, "x_max": 0.9, "y_max": 0.9}
    frame = of_cells([DATA[0], DATA[1], DATA[0]], **edges)
    assert tfrecorder.convert(frame, "out", progress=False).records == 2
    boxes = tfrecorder.to_frame("out").groupby("image_uri").size()
    assert boxes.to_dict() == {content(DATA[0]): 2, content(DATA[1]): 1}


@pytest.mark.slow
def test_a_csv_and_json_lines_may_hold_data_uris(tmp_path: Path) -> None:
    large = Image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 300, 3), np.uint8))
    body = io.BytesIO()
    large.save(body, "PNG")
    cells = [data_uri(body.getvalue()), data_uri(DATA[0]), str(PHOTOS[1])]
    assert len(cells[0]) > 2**17  # a reader of CSV takes no more by default
    table = pd.DataFrame({"split": "TRAIN", "image_uri": cells, "label": ["a", "b", "c"]})
    table.to_csv("headed.csv", index=False)
    table.to_csv("headless.csv", index=False, header=False)
    lines = [f'{{"imageGcsUri": "{cell}"}}\n' for cell in cells]
    Path("lines.jsonl").write_text("".join(lines))
    wanted = {content(body.getvalue(), ".png"): body.getvalue(), content(DATA[0]): DATA[0]}
    wanted[str(PHOTOS[1])] = DATA[1]
    for name in ("headed.csv", "headless.csv", "lines.jsonl"):
        out = tmp_path / f"out-{name}"
        tfrecorder.convert(name, out, splits={"TRAIN": 1.0} if "l.l" in name else None)
        assert images_of(out) == wanted, name


# ------------------------------------------------------------------------- what cannot be an image


BAD: dict[str, Any] = {
    "None": (None, "null_uri", "missing"),
    "a dict of nothing": ({"bytes": None, "path": None}, "null_uri", "missing"),
    "a number": (17, "not_text", "of type int: 17"),
    "an array": (np.zeros((2, 2)), "not_text", "an array of shape"),
    "another dict": ({"data": b"x"}, "not_text", "a dict other than"),
    "a dict of text": ({"bytes": "x", "path": "a"}, "not_text", '"bytes" are of type str'),
    "a broken uri": ("data:image/png;base64,%%%", "not_text", "not base64"),
    "half a uri": ("data:image/png;base64", "not_text", "without a comma"),
    "floating point": (Image.new("F", (2, 2)), "not_text", "PNG cannot hold floating point"),
}


@pytest.mark.parametrize("form", BAD)
def test_what_cannot_be_an_image_is_named_by_its_row(form: str) -> None:
    cell, code, words = BAD[form]
    frame = of_cells([DATA[0], cell, DATA[1]])
    report = tfrecorder.validate(frame, progress=False)
    found = report[report["code"] == code]
    assert found["row"].tolist() == [1]
    assert words in found["message"].item()
    with pytest.raises(ValidationError, match=code):
        tfrecorder.convert(frame, "out", progress=False)
    assert not Path("out").exists()


def test_bytes_that_are_no_image_are_a_reject_under_their_name() -> None:
    cells = [DATA[0], b"hello", b"", {"bytes": DATA[1][:500], "path": "cut.jpg"}, str(PHOTOS[2])]
    options = {"max_reject_fraction": 1.0, "progress": False}
    result = tfrecorder.convert(of_cells(cells), "out", **options)
    assert (result.records, sum(result.rejects.values())) == (2, 3)
    found = rejects("out").set_index("row")["image_uri"]
    assert found.to_dict() == {1: content(b"hello", ""), 2: content(b"", ""), 3: "cut.jpg"}
    assert not spooled()
    assert tfrecorder.verify("out", progress=False).ok


def test_validate_opens_the_images_in_cells_and_writes_nothing(tmp_path: Path) -> None:
    frame = of_cells([DATA[0], b"hello", DATA[1]])
    report = tfrecorder.validate(frame, check_images=True, progress=False)
    assert report.loc[report["code"] == "unusable_image", "row"].tolist() == [1]
    assert not list(tmp_path.iterdir())


def test_the_same_bytes_twice_are_the_same_image() -> None:
    frame = of_cells([DATA[0], DATA[1], DATA[0]], split=["TRAIN", "TRAIN", "TEST"])
    report = tfrecorder.validate(frame, progress=False)
    assert report.loc[report["code"] == "leakage", "row"].tolist() == [0, 2]
    unassigned = of_bytes(40).drop(columns="split")
    for _, copies in unassigned.assign(split=_splits_of(unassigned)).groupby("image_uri"):
        assert copies["split"].nunique() == 1


def _splits_of(frame: pd.DataFrame) -> list[str]:
    """The split that each row gets."""
    tfrecorder.convert(frame.assign(label="x"), "divided", progress=False)
    found = {}
    for split in ("TRAIN", "VALIDATION", "TEST"):
        found |= {int(one["image/source_id"]): split for one in records("divided", split)}
    return [found[row] for row in range(len(frame))]


# ---------------------------------------------------------------------------- nothing is written


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    frame = of_bytes()
    splits = dry_run(frame)["splits"]
    assert not list(tmp_path.iterdir())
    result = tfrecorder.convert(frame, "out", progress=False)
    assert splits["TRAIN"]["shards"] == result.splits["TRAIN"].shards
    assert splits["TRAIN"]["bytes"] == pytest.approx(result.splits["TRAIN"].bytes, rel=0.2)


def test_a_preview_shows_what_the_cells_hold() -> None:
    cells = [DATA[0], Image.open(PHOTOS[1]), {"bytes": DATA[2], "path": "named.jpg"}, 17]
    shown = of_cells(cells).tensorflow.preview().rows
    assert [one.image_uri for one in shown[:3]] == [content(DATA[0]), content(DATA[1]), "named.jpg"]
    assert all(one.jpeg for one in shown[:3])
    assert shown[3].fault


# ------------------------------------------------------------------- the spool, and what ends a run


def test_duplicates_are_spooled_once() -> None:
    frame = of_bytes(3 * len(DATA))
    tfrecorder.parts.stage(frame, "out", num_shards=3)
    assert spooled() == sorted(map(content, {*DATA}))
    plan = tfrecorder.status("out")
    assert plan.rows == 3 * len(DATA)
    for part in (2, 1):
        tfrecorder.parts.work("out", part=(part, 2), progress=False)
    assert tfrecorder.parts.commit("out").records == 3 * len(DATA)
    assert not spooled()


@pytest.mark.slow
def test_too_many_rejects_keep_the_spool_for_the_next_call() -> None:
    frame = of_cells([DATA[0], b"hello", DATA[1]])
    with pytest.raises(RejectedError):
        tfrecorder.convert(frame, "out", progress=False)
    assert len(spooled()) == 3
    before = os.stat("out/_tfrecorder/spool/" + content(DATA[0])).st_mtime_ns
    with pytest.raises(RejectedError):
        tfrecorder.convert(frame, "out", progress=False)
    assert os.stat("out/_tfrecorder/spool/" + content(DATA[0])).st_mtime_ns == before
    tfrecorder.convert(frame, "out", max_reject_fraction=0.5, progress=False)
    assert not spooled()


def test_the_same_call_on_a_finished_dataset_writes_nothing() -> None:
    frame = of_bytes(6)
    first = tfrecorder.convert(frame, "out", progress=False)
    files = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}
    again = tfrecorder.convert(frame, "out", progress=False)
    assert (again.was_finished, again.records) == (True, first.records)
    now = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}
    assert now == files
    with pytest.raises(OutputError, match="values in the source's rows"):
        tfrecorder.convert(frame.assign(image_uri=DATA[1:7]), "out", progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("spared", [7, 60, 90])
def test_a_conversion_that_is_killed_goes_on(spared: int, tmp_path: Path) -> None:
    frame = of_bytes(60)
    tfrecorder.convert(frame, "whole", num_shards=3, progress=False)
    out = tmp_path / "out"
    convert_until(Moment(spared), frame, str(out), num_shards=3)  # type: ignore[arg-type]
    for name in spooled(out):
        assert name == content((out / "_tfrecorder/spool" / name).read_bytes())
    tfrecorder.convert(frame, out, num_shards=3, progress=False)
    assert public_files(out) == public_files("whole")
    assert not spooled(out)
    assert tfrecorder.verify(out, progress=False).ok


@pytest.mark.slow
def test_a_rerun_writes_only_what_is_missing(tmp_path: Path) -> None:
    frame, out = of_bytes(), tmp_path / "out"
    assert convert_until(Moment(20), frame, str(out))  # type: ignore[arg-type]
    folder = out / "_tfrecorder/spool"
    before = {name: (folder / name).stat().st_mtime_ns for name in spooled(out)}
    assert 15 <= len(before) < len({*DATA})
    tfrecorder.parts.stage(frame, out)
    assert len(spooled(out)) == len({*DATA})
    now = {one.name: one.stat().st_mtime_ns for one in folder.iterdir()}
    assert before.items() <= now.items()


@pytest.mark.slow
def test_an_overwrite_spools_and_keeps_the_old_dataset_until_its_end() -> None:
    tfrecorder.convert(of_bytes(4), "out", progress=False)
    bad = of_cells([b"hello"] * 4)
    with pytest.raises(RejectedError):
        tfrecorder.convert(bad, "out", overwrite=True, progress=False)
    assert tfrecorder.info("out").records == 4
    tfrecorder.convert(of_bytes(6), "out", overwrite=True, progress=False)
    assert tfrecorder.info("out").records == 6
    assert not spooled()


def test_a_spooled_image_that_vanishes_is_no_reject() -> None:
    frame = of_bytes(4)
    tfrecorder.parts.stage(frame, "out", num_shards=1)
    Path("out/_tfrecorder/spool", content(DATA[2])).unlink()
    with pytest.raises(OutputError, match=r"the bytes of image .* is gone\. Run the same"):
        tfrecorder.parts.work("out", progress=False)
    assert done_shards("out") == 0
    tfrecorder.parts.stage(frame, "out", num_shards=1)
    tfrecorder.parts.work("out", progress=False)
    assert tfrecorder.parts.commit("out").records == 4


def test_a_commit_that_ended_before_its_spool_was_removed() -> None:
    frame = of_bytes(4)
    tfrecorder.parts.stage(frame, "out", num_shards=1)
    tfrecorder.parts.work("out", progress=False)
    plan = Path("out/_tfrecorder/plan.json")
    claim = plan.read_bytes()
    shutil.copytree("out/_tfrecorder/spool", "spool")
    tfrecorder.parts.commit("out")
    assert not spooled()
    plan.write_bytes(claim)  # which goes last
    shutil.copytree("spool", "out/_tfrecorder/spool", dirs_exist_ok=True)
    assert Path("out/dataset_info.json").exists()
    assert spooled()
    assert tfrecorder.convert(frame, "out", num_shards=1, progress=False).was_finished
    assert not spooled()
    assert not plan.exists()


@pytest.mark.slow
def test_a_damaged_shard_cannot_be_written_again_and_stays() -> None:
    tfrecorder.convert(of_bytes(4), "out", num_shards=1, progress=False)
    (shard,) = Path("out").glob("*.tfrecord")
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(data)
    with pytest.raises(SourceError, match="came as bytes, which were kept only until the commit"):
        tfrecorder.repair("out", progress=False)
    assert shard.read_bytes() == data
    tfrecorder.convert(of_bytes(4), "out", num_shards=1, overwrite=True, progress=False)
    assert tfrecorder.verify("out", progress=False).ok


# -------------------------------------------------------------------------------------- generations


@pytest.mark.slow
def test_an_append_knows_images_by_their_content() -> None:
    named = [{"bytes": data, "path": "image.jpg"} for data in DATA[:4]]
    tfrecorder.convert(of_cells(named), "out", progress=False)
    more = [{"bytes": data, "path": "image.jpg"} for data in DATA[2:7]]
    result = tfrecorder.append(of_cells([*more, "image.jpg", str(PHOTOS[7])][:5]), "out")
    assert (result.generation, result.rows_there, result.records) == (1, 2, 3)
    again = of_cells(DATA[:7]).tensorflow.to_tfrecord("out", append=True)
    assert again.rows_there == 7
    assert tfrecorder.append(of_cells([str(PHOTOS[7])]), "out").records == 1
    assert tfrecorder.info("out").records == 8
    assert not spooled()
    assert tfrecorder.compact("out", "compacted", progress=False).records == 8
    assert tfrecorder.verify("compacted", progress=False).ok
    assert tfrecorder.append(of_cells(DATA[:8]), "compacted").records == 1  # the one of a path


def test_a_stream_holds_each_image_once_and_names_it_by_its_path_or_content() -> None:
    class Rows:
        name = "rows"

        def rows(self, position: Any) -> Any:
            cells = [DATA[0], {"bytes": DATA[0], "path": "a.jpg"}, data_uri(DATA[1]), 17]
            for at in range(position or 0, 4):
                yield {"image_uri": cells[at], "label": "a", "split": "train"}, at + 1

        def wait(self, seconds: float) -> None: ...

    result = tfrecorder.stream(Rows(), "out", until_idle=0, progress=False)
    assert (result.records, result.rejects) == (3, {"row/not_text": 1})
    assert images_of("out") == {
        content(DATA[0]): DATA[0],
        "a.jpg": DATA[0],
        content(DATA[1]): DATA[1],
    }


# ----------------------------------------------------------------------------------------- a bucket


@pytest.mark.slow
def test_a_bucket_holds_the_spool_of_what_is_written_there(gcs: Any) -> None:
    out, frame = "gs://bkt/out", of_bytes(6)
    tfrecorder.parts.stage(frame, out, num_shards=2)
    names = [name for name in gcs.names(f"{out}/") if "/spool/" in name]
    assert sorted(name.rpartition("/")[2] for name in names) == sorted(map(content, DATA[:6]))
    result = tfrecorder.convert(frame, out, num_shards=2, progress=False)
    assert result.records == 6
    assert not [name for name in gcs.names(f"{out}/") if "/spool/" in name]
    tfrecorder.convert(frame, "here", num_shards=2, progress=False)
    for name in ("train-00000.tfrecord", "dataset_info.json"):
        assert gcs.get(f"{out}/{name}") == Path("here", name).read_bytes()


def test_a_file_may_be_called_as_a_data_uri_begins() -> None:
    """In a folder every name is that of a file; only a cell of a table can be an image itself."""
    folder = Path("photos/data:image,x")
    folder.mkdir(parents=True)
    shutil.copy(PHOTOS[0], folder / "a.jpg")
    tfrecorder.convert("photos", "out", progress=False)
    assert [record["image/filename"] for record in records("out")] == [b"data:image,x/a.jpg"]

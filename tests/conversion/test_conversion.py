"""What a conversion writes: the records, the files, and nothing else."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers.image_cases import photo, save
from helpers.public_types import ConversionResult
from PIL import Image
from support import (
    CSV,
    PHOTOS,
    SAMPLES,
    content_files,
    error_of,
    filenames,
    labelled,
    photo_frame,
    public_files,
    records,
    start,
    stop,
    wait_for,
)

import tfrecorder
from tfrecorder.errors import OptionError, OutputError


def convert(source: Any, out: Any = "out", **options: Any) -> ConversionResult:
    return tfrecorder.convert(source, out, **options)


# ------------------------------------------------------------------------------------ records


def test_a_record_holds_every_key_of_its_row(dataset: Path) -> None:
    table = pd.read_csv(CSV)
    classes = sorted(table.label.unique())
    found = {int(record["image/source_id"]): record for record in records(dataset)}
    assert sorted(found) == table.index.tolist()
    for number, row in table.iterrows():
        data = (SAMPLES / row.image_uri).read_bytes()
        with Image.open(SAMPLES / row.image_uri) as image:
            width, height = image.size
        assert found[number] == {
            "image/encoded": data,
            "image/format": b"jpeg",
            "image/height": height,
            "image/width": width,
            "image/channels": 1 if image.mode == "L" else 3,
            "image/filename": row.image_uri.encode(),
            "image/source_id": str(number).encode(),
            "image/class/label": classes.index(row.label),
            "image/class/text": row.label.encode(),
        }


def test_every_row_is_in_its_split(dataset: Path) -> None:
    table = pd.read_csv(CSV)
    for split, rows in table.groupby("split"):
        assert sorted(filenames(dataset, split)) == sorted(rows.image_uri)


def test_files_that_are_neither_jpeg_nor_png_become_png() -> None:
    names = ["cat.gif", "coffee.webp", "coffee_tiny.bmp", "gravel.tif", "cat_rgb.png"]
    frame = pd.DataFrame({"image_uri": [str(SAMPLES / "mixed" / name) for name in names]})
    convert(frame)
    for record in records("out"):
        assert record["image/format"] == b"png"
        path = record["image/filename"].decode()
        kept = record["image/encoded"] == Path(path).read_bytes()
        assert kept == path.endswith(".png")


def test_integer_labels_are_stored_as_given(frame: pd.DataFrame) -> None:
    numbers = frame.label.map({"brick": 7, "cat": 0, "coffee": 3, "gravel": 12})
    result = convert(frame.assign(label=numbers))
    assert result.class_names == tuple(map(str, range(13)))
    for record in records("out"):
        number = numbers[int(record["image/source_id"])]
        assert record["image/class/label"] == number
        assert record["image/class/text"] == str(number).encode()
    assert "image.class.label.labels.txt" not in public_files("out")


def test_given_labels_decide_the_numbers(frame: pd.DataFrame) -> None:
    names = ["gravel", "unused", "cat", "brick", "coffee"]
    assert convert(frame, schema=labelled(*names)).class_names == tuple(names)
    for record in records("out"):
        assert names[record["image/class/label"]] == record["image/class/text"].decode()
    text = public_files("out")["image.class.label.labels.txt"].decode()
    assert text.splitlines() == names


def test_without_labels_every_label_is_minus_one(frame: pd.DataFrame) -> None:
    convert(frame.drop(columns="label"))
    found = {(record["image/class/label"], record["image/class/text"]) for record in records("out")}
    assert found == {(-1, b"")}


def test_labels_are_only_text_whatever_they_look_like() -> None:
    labels = ["../../up", "/etc/passwd", "two\nlines", " padded ", "a,b", "x" * 1000]
    frame = photo_frame(len(labels)).assign(label=labels)
    with pytest.warns(UserWarning, match="escaped there"):
        result = convert(frame)
    assert result.class_names == tuple(sorted(labels))
    found = {
        int(one["image/source_id"]): one["image/class/text"].decode() for one in records("out")
    }
    assert [found[row] for row in range(len(labels))] == labels
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["out"]


def test_one_row_is_a_dataset() -> None:
    result = convert(photo_frame(1), num_shards=1000)
    assert (result.records, result.splits["TRAIN"].shards) == (1, 1)


@pytest.mark.slow
def test_an_image_may_stand_in_several_rows() -> None:
    assert convert(photo_frame(3).assign(image_uri=str(PHOTOS[0]))).records == 3


# -------------------------------------------------------------------------------------- files


def test_the_directory_is_as_the_design_has_it(dataset: Path) -> None:
    assert sorted(public_files(dataset)) == [
        "dataset_info.json",
        "features.json",
        "image.class.label.labels.txt",
        "rejects.csv",
        "suspects.csv",
        "test-00000.tfrecord",
        *(f"train-0000{n}.tfrecord" for n in range(3)),
        *(f"validation-0000{n}.tfrecord" for n in range(2)),
    ]
    assert [path.name for path in dataset.iterdir() if path.is_dir()] == ["_tfrecorder"]
    assert not (dataset / "_tfrecorder" / "tmp").exists()
    assert not (dataset / "_tfrecorder" / "progress").exists()


def test_nothing_of_the_machine_is_in_the_files(dataset: Path) -> None:
    words = [str(dataset.parent), str(SAMPLES), str(Path.home())]
    for name, data in public_files(dataset).items():
        assert not [word for word in words if word.encode() in data], name


def test_the_index_points_at_every_record(dataset: Path) -> None:
    for path in dataset.glob("*.tfrecord"):
        data = path.read_bytes()
        at = 0
        for line in (dataset / "_tfrecorder/index" / f"{path.name}.idx").read_text().splitlines():
            offset, size = map(int, line.split())
            assert offset == at
            tfrecorder.parse_example(data[offset + 12 : offset + size - 4])
            at += size
        assert at == len(data)


def test_output_is_hardly_larger_than_the_images(dataset: Path) -> None:
    images = sum(path.stat().st_size for path in PHOTOS)
    shards = sum(path.stat().st_size for path in dataset.glob("*.tfrecord"))
    assert images < shards < images + 52 * 400


def test_the_result_says_what_was_made() -> None:
    result = convert(CSV, "made")
    table = pd.read_csv(CSV)
    assert (result.rows, result.records, result.rejects) == (52, 52, {})
    assert list(result.splits) == ["TRAIN", "VALIDATION", "TEST"]
    for split, counts in result.splits.items():
        assert counts.records == (table.split == split).sum()
        assert counts.bytes == sum(
            p.stat().st_size for p in Path("made").glob(f"{split.lower()}-*")
        )
    assert result.class_names == ("brick", "cat", "coffee", "gravel")
    assert result.input_bytes == sum(path.stat().st_size for path in PHOTOS)
    assert result.output_dir == "made"
    assert 0 < result.seconds < 60
    assert str(result).startswith("52 records in made (")
    assert "<table>" in result._repr_html_()


def test_the_share_of_oriented_images_is_reported() -> None:
    names = ["cat_orientation_6.jpg", "cat_rgb.png"]
    frame = pd.DataFrame({"image_uri": [str(SAMPLES / "mixed" / name) for name in names]})
    result = convert(frame)
    assert result.oriented == 1
    assert "1 image carries an EXIF orientation (50.0%)" in str(result)


# --------------------------------------------------------------------------- shards and order


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shards"),
    [
        ({"num_shards": 4}, (4, 4, 4)),
        ({"num_shards": {"train": 5, "TEST": 2}}, (5, 1, 2)),
        ({"num_shards": 10**6}, (36, 8, 8)),
        ({"shard_size": "30KB"}, (11, 3, 3)),
        ({"shard_size": 10**9}, (5, 1, 1)),
    ],
    ids=str,
)
def test_the_number_of_shards(options: dict[str, Any], shards: tuple[int, ...]) -> None:
    result = convert(CSV, **options)
    made = tuple(split.shards for split in result.splits.values())
    assert made == pytest.approx(shards, abs=2 if options.get("shard_size") == "30KB" else 0)
    sizes: dict[str, list[int]] = {}
    for done in json.loads(Path("out/_tfrecorder/commits/00000.json").read_text())["done"]:
        sizes.setdefault(done["shard"].split("-")[0], []).append(done["records"])
    assert all(max(counts) - min(counts) <= 1 for counts in sizes.values())


@pytest.mark.slow
def test_more_shards_than_tfds_reads_are_refused_before_anything_is_written() -> None:
    frame = photo_frame(100_000)
    words = error_of(OutputError, frame, num_shards=100_000, progress=False)
    assert "would have 100,000 shards in TRAIN, and TFDS reads at most 99,999" in words
    assert "give a larger shard size, or fewer shards. Nothing was written." in words
    assert public_files("out") == {}
    convert(photo_frame(2), num_shards=2)
    before = public_files("out")
    with pytest.raises(OutputError, match=r"100,001 shards in TRAIN.*`tfrecorder compact \S*out`"):
        tfrecorder.append(frame.iloc[1:], "out", num_shards=99_999, duplicates="keep")
    assert public_files("out") == before
    assert not Path("out/_tfrecorder/plan.json").exists()


@pytest.mark.slow
def test_rows_are_shuffled_across_shards_unless_order_is_asked_for(frame: pd.DataFrame) -> None:
    uris = frame.image_uri.tolist()
    convert(frame, "ordered", shuffle=False, num_shards=4)
    assert filenames("ordered") == uris
    convert(frame, "mixed", num_shards=4)
    assert filenames("mixed") != uris
    assert sorted(filenames("mixed")) == sorted(uris)
    convert(frame, "other", num_shards=4, seed=1)
    assert filenames("other") != filenames("mixed")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"num_threads": 1}, {"num_threads": 2}, {"num_workers": 2}], ids=str
)
def test_any_number_of_workers_writes_the_same_bytes(dataset: Path, options: dict) -> None:
    shards = {"TRAIN": 3, "VALIDATION": 2, "TEST": 1}
    convert(CSV, "again", num_shards=shards, **options)
    assert public_files("again") == public_files(dataset)
    # In multi-processing mode the workers have ended with the conversion.
    assert not multiprocessing.active_children()


def test_the_csv_and_its_frame_give_the_same_bytes(dataset: Path, monkeypatch) -> None:
    out = Path("from_frame").absolute()
    monkeypatch.chdir(SAMPLES)
    convert(pd.read_csv(CSV), out, num_shards={"TRAIN": 3, "VALIDATION": 2, "TEST": 1})
    assert public_files(out) == public_files(dataset)


# ------------------------------------------------------------------------ the output directory


def test_a_finished_dataset_is_not_written_over(frame: pd.DataFrame) -> None:
    convert(frame)
    before = public_files("out")
    message = error_of(OutputError, frame, seed=3)
    assert "is a finished dataset of 52 records in 1 generation. Give these as they were" in message
    assert public_files("out") == before


def test_overwrite_replaces_a_dataset_by_another(frame: pd.DataFrame) -> None:
    convert(frame, num_shards=9)
    Path("out/.DS_Store").write_bytes(b"")
    half = frame.iloc[:20].assign(label=range(20))
    convert(half, overwrite=True, num_shards=2)
    convert(half, "fresh", num_shards=2)
    assert sorted(name for name in public_files("out") if name.startswith("train")) == [
        "train-r2-00000.tfrecord",
        "train-r2-00001.tfrecord",
    ]
    Path("out/.DS_Store").unlink()
    assert content_files("out") == content_files("fresh")
    for folder in ("index", "tables"):
        assert len(os.listdir(f"out/_tfrecorder/{folder}")) == 2
    assert os.listdir("out/_tfrecorder/commits") == ["00001.json"]


def test_a_mounted_disk_may_be_the_output_directory(frame: pd.DataFrame) -> None:
    """Its root holds what the system keeps there, which is passed over and left alone."""
    kept = ["out/lost+found/#12", "out/System Volume Information/tracking.log"]
    for name in kept:
        Path(name).parent.mkdir(parents=True)
        Path(name).write_bytes(b"of the system")
    convert(frame.iloc[:8], num_shards=1)
    tfrecorder.append(frame.iloc[8:12], "out", progress=False)
    convert(frame.iloc[:6], num_shards=1, overwrite="all")
    assert tfrecorder.verify("out", progress=False).ok
    os.remove("out/train-r2-00000.tfrecord")
    assert len(tfrecorder.repair("out", progress=False).shards) == 1
    assert [Path(name).read_bytes() for name in kept] == [b"of the system"] * 2


@pytest.mark.slow
def test_overwrite_keeps_the_old_dataset_where_the_new_one_cannot_be_made(frame) -> None:
    convert(frame)
    before = public_files("out")
    gone = frame.assign(image_uri="/not/mounted/" + frame.image_uri)
    for options in ({"overwrite": True}, {"overwrite": True, "runner": "Elsewhere"}):
        with pytest.raises(tfrecorder.TfrecorderError):
            convert(gone, **options)
    with pytest.raises(tfrecorder.ValidationError):
        convert(frame.assign(label=None), overwrite=True)
    assert public_files("out") == before


@pytest.mark.parametrize(
    "name", ["notes.txt", "train-00000.tfrecord", "dataset_info.json", ".gitignore"]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_with_foreign_files_is_refused(frame, name: str, overwrite: bool) -> None:
    Path("out").mkdir()
    Path("out", name).write_text("mine")
    message = error_of(OutputError, frame, overwrite=overwrite)
    assert name in message
    assert "choose a new or empty directory" in message
    assert public_files("out") == {name: b"mine"}
    assert os.listdir("out") == [name]


def test_a_foreign_file_beside_a_dataset_survives_overwrite(frame: pd.DataFrame) -> None:
    convert(frame, num_shards=2)
    Path("out/train-00077.tfrecord").write_text("mine")
    message = error_of(OutputError, frame, overwrite=True)
    assert "00077" in message
    assert message.endswith("; move it away.")  # append has no other directory to offer
    with pytest.raises(OutputError, match=r"holds 'train-00077.tfrecord'.*; move it away\.$"):
        tfrecorder.append(frame, "out")
    assert Path("out/train-00077.tfrecord").read_text() == "mine"


def test_an_output_directory_that_cannot_be(frame: pd.DataFrame) -> None:
    Path("file").write_text("")
    assert "is a file" in error_of(OutputError, frame, "file")
    assert "cannot be written: Not a directory" in error_of(OutputError, frame, "file/out")
    assert "cannot be read: File name too long" in error_of(OutputError, frame, "x" * 300)
    assert "cannot be written" in error_of(OutputError, frame, "/proc/out")
    for wrong in ("", None, 3, b"out", "a\0b", "\udcff", "https://bucket/out"):
        assert "output_dir=" in error_of(OptionError, frame, wrong)


def test_an_output_path_by_way_of_a_folder_that_is_not_there(frame: pd.DataFrame) -> None:
    result = convert(frame, "nowhere/../out")
    assert (result.records, result.output_dir) == (len(frame), "nowhere/../out")
    assert Path("out/dataset_info.json").exists()


def test_a_read_only_output_is_one_clear_error(frame: pd.DataFrame, plain_user) -> None:
    convert(frame.iloc[:1], "warm_up")
    os.makedirs("locked")
    os.chmod("locked", 0o555)
    with plain_user():
        message = error_of(OutputError, frame, "locked/out")
    assert "locked/out cannot be written: Permission denied. Ask for the right" in message


@pytest.mark.slow
def test_the_output_may_lie_in_the_source_but_not_be_it() -> None:
    shutil.copytree(SAMPLES / "photos", "photos")
    assert "choose a new or empty directory" in error_of(OutputError, "photos", "photos")
    assert convert("photos", "photos/out").rows == 52
    assert convert("photos", "photos/out", overwrite=True).rows == 52


@pytest.mark.slow
def test_only_one_conversion_at_a_time_writes_a_directory(frame: pd.DataFrame) -> None:
    code = "import fcntl, os, time; os.makedirs('out/_tfrecorder')\n"
    code += "lock = open('out/_tfrecorder/lock', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)\n"
    code += "open('held', 'w'); time.sleep(60)"
    holder = start(code)
    wait_for(Path("held").exists)
    assert "another conversion is writing this directory" in error_of(OutputError, frame)
    stop(holder)
    assert convert(frame).records == 52


@pytest.mark.parametrize("runner", ["Elsewhere", "DataFlowRunner"])
def test_a_runner_that_cannot_do_it_is_refused_before_anything_is_written(frame, runner) -> None:
    options = {"project": "p", "region": "r"} if runner == "DataFlowRunner" else {}
    message = error_of(OptionError, frame, runner=runner, **options)
    assert message.startswith(("runner='Elsewhere'", "the DataflowRunner cannot start"))
    assert not Path("out").exists()


def test_misspelt_options_are_named_before_anything_is_read() -> None:
    for name, meant in (("num_shard", "num_shards"), ("shards", "num_shards")):
        words = error_of(OptionError, "missing.csv", **{name: 3})
        assert f"no option {name!r}; did you mean `{meant}`?" in words
    words = error_of(OptionError, "missing.csv", size=3)
    assert "did you mean `shard_size` or `image_size`?" in words


@pytest.mark.slow
def test_photographs_in_every_accepted_form_are_one_dataset() -> None:
    Path("photos").mkdir()
    for number in range(4):
        Path(f"photos/{number}.jpg").write_bytes(save(photo(number), "JPEG"))
    uris = [f"photos/{number}.jpg" for number in range(4)]
    Path("headerless.csv").write_text("".join(f"TRAIN,{uri},x\n" for uri in uris))
    frame = pd.DataFrame({"label": "x", "image_uri": uris, "split": "train"})
    frame.to_csv("header.csv", index=False)
    for name, source in {"a": frame, "b": "header.csv", "c": Path("headerless.csv")}.items():
        convert(source, name)
    assert public_files("a") == public_files("b") == public_files("c")

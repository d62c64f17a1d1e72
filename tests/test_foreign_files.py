"""Files of records without metadata: their names, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import tensorflow as tf
from foreign_cases import PHOTOS, detection, image, write

import tfrecorder
from tfrecorder import DatasetError


def _filenames(where: object, split: str = "TRAIN") -> list[str]:
    elements = tfrecorder.load(where, split, features=True, shuffle=False)
    return [element["image/filename"].numpy().decode() for element in elements]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00002", "TRAIN"),
        ("validation-00001-of-00002", "VALIDATION"),
        ("mnist-train.tfrecord-00000-of-00010", "TRAIN"),
        ("speed-test-train.tfrecord-00000-of-00001", "TRAIN"),
        ("coco_val.record-00003-of-00010", "VALIDATION"),
        ("coco_testdev.record-00003-of-00010", "TEST"),
        ("coco_minival.record", "VALIDATION"),
        ("pet_train.record", "TRAIN"),
        ("photos.tfrec", "TRAIN"),
    ],
)
def test_a_split_is_taken_from_the_name(name: str, split: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, [image(0, **{"class/label": 3})])
    for where in (tmp_path, path, f"{tmp_path}/*-of-*" if "-of-" in name else path):
        info = tfrecorder.info(where)
        assert {name: one.records for name, one in info.splits.items()} == {split: 1}
        ((_, label),) = tfrecorder.Records(where, split)
        assert label == 3
    assert list(tfrecorder.load(path)) == [split]


def test_a_folder_of_shards_without_an_ending(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"train-0000{number}-of-00002", [image(number)])
    write(tmp_path / "test-00000-of-00001", [image(2)])
    for name in ("label_map.pbtxt", "train-00000-of-00002.idx", "README.md", ".train-0-of-1"):
        (tmp_path / name).write_text("item {}\n")
    info = tfrecorder.info(tmp_path)
    assert {name: split.records for name, split in info.splits.items()} == {"TRAIN": 2, "TEST": 1}
    assert _filenames(tmp_path) == [path.name for path in PHOTOS[:2]]
    assert _filenames(tmp_path, "TEST") == [PHOTOS[2].name]


def test_a_folder_without_records_says_what_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(DatasetError, match=r"nor any file of records, such as a\.tfrecord"):
        tfrecorder.load(tmp_path)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files_are_refused(compression: str, tmp_path: Path) -> None:
    path = write(tmp_path / "train.tfrecord.gz", detection(), compression)
    for read in (
        lambda: tfrecorder.load(tmp_path, "TRAIN"),
        lambda: tfrecorder.Records(tmp_path, "TRAIN"),
        lambda: tfrecorder.info(tmp_path),
        lambda: tfrecorder.to_frame(tmp_path),
    ):
        words = f"{path} is not a whole TFRecord file: .*unpack it first"
        with pytest.raises(DatasetError, match=words) as raised:
            read()
        assert "\n" not in str(raised.value)


def test_an_unpacked_file_is_read(tmp_path: Path) -> None:
    packed = write(tmp_path / "train.tfrecord.gz", detection(), "GZIP")
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked/train.tfrecord").write_bytes(gzip.decompress(packed.read_bytes()))
    assert len(tfrecorder.Records(tmp_path / "unpacked", "TRAIN")) == 3


@pytest.mark.slow
def test_files_that_tensorflow_alone_can_reach(tmp_path: Path) -> None:
    """ram:// stands in for gs://."""
    for name in ("train-00000-of-00001", "test-00000-of-00001"):
        local = write(tmp_path / name, detection())
        tf.io.gfile.makedirs("ram://foreign")
        tf.io.gfile.copy(str(local), f"ram://foreign/{name}", overwrite=True)
    for split in ("TRAIN", "TEST"):
        elements = list(tfrecorder.load("ram://foreign", split, image_size=9))
        assert len(elements) == 3
        assert set(elements[0][1]) == {"boxes", "labels"}
    assert len(list(tfrecorder.load("ram://foreign/train-00000-of-00001", "TRAIN"))) == 3

"""Files of records without metadata: their names, and those that are compressed as a whole."""

from __future__ import annotations

import gzip
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers.foreign_cases import PHOTOS, alike, detection, image, serialized, write
from support import framed, run

import tfrecorder
from tfrecorder.errors import DatasetError

pytest_plugins = ["services.gcs.fixtures"]


def _filenames(where: object, split: str = "TRAIN") -> list[str]:
    elements = tfrecorder.load(where, split, inputs="all", shuffle=False)
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


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_compressed_files_are_read_in_order(compression: str, tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"plain/train-0000{number}-of-00002", detection())
        write(tmp_path / f"packed/train-0000{number}-of-00002", detection(), compression)
    options = {"shuffle": False, "image_size": 20}
    plain, packed = (tmp_path / name for name in ("plain", "packed"))
    for one, other in zip(
        tfrecorder.load(plain, "TRAIN", **options).as_numpy_iterator(),
        tfrecorder.load(packed, "TRAIN", **options).as_numpy_iterator(),
        strict=True,
    ):
        alike(one, other)
    assert sorted(_filenames(plain)) == sorted(_filenames(packed))
    (batch,) = tfrecorder.load(packed, "TRAIN", batch_size=6, image_size=20, max_boxes=2)
    assert batch[0].shape == (6, 20, 20, 3)
    info = tfrecorder.info(packed)
    assert info.records is None
    assert set(info.features) == set(tfrecorder.info(plain).features)
    frames = [tfrecorder.to_frame(where).astype(str) for where in (plain, packed)]
    assert frames[0].equals(frames[1])


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
def test_what_needs_random_access_refuses_compressed_files(
    compression: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "train.tfrecord.gz", detection(), compression)
    for read in (
        lambda: tfrecorder.Records(tmp_path, "TRAIN"),
        lambda: tfrecorder.batches(tmp_path, "TRAIN", batch_size=1, image_size=9),
        lambda: tfrecorder.inspect(tmp_path),
        lambda: tfrecorder.load(tmp_path, "TRAIN", shuffle="exact"),
        lambda: tfrecorder.load(tmp_path, "TRAIN", shard=(0, 2)),
    ):
        words = rf"{path} is compressed \({compression}\)"
        with pytest.raises(DatasetError, match=words) as raised:
            read()
        assert "unpack it first" in str(raised.value)
        assert "\n" not in str(raised.value)
    read_in_order = tfrecorder.load(tmp_path, "TRAIN", shard=(0, 1))
    assert len(list(read_in_order)) == 3, "the remedy that the error names"


def test_an_unpacked_file_has_random_access(tmp_path: Path) -> None:
    packed = write(tmp_path / "train.tfrecord.gz", detection(), "GZIP")
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked/train.tfrecord").write_bytes(gzip.decompress(packed.read_bytes()))
    assert len(tfrecorder.Records(tmp_path / "unpacked", "TRAIN")) == 3


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("kept", [0.5, 0.999])
def test_a_compressed_file_that_is_cut_off_is_named(
    compression: str, kept: float, tmp_path: Path
) -> None:
    path = write(tmp_path / "train.tfrecord", [image(number) for number in range(3)], compression)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with pytest.raises(DatasetError, match=r"train.tfrecord is damaged: .*Copy it again"):
        tfrecorder.to_frame(tmp_path)


def test_records_of_compressible_bytes_are_whole(tmp_path: Path) -> None:
    """Where much comes out of little, what is unpacked comes in pieces."""
    blank = np.zeros(3_000_000, np.uint8).tobytes()
    records = [image(0) | {"blank": [blank]} for _ in range(2)]
    path = write(tmp_path / "train.tfrecord", records, "ZLIB")
    assert len(zlib.decompress(path.read_bytes())) > 6_000_000
    assert tfrecorder.to_frame(tmp_path)["blank"].tolist() == [blank.decode()] * 2


INFO = """
import resource, sys, tfrecorder
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    tfrecorder.info(sys.argv[1])
except tfrecorder.errors.DatasetError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("really", [True, False], ids=["a bomb", "a lie"])
@pytest.mark.parametrize(
    "pack", [gzip.compress, pytest.param(zlib.compress, marks=pytest.mark.slow)]
)
def test_a_small_compressed_file_takes_little_memory(
    tmp_path: Path, pack: Callable[[bytes, int], bytes], really: bool
) -> None:
    blank = serialized(image(0) | {"blank": [bytes(2**28)]})
    whole = framed(blank)
    path = tmp_path / "train.tfrecord"
    path.write_bytes(pack(whole if really else whole[: 12 + 1000], 1))
    assert path.stat().st_size < 2**21
    kilobytes, words = run("-c", INFO, tmp_path).stdout.split(maxsplit=1)
    assert f"{path} is damaged: record at byte 0: it would unpack to {len(blank):,} bytes" in words
    assert "unpack the file first" in words
    assert int(kilobytes) < 2**16


@pytest.mark.slow
@pytest.mark.usefixtures("ram")
def test_files_elsewhere_are_read_by_tensorflow(tmp_path: Path) -> None:
    """ram:// stands in for gs://."""
    for name, compression in (("train-00000-of-00001", ""), ("test-00000-of-00001.gz", "GZIP")):
        local = write(tmp_path / name, detection(), compression)
        tf.io.gfile.makedirs("ram://foreign")
        tf.io.gfile.copy(str(local), f"ram://foreign/{name}", overwrite=True)
    for split in ("TRAIN", "TEST"):
        elements = list(tfrecorder.load("ram://foreign", split, image_size=9))
        assert len(elements) == 3
        assert set(elements[0][1]) == {"boxes", "labels"}
    assert len(list(tfrecorder.load("ram://foreign/train-00000-of-00001", "TRAIN"))) == 3


def test_a_path_is_first_asked_for_by_its_very_name(dataset: Path, tmp_path: Path) -> None:
    """A pattern is only what no directory or file is called."""
    for name in ("a[1]", "b.tfrecords", "c?", "d*"):
        shutil.copytree(dataset, tmp_path / name)
        assert tfrecorder.info(tmp_path / name).form == "tfrecorder"
        assert len(list(tfrecorder.load(tmp_path / name, "TRAIN"))) > 0
    for name in ("e[2]/train.tfrecord", "f[3].tfrecord"):
        write(tmp_path / name, [image(0)])
        assert len(list(tfrecorder.load(tmp_path / name, "TRAIN"))) == 1
    assert len(tfrecorder.Records(tmp_path / "e[2]" / "*.tfrecord", "TRAIN")) == 1
    with pytest.raises(DatasetError, match=r"a\[1\], which matches, is a directory\. Give"):
        tfrecorder.load(tmp_path / "*")


def test_a_path_in_a_bucket_is_first_asked_for_by_its_very_name(
    gcs: Any, dataset: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "train.tfrecord", [image(0)])
    gcs.put_folder("gs://bkt/b.tfrecords", dataset)
    for name in ("a[1]/train.tfrecord", "c[2].tfrecord"):
        gcs.put(f"gs://bkt/{name}", path.read_bytes())
    assert tfrecorder.info("gs://bkt/b.tfrecords").form == "tfrecorder"
    for where in ("a[1]", "c[2].tfrecord", "a[1]/*.tfrecord", "c*.tfrecord"):
        info = tfrecorder.info(f"gs://bkt/{where}")
        assert list(info.splits) == ["TRAIN"]
        assert "only the first ones" in info.looked

"""Ten generations, with new classes, a new size, grey images and splits that begin later.

TFDS, plain tf.data, `Records`, `batches` and `load` must agree on every byte and every label.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from growing_cases import QUIET, grow_ten_times, table
from reading_cases import assert_alike
from support import copied_as_tfds, public_files, records

import tfrecorder
from tfrecorder import DatasetError, OptionError

SPLITS = {"TRAIN": 40, "VALIDATION": 4, "TEST": 4}
NAMES = ("brick", "cat", "zebra", "aardvark", "coffee", "gravel")

#: What identifies a record: its bytes, its class, and the number of its row.
Told = tuple[bytes, int, str]


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset of ten generations; not to be changed."""
    folder = tmp_path_factory.mktemp("ten")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        grow_ten_times("out")
    return str(folder / "out")


def stored(out: str, split: str) -> list[Told]:
    """The records of a split, oldest generation first, as the files hold them."""
    found = []
    for directory in reversed(tfrecorder.generations(out)):
        found += [told(one) for one in records(directory, split)]
    return found


def told(one: dict) -> Told:
    source_id = one["image/source_id"].decode()
    return one["image/encoded"], int(one["image/class/label"]), source_id


# ---------------------------------------------------------------------------------- all readers


@pytest.mark.slow
@pytest.mark.parametrize(("split", "count"), SPLITS.items())
def test_records_of_older_generations_come_first(ten, split, count) -> None:
    found = tfrecorder.Records(ten, split, features=True, decode=False)
    wanted = stored(ten, split)
    assert len(found) == len(wanted) == count
    got = [
        (one["image/encoded"], one["image/class/label"], one["image/source_id"]) for one in found
    ]
    assert [(bytes(data), int(label), _text(row)) for data, label, row in got] == wanted


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@pytest.mark.parametrize("split", SPLITS)
def test_load_reads_the_same(ten, split) -> None:
    found = tfrecorder.load(ten, split, shuffle=False, decode=False)
    got = [(data.numpy(), int(label)) for data, label in found]
    assert got == [(data, label) for data, label, _ in stored(ten, split)]


@pytest.mark.parametrize("split", SPLITS)
def test_batches_read_the_same_pixels(ten, split) -> None:
    shared = {"image_size": 32, "shuffle": False, "batch_size": 3}
    ours = list(tfrecorder.batches(ten, split, num_threads=1, **shared))
    theirs = list(tfrecorder.load(ten, split, **shared).as_numpy_iterator())
    assert np.concatenate([labels for _, labels in ours]).tolist() == [
        label for _, label, _ in stored(ten, split)
    ]
    for pair in zip(ours, theirs, strict=True):
        assert_alike(*pair, pixels=8)
    undecoded = tfrecorder.batches(ten, split, decode=False, shuffle=False, batch_size=3)
    got = [
        (bytes(image), int(label))
        for images, labels in undecoded
        for image, label in zip(images, labels, strict=True)
    ]
    assert got == [(data, label) for data, label, _ in stored(ten, split)]


@pytest.mark.parametrize("split", SPLITS)
def test_plain_tf_data_reads_the_same(ten, split) -> None:
    patterns = [f"{one}/{split.lower()}-*.tfrecord" for one in tfrecorder.generations(ten)]
    files = tf.data.Dataset.list_files(patterns, shuffle=False)
    forms = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/source_id": tf.io.FixedLenFeature([], tf.string),
    }
    found = [
        told({key: value.numpy() for key, value in tf.io.parse_single_example(one, forms).items()})
        for one in tf.data.TFRecordDataset(files)
    ]
    assert sorted(found) == sorted(stored(ten, split))


def test_tfds_reads_all_generations_with_all_classes(ten) -> None:
    builder = tfds.builder_from_directories(tfrecorder.generations(ten))
    assert tuple(builder.info.features["image/class/label"].names) == NAMES
    assert builder.info.features["image/encoded"].shape == (None, None, 3)
    for split, count in SPLITS.items():
        skip = tfds.decode.SkipDecoding()
        found = builder.as_dataset(split=split.lower(), decoders={"image/encoded": skip})
        got = [told({key: value.numpy() for key, value in one.items()}) for one in found]
        assert len(got) == count
        assert sorted(got) == sorted(stored(ten, split))


def test_tfds_decodes_every_image(ten) -> None:
    builder = tfds.builder_from_directories(tfrecorder.generations(ten))
    shapes = {
        tuple(image.shape) for image, _ in builder.as_dataset(split="train", as_supervised=True)
    }
    assert {(200, 300, 3), (120, 160, 3)} <= shapes


# ------------------------------------------------------------------------------ info and friends


def test_info_adds_all_generations_up(ten) -> None:
    found = tfrecorder.info(ten)
    assert {name: split.records for name, split in found.splits.items()} == SPLITS
    assert found.class_names == NAMES
    assert [one.records for one in found.generations] == [12, *[4] * 9]
    assert sum(count for of in found.class_counts.values() for count in of.values()) == 48
    assert found.class_counts["TRAIN"]["zebra"] == 4
    assert found.formats == {"jpeg": 40, "png": 8}
    assert found.image_sides == ((120, 200), (160, 300))
    assert "generation" in str(found)


def test_to_frame_numbers_rows_on(ten) -> None:
    found = tfrecorder.to_frame(ten).sort_index()
    assert list(found.index) == list(range(48))
    assert found["image_uri"].is_unique
    assert found["label"][24:28].tolist() == ["aardvark"] * 2 + ["aardvark"] * 2
    assert found["split"].value_counts().to_dict() == SPLITS


def test_the_other_readers_see_all_of_it(ten) -> None:
    assert len(tfrecorder.inspect(ten, "TRAIN", num_records=100)) == 40
    assert tfrecorder.preview(ten, num_records=5, progress=False).records == 48
    assert tfrecorder.verify(ten, progress=False).ok
    assert tfrecorder.verify(ten, progress=False).records == 48
    status = tfrecorder.status(ten)
    assert (status.committed, status.records, status.damage) == (True, 48, ())


# ---------------------------------------------------------------------------------- at a moment


def test_at_reads_it_as_it_was(ten) -> None:
    assert tfrecorder.info(ten, at=0).records == 12
    assert tfrecorder.info(ten, at=3).class_names == NAMES[:3]
    assert len(tfrecorder.Records(ten, "TRAIN", at=5)) == 32
    assert len(tfrecorder.load(ten, "TRAIN", at=5)) == 32
    assert len(tfrecorder.batches(ten, "TRAIN", image_size=8, batch_size=8, at=5)) == 4
    assert len(tfrecorder.to_frame(ten, at=1)) == 16
    assert len(tfrecorder.inspect(ten, num_records=99, at=1)) == 16
    assert tfrecorder.preview(ten, num_records=2, progress=False, at=1).records == 16
    assert tfrecorder.verify(ten, progress=False, at=1).records == 16
    assert [Path(one).name for one in tfrecorder.generations(ten, at=2)] == [
        "00002",
        "00001",
        "out",
    ]
    with pytest.raises(DatasetError, match="has no split 'TEST'"):
        tfrecorder.load(ten, "TEST", at=5)


def test_record_numbers_of_older_generations_never_change(ten) -> None:
    before = [label for _, label in tfrecorder.Records(ten, "TRAIN", decode=False, at=4)]
    now = [label for _, label in tfrecorder.Records(ten, "TRAIN", decode=False)]
    assert now[: len(before)] == before
    assert (
        tfrecorder.Records(ten, "TRAIN", at=9).fingerprint
        == tfrecorder.Records(ten, "TRAIN").fingerprint
        != tfrecorder.Records(ten, "TRAIN", at=8).fingerprint
    )


@pytest.mark.parametrize("at", [-1, "3", True, 1.5])
def test_at_must_be_a_number(ten, at) -> None:
    for read in (tfrecorder.info, tfrecorder.to_frame, tfrecorder.generations):
        with pytest.raises(OptionError, match=f"at={at!r}"):
            read(ten, at=at)
    with pytest.raises(OptionError, match=f"at={at!r}"):
        tfrecorder.load(ten, at=at)


def test_at_must_be_there(ten, dataset) -> None:
    with pytest.raises(DatasetError, match=r"`at=10`: .* has generations 0 to 9"):
        tfrecorder.info(ten, at=10)
    with pytest.raises(DatasetError, match=r"`at=1`: .* has only generation 0"):
        tfrecorder.load(dataset, at=1)
    assert tfrecorder.info(dataset, at=0).records == tfrecorder.info(dataset).records


def test_what_other_tools_wrote_has_no_generations(dataset) -> None:
    copied_as_tfds(dataset, "theirs")
    with pytest.raises(DatasetError, match="has no generations"):
        tfrecorder.info("theirs", at=1)
    with pytest.raises(DatasetError, match="not a finished dataset that tfrecorder wrote"):
        tfrecorder.generations("theirs")


# ----------------------------------------------------------------------------------- what is lost


@pytest.fixture
def own(ten) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(ten, "out"))


READERS = (
    tfrecorder.info,
    tfrecorder.load,
    tfrecorder.to_frame,
    tfrecorder.generations,
    tfrecorder.verify,
    tfrecorder.status,
    tfrecorder.repair,
)


@pytest.mark.parametrize("lost", ["", "dataset_info.json"])
def test_a_generation_lost_in_the_middle_is_an_error(own, lost) -> None:
    path = own / "appended" / "00004" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    for read in READERS:
        with pytest.raises(DatasetError, match="appended/00004 is missing or not committed"):
            read("out")
    assert tfrecorder.info("out", at=3).records == 24


def test_a_generation_of_another_dataset_is_an_error(own) -> None:
    tfrecorder.convert(table(0, 10), "other", **QUIET)
    tfrecorder.append(table(10, 2), "other", **QUIET)
    shutil.rmtree("out/appended/00009")
    shutil.copytree("other/appended/00001", "out/appended/00009")
    with pytest.raises(DatasetError, match="00009 was not appended to what out/appended/00008"):
        tfrecorder.info("out")
    (fault,) = tfrecorder.verify("out", progress=False).found
    assert fault.file == "appended/00009/_tfrecorder/plan.json"


def test_a_generation_without_a_commit_at_the_end_is_not_seen(own) -> None:
    (own / "appended" / "00009" / "dataset_info.json").unlink()
    assert tfrecorder.info("out").records == 44
    status = tfrecorder.status("out")
    assert (status.committed, status.appends, status.rows) == (False, 9, 4)
    assert "this is generation 9" in str(status)


def test_verify_and_repair_name_the_generation(own) -> None:
    shard = next(own.glob("appended/00002/*.tfrecord"))
    written = shard.read_bytes()
    shard.write_bytes(written[:-1] + b"x")
    report = tfrecorder.verify("out", progress=False)
    assert {fault.file for fault in report.found} == {f"appended/00002/{shard.name}"}
    assert tfrecorder.repair("out", progress=False).files == (f"appended/00002/{shard.name}",)
    assert shard.read_bytes() == written
    assert tfrecorder.verify("out", progress=False).ok


def test_a_missing_shard_of_a_generation_is_named(own) -> None:
    next(own.glob("appended/00002/*.tfrecord")).unlink()
    with pytest.raises(DatasetError, match="out/appended/00002 is not whole"):
        tfrecorder.load("out")
    (damage,) = tfrecorder.status("out").damage
    assert damage.startswith("appended/00002/train-00000.tfrecord is missing")


def test_the_newest_generation_describes_the_whole(ten) -> None:
    features = json.loads(Path(ten, "appended/00009/features.json").read_text())
    forms = features["featuresDict"]["features"]
    assert forms["image/encoded"]["image"]["shape"]["dimensions"] == ["-1", "-1", "3"]
    assert forms["image/class/label"]["classLabel"]["numClasses"] == "6"
    names = Path(ten, "appended/00009/image.class.label.labels.txt").read_text()
    assert tuple(names.split()) == NAMES
    info = json.loads(Path(ten, "appended/00009/dataset_info.json").read_text())
    assert [split["name"] for split in info["splits"]] == ["train", "validation", "test"]


def test_generation_0_stays_as_it_was(ten) -> None:
    tfrecorder.convert(table(0, 12), "alone", num_shards=2, **QUIET)
    assert public_files(ten) == public_files("alone")


def test_statistics_of_numbers_are_of_all_rows() -> None:
    schema = tfrecorder.Schema(
        split=tfrecorder.Split(), age=tfrecorder.Number(), name=tfrecorder.Text()
    )
    rows = pd.DataFrame(
        {"age": [1.0, 2.0, 6.0, 7.5], "name": ["a", "b", "a", "c"], "split": "TEST"}
    )
    tfrecorder.convert(rows[:3], "parts", schema=schema, **QUIET)
    tfrecorder.append(rows[3:], "parts", **QUIET)
    tfrecorder.convert(rows, "whole", schema=schema, **QUIET)
    parts, whole = (tfrecorder.info(one).statistics for one in ("parts", "whole"))
    assert parts["age"]["TEST"] == pytest.approx(whole["age"]["TEST"])
    assert parts["name"] == whole["name"]

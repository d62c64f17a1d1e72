"""Ten generations, with new classes, a new size, grey images and splits that begin later.

TFDS, plain tf.data, `Records`, `batches` and `load` must agree on every byte and every label.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from helpers.growing_cases import QUIET, grow_ten_times, shards_of, table
from helpers.reading_cases import assert_alike
from support import copied_as_tfds, records

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError

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
    return [told(one) for one in records(out, split)]


def told(one: dict) -> Told:
    source_id = one["image/source_id"].decode()
    return one["image/encoded"], int(one["image/class/label"]), source_id


# ---------------------------------------------------------------------------------- all readers


@pytest.mark.slow
@pytest.mark.parametrize(("split", "count"), SPLITS.items())
def test_records_of_older_generations_come_first(ten, split, count) -> None:
    found = tfrecorder.Records(ten, split, inputs="all", decode=False)
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


@pytest.mark.slow
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
    files = tf.data.Dataset.list_files(f"{ten}/{split.lower()}-*.tfrecord", shuffle=False)
    forms = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/source_id": tf.io.FixedLenFeature([], tf.string),
    }
    found = [
        told({key: value.numpy() for key, value in tf.io.parse_single_example(one, forms).items()})
        for one in tf.data.TFRecordDataset(files)
    ]
    assert found == stored(ten, split)


@pytest.mark.slow
def test_tfds_reads_all_generations_with_all_classes(ten) -> None:
    builder = tfds.builder_from_directory(ten)
    assert tuple(builder.info.features["image/class/label"].names) == NAMES
    assert builder.info.features["image/encoded"].shape == (None, None, 3)
    for split, count in SPLITS.items():
        skip = tfds.decode.SkipDecoding()
        found = builder.as_dataset(split=split.lower(), decoders={"image/encoded": skip})
        got = [told({key: value.numpy() for key, value in one.items()}) for one in found]
        assert len(got) == count
        assert sorted(got) == sorted(stored(ten, split))
    part = builder.as_dataset(split="train[50%:60%]", decoders={"image/encoded": skip})
    got = [told({key: value.numpy() for key, value in one.items()}) for one in part]
    assert sorted(got) == sorted(stored(ten, "TRAIN")[20:24])


def test_tfds_decodes_every_image(ten) -> None:
    builder = tfds.builder_from_directory(ten)
    shapes = {
        tuple(image.shape) for image, _ in builder.as_dataset(split="train", as_supervised=True)
    }
    assert {(200, 300, 3), (120, 160, 3)} <= shapes


# ------------------------------------------------------------------------------ info and friends


def test_info_adds_all_generations_up(ten) -> None:
    found = tfrecorder.info(ten)
    assert {name: split.records for name, split in found.splits.items()} == SPLITS
    assert found.class_names == NAMES
    assert list(found.generations) == list(range(10))
    assert [one.records for one in found.generations.values()] == [12, *[4] * 9]
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
    assert tfrecorder.generations(ten, at=2) == [2, 1, 0]
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


READERS = (tfrecorder.info, tfrecorder.load, tfrecorder.to_frame, tfrecorder.generations)


@pytest.mark.parametrize("read", [*READERS, tfrecorder.status, tfrecorder.append])
@pytest.mark.parametrize("data", [None, b"", b"{}"])
def test_without_the_newest_manifest_a_dataset_is_not_whole(own, read, data) -> None:
    newest = own / "_tfrecorder/commits/00009.json"
    newest.write_bytes(data) if data is not None else newest.unlink()
    given = (table(0, 50), "out") if read is tfrecorder.append else ("out",)
    with pytest.raises(
        DatasetError, match=r"00009\.json is .*`tfrecorder repair .*writes it again"
    ):
        read(*given)


def test_an_older_manifest_is_missed_only_by_who_reads_it(own) -> None:
    (own / "_tfrecorder/commits/00004.json").unlink()
    assert len(tfrecorder.Records("out", "TRAIN")) == len(tfrecorder.load("out", "TRAIN")) == 40
    assert tfrecorder.generations("out") == list(range(9, -1, -1))
    assert len(tfrecorder.Records("out", "TRAIN", at=3)) == 24
    tfrecorder.append(table(0, 53), "out", **QUIET)
    for read in (tfrecorder.info, partial(tfrecorder.load, at=4)):
        with pytest.raises(DatasetError, match=r"commits/00004\.json is missing"):
            read("out")


def test_a_manifest_of_another_dataset_is_an_error(own) -> None:
    tfrecorder.convert(table(0, 10), "other", **QUIET)
    shutil.copy("other/_tfrecorder/commits/00000.json", "out/_tfrecorder/commits/00009.json")
    for read in READERS:
        with pytest.raises(DatasetError, match=r"00009\.json belongs to another commit"):
            read("out")


def test_what_is_written_and_not_committed_is_not_seen(own) -> None:
    tfrecorder.append(table(0, 4), "out", duplicates="keep", stage_only=True, **QUIET)
    tfrecorder.parts.work("out", progress=False)
    assert tfrecorder.info("out").records == len(tfrecorder.to_frame("out")) == 48
    assert sum(len(records("out", split)) for split in SPLITS) == 48, "by a glob"
    status = tfrecorder.status("out")
    assert (status.committed, status.appends, status.rows) == (False, 10, 4)
    assert "this is generation 10" in str(status)


def test_verify_and_repair_name_the_shard(own) -> None:
    (shard,) = shards_of(own, 2)
    written = shard.read_bytes()
    shard.write_bytes(written[:-1] + b"x")
    report = tfrecorder.verify("out", progress=False)
    assert {fault.file for fault in report.found} == {shard.name}
    assert tfrecorder.repair("out", progress=False).files == (shard.name,)
    assert shard.read_bytes() == written
    assert tfrecorder.verify("out", progress=False).ok


def test_a_missing_shard_is_named(own) -> None:
    (shard,) = shards_of(own, 2)
    shard.unlink()
    with pytest.raises(DatasetError, match=f"out is not whole: .*{shard.name} is missing"):
        tfrecorder.load("out")
    (damage,) = tfrecorder.status("out").damage
    assert damage.startswith(f"{shard.name} is missing")


def test_the_public_files_describe_the_whole(ten) -> None:
    features = json.loads(Path(ten, "features.json").read_text())
    forms = features["featuresDict"]["features"]
    assert forms["image/encoded"]["image"]["shape"]["dimensions"] == ["-1", "-1", "3"]
    assert forms["image/class/label"]["classLabel"]["numClasses"] == "6"
    names = Path(ten, "image.class.label.labels.txt").read_text()
    assert tuple(names.split()) == NAMES
    info = json.loads(Path(ten, "dataset_info.json").read_text())
    assert [split["name"] for split in info["splits"]] == ["train", "validation", "test"]


def test_the_first_shards_stay_as_they_were(ten) -> None:
    tfrecorder.convert(table(0, 12), "alone", num_shards=2, **QUIET)
    for shard in shards_of("alone", 0):
        assert Path(ten, shard.name).read_bytes() == shard.read_bytes()


@pytest.mark.slow
def test_statistics_of_numbers_are_of_all_rows() -> None:
    schema = tfrecorder.schema.Schema(
        split=tfrecorder.schema.Split(),
        age=tfrecorder.schema.Number(),
        name=tfrecorder.schema.Text(),
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

"""A dataset directory is one of TFDS's: its own builder reads splits, shapes and class names."""

import json
import os
from pathlib import Path

import google_crc32c
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from helpers.damage import reseal
from PIL import Image
from support import labelled, photo_frame, records, written

import tfrecorder

SIZES = ("height", "width", "channels")


def convert(frame, **options):
    """A frame as a dataset `out`, as TFDS opens it."""
    tfrecorder.convert(frame, "out", **{"num_shards": 2, "shuffle": False, **options})
    return tfds.builder_from_directory("out")


def pictures(*forms):
    """A frame of PNG pictures in TRAIN, each given as its mode and size."""
    for i, (mode, size) in enumerate(forms):
        Image.effect_noise(size, 50).convert(mode).save(f"{i}.png")
    return pd.DataFrame(
        {"split": "TRAIN", "image_uri": [f"{i}.png" for i in range(len(forms))], "label": "a"}
    )


def read(builder, split="train", **options):
    return list(tfds.as_numpy(builder.as_dataset(split, **options)))


@pytest.fixture(scope="module")
def photos(dataset):
    return tfds.builder_from_directory(dataset)


def test_the_splits_have_their_shards_records_and_bytes(dataset, photos):
    shards = {"train": 3, "validation": 2, "test": 1}
    assert {name: split.num_shards for name, split in photos.info.splits.items()} == shards
    for name, split in photos.info.splits.items():
        assert split.num_examples == sum(split.shard_lengths) == len(records(dataset, name))
        files = list(dataset.glob(f"{name}-*.tfrecord"))
        assert sorted(map(str, split.filepaths)) == sorted(map(str, files))
        assert split.num_bytes == sum(file.stat().st_size for file in files)


@pytest.mark.slow
def test_every_record_is_read_as_it_was_written(dataset, photos):
    for split in photos.info.splits:
        ours = {record["image/source_id"]: record for record in records(dataset, split)}
        theirs = {record["image/source_id"]: record for record in read(photos, split)}
        assert theirs.keys() == ours.keys()
        for row, record in theirs.items():
            expected, image = dict(ours[row]), record.pop("image/encoded")
            assert np.array_equal(image, tf.io.decode_image(expected.pop("image/encoded")))
            assert record == expected
            assert image.shape == tuple(record[f"image/{size}"] for size in SIZES)


def test_png_pixels_are_read_exactly():
    builder = convert(pictures(("RGB", (7, 5)), ("RGB", (4, 6))))
    for record in read(builder):
        path = record["image/filename"].decode()
        assert np.array_equal(record["image/encoded"], np.asarray(Image.open(path)))


def test_class_names_are_in_the_order_of_their_integers(photos):
    names = photos.info.features["image/class/label"].names
    assert names == sorted(names)
    for record in read(photos, "validation"):
        assert names[record["image/class/label"]] == record["image/class/text"].decode()


def test_as_supervised_gives_image_and_label(photos):
    for image, label in read(photos, "test", as_supervised=True):
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert label.dtype == np.int64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "rows"),
    [
        ("train[:50%]", range(5)),
        ("train[50%:]", range(5, 10)),
        ("train[3:7]", range(3, 7)),
        ("train[-1:]", range(9, 10)),
        ("train[:2]+test[:1]", [0, 1, 10]),
    ],
)
def test_a_split_can_be_sliced(split, rows):
    frame = photo_frame(12)
    frame.loc[10:, "split"] = "TEST"
    builder = convert(frame, num_shards={"TRAIN": 3, "TEST": 1})
    found = [int(record["image/source_id"]) for record in read(builder, split)]
    assert sorted(found) == list(rows)


@pytest.mark.slow
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_a_shard_without_any_record_is_no_hindrance(empty):
    frame = photo_frame(9)
    frame.loc[3 * empty : 3 * empty + 2, "image_uri"] = "missing.jpg"
    builder = convert(frame, num_shards=3, max_reject_fraction=0.5)
    lengths = [3, 3, 3]
    lengths[empty] = 0
    assert builder.info.splits["train"].shard_lengths == lengths
    kept = [row for row in range(9) if row // 3 != empty]
    assert sorted(int(record["image/source_id"]) for record in read(builder)) == kept
    assert len(read(builder, "train[:50%]")) == 3


@pytest.mark.slow
def test_a_split_whose_every_image_was_rejected_is_ours_and_empty():
    """TFDS refuses to read a split without a record."""
    frame = photo_frame(8)
    frame.loc[6:, ["split", "image_uri"]] = ["TEST", "missing.jpg"]
    builder = convert(frame, max_reject_fraction=0.5)
    assert [*builder.info.splits] == ["train"]
    assert tfrecorder.info(builder.data_dir).splits["TEST"].records == 0
    assert len(read(builder, "train")) == 6


def test_a_dataset_without_labels():
    builder = convert(photo_frame(4).drop(columns="label"))
    assert builder.info.supervised_keys is None
    for record in read(builder):
        assert record["image/class/label"] == -1
        assert record["image/class/text"] == b""


@pytest.mark.slow
def test_integer_labels_are_classes_without_names():
    builder = convert(photo_frame(4).assign(label=[3, 0, 3, 1]))
    assert builder.info.features["image/class/label"].num_classes == 4
    found = {int(r["image/source_id"]): int(r["image/class/label"]) for r in read(builder)}
    assert found == {0: 3, 1: 0, 2: 3, 3: 1}
    assert read(builder, as_supervised=True)


def test_integer_labels_with_names():
    builder = convert(photo_frame(4).assign(label=[1, 0, 1, 1]), schema=labelled("cat", "dog"))
    assert builder.info.features["image/class/label"].names == ["cat", "dog"]


def test_a_class_that_no_image_has_keeps_its_number():
    builder = convert(photo_frame(4).assign(label="b"), schema=labelled("a", "b", "c"))
    assert builder.info.features["image/class/label"].names == ["a", "b", "c"]
    assert {record["image/class/label"] for record in read(builder)} == {1}


ODD_NAMES = [
    " lead",
    "trail\t",
    "line\nbreak",
    "cr\rcr",
    "back\\slash",
    "\u2028",
    "a, 'b' \"c\"",
    "花",
    "\\u0020lead",
]


def test_names_that_tfds_would_not_read_are_escaped_and_keep_their_numbers():
    frame = photo_frame(2 * len(ODD_NAMES)).assign(label=ODD_NAMES * 2)
    with pytest.warns(UserWarning, match="class names would not survive"):
        builder = convert(frame)
    label = builder.info.features["image/class/label"]
    assert len(set(label.names)) == label.num_classes == len(ODD_NAMES)
    for record in read(builder):
        text = record["image/class/text"].decode()
        assert sorted(ODD_NAMES)[record["image/class/label"]] == text
        if text in ("花", "a, 'b' \"c\""):
            assert label.names[record["image/class/label"]] == text


@pytest.mark.slow
def test_the_true_class_names_are_in_our_own_metadata():
    frame = photo_frame(len(ODD_NAMES)).assign(label=ODD_NAMES)
    with pytest.warns(UserWarning, match="class names"):
        result = tfrecorder.convert(frame, "out")
    assert result.class_names == tuple(sorted(ODD_NAMES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forms", "shape"),
    [
        ([("RGB", (7, 5)), ("RGB", (7, 5))], (5, 7, 3)),
        ([("RGB", (7, 5)), ("RGB", (7, 6))], (None, 7, 3)),
        ([("RGB", (7, 5)), ("RGB", (8, 5))], (5, None, 3)),
        ([("L", (7, 5)), ("L", (7, 5))], (5, 7, 1)),
        ([("RGBA", (7, 5)), ("RGBA", (9, 6))], (None, None, 4)),
        ([("L", (7, 5)), ("RGB", (7, 5))], (5, 7, 3)),
        ([("RGBA", (7, 5)), ("RGB", (7, 5))], (5, 7, 3)),
        ([("LA", (7, 5)), ("LA", (7, 5))], (5, 7, 3)),
    ],
)
def test_the_shape_is_as_much_as_all_images_share(forms, shape):
    builder = convert(pictures(*forms))
    assert builder.info.features["image/encoded"].shape == shape
    for record in read(builder):
        found = record["image/encoded"].shape
        assert all(want in (None, size) for want, size in zip(shape, found, strict=True))


def test_a_shape_is_over_all_shards():
    same = [("RGB", (7, 5))] * 5
    builder = convert(pictures(*same, ("RGB", (9, 5))), num_shards=3)
    assert builder.info.features["image/encoded"].shape == (5, None, 3)


# ---------------------------------------------------------------------------------------------
# Done-records.

FIRST = "train-00000"
SHARD, DONE = Path(f"out/{FIRST}.tfrecord"), Path(f"out/_tfrecorder/done/{FIRST}.json")


@pytest.fixture
def _written():
    """A conversion of two shards that are written, and not committed."""
    written(photo_frame(4), num_shards=2)
    assert tfrecorder.status("out").shards_done == 2


@pytest.mark.usefixtures("_written")
def test_a_done_record_tells_what_was_written():
    done = json.loads(DONE.read_bytes())
    assert [done[name] for name in ("shard", "rows", "records")] == [FIRST, 2, 2]
    assert tfrecorder.status("out").rejects == {}
    assert done["formats"] == {"jpeg": 2}
    data = SHARD.read_bytes()
    assert (done["bytes"], done["crc32c"]) == (len(data), google_crc32c.value(data))


@pytest.mark.usefixtures("_written")
def test_a_done_record_of_another_plan_does_not_count():
    reseal(DONE, lambda done: done.update(plan="another"), "own_crc32c")
    assert tfrecorder.status("out").shards_done == 1


@pytest.mark.usefixtures("_written")
@pytest.mark.parametrize("change", ["cut", "removed"])
def test_a_done_record_without_its_whole_shard_does_not_count(change):
    if change == "cut":
        os.truncate(SHARD, 100)
    else:
        os.remove(SHARD)
    assert tfrecorder.status("out").shards_done == 1

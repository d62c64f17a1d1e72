"""Reading a dataset that grows: each epoch over what is there when it begins."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.follow_cases import IDS, append
from helpers.growing_cases import QUIET, drawn, shards_of, table
from helpers.reading_cases import ids, jpeg, photograph
from PIL import Image
from support import TESTS, copied_as_tfds, photo_frame, run

import tfrecorder
from tfrecorder.errors import DatasetError, OptionError

READERS = [tfrecorder.load, tfrecorder.batches]

Reader = Callable[..., Any]
Grow = Callable[..., None]


#: Records of the generations of the dataset that grows in these tests.
SIZES = [12, 4, 6, 4, 1, 1, 3]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first two generations: the rows 0 to 11 and 12 to 15; not to be changed."""
    out = str(tmp_path_factory.mktemp("two") / "out")
    tfrecorder.convert(table(0, 12), out, num_shards=3, shuffle=False, **QUIET)
    append(table(0, 16), out)
    return out


@pytest.fixture
def out(two: str) -> str:
    return shutil.copytree(two, "out")


@pytest.fixture
def grow(out: str) -> Grow:
    """Appends the next generations to `out`."""

    def appear(times: int = 1) -> None:
        there = tfrecorder.generations(out)[0]
        for number in range(there + 1, there + 1 + times):
            append(table(0, sum(SIZES[: number + 1])), out)

    return appear


# ------------------------------------------------------------------------------- epoch by epoch


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_each_epoch_reads_what_is_there_when_it_begins(out: str, grow: Grow, read: Reader) -> None:
    train = read(out, "TRAIN", follow=True, **IDS)
    once = read(out, "TRAIN", **IDS)
    assert sorted(ids(train)) == list(range(16))
    grow()
    epoch = iter(train)
    found = [next(epoch)]
    grow()
    assert sorted(ids([*found, *epoch])) == list(range(22)), "what came during the epoch waits"
    assert sorted(ids(train)) == list(range(26))
    assert sorted(ids(once)) == list(range(16)), "what is opened without follow does not change"


@pytest.mark.slow
def test_a_repeated_dataset_looks_again_each_time(out: str, grow: Grow) -> None:
    train = tfrecorder.load(out, "TRAIN", follow=True, shuffle=False, **IDS).repeat(3)
    found = []
    for batch in train:
        found += ids([batch])
        if len(found) == 16:
            grow()
    assert found == [*range(16), *range(22), *range(22)]


@pytest.mark.parametrize("read", READERS)
def test_each_epoch_has_another_order(out: str, read: Reader) -> None:
    train = read(out, "TRAIN", follow=True, seed=3, **IDS)
    first, second = ids(train), ids(train)
    assert sorted(first) == sorted(second) == list(range(16))
    assert first != second != list(range(16))
    again = read(out, "TRAIN", follow=True, seed=3, **IDS)
    assert [ids(again), ids(again)] == [first, second]


def test_batches_have_the_order_that_they_have_without_follow(out: str) -> None:
    train = tfrecorder.batches(out, "TRAIN", follow=True, seed=3, **IDS)
    plain = tfrecorder.batches(out, "TRAIN", seed=3, **IDS)
    assert [ids(train), ids(train)] == [ids(plain), ids(plain)]


@pytest.mark.slow
def test_how_long_an_epoch_is(out: str, grow: Grow) -> None:
    assert tfrecorder.load(out, "TRAIN", follow=True, **IDS).cardinality() == (
        tf.data.UNKNOWN_CARDINALITY
    )
    train = tfrecorder.batches(out, "TRAIN", follow=True, **IDS)
    assert len(train) == 4
    grow()
    assert [len(train) for _ in train] == [5] * 5


@pytest.mark.slow
def test_all_splits_follow(out: str, grow: Grow) -> None:
    every = tfrecorder.load(out, follow=True, **IDS)
    grow()
    assert {name: len(ids(split)) for name, split in every.items()} == {"TRAIN": 22}


APPENDING = """
import sys
sys.path.insert(0, {tests!r})
from helpers.growing_cases import QUIET, table
import tfrecorder

for end in range(20, 40, 4):
    tfrecorder.append(table(0, end), "out", **QUIET)
"""


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_a_process_appends_while_epoch_follows_epoch(out: str, read: Reader) -> None:
    train = read(out, "TRAIN", follow=True, seed=1, **IDS)
    code = APPENDING.format(tests=str(TESTS))
    writer = subprocess.Popen([sys.executable, "-c", code])
    epochs = [ids(train)]
    while writer.poll() is None:
        epochs.append(ids(train))
    epochs.append(ids(train))
    assert writer.returncode == 0
    assert sorted(epochs[-1]) == list(range(36))
    for epoch in epochs:
        assert sorted(epoch) == list(range(len(epoch))), "each record once"
        assert len(epoch) in range(16, 40, 4), "whole generations"


def convert_large() -> None:
    """A generation of 20 images of 48 KiB, which is then followed by small ones."""
    Path("large").mkdir()
    dice = np.random.default_rng(0)
    for number in range(20):
        noise = dice.integers(0, 256, (128, 128, 3), np.uint8)
        Image.fromarray(noise).save(f"large/{number}.png")
    rows = table(0, 20).assign(image_uri=[f"large/{number}.png" for number in range(20)])
    tfrecorder.convert(rows, "out", shuffle=False, num_shards=1, **QUIET)


def append_small() -> None:
    append(table(0, 24).assign(image_uri=drawn("small", 24, (8, 8))))


@pytest.mark.slow
def test_an_epoch_has_one_order_whenever_the_dataset_was_opened() -> None:
    convert_large()
    # A quarter is for the shuffle buffer: room for five large images, or for all small ones.
    options: dict[str, Any] = {"follow": True, "seed": 2, "ram_budget": "1MiB", **IDS}
    before = tfrecorder.load("out", "TRAIN", **options)
    append_small()
    assert ids(before) == ids(tfrecorder.load("out", "TRAIN", **options))


# --------------------------------------------------------------------------------- the positions


@pytest.mark.slow
def test_a_position_goes_on_in_the_generations_of_its_epoch(out: str, grow: Grow) -> None:
    train = tfrecorder.batches(out, "TRAIN", follow=True, seed=1, **IDS)
    first = ids(train)
    epoch = iter(train)
    begun = ids(next(epoch) for _ in range(2))
    state = train.state_dict()
    grow()
    resumed = tfrecorder.batches(out, "TRAIN", follow=True, seed=1, **IDS | {"batch_size": 3})
    resumed.load_state_dict(state)
    assert sorted(begun + ids(resumed)) == list(range(16)), "the same generations to its end"
    assert resumed.epoch == 2
    assert sorted(ids(resumed)) == list(range(22))
    as_it_was = tfrecorder.batches(out, "TRAIN", at=1, seed=1, **IDS)
    assert ids(as_it_was) == first
    with pytest.raises(OptionError, match=r"saved with `fingerprint=.*the dataset that the run"):
        tfrecorder.batches(out, "TRAIN", seed=1, **IDS).load_state_dict(state)


def test_a_position_between_epochs_takes_new_generations(out: str, grow: Grow) -> None:
    train = tfrecorder.batches(out, "TRAIN", follow=True, seed=1, **IDS)
    ids(train)
    state = train.state_dict()
    grow()
    resumed = tfrecorder.batches(out, "TRAIN", follow=True, seed=1, **IDS)
    resumed.load_state_dict(state)
    assert sorted(ids(resumed)) == list(range(22))


# --------------------------------------------------------------------- what the elements look like


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("antialias", [True, False])
def test_images_of_other_sizes_are_read_as_if_they_had_been_there(
    out: str, read: Reader, antialias: bool
) -> None:
    options = {"batch_size": 4, "image_size": 25, "antialias": antialias, "shuffle": False}
    train = read(out, "TRAIN", follow=True, **options)
    paths = [f"{side}.jpg" for side in (400, 20)]
    for path, side in zip(paths, (400, 20), strict=True):
        Path(path).write_bytes(jpeg(photograph(side, side + 10)))
    rows = table(0, 2).assign(image_uri=[str(Path(path).absolute()) for path in paths])
    append(rows)
    expected = list(read(out, "TRAIN", **options))
    for ours, theirs in zip(train, expected, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[1], theirs[1])


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_new_classes_get_the_next_integers(out: str, read: Reader) -> None:
    train = read(out, "TRAIN", follow=True, shuffle=False, image_size=8, batch_size=4)
    before = np.concatenate([np.asarray(labels) for _, labels in train])
    names = tfrecorder.info(out).class_names
    assert names is not None
    append(table(16, 4, label="zebra"))
    after = np.concatenate([np.asarray(labels) for _, labels in train])
    assert after.tolist() == [*before.tolist(), *[len(names)] * 4]
    assert max(before) < len(names)
    assert tfrecorder.info(out).class_names == (*names, "zebra")


SIZED = {"small": (160, 120), "large": (300, 200)}


def failing(train: Any) -> str:
    """The words with which an iteration fails, in NumPy and in tf.data."""
    with pytest.raises((DatasetError, tf.errors.OpError)) as caught:
        list(train)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_a_generation_that_would_change_the_elements_is_refused(read: Reader) -> None:
    small, large = (drawn(name, 4, size) for name, size in SIZED.items())
    tfrecorder.convert(table(0, 4).assign(image_uri=small), "out", **QUIET)
    train = read("out", "TRAIN", follow=True, batch_size=4)
    assert next(iter(train))[0].shape == (4, 120, 160, 3)
    append(table(0, 4).assign(image_uri=large))
    assert (
        "images of another size were added to images of 120 x 160 pixels. Open it with one size"
        in (failing(train))
    )
    assert len(list(read("out", "TRAIN", follow=True, batch_size=4, image_size=8))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_colours_after_grey_images_are_refused(read: Reader) -> None:
    grey = table(0, 4).assign(image_uri=drawn("grey", 4, (160, 120), "L"))
    tfrecorder.convert(grey, "out", **QUIET)
    train = read("out", "TRAIN", follow=True, image_size=8, batch_size=4)
    assert next(iter(train))[0].shape == (4, 8, 8, 1)
    append(table(4, 4))
    assert "images of 3 channels were added to images of 1. Open it again" in failing(train)


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_longer_vectors_of_several_labels_are_refused(read: Reader) -> None:
    schema = tfrecorder.schema.Schema(
        split=tfrecorder.schema.Split(),
        image_uri=tfrecorder.schema.Image(),
        tags=tfrecorder.schema.Labels(),
    )
    rows = table(0, 8).drop(columns="label").assign(tags=[["a", "b"]] * 8)
    tfrecorder.convert(rows[:4], "out", schema=schema, **QUIET)
    train = read("out", "TRAIN", follow=True, image_size=8, batch_size=4)
    append(rows[4:].assign(tags=[["a", "c"]] * 4))
    assert "column 'tags' grew from 2 classes to 3, and so did its vectors" in failing(train)


# -------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("read", READERS)
def test_a_new_generation_that_is_damaged_fails_as_in_load(
    out: str, grow: Grow, read: Reader
) -> None:
    train = read(out, "TRAIN", follow=True, **IDS)
    grow()
    (shard,) = shards_of(out, 2)
    shard.rename("aside")
    with pytest.raises(DatasetError) as caught:
        tfrecorder.load(out)
    assert f"out is not whole: {shard.name} is missing" in str(caught.value)
    assert str(caught.value) in failing(train)
    Path("aside").rename(shard)
    assert len(ids(train)) == 22


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_a_commit_without_its_manifest_is_an_error(out: str, grow: Grow, read: Reader) -> None:
    train = read(out, "TRAIN", follow=True, **IDS)
    grow(2)
    Path("out/_tfrecorder/commits/00003.json").unlink()
    assert "out/_tfrecorder/commits/00003.json is missing" in failing(train)


@pytest.mark.slow
@pytest.mark.parametrize("read", READERS)
def test_a_dataset_that_was_replaced_is_an_error(out: str, read: Reader) -> None:
    train = read(out, "TRAIN", follow=True, **IDS)
    tfrecorder.convert(table(0, 20), out, overwrite="all", **QUIET)
    assert "out was overwritten while it was being read. Open it again" in failing(train)


@pytest.mark.slow
def test_damaged_bytes_of_a_new_generation_fail(out: str, grow: Grow) -> None:
    trains = [read(out, "TRAIN", follow=True, **IDS) for read in READERS]
    grow()
    (shard,) = shards_of(out, 2)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert "corrupted record" in failing(trains[0])
    assert shard.name in failing(trains[1])


def test_what_other_tools_wrote_cannot_be_followed(dataset: Path) -> None:
    copied_as_tfds(dataset, "theirs")
    for read in READERS:
        with pytest.raises(DatasetError, match="follow: theirs has no generations"):
            read("theirs", "TRAIN", follow=True, batch_size=4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"follow": 1}, "follow=1: give True or False"),
        ({"follow": "forward"}, "follow='forward': give True or False"),
        ({"follow": True, "at": 1}, "`at=1` reads no newer generation"),
        ({"follow": True, "shard": (0, 2), "seed": 1}, "each host would look"),
    ],
)
def test_what_does_not_go_with_follow(options: dict[str, Any], words: str) -> None:
    for read in READERS:
        with pytest.raises(OptionError) as caught:
            read("nowhere", "TRAIN", **options)
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"follow": True, "cache": True}, "a cache keeps what the first epoch read"),
        ({"follow": True, "shuffle": "exact"}, "`tfrecorder.batches` shuffles it exactly"),
        ({"follow": True, "seed": 1, "start": (2, 3)}, "`start` cannot continue it"),
    ],
)
def test_what_load_cannot_do_with_follow(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        tfrecorder.load("nowhere", "TRAIN", **options)
    assert words in str(caught.value)


# --------------------------------------------------------------------------------------- in Keras


def small_model(classes: int = 8) -> keras.Model:
    model = keras.Sequential([keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(classes)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Counted(keras.callbacks.Callback):
    """Counts the steps of each epoch; after each, a further generation appears."""

    def __init__(self, grow: Grow) -> None:
        super().__init__()
        self.grow = grow
        self.steps: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps[-1] += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.grow()


@pytest.mark.slow
def test_one_fit_per_epoch_trains_on_all_that_is_there(out: str, grow: Grow) -> None:
    train = tfrecorder.load(out, "TRAIN", follow=True, image_size=8, batch_size=4)
    model, counted = small_model(), Counted(grow)
    for epoch in range(3):
        model.fit(train, initial_epoch=epoch, epochs=epoch + 1, callbacks=[counted], verbose=0)
    assert counted.steps == [4, 6, 7]


@pytest.mark.slow
def test_fit_with_steps_per_epoch_takes_new_generations(out: str, grow: Grow) -> None:
    seen: list[int] = []

    def note(rows: np.ndarray) -> np.ndarray:
        seen.extend(map(int, rows))
        return rows

    def pair(features: dict[str, Any]) -> tuple[Any, Any]:
        rows = tf.numpy_function(note, [features["image/source_id"]], tf.string)
        with tf.control_dependencies([rows]):
            return tf.identity(features["image/encoded"]), features["image/class/label"]

    train = tfrecorder.load(
        out, "TRAIN", follow=True, shuffle=False, inputs="all", image_size=8, batch_size=4
    )
    model, counted = small_model(), Counted(grow)
    model.fit(train.map(pair).repeat(), steps_per_epoch=4, epochs=5, callbacks=[counted], verbose=0)
    assert counted.steps == [4] * 5
    assert seen[:16] == list(range(16))
    assert set(range(16, 22)) < set(seen)


@pytest.mark.slow
def test_a_global_seed_of_tensorflow_changes_nothing(tmp_path: Path) -> None:
    """Of 0 it once ended the reading."""
    code = """
import sys, tensorflow as tf, tfrecorder
for seed in (None, 0, 5):
    tf.random.set_seed(seed) if seed is not None else None
    read = tfrecorder.load("out", "TRAIN", shuffle=100, seed=3, decode=False, follow=True)
    print(hash(tuple(data.numpy() for data, _ in read)))
"""
    tfrecorder.convert(photo_frame(30), "out", progress=False)
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    words = run("-c", code, env=environment)
    assert words.returncode == 0, words.stderr
    assert len({*words.stdout.split()}) == 1

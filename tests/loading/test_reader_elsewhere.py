"""Directories that others wrote, other file systems, and several devices or hosts."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.reading_cases import (
    SAMPLES,
    convert_photos,
    ids,
    mean_difference,
    photos,
    pillow_pixels,
)
from PIL import Image

import tfrecorder
from tfrecorder import info
from tfrecorder.errors import DatasetError


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    return convert_photos(tmp_path_factory.mktemp("photos") / "out")


@pytest.fixture(scope="module")
def tfds_out(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The bundled photographs of TRAIN and TEST as TFDS itself writes them."""
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(names=["brick", "cat", "coffee", "gravel"]),
            "name": tfds.features.Text(),
        }
    )
    rows = {
        split.lower(): [
            (uri, {"image": str(SAMPLES / uri), "label": label, "name": uri})
            for uri, label in photos(split)[["image_uri", "label"]].itertuples(index=False)
        ]
        for split in ("TRAIN", "TEST")
    }
    return str(_write_tfds(tmp_path_factory.mktemp("tfds"), features, rows))


def _write_tfds(folder: Path, features, rows) -> Path:  # type: ignore[no-untyped-def]
    import tensorflow_datasets as tfds

    split_infos = []
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder, dataset_name="photos", split="train", filetype_suffix="tfrecord"
    )
    for split, examples in rows.items():
        name = template.replace(split=split).sharded_filepath(shard_index=0, num_shards=1)
        with tf.io.TFRecordWriter(str(name)) as file:
            for _, example in examples:
                file.write(features.serialize_example(features.encode_example(example)))
        split_infos.append(
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=[len(examples)],
                num_bytes=1,
                filename_template=template.replace(split=split),
            )
        )
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=features,
        split_infos=split_infos,
        filename_template=template,
        supervised_keys=("image", "label"),
    )
    return folder


@pytest.mark.slow
def test_a_tfds_directory(tfds_out: str) -> None:
    import tensorflow_datasets as tfds

    found = info(tfds_out)
    assert found.form == "tfds"
    assert found.class_names == ("brick", "cat", "coffee", "gravel")
    assert {name: split.records for name, split in found.splits.items()} == {"TRAIN": 36, "TEST": 8}
    theirs = tfds.builder_from_directory(tfds_out).as_dataset("test", as_supervised=True)
    encoded = tfrecorder.load(tfds_out, "TEST", decode=False)
    ours = tfrecorder.load(tfds_out, "test")
    for (pixels, label), (_, their_label), (data, _) in zip(ours, theirs, encoded, strict=True):
        np.testing.assert_array_equal(pixels, pillow_pixels(data.numpy()))
        assert label == their_label
    for more in ({}, {"augment": True}, {"resize": "pad"}):
        train = tfrecorder.load(tfds_out, "train", image_size=40, batch_size=9, **more)
        assert (
            [images.shape for images, _ in train]
            == [(9, 40, 40, 3)] * 4
            == len(train) * [(9, 40, 40, 3)]
        )


def test_a_missing_shard_of_tfds_is_named(tfds_out: str, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tfds_out, tmp_path / "copy"))
    (shard,) = copy.glob("*test*")
    shard.unlink()
    with pytest.raises(DatasetError, match=f"{shard.name} is missing"):
        tfrecorder.load(copy)


def test_tfds_reads_what_we_wrote_as_we_do(out: str) -> None:
    import tensorflow_datasets as tfds

    theirs = tfds.builder_from_directory(out).as_dataset("validation", as_supervised=True)
    for (a, label), (b, their_label) in zip(
        tfrecorder.load(out, "VALIDATION"), theirs, strict=True
    ):
        assert a.shape == b.shape
        assert label == their_label


@pytest.mark.slow
def test_bare_files(out: str, tmp_path: Path) -> None:
    for path in Path(out).glob("*.tfrecord"):
        shutil.copy(path, tmp_path)
    assert {name: len(dataset) for name, dataset in tfrecorder.load(tmp_path).items()} == {
        "TRAIN": 36,
        "VALIDATION": 8,
        "TEST": 8,
    }
    some = tfrecorder.load(f"{tmp_path}/train-0000[12]*", "TRAIN", image_size=20, batch_size=5)
    assert sum(len(images) for images, _ in some) == 18
    assert len(some) == 4


def test_one_bare_file_by_its_path(out: str, tmp_path: Path) -> None:
    shard = next(Path(out).glob("train-*.tfrecord"))
    alone = shutil.copy(shard, tmp_path / "some.tfrecord")
    images = list(tfrecorder.load(alone, "TRAIN"))
    assert len(images) == info(alone).records
    with pytest.raises(DatasetError, match=r"none\.tfrecord"):
        tfrecorder.load(tmp_path / "none.tfrecord")


@pytest.mark.slow
def test_bare_files_with_few_keys(tmp_path: Path) -> None:
    data = (SAMPLES / "mixed/cat_rgb.png").read_bytes()
    feature = {"image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data]))}
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    with tf.io.TFRecordWriter(str(tmp_path / "cats.tfrecord")) as file:
        file.write(example.SerializeToString())
    for more in ({}, {"batch_size": 1, "image_size": 9}):
        (pixels,) = tfrecorder.load(tmp_path, "TRAIN", **more)
        assert pixels.shape[-1] == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF"])
def test_bare_files_that_tell_wrong_sizes(tmp_path: Path, kind: str) -> None:
    """As where somebody resized the images and kept the other features."""
    rows = np.arange(200, dtype=np.uint8) // 2 * 2
    pixels = np.tile(rows[:, None, None], (1, 100, 3))
    image = io.BytesIO()
    Image.fromarray(pixels).save(image, kind)
    example = tf.train.Example()
    example.features.feature["image/encoded"].bytes_list.value.append(image.getvalue())
    for key, value in {"image/height": 3200, "image/width": 1600}.items():
        example.features.feature[key].int64_list.value.append(value)
    with tf.io.TFRecordWriter(str(tmp_path / "rows.tfrecord")) as file:
        file.write(example.SerializeToString())
    expected = tf.image.resize(pixels, (150, 60), antialias=True).numpy()
    for batch_size in (None, 1):
        options = {"image_size": (150, 60), "batch_size": batch_size}
        (found,) = tfrecorder.load(tmp_path, "TRAIN", **options)
        assert mean_difference(np.reshape(found, expected.shape), expected) < 1
        (part,) = tfrecorder.load(tmp_path, "TRAIN", augment=True, **options)
        levels = np.unique(np.reshape(part, expected.shape)[:, :, 0])
        assert len(levels) > 20  # of a part of three rows and more, stretched


def test_a_bare_file_without_records_among_others(out: str, tmp_path: Path) -> None:
    (tmp_path / "train-0.tfrecord").touch()
    with pytest.raises(DatasetError, match="no record in any file"):
        tfrecorder.load(tmp_path)
    shutil.copy(next(Path(out).glob("train-*.tfrecord")), tmp_path / "train-1.tfrecord")
    assert len(list(tfrecorder.load(tmp_path, "TRAIN"))) == info(tmp_path).records > 0


@pytest.mark.parametrize(
    "label", [{"bytes_list": {"value": [b"cat"]}}, {"int64_list": {"value": [1, 2]}}]
)
def test_bare_files_whose_labels_are_not_one_integer(tmp_path: Path, label: dict) -> None:
    data = (SAMPLES / "mixed/cat_rgb.png").read_bytes()
    feature = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
        "image/class/label": tf.train.Feature(**label),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    with tf.io.TFRecordWriter(str(tmp_path / "cats.tfrecord")) as file:
        file.write(example.SerializeToString())
    with pytest.raises(DatasetError, match=r"cats.tfrecord: image/class/label .*not one integer"):
        tfrecorder.load(tmp_path)


def test_bare_files_that_hold_something_else(tmp_path: Path) -> None:
    other = tf.train.Example()
    other.features.feature["audio"].bytes_list.value.append(b"x")
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as file:
        file.write(other.SerializeToString())
    assert list(tfrecorder.load(tmp_path, "TRAIN").as_numpy_iterator()) == [b"x"]
    (tmp_path / "a.tfrecord").write_bytes(b"not records at all, but text")
    with pytest.raises(DatasetError, match=r"a.tfrecord is not a whole TFRecord file"):
        tfrecorder.load(tmp_path)


@pytest.mark.usefixtures("ram")
def test_records_elsewhere_are_read_by_tensorflow(out: str) -> None:
    """ram:// stands in for gs://."""
    tf.io.gfile.makedirs("ram://here/_tfrecorder")
    for path in Path(out).rglob("*"):
        if path.is_file():
            tf.io.gfile.copy(str(path), f"ram://here/{path.relative_to(out)}", overwrite=True)
    local, remote = tfrecorder.load(out, "TEST"), tfrecorder.load("ram://here", "TEST")
    for (one, _), (other, _) in zip(local, remote, strict=True):
        np.testing.assert_array_equal(one, other)
    assert info("ram://here").records == info(out).records
    tf.io.gfile.remove("ram://here/test-00000.tfrecord")
    with pytest.raises(DatasetError, match=r"test-00000.tfrecord is missing"):
        tfrecorder.load("ram://here")


@pytest.mark.slow
def test_a_mirrored_strategy_trains_on_every_image(out: str) -> None:
    """In a process of its own: the number of devices is fixed when TensorFlow begins."""
    code = f"""
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
import keras, tfrecorder
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
train = tfrecorder.load({out!r}, "TRAIN", batch_size=8, image_size=16, inputs="all")
rows = []
for batch in strategy.experimental_distribute_dataset(train):
    for part in strategy.experimental_local_results(batch["image/source_id"]):
        rows += part.numpy().tolist()
print(len(rows), len(set(rows)))
with strategy.scope():
    layers = [keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(4)]
    model = keras.Sequential(layers)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
train = tfrecorder.load({out!r}, "TRAIN", batch_size=8, image_size=16, augment=True, seed=1)
history = model.fit(train, epochs=2, verbose=0)
print(len(history.history["loss"]))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["36", "36", "2"], run.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"seed": 1}, {"seed": 1, "augment": True}, {"cache": True}])
def test_auto_sharding_divides_without_loss(out: str, more: dict[str, object]) -> None:
    from tensorflow.python.data.experimental.ops import distribute  # what tf.distribute calls

    options = {"batch_size": 4, "image_size": 10, "inputs": "all"} | more
    parts = []
    for index in range(2):
        dataset = tfrecorder.load(out, "TRAIN", **options)
        parts.append(ids(distribute._AutoShardDataset(dataset, 2, index)))
    assert all(parts)
    assert len(parts[0] + parts[1]) == len(set(parts[0] + parts[1])) == 36


@pytest.mark.slow
def test_auto_sharding_does_not_divide_a_share_again(out: str) -> None:
    from tensorflow.python.distribute import input_ops  # what tf.distribute calls

    parts = []
    for index in range(2):
        dataset = tfrecorder.load(
            out, "TRAIN", batch_size=4, inputs="all", decode=False, shard=(index, 2)
        )
        parts += ids(input_ops.auto_shard_dataset(dataset, 2, index))
    assert len(parts) == len(set(parts)) == 36


@pytest.mark.slow
def test_keras_learns_from_the_photographs(out: str) -> None:
    import keras

    keras.utils.set_random_seed(0)
    options = {"batch_size": 8, "image_size": (48, 64), "dtype": "float32"}
    train = tfrecorder.load(out, "TRAIN", seed=1, **options)
    valid = tfrecorder.load(out, "VALIDATION", **options)
    model = keras.Sequential(
        [
            keras.Input((48, 64, 3)),
            keras.layers.Conv2D(16, 3, 2, activation="relu"),
            keras.layers.Conv2D(32, 3, 2, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    history = model.fit(train, validation_data=valid, epochs=15, verbose=0)
    assert max(history.history["val_accuracy"]) > 0.5


@pytest.mark.slow
def test_reading_does_not_load_beam_nor_info_tensorflow(out: str) -> None:
    code = f"""
import sys, tfrecorder
tfrecorder.info({out!r})
assert "tensorflow" not in sys.modules
tfrecorder.load({out!r})
print("apache_beam" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False"]

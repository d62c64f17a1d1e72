"""From a source to tf.data in one call: what load gives, and every option checked beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import CSV, photo_frame, run

import tfrecorder


@pytest.mark.slow
def test_it_gives_what_load_of_the_directory_gives() -> None:
    made = tfrecorder.convert_and_load(
        CSV, "out", progress=False, num_shards=2, load_options={"shuffle": False}
    )
    assert isinstance(made, dict)
    assert list(made) == ["TRAIN", "VALIDATION", "TEST"]
    assert tfrecorder.info("out").splits["TRAIN"].shards == 2
    for split, dataset in made.items():
        again = tfrecorder.load("out", split, shuffle=False)
        assert len(dataset) == len(again) > 0
        for (image, label), (image_again, label_again) in zip(dataset, again, strict=True):
            assert np.array_equal(image, image_again)
            assert label == label_again


def test_one_split_in_batches_and_an_option_that_both_know() -> None:
    """image_size of the conversion is what is stored, that of load_options what is read."""
    train = tfrecorder.convert_and_load(
        CSV,
        Path("out"),
        progress=False,
        image_size=(40, 60),
        load_options={"split": "train", "batch_size": 4, "image_size": (24, 32)},
    )
    assert isinstance(train, tf.data.Dataset)
    images, labels = next(iter(train))
    assert (images.shape, labels.shape) == ((4, 24, 32, 3), (4,))
    assert tfrecorder.info("out").image_shape == (40, 60, 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch_size": 4}, "it is an option of load: give it as `load_options={'batch"),
        ({"load_options": {"num_shards": 4}}, "num_shards=4: it is an option of the conversion"),
        ({"load_options": {"batchsize": 4}}, "did you mean `batch_size`?"),
        ({"load_options": {"batch_size": 0}}, "load_options: batch_size=0"),
        ({"load_options": {"split": "trian"}}, "'trian' is not a split; there are TRAIN"),
        ({"load_options": "TRAIN"}, "load_options='TRAIN': give a dict"),
        ({"num_shard": 4}, "did you mean `num_shards`?"),
        ({"wait": False}, "wait=False: the dataset must be written"),
    ],
    ids=str,
)
def test_a_wrong_option_of_either_is_told_before_anything_is_written(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(tfrecorder.OptionError) as caught:
        tfrecorder.convert_and_load(CSV, "out", **options)
    assert words in str(caught.value)
    assert not Path("out").exists()


def test_a_place_that_load_cannot_read_is_told_before_anything_is_written() -> None:
    import fsspec

    with pytest.raises(tfrecorder.DatasetError, match="TensorFlow has no reader of memory://"):
        tfrecorder.convert_and_load(CSV, "memory://nobody-reads/out")
    assert not fsspec.filesystem("memory").exists("/nobody-reads")


def test_a_split_without_rows_is_told_and_the_dataset_is_there() -> None:
    with pytest.raises(tfrecorder.DatasetError, match="it has TRAIN"):
        tfrecorder.convert_and_load(
            photo_frame(4), "out", progress=False, load_options={"split": "TEST"}
        )
    assert tfrecorder.info("out").records == 4


def test_errors_of_the_conversion_are_its_own() -> None:
    tfrecorder.convert_and_load(photo_frame(4), "out", progress=False)
    with pytest.raises(tfrecorder.OutputError, match="overwrite=True"):
        tfrecorder.convert_and_load(photo_frame(5), "out", progress=False)
    again = tfrecorder.convert_and_load(photo_frame(6), "out", progress=False, overwrite=True)
    assert len(again["TRAIN"]) == 6  # type: ignore[index]


def test_checking_the_options_loads_neither_tensorflow_nor_beam() -> None:
    code = """
import sys, tfrecorder
try:
    tfrecorder.convert_and_load("none.csv", "out", load_options={"dtype": "int3"})
except tfrecorder.OptionError as error:
    print(error, {"tensorflow", "apache_beam"} & set(sys.modules))
"""
    done = run("-c", code)
    assert done.stdout.startswith("load_options: dtype='int3'"), done.stderr
    assert done.stdout.endswith("set()\n")

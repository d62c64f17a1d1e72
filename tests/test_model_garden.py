"""The TensorFlow Model Garden reads datasets with boxes: its own decoders, as they are installed.

Its package imports all of its models, with what they need, before it gives a decoder; the modules
of the decoders need TensorFlow alone.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from kind_cases import convert
from PIL import Image as Pictures
from support import skip_without
from test_detection import BRICK, CAT, in_pixels

import tfrecorder


@pytest.fixture
def garden(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports a module of `official.vision.dataloaders`."""
    skip_without("official")
    import official

    for name in ("official.vision", "official.vision.dataloaders"):
        module = types.ModuleType(name)
        module.__path__ = [str(Path(official.__path__[0], *name.split(".")[1:]))]
        monkeypatch.setitem(sys.modules, name, module)
    return lambda name: importlib.import_module(f"official.vision.dataloaders.{name}")


def decoded(out: str, decoder: Any) -> list[dict[str, np.ndarray]]:
    files = sorted(map(str, Path(out).glob("train-*")))
    dataset = tf.data.TFRecordDataset(files).map(decoder.decode)
    return list(dataset.as_numpy_iterator())


def detection() -> str:
    return convert(in_pixels(), "out", shuffle=False, num_shards=1, background_class=True)


def test_its_decoder_gives_boxes_and_classes_from_1(garden: Any) -> None:
    cat, cup, none = decoded(detection(), garden("tf_example_decoder").TfExampleDecoder())
    assert cat["groundtruth_classes"].tolist() == [3, 1]
    assert cup["groundtruth_classes"].tolist() == [2]
    width, height = Pictures.open(CAT).size
    assert np.allclose(
        cat["groundtruth_boxes"],
        [[2 / height, 1 / width, 40 / height, 30 / width], [0, 0, 1, 1]],
    )
    assert np.allclose(cat["groundtruth_area"], [29 * 38, width * height])
    assert (cat["image"].shape, cat["height"]) == ((height, width, 3), height)
    assert np.array_equal(none["image"], tf.io.decode_image(Path(BRICK).read_bytes(), channels=3))
    assert none["groundtruth_boxes"].shape == (0, 4)


def test_its_label_map_gives_the_same_classes(garden: Any) -> None:
    out = detection()
    plain = decoded(out, garden("tf_example_decoder").TfExampleDecoder())
    make = garden("tf_example_label_map_decoder").TfExampleDecoderLabelMap
    named = decoded(out, make(str(Path(out, "label_map.csv"))))
    assert [one["groundtruth_classes"].tolist() for one in named] == [
        one["groundtruth_classes"].tolist() for one in plain
    ]


def test_the_label_map_of_the_newest_generation_knows_every_class(garden: Any) -> None:
    out = detection()
    frame = in_pixels()[:1].assign(label="aardvark")
    tfrecorder.append(frame, out, duplicates="keep", progress=False)
    newest = tfrecorder.generations(out)[0]
    make = garden("tf_example_label_map_decoder").TfExampleDecoderLabelMap
    (one,) = decoded(newest, make(str(Path(newest, "label_map.csv"))))
    assert one["groundtruth_classes"].tolist() == [4]


def test_a_further_key_is_no_hindrance(garden: Any) -> None:
    out = convert(in_pixels(), "out", shuffle=False, num_shards=1, tfds_features=True)
    cat, _, _ = decoded(out, garden("tf_example_decoder").TfExampleDecoder())
    assert cat["groundtruth_classes"].tolist() == [2, 0]

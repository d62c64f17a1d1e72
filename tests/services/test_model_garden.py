"""The TensorFlow Model Garden reads our datasets: its own decoders and parsers, as installed.

Each of its packages imports all that is in it, with what dozens of models need. The modules that
read records need TensorFlow and tf-keras alone, so they are imported without their packages.
"""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from helpers.kind_cases import convert
from helpers.object_cases import BRICK, CAT, boxes_in_pixels, in_pixels
from PIL import Image as Pictures
from support import photo_frame, skip_without

import tfrecorder

_PACKAGES = (
    "core",
    "modeling",
    "modeling.optimization",
    "modeling.optimization.configs",
    "modeling.privacy",
    "vision",
    "vision.configs",
    "vision.dataloaders",
    "vision.ops",
)


BACKGROUND = boxes_in_pixels(background_class=True)


@pytest.fixture
def garden(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports a module of `official.vision.dataloaders`."""
    skip_without("official", "tf_keras")
    import official

    for name in _PACKAGES:
        module = types.ModuleType(f"official.{name}")
        module.__path__ = [str(Path(official.__path__[0], *name.split(".")))]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return lambda name: importlib.import_module(f"official.vision.dataloaders.{name}")


def decoded(out: str, decoder: Any) -> list[dict[str, np.ndarray]]:
    files = sorted(map(str, Path(out).glob("train-*")))
    dataset = tf.data.TFRecordDataset(files).map(decoder.decode)
    return list(dataset.as_numpy_iterator())


def detection() -> str:
    return convert(in_pixels(), "out", shuffle=False, num_shards=1, schema=BACKGROUND)


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


def test_the_label_map_after_an_append_knows_every_class(garden: Any) -> None:
    out = detection()
    frame = in_pixels()[:1].assign(label="aardvark")
    tfrecorder.append(frame, out, duplicates="keep", progress=False)
    make = garden("tf_example_label_map_decoder").TfExampleDecoderLabelMap
    *_, one = decoded(out, make(str(Path(out, "label_map.csv"))))
    assert one["groundtruth_classes"].tolist() == [4]


def test_a_further_key_is_no_hindrance(garden: Any) -> None:
    schema = boxes_in_pixels(tfds_features=True)
    out = convert(in_pixels(), "out", shuffle=False, num_shards=1, schema=schema)
    cat, _, _ = decoded(out, garden("tf_example_decoder").TfExampleDecoder())
    assert cat["groundtruth_classes"].tolist() == [2, 0]


def targets(out: str, garden: Any) -> np.ndarray:
    """The classes that RetinaNet's parser gives the anchors of the first image; 0 is background."""
    parse = garden("retinanet_input").Parser(
        output_size=[64, 64],
        min_level=3,
        max_level=5,
        num_scales=3,
        aspect_ratios=[0.5, 1.0, 2.0],
        anchor_size=4.0,
        dtype="float32",
    )
    decode = garden("tf_example_decoder").TfExampleDecoder().decode
    files = sorted(map(str, Path(out).glob("train-*")))
    dataset = tf.data.TFRecordDataset(files).map(decode).map(parse.parse_fn(is_training=True))
    _, labels = next(iter(dataset))
    return np.concatenate([one.numpy().ravel() for one in labels["cls_targets"].values()])


def test_its_parser_takes_class_0_for_the_background(garden: Any) -> None:
    frame = in_pixels()[2:3]  # one box around a whole image
    plain = targets(convert(frame, "plain"), garden)
    assert not (plain > 0).any()
    assert (targets(convert(frame, "out", schema=BACKGROUND), garden) == 1).any()


def first_image(out: str, garden: Any, **options: Any) -> np.ndarray:
    """The first image as the parser of classification gives it, in training."""
    reading = garden("classification_input")
    parse = reading.Parser([32, 32], num_classes=2, **options).parse_fn(is_training=True)
    files = sorted(map(str, Path(out).glob("train-*")))
    dataset = tf.data.TFRecordDataset(files).map(reading.Decoder().decode).map(parse)
    image, _ = next(iter(dataset))
    return image.numpy()


def test_its_classification_decodes_png_where_it_is_told_to(garden: Any) -> None:
    Pictures.open(CAT).save("cat.png")
    frame = pd.DataFrame({"split": ["TRAIN"], "image_uri": "cat.png", "label": "cat"})
    out = convert(frame, "out")
    with pytest.raises(tf.errors.InvalidArgumentError):
        first_image(out, garden)
    assert first_image(out, garden, decode_jpeg_only=False).shape == (32, 32, 3)
    jpeg = convert(frame, "jpeg", image_format="jpeg")
    assert first_image(jpeg, garden).shape == (32, 32, 3)
    assert first_image(convert(photo_frame(1), "photos"), garden).shape == (32, 32, 3)

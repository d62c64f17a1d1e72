"""`tfds_features=True` in a schema: TFDS's tools draw boxes and masks, and know what a mask is."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tensorflow_datasets as tfds
from helpers.kind_cases import convert, values
from helpers.object_cases import BRICK, EDGES, boxes_in_pixels, in_pixels, marked, masked
from helpers.record_laws import check_records
from PIL import Image as Pictures
from support import examples, public_files, shards

import tfrecorder
from tfrecorder.schema import Boxes, Image, Label, Mask, Schema, Split

BBOX, MASK = "image/object/bbox", "image/segmentation/class/encoded"

BOXES, MASKED = boxes_in_pixels(tfds_features=True), Mask(tfds_features=True)
MASKS = Schema(split=Split(), image_uri=Image(), mask_uri=MASKED)


def read(out: str, **options: Any) -> tuple[Any, Any]:
    """The training split as TFDS reads it, in the stored order, and its info."""
    builder = tfds.builder_from_directory(out)
    return builder.as_dataset("train", shuffle_files=False, **options), builder.info


def stored(out: str) -> list[dict[str, Any]]:
    """Every record as it is stored."""
    return [one for shard in shards(out) for one in examples(shard)]


def pictures(out: str, column: str) -> list[np.ndarray]:
    """What tfds.as_dataframe draws in the cells of a column."""
    dataset, info = read(out)
    frame = tfds.as_dataframe(dataset, info)
    cells = frame[column].map(info.features[column].repr_html)
    if isinstance(info.features[column], tfds.features.Sequence):
        cells = frame[column].map(info.features[column].feature.repr_html_batch)
    assert "data:image/png" in frame._repr_html_()
    return [_drawn(cell) for cell in cells]


def _drawn(cell: str) -> np.ndarray:
    found = re.search(r"base64,([^\"]+)", cell)
    assert found
    with Pictures.open(io.BytesIO(base64.b64decode(found[1]))) as opened:
        return np.asarray(opened.convert("RGB"))


def test_boxes_are_tfds_boxes() -> None:
    out = convert(in_pixels(), "out", shuffle=False, schema=BOXES)
    dataset, info = read(out)
    feature = info.features[BBOX].feature
    assert isinstance(feature, tfds.features.BBoxFeature)
    assert feature.bbox_format.value == "REL_YXYX"
    for one in tfds.as_numpy(dataset):
        edges = (one[f"{BBOX}/{edge}"] for edge in ("ymin", "xmin", "ymax", "xmax"))
        assert one[BBOX].dtype == np.float32
        assert np.array_equal(one[BBOX], np.stack([*edges], 1))
    assert [len(one[BBOX]) for one in tfds.as_numpy(dataset)] == [2, 1, 0]


def test_features_json_is_what_tfds_itself_would_write() -> None:
    frame = in_pixels()[:1].assign(mask_uri="mask.png")
    with Pictures.open(frame["image_uri"][0]) as opened:
        Pictures.new("L", opened.size).save("mask.png")
    boxes = Boxes(unit="pixel", tfds_features=True)
    schema = Schema(split=Split(), image_uri=Image(), boxes=boxes, mask_uri=MASKED)
    convert(frame, "out", schema=schema)
    features = tfds.builder_from_directory("out").info.features
    Path("theirs").mkdir()
    features.save_config("theirs")
    ours, theirs = (json.loads(Path(one, "features.json").read_text()) for one in ("out", "theirs"))
    assert ours == theirs


@pytest.mark.slow
def test_tfds_draws_the_boxes() -> None:
    path, edges = marked((200, 120))
    row = ("TRAIN", str(path), *edges, "x")
    frame = pd.DataFrame([row], columns=["split", "image_uri", *EDGES, "label"])
    (drawn,) = pictures(convert(frame, "out", schema=BOXES), BBOX)
    rows, columns = np.nonzero((drawn != 255).any(axis=2))
    height, width = drawn.shape[:2]
    wanted = [edges[1] / 120 * height, edges[0] / 200 * width]
    wanted += [edges[3] / 120 * height, edges[2] / 200 * width]
    found = [rows.min(), columns.min(), rows.max(), columns.max()]
    assert np.abs(np.subtract(found, wanted)).max() <= 1.5


@pytest.mark.parametrize("options", [{}, {"image_size": (96, 96), "resize": "crop"}], ids=str)
def test_whole_boxes_are_those_of_the_edges(options: dict[str, Any]) -> None:
    frame = in_pixels()
    frame.loc[0, EDGES] = [0.0, 0.0, 3.0, 3.0]  # cut away where images are cropped
    out = convert(frame, "out", shuffle=False, schema=BOXES, **options)
    lengths = []
    for one in stored(out):
        edges = [one[f"{BBOX}/{edge}"] for edge in ("ymin", "xmin", "ymax", "xmax")]
        assert np.array_equal(one[BBOX], np.stack(edges, 1).ravel())
        lengths.append(len(edges[0]))
    assert sum(lengths) == (1 if options else 3)
    assert tfrecorder.verify(out, progress=False).ok
    check_records(out)


@pytest.mark.slow
def test_our_readers_give_what_they_gave() -> None:
    plain = convert(in_pixels(), "plain", shuffle=False)
    out = convert(in_pixels(), "out", shuffle=False, schema=BOXES)
    assert values(tfrecorder.to_frame(out)) == values(tfrecorder.to_frame(plain))
    for (image, ours), (_, theirs) in zip(
        tfrecorder.load(out, "TRAIN", shuffle=False),
        tfrecorder.load(plain, "TRAIN", shuffle=False),
        strict=True,
    ):
        assert image.dtype == "uint8"
        assert {name: one.numpy().tolist() for name, one in ours.items()} == {
            name: one.numpy().tolist() for name, one in theirs.items()
        }
    every = next(iter(tfrecorder.load(out, "TRAIN", shuffle=False, inputs="all")))
    assert every[BBOX].shape == (8,)
    assert len(tfrecorder.Records(out, "TRAIN")) == 3
    assert tfrecorder.info(out).features[BBOX] == "float"


@pytest.mark.slow
def test_appended_and_compacted_records_have_the_same_boxes() -> None:
    frame = in_pixels()
    whole = convert(frame, "whole", shuffle=False, num_shards=1, schema=BOXES)
    out = convert(frame[frame["image_uri"] != BRICK], "out", shuffle=False, schema=BOXES)
    tfrecorder.append(frame, out, progress=False)
    words = "'boxes' has `tfds_features=False` here, `True` in the dataset"
    with pytest.raises(tfrecorder.errors.SourceError, match=words):
        tfrecorder.append(frame, out, schema=boxes_in_pixels(), duplicates="keep")
    tfrecorder.compact(out, "compact", shuffle=False, num_shards=1, progress=False)
    for one in (out, "compact"):
        assert tfrecorder.verify(one, progress=False).ok
    assert public_files("compact")["features.json"] == public_files(whole)["features.json"]
    dataset, _ = read("compact")
    assert [len(one[BBOX]) for one in tfds.as_numpy(dataset)] == [2, 1, 0]


def classes_in_quarters() -> pd.DataFrame:
    """A picture and its mask, whose quarters are of the classes 0 to 3."""
    classes = np.zeros((64, 64), np.uint8)
    classes[:32, 32:], classes[32:, :32], classes[32:, 32:] = 1, 2, 3
    Pictures.fromarray(classes).save("mask.png")
    Pictures.new("RGB", (64, 64), (9, 90, 200)).save("image.png")
    return pd.DataFrame({"split": ["TRAIN"], "image_uri": "image.png", "mask_uri": "mask.png"})


@pytest.mark.slow
def test_tfds_shows_the_classes_of_a_mask_in_colours() -> None:
    def contrast(out: str) -> float:
        (drawn,) = pictures(out, MASK)
        seen = [drawn[at] for at in ((16, 16), (16, 48), (48, 16), (48, 48))]
        pairs = [np.abs(one.astype(int) - other) for one in seen for other in seen]
        return float(np.sort([pair.max() for pair in pairs])[4])  # of two unlike ones, the least

    assert contrast(convert(classes_in_quarters(), "plain")) <= 3
    assert contrast(convert(classes_in_quarters(), "out", schema=MASKS)) > 30


@pytest.mark.slow
def test_as_supervised_gives_the_image_and_its_mask() -> None:
    out = convert(masked(3), "out", schema=MASKS)
    dataset, info = read(out, as_supervised=True)
    assert info.supervised_keys == ("image/encoded", MASK)
    for image, mask in tfds.as_numpy(dataset):
        assert image.shape[:2] == mask.shape[:2]
        assert mask.shape[2] == 1
    with pytest.raises(ValueError, match="as_supervised"):
        read(convert(masked(3), "plain"), as_supervised=True)


def test_as_supervised_gives_the_label_where_there_is_one() -> None:
    schema = Schema(split=Split(), image_uri=Image(), mask_uri=MASKED, label=Label())
    out = convert(masked(3).assign(label="cup"), "out", schema=schema)
    assert read(out)[1].supervised_keys == ("image/encoded", "image/class/label")


@pytest.mark.slow
def test_show_examples_shows_the_image_and_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    out = convert(classes_in_quarters(), "out", schema=MASKS)
    dataset, info = read(out)
    for key, shape in (("image/encoded", (64, 64, 3)), (MASK, (64, 64))):
        figure = tfds.visualization.show_examples(dataset, info, rows=1, cols=1, image_key=key)
        (shown,) = figure.axes[0].images
        assert shown.get_array().shape == shape
        figure.savefig(f"{key.replace('/', '_')}.png")

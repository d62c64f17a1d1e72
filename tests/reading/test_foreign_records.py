"""Records of other tools without metadata: boxes, masks, classes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from helpers.foreign_cases import (
    BOXES,
    CLASSES,
    EDGES,
    MASKS,
    OBJECT,
    PHOTOS,
    alike,
    both,
    detection,
    drawn_mask,
    image,
    png,
    write,
)
from helpers.reading_cases import pillow_pixels
from support import encoded, framed, invoke

import tfrecorder
from tfrecorder.errors import DatasetError


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["fraction", "pixel", "whole pixel"])
def test_boxes_are_read_as_fractions(unit: str, tmp_path: Path) -> None:
    where = write(tmp_path / "coco_train.record-00000-of-00001", detection(unit))
    for number, (loaded, found) in enumerate(both(tmp_path)):
        pixels, objects = loaded
        alike(loaded, found)
        np.testing.assert_array_equal(pixels, pillow_pixels(PHOTOS[number].read_bytes()))
        wanted = np.reshape(np.array(BOXES[number], np.float32), (-1, 4))
        rounded = 0.006 if unit == "whole pixel" else 1e-6
        np.testing.assert_allclose(objects["boxes"], wanted, atol=rounded)
        assert objects["labels"].tolist() == CLASSES[number]
    info = tfrecorder.info(where)
    assert info.columns["boxes"].kind == "boxes"
    assert info.records == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "resize"),
    [("fraction", "crop"), ("pixel", "pad"), ("pixel", "fit")],
)
def test_boxes_and_masks_are_placed_as_the_image_is(unit: str, resize: str, tmp_path: Path) -> None:
    """The record's image/height may be that of an earlier image, so the bytes are asked."""
    write(tmp_path / "train.tfrecord", detection(unit, masks=True))
    for loaded, found in both(tmp_path, image_size=(60, 90), resize=resize):
        alike(loaded, found, levels=3)
        objects = loaded[1]
        for (ymin, xmin, ymax, xmax), mask in zip(objects["boxes"], objects["masks"], strict=True):
            rows, columns = np.nonzero(mask)
            edges = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
            height, width = mask.shape
            np.testing.assert_allclose(
                edges, np.array([ymin, xmin, ymax, xmax]) * [height, width, height, width], atol=1.5
            )


@pytest.mark.slow
def test_masks_of_objects_stay_with_their_boxes(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", detection(masks=True))
    for number, (loaded, found) in enumerate(both(tmp_path)):
        alike(loaded, found)
        height, width = loaded[0].shape[:2]
        drawn = [drawn_mask(box, height, width) for box in BOXES[number]]
        wanted = np.reshape(np.array(drawn, np.uint8), (-1, height, width))
        np.testing.assert_array_equal(loaded[1]["masks"], wanted)
    (batch,) = tfrecorder.load(tmp_path, "TRAIN", batch_size=3, image_size=32, max_boxes=4)
    assert [batch[1][name].shape for name in ("boxes", "labels", "masks")] == [
        (3, 4, 4),
        (3, 4),
        (3, 4, 32, 32),
    ]
    options: dict[str, Any] = {"image_size": 32, "max_boxes": 4, "shuffle": False}
    ((_, objects),) = tfrecorder.batches(tmp_path, "TRAIN", batch_size=3, **options)
    assert objects["masks"].shape == (3, 4, 32, 32)
    (ragged,) = tfrecorder.load(tmp_path, "TRAIN", batch_size=3, image_size=32, shuffle=False)
    assert ragged[1]["masks"].row_lengths().numpy().tolist() == [2, 0, 1]
    augmented = tfrecorder.load(tmp_path, "TRAIN", image_size=32, augment=True, seed=1)
    for _, objects in augmented:
        assert len(objects["boxes"]) == len(objects["labels"]) == len(objects["masks"])


@pytest.mark.slow
def test_a_mask_of_each_pixel(tmp_path: Path) -> None:
    """As DeepLab's and the Model Garden's segmentation tools write it."""
    records = [
        image(number, **{"segmentation/class/encoded": MASKS[number].read_bytes()})
        | {"image/segmentation/class/format": "png"}
        for number in range(3)
    ]
    write(tmp_path / "val-00000-of-00001.tfrecord", records)
    for number, (loaded, found) in enumerate(both(tmp_path, "VALIDATION")):
        alike(loaded, found)
        np.testing.assert_array_equal(loaded[1][..., 0], pillow_pixels(MASKS[number].read_bytes()))
    (batch,) = tfrecorder.load(tmp_path, "VALIDATION", batch_size=3, image_size=40)
    assert (batch[0].shape, batch[1].shape) == ((3, 40, 40, 3), (3, 40, 40, 1))
    assert tfrecorder.info(tmp_path).columns["mask_uri"].kind == "mask"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"batch_size": 3, "image_size": 9}, {"cache": True}])
def test_a_record_without_a_class_is_the_image_alone(
    options: dict[str, Any], tmp_path: Path
) -> None:
    write(tmp_path / "train.tfrecord", [image(number) for number in range(3)])
    for element in tfrecorder.load(tmp_path, "TRAIN", **options):
        assert element.dtype == tf.uint8
    for images in tfrecorder.batches(tmp_path, "TRAIN", batch_size=3, image_size=9):
        assert images.shape == (3, 9, 9, 3)
    options["map_fn"] = lambda pixels: tf.shape(pixels)[2]
    mapped = tfrecorder.load(tmp_path, "TRAIN", **options)
    assert all(np.all(one == 3) for one in mapped)
    assert tfrecorder.Records(tmp_path, "TRAIN")[0].shape[2] == 3


def test_a_split_without_classes_next_to_one_with_them(tmp_path: Path) -> None:
    labelled = [image(number, **{"class/label": number, "class/text": "x"}) for number in range(2)]
    write(tmp_path / "train-00000-of-00001", labelled)
    write(tmp_path / "test-00000-of-00001", [image(2)])
    assert [label for _, label in tfrecorder.load(tmp_path, "TRAIN", shuffle=False)] == [0, 1]
    for loaded, found in both(tmp_path, "TEST"):
        assert (loaded[1], found[1]) == (-1, -1)


def test_info_lists_what_is_there_and_nothing_else(tmp_path: Path) -> None:
    record = image(0) | {"image/class/label": 1, "image/caption": ["a", "b"], "weight": 0.5}
    write(tmp_path / "train.tfrecord", [record])
    info = tfrecorder.info(tmp_path)
    assert set(info.features) == set(record)
    assert info.features["image/caption"] == "text"
    assert info.columns["weight"].dtype == "float32"
    assert "image/class/text" not in str(info)
    printed = invoke("info", tmp_path, "--json")
    assert set(json.loads(printed.stdout)["features"]) == set(record)
    ((loaded, found),) = both(tmp_path, inputs="all")
    assert set(loaded) == set(found) == set(record)
    assert loaded["image/caption"].tolist() == [b"a", b"b"]


def test_further_keys_can_be_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", detection())
    options = {"targets": ["boxes", f"{OBJECT}/is_crowd"]}
    for number, (loaded, found) in enumerate(both(tmp_path, **options)):
        alike(loaded, found)
        assert loaded[1][f"{OBJECT}/is_crowd"].tolist() == [0] * len(BOXES[number])


def test_features_in_parts_out_of_order_and_unpacked(tmp_path: Path) -> None:
    """Protocol buffers may be written in many ways; the last of two equal keys counts."""
    photo, key = PHOTOS[0].read_bytes(), b"image/class/label"

    def part(values: dict[str, Any]) -> bytes:
        return encoded({"image/encoded": photo, **values})

    def entry(*fields: bytes) -> bytes:
        features = b"\x0a" + bytes([len(b"".join(fields))]) + b"".join(fields)
        return b"\x0a" + bytes([len(features)]) + features

    name = b"\x0a" + bytes([len(key)]) + key
    packed, unpacked = b"\x12\x05\x1a\x03\x0a\x01\x05", b"\x12\x04\x1a\x02\x08\x06"
    records = [
        part({"image/class/label": 3}),
        part({"image/class/label": 3}) + encoded({"image/class/label": 4}),
        part({}) + entry(name, packed),
        part({}) + entry(packed, name),
        part({}) + entry(name, unpacked),
        part({"a" * 200: 1}) + entry(name, unpacked),
    ]
    (tmp_path / "train.tfrecord").write_bytes(b"".join(map(framed, records)))
    # Not by `load`: TensorFlow's own parser takes a key only before its value.
    expected = [
        tf.train.Example.FromString(record).features.feature[key.decode()].int64_list.value[:]
        for record in records
    ]
    found = list(tfrecorder.Records(tmp_path, "TRAIN"))
    assert [[label] for _, label in found] == expected == [[3], [4], [5], [5], [6], [6]]
    for pixels, _ in found:
        np.testing.assert_array_equal(pixels, pillow_pixels(photo))


def _without(record: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in keys}


_LABEL, _TEXT = f"{OBJECT}/class/label", f"{OBJECT}/class/text"


def _refused() -> dict[str, tuple[dict[str, Any], str]]:
    """By name: a record, and the words of the error."""
    boxed, drawn = detection()[0], detection(masks=True)[0]
    mask = np.zeros((4, 4), np.uint8)
    segmented = image(0)

    def masked(data: Any) -> dict[str, Any]:
        return segmented | {"image/segmentation/class/encoded": data}

    return {
        "half of the edges": (
            _without(boxed, EDGES[2]),
            rf"{OBJECT}/bbox/xmin is present without {OBJECT}/bbox/ymax",
        ),
        "edges of unequal number": (
            boxed | {EDGES[0]: [0.5]},
            r"bbox/xmin does not match the others: .*1 of image/object/bbox/ymin",
        ),
        "edges as text": (boxed | {EDGES[0]: ["a", "b"]}, "something other than numbers"),
        "classes as text alone": (_without(boxed, _LABEL), f"{_TEXT} has the classes as text"),
        "a class too few": (boxed | {_LABEL: [3]}, rf"{_LABEL} does not match .*1 of {_LABEL}"),
        "classes without boxes": (_without(boxed, *EDGES), f"{_LABEL} is of objects that have no"),
        "masks as numbers": (
            drawn | {f"{OBJECT}/mask": [0.0, 1.0] * 10},
            f"{OBJECT}/mask holds numbers, not PNGs",
        ),
        "a mask too few": (
            drawn | {f"{OBJECT}/mask": drawn[f"{OBJECT}/mask"][:1]},
            rf"{OBJECT}/mask does not match .*1 of {OBJECT}/mask",
        ),
        "masks as JPEG": (
            drawn | {f"{OBJECT}/mask": [PHOTOS[0].read_bytes()] * 2},
            f"{OBJECT}/mask holds something other than PNGs",
        ),
        "a mask with a palette": (masked(png(mask, "P")), "PNGs with a palette"),
        "a mask of colours": (masked(png(mask, "RGB")), "PNGs .*of colours"),
        "a mask of 16 bits": (masked(png(mask, "I;16")), "PNGs .*of other than 1 or 8 bits"),
        "pixels of another image": (
            detection("pixel")[0] | {"image/height": 4000, "image/width": 6000},
            "bbox/xmin is in pixels, of an image of 6000 x 4000 as the record says",
        ),
        "pixels beyond the image": (
            detection("pixel")[0] | {EDGES[3]: [10.0, 5000.0]},
            "a box reaches to 5000, beyond the image's width",
        ),
        "a class as text": (
            segmented | {"image/class/label": "cat"},
            r"image/class/label is \[b'cat'\], not one integer",
        ),
        "the text of a class alone": (
            segmented | {"image/class/text": "cat"},
            "image/class/text has the classes as text, without the integers of image/class/label",
        ),
    }


_REFUSED = _refused()


@pytest.mark.parametrize("name", _REFUSED)
def test_what_is_not_understood_is_refused_by_every_reader(name: str, tmp_path: Path) -> None:
    record, words = _REFUSED[name]
    path = write(tmp_path / "train-00000-of-00001", [record])
    for read in (
        lambda: tfrecorder.load(tmp_path, "TRAIN"),
        lambda: tfrecorder.Records(tmp_path, "TRAIN"),
        lambda: tfrecorder.batches(tmp_path, "TRAIN", batch_size=1, image_size=9),
    ):
        with pytest.raises(DatasetError, match=words) as raised:
            read()
        assert str(raised.value).startswith(str(path))
        assert "inputs='all'" in str(raised.value)
    info = tfrecorder.info(tmp_path)
    assert info.unread
    assert next(iter(info.unread.values())) in str(info)
    frame = tfrecorder.to_frame(tmp_path, images="bytes")
    assert set(info.unread) <= set(frame.columns)
    (element,) = tfrecorder.Records(tmp_path, "TRAIN", inputs="all")
    assert set(element) == set(record)
    ((_, found),) = tfrecorder.Records(tmp_path, "TRAIN", targets=["image/filename"])
    assert found == PHOTOS[0].name.encode()


def test_the_rest_of_a_refused_record_is_read_by_load(tmp_path: Path) -> None:
    record, _ = _REFUSED["masks as numbers"]
    write(tmp_path / "train-00000-of-00001", [record])
    ((loaded, found),) = both(tmp_path, targets=["boxes"])
    alike(loaded, found)
    assert set(loaded[1]) == {"boxes", "labels"}
    ((one, other),) = both(tmp_path, inputs="all")
    alike(one, other)
    assert set(one) == set(record)


def test_a_frame_of_detection_records(tmp_path: Path) -> None:
    write(tmp_path / "train.tfrecord", detection("pixel", masks=True))
    frame = tfrecorder.to_frame(tmp_path)
    assert frame["image_uri"].tolist() == [path.name for path in PHOTOS[:3]]
    assert frame["label"].tolist() == [[f"class {one}" for one in some] for some in CLASSES]
    width = image(0)["image/width"]
    np.testing.assert_allclose(frame["x_min"][0], [0.125 * width, 0.5 * width])
    assert frame["x_min"][1] == []
    assert [len(some) for some in frame[f"{OBJECT}/mask"]] == [2, 0, 1]
    assert frame["split"].tolist() == ["TRAIN"] * 3
    data = tfrecorder.to_frame(tmp_path, images="bytes")["image_uri"]
    assert data[0] == PHOTOS[0].read_bytes()


def test_what_looks_at_records_shows_boxes_and_masks(tmp_path: Path) -> None:
    write(tmp_path / "in/train.tfrecord", detection("pixel", masks=True))
    table = tfrecorder.inspect(tmp_path / "in", output_dir=tmp_path / "look")
    assert f"{OBJECT}/mask" not in table
    pictures = {path.name for path in (tmp_path / "look").glob("*.png")}
    assert len(pictures) == 3
    page = tfrecorder.preview(tmp_path / "in", tmp_path / "page.html").page
    assert "class 3" in page
    assert "class 7" in page

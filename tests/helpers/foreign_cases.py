"""Records as other tools write them, in files that TensorFlow and TFDS write."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

import tfrecorder
from helpers.reading_cases import SAMPLES, pillow_pixels

PHOTOS = sorted(SAMPLES.glob("photos/coffee/*.jpg"))
DATA = [path.read_bytes() for path in PHOTOS]
MASKS = [SAMPLES / "masks" / f"{path.stem}.png" for path in PHOTOS]

OBJECT = "image/object"
EDGES = tuple(f"{OBJECT}/bbox/{edge}" for edge in ("ymin", "xmin", "ymax", "xmax"))

#: Of the three records of `detection`: ymin, xmin, ymax, xmax, and the classes.
BOXES = [[[0.25, 0.125, 0.75, 0.5], [0.5, 0.5, 1.0, 1.0]], [], [[0.0, 0.25, 0.5, 0.75]]]
CLASSES = [[3, 7], [], [1]]


def png(pixels: np.ndarray, mode: str | None = None) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode or "L").save(out, "PNG")
    return out.getvalue()


def serialized(values: Mapping[str, Any]) -> bytes:
    """An Example: bytes and text as bytes, floats as floats, integers as int64."""
    example = tf.train.Example()
    for key, value in values.items():
        some = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value]
        feature = example.features.feature[key]
        if some and isinstance(some[0], (bytes, str)):
            raw = [one.encode() if isinstance(one, str) else one for one in some]
            feature.bytes_list.value.extend(raw)
        elif some and isinstance(some[0], (float, np.floating)):
            feature.float_list.value.extend(some)
        elif some:
            feature.int64_list.value.extend(some)
        else:
            feature.SetInParent()
    return example.SerializeToString()


def write(path: Path, records: Iterable[Mapping[str, Any]], compression: str = "") -> Path:
    """A file of records, as TensorFlow writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), compression) as file:
        for record in records:
            file.write(serialized(record))
    return path


def image(number: int, **more: Any) -> dict[str, Any]:
    """What every such tool writes of a photograph; `more` goes below image/."""
    data = PHOTOS[number].read_bytes()
    height, width = pillow_pixels(data).shape[:2]
    found = {"encoded": data, "format": "jpeg", "height": height, "width": width}
    found |= {"filename": PHOTOS[number].name, "source_id": str(100 + number)}
    return {f"image/{key}": value for key, value in (found | more).items()}


def detection(unit: str = "fraction", masks: bool = False) -> list[dict[str, Any]]:
    """Three photographs with their boxes; the second has none, and then scripts write no key."""
    records = []
    for number, (boxes, classes) in enumerate(zip(BOXES, CLASSES, strict=True)):
        record = image(number)
        sides = (record["image/height"], record["image/width"]) * 2
        if boxes:
            edges = np.array(boxes).T
            if unit == "pixel":
                edges = edges * np.array(sides)[:, None]
            if unit == "whole pixel":
                edges = np.round(edges * np.array(sides)[:, None]).astype(int)
            record |= {key: edge.tolist() for key, edge in zip(EDGES, edges, strict=True)}
            record[f"{OBJECT}/class/label"] = classes
            record[f"{OBJECT}/class/text"] = [f"class {one}" for one in classes]
            record[f"{OBJECT}/is_crowd"] = [0] * len(boxes)
            if masks:
                drawn = [drawn_mask(box, sides[0], sides[1]) for box in boxes]
                record[f"{OBJECT}/mask"] = [png(one) for one in drawn]
        records.append(record)
    return records


def drawn_mask(box: list[float], height: int, width: int) -> np.ndarray:
    """1 within a box, as COCO's scripts draw objects."""
    ymin, xmin, ymax, xmax = (np.array(box) * [height, width, height, width]).round().astype(int)
    mask = np.zeros((height, width), np.uint8)
    mask[ymin:ymax, xmin:xmax] = 1
    return mask


def both(where: Any, split: str = "TRAIN", **options: Any) -> list[tuple[Any, Any]]:
    """The elements of `load` in order, each with that of `Records`, as NumPy."""
    loaded = tfrecorder.load(where, split, **{"shuffle": False} | options)
    found = list(tfrecorder.Records(where, split, **options))
    return list(zip(loaded.as_numpy_iterator(), found, strict=True))


def alike(one: Any, other: Any, levels: float = 0.0) -> None:
    """Two elements are the same; pixels of images to so many grey levels in the mean."""
    assert type(one) is type(other) or not isinstance(one, (dict, tuple))
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            alike(one[key], other[key], levels)
    elif isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            alike(left, right, levels)
    else:
        left, right = np.asarray(one), np.asarray(other)
        assert left.shape == right.shape
        if left.dtype.kind in "uif":
            is_image = left.ndim == 3 and left.shape[-1] == 3
            assert left.dtype == right.dtype
            distance = np.abs(left.astype(float) - right.astype(float))
            assert not left.size or (
                distance.mean() <= levels if is_image else distance.max() < 1e-5
            )
        else:
            assert left.tolist() == right.tolist()

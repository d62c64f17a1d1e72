"""Boxes and masks are where their pixels went, whatever was done to the images when they were
written: against arithmetic that shares nothing with the writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.kind_cases import convert
from helpers.record_laws import check_records
from PIL import Image as Pictures
from support import SAMPLES, examples

from tfrecorder.schema import Boxes, Image, Mask, Schema, Split

COFFEE = sorted(SAMPLES.glob("photos/coffee/*.jpg"))
SHARD = "train-00000.tfrecord"
EDGES = ("xmin", "ymin", "xmax", "ymax")
CLASSES = ("cat", "cup", "eye")

#: What is done to the images.
TRANSFORMS: dict[str, dict[str, Any]] = {
    "none": {},
    "png": {"image_format": "png"},
    "upright": {"apply_exif": True},
    "short side": {"short_side": 48},
    "stretch": {"image_size": (40, 64)},
    "fit": {"image_size": (40, 64), "resize": "fit"},
    "stretch upright": {"image_size": (40, 64), "apply_exif": True},
    "raw": {"image_size": (40, 64), "image_format": "raw"},
    "crop": {"image_size": (40, 64), "resize": "crop"},
    "crop upright": {"image_size": (40, 64), "resize": "crop", "apply_exif": True},
    "pad": {"image_size": (40, 64), "resize": "pad"},
}

#: Where a point, in fractions, goes when an image of an EXIF orientation is turned upright.
TURNS: dict[int, Callable[[Any, Any], tuple[Any, Any]]] = {
    1: lambda x, y: (x, y),
    2: lambda x, y: (1 - x, y),
    3: lambda x, y: (1 - x, 1 - y),
    4: lambda x, y: (x, 1 - y),
    5: lambda x, y: (y, x),
    6: lambda x, y: (1 - y, x),
    7: lambda x, y: (1 - y, 1 - x),
    8: lambda x, y: (y, 1 - x),
}


def turned(path: Path, orientation: int) -> str:
    """A photograph stored with an EXIF orientation, and its mask as wide and as high."""
    name = f"turned_{orientation}.jpg"
    exif = Pictures.Exif()
    exif[0x0112] = orientation
    Pictures.open(path).crop((0, 0, 90, 70)).save(name, exif=exif)
    return name


def table(unit: str) -> pd.DataFrame:
    """Images with several boxes each, of every orientation and of several sizes."""
    numbers = np.random.default_rng(3)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("image_uri", "mask_uri", "label", *EDGES)
    }
    for number, path in enumerate([*COFFEE[:4], *COFFEE[:8]]):
        uri = str(path) if number < 4 else turned(path, number - 3)
        width, height = Pictures.open(uri).size
        mask = f"mask_{number}.png"
        Pictures.fromarray(numbers.integers(0, 3, (height, width), np.uint8)).save(mask)
        count = int(numbers.integers(2, 5))
        start, end = numbers.uniform(0, 0.45, (count, 2)), numbers.uniform(0.55, 1, (count, 2))
        boxes = np.hstack([start, end])
        boxes = boxes * [width, height, width, height] if unit == "pixel" else boxes
        columns["image_uri"].append(uri)
        columns["mask_uri"].append(mask)
        columns["label"].append([CLASSES[one % 3] for one in range(count)])
        for name, edge in zip(EDGES, boxes.T, strict=True):
            columns[name].append(edge.tolist())
    return pd.DataFrame(columns).assign(split="TRAIN")


def schema(unit: str, labelled: bool = True) -> Schema:
    boxes = Boxes(columns=EDGES, unit=unit, label="label" if labelled else None)
    return Schema(split=Split(), image_uri=Image(), mask_uri=Mask(), objects=boxes)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["fraction", "pixel"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_boxes_are_where_the_pixels_went(transform: str, unit: str) -> None:
    frame, options = table(unit), TRANSFORMS[transform]
    convert(frame, "out", schema=schema(unit), num_shards=1, shuffle=False, **options)
    check_records("out")
    for record, (_, row) in zip(examples(f"out/{SHARD}"), frame.iterrows(), strict=True):
        height, width = (int(record[f"image/{side}"][0]) for side in ("height", "width"))
        due = moved(row, unit, (width, height), options)
        found = np.stack([record[f"image/object/bbox/{edge}"] for edge in EDGES], 1)
        # Where images are cut or padded, to whole pixels.
        whole = options.get("resize") in ("crop", "pad")
        assert np.abs(found - due).max() <= (1 / min(width, height) if whole else 1e-6)
        assert [text.decode() for text in record["image/object/class/text"]] == row["label"]


def moved(
    row: Any, unit: str, stored: tuple[int, int], options: dict[str, Any]
) -> np.ndarray[Any, Any]:
    """The boxes of a row as fractions of its stored image, of this width and height."""
    image = Pictures.open(row["image_uri"])
    corners = np.array([row[edge] for edge in EDGES]).T.reshape(-1, 2, 2)  # of each box two points
    x, y = np.moveaxis(corners / image.size if unit == "pixel" else corners, 2, 0)
    width, height = image.size
    if options.get("apply_exif"):
        turn = image.getexif().get(0x0112, 1)
        x, y = TURNS[turn](x, y)
        width, height = (height, width) if turn >= 5 else (width, height)
    if options.get("resize") in ("crop", "pad"):
        scales = stored[0] / width, stored[1] / height
        scale = max(scales) if options["resize"] == "crop" else min(scales)
        x = (x - 0.5) * width * scale / stored[0] + 0.5
        y = (y - 0.5) * height * scale / stored[1] + 0.5
    points = np.stack([x, y], 2).clip(0, 1)
    return np.concatenate([points.min(1), points.max(1)], 1)


@pytest.mark.parametrize("transform", ["none", "stretch", "crop"])
def test_boxes_without_classes_are_moved_as_others(transform: str) -> None:
    frame, options = table("fraction"), TRANSFORMS[transform]
    bare = frame.drop(columns="label")
    more = {"num_shards": 1, "shuffle": False, **options}
    convert(frame, "labelled", schema=schema("fraction"), **more)
    convert(bare, "bare", schema=schema("fraction", labelled=False), **more)
    check_records("bare")
    for one, other in zip(examples(f"labelled/{SHARD}"), examples(f"bare/{SHARD}"), strict=True):
        assert not any("/class/" in key for key in other if key.startswith("image/object/"))
        for edge in EDGES:
            key = f"image/object/bbox/{edge}"
            assert np.array_equal(one[key], other[key])

"""A box of which exactly a tenth is left stays: when it is written, in `load` and in `Records`.

If a side of an image is not a power of two, the writer's float64 may round a share of exactly a
tenth up or down.  Its files stay as they are, so for such images only the readers are compared.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.growing_cases import QUIET
from PIL import Image as Pictures

import tfrecorder
from tfrecorder.schema import Boxes, Image, Schema, Split

EDGES = ("xmin", "ymin", "xmax", "ymax")

#: (width, height) of images, of which a square of the short side is cut.
EXACT = ((128, 64), (64, 256), (512, 128))
SIZES = (*EXACT, (120, 80), (80, 120), (333, 111), (500, 375), (641, 480), (1000, 200), (97, 301))


def boxes_of(width: int, height: int) -> list[tuple[int, int, int, int]]:
    """Boxes in whole pixels over the edge of the square, about a tenth of each within it."""
    made = []
    side, along = min(width, height), max(width, height)
    first = (along - side) // 2
    for length in range(1, 7):
        for across in (1, 7, side // 3, side - 1):
            for share in (9, 10, 11):
                low = first - 10 * length + length + (share - 10)
                box = (low, 0, low + 10 * length, across)
                made.append(box if width > height else (box[1], box[0], box[3], box[2]))
    return [box for box in made if min(box) >= 0 and box[0] < box[2] and box[1] < box[3]]


def share_left(box: tuple[int, int, int, int], width: int, height: int) -> Fraction:
    """The share of a box that is in the square in the middle, without rounding."""
    side = min(width, height)
    left, upper = Fraction(width - side, 2), Fraction(height - side, 2)
    across = max(Fraction(0), min(box[2], left + side) - max(box[0], left))
    down = max(Fraction(0), min(box[3], upper + side) - max(box[1], upper))
    return across * down / ((box[2] - box[0]) * (box[3] - box[1]))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images as they are, "whole", and cut when they are written, "cut"."""
    folder = tmp_path_factory.mktemp("shares")
    rows = []
    for number, (width, height) in enumerate(SIZES):
        path = folder / f"{number}.png"
        Pictures.new("RGB", (width, height)).save(path)
        edges = zip(*boxes_of(width, height), strict=True)
        rows.append({"image_uri": str(path), **dict(zip(EDGES, map(list, edges), strict=True))})
    frame = pd.DataFrame(rows).assign(split="TRAIN")
    boxes = Boxes(columns=EDGES, unit="pixel", label=None)
    schema = Schema(split=Split(), image_uri=Image(), objects=boxes)
    options: dict[str, Any] = {"schema": schema, "shuffle": False, "num_shards": 1, **QUIET}
    tfrecorder.convert(frame, folder / "whole", **options)
    tfrecorder.convert(frame, folder / "cut", image_size=(60, 60), resize="crop", **options)
    return folder


def test_all_engines_keep_the_same_boxes(written: Path) -> None:
    cut = {"image_size": (60, 60), "resize": "crop"}
    due = [[share_left(box, *size) >= Fraction(1, 10) for box in boxes_of(*size)] for size in SIZES]
    shares = [share_left(box, *size) for size in SIZES for box in boxes_of(*size)]
    assert shares.count(Fraction(1, 10)) > 40
    stored = tfrecorder.Records(written / "cut", "TRAIN")
    records = tfrecorder.Records(written / "whole", "TRAIN", **cut)
    loaded = tfrecorder.load(written / "whole", "TRAIN", shuffle=False, **cut)
    found = [loaded.as_numpy_iterator(), records, stored]
    for size, wanted, *several in zip(SIZES, due, *found, strict=True):
        one, *others = (np.asarray(boxes["boxes"]) for _, boxes in several)
        assert len(one) == sum(wanted), size
        for other in others if size in EXACT else others[:1]:
            assert other.shape == one.shape, size
            assert np.abs(one - other).max() < 1e-4

"""Pictures of six shapes on photographs, with planted faults: a dataset that looks sound.

Each photograph is behind six objects of different classes, so that what is behind says nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw
from support import PHOTOS, WHOLE_SWEEPS

SHAPES = ("circle", "square", "triangle", "star", "ring", "cross")
_SIZE = (320, 240)

#: Of the pictures that tests draw: 300 take a second to draw, and two to convert.
SEEDS = [11, 12, 13] if WHOLE_SWEEPS else [11]


class Planted(NamedTuple):
    """A frame with boxes, and the places of its faults.

    Attributes:
        frame: a row for each picture, with its boxes in pixels and their labels as lists.
        wrong: rows with a wrong label.
        misplaced: rows whose box is beside its object.
        whole: the row whose box is around the picture.
        twice: the row with nearly the same box of another class.
    """

    frame: pd.DataFrame
    wrong: list[int]
    misplaced: list[int]
    whole: int
    twice: int


def planted(folder: Path, seed: int) -> Planted:
    """The pictures, in a folder, of 50 photographs and six shapes on each."""
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for photo in random.permutation(len(PHOTOS))[:50]:
        for shape in range(len(SHAPES)):
            picture = _behind(PHOTOS[photo])
            side = int(random.integers(24, 110))
            left, top = (int(random.integers(0, whole - side)) for whole in _SIZE)
            colour = tuple(random.integers(0, 256, 3).tolist())
            _draw(ImageDraw.Draw(picture), shape, (left, top), side, colour)
            rows.append({"picture": picture, "shape": shape, "box": [left, top, side]})
    rows = [rows[place] for place in random.permutation(len(rows))]
    picks = [int(place) for place in random.permutation(len(rows))[:8]]
    wrong, misplaced, (whole, twice) = picks[:4], picks[4:6], picks[6:]
    for place in wrong:
        rows[place]["shape"] = (rows[place]["shape"] + int(random.integers(1, 6))) % 6
    for place in misplaced:
        left, top, side = rows[place]["box"]
        while abs(left - rows[place]["box"][0]) < side and abs(top - rows[place]["box"][1]) < side:
            left, top = (int(random.integers(0, whole_side - side)) for whole_side in _SIZE)
        rows[place]["box"] = [left, top, side]
    listed = []
    for number, row in enumerate(rows):
        path = folder / f"{number}.jpg"
        row["picture"].save(path, quality=92)
        left, top, side = row["box"]
        boxes = [(left, top, left + side, top + side, SHAPES[row["shape"]])]
        if number == whole:
            boxes = [(0, 0, *_SIZE, SHAPES[row["shape"]])]
        if number == twice:
            boxes.append((left, top, left + side - 1, top + side, SHAPES[(row["shape"] + 1) % 6]))
        x_min, y_min, x_max, y_max, label = map(list, zip(*boxes, strict=True))
        values = {"x_min": x_min, "y_min": y_min, "x_max": x_max, "y_max": y_max, "label": label}
        split = "TRAIN" if random.random() < 0.8 else "TEST"
        listed.append({"split": split, "image_uri": str(path), **values})
    frame = pd.DataFrame(listed)
    for column, extent in zip(("x_min", "y_min", "x_max", "y_max"), _SIZE * 2, strict=True):
        frame[column] = [[edge / extent for edge in edges] for edges in frame[column]]
    return Planted(frame, wrong, misplaced, whole, twice)


def _behind(photo: Path) -> Image.Image:
    with Image.open(photo) as opened:
        picture = opened.convert("RGB")
    scale = max(_SIZE[0] / picture.width, _SIZE[1] / picture.height)
    larger = picture.resize((int(picture.width * scale) + 1, int(picture.height * scale) + 1))
    return larger.crop((0, 0, *_SIZE))


def _draw(
    pen: ImageDraw.ImageDraw, shape: int, corner: tuple[int, int], side: int, colour: Any
) -> None:
    left, top = corner
    right, bottom = left + side, top + side
    middle = left + side / 2, top + side / 2
    arm = max(3, side // 5)
    name = SHAPES[shape]
    if name == "circle":
        pen.ellipse((left, top, right, bottom), colour)
    elif name == "square":
        pen.rectangle((left, top, right, bottom), colour)
    elif name == "triangle":
        pen.polygon([(left, bottom), (right, bottom), (middle[0], top)], colour)
    elif name == "star":
        points = []
        for corner_number in range(10):
            radius = side / 2 if corner_number % 2 == 0 else side / 5
            angle = math.pi * (corner_number / 5 - 0.5)
            points.append(
                (middle[0] + radius * math.cos(angle), middle[1] + radius * math.sin(angle))
            )
        pen.polygon(points, colour)
    elif name == "ring":
        pen.ellipse((left, top, right, bottom), outline=colour, width=arm)
    else:
        pen.rectangle((middle[0] - arm / 2, top, middle[0] + arm / 2, bottom), colour)
        pen.rectangle((left, middle[1] - arm / 2, right, middle[1] + arm / 2), colour)

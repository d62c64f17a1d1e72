"""The bundled photographs with boxes and masks, and the boxes that a dataset holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image as Pictures
from support import PHOTOS, SAMPLES, examples, shards

from tfrecorder.schema import Boxes, Image, Schema, Split

CAT, COFFEE, BRICK = (
    str(next(p for p in PHOTOS if word in p.name)) for word in ("cat", "coffee", "brick")
)
COFFEES = sorted(SAMPLES.glob("photos/coffee/*.jpg"))
MASKS = [SAMPLES / "masks" / f"{path.stem}.png" for path in COFFEES]
EDGES = ["x_min", "y_min", "x_max", "y_max"]


def boxes_of(out: str | Path) -> dict[str, tuple[list[list[float]], list[bytes], list[int]]]:
    """For each image its boxes, their texts and integers, as they are stored."""
    found = {}
    for one in (one for shard in shards(out) for one in examples(shard)):
        keys = [f"image/object/bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax")]
        edges = np.stack([np.asarray(one[key], np.float32) for key in keys], 1)
        labels = [int(label) for label in one["image/object/class/label"]]
        texts = [bytes(text) for text in one["image/object/class/text"]]
        found[one["image/filename"][0].decode()] = (edges.tolist(), texts, labels)
    return found


def in_pixels() -> pd.DataFrame:
    """Boxes in pixels; the last image has none."""
    width, height = Pictures.open(CAT).size
    return pd.DataFrame(
        [
            ("TRAIN", CAT, 1.0, 2.0, 30.0, 40.0, "eye"),
            ("TRAIN", COFFEE, 7.0, 8.0, 9.0, 10.0, "cup"),
            ("TRAIN", CAT, 0.0, 0.0, float(width), float(height), "cat"),
            ("TRAIN", BRICK, None, None, None, None, None),
        ],
        columns=["split", "image_uri", *EDGES, "label"],
    )


def boxes_in_pixels(**settings: Any) -> Schema:
    """The schema of `in_pixels`, with these settings of its boxes."""
    return Schema(split=Split(), image_uri=Image(), boxes=Boxes(unit="pixel", **settings))


def marked(size: tuple[int, int]) -> tuple[Path, list[float]]:
    """A dark picture with one bright box, and its edges in pixels."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    left, upper, right, lower = 60, 50, 120, 90
    pixels[upper:lower, left:right] = 255
    Pictures.fromarray(pixels).save("marked.png")
    return Path("marked.png"), [left, upper, right, lower]


def masked(rows: int = len(COFFEES)) -> pd.DataFrame:
    """The photographs of coffee with their masks."""
    images, masks = map(str, COFFEES[:rows]), map(str, MASKS[:rows])
    return pd.DataFrame({"split": "TRAIN", "image_uri": list(images), "mask_uri": list(masks)})

"""What the tests of schemas share: one frame with a column of every kind, and its schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from support import PHOTOS, photo_frame

import tfrecorder
from tfrecorder.schema import Bytes, Image, Label, Labels, Number, Schema, Split, Text

EVERY_KIND = Schema(
    split=Split(),
    left_uri=Image(),
    right_uri=Image(),
    bi=Label(),
    multi=Label(names=["a", "b", "c"]),
    grade=Label(),
    tags=Labels(separator="|"),
    topics=Labels(),
    parts=Labels(columns=["part_1", "part_2"]),
    angle=Number(target=True),
    count=Number(dtype="int64"),
    lit=Number(dtype="bool"),
    place=Number(shape=(2,)),
    matrix=Number(shape=(2, 3)),
    series=Number(shape=(None,)),
    steps=Number(dtype="int64", shape=(None,)),
    caption=Text(),
    words=Text(shape=(None,)),
    blob=Bytes(),
)


def every_kind(rows: int = 8) -> pd.DataFrame:
    """A frame with a column of each kind, in the order of EVERY_KIND."""
    frame = photo_frame(rows)
    numbers = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "split": ["TRAIN"] * rows,
        "left_uri": frame["image_uri"],
        "right_uri": [str(PHOTOS[-1 - row]) for row in range(rows)],
        "bi": ["no" if row % 3 else "yes" for row in range(rows)],
        "multi": ["abc"[row % 2] for row in range(rows)],
        "grade": np.arange(rows) % 4,
        "tags": ["|".join(["x", "y", "z"][: row % 4]) for row in range(rows)],
        "topics": [["p", "q"][: row % 3] for row in range(rows)],
        "part_1": ["wheel"] * rows,
        "part_2": [None if row % 2 else "door" for row in range(rows)],
        "angle": numbers.normal(size=rows).astype(np.float32),
        "count": np.arange(rows) * 10**12,
        "lit": np.arange(rows) % 2 == 0,
        "place": list(numbers.normal(size=(rows, 2)).astype(np.float32)),
        "matrix": list(numbers.normal(size=(rows, 2, 3)).astype(np.float32)),
        "series": [[0.5] * (row % 3) for row in range(rows)],
        "steps": [list(range(row % 4)) for row in range(rows)],
        "caption": [f"picture {row}, ä" for row in range(rows)],
        "words": [["one", "two"][: row % 3] for row in range(rows)],
        "blob": [bytes([row, 0, 255]) for row in range(rows)],
    }
    return pd.DataFrame(columns)


def convert(frame: pd.DataFrame, out: str | Path, **options: Any) -> str:
    """A dataset of a frame."""
    tfrecorder.convert(frame, out, progress=False, **options)
    return str(out)


def values(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values, to compare frames whatever their dtypes."""
    return [
        {name: _plain(value) for name, value in row.items()}
        for row in frame.to_dict(orient="records")
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    return None if isinstance(value, float) and np.isnan(value) else value

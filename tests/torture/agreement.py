"""Random datasets that grow: what different readers, and the table itself, say of them must agree.

The order of `to_frame` is that of `Records`; statistics are of the values that the table gives, and
count those that it lacks; both engines keep the same boxes after a crop, also of a box of which a
tenth is left; and a process of several reads all records only if it is asked to.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from PIL import Image as Pictures

import tfrecorder
from tfrecorder.schema import Boxes, Image, Label, Number, Schema, Split, Text
from torture.counts import Count, demand

SPLITS = ("TRAIN", "VALIDATION", "TEST")
EDGES = ("xmin", "ymin", "xmax", "ymax")
SCHEMA = Schema(
    split=Split(),
    image_uri=Image(),
    label=Label(default="none"),
    age=Number(dtype="int64", default=-1),
    name=Text(default="?"),
    row=Number(dtype="int64"),
    objects=Boxes(columns=EDGES, unit="pixel", label=None),
)


def random_rows(folder: Path, first: int, chance: random.Random) -> pd.DataFrame:
    """Some rows, some of them without values; each image is wide, with boxes over its square."""
    rows = []
    for number in range(first, first + chance.randint(3, 9)):
        height = chance.choice([64, 80, 97])
        width = height * chance.choice([2, 3, 5])
        path = folder / f"{number}.png"
        Pictures.new("RGB", (width, height), (number % 256, 7, 7)).save(path)
        left = (width - height) // 2
        sizes = [chance.randint(1, 3) for _ in range(4)]
        shares = [chance.choice([9, 10, 10, 11]) for _ in sizes]
        lows = [left - 9 * size + share - 10 for size, share in zip(sizes, shares, strict=True)]
        rows.append(
            {
                "split": chance.choice(SPLITS),
                "image_uri": str(path),
                "label": chance.choice(["a", "b", None]),
                "age": chance.choice([None, 0, 7, 2**40]),
                "name": chance.choice([None, "x", "y z"]),
                "row": number,
                "xmin": lows,
                "ymin": [0] * 4,
                "xmax": [low + 10 * size for low, size in zip(lows, sizes, strict=True)],
                "ymax": [height] * 4,
            }
        )
    return pd.DataFrame(rows).astype({"age": "Int64"})


def check(out: Path, given: pd.DataFrame) -> None:
    """Compare everything that can be asked of a dataset with the table and with each other."""
    statistics = tfrecorder.info(out).statistics
    for split in given["split"].unique():
        of_split = given[given["split"] == split]
        frame = tfrecorder.to_frame(out, split)
        records = tfrecorder.Records(out, split, inputs="all", decode=False)
        order = [int(np.asarray(one["row"]).item()) for one in records]
        demand(frame["row"].tolist() == order, f"{split}: {frame['row'].tolist()}, {order}")
        demand(sorted(order) == sorted(of_split["row"]), f"{split}: other records than rows")
        for column in ("label", "age", "name"):
            stated = statistics[column][split]
            values = of_split[column].dropna()
            counts = (len(values), len(of_split) - len(values))
            demand(
                (stated["count"], stated.get("missing", 0)) == counts,
                f"{split} {column}: {stated}, not {counts}",
            )
            if column == "age" and len(values):
                ends = (values.min(), values.max())
                demand((stated["min"], stated["max"]) == ends, f"{split} age: {stated}, not {ends}")
        cut: dict[str, Any] = {"image_size": 48, "resize": "crop", "targets": ["objects"]}
        engines = (
            tfrecorder.Records(out, split, **cut),
            tfrecorder.load(out, split, shuffle=False, **cut).as_numpy_iterator(),
        )
        for row, by_records, by_load in zip(order, *engines, strict=True):
            left = [np.asarray(boxes["boxes"]).shape for _, boxes in (by_records, by_load)]
            demand(left[0] == left[1], f"row {row}: boxes {left}")
        _check_shares(out, split, len(order))


def _check_shares(out: Path, split: str, records: int) -> None:
    options: dict[str, Any] = {"batch_size": 2, "inputs": ["row"], "targets": ["age"], "pad": True}
    read: list[int] = []
    for rank in range(3):
        with patch.dict(os.environ, {"WORLD_SIZE": "3", "RANK": str(rank)}):
            for rows, _, is_real in tfrecorder.batches(out, split, **options):
                read += rows[is_real].tolist()
    demand(sorted(read) == sorted({*read}), f"{read}: a record in several shares")
    demand(len(read) == records, f"{len(read)} of {records} records")


def agree(folder: Path, times: int, seed: int = 0) -> list[Count]:
    """Datasets that are converted, appended to and compacted, checked after each step.

    Raises:
        BrokenError: two answers differ.
    """
    rows = 0
    for number in range(times):
        chance = random.Random(f"{seed}/{number}")
        images, out = folder / "images", folder / "out"
        images.mkdir(parents=True)
        given = random_rows(images, 0, chance)
        quiet: dict[str, Any] = {"progress": False, "seed": chance.randrange(99)}
        tfrecorder.convert(given, out, schema=SCHEMA, num_shards=chance.randint(1, 2), **quiet)
        check(out, given)
        for _ in range(chance.randint(0, 2)):
            more = random_rows(images, len(given), chance)
            tfrecorder.append(more, out, num_shards=chance.randint(1, 2), **quiet)
            given = pd.concat([given, more], ignore_index=True)
            check(out, given)
        tfrecorder.compact(out, folder / "compacted", progress=False)
        check(folder / "compacted", given)
        rows += len(given)
        shutil.rmtree(folder)
    return [Count("datasets whose readers must agree", times, rows, 0)]

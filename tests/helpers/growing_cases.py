"""A dataset of ten generations, and tables to append: what the tests of growing share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image
from support import PHOTOS, records

import tfrecorder

QUIET = {"progress": False}


def table(first: int, rows: int, split: str = "TRAIN", label: str | None = None) -> pd.DataFrame:
    """Some of the bundled photographs by number, with absolute paths."""
    photos = [PHOTOS[number % len(PHOTOS)] for number in range(first, first + rows)]
    labels = [photo.parent.name if label is None else label for photo in photos]
    return pd.DataFrame({"split": split, "image_uri": list(map(str, photos)), "label": labels})


def drawn(folder: str, count: int, size: tuple[int, int], mode: str = "RGB") -> list[str]:
    """New images of one colour each, as PNG files in a folder below the current one."""
    Path(folder).mkdir(exist_ok=True)
    paths = []
    for number in range(count):
        shade = 10 * number + 5
        path = str(Path(folder, f"{number}.png").absolute())
        Image.new(mode, size, shade if mode == "L" else (shade, 7, 250 - shade)).save(path)
        paths.append(path)
    return paths


def manifest(out: str | Path, number: int) -> dict[str, Any]:
    """What is kept of a commit."""
    return json.loads(Path(out, f"_tfrecorder/commits/{number:05d}.json").read_text())


def timeless(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files as they would be if all operations had begun at the same time."""

    def of(name: str, data: bytes) -> bytes:
        if not name.startswith("_tfrecorder/commits/"):
            return data
        without = re.sub(rb'"(begun|when)": "[^"]*"', b"", data)
        return re.sub(rb'"crc32c": \d+\n}\n$', b"", without)

    return {name: of(name, data) for name, data in files.items()}


def shards_of(out: str | Path, number: int) -> list[Path]:
    """The shards that a commit added or rewrote."""
    return [
        Path(out, f"{split.lower()}-{'' if revision == 1 else f'r{revision}-'}{index:05d}.tfrecord")
        for split, (revision, first, count) in manifest(out, number)["own"].items()
        for index in range(first, first + count)
    ]


def records_of(out: str | Path, number: int) -> list[dict[str, Any]]:
    """The records of these shards."""
    return [one for shard in shards_of(out, number) for one in records(out, shard.stem)]


def grow_ten_times(out: str) -> None:
    """Generations 0 to 9: a new class, a new size, grey images, and a split that begins later."""
    tfrecorder.convert(table(0, 12), out, num_shards=2, **QUIET)
    for number in range(1, 10):
        rows = table(12 + 4 * number, 4)
        if number == 3:
            rows = rows.assign(label="zebra")
        if number == 4:
            rows = rows.assign(image_uri=drawn("large", 4, (300, 200)), label="aardvark")
        if number == 5:
            rows = rows.assign(image_uri=drawn("grey", 4, (160, 120), "L"))
        if number >= 6:
            rows = rows.assign(split=["TRAIN", "VALIDATION", "TRAIN", "TEST"])
        tfrecorder.append(rows, out, **QUIET)

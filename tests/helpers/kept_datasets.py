"""How the datasets that are kept of form 4 were made; `kept_cases.py` says what is in each.

`tests/datasets/form-4-NAME/` was made by the last version of that form, with

    PYTHONPATH=tests python tests/helpers/kept_datasets.py make tests/datasets

in folders whose paths say nothing of a machine.  What is there is never made again, so what makes
it need only run with that version.  All pictures are drawn here, without an encoder or a random
generator that may change, so that a test can have the sources of any of these datasets.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import tfrecorder
from tfrecorder.schema import Boxes, Image, Label, Number, Schema, Split
from tfrecorder.streaming import Unusable

DATASETS = Path(__file__).parent.parent / "datasets"

#: Where the pictures were, and where the datasets were made.
PHOTOS = "/data/photos"
MADE_IN = "/data/sets"

QUIET: dict[str, Any] = {"progress": False}
HEIGHT, WIDTH = 6, 8
CLASSES = ("cat", "dog", "owl")

#: A file whose picture decodes with a warning, one that holds none, and one that is not there.
SUSPECT = "suspect.jpg"
BROKEN = "broken.png"
MISSING = "missing.png"


def name_of(number: int) -> str:
    return f"picture_{number}.png"


def pixels_of(number: int) -> bytes:
    """The red, green and blue of each pixel of a picture, row by row."""
    return hashlib.shake_256(f"picture {number}".encode()).digest(HEIGHT * WIDTH * 3)


def picture(number: int) -> bytes:
    """A picture as a PNG file, stored without compression: the same bytes from any library."""
    pixels = pixels_of(number)
    step = WIDTH * 3
    lines = b"".join(b"\0" + pixels[at : at + step] for at in range(0, len(pixels), step))
    size = struct.pack("<HH", len(lines), 0xFFFF ^ len(lines))
    stored = b"\x78\x01\x01" + size + lines + struct.pack(">I", zlib.adler32(lines))
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", stored), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def put(name: str, data: bytes) -> None:
    """A file in the working directory that was written long ago."""
    Path(name).write_bytes(data)
    os.utime(name, (1_700_000_000, 1_700_000_000))


def draw(numbers: Iterable[int]) -> None:
    """Pictures as files in the working directory."""
    for number in numbers:
        put(name_of(number), picture(number))


def row(number: int) -> dict[str, Any]:
    """What a table says of a picture."""
    return {
        "split": ("TRAIN", "TRAIN", "TEST")[number % 3],
        "image_uri": name_of(number),
        "label": CLASSES[number // 2 % 3],
        "angle": number / 4,
    }


def rows(numbers: Iterable[int]) -> pd.DataFrame:
    """A table of pictures, which are drawn into the working directory."""
    numbers = list(numbers)
    draw(numbers)
    return pd.DataFrame([row(number) for number in numbers])


def rows_with_boxes(numbers: Iterable[int]) -> pd.DataFrame:
    """A table in which a picture has no, one or two boxes."""
    table = rows(numbers).drop(columns="label")
    counts = [number % 3 for number in numbers]
    table["x_min"] = [[0.25] * count for count in counts]
    table["y_min"] = [[0.5] * count for count in counts]
    table["x_max"] = [[0.5, 0.75][:count] for count in counts]
    table["y_max"] = [[1.0] * count for count in counts]
    table["thing"] = [["cup", "bowl"][:count] for count in counts]
    return table


def as_bytes(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the bytes of its pictures in it."""
    cells = [{"bytes": Path(uri).read_bytes(), "path": uri} for uri in table["image_uri"]]
    return table.assign(image_uri=cells)


class Camera:
    """A stream of pictures by their uris; one row in five is not understood."""

    name = "camera"

    def __init__(self, count: int) -> None:
        self.count = count
        self.base = os.getcwd()

    def rows(self, position: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        for number in range(position or 0, self.count):
            if number % 5 == 3:
                yield Unusable(f"rows/{number}", "bad_json: the value is not JSON"), number + 1
            else:
                draw([number])
                yield row(number), number + 1

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))


class Post:
    """A stream of pictures as bytes that have no order."""

    name = "post"
    ordered = False

    def __init__(self, numbers: Iterable[int]) -> None:
        self.numbers = list(numbers)

    def rows(self, taken: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
        for number in self.numbers:
            if f"letter {number}" not in taken:
                content = {"bytes": picture(number), "path": name_of(number)}
                yield {**row(number), "image_uri": content}, f"letter {number}"

    def wait(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.01))


SCHEMA = Schema(split=Split(), image_uri=Image(), label=Label(), angle=Number())
WITH_BOXES = Schema(split=Split(), image_uri=Image(), boxes=Boxes(label="thing"), angle=Number())
ONE_EACH: dict[str, Any] = {"num_shards": {"TRAIN": 1, "TEST": 1}, **QUIET}
TWO_OF_TRAIN: dict[str, Any] = {"num_shards": {"TRAIN": 2, "TEST": 1}, **QUIET}
TO_ITS_END: dict[str, Any] = {"until_idle": 0, "every_rows": 3, **QUIET}


def make_boxes(out: str) -> None:
    tfrecorder.convert(rows_with_boxes(range(6)), out, schema=WITH_BOXES, **TWO_OF_TRAIN)
    tfrecorder.append(rows_with_boxes(range(6, 9)), out, **QUIET)


def make_stream(out: str) -> None:
    tfrecorder.stream(Camera(6), out, schema=SCHEMA, **TO_ITS_END)
    tfrecorder.stream(Post([20, 21, 22]), out, **TO_ITS_END)
    tfrecorder.stream(Camera(9), out, **TO_ITS_END)


def make_corrections(out: str) -> None:
    tfrecorder.convert(rows(range(6)), out, schema=SCHEMA, **TWO_OF_TRAIN)
    tfrecorder.append(rows(range(6, 9)), out, **QUIET)
    tfrecorder.update(rows([0, 7]).assign(label=["owl", "fox"]), out, **QUIET)


def make_removal(out: str) -> None:
    tfrecorder.convert(rows(range(8)), out, schema=SCHEMA, **TWO_OF_TRAIN)
    gone = {"image_uri": [name_of(1), name_of(2)]}
    tfrecorder.remove(out, gone, **QUIET)
    assert tfrecorder.append(rows([1, 8, 9]), out, **QUIET).removed == 1


def make_raw(out: str) -> None:
    raw = {"image_format": "raw", "image_size": (HEIGHT, WIDTH), "resize": "stretch"}
    tfrecorder.convert(rows(range(7)), out, schema=SCHEMA, **raw, **TWO_OF_TRAIN)
    tfrecorder.append(rows([7, 8]), out, **QUIET)


def make_moves(out: str) -> None:
    tfrecorder.convert(rows(range(9)), out, schema=SCHEMA, **TWO_OF_TRAIN)
    tfrecorder.update(rows([0, 3]).assign(split="TEST"), out, **QUIET)
    changes = {"split": ["TRAIN", "TEST"], "label": ["cat", "owl"]}
    tfrecorder.update(rows([5, 7]).assign(**changes), out, **QUIET)


def suspect() -> bytes:
    return (DATASETS / SUSPECT).read_bytes()


def odd_files() -> None:
    put(SUSPECT, suspect())
    put(BROKEN, b"no picture")


def odd_rows(numbers: Iterable[int]) -> pd.DataFrame:
    """Pictures, one of which is suspect, one damaged and one not there."""
    odd_files()
    table = rows(numbers)
    table["image_uri"] = [SUSPECT, BROKEN, MISSING, *table["image_uri"][3:]]
    return table


def make_rejects(out: str) -> None:
    lenient = {"max_reject_fraction": 1.0}
    tfrecorder.convert(odd_rows(range(8)), out, schema=SCHEMA, **lenient, **TWO_OF_TRAIN)
    broken = rows([8, 9, 10])
    broken.loc[1, "image_uri"] = "also_missing.png"
    tfrecorder.append(broken, out, **lenient, **QUIET)


def make_undone(out: str) -> None:
    tfrecorder.convert(rows(range(6)), out, schema=SCHEMA, **ONE_EACH)
    tfrecorder.append(rows([6, 7]), out, **QUIET)
    tfrecorder.append(rows([8, 9]), out, **QUIET)
    tfrecorder.undo(out)


def make_compacted(out: str) -> None:
    tfrecorder.convert(rows(range(6)), out, schema=SCHEMA, **TWO_OF_TRAIN)
    tfrecorder.append(rows([6, 7]), out, **QUIET)
    tfrecorder.compact(out, num_shards=1, **QUIET)
    tfrecorder.append(rows([8]), out, **QUIET)


def append_bytes(out: str, **options: Any) -> None:
    """An append of pictures that came as bytes."""
    table = as_bytes(rows([6, 7, 8, 9]))
    tfrecorder.append(table, out, **options, **TWO_OF_TRAIN)


def make_staged(out: str) -> None:
    tfrecorder.convert(rows(range(6)), out, schema=SCHEMA, **ONE_EACH)
    append_bytes(out, stage_only=True)


def make_half_written(out: str) -> None:
    make_staged(out)
    tfrecorder.parts.work(out, part=(1, 2), **QUIET)


def make_staged_correction(out: str) -> None:
    tfrecorder.convert(rows(range(6)), out, schema=SCHEMA, **TWO_OF_TRAIN)
    corrected = rows([3, 5]).assign(label="owl")
    tfrecorder.update(corrected, out, stage_only=True, **QUIET)


MADE: dict[str, Callable[[str], None]] = {
    "boxes": make_boxes,
    "stream": make_stream,
    "corrections": make_corrections,
    "removal": make_removal,
    "raw": make_raw,
    "moves": make_moves,
    "rejects": make_rejects,
    "undone": make_undone,
    "compacted": make_compacted,
    "staged": make_staged,
    "half-written": make_half_written,
    "staged-correction": make_staged_correction,
}


def make(name: str, folder: str) -> None:
    """Make one of the datasets, as `form-4-NAME` in a folder."""
    target = Path(folder, f"form-4-{name}").absolute()
    shutil.rmtree(PHOTOS, ignore_errors=True)
    os.makedirs(PHOTOS)
    os.makedirs(MADE_IN, exist_ok=True)
    os.chdir(PHOTOS)
    out = f"{MADE_IN}/{name}"
    MADE[name](out)
    shutil.move(out, target)


if __name__ == "__main__":
    here = os.getcwd()
    for wanted in sys.argv[3:] or MADE:
        os.chdir(here)
        make(wanted, sys.argv[2])

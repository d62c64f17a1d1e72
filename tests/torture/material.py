"""Images with their table, and datasets that were made of them without any disturbance."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from helpers.damage import flip
from support import PHOTOS, SAMPLES

import tfrecorder
from torture.counts import demand, lost_rows

OPTIONS: dict[str, Any] = {"num_shards": 6, "num_threads": 1}

#: Of the options of a conversion, those that say what is written.
STAGED = ("num_shards", "overwrite")

#: What changes from run to run in `_tfrecorder/`, and what only a failure leaves.
PASSING = ("tmp/", "progress/", "lock", "failure.json", "parts.json")

#: Where shards wait that no reader is to see before the commit.
WAITING = "_tfrecorder/waiting/"

#: What marks an operation that is under way, until all is done that follows its commit.
CLAIM = "_tfrecorder/plan.json"

#: A folder of images that is taken away like a disk that is not mounted.
LATE = "late"


@dataclass(frozen=True)
class Material:
    """Images with their table, and datasets made of them without any disturbance.

    Attributes:
        folder: it all lies in.
        table: the CSV.
        rows: of it.
        whole: the dataset.
        other: of the same rows, with other options.
        damaged: `whole` with some files cut, changed or gone.
        written: the dataset just before its commit.
    """

    folder: Path
    table: Path
    rows: int
    whole: Path
    other: Path
    damaged: Path
    written: Path


def make_material(folder: Path, rows: int) -> Material:
    """Photographs of all formats under many names, some of them bad, and the datasets of them."""
    images = folder / "images"
    (images / LATE).mkdir(parents=True)
    table = _make_images(images, rows)
    paths = {name: folder / name for name in ("whole", "other", "damaged")}
    convert(table, paths["whole"], OPTIONS)
    convert(table, paths["other"], {"num_shards": 5, "seed": 1})
    demand(lost_rows(paths["whole"], rows) == 0, "an undisturbed conversion loses rows")
    shutil.copytree(paths["whole"], paths["damaged"])
    _damage(paths["damaged"])
    write(table, folder / "written", OPTIONS)
    return Material(folder, table, rows, **paths, written=folder / "written")


def _make_images(images: Path, rows: int) -> Path:
    data = [path.read_bytes() for path in (*PHOTOS, *sorted(SAMPLES.glob("mixed/*")))]
    middle = len(data[0]) // 2
    data.append(data[0][:middle])  # a reject
    data.append(data[3][:middle] + bytes(200) + data[3][middle + 200 :])  # a suspect
    pool = []
    for number, one in enumerate(data):
        pool.append(images / f"source-{number}")
        pool[-1].write_bytes(one)
    uris = []
    for row in range(rows):
        # Few lie in a folder that may be away, so that most shards have none of them.
        uri = f"{LATE}/{row:05d}.jpg" if row % 300 == 49 else f"{row:05d}.jpg"
        os.link(pool[row % len(pool)], images / uri)
        uris.append(uri)
    split = ["TRAIN"] * 8 + ["VALIDATION", "TEST"]
    frame = pd.DataFrame({"image_uri": uris, "label": [f"class {row % 7}" for row in range(rows)]})
    frame["split"] = [split[row % 10] for row in range(rows)]
    frame.to_csv(images / "images.csv", index=False)
    return images / "images.csv"


def _damage(out: Path) -> None:
    shards = sorted(out.glob("train*.tfrecord"))
    for shard in shards[::3]:
        shard.write_bytes(flip(shard.read_bytes(), 5000, 1))
    shards[1].unlink()
    index = out / f"_tfrecorder/index/{shards[2].name}.idx"
    index.write_bytes(index.read_bytes()[:-20].rstrip())
    (out / "features.json").unlink()


def convert(table: Path, out: Path, options: Mapping[str, Any]) -> None:
    """A conversion in this process, without a bar."""
    tfrecorder.convert(table, out, progress=False, **options)


def write(table: Path, out: Path, options: Mapping[str, Any]) -> None:
    """The same conversion, up to its commit."""
    staged = {name: value for name, value in options.items() if name in STAGED}
    tfrecorder.parts.stage(table, out, **staged)
    tfrecorder.parts.work(out, progress=False)


def digests(directory: Path) -> dict[str, str]:
    """SHA-256 of each file of a dataset directory that is to be the same in every run."""
    found = {}
    for where, _, names in os.walk(directory):
        for name in names:
            path = Path(where, name)
            relative = str(path.relative_to(directory))
            name = relative.removeprefix("_tfrecorder/")
            if not name.startswith(PASSING):
                found[relative] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found

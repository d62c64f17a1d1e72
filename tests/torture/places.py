"""Appends of rows whose images are spelled in any way, from any folder, against a simple model.

The model opens what each row names, as a conversion does, and calls two rows the same if all their
images are the same files.  No row may be lost, and none added twice.
"""

from __future__ import annotations

import os
import random
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from PIL import Image as Pictures

import tfrecorder
from tfrecorder.schema import Image, Schema
from torture.counts import Count, demand

QUIET = {"progress": False, "splits": {"TRAIN": 1.0}, "num_shards": 1}
DAYS, NAMES = ("mon", "tue", "wed ä"), ("a.png", "cat/a.png", "cat/b c.png", "cat/.b.png")
PAIRS = Schema(left_uri=Image(), right_uri=Image())


def make_photos(folder: Path) -> list[Path]:
    """The same names in each folder, with a link to one of the folders."""
    paths = [folder / day / name for day, name in product(DAYS, NAMES)]
    for number, path in enumerate(paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        Pictures.new("RGB", (number + 3, 5), (number * 9, 3, 7)).save(path)
    (folder / "link").symlink_to(folder / "mon" / "cat", target_is_directory=True)
    return paths


def spelled(path: Path, base: Path, chance: random.Random) -> str:
    """A way to write a file in a table whose uris start from a folder."""
    whole, near = str(path), os.path.relpath(path, base)
    ways = (
        *(near, f"./{near}", near.replace("/", "//"), f"cat/../{near}", f"../{base.name}/{near}"),
        *(whole, f"/{whole}", f"file://{quote(whole)}", f"FILE://localhost{whole}"),
        f"{path.parent}/./../{path.parent.name}/{path.name}",
        # Above the folder that the link leads to, not above the link.
        f"../link/../{os.path.relpath(path, base.parent / 'mon')}",
    )
    return chance.choice(ways)


def grow_from_places(folder: Path, appends: int, seed: int = 0) -> Count:
    """Some appends to one dataset, some of them after a compaction."""
    chance = random.Random(seed)
    photos, out, there = make_photos(folder / "photos"), folder / "out-0", set()
    rows = 0
    for number in range(appends):
        base = folder / "photos" / chance.choice(DAYS)
        wanted = [(chance.choice(photos), chance.choice(photos)) for _ in range(12)]
        wanted = list(dict.fromkeys(wanted))
        uris = [[spelled(path, base, chance) for path in pair] for pair in wanted]
        frame = pd.DataFrame(uris, columns=["left_uri", "right_uri"])
        source: pd.DataFrame | Path = frame
        options = {**QUIET, "schema": PAIRS, "base": base}
        if chance.random() < 0.5:
            frame.to_csv(source := base / "table.csv", index=False)
            del options["base"]
        run = tfrecorder.append if number else tfrecorder.convert
        found = run(source, out, **options)
        new = len({*wanted} - there)
        said = (found.records, found.rows_there)
        demand(said == (new, len(wanted) - new), f"seed {seed}, append {number}: {said}, {uris}")
        there |= {*wanted}
        rows += len(wanted)
        if chance.random() < 0.3:
            tfrecorder.compact(out, folder / f"out-{number + 1}", progress=False)
            out = folder / f"out-{number + 1}"
    demand(tfrecorder.info(out).records == len(there), f"seed {seed}: rows are lost or twice")
    return Count("appends from any place", appends, rows, 0, f"{len(there)} pairs of images")


def attack(folder: Path, rounds: int, seed: int = 0) -> list[Count]:
    return [grow_from_places(folder / str(one), 12, seed + one) for one in range(rounds)]

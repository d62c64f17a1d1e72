"""Correcting: 1,000 labels of 1,000,000 at random, and 1,000 in 50 of the 750 shards.

    correcting.py [--data DIR] [--rounds N] [--quick]

An update writes again each shard with a corrected record, so it is compared with a copy of just
these shards that sums their CRC32C and ends when they are on the disk, as an update does.  What it
costs besides depends on the rows and the shards, not on their bytes.  So there are two datasets:
one with all these rows, whose records have 3 KB, and a 25th of one whose records have 100 KB, as
photographs do: 40,000 rows in 30 shards of 140 MB.  Both are made once and kept (8 GB; as much
again is needed for a moment).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import appending
import harness
import numpy as np
from harness import Bar, Case, Numbers, Result, Timed


class Size(NamedTuple):
    """Of a dataset; a side of its images is in pixels, and noise has most of a byte a pixel."""

    rows: int
    shards: int
    side: int


SIZES = {"3 KB": Size(1_000_000, 750, 64), "100 KB": Size(40_000, 30, 400)}
QUICK = {"3 KB": Size(20_000, 15, 64), "100 KB": Size(4_000, 15, 400)}

#: One label in so many is corrected, and those of "few" shards are in one shard in so many.
ROWS_EACH, SHARDS_EACH = 1000, 15

#: Read and written at a time by the copy: more would leave the core's cache between the two.
PIECE = 2**20

RATIO_BAR = 1.3
MEMORY_BAR = 1500.0


def make_images(folder: Path, size: Size) -> str:
    """A thousand photographs of noise, and a link to their folder for each thousand of rows."""
    from PIL import Image

    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(appending.ADDED):
        if not (path := files / f"{number}.jpg").exists():
            pixels = random.integers(0, 256, (size.side, size.side, 3), np.uint8)
            Image.fromarray(pixels).save(path, quality=75)
    return appending.make_images(folder, size.rows)


def make_dataset(images: str, folder: Path, size: Size) -> str:
    import tfrecorder

    if not (folder / "dataset_info.json").exists():
        frame = appending.rows(images, 0, size.rows)
        frame["label"] = np.where(np.arange(size.rows) % 2, "one", "two")
        tfrecorder.convert(frame, folder, check="header", num_shards=size.shards, progress=False)
    return str(folder)


def numbers_of(dataset: str) -> Iterator[tuple[str, np.ndarray]]:
    """Each shard, and the numbers of its rows."""
    import pyarrow.parquet as pq

    for table in sorted(Path(dataset, "_tfrecorder", "tables").glob("train-*.parquet")):
        numbers = pq.read_table(table, columns=["image/source_id"])[0].to_numpy()
        yield f"{dataset}/{table.stem}.tfrecord", numbers


def chosen_rows(dataset: str, places: str) -> np.ndarray:
    """The numbers of the rows to correct: "random" ones, or those of "few" shards."""
    random = np.random.default_rng(1)
    numbers = [of_shard for _, of_shard in numbers_of(dataset)]
    corrected = sum(map(len, numbers)) // ROWS_EACH
    if places == "few":
        few = random.choice(len(numbers), len(numbers) // SHARDS_EACH, replace=False)
        numbers = [numbers[at] for at in few]
    return random.choice(np.concatenate(numbers), corrected, replace=False)


def copy(dataset: str, places: str) -> Timed:
    """Copy the shards that hold the rows to correct, and sum them."""
    import google_crc32c

    rows, target = chosen_rows(dataset, places), f"{dataset}-copied"
    names = [name for name, numbers in numbers_of(dataset) if np.isin(numbers, rows).any()]
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)

    def run() -> Numbers:
        for name in names:
            crc = 0
            with (
                open(name, "rb", buffering=0) as old,
                open(f"{target}/{os.path.basename(name)}", "wb", buffering=0) as new,
            ):
                while data := old.read(PIECE):
                    crc = google_crc32c.extend(crc, data)
                    new.write(data)
        for name in names:
            with open(f"{target}/{os.path.basename(name)}", "rb") as new:
                os.fsync(new.fileno())
        return {"shards": len(names), "mb": sum(map(os.path.getsize, names)) / 1e6}

    return run


def correct(images: str, dataset: str, count: int, places: str) -> Timed:
    """Update a copy of the dataset by a table with other labels in some rows."""
    import apache_beam

    import tfrecorder.conversion.update

    del apache_beam, tfrecorder
    changed = f"{dataset}-corrected"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(dataset, changed, copy_function=os.link)  # a file is replaced, never changed
    frame = appending.rows(images, 0, count)
    labels = np.where(np.arange(count) % 2, "one", "two").astype(object)
    rows = chosen_rows(dataset, places)
    labels[rows] = np.where(labels[rows] == "one", "two", "one")
    frame["label"] = labels

    def run() -> Numbers:
        import tfrecorder

        changes = tfrecorder.update(frame, changed, progress=False).changes
        assert changes is not None
        return {"shards": changes.shards, "mb": changes.bytes / 1e6}

    return run


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="20,000 and 4,000 rows, once")
    chosen = parser.parse_args(arguments)
    data, rounds = chosen.data.resolve(), 1 if chosen.quick else chosen.rounds
    cases, datasets = [], []
    for name, size in (QUICK if chosen.quick else SIZES).items():
        images = make_images(data / f"correcting-images-{size.side}", size)
        folder = data / f"correcting-{size.side}-{size.rows}"
        dataset = make_dataset(images, folder, size)
        datasets.append(dataset)
        for places in ("random", "few"):
            of = {"dataset": dataset, "places": places}
            cases.append(Case(f"copy, {places}, {name} each", "correcting:copy", of))
            more = {**of, "images": images, "count": size.rows}
            cases.append(Case(f"update, {places}, {name} each", "correcting:correct", more))
    results = harness.run_rounds(cases, rounds, data)
    for dataset in datasets:
        shutil.rmtree(f"{dataset}-copied")
        shutil.rmtree(f"{dataset}-corrected")
    print(harness.table(results, ["seconds", "cpu", "peak_mb", "shards", "mb"]), "\n")
    small, few, large, _ = zip(results[::2], results[1::2], strict=True)
    bars = [
        Bar(
            f"correcting records of 100 KB / a copy, {of}",
            times(large, of),
            RATIO_BAR,
            at_least=False,
        )
        for of in ("seconds", "cpu")
    ]
    bars.append(
        Bar(
            "correcting 1,000 labels, peak MB",
            small[1].median("peak_mb"),
            MEMORY_BAR,
            at_least=False,
        )
    )
    of_few = [one.median("shards") for one in few]
    bars.append(
        Bar("labels of 50 shards corrected: shards written", of_few[1], of_few[0], at_least=False)
    )
    return harness.report("correcting", results, bars=bars)


def times(pair: tuple[Result, Result], of: str) -> float:
    """How many times a number of a copy that of an update is."""
    copied, updated = pair
    return updated.median(of) / copied.median(of)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

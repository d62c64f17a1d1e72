"""Correcting: 1,000 labels of a large dataset at random, and 1,000 in 50 of its 750 shards.

    correcting.py [--data DIR] [--rounds N] [--rows N] [--side PIXELS] [--quick]

An update writes again each shard with a corrected record, so it is compared with a copy of just
these shards whose CRC32C is computed.  Records of noise have about a byte for each of their pixels.
The dataset is made once and kept.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import appending
import harness
import numpy as np
from harness import Bar, Case, Numbers, Timed

ROWS, SHARDS, CORRECTED = 1_000_000, 750, 1000
FEW_SHARDS = 50
RATIO_BAR = 1.3
MEMORY_BAR = 1500.0


def make_images(folder: Path, count: int, side: int) -> str:
    """A thousand photographs of noise, and a link to their folder for each thousand of rows."""
    from PIL import Image

    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number in range(appending.ADDED):
        if not (path := files / f"{number}.jpg").exists():
            pixels = random.integers(0, 256, (side, side, 3), np.uint8)
            Image.fromarray(pixels).save(path, quality=75)
    return appending.make_images(folder, count)


def make_dataset(images: str, folder: Path, count: int) -> str:
    import tfrecorder

    if not (folder / "dataset_info.json").exists():
        frame = appending.rows(images, 0, count)
        frame["label"] = np.where(np.arange(count) % 2, "one", "two")
        tfrecorder.convert(frame, folder, check="header", num_shards=SHARDS, progress=False)
    return str(folder)


def chosen_rows(dataset: str, places: str) -> np.ndarray:
    """The numbers of the rows to correct: "random" ones, or those of "few" shards."""
    import pyarrow.parquet as pq

    tables = sorted(Path(dataset, "_tfrecorder", "tables").glob("train-*.parquet"))
    random = np.random.default_rng(1)
    tables = tables if places == "random" else list(random.choice(tables, FEW_SHARDS, False))
    numbers = [pq.read_table(table, columns=["image/source_id"])[0].to_numpy() for table in tables]
    return random.choice(np.concatenate(numbers), CORRECTED, replace=False)


def touched(dataset: str, rows: np.ndarray) -> list[str]:
    """The shards with these rows."""
    import pyarrow.parquet as pq

    names = []
    for table in sorted(Path(dataset, "_tfrecorder", "tables").glob("train-*.parquet")):
        numbers = pq.read_table(table, columns=["image/source_id"])[0].to_numpy()
        if np.isin(numbers, rows).any():
            names.append(f"{dataset}/{table.stem}.tfrecord")
    return names


def copy(dataset: str, places: str) -> Timed:
    """Copy the shards that hold the rows to correct, and sum them."""
    import google_crc32c

    names, target = touched(dataset, chosen_rows(dataset, places)), f"{dataset}-copied"
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)

    def run() -> Numbers:
        for name in names:
            crc = 0
            with open(name, "rb") as old, open(f"{target}/{os.path.basename(name)}", "wb") as new:
                while data := old.read(2**24):
                    crc = google_crc32c.extend(crc, data)
                    new.write(data)
        return {"shards": len(names)}

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

        result = tfrecorder.update(frame, changed, progress=False)
        return {"corrected": result.changes.corrected, "shards": result.changes.shards}

    return run


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--side", type=int, default=64, help="of the images, in pixels")
    parser.add_argument("--quick", action="store_true", help="20,000 rows, once")
    chosen = parser.parse_args(arguments)
    rows, rounds = (20_000, 1) if chosen.quick else (chosen.rows, chosen.rounds)
    data = chosen.data.resolve()
    images = make_images(data / f"correcting-images-{chosen.side}", rows, chosen.side)
    dataset = make_dataset(images, data / f"correcting-{chosen.side}-{rows}", rows)
    cases = []
    for places in ("random", "few"):
        of = {"dataset": dataset, "places": places}
        cases.append(Case(f"copy, {places}", "correcting:copy", of))
        more = {**of, "images": images, "count": rows}
        cases.append(Case(f"update, {places}", "correcting:correct", more))
    results = harness.run_rounds(cases, rounds, data)
    print(harness.table(results, ["seconds", "cpu", "peak_mb", "shards"]), "\n")
    copied, updated, few_copied, few_updated = results
    bars = [
        Bar(f"{of}, times a copy", new.median(of) / old.median(of), RATIO_BAR, at_least=False)
        for old, new in ((copied, updated), (few_copied, few_updated))
        for of in ("seconds", "cpu")
    ]
    bars.append(Bar("peak MB", updated.median("peak_mb"), MEMORY_BAR, at_least=False))
    return harness.report("correcting", results, bars=bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

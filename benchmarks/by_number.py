"""Records by their numbers: undecoded reads, opening, the exact order, a bucket, memory.

    by_number.py [--data DIR] [--rounds N] [--quick]

Photographs of 500x375 (88 KB), converted once, from a warm page cache:

    bare             `os.pread` of each record's data in random order, and its CRC32C
    Records          `records[number]` of the same, with `decode=False`: image and label
    buffered, exact  `load` at 224x224 with its shuffle buffer, and with `shuffle="exact"`
    stored, blocks   `batches`, undecoded, from a loopback bucket that takes 20 ms a request
    ten epochs       memory of `batches` at 224x224 after each epoch
    open             `Records` of a dataset of a million small pictures, and its first record
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import data
import harness
import psutil
import raw
import writing
from harness import Bar, Case, Numbers, Timed

SECONDS_A_REQUEST = 0.02
BATCH = 64

sys.path.insert(0, str(harness.HERE.parent / "tests"))  # of which this uses the server


def bare(directory: str) -> Timed:
    """The floor: bytes and checksums alone, the places known."""
    import google_crc32c
    import numpy as np

    places = []
    for shard in sorted(Path(directory).glob("train-*.tfrecord")):
        file = os.open(shard, os.O_RDONLY)
        index = Path(directory, "_tfrecorder", "index", f"{shard.name}.idx").read_text()
        for line in index.splitlines():
            offset, size = map(int, line.split())
            places.append((file, size - 16, offset + 12))
    order = np.random.default_rng(0).permutation(len(places)).tolist()

    def run() -> Numbers:
        for number in order:
            google_crc32c.value(os.pread(*places[number]))
        return {"images": len(order)}

    return run


def records(directory: str) -> Timed:
    """Every record once, one at a time."""
    import numpy as np

    import tfrecorder

    found = tfrecorder.Records(directory, "TRAIN", decode=False)
    order = np.random.default_rng(0).permutation(len(found)).tolist()

    def run() -> Numbers:
        for number in order:
            found[number]
        return {"images": len(order)}

    return run


def load(directory: str, **options: Any) -> Timed:
    """One epoch of `load` at 224x224."""
    import tfrecorder

    dataset = tfrecorder.load(
        directory, "TRAIN", image_size=224, batch_size=BATCH, seed=1, **options
    )
    for _ in dataset.take(2):
        pass

    def epoch() -> Numbers:
        return {"images": sum(int(images.shape[0]) for images, _ in dataset)}

    return epoch


def from_bucket(directory: str, **options: Any) -> Timed:
    """One epoch of undecoded batches from a loopback bucket."""
    from services.gcs.control import in_process

    import tfrecorder

    stack = contextlib.ExitStack()
    server = stack.enter_context(in_process())
    os.environ.update(server.environment())
    server.create_bucket("bkt")
    server.put_folder("gs://bkt/out", Path(directory))
    server.inject("stall", seconds=SECONDS_A_REQUEST)

    def epoch() -> Numbers:
        with stack:
            loop = tfrecorder.batches(
                "gs://bkt/out", "TRAIN", batch_size=BATCH, decode=False, seed=1, **options
            )
            return {"images": sum(len(labels) for _, labels in loop)}

    return epoch


def ten_epochs(directory: str) -> Timed:
    """Memory after each of ten epochs of `batches`."""
    import tfrecorder

    loop = tfrecorder.batches(directory, "TRAIN", batch_size=BATCH, image_size=224, seed=1)

    def run() -> Numbers:
        images, mb = 0, []
        for _ in range(10):
            images += sum(len(labels) for _, labels in loop)
            mb.append(psutil.Process().memory_info().rss / 1e6)
        return {"images": images, "second_mb": mb[1], "last_mb": mb[-1], "each_mb": mb}

    return run


def opened(directory: str) -> Timed:
    """Opening, and the first record."""
    import tfrecorder

    def run() -> Numbers:
        before = psutil.Process().memory_info().rss
        found = tfrecorder.Records(directory, "TRAIN", decode=False)
        found[len(found) // 2]
        more = psutil.Process().memory_info().rss - before
        return {"images": len(found), "more_mb": more / 1e6}

    return run


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few images")
    chosen = parser.parse_args(arguments)
    count, many = (500, 20_000) if chosen.quick else (4000, 1_000_000)
    csv = data.listed(data.photographs(chosen.data, count), count)
    photos = raw.written(csv, chosen.data / f"by-number-{count}", check="header", num_shards=8)
    small = data.linked_synthetic(chosen.data, many, min(many, 10_000))
    million = raw.written(small, chosen.data / f"by-number-small-{many}", check="header")
    harness.warm([str(path) for path in Path(photos).glob("*.tfrecord")])
    assert len(writing.read_rows(str(csv))) == count
    of = {"directory": photos}
    cases = [
        Case("bare", "by_number:bare", of, rehearse=True),
        Case("Records", "by_number:records", of, rehearse=True),
        Case("buffered", "by_number:load", of),
        Case("exact", "by_number:load", {**of, "shuffle": "exact"}),
        Case("stored, bucket", "by_number:from_bucket", {**of, "shuffle": False}),
        Case("blocks, bucket", "by_number:from_bucket", {**of, "shuffle": "blocks"}),
        Case("ten epochs", "by_number:ten_epochs", of),
        Case("open", "by_number:opened", {"directory": million}),
    ]
    results = harness.run_rounds(cases, chosen.rounds, chosen.data)
    keys = ["images", "seconds", "cpu", "peak_mb", "more_mb", "second_mb", "last_mb"]
    print(harness.table(results, keys))
    found = {result.case.name: result for result in results}

    def ratio(one: str, other: str, key: str) -> float:
        return found[one].median(key) / found[other].median(key)

    epochs, opened = found["ten epochs"], found["open"]
    growth = epochs.median("last_mb") / epochs.median("second_mb")
    bare, exact = ratio("bare", "Records", "cpu"), ratio("exact", "buffered", "cpu")
    blocks = ratio("stored, bucket", "blocks, bucket", "seconds")
    bars = [
        Bar("random undecoded reads, CPU of bare / `Records`", bare, 0.8, at_least=True),
        Bar('`load(shuffle="exact")` / buffered, CPU', exact, 1.05, at_least=False),
        Bar("bucket of 20 ms: blocks / stored order, images/s", blocks, 0.9, at_least=True),
        Bar("memory of `batches`, tenth epoch / second", growth, 1.05, at_least=False),
        Bar(f"opening {many:,} records, s", opened.median("seconds"), 1.0, at_least=False),
        Bar(f"opening {many:,} records, MB", opened.median("more_mb"), 32, at_least=False),
    ]
    return harness.report("by_number", results, bars=bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

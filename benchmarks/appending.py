"""Appending: 1,000 rows to a dataset of 1,000 rows, and to one of 1,000,000; after many appends.

    appending.py [--data DIR] [--rounds N] [--quick]

What the larger dataset adds is the look at the uris that are there. Then a row is appended for the
tenth and for the thousandth time, and the dataset that grew 1,000 times is opened. A stream commits
its tenth batch and its 10,000th. A dataset is opened that has all the shards that a split may have;
they are holes in files, since none is read. The datasets are made once and kept: pictures of 1,000
files under a million paths, stored as they are after a look at their headers. To append 1,000 times
takes some 10 minutes, and to stream 10,000 batches some 5.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
from harness import Bar, Case, Numbers, Timed

ROWS = 1_000_000
QUICK_ROWS = 20_000
ADDED = 1000
GENERATIONS = 1000
FEW_GENERATIONS = 10
QUICK_GENERATIONS = 20
BATCHES = 10_000
QUICK_BATCHES = 40
SHARDS = 99_999

SECONDS_BAR = 3.0
MEMORY_BAR = 300.0
OPENING_BAR = 2.0
SHARDS_BAR = 1.0
TIMES_BAR = 2.0


def add(images: str, dataset: str, first: int, count: int) -> Timed:
    """Append rows of a folder of links that the dataset does not have, to a copy of it."""
    import apache_beam

    import tfrecorder.conversion.append

    del apache_beam, tfrecorder
    grown = f"{dataset}-grown"
    shutil.rmtree(grown, ignore_errors=True)
    shutil.copytree(dataset, grown, copy_function=os.link)  # a file is replaced, never changed
    new = rows(images, first, first + count)

    def run() -> Numbers:
        import tfrecorder

        result = tfrecorder.append(new, grown, progress=False)
        return {"records": result.records}

    return run


def opened(dataset: str, by: str = "load") -> Timed:
    """`load` of a dataset, without reading a record; or `info`, which needs no TensorFlow."""
    import tensorflow

    import tfrecorder.loading.load

    del tensorflow, tfrecorder

    def run() -> Numbers:
        import tfrecorder

        tfrecorder.info(dataset) if by == "info" else tfrecorder.load(dataset, "TRAIN")
        return {}

    return run


def rows(images: str, first: int, end: int) -> Any:
    """A frame: each path is that of one of 1,000 files, through one of many links."""
    import pandas as pd

    paths = [f"{images}/{number // ADDED}/{number % ADDED}.jpg" for number in range(first, end)]
    return pd.DataFrame({"split": "TRAIN", "image_uri": paths, "label": "one"})


def make_images(folder: Path, count: int) -> str:
    """A thousand small files, and as many links to their folder as there are thousands of rows."""
    from PIL import Image

    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    for number in range(ADDED):
        path = files / f"{number}.jpg"
        if not path.exists():
            Image.new("RGB", (32, 32), (number % 256, number // 256, 90)).save(path)
    for number in range(count // ADDED + 1):
        link = folder / str(number)
        if not link.is_symlink():
            os.symlink(files, link)
    return str(folder)


def make_dataset(images: str, folder: Path, count: int) -> str:
    import tfrecorder

    if not (folder / "dataset_info.json").exists():
        tfrecorder.convert(
            rows(images, 0, count), folder, check="header", num_shards=8, progress=False
        )
    return str(folder)


def make_generations(images: str, folder: Path, count: int) -> str:
    """A dataset of 1,000 rows that one more row was appended to, `count` times."""
    import tfrecorder

    dataset = make_dataset(images, folder, ADDED)
    there = max(tfrecorder.generations(dataset))
    for number in range(ADDED + there, ADDED + count):
        tfrecorder.append(rows(images, number, number + 1), dataset, progress=False)
    return dataset


class OneByOne:
    """A stream of images: the position is the number of the next."""

    name = "one by one"

    def __init__(self, images: str, count: int) -> None:
        self._images, self._count = images, count

    def rows(self, position: Any) -> Iterator[tuple[Any, Any]]:
        for number in range(position or 0, self._count):
            path = f"{self._images}/{number // ADDED}/{number % ADDED}.jpg"
            yield {"image_uri": path, "label": "one", "split": "TRAIN"}, number + 1

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


def stream(images: str, dataset: str | Path, count: int) -> None:
    """A batch a row, to the stream's end."""
    import tfrecorder

    source = OneByOne(images, count)
    tfrecorder.stream(source, dataset, every_rows=1, until_idle=0, progress=False)


def batch(images: str, dataset: str, number: int) -> Timed:
    """Commit the next batch, to a copy of a streamed dataset."""
    import apache_beam

    import tfrecorder.streaming.stream

    del apache_beam, tfrecorder
    grown = f"{dataset}-grown"
    shutil.rmtree(grown, ignore_errors=True)
    shutil.copytree(dataset, grown, copy_function=os.link)

    def run() -> Numbers:
        stream(images, grown, number)
        return {}

    return run


def make_wide(images: str, folder: Path) -> str:
    """A dataset of one record in each of 99,999 shards, all but the first of which are holes."""
    from tfrecorder.format.documents import seal, unseal

    info_file, manifest_file = "dataset_info.json", "_tfrecorder/commits/00000.json"
    if (folder / info_file).exists():
        return str(folder)
    stream(images, made := folder.with_suffix(".made"), 1)
    info = json.loads((made / info_file).read_text())
    (split,) = info["splits"]
    size = int(split["numBytes"])
    split |= {"shardLengths": ["1"] * SHARDS, "numBytes": str(size * SHARDS)}
    manifest = unseal((made / manifest_file).read_bytes())
    manifest["splits"]["TRAIN"][1] = SHARDS
    shard = (made / "train-00000.tfrecord").stat().st_size
    for number in range(1, SHARDS):
        with open(made / f"train-{number:05d}.tfrecord", "wb") as file:
            file.truncate(shard)
    (made / manifest_file).write_bytes(seal(manifest))
    (made / info_file).write_text(json.dumps(info))
    made.rename(folder)
    return str(folder)


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="20,000 rows, once")
    chosen = parser.parse_args(arguments)
    many, rounds = (QUICK_ROWS, 1) if chosen.quick else (ROWS, chosen.rounds)
    data = chosen.data.resolve()
    images = make_images(data / "appending-images", many)
    cases = [
        Case(
            f"to {count:,} rows",
            "appending:add",
            {
                "images": images,
                "dataset": make_dataset(images, data / f"appending-{count}", count),
                "first": many,
                "count": ADDED,
            },
        )
        for count in (ADDED, many)
    ]
    grown = QUICK_GENERATIONS if chosen.quick else GENERATIONS
    for times in (FEW_GENERATIONS, grown):
        dataset = make_generations(images, data / f"appending-{times}-times", times - 1)
        options = {"images": images, "dataset": dataset, "first": ADDED + times, "count": 1}
        cases.append(Case(f"for the {times:,}th time", "appending:add", options))
    cases.append(Case(f"{grown:,} generations", "appending:opened", {"dataset": dataset}))
    batches = QUICK_BATCHES if chosen.quick else BATCHES
    for times in (FEW_GENERATIONS, batches):
        streamed = str(data / f"streamed-{times}-times")
        stream(images, streamed, times - 1)
        options = {"images": images, "dataset": streamed, "number": times}
        cases.append(Case(f"the {times:,}th batch", "appending:batch", options))
    wide = {"dataset": make_wide(images, data / "appending-wide"), "by": "info"}
    cases.append(Case(f"{SHARDS:,} shards", "appending:opened", wide))
    results = harness.run_rounds(cases, rounds, data)
    print(harness.table(results, ["seconds", "cpu", "peak_mb"]), "\n")
    few, large, tenth, last, many_times, tenth_batch, last_batch, widest = results
    more = {key: large.median(key) - few.median(key) for key in ("seconds", "peak_mb")}
    bars = [
        Bar("appended to 1,000,000 rows, s more", more["seconds"], SECONDS_BAR, at_least=False),
        Bar("appended to 1,000,000 rows, MB more", more["peak_mb"], MEMORY_BAR, at_least=False),
        Bar(
            "the 1,000th append, times the tenth",
            last.median("cpu") / tenth.median("cpu"),
            TIMES_BAR,
            at_least=False,
        ),
        Bar(
            "the last batch, times the tenth",
            last_batch.median("cpu") / tenth_batch.median("cpu"),
            TIMES_BAR,
            at_least=False,
        ),
        Bar("opening 99,999 shards, s of CPU", widest.median("cpu"), SHARDS_BAR, at_least=False),
        Bar(
            "opening 1,000 generations, s",
            many_times.median("seconds"),
            OPENING_BAR,
            at_least=False,
        ),
    ]
    return harness.report("appending", results, bars=bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

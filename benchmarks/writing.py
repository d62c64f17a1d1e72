"""Writing, against what it must not lose to: a hand-written loop, and the bare check.

    writing.py [--data DIR] [--rounds N] [--quick]

(a) by hand   one process, `tf.io.TFRecordWriter`, the same keys, Pillow's header, nothing checked
(b) check     a bare pool of as many threads as cores that reads each file and runs the strict
              check of its JPEG; writes nothing
    and its like, `check, write`, which also appends each file to one: no bar, but what this
    machine's file system and memory take off (b), whoever writes
(c) header    `tfrecorder.convert(check="header")`
(d) decode    `tfrecorder.convert(check="decode")`

All at two sizes, so that the cost an image (the slope) and the fixed cost come apart.  The
same photographs of 500x375, warm page cache, seconds without imports.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
from harness import Bar, Case, Numbers, Result, Tables, Timed

SIZES = (1000, 8000)
QUICK_SIZES = (500, 2000)

NAMES = (
    "TFRecordWriter by hand",
    "bare check of each image",
    "bare check, and the bytes written",
    'check="header"',
    'check="decode"',
)
BY_HAND, CHECK, CHECK_WRITE, HEADER, DECODE = NAMES

#: header >= 1.0 x by hand, decode >= 0.9 x check, by the slope.
HEADER_BAR, DECODE_BAR = 1.0, 0.9
FIXED_BAR = 1.0
OUTPUT_BAR = 1.03


def by_hand(source: str, out: str) -> Timed:
    """The loop that everyone writes once."""
    import tensorflow as tf
    from PIL import Image

    def as_bytes(value: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    def as_int(value: int) -> tf.train.Feature:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    def run() -> Numbers:
        rows = read_rows(source)
        numbers = {label: at for at, label in enumerate(sorted({row[2] for row in rows}))}
        os.makedirs(out)
        splits = dict.fromkeys(row[0] for row in rows)
        writers = {
            split: tf.io.TFRecordWriter(os.path.join(out, f"{split.lower()}.tfrecord"))
            for split in splits
        }
        bytes_in = 0
        for number, (split, uri, label) in enumerate(rows):
            with open(uri, "rb") as file:
                data = file.read()
            bytes_in += len(data)
            image = Image.open(io.BytesIO(data))
            feature = {
                "image/encoded": as_bytes(data),
                "image/format": as_bytes((image.format or "").lower().encode()),
                "image/height": as_int(image.height),
                "image/width": as_int(image.width),
                "image/channels": as_int(len(image.getbands())),
                "image/filename": as_bytes(uri.encode()),
                "image/source_id": as_bytes(str(number).encode()),
                "image/class/label": as_int(numbers[label]),
                "image/class/text": as_bytes(label.encode()),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writers[split].write(example.SerializeToString())
        for writer in writers.values():
            writer.close()
        return {"images": len(rows), "bytes_in": bytes_in, "bytes_out": record_bytes(out)}

    return run


def check(source: str, out: str | None = None) -> Timed:
    """The limit of any verified conversion; with `out`, of one that also writes."""
    from concurrent.futures import ThreadPoolExecutor

    from tfrecorder.images.check import check_image

    def check_some(rows: list[list[str]], target: int | None) -> int:
        size = 0
        for _, uri, _ in rows:
            with open(uri, "rb") as file:
                data = file.read()
            size += len(data)
            check_image(data, "strict")
            if target is not None:
                os.write(target, data)
        return size

    def run() -> Numbers:
        rows = read_rows(source)
        # Handing over 16 at a time costs nothing; nor does it leave a core idle at the end.
        tasks = [rows[at : at + 16] for at in range(0, len(rows), 16)]
        target = None if out is None else os.open(out, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        with ThreadPoolExecutor(harness.cores()) as pool:
            bytes_in = sum(pool.map(check_some, tasks, [target] * len(tasks)))
        if target is not None:
            os.close(target)
        return {"images": len(rows), "bytes_in": bytes_in}

    return run


def convert(source: str, out: str, **options: Any) -> Timed:
    """tfrecorder, through Beam."""
    import_writer()
    import tfrecorder

    def run() -> Numbers:
        result = tfrecorder.convert(source, out, progress=False, **options)
        return {
            "images": result.records,
            "bytes_in": result.input_bytes,
            "bytes_out": result.bytes,
            "directory_bytes": directory_bytes(out),
        }

    return run


def import_writer() -> None:
    """All modules that a conversion imports when it is called."""
    import apache_beam
    import apache_beam.runners.portability.fn_api_runner
    import pandas
    import pyarrow.parquet

    import tfrecorder.conversion.convert
    import tfrecorder.writing.pipeline

    del apache_beam, pandas, pyarrow, tfrecorder


def read_rows(source: str) -> list[list[str]]:
    """split, uri and label of each row of a CSV with a header."""
    with open(source, newline="") as file:
        return list(csv.reader(file))[1:]


def record_bytes(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).glob("*.tfrecord"))


def directory_bytes(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def make_cases(sources: dict[int, str], rehearse: bool) -> list[Case]:
    cases = []
    for size, source in sources.items():
        here = {"source": source}
        cases += [
            Case(f"{BY_HAND} {size}", "writing:by_hand", here, True, ("tensorflow",)),
            Case(f"{HEADER} {size}", "writing:convert", {**here, "check": "header"}, True),
            Case(f"{CHECK} {size}", "writing:check", here),
            Case(f"{CHECK_WRITE} {size}", "writing:check", here, True),
            Case(f"{DECODE} {size}", "writing:convert", {**here, "check": "decode"}, True),
        ]
    return [dataclasses.replace(case, rehearse=rehearse) for case in cases]


def slopes(results: Sequence[Result], name: str, sizes: tuple[int, int], key: str) -> list[float]:
    """Of each round: seconds an image, by the difference between the two sizes."""
    small, large = (_find(results, f"{name} {size}") for size in sizes)
    return [
        (big[key] - little[key]) / (sizes[1] - sizes[0])
        for little, big in zip(small.rounds, large.rounds, strict=True)
    ]


def fixed(results: Sequence[Result], name: str, sizes: tuple[int, int]) -> float:
    """Seconds that a run of no images would take."""
    small = _find(results, f"{name} {sizes[0]}")
    each = slopes(results, name, sizes, "seconds")
    return statistics.median(
        one["seconds"] - slope * sizes[0] for one, slope in zip(small.rounds, each, strict=True)
    )


def ratio(
    results: Sequence[Result], name: str, peer: str, sizes: tuple[int, int], key: str
) -> float:
    """How many times the peer's throughput: the median of the rounds, each compared in itself."""
    own, other = (slopes(results, one, sizes, key) for one in (name, peer))
    return statistics.median(theirs / ours for ours, theirs in zip(own, other, strict=True))


def _find(results: Sequence[Result], name: str) -> Result:
    return next(result for result in results if result.case.name == name)


def check_same_bytes(results: Sequence[Result]) -> None:
    """All cases of a size must have read the same bytes and kept all images."""
    for size in {one["images"] for result in results for one in result.rounds}:
        read = {
            one["bytes_in"] for result in results for one in result.rounds if one["images"] == size
        }
        assert len(read) == 1, f"the cases of {size} images read different bytes: {read}"


def tables_of(results: Sequence[Result], sizes: tuple[int, int]) -> Tables:
    """Each case by the slope, and how ours compare with the bare work."""
    rows = [["", "images/s", "ms CPU per image", "fixed s"]]
    for name in NAMES:
        wall = statistics.median(slopes(results, name, sizes, "seconds"))
        cpu = statistics.median(slopes(results, name, sizes, "cpu"))
        start = fixed(results, name, sizes)
        rows.append([name, f"{1 / wall:,.0f}", f"{cpu * 1e3:.3f}", harness.fixed_words(start)])
    ratios = [["", "by seconds", "by CPU seconds"]]
    for name, peer in ((HEADER, BY_HAND), (DECODE, CHECK), (DECODE, CHECK_WRITE)):
        both = (ratio(results, name, peer, sizes, key) for key in ("seconds", "cpu"))
        ratios.append([f"{name} / {peer}", *(f"{one:.3f}" for one in both)])
    return {"by the slope": rows, "ratios": ratios}


def bars_of(results: Sequence[Result], sizes: tuple[int, int]) -> list[Bar]:
    header = ratio(results, HEADER, BY_HAND, sizes, "seconds")
    decode = ratio(results, DECODE, CHECK, sizes, "seconds")
    large = _find(results, f"{DECODE} {sizes[1]}")
    growth = large.median("directory_bytes") / large.median("bytes_in")
    return [
        Bar(f"{HEADER} / {BY_HAND}, images/s", header, HEADER_BAR, at_least=True),
        Bar(f"{DECODE} / {CHECK}, images/s", decode, DECODE_BAR, at_least=True),
        Bar(f"fixed s, {HEADER}", fixed(results, HEADER, sizes), FIXED_BAR, at_least=False),
        Bar(f"fixed s, {DECODE}", fixed(results, DECODE, sizes), FIXED_BAR, at_least=False),
        Bar("output / input bytes", growth, OUTPUT_BAR, at_least=False),
    ]


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer images and rounds")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="each case runs once in its process before it is timed: without what a virtual "
        "machine takes for fresh memory, and libraries for their first use",
    )
    chosen = parser.parse_args(arguments)
    sizes, rounds = (QUICK_SIZES, min(3, chosen.rounds)) if chosen.quick else (SIZES, chosen.rounds)
    import data

    folder = data.photographs(chosen.data, max(sizes))
    sources = {size: str(data.listed(folder, size)) for size in sizes}
    harness.warm([uri for _, uri, _ in read_rows(sources[max(sizes)])])
    results = harness.run_rounds(make_cases(sources, chosen.rehearse), rounds, chosen.data)
    check_same_bytes(results)
    print(harness.table(results, ["seconds", "cpu", "others", "peak_mb", "bytes_out"]))
    name = "writing-rehearsed" if chosen.rehearse else "writing"
    tables, bars = tables_of(results, sizes), bars_of(results, sizes)
    return harness.report(name, results, tables, bars, sizes=sizes)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

"""Conversion next to everything else that writes photographs for training.

    peers_writing.py [--data DIR] [--rounds N] [--quick] [--rehearse]

The same photographs of 500x375, warm page cache, seconds without imports.  Two sizes tell the
cost an image (the slope) from what a run costs however small: workers that start, a pipeline.
`requirements.txt` in this folder installs the others; a case whose package is missing,
or does not work here, is skipped with a word.  Before the rounds each case runs once, and its
output is read back: it must hold the very bytes of the images.  tar and the bare loop are the
floor: neither checks anything or records what the training should know of the whole.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import data as shared
import harness
import peers_contents
import peers_packages
import writing
from harness import Bar, Case, Result

HEADER, DECODE = 'tfrecorder, check="header"', 'tfrecorder, check="decode"'
FLOOR = ("tar", "TFRecordWriter by hand")


@dataclasses.dataclass(frozen=True)
class Writer:
    """A case's function, how its output is read back, and what it needs."""

    function: str
    contents: str
    requires: tuple[str, ...] = ()
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)


def writers(folder: Path) -> dict[str, Writer]:
    """By the name of the case; `folder` has the photographs in folders."""
    beam, plain = ("apache_beam", "tensorflow"), {"options": "group_size:1,uncompressed"}
    return {
        "tar": Writer("peers_writers:tar", "tar"),
        "TFRecordWriter by hand": Writer("writing:by_hand", "tfrecord", ("tensorflow",)),
        "Beam, an image an element": Writer("peers_writers:beam", "tfrecord", beam),
        "Beam, the same in threads": Writer(
            "peers_writers:beam", "tfrecord", beam, {"workers": harness.cores()}
        ),
        "TFDS builder": Writer("peers_writers:tfds", "tfrecord", ("tensorflow_datasets",)),
        "webdataset": Writer("peers_writers:webdataset", "tar", ("webdataset",)),
        "MosaicML MDS": Writer("peers_writers:mds", "mds", ("streaming",)),
        "LitData optimize": Writer("peers_writers:litdata", "litdata", ("litdata",)),
        "Hugging Face to Parquet": Writer(
            "peers_writers:huggingface", "parquet", ("datasets",), {"folder": str(folder)}
        ),
        "array_record": Writer("peers_writers:array_record", "array_record", ("array_record",)),
        "array_record, uncompressed": Writer(
            "peers_writers:array_record", "array_record", ("array_record",), plain
        ),
        HEADER: Writer("writing:convert", "tfrecord", (), {"check": "header"}),
        DECODE: Writer("writing:convert", "tfrecord", (), {"check": "decode"}),
    }


def faults(
    every: dict[str, Writer], source: str, data: Path, environment: dict[str, str]
) -> dict[str, str]:
    """Why cases are left out: what is missing, fails, or does not hold the images."""
    wanted, found = peers_contents.of_source(source), {}
    for name, writer in every.items():
        arguments = {
            "writer": writer.function,
            "contents": writer.contents,
            "arguments": writer.arguments,
            "source": source,
        }
        case = Case(
            f"{name}: read back",
            "peers_contents:written",
            arguments,
            True,
            writer.requires,
            environment,
        )
        numbers, reason = peers_packages.once(case, data)
        if reason is None and any(numbers[key] != wanted[key] for key in wanted):
            held = {key: numbers[key] for key in wanted}
            reason = f"its output does not hold the images: {held}, not {wanted}"
        if reason is not None:
            found[name] = reason
    return found


def make_cases(
    sources: dict[int, Path], data: Path, environment: dict[str, str], rehearse: bool
) -> list[Case]:
    """Each writer at each size, named as `writing.slopes` looks for them."""
    return [
        Case(
            f"{name} {size}",
            writer.function,
            {"source": str(source), **writer.arguments},
            True,
            writer.requires,
            environment,
            rehearse,
        )
        for size, source in sources.items()
        for name, writer in writers(peers_packages.folders(source, size, data)).items()
    ]


def rates(results: Sequence[Result], sizes: tuple[int, int]) -> dict[str, tuple[float, ...]]:
    """Of each writer, by the slope: images/s, ms of CPU an image, and the fixed seconds."""
    found = {}
    for result in results:
        name, _, size = result.case.name.rpartition(" ")
        if int(size) != sizes[1] or not result.rounds:
            continue
        wall = statistics.median(writing.slopes(results, name, sizes, "seconds"))
        cpu = statistics.median(writing.slopes(results, name, sizes, "cpu"))
        # Of single rounds on a busy machine the smaller size may be the slower one.
        rate = 1 / wall if wall > 0 else float("nan")
        found[name] = (rate, cpu * 1e3, writing.fixed(results, name, sizes))
    return dict(sorted(found.items(), key=lambda pair: -pair[1][0]))


def rows_of(found: Mapping[str, tuple[float, ...]]) -> list[list[str]]:
    """The table, the fastest first."""
    rows = [["", "images/s", "ms CPU per image", "fixed s"]]
    for name, (rate, cpu, fixed) in found.items():
        shown = f"{name} (floor)" if name in FLOOR else name
        rows.append([shown, f"{rate:,.0f}", f"{cpu:.3f}", harness.fixed_words(fixed)])
    return rows


def bars_of(found: Mapping[str, tuple[float, ...]]) -> list[Bar]:
    """Whether `header` is the first of all that write a training format."""
    return [
        Bar(f'`check="header"` / {name}, images/s', found[HEADER][0] / rate, 1.0, True)
        for name, (rate, *_) in found.items()
        if name not in (*FLOOR, HEADER, DECODE)
    ]


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="fewer images, one round")
    parser.add_argument("--rehearse", action="store_true", help="as writing.py has it")
    chosen = parser.parse_args(arguments)
    data, rounds = chosen.data.resolve(), chosen.rounds or (1 if chosen.quick else 3)
    sizes = writing.QUICK_SIZES if chosen.quick else writing.SIZES
    folder = shared.photographs(data, max(sizes))
    sources = {size: shared.listed(folder, size) for size in sizes}
    large = sources[sizes[1]]
    harness.warm([path for _, path, _ in writing.read_rows(str(large))])
    environment = peers_packages.quiet(data)
    every = writers(peers_packages.folders(large, sizes[1], data))
    reasons = faults(every, str(large), data, environment)
    for name in (HEADER, DECODE):
        if name in reasons:
            raise RuntimeError(f"{name}: {reasons[name]}")
    cases = make_cases(sources, data, environment, chosen.rehearse)
    skipped = {f"{name} {size}": reason for name, reason in reasons.items() for size in sizes}
    results = peers_packages.measured(cases, skipped, rounds, data)
    print(harness.table(results, ["images/s", "CPU s/1000", "peak_mb", "bytes_in", "bytes_out"]))
    print("\nRead back, every output that was measured holds the very bytes of the images.")
    found = rates(results, sizes)
    name = "peers_writing-rehearsed" if chosen.rehearse else "peers_writing"
    more = {"peers": peers_packages.versions(), "sizes": sizes}
    return harness.report(name, results, {"by the slope": rows_of(found)}, bars_of(found), **more)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

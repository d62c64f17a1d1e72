"""`tfrecorder.load` next to the readers of other formats, on the same photographs.

    peers_reading.py [--data DIR] [--rounds N] [--quick]

All give shuffled uint8 batches of 64 at 224x224 from a warm page cache, of photographs of 500x375.
Packages of PyTorch and Grain decode with Pillow in two workers; PyTorch's own loader over single
files also with torchvision, and with simplejpeg and `interpolate`, as experts do.  Figures that
compare are images per CPU second: how well two cores are used differs with the number of workers.
Pillow, DALI, PyTorch and `load` resize free of aliasing; pipelines by hand and
`image_dataset_from_directory` mostly do not, which costs less.  Before the rounds each reader reads
every image once; the mean of all pixels must be that of `load`, within what decoders and kinds of
resizing differ.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import data as shared
import harness
import peers_packages
import raw
from harness import Bar, Case, Result, Tables
from writing import read_rows

SIZE = 224
LOAD = "tfrecorder.load"
BATCHES = "tfrecorder.batches"
RECORDS = "tfrecorder.Records, PyTorch"
EXPERT = "simplejpeg and interpolate, PyTorch"
MDS = "MosaicML MDS, PyTorch"
PLAIN = "load(antialias=False)"
#: Readers of a format that come as a package, free of aliasing.
PACKAGED = (
    *("webdataset, PyTorch", MDS, "LitData, PyTorch", "TFDS, antialiased", "DALI on the CPU"),
    *("Grain, array_record, threads", "Grain, array_record, processes"),
)
#: In grey levels: TensorFlow's fast decoding is darker by up to one.
MEAN_WITHIN = 2.0


@dataclasses.dataclass(frozen=True)
class Format:
    """How the data of a reader is written first."""

    writer: str
    requires: tuple[str, ...]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)


def formats(count: int) -> dict[str, Format]:
    return {
        # Several shards for each of the workers.
        "webdataset": Format(
            "peers_writers:webdataset", ("webdataset", "torch"), {"per_shard": count // 8}
        ),
        "mds": Format("peers_writers:mds", ("streaming", "torch")),
        "litdata": Format("peers_writers:litdata", ("litdata", "torch")),
        "array_record": Format("peers_writers:array_record", ("array_record", "grain")),
    }


def written(
    name: str, form: Format, source: Path, data: Path, environment: dict[str, str]
) -> tuple[str, str | None]:
    """The folder of a format, written unless it is there; and why it could not be."""
    out = data / f"peers-{name}-{source.stem}"
    if out.exists():
        return str(out), None
    partial = out.with_suffix(".part")
    shutil.rmtree(partial, ignore_errors=True)
    arguments = {"source": str(source), "out": str(partial), **form.arguments}
    case = Case(f"{name}: written", form.writer, arguments, False, form.requires, environment)
    _, reason = peers_packages.once(case, data)
    if reason is None:
        partial.rename(out)
        harness.warm([str(path) for path in out.rglob("*") if path.is_file()])
    return str(out), reason


def make_cases(
    source: Path, count: int, data: Path, environment: dict[str, str]
) -> tuple[list[Case], dict[str, str]]:
    """The cases, and of those that cannot be the reasons."""
    ours = {"directory": raw.written(source, data / f"peers-ours-{source.stem}", num_shards=8)}
    single = {"folder": str(peers_packages.folders(source, count, data) / "train")}
    harness.warm([str(path) for path in Path(ours["directory"]).glob("*.tfrecord")])
    rows: list[tuple[str, str, dict[str, Any], tuple[str, ...]]] = [
        (LOAD, "ours", ours, ()),
        (PLAIN, "ours", {**ours, "antialias": False}, ()),
        ("tf.data by hand, antialiased", "by_hand", {**ours, "antialias": True}, ()),
        ("tf.data by hand, plain", "by_hand", ours, ()),
        ("tf.data, naive, plain", "naive", ours, ()),
        ("TFDS, antialiased", "tfds", {**ours, "antialias": True}, ("tensorflow_datasets",)),
        ("TFDS, plain", "tfds", ours, ("tensorflow_datasets",)),
        ("image_dataset_from_directory, plain", "from_directory", single, ()),
        ("Pillow generator", "generator", single, ()),
        (BATCHES, "batches", ours, ()),
        (RECORDS, "records", ours, ("torch",)),
        ("torchvision, PyTorch", "torchvision", single, ("torch", "torchvision")),
        (EXPERT, "expert", single, ("torch",)),
        ("DALI on the CPU", "dali", ours, ("nvidia",)),
    ]
    skipped: dict[str, str] = {}
    for name, form in formats(count).items():
        where, reason = written(name, form, source, data, environment)
        directory: dict[str, Any] = {"directory": where}
        more = {
            "webdataset": [("webdataset, PyTorch", "webdataset", directory)],
            "mds": [(MDS, "mds", directory)],
            "litdata": [("LitData, PyTorch", "litdata", directory)],
            "array_record": [
                ("Grain, array_record, threads", "grain", directory),
                ("Grain, array_record, processes", "grain", {**directory, "processes": 2}),
            ],
        }[name]
        rows += [(*row, form.requires) for row in more]
        if reason is not None:
            skipped.update({row[0]: reason for row in more})
    cases = [
        Case(
            name,
            "peers_readers:read",
            {"reader": reader, "images": count, "warm_up": count // 2, "size": SIZE, **arguments},
            requires=requires,
            environment=environment,
        )
        for name, reader, arguments, requires in rows
    ]
    return cases, skipped


def faults(cases: Sequence[Case], data: Path) -> dict[str, str]:
    """Why cases are left out: what is missing, fails, or reads other pictures than `load`."""
    found: dict[str, str] = {}
    expected = None
    for case in cases:  # the first is `load`
        arguments = {key: value for key, value in case.arguments.items() if key != "warm_up"}
        numbers, reason = peers_packages.once(
            dataclasses.replace(
                case,
                name=f"{case.name}: one epoch",
                prepare="peers_readers:epoch",
                arguments=arguments,
            ),
            data,
        )
        if reason is None:
            expected = expected or numbers["mean"]
            wanted = case.arguments["images"]
            if numbers["amiss"]:
                reason = f"it gives {numbers['amiss']}"
            elif numbers["images"] != wanted:
                reason = f"it gives {numbers['images']} images an epoch, not {wanted}"
            elif abs(numbers["mean"] - expected) > MEAN_WITHIN:
                reason = f"its pixels have a mean of {numbers['mean']:.2f}, not {expected:.2f}"
        if reason is not None:
            found[case.name] = reason
    return found


def bars_of(results: Sequence[Result]) -> list[Bar]:
    """How far ahead our readers are, in images per CPU second."""
    work = {result.case.name: result.median("images/CPU s") for result in results if result.rounds}
    best = max(work[name] for name in (LOAD, PLAIN))
    bars = []
    for name, value in sorted(work.items(), key=lambda pair: -pair[1]):
        if name not in (LOAD, PLAIN, BATCHES, RECORDS):
            own = best if _is_plain(name) else work[LOAD]
            bars.append(Bar(f"`load` / {name}, images per CPU s", own / value, 1.0, True))
    packaged = [work[name] for name in PACKAGED if name in work]
    pairs = [(BATCHES, EXPERT, 1.05), (BATCHES, LOAD, 1.1), (RECORDS, MDS, 1.2)]
    bars += [
        Bar(f"`{one}` / {other}, images per CPU s", work[one] / work[other], least, True)
        for one, other, least in pairs
        if one in work and other in work
    ]
    if packaged:
        name = f"`{BATCHES}` / the best packaged reader, images per CPU s"
        bars.append(Bar(name, work[BATCHES] / max(packaged), 1.2, True))
    return bars


def tables_of(results: Sequence[Result]) -> Tables:
    """Readers free of aliasing, and those that resize plainly, the first of each at the top."""
    head = ["", "images per CPU s", "images/s", "peak MB"]
    tables: dict[str, list[list[str]]] = {"antialiased": [head], "plain": [head]}
    done = [result for result in results if result.rounds]
    for result in sorted(done, key=lambda one: -one.median("images/CPU s")):
        name = result.case.name
        numbers = [result.median(key) for key in ("images/CPU s", "images/s", "peak_mb")]
        tables["plain" if _is_plain(name) else "antialiased"].append(
            [name, *(f"{number:,.0f}" for number in numbers)]
        )
    return tables


def _is_plain(name: str) -> bool:
    return name.endswith("plain") or name == PLAIN


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="640 images, one round")
    chosen = parser.parse_args(arguments)
    data, count = chosen.data.resolve(), 640 if chosen.quick else 4096  # whole batches
    rounds = chosen.rounds or (1 if chosen.quick else 5)
    listed = shared.listed(shared.photographs(data, count), count)
    source = raw.all_in_train(listed)  # so that every reader has the same pictures
    harness.warm([path for _, path, _ in read_rows(str(source))])
    environment = peers_packages.quiet(data)
    cases, skipped = make_cases(source, count, data, environment)
    skipped.update(faults([case for case in cases if case.name not in skipped], data))
    assert LOAD not in skipped, f"{LOAD}: {skipped[LOAD]}"
    results = peers_packages.measured(cases, skipped, rounds, data)
    more = {"peers": peers_packages.versions(), "images": count}
    return harness.report("peers_reading", results, tables_of(results), bars_of(results), **more)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

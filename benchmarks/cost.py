"""What a million images cost on Dataflow: a sum on paper, of measured CPU seconds and bytes.

    cost.py [--data DIR] [--quick] [--rounds N] [--machines N] [--core-hour PRICE] ...
    cost.py --again [--machines N] [--core-hour PRICE] ...

Measured here, each in its own process:

    header, decode     `tfrecorder.convert` with this `check`, from gs:// to gs://: a loopback
                       server, whose CPU seconds are not counted (see bucket.py)
    Beam + TensorFlow  one Beam element an image, as most first versions have it, with TensorFlow
                       in the worker; it gets each image by our GET, and checks nothing
    …, decoding        the same, and each image is decoded by TensorFlow, the check that it has
    …, local           the same of files on this disk: bytes read and written
    install, import    what a worker's machine installs on top of Beam's stock image, from wheels
                       that are there already; and what each of its processes imports

CPU is by the slope between two numbers of images: what an image more takes.  The sum takes for
granted, the same for all ways: machines that start and stop in so many minutes, and so many
milliseconds an image in which a core waits for the bucket.  These and the prices are options, and
`--again` does the sum with others, without measuring.  Not in the sum: what the first version does
again after a failure, and the download of its wheels to each machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bucket
import cost_parts
import data as shared
import harness
import writing
from harness import Case, Result

HEADER, DECODE = "header", "decode"
FIRST, CHECKED = "Beam + TensorFlow", "Beam + TensorFlow, decoding"
OURS = (HEADER, DECODE)
WAYS = (HEADER, DECODE, FIRST, CHECKED)

PHOTOGRAPH, LARGE = "88 KB", "12 MP"

#: Objects that are written for a shard: ours with index, done-record and two lists; Beam's file
#: goes out under another name and is copied.
OBJECTS = {HEADER: 5, DECODE: 5, FIRST: 2, CHECKED: 2}


def _option(value: float, words: str) -> Any:
    return field(default=value, metadata={"help": words})


@dataclass(frozen=True)
class Inputs:
    """What the sum takes for granted; prices are list prices of us-central1, in dollars."""

    images: int = _option(1_000_000, "how many images")
    machines: int = _option(10, "machines")
    cores: int = _option(4, "cores of a machine, each with a process")
    #: bucket.py's `header, 20 ms`: a process with 16 threads takes 2.4 ms an image, 0.5 of CPU.
    wait_ms: float = _option(2, "milliseconds an image in which a core waits for the bucket")
    start_minutes: float = _option(5, "until a machine runs our first line, and until it is gone")
    gib_a_core: float = _option(4, "memory of a machine for each core, in GiB")
    shard_mib: float = _option(128, "size of a shard, in MiB")
    core_hour: float = _option(0.056, "price of a core hour")
    gib_hour: float = _option(0.003557, "price of a GiB hour of memory")
    thousand_reads: float = _option(0.0004, "price of 1,000 reads of objects")
    thousand_writes: float = _option(0.005, "price of 1,000 writes of objects")


@dataclass(frozen=True)
class Way:
    """What was measured of one way to convert.

    Attributes:
        cpu: seconds that an image takes.
        bytes_in: of an image; `bytes_out` of its record.
        start: seconds from the first line of a machine's processes to their work.
        objects: that are written for a shard.
    """

    cpu: float
    bytes_in: float
    bytes_out: float
    start: float
    objects: int


@dataclass(frozen=True)
class Cost:
    """The sum for one way: hours are of cores, money is in dollars."""

    busy_hours: float
    working_hours: float
    starting_hours: float
    minutes: float
    read_gb: float
    written_gb: float
    cores: float
    memory: float
    requests: float

    @property
    def hours(self) -> float:
        return self.working_hours + self.starting_hours

    @property
    def money(self) -> float:
        return self.cores + self.memory + self.requests


def on_paper(way: Way, given: Inputs) -> Cost:
    """The sum."""
    busy = given.images * way.cpu / 3600
    working = given.images * (way.cpu + given.wait_ms / 1e3) / 3600
    all_cores = given.machines * given.cores
    starting = all_cores * (given.start_minutes * 60 + way.start) / 3600
    hours = working + starting
    written = given.images * way.bytes_out
    writes = math.ceil(written / (given.shard_mib * 2**20)) * way.objects
    return Cost(
        busy_hours=busy,
        working_hours=working,
        starting_hours=starting,
        minutes=hours / all_cores * 60,
        read_gb=given.images * way.bytes_in / 1e9,
        written_gb=written / 1e9,
        cores=hours * given.core_hour,
        memory=hours * given.gib_a_core * given.gib_hour,
        requests=(
            given.images / 1000 * given.thousand_reads + writes / 1000 * given.thousand_writes
        ),
    )


def bucket_cases(name: str, source: Path, sizes: tuple[int, int]) -> list[Case]:
    """Each way at both sizes, named as `bucket.by_slope` looks for them."""
    cases = []
    for size in sizes:
        here = {"source": str(source), "images": size}
        cases += [
            Case(f"{name}: {way} {size}", "bucket:measure", {**here, "kind": way}) for way in OURS
        ]
        cases += [
            Case(f"{name}: {way} {size}", "cost_parts:with_tensorflow", {**here, "decode": decode})
            for way, decode in ((FIRST, False), (CHECKED, True))
        ]
    return cases


def local_cases(sources: Mapping[int, Path]) -> list[Case]:
    cases = []
    for size, path in sources.items():
        here = {"source": str(path)}
        cases += [
            Case(f"{way}, local {size}", "writing:convert", {**here, "check": way}, True)
            for way in OURS
        ]
        cases.append(Case(f"{FIRST}, local {size}", "peers_writers:beam", here, True))
    return cases


def start_cases(wheels: Mapping[str, list[str]]) -> list[Case]:
    cases = [
        Case(f"install, {side}", "cost_parts:install", {"wheels": paths}, True)
        for side, paths in wheels.items()
    ]
    modules = {
        "Beam alone": (cost_parts.BEAM,),
        "ours": cost_parts.OUR_IMPORTS,
        "with TensorFlow": cost_parts.TENSORFLOW_IMPORTS,
    }
    return cases + [
        Case(f"import, {side}", "cost_parts:imports", {"modules": list(names)})
        for side, names in modules.items()
    ]


def ways(
    results: Sequence[Result],
    bucket_sizes: Mapping[str, tuple[int, int]],
    bytes_in: Mapping[str, float],
) -> dict[str, Way]:
    """By "88 KB: header" and so on."""
    by_name = {result.case.name: result for result in results}

    def start(side: str) -> float:
        return sum(by_name[f"{what}, {side}"].median("seconds") for what in ("install", "import"))

    def added(way: str) -> float:
        """Bytes that are written for each image, besides its own."""
        small = f"{FIRST if way in (FIRST, CHECKED) else way}, local "
        one = next(result for name, result in by_name.items() if name.startswith(small))
        return (one.median("bytes_out") - one.median("bytes_in")) / one.median("images")

    return {
        f"{kind}: {way}": Way(
            cpu=bucket.by_slope(f"{kind}: {way}", results, sizes).client,
            bytes_in=bytes_in[kind],
            bytes_out=bytes_in[kind] + added(way),
            start=start("ours" if way in OURS else "with TensorFlow"),
            objects=OBJECTS[way],
        )
        for kind, sizes in bucket_sizes.items()
        for way in WAYS
    }


def sums(found: Mapping[str, Way], given: Inputs) -> tuple[list[list[str]], dict[str, Any]]:
    """The sum of each way as rows of a table, and as numbers."""
    rows = [
        ["", "ms CPU", "core h busy", "core h working", "start s", "core h starting", "core h"]
        + ["minutes", "GB read", "GB written", "$ cores", "$ memory", "$ requests", "$"]
    ]
    paper = {}
    for name, way in found.items():
        cost = on_paper(way, given)
        paper[name] = {**dataclasses.asdict(way), **dataclasses.asdict(cost), "money": cost.money}
        rows.append(
            [name, f"{way.cpu * 1e3:.2f}", f"{cost.busy_hours:.2f}", f"{cost.working_hours:.2f}"]
            + [f"{way.start:.1f}", f"{cost.starting_hours:.2f}", f"{cost.hours:.2f}"]
            + [f"{cost.minutes:.1f}", f"{cost.read_gb:,.0f}", f"{cost.written_gb:,.0f}"]
            + [f"{one:.2f}" for one in (cost.cores, cost.memory, cost.requests, cost.money)]
        )
    return rows, paper


#: The rounds; of each kind of image the two numbers, and the mean size.
Measured = tuple[list[Result], dict[str, tuple[int, int]], dict[str, float]]


def measure(chosen: argparse.Namespace) -> Measured:
    data, rounds = chosen.data.resolve(), chosen.rounds or (1 if chosen.quick else 3)
    sizes, large = ((200, 600), (4, 12)) if chosen.quick else ((1000, 4000), (8, 40))
    folder = shared.photographs(data, max(sizes))
    listed = {size: shared.listed(folder, size) for size in sizes}
    sources = {PHOTOGRAPH: listed[max(sizes)], LARGE: cost_parts.make_large(data, max(large))}
    wheels = {
        "ours": cost_parts.our_wheels(data / "wheels"),
        "with TensorFlow": cost_parts.tensorflow_wheels(data / "wheels"),
    }
    cases = [
        *bucket_cases(PHOTOGRAPH, sources[PHOTOGRAPH], sizes),
        *bucket_cases(LARGE, sources[LARGE], large),
        *local_cases(listed),
        *start_cases(wheels),
    ]
    bytes_in = {kind: cost_parts.bytes_each(source) for kind, source in sources.items()}
    return (
        harness.run_rounds(cases, rounds, data),
        {PHOTOGRAPH: sizes, LARGE: large},
        bytes_in,
    )


def read_back() -> Measured:
    """What was measured last."""
    path = harness.RESULTS / "cost.json"
    if not path.exists():
        raise SystemExit(f"--again: {path} is not there; run cost.py without it first")
    record = json.loads(path.read_text())
    cases = dataclasses.fields(Case)
    results = [
        Result(Case(**{one.name: case[one.name] for one in cases}), case["rounds"])
        for case in record["cases"]
    ]
    return (
        results,
        {kind: tuple(pair) for kind, pair in record["sizes"].items()},
        record["bytes_in"],
    )


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="few images, one round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--again", action="store_true", help="only the sum, of results/cost.json")
    for one in dataclasses.fields(Inputs):
        words = f"{one.metadata['help']}; {one.default:g}"
        flag, kind = f"--{one.name.replace('_', '-')}", int if one.type == "int" else float
        parser.add_argument(flag, type=kind, default=one.default, help=words)
    chosen = parser.parse_args(arguments)
    given = Inputs(**{one.name: getattr(chosen, one.name) for one in dataclasses.fields(Inputs)})
    results, sizes, bytes_in = read_back() if chosen.again else measure(chosen)
    keys = ["seconds", "cpu", "server_cpu", "peak_mb", "bytes_out", "wheels_mb", "installed_mb"]
    print(harness.table(results, keys))
    for way in (*OURS, FIRST):
        local = writing.slopes(results, f"{way}, local", sizes[PHOTOGRAPH], "cpu")
        each = statistics.median(local)
        print(f"{way}, local: {each * 1e3:.3f} ms CPU an image")
    rows, paper = sums(ways(results, sizes, bytes_in), given)
    print("\nOn paper, with " + ", ".join(f"{k} {v:g}" for k, v in vars(given).items()) + ":")
    if chosen.again:
        print("\n" + harness.columns(rows))
        return True
    kept: dict[str, Any] = {
        "sizes": sizes,
        "bytes_in": bytes_in,
        "inputs": vars(given),
        "paper": paper,
    }
    return harness.report("cost", results, {"on paper": rows}, **kept)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

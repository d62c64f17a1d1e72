"""Growth: what a conversion costs from 1,000 to 1,000,000 images, and what of it grows faster.

    growth.py [--data DIR] [--max N] [--rounds N] [--quick]

Two kinds of images, so that one line can be drawn through each: photographs of 500x375 up to
50,000, and synthetic pictures of 32x32 up to 1,000,000.  Both are hard links, under names of their
own, to 5,000 and 10,000 files: as many rows, paths, reads, checks and records as of distinct files,
without their disk.  Every size is converted twice with `check="decode"`:

in one process       seconds, CPU seconds, memory; and the start-up: from the call to the moment
                     when the first shard's temporary file is there, for which a thread looks every
                     5 ms.  `planning_mb` is the peak memory until then.
by two workers       `num_workers=2`: the launcher, which holds the whole table while it plans, and
                     the workers, which never see it, are processes then, and their peaks come
                     apart.  `worker_mb` is that of the larger worker.

CPU seconds are what the straight line is judged by: other programs disturb them least.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import data
import harness
import writing
from harness import Bar, Case, Numbers, Result, Timed

PHOTOGRAPHS, SYNTHETIC = "photographs", "synthetic"
SIZES = {
    PHOTOGRAPHS: (1000, 10_000, 50_000),
    SYNTHETIC: (1000, 10_000, 100_000, 1_000_000),
}
DISTINCT = {PHOTOGRAPHS: 5000, SYNTHETIC: 10_000}
QUICK_MAX, QUICK_DISTINCT = 10_000, 1000

#: Sizes up to this one take a second or two: they are run several times, larger ones once.
REPEATED = 10_000

#: Between sizes one after the other: how far the cost of an image may be from the one before.
STRAIGHT_BAR = 1.15
#: Peak memory of a worker, of the largest size to that of this many images.
FLAT_FROM, FLAT_BAR = 10_000, 1.2
GRAPH_BAR = 1e6

LOOK_SECONDS = 0.005
WORKER_LOOK_SECONDS = 0.05


# ---------------------------------------------------------------------------------------------
# Inside the process of a case.


def in_one_process(source: str, out: str) -> Timed:
    """The conversion as `convert` does it by itself."""
    writing.import_writer()
    import tfrecorder

    def run() -> Numbers:
        with _start_watched(out) as start:
            result = tfrecorder.convert(source, out, check="decode", progress=False)
        return {
            **start,
            "images": result.records,
            "bytes_in": result.input_bytes,
            "bytes_out": result.bytes,
        }

    return run


def by_workers(source: str, out: str) -> Timed:
    """The same in worker processes; what the launcher and they need, and what it sends them."""
    writing.import_writer()
    import tfrecorder

    def run() -> Numbers:
        with _start_watched(out) as start, _children_watched() as peaks:
            result = tfrecorder.convert(source, out, check="decode", progress=False, num_workers=2)
        launcher = _peak_mb("self")
        return {
            **start,
            "images": result.records,
            "launcher_mb": launcher,
            "worker_mb": max(peaks.values()),
            **_plan(source, f"{out}-planned"),
        }

    return run


def _plan(source: str, out: str) -> Numbers:
    """The bytes of the plan of the same conversion, and of Beam's job graph over it."""
    from apache_beam import Pipeline
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    import tfrecorder
    from tfrecorder.output.staging import read_plan
    from tfrecorder.writing import pipeline
    from tfrecorder.writing.worker import Task

    tfrecorder.parts.stage(source, out, check="decode")
    plan_bytes = sum(path.stat().st_size for path in Path(out, "_tfrecorder").glob("plan.*"))
    staged = read_plan(out)
    assert staged is not None
    pipe = Pipeline(runner=FnApiRunner())
    task = Task.of(staged, out, threads=harness.cores())
    pipeline.build(pipe, len(staged.layout.shards), task, 0.1)
    shutil.rmtree(out)
    graph_bytes = pipe.to_runner_api().ByteSize()
    return {
        "plan_bytes": plan_bytes,
        "graph_bytes": graph_bytes,
        "shards": len(staged.layout.shards),
    }


@contextlib.contextmanager
def _start_watched(out: str) -> Iterator[Numbers]:
    """When the first shard was begun, and the peak memory of this process until then."""
    from tfrecorder.format import layout

    folder, found, ended = os.path.join(out, layout.TMP), {}, threading.Event()
    begun = time.perf_counter()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            with contextlib.suppress(FileNotFoundError):
                if any(".tfrecord." in name for name in os.listdir(folder)):
                    found["start_s"] = time.perf_counter() - begun
                    found["planning_mb"] = _peak_mb("self")
                    return

    with _thread(watch, ended):
        yield found


@contextlib.contextmanager
def _children_watched() -> Iterator[dict[int, float]]:
    """The peak memory of each process that this one starts, by its number."""
    import psutil

    peaks: dict[int, float] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(WORKER_LOOK_SECONDS):
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(OSError):  # it ended meanwhile
                    peaks[child.pid] = max(peaks.get(child.pid, 0.0), _peak_mb(child.pid))

    with _thread(watch, ended):
        yield peaks


@contextlib.contextmanager
def _thread(work: Any, ended: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _peak_mb(process: int | str) -> float:
    """The largest memory that a process had so far, as Linux keeps it; 0 of one that has ended."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


# ---------------------------------------------------------------------------------------------
# The cases, and what they say together.


def sizes_of(kind: str, largest: int) -> tuple[int, ...]:
    return tuple(size for size in SIZES[kind] if size <= largest)


def make_cases(kind: str, sizes: Sequence[int], folder: Path) -> list[Case]:
    cases = []
    for size in sizes:
        source = {"source": str(data.listed(folder, size))}
        cases += [
            Case(f"{kind} {size}", "growth:in_one_process", source, writes=True),
            Case(f"{kind} {size}, workers", "growth:by_workers", source, writes=True),
        ]
    return cases


def costs(results: Sequence[Result], kind: str, sizes: Sequence[int], key: str) -> list[float]:
    """What an image more costs, between each size and the next."""
    totals = [_find(results, f"{kind} {size}").median(key) for size in sizes]
    return [
        (totals[at] - totals[at - 1]) / (sizes[at] - sizes[at - 1]) for at in range(1, len(sizes))
    ]


def _find(results: Sequence[Result], name: str) -> Result:
    return next(result for result in results if result.case.name == name)


def rows_of(results: Sequence[Result], kind: str, sizes: Sequence[int]) -> list[list[str]]:
    """The table of one kind: a line a size."""
    each = [float("nan"), *costs(results, kind, sizes, "cpu")]
    heads = ("start s", "s", "CPU s", "ms CPU an image more")
    memory = ("planning MB", "whole MB", "launcher MB", "worker MB")
    rows = [[kind, *heads, *memory, "shards", "plan KB", "graph KB"]]
    for size, cost in zip(sizes, each, strict=True):
        one = _find(results, f"{kind} {size}")
        workers = _find(results, f"{kind} {size}, workers")
        rows.append(
            [
                f"{size:,}",
                f"{one.median('start_s'):.2f}",
                f"{one.median('seconds'):.1f}",
                f"{one.median('cpu'):.1f}",
                f"{cost * 1e3:.4f}" if cost == cost else "",
                f"{one.median('planning_mb'):.0f}",
                f"{one.median('peak_mb'):.0f}",
                f"{workers.median('launcher_mb'):.0f}",
                f"{workers.median('worker_mb'):.0f}",
                f"{workers.median('shards'):.0f}",
                f"{workers.median('plan_bytes') / 1e3:,.0f}",
                f"{workers.median('graph_bytes') / 1e3:.1f}",
            ]
        )
    return rows


def bars_of(results: Sequence[Result], kind: str, sizes: Sequence[int]) -> list[Bar]:
    """Whether time is straight, memory flat and the graph small, as far as the sizes show."""
    bars = []
    each = costs(results, kind, sizes, "cpu")
    if len(each) > 1:
        ratio = each[-1] / each[-2]
        name = f"{kind}: CPU an image, to {sizes[-1]:,} / to {sizes[-2]:,}, or its inverse"
        bars.append(Bar(name, max(ratio, 1 / ratio), STRAIGHT_BAR, at_least=False))
    largest = _find(results, f"{kind} {sizes[-1]}, workers")
    if sizes[-1] > FLAT_FROM in sizes:
        before = _find(results, f"{kind} {FLAT_FROM}, workers").median("worker_mb")
        name = f"{kind}: peak memory of a worker, {sizes[-1]:,} / {FLAT_FROM:,}"
        bars.append(Bar(name, largest.median("worker_mb") / before, FLAT_BAR, at_least=False))
    graph = largest.median("graph_bytes")
    bars.append(Bar(f"{kind}: bytes of the job graph", graph, GRAPH_BAR, at_least=False))
    return bars


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--max", type=int, default=1_000_000, metavar="N", help="largest size")
    parser.add_argument(
        "--rounds", type=int, default=3, help=f"of the sizes up to {REPEATED:,}; larger ones: 1"
    )
    parser.add_argument("--quick", action="store_true", help=f"up to {QUICK_MAX:,}, once")
    chosen = parser.parse_args(arguments)
    most = min(chosen.max, QUICK_MAX) if chosen.quick else chosen.max
    rounds = 1 if chosen.quick else chosen.rounds
    if most < min(SIZES[SYNTHETIC]):
        parser.error(f"--max {chosen.max}: the smallest size is {min(SIZES[SYNTHETIC]):,}")
    results, sizes = [], {kind: sizes_of(kind, most) for kind in SIZES}
    for kind, of_kind in sizes.items():
        distinct = QUICK_DISTINCT if chosen.quick else DISTINCT[kind]
        link = data.linked if kind == PHOTOGRAPHS else data.linked_synthetic
        source = link(chosen.data, of_kind[-1], min(distinct, of_kind[-1]))
        harness.warm([uri for _, uri, _ in writing.read_rows(str(source))])
        often = [size for size in of_kind if size <= REPEATED]
        for some, times in ((often, rounds), (of_kind[len(often) :], 1)):
            results += harness.run_rounds(make_cases(kind, some, source.parent), times, chosen.data)
    tables = {kind: rows_of(results, kind, of_kind) for kind, of_kind in sizes.items()}
    bars = [bar for kind, of_kind in sizes.items() for bar in bars_of(results, kind, of_kind)]
    return harness.report("growth", results, tables, bars, sizes=sizes)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

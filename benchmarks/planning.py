"""Planning: a million rows, from the CSV to the staged plan, without any image.

    planning.py [--data DIR] [--rounds N] [--quick]
    planning.py --scale                 10,000,000 rows and 7,500 shards on a bucket, once
    planning.py --classes               7,500 shards with 10 and with 100,000 classes, once

Seconds of each step, peak memory, and the size of the job graph that Beam would send; at scale also
the CPU seconds and requests of planning, commit and looks (see `planning_scale.py`).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import harness
from harness import Bar, Case, Numbers, Timed

ROWS = 1_000_000
QUICK_ROWS = 100_000
LABELS = 1000

SECONDS_BAR = 30.0
MEMORY_BAR = 2.0 * 2**30 / 1e6
GRAPH_BAR = 1e6

#: Rows and shards, and what they may take: CPU seconds and MB until the plan is staged.
SCALE = (10_000_000, 7500)
QUICK_SCALE = (100_000, 100)
SCALE_CPU_BAR = 45.0
SCALE_MEMORY_BAR = 4000.0

#: Classes, and how many times as long the larger number may take; rows.
CLASSES = (10, 100_000)
CLASSES_BAR = 1.2
CLASSES_ROWS = 100_000

#: Seconds that the bucket takes to answer.
LATENCY = 0.05


def plan(source: str, out: str) -> Timed:
    """Read, validate, plan and stage, each timed."""
    import pandas
    import pyarrow.parquet

    from tfrecorder.options.convert import ConvertOptions
    from tfrecorder.output.staging import read_row_group, row_blocks, stage_plan
    from tfrecorder.plan.make_plan import make_plan, shard_counts
    from tfrecorder.sources.source import read_source
    from tfrecorder.validation.report import build_report, has_errors
    from tfrecorder.validation.rules import check_source

    del pandas, pyarrow

    def run() -> Numbers:
        steps, last = {}, time.perf_counter()

        def step(name: str) -> None:
            nonlocal last
            now = time.perf_counter()
            steps[name], last = now - last, now

        options = ConvertOptions()
        table = read_source(source, options)
        step("read_s")
        checked = check_source(table, options.division)
        assert not has_errors(build_report(checked.findings))
        step("validate_s")
        # The sizes of a sample, as a conversion takes them from the files.
        made, planned = make_plan(checked, table.base, options)
        counts = shard_counts(made.layout.split_rows, [88_000] * 1000, options)
        made = made.laid_out(split_shards=counts)
        step("plan_s")
        os.makedirs(out)
        stage_plan(made, planned, out)
        step("stage_s")
        rows = sum(map(len, row_blocks(read_row_group(out, len(made.layout.shards) // 2))))
        step("worker_reads_s")
        size = sum(path.stat().st_size for path in Path(out).rglob("plan.*"))
        return {
            **steps,
            "rows": made.rows.count,
            "shards": len(made.layout.shards),
            "shard_rows": rows,
            "plan_mb": size / 1e6,
        }

    return run


def graph(source: str, out: str) -> Timed:
    """Build the pipeline over the plan; the bytes of its graph."""
    from apache_beam import Pipeline
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    from tfrecorder.output.staging import read_plan
    from tfrecorder.writing import pipeline
    from tfrecorder.writing.worker import Task

    plan(source, out)()
    staged = read_plan(out)
    assert staged is not None

    def run() -> Numbers:
        pipe = Pipeline(runner=FnApiRunner())
        task = Task.of(staged, out, threads=harness.cores())
        pipeline.build(pipe, len(staged.layout.shards), task, 0.1)
        return {"graph_bytes": pipe.to_runner_api().ByteSize(), "shards": len(staged.layout.shards)}

    return run


def write_rows(path: Path, count: int) -> None:
    """A CSV of `count` rows whose images do not exist."""
    splits = ["TRAIN"] * 8 + ["VALIDATION", "TEST"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        file.write("split,image_uri,label\n")
        for number in range(count):
            label = f"class_{number % LABELS:04d}"
            split = splits[number // LABELS % len(splits)]
            file.write(f"{split},images/{label}/{number:08d}.jpg,{label}\n")


def scale(data: Path, rows: int, shards: int) -> bool:
    """The steps of a very large conversion but for its images, on a bucket."""
    sys.path.insert(0, str(harness.HERE.parent / "tests"))
    from services.gcs.control import in_process

    source = data / f"rows-{rows}.csv"
    if not source.exists():
        write_rows(source, rows)
    with in_process() as server:
        given = {"source": str(source), "url": server.url, "shards": shards, "latency": LATENCY}
        results = harness.run_rounds([Case(f"{rows} rows", "planning_scale:at_scale", given)], 1)
    (found,) = results
    steps = [["step", "s", "CPU s", "requests"]]
    for name in ("read", "validate", "plan", "stage", "status", "look", "commit", "verify"):
        seconds, cpu, requests = (found.median(f"{name}_{key}") for key in ("s", "cpu", "requests"))
        steps.append([name, f"{seconds:.1f}", f"{cpu:.1f}", f"{requests:,.0f}"])
    planning = found.median("planning_cpu"), found.median("planning_mb")
    bars = [
        Bar(f"planning {rows:,} rows, CPU s", planning[0], SCALE_CPU_BAR, at_least=False),
        Bar(f"planning {rows:,} rows, MB", planning[1], SCALE_MEMORY_BAR, at_least=False),
    ]
    return harness.report("planning_scale", results, {"steps": steps}, bars)


def classes(data: Path, shards: int) -> bool:
    """Whole conversions of tiny pictures, of few and of many classes.

    What they write is removed at the end: for minutes after so many files were removed, some file
    systems (ext4 without a journal) take longer for each new one.
    """
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="classes-", dir=data) as kept:
        cases = [
            Case(
                f"{count} classes",
                "planning_scale:of_classes",
                {
                    "out": os.path.join(kept, str(count), "out"),
                    "classes": count,
                    "rows": CLASSES_ROWS,
                    "shards": shards,
                },
            )
            for count in CLASSES
        ]
        results = harness.run_rounds(cases, 1, data)
    print(harness.table(results, ["seconds", "cpu", "peak_mb", "records"]))
    few, many = (one.median("cpu") for one in results)
    name = f"a conversion of {CLASSES[1]:,} classes / {CLASSES[0]}, CPU"
    bars = [Bar(name, many / few, CLASSES_BAR, at_least=False)]
    return harness.report("planning_classes", results, bars=bars)


def main(arguments: list[str] | None = None) -> bool:
    parser = harness.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="100,000 rows, once")
    parser.add_argument("--scale", action="store_true", help="10,000,000 rows on a bucket alone")
    parser.add_argument("--classes", action="store_true", help="10 and 100,000 classes alone")
    chosen = parser.parse_args(arguments)
    if chosen.classes:
        return classes(chosen.data, QUICK_SCALE[1] if chosen.quick else SCALE[1])
    if chosen.scale:
        return scale(chosen.data, *(QUICK_SCALE if chosen.quick else SCALE))
    rows, rounds = (QUICK_ROWS, 1) if chosen.quick else (ROWS, chosen.rounds)
    source = chosen.data / f"rows-{rows}.csv"
    if not source.exists():
        write_rows(source, rows)
    cases = [
        Case(f"plan {rows}", "planning:plan", {"source": str(source)}, writes=True),
        Case(f"graph {rows}", "planning:graph", {"source": str(source)}, writes=True),
    ]
    results = harness.run_rounds(cases, rounds, chosen.data)
    planned, built = results
    print(harness.table(results, ["rows", "seconds", "cpu", "peak_mb", "shards", "graph_bytes"]))
    steps = ("read_s", "validate_s", "plan_s", "stage_s", "worker_reads_s", "plan_mb")
    print("\n" + harness.table([planned], steps) + "\n")
    bars = [
        Bar(f"planning {rows:,} rows, s", planned.median("seconds"), SECONDS_BAR, False),
        Bar(f"planning {rows:,} rows, MB", planned.median("peak_mb"), MEMORY_BAR, False),
        Bar(f"job graph of {rows:,} rows, bytes", built.median("graph_bytes"), GRAPH_BAR, False),
    ]
    return harness.report("planning", results, bars=bars)


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)

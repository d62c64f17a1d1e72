"""Planning, commit and looks of 10,000,000 rows in 7,500 shards on a bucket that answers in 50 ms.

The server is the tests' loopback storage, in a process whose CPU is not counted.  No image is
written: each shard is a few bytes, put there with the index, the table (one row in twenty is a
reject) and the done-record that a worker would leave; that part is not measured.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from harness import Numbers, Timed

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

OUT = "gs://bkt/sets/out"

#: One row in so many is a reject.
REJECTS = 20

#: Bytes of a record that is nothing but its framing.
RECORD = 16


def at_scale(source: str, url: str, shards: int, latency: float) -> Timed:
    """Seconds, CPU seconds and requests of each step over a server that is running."""
    from services.gcs.control import Gcs

    server = Gcs(url)
    os.environ.update(server.environment())

    import pandas
    import pyarrow.parquet

    from tfrecorder import storage
    from tfrecorder.options.convert import ConvertOptions
    from tfrecorder.output.staging import read_all_done, read_plan, stage_plan
    from tfrecorder.output.state import DatasetState
    from tfrecorder.output.status import status
    from tfrecorder.plan.make_plan import make_plan
    from tfrecorder.sources.source import read_source
    from tfrecorder.validation.report import build_report, has_errors
    from tfrecorder.validation.rules import check_source
    from tfrecorder.verification.verify import verify
    from tfrecorder.writing.commit import commit

    del pandas, pyarrow

    def run() -> Numbers:
        server.reset()
        server.create_bucket("bkt")
        storage.names("gs://bkt/connect")  # the client's own start
        server.inject("stall", seconds=latency)
        found: Numbers = {}

        def step(name: str, work: Callable[[], Any]) -> Any:
            server.forget_requests()
            wall, cpu = time.perf_counter(), time.process_time()
            result = work()
            found[f"{name}_s"] = time.perf_counter() - wall
            found[f"{name}_cpu"] = time.process_time() - cpu
            found[f"{name}_requests"] = server.count()
            return result

        def plan() -> tuple[Any, Any]:
            tenth = shards // 10
            counts = {"TRAIN": shards - 2 * tenth, "VALIDATION": tenth, "TEST": tenth}
            options = ConvertOptions(num_shards=counts)
            table = step("read", lambda: read_source(source, options))
            checked = step("validate", lambda: check_source(table, options.division))
            assert not has_errors(build_report(checked.findings))
            return step("plan", lambda: make_plan(checked, table.base, options))

        made, planned = plan()
        step("stage", partial(stage_plan, made, planned, OUT))
        del planned
        found["planning_cpu"] = sum(
            found[f"{name}_cpu"] for name in ("read", "validate", "plan", "stage")
        )
        found["planning_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        found |= {"rows": made.rows.count, "shards": len(made.layout.shards)}
        server.mend()
        _put_shards(server, made)
        server.inject("stall", seconds=latency)
        step("status", lambda: status(OUT))
        staged = read_plan(OUT)
        assert staged is not None
        done = step("look", lambda: read_all_done(OUT, staged.layout.shards, staged.digest))
        assert all(done.values())
        step("commit", lambda: commit(DatasetState.read(OUT), staged, done.values(), 0.1))
        report = step("verify", lambda: verify(OUT))
        assert report.ok, report
        return found

    return run


def of_classes(out: str, classes: int, rows: int, shards: int) -> Timed:
    """Converts tiny pictures of so many classes, on a disk."""
    import apache_beam
    import pandas as pd
    from PIL import Image

    import tfrecorder

    del apache_beam
    pictures = Path(out).parent / "pictures"
    pictures.mkdir(parents=True)
    for number in range(10):
        Image.new("RGB", (8, 8), (20 * number, 5, 9)).save(pictures / f"{number}.jpg")
    table = pd.DataFrame(
        {
            "split": "TRAIN",
            "image_uri": [f"{pictures}/{row % 10}.jpg" for row in range(rows)],
            "label": [f"class_{row % classes:06d}" for row in range(rows)],
        }
    )

    def run() -> Numbers:
        options: Any = {
            "num_shards": shards,
            "num_threads": 1,
            "check": "header",
            "progress": False,
        }
        return {"records": tfrecorder.convert(table, out, **options).records}

    return run


def _put_shards(server: Any, plan: Any) -> None:
    """What workers leave of all shards."""
    import google_crc32c

    from tfrecorder import storage
    from tfrecorder.format.done_records import DoneRecord
    from tfrecorder.output.staging import read_footer, read_row_group
    from tfrecorder.schema.fields import file_fields
    from tfrecorder.schema.keys import SOURCE_ID
    from tfrecorder.writing.outcomes import OfFile, Outcomes, RecordAt

    footer = read_footer(OUT)

    def put(at: int) -> None:
        shard = plan.layout.shards[at]
        rows = plan.layout.shard_rows(shard)
        rejects = rows // REJECTS
        records = rows - rejects
        data = bytes(RECORD * records)
        [image] = file_fields(plan.fields)
        sources = {image.key: OfFile(88_000, 1)}
        outcomes = Outcomes(plan.fields)
        planned = read_row_group(OUT, at, footer)
        numbers = planned.column(SOURCE_ID).to_pylist()
        crc = google_crc32c.value(bytes(RECORD))
        for place, row in enumerate(numbers[:records]):
            outcomes.add_record(RecordAt(row, RECORD * place, RECORD, "", crc), (), sources)
        for row in numbers[records:]:
            outcomes.add_reject(row, "read", "not_found: 404 Not Found", {})
        files = {"index": outcomes.index(), "table": outcomes.table(plan, planned)}
        server.put(f"{OUT}/{shard.file}", data)
        for name, file in shard.beside.items():
            server.put(f"{OUT}/{file}", files[name])
        done = DoneRecord(
            plan=plan.digest,
            shard=shard.name,
            rows=rows,
            records=records,
            reasons={"read/not_found": rejects} if rejects else {},
            suspects=0,
            oriented=0,
            input_bytes=records * 88_000,
            bytes=len(data),
            crc32c=google_crc32c.value(data),
            formats={"jpeg": records},
            shapes={image.key: [[375, 500, 3], [375, 500, 3]]},
            sides=[[375, 500], [375, 500]],
            beside={name: google_crc32c.value(data) for name, data in files.items()},
            beside_bytes={name: len(data) for name, data in files.items()},
        )
        storage.publish_over(OUT, shard.done, done.to_json(), "")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(len(plan.layout.shards))))

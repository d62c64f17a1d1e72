"""Does a conversion on Dataflow itself give what this machine gives?  For someone with a project.

    python scripts/dataflow_smoke.py --project my-project --bucket my-bucket

Converts some public photographs of flowers on Dataflow and on this machine, compares the two
datasets, prints the most machines and about what it cost, and removes what it wrote to the
bucket.  It takes about ten minutes and less than a dollar.  docs/dataflow.md says what a project
needs first.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import requests

import tfrecorder
from tfrecorder import storage
from tfrecorder.runners.dataflow import DataflowJob
from tfrecorder.runners.dataflow.job import SCOPE

#: Of Google's own tutorials: some 3,670 flowers, in lines `uri,label`.
SOURCE = "gs://cloud-samples-data/vision/automl_classification/flowers/all_data_v2.csv"

#: List prices of us-central1 in dollars for batch: an hour of a core and of a GiB of memory.
CORE_HOUR, GIB_HOUR = 0.056, 0.003557

#: Seconds between two looks at how many cores the job has.
LOOK_SECONDS = 5


def rows_of(source: str, rows: int) -> pd.DataFrame:
    """Some rows of a CSV of lines `uri,label`, always the same."""
    table = pd.read_csv(io.BytesIO(storage.read_bytes(source)), header=None, usecols=[0, 1])
    table.columns = pd.Index(["image_uri", "label"])
    table = table[table["image_uri"].str.startswith("gs://")]
    return table.sample(min(rows, len(table)), random_state=0).sort_index()


def watched(job: DataflowJob) -> tuple[dict[str, float], float]:
    """Wait for a job; the service's own measures of it, and the most cores that it had."""
    try:
        most = measures(job).get("CurrentVcpuCount", 0)
        while not job.status().ended:
            time.sleep(LOOK_SECONDS)
            most = max(most, measures(job).get("CurrentVcpuCount", 0))
        job.wait()
    except BaseException:  # Ctrl-C among them: it would write into what is removed
        job.cancel()
        raise
    return measures(job), most


def measures(job: DataflowJob) -> dict[str, float]:
    """The service's own measures of a job: TotalVcpuTime in seconds, and others."""
    headers: dict[str, str] = {}
    if not job.no_auth:
        from google.auth.transport.requests import Request

        credentials = storage.find_credentials(job.impersonate, [SCOPE])
        credentials.before_request(Request(), "GET", job.endpoint, headers)
    answer = requests.get(f"{job.service_url}/metrics", headers=headers, timeout=60)
    answer.raise_for_status()
    found: dict[str, float] = {}
    for one in answer.json().get("metrics", ()):
        name = one.get("name", {})
        if str(name.get("origin", "")).startswith("dataflow/"):
            found[name.get("name", "")] = float(one.get("scalar", 0))
    return found


def differences(remote: str, local: Path) -> list[str]:
    """Public files of two datasets that are not the same, byte for byte."""
    there = {name for name, size in storage.sizes(remote).items() if size is not None}
    here = {path.name for path in local.iterdir() if path.is_file()}
    both = sorted(there & here)
    same = [storage.read_bytes(f"{remote}/{name}") == (local / name).read_bytes() for name in both]
    return sorted(there ^ here) + [name for name, one in zip(both, same, strict=True) if not one]


def report(job: DataflowJob, found: dict[str, float], most: float, cores: int) -> str:
    hours = found.get("TotalVcpuTime", 0) / 3600
    memory = found.get("TotalMemoryUsage", 0) / 1024 / 3600
    cost = hours * CORE_HOUR + memory * GIB_HOUR
    return (
        f"{job.status()}\n"
        f"machines at most: {most / cores:.0f} of {cores} cores\n"
        f"core hours: {hours:.3f}; GiB hours of memory: {memory:.3f}\n"
        f"about {cost:.3f} $ at list prices, without requests of the bucket"
    )


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--project", required=True, help="of Google Cloud; it is billed")
    found.add_argument("--bucket", required=True, help="to write to, without gs://")
    found.add_argument("--region", default="us-central1", help="of the bucket and the workers")
    found.add_argument("--rows", type=int, default=3000, help="images at most (%(default)s)")
    found.add_argument("--source", default=SOURCE, help="a CSV of lines uri,label (%(default)s)")
    found.add_argument(
        "--machine-type", default="n2-standard-4", help="whose name ends in its cores (%(default)s)"
    )
    found.add_argument("--keep", action="store_true", help="leave the dataset in the bucket")
    found.add_argument(
        "--runner-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of Dataflow, as service_account_email=…; may be repeated",
    )
    return found


def main(arguments: list[str]) -> int:
    given = parser().parse_args(arguments)
    more: dict[str, Any] = dict(one.partition("=")[::2] for one in given.runner_option)
    name = f"tfrecorder-smoke-{time.strftime('%Y%m%d-%H%M%S')}"
    place, table = f"gs://{given.bucket}/{name}", rows_of(given.source, given.rows)
    print(f"{len(table):,} images of {given.source} to {place}", flush=True)
    try:
        job = tfrecorder.convert(
            table,
            f"{place}/dataset",
            shard_size="16MB",
            runner="DataflowRunner",
            project=given.project,
            region=given.region,
            runner_options={
                "temp_location": f"{place}/tmp",
                "machine_type": given.machine_type,
                **more,
            },
        )
        assert isinstance(job, DataflowJob)
        print(job, flush=True)
        print(report(job, *watched(job), int(given.machine_type.rpartition("-")[2])), flush=True)
        with tempfile.TemporaryDirectory() as folder:
            tfrecorder.convert(table, f"{folder}/dataset", shard_size="16MB")
            different = differences(f"{place}/dataset", Path(folder, "dataset"))
        sound = tfrecorder.verify(f"{place}/dataset").ok
    finally:
        if not given.keep:
            storage.remove(f"gs://{given.bucket}", name)
    words = ", ".join(different) or "none"
    print(f"files that differ from a local conversion: {words}; verify: {sound}")
    return 1 if different or not sound else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

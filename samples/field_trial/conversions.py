"""The parts of the trial that convert: photographs, buckets, Dataflow, a kill.

Each part is an iterator of its steps, `(name, figures)`, so that what was measured before a failure
is in the report.  A figure whose name is in `FAULTS` must be 0.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import requests

import tfrecorder
from tfrecorder import storage
from tfrecorder.runners.dataflow import DataflowJob
from tfrecorder.runners.dataflow.job import SCOPE

ROOT = Path(__file__).resolve().parent.parent.parent
Steps = Iterator[tuple[str, dict[str, Any]]]

#: Figures that are faults unless they are 0.
FAULTS = ("lost", "doubled", "changed", "rejects", "damaged", "files_that_differ", "shards_lost")

#: Shards of each split, so that a kill finds some of them done and some not.
SHARDS = 12

#: Seconds between two looks: at how many cores a job has, and at the shards of a conversion.
LOOK_SECONDS = 5
SHARDS_LOOK_SECONDS = 0.01


def photographs(folder: Path, rows: int, photos: Path | None) -> pd.DataFrame:
    """Make small photographs in a folder, all different; the table that lists them."""
    size = ("--size", "500x375") if photos else ("--size", "120x90")
    make = [sys.executable, str(ROOT / "benchmarks/make_images.py"), str(folder), str(rows)]
    whole = [*make, "--photos", str(photos or ROOT / "samples/photos"), *size]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)
    return pd.read_csv(folder / "data.csv")


def timed(begun: float, megabytes: float = 0, **figures: Any) -> dict[str, Any]:
    """The figures of a step that began then and ends now."""
    seconds = time.perf_counter() - begun
    rate = {"mb_per_s": round(megabytes / seconds, 2)} if megabytes else {}
    return {"seconds": round(seconds, 3), **rate, **figures}


def upload(table: pd.DataFrame, folder: Path, place: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Put what is not there yet of a table's images below `place`; the table of these uris."""
    begun = time.perf_counter()
    names = [os.path.relpath(uri, folder) for uri in table["image_uri"]]
    missing = sorted({*names} - {*storage.files_below(place)})

    def put(name: str) -> int:
        data = (folder / name).read_bytes()
        storage.publish_bytes(place, name, data)
        return len(data)

    megabytes = sum(storage.each(put, missing, place)) / 1e6
    figures = timed(begun, megabytes, images=len(missing), thousand_writes=len(missing) / 1000)
    return table.assign(image_uri=[f"{place}/{name}" for name in names]), figures


def converted(result: Any, begun: float, out: str) -> dict[str, Any]:
    """The figures of a conversion that began then."""
    figures = timed(begun, result.input_bytes / 1e6, rows=result.rows, records=result.records)
    figures["rejects"] = result.rows - result.records
    if not storage.is_local(out):
        figures |= {"thousand_writes": len(storage.files_below(out)) / 1000}
    return figures


def verified(out: str, size: int) -> dict[str, Any]:
    """Verify a dataset of this size; gs:// tells its checksums, other buckets send all bytes."""
    begun = time.perf_counter()
    damaged = int(not tfrecorder.verify(out, progress=False).ok)
    sent = {"gb_out": size / 1e9} if out.startswith("s3://") else {}
    return {"damaged": damaged, **timed(begun), **sent}


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def read(out: str, originals: pd.DataFrame) -> dict[str, Any]:
    """Read every record once, and compare its image with the file on this machine, row by row."""
    begun, found, size = time.perf_counter(), Counter[int](), 0
    digests: dict[int, bytes] = {}
    for split in tfrecorder.info(out).splits:
        options: dict[str, Any] = {"shuffle": False, "decode": False, "drop_remainder": False}
        for batch in tfrecorder.batches(out, split, batch_size=256, inputs="all", **options):
            rows = list(map(int, batch["image/source_id"]))
            digests.update(zip(rows, map(digest, batch["image/encoded"]), strict=True))
            found.update(rows)
            size += sum(map(len, batch["image/encoded"]))
    figures = timed(begun, size / 1e6, records=found.total())
    files = originals["image_uri"].items()
    changed = sum(
        row in found and digest(Path(uri).read_bytes()) != digests[row] for row, uri in files
    )
    doubled = found.total() - len(found)
    figures |= {"lost": len({*originals.index} - {*found}), "doubled": doubled, "changed": changed}
    if not storage.is_local(out):
        shards = sum(name.endswith(".tfrecord") for name in storage.names(out))
        figures |= {"gb_out": size / 1e9, "thousand_reads": shards / 1000}
    return figures


def compared(out: str, here: Path) -> dict[str, Any]:
    """How many public files of two datasets are not the same, byte for byte."""
    there = {name for name, size in storage.sizes(out).items() if size is not None}
    local = {path.name for path in here.iterdir() if path.is_file()}

    def differs(name: str) -> bool:
        return storage.read_bytes(f"{out}/{name}") != (here / name).read_bytes()

    different = sum(storage.each(differs, sorted(there & local), out))
    figures: dict[str, Any] = {"files": len(there | local)}
    figures["files_that_differ"] = len(there ^ local) + different
    if not storage.is_local(out):
        size = sum((here / name).stat().st_size for name in local)
        figures |= {"gb_out": size / 1e9, "thousand_reads": len(there) / 1000}
    return figures


def convert_here(table: pd.DataFrame, out: Path) -> Path:
    """The same table as a dataset of this machine; once."""
    if not (out / "dataset_info.json").exists():
        tfrecorder.convert(table, out, num_shards=SHARDS, progress=False)
    return out


def removal(places: Iterable[str], name: str) -> Steps:
    """Remove what the trial wrote to buckets."""
    for place in places:
        begun = time.perf_counter()
        storage.remove(place, name)
        yield place.partition(":")[0], timed(begun)


def round_trip(
    table: pd.DataFrame, folder: Path, place: str, chosen: argparse.Namespace | None = None
) -> Steps:
    """Images to a bucket, converted there, verified, read, compared with a conversion here.

    Args:
        table: lists the images of this machine.
        folder: of these images.
        place: in the bucket.
        chosen: of Dataflow, which then converts in place of this machine.
    """
    there, uploaded = upload(table, folder, f"{place}/images")
    yield "upload", uploaded
    out = f"{place}/dataflow" if chosen else f"{place}/dataset"
    begun = time.perf_counter()
    if chosen is None:
        result = tfrecorder.convert(there, out, num_shards=SHARDS, progress=False)
    else:
        runner_options = dict(one.partition("=")[::2] for one in chosen.runner_option)
        where = {"temp_location": f"{place}/tmp", "machine_type": chosen.machine_type}
        job = tfrecorder.convert(
            there,
            out,
            num_shards=SHARDS,
            runner="DataflowRunner",
            project=chosen.project,
            region=chosen.region,
            runner_options={**where, **runner_options},
        )
        assert isinstance(job, DataflowJob)
        print(job.url, flush=True)
        yield "launch", timed(begun)
        yield "job", watched(job, chosen.machine_type)
        result = job.result()
    assert not isinstance(result, DataflowJob)
    figures = converted(result, begun, out)
    images = {"gb_out": result.input_bytes / 1e9, "thousand_reads": len(table) / 1000}
    yield "convert", figures | (images if chosen is None else {**images, "gb_out": 0})
    yield "verify", verified(out, result.bytes)
    yield "read", read(out, table)
    begun = time.perf_counter()
    here = convert_here(there, folder.parent / out.replace("://", "-").replace("/", "-"))
    yield "convert here", timed(begun, **images)
    yield "compare", compared(out, here)


def watched(job: DataflowJob, machine_type: str) -> dict[str, Any]:
    """Wait for a job's end: the most machines that it had, and the service's measures of it."""
    try:
        most = measures(job).get("CurrentVcpuCount", 0)
        while not (status := job.status()).ended:
            time.sleep(LOOK_SECONDS)
            most = max(most, measures(job).get("CurrentVcpuCount", 0))
    except BaseException:  # Ctrl-C among them: it would write into what is removed
        job.cancel()
        raise
    found, cores = measures(job), int(machine_type.rpartition("-")[2])
    return {
        "state": status.state,
        "seconds": round(status.seconds),
        "machine_type": machine_type,
        "machines_at_most": round(most / cores, 1),
        "core_hours": found.get("TotalVcpuTime", 0) / 3600,
        "gib_hours": found.get("TotalMemoryUsage", 0) / 1024 / 3600,
    }


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
    for metric in answer.json().get("metrics", ()):
        name = metric.get("name", {})
        if str(name.get("origin", "")).startswith("dataflow/"):
            found[name.get("name", "")] = float(metric.get("scalar", 0))
    return found


def signal_all(process: subprocess.Popen[str], number: int) -> None:
    """Send a signal to a process of its own session and to all that it started, if any is left."""
    # macOS refuses to signal what has ended and was not waited for.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def kill(table: pd.DataFrame, whole: Path, out: str) -> Steps:
    """SIGKILL a conversion when a third of its shards are done, and run the same call again.

    Args:
        table: lists the images of this machine.
        whole: where the dataset of an uninterrupted conversion is, or will be.
        out: the dataset directory, here or in a bucket.
    """
    convert_here(table, whole)
    source = whole.with_suffix(".csv")
    table.to_csv(source, index=False)
    command = [sys.executable, "-m", "tfrecorder", "convert", str(source), out]
    command += ["--num-shards", str(SHARDS)]
    begun = time.perf_counter()
    # A session of its own, so that no process of its runner lives on.
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            while process.poll() is None:
                time.sleep(SHARDS_LOOK_SECONDS)
                # A small one would end while somebody looks at a bucket.
                signal_all(process, signal.SIGSTOP)
                with contextlib.suppress(tfrecorder.errors.DatasetError):  # it has not begun yet
                    if tfrecorder.status(out).shards_done >= SHARDS:  # of three splits
                        break
                signal_all(process, signal.SIGCONT)
        finally:
            signal_all(process, signal.SIGKILL)
        said = process.communicate()[1]
    if process.returncode > 0:
        raise RuntimeError(f"the conversion failed: {said}")
    status = tfrecorder.status(out)
    if status.committed:
        raise RuntimeError(f"{len(table):,} rows were written before the kill; raise --rows")
    yield "kill", timed(begun, shards=status.shards, shards_done=status.shards_done)
    begun = time.perf_counter()
    result = tfrecorder.convert(source, out, num_shards=SHARDS, progress=False)
    assert not isinstance(result, DataflowJob)
    kept = {"shards_kept": result.shards_before}
    kept["shards_lost"] = max(0, status.shards_done - result.shards_before)
    yield "resume", {**converted(result, begun, out), **kept}
    yield "verify", verified(out, result.bytes)
    yield "read", read(out, table)
    yield "compare", compared(out, whole)

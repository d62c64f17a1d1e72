"""The Beam pipeline: one element a shard, one linear chain, the commit as its last step.

    shard numbers ──► Reshuffle ──► WriteShard ──► gather done-records ──► Commit

Nothing else of this package imports Beam, but for the launchers.  An element is a shard's number;
everything about it is in the plan that stands staged in the output directory.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from tfrecorder import layout, storage
from tfrecorder.commit import commit
from tfrecorder.errors import OutputError, TfrecorderError
from tfrecorder.metadata import DoneRecord, read_done
from tfrecorder.plan import Plan, read_plan
from tfrecorder.shards import write_shard

COUNTERS = ("rows", "records", "rejects", "input_bytes", "bytes")


class _Pool:
    """Threads that load images; Beam's `Shared` keeps one a process for all its DoFns."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix="tfrecorder")


class WriteShard(beam.DoFn):
    """Shard number -> DoneRecord.  Writes the shard, or passes over one that is done already."""

    def __init__(self, output_dir: str, threads: int, on_error: str, progress: bool) -> None:
        self._output_dir = output_dir
        self._threads = threads
        self._on_error = on_error
        self._progress = progress
        self._shared = Shared()
        self._counters = {name: Metrics.counter("tfrecorder", name) for name in COUNTERS}

    def setup(self) -> None:
        self._plan = _staged_plan(self._output_dir)
        self._shards = self._plan.shards
        self._pool = self._shared.acquire(lambda: _Pool(self._threads))

    def process(self, number: int) -> Iterator[DoneRecord]:
        with _failure_noted(self._output_dir):
            yield self._write(number)

    def _write(self, number: int) -> DoneRecord:
        if _staged_plan(self._output_dir).digest != self._plan.digest:
            # Worker processes outlive a killed launcher by some seconds, and may meet the next one.
            raise OutputError(f"{self._output_dir} was planned anew meanwhile; this worker stops.")
        shard = self._shards[number]
        done = read_done(self._output_dir, shard, self._plan.digest)
        if done is None:
            path = os.path.join(self._output_dir, shard.progress)
            done = write_shard(
                self._plan,
                number,
                self._output_dir,
                self._pool.executor,
                self._pool.threads,
                self._on_error,
                (lambda rows: storage.overwrite(path, str(rows))) if self._progress else _silent,
            )
        for name, counter in self._counters.items():
            counter.inc(getattr(done, name))
        return done


class Commit(beam.DoFn):
    """All DoneRecords -> nothing.  Publishes the metadata, the commit last."""

    def __init__(self, output_dir: str, max_reject_fraction: float) -> None:
        self._output_dir = output_dir
        self._max_reject_fraction = max_reject_fraction

    def process(self, done: list[DoneRecord]) -> None:
        with _failure_noted(self._output_dir):
            plan = _staged_plan(self._output_dir)
            commit(plan, done, self._output_dir, self._max_reject_fraction)


def build(
    pipeline: Any,
    plan: Plan,
    output_dir: str,
    threads: int,
    on_error: str,
    max_reject_fraction: float,
    progress: bool,
) -> None:
    """Add the conversion to a Beam pipeline."""
    writer = WriteShard(output_dir, threads, on_error, progress)
    (
        pipeline
        | "ShardNumbers" >> beam.Create(range(len(plan.shards)))
        # int
        | "Spread" >> beam.Reshuffle()
        # int
        | "WriteShard" >> beam.ParDo(writer)
        # DoneRecord
        | "GatherDone" >> beam.combiners.ToList()
        # list[DoneRecord]
        | "Commit" >> beam.ParDo(Commit(output_dir, max_reject_fraction))
    )


def _silent(rows: int) -> None:
    """Progress that nobody watches."""


def _staged_plan(output_dir: str) -> Plan:
    plan = read_plan(output_dir)
    if plan is None:
        raise OutputError(f"{output_dir}: the staged plan is gone; run the conversion again.")
    return plan


@contextlib.contextmanager
def _failure_noted(output_dir: str) -> Iterator[None]:
    """Leave the words of a failure in the directory: most runners wrap it into a traceback."""
    try:
        yield
    except OSError as error:
        failure = OutputError(f"{output_dir} cannot be written: {error.strerror or error}.")
        _note_failure(output_dir, failure)
        raise failure from error
    except TfrecorderError as error:
        _note_failure(output_dir, error)
        raise


def _note_failure(output_dir: str, error: TfrecorderError) -> None:
    note = json.dumps({"error": type(error).__name__, "message": str(error)})
    # On a full disk the note fails for the same reason as the output: the error itself goes on.
    with contextlib.suppress(OSError):
        storage.publish_bytes(output_dir, layout.FAILURE, note.encode())

"""The Beam pipeline: one linear chain, the commit as its last step.

    shard numbers ──► Reshuffle ──► WriteShards ──► gather done-records ──► Commit

Nothing else of this package imports Beam, but for the launchers.  An element is the numbers of some
shards; everything about them is in the plan that stands staged in the output directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.layout import Shard
from tfrecorder.errors import OutputError, TfrecorderError, limits_explained
from tfrecorder.plan.exchange import complete, exchange, is_in_place
from tfrecorder.plan.plan import Plan
from tfrecorder.plan.staging import PLAN_OF_ROWS, StagedPlan, read_footer, staged_plan
from tfrecorder.threads import ThreadPool, side_by_side
from tfrecorder.writing.attempt import Attempt, settled
from tfrecorder.writing.commit import commit
from tfrecorder.writing.done import DoneRecord
from tfrecorder.writing.failure import Failure, note_failure
from tfrecorder.writing.progress import note_progress
from tfrecorder.writing.shards import Pool, default_threads, write_shard

#: Shards of an element that are written at a time where the output is elsewhere.  What begins and
#: ends one is a dozen requests that wait for each other; the other's images are loaded meanwhile.
SIDE_BY_SIDE = 2

COUNTERS = ("rows", "records", "rejects", "input_bytes", "bytes", "retries")


class WriteShards(beam.DoFn):
    """Shard numbers -> a DoneRecord each.  Writes shards, passes over those that are done."""

    def __init__(
        self,
        output_dir: str,
        digest: str,
        threads: int,
        on_error: str,
        progress: bool,
        launch: str = "",
    ) -> None:
        self._output_dir = output_dir
        self._digest = digest
        self._launch = launch
        self._threads = threads
        self._on_error = on_error
        self._progress = progress
        self._shared = Shared()
        self._counters = {name: Metrics.counter("tfrecorder", name) for name in COUNTERS}

    def setup(self) -> None:
        with _failure_noted(self._output_dir, self._launch):
            self._staged = StagedPlan(self._output_dir, self._digest)
            self._plan = self._staged.read()
            self._shards = self._plan.shards
            self._footer = read_footer(self._output_dir)
            told = (self._footer.metadata or {}).get(PLAN_OF_ROWS.encode())
            if told not in (None, self._digest.encode()):
                raise OutputError(
                    f"{self._output_dir} holds the rows of another conversion, which began at the "
                    "same time. Let one at a time write there: run it again with overwrite=True."
                )
        # Beam's `Shared` keeps one pool a process for all its DoFns.
        threads = self._threads or default_threads(self._plan)
        self._pool = self._shared.acquire(lambda: _make_pool(threads, self._plan.base))

    def process(self, numbers: tuple[int, ...]) -> Iterator[DoneRecord]:
        if len(numbers) == 1 or storage.is_local(self._output_dir):
            written: Iterable[DoneRecord] = map(self._write, numbers)
        else:
            written = side_by_side(self._write, numbers, SIDE_BY_SIDE, "tfrecorder-shard")
        for done in written:
            for name, counter in self._counters.items():
                counter.inc(getattr(done, name))
            yield done

    def _write(self, number: int) -> DoneRecord:
        shard = self._shards[number]
        path = os.path.join(self._output_dir, shard.file)

        def write(attempt: Attempt) -> DoneRecord:
            return write_shard(
                self._plan,
                number,
                self._output_dir,
                self._pool,
                self._on_error,
                self._note(shard) if self._progress else _silent,
                self._footer,
                attempt,
            )

        def write_anew() -> DoneRecord:
            return settled(self._output_dir, shard, self._digest, write)

        with _failure_noted(self._output_dir, self._launch, shard.name):
            self._staged.read()  # fails where another conversion has put its own there
            # A disk that fails in passing loses the shard that is being written: it begins anew.
            return storage.retried(write_anew, path)

    def _note(self, shard: Shard) -> Callable[[int], None]:
        return lambda rows: note_progress(self._output_dir, shard, rows)


class Commit(beam.DoFn):
    """All DoneRecords -> nothing.  Publishes the metadata, the commit last."""

    def __init__(
        self, output_dir: str, digest: str, max_reject_fraction: float, launch: str = ""
    ) -> None:
        self._output_dir = output_dir
        self._digest = digest
        self._launch = launch
        self._max_reject_fraction = max_reject_fraction

    def process(self, done: list[DoneRecord]) -> None:
        with _failure_noted(self._output_dir, self._launch):
            if self._output_dir == layout.dataset_of(self._output_dir):
                self._commit(done)
            else:
                self._replace(layout.dataset_of(self._output_dir), done)

    def _commit(self, done: list[DoneRecord]) -> None:
        plan = staged_plan(self._output_dir, self._digest)
        commit(plan, done, self._output_dir, self._max_reject_fraction)

    def _replace(self, output_dir: str, done: list[DoneRecord]) -> None:
        """Commit an overwrite, unless an earlier attempt of this step has begun to, or ended."""
        if complete(output_dir):
            return
        if is_in_place(self._output_dir):
            staged_plan(output_dir, self._digest)
            return
        self._commit(done)
        exchange(output_dir)


def build(
    pipeline: Any,
    plan: Plan,
    output_dir: str,
    threads: int,
    on_error: str,
    max_reject_fraction: float,
    progress: bool,
    launch: str = "",
    workers: int = 0,
) -> None:
    """Add the conversion to a Beam pipeline.

    Args:
        threads: of each worker process that load images; 0 decides by the plan and its cores.
        launch: marks the failures that the workers of this launch leave in the directory.
        workers: among how many worker processes the shards are parted beforehand; 0 where each
            shard goes to a worker that is free.
    """
    numbers = range(len(plan.shards))
    parts = workers or len(numbers)
    elements = [tuple(numbers[first::parts]) for first in numbers[:parts]]
    writer = WriteShards(output_dir, plan.digest, threads, on_error, progress, launch)
    last = Commit(output_dir, plan.digest, max_reject_fraction, launch)
    (
        pipeline
        | "ShardNumbers" >> beam.Create(elements)
        # tuple[int, ...]
        | "Spread" >> beam.Reshuffle()
        # tuple[int, ...]
        | "WriteShards" >> beam.ParDo(writer)
        # DoneRecord
        # Without defaults: these would come by a second branch, as a side input.
        | "GatherDone" >> beam.combiners.ToList().without_defaults()
        # list[DoneRecord]
        | "Commit" >> beam.ParDo(last)
    )


def _make_pool(threads: int, base: str) -> Pool:
    folders = storage.KnownFolders(base if storage.is_local(base) else None)
    return Pool(ThreadPool(threads), threads, folders=folders)


def _silent(rows: int) -> None:
    """Progress that nobody watches."""


@contextlib.contextmanager
def _failure_noted(output_dir: str, launch: str, shard: str = "") -> Iterator[None]:
    """Leave the words of a failure in the directory: most runners wrap it into a traceback."""
    try:
        with limits_explained():
            yield
    except OSError as error:
        failure = OutputError(f"{output_dir} cannot be written: {error.strerror or error}.")
        note_failure(output_dir, Failure("OutputError", str(failure), launch, shard))
        raise failure from error
    except TfrecorderError as error:
        note_failure(output_dir, Failure(type(error).__name__, str(error), launch, shard))
        raise

"""The Beam pipeline: one linear chain, with the commit as its last step.

    shard numbers ──► Reshuffle ──► WriteShards ──► gather done-records ──► Commit

Where one worker writes all shards, nothing is made, shuffled or gathered: for a few images, these
would take as long as the conversion.

Apart from the launchers, nothing else in this package imports Beam.  An element is the numbers of
some shards; everything about them is in the plan that is staged in the output directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from tfrecorder.format.done_records import DoneRecord
from tfrecorder.writing.worker import Task, Worker, finish

#: What is counted from each shard's done-record, for the runner to add up.
COUNTED = ("rows", "records", "rejects", "input_bytes", "bytes", "retries")


class WriteShards(beam.DoFn):
    """Shard numbers -> the DoneRecords of all.  Writes shards, skips those that are done.

    Args:
        together: what an element without numbers means.
    """

    def __init__(
        self,
        task: Task,
        together: Sequence[int] = (),
    ) -> None:
        self._task = task
        self._together = together
        self._shared = Shared()
        self._counters = {name: Metrics.counter("tfrecorder", name) for name in COUNTED}

    def setup(self) -> None:
        # Beam's `Shared` keeps one pool per process for all its DoFns.
        self._worker = Worker(self._task, lambda make: self._shared.acquire(make))

    def process(self, numbers: tuple[int, ...] | bytes) -> Iterator[list[DoneRecord]]:
        written = list(self._worker.write(numbers or self._together))
        for name, counter in self._counters.items():
            counter.inc(sum(getattr(done, name) for done in written))
        yield written


class Commit(beam.DoFn):
    """All DoneRecords -> nothing.  Publishes the metadata, the commit last."""

    def __init__(
        self,
        task: Task,
        max_reject_fraction: float,
    ) -> None:
        self._task = task
        self._max_reject_fraction = max_reject_fraction

    def process(self, done: list[DoneRecord]) -> None:
        finish(self._task, done, self._max_reject_fraction)


def build(
    pipeline: beam.Pipeline,
    shards: int,
    task: Task,
    max_reject_fraction: float,
    together: bool = False,
) -> None:
    """Add a task with this many shards to a Beam pipeline.

    Args:
        max_reject_fraction: as for `commit`.
        together: all shards go to one worker, one after the other; else each to one that is free.
    """
    write = "WriteShards" >> beam.ParDo(WriteShards(task, range(shards)))
    finish_all = "Commit" >> beam.ParDo(Commit(task, float(max_reject_fraction)))
    if together:
        # An element without numbers: a `Create` of one would be two steps more.
        pipeline | "Start" >> beam.Impulse() | write | finish_all
        return
    (
        pipeline
        | "ShardNumbers" >> beam.Create([(number,) for number in range(shards)])
        # tuple[int, ...]
        | "Spread" >> beam.Reshuffle()
        # tuple[int, ...]
        | write
        # list[DoneRecord]
        | "EachDone" >> beam.FlatMap(iter)
        # DoneRecord
        # Without defaults: they would come through a second branch, as a side input.
        | "GatherDone" >> beam.combiners.ToList().without_defaults()
        # list[DoneRecord]
        | finish_all
    )

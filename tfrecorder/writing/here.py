"""The executor without Beam: shards are written in this process."""

from __future__ import annotations

from collections.abc import Sequence

from tfrecorder.format.layout import Shard
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.output.progress import progress_bar
from tfrecorder.plan.plan import Plan
from tfrecorder.writing.worker import Task, Worker


def write_here(
    folder: str,
    plan: Plan,
    shards: Sequence[Shard],
    options: ConvertOptions,
    notes: bool = False,
    shown: bool = False,
) -> list[DoneRecord]:
    """Write some shards of a staged plan; return what is noted of each.

    Args:
        folder: where the plan is staged.
        notes: leave notes of the rows that are through, for `status`.
        shown: show a bar, which needs these notes.

    Raises:
        OutputError: the plan there is now a different one; or the folder cannot be written.
        RejectedError: an image cannot be used, with on_error="raise".
        UnreachableError: a disk or a service was away for more than two minutes.
    """
    if not shards:
        return []
    task = Task(folder, plan.digest, options.num_threads or 0, options.on_error, progress=notes)
    numbers = {shard: number for number, shard in enumerate(plan.shards)}
    with progress_bar(folder, plan, shown, shards):
        return list(Worker(task).write([numbers[shard] for shard in shards]))

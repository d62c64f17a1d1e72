"""Running a staged plan without Beam, in this process or by others: the same worker and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfrecorder.format.layout import Shard
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.progress import progress_bar
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.done_records import DoneRecord
from tfrecorder.runners import local_workers
from tfrecorder.writing.shards import default_threads
from tfrecorder.writing.worker import Task, Worker, finish


def run(
    plan: Plan, output_dir: str, options: ConvertOptions, notes: bool, workers: int = 1
) -> None:
    """Run a staged plan to its commit.

    Args:
        output_dir: the dataset directory, where the plan is staged.
        notes: leave notes of the rows that are through.
        workers: processes that write the shards; 1 for this one.

    Raises:
        TfrecorderError: as `write` raises them, and the commit.
    """
    task = Task.of(plan, output_dir, threads=options.num_threads or 0, progress=notes)
    if workers == 1:
        done = write(plan, output_dir, plan.shards, options, notes)
    else:
        threads = task.threads or default_threads(plan, workers)
        of_each = replace(task, threads=threads)
        done = local_workers.write(of_each, len(plan.shards), workers)
    finish(task, done, options.max_reject_fraction)


def write(
    plan: Plan,
    output_dir: str,
    shards: Sequence[Shard],
    options: ConvertOptions,
    notes: bool = False,
    shown: bool = False,
) -> list[DoneRecord]:
    """Write those of some shards that are not done; return what is noted of all of them.

    Args:
        output_dir: as for `run`.
        notes: as for `run`; a bar and `status` show them.
        shown: show a bar.

    Raises:
        OutputError: the plan there is now a different one; or the directory cannot be written.
        UnreachableError: a disk or a service was away for more than two minutes.
    """
    if not shards:
        return []
    numbers = {shard: number for number, shard in enumerate(plan.shards)}
    with progress_bar(output_dir, plan, shown, shards):
        task = Task.of(plan, output_dir, threads=options.num_threads or 0, progress=notes)
        return list(Worker(task).write([numbers[shard] for shard in shards]))

"""Running a staged plan in this process, without Beam: the same worker, and the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

from tfrecorder.format.layout import Shard
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.progress import progress_bar
from tfrecorder.plan.plan import Plan
from tfrecorder.reading.done_records import DoneRecord
from tfrecorder.writing.worker import Task, Worker, finish


def run(plan: Plan, output_dir: str, options: ConvertOptions, notes: bool) -> None:
    """Run a staged plan to its commit.

    Args:
        output_dir: the dataset directory, where the plan is staged.
        notes: leave notes of the rows that are through.

    Raises:
        TfrecorderError: as `write` raises them, and the commit.
    """
    done = write(plan, output_dir, plan.shards, options, notes)
    finish(_task(plan, output_dir, options), done, options.max_reject_fraction)


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
        worker = Worker(_task(plan, output_dir, options, notes))
        return list(worker.write([numbers[shard] for shard in shards]))


def _task(plan: Plan, output_dir: str, options: ConvertOptions, notes: bool = False) -> Task:
    threads = options.num_threads or 0
    return Task(output_dir, plan.digest, plan.commit, threads, progress=notes)

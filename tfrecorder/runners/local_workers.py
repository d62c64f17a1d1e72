"""Running a staged plan without Beam, on this machine: by this process, or by several workers.

The worker and the bytes are the same as with Beam.  A process gets the numbers of its shards from
its launcher, and sends back what is noted of them, or the error.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from tfrecorder import storage
from tfrecorder.core.threads import cores, map_at_once
from tfrecorder.errors import RunnerError
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.status import progress_bar
from tfrecorder.schema.fields import validators_of
from tfrecorder.writing.shards import default_threads
from tfrecorder.writing.worker import Task, Worker, finish

#: The cores that the threads of one process keep busy: with more, they wait for Python's lock.
CORES = 5

#: Rows from which processes pay.  They start in about a second, which is what the lock holds up
#: so many rows of one process.
ROWS = 50_000


def run(
    plan: Plan,
    task: Task,
    max_reject_fraction: float,
    workers: int,
) -> None:
    """Run a staged plan to its commit.

    Args:
        workers: processes that write the shards; 1 for this one.

    Raises:
        TfrecorderError: as `write` raises them, and the commit.
    """
    numbers = range(len(plan.layout.shards))
    if workers > 1:
        of_each = replace(task, threads=task.threads or default_threads(plan, workers))
        done = _write_by(of_each, numbers, workers)
    else:
        done = list(Worker(task).write(numbers)) if numbers else []
    finish(task, done, max_reject_fraction)


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
        output_dir: the dataset directory, where the plan is staged.
        notes: leave notes of the rows that are through; a bar and `status` show them.
        shown: show a bar.

    Raises:
        OutputError: the plan there is now a different one; or the directory cannot be written.
        UnreachableError: a disk or a service was away for more than two minutes.
    """
    if not shards:
        return []
    numbers = {shard: number for number, shard in enumerate(plan.layout.shards)}
    with progress_bar(output_dir, plan, shown, shards):
        task = Task.of(plan, output_dir, threads=options.num_threads or 0, progress=notes)
        return list(Worker(task).write([numbers[shard] for shard in shards]))


def worker_count(cores: int, rows: int) -> int:
    """How many processes write so many rows on so many cores.

    >>> worker_count(2, 10**6), worker_count(8, 10**6), worker_count(64, 10**6), worker_count(64, 9)
    (1, 2, 13, 1)
    """
    return max(1, round(cores / CORES)) if rows >= ROWS else 1


def workers_of(
    plan: Plan,
    output_dir: str,
    options: ConvertOptions,
) -> int:
    """How many processes write a plan here: as asked for, else by the cores and the rows.

    One where files are elsewhere, whose stores limit it sooner than the lock does; where records
    are only copied; where files are checked by a function that only this process has; and where the
    threads, Beam's options or a limit of memory were chosen for one.
    """
    asked = options.num_workers
    checks = validators_of(plan.fields).values()
    if any(check.__module__ == "__main__" or not _travels(check) for check in checks):
        return 1
    if asked is None:
        is_here = storage.is_local(output_dir) and not plan.rows.remote and bool(sys.executable)
        loads = plan.reads_a_table
        chosen = options.num_threads or options.runner_options
        asked = worker_count(cores(), plan.rows.count) if is_here and loads and not chosen else 1
    return max(1, min(asked, len(plan.layout.shards)))


def _travels(check: object) -> bool:
    """True for a function that another process can import."""
    try:
        return bool(pickle.dumps(check))
    except (AttributeError, TypeError, pickle.PicklingError):
        return False


def _write_by(
    task: Task,
    numbers: Sequence[int],
    workers: int,
) -> list[DoneRecord]:
    """Write the shards of the staged plan that are not done, by this many processes.

    Raises:
        TfrecorderError: as a worker raises it.
        RunnerError: a worker ended before it was done.
    """
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(_started(task, numbers[first::workers])) for first in range(workers)
        ]
        return [*chain.from_iterable(map_at_once(_answer, started, workers))]


@contextlib.contextmanager
def _started(task: Task, numbers: Sequence[int]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works on these shards; ended with the block."""
    # Its arguments are where this process finds its modules.
    program = f"import sys; sys.path[:] = sys.argv[1:]; import {main.__module__} as workers"
    with subprocess.Popen(
        [sys.executable, "-c", f"{program}; workers.{main.__name__}()", *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C, which a terminal sends to all, ends it through us
    ) as process:
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it ended; there will be no answer
                os.write(process.stdin.fileno(), pickle.dumps((task, numbers)))
            yield process
        finally:
            process.kill()


def _answer(process: subprocess.Popen[bytes]) -> list[DoneRecord]:
    assert process.stdout is not None
    answer: list[DoneRecord] | Exception
    try:
        answer = pickle.load(process.stdout)
    except (EOFError, pickle.UnpicklingError):
        raise RunnerError(
            f"a worker process ended with {process.wait()} before its shards were done. Those that "
            "are done are kept: run the same conversion again to continue."
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def main() -> None:
    """What a worker process does: it ends with its launcher, which keeps our input open."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what else is printed stands apart
    try:
        task, numbers = pickle.load(sys.stdin.buffer)
    except EOFError:
        os._exit(1)  # the launcher was interrupted before it said what to do
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    answer: list[DoneRecord] | Exception
    try:
        answer = list(Worker(task).write(numbers))
    except Exception as error:
        answer = error
    pickle.dump(answer, answers)
    answers.flush()
    os._exit(0)  # threads that still decode are not waited for


def _end_with_launcher() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)

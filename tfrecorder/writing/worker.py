"""What a worker does with shard numbers, however it gets them; and the last step.

Everything about a shard is in the plan staged in the output directory.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfrecorder import storage
from tfrecorder.core.option import Face, speaker, spoken_by
from tfrecorder.core.threads import ThreadPool, map_ahead, taken
from tfrecorder.display.messages import warn
from tfrecorder.errors import OutputError, TfrecorderError, limits_explained
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.plan import Plan
from tfrecorder.output.directory import is_in_place, names_in
from tfrecorder.output.staging import (
    StagedPlan,
    committed_done,
    read_footer,
    required_plan,
    rows_plan,
)
from tfrecorder.output.state import DatasetState
from tfrecorder.output.status import Failure, ShardProgress, note_failure
from tfrecorder.schema.fields import validators_of, with_validators
from tfrecorder.writing.attempt import settled
from tfrecorder.writing.changing import done_before
from tfrecorder.writing.commit import commit, complete
from tfrecorder.writing.shards import SIDE_BY_SIDE, Pool, ShardWriter, default_threads

#: Seconds to wait, after Ctrl-C, for shards under way: as long as most requests take.
PATIENCE = 2

#: Seconds after which a worker looks again whether the plan on a bucket is still its own.
LOOK_SECONDS = 2


@dataclass(frozen=True)
class Task:
    """What all workers of one launch are given.

    Attributes:
        output_dir: the dataset directory, where the plan is staged.
        digest: that plan's digest.
        commit: the number of the commit that it becomes.
        threads: how many load images in each process; 0 decides by the plan and the cores.
        progress: leave notes of the rows that are through.
        launch: marks the failures that the workers of this launch leave in the directory.
        validators: as `validators_of` gives them.
        access: how Google Cloud is accessed, wherever the worker runs.
        face: to whose users the messages of failures speak.
    """

    output_dir: str
    digest: str
    commit: int = 0
    threads: int = 0
    progress: bool = False
    launch: str = ""
    validators: Mapping[str, Callable[[bytes], object]] = field(default_factory=dict)
    access: storage.Access = field(default_factory=storage.access)
    face: Face = field(default_factory=speaker)

    @classmethod
    def of(
        cls,
        plan: Plan,
        output_dir: str,
        threads: int = 0,
        progress: bool = False,
        launch: str = "",
    ) -> Task:
        """The task of a plan that is staged in a directory."""
        return cls(
            output_dir=output_dir,
            digest=plan.digest,
            commit=plan.commit,
            threads=threads,
            progress=progress,
            launch=launch,
            validators=validators_of(plan.fields),
        )


class Worker:
    """Writes shards of the staged plan, in one process.

    Args:
        shared: gives the process's pool of threads, and makes it if there is none yet.

    Raises:
        OutputError: the plan there is now a different one, or cannot be read.
    """

    def __init__(
        self,
        task: Task,
        shared: Callable[[Callable[[], Pool]], Pool] = lambda make: make(),
    ) -> None:
        self._task = task
        with storage.accessing(task.access), _failure_noted(task):
            self._staged = StagedPlan(task.output_dir, task.digest)
            plan = self._staged.read()
            self._looked = time.monotonic()
            self._plan = replace(plan, fields=with_validators(plan.fields, task.validators))
            self._shards = self._plan.layout.shards
            self._footer = read_footer(task.output_dir)
            self._before = done_before(task.output_dir, self._plan)
            if rows_plan(self._footer) != task.digest:
                raise OutputError(
                    f"{task.output_dir} holds the rows of another conversion, which started at the "
                    "same time. Let only one write there at a time: run this one again."
                )
        self._new: set[str] = set()
        threads = task.threads or default_threads(self._plan)
        base = self._plan.rows.base if storage.is_local(self._plan.rows.base) else None
        self._pool = shared(lambda: Pool(ThreadPool(threads), threads, storage.FoldersRead(base)))

    def write(self, numbers: Sequence[int]) -> Iterator[DoneRecord]:
        """Write the shards of these numbers that are not done; return what is noted of all."""
        if len(numbers) == 1 or storage.is_local(self._task.output_dir):
            yield from map(self._write, numbers)
            return
        output_dir = self._task.output_dir
        with storage.accessing(self._task.access), storage.failing_as(OutputError, output_dir):
            done = names_in(output_dir, layout.DONE)
        self._new = {self._shards[number].done for number in numbers} - done
        with ThreadPool(SIDE_BY_SIDE, "tfrecorder-shard") as pool:
            # One more than run: a shard may be done before its turn.
            yield from map_ahead(pool, self._write, numbers, SIDE_BY_SIDE + 1, PATIENCE)

    def _write(self, number: int) -> DoneRecord:
        task = self._task
        shard = self._shards[number]
        out = task.output_dir
        progress = ShardProgress(out, shard, task.progress)
        writer = ShardWriter(
            self._plan,
            number,
            self._pool,
            progress=progress,
            footer=self._footer,
            before=self._before,
        )

        def settle() -> DoneRecord:
            return settled(out, shard, task.digest, writer.write, shard.done in self._new)

        with (
            taken(self._pool.places),
            storage.accessing(task.access),
            _failure_noted(task, shard.name),
        ):
            try:
                # Another conversion may have put its own plan there; on a bucket that is asked now
                # and then: what a late worker writes until then replaces nothing of the other one
                # (`attempt.py`).
                now = time.monotonic()
                if storage.is_local(out) or now - self._looked > LOOK_SECONDS:
                    self._staged.read()
                    self._looked = now
                # A disk that fails briefly loses the shard that is being written: start it again.
                done = storage.retried(settle, os.path.join(out, shard.file))
            except OutputError:
                # Unless another process has committed the plan meanwhile.
                committed = committed_done(out, task.digest)
                if shard not in committed:
                    raise
                return committed[shard]
            if progress.is_noted:
                storage.remove_files(out, [shard.progress])
            return done


def finish(
    task: Task,
    done: Iterable[DoneRecord],
    max_reject_fraction: float,
) -> None:
    """Commit the plan.  If called again, it continues from where it stopped.

    What cannot be done after the commit is a warning.

    Raises:
        OutputError: rows are missing, or there is another plan.
        RejectedError: more than `max_reject_fraction` of the rows were rejected.
    """
    out = task.output_dir
    with storage.accessing(task.access), _failure_noted(task), storage.failing_as(OutputError, out):
        state = DatasetState.read(out)
        if is_in_place(out, state.newest, task.commit, task.digest):
            left = complete(state).left
        else:
            plan = required_plan(out, state.pending, task.digest)
            left = commit(state, plan, done, max_reject_fraction)
    warn(left)


@contextlib.contextmanager
def _failure_noted(task: Task, shard: str = "") -> Iterator[None]:
    """Leave the message of a failure in the directory: most runners wrap it in a traceback."""
    out = task.output_dir
    try:
        with spoken_by(task.face), storage.failing_writes(out), limits_explained():
            yield
    except TfrecorderError as error:
        note_failure(out, Failure(type(error).__name__, str(error), task.launch, shard))
        raise

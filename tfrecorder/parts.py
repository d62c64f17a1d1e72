"""A staged conversion on many machines without Beam: each works on a part, then one commits.

    stage ──► work, on as many machines as there are parts ──► commit

Parts may be repeated or killed, and may overlap: a shard that is done is skipped, and every writer
of a shard writes the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.conversion import job
from tfrecorder.conversion.convert import Conversion
from tfrecorder.core.option import is_whole, spelled
from tfrecorder.core.text import read_json
from tfrecorder.display.bars import is_shown
from tfrecorder.display.messages import command, warn
from tfrecorder.display.tables import Report, counted, counts_in_words, readable_bytes
from tfrecorder.errors import DatasetError, OutputError, UnreachableError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord, add_up
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan
from tfrecorder.options.changes import NOT_STAGED
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import Path, Source, StageKeywords, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.output.directory import claim
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.staging import read_all_done
from tfrecorder.output.state import DatasetState, given_directory
from tfrecorder.output.status import ConversionStatus
from tfrecorder.runners import local_workers
from tfrecorder.writing.commit import complete
from tfrecorder.writing.worker import Task, finish

#: How many missing parts, or shards, a message names.
NAMED = 8


@takes(StageKeywords, ConvertOptions)
def stage(
    source: Source,
    output_dir: Path,
    **options: Unpack[StageKeywords],
) -> ConversionStatus:
    """Check a table and plan its shards, for any number of machines to write without Beam.

    Then call `work` on each machine, and `commit` once all are done.  The dataset has the same
    bytes as one written by `tfrecorder.convert`.  To continue a staged conversion that was not
    finished, repeat the call.  `tfrecorder.append` and `tfrecorder.compact` stage with
    `stage_only=True`.

    Args:
        source: as for `tfrecorder.convert`.
        output_dir: as for `tfrecorder.convert`; all machines must see it under this path, and the
            images under theirs.
        **options: those of `tfrecorder.convert` that decide what is written.
            num_threads and progress are options of `work`, max_reject_fraction of `commit`.

    Returns:
        What is planned and how much of it is done, as `tfrecorder.status` returns it.

    Raises:
        TfrecorderError: what `tfrecorder.convert` raises before its launch.

    Example:
        >>> tfrecorder.parts.stage("photos.csv", "out", num_shards=64)  # doctest: +SKIP
        >>> tfrecorder.parts.work("out", part=(1, 2))                    # doctest: +SKIP
        >>> tfrecorder.parts.work("out", part=(2, 2))                    # doctest: +SKIP
        >>> tfrecorder.parts.commit("out")                               # doctest: +SKIP
    """
    chosen = ConvertOptions.of(options, NOT_STAGED)
    return job.stage_only(Conversion(source, output_dir, chosen))


@dataclass(frozen=True, repr=False)
class PartResult(Report):
    """What one call of `work` did.

    Attributes:
        output_dir: the dataset directory.
        part: the number of the part, from 1, and the number of parts.
        shards: how many the part has.
        shards_before: how many of these were done before the call.
        rows, records, bytes: of the shards of the part.
        rejects: rejected rows of the part by "stage/code".
        seconds: how long the call took.
    """

    output_dir: str
    part: tuple[int, int]
    shards: int
    shards_before: int
    rows: int
    records: int
    bytes: int
    rejects: dict[str, int]
    seconds: float

    def _headline(self) -> str:
        number, parts = self.part
        written = f"{counted(self.records, 'record')} in {counted(self.shards, 'shard')}"
        return (
            f"{self.output_dir}, part {number} of {parts}: {written}, "
            f"{readable_bytes(self.bytes)} ({self.seconds:.1f} s)"
        )

    def _notes(self) -> list[str]:
        notes = []
        if self.shards_before:
            notes.append(f"shards that were done before: {self.shards_before:,}")
        if self.rejects:
            notes.append(f"rejects: {counts_in_words(self.rejects)}")
        return notes


def work(
    directory: Path,
    *,
    part: tuple[int, int] = (1, 1),
    num_threads: int | None = None,
    progress: bool | None = None,
) -> PartResult:
    """Write one part of the shards that `tfrecorder.parts.stage` planned.

    Any number of calls may run at the same time, on one machine or on many that all see the
    output directory and the images.  If a call is killed, repeat it; shards that are done are
    skipped.

    Args:
        directory: where `stage` planned them.
        part: the number of this part, from 1, and the number of parts: (3, 16).
        num_threads: threads that load images; by default one per core, or 16 if images come from
            a bucket.
        progress: show a bar; by default only in a terminal or a notebook.

    Returns:
        Counts of the part.

    Raises:
        OptionError: the value of an argument is wrong.
        DatasetError: nothing is staged there.
        UnreachableError: a disk or a service failed for more than two minutes.
        OutputError: the directory cannot be written, or was staged again in the meantime.

    Example:
        >>> tfrecorder.parts.work("out", part=(3, 16))  # doctest: +SKIP
    """
    began = time.perf_counter()
    where = storage.absolute(given_directory("directory", directory))
    require(_check_part, part=part)
    number, parts = map(int, part)
    options = ConvertOptions(num_threads=num_threads, progress=progress)
    with _kept(where, f"part {number} of {parts}"):
        state = DatasetState.read(where)
        plan = _staged(state)
        mine = plan.layout.shards[number - 1 :: parts]
        before = _done(state, plan, mine)
        pending = [shard for shard in mine if shard not in before]
        if pending:
            storage.overwrite(where, layout.PARTS, json.dumps(parts))
        shown = bool(pending) and is_shown(options.progress)
        written = local_workers.write(plan, where, pending, options, notes=True, shown=shown)
        done = [*before.values(), *written]
    totals = add_up(done)
    return PartResult(
        output_dir=os.fspath(directory),
        part=(number, parts),
        shards=len(mine),
        shards_before=len(before),
        rows=totals.rows,
        records=totals.records,
        bytes=totals.bytes,
        rejects=totals.reasons,
        seconds=time.perf_counter() - began,
    )


def commit(directory: Path, *, max_reject_fraction: float = 0.1) -> ConversionResult:
    """Make the shards that `tfrecorder.parts.work` wrote one dataset, once all are done.

    If it is finished already, return its result.

    Args:
        directory: where `stage` planned them.
        max_reject_fraction: fail if more than this share of the rows was rejected; 0 to 1.

    Returns:
        What `tfrecorder.convert` returns.

    Raises:
        OptionError: the value of an argument is wrong.
        DatasetError: nothing is staged there.
        OutputError: shards are missing (it says of which parts), or the directory cannot be
            written.
        RejectedError: more images than allowed were rejected.

    Example:
        >>> print(tfrecorder.parts.commit("out"))  # doctest: +SKIP
    """
    where = storage.absolute(given_directory("directory", directory))
    options = ConvertOptions(max_reject_fraction=max_reject_fraction)
    with storage.failing_as(DatasetError, where):
        staged = DatasetState.read(where)
    pending = staged.pending
    if staged.is_empty:
        raise _nothing_staged(where)
    number = None  # all commits
    if pending is not None:
        with _kept(where, "the commit"), claim(where, staged) as claimed:
            number = pending.commit
            state = complete(claimed)
            if not state.was_left:
                if state.pending is None:  # it was abandoned
                    raise _nothing_staged(where)
                done = _all_done(state, pending)
                finish(Task(where, pending.digest, number), done, options.max_reject_fraction)
            warn(state.left)
    was_finished = pending is None or staged.is_committed
    result = read_result(where, number)
    return dataclasses.replace(result, output_dir=os.fspath(directory), was_finished=was_finished)


def _check_part(part: Any) -> str | None:
    is_pair = isinstance(part, (tuple, list)) and len(part) == 2
    if is_pair and all(map(is_whole, part)) and 1 <= part[0] <= part[1]:
        return None
    example = spelled("part", (3, 16))
    return (
        f"give the number of the part, counted from 1, and how many there are, such as {example}."
    )


def _staged(state: DatasetState) -> Plan:
    """The plan that is staged; else that of the newest commit."""
    if state.pending is not None:
        return state.pending
    if state.newest is None:
        raise _nothing_staged(state.where)
    return state.newest.plan


def _nothing_staged(where: str) -> DatasetError:
    return DatasetError(
        f"{where}: no conversion is staged here; begin with `{command('stage', 'SOURCE', where)}`."
    )


def _done(
    state: DatasetState,
    plan: Plan,
    shards: Collection[Shard],
) -> dict[Shard, DoneRecord]:
    """The records of those shards that are done."""
    if state.newest is not None and state.newest.digest == plan.digest:
        committed = state.newest.done
        return {shard: committed[shard] for shard in shards}
    with storage.failing_as(OutputError, state.where):
        records = read_all_done(state.where, shards, plan.digest)
    return {shard: record for shard, record in records.items() if record is not None}


def _all_done(state: DatasetState, plan: Plan) -> list[DoneRecord]:
    where = state.where
    done = _done(state, plan, plan.layout.shards)
    missing = [at for at, shard in enumerate(plan.layout.shards) if shard not in done]
    if not missing:
        return list(done.values())
    parts = _parts(where)
    named = [plan.layout.shards[at].name for at in missing]
    what = "shards"
    if parts > 1:
        numbers = sorted({at % parts + 1 for at in missing})
        named = [f"{number}/{parts}" for number in numbers]
        what = "parts"
    more = f", … {len(named) - NAMED:,} more" if len(named) > NAMED else ""
    share = f"{len(missing):,} of {counted(len(plan.layout.shards), 'shard')}"
    raise OutputError(
        f"{where}: {share} are not done: {what} {', '.join(named[:NAMED])}{more}. Write them with "
        f"`{command('work', where)}`, repeated for parts that ended early, and then commit."
    )


def _parts(where: str) -> int:
    """How many parts the shards were last divided into; 1 if it was not noted."""
    with contextlib.suppress(storage.UnreadableError, ValueError):
        parts = read_json(storage.read_bytes(os.path.join(where, layout.PARTS)))
        return parts if is_whole(parts) and parts > 0 else 1
    return 1


@contextlib.contextmanager
def _kept(where: str, step: str) -> Iterator[None]:
    """If a step ends early, say that nothing is lost and how to continue."""
    try:
        yield
    except (UnreachableError, KeyboardInterrupt) as error:
        if (explained := job.how_to_continue(error, where, step)) is None:
            raise
        raise explained from (error if isinstance(error, UnreachableError) else None)

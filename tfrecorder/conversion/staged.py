"""Planned rows become a staged plan: one that is begun, or the one to continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion.operation import Planned
from tfrecorder.core.arrays import Ints
from tfrecorder.display.messages import command, warn
from tfrecorder.display.tables import counted
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.summary import Changes
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import (
    begun_plan,
    clear,
    described,
    find,
    is_whole,
    reopen,
    stage_next,
)
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.staging import begun_now, read_all_done, restage_rows
from tfrecorder.output.state import DatasetState, refuse_left
from tfrecorder.plan.make_plan import (
    SMALL_SHARDS,
    as_next_commit,
    refuse_taken_numbers,
    shard_counts,
)
from tfrecorder.plan.preflight import ask_rights
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import next_row_of
from tfrecorder.reading.shard_tables import columns_of
from tfrecorder.schema.fields import primary_file
from tfrecorder.schema.labels import needs_escape
from tfrecorder.sources.places import places
from tfrecorder.writing.commit import abandon


class Staged(NamedTuple):
    """A plan that is staged.

    Attributes:
        options: with which it is written.
        before: those of its shards that were done before.
        state: what the directory holds since.
    """

    plan: Plan
    options: ConvertOptions
    before: Sequence[Shard]
    state: DatasetState


class Found(NamedTuple):
    """What a directory has of an operation already.

    Attributes:
        staged: the plan of it that was staged; or the commit that has all its rows.
        plan: what is to be written, or was.
        pending: those of its shards that are to be written.
    """

    staged: Plan | Commit | None
    plan: Plan
    pending: Sequence[Shard]


def find_or_begin(planned: Planned, state: DatasetState) -> Found:
    """What there is to do: go on, or begin; changes nothing.

    Raises:
        OutputError: the directory holds something else, or cannot be written.
    """
    staged = find(state, planned.plan, planned.options)
    if isinstance(staged, Commit):
        return Found(staged, planned.plan, ())
    if staged is None:
        plan = begun(planned, state)
        return Found(None, plan, plan.layout.shards)
    return Found(staged, staged, pending_shards(state.where, staged, planned.options))


def checked_next_commit(
    plan: Plan,
    planned: pa.Table,
    newest: Commit | None,
    where: str,
    retried: Ints | None,
) -> Plan:
    """A plan with its numbers of shards as the commit that follows the newest one.

    Args:
        planned, retried: its rows, as in `Planned`.

    Raises:
        OutputError: a split would have more shards than TFDS can read; or the store cannot replace
            a file only if it is the one that was read; or a row has the number of another.
    """
    manifest = None if newest is None else newest.manifest
    next_row = next_row_of(where, newest)
    refuse_taken_numbers(where, planned, 0 if is_whole(plan, where) else next_row, retried)
    plan = begun_now(as_next_commit(plan, manifest, next_row, adds=plan.is_added))
    for split, count in plan.layout.split_shards.items():
        total = plan.layout.starts.get(split, 0) + count
        if total > layout.MOST_SHARDS:
            merge = f"`{command('compact', where)}` merges small shards"
            remedy = merge if plan.layout.starts else "give a larger shard size, or fewer shards"
            raise OutputError(
                f"{where} would have {total:,} shards in {split}, and TFDS reads at most "
                f"{layout.MOST_SHARDS:,}; {remedy}. Nothing was written."
            )
    if (plan.adds or plan.changes_records) and not storage.replaces_conditionally(where):
        raise OutputError(
            f"{where} cannot be added to: {storage.scheme(where)}:// cannot replace a file only if "
            "nobody else did meanwhile, so two writers could lose each other's rows. Convert all "
            "rows into a new directory, or keep the dataset on a disk, gs://, s3:// or az://."
        )
    return plan


def begun(planned: Planned, state: DatasetState) -> Plan:
    """The plan of rows as the commit that follows the newest one, with what is to be said of it.

    Raises:
        OutputError: as `checked_next_commit` raises it.
    """
    plan = planned.plan
    options = planned.options
    summary = plan.summary
    given_up = state.pending
    newest = state.newest
    if newest is not None and is_whole(plan, state.where):
        replaces = f"replaces {described(newest)}"
        if given_up is not None and not state.is_committed:
            of = counted(given_up.rows.count, "row")
            replaces += f"; abandons an unfinished {given_up.kind.value} of {of}"
        changes = dataclasses.replace(summary.changes or Changes(), replaces=replaces)
        summary = dataclasses.replace(summary, changes=changes)
    new = {split: count for split, count in plan.layout.new_rows.items() if count}
    # The user may have given the numbers of shards.
    is_open = None in map(options.shards_of, plan.layout.split_rows)
    sizes = planned.sizes if is_open else ()
    # There will be many more batches.
    small_shards = 1 if plan.kind is PlanKind.BATCH else SMALL_SHARDS
    counts = shard_counts(new, sizes, options, small_shards)
    counts = dict.fromkeys(plan.layout.split_rows, 0) | counts
    plan = dataclasses.replace(plan.laid_out(split_shards=counts), summary=summary)
    return checked_next_commit(plan, planned.rows, newest, state.where, planned.retried)


def stage(planned: Planned, state: DatasetState) -> Staged | ConversionResult:
    """Stage the plan of rows, or find the staged one that they continue.

    Args:
        state: of the directory, which is claimed, and where nothing is left of an earlier call.

    Returns:
        What is staged; or the result of the dataset that has the rows already.

    Raises:
        OutputError: the directory holds something else, or cannot be written.
        ImagesUnreachableError: most images are not there.
    """
    where = state.where
    staged, plan, pending = find_or_begin(planned, state)
    if isinstance(staged, Commit):
        from tfrecorder.reading.open import open_own

        open_own(where, staged)  # whose shards must be there
        _warn_of_other_images(planned, begun_plan(staged), where)
        warn(state.left)
        result = read_result(where)
        return dataclasses.replace(result, was_finished=True, **planned.plan.summary.said)
    refuse_left(state.left)
    ask_rights(where)
    if pending:
        # Before anything is removed: never lose a finished dataset for one that cannot be made.
        planned.check_images()
    if staged is None and state.pending is not None and state.newest is not None:
        state = abandon(state)
        refuse_left(state.left)
        plan = checked_next_commit(plan, planned.rows, state.newest, where, planned.retried)
    elif staged is None:
        refuse_left(clear(state, keep_spool=bool(plan.rows.spooled)))
    if plan.rows.spooled and pending:
        planned.spool(where, planned.rows.take(_numbers_of(plan, pending)))
    if staged is None:
        if planned.marks is not None:
            plan = planned.marks.publish(where, plan)
        state = stage_next(plan, planned.rows, state)
    else:
        plan = reopen(where, plan, planned.plan.rows.base, pending)
        if pending:
            restage_rows(plan, planned.rows, where)
    _warn_of_escapes(plan)
    left = {*pending}
    before = [shard for shard in plan.layout.shards if shard not in left]
    return Staged(plan, planned.options, before, state)


def _numbers_of(plan: Plan, shards: Iterable[Shard]) -> Ints:
    """The planned rows of some shards, by their place in the plan."""
    starts = {}
    start = 0
    for split, rows in plan.layout.split_rows.items():
        starts[split] = start
        start += rows
    parts = ((starts[shard.split], *plan.layout.part_of(shard)) for shard in shards)
    numbers = [np.arange(start + first, start + stop) for start, first, stop in parts]
    return np.concatenate([np.arange(0), *numbers])


def _warn_of_other_images(
    planned: Planned,
    finished: Plan,
    where: str,
) -> None:
    """Warn if a finished dataset has the images of the same names in another folder."""
    plan = planned.plan
    image = primary_file(plan.fields)
    if image is None or plan.kind is PlanKind.COMPACTION or finished.rows.base == plan.rows.base:
        return
    columns = columns_of(planned.rows)
    uris = columns[image.uri_key]
    files = columns.get(image.spool_key)
    if not places(uris, plan.rows.base, files).equals(places(uris, finished.rows.base, files)):
        warn(
            f"{where} is a finished dataset of the images in {finished.rows.base}, and nothing of "
            f"{plan.rows.base} was written, because all names and values are the same. If the "
            "folder was only moved, all is well; otherwise `append` adds these images."
        )


def pending_shards(
    folder: str,
    plan: Plan,
    options: ConvertOptions,
) -> list[Shard]:
    """The shards to write: those not done, and those with rejects to try again.

    Rejects are tried again if they could not be read.  All rejects are tried again if the
    conversion would otherwise only stop for them again.
    """
    done = read_all_done(folder, plan.layout.shards, plan.digest)
    rejects = sum(record.rejects for record in done.values() if record)
    every = rejects > options.max_reject_fraction * plan.rows.count
    return [
        shard
        for shard, record in done.items()
        if record is None or record.unread or (every and record.rejects)
    ]


def _warn_of_escapes(plan: Plan) -> None:
    names = [name for names in plan.vocabularies.values() for name in names or ()]
    odd = [name for name in names if needs_escape(name)]
    if odd:
        warn(
            f"{counted(len(odd), 'class name')} would not survive in the labels file, because "
            f"TFDS strips whitespace: {odd[:3]}. They are escaped there; the records hold them "
            "unchanged."
        )

"""Planned rows become a staged plan: a new one, or that of the conversion to continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion.removal_marks import Marks
from tfrecorder.display.commands import command
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.summary import Changes
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import (
    Standing,
    begun_plan,
    clear,
    described,
    find,
    is_whole,
    reopen,
    stage_next,
    standing_of,
)
from tfrecorder.output.done_records import read_all_done
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.staging import begun_now, restage_rows
from tfrecorder.plan.next_commit import as_next_commit
from tfrecorder.plan.row_numbers import refuse_taken_numbers
from tfrecorder.plan.shard_counts import shard_counts
from tfrecorder.reading.commits import Commit, newest_commit
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.row_numbers import next_row_of
from tfrecorder.reading.shard_tables import columns_of
from tfrecorder.schema.fields import primary_file
from tfrecorder.schema.labels import needs_escape
from tfrecorder.sources.places import places
from tfrecorder.validation.report import ValidationReport
from tfrecorder.writing.commit import abandon, complete


@dataclass(frozen=True, kw_only=True)
class PlannedRows:
    """Rows planned for a folder.

    Attributes:
        plan: its numbers of shards are not decided yet.
        planned: the rows, in the order of the shards.
        options: with which they are written.
        sizes: sizes in bytes of some of the images, from which the number of shards follows.
        check: raises an error if the images are not there; called before anything is changed.
        spool: takes a folder and rows; puts those of their images there that came as bytes.
        marks: of what was removed, if others hold from its commit on.
        report: on their source; None if none was checked.
        retried: numbers of rejects of the dataset that are among the rows, and keep theirs.
    """

    plan: Plan
    planned: pa.Table
    options: ConvertOptions
    sizes: Callable[[], Sequence[int]]
    check: Callable[[], None] = lambda: None
    spool: Callable[[str, pa.Table], None] = lambda folder, rows: None
    marks: Marks | None = None
    report: ValidationReport | None = None
    retried: np.ndarray | None = None


class Staged(NamedTuple):
    """A plan that is staged, and those of its shards that were done before."""

    plan: Plan
    options: ConvertOptions
    before: Sequence[Shard]


def checked_next_commit(
    plan: Plan,
    planned: pa.Table,
    newest: Commit | None,
    where: str,
    retried: np.ndarray | None = None,
) -> Plan:
    """A plan with its numbers of shards as the commit that follows the newest one.

    Args:
        planned, retried: its rows, as in `PlannedRows`.

    Raises:
        OutputError: a split would have more shards than TFDS can read; or the store cannot replace
            a file only if it is the one that was read; or a row has the number of another.
    """
    manifest = None if newest is None else newest.manifest
    next_row = next_row_of(where, newest)
    refuse_taken_numbers(where, planned, 0 if is_whole(plan, where) else next_row, retried)
    plan = begun_now(as_next_commit(plan, manifest, next_row, adds=plan.is_added))
    for split, count in plan.split_shards.items():
        total = plan.starts.get(split, 0) + count
        if total > layout.MOST_SHARDS:
            merge = f"`{command('compact', where)}` merges small shards"
            remedy = merge if plan.starts else "give a larger `shard_size`, or fewer `num_shards`"
            raise OutputError(
                f"{where} would have {total:,} shards in {split}, and TFDS reads at most "
                f"{layout.MOST_SHARDS:,}; {remedy}. Nothing was written."
            )
    if (plan.follows is not None or plan.changes) and not storage.replaces_conditionally(where):
        raise OutputError(
            f"{where} cannot be added to: {storage.scheme(where)}:// cannot replace a file only if "
            "nobody else did meanwhile, so two writers could lose each other's rows. Convert all "
            "rows into a new directory, or keep the dataset on a disk, gs://, s3:// or az://."
        )
    return plan


def begun(rows: PlannedRows, sizes: Sequence[int], standing: Standing, where: str) -> Plan:
    """The plan of rows as the commit that follows the newest one, with what is to be said of it.

    Args:
        sizes: file sizes in bytes of some of the images.

    Raises:
        OutputError: as `checked_next_commit` raises it.
    """
    summary, given_up, newest = rows.plan.summary, standing.pending, standing.newest
    if newest is not None and is_whole(rows.plan, where):
        replaces = f"replaces {described(newest)}"
        if given_up is not None and not standing.is_committed:
            of = counted(given_up.rows, "row")
            replaces += f"; abandons an unfinished {given_up.kind.value} of {of}"
        changes = dataclasses.replace(summary.changes or Changes(), replaces=replaces)
        summary = dataclasses.replace(summary, changes=changes)
    new = {split: count for split, count in rows.plan.new_rows.items() if count}
    counts = dict.fromkeys(rows.plan.split_rows, 0) | shard_counts(new, sizes, rows.options)
    plan = dataclasses.replace(rows.plan, split_shards=counts, summary=summary)
    return checked_next_commit(plan, rows.planned, newest, where, rows.retried)


def stage(rows: PlannedRows, where: str) -> Staged | ConversionResult:
    """Stage the plan of rows, or find the staged one that they continue.

    Returns:
        What is staged; or the result of the dataset that has the rows already.

    Raises:
        OutputError: the directory holds something else, or cannot be written.
        ImagesUnreachableError: most images are not there.
    """
    is_completed, standing = complete(where), standing_of(where)
    staged = find(where, standing, rows.plan, rows.options, is_completed)
    if isinstance(staged, Commit):
        open_dataset(where)  # whose shards must be there
        _warn_of_other_images(rows, begun_plan(staged), where)
        return dataclasses.replace(read_result(where), was_finished=True, **rows.plan.summary.said)
    if staged is not None:
        plan, pending = staged, pending_shards(where, staged, rows.options)
    else:
        # The user may have given the numbers of shards.
        is_open = None in map(rows.options.shards_of, rows.plan.split_rows)
        plan = begun(rows, rows.sizes() if is_open else (), standing, where)
        pending = plan.shards
    if pending:
        # Before anything is removed: never lose a finished dataset for one that cannot be made.
        rows.check()
    if staged is None:
        if standing.pending is not None and standing.newest is not None:
            abandon(where, standing)
            newest = newest_commit(where)
            plan = checked_next_commit(plan, rows.planned, newest, where, rows.retried)
        else:
            clear(where, standing, keep_spool=bool(plan.spooled))
    if plan.spooled and pending:
        rows.spool(where, rows.planned.take(_numbers_of(plan, pending)))
    if staged is None:
        if rows.marks is not None:
            plan = rows.marks.publish(where, plan)
        stage_next(plan, rows.planned, where)
    else:
        plan = reopen(where, plan, rows.plan.base, pending)
        if pending:
            restage_rows(plan, rows.planned, where)
    _warn_of_escapes(plan)
    left = {*pending}
    return Staged(plan, rows.options, [shard for shard in plan.shards if shard not in left])


def _numbers_of(plan: Plan, shards: Iterable[Shard]) -> np.ndarray:
    """The planned rows of some shards, by their place in the plan."""
    starts, start = {}, 0
    for split, rows in plan.split_rows.items():
        starts[split], start = start, start + rows
    parts = ((starts[shard.split], *plan.part_of(shard)) for shard in shards)
    numbers = [np.arange(start + first, start + stop) for start, first, stop in parts]
    return np.concatenate([np.arange(0), *numbers])


def _warn_of_other_images(rows: PlannedRows, finished: Plan, where: str) -> None:
    """Warn if a finished dataset has the images of the same names in another folder."""
    plan, image = rows.plan, primary_file(rows.plan.fields)
    if image is None or plan.kind is PlanKind.COMPACTION or finished.base == plan.base:
        return
    columns = columns_of(rows.planned)
    uris, files = columns[image.uri_key], columns.get(image.spool_key)
    if not places(uris, plan.base, files).equals(places(uris, finished.base, files)):
        warn(
            f"{where} is a finished dataset of the images in {finished.base}, and nothing of "
            f"{plan.base} was written, because all names and values are the same. If the folder "
            "was only moved, all is well; otherwise `tfrecorder.append` adds these images."
        )


def pending_shards(folder: str, plan: Plan, options: ConvertOptions) -> list[Shard]:
    """The shards to write: those not done, and those with rejects to try again.

    Rejects are tried again if they could not be read.  All rejects are tried again if the
    conversion would otherwise only stop for them again.
    """
    done = read_all_done(folder, plan.shards, plan.digest)
    rejects = sum(record.rejects for record in done.values() if record)
    every = rejects > options.max_reject_fraction * plan.rows
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

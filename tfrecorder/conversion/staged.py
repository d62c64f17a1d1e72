"""Planned rows become a staged plan: a new one, or that of the conversion to continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfrecorder.core.balanced_parts import balanced_part
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import (
    clear,
    exchange_begun,
    folder_to_write,
    is_finished,
    plan_to_continue,
    reopen,
)
from tfrecorder.output.done_records import read_all_done
from tfrecorder.output.exchange import complete
from tfrecorder.output.spool import remove_spool
from tfrecorder.output.staging import read_plan, restage_rows, stage_plan
from tfrecorder.plan.plan import Plan, PlanKind, shard_counts
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.open import open_dataset
from tfrecorder.schema.fields import primary_image
from tfrecorder.schema.labels import needs_escape
from tfrecorder.sources.places import places
from tfrecorder.validation.report import ValidationReport, count_warnings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Summary:
    """What a result says beyond what the dataset holds.

    Attributes:
        report: on the source; None if none was checked.
        passed_over, generation, rows_there: as in `ConversionResult`.
    """

    report: ValidationReport | None = None
    passed_over: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    rows_there: int = 0

    @property
    def warnings(self) -> dict[str, int]:
        """How many of each kind, by code."""
        return {} if self.report is None else count_warnings(self.report)


@dataclass(frozen=True, kw_only=True)
class PlannedRows:
    """Rows planned for a folder.

    Attributes:
        folder: the directory of a dataset, or of a generation of one.
        plan: its numbers of shards are not decided yet.
        planned: the rows, in the order of the shards.
        options: with which they are written.
        sizes: sizes in bytes of some of the images, from which the number of shards follows.
        check: raises an error if the images are not there; called before anything is changed.
        spool: takes a folder and rows; puts those of their images there that came as bytes.
    """

    folder: str
    plan: Plan
    planned: pa.Table
    options: ConvertOptions
    sizes: Callable[[], Sequence[int]]
    check: Callable[[], None] = lambda: None
    spool: Callable[[str, pa.Table], None] = lambda folder, rows: None
    summary: Summary = field(default_factory=Summary)


class Staged(NamedTuple):
    """A plan that is staged.

    Attributes:
        folder: where it is staged: a directory as in `PlannedRows`, or `next/` below it.
        pending: the shards that are still to be written.
    """

    folder: str
    plan: Plan
    options: ConvertOptions
    pending: Sequence[Shard]

    @property
    def standing(self) -> list[Shard]:
        """The shards that were done before."""
        pending = {*self.pending}
        return [shard for shard in self.plan.shards if shard not in pending]


class Standing(NamedTuple):
    """What a folder already holds of the rows planned for it.

    Attributes:
        folder: where they are, or would be, written.
        plan: the one staged there; None if the conversion starts over.
        is_finished: the dataset of these rows is committed.
    """

    folder: str
    plan: Plan | None
    is_finished: bool = False


def find(rows: PlannedRows, exchanged: bool = False) -> Standing:
    """What is there already of some rows.  Changes nothing.

    Args:
        exchanged: an exchange that had begun in the folder was completed by this call.

    Raises:
        OutputError: what is there is another conversion, which cannot be continued.
    """
    options, begun = rows.options, exchange_begun(rows.folder)
    folder = layout.next_of(rows.folder) if begun else rows.folder
    keeps = not options.retry_rejects and (begun or exchanged or not options.overwrite)
    if keeps and is_finished(folder, rows.plan):
        return Standing(folder, read_plan(folder), is_finished=True)
    if not begun:
        folder = folder_to_write(folder, options)
    return Standing(folder, plan_to_continue(folder, rows.plan, options))


def with_shards(rows: PlannedRows, sizes: Sequence[int]) -> Plan:
    """The plan of rows with its numbers of shards.

    Args:
        sizes: file sizes in bytes of some of the images.
    """
    counts = shard_counts(rows.plan.split_rows, sizes, rows.options)
    return dataclasses.replace(rows.plan, split_shards=counts)


def stage(rows: PlannedRows) -> Staged | None:
    """Stage the plan of rows, or find the staged one that they continue.

    None if the dataset is finished; if only its exchange was missing, that is done now.

    Raises:
        OutputError: the folder holds something else, or cannot be written.
        ImagesUnreachableError: most images are not there.
    """
    folder, staged, is_whole = find(rows, exchanged=complete(rows.folder))
    if is_whole:
        _check_finished(rows)
        return None
    plan = staged or rows.plan
    # A staged plan has its numbers of shards, and the user may have given them.
    undecided = staged is None and None in map(rows.options.shards_of, plan.split_rows)
    if undecided:
        plan = with_shards(rows, rows.sizes())
    pending = plan.shards if staged is None else pending_shards(folder, plan, rows.options)
    if pending:
        # Before anything is removed: never lose a finished dataset for one that cannot be made.
        rows.check()
    if staged is None:
        clear(folder, keep_spool=bool(plan.spooled))
    if plan.spooled and pending:
        rows.spool(folder, rows.planned.take(_numbers_of(plan, pending)))
    if staged is None:
        stage_plan(plan, rows.planned, folder)
    else:
        plan = reopen(folder, plan, rows.plan.base, pending)
        if pending:
            restage_rows(plan, rows.planned, folder)
    _warn_of_escapes(plan)
    return Staged(folder, plan, rows.options, pending)


def _check_finished(rows: PlannedRows) -> None:
    """Check that the shards of a finished dataset are there, and clean up after its commit."""
    open_dataset(rows.folder, STORED_FILES)
    if rows.plan.spooled:  # the process that committed may have ended before removing them
        remove_spool(rows.folder)
    _warn_of_other_images(rows)


def _numbers_of(plan: Plan, shards: Iterable[Shard]) -> np.ndarray:
    """The planned rows of some shards, by their place in the plan."""
    starts, start = {}, 0
    for split, rows in plan.split_rows.items():
        starts[split], start = start, start + rows
    numbers = [np.arange(0)]
    for shard in shards:
        first, stop = balanced_part(plan.split_rows[shard.split], shard.index, shard.count)
        numbers.append(np.arange(starts[shard.split] + first, starts[shard.split] + stop))
    return np.concatenate(numbers)


def _warn_of_other_images(rows: PlannedRows) -> None:
    """Warn if a finished dataset has the images of the same names in another folder."""
    plan, staged, image = rows.plan, read_plan(rows.folder), primary_image(rows.plan.fields)
    if (
        staged is None
        or image is None
        or plan.kind is PlanKind.COMPACTION
        or staged.base == plan.base
    ):
        return
    uris = rows.planned.column(image.uri_key).combine_chunks()
    spooled = image.spool_key in rows.planned.column_names
    files = rows.planned.column(image.spool_key).combine_chunks() if spooled else None
    if not places(uris, plan.base, files).equals(places(uris, staged.base, files)):
        warn(
            f"{rows.folder} is a finished dataset of the images in {staged.base}, and nothing of "
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
    every = options.on_error == "raise" or rejects > options.max_reject_fraction * plan.rows
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

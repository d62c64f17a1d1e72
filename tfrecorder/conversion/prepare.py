"""A staged plan: a new one, or that of the conversion to continue."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfrecorder import storage
from tfrecorder.display.bars import is_shown
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.format.layout import Shard
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import (
    clear,
    folder_to_write,
    is_finished,
    plan_to_continue,
    reopen,
)
from tfrecorder.output.done_records import read_all_done
from tfrecorder.output.exchange import complete
from tfrecorder.output.progress import progress_bar
from tfrecorder.output.spool import remove_spool, spool_images
from tfrecorder.output.staging import read_plan, restage_rows, stage_plan
from tfrecorder.plan.plan import Plan, make_plan, shard_bounds, shard_counts
from tfrecorder.plan.preflight import open_some, sizes_of_some
from tfrecorder.reading.dataset_files import local_files, stored_files
from tfrecorder.reading.open import open_dataset
from tfrecorder.runners import run
from tfrecorder.schema.fields import primary_image
from tfrecorder.schema.labels import needs_escape
from tfrecorder.sources.places import places
from tfrecorder.sources.table import Source
from tfrecorder.validation.rules import Checked

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrecorder.runners.dataflow.job import DataflowJob


class Prepared(NamedTuple):
    """A staged plan, its folder, and what was done before this call."""

    folder: str
    plan: Plan
    shards_before: int = 0
    rows_before: int = 0


def prepare(
    output_dir: str,
    table: Source,
    checked: Checked,
    options: ConvertOptions,
    before: dict[str, Any] | None = None,
) -> Prepared | None:
    """Where to write, and the plan to follow, which is staged there.

    None if the dataset is finished; if only its exchange was missing, that is done now.

    Args:
        before: as in `Plan`, if the directory is that of a new generation.
    """
    plan, planned = make_plan(checked, table.base, (), options, before)
    if plan.spooled and not storage.is_local(output_dir):
        plan = dataclasses.replace(plan, remote=True)

    def decide(undecided: bool) -> Sequence[int]:
        return sizes_of_some(checked, table.base, options, decisive=undecided)

    def look() -> None:
        open_some(checked, table.base, options)

    def spool(folder: str, plan: Plan, pending: Sequence[Shard]) -> None:
        if plan.spooled and pending:
            rows = planned.take(_rows_of(plan, pending))
            spool_images(folder, rows, checked.contents.values())

    return stage_or_continue(output_dir, plan, planned, options, decide, look, spool)


def _rows_of(plan: Plan, shards: Sequence[Shard]) -> np.ndarray:
    """The planned rows of some shards, by their place in the plan."""
    starts, start = {}, 0
    for split, rows in plan.split_rows.items():
        starts[split], start = start, start + rows
    found = [np.arange(0)]
    for one in shards:
        first, stop = shard_bounds(plan.split_rows[one.split], one.count, one.index)
        found.append(np.arange(starts[one.split] + first, starts[one.split] + stop))
    return np.concatenate(found)


def stage_or_continue(
    output_dir: str,
    plan: Plan,
    planned: pa.Table,
    options: ConvertOptions,
    sizes_of: Callable[[bool], Sequence[int]],
    look: Callable[[], None],
    spool: Callable[[str, Plan, Sequence[Shard]], None] = lambda folder, plan, pending: None,
) -> Prepared | None:
    """`prepare` for a plan whose numbers of shards are not decided yet.

    Args:
        planned: its rows.
        sizes_of: takes whether sizes decide on the shards; returns file sizes in bytes of some
            images.
        look: raises an error if the images are not there; called before anything is changed.
        spool: takes where the plan is staged and which shards will be written; puts those of their
            images there that came as bytes.
    """
    exchanged = complete(output_dir)
    keeps = not options.retry_rejects and (exchanged or not options.overwrite)
    if keeps and is_finished(output_dir, plan):
        # Check that the shards of the finished dataset are there, by name and size.
        open_dataset(output_dir, local_files() if storage.is_local(output_dir) else stored_files())
        if plan.spooled:  # the process that committed may have ended before removing them
            remove_spool(output_dir)
        _warn_of_other_images(output_dir, plan, planned)
        return None
    folder = folder_to_write(output_dir, options)
    staged = plan_to_continue(folder, plan, options)
    # A staged plan has its numbers of shards, and the user may have given them.
    undecided = staged is None and None in map(options.shards_of, plan.split_rows)
    sizes = sizes_of(undecided)
    if undecided:
        counts = shard_counts(plan.split_rows, sizes, options)
        plan = dataclasses.replace(plan, split_shards=counts)
    pending = plan.shards if staged is None else pending_shards(folder, staged, options)
    if pending:
        # Before anything is removed: never lose a finished dataset for one that cannot be made.
        look()
    if staged is None:
        clear(folder, keep_spool=bool(plan.spooled))
        spool(folder, plan, pending)
        stage_plan(plan, planned, folder)
        return Prepared(folder, plan)
    spool(folder, staged, pending)
    plan = reopen(folder, staged, plan.base, pending)
    if pending:
        restage_rows(plan, planned, folder)
    standing = [shard for shard in plan.shards if shard not in {*pending}]
    return Prepared(folder, plan, len(standing), sum(map(plan.shard_rows, standing)))


def _warn_of_other_images(output_dir: str, plan: Plan, planned: pa.Table) -> None:
    """Warn if a finished dataset has the images of the same names in another folder."""
    staged, image = read_plan(output_dir), primary_image(plan.fields)
    if staged is None or image is None or plan.copies or staged.base == plan.base:
        return
    uris = planned.column(image.uri_key).combine_chunks()
    spooled = image.spool_key in planned.column_names
    files = planned.column(image.spool_key).combine_chunks() if spooled else None
    if not places(uris, plan.base, files).equals(places(uris, staged.base, files)):
        warn(
            f"{output_dir} is a finished dataset of the images in {staged.base}, and nothing of "
            f"{plan.base} was written, because all names and values are the same. If the folder "
            "was only moved, all is well; otherwise tfrecorder.append adds these images."
        )


def pending_shards(output_dir: str, plan: Plan, options: ConvertOptions) -> list[Shard]:
    """The shards to write: those not done, and those with rejects to try again.

    Rejects are tried again if they could not be read.  All rejects are tried again if the
    conversion would otherwise only stop for them again.
    """
    done = read_all_done(output_dir, plan.shards, plan.digest)
    rejects = sum(one.rejects for one in done.values() if one)
    every = options.on_error == "raise" or rejects > options.max_reject_fraction * plan.rows
    return [
        shard for shard, one in done.items() if one is None or one.unread or (every and one.rejects)
    ]


def follow(prepared: Prepared, options: ConvertOptions) -> DataflowJob | None:
    """Carry out a staged plan; return the handle of a job that still runs, or None if committed."""
    folder, plan = prepared.folder, prepared.plan
    warn_of_escapes(plan)
    stays = options.wait or options.runner != "DataflowRunner"
    shown = is_shown(options.progress) and stays
    with progress_bar(folder, plan, shown):
        return run.run(plan, folder, options, progress=shown)


def warn_of_escapes(plan: Plan) -> None:
    names = [name for names in plan.vocabularies.values() for name in names or ()]
    odd = [name for name in names if needs_escape(name)]
    if odd:
        warn(
            f"{counted(len(odd), 'class name')} would not survive in the labels file, because "
            f"TFDS strips whitespace: {odd[:3]}. They are escaped there; the records hold them "
            "unchanged."
        )

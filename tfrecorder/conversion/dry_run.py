"""What a conversion would write, after all its checks."""

from __future__ import annotations

import dataclasses
import os
import shutil
from typing import IO, TYPE_CHECKING, Any

from tfrecorder import storage
from tfrecorder.conversion.dry_run_result import DryRun, estimate
from tfrecorder.conversion.prepare import pending_shards
from tfrecorder.conversion.table import read_and_check
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.errors import OutputError
from tfrecorder.format import layout
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import (
    exchange_begun,
    folder_to_write,
    is_finished,
    plan_to_continue,
    refuse_foreign,
    refuse_nested,
)
from tfrecorder.output.path import output_path
from tfrecorder.output.staging import read_plan
from tfrecorder.plan.plan import make_plan, shard_counts
from tfrecorder.plan.preflight import open_some, sizes_of_some

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict


def dry_run(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    output_dir: str | os.PathLike[str],
    **options: Any,
) -> DryRun:
    """What `convert` would write, after the same checks; nothing is written.

    Args:
        source, output_dir, options: as for `convert`.

    Returns:
        Rows, shards and estimated bytes by split, the class names, and the warnings of `validate`.

    Raises:
        TfrecorderError: what `convert` raises before its launch.
    """
    chosen = ConvertOptions.of(options)
    with storage.acting_as(chosen.account):
        return _dry_run(source, output_dir, chosen)


def _dry_run(source: Any, output_dir: str | os.PathLike[str], chosen: ConvertOptions) -> DryRun:
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    with stage_line(is_shown(chosen.progress)) as begin:
        table, checked, report = read_and_check(source, where, chosen, begin)
    with storage.failing_as(OutputError, where):
        refuse_nested(where, chosen)
        refuse_foreign(where)
        begun = exchange_begun(where)
        folder = layout.next_of(where) if begun else folder_to_write(where, chosen)
        plan, _ = make_plan(checked, table.base, (), chosen)
        keeps = not chosen.retry_rejects and (begun or not chosen.overwrite)
        finished = keeps and is_finished(folder, plan)
        staged = read_plan(folder) if finished else plan_to_continue(folder, plan, chosen)
        pending = [] if finished or staged is None else pending_shards(folder, staged, chosen)
    sizes = sizes_of_some(checked, table.base, chosen, decisive=True)
    open_some(checked, table.base, chosen)
    if staged is None:
        counts = shard_counts(plan.split_rows, sizes, chosen)
        plan = dataclasses.replace(plan, split_shards=counts)
    return estimate(
        staged or plan,
        output_dir=path,
        sizes=None if chosen.transforms else sizes,
        pending=None if staged is None else len(pending),
        report=report,
        passed_over=dict(table.passed_over),
        free=_free_bytes(where),
    )


def _free_bytes(where: str) -> int | None:
    """What the disk of a directory, which may not be there yet, has left; None for a bucket."""
    if not storage.is_local(where):
        return None
    while not os.path.exists(where):
        where = os.path.dirname(where)
    return shutil.disk_usage(where).free

"""Commit: once every shard is done, write `dataset_info.json` last."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import google_crc32c

from tfrecorder import storage
from tfrecorder.display.tables import counted
from tfrecorder.errors import OutputError, RejectedError
from tfrecorder.format import layout
from tfrecorder.format.layout import Shard
from tfrecorder.output.done_records import DoneRecord, add_up, list_output, read_done, shard_fault
from tfrecorder.plan.plan import Plan, PlanKind
from tfrecorder.writing import metadata
from tfrecorder.writing.shards import REJECT_HEADER, SUSPECT_HEADER, in_order, to_csv
from tfrecorder.writing.tfds import public_files


def commit(
    plan: Plan, done: Iterable[DoneRecord], output_dir: str, max_reject_fraction: float
) -> None:
    """Check that every planned row is a record or a reject, and publish the files of a dataset.

    Raises:
        OutputError: rows are missing: a shard is not done, or was done by another plan.
        RejectedError: more than `max_reject_fraction` of the rows were rejected.
    """
    by_name = {record.shard: record for record in done}
    by_shard = {shard: by_name[shard.name] for shard in plan.shards if shard.name in by_name}
    _check_conservation(plan, by_shard)
    if plan.kind is not PlanKind.BATCH:  # which may have no good image
        _check_rejects(by_shard.values(), max_reject_fraction, output_dir)

    with storage.failing_as(OutputError, output_dir):
        sums = metadata.plan_sums(output_dir)
    rejects = [shard.rejects for shard, record in by_shard.items() if record.rejects]
    suspects = [shard.suspects for shard, record in by_shard.items() if record.suspects]
    lists = {
        layout.REJECTS: _gathered(output_dir, REJECT_HEADER, rejects),
        layout.SUSPECTS: _gathered(output_dir, SUSPECT_HEADER, suspects),
    }
    sums |= {file: metadata.sums_of(data) for file, data in lists.items()}
    files = {
        **lists,
        **public_files(plan, by_shard),
        layout.METADATA: metadata.metadata_json(plan, by_shard, sums),
    }
    dataset_info = files.pop(layout.COMMIT)
    # On a bucket publish all at once: otherwise a small conversion would mostly wait here.
    publish = partial(storage.publish_bytes, output_dir)
    storage.each(lambda file: publish(file, files[file]), files, output_dir)
    _check_standing(plan, by_shard, output_dir)
    publish(layout.COMMIT, dataset_info)
    leftovers = (layout.TMP, layout.PROGRESS, layout.FAILURE, layout.PARTS)
    storage.remove_all(output_dir, leftovers)


def _check_conservation(plan: Plan, done: Mapping[Shard, DoneRecord]) -> None:
    """Rows in = records + rejects, in every shard and in total."""
    for shard in plan.shards:
        record = done.get(shard)
        if record is None or record.plan != plan.digest:
            raise OutputError(f"shard {shard.file} is not done; run the same conversion again.")
        if not record.rows == plan.shard_rows(shard) == record.records + record.rejects:
            raise OutputError(
                f"shard {shard.file} was planned with {plan.shard_rows(shard)} rows but has "
                f"{record.records} records and {record.rejects} rejects. This must not happen: "
                "please report it."
            )
    total = sum(record.records + record.rejects for record in done.values())
    if total != plan.rows:
        raise OutputError(
            f"{plan.rows} rows were planned, but {total} became records or rejects. This must not "
            "happen: please report it."
        )


def _check_standing(plan: Plan, done: Mapping[Shard, DoneRecord], output_dir: str) -> None:
    """Look once more whether what is in the directory is what was written there."""
    with storage.failing_as(OutputError, output_dir):
        files = list_output(output_dir)

    def fault(shard: Shard) -> str | None:
        if reason := shard_fault(files, shard, done[shard]):
            return reason
        data, file = done[shard].to_json(), files.get(shard.done)
        if file is not None and file.is_of(len(data), google_crc32c.value(data)):
            return None
        # Another version may have written it, with fewer fields.
        same = read_done(output_dir, shard, plan.digest, files) == done[shard]
        return None if same else f"{shard.done} differs from what was written"

    faults = list(filter(None, map(fault, plan.shards)))
    if faults:
        more = counted(len(faults) - 1, "more shard is", "more shards are")
        others = f", and {more} like it" if faults[1:] else ""
        raise OutputError(
            f"{output_dir}: {faults[0]}{others}: replaced after the shard was done, perhaps by a "
            "worker that was given up but kept running. Nothing was committed; run the same "
            "conversion again to write it again."
        )


def _check_rejects(done: Iterable[DoneRecord], max_reject_fraction: float, output_dir: str) -> None:
    """Raise a RejectedError, with the reasons counted, if too many rows were rejected."""
    totals = add_up(done)
    share = totals.rejects / totals.rows
    if share <= max_reject_fraction and totals.records:
        return
    reasons = ", ".join(f"{count:,} {why}" for why, count in totals.reasons.items())
    where = os.path.join(output_dir, layout.SHARD_REJECTS)
    rows = counted(totals.rows, "row")
    raise RejectedError(
        f"{totals.rejects:,} of {rows} ({share:.1%}) were rejected, more than "
        f"`max_reject_fraction={max_reject_fraction:g}` allows: {reasons}. Nothing was committed. "
        f"The rows are listed in {where}. Fix the images and run the same conversion again to "
        "retry them; or raise `max_reject_fraction`, or drop the rows."
    )


def _gathered(output_dir: str, header: tuple[str, ...], parts: Sequence[str]) -> bytes:
    """One CSV from those of the shards that list anything, in the order of the source's rows."""
    head = to_csv(header, [])

    def rows_of(part: str) -> bytes:
        return storage.read_bytes(os.path.join(output_dir, part))[len(head) :]

    return head + in_order(storage.each(rows_of, parts, output_dir))

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
from tfrecorder.output.done_records import DoneRecord, Totals, add_up, list_output, read_done
from tfrecorder.plan.plan import Plan, PlanKind
from tfrecorder.writing import metadata
from tfrecorder.writing.label_maps import label_maps
from tfrecorder.writing.shards import REJECT_HEADER, SUSPECT_HEADER, in_order, to_csv
from tfrecorder.writing.tfds import dataset_info_json, features_json, labels_files


def commit(
    plan: Plan, done: Iterable[DoneRecord], output_dir: str, max_reject_fraction: float
) -> None:
    """Check that every planned row is a record or a reject, and publish the files of a dataset.

    Raises:
        OutputError: rows are missing: a shard is not done, or was done by another plan.
        RejectedError: more than `max_reject_fraction` of the rows were rejected.
    """
    by_name = {one.shard: one for one in done}
    by_shard = {shard: by_name[shard.name] for shard in plan.shards if shard.name in by_name}
    _check_conservation(plan, by_shard)
    totals = add_up(by_shard.values())
    if plan.kind is not PlanKind.BATCH:  # which may have no good image
        check_rejects(totals, max_reject_fraction, output_dir)

    with storage.failing_as(OutputError, output_dir):
        sums = metadata.plan_sums(output_dir)
    rejects = [shard.rejects for shard, one in by_shard.items() if one.rejects]
    suspects = [shard.suspects for shard, one in by_shard.items() if one.suspects]
    lists = {
        layout.REJECTS: _gathered(output_dir, REJECT_HEADER, rejects),
        layout.SUSPECTS: _gathered(output_dir, SUSPECT_HEADER, suspects),
    }
    sums |= {file: metadata.sums_of(data) for file, data in lists.items()}
    files = {
        **lists,
        **labels_files(plan),
        **label_maps(plan),
        layout.FEATURES: features_json(plan, by_shard.values()),
        layout.METADATA: metadata.metadata_json(plan, by_shard, sums),
    }
    # On a bucket publish all at once: otherwise a small conversion would mostly wait here.
    publish = partial(storage.publish_bytes, output_dir)
    storage.each(lambda file: publish(file, files[file]), files, output_dir)
    _check_standing(plan, by_shard, output_dir)
    publish(layout.COMMIT, dataset_info_json(plan, by_shard))
    leftovers = (layout.TMP, layout.PROGRESS, layout.FAILURE, layout.PARTS)
    storage.remove_all(output_dir, leftovers)


def _check_conservation(plan: Plan, done: Mapping[Shard, DoneRecord]) -> None:
    """Rows in = records + rejects, in every shard and in total."""
    for shard in plan.shards:
        one = done.get(shard)
        if one is None or one.plan != plan.digest:
            raise OutputError(f"shard {shard.file} is not done; run the same conversion again.")
        if not one.rows == plan.shard_rows(shard) == one.records + one.rejects:
            raise OutputError(
                f"shard {shard.file} was planned with {plan.shard_rows(shard)} rows but has "
                f"{one.records} records and {one.rejects} rejects. This must not happen: please "
                "report it."
            )
    total = sum(one.records + one.rejects for one in done.values())
    if total != plan.rows:
        raise OutputError(
            f"{plan.rows} rows were planned, but {total} became records or rejects. This must not "
            "happen: please report it."
        )


def _check_standing(plan: Plan, done: Mapping[Shard, DoneRecord], output_dir: str) -> None:
    """Look once more whether what is in the directory is what was written there."""
    with storage.failing_as(OutputError, output_dir):
        standing = list_output(output_dir)

    def fault(shard: Shard) -> str | None:
        if words := standing.fault(shard, done[shard]):
            return words
        data, found = done[shard].to_json(), standing.files.get(shard.done)
        if found is not None and found.is_of(len(data), google_crc32c.value(data)):
            return None
        # Another version may have written it, with fewer fields.
        same = read_done(output_dir, shard, plan.digest, standing) == done[shard]
        return None if same else f"{shard.done} differs from what was written"

    faults = list(filter(None, map(fault, plan.shards)))
    if faults:
        others = (
            f", and {counted(len(faults) - 1, 'more shard is', 'more shards are')} like it"
            if faults[1:]
            else ""
        )
        raise OutputError(
            f"{output_dir}: {faults[0]}{others}: replaced after the shard was done, perhaps by a "
            "worker that was given up but kept running. Nothing was committed; run the same "
            "conversion again to write it again."
        )


def check_rejects(totals: Totals, max_reject_fraction: float, output_dir: str) -> None:
    """Raise a RejectedError, with the reasons counted, if too many rows were rejected."""
    share = totals.rejects / totals.rows
    if share <= max_reject_fraction and totals.records:
        return
    reasons = ", ".join(f"{count:,} {why}" for why, count in totals.reasons.items())
    where = os.path.join(output_dir, layout.SHARD_REJECTS)
    rows = counted(totals.rows, "row")
    raise RejectedError(
        f"{totals.rejects:,} of {rows} ({share:.1%}) were rejected, more than "
        f"max_reject_fraction={max_reject_fraction:g} allows: {reasons}. Nothing was committed. "
        f"The rows are listed in {where}. Fix the images and run the same conversion again to "
        "retry them; or raise max_reject_fraction, or drop the rows."
    )


def _gathered(output_dir: str, header: tuple[str, ...], parts: Sequence[str]) -> bytes:
    """One CSV from those of the shards that list anything, in the order of the source's rows."""
    head = to_csv(header, [])

    def rows_of(part: str) -> bytes:
        return storage.read_bytes(os.path.join(output_dir, part))[len(head) :]

    return head + in_order(storage.each(rows_of, parts, output_dir))

"""The place of a plan in a dataset: the commit, shards and row numbers that come next."""

from __future__ import annotations

import dataclasses

from tfrecorder.format.losses import lasting
from tfrecorder.format.manifest import Manifest
from tfrecorder.format.plan import Adds, Plan, PlanKind


def as_next_commit(plan: Plan, newest: Manifest | None, next_row: int, *, adds: bool) -> Plan:
    """A plan as the commit that follows the newest one.

    Args:
        newest: the manifest of the newest commit; None if there is none.
        next_row: the number that the next new row of that dataset gets; 0 without one.
        adds: its shards are added to those of the newest commit; otherwise they replace these.
    """
    # Boxes with a row each: the numbers end with the source's rows, not with the last record's.
    rows_before = next_row if adds else 0
    next_row = max(next_row, plan.next_row, rows_before + plan.source_rows)
    if newest is None:
        return dataclasses.replace(plan, commit=0, previous="", follows=None, next_row=next_row)
    before = newest.plan
    dataset = newest.dataset
    splits = dataset.splits
    revisions = dict(before.revisions)
    for split, state in splits.items():
        revisions[split] = state.revision
    if adds:
        # A split that was dropped comes again under names that it never had.
        again = [split for split in plan.split_rows if split in revisions and split not in splits]
        revisions |= {split: revisions[split] + 1 for split in again}
        counts = {split: state.shards for split, state in splits.items()}
    else:
        # A split whose shards all stay keeps their names.
        all_of = {split: list(range(state.shards)) for split, state in splits.items()}
        stays = {split for split, kept in plan.kept.items() if kept == all_of.get(split)}
        written = {*plan.split_rows, *plan.kept} - stays
        revisions |= dict.fromkeys(written, max(revisions.values()) + 1)
        counts = {split: len(kept) for split, kept in plan.kept.items()}
    begins = plan.kind in (PlanKind.CONVERSION, PlanKind.COMPACTION)
    return dataclasses.replace(
        plan,
        carried=plan.carried if begins else dataset.history,
        commit=before.commit + 1,
        previous=newest.commit.digest,
        follows=Adds(rows_before, dataset.image_shapes, dataset.image_sides) if adds else None,
        starts={split: counts[split] for split in plan.split_rows if counts.get(split)},
        revisions={split: number for split, number in revisions.items() if number != 1},
        removed=plan.removed or before.removed,
        next_row=next_row,
        losses=plan.losses if begins else lasting(before.losses),
    )

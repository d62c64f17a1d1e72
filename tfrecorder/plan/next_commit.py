"""The place of a plan in a dataset: the commit, shards and row numbers that come next."""

from __future__ import annotations

import dataclasses

from tfrecorder.format.losses import lasting
from tfrecorder.format.manifest import Manifest
from tfrecorder.format.plan import Adds, Begins, Plan, PlanKind, Rewrites


def as_next_commit(plan: Plan, newest: Manifest | None, next_row: int, *, adds: bool) -> Plan:
    """A plan as the commit that follows the newest one.

    Args:
        newest: the manifest of the newest commit; None if there is none.
        next_row: the number that the next new row of that dataset gets; 0 without one.
        adds: its shards are added to those of the newest commit; otherwise they replace these.
    """
    # Boxes with a row each: the numbers end with the source's rows, not with the last record's.
    rows_before = next_row if adds else 0
    next_row = max(next_row, plan.carried.next_row, rows_before + plan.rows.in_source)
    if newest is None:
        return dataclasses.replace(plan, commit=0, follows=Begins()).carrying(next_row=next_row)
    before = newest.plan
    dataset = newest.dataset
    splits = dataset.splits
    revisions = dict(before.layout.revisions)
    for split, state in splits.items():
        revisions[split] = state.revision
    if adds:
        # A split that was dropped comes again under names that it never had.
        again = [
            split for split in plan.layout.split_rows if split in revisions and split not in splits
        ]
        revisions |= {split: revisions[split] + 1 for split in again}
        counts = {split: state.shards for split, state in splits.items()}
    else:
        # A split whose shards all stay keeps their names.
        all_of = {split: list(range(state.shards)) for split, state in splits.items()}
        stays = {split for split, kept in plan.layout.kept.items() if kept == all_of.get(split)}
        written = {*plan.layout.split_rows, *plan.layout.kept} - stays
        revisions |= dict.fromkeys(written, max(revisions.values()) + 1)
        counts = {split: len(kept) for split, kept in plan.layout.kept.items()}
    carried = plan.carried
    if plan.kind not in (PlanKind.CONVERSION, PlanKind.COMPACTION):
        losses = lasting(before.carried.losses)
        carried = dataclasses.replace(carried, history=dataset.history, losses=losses)
    marks = carried.marks or before.carried.marks
    digest = newest.commit.digest
    follows: Rewrites | Adds = Rewrites(digest, plan.follows.renumbers)
    if adds:
        follows = Adds(digest, rows_before, dataset.image_shapes, dataset.image_sides)
    plan = plan.laid_out(
        starts={split: counts[split] for split in plan.layout.split_rows if counts.get(split)},
        revisions={split: number for split, number in revisions.items() if number != 1},
    )
    return dataclasses.replace(
        plan,
        carried=dataclasses.replace(carried, next_row=next_row, marks=marks),
        commit=before.commit + 1,
        follows=follows,
    )

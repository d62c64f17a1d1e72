"""The manifest of a commit, as it follows from the plan, the done-records and the manifest before.

This is the one place where the state of a dataset goes from one commit to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import google_crc32c

from tfrecorder.format.commit_log import Log, LogEntry, merged_batches
from tfrecorder.format.done_records import DoneRecords, add_up
from tfrecorder.format.layout import SplitState
from tfrecorder.format.manifest import (
    CommitRecord,
    DatasetRecord,
    FileSums,
    Generation,
    Manifest,
)
from tfrecorder.format.plan import OF_A_SOURCE, Plan, PlanKind, TakesBack
from tfrecorder.format.summary import Changes
from tfrecorder.plan.history import history_after
from tfrecorder.reading.commits import Commit
from tfrecorder.writing.tfds import image_shapes, image_sides, stated_version


def manifest_of(
    plan: Plan,
    done: DoneRecords,
    previous: DatasetRecord | None,
    lists: Mapping[str, FileSums],
    earlier: Mapping[int, Generation] | None = None,
    stated: Mapping[str, object] | None = None,
    log_before: Log = (),
    undone: str = "",
) -> Manifest:
    """The manifest of the commit of a plan.

    Args:
        done: the done-records of all shards of the commit, in their order.
        previous: what was so of the dataset before, if there was one.
        lists: the sums of the lists of rejects and suspects.
        earlier: for what keeps the numbers of the records it replaces, as `earlier_of` gives it.
        stated: by the card; None keeps what was stated before.
        log_before: the entries of the commits before a chain that begins here.
        undone: the kind of what an undo takes back or abandons.
    """
    records = list(done.values())
    nothing = DatasetRecord(splits={}, stated="", since=plan.commit, chain=plan.commit)
    before = nothing if previous is None or not plan.adds else previous
    numbering = before if plan.follows.renumbers else previous or nothing
    splits = dict(before.splits)
    for split, own in plan.own.items():
        splits[split] = SplitState(own.revision, own.first + own.shards)
    skips = before.skips
    if before is not nothing:
        # What is taken back lies between the commit that this one follows, and this one.
        skips += tuple(range(before.commit + 1, plan.commit))
    positions = dict(before.positions)
    for name, stream in (plan.rows.streams or {}).items():
        positions[name] = stream["to"]
    if stated is None:
        stated = {} if previous is None else previous.stated_by_card
    dataset = DatasetRecord(
        splits=splits,
        stated=stated_version(plan, None if previous is None else previous.stated),
        commit=plan.commit,
        is_updated=plan.kind is PlanKind.UPDATE,
        history=history_after(plan, sum(record.records for record in records)),
        since=numbering.since,
        chain=before.chain,
        skips=skips,
        image_shapes=image_shapes(plan, records),
        image_sides=image_sides(plan, records),
        positions=positions,
        lists=lists,
        contents=_contents(plan, done, numbering.contents),
        abandoned=before.abandoned,
        ends_undo=previous is not None and previous.is_updated,
        earlier=earlier or {},
        stated_by_card=stated,
    )
    record = CommitRecord(
        plan=plan,
        digest=plan.digest,
        own=plan.own,
        done_values=[record.values() for record in done.values()],
        totals=add_up(done.values()),
        log=_log_of(plan, done, undone),
        log_before=log_before,
        replaced=previous.splits if plan.rewrites and previous is not None else None,
    )
    return Manifest(record, dataset)


def _contents(plan: Plan, done: DoneRecords, before: Mapping[str, int]) -> dict[str, int]:
    """A checksum of all shards of each split; corrected records have the numbers that they had."""
    renumbered = {
        shard: record
        for shard, record in done.items()
        if plan.follows.renumbers or plan.layout.is_new(shard)
    }
    return extended(before, renumbered)


def extended(contents: Mapping[str, int], done: DoneRecords) -> dict[str, int]:
    """The checksums of the shards of each split, extended by those of further shards."""
    checksums = dict(contents)
    for shard, record in done.items():
        crc = record.crc32c.to_bytes(4, "big")
        checksums[shard.split] = google_crc32c.extend(checksums.get(shard.split, 0), crc)
    return checksums


def _log_of(plan: Plan, done: DoneRecords, undone: str) -> LogEntry:
    """What a commit did, in numbers."""
    changes = plan.summary.changes or Changes()
    # Of the shards that are kept or written again, the rows were there before.
    new = add_up(record for shard, record in done.items() if plan.layout.is_new(shard))
    is_addition = plan.kind in OF_A_SOURCE
    rejected = new.rejects if is_addition else min(new.rejects, changes.added)
    undoes = -1
    if plan.kind is PlanKind.UNDO and plan.rewrites:
        undoes = plan.commit - 1
    elif isinstance(plan.follows, TakesBack):
        undoes = plan.follows.undoes
    return LogEntry(
        commit=plan.commit,
        first=plan.commit,
        kind=plan.kind.value,
        when=plan.begun,
        added=new.records if is_addition else changes.added - rejected,
        corrected=changes.corrected,
        moved=sum(changes.moved.values()),
        removed=changes.removed,
        rejected=rejected,
        undoes=undoes,
        undone=undone,
    )


def entries_of(every: Sequence[Commit]) -> Log:
    """The entries of a chain of commits, and of those before it, as the next chain keeps them.

    Args:
        every: the chain, oldest first.
    """
    entries = []
    for commit in every:
        entries += commit.manifest.commit.entries
    return merged_batches(entries)


def earlier_of(every: Sequence[Commit]) -> dict[int, Generation]:
    """The generations of a dataset that `at=` can read after a correction of it, by number.

    Args:
        every: its commits.
    """
    earlier = dict(every[0].dataset.earlier)
    for commit in every:
        counts = {split: state.shards for split, state in commit.dataset.splits.items()}
        earlier[commit.number] = Generation(counts, commit.dataset.contents)
    return earlier

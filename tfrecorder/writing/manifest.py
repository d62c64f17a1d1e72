"""The manifest of a commit, as it follows from the plan, the done-records and the manifest before.

This is the one place where the state of a dataset goes from one commit to the next.  A plan that
takes an addition back follows the commit before the addition, as if nothing had come between, and
adds no shard.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

import google_crc32c

from tfrecorder.format.documents import TfdsInfo, TfdsSplit
from tfrecorder.format.done_records import DoneRecords, add_up
from tfrecorder.format.layout import ShardRange, ShardRanges, SplitState
from tfrecorder.format.manifest import (
    CommitRecord,
    DatasetRecord,
    FileSums,
    Generation,
    Log,
    LogEntry,
    Loss,
    Manifest,
    both_losses,
    lasting_losses,
)
from tfrecorder.format.plan import (
    OF_A_SOURCE,
    Layout,
    Plan,
    PlanKind,
    PlannedRows,
    Rewrites,
    TakesBack,
)
from tfrecorder.format.summary import Changes
from tfrecorder.plan.history import history_after
from tfrecorder.plan.make_plan import as_next_commit
from tfrecorder.reading.commits import Commit, chain_before, read_commit
from tfrecorder.reading.merged_rows import counted_rows
from tfrecorder.schema.statistics import merged
from tfrecorder.writing.public_files import image_shapes, image_sides, stated_version


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
    nothing = DatasetRecord(
        splits={},
        stated="",
        since=plan.commit,
        chain=plan.commit,
    )
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


def _contents(
    plan: Plan,
    done: DoneRecords,
    before: Mapping[str, int],
) -> dict[str, int]:
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


def _log_of(
    plan: Plan,
    done: DoneRecords,
    undone: str,
) -> LogEntry:
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


def nothing_after(
    manifest: Manifest,
    undone: str,
    next_row: int,
) -> Plan:
    """The plan of a commit that follows one and adds nothing to it.

    Args:
        undone: the digest of the plan that is given up or taken back.
        next_row: the number that the next new row gets: none gets one of what is taken back.
    """
    before = manifest.plan
    nothing = Plan(
        rows=PlannedRows(
            count=0,
            in_source=0,
            statistics={},
            base=before.rows.base,
            fingerprint=undone,
        ),
        layout=Layout({}, {}),
        fields=before.fields,
        options=before.options,
        kind=PlanKind.UNDO,
    )
    plan = as_next_commit(nothing, manifest, _next_row_then(before), adds=True)
    return plan.carrying(next_row=next_row)


def _next_row_then(plan: Plan) -> int:
    """The next row's number as of the commit of a plan."""
    return plan.carried.next_row or counted_rows(plan)


def plan_without(
    newest: Commit,
    taken: Commit,
    before: Commit,
    next_row: int,
) -> Plan:
    """The plan that takes an addition back: it follows the commit before that one.

    Args:
        newest: after which nothing was added but what was taken back.
        taken: the addition.
        before: what it was added to.
        next_row: as for `nothing_after`.
    """
    plan = _with_losses(nothing_after(before.manifest, taken.digest, next_row), newest)
    major = int(newest.dataset.stated.partition(".")[0])
    state = vars(plan.follows) | {"previous": newest.digest}
    follows = TakesBack(
        **state,
        version=f"{major + 1}.0.0",
        undoes=taken.number,
    )
    return dataclasses.replace(plan, commit=newest.number + 1, follows=follows)


def plan_back(
    newest: Commit,
    every: Sequence[Commit],
    next_row: int,
) -> Plan:
    """The plan that takes an update back: the shards of before it, in a next revision.

    Args:
        newest: the update.
        every: the commits of the dataset before it.
        next_row: as for `nothing_after`.
    """
    before = every[-1]
    splits = before.dataset.splits
    now = {split: state.revision for split, state in newest.dataset.splits.items()}
    known = newest.plan.layout.revisions | now
    other = {split for split, state in splits.items() if state.revision != now[split]}
    revisions = known | dict.fromkeys(other, max(known.values()) + 1)
    plan = _with_losses(nothing_after(before.manifest, newest.digest, next_row), newest)
    plan = plan.with_rows(
        in_source=_next_row_then(before.plan),
        statistics=merged(commit.plan.rows.statistics for commit in every),
        streams={name: {"to": to} for name, to in before.dataset.positions.items()} or None,
    )
    plan = plan.laid_out(
        kept={split: list(range(state.shards)) for split, state in splits.items()},
        starts={},
        revisions={split: number for split, number in revisions.items() if number != 1},
    )
    follows = Rewrites(newest.digest, renumbers=False)
    return dataclasses.replace(plan, commit=newest.number + 1, follows=follows)


def _with_losses(plan: Plan, newest: Commit) -> Plan:
    """A plan that goes back to an older commit, without what was lost since.

    Args:
        newest: notes it.
    """
    losses = both_losses(lasting_losses(newest.plan.carried.losses), plan.carried.losses)
    is_lost = plan.carried.marks in losses.get(Loss.MARKS.value, ())
    return plan.carrying(losses=losses, marks="" if is_lost else plan.carried.marks)


def taken_number(plan: Plan) -> int:
    """The number of the addition or update that a plan takes back."""
    # An update begins a chain.
    return plan.follows.undoes if isinstance(plan.follows, TakesBack) else plan.commit - 1


def taken_by(output_dir: str, plan: Plan) -> tuple[Commit, Commit]:
    """The addition or update that a plan takes back, and the commit that it came after."""
    number = taken_number(plan)
    taken = read_commit(output_dir, number)
    return taken, read_commit(output_dir, [number - 1, *chain_before(taken)][-1])


def given_up(newest: Commit, taken: Commit) -> ShardRanges:
    """The shards of an addition that is taken back, and those that were given up before."""
    shards = dict(newest.dataset.abandoned)
    for split, own in taken.manifest.commit.own.items():
        first = own.first
        end = first + own.shards
        # These began where the addition did, or where it ended.
        if split in shards and shards[split].revision == own.revision:
            end = max(end, shards[split].first + shards[split].shards)
            first = min(first, shards[split].first)
        shards[split] = ShardRange(own.revision, first, end - first)
    return shards


def info_without(
    info: TfdsInfo,
    taken: Commit,
    before: Commit,
) -> TfdsInfo:
    """What `dataset_info.json` says, without the shards of an addition to another commit."""
    sizes = Counter[str]()
    splits: list[TfdsSplit] = []
    for shard, done in taken.done.items():
        sizes[shard.split] += done.bytes
    for split in info["splits"]:
        name = split["name"].upper()
        stays = before.dataset.splits.get(name, SplitState(1, 0)).shards
        lengths = split["shardLengths"][:stays]
        size = str(int(split["numBytes"]) - sizes[name])
        splits.append({**split, "numBytes": size, "shardLengths": lengths})
    return {**info, "splits": splits}

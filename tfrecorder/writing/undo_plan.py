"""The plan that takes an addition back, and what is left of the dataset without that addition.

It follows the commit before the addition, as if nothing had come between, and adds no shard.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from tfrecorder.format.documents import TfdsInfo, TfdsSplit
from tfrecorder.format.layout import ShardRange, ShardRanges, SplitState
from tfrecorder.format.losses import Loss, both, lasting
from tfrecorder.format.manifest import Manifest
from tfrecorder.format.plan import Layout, Plan, PlanKind, PlannedRows, Rewrites, TakesBack
from tfrecorder.plan.next_commit import as_next_commit
from tfrecorder.reading.commits import Commit, chain_before, read_commit
from tfrecorder.reading.row_numbers import counted_rows
from tfrecorder.schema.statistics import merged


def nothing_after(manifest: Manifest, undone: str, next_row: int) -> Plan:
    """The plan of a commit that follows one and adds nothing to it.

    Args:
        undone: the digest of the plan that is given up or taken back.
        next_row: the number that the next new row gets: none gets one of what is taken back.
    """
    before = manifest.plan
    nothing = Plan(
        rows=PlannedRows(
            count=0, in_source=0, statistics={}, base=before.rows.base, fingerprint=undone
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


def plan_without(newest: Commit, taken: Commit, before: Commit, next_row: int) -> Plan:
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
    follows = TakesBack(**state, version=f"{major + 1}.0.0", undoes=taken.number)
    return dataclasses.replace(plan, commit=newest.number + 1, follows=follows)


def plan_back(newest: Commit, every: Sequence[Commit], next_row: int) -> Plan:
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
    losses = both(lasting(newest.plan.carried.losses), plan.carried.losses)
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


def info_without(info: TfdsInfo, taken: Commit, before: Commit) -> TfdsInfo:
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

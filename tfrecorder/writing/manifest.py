"""The manifest of a commit: what it added or rewrote, and what readers must know of the whole.

What is kept of the whole dataset does not grow with the number of its commits, so that neither
opening it nor committing to it reads any manifest but the newest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c

from tfrecorder.format.commit_log import LogEntry
from tfrecorder.format.documents import MANIFEST_VERSION
from tfrecorder.format.done_records import DoneRecord, add_up
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.summary import Changes
from tfrecorder.plan.history import history_after
from tfrecorder.reading.commits import Commit
from tfrecorder.writing.tfds import image_shapes, image_sides, stated_version


def sums_of(data: bytes) -> dict[str, int]:
    """Size and CRC32C of bytes, as a manifest holds them."""
    return {"bytes": len(data), "crc32c": google_crc32c.value(data)}


def manifest_of(
    plan: Plan,
    done: Mapping[Shard, DoneRecord],
    previous: Mapping[str, Any] | None,
    lists: Mapping[str, Mapping[str, int]],
    earlier: Mapping[str, Any] | None = None,
    stated: Mapping[str, Any] | None = None,
    log_before: Sequence[Mapping[str, Any]] = (),
    undone: str = "",
) -> dict[str, Any]:
    """The values of a manifest.

    Of the commit itself: the values of its plan, "plan" (their digest), "own" (split -> [revision,
    first shard, shards]), "done" (the done-records, which bind shards and the files beside them by
    size and CRC32C), "totals" (their sums, with which `verify` compares them), "log" (what was
    done, see `LogEntry`); for what begins a chain "log_before", those of the commits before, and
    for what takes an addition back "log_undone", that of the addition; for what replaces a dataset
    "replaced", its "splits"; for what replaces it and keeps the numbers of its records "earlier"
    (generation before the chain -> "splits", how many shards each had, and "contents").

    Of the dataset as of then: "next_row" (the number that the next new row gets), "losses" (what
    was lost and nobody knows any more, see `Loss`), "splits" (split -> [revision, shards]),
    "history" (see `history_after`), "since" (the commit that began the numbers of its records),
    "chain" (the commit from which on the manifests have the done-records of all shards), "skips"
    (the commits of that chain that were taken back), "stated" (its version for TFDS),
    "image_shapes", "image_sides", "positions" (source -> how far it was read), "lists" (sums of the
    two lists of rows), "contents" (split -> a checksum of all its shards), "abandoned" (shards of
    what was given up or taken back, whose late workers may still write these names), "ends_undo",
    and "stated_by_card" (what its card says, in fields of TFDS).

    Args:
        done: the done-records of all shards of the commit, in their order.
        previous: the manifest before it, if there is one.
        lists: size and CRC32C of the lists of rejects and suspects.
        earlier: for what keeps the numbers of the records it replaces, as `earlier_of` gives it.
        stated: by the card; None keeps what was stated before.
        log_before: the entries of the commits before a chain that begins here.
        undone: the kind of what an undo takes back or abandons.
    """
    if stated is None:
        stated = (previous or {}).get("stated_by_card", {})
    records = list(done.values())
    before = (previous or {}) if plan.follows is not None else {}
    splits = dict(before.get("splits", {}))
    splits |= {
        name: [revision, first + count] for name, (revision, first, count) in plan.own.items()
    }
    last: int = before.get("commit", plan.commit - 1)
    numbering = before if plan.renumbers else (previous or {})
    contents = dict(numbering.get("contents", {}))
    for shard, record in done.items():
        if not plan.renumbers and shard.index < len(plan.kept.get(shard.split, ())):
            continue  # corrected records have the numbers that they had
        crc = record.crc32c.to_bytes(4, "big")
        contents[shard.split] = google_crc32c.extend(contents.get(shard.split, 0), crc)
    positions = {name: stream["to"] for name, stream in (plan.streams or {}).items()}
    return {
        "version": MANIFEST_VERSION,
        "plan": plan.digest,
        **plan.values(),
        "commit": plan.commit,
        "kind": plan.kind.value,
        "stated": stated_version(plan, (previous or {}).get("stated")),
        "log": _log_of(plan, done, undone).values(),
        **({"log_before": [*log_before]} if log_before else {}),
        "own": plan.own,
        "done": [record.values() for record in records],
        "totals": add_up(records).values(),
        "splits": splits,
        "history": history_after(plan, sum(record.records for record in records)),
        "since": numbering.get("since", plan.commit),
        "chain": before.get("chain", plan.commit),
        # What is taken back lies between the commit that this one follows, and this one.
        "skips": [*before.get("skips", ()), *range(last + 1, plan.commit)],
        "image_shapes": image_shapes(plan, records),
        "image_sides": image_sides(plan, records),
        "positions": before.get("positions", {}) | positions,
        "lists": lists,
        "contents": contents,
        "abandoned": before.get("abandoned", {}),
        "ends_undo": (previous or {}).get("kind") == PlanKind.UPDATE.value,
        **({"earlier": earlier} if earlier else {}),
        **({"stated_by_card": stated} if stated else {}),
        **({"replaced": (previous or {})["splits"]} if plan.rewrites and previous else {}),
    }


def _log_of(plan: Plan, done: Mapping[Shard, DoneRecord], undone: str) -> LogEntry:
    """What a commit did, in numbers."""
    changes = plan.summary.changes or Changes()
    # Of the shards that are kept or written again, the rows were there before.
    new = add_up(
        of for shard, of in done.items() if shard.index >= len(plan.kept.get(shard.split, ()))
    )
    is_addition = plan.kind in (PlanKind.CONVERSION, PlanKind.APPEND, PlanKind.BATCH)
    rejected = new.rejects if is_addition else min(new.rejects, changes.added)
    undoes = -1
    if plan.kind is PlanKind.UNDO and plan.rewrites:
        undoes = plan.commit - 1
    elif plan.kind is PlanKind.UNDO and plan.follows is not None:
        undoes = plan.follows.get("undoes", -1)
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


def earlier_of(every: Sequence[Commit]) -> dict[str, Any]:
    """The generations of a dataset that `at=` can read after a correction of it, by number.

    Args:
        every: its commits.
    """
    first = every[0].manifest
    before = first.get("earlier", {})
    return before | {
        str(commit.number): {
            "splits": {split: count for split, (_, count) in commit.manifest["splits"].items()},
            "contents": commit.manifest["contents"],
        }
        for commit in every
    }

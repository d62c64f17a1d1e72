"""Make tables and manifests again that are damaged or gone, as far as the records say.

A table follows from its shard's records and the lists of rows, a manifest from the tables of its
shards.  What comes out is proved by the public files: made again from it, each must be the same.
What nobody knows any more is noted in the newest manifest.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.commit_log import LogEntry, entries_before
from tfrecorder.format.documents import seal, unseal
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.layout import Shard
from tfrecorder.format.losses import WORDS, Loss, both, lasting
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.plan_columns import BASE, POSITION_OF, REJECT_OF, spool_columns
from tfrecorder.output.directory import names_in
from tfrecorder.plan.next_commit import as_next_commit
from tfrecorder.reading.commits import Commit, commits, read_commit
from tfrecorder.reading.row_numbers import counted_rows
from tfrecorder.reading.stream_positions import position_after
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.verification.expectation import (
    LISTS,
    Expectation,
    common_files,
    said_by_commit,
)
from tfrecorder.verification.public_fields import (
    arrow_type,
    fields_and_options,
    planned_features,
    with_names,
)
from tfrecorder.verification.remade_tables import Row, Tables
from tfrecorder.writing.manifest import manifest_of, sums_of
from tfrecorder.writing.shards import Tally

_LOST_ALL = (
    "the names of columns of images, masks and boxes, and of the column of labels if there is only "
    "one, where records call them otherwise",
    "the commits before it, for `at=`, and the options, which `tfrecorder.append` takes over",
    "class names with white space at an end that no record has: they are as in the labels file",
)


@dataclass
class Remade:
    """What is made again, and what that takes.

    Attributes:
        expected: with the manifests as they are now.
        tables: those of the dataset.
        marks: the files with marks of removed rows that are damaged or gone.
        options: of the commits that lost theirs.
        files: the bytes of the tables, indexes and manifests, by name.
        lost: what is not known any more, in words.
    """

    expected: Expectation
    tables: Tables
    marks: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def remake(
    expected: Expectation,
    damaged: Collection[Shard] = (),
    other: Collection[Shard] = (),
    marks: Collection[str] = (),
    kept: Collection[str] = (),
) -> Remade:
    """Make damaged tables of sound shards again, and lost manifests, whose shards must be sound.

    Args:
        damaged, other: as in `Tables`.
        marks: as in `Remade`.
        kept: the files with what the newest update replaced that are damaged or gone.

    Raises:
        DatasetError, UnreadableError, LookupError, TypeError, ValueError: what is left does not
            say enough.
    """
    tables = Tables(expected.directory, (), {*damaged}, {*other})
    made = Remade(expected, tables, frozenset(marks))
    if not (damaged or other or marks or kept or expected.lost):
        return made
    tables.fields, made.options = fields_and_options(expected)
    if damaged or other or expected.lost:
        tables.read(expected.shards)
    spooled = (commit.manifest.get("spooled") for commit in expected.commits.values())
    tables.came_as_bytes |= any(spooled)
    for name in kept:
        tables.note(Loss.KEPT, name)
    left = [shard for shard in expected.shards if shard not in expected.done]
    for number in expected.numbers:
        before, commit = made.expected.before(number), expected.commits.get(number)
        if commit is None:
            shards = _shards_of_lost(made, number, left)
            left = [shard for shard in left if shard not in shards]
            plan, done, begins = _plan_and_done(made, number, shards)
            sums = {file: sums_of(expected.read_whole(file)) for file in LISTS}
            manifest = _as_json(manifest_of(plan, done, before, sums))
            manifest |= _as_json(begins)
            tables.note(Loss.OPTIONS, layout.manifest(number))
        else:
            plan, sums = _plan_of(made, commit), commit.manifest["lists"]
            done = {shard: expected.done[shard] for shard in commit.own_shards}
            for shard in done:
                if shard in tables.damaged or shard in tables.other:
                    rows, tally = tables.tallied(shard, done[shard].rejects, plan)
                    done[shard] = tables.bound(plan, shard, rows, tally, done[shard])
            manifest = _made_again(commit, plan, manifest_of(plan, done, before, sums))
        _take(made, Commit(number, manifest), done)
    _note_in_newest(made)
    # What is lost is noted first: after a kill in between the files would no longer tell.
    first = layout.manifest(expected.note[0])
    noted = {first: made.files[first]} if tables.noted and first in made.files else {}
    made.files = {**noted, **tables.files, **made.files}
    for file, data in common_files(made.expected).items() if expected.lost else ():
        if (file != layout.COMMIT or expected.info) and expected.read(file) != data:
            raise ValueError(f"{file} says something else than the records")
    return made


def _as_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


def _plan_of(made: Remade, commit: Commit) -> Plan:
    """The plan of a sound manifest; without the marks that it names if these are lost."""
    plan = Plan.of(commit.manifest)
    if plan.removed not in made.marks:
        return plan
    lost = {Loss.MARKS.value: [plan.removed]}
    if commit.number == made.expected.note[0]:
        made.tables.note(Loss.MARKS, plan.removed)
    else:  # who takes back what came after it would need them
        plan = replace(plan, losses=both(plan.losses, lost))
        words = f"of {plan.removed}: which rows were removed, if a later addition is taken back"
        made.lost += [words] if words not in made.lost else []
    return replace(plan, removed="")


def _made_again(commit: Commit, plan: Plan, made: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a sound manifest after what it follows from was made again."""
    old = commit.manifest
    new = _as_json(made)
    said = (*said_by_commit(plan), "stated_by_card")
    new = {name: value for name, value in new.items() if name not in said}
    kept = {name: value for name, value in old.items() if name != "removed"}
    values = {**kept, **new}
    is_same = {**values, "version": old["version"]} == old
    return dict(old) if is_same else values


def _take(made: Remade, commit: Commit, done: Mapping[Shard, DoneRecord]) -> None:
    """Take a manifest for that of its commit, and its done-records."""
    expected = made.expected
    if commit.manifest != getattr(expected.commits.get(commit.number), "manifest", None):
        made.files[layout.manifest(commit.number)] = seal(commit.manifest)
    made.expected = replace(
        expected,
        commits=dict(sorted({**expected.commits, commit.number: commit}.items())),
        done={**expected.done, **done},
    )


def _note_in_newest(made: Remade) -> None:
    """Note what is lost in the newest manifest, and put it in words."""
    noted = made.tables.noted
    newest = made.expected.commits[made.expected.note[0]]
    if noted:
        losses = both(newest.manifest.get("losses", {}), noted)
        _take(made, Commit(newest.number, {**newest.manifest, "losses": losses}), {})
    words = []
    for loss in Loss:
        if names := noted.get(loss.value):
            words.append(f"of {_named(names)}: {WORDS[loss]}")
    made.lost[:0] = words


def _named(names: Sequence[str]) -> str:
    """Some files in a word or two."""
    if len(names) == 1:
        return names[0]
    kinds = {layout.TABLES: "table", layout.COMMITS: "manifest"}
    folders = {*map(os.path.dirname, names)}
    return counted(len(names), kinds.get(folders.pop(), "file") if len(folders) == 1 else "file")


def _shards_of_lost(made: Remade, number: int, left: Sequence[Shard]) -> list[Shard]:
    """The shards of a commit whose manifest is lost.

    Args:
        left: those of no commit before it, and of none whose manifest is sound.
    """
    after = _after(made.expected, number)
    ends = {split: count for split, (_, count) in after.get("splits", {}).items()}
    ends |= {split: first for split, (_, first, _) in after.get("own", {}).items()}
    return [
        shard
        for shard in left
        if shard.index < ends.get(shard.split, 0 if after else math.inf)
        and made.tables.said.get(shard, 0) <= number
    ]


def _after(expected: Expectation, number: int) -> Mapping[str, Any]:
    """The next manifest that is sound; empty if there is none."""
    later = (commit.manifest for n, commit in expected.commits.items() if n > number)
    return next(later, {})


def _plan_and_done(
    made: Remade, number: int, shards: Sequence[Shard]
) -> tuple[Plan, dict[Shard, DoneRecord], dict[str, Any]]:
    """The plan of a commit whose manifest is lost, its done-records, and its log, from its shards.

    It keeps the shards as they are: nothing says what was planned for each.
    """
    expected, tables, fields = made.expected, made.tables, made.tables.fields
    before, after = expected.before(number), _after(expected, number)
    tallied = _tallied(made, shards)
    rows = [(shard.split, row) for shard, (of, _) in tallied.items() for row in of]
    sound = [(split, row) for split, row in rows if not row.get(REJECT_OF.reason)]
    if expected.note[0] not in expected.commits:
        fields = tuple(with_names(expected, field, [row for _, row in sound]) for field in fields)
    values = {
        key.key: pa.array([row[key.key] for _, row in sound], arrow_type(key))
        for key in planned_features(fields)
    }
    splits = pd.Series([split for split, _ in sound], dtype=SPLIT_TYPE)
    digest = expected.note[1] if number == expected.note[0] else ""
    digest = after["previous"] if after.get("commit") == number + 1 else digest
    first = 0 if before is None else before.get("next_row", counted_rows(before))
    bases = {row.get(BASE, "") for _, row in rows}
    options = dict((before or after or {"options": made.options})["options"])
    if before is None:
        stated = after["stated"] if after else (expected.info or {})["version"]
        major, minor, _ = map(int, stated.split("."))
        left = (tables.said.get(s, 0) for s in expected.shards if s not in expected.done)
        between = {said for said in left if number < said < after.get("commit", math.inf)}
        options["version"] = f"{major}.{minor - bool(after.get('own')) - len(between)}.0"
    kind = PlanKind.CONVERSION if before is None else PlanKind.APPEND
    plan = Plan(
        rows=len(rows),
        source_rows=max([first, *(row[SOURCE_ID] + 1 for _, row in rows)]) - first,
        split_rows={},
        split_shards={},
        fields=fields,
        statistics=describe_columns(fields, values, splits, missing={}),
        base=bases.pop() if len(bases) == 1 else "",
        fingerprint="",
        options=options,
        kind=kind if shards else PlanKind.UNDO,
        streams=_streams(made, number, tallied),
        spooled=sum(any(map(row.get, spool_columns(row))) for _, row in rows),
        stands_for=digest,
        next_row=_next_row(made, number),
    )
    plan = as_next_commit(plan, before, first, adds=True)
    if before is not None and number - before["commit"] > 1:  # it took back what came between
        stated = (after or {"stated": (expected.info or {})["version"]})["stated"]
        version = f"{stated.partition('.')[0]}.0.0"
        plan = replace(plan, follows={**(plan.follows or {}), "version": version})
    log: dict[str, Any] = {}
    if before is None:
        plan, log = _begun(made, plan, number)
    indexes: dict[str, list[int]] = {}
    for shard in shards:
        indexes.setdefault(shard.split, []).append(shard.index)
    plan = replace(
        plan,
        commit=number,
        starts={split: kept[0] for split, kept in indexes.items() if kept[0]},
        kept={split: list(range(len(kept))) for split, kept in indexes.items()},
        revisions={s.split: s.revision for s in expected.shards if s.revision != 1},
    )
    done = {}
    for shard in layout.shards_of(plan.own):
        of_shard, tally = tallied[shard]
        record = tally.done_record(plan.digest, shard)
        done[shard] = tables.bound(plan, shard, of_shard, tally, record)
    made.lost += _LOST_ALL if not expected.commits else ()
    return plan, done, log | {"log": _log_of(plan, done, number)}


def _tallied(made: Remade, shards: Sequence[Shard]) -> dict[Shard, tuple[list[Row], Tally]]:
    """The rows of the shards of a commit whose manifest is lost, as `Tables.tallied` gives them."""
    expected, tables = made.expected, made.tables
    # Nothing says which of several damaged tables held which reject; some know how many they had.
    counted_shards = [
        s for s in tables.damaged if s in expected.done and s.table not in tables.files
    ]
    others = sum(expected.done[shard].rejects for shard in counted_shards)
    pending = {shard for shard in tables.damaged if shard not in expected.done}
    tallied = {}
    for shard in shards:
        pending.discard(shard)
        rejects = 0 if pending else len(tables.rejects) - others
        tallied[shard] = tables.tallied(shard, rejects)
    return tallied


def _next_row(made: Remade, number: int) -> int:
    """The number that the next new row gets after a commit whose manifest is lost."""
    expected = made.expected
    after = _after(expected, number)
    if "next_row" in after and after["follows"]:
        return int(after["follows"]["rows"])
    stated = [made.tables.next_row]
    for name in names_in(expected.directory, layout.COMMITS):
        with contextlib.suppress(DatasetError, ValueError):
            of_name = layout.commit_of(name.rpartition("/")[2])
            if of_name is not None and of_name < number:
                stated.append(read_commit(expected.directory, of_name).manifest.get("next_row", 0))
    highest = max(stated)
    follows_it = expected.number_before(number) == number - 1 >= 0
    if follows_it or _only_added(expected, number):
        return highest
    # Rows that are gone may have had larger numbers, which nothing says any more.
    return (highest // _BEYOND + 1) * _BEYOND


#: So many row numbers are left out where those that were given are not known: a dataset has fewer.
_BEYOND = 10**9


def _begun(made: Remade, plan: Plan, number: int) -> tuple[Plan, dict[str, Any]]:
    """The plan of a commit that begins a chain, with what is known of what was before it.

    Returns:
        The plan, and of its manifest the log before it.
    """
    expected, tables = made.expected, made.tables
    after = _after(expected, number)
    # It took over the newest marks, and the others went.
    marks = sorted(names_in(expected.directory, layout.REMOVED))
    marks = [name for name in marks if os.path.basename(name)[:5] <= f"{number:05d}"]
    if marks:
        try:
            unseal(expected.read(marks[-1]))
            plan = replace(plan, removed=marks[-1])
        except (storage.UnreadableError, ValueError):
            tables.note(Loss.MARKS, marks[-1])
    elif not after and number and _had_marks(made, number):
        tables.note(Loss.MARKS, layout.REMOVED)
    if not number:
        return plan, {}
    log: dict[str, Any] = {}
    with contextlib.suppress(DatasetError):  # an update keeps what came before it
        last = read_commit(expected.directory, number - 1)
        every = commits(expected.directory, last)
        losses = lasting(last.manifest.get("losses", {}))
        plan = replace(plan, carried=last.manifest["history"], losses=losses)
        log["log_before"] = entries_before([commit.manifest for commit in every])
        tables.note(Loss.KEPT, layout.BEFORE)
    if not log and not after:
        tables.note(Loss.HISTORY, layout.manifest(number))
    return plan, log


def _had_marks(made: Remade, number: int) -> bool:
    """True if rows may have been removed before a commit, of which nothing says more any more."""
    expected, tables = made.expected, made.tables
    if storage.is_folder(expected.path(layout.REMOVED)):
        return True
    return not _only_added(expected, number) and {*expected.shards} <= tables.damaged


def _only_added(expected: Expectation, number: int) -> bool:
    """True if nothing but additions can have led to a commit, as the dataset's version proves.

    Each addition raises the minor number of the version, and anything else sets it back.
    """
    if expected.info is None:
        return False
    return int(expected.info["version"].split(".")[1]) >= number


def _log_of(plan: Plan, done: Mapping[Shard, DoneRecord], number: int) -> dict[str, Any]:
    """The entry of a commit whose manifest is lost, as far as anybody knows."""
    if plan.follows is None and number:  # it replaced what was there
        return LogEntry(commit=number, first=number, kind="").values()
    is_batch = plan.streams and plan.kind is not PlanKind.UNDO
    return LogEntry(
        commit=number,
        first=number,
        kind=PlanKind.BATCH.value if is_batch else plan.kind.value,
        added=sum(record.records for record in done.values()),
        rejected=sum(record.rejects for record in done.values()),
    ).values()


def _stated_positions(made: Remade, number: int) -> dict[str, Any] | None:
    """How far streams were read as of a lost commit, by the manifest after it or the one before.

    None if no sound manifest says it.
    """
    if after := _after(made.expected, number):
        positions = dict(after["positions"])
        for name, stream in (after.get("streams") or {}).items():
            if "from" in stream:
                positions[name] = stream["from"]
            if name and positions.get(name, "") is None:
                del positions[name]  # it was begun after
        return positions
    if made.expected.before(number) is None and number:
        with contextlib.suppress(DatasetError):  # an update keeps what came before it
            return dict(read_commit(made.expected.directory, number - 1).manifest["positions"])
    return None


def _streams(
    made: Remade, number: int, tallied: Mapping[Shard, tuple[list[Row], Tally]]
) -> dict[str, Any] | None:
    """How far the sources of streamed rows were read since the commit before, if they were.

    If no manifest says it, up to the newest row of each.  Where rows may be gone, or a table is
    lost, None stands for what nobody knows any more, and "" for every source.
    """
    # A source without an order is known by the positions of all its rows.
    if not made.tables.damaged.isdisjoint(tallied):
        return {"": {"to": None}}
    before = made.expected.before(number)
    stated = _stated_positions(made, number)
    if stated is not None:
        then = (before or {}).get("positions", {})
        moved = {name: {"to": to} for name, to in stated.items() if then.get(name, "") != to}
        return moved or None
    if before is None and number > 0 and not _only_added(made.expected, number):
        made.tables.note(Loss.POSITIONS, layout.manifest(number))
        return {"": {"to": None}}
    rows = [row for of_shard, _ in tallied.values() for row in of_shard]
    positions: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row[SOURCE_ID]):
        if source := row.get(POSITION_OF.source):
            positions.setdefault(source, []).append(row[POSITION_OF.position])
    streams = {source: {"to": position_after(source, of)} for source, of in positions.items()}
    return streams or None

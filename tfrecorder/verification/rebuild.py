"""Make tables and manifests again that are damaged or gone, as far as the records say.

A table follows from its shard's records and the lists of rows, a manifest from the tables of its
shards.  What comes out is proved by the public files: made again from it, each must be the same.
What nobody knows any more is noted in the newest manifest.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.commit_log import Log, LogEntry
from tfrecorder.format.documents import JsonObject, unseal
from tfrecorder.format.done_records import DoneRecord, DoneRecords
from tfrecorder.format.layout import NewFiles, Shard
from tfrecorder.format.losses import WORDS, Loss, both, lasting
from tfrecorder.format.manifest import FileSums, Manifest
from tfrecorder.format.plan import (
    Carried,
    Layout,
    Plan,
    PlanKind,
    PlannedRows,
    Streams,
    TakesBack,
)
from tfrecorder.format.plan_columns import BASE, POSITION_OF, REJECT_OF, spool_columns
from tfrecorder.output.directory import names_in
from tfrecorder.plan.next_commit import as_next_commit
from tfrecorder.reading.commits import Commit, commit_numbers, commits, read_commit
from tfrecorder.reading.row_numbers import counted_rows
from tfrecorder.reading.stream_positions import position_after
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.verification.expectation import (
    LISTS,
    Expectation,
    common_files,
    with_said_of,
)
from tfrecorder.verification.public_fields import (
    arrow_type,
    fields_and_options,
    planned_features,
    with_names,
)
from tfrecorder.verification.remade_tables import Tables, Tallied
from tfrecorder.writing.manifest import entries_of, manifest_of

_LOST_ALL = (
    "the names of columns of images, masks and boxes, and of the column of labels if there is only "
    "one, where records call them otherwise",
    "the earlier generations, and the options, which appends take over",
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
    options: dict[str, object] = field(default_factory=dict)
    files: NewFiles = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def remake(
    expected: Expectation,
    damaged: Collection[Shard],
    other: Collection[Shard],
    marks: Collection[str],
    kept: Collection[str],
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
    spooled = (commit.plan.rows.spooled for commit in expected.commits.values())
    tables.came_as_bytes |= any(spooled)
    for name in kept:
        tables.note(Loss.KEPT, name)
    left = [shard for shard in expected.shards if shard not in expected.done]
    for number in expected.numbers:
        before = made.expected.dataset_before(number)
        commit = expected.commits.get(number)
        if commit is None:
            shards = _shards_of_lost(made, number, left)
            left = [shard for shard in left if shard not in shards]
            plan, done, log_before = _plan_and_done(made, number, shards)
            sums = {file: FileSums.of(expected.read_whole(file)) for file in LISTS}
            manifest = manifest_of(plan, done, before, sums, log_before=log_before)
            manifest = manifest.with_commit(log=_log_of(plan, done, number)).as_read()
            tables.note(Loss.OPTIONS, layout.manifest(number))
        else:
            plan = _plan_of(made, commit)
            sums = dict(commit.dataset.lists)
            done = {shard: expected.done[shard] for shard in commit.own_shards}
            for shard in done:
                if shard in tables.damaged or shard in tables.other:
                    rows, tally = tables.tallied(shard, done[shard].rejects, plan)
                    done[shard] = tables.bound(plan, shard, rows, tally, done[shard])
            manifest = _made_again(commit.manifest, manifest_of(plan, done, before, sums))
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


def _plan_of(made: Remade, commit: Commit) -> Plan:
    """The plan of a sound manifest; without the marks that it names if these are lost."""
    plan = commit.plan
    if plan.carried.marks not in made.marks:
        return plan
    lost = {Loss.MARKS.value: [plan.carried.marks]}
    if commit.number == made.expected.note[0]:
        made.tables.note(Loss.MARKS, plan.carried.marks)
    else:  # who takes back what came after it would need them
        plan = plan.carrying(losses=both(plan.carried.losses, lost))
        words = (
            f"of {plan.carried.marks}: which rows were removed, if a later addition is taken back"
        )
        made.lost += [words] if words not in made.lost else []
    return plan.carrying(marks="")


def _made_again(old: Manifest, made: Manifest) -> Manifest:
    """A sound manifest after what it follows from was made again."""
    new = with_said_of(made.as_read(), old)
    if new.commit.replaced is None:  # nothing says any more what it replaced
        new = new.with_commit(replaced=old.commit.replaced)
    return old if replace(new, form=old.form) == old else new


def _take(made: Remade, commit: Commit, done: DoneRecords) -> None:
    """Take a manifest for that of its commit, and its done-records."""
    expected = made.expected
    if commit != expected.commits.get(commit.number):
        made.files[layout.manifest(commit.number)] = commit.manifest.to_json()
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
        losses = both(newest.plan.carried.losses, noted)
        _take(made, Commit(newest.number, newest.manifest.carrying(losses=losses)), {})
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
    ends: dict[str, int] = {}
    if after is not None:
        ends |= {split: state.shards for split, state in after.dataset.splits.items()}
        ends |= {split: own.first for split, own in after.commit.own.items()}
    return [
        shard
        for shard in left
        if shard.index < ends.get(shard.split, math.inf if after is None else 0)
        and made.tables.said.get(shard, 0) <= number
    ]


def _after(expected: Expectation, number: int) -> Manifest | None:
    """The next manifest that is sound; None if there is none."""
    later = (commit.manifest for n, commit in expected.commits.items() if n > number)
    return next(later, None)


def _plan_and_done(
    made: Remade, number: int, shards: Sequence[Shard]
) -> tuple[Plan, dict[Shard, DoneRecord], Log]:
    """The plan of a commit whose manifest is lost, its done-records, and its log, from its shards.

    It keeps the shards as they are: nothing says what was planned for each.
    """
    expected = made.expected
    tables = made.tables
    fields = made.tables.fields
    before = expected.before(number)
    after = _after(expected, number)
    tallied = _tallied(made, shards)
    rows = [(shard.split, row) for shard, (of, _) in tallied.items() for row in of]
    sound = [(split, row) for split, row in rows if not row.values.get(REJECT_OF.reason)]
    if expected.note[0] not in expected.commits:
        fields = tuple(with_names(expected, field, [row for _, row in sound]) for field in fields)
    values = {
        key.key: pa.array([row.values[key.key] for _, row in sound], arrow_type(key))
        for key in planned_features(fields)
    }
    splits = pd.Series([split for split, _ in sound], dtype=SPLIT_TYPE)
    digest = expected.note[1] if number == expected.note[0] else ""
    if after is not None and after.plan.commit == number + 1:
        digest = after.plan.follows.previous
    first = 0 if before is None else before.plan.carried.next_row or counted_rows(before.plan)
    bases = {str(row.values.get(BASE) or "") for _, row in rows}
    known = before or after
    options = dict(made.options if known is None else known.plan.options)
    if before is None:
        major, minor, _ = map(int, _stated_after(expected, after).split("."))
        left = (tables.said.get(s, 0) for s in expected.shards if s not in expected.done)
        end = math.inf if after is None else after.plan.commit
        additions = len({said for said in left if number < said < end})
        if after is not None and after.commit.own:
            additions += 1
        options["version"] = f"{major}.{minor - additions}.0"
    kind = PlanKind.CONVERSION if before is None else PlanKind.APPEND
    plan = Plan(
        rows=PlannedRows(
            count=len(rows),
            in_source=max([first, *(row.row + 1 for _, row in rows)]) - first,
            statistics=describe_columns(fields, values, splits, missing={}),
            base=bases.pop() if len(bases) == 1 else "",
            fingerprint="",
            streams=_streams(made, number, tallied),
            spooled=sum(any(map(row.values.get, spool_columns(row.values))) for _, row in rows),
        ),
        layout=Layout({}, {}),
        fields=fields,
        options=options,
        kind=kind if shards else PlanKind.UNDO,
        carried=Carried(_next_row(made, number)),
        stands_for=digest,
    )
    plan = as_next_commit(plan, before, first, adds=True)
    if before is not None and number - before.plan.commit > 1:  # it took back what came between
        version = f"{_stated_after(expected, after).partition('.')[0]}.0.0"
        plan = replace(plan, follows=TakesBack(**vars(plan.follows), version=version))
    log_before: Log = ()
    if before is None:
        plan, log_before = _begun(made, plan, number)
    indexes: dict[str, list[int]] = {}
    for shard in shards:
        indexes.setdefault(shard.split, []).append(shard.index)
    plan = replace(plan, commit=number).laid_out(
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
    return plan, done, log_before


def _stated_after(expected: Expectation, after: Manifest | None) -> str:
    """The version as of a manifest; without one, that of the dataset."""
    if after is not None:
        return after.dataset.stated
    return str((expected.info or {})["version"])


def _tallied(made: Remade, shards: Sequence[Shard]) -> dict[Shard, Tallied]:
    """The rows of the shards of a commit whose manifest is lost, as `Tables.tallied` gives them."""
    expected = made.expected
    tables = made.tables
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
    if after is not None and after.plan.carried.next_row and after.plan.adds:
        return after.plan.first_row
    stated = [made.tables.next_row]
    for before in commit_numbers(expected.directory):
        with contextlib.suppress(DatasetError, ValueError):
            if before < number:
                stated.append(read_commit(expected.directory, before).plan.carried.next_row)
    highest = max(stated)
    if expected.number_before(number) == number - 1 >= 0 or _only_added(expected, number):
        return highest
    # Rows that are gone may have had larger numbers, which nothing says any more.
    return (highest // _BEYOND + 1) * _BEYOND


#: So many row numbers are left out where those that were given are not known: a dataset has fewer.
_BEYOND = 10**9


def _begun(made: Remade, plan: Plan, number: int) -> tuple[Plan, Log]:
    """The plan of a commit that begins a chain, with what is known of what was before it.

    Returns:
        The plan, and of its manifest the log before it.
    """
    expected = made.expected
    tables = made.tables
    after = _after(expected, number)
    # It took over the newest marks, and the others went.
    marks = sorted(names_in(expected.directory, layout.REMOVED))
    marks = [name for name in marks if os.path.basename(name)[:5] <= f"{number:05d}"]
    if marks:
        try:
            unseal(expected.read(marks[-1]))
            plan = plan.carrying(marks=marks[-1])
        except (storage.UnreadableError, ValueError):
            tables.note(Loss.MARKS, marks[-1])
    elif after is None and number and _had_marks(made, number):
        tables.note(Loss.MARKS, layout.REMOVED)
    log_before: Log = ()
    if not number:
        return plan, log_before
    with contextlib.suppress(DatasetError):  # an update keeps what came before it
        last = read_commit(expected.directory, number - 1)
        every = commits(expected.directory, last)
        losses = lasting(last.plan.carried.losses)
        plan = plan.carrying(history=last.dataset.history, losses=losses)
        log_before = entries_of(every)
        tables.note(Loss.KEPT, layout.BEFORE)
    if not log_before and after is None:
        tables.note(Loss.HISTORY, layout.manifest(number))
    return plan, log_before


def _had_marks(made: Remade, number: int) -> bool:
    """True if rows may have been removed before a commit, of which nothing says more any more."""
    expected = made.expected
    if storage.is_folder(expected.path(layout.REMOVED)):
        return True
    return not _only_added(expected, number) and {*expected.shards} <= made.tables.damaged


def _only_added(expected: Expectation, number: int) -> bool:
    """True if nothing but additions can have led to a commit, as the dataset's version proves.

    Each addition raises the minor number of the version, and anything else sets it back.
    """
    if expected.info is None:
        return False
    return int(expected.info["version"].split(".")[1]) >= number


def _log_of(plan: Plan, done: DoneRecords, number: int) -> LogEntry:
    """The entry of a commit whose manifest is lost, as far as anybody knows."""
    if not plan.adds and number:  # it replaced what was there
        return LogEntry(commit=number, first=number, kind="")
    is_batch = plan.rows.streams and plan.kind is not PlanKind.UNDO
    return LogEntry(
        commit=number,
        first=number,
        kind=PlanKind.BATCH.value if is_batch else plan.kind.value,
        added=sum(record.records for record in done.values()),
        rejected=sum(record.rejects for record in done.values()),
    )


def _stated_positions(made: Remade, number: int) -> JsonObject | None:
    """How far streams were read as of a lost commit, by the manifest after it or the one before.

    None if no sound manifest says it.
    """
    if after := _after(made.expected, number):
        positions = dict(after.dataset.positions)
        for name, stream in (after.plan.rows.streams or {}).items():
            if "from" in stream:
                positions[name] = stream["from"]
            if name and positions.get(name, "") is None:
                del positions[name]  # it was begun after
        return positions
    if made.expected.before(number) is None and number:
        with contextlib.suppress(DatasetError):  # an update keeps what came before it
            return dict(read_commit(made.expected.directory, number - 1).dataset.positions)
    return None


def _streams(made: Remade, number: int, tallied: Mapping[Shard, Tallied]) -> Streams | None:
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
        then = {} if before is None else before.dataset.positions
        moved = {name: {"to": to} for name, to in stated.items() if then.get(name, "") != to}
        return moved or None
    if before is None and number > 0 and not _only_added(made.expected, number):
        made.tables.note(Loss.POSITIONS, layout.manifest(number))
        return {"": {"to": None}}
    rows = [row for of_shard, _ in tallied.values() for row in of_shard]
    positions: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row.row):
        if row.values.get(POSITION_OF.source):
            of_source = positions.setdefault(row.text(POSITION_OF.source), [])
            of_source.append(row.text(POSITION_OF.position))
    streams = {source: {"to": position_after(source, of)} for source, of in positions.items()}
    return streams or None

"""Make tables and manifests again that are damaged or gone, as far as the records say.

A table follows from its shard's records and the lists of rows.  If any manifest is lost, the newest
one is made again as that of a commit that wrote all shards: from the manifests that are sound, and
from the records of the other shards.  What comes out is proved by the public files: made again from
it, each must be the same.  What nobody knows any more is noted in the newest manifest.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import unseal
from tfrecorder.format.done_records import DoneRecord, DoneRecords, add_up
from tfrecorder.format.layout import (
    BASE,
    NOWHERE,
    POSITION_OF,
    REJECT_OF,
    NewFiles,
    Shard,
    source_of,
    spool_columns,
)
from tfrecorder.format.manifest import (
    FileSums,
    Generation,
    Log,
    LogEntry,
    Loss,
    Manifest,
    both_losses,
    lasting_losses,
    losses_in_words,
)
from tfrecorder.format.plan import (
    OF_A_SOURCE,
    Carried,
    Layout,
    Plan,
    PlanKind,
    PlannedRows,
    Rewrites,
    Streams,
)
from tfrecorder.output.directory import names_in
from tfrecorder.plan.history import APPENDED
from tfrecorder.reading.commits import Commit, commits, entries_of, read_commit
from tfrecorder.reading.merged_rows import position_after
from tfrecorder.schema.fields import Fields, image_fields
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.schema.statistics import Statistics, merged
from tfrecorder.validation.values import describe_columns
from tfrecorder.verification.expectation import LISTS, Expectation, common_files
from tfrecorder.verification.public_fields import (
    arrow_type,
    known_fields,
    planned_features,
    public_options,
    with_names,
)
from tfrecorder.verification.remade_tables import Tables, Tallied
from tfrecorder.writing.manifest import earlier_of, extended, manifest_of
from tfrecorder.writing.public_files import DATASET_VERSION

#: So many row numbers are left out where those that were given are not known: a dataset has fewer.
_BEYOND = 10**9


@dataclass
class Remade:
    """What is made again.

    Attributes:
        marks: the files with marks of removed rows that are damaged or gone.
        files: the bytes of tables, indexes and manifests, by name, in the order to write them.
        lost: what is not known any more, in words.
    """

    marks: frozenset[str]
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
    made = Remade(frozenset(marks))
    if not (damaged or other or marks or kept or expected.lost):
        return made
    known = _newest_known(expected)
    fields = known_fields(expected, known)
    tables = Tables(expected.directory, fields, {*damaged}, {*other})
    if damaged or other or expected.lost:
        tables.read(expected.shards)
    spooled = (commit.plan.rows.spooled for commit in expected.commits.values())
    tables.came_as_bytes |= any(spooled)
    for name in kept:
        tables.note(Loss.KEPT, name)
    again = {}
    for commit in expected.commits.values():
        again[commit.number] = _made_again(expected, tables, commit, made)
    if expected.lost:
        again = {expected.note[0]: _WholeDataset(expected, tables, again, known).manifest()}
    newest = again[expected.note[0]]
    if tables.noted:
        losses = both_losses(newest.plan.carried.losses, tables.noted)
        again[expected.note[0]] = newest.carrying(losses=losses)
    _write_down(expected, tables, again, made)
    return made


def _newest_known(expected: Expectation) -> Commit | None:
    """The newest commit whose manifest is sound; None if nobody knows any."""
    number = expected.note[0]
    if expected.commits:
        return expected.commits[max(expected.commits)]
    with contextlib.suppress(DatasetError):  # an update keeps what it replaced
        return read_commit(expected.directory, number - 1) if number else None
    return None


def _made_again(
    expected: Expectation,
    tables: Tables,
    commit: Commit,
    made: Remade,
) -> Manifest:
    """A sound manifest, with the sums of tables that were made again, and without lost marks."""
    manifest = commit.manifest
    done = dict(commit.done)
    for shard in commit.own_shards:
        if shard in tables.damaged or shard in tables.other:
            rows, tally = tables.tallied(shard, done[shard].rejects, commit.plan)
            done[shard] = tables.bound(commit.plan, shard, rows, tally, done[shard])
    if done != commit.done:
        manifest = replace(manifest, form=Manifest.form)
        manifest = manifest.with_commit(done_values=[one.values() for one in done.values()])
    lost = commit.plan.carried.marks
    if lost not in made.marks:
        return manifest
    if commit.number == expected.note[0] or expected.lost:
        tables.note(Loss.MARKS, lost)
    else:  # who takes back what came after it would need them
        losses = both_losses(commit.plan.carried.losses, {Loss.MARKS.value: [lost]})
        manifest = manifest.carrying(losses=losses)
        words = f"of {lost}: which rows were removed, if a later addition is taken back"
        made.lost += [words] if words not in made.lost else []
    return manifest.carrying(marks="")


def _write_down(
    expected: Expectation,
    tables: Tables,
    again: Mapping[int, Manifest],
    made: Remade,
) -> None:
    """Put what was made again into files, and what is lost into words."""
    manifests = {}
    for number, manifest in again.items():
        stood = expected.commits.get(number)
        if stood is None or manifest != stood.manifest:
            manifests[layout.manifest(number)] = manifest.to_json()
    # A table that a manifest binds is still damaged by its words after a kill.  What is lost is
    # noted before all others, and before manifests: they would no longer tell.
    bound = {file for shard in expected.done for file in shard.files}
    first = {file: data for file, data in tables.files.items() if file in bound}
    newest = layout.manifest(expected.note[0])
    # Not again, if it was written before a kill.
    is_noted = bool(tables.noted) and newest in manifests
    noted = {newest: manifests[newest]} if is_noted else {}
    made.files = {**first, **noted, **tables.files, **manifests}
    made.lost[:0] = losses_in_words(tables.noted)
    if expected.lost:
        last = Commit(expected.note[0], again[expected.note[0]])
        now = replace(expected, numbers=[last.number], commits={last.number: last})
        for file, data in common_files(replace(now, done=last.done)).items():
            if (file != layout.COMMIT or expected.info) and expected.read(file) != data:
                raise ValueError(f"{file} says something else than the records")


class _WholeDataset:
    """A dataset some manifest of which is lost, as one commit that wrote all its shards."""

    def __init__(
        self,
        expected: Expectation,
        tables: Tables,
        again: Mapping[int, Manifest],
        known: Commit | None,
    ) -> None:
        """
        Args:
            again: the manifests that are sound, by number.
            known: as `_newest_known` gives it.
        """
        self._expected = expected
        self._tables = tables
        self._again = again
        self._number = expected.note[0]
        self._last = again.get(self._number)
        self._known = known
        #: Whether all records of the known commit are still there, or an update replaced some.
        self._stands = bool(again)
        # The rest is read of the shards whose manifests are lost: their rows, records first, and
        # the positions in streams by source, in the order of the rows.
        self._tallied = self._read_shards()
        self._rows = [row for of_shard, _ in self._tallied.values() for row in of_shard]
        self._read_to: dict[str, list[str]] = {}
        for row in sorted(self._rows, key=lambda row: row.row):
            if row.values.get(POSITION_OF.source):
                of_source = self._read_to.setdefault(row.text(POSITION_OF.source), [])
                of_source.append(row.text(POSITION_OF.position))

    def manifest(self) -> Manifest:
        """The manifest of the one commit."""
        shards: dict[Shard, DoneRecord] = {}
        for manifest in self._again.values():
            shards |= manifest.commit.done
        for shard, (_, tally) in self._tallied.items():
            shards[shard] = tally.done_record("", shard)
        plan = self._plan(shards)
        for shard, (rows, tally) in self._tallied.items():
            shards[shard] = self._tables.bound(plan, shard, rows, tally, shards[shard])
        own = layout.shards_of(plan.own)
        done = {shard: replace(shards[shard], plan=plan.digest) for shard in own}
        if self._last is None:
            lists = {file: FileSums.of(self._expected.read_whole(file)) for file in LISTS}
        else:
            lists = dict(self._last.dataset.lists)
        made = manifest_of(plan, done, None, lists, log_before=self._log_before())
        made = made.with_commit(log=self._entry(done))
        if self._known is not None and self._stands:
            then = self._known.dataset
            contents = then.contents
            if self._last is None:
                contents = extended(contents, {shard: done[shard] for shard in self._tallied})
            made = made.with_dataset(
                since=then.since,
                contents=contents,
                earlier=self._earlier(),
                abandoned=then.abandoned,
                ends_undo=then.ends_undo if self._last is not None else then.is_updated,
                stated_by_card=then.stated_by_card,
            )
        return made.as_read()

    def _read_shards(self) -> dict[Shard, Tallied]:
        """Read the shards whose manifests are lost."""
        tables = self._tables
        shards = [shard for shard in self._expected.shards if shard not in self._expected.done]
        # Nothing says which of several damaged tables held which reject.
        unknown = [shard for shard in shards if shard in tables.damaged]
        tallied = {}
        for shard in shards:
            rejects = len(tables.rejects) if [shard] == unknown[-1:] else 0
            tallied[shard] = tables.tallied(shard, rejects)
        return tallied

    def _plan(self, shards: Mapping[Shard, DoneRecord]) -> Plan:
        """The plan of the one commit, which keeps all shards as they are."""
        expected = self._expected
        bases = set()
        spooled = 0
        top = self._tables.next_row
        for row in self._rows:
            bases.add(str(row.values.get(BASE) or ""))
            spooled += any(map(row.values.get, spool_columns(row.values)))
            top = max(top, row.row + 1)
        revisions: dict[str, int] = {}
        for manifest in self._again.values():
            rows = manifest.plan.rows
            bases.add(rows.base if manifest.plan.kind in OF_A_SOURCE else "")
            spooled += rows.spooled
            revisions |= manifest.plan.layout.revisions
        revisions |= {shard.split: shard.revision for shard in shards}
        fields, statistics = self._fields_and_statistics()
        counts = Counter(shard.split for shard in shards)
        plan = Plan(
            rows=PlannedRows(
                count=sum(record.rows for record in shards.values()),
                in_source=top,
                statistics=statistics,
                base=bases.pop() if len(bases) == 1 else "",
                fingerprint="",
                streams=self._streams(),
                spooled=spooled,
            ),
            layout=Layout(
                {},
                {},
                kept={split: list(range(count)) for split, count in counts.items()},
                revisions={split: number for split, number in revisions.items() if number != 1},
            ),
            fields=fields,
            options=self._options(),
            commit=self._number,
            carried=self._carried(top),
            stands_for=expected.note[1],
        )
        if self._known is not None and self._stands:
            previous = self._known.digest
            if self._last is not None:
                plan = replace(plan, stands_for=previous)
                previous = self._known.plan.follows.previous
            plan = replace(plan, follows=Rewrites(previous, renumbers=False))
        return plan

    def _options(self) -> dict[str, object]:
        """The options of the commit, with the version that the dataset states."""
        tables = self._tables
        for number in self._expected.lost:
            tables.note(Loss.OPTIONS, layout.manifest(number))
        if self._known is None:
            tables.note(Loss.NAMES, layout.manifest(self._number))
            options = public_options(self._expected)
        else:
            options = dict(self._known.plan.options)
        if self._last is not None:
            stated = self._last.dataset.stated
        else:
            stated = (self._expected.info or {})["version"]
        if stated != (options.get("version") or DATASET_VERSION):
            options["version"] = stated
        return options

    def _fields_and_statistics(self) -> tuple[Fields, Statistics]:
        """The columns, with the names of their classes, and the statistics of their values."""
        tables = self._tables
        fields = tables.fields
        splits = []
        sound = []
        for shard, (rows, _) in self._tallied.items():
            of_records = [row for row in rows if not row.values.get(REJECT_OF.reason)]
            splits += [shard.split] * len(of_records)
            sound += of_records
        if self._last is None:
            fields = tuple(with_names(self._expected, field, sound) for field in fields)
        values = {
            key.key: pa.array([row.values[key.key] for row in sound], arrow_type(key))
            for key in planned_features(fields)
        }
        of_rows = describe_columns(fields, values, pd.Series(splits, dtype=SPLIT_TYPE), missing={})
        known = [manifest.plan.rows.statistics for manifest in self._again.values()]
        return fields, merged([*known, of_rows])

    def _carried(self, top: int) -> Carried:
        """What goes with the dataset.

        Args:
            top: the number after the largest of a row.
        """
        known = self._known
        tables = self._tables
        if known is None:
            if self._number:
                tables.note(Loss.HISTORY, layout.manifest(self._number))
                tables.note(Loss.GENERATIONS, layout.COMMITS)
            return Carried(self._next_row(top), self._newest_marks())
        carried = self._again[known.number].plan.carried if self._stands else known.plan.carried
        if self._last is not None:
            return replace(carried, next_row=carried.next_row or top)
        history = known.dataset.history
        if self._stands:
            added = sum(tally.records for _, tally in self._tallied.values())
            origin = ", ".join(self._read_to) or APPENDED
            origins = dict(history.origins)
            origins[origin] = origins.get(origin, 0) + added
            history = replace(history, origins=origins)
        else:
            tables.note(Loss.KEPT, layout.BEFORE)
        return Carried(
            next_row=self._next_row(max(top, carried.next_row)),
            marks=self._newest_marks(),
            history=history,
            losses=lasting_losses(carried.losses),
        )

    def _next_row(self, highest: int) -> int:
        """The number that the next new row gets.

        Args:
            highest: the largest of what rows and manifests say.
        """
        if self._is_next_addition() or self._only_added():
            return highest
        # Rows that are gone may have had larger numbers, which nothing says any more.
        return (highest // _BEYOND + 1) * _BEYOND

    def _is_next_addition(self) -> bool:
        """True if only the newest manifest is lost, and that of an addition."""
        known = self._known
        return self._stands and known is not None and known.number == self._number - 1

    def _only_added(self) -> bool:
        """True if nothing but additions can have led here, as the dataset's version proves.

        Each addition raises the minor number of the version, and anything else sets it back.
        """
        info = self._expected.info
        return info is not None and int(info["version"].split(".")[1]) >= self._number

    def _newest_marks(self) -> str:
        """The newest file with marks of what was removed; "" if there is none."""
        expected = self._expected
        tables = self._tables
        # A later one is of an operation under way.
        last = f"{self._number:05d}"
        files = sorted(names_in(expected.directory, layout.REMOVED))
        files = [name for name in files if os.path.basename(name)[:5] <= last]
        if files:
            try:
                unseal(expected.read(files[-1]))
                return files[-1]
            except (storage.UnreadableError, ValueError):
                tables.note(Loss.MARKS, files[-1])
        elif self._number and not self._stands:
            had_some = storage.is_folder(expected.path(layout.REMOVED))
            all_lost = {*expected.shards} <= tables.damaged or self._was_repaired()
            if had_some or (all_lost and not self._only_added()):
                tables.note(Loss.MARKS, layout.REMOVED)
        return ""

    def _was_repaired(self) -> bool:
        """True if a table was made again before, so that the lost manifest may have said more.

        A worker writes down what it read for a record; from a record alone it is not all known.
        """
        for row in self._rows:
            if row.values.get(REJECT_OF.reason):
                continue
            for image in image_fields(self._tables.fields):
                of_file = source_of(image)
                name = str(row.values.get(image.spool_key) or "")
                starts = (row.text(BASE), row.text(image.uri_key))
                is_on_disk = not name and all(map(storage.is_local, starts))
                if name == NOWHERE or row.values.get(of_file.bytes) is None:
                    return True
                if is_on_disk and row.values.get(of_file.modified) is None:
                    return True
        return False

    def _streams(self) -> Streams | None:
        """How far streams were read.

        If no manifest says it, up to the newest row of each.  Where rows may be gone, or a table is
        lost, None stands for what nobody knows any more, and "" for every source: one without an
        order is known by the positions of all its rows.
        """
        known = self._known
        positions = {} if known is None else dict(known.dataset.positions)
        is_stated = self._last is not None or (known is not None and not self._stands)
        if known is None and self._number and not self._only_added():
            self._tables.note(Loss.POSITIONS, layout.manifest(self._number))
            positions = {"": None}
        elif not is_stated:
            for source, of_rows in self._read_to.items():
                positions[source] = position_after(source, of_rows)
        if not self._tables.damaged.isdisjoint(self._tallied):
            positions = {**positions, "": None} if is_stated else {"": None}
        return {source: {"to": to} for source, to in positions.items()} or None

    def _log_before(self) -> Log:
        """What was done before the newest commit, as far as manifests say it."""
        if self._known is not None and not self._stands:
            return entries_of(commits(self._expected.directory, self._known))
        sound = []
        for number, manifest in self._again.items():
            if manifest != self._last:
                sound.append(Commit(number, manifest))
        return entries_of(sound)

    def _entry(self, done: DoneRecords) -> LogEntry:
        """What the newest commit did, as far as anybody knows."""
        if self._last is not None:
            return self._last.commit.entry
        number = self._number
        entry = LogEntry(
            commit=number,
            first=number,
            kind="",
        )
        if number and not self._is_next_addition():
            return entry
        kind = PlanKind.APPEND if number else PlanKind.CONVERSION
        new = add_up(done[shard] for shard in self._tallied)
        return replace(
            entry,
            kind=PlanKind.BATCH.value if self._read_to else kind.value,
            added=new.records,
            rejected=new.rejects,
        )

    def _earlier(self) -> dict[int, Generation]:
        """The generations before it that can still be read: those whose manifests are sound."""
        sound = [Commit(number, one) for number, one in self._again.items()]
        earlier = earlier_of(sound)
        earlier.pop(self._number, None)
        for number in {*self._expected.lost} - {self._number}:
            self._tables.note(Loss.GENERATIONS, layout.manifest(number))
        return earlier

"""Make tables and manifests again that are damaged or gone, as far as the records say.

A table follows from its shard's records and the lists of rows, a manifest from the tables of its
shards.  What comes out is proved by the public files: made again from it, each must be the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import google_crc32c
import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import seal
from tfrecorder.format.example import parse_example
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import (
    BASE,
    POSITION_OF,
    RECORD_OF,
    REJECT_OF,
    source_of,
)
from tfrecorder.format.tfrecord import frame, read_records
from tfrecorder.images.check import CheckedImage, check_image
from tfrecorder.images.rejects import Reject
from tfrecorder.plan.next_commit import as_next_commit
from tfrecorder.plan.plan import Plan, PlanKind, PlannedRow
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.done_records import DoneRecord
from tfrecorder.reading.row_lists import read_row_list
from tfrecorder.reading.row_numbers import counted_rows
from tfrecorder.reading.shard_tables import opened_rows, read_columns
from tfrecorder.reading.stream_positions import position_after
from tfrecorder.schema import kinds
from tfrecorder.schema.fields import Field, primary_file
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
    empty_value,
    fields_and_options,
    planned_features,
    value_of,
    with_names,
)
from tfrecorder.writing.changing import loaded
from tfrecorder.writing.manifest import manifest_of, sums_of
from tfrecorder.writing.outcomes import COMMIT, OfFile
from tfrecorder.writing.rows import planned_reject
from tfrecorder.writing.shards import Tally

_LOST_OF_TABLES = (
    "of {}: the values of rejected rows, positions in streams, and the sizes and checksums of the "
    "images' files"
)
_LOST_OF_COMMITS = "of {}: the source, its own options, and how often images were read again"
_LOST_ALL = (
    "the names of columns of images, masks and boxes, and of the column of labels if there is only "
    "one, where records call them otherwise",
    "the commits before it, for `at=`, and the options, which `tfrecorder.append` takes over",
    "class names with white space at an end that no record has: they are as in the labels file",
)
_LOST_STREAMS = "how far streams were read: none can be continued in this directory"

#: A row of a table, by column.
Row = dict[str, Any]


@dataclass
class Remade:
    """What is made again, and what that takes.

    Attributes:
        expected: with the manifests as they are now.
        damaged: the shards whose tables are damaged.
        said: the commit that each of the other tables names.
        fields: the columns of the dataset.
        options: of the commits that lost theirs.
        rejects: the rows of `rejects.csv` that no table holds.
        warnings: of suspects, by the number of the row.
        files: the bytes of the tables, indexes and manifests, by name.
        lost: what is not known any more, in words.
    """

    expected: Expectation
    damaged: set[Shard]
    said: dict[Shard, int] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    rejects: list[Sequence[str]] = field(default_factory=list)
    warnings: dict[int, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def remake(expected: Expectation, damaged: Collection[Shard]) -> Remade:
    """Make damaged tables of sound shards again, and lost manifests, whose shards must be sound.

    Args:
        damaged: the shards whose tables are damaged.

    Raises:
        DatasetError, UnreadableError, LookupError, TypeError, ValueError: what is left does not
            say enough.
    """
    made = Remade(expected, {*damaged})
    if not damaged and not expected.lost:
        return made
    made.fields, made.options = fields_and_options(expected)
    _read_tables(made)
    left = [shard for shard in expected.shards if shard not in expected.done]
    for number in expected.numbers:
        before, commit = made.expected.before(number), expected.commits.get(number)
        if commit is None:
            shards = _shards_of_lost(made, number, left)
            left = [shard for shard in left if shard not in shards]
            plan, done = _plan_and_done(made, number, shards)
            sums = {file: sums_of(expected.read_whole(file)) for file in LISTS}
        else:
            plan, sums = Plan.of(commit.manifest), commit.manifest["lists"]
            done = {s: expected.done[s] for s in commit.own_shards}
            for shard in made.damaged & {*done}:
                rows, tally = _tallied(made, shard, done[shard].rejects)
                table = _table(made, plan, shard, rows, tally)
                crcs = {**done[shard].beside, "table": google_crc32c.value(table)}
                sizes = {"index": len(tally.outcomes.index()), "table": len(table)}
                done[shard] = replace(done[shard], beside=crcs, beside_bytes=sizes)
        manifest = json.loads(json.dumps(manifest_of(plan, done, before, sums)))
        if commit is not None:
            said = [name for name in said_by_commit(plan) if name in commit.manifest]
            manifest |= {name: commit.manifest[name] for name in said}
        commit = Commit(number, {**(commit.manifest if commit else {}), **manifest})
        made.expected = replace(
            made.expected,
            commits=dict(sorted({**made.expected.commits, number: commit}.items())),
            done={**made.expected.done, **done},
        )
        made.files[layout.manifest(number)] = seal(commit.manifest)
    tables = [shard.table for shard in expected.shards if shard.table in made.files]
    lost = [f"commit {number}" for number in expected.numbers if number not in expected.commits]
    for words, names, what in (
        (_LOST_OF_COMMITS, lost, "commit"),
        (_LOST_OF_TABLES, tables, "table"),
    ):
        if names:
            of = names[0] if len(names) == 1 else counted(len(names), what)
            made.lost.insert(0, words.format(of))
    for file, data in common_files(made.expected).items() if expected.lost else ():
        if (file != layout.COMMIT or expected.info) and expected.read(file) != data:
            raise ValueError(f"{file} says something else than the records")
    return made


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
        and made.said.get(shard, 0) <= number
    ]


def _after(expected: Expectation, number: int) -> Mapping[str, Any]:
    """The next manifest that is sound; empty if there is none."""
    later = (commit.manifest for n, commit in expected.commits.items() if n > number)
    return next(later, {})


def _read_tables(made: Remade) -> None:
    """Find the tables that cannot be read, and the rows of the lists that these must have held."""
    directory, rejected = made.expected.directory, set[int]()
    columns = [SOURCE_ID, REJECT_OF.reason]
    for shard in {*made.expected.shards} - made.damaged:
        try:
            with opened_rows(directory, shard.table) as file:
                made.said[shard] = int((file.schema_arrow.metadata or {}).get(COMMIT.encode(), 0))
                pairs = zip(*file.read().select(columns).to_pydict().values(), strict=True)
                rejected.update(number for number, reason in pairs if reason)
        except DatasetError:
            made.damaged.add(shard)
    with contextlib.suppress(DatasetError):  # then these are lost too
        suspects = read_row_list(directory, layout.SUSPECTS)
        made.warnings = {int(row[0]): row[2] for row in suspects}
        listed = read_row_list(directory, layout.REJECTS)
        made.rejects = [row for row in listed if int(row[0]) not in rejected]


def _tallied(made: Remade, shard: Shard, rejects: int) -> tuple[list[Row], Tally]:
    """The rows of a shard, records first, and what became of them.

    Args:
        rejects: how many rejected rows a damaged table held.

    Raises:
        ValueError: a record is damaged, or of another row than in the table.
    """
    fields, stands = made.fields, shard not in made.damaged
    images = [field for field in fields if isinstance(field.kind, kinds.Image)]
    wanted, first = list(planned_features(fields)), primary_file(fields)
    rows_of_table: list[Row] = []
    if stands:
        directory = made.expected.directory
        table = read_columns(directory, shard.table, lambda schema: schema.names)
        rows_of_table = table.to_pylist()
    rejected = [row for row in rows_of_table if row[REJECT_OF.reason]]
    sound = iter([row for row in rows_of_table if not row[REJECT_OF.reason]])
    other = ValueError(f"{shard.table} is not of the records of {shard.file}")
    tally, rows = Tally(fields, lambda rows: None, math.inf), []
    path = made.expected.path(shard.file)
    with storage.local_copy(path) as copy, storage.open_seekable(copy) as file:
        for data in read_records(file):
            record = parse_example(data)
            number = int(bytes(record[SOURCE_ID][0]))
            row: Row = next(sound, {}) if stands else {SOURCE_ID: number}
            if row.get(SOURCE_ID) != number:
                raise other
            if not stands:
                row |= {key.key: value_of(key, list(record[key.key])) for key in wanted}
                row[RECORD_OF.warning] = made.warnings.get(number, "")
            warning = row[RECORD_OF.warning]
            outcome = loaded(PlannedRow(number, "", row), frame([data]), record, images, warning)
            if not stands:
                outcome = outcome._replace(sources={k: _source(i) for k, i in outcome.images})
            sizes = [row.get(source_of(field).bytes) or 0 for field in fields]
            tally.add_record(outcome._replace(input_bytes=sum(sizes) or outcome.input_bytes))
            rows.append(row)
    if next(sound, None) is not None:
        raise other
    if not stands:
        count = rejects or int(not rows)  # no shard was planned without a row
        for text, uri, stage, reason in made.rejects[:count]:
            row = {key.key: empty_value(key) for key in wanted} | {SOURCE_ID: int(text)}
            row |= dict(zip(REJECT_OF, (stage, reason), strict=True))
            rejected.append(row | ({first.uri_key: uri} if first else {}))
        del made.rejects[:count]
    for row in rejected:
        outcome_of = planned_reject(PlannedRow(row[SOURCE_ID], "", row))
        assert outcome_of is not None
        tally.add_reject(outcome_of)
    return [*rows, *rejected], tally


def _source(image: CheckedImage) -> OfFile:
    """What an image says of its file: its size, and what it looks like."""
    source = OfFile(height=image.height, width=image.width)
    with contextlib.suppress(Reject):  # raw pixels
        most = image.height * image.width
        look = check_image(image.data, max_pixels=most, fingerprints=True).look
        source = source._replace(look=look)
    return source


def _table(made: Remade, plan: Plan, shard: Shard, rows: Sequence[Row], tally: Tally) -> bytes:
    """The bytes of a shard's table, which is made again if it is damaged."""
    if shard not in made.damaged:
        return made.expected.read(shard.table)
    types = {SOURCE_ID: pa.int64()} | {
        key.key: arrow_type(key) for key in planned_features(made.fields)
    }
    types |= dict.fromkeys(POSITION_OF if plan.streams else (), pa.large_string())
    # A position that is not known is "": of each source, one row at least says so.
    for row, source in zip(rows, itertools.cycle(plan.streams or [""]), strict=False):
        row |= dict(zip(POSITION_OF, (source, ""), strict=True))
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
    made.files[shard.table] = tally.outcomes.table(plan, pa.table(columns))
    return made.files[shard.table]


def _plan_and_done(
    made: Remade, number: int, shards: Sequence[Shard]
) -> tuple[Plan, dict[Shard, DoneRecord]]:
    """The plan of a commit whose manifest is lost, and its done-records, from its shards.

    It keeps the shards as they are: nothing says what was planned for each.
    """
    expected, fields = made.expected, made.fields
    before, after = expected.before(number), _after(expected, number)
    # Nothing says which of several damaged tables held which reject; some know how many they had.
    counted_shards = [s for s in made.damaged if s in expected.done and s.table not in made.files]
    others = sum(expected.done[shard].rejects for shard in counted_shards)
    pending = {shard for shard in made.damaged if shard not in expected.done}
    tallied = {}
    for shard in shards:
        pending.discard(shard)
        tallied[shard] = _tallied(made, shard, 0 if pending else len(made.rejects) - others)
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
        left = (made.said.get(s, 0) for s in expected.shards if s not in expected.done)
        between = {said for said in left if number < said < after.get("commit", math.inf)}
        options["version"] = f"{major}.{minor - bool(after.get('own')) - len(between)}.0"
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
        kind=PlanKind.CONVERSION if before is None else PlanKind.APPEND,
        streams=_streams(made, tallied),
        stands_for=digest,
    )
    plan = as_next_commit(plan, before, first, adds=True)
    if before is not None and number - before["commit"] > 1:  # it took back what came between
        stated = (after or {"stated": (expected.info or {})["version"]})["stated"]
        version = f"{stated.partition('.')[0]}.0.0"
        plan = replace(plan, follows={**(plan.follows or {}), "version": version})
    if before is None:  # it took over the newest marks, and the others went
        marks = storage.names(expected.path(layout.REMOVED))
        names = (f"{layout.REMOVED}/{name}" for name in marks if name[:5] <= f"{number:05d}")
        plan = replace(plan, removed=max(names, default=""))
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
        made.files[shard.index_file] = index = tally.outcomes.index()
        table = _table(made, plan, shard, of_shard, tally)
        done[shard] = replace(
            tally.done_record(plan.digest, shard),
            beside={"index": google_crc32c.value(index), "table": google_crc32c.value(table)},
            beside_bytes={"index": len(index), "table": len(table)},
        )
    made.lost += [_LOST_STREAMS] if plan.streams and "" in plan.streams else []
    made.lost += _LOST_ALL if not expected.commits else ()
    return plan, done


def _streams(
    made: Remade, tallied: Mapping[Shard, tuple[list[Row], Tally]]
) -> dict[str, Any] | None:
    """How far the sources of streamed rows were read: up to the newest row of each.

    Where a table is lost, None stands for what nobody knows any more, and "" for every source.
    """
    if not made.damaged.isdisjoint(tallied):
        return {"": {"to": None}}
    rows = [row for of_shard, _ in tallied.values() for row in of_shard]
    positions: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: row[SOURCE_ID]):
        if source := row.get(POSITION_OF.source):
            positions.setdefault(source, []).append(row[POSITION_OF.position])
    streams = {source: {"to": position_after(source, of)} for source, of in positions.items()}
    return streams or None

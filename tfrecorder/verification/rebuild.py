"""Make tables and manifests again that are damaged or gone, as far as the records say.

A table follows from its shard's records and the lists of rows, a manifest from the tables of its
shards.  What comes out is proved by the public files: made again from it, each must be the same.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import google_crc32c
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.balanced_parts import balanced_part
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.documents import parse, seal
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
from tfrecorder.output.done_records import DoneRecord
from tfrecorder.plan.plan import Plan, PlanKind, PlannedRow, rows_of
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.row_lists import read_row_list
from tfrecorder.reading.shard_tables import read_columns, types_of
from tfrecorder.schema.fields import Field, class_field, primary_image
from tfrecorder.schema.keys import SOURCE_ID, Feature
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.verification.common_files import LISTS, common_files
from tfrecorder.verification.expectation import Expectation
from tfrecorder.verification.public_fields import (
    arrow_type,
    planned_features,
    public_fields,
    public_options,
    with_names,
)
from tfrecorder.writing.copying import loaded
from tfrecorder.writing.manifest import manifest_of, sums_of
from tfrecorder.writing.outcomes import index_of, table_of
from tfrecorder.writing.rows import planned_reject
from tfrecorder.writing.shards import Tally

_LOST_TABLE = (
    "{}: of rejected rows the values and places, and the sizes and CRC32Cs of the images' files"
)
_LOST_POSITIONS = (
    "{}: the positions of its rows in their streams; those of files in a folder, or of another "
    "source without an order, cannot be continued"
)
_LOST_MANIFEST = "commit {}: its source, its own options, and how often images were read again"
_LOST_ADJACENT = "which of the commits {} wrote which shard: the first has them all"
_LOST_ALL = (
    "the columns' own names where the records have others: images, masks, boxes, an only label",
    "the options, which `tfrecorder.append` takes over: give it yours",
    "where images with relative uris are: a shard damaged later needs `base`",
    "class names with white space at an end that no record has: they are as in the labels file",
)
_LOST_STREAMS = "how far streams were read: none can be continued in this directory"

#: A row of a table, by column.
Row = dict[str, Any]


@dataclass
class Remade:
    """What was made again.

    Attributes:
        expected: with the manifests as they are now.
        files: their bytes, and those of tables and indexes, by name.
        lost: what is not known any more, in words.
    """

    expected: Expectation
    files: dict[str, bytes] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def remake(expected: Expectation, tables: Collection[Shard]) -> Remade:
    """Make damaged tables of sound shards again, and lost manifests, whose shards must be sound.

    Args:
        tables: the shards whose tables are damaged.

    Raises:
        DatasetError, UnreadableError, LookupError, TypeError, ValueError: what is left does not
            say enough.
    """
    made, lost = Remade(expected), _shards_of_lost(expected)
    if not tables and not lost:
        return made
    dataset = _dataset(expected, tables)
    for number in expected.numbers:
        if number in lost:
            manifest = _manifest(made, dataset, number, lost[number])
        else:
            manifest = dict(expected.commits[number].manifest)
            commit = Commit(number, manifest)
            again = [shard for shard in commit.own_shards if shard in tables]
            if not again:
                continue
            plan, names = Plan.of(manifest), list(manifest.get("streams") or ())
            done = {shard: made.expected.done[shard] for shard in commit.own_shards}
            for shard in again:
                rows, tally = dataset.tallied(shard)
                dataset.add_rejects(rows, tally, done[shard].rejects)
                for row, name in zip(rows, itertools.cycle(names), strict=False):
                    row.update(zip(POSITION_OF, (name, ""), strict=True))
                beside = _beside(made, dataset, plan, shard, rows, tally)
                made.lost += [_LOST_POSITIONS.format(shard.table)] if names else []
                done[shard] = replace(done[shard], beside=beside)
            manifest["done"] = [asdict(record) for record in done.values()]
        commit = Commit(number, manifest)
        records = [DoneRecord(**values) for values in manifest["done"]]
        made.expected = replace(
            made.expected,
            commits=dict(sorted({**made.expected.commits, number: commit}.items())),
            done={**made.expected.done, **dict(zip(commit.own_shards, records, strict=True))},
        )
        made.files[layout.manifest(number)] = seal(manifest)
    if lost:
        for file, data in common_files(made.expected).items():
            if (file != layout.COMMIT or expected.info) and expected.read(file) != data:
                raise ValueError(f"{file} says something else than the records")
    return made


@dataclass
class _Dataset:
    """What all shards of a damaged dataset share.

    Attributes:
        damaged: the shards whose tables are damaged.
        fields: the columns; options: of a conversion, as far as public files show them.
        types: of the values of a table, by key.
        rejects: the rows of `rejects.csv` that no table holds; each goes to one table.
        warnings: of suspects, by the number of the row.
    """

    expected: Expectation
    damaged: set[Shard]
    fields: tuple[Field, ...]
    options: dict[str, Any]
    types: dict[str, Any]
    rejects: list[Sequence[str]] = field(default_factory=list)
    warnings: dict[int, str] = field(default_factory=dict)

    def tallied(self, shard: Shard) -> tuple[list[Row], Tally]:
        """The rows of a shard's table, or as its records say, and what became of them.

        Raises:
            ValueError: a record is damaged, or of another row than in the table.
        """
        images = [field for field in self.fields if isinstance(field.kind, Image)]
        files = [
            source_of(field).bytes for field in self.fields if isinstance(field.kind, (Image, Mask))
        ]
        wanted = list(planned_features(self.fields))
        tally = Tally(class_field(self.fields), lambda rows: None, math.inf)
        known: Iterator[Row | None] = itertools.repeat(None)
        if shard not in self.damaged:
            table = read_columns(self.expected.directory, shard.table, lambda schema: schema.names)
            known = iter(table.to_pylist() if table is not None else ())
        rows = []
        path = self.expected.path(shard.file)
        with storage.local_copy(path) as copy, open(copy, "rb") as file:
            records = (data for _, data in read_records(file))
            for row in known:
                if row is not None and row[REJECT_OF.reason]:
                    self._reject(row, tally)
                    rows.append(row)
                    continue
                if (data := next(records, None)) is None:
                    if row is not None:
                        raise ValueError(f"{shard.file} has fewer records than {shard.table}")
                    break
                record = parse_example(data)
                number = int(bytes(record[SOURCE_ID][0]))
                if row is None:
                    row = {key.key: _plain(key, list(record[key.key])) for key in wanted}
                    warning = self.warnings.get(number, "")
                    row |= {SOURCE_ID: number, RECORD_OF.warning: warning}
                elif row[SOURCE_ID] != number:
                    raise ValueError(f"{shard.file} has records of other rows than {shard.table}")
                warning = row[RECORD_OF.warning]
                planned = PlannedRow(number, "", row)
                outcome = loaded(planned, frame([data]), record, images, warning)
                if any(sizes := [row.get(name) or 0 for name in files]):
                    outcome = replace(outcome, input_bytes=sum(sizes))
                tally.add_record(outcome)
                rows.append(row)
            if next(records, None) is not None:
                raise ValueError(f"{shard.file} has more records than {shard.table}")
        return rows, tally

    def add_rejects(self, rows: list[Row], tally: Tally, count: int) -> None:
        """Add the next rejected rows to a shard whose table is damaged, behind its records."""
        first = primary_image(self.fields)
        empty = {key.key: _nothing(key) for key in planned_features(self.fields)}
        for number, uri, stage, reason in self.rejects[:count]:
            row = {**empty, SOURCE_ID: int(number), REJECT_OF.stage: stage}
            row |= {REJECT_OF.reason: reason} | ({first.uri_key: uri} if first else {})
            self._reject(row, tally)
            rows.append(row)
        del self.rejects[:count]

    def _reject(self, row: Row, tally: Tally) -> None:
        rejected = planned_reject(PlannedRow(row[SOURCE_ID], "", row))
        assert rejected is not None
        tally.add_reject(rejected)


def _dataset(expected: Expectation, tables: Collection[Shard]) -> _Dataset:
    """What the shards share.

    Args:
        tables: the shards whose tables are damaged, as far as checksums show it.
    """
    directory, damaged = expected.directory, {*tables}
    rejected: set[int] = set()
    for shard in expected.every_shard:
        if shard in damaged:
            continue
        try:
            table = read_columns(directory, shard.table, lambda _: [SOURCE_ID, REJECT_OF.reason])
            assert table is not None
            numbers, reasons = (column.to_pylist() for column in table.columns)
            rejected.update(n for n, reason in zip(numbers, reasons, strict=True) if reason)
        except DatasetError:
            damaged.add(shard)
    sound = next((shard for shard in expected.every_shard if shard not in damaged), None)
    fields, options = _fields_and_options(expected)
    if sound is not None:
        types = types_of(directory, sound)
    else:
        types = {key.key: arrow_type(key) for key in planned_features(fields)}
    made = _Dataset(expected, damaged, fields, options, types)
    if damaged:
        listed = read_row_list(directory, layout.REJECTS)
        made.rejects = [row for row in listed if int(row[0]) not in rejected]
        suspects = read_row_list(directory, layout.SUSPECTS)
        made.warnings = {int(row[0]): row[2] for row in suspects}
    return made


def _fields_and_options(expected: Expectation) -> tuple[tuple[Field, ...], dict[str, Any]]:
    """The columns of the dataset, and the options of the conversion as far as they are known."""
    newest = max(expected.commits, default=-1)
    known = expected.commits[newest].manifest if newest >= 0 else {}
    if newest == expected.note[0]:
        return Plan.of(known).fields, known["options"]
    document = parse(expected.read(layout.FEATURES))
    names = storage.names(expected.directory)
    fields = public_fields(document, layout.LABEL_MAP_CSV in names)
    if known:
        counts = {field.label_key: field.num_classes for field in fields}
        fields = tuple(
            replace(field, num_classes=counts[field.label_key]) if field.label_key else field
            for field in Plan.of(known).fields
        )
        options = known["options"]
    else:
        options = public_options(document, expected.info or {})
    return fields, options


def _plain(feature: Feature, values: list[Any]) -> Any:
    if feature.kind == "text":
        values = [bytes(value).decode() for value in values]
    return values if feature.shape else values[0]


def _nothing(feature: Feature) -> Any:
    return [] if feature.shape else {"text": "", "bytes": b""}.get(feature.kind, 0)


def _beside(
    made: Remade, dataset: _Dataset, plan: Plan, shard: Shard, rows: Sequence[Row], tally: Tally
) -> dict[str, int]:
    """The CRC32Cs of a shard's index and table, both made again if the table is damaged."""
    import pyarrow as pa

    files = {"index": index_of(tally.outcomes)}
    if shard in dataset.damaged:
        types = {SOURCE_ID: pa.int64(), **dataset.types}
        types |= {name: pa.large_string() for name in POSITION_OF if rows and name in rows[0]}
        columns = {name: pa.array([row[name] for row in rows], of) for name, of in types.items()}
        files["table"] = table_of(plan, pa.table(columns), tally.outcomes)
        made.lost.append(_LOST_TABLE.format(shard.table))
    else:
        files["table"] = made.expected.read(shard.table)
    made.files |= {shard.beside[name]: data for name, data in files.items()}
    return {name: google_crc32c.value(data) for name, data in files.items()}


def _shards_of_lost(expected: Expectation) -> dict[int, list[Shard]]:
    """The shards of each commit whose manifest is lost.

    Of several in a row the first gets them all: nothing says which of them wrote what.
    """
    left = [shard for shard in expected.every_shard if shard not in expected.done]
    shards: dict[int, list[Shard]] = {}
    for number in expected.lost:
        after = next((n for n in expected.commits if n > number), None)
        ends = {shard.split: math.inf for shard in left}
        if after is not None:
            manifest = expected.commits[after].manifest
            ends = {split: count for split, (_, count) in manifest["splits"].items()}
            ends |= {split: first for split, (_, first, _) in manifest["own"].items()}
        shards[number] = [shard for shard in left if shard.index < ends.get(shard.split, 0)]
        left = [shard for shard in left if shard not in shards[number]]
    return shards


def _manifest(
    made: Remade, dataset: _Dataset, number: int, shards: Sequence[Shard]
) -> dict[str, Any]:
    """A lost manifest, from the shards that its commit wrote."""
    import pyarrow as pa

    expected = made.expected
    before = expected.before(number)
    after = next((c.manifest for n, c in expected.commits.items() if n > number), None)
    tallied = {shard: dataset.tallied(shard) for shard in shards}
    split_rows = _split_rows(dataset, tallied)
    rows = [row for of_shard, _ in tallied.values() for row in of_shard]
    sound = [row for row in rows if not row.get(REJECT_OF.reason)]
    splits = [s.split for s, (of, _) in tallied.items() for r in of if not r.get(REJECT_OF.reason)]
    values = {key: pa.array([row[key] for row in sound], of) for key, of in dataset.types.items()}
    digest, source_rows = "", 0
    first = 0 if before is None else rows_of(before)
    if after is not None and after["commit"] == number + 1:
        digest = after["previous"]
        source_rows = (after.get("follows") or {"rows": first})["rows"] - first
    elif number == expected.note[0]:
        digest = expected.note[1]
    follows = (
        None
        if before is None
        else {
            "rows": first,
            "image_shapes": before["image_shapes"],
            "image_sides": before["image_sides"],
        }
    )
    fields = dataset.fields
    if expected.note[0] not in expected.commits:
        fields = tuple(with_names(expected, field, rows) for field in fields)
    streams = _streams(dataset, tallied)
    kind = PlanKind.UNDO if not rows else PlanKind.BATCH if streams else PlanKind.APPEND
    bases = {row.get(BASE, "") for row in rows}
    options = dict((before or after or {"options": dataset.options})["options"])
    if before is None and number == expected.numbers[0]:
        options["version"] = _version(after, expected)
    plan = Plan(
        rows=len(rows),
        source_rows=source_rows or max((row[SOURCE_ID] + 1 - first for row in rows), default=0),
        split_rows=split_rows,
        split_shards=dict(Counter(shard.split for shard in shards)),
        fields=fields,
        statistics=describe_columns(
            fields, values, pd.Series(splits, dtype=SPLIT_TYPE), missing={}
        ),
        base=bases.pop() if len(bases) == 1 else "",
        fingerprint="",
        options=options,
        kind=PlanKind.CONVERSION if before is None else kind,
        commit=number,
        previous="" if before is None else before["plan"],
        follows=follows,
        starts={shard.split: shard.index for shard in reversed(shards) if shard.index},
        revisions={s.split: s.revision for s in expected.every_shard if s.revision != 1},
        streams=streams,
        stands_for=digest,
    )
    done = {}
    for shard, (of_shard, tally) in tallied.items():
        beside = _beside(made, dataset, plan, shard, of_shard, tally)
        done[shard] = replace(tally.done_record(plan.digest, shard), beside=beside)
    lists = {file: sums_of(expected.read(file)) for file in LISTS}
    made.lost.append(_LOST_MANIFEST.format(number))
    made.lost += [_LOST_STREAMS] if streams and "" in streams else []
    made.lost += _LOST_ALL if not expected.commits else ()
    return manifest_of(plan, done, before, lists)


def _split_rows(
    dataset: _Dataset, tallied: Mapping[Shard, tuple[list[Row], Tally]]
) -> dict[str, int]:
    """Give each shard as many rejected rows as its plan must have had; return the rows by split.

    A table that stands has them all.  Nothing says which other rejected row was in which split.
    """
    totals: dict[str, int] = {}
    for split, of_split in itertools.groupby(tallied, key=lambda shard: shard.split):
        shards = list(of_split)
        counts = [len(tallied[shard][0]) for shard in shards]

        def fits(total: int, shards: Any = shards, counts: Any = counts) -> bool:
            sizes = [_size(total, len(shards), place) for place in range(len(shards))]
            return all(
                size >= count if shard in dataset.damaged else size == count
                for shard, size, count in zip(shards, sizes, counts, strict=True)
            )

        most = sum(counts) + len(dataset.rejects)
        totals[split] = next(filter(fits, range(max(1, sum(counts)), most + len(shards) + 1)))
    waits = len(dataset.rejects) + sum(len(rows) for rows, _ in tallied.values())
    whole = [
        split for split in totals if all(s.split != split or s in dataset.damaged for s in tallied)
    ]
    if whole:
        totals[whole[0]] += max(0, waits - sum(totals.values()))
    if waits < sum(totals.values()):
        raise ValueError(f"{layout.REJECTS} lists fewer rows than the shards lack")
    firsts = {shard.split: shard.index for shard in reversed([*tallied])}
    for shard, (rows, tally) in tallied.items():
        count = sum(other.split == shard.split for other in tallied)
        size = _size(totals[shard.split], count, shard.index - firsts[shard.split])
        dataset.add_rejects(rows, tally, size - len(rows))
    return totals


def _size(rows: int, shards: int, index: int) -> int:
    start, stop = balanced_part(rows, index, shards)
    return stop - start


def _streams(
    dataset: _Dataset, tallied: Mapping[Shard, tuple[list[Row], Tally]]
) -> dict[str, Any] | None:
    """How far the sources of streamed rows were read: up to the newest row of each.

    None stands for what nobody knows any more, and "" for every source.
    """
    if not dataset.damaged.isdisjoint(tallied):
        return {"": {"to": None}}
    newest: dict[str, tuple[int, str]] = {}
    for rows, _ in tallied.values():
        for row in rows:
            if source := row.get(POSITION_OF.source):
                place = row[SOURCE_ID], row[POSITION_OF.position]
                newest[source] = max(newest.get(source, place), place)
    return {name: {"to": _position(text)} for name, (_, text) in newest.items()} or None


def _position(text: str) -> Any:
    """A position as it is noted; of a source without order, whose positions are texts, any."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _version(after: Mapping[str, Any] | None, expected: Expectation) -> str:
    """What the first commit must have stated, by what the next one that is known states."""
    if after is None:
        return str((expected.info or {})["version"])
    major, minor, _ = map(int, after["stated"].split("."))
    return f"{major}.{minor - bool(after['split_rows'])}.0"

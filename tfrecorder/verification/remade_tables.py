"""The table of a shard, made again from its records, the lists of rows, and what is left of it.

What records do not hold is taken from the manifest of the shard's commit where that is certain; of
all else a table says that nobody knows it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import google_crc32c
import numpy as np
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.example import Parsed, parse_example
from tfrecorder.format.layout import (
    BASE,
    NOWHERE,
    POSITION_OF,
    RECORD_OF,
    REDUCED,
    REJECT_OF,
    NewFiles,
    Shard,
    is_fact,
    is_number_of_source,
    source_of,
    spool_columns,
)
from tfrecorder.format.manifest import Loss
from tfrecorder.format.plan import OF_A_SOURCE, Plan, PlanKind, PlannedRow
from tfrecorder.format.tfrecord import frame, read_records
from tfrecorder.images.boxes_and_masks import given_edges, plane_of
from tfrecorder.images.check import check_image
from tfrecorder.images.header import Reject
from tfrecorder.plan.history import grown
from tfrecorder.reading.shard_tables import columns_of, opened_rows, read_columns, read_row_list
from tfrecorder.schema import kinds
from tfrecorder.schema.fields import Field, Fields, file_fields, primary_file
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.sources.cells import name_of
from tfrecorder.sources.places import known_places
from tfrecorder.verification.public_fields import (
    arrow_type,
    empty_value,
    planned_features,
    value_of,
)
from tfrecorder.writing.changing import loaded
from tfrecorder.writing.outcomes import COMMIT, OfFile, Sources
from tfrecorder.writing.rows import KeyedImages, planned_reject
from tfrecorder.writing.shards import Tally

#: Options with which images are not stored as they came.
_CHANGING = ("image_size", "short_side", "apply_exif", "strip_metadata")

#: Columns of a table that follow from its records.
_OF_RECORDS = frozenset([*RECORD_OF, *REJECT_OF, REDUCED])


#: The rows of a shard, records first, and what became of them.
Tallied = tuple[list[PlannedRow], Tally]


@dataclass
class Tables:
    """The tables of a dataset: those to make again, and what the others say.

    Attributes:
        directory: of the dataset.
        fields: its columns.
        damaged: the shards whose tables are damaged.
        other: the shards whose tables or indexes are as they were written, but not of their
            records, or in another order.
        said: the commit that each table names that is not damaged.
        next_row: the number after the largest that a table or a list has.
        rejects: the rows of `rejects.csv` that no table holds.
        warnings: of suspects, by the number of the row.
        came_as_bytes: a table says that images did.
        files: the tables that were made again and their indexes, by name.
        noted: of these, what is not known any more.
    """

    directory: str
    fields: Fields
    damaged: set[Shard]
    other: set[Shard]
    said: dict[Shard, int] = field(default_factory=dict)
    next_row: int = 0
    rejects: list[Sequence[str]] = field(default_factory=list)
    warnings: dict[int, str] = field(default_factory=dict)
    came_as_bytes: bool = False
    files: NewFiles = field(default_factory=dict)
    noted: dict[str, list[str]] = field(default_factory=dict)

    def note(
        self,
        loss: Loss,
        name: str,
    ) -> None:
        """Note that a file lost something."""
        self.noted.setdefault(loss.value, []).append(name)

    def read(self, shards: Sequence[Shard]) -> None:
        """Read what the tables say, and find those that cannot be read; and the lists of rows."""
        rejected = set[int]()
        numbers = [-1]
        for shard in {*shards} - self.damaged:
            try:
                with opened_rows(self.directory, shard.table) as file:
                    about = file.schema_arrow.metadata or {}
                    self.said[shard] = int(about.get(COMMIT.encode(), 0))
                    self.came_as_bytes |= bool(spool_columns(file.schema_arrow.names))
                    pairs = file.read().select([SOURCE_ID, REJECT_OF.reason]).to_pydict()
            except DatasetError:
                self.damaged.add(shard)
                continue
            numbers += pairs[SOURCE_ID]
            of_rows = zip(pairs[SOURCE_ID], pairs[REJECT_OF.reason], strict=True)
            rejected.update(number for number, reason in of_rows if reason)
        with contextlib.suppress(DatasetError):  # then these are lost too
            suspects = read_row_list(self.directory, layout.SUSPECTS)
            self.warnings = {int(row[0]): row[2] for row in suspects}
            listed = read_row_list(self.directory, layout.REJECTS)
            self.rejects = [row for row in listed if int(row[0]) not in rejected]
            numbers += [int(row[0]) for row in listed]
        self.next_row = max(numbers) + 1

    def tallied(
        self,
        shard: Shard,
        rejects: int,
        plan: Plan | None = None,
    ) -> Tallied:
        """The rows of a shard, records first, and what became of them.

        Args:
            rejects: how many rejected rows a damaged table held.
            plan: of its commit; None if that is lost.

        Raises:
            ValueError: a record is damaged, or the table is of other records.
        """
        fields = self.fields
        is_damaged = shard in self.damaged
        wanted = list(planned_features(fields))
        known = [] if is_damaged else self._stored_rows(shard)
        rejected = [row for row in known if row.values[REJECT_OF.reason]]
        sound = _Taken([row for row in known if not row.values[REJECT_OF.reason]])
        tally = Tally(fields)
        rows = []
        path = os.path.join(self.directory, shard.file)
        with storage.local_copy(path) as copy, storage.open_seekable(copy) as file:
            for data in read_records(file):
                record = parse_example(data)
                number = int(bytes(record[SOURCE_ID][0]))
                row = PlannedRow(number, "", {SOURCE_ID: number})
                if not is_damaged:
                    row = sound.take(number)
                if is_damaged or shard in self.other:
                    row.values.update({key.key: value_of(key, record[key.key]) for key in wanted})
                if is_damaged:
                    row.values[RECORD_OF.warning] = self.warnings.get(number, "")
                    row.values.update(self._places(plan, row, record))
                parts = frame([data])
                outcome = loaded(row, parts, record, fields, row.text(RECORD_OF.warning))
                if is_damaged or shard in self.other:
                    _put_back(row, fields, outcome.images)
                if is_damaged:
                    sources = _sources(fields, record, outcome.images, _keeps_files(plan))
                    outcome = outcome._replace(sources=sources)
                noted = [row.values.get(source_of(one).bytes) for one in fields]
                size = sum(size for size in noted if isinstance(size, int))
                tally.add_record(outcome._replace(input_bytes=size or outcome.input_bytes))
                rows.append(row)
        if sound.left:
            raise ValueError(f"{shard.table} has rows without a record in {shard.file}")
        if sound.moved and shard not in self.other:
            self.other.add(shard)
            return self.tallied(shard, rejects, plan)
        if is_damaged:
            count = rejects or int(not rows)  # no shard was planned without a row
            rejected = [self._rejected(plan, row) for row in self.rejects[:count]]
            del self.rejects[:count]
        for row in rejected:
            outcome_of = planned_reject(row)
            assert outcome_of is not None
            tally.add_reject(outcome_of)
        return [*rows, *rejected], tally

    def bound(
        self,
        plan: Plan,
        shard: Shard,
        rows: Sequence[PlannedRow],
        tally: Tally,
        done: DoneRecord,
    ) -> DoneRecord:
        """A done-record with the sums of the index and table, which are made again if they must be.

        Args:
            plan: of the shard's commit.
            rows, tally: as `tallied` gives them.
        """
        index = tally.outcomes.index()
        has_sums = True
        if shard in self.damaged or shard in self.other:
            columns = self._columns(plan, rows, shard)
            table = tally.outcomes.table(plan, columns)
            self.files[shard.table] = table
        else:
            table = storage.read_bytes(os.path.join(self.directory, shard.table))
            has_sums = all(RECORD_OF.crc32c in row.values for row in rows)
        self.files[shard.index_file] = index
        crcs = {"index": google_crc32c.value(index), "table": google_crc32c.value(table)}
        sizes = {"index": len(index), "table": len(table)} if has_sums else {}
        if shard in self.damaged and crcs["table"] != done.beside.get("table"):
            self._note_lost(plan, shard, columns, done.rejects > 0)
        seen = done.fingerprints if has_sums else 0  # those of form 4 do not count them
        return replace(done, beside=crcs, beside_bytes=sizes, fingerprints=seen)

    def _stored_rows(self, shard: Shard) -> list[PlannedRow]:
        table = read_columns(self.directory, shard.table, lambda schema: schema.names)
        return [PlannedRow(row[SOURCE_ID], "", row) for row in table.to_pylist()]

    def _places(
        self,
        plan: Plan | None,
        row: PlannedRow,
        record: Parsed,
    ) -> dict[str, str]:
        """Where the files of a row were, as far as anything says."""
        is_of_source = plan is not None and plan.kind in OF_A_SOURCE
        values = {BASE: plan.rows.base if plan is not None and is_of_source else ""}
        came = plan.rows.spooled > 0 if plan is not None and is_of_source else self.came_as_bytes
        for one in file_fields(self.fields) if came else ():
            uri = row.text(one.uri_key)
            data = record.get(one.encoded_key)
            is_its_name = data is not None and name_of(bytes(data[0])) == uri
            values[one.spool_key] = uri if is_its_name else NOWHERE
        return values

    def _rejected(
        self,
        plan: Plan | None,
        listed: Sequence[str],
    ) -> PlannedRow:
        """A rejected row, from the list of these."""
        number, uri, stage, reason = listed
        values = {key.key: empty_value(key) for key in planned_features(self.fields)}
        values |= {SOURCE_ID: int(number), REJECT_OF.stage: stage, REJECT_OF.reason: reason}
        first = primary_file(self.fields)
        if first is not None:
            values[first.uri_key] = uri
        row = PlannedRow(int(number), uri, values)
        values.update(self._places(plan, row, {}))
        return row

    def _columns(
        self,
        plan: Plan,
        rows: Sequence[PlannedRow],
        shard: Shard,
    ) -> pa.Table:
        """The columns of a table that do not follow from its records' bytes."""
        types = {SOURCE_ID: pa.int64()}
        types |= {key.key: arrow_type(key) for key in planned_features(self.fields)}
        if shard in self.damaged and plan.rows.streams:
            # A position that is not known is "": of each source, one row at least says so.
            for row, source in zip(rows, itertools.cycle(plan.rows.streams), strict=False):
                row.values.update(zip(POSITION_OF, (source, ""), strict=True))
        for name in rows[0].values if rows else ():
            if is_fact(name) and name not in _OF_RECORDS:
                types[name] = pa.int64() if is_number_of_source(name) else pa.large_string()
        return pa.table(
            {
                name: pa.array([row.values[name] for row in rows], kind)
                for name, kind in types.items()
            }
        )

    def _note_lost(
        self,
        plan: Plan,
        shard: Shard,
        columns: pa.Table,
        rejects: bool,
    ) -> None:
        """Note what a table that was made again lost.

        Args:
            rejects: it has rejected rows.
        """
        if rejects:
            self.note(Loss.REJECTS, shard.table)
        if not len(columns):
            return  # the only row was a reject that was won later, which no list has any more
        files = file_fields(self.fields)
        if is_nowhere(columns, self.fields):
            self.note(Loss.PLACES, shard.table)
        if files:
            self.note(Loss.SUMS, shard.table)
        if plan.rows.streams:
            self.note(Loss.POSITIONS, shard.table)


def _put_back(
    row: PlannedRow,
    fields: Fields,
    images: KeyedImages,
) -> None:
    """Give a row the edges that its source had, of those of its record."""
    for of in fields:
        if isinstance(of.kind, kinds.Boxes):
            edges = np.array([row.values[key] for key in of.edges], np.float64).T
            plane = plane_of(images[0][1], of.kind.upright, row.stated)
            edges = given_edges(edges, of.kind, plane)
            row.values.update(zip(of.edges, edges.T.tolist(), strict=True))


def is_nowhere(table: pa.Table, fields: Fields) -> bool:
    """True if nobody knows where a file of some row of a table was."""
    columns = columns_of(table)
    return any(
        known_places(columns[of.uri_key], columns[BASE], columns.get(of.spool_key)).null_count
        for of in file_fields(fields)
    )


class _Taken:
    """The rows of a table, to be taken by their numbers in the order of the records.

    Attributes:
        left: how many were not taken.
        moved: one was not the next in the order of the table.
    """

    def __init__(self, rows: Sequence[PlannedRow]) -> None:
        self._order = [row.row for row in rows]
        self._rows: dict[int, list[PlannedRow]] = {}
        for row in rows:
            self._rows.setdefault(row.row, []).append(row)
        self.left = len(rows)
        self.moved = False

    def take(self, number: int) -> PlannedRow:
        """The next row with this number.

        Raises:
            ValueError: there is none.
        """
        if not self._rows.get(number):
            raise ValueError(f"no table has row {number}, which has a record")
        self.moved |= self._order[len(self._order) - self.left] != number
        self.left -= 1
        return self._rows[number].pop(0)


def _sources(
    fields: Sequence[Field],
    record: Parsed,
    images: KeyedImages,
    keeps: bool,
) -> Sources:
    """What a record says of the files that it was made from.

    Args:
        images: of the record, by the keys of their columns.
        keeps: a JPEG is the file as it came.  A PNG may have been made of a file of another kind.
    """
    sources = {}
    for key, image in images:
        source = OfFile(height=image.height, width=image.width)
        if keeps and image.format == "jpeg":
            crc = google_crc32c.value(image.data)
            source = source._replace(bytes=len(image.data), crc32c=crc)
        with contextlib.suppress(Reject):  # raw pixels
            most = image.height * image.width
            look = check_image(image.data, max_pixels=most, fingerprints=True).look
            source = source._replace(look=look)
        sources[key] = source
    for one in fields:
        if isinstance(one.kind, kinds.File):
            data = bytes(record[one.encoded_key][0])
            sources[one.key] = OfFile(len(data), google_crc32c.value(data))
    return sources


def _keeps_files(plan: Plan | None) -> bool:
    """True if it is certain that the JPEGs of a commit are the files as they came."""
    if plan is None or plan.stands_for:
        return False
    every = [plan.options]
    if plan.kind not in OF_A_SOURCE:  # rows of others, each with its own options
        before = plan.carried.history
        begun = before.begun_by
        is_known = begun.get("kind") == PlanKind.CONVERSION.value and begun.get("fingerprint")
        if not is_known or grown(before.origins) or before.updates:
            return False
        every.append(begun["options"])
    return not any(
        options.get("image_format", "keep") != "keep" or any(map(options.get, _CHANGING))
        for options in every
    )

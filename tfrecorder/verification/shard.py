"""One shard with all that stands beside it: is it what was written, and what was planned?"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.layout import Shard
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.plan.staging import read_shard_rows
from tfrecorder.verification.contents import (
    check_against_plan,
    check_image,
    check_label,
    stored_images,
)
from tfrecorder.verification.expectation import Expectation, Written, parquet_errors, unread
from tfrecorder.verification.faults import Fault, at_most
from tfrecorder.verification.record import NotOfSchemaError, Record, read_record
from tfrecorder.verification.side_files import (
    Place,
    RowList,
    check_list,
    compare_done,
    compare_file,
    compare_index,
    read_index,
    read_rejects,
    read_suspects,
    shows_sources,
)
from tfrecorder.verification.walk import SummedFile, Walked, walk
from tfrecorder.writing.done import DoneRecord

#: Decodes an encoded image as training does; gives its shape, or raises ValueError with words.
Decode = Callable[[bytes], tuple[int, ...]]

_READ_BYTES = 1 << 18


@dataclass(frozen=True)
class ShardFindings:
    """A checked shard.

    Attributes:
        shard: which one.
        files: that were looked at.
        records: met, sound or not.
        bytes: read of its file.
        sound: True if the file holds the bytes that were written.
        places: of the records that were met, if the index is at fault; else empty, because the
            findings of all shards stand in memory together.
        done: the done-record as it must be; None where that is not known.
        faults: found.
    """

    shard: Shard
    files: int
    records: int
    bytes: int
    sound: bool
    places: tuple[Place, ...]
    done: DoneRecord | None
    faults: tuple[Fault, ...]


class _Tally:
    """What was met in a shard on the way."""

    def __init__(self) -> None:
        self.records = self.damaged = self.image_bytes = self.oriented = 0
        self.places: list[Place] = []
        self.formats: Counter[str] = Counter()
        self.shapes: list[tuple[int, ...]] = []
        self.sides: list[tuple[int, ...]] = []
        #: Where each row was met: the record's number and offset.
        self.rows: dict[int, Place] = {}
        self.faults: list[Fault] = []
        #: Where records are not as planned: the plan's fault if the shard proves sound.
        self.against_plan: list[Fault] = []

    def add(self, record: Record, oriented: bool) -> None:
        if not record.format:
            return
        self.formats[record.format] += 1
        self.image_bytes += len(record.encoded)
        self.oriented += oriented
        self.shapes = _widened(self.shapes, record.shape)
        self.sides = _widened(self.sides, tuple(sorted(record.shape[:2])))


def _widened(extremes: list[tuple[int, ...]], values: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The smallest and the largest value at each place, as done-records have them."""
    low, high = extremes or (values, values)
    return [tuple(map(min, low, values)), tuple(map(max, high, values))]


def check_shard(
    expected: Expectation,
    group: int,
    decode: Decode | None = None,
    advance: Callable[[int], None] = lambda size: None,
) -> ShardFindings:
    """Check one shard, a record at a time.

    Args:
        expected: what must stand in the directory.
        group: the shard's place in `expected.plan.shards`.
        decode: also decodes every image.
        advance: is told the bytes of each record that is through.
    """
    shard = expected.plan.shards[group]
    if decode is None and (kept := _check_unread(expected, group)) is not None:
        advance(kept.bytes)
        return kept
    places, faults = read_index(expected, shard)
    rejects, suspects = read_rejects(expected, shard), read_suspects(expected, shard)
    planned, plan_faults = _planned_rows(expected, group)
    faults += [*plan_faults, *rejects.faults, *suspects.faults]
    tally = _Tally()
    try:
        with (
            storage.local_copy(expected.path(shard.file)) as copy,
            open(copy, "rb", buffering=_READ_BYTES) as file,
        ):
            size = os.fstat(file.fileno()).st_size
            summed = SummedFile(file)
            for met in walk(summed, size, [offset for offset, _ in places or ()]):
                _look_at(met, expected, shard, planned, decode, tally)
                advance(met.size)
            summed.read_to(size)
    except storage.UnreadableError as error:
        faults.append(unread(shard.file, error))
        found, sound = None, False
    except OSError as error:
        code = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        faults.append(Fault(shard.file, code, f"it cannot be read: {error.strerror}"))
        found, sound = None, False
    else:
        found = Written(tally.records, summed.at, summed.crc)
        sound, of_file = compare_file(expected, shard, found)
        faults += of_file
    faults += tally.faults
    if planned is not None:
        if found is not None:
            faults += _blame(tally.against_plan, shard, sound)
            faults += _check_rows(shard, planned, tally, rejects)
        faults += [*check_list(rejects, planned), *check_list(suspects, planned)]
    if sound and places is not None:
        faults += compare_index(shard, places, tally.places)
    done, of_done = expected.done.get(shard), []
    if done is not None and sound and rejects.rows is not None and suspects.rows is not None:
        proved = _proved(done, expected.plan, shard, tally)
        of_done = compare_done(shard, done, proved, rejects, suspects)
        done = proved
    faults += of_done
    index_at_fault = any(fault.file == shard.index_file for fault in faults)
    return ShardFindings(
        shard=shard,
        files=5,
        records=tally.records,
        bytes=0 if found is None else found.bytes,
        sound=sound,
        places=tuple(tally.places) if index_at_fault else (),
        done=done,
        faults=tuple(at_most(faults)),
    )


def _check_unread(expected: Expectation, group: int) -> ShardFindings | None:
    """A shard whose store itself vouches for its bytes, by a CRC32C of its own; not downloaded.

    None where it does not, or where anything beside the shard has a fault: its records then tell
    more.
    """
    shard = expected.plan.shards[group]
    done = expected.done.get(shard)
    path = expected.path(shard.file)
    try:
        crc = storage.crc32c_or_none(path)
    except storage.UnreadableError:
        return None  # whoever then reads the file says so
    if crc is None or done is None:
        return None
    found = Written(done.records, storage.size_or_none(path) or 0, crc)
    sound, faults = compare_file(expected, shard, found)
    planned, of_plan = _planned_rows(expected, group)
    rejects, suspects = read_rejects(expected, shard), read_suspects(expected, shard)
    faults += [*read_index(expected, shard)[1], *of_plan, *rejects.faults, *suspects.faults]
    if planned is None or faults or not sound:
        return None
    faults += [*check_list(rejects, planned), *check_list(suspects, planned)]
    faults += compare_done(shard, done, done, rejects, suspects)
    if faults or done.rows != len(planned) or done.records + done.rejects != done.rows:
        return None
    return ShardFindings(shard, 5, done.records, found.bytes, True, (), done, ())


def _planned_rows(
    expected: Expectation, group: int
) -> tuple[dict[int, PlannedRow] | None, list[Fault]]:
    try:
        rows = read_shard_rows(expected.directory, group)
    except parquet_errors() as error:
        missing = isinstance(error, FileNotFoundError)
        words = f"row group {group} cannot be read: {_first_line(error)}"
        return None, [Fault(layout.PLAN_ROWS, "missing" if missing else "damaged", words)]
    by_number = {row.row: row for row in rows}
    wanted = expected.plan.shard_rows(expected.plan.shards[group])
    if len(by_number) != wanted or None in by_number:
        words = f"row group {group} has {len(by_number):,} distinct rows; {wanted:,} were planned"
        return None, [Fault(layout.PLAN_ROWS, "damaged", words)]
    return by_number, []


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _look_at(
    met: Walked,
    expected: Expectation,
    shard: Shard,
    planned: Mapping[int, PlannedRow] | None,
    decode: Decode | None,
    tally: _Tally,
) -> None:
    """Check one record, and note what was met."""

    def fault(code: str, words: str) -> Fault:
        return Fault(shard.file, code, words, met.number, met.offset)

    tally.records += 1
    tally.places.append((met.offset, met.size))
    if met.data is None:
        tally.damaged += 1
        tally.faults.append(fault(met.code, met.fault))
        return
    try:
        record = read_record(met.data, expected.plan)
    except NotOfSchemaError as error:
        tally.damaged += 1
        tally.faults.append(fault(*error.finding))
        return
    header, findings = check_image(record, expected.plan)
    tally.add(record, oriented=header is not None and header.oriented)
    findings += check_label(record, expected.plan)
    tally.faults += [fault(*finding) for finding in findings]
    if decode is not None:
        images = stored_images(record, expected.plan)
        tally.faults += [fault("undecodable", words) for words in _decoding(images, decode)]
    if record.row in tally.rows:
        words = f"row {record.row} is record {tally.rows[record.row][0]} already"
        tally.faults.append(fault("duplicate_row", words))
    elif planned is not None and record.row not in planned:
        tally.against_plan.append(fault("row", f"row {record.row} was not planned for this shard"))
    elif planned is not None:
        found = check_against_plan(record, planned[record.row], expected.plan)
        tally.against_plan += [fault(*finding) for finding in found]
    tally.rows.setdefault(record.row, (met.number, met.offset))


def _decoding(
    images: Iterable[tuple[bytes, tuple[int, int, int]]], decode: Decode
) -> Iterator[str]:
    for encoded, wanted in images:
        try:
            shape = decode(encoded)
        except ValueError as error:
            yield str(error)
            continue
        if shape[:2] != wanted[:2]:
            yield f"it decodes to {shape[0]} x {shape[1]}, not {wanted[0]} x {wanted[1]}"


def _blame(faults: list[Fault], shard: Shard, sound: bool) -> list[Fault]:
    """The same faults, but of the plan where the shard holds the bytes that were written."""
    if not sound:
        return faults
    return [
        dataclasses.replace(
            fault,
            file=layout.PLAN_ROWS,
            message=f"{shard.file}, which is sound, contradicts it: {fault.message}",
        )
        for fault in faults
    ]


def _check_rows(
    shard: Shard, planned: Mapping[int, PlannedRow], tally: _Tally, rejects: RowList
) -> Iterator[Fault]:
    """Every planned row once, as a record or as a reject, and the records in the plan's order."""
    rejected = set(rejects.numbers)
    for row in sorted(rejected & tally.rows.keys()):
        yield Fault(rejects.file, "duplicate_row", f"row {row} is a reject and also a record")
    lost = [row for row in planned if row not in rejected and row not in tally.rows]
    # What stands in a damaged record is not known: it may well be the row.
    if rejects.rows is not None and len(lost) > tally.damaged:
        shown = ", ".join(map(str, lost[:10])) + (", ..." if len(lost) > 10 else "")
        words = f"{len(lost):,} planned rows are neither records nor rejects: {shown}"
        yield Fault(shard.file, "rows_lost", words)
    order = {row: place for place, row in enumerate(planned)}
    met = [row for row in tally.rows if row in order]
    for before, row in itertools.pairwise(met):
        if order[row] < order[before]:
            words = f"row {row} is not where it was planned"
            yield Fault(shard.file, "row", words, *tally.rows[row])


def _proved(done: DoneRecord, plan: Plan, shard: Shard, tally: _Tally) -> DoneRecord:
    """A done-record with all that its sound shard shows."""
    proved = dataclasses.replace(
        done,
        rows=plan.shard_rows(shard),
        records=tally.records,
        formats=dict(tally.formats),
        shapes=[list(shape) for shape in tally.shapes],
        sides=[list(sides) for sides in tally.sides],
    )
    if not shows_sources(proved, plan):
        return proved
    return dataclasses.replace(proved, input_bytes=tally.image_bytes, oriented=tally.oriented)

"""One shard and the files next to it: does each hold the bytes that were written?

If the shard's file has the size and CRC32C that were noted when it was written, it is sound.  Then
the frames that its table and its index describe must be those of the file; the CRC32Cs of all
frames together give that of the file, so no record is looked at.  Otherwise its records are walked
through to find the damaged ones.

Shard, table and index may each be as it was written, and still say something else than the others:
then what wrote them was at fault.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import BinaryIO, TypeVar

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tfrecorder import storage
from tfrecorder.core.arrays import Ints
from tfrecorder.display.bars import Advance
from tfrecorder.display.tables import cut
from tfrecorder.format.done_records import DoneRecord
from tfrecorder.format.example import parse_example
from tfrecorder.format.layout import RECORD_OF, Shard
from tfrecorder.format.tfrecord import Place, joined_crc, walk
from tfrecorder.images.transform import transform_of
from tfrecorder.schema.keys import SOURCE_ID, Feature
from tfrecorder.schema.kinds import Boxes, Image
from tfrecorder.storage.store import sums_of
from tfrecorder.verification.expectation import Expectation, other_sums, read_or_fault, unread
from tfrecorder.verification.faults import Fault, at_most
from tfrecorder.verification.public_fields import planned_features, value_of

T = TypeVar("T")

#: Decodes an encoded image as training does; returns its shape, or raises ValueError with a
#: message.
Decode = Callable[[bytes], tuple[int, ...]]


@dataclass(frozen=True)
class ShardFindings:
    """A checked shard.

    Attributes:
        shard: which one.
        records: for a sound file, as many as were written; otherwise those met, damaged or not.
        bytes: the size of its file.
        sound: True if the file holds the bytes that were written.
        faults: of the shard's file and of those next to it.
    """

    shard: Shard
    records: int
    bytes: int
    sound: bool
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class ShardCheck:
    """The check of one shard, and of the files next to it.

    Attributes:
        expected: what the directory must hold.
        shard: which one.
        decode: if given, every image is decoded with it too.
        records: every record is compared with its row in the table.
        advance: called with the number of bytes of each piece of the file.
    """

    expected: Expectation
    shard: Shard
    decode: Decode | None
    records: bool
    advance: Advance

    @property
    def done(self) -> DoneRecord | None:
        """What was noted when it was written; None if its manifest is lost."""
        return self.expected.done.get(self.shard)

    def findings(self) -> ShardFindings:
        """What the shard's files are."""
        beside, proved = self.shard.beside, self._proved()
        noted = self.done.beside.items() if self.done and proved else ()
        if proved and all(self.expected.stands_as(beside[name], crc) for name, crc in noted):
            return proved
        faults: list[Fault] = []
        read = partial(TableFrames.read, whole=self.records)
        frames = self._beside("table", read, faults)
        places = self._beside("index", _places, faults)
        if self.done and frames is not None and places is not None:
            faults += frames.other_index(self.shard, places)
        try:
            findings = proved or self._read(places, frames)
        except (storage.UnreadableError, OSError) as error:
            fault = unread(self.shard.file, error)
            findings = ShardFindings(self.shard, 0, 0, False, (fault,))
        return replace(findings, faults=tuple(at_most([*faults, *findings.faults])))

    def _proved(self) -> ShardFindings | None:
        """The shard if its store itself reports the noted checksum of its file; else None."""
        done = self.done
        if (
            self.decode
            or self.records
            or not done
            or not self.expected.stands_as(self.shard.file, done.crc32c)
        ):
            return None
        self.advance(done.bytes)
        return ShardFindings(self.shard, done.records, done.bytes, True)

    def _read(
        self,
        places: Sequence[Place] | None,
        frames: TableFrames | None,
    ) -> ShardFindings:
        """Check the shard's file by its bytes; if its manifest is lost, by those of its records.

        Raises:
            UnreadableError, OSError: the file cannot be read.
        """
        shard, done = self.shard, self.done
        path = self.expected.path(shard.file)
        with storage.local_copy(path) as copy, storage.open_seekable(copy) as file:

            def read(most: int) -> bytes:
                data = file.read(most)
                self.advance(len(data))
                return data

            size, crc = sums_of(read)
            changed = done and other_sums(shard.file, (size, crc), (done.bytes, done.crc32c))
            if done and not (changed or self.decode or self.records):
                of_table = _of_table(shard, frames, size, crc, file)
                return ShardFindings(shard, done.records, size, True, tuple(of_table))
            file.seek(0)
            true, faults = self._walk(file, size, places or (), frames)
            is_sound = not (changed if done else faults)
            of_table = _of_table(shard, frames, size, crc, file) if is_sound else []
        if changed:
            listed = None if places is None else places[: len(true)]
            faults = [changed, *(faults or _elsewhere(shard.file, listed, true))]
        elif not done:
            faults += _elsewhere(shard.index_file, places, true)
        return ShardFindings(shard, len(true), size, is_sound, (*of_table, *faults))

    def _beside(
        self,
        name: str,
        parsed: Callable[[bytes], T],
        faults: list[Fault],
    ) -> T | None:
        """One of the files next to the shard; None, with a fault, if it is not as written."""
        file, done = self.shard.beside[name], self.done

        def compared(data: bytes) -> T | None:
            sums = (len(data), google_crc32c.value(data))
            # Form 4 has no sizes.
            size = done.beside_bytes.get(name, len(data)) if done else 0
            if fault := done and other_sums(file, sums, (size, done.beside[name])):
                faults.append(fault)
            return None if fault else parsed(data)

        return read_or_fault(self.expected.directory, file, compared, faults)

    def _walk(
        self,
        file: BinaryIO,
        size: int,
        places: Sequence[Place],
        frames: TableFrames | None,
    ) -> tuple[list[Place], list[Fault]]:
        """Where the records of the shard are, and which of them are damaged."""
        true, faults = [], []
        rows = iter(() if frames is None else frames.rows)
        for met in walk(file, size, places):
            true.append((met.offset, met.size))
            row = next(rows, None)
            if met.data is None:
                reasons = [("record_checksum" if met.size else "record_length", met.fault)]
            else:
                reasons = [("undecodable", words) for words in self._undecodable(met.data)]
                reasons += [("differs", words) for words in self._other_values(met.data, row)]
            for code, words in reasons:
                faults.append(Fault(self.shard.file, code, words, met.number, met.offset))
        return true, faults

    @cached_property
    def _features(self) -> list[Feature]:
        """What a record has as its row in the table has it: no boxes that moved with the pixels."""
        fields = self.expected.fields
        options = (commit.plan.options for commit in self.expected.commits.values())
        moved = any(map(transform_of, options))
        for field in fields:
            if isinstance(field.kind, Boxes):
                moved |= field.kind.unit == "pixel" or bool(field.kind.upright)
        return [*planned_features([of for of in fields if not (moved and of.of_boxes)])]

    def _other_values(
        self,
        data: bytes,
        row: Mapping[str, object] | None,
    ) -> Iterator[str]:
        """Where a record is not as its row in the table, if that is asked for."""
        if row is None:
            return
        try:
            record = parse_example(data)
            found = {of.key: value_of(of, record[of.key]) for of in self._features}
            found[SOURCE_ID] = int(bytes(record[SOURCE_ID][0]))
        except (IndexError, KeyError, TypeError, ValueError) as error:
            yield f"it is not a record of this dataset: {error!r}"
            return
        for key, value in found.items():
            if not _is_same(value, row[key]):
                there = cut(repr(row[key]))
                yield f"{key!r} is {cut(repr(value))}, and {there} in {self.shard.table}"

    def _undecodable(self, data: bytes) -> Iterator[str]:
        """What is wrong with the images of a record, in words, if they are decoded."""
        if self.decode is None:
            return
        try:
            record = parse_example(data)
            for key in (of.key for of in self.expected.fields if isinstance(of.kind, Image)):
                if bytes(record[f"{key}/format"][0]) != b"raw":
                    sides = [int(record[f"{key}/{name}"][0]) for name in ("height", "width")]
                    yield from _fault_of(self.decode, record[f"{key}/encoded"][0], sides)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            yield f"it is not a record of this dataset: {error}"


@dataclass(frozen=True)
class TableFrames:
    """The frames of a shard as its table describes them, in the table's order.

    Attributes:
        offsets, sizes: where each is, and how long.
        crcs: the CRC32C of each; None in a table of form 4.
        rows: all that the table has of each record; none if this was not asked for.
    """

    offsets: Ints
    sizes: Ints
    crcs: Ints | None
    rows: Sequence[Mapping[str, object]] = ()

    @classmethod
    def read(
        cls,
        table: bytes,
        whole: bool = False,
    ) -> TableFrames:
        """Those of the table with these bytes.

        Args:
            whole: with all columns.

        Raises:
            ValueError: it cannot be read, or lacks a column.
        """
        names = [RECORD_OF.offset, RECORD_OF.size, RECORD_OF.crc32c]
        try:
            file = pq.ParquetFile(pa.BufferReader(table), page_checksum_verification=True)
            known = [name for name in names if name in file.schema_arrow.names]
            rows = file.read(columns=None if whole else known, use_threads=False)
            records = rows.filter(pc.greater_equal(rows.column(RECORD_OF.size), 0))
            places = [records.column(name).to_numpy() for name in names[:2]]
        except (KeyError, OSError, pa.ArrowException) as error:
            raise ValueError(str(error)) from error
        crcs = None
        if RECORD_OF.crc32c in known:
            crcs = records.column(RECORD_OF.crc32c).to_numpy()
        return cls(places[0], places[1], crcs, records.to_pylist() if whole else ())

    def describes(
        self,
        size: int,
        crc: int,
    ) -> bool:
        """True if these frames, one after the other, are a file of this size and CRC32C."""
        ends = np.cumsum(self.sizes)
        whole = int(ends[-1]) if len(ends) else 0
        if whole != size or not np.array_equal(self.offsets, ends - self.sizes):
            return False
        return self.crcs is None or joined_crc(self.crcs, self.sizes) == crc

    def disagreement(
        self,
        shard: Shard,
        file: BinaryIO,
    ) -> Fault:
        """The first frame that is not in the shard as the table has it; the shard is sound."""
        end = 0
        for number, (offset, size) in enumerate(self._places()):
            file.seek(offset)
            crc = google_crc32c.value(file.read(size))
            if offset != end:
                words = f"record {number} is at byte {offset:,}, and the one before ends at {end:,}"
                return Fault(shard.table, "differs", words, number, offset)
            if self.crcs is not None and self.crcs[number] != crc:
                words = (
                    f"record {number} has the CRC32C {crc:08x} in {shard.file}, not "
                    f"{self.crcs[number]:08x}: the table is of other records, or in another order"
                )
                return Fault(shard.table, "differs", words, number, offset)
            end = offset + size
        words = f"its records end at byte {end:,}, those of {shard.file} do not"
        return Fault(shard.table, "differs", words)

    def other_index(
        self,
        shard: Shard,
        places: Sequence[Place],
    ) -> Iterator[Fault]:
        """The first line of the index that is not as the table has it; none if all are."""
        own = self._places()
        if own == [*places]:
            return
        pairs = zip(own, places, strict=False)
        differing = (number for number, (mine, listed) in enumerate(pairs) if mine != listed)
        number = next(differing, min(len(own), len(places)))
        words = f"record {number} is not where {shard.table} has it"
        yield Fault(shard.index_file, "differs", words, number)

    def _places(self) -> list[Place]:
        return [*zip(self.offsets.tolist(), self.sizes.tolist(), strict=True)]


def _is_same(value: object, other: object) -> bool:
    """True for equal values, equal lists of them, and for two that are not a number.

    >>> nan = float("nan")
    >>> _is_same([1.0, nan], [1.0, nan]), _is_same([1.0], [1.0, nan]), _is_same("a", "b")
    (True, False, False)
    """
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_same, value, other))
    if isinstance(value, float) and isinstance(other, float):
        return value == other or (math.isnan(value) and math.isnan(other))
    return value == other


def _of_table(
    shard: Shard,
    frames: TableFrames | None,
    size: int,
    crc: int,
    file: BinaryIO,
) -> list[Fault]:
    """Where the table of a sound shard is of other frames than the shard's.

    Args:
        frames: of the table; None if it cannot be read.
        size, crc: of the shard's file.
    """
    if frames is None or frames.describes(size, crc):
        return []
    return [frames.disagreement(shard, file)]


def _places(index: bytes) -> list[Place]:
    """The places of a shard's records from its index."""
    places = [(int(offset), int(size)) for offset, size in map(bytes.split, index.splitlines())]
    if "".join(f"{offset} {size}\n" for offset, size in places).encode() != index:
        raise ValueError("it is not an index of lines `offset size`")
    return places


def _elsewhere(
    file: str,
    places: Sequence[Place] | None,
    true: Sequence[Place],
) -> Iterator[Fault]:
    """Where whole records were exchanged, lost or added: the first that the index has elsewhere."""
    if places is None:
        return
    for number, (met, listed) in enumerate(itertools.zip_longest(true, places)):
        if met != listed:
            end = "no record is here" if listed is None else f"record {number} is at {listed}"
            words = f"according to the index {end}, not at {met}, whose checksums are right"
            yield Fault(file, "differs", words, number, met[0] if met else listed[0])
            return


def _fault_of(
    decode: Decode,
    encoded: bytes,
    sides: list[int],
) -> Iterator[str]:
    try:
        shape = decode(encoded)
    except ValueError as error:
        yield str(error)
        return
    if list(shape[:2]) != sides:
        yield f"it decodes to {shape[0]} x {shape[1]}, not {sides[0]} x {sides[1]}"

"""The small files beside a shard: its index, and its lists of rejects and suspects."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfrecorder import storage
from tfrecorder.dataset.layout import Shard
from tfrecorder.dataset.lists import value_of
from tfrecorder.images.transform import transform_of
from tfrecorder.plan.plan import Plan, PlannedRow
from tfrecorder.verification.expectation import Expectation, Written, unread
from tfrecorder.verification.faults import Fault
from tfrecorder.writing.done import DoneRecord
from tfrecorder.writing.shards import REJECT_HEADER, SUSPECT_HEADER, to_csv

#: Where a record begins, and its bytes with the framing.
Place = tuple[int, int]


@dataclass(frozen=True)
class RowList:
    """A shard's rejects or suspects.

    Attributes:
        file: its name.
        rows: a tuple of texts for each, as its header says; None where it cannot be read.
        faults: why not.
    """

    file: str
    rows: tuple[tuple[str, ...], ...] | None
    faults: tuple[Fault, ...] = ()

    @property
    def numbers(self) -> list[int]:
        """The source rows listed."""
        return [int(row[0]) for row in self.rows or ()]


def read_rejects(expected: Expectation, shard: Shard) -> RowList:
    """The rows of a shard that gave no record."""
    return _read_list(expected, shard.rejects, REJECT_HEADER)


def read_suspects(expected: Expectation, shard: Shard) -> RowList:
    """The records of a shard whose image decodes with a warning."""
    return _read_list(expected, shard.suspects, SUSPECT_HEADER)


def _read_list(expected: Expectation, file: str, header: tuple[str, ...]) -> RowList:
    try:
        data = expected.read(file)
        text = io.StringIO(data.decode(), newline="")
        found = [tuple(map(value_of, row)) for row in csv.reader(text, strict=True)]
    except storage.UnreadableError as error:
        return RowList(file, None, (unread(file, error),))
    except (ValueError, csv.Error) as error:
        return RowList(file, None, (Fault(file, "damaged", f"it is no CSV: {error}"),))
    if not found or found[0] != header:
        words = f"its first line is not {','.join(header)!r}"
        return RowList(file, None, (Fault(file, "damaged", words),))
    for place, row in enumerate(found[1:], 1):
        if len(row) != len(header) or not is_row_number(row[0]):
            words = f"row {place} of it is not as it was written"
            return RowList(file, None, (Fault(file, "damaged", words),))
    if to_csv(header, found[1:]) != data:
        return RowList(file, None, (Fault(file, "damaged", "it is not as it was written"),))
    return RowList(file, tuple(found[1:]))


def is_row_number(text: str) -> bool:
    """True for what a row's number is written as."""
    return text.isascii() and text.isdecimal() and len(text) < 19


def count_reasons(rejects: Sequence[tuple[str, ...]]) -> dict[str, int]:
    """Rejects by "stage/code", as done-records count them."""
    return dict(Counter(f"{stage}/{reason.partition(':')[0]}" for _, _, stage, reason in rejects))


def check_list(listed: RowList, planned: Mapping[int, PlannedRow]) -> Iterator[Fault]:
    """What is wrong with a list in the light of the shard's plan."""
    seen: set[int] = set()
    for number, row in zip(listed.numbers, listed.rows or (), strict=True):
        if number in seen:
            yield Fault(listed.file, "duplicate_row", f"row {number} is listed twice")
        seen.add(number)
        if number not in planned:
            yield Fault(listed.file, "row", f"row {number} was not planned for this shard")
        elif planned[number].image_uri != row[1]:
            words = f"row {number} was planned with the image {planned[number].image_uri!r}"
            yield Fault(listed.file, "row", f"{words}, but {row[1]!r} is listed")


def read_index(expected: Expectation, shard: Shard) -> tuple[list[Place] | None, list[Fault]]:
    """The places of a shard's records by its index; None, and why, where it contradicts itself.

    The records of an index follow one another from the start of the shard to its end.
    """
    file = shard.index_file
    try:
        lines = expected.read(file).decode().split("\n")
        places = [_place(line) for line in lines[:-1]]
    except storage.UnreadableError as error:
        return None, [unread(file, error)]
    except ValueError as error:
        return None, [Fault(file, "damaged", f"it is no index: {error}")]
    at = 0
    for number, (offset, size) in enumerate(places):
        if offset != at or size <= 0:
            words = f"by line {number + 1}, record {number} does not begin where the last one ends"
            return None, [Fault(file, "damaged", words)]
        at += size
    known = {(one.records, one.bytes) for one in expected.written(shard).values()}
    if lines[-1] or (known and (len(places), at) not in known):
        words = f"it ends after {len(places):,} records and {at:,} bytes, which the shard does not"
        return None, [Fault(file, "damaged", words)]
    return places, []


def _place(line: str) -> Place:
    offset, _, size = line.partition(" ")
    if f"{int(offset)} {int(size)}" != line:
        raise ValueError(f"{line!r} is no line `offset size`")
    return int(offset), int(size)


def compare_index(shard: Shard, places: Sequence[Place], found: Collection[Place]) -> list[Fault]:
    """The first line of an index that is not where a record of a sound shard is."""
    for number, (listed, true) in enumerate(zip(places, found, strict=False)):
        if listed != true:
            words = f"line {number + 1} is {listed}, but the record is at {true}"
            return [Fault(shard.index_file, "differs", words, number, true[0])]
    if len(places) != len(found):
        words = f"it has {len(places):,} lines for {len(found):,} records"
        return [Fault(shard.index_file, "differs", words)]
    return []


def compare_file(expected: Expectation, shard: Shard, found: Written) -> tuple[bool, list[Fault]]:
    """Whether a shard's file is the one that was written, and which file is wrong if one is."""
    known = expected.written(shard)
    if not known:
        return False, [Fault(shard.file, "checksum", "no checksum is left to compare it with")]
    matching = [file for file, written in known.items() if written == found]
    if matching:
        return True, [_contradiction(file, shard) for file in known if file not in matching]
    wanted = next(iter(known.values()))
    if found.bytes != wanted.bytes:
        words = f"it has {found.bytes:,} bytes; {wanted.bytes:,} were written"
        fault = Fault(shard.file, "size", words)
    elif found.crc32c != wanted.crc32c:
        words = f"its CRC32C is {found.crc32c:08x}; {wanted.crc32c:08x} was written"
        fault = Fault(shard.file, "checksum", words)
    else:
        words = f"it has {found.records:,} records; {wanted.records:,} were written"
        fault = Fault(shard.file, "differs", words)
    disagree = len(set(known.values())) > 1
    return False, [fault, *(_contradiction(file, shard) for file in known if disagree)]


def _contradiction(file: str, shard: Shard) -> Fault:
    words = f"its records, bytes or CRC32C of {shard.file} are not those of the file"
    return Fault(file, "differs", words)


def shows_sources(done: DoneRecord, plan: Plan) -> bool:
    """True if a shard shows its sources' sizes: JPEG is kept, PNG may be made of others.

    Not where images were transformed, or where there are several files a record.
    """
    files = [one for one in plan.features if one.kind in ("image", "mask")]
    transformed = transform_of(plan.options) is not None
    return done.formats.keys() <= {"jpeg"} and len(files) == 1 and not transformed


def compare_done(
    shard: Shard, stands: DoneRecord, proved: DoneRecord, rejects: RowList, suspects: RowList
) -> list[Fault]:
    """Where the done-record of a sound shard is not what the shard and its lists show."""
    faults = []
    for name in ("rows", "records", "formats", "shapes", "sides", "input_bytes", "oriented"):
        says, shows = getattr(stands, name), getattr(proved, name)
        if says != shows:
            words = f"{name} is {says}, but the shard shows {shows}"
            faults.append(Fault(shard.done, "differs", words))
    pairs = (
        (rejects.file, count_reasons(rejects.rows or ()), stands.reasons),
        (suspects.file, len(suspects.rows or ()), stands.suspects),
    )
    for file, listed, counted in pairs:
        if listed != counted:
            words = f"{listed} are listed in {file}, but {counted} are counted in {shard.done}"
            faults += [Fault(file, "differs", words), Fault(shard.done, "differs", words)]
    return faults

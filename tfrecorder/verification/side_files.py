"""The small files next to a shard: its index, and its lists of rejects and suspects."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c

from tfrecorder import storage
from tfrecorder.format.csv_cells import value_of
from tfrecorder.format.layout import Shard
from tfrecorder.format.tfrecord import FRAMING_BYTES, Place
from tfrecorder.verification.expectation import Expectation, other_crc, unread
from tfrecorder.verification.faults import Fault
from tfrecorder.writing.shards import REJECT_HEADER, SUSPECT_HEADER, to_csv


@dataclass(frozen=True)
class RowList:
    """A shard's rejects or suspects.

    Attributes:
        file: its name.
        rows: for each row, a tuple of texts as the header says; None if the list cannot be read.
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
    return _read_list(expected, shard, "rejects", REJECT_HEADER)


def read_suspects(expected: Expectation, shard: Shard) -> RowList:
    """The records of a shard whose image decodes with a warning."""
    return _read_list(expected, shard, "suspects", SUSPECT_HEADER)


def _read_list(expected: Expectation, shard: Shard, name: str, header: tuple[str, ...]) -> RowList:
    file = shard.beside[name]
    try:
        data = _read_beside(expected, shard, name)
        text = io.StringIO(data.decode(), newline="")
        found = [tuple(map(value_of, row)) for row in csv.reader(text, strict=True)]
    except _DamagedError as error:
        return RowList(file, None, (error.fault,))
    except (ValueError, csv.Error) as error:
        return RowList(file, None, (Fault(file, "damaged", f"it is not CSV: {error}"),))
    # Without a done-record no checksum is known, so a list must have its one form.
    if not found or found[0] != header:
        words = f"its first line is not {','.join(header)!r}"
        return RowList(file, None, (Fault(file, "damaged", words),))
    for place, row in enumerate(found[1:], 1):
        if len(row) != len(header) or not _is_row_number(row[0]):
            words = f"its row {place} has changed since it was written"
            return RowList(file, None, (Fault(file, "damaged", words),))
    if to_csv(header, found[1:]) != data:
        return RowList(file, None, (Fault(file, "damaged", "it has changed since it was written"),))
    return RowList(file, tuple(found[1:]))


def _is_row_number(text: str) -> bool:
    """True if this is how a row number is written."""
    return text.isascii() and text.isdecimal() and len(text) < 19


class _DamagedError(Exception):
    """A file cannot be read, or holds other bytes than were written: `fault` says so."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def _read_beside(expected: Expectation, shard: Shard, name: str) -> bytes:
    """One of the files next to a shard, with the checksum that its done-record knows, if any."""
    file = shard.beside[name]
    try:
        data = expected.read(file)
    except storage.UnreadableError as error:
        raise _DamagedError(unread(file, error)) from error
    done = expected.done.get(shard)
    known = None if done is None else done.beside[name]
    if fault := other_crc(file, google_crc32c.value(data), known):
        raise _DamagedError(fault)
    return data


def read_index(expected: Expectation, shard: Shard) -> tuple[list[Place] | None, list[Fault]]:
    """The places of a shard's records from its index; None, and why, if the index is damaged.

    The records of an index follow one another from the start of the shard to its end.
    """
    file = shard.index_file
    try:
        lines = _read_beside(expected, shard, "index").decode().split("\n")
        places = [_place(line) for line in lines[:-1]]
    except _DamagedError as error:
        return None, [error.fault]
    except ValueError as error:
        return None, [Fault(file, "damaged", f"it is not an index: {error}")]
    at = 0
    for number, (offset, size) in enumerate(places):
        if offset != at or size < FRAMING_BYTES:
            words = (
                f"according to line {number + 1}, record {number} does not begin where the last "
                "one ends"
            )
            return None, [Fault(file, "damaged", words)]
        at += size
    known = {(one.records, one.bytes) for one in expected.written(shard).values()}
    if lines[-1] or (known and (len(places), at) not in known):
        words = f"it ends after {len(places):,} records and {at:,} bytes, but the shard does not"
        return None, [Fault(file, "damaged", words)]
    return places, []


def _place(line: str) -> Place:
    offset, _, size = line.partition(" ")
    if f"{int(offset)} {int(size)}" != line:
        raise ValueError(f"{line!r} is not a line `offset size`")
    return int(offset), int(size)


def compare_index(shard: Shard, places: Sequence[Place], true: Sequence[Place]) -> list[Fault]:
    """The first line of an index that does not point to a record of a sound shard."""
    for number, (listed, met) in enumerate(zip(places, true, strict=False)):
        if listed != met:
            words = f"line {number + 1} is {listed}, but the record is at {met}"
            return [Fault(shard.index_file, "differs", words, number, met[0])]
    if len(places) != len(true):
        words = f"it has {len(places):,} lines for {len(true):,} records"
        return [Fault(shard.index_file, "differs", words)]
    return []


def check_counts(
    expected: Expectation, shard: Shard, rejects: RowList, suspects: RowList
) -> Iterator[Fault]:
    """Find where a done-record does not count what was planned, or what the lists hold."""
    done = expected.done[shard]
    planned = expected.plan.shard_rows(shard)
    if not done.rows == planned == done.records + done.rejects:
        words = (
            f"{planned:,} rows were planned, and it has {done.rows:,}: {done.records:,} records "
            f"and {done.rejects:,} rejects"
        )
        yield Fault(shard.done, "rows_lost", words)
    pairs = (
        (rejects, _count_reasons(rejects), done.reasons),
        (suspects, len(suspects.rows or ()), done.suspects),
    )
    for listed, found, counted in pairs:
        if listed.rows is not None and found != counted:
            words = (
                f"{found} are listed in {listed.file}, but {counted} are counted in {shard.done}"
            )
            yield Fault(listed.file, "differs", words)
            yield Fault(shard.done, "differs", words)


def _count_reasons(rejects: RowList) -> dict[str, int]:
    """Rejects by "stage/code", as done-records count them."""
    rows = rejects.rows or ()
    return dict(Counter(f"{stage}/{reason.partition(':')[0]}" for _, _, stage, reason in rows))

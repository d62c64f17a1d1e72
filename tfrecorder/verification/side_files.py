"""The small files next to a shard: its index and its table."""

from __future__ import annotations

from collections.abc import Sequence

import google_crc32c

from tfrecorder import storage
from tfrecorder.format.layout import Shard
from tfrecorder.format.tfrecord import FRAMING_BYTES, Place
from tfrecorder.verification.expectation import Expectation, other_crc, unread
from tfrecorder.verification.faults import Fault


def read_beside(expected: Expectation, shard: Shard, name: str) -> bytes | Fault:
    """One of the files next to a shard, with the checksum that its done-record knows, if any."""
    file, done = shard.beside[name], expected.done.get(shard)
    try:
        data = expected.read(file)
    except storage.UnreadableError as error:
        return unread(file, error)
    return other_crc(file, google_crc32c.value(data), done.beside[name] if done else None) or data


def read_index(expected: Expectation, shard: Shard) -> tuple[list[Place] | None, list[Fault]]:
    """The places of a shard's records from its index; None, and why, if the index is damaged.

    The records of an index follow one another from the start of the shard to its end.
    """
    file, done = shard.index_file, expected.done.get(shard)
    data = read_beside(expected, shard, "index")
    if isinstance(data, Fault):
        return None, [data]
    try:
        lines = data.decode().split("\n")
        places = [_place(line) for line in lines[:-1]]
    except ValueError as error:
        return None, [Fault(file, "damaged", f"it is not an index: {error}")]
    end = 0
    for number, (offset, size) in enumerate(places):
        if offset != end or size < FRAMING_BYTES:
            words = (
                f"according to line {number + 1}, record {number} does not begin where the last "
                "one ends"
            )
            return None, [Fault(file, "damaged", words)]
        end += size
    if lines[-1] or (done and (len(places), end) != (done.records, done.bytes)):
        words = f"it ends after {len(places):,} records and {end:,} bytes, but the shard does not"
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

"""Walking over the records of a shard that may be damaged: each one, sound or with its fault.

Unlike `tfrecord.read_records`, which stops at the first fault, because whoever trains must not go
on.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from tfrecorder.dataset.tfrecord import FRAMING_BYTES, CorruptRecordError, read_record

#: Where a record begins, and its bytes with the framing.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Walked:
    """One record as it was met.

    Attributes:
        number: in the file, from 0.
        offset: where it begins, in bytes.
        size: with its framing, in bytes; 0 where its end is not known.
        data: the Example; None where it is damaged.
        fault: what is wrong with it, in words; "" where it is sound.
    """

    number: int
    offset: int
    size: int
    data: bytes | None
    fault: str = ""


def walk(file: BinaryIO, places: Sequence[Place]) -> Iterator[Walked]:
    """The records of a shard in order, one in memory at a time.

    A record whose data are damaged is passed over by its length.  Where the length is damaged,
    the walk goes on at the next record that the index knows; without one it ends.

    Args:
        file: open to read, from its start.
        places: of the records by the index, one behind the other; may be empty.
    """
    end = os.fstat(file.fileno()).st_size
    starts = [offset for offset, _ in places]
    number = at = 0
    while at < end:
        met = _next_record(file, number, at, end)
        yield met
        if met.size:
            number, at = number + 1, at + met.size
            continue
        number = bisect.bisect_right(starts, at)
        if number == len(starts):
            return
        at = starts[number]
        file.seek(at)


def _next_record(file: BinaryIO, number: int, at: int, end: int) -> Walked:
    try:
        data = read_record(file, at, end) or b""
    except CorruptRecordError as error:
        return Walked(number, at, error.size, None, error.fault)
    return Walked(number, at, FRAMING_BYTES + len(data), data)

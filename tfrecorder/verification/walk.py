"""Walking over the records of a shard that may be damaged: each one, sound or with its fault.

Unlike `tfrecord.read_records`, which stops at the first fault, because whoever trains must not go
on.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c

from tfrecorder.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, MAX_RECORD_BYTES, masked_crc

_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")

#: Bytes read at a time where nothing is looked for.
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Walked:
    """One record as it was met.

    Attributes:
        number: in the file, from 0.
        offset: where it begins, in bytes.
        size: with its framing, in bytes; 0 where its end is not known.
        data: the Example; None where it is damaged.
        code: "record_length" or "record_checksum"; "" where it is sound.
        fault: the same in words.
    """

    number: int
    offset: int
    size: int
    data: bytes | None
    code: str = ""
    fault: str = ""


class SummedFile:
    """A file read from its start to its end, once, with the CRC32C of what was read.

    Attributes:
        at: bytes read so far.
        crc: their CRC32C.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.at = self.crc = 0

    def read(self, size: int) -> bytes:
        """The next bytes, fewer than asked only at the end of the file."""
        data = self._file.read(size)
        self.at += len(data)
        self.crc = google_crc32c.extend(self.crc, data)
        return data

    def read_to(self, offset: int) -> None:
        """Pass over what stands before an offset."""
        while self.at < offset and self.read(min(_PIECE, offset - self.at)):
            pass


def walk(file: SummedFile, size: int, starts: Sequence[int]) -> Iterator[Walked]:
    """The records of a shard in order, one in memory at a time.

    A record whose data are damaged is passed over by its length.  Where the length is damaged,
    the walk goes on at the next record that the index knows; without one it ends.

    Args:
        file: at its start.
        size: of the file, in bytes.
        starts: where the records begin by the index, ascending; may be empty.
    """
    number = 0
    while file.at < size:
        met = _next_record(file, size, number)
        yield met
        number += 1
        if not met.size:
            place = bisect.bisect_left(starts, max(file.at, met.offset + 1))
            if place == len(starts) or starts[place] >= size:
                return
            file.read_to(starts[place])
            number = place


def _next_record(file: SummedFile, size: int, number: int) -> Walked:
    offset = file.at

    def lost(fault: str) -> Walked:
        return Walked(number, offset, 0, None, "record_length", fault)

    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return lost("the file ends inside the header")
    length, crc = _HEADER.unpack(header)
    if crc != masked_crc(google_crc32c.value(header[:8])):
        return lost("the checksum of the length is wrong")
    if length > MAX_RECORD_BYTES:
        return lost(f"its length of {length:,} bytes is no Example's")
    if file.at + length + FOOTER_BYTES > size:  # before memory is taken for it
        return lost(f"the file ends inside the data of {length:,} bytes")
    data, footer = file.read(length), file.read(FOOTER_BYTES)
    framed = HEADER_BYTES + length + FOOTER_BYTES
    if _CRC.unpack(footer)[0] != masked_crc(google_crc32c.value(data)):
        fault = "the checksum of the data is wrong"
        return Walked(number, offset, framed, None, "record_checksum", fault)
    return Walked(number, offset, framed, data)

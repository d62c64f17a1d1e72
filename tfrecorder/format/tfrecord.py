"""The TFRecord file format: framing of records, and reading them back.

A record is `length, crc(length), data, crc(data)`: the length is a little-endian uint64, each CRC a
little-endian uint32, a CRC32C that is rotated and offset ("masked").
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/core/lib/hash/crc32c.h.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c
import numpy as np

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAMING_BYTES = HEADER_BYTES + FOOTER_BYTES

#: The largest size of a protocol buffer, and so of an Example: no record of ours is larger.
MAX_RECORD_BYTES = 2**31 - 1

#: The largest record that is unpacked: a compressed file of 1 MB may hold one of 1 GB.
MAX_PACKED_BYTES = 2**28

_TOO_LONG = "it would unpack to {:,} bytes, at most {:,} are; unpack the file first if it is sound"

_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")


class CorruptRecordError(ValueError):
    """A record's length, checksum or end is wrong.

    Attributes:
        offset: where the record begins, in bytes from the start of the file.
        fault: what is wrong, in words.
    """

    def __init__(self, offset: int, fault: str) -> None:
        super().__init__(offset, fault)
        self.offset = offset
        self.fault = fault

    def __str__(self) -> str:
        return f"record at byte {self.offset}: {self.fault}"


def masked_crc(crc: int) -> int:
    """A CRC32C as TFRecord stores it: rotated right by 15 bits, plus a constant, modulo 2**32.

    >>> hex(masked_crc(0))
    '0xa282ead8'
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(parts: Sequence[bytes]) -> list[bytes]:
    """Frame data that is given in parts as one record, without copying the parts.

    Args:
        parts: the data's pieces, in order; together at least 0 bytes.

    Returns:
        Buffers to write one after the other, the header first and the footer last.

    >>> b"".join(frame([b"ab", b"c"])) == b"".join(frame([b"abc"]))
    True
    """
    crc = 0
    size = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
        size += len(part)
    header = _HEADER.pack(size, masked_crc(google_crc32c.value(_LENGTH.pack(size))))
    return [header, *parts, _CRC.pack(masked_crc(crc))]


#: Where a record begins, and its size in bytes with the framing.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Walked:
    """One record as the walk found it.

    Attributes:
        number: its number in the file, from 0.
        offset: where it begins, in bytes.
        size: with its framing, in bytes; 0 if its end is not known.
        data: the Example; None if it is damaged, or was not read.
        fault: what is wrong with it, in words; "" if it is sound.
    """

    number: int
    offset: int
    size: int
    data: bytes | None
    fault: str = ""


def walk(
    file: BinaryIO, end: int | None, places: Sequence[Place] = (), *, lengths: bool = False
) -> Iterator[Walked]:
    """The records of a file that may be damaged, in order, one in memory at a time.

    A record whose data are damaged is skipped, using its length.  If the length is damaged, the
    walk continues at the next record that the index knows; without one it ends.

    Args:
        file: open to read, from its start.
        end: its size in bytes; None if nobody knows it before the end, as of the contents of a
            compressed file, where a record may have `MAX_PACKED_BYTES`.
        places: the places of the records from the index, one after another; may be empty.
        lengths: read only the lengths; then the last record may end beyond the file.
    """
    number = at = 0
    while end is None or at < end:
        header = file.read(HEADER_BYTES)
        if end is None and not header:
            return
        met = _record_after(header, file, number, at, end, lengths)
        yield met
        number += 1
        at += met.size
        if not met.size:
            number = bisect.bisect_right(places, at, key=lambda place: place[0])
            if number == len(places):
                return
            at = places[number][0]
        if lengths or not met.size:
            file.seek(at)


def read_records(file: BinaryIO, is_stream: bool = False) -> Iterator[bytes]:
    """The records of an open file.

    Args:
        is_stream: read it from where it is, without seeking.

    Raises:
        CorruptRecordError: a record is damaged, or the file ends inside it.
    """
    end = None
    if not is_stream:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
    for met in walk(file, end):
        if met.data is None:
            raise CorruptRecordError(met.offset, met.fault)
        yield met.data


def is_header(data: bytes) -> bool:
    """Whether bytes begin with the header of a record: a length, and its checksum.

    >>> is_header(b"".join(frame([b"abc"]))), is_header(b"text, not a record")
    (True, False)
    """
    if len(data) < HEADER_BYTES:
        return False
    return _HEADER.unpack(data[:HEADER_BYTES])[1] == masked_crc(google_crc32c.value(data[:8]))


def check_frame(framed: bytes) -> None:
    """Compare the checksums of one record.

    Raises:
        ValueError: it is damaged; the message says how.
    """
    if len(framed) < FRAMING_BYTES:
        raise ValueError("the file ends inside the header")
    size, crc = _HEADER.unpack_from(framed)
    if crc != masked_crc(google_crc32c.value(framed[:8])):
        raise ValueError("the checksum of the length is wrong")
    if size != len(framed) - FRAMING_BYTES:
        raise ValueError(f"its length of {size:,} bytes is not that of the index")
    data = np.frombuffer(framed, np.uint8, size, HEADER_BYTES)  # a view; memoryviews are refused
    if _CRC.unpack_from(framed, HEADER_BYTES + size)[0] != masked_crc(google_crc32c.value(data)):
        raise ValueError("the checksum of the data is wrong")


def unframe(framed: bytes) -> bytes:
    """The data of one record, after its checksums were compared.

    Raises:
        ValueError: it is damaged; the message says how.

    >>> unframe(b"".join(frame([b"abc"])))
    b'abc'
    """
    check_frame(framed)
    return data_of(framed)


def data_of(framed: bytes) -> bytes:
    """The data of a record that was checked."""
    return framed[HEADER_BYTES:-FOOTER_BYTES]


def read_places(file: BinaryIO, end: int) -> Iterator[Place]:
    """Offset and size, with the framing, of each record of an open file, from the lengths alone.

    The last record may end beyond the file.

    Args:
        end: the file's size in bytes.

    Raises:
        CorruptRecordError: a length is damaged, or the file ends inside a header.
    """
    for met in walk(file, end, lengths=True):
        if met.fault:
            raise CorruptRecordError(met.offset, met.fault)
        yield met.offset, met.size


def _record_after(
    header: bytes, file: BinaryIO, number: int, at: int, end: int | None, lengths: bool
) -> Walked:
    def damaged(fault: str, size: int = 0) -> Walked:
        return Walked(number, at, size, None, fault)

    if len(header) < HEADER_BYTES:
        return damaged("the file ends inside the header")
    size, crc = _HEADER.unpack(header)
    if crc != masked_crc(google_crc32c.value(header[:8])):
        return damaged("the checksum of the length is wrong")
    if end is None and size > MAX_PACKED_BYTES:
        return damaged(_TOO_LONG.format(size, MAX_PACKED_BYTES))
    if size > MAX_RECORD_BYTES:
        return damaged(f"its length of {size:,} bytes is not an Example's")
    framed = FRAMING_BYTES + size
    if lengths:
        return Walked(number, at, framed, None)
    # No memory is allocated for a record that ends beyond the file.
    data = file.read(size) if end is None or at + framed <= end else b""
    footer = file.read(FOOTER_BYTES) if len(data) == size else b""
    if len(footer) < FOOTER_BYTES:
        return damaged(f"the file ends inside the data of {size:,} bytes")
    if _CRC.unpack(footer)[0] != masked_crc(google_crc32c.value(data)):
        return damaged("the checksum of the data is wrong", framed)
    return Walked(number, at, framed, data)

"""The TFRecord file format: framing of records, and reading them back.

A record is `length, crc(length), data, crc(data)`: the length a little-endian uint64, each CRC a
little-endian uint32, a CRC32C that is rotated and offset ("masked").
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/core/lib/hash/crc32c.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import google_crc32c

from tfrecorder.dataset.crc32c import combine

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAMING_BYTES = HEADER_BYTES + FOOTER_BYTES

#: Where a protocol buffer ends, and with it an Example: no record of ours is larger.
MAX_RECORD_BYTES = 2**31 - 1

_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")


class CorruptRecordError(ValueError):
    """A record's length, checksum or end is wrong.

    Attributes:
        offset: where the record begins, in bytes from the start of the file.
        size: of the record with its framing, in bytes; 0 where its end is not known.
    """

    def __init__(self, offset: int, fault: str, size: int = 0) -> None:
        super().__init__(offset, fault, size)
        self.offset = offset
        self.fault = fault
        self.size = size

    def __str__(self) -> str:
        return f"record at byte {self.offset}: {self.fault}"


def masked_crc(crc: int) -> int:
    """A CRC32C as TFRecord stores it: rotated right by 15 bits, plus a constant, modulo 2**32.

    >>> hex(masked_crc(0))
    '0xa282ead8'
    """
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _unmasked_crc(masked: int) -> int:
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def frame(parts: Sequence[bytes]) -> list[bytes]:
    """One record around data that is given in parts, themselves not copied.

    Args:
        parts: the data's pieces, in order; together at least 0 bytes.

    Returns:
        Buffers to write one after the other, the header first and the footer last.

    >>> b"".join(frame([b"ab", b"c"])) == b"".join(frame([b"abc"]))
    True
    """
    crc, size = 0, 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
        size += len(part)
    header = _HEADER.pack(size, masked_crc(google_crc32c.value(_LENGTH.pack(size))))
    return [header, *parts, _CRC.pack(masked_crc(crc))]


def framed_crc(buffers: Sequence[bytes], before: int = 0) -> int:
    """The CRC32C of a file that ends with a framed record, from the checksum that the record holds:
    its data, nearly all of a shard, are not read again.

    Args:
        buffers: what `frame` returned.
        before: the CRC32C of all that stands before the record.

    >>> one, two = frame([b"abc"]), frame([b"de"])
    >>> framed_crc(two, framed_crc(one)) == google_crc32c.value(b"".join(one + two))
    True
    """
    header, footer = buffers[0], buffers[-1]
    (size,) = _LENGTH.unpack(header[: _LENGTH.size])
    (masked,) = _CRC.unpack(footer)
    crc = combine(google_crc32c.extend(before, header), _unmasked_crc(masked), size)
    return google_crc32c.extend(crc, footer)


def read_records(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The records of an open file, with the offset at which each begins.

    Raises:
        CorruptRecordError: as `read_record`.
    """
    offset = 0
    while (data := read_record(file, offset)) is not None:
        yield offset, data
        offset += FRAMING_BYTES + len(data)


def read_record(file: BinaryIO, offset: int, end: int | None = None) -> bytes | None:
    """The data of the record that begins where an open file stands; None at the file's end.

    Args:
        offset: where that is, in bytes from the start of the file.
        end: the file's size in bytes, if known: no memory is taken for a record beyond it.

    Raises:
        CorruptRecordError: a checksum is wrong, the file ends inside the record, or the record is
            larger than an Example can be.
    """
    header = file.read(HEADER_BYTES)
    if not header:
        return None
    if len(header) < HEADER_BYTES:
        raise CorruptRecordError(offset, "the file ends inside the header")
    size, crc = _HEADER.unpack(header)
    if crc != masked_crc(google_crc32c.value(header[:8])):
        raise CorruptRecordError(offset, "the checksum of the length is wrong")
    if size > MAX_RECORD_BYTES:
        raise CorruptRecordError(offset, f"its length of {size:,} bytes is no Example's")
    fits = end is None or offset + FRAMING_BYTES + size <= end
    body = file.read(size + FOOTER_BYTES) if fits else b""
    if len(body) < size + FOOTER_BYTES:
        raise CorruptRecordError(offset, f"the file ends inside the data of {size:,} bytes")
    data = body[:size]
    if _CRC.unpack(body[size:])[0] != masked_crc(google_crc32c.value(data)):
        raise CorruptRecordError(offset, "the checksum of the data is wrong", FRAMING_BYTES + size)
    return data


def read_places(file: BinaryIO, end: int) -> Iterator[tuple[int, int]]:
    """Offset and size, with the framing, of each record of an open file, by the lengths alone.

    No checksum is looked at; the last record may end beyond the file.

    Args:
        end: the file's size in bytes.

    Raises:
        CorruptRecordError: the file ends inside a header.
    """
    at = 0
    while at < end:
        file.seek(at)
        head = file.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            raise CorruptRecordError(at, "the file ends inside the header")
        size = FRAMING_BYTES + _LENGTH.unpack(head)[0]
        yield at, size
        at += size

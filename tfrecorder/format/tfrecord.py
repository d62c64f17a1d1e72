"""The TFRecord file format: framing of records, and reading them back.

A record is `length, crc(length), data, crc(data)`: the length is a little-endian uint64, each CRC a
little-endian uint32, a CRC32C that is rotated and offset ("masked").
Source: tensorflow/core/lib/io/record_writer.h and tensorflow/core/lib/hash/crc32c.h.

Files compressed as a whole, as TensorFlow's `TFRecordOptions` writes them, are read and never
written: JPEG does not shrink, and readers cannot seek in them.

The CRC32C of a shard follows from those of its records, without reading them again.  A CRC is the
remainder of a division of polynomials, so two of them differ by what their beginnings differ by,
times a power of x for what follows.  The arithmetic is that of `crc32_combine` in zlib (`multmodp`
and `x2nmodp` in its crc32.c), with the polynomial of RFC 3720, section 12.1.
"""

from __future__ import annotations

import bisect
import gzip
import io
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, cast

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

    def __init__(
        self,
        offset: int,
        fault: str,
    ) -> None:
        super().__init__(offset, fault)
        self.offset = offset
        self.fault = fault

    def __str__(self) -> str:
        return f"record at byte {self.offset}: {self.fault}"


_MASK = 0xA282EAD8


def masked_crc(crc: int) -> int:
    """A CRC32C as TFRecord stores it: rotated right by 15 bits, plus a constant, modulo 2**32.

    >>> hex(masked_crc(0))
    '0xa282ead8'
    """
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


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
    return [_header(size), *parts, _CRC.pack(masked_crc(crc))]


def _header(size: int) -> bytes:
    return _HEADER.pack(size, masked_crc(google_crc32c.value(_LENGTH.pack(size))))


def crc_of_data(parts: Sequence[bytes]) -> int:
    """The CRC32C of a framed record's data, as its footer has it.

    >>> crc_of_data(frame([b"abc"])) == google_crc32c.value(b"abc")
    True
    """
    rotated = _CRC.unpack(parts[-1][-FOOTER_BYTES:])[0] - _MASK & 0xFFFFFFFF
    return (rotated << 15 | rotated >> 17) & 0xFFFFFFFF


def framed_crcs(crcs: np.ndarray, sizes: np.ndarray) -> list[int]:
    """The CRC32Cs of framed records, from those of their data.

    Args:
        sizes: in bytes, with the framing.

    >>> record = b"".join(frame([b"abc"]))
    >>> one = np.array([google_crc32c.value(b"abc")]), np.array([len(record)])
    >>> framed_crcs(*one) == [google_crc32c.value(record)]
    True
    """
    sizes = sizes - FRAMING_BYTES
    headers = np.array([google_crc32c.value(_header(size)) for size in sizes.tolist()], np.int64)
    before = (_shifted_crcs(headers, sizes) ^ crcs.astype(np.int64)).tolist()
    pairs = zip(before, crcs.tolist(), strict=True)
    return [google_crc32c.extend(one, _CRC.pack(masked_crc(crc))) for one, crc in pairs]


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
    file: BinaryIO,
    end: int | None,
    places: Sequence[Place] = (),
    *,
    lengths: bool = False,
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
    header: bytes,
    file: BinaryIO,
    number: int,
    at: int,
    end: int | None,
    lengths: bool,
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


GZIP = "GZIP"
ZLIB = "ZLIB"

#: Bytes that show how a file is compressed; a record's header is recognised by its checksum.
HEAD_BYTES = HEADER_BYTES

_READ_AT_ONCE = 2**16


def compression_of(head: bytes) -> str:
    """How a whole file is compressed, from its first bytes: "GZIP", "ZLIB", or "" for none.

    The marks are those of RFC 1952 and RFC 1950.

    >>> compression_of(gzip.compress(b"x")), compression_of(zlib.compress(b"x"))
    ('GZIP', 'ZLIB')
    """
    if len(head) < 2 or is_header(head):
        return ""
    if head[:2] == b"\x1f\x8b":
        return GZIP
    return ZLIB if head[0] == 0x78 and int.from_bytes(head[:2], "big") % 31 == 0 else ""


def records_of(file: BinaryIO, compression: str) -> Iterator[bytes]:
    """The records of an open file, in order, unpacked on the way.

    Raises:
        ValueError: a record is damaged, or the compressed data cannot be unpacked.
    """
    if not compression:
        yield from read_records(file)
        return
    packed = gzip.GzipFile(fileobj=file) if compression == GZIP else _ZLib(file)
    try:
        yield from read_records(io.BufferedReader(cast(io.RawIOBase, packed)), is_stream=True)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked as {compression}: {error}") from error


class _ZLib(io.RawIOBase):
    """The contents of a file in the form of RFC 1950, as a stream."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = b""
        while not data and not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._file.read(_READ_AT_ONCE)
            data = self._inflate.decompress(packed, len(buffer))  # perhaps from an earlier piece
            if not packed and not data and not self._inflate.eof:
                raise EOFError("the file ends too early")
        buffer[: len(data)] = data
        return len(data)


#: CRC32C's polynomial; as in all numbers here, the highest bit is the factor of x to the power 0.
_POLYNOMIAL = 0x82F63B78

#: Each value of each byte of a CRC, in its place: what it is after no byte.
_BYTES = np.arange(256) << 8 * np.arange(4)[:, np.newaxis]


def shifted_crc(difference: int, size: int) -> int:
    """What two CRC32Cs differ by after the same `size` bytes, given what they differed by before.

    >>> import google_crc32c
    >>> one, other = (google_crc32c.value(data + b"rest") for data in (b"one", b"other"))
    >>> shifted_crc(google_crc32c.value(b"one") ^ google_crc32c.value(b"other"), 4) == one ^ other
    True

    Raises:
        ValueError: `size` is below 0.
    """
    if size < 0:
        raise ValueError(f"{size} bytes cannot follow")
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            difference = _looked_up(_crc_tables_as_lists(bit), difference)
    return difference


def joined_crc(crcs: np.ndarray, sizes: np.ndarray) -> int:
    """The CRC32C of pieces one after the other, in the order given.

    Args:
        crcs: of each piece.
        sizes: of each, in bytes.

    >>> import google_crc32c
    >>> pieces = [b"one", b"", b"other"]
    >>> crcs = np.array([google_crc32c.value(piece) for piece in pieces])
    >>> joined_crc(crcs, np.array([3, 0, 5])) == google_crc32c.value(b"oneother")
    True
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    if not len(ends):
        return 0
    shares = _shifted_crcs(crcs.astype(np.int64), ends[-1] - ends)
    return int(np.bitwise_xor.reduce(shares))


def _shifted_crcs(shares: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """`shifted_crc` of many, each by its own size."""
    for bit in range(0, int(sizes.max(initial=0)).bit_length(), _DIGIT_BITS):
        digit = (sizes >> bit) % _DIGITS
        shares = _looked_up(_crc_tables_of_digit(bit), shares, digit * 256)
    return shares


#: Bits of a size that are looked up together: more would take larger tables than a core's cache.
_DIGIT_BITS = 4
_DIGITS = 2**_DIGIT_BITS


@lru_cache(maxsize=16)
def _crc_tables_of_digit(bit: int) -> np.ndarray:
    """What each value of each byte of a CRC becomes after 0, 1, 2, … times 2**bit bytes.

    Four tables, in each 256 values for every digit.
    """
    step = _crc_tables(bit)
    tables = [_BYTES]
    for _ in range(_DIGITS - 1):
        tables.append(_looked_up(step, tables[-1]))
    return np.concatenate(tables, axis=1)


def _looked_up(
    tables: Any,
    crcs: Any,
    start: Any = 0,
) -> Any:
    """What CRCs, or one, become by four tables, in which the values looked up begin there."""
    first, second, third, fourth = tables
    low = first[start + (crcs & 255)] ^ second[start + (crcs >> 8 & 255)]
    return low ^ third[start + (crcs >> 16 & 255)] ^ fourth[start + (crcs >> 24)]


@lru_cache(maxsize=64)
def _crc_tables(bit: int) -> Any:
    """What each value of each byte of a CRC becomes after 2**bit bytes: 4 tables of 256."""
    if bit:
        half = _crc_tables(bit - 1)
        return _looked_up(half, half)
    crcs = _BYTES
    for _ in range(8):
        crcs = crcs >> 1 ^ (crcs & 1) * _POLYNOMIAL
    return crcs


@lru_cache(maxsize=64)
def _crc_tables_as_lists(bit: int) -> Any:
    """The same as lists, which take a tenth of the time for a single CRC."""
    return _crc_tables(bit).tolist()

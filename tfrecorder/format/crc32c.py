"""CRC32Cs: of joined data, from those of the parts and without reading the data again; of a file.

A CRC is linear: crc(a + b) is crc(a), moved on by len(b) zero bytes, xor crc(b).  Moving on by
2**k zero bytes is a 32 by 32 matrix over GF(2), kept here as four tables of 256, one for each byte
of the CRC; any length is a product of such powers.
Source: zlib, crc32_combine; the polynomial is Castagnoli's, RFC 3720, section 12.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import BinaryIO

import google_crc32c

_POLYNOMIAL = 0x82F63B78  # bits reversed, as the CRC itself

_Tables = tuple[tuple[int, ...], ...]

#: Bytes of a file read at a time.
_PIECE = 1 << 20


def sum_file(file: BinaryIO, advance: Callable[[int], None] = lambda size: None) -> tuple[int, int]:
    """Size and CRC32C of the rest of an open file.

    Args:
        advance: called with the number of bytes of each piece read.
    """
    size = crc = 0
    while piece := file.read(_PIECE):
        crc = google_crc32c.extend(crc, piece)
        size += len(piece)
        advance(len(piece))
    return size, crc


def combine(first: int, second: int, size: int) -> int:
    """The CRC32C of two pieces of data, one after the other.

    Args:
        first: the CRC32C of the first piece.
        second: that of the second piece.
        size: bytes of the second piece, 0 to 2**64 - 1.

    >>> combine(google_crc32c.value(b"ab"), google_crc32c.value(b"cde"), 3) == google_crc32c.value(
    ...     b"abcde"
    ... )
    True
    """
    power = 0
    while size:
        if size & 1:
            one, two, three, four = _tables(power)
            first = (
                one[first & 0xFF]
                ^ two[first >> 8 & 0xFF]
                ^ three[first >> 16 & 0xFF]
                ^ four[first >> 24]
            )
        size >>= 1
        power += 1
    return first ^ second


@lru_cache(maxsize=64)
def _tables(power: int) -> _Tables:
    """The tables that move a CRC on by 2**power zero bytes."""
    if power == 0:
        columns = [_move_one_byte(1 << bit) for bit in range(32)]
    else:
        half = _tables(power - 1)
        columns = [_apply(half, _apply(half, 1 << bit)) for bit in range(32)]
    return tuple(_table(columns[start : start + 8]) for start in range(0, 32, 8))


def _move_one_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc


def _apply(tables: _Tables, crc: int) -> int:
    return (
        tables[0][crc & 0xFF]
        ^ tables[1][crc >> 8 & 0xFF]
        ^ tables[2][crc >> 16 & 0xFF]
        ^ tables[3][crc >> 24]
    )


def _table(columns: list[int]) -> tuple[int, ...]:
    """The images of all values of one byte, from the images of its bits."""
    table = [0]
    for column in columns:
        table += [value ^ column for value in table]
    return tuple(table)

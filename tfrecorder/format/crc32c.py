"""CRC32C of bytes whose beginning was replaced, and of pieces that were joined, without reading
them again.

A CRC is the remainder of a division of polynomials, so two of them differ by what their beginnings
differ by, times a power of x for what follows.  The arithmetic is that of `crc32_combine` in zlib
(`multmodp` and `x2nmodp` in its crc32.c), with the polynomial of RFC 3720, section 12.1.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

#: CRC32C's polynomial; as in all numbers here, the highest bit is the factor of x to the power 0.
_POLYNOMIAL = 0x82F63B78

#: x to the power 8: what a byte shifts by.
_BYTE = 1 << 23


def shifted(difference: int, size: int) -> int:
    """What two CRC32Cs differ by after the same `size` bytes, given what they differed by before.

    >>> import google_crc32c
    >>> one, other = (google_crc32c.value(data + b"rest") for data in (b"one", b"other"))
    >>> shifted(google_crc32c.value(b"one") ^ google_crc32c.value(b"other"), 4) == one ^ other
    True

    Raises:
        ValueError: `size` is below 0.
    """
    if size < 0:
        raise ValueError(f"{size} bytes cannot follow")
    for bit in range(size.bit_length()):
        if size >> bit & 1:
            first, second, third, fourth = _plain_tables(bit)
            low = first[difference & 255] ^ second[difference >> 8 & 255]
            difference = low ^ third[difference >> 16 & 255] ^ fourth[difference >> 24]
    return difference


def joined(crcs: np.ndarray, sizes: np.ndarray) -> int:
    """The CRC32C of pieces one after the other, in the order given.

    Args:
        crcs: of each piece.
        sizes: of each, in bytes.

    >>> import google_crc32c
    >>> pieces = [b"one", b"", b"other"]
    >>> crcs = np.array([google_crc32c.value(piece) for piece in pieces])
    >>> joined(crcs, np.array([3, 0, 5])) == google_crc32c.value(b"oneother")
    True
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    if not len(ends):
        return 0
    behind = ends[-1] - ends
    shares = crcs.astype(np.int64)
    for bit in range(0, int(behind[0]).bit_length(), _DIGIT_BITS):
        digit = (behind >> bit) % _DIGITS * 256
        first, second, third, fourth = _tables_of_digit(bit)
        low = first[digit + (shares & 255)] ^ second[digit + (shares >> 8 & 255)]
        high = third[digit + (shares >> 16 & 255)] ^ fourth[digit + (shares >> 24)]
        shares = low ^ high
    return int(np.bitwise_xor.reduce(shares))


#: Bits of a size that are looked up together: more would take larger tables than a core's cache.
_DIGIT_BITS = 4
_DIGITS = 2**_DIGIT_BITS


@lru_cache(maxsize=16)
def _tables_of_digit(bit: int) -> np.ndarray:
    """What each value of each byte of a CRC becomes after 0, 1, 2, … times 2**bit bytes.

    Four tables, in each 256 values for every digit.
    """
    step = _tables(bit)
    # After no byte, each value stays in its place.
    tables = [np.arange(256) << 8 * np.arange(4)[:, np.newaxis]]
    for _ in range(_DIGITS - 1):
        tables.append(_looked_up(step, tables[-1]))
    return np.concatenate(tables, axis=1)


def _looked_up(tables: np.ndarray, crcs: np.ndarray) -> np.ndarray:
    first, second, third, fourth = tables
    low = first[crcs & 255] ^ second[crcs >> 8 & 255]
    return np.asarray(low ^ third[crcs >> 16 & 255] ^ fourth[crcs >> 24])


@lru_cache(maxsize=64)
def _tables(bit: int) -> np.ndarray:
    """What each value of each byte of a CRC becomes after 2**bit bytes: 4 tables of 256."""
    tables = np.zeros((4, 256), np.int64)
    if bit:
        half = _tables(bit - 1)
        return _looked_up(half, half)
    for place in range(32):
        table = tables[place // 8]
        value = 1 << place % 8
        # The product is linear: a byte becomes what its bits become, one added to the other.
        table[value : 2 * value] = table[:value] ^ _product(_BYTE, 1 << place)
    return tables


@lru_cache(maxsize=64)
def _plain_tables(bit: int) -> list[list[int]]:
    """The same as lists, which take a tenth of the time for a single CRC."""
    tables: list[list[int]] = _tables(bit).tolist()
    return tables


def _product(a: int, b: int) -> int:
    product = 0
    bit = 1 << 31
    while a:
        if a & bit:
            product ^= b
            a ^= bit
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
        bit >>= 1
    return product

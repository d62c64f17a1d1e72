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
    power = _BYTE
    while size and difference:
        if size & 1:
            difference = _product(power, difference)
        size, power = size >> 1, _product(power, power)
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
    shares = crcs.astype(np.uint32)
    for bit in range(int(behind[0]).bit_length()):
        is_shifted = (behind >> bit & 1).astype(bool)
        some = shares[is_shifted]
        tables = _tables(bit)
        shares[is_shifted] = (
            tables[0][some & 0xFF]
            ^ tables[1][some >> 8 & 0xFF]
            ^ tables[2][some >> 16 & 0xFF]
            ^ tables[3][some >> 24]
        )
    return int(np.bitwise_xor.reduce(shares))


@lru_cache(maxsize=64)
def _tables(bit: int) -> np.ndarray:
    """What each value of each byte of a CRC becomes after 2**bit bytes: 4 tables of 256."""
    tables = np.zeros((4, 256), np.uint32)
    for place in range(32):
        table = tables[place // 8]
        value = 1 << place % 8
        # The product is linear: a byte becomes what its bits become, one added to the other.
        table[value : 2 * value] = table[:value] ^ shifted(1 << place, 1 << bit)
    return tables


def _product(a: int, b: int) -> int:
    product, bit = 0, 1 << 31
    while a:
        if a & bit:
            product, a = product ^ b, a ^ bit
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
        bit >>= 1
    return product

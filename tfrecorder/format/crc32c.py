"""CRC32C of bytes whose beginning was replaced, without reading the rest again.

A CRC is the remainder of a division of polynomials, so two of them differ by what their beginnings
differ by, times a power of x for what follows.  The arithmetic is that of `crc32_combine` in zlib
(`multmodp` and `x2nmodp` in its crc32.c), with the polynomial of RFC 3720, section 12.1.
"""

from __future__ import annotations

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
    """
    power = _BYTE
    while size and difference:
        if size & 1:
            difference = _product(power, difference)
        size, power = size >> 1, _product(power, power)
    return difference


def _product(a: int, b: int) -> int:
    product, bit = 0, 1 << 31
    while a:
        if a & bit:
            product, a = product ^ b, a ^ bit
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
        bit >>= 1
    return product

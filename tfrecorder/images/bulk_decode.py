"""Bulk decoding, to the same pixels, of what Pillow decodes in Python number by number.

    plain PBM, PGM, PPM (text)          1.3 us per sample in Pillow, 0.05 here
    PGM, PPM, maximum not 255 or 65,535 2.2 us per sample in Pillow, 0.01 here
    BMP with run lengths                1.8 us per run in Pillow, 0.3 here

With Pillow's decoders, a sound 12-bit PGM of 80 megapixels took three minutes.  Pillow still reads
the header; `raw_data` then gives it raw pixels instead of the data it would have to decode.

Source: netpbm's pbm(5), pgm(5), ppm(5); Microsoft's "Bitmap compression".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from PIL import ImageFile

from tfrecorder.images.expense import too_expensive

_SPACES = b" \t\n\r\x0b\x0c"
_COMMENT = re.compile(rb"#[^\r\n]*[\r\n]?")
_BLOCK = 1 << 20  # bytes of text at a time: its numbers then take no more memory than the pixels
_DIGITS = 10  # the most in a number, as in Pillow

#: The most codes of a BMP that are not runs: this many, plus one per three pixels; each takes 1 us.
_ESCAPES = 500_000
_FEW_RUNS = 16  # up to here, runs are quicker one by one
_WINDOW = 1 << 14

#: The two 4-bit pixels that each byte holds.
_UPPER = bytes(byte >> 4 for byte in range(256))
_LOWER = bytes(byte & 15 for byte in range(256))


def raw_data(image: ImageFile.ImageFile, data: bytes) -> tuple[bytes, str, int] | None:
    """The pixels of an opened image as raw data.

    Returns:
        The data, Pillow's name for their layout, and 1 or -1 for rows from the top or the bottom;
        None if Pillow's own decoder is just as good.

    Raises:
        ValueError: the data do not hold such pixels.
    """
    if not image.tile:  # WebP and AVIF, which set theirs when they load
        return None
    name, _, offset, arguments = image.tile[0]
    size = image.width * image.height
    if name == "bmp_rle":
        assert isinstance(arguments, tuple)
        decoded = _run_lengths(data, offset, image.width, size, bool(arguments[1]))
        return decoded, "L" if image.mode == "L" else "P", int(arguments[2])
    if name not in ("ppm", "ppm_plain"):
        return None
    if image.mode == "1":
        return _plain_bits(_text(data, offset), size), "1;8", 1
    assert isinstance(arguments, tuple)
    largest, samples = int(arguments[1]), size * len(image.getbands())
    if name == "ppm_plain":
        values = _plain_numbers(_text(data, offset), samples)
        if values.size and values.max() > largest:
            raise ValueError(f"a number is larger than {largest}, the largest of its header")
    else:
        kind = np.dtype("u1" if largest < 256 else ">u2")
        count = min(samples, (len(data) - offset) // kind.itemsize)
        values = np.frombuffer(data, kind, count, offset)
    return _scaled(values, largest, image.mode), "I;32" if image.mode == "I" else image.mode, 1


def _scaled(values: np.ndarray, largest: int, mode: str) -> bytes:
    """Samples from 0 to `largest`, scaled as in Pillow: to 65,535 in its mode I, else to 255."""
    full = 65535 if mode == "I" else 255
    every = np.arange(65536 if largest > 255 else 256)
    table = np.minimum(np.rint(every / largest * full), full)
    return table.astype("<i4" if mode == "I" else "u1")[values].tobytes()


def _text(data: bytes, offset: int) -> bytes:
    text = data[offset:]
    return _COMMENT.sub(b"", text) if b"#" in text else text


def _plain_bits(text: bytes, size: int) -> bytes:
    """One byte per pixel; in a plain PBM, 1 is black and spaces may be left out."""
    bits = text.translate(None, _SPACES)[:size]
    if bits.translate(None, b"01"):
        raise ValueError("a pixel is neither 0 nor 1")
    return bits.translate(bytes.maketrans(b"01", b"\xff\x00"))


def _plain_numbers(text: bytes, count: int) -> np.ndarray:
    """The numbers in a text, at most `count` of them."""
    found, parts = 0, []
    for block in _blocks(text):
        numbers = _numbers(block, count - found)
        found += len(numbers)
        parts.append(numbers)
        if found == count:
            break
    return np.concatenate(parts) if parts else np.empty(0, np.uint16)


def _blocks(text: bytes) -> Iterator[bytes]:
    """The text in parts that end between two numbers."""
    at = 0
    space = re.compile(rb"[ \t\n\r\x0b\x0c]")
    while at < len(text):
        end = space.search(text, at + _BLOCK)
        yield text[at : end.start() if end else len(text)]
        at = end.start() if end else len(text)


def _numbers(block: bytes, most: int) -> np.ndarray:
    """The numbers in a text of digits and spaces, the first `most` of them."""
    codes = np.frombuffer(block, np.uint8)
    digits = codes - np.uint8(48)  # a digit is 0 to 9 here
    is_digit = np.concatenate([[False], digits < 10, [False]])
    edges = np.flatnonzero(is_digit[1:] != is_digit[:-1])
    starts, ends = edges[::2][:most], edges[1::2][:most]
    used = block[: int(ends[-1]) + 1] if 0 < most <= len(starts) else block
    if used.translate(None, b"0123456789" + _SPACES):
        raise ValueError("there is something else than numbers")
    lengths = ends - starts
    if lengths.size and lengths.max() > _DIGITS:
        raise ValueError(f"a number has more than {_DIGITS} digits")
    values = np.zeros(len(starts), np.int64)
    for place in range(int(lengths.max()) if lengths.size else 0):
        has = lengths > place
        values[has] += digits[ends[has] - 1 - place].astype(np.int64) * 10**place
    return np.minimum(values, 65536).astype(np.uint32)


def _run_lengths(data: bytes, at: int, width: int, size: int, nibbles: bool) -> bytes:
    """The pixels of an RLE8 or RLE4 BMP, one byte each, bottom row first."""
    out = bytearray()
    codes = np.frombuffer(data, np.uint8)
    x, end, runs = 0, len(data) - 1, 0
    left = _ESCAPES + size // 3  # the shortest such code in use is three literal pixels
    while len(out) < size and at < end:
        count, value = data[at], data[at + 1]
        at += 2
        if count:
            count = max(0, min(count, width - x))
            out += _pair(value, count) if nibbles else data[at - 1 : at] * count
            x += count
            runs += 1
            if runs == _FEW_RUNS:
                following = _runs(codes, at, width - x)
                out += _pairs(*following) if nibbles else np.repeat(*reversed(following)).tobytes()
                x, at = x + int(following[0].sum()), at + 2 * len(following[0])
            continue
        runs, left = 0, left - 1
        if left < 0:
            raise too_expensive(f"the BMP has more codes than its {size:,} pixels need")
        if value == 0:  # the end of a row
            out += bytes(-len(out) % width)
            x = 0
        elif value == 1:  # the end of the picture
            break
        elif value == 2:  # skipped pixels
            if at + 2 > len(data):
                break
            out += bytes(min(data[at] + data[at + 1] * width, size - len(out)))
            x, at = len(out) % width, at + 2
        else:  # literal pixels
            stored = data[at : at + (value // 2 if nibbles else value)]
            out += _halves(stored) if nibbles else stored
            at += len(stored)
            x += value
            at += at % 2
    return bytes(out)


def _runs(codes: np.ndarray, at: int, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The runs from `at` to the next code that is not a run, cut at the end of the row.

    Args:
        room: pixels left in the row.

    Returns:
        Their lengths and their values.
    """
    last = at
    while last + 1 < len(codes):
        ends = codes[last : last + _WINDOW : 2] == 0
        found = int(ends.argmax())
        last += 2 * found if ends[found] else 2 * len(ends)
        if ends[found]:
            break
    last = min(last, at + (len(codes) - at) // 2 * 2)
    counts, values = codes[at:last:2].astype(np.int64), codes[at + 1 : last : 2]
    ends_at = np.minimum(np.cumsum(counts), max(room, 0))
    return np.diff(ends_at, prepend=0), values


def _pairs(counts: np.ndarray, values: np.ndarray) -> bytes:
    """Runs of two alternating 4-bit values."""
    both = np.repeat(values, counts)
    places = np.arange(len(both)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.where(places % 2, both & 15, both >> 4).astype(np.uint8).tobytes()


def _pair(value: int, count: int) -> bytes:
    return (bytes((value >> 4, value & 15)) * (count // 2 + 1))[:count]


def _halves(stored: bytes) -> bytes:
    out = bytearray(2 * len(stored))
    out[::2], out[1::2] = stored.translate(_UPPER), stored.translate(_LOWER)
    return bytes(out)

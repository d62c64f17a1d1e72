"""Damaged and malicious image files, each made from sound ones by a seed.

`mutated(name, seed)` gives the same bytes for the same name and seed, so that a name is enough to
repeat a case.  `image_cases.mutate` damages at random; the ways here know the formats: they lie
about sizes, splice segments and chunks of one file into another, and put in the segments that real
files carry (Adobe, ICC, EXIF, animation), sound or as junk.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

from helpers.image_cases import (
    PHOTOS,
    SIGNATURE,
    adobe,
    chunk,
    chunks,
    exif,
    frame_at,
    kept,
    mutate,
    patched,
    photo,
    reencoded,
    segment,
)

Way = Callable[[bytes, bytes, random.Random], bytes]

MIXED = sorted((Path(__file__).parents[2] / "samples" / "mixed").iterdir())

#: Sizes that a file may declare and not have: none, the limits of fields, and just beyond them.
LIES = (0, 1, 2, 7, 255, 256, 4096, 2**14, 2**15 - 1, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**32 - 1)

#: Endings that say nothing about what is in a file.
ENDINGS = (".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".JPEG", ".txt")


@cache
def sources() -> dict[str, bytes]:
    """The sound files that are mutated: bundled ones, and one of every kind that we know."""
    files = {path.name: path.read_bytes() for path in (*PHOTOS[::13], *MIXED)}
    small = photo(33, (61, 47))
    return files | kept(small) | reencoded(small)


def mutated(name: str, seed: int) -> bytes:
    """A mutation of a source: the same for the same name and seed."""
    rng = random.Random(f"{name}/{seed}")
    source = sources()[name]
    other = sources()[rng.choice([*sources()])]
    data = rng.choice(_ways(source))(source, other, rng)
    if rng.random() < 0.2:
        data = rng.choice(_ANY_FORMAT)(data, other, rng)
    return data


def _ways(source: bytes) -> list[Way]:
    """The ways to mutate a sound file of this format; `mutate` as often as all others together."""
    ways: list[Way] = [*_ANY_FORMAT]
    if source.startswith(b"\xff\xd8"):
        ways += [_jpeg_sizes, _jpeg_depth, _jpeg_segment, _jpeg_spliced, _jpeg_marker]
    elif source.startswith(SIGNATURE):
        ways += [_png_sizes, _png_chunk, _png_spliced]
    else:
        ways += [_sizes_of_others] * 3
    return ways + [lambda data, _, rng: mutate(data, rng)] * len(ways)


# -------------------------------------------------------------------------------- any format


def _trailing(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Something after the end: junk, zeroes, or another whole file."""
    return data + rng.choice((rng.randbytes(rng.randrange(1, 300)), bytes(512), other))


def _joined(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The head of one file and the tail of another."""
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _head_exchanged(data: bytes, other: bytes, rng: random.Random) -> bytes:
    size = rng.choice((2, 3, 4, 8, 12, 33, 100, 400))
    return other[:size] + data[size:]


def _wrong_magic(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Another format's first bytes before this one's content."""
    return other[: rng.choice((2, 4, 8, 12))] + data


def _lie_somewhere(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A number in the first bytes, where all formats keep theirs."""
    at = rng.randrange(2, max(3, min(len(data), 120)))
    kind = rng.choice(("<H", ">H", "<I", ">I"))
    lie = rng.choice(LIES) & (0xFFFF if kind[1] == "H" else 0xFFFFFFFF)
    return patched(data, at, struct.pack(kind, lie))[: len(data)]


#: Ways that take any bytes, damaged ones too.
_ANY_FORMAT: tuple[Way, ...] = (_trailing, _joined, _head_exchanged, _wrong_magic, _lie_somewhere)


# -------------------------------------------------------------------------------------- JPEG


def _jpeg_segments(data: bytes) -> list[tuple[int, int]]:
    """(start, end) of each marker segment before the first scan, as far as they can be followed."""
    at, found = 2, []
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + struct.unpack_from(">H", data, at + 2)[0]
        found.append((at, end))
        at = end
    return found


def _jpeg_sizes(data: bytes, other: bytes, rng: random.Random) -> bytes:
    at = frame_at(data)
    pick = (rng.choice(LIES) & 0xFFFF, rng.choice(LIES) & 0xFFFF)
    height, width = struct.unpack_from(">HH", data, at + 5)
    pick = rng.choice((pick, (height, pick[1]), (pick[0], width), (height + 1, width)))
    return patched(data, at + 5, struct.pack(">HH", *pick))


def _jpeg_depth(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """12 bits, lossless, arithmetic, hierarchical: what the frame's marker and precision say."""
    at = frame_at(data)
    if rng.random() < 0.5:
        return patched(data, at + 4, bytes([rng.choice((0, 1, 2, 12, 16, 255))]))
    return patched(data, at + 1, bytes([rng.choice((0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCA, 0xCB))]))


def _jpeg_segment(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A segment that real files carry, sound or as junk, before any other."""
    junk = rng.randbytes(rng.choice((0, 1, 5, 13, 64, 4000)))
    icc = b"ICC_PROFILE\0" + bytes([rng.randrange(4), rng.randrange(4)])
    made = rng.choice(
        (
            adobe(rng.randrange(4)),
            segment(0xEE, b"Adobe" + junk[:7]),
            segment(0xE2, icc + junk),
            segment(0xE1, b"Exif\0\0" + exif(rng.randrange(12), rng.choice("<>"))),
            segment(0xE1, b"Exif\0\0" + exif(6)[: rng.randrange(26)] + junk),
            segment(0xE0, b"JFIF\0" + junk),
            segment(0xE2, b"MPF\0" + junk),
            segment(0xFE, junk),
            segment(0xDD, struct.pack(">H", rng.choice((0, 1, 3, 65535)))),
            segment(0xDC, struct.pack(">H", rng.choice((0, 1, 47, 65535)))),
            segment(0xC4, junk),
            segment(0xDB, junk),
            segment(0xCC, junk),
        )
    )
    if rng.random() < 0.2:  # a length that lies
        made = patched(made, 2, struct.pack(">H", rng.choice(LIES) & 0xFFFF))
    at = rng.choice([2, *(start for start, _ in _jpeg_segments(data))])
    return data[:at] + made + data[at:]


def _jpeg_spliced(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A segment of one JPEG in the place of, or next to, one of another; or one lost or doubled."""
    here, there = _jpeg_segments(data), _jpeg_segments(other)
    start, end = rng.choice(here)
    begin, stop = rng.choice(there or here)
    foreign = (other if there else data)[begin:stop]
    return data[:start] + rng.choice((b"", foreign, foreign + data[start:end])) + data[end:]


def _jpeg_marker(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A wrong marker: a segment's, or one in the midst of the scan."""
    marker = bytes([0xFF, rng.randrange(0x01, 0xFF)])
    if rng.random() < 0.5:
        return patched(data, rng.choice(_jpeg_segments(data))[0], marker)
    return patched(data, rng.randrange(len(data)), marker)


# --------------------------------------------------------------------------------------- PNG


def _png(parts: list[tuple[bytes, bytes]]) -> bytes:
    return SIGNATURE + b"".join(chunk(kind, content) for kind, content in parts)


def _png_sizes(data: bytes, other: bytes, rng: random.Random) -> bytes:
    parts = chunks(data)
    width, height = struct.unpack_from(">II", parts[0][1])
    lies = (rng.choice(LIES), rng.choice(LIES))
    pick = rng.choice((lies, (width, lies[1]), (lies[0], height), (width + 1, height)))
    parts[0] = (b"IHDR", struct.pack(">II", *pick) + parts[0][1][8:])
    return _png(parts)


def _png_chunk(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """A chunk that real files carry, sound or as junk, anywhere."""
    parts = chunks(data)
    junk = rng.randbytes(rng.choice((0, 1, 2, 4, 9, 26, 32, 768, 3000)))
    frame = struct.pack(">IIIIIHHBB", 0, *(rng.choice(LIES) for _ in range(4)), 1, 1, 0, 0)
    made = rng.choice(
        (
            (b"iCCP", b"icc\0\0" + junk),
            (b"eXIf", exif(rng.randrange(12), rng.choice("<>"))),
            (b"eXIf", junk),
            (b"acTL", struct.pack(">II", rng.choice(LIES), rng.choice(LIES))),
            (b"fcTL", frame),
            (b"fdAT", struct.pack(">I", 1) + junk),
            (b"tRNS", junk),
            (b"PLTE", junk),
            (b"gAMA", junk),
            (b"cHRM", junk),
            (b"sBIT", junk),
            (b"bKGD", junk),
            (b"hIST", junk),
            (b"sPLT", junk),
            (b"pHYs", junk),
            (b"tIME", junk),
            (b"zTXt", b"a\0\0" + junk),
            (b"iTXt", b"a\0\1\0\0\0" + junk),
            (b"sRGB", junk),
            (bytes(rng.choice(b"aAzZ") for _ in range(4)), junk),
        )
    )
    parts.insert(rng.randrange(len(parts) + 1), made)
    return _png(parts)


def _png_spliced(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Chunks of one PNG in the place of another's."""
    here, there = chunks(data), chunks(other if other.startswith(SIGNATURE) else data)
    here[rng.randrange(len(here))] = rng.choice(there)
    return _png(here)


# -------------------------------------------------------------------- GIF, BMP, WebP, TIFF


def _sizes_of_others(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """Another width or height where the format keeps it."""
    places = _places(data)
    if not places:
        return mutate(data, rng)
    at, kind = rng.choice(places)
    limit = {"H": 0xFFFF, "I": 0xFFFFFFFF, "B": 0xFF}[kind[1]]
    return patched(data, at, struct.pack(kind, rng.choice((*LIES, rng.getrandbits(32))) & limit))


def _places(data: bytes) -> list[tuple[int, str]]:
    """Where a GIF, BMP, WebP or TIFF keeps its sizes and the like."""
    if data.startswith(b"GIF8"):
        blocks = [at for at in range(13, min(len(data), 3000)) if data[at] == 0x2C][:3]
        return [(at, "<H") for at in (6, 8, *(b + i for b in blocks for i in (1, 3, 5, 7)))]
    if data.startswith(b"BM"):
        fields = [(10, "<I"), (14, "<I"), (26, "<H"), (28, "<H"), (30, "<I"), (34, "<I")]
        return [(18, "<I"), (22, "<I"), *fields, (46, "<I")]
    if data[8:12] == b"WEBP":
        return [(4, "<I"), (16, "<I"), *((at, "<I") for at in (20, 21, 24, 25, 26, 27, 28, 30))]
    if data[:4] in (b"II*\0", b"MM\0*"):
        return _tiff_places(data)
    return []


def _tiff_places(data: bytes) -> list[tuple[int, str]]:
    """The tag, type, count and value of each field of the first directory."""
    order = "<" if data[:2] == b"II" else ">"
    start = struct.unpack_from(order + "I", data, 4)[0]
    fields = struct.unpack_from(order + "H", data, start)[0]
    places = [(4, order + "I"), (start, order + "H")]
    for at in range(start + 2, start + 2 + 12 * fields, 12):
        places += [(at, order + "H"), (at + 2, order + "H"), (at + 4, order + "I")]
        places += [(at + 8, order + "I"), (at + 8, order + "H")] * 2
    return places

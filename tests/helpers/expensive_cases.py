"""Image files that take far longer to decode than others of their size, and their sound kin.

    expensive(scale)    files that must be rejected
    dear_but_sound()    files that are the dearest of their kind that encoders make
    decoded_in_python() files that are not supported, because Pillow has no decoder in C for them

All are put together from their parts.  `scale` makes them larger; 1 is enough to be rejected, and
what the tests need; the attack `expense` of `make torture` takes the sizes of real attacks.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable

from helpers.image_cases import (
    IEND,
    PHOTOS,
    SIGNATURE,
    after_start,
    chunk,
    ihdr,
    photo,
    png,
    save,
    segment,
)

#: A scan: components (from 1), first and last coefficient, high and low bit of the approximation.
Scan = tuple[tuple[int, ...], int, int, int, int]
#: A TIFF tag: its type (1 byte, 3 short, 4 long, 5 fraction), and its numbers.
Tag = tuple[int, list[int]]

_FORMS = {1: "B", 3: "H", 4: "I", 5: "I"}


def every_legal_scan(bits: int = 12) -> list[Scan]:
    """Of a grey image: DC, and then each bit of each coefficient for itself; 757 with 12 bits."""
    scans: list[Scan] = [((1,), 0, 0, 0, 0)]
    for place in range(1, 64):
        scans.append(((1,), place, place, 0, bits - 1))
        scans += [((1,), place, place, low + 1, low) for low in reversed(range(bits - 1))]
    return scans


def searched_scans() -> list[Scan]:
    """Of a coloured image: 61 scans, as many as programs make that search for the smallest file."""
    scans: list[Scan] = [((one,), 0, 0, 0, 1) for one in (1, 2, 3)]
    for one in (1, 2, 3):
        scans += [((one,), first, first + 3, 0, 2) for first in range(1, 61, 4)]
        scans += [((one,), 61, 63, 0, 2)]
        scans += [((one,), 1, 63, low + 1, low) for low in (1, 0)]
    return scans + [((one,), 0, 0, 1, 0) for one in (1, 2, 3)]


def jpeg_of_scans(
    width: int, height: int, scans: Iterable[Scan], components: int = 1, frame: int = 0xC2
) -> bytes:
    """An even grey picture in these scans, which hold next to no data.

    Args:
        frame: 0xC2 progressive, 0xCA the same with arithmetic coding.
    """
    parts = b"".join(bytes([one + 1, 0x11, 0]) for one in range(components))
    size = struct.pack(">BHHB", 8, height, width, components)
    pieces = [b"\xff\xd8", segment(0xDB, b"\0" + bytes([1] * 64)), segment(frame, size + parts)]
    for kind, symbol in ((0x00, 0x00), (0x10, 0xE0)):  # difference 0; a run of empty blocks
        pieces.append(segment(0xC4, bytes([kind, 1] + [0] * 15 + [symbol])))
    blocks = -(-width // 8) * -(-height // 8)
    for of, first, last, high, low in scans:
        selected = b"".join(bytes([one, 0]) for one in of)
        ends = bytes([first, last, high << 4 | low])
        pieces.append(segment(0xDA, bytes([len(of)]) + selected + ends))
        bits = -(-blocks // 16384) * 15 if first else blocks * len(of)
        pieces.append(bytes(-(-bits // 8)) if frame == 0xC2 else b"")
    return b"".join(pieces) + b"\xff\xd9"


def small_window_png(width: int, height: int) -> bytes:
    """A grey PNG whose data declare a window of 512 bytes."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, 9)
    data = deflate.compress(bytes((width + 1) * height)) + deflate.flush()
    return SIGNATURE + ihdr(width, height, 8, 0) + chunk(b"IDAT", data) + IEND


def tiff(tags: dict[int, Tag], pixels: bytes = b"", order: str = "<") -> bytes:
    """A TIFF of these tags, in a byte order of `struct`; `pixels` stand at its end."""
    at = 8 + 2 + 12 * len(tags) + 4
    entries, values = b"", b""
    for number, (kind, numbers) in sorted(tags.items()):
        raw = struct.pack(f"{order}{len(numbers)}{_FORMS[kind]}", *numbers)
        count = len(numbers) // (2 if kind == 5 else 1)
        place = raw.ljust(4, b"\0") if len(raw) <= 4 else struct.pack(f"{order}I", at + len(values))
        entries += struct.pack(f"{order}HHI", number, kind, count) + place
        values += raw if len(raw) > 4 else b""
    start = b"II*\0" if order == "<" else b"MM\0*"
    return start + struct.pack(f"{order}IH", 8, len(tags)) + entries + bytes(4) + values + pixels


def strips(
    width: int,
    height: int,
    rows: int,
    data: list[bytes] | None = None,
    compression: int = 1,
    more: dict[int, Tag] | None = None,
) -> bytes:
    """A grey TIFF of strips of so many rows; `data` of each, by default plain zeroes."""
    count = -(-height // rows)
    data = [bytes(width * rows)] * count if data is None else data
    tags: dict[int, Tag] = {256: (4, [width]), 257: (4, [height]), 258: (3, [8])}
    tags |= {259: (3, [compression]), 262: (3, [1]), 277: (3, [1]), 278: (4, [rows])}
    tags |= {273: (4, [0] * count), 279: (4, [len(one) for one in data])}
    tags |= more or {}
    at, offsets = len(tiff(tags)), []
    for one in data:
        offsets.append(at)
        at += len(one)
    return tiff(tags | {273: (4, offsets)}, b"".join(data))


def shared_tags(count: int, size: int) -> bytes:
    """A TIFF with tags that all have the same bytes of the file as their value."""
    sound = save(photo().convert("L"), "TIFF")
    head = b"II*\0" + struct.pack("<IH", 8, count)
    entries = b"".join(struct.pack("<HHII", 32768 + number, 1, size, 8) for number in range(count))
    return head + entries + bytes(4) + sound.ljust(size, b"\0")


def run_length_bmp(width: int, height: int, data: bytes) -> bytes:
    """A BMP with RLE8."""
    palette = b"".join(bytes([one, 255 - one, one, 0]) for one in range(256))
    at = 54 + len(palette)
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + head + palette + data


def commented_gif(kind: bytes, blocks: int, size: int = 1) -> bytes:
    """A GIF with an extension of many blocks before its picture."""
    gif = save(photo().quantize(4), "GIF")
    at = 13 + (6 << (gif[10] & 7))
    extension = b"!" + kind + (bytes([size]) + b"x" * size) * blocks + b"\0"
    return gif[:at] + extension + gif[at:]


def expensive(scale: int = 1) -> dict[str, Callable[[], bytes]]:
    """What makes each of the files that are too expensive, by what is wrong with them."""
    jpeg, side = PHOTOS[0].read_bytes(), 1200 * scale
    one = png(photo(size=(5, 4)))
    ppm = save(photo(), "PPM")
    refined: list[Scan] = [((1,), 0, 0, 0, 0), ((1,), 1, 63, 0, 1)]
    refined += [((1,), 1, 63, 1, 0)] * 100
    small = jpeg_of_scans(256, 256, refined * 8)
    return {
        "757 legal scans": lambda: jpeg_of_scans(side, side, every_legal_scan()),
        "757 arithmetic scans": lambda: jpeg_of_scans(side, side, every_legal_scan(), frame=0xCA),
        "102 refining scans": lambda: jpeg_of_scans(side, side, refined),
        "empty JPEG comments": lambda: after_start(jpeg, b"\xff\xfe\0\2" * 150_000 * scale),
        "stuffed zeroes": lambda: after_start(jpeg, b"\xff\0" * 150_000 * scale),
        "comments between scans": lambda: _before_scan(b"\xff\xfe\0\2" * 150_000 * scale),
        "empty PNG chunks": lambda: one[:33] + chunk(b"tEXt") * 60_000 * scale + one[33:],
        "IDAT chunks of a byte": lambda: png(photo(size=(300 * scale, 300)), split=1),
        "PNG with a small window": lambda: small_window_png(1, 400_000),
        "PPM comment": lambda: b"P6\n#" + b"x" * 2_000_000 * scale + ppm[2:],
        "PPM spaces": lambda: b"P6\n" + b" " * 2_000_000 * scale + ppm[3:],
        "PPM comments": lambda: b"P6\n" + b"#\n" * 1_000_000 * scale + ppm[3:],
        "GIF comment": lambda: commented_gif(b"\xfe", 5_000 * scale, 255),
        "GIF extension": lambda: commented_gif(b"\xff", 60_000 * scale),
        "TIFF of strips": lambda: strips(1, 40_000 * scale, 1),
        "TIFF with shared tags": lambda: shared_tags(1_000, 40_000 * scale),
        "TIFF with many tags": lambda: shared_tags(min(5_000 * scale, 32_000), 1),
        "TIFF with fractions": lambda: strips(9, 9, 9, more={33550: (5, [1] * 50_000 * scale)}),
        "TIFF of a large tile": lambda: _one_tile(9_000),
        "JPEG in a TIFF": lambda: strips(
            256, 2560 * scale, 256, [small] * 10 * scale, 7, {278: (4, [256])}
        ),
    }


def decoded_in_python() -> dict[str, bytes]:
    """Files that Pillow would decode value by value, by words of what is said of them."""
    return {
        "BMP with run lengths": run_length_bmp(1000, 1000, (b"\1\5\1\6" * 500 + b"\0\0") * 1000),
        "run lengths": run_length_bmp(300_000, 1, b"\0\2\0\xff"),
        "of other than 8 bits": b"P5 630 630 4095\n" + bytes(2 * 630 * 630),
        "or 16 in grey": b"P6 2 1 65535\n" + bytes(12),
        "PBM, PGM or PPM as text": b"P1 1500 1000\n" + b"1 0\n" * 750_000,
        "as text": b"P2 9 9 9\n" + b"#\n" * 300_000 + b"7 " * 81,
    }


def _before_scan(what: bytes) -> bytes:
    data = jpeg_of_scans(64, 64, every_legal_scan()[:2])
    at = data.rindex(b"\xff\xda")
    return data[:at] + what + data[at:]


def _one_tile(side: int) -> bytes:
    data = zlib.compress(bytes(side) * 100) + bytes(100)
    tags: dict[int, Tag] = {256: (4, [16]), 257: (4, [16]), 258: (3, [8]), 259: (3, [8])}
    tags |= {262: (3, [1]), 277: (3, [1]), 322: (4, [side]), 323: (4, [side])}
    tags |= {324: (4, [8]), 325: (4, [len(data)])}
    return tiff(tags, data)


def dear_but_sound() -> dict[str, Callable[[], bytes]]:
    """What makes files that take long for their size, as encoders do make them."""
    large = photo(size=(1500, 1000))
    grey = large.convert("L")
    return {
        "progressive": lambda: save(large, "JPEG", progressive=True, quality=95),
        "progressive grey": lambda: save(grey, "JPEG", progressive=True, quality=95),
        "a search for the smallest": lambda: jpeg_of_scans(3000, 2000, searched_scans(), 3),
        "757 scans of a small one": lambda: jpeg_of_scans(500, 400, every_legal_scan()),
        "JPEG with segments": lambda: after_start(
            save(photo(), "JPEG"), segment(0xE2, bytes(60_000)) * 300
        ),
        "JPEG with fill bytes": lambda: after_start(save(photo(), "JPEG"), b"\xff" * 1_000_000),
        "restart markers": lambda: save(large, "JPEG", restart_marker_blocks=1),
        "PNG in chunks of 1 KB": lambda: png(large, split=1024),
        "PNG with a small window": lambda: small_window_png(1500, 1000),
        "PPM with a comment": lambda: b"P6\n# by a camera\n" + save(large, "PPM")[3:],
        "GIF with a comment": lambda: commented_gif(b"\xfe", 200, 255),
        "TIFF of rows": lambda: strips(1500, 1000, 1),
        "TIFF with LZW": lambda: save(large, "TIFF", compression="tiff_lzw"),
        "TIFF with JPEG": lambda: save(large, "TIFF", compression="jpeg"),
    }

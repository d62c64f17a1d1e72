"""Image files of every kind, made from a real photograph, for the tests of images and pipeline.

    kept(photo)         JPEG and PNG files, whose bytes a conversion keeps
    reencoded(photo)    BMP, GIF, WebP, TIFF, ... files, which become PNG
    mutate(data, rng)   a damaged copy

All are dicts of a name and the file's bytes.  Kinds that no encoder at hand writes (interlaced
or 2-bit PNG, YCCK or lossless JPEG) are put together here from their parts.
"""

from __future__ import annotations

import io
import random
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

PHOTOS = sorted((Path(__file__).parents[2] / "samples" / "photos").glob("**/*.jpg"))
SIGNATURE = b"\x89PNG\r\n\x1a\n"
IEND = b"\0\0\0\0IEND\xaeB`\x82"
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
PASSES += ((0, 1, 1, 2),)


def photo(index: int = 0, size: tuple[int, int] | None = (93, 70)) -> Image.Image:
    """A bundled photograph as RGB, scaled to `size` if given."""
    image = Image.open(PHOTOS[index % len(PHOTOS)]).convert("RGB")
    return image.resize(size) if size else image


def save(image: Image.Image, kind: str, **options: object) -> bytes:
    """The image as a file of a format of Pillow's."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


# ---------------------------------------------------------------------------------------- JPEG


def segment(marker: int, content: bytes) -> bytes:
    """A JPEG marker segment."""
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def after_start(jpeg: bytes, *segments: bytes) -> bytes:
    """The JPEG with segments put in after its first marker."""
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def adobe(transform: int) -> bytes:
    """An Adobe marker: 0 RGB or CMYK, 1 YCbCr, 2 YCCK."""
    return segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))


def exif(orientation: int, order: str = "<") -> bytes:
    """An EXIF block that holds an orientation alone."""
    start = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)
    return start + struct.pack(order + "I", 8) + entry


def frame_at(jpeg: bytes) -> int:
    """Where the frame header (SOF) of a JPEG of Pillow's making begins."""
    at = 2
    while jpeg[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + struct.unpack_from(">H", jpeg, at + 2)[0]
    return at


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """The data with bytes from `at` on replaced."""
    return data[:at] + new + data[at + len(new) :]


def many_components(photo: Image.Image, components: int) -> bytes:
    """A JPEG of any number of components, each the same gray scan."""
    gray = save(photo.convert("L"), "JPEG")
    at = frame_at(gray)
    size = gray[at + 4 : at + 9]
    parts = b"".join(bytes([i + 1, 0x11, 0]) for i in range(components))
    frame = segment(0xC0, size + bytes([components]) + parts)
    end = at + 2 + struct.unpack_from(">H", gray, at + 2)[0]
    scan = gray.index(b"\xff\xda")
    coded = gray[scan + 10 : -2]
    scans = b"".join(
        segment(0xDA, bytes([1, i + 1, 0, 0, 63, 0])) + coded for i in range(components)
    )
    return gray[:at] + frame + gray[end:scan] + scans + b"\xff\xd9"


def lossless_jpeg(precision: int = 8) -> bytes:
    """A valid lossless JPEG (T.81, annex H) of 16 x 16 even gray: every difference is zero."""
    frame = segment(0xC3, struct.pack(">BHHBBBB", precision, 16, 16, 1, 1, 0x11, 0))
    table = segment(0xC4, b"\0" + bytes([1] + [0] * 15) + b"\0")
    scan = segment(0xDA, bytes([1, 1, 0, 1, 0, 0]))
    return b"\xff\xd8" + frame + table + scan + bytes(16 * 16 // 8) + b"\xff\xd9"


# ----------------------------------------------------------------------------------------- PNG


def chunk(kind: bytes, content: bytes = b"", checksum: int | None = None) -> bytes:
    """A PNG chunk, with a wrong checksum if one is given."""
    if checksum is None:
        checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def ihdr(width: int, height: int, depth: int, color: int, *rest: int) -> bytes:
    """`rest`: compression, filter, interlace; 0 where left out."""
    fields = (*rest, 0, 0, 0)[:3]
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, *fields))


def rows(pixels: np.ndarray, depth: int, row_filter: int = 0) -> bytes:
    """The scanlines of (height, width, samples) values, each begun by its filter's number."""
    lines = []
    for line in pixels.reshape(len(pixels), -1):
        if depth == 16:
            packed = line.astype(">u2").tobytes()
        elif depth == 8:
            packed = line.astype(np.uint8).tobytes()
        else:
            bits = (line[:, None] >> np.arange(depth - 1, -1, -1)) & 1
            packed = np.packbits(bits.astype(np.uint8)).tobytes()
        lines.append(bytes([row_filter]) + packed)
    return b"".join(lines)


def scanlines(pixels: np.ndarray, depth: int, interlaced: bool) -> bytes:
    """The data that a PNG's IDAT chunks deflate."""
    if not interlaced:
        return rows(pixels, depth)
    passes = [pixels[y::dy, x::dx] for x, y, dx, dy in PASSES]
    return b"".join(rows(part, depth) for part in passes if part.size)


def png(
    photo: Image.Image,
    depth: int = 8,
    color: int = 2,
    *,
    interlaced: bool = False,
    before: bytes = b"",
    between: bytes = b"",
    after: bytes = b"",
    idat: bytes | None = None,
    split: int = 8192,
    end: bytes = IEND,
) -> bytes:
    """A PNG of any depth and colour type.

    `before`, `between` and `after` are chunks before, in the middle of and after the image data;
    `idat` replaces the deflated data.
    """
    mode = {0: "L", 2: "RGB", 3: "L", 4: "LA", 6: "RGBA"}[color]
    pixels = np.asarray(photo.convert(mode), np.uint16).reshape(photo.height, photo.width, -1)
    pixels = pixels * 257 if depth == 16 else pixels >> (8 - depth)
    if color == 3:
        before = chunk(b"PLTE", bytes(i * 7 % 256 for i in range(3 << depth))) + before
    data = zlib.compress(scanlines(pixels, depth, interlaced)) if idat is None else idat
    parts = [chunk(b"IDAT", data[i : i + split]) for i in range(0, len(data), split)]
    middle = len(parts) // 2
    body = b"".join(parts[:middle]) + between + b"".join(parts[middle:])
    header = ihdr(photo.width, photo.height, depth, color, 0, 0, int(interlaced))
    return SIGNATURE + header + before + body + after + end


# ------------------------------------------------------------------------------------- the kinds


def kept(photo: Image.Image) -> dict[str, bytes]:
    """Sound JPEG and PNG files of every kind that TensorFlow decodes."""
    jpeg = save(photo, "JPEG", quality=90)
    gray = photo.convert("L")
    files = {
        "jpeg": jpeg,
        "jpeg progressive": save(photo, "JPEG", progressive=True),
        "jpeg gray": save(gray, "JPEG"),
        "jpeg gray progressive": save(gray, "JPEG", progressive=True),
        "jpeg 444": save(photo, "JPEG", subsampling=0),
        "jpeg 422": save(photo, "JPEG", subsampling=1),
        "jpeg rgb": save(photo, "JPEG", keep_rgb=True),
        "jpeg restarts": save(photo, "JPEG", restart_marker_blocks=3),
        "jpeg cmyk": save(photo.convert("CMYK"), "JPEG"),
        "jpeg cmyk without adobe": many_components(photo, 4),
        "jpeg ycck": after_start(many_components(photo, 4), adobe(2)),
        "jpeg scans apart": many_components(photo, 3),
        "jpeg exif": after_start(jpeg, segment(0xE1, b"Exif\0\0" + exif(6))),
        "jpeg junk after": jpeg + b"junk" * 99,
        "jpeg 1x1": save(photo.resize((1, 1)), "JPEG"),
        "mpo": save(photo, "MPO", save_all=True, append_images=[photo]),
    }
    for color, depths in {
        0: (1, 2, 4, 8, 16),
        2: (8, 16),
        3: (1, 2, 4, 8),
        4: (8, 16),
        6: (8, 16),
    }.items():
        for depth in depths:
            for interlaced in (False, True):
                name = f"png {color}/{depth}{' interlaced' * interlaced}"
                files[name] = png(photo, depth, color, interlaced=interlaced)
    files |= {
        "png palette tRNS": png(photo, 8, 3, before=chunk(b"tRNS", b"\0\x80")),
        "png palette tRNS 1 bit": png(photo, 1, 3, before=chunk(b"tRNS", b"\0\x80")),
        "png gray tRNS": png(photo, 8, 0, before=chunk(b"tRNS", b"\0\0")),
        "png rgb tRNS": png(photo, 8, 2, before=chunk(b"tRNS", b"\0\0" * 3)),
        "png rgb PLTE": png(photo, 8, 2, before=chunk(b"PLTE", bytes(30))),
        "png exif": png(photo, 8, 2, before=chunk(b"eXIf", exif(8, ">"))),
        "png one IDAT": png(photo, split=1 << 30),
        "png tiny IDATs": png(photo.resize((20, 10)), split=1),
        "png small window": png(photo.resize((9, 5)), idat=_small_window(photo.resize((9, 5)))),
        "png by Pillow": save(photo, "PNG", optimize=True),
        "png 1x1": png(photo.resize((1, 1)), interlaced=True),
        "apng": save(photo, "PNG", save_all=True, append_images=[photo.rotate(9)]),
    }
    return files


def _small_window(photo: Image.Image) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, 9)
    lines = scanlines(np.asarray(photo), 8, interlaced=False)
    return deflate.compress(lines) + deflate.flush()


def reencoded(photo: Image.Image) -> dict[str, bytes]:
    """Files of the formats that become PNG."""
    gray, palette = photo.convert("L"), photo.quantize(200)
    clear = photo.convert("RGBA")
    clear.putalpha(gray)
    wide = Image.fromarray(np.asarray(gray).astype(np.uint16) * 257)
    return {
        "bmp": save(photo, "BMP"),
        "bmp gray": save(gray, "BMP"),
        "bmp palette": save(palette, "BMP"),
        "bmp 1 bit": save(photo.convert("1"), "BMP"),
        "bmp rgba": save(clear, "BMP"),
        "gif": save(palette, "GIF"),
        "gif few colours": save(photo.quantize(3), "GIF"),
        "gif clear": save(palette, "GIF", transparency=3),
        "gif animated": save(palette, "GIF", save_all=True, append_images=[palette.rotate(9)]),
        "webp": save(photo, "WEBP"),
        "webp lossless rgba": save(clear, "WEBP", lossless=True),
        "webp animated": save(photo, "WEBP", save_all=True, append_images=[photo.rotate(9)]),
        "tiff": save(photo, "TIFF"),
        "tiff lzw": save(photo, "TIFF", compression="tiff_lzw"),
        "tiff deflate": save(photo, "TIFF", compression="tiff_adobe_deflate"),
        "tiff jpeg": save(photo, "TIFF", compression="jpeg"),
        "tiff gray": save(gray, "TIFF"),
        "tiff 1 bit": save(photo.convert("1"), "TIFF", compression="group3"),
        "tiff 16 bit": save(wide, "TIFF"),
        "tiff 32 bit": save(wide.convert("I"), "TIFF"),
        "tiff palette": save(palette, "TIFF"),
        "tiff la": save(clear.convert("LA"), "TIFF"),
        "tiff rgba": save(clear, "TIFF"),
        "tiff cmyk": save(photo.convert("CMYK"), "TIFF"),
        "tiff ycbcr": save(photo.convert("YCbCr"), "TIFF", compression="jpeg"),
        "tiff lab": save(_lab(photo), "TIFF"),
        "tiff pages": save(photo, "TIFF", save_all=True, append_images=[photo.rotate(9)]),
        "ppm": save(photo, "PPM"),
        "pgm": save(gray, "PPM"),
        "pgm 16 bit": save(wide, "PPM"),
        "pbm": save(photo.convert("1"), "PPM"),
        "avif": save(photo, "AVIF"),
        "ico": save(clear, "ICO", bitmap_format="bmp", sizes=[(32, 24)]),
        "ico palette": save(palette, "ICO", bitmap_format="bmp", sizes=[(32, 24)]),
        "tga": save(photo, "TGA"),
        "tga gray": save(gray, "TGA"),
        "tga palette": save(palette, "TGA"),
        "tga rgba": save(clear, "TGA", compression="tga_rle"),
    }


def _lab(photo: Image.Image) -> Image.Image:
    return Image.merge("LAB", [photo.getchannel(0)] * 3)


# ----------------------------------------------------------------------------------- the damage


def zeroed(data: bytes, size: int = 4096) -> bytes:
    """The data with zeroes in the middle, as a lost disk block leaves them."""
    at = (len(data) - size) // 2
    return patched(data, max(at, 0), bytes(min(size, len(data))))


def flipped(data: bytes, rng: random.Random, bits: int = 40, first: int = 0) -> bytes:
    """The data with some bits flipped, none before `first`."""
    damaged = bytearray(data)
    for _ in range(bits):
        damaged[rng.randrange(first, len(data))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A copy damaged in one of many ways, those that hide from checksums included."""
    at = rng.randrange(len(data))
    size = min(rng.choice((1, 2, 4, 16, 100, 1000)), len(data))
    header = min(len(data), 700)
    ways = [
        lambda: data[:at],
        lambda: data[:at] + data[at + size :],
        lambda: data[:at] + rng.randbytes(size) + data[at:],
        lambda: data[:at] + data[at : at + size] + data[at:],
        lambda: patched(data, min(at, len(data) - size), rng.randbytes(size)),
        lambda: patched(data, min(at, len(data) - size), bytes(size)),
        lambda: patched(data, min(at, len(data) - size), b"\xff" * size),
        lambda: flipped(data, rng, rng.choice((1, 2, 8, 40))),
        lambda: flipped(data[:header], rng, rng.choice((1, 1, 2, 5))) + data[header:],
        lambda: data[: len(data) - rng.randrange(1, 30)],
        lambda: data[:at] + data[-rng.randrange(2, 40) :],
        lambda: data[: -rng.randrange(1, 8)] + rng.randbytes(rng.randrange(1, 30)),
    ]
    if data.startswith(b"\xff\xd8"):
        ways += [
            lambda: data[:at] + b"\xff\xd9",
            lambda: data[:-2] + bytes(rng.randrange(40)),
            lambda: data[:at] + b"\xff" + bytes([rng.randrange(0xC0, 0xFF)]) + data[at:],
            lambda: _patched_frame(data, rng),
        ] * 2
    if data.startswith(SIGNATURE):
        ways += [lambda: _mutated_chunks(data, rng)] * 8
    return rng.choice(ways)()


def _patched_frame(jpeg: bytes, rng: random.Random) -> bytes:
    at = frame_at(jpeg) + rng.choice((1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16))
    value = rng.choice((0, 1, 2, 3, 4, 0x11, 0x12, 0x21, 0x22, 0xC0, 0xC1, 0xC2, 0xC9, 255))
    return patched(jpeg, at, bytes([rng.choice((value, rng.randrange(256)))]))


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """The kind and content of each chunk of a sound PNG."""
    at, found = 8, []
    while at < len(data):
        size = struct.unpack_from(">I", data, at)[0]
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    return found


def _mutated_chunks(data: bytes, rng: random.Random) -> bytes:
    """Damage inside the chunks, with the checksums put right again (nearly always)."""
    parts = chunks(data)
    i = rng.randrange(len(parts))
    kind, content = parts[i]
    way = rng.randrange(9)
    if way == 0:
        del parts[i]
    elif way == 1:
        parts.insert(rng.randrange(len(parts) + 1), parts[i])
    elif way == 2:
        j = rng.randrange(len(parts))
        parts[i], parts[j] = parts[j], parts[i]
    elif way == 3 and content:
        parts[i] = kind, flipped(content, rng, rng.choice((1, 2, 8)))
    elif way == 4:
        parts[i] = kind, content[: rng.randrange(len(content) + 1)]
    elif way == 5:
        parts[i] = kind, content + rng.randbytes(rng.choice((1, 3, 50)))
    elif way == 6:
        other = rng.choice((b"tEXt", b"tRNS", b"PLTE", b"IDAT", b"IEND", b"abCd", b"ABCD", b"a1Cd"))
        parts.insert(
            rng.randrange(len(parts) + 1), (other, rng.randbytes(rng.choice((0, 1, 2, 6, 12))))
        )
    else:
        parts = _changed_image_data(parts, rng)
    wrong = rng.randrange(len(parts)) if rng.random() < 0.1 and parts else None
    return SIGNATURE + b"".join(
        chunk(kind, content, 1 if i == wrong else None) for i, (kind, content) in enumerate(parts)
    )


def _changed_image_data(
    parts: list[tuple[bytes, bytes]], rng: random.Random
) -> list[tuple[bytes, bytes]]:
    """The image data inflated, changed and deflated again."""
    lines = bytearray(zlib.decompress(b"".join(c for k, c in parts if k == b"IDAT")))
    way = rng.randrange(4)
    if way == 0:
        lines[rng.randrange(len(lines))] = rng.randrange(256)
    elif way == 1:
        del lines[-rng.choice((1, 2, 5, 100)) :]
    elif way == 2:
        lines += rng.randbytes(rng.choice((1, 2, 5, 100, 5000)))
    deflate = zlib.compressobj(rng.randrange(10), zlib.DEFLATED, rng.randrange(9, 16))
    coded = deflate.compress(bytes(lines)) + deflate.flush()
    if rng.random() < 0.3:
        coded = coded[: -rng.randrange(1, 8)] + rng.choice((b"", b"junk", rng.randbytes(9)))
    if rng.random() < 0.3:  # the stream declares another window
        first = rng.randrange(8) * 16 + 8
        coded = bytes([first, -(first << 8) % 31]) + coded[2:]
    at = next(i for i, (kind, _) in enumerate(parts) if kind == b"IDAT")
    rest = [part for part in parts if part[0] != b"IDAT"]
    split = rng.choice((1 << 30, 1000, len(coded) // 2 + 1))
    new = [(b"IDAT", coded[i : i + split]) for i in range(0, len(coded), split)]
    return rest[:at] + new + rest[at:]

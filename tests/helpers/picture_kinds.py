"""One picture as a file of every kind that a conversion may meet, most with their true pixels.

    kinds()     the files by name, with the pixels where a standard says what they are

Pillow and simplejpeg write the usual kinds.  The others are put together from their parts: PNG by
its specification, TIFF by TIFF 6.0, BMP by Microsoft's headers, JPEG by T.81.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import struct
import zlib
from typing import NamedTuple

import numpy as np
import simplejpeg
from PIL import Image, ImageCms, ImageOps

from helpers import expensive_cases, image_cases
from helpers.expensive_cases import Tag
from helpers.image_cases import chunk, ihdr, save, segment

HEIGHT, WIDTH = 47, 61

#: By how many levels, in the mean, a coder that loses something may miss its picture.
LOSSY = 4.0


class Kind(NamedTuple):
    """A file, and the picture that it is.

    Attributes:
        truth: uint8 of [HEIGHT, WIDTH, 3]; None where no standard says it.
        off: by how many levels readers may miss the truth, in the mean.
        is_rejected: what is right is no picture, but a reason.
    """

    data: bytes
    truth: np.ndarray | None = None
    off: float = 0.0
    is_rejected: bool = False


def texture() -> np.ndarray:
    """What a fingerprint sees: some of each of its waves, from -40 to 40."""
    blocks = np.random.default_rng(1).integers(0, 256, (9, 9), np.uint8)
    large = Image.fromarray(blocks).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
    return np.asarray(large, float) * 80 / 255 - 40


def colours() -> np.ndarray:
    """The picture: smooth, so that a lossy coder keeps it, and no two sides of it are alike."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    red = 50 + 160 * x / (WIDTH - 1)
    green = 50 + 150 * (y / (HEIGHT - 1)) ** 2
    blue = 128 + 80 * np.sin(x / 14 + y / 20)
    return (np.stack([red, green, blue], 2) + texture()[:, :, None]).astype(np.uint8)


def grey_levels() -> np.ndarray:
    """The grey picture: every level from 0 to 255 nearly, uint8 of [HEIGHT, WIDTH, 1]."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    levels = 2 * x + 2 * y + 2 * texture()
    levels -= levels.min()
    return (levels * 255 / levels.max()).astype(np.uint8)[:, :, None]


def alpha() -> np.ndarray:
    """Its left half cannot be seen, and its upper edge only partly."""
    opacity = np.full((HEIGHT, WIDTH, 1), 255, np.uint8)
    opacity[:9] = 128
    opacity[:, : WIDTH // 2] = 0
    return opacity


def beside(*planes: np.ndarray) -> np.ndarray:
    return np.concatenate(planes, 2)


def as_rgb(grey: np.ndarray) -> np.ndarray:
    return np.repeat(grey, 3, 2).astype(np.uint8)


def of_16_bits(values: np.ndarray) -> np.ndarray:
    """Values whose upper 8 bits are these, and whose lower ones are anything."""
    low = np.random.default_rng(0).integers(0, 256, values.shape)
    return values.astype(np.uint16) << 8 | low.astype(np.uint16)


def steps(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The grey picture in so many bits, and as levels from 0 to 255."""
    values = grey_levels() >> 8 - bits
    return values, as_rgb(values * (255 // (2**bits - 1)))


def palette(bits: int) -> np.ndarray:
    """A colour for each value of so many bits, uint8 of [2 ** bits, 3]."""
    share = np.linspace(0, 1, 2**bits)
    ramp = np.stack([255 * share, 20 + 220 * share**2, 40 + 180 * share], 1)
    return ramp.astype(np.uint8)


def kinds() -> dict[str, Kind]:
    """All of them, by name."""
    return {
        **jpegs(),
        **pngs(),
        **tiffs(),
        **by_libtiff(),
        **raw_photographs(),
        **bitmaps(),
        **of_other_formats(),
    }


# ---------------------------------------------------------------------------------------- JPEG


def jpegs() -> dict[str, Kind]:
    picture = colours()
    image = Image.fromarray(picture)
    grey = Image.fromarray(grey_levels()[:, :, 0])
    levels = as_rgb(grey_levels())
    inverted = ImageOps.invert(image)
    plain = save(image, "JPEG", quality=95)
    turned = image_cases.after_start(plain, segment(0xE1, b"Exif\0\0" + image_cases.exif(6)))
    video = b"\0\0\0\x18ftypmp42" + bytes(3000)
    files = {
        f"jpeg {form}": simplejpeg.encode_jpeg(picture, 95, colorsubsampling=form)
        for form in ("444", "422", "420", "440", "411")
    }
    files |= {
        "jpeg progressive": save(image, "JPEG", quality=95, progressive=True),
        "jpeg restarts": save(image, "JPEG", quality=95, restart_marker_blocks=3),
        "jpeg in RGB": save(image, "JPEG", quality=95, keep_rgb=True),
        "jpeg turned by Exif": turned,
        "jpeg before a video": plain + video,
        "jpeg of several pictures": save(
            image, "MPO", quality=95, save_all=True, append_images=[inverted]
        ),
    }
    found = {name: Kind(data, picture, LOSSY) for name, data in files.items()}
    for name, data in {
        "jpeg grey": save(grey, "JPEG", quality=95),
        "jpeg grey progressive": save(grey, "JPEG", quality=95, progressive=True),
    }.items():
        found[name] = Kind(data, levels, LOSSY)
    planes = np.moveaxis(np.asarray(image.convert("YCbCr")), 2, 0)
    for name, sampling in (("1 x 1", 0x11), ("2 x 2", 0x22), ("2 x 1", 0x21)):
        data = jpeg_of_planes([*planes], [sampling] * 3)
        found[f"jpeg {name} in all components"] = Kind(data, picture, LOSSY)
    # With Adobe's marker TensorFlow takes what is stored as light, without as ink.
    light = [*np.moveaxis(picture, 2, 0), np.full((HEIGHT, WIDTH), 255, np.uint8)]
    ink = [255 - plane for plane in light]
    ycck = [*planes, light[3]]
    for name, sampling in (
        ("", [0x11] * 4),
        (", 2 x 2 in all components", [0x22] * 4),
        (", 2 x 2 in the first", [0x22, 0x11, 0x11, 0x22]),
    ):
        parts = [half(plane, sampling[0] != of) for plane, of in zip(light, sampling, strict=True)]
        found[f"jpeg cmyk of Adobe{name}"] = Kind(
            jpeg_of_planes(parts, sampling, image_cases.adobe(0)), picture, LOSSY
        )
        parts = [half(plane, sampling[0] != of) for plane, of in zip(ink, sampling, strict=True)]
        found[f"jpeg cmyk{name}"] = Kind(jpeg_of_planes(parts, sampling), picture, LOSSY)
        parts = [half(plane, sampling[0] != of) for plane, of in zip(ycck, sampling, strict=True)]
        found[f"jpeg ycck{name}"] = Kind(
            jpeg_of_planes(parts, sampling, image_cases.adobe(2)), None
        )
    found["jpeg cmyk by Pillow, 420"] = Kind(
        save(image.convert("CMYK"), "JPEG", quality=95, subsampling=2), picture, LOSSY
    )
    found["jpeg lossless"] = Kind(image_cases.lossless_jpeg(), is_rejected=True)
    found["jpeg of two components"] = Kind(
        jpeg_of_planes([*planes[:2]], [0x11] * 2), is_rejected=True
    )
    return found


def half(plane: np.ndarray, is_half: bool) -> np.ndarray:
    """A component at half its size, rounded up, as T.81 has it where sampling is 1 of 2."""
    if not is_half:
        return plane
    size = -(-WIDTH // 2), -(-HEIGHT // 2)
    return np.asarray(Image.fromarray(plane).resize(size, Image.Resampling.BOX))


def jpeg_of_planes(planes: list[np.ndarray], sampling: list[int], marker: bytes = b"") -> bytes:
    """A JPEG of a scan for each component, which are coded as they are.

    Args:
        sampling: of each component, the horizontal factor and the vertical one, 4 bits each.
        marker: segments at its beginning.
    """
    files = [save(Image.fromarray(plane), "JPEG", quality=95) for plane in planes]
    first = files[0]
    at = image_cases.frame_at(first)
    end = at + 2 + int.from_bytes(first[at + 2 : at + 4], "big")
    scan = first.index(b"\xff\xda")
    parts = [bytes([number, of, 0]) for number, of in enumerate(sampling, 1)]
    head = struct.pack(">BHHB", 8, HEIGHT, WIDTH, len(planes))
    pieces = [b"\xff\xd8", marker]
    pieces += [first[first.index(b"\xff\xdb") : at], segment(0xC0, head + b"".join(parts))]
    pieces.append(first[end:scan])
    for number, data in enumerate(files, 1):
        coded = data[data.index(b"\xff\xda") + 10 : -2]
        pieces += [segment(0xDA, bytes([1, number, 0, 0, 63, 0])), coded]
    return b"".join(pieces) + b"\xff\xd9"


# ----------------------------------------------------------------------------------------- PNG


def png(
    values: np.ndarray,
    depth: int,
    color: int,
    interlaced: bool = False,
    before: bytes = b"",
) -> bytes:
    """A PNG of these values."""
    lines = image_cases.scanlines(values, depth, interlaced)
    head = ihdr(WIDTH, HEIGHT, depth, color, 0, 0, int(interlaced))
    idat = chunk(b"IDAT", zlib.compress(lines))
    return image_cases.SIGNATURE + head + before + idat + image_cases.IEND


def pngs() -> dict[str, Kind]:
    picture = colours()
    grey = grey_levels()
    levels = as_rgb(grey)
    opacity = alpha()
    image = Image.fromarray(picture)
    inverted = ImageOps.invert(image)
    found = {}
    for is_interlaced, bits in itertools.product((False, True), (1, 2, 4, 8)):
        how = ", interlaced" if is_interlaced else ""
        values, truth = steps(bits)
        colors = chunk(b"PLTE", palette(bits).tobytes())
        found[f"png grey, {bits} bits{how}"] = Kind(png(values, bits, 0, is_interlaced), truth)
        found[f"png palette, {bits} bits{how}"] = Kind(
            png(values, bits, 3, is_interlaced, colors), palette(bits)[values[:, :, 0]]
        )
    for is_interlaced, bits in itertools.product((False, True), (8, 16)):
        how = ", interlaced" if is_interlaced else ""
        for name, color, values, truth in (
            ("rgb", 2, picture, picture),
            ("grey with alpha", 4, beside(grey, opacity), levels),
            ("rgba", 6, beside(picture, opacity), picture),
        ):
            values = of_16_bits(values) if bits == 16 else values
            found[f"png {name}, {bits} bits{how}"] = Kind(
                png(values, bits, color, is_interlaced), truth
            )
        if bits == 16:
            found[f"png grey, 16 bits{how}"] = Kind(
                png(of_16_bits(grey), 16, 0, is_interlaced), levels
            )
    for name, highest in (("8", 255), ("10", 1023), ("12", 4095)):
        values = grey.astype(np.uint16) * (highest // 255)
        found[f"png grey, {name} of 16 bits"] = Kind(png(values, 16, 0), as_rgb(values >> 8))
    hidden = chunk(b"PLTE", palette(8).tobytes()) + chunk(b"tRNS", bytes(128))
    found["png palette, half of it transparent"] = Kind(
        png(grey, 8, 3, before=hidden), palette(8)[grey[:, :, 0]]
    )
    few = chunk(b"PLTE", palette(1).tobytes()) + chunk(b"tRNS", b"\0")
    found["png palette, 1 bit, one colour transparent"] = Kind(
        png(steps(1)[0], 1, 3, before=few), palette(1)[steps(1)[0][:, :, 0]]
    )
    key = chunk(b"tRNS", struct.pack(">H", 200))
    found["png grey, one level transparent"] = Kind(png(grey, 8, 0, before=key), levels)
    key = chunk(b"tRNS", struct.pack(">H", 1))
    found["png grey, 1 bit, white transparent"] = Kind(
        png(steps(1)[0], 1, 0, before=key), steps(1)[1]
    )
    deep = of_16_bits(grey)
    key = chunk(b"tRNS", struct.pack(">H", int(deep[9, 9, 0])))
    found["png grey, 16 bits, one level transparent"] = Kind(png(deep, 16, 0, before=key), levels)
    key = chunk(b"tRNS", struct.pack(">3H", *picture[9, 9].tolist()))
    found["png rgb, one colour transparent"] = Kind(png(picture, 8, 2, before=key), picture)
    text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(b"x" * 2_000_000))
    found["png with 2 MB of text"] = Kind(png(picture, 8, 2, before=text), picture)
    profile = chunk(b"iCCP", b"odd\0\0" + zlib.compress(bytes(2_000_000)))
    found["png with a profile of 2 MB"] = Kind(png(picture, 8, 2, before=profile), picture)
    animated = {"save_all": True, "append_images": [inverted]}
    found["png animated"] = Kind(save(image, "PNG", **animated), picture)
    found["png animated after its picture"] = Kind(
        save(image, "PNG", default_image=True, **animated), picture
    )
    return found


# ---------------------------------------------------------------------------------------- TIFF

BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER = 258, 259, 262, 266
STRIPS, ORIENTATION, SAMPLES, ROWS, STRIP_BYTES, PLANAR = 273, 274, 277, 278, 279, 284
PREDICTOR, COLOR_MAP, TILE_WIDTH, TILE_HEIGHT, TILES, TILE_BYTES = 317, 320, 322, 323, 324, 325
EXTRA, SAMPLE_FORMAT, SUBSAMPLING = 338, 339, 530
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, SEPARATED, YCBCR, LAB = 0, 1, 2, 3, 5, 6, 8


def tiff(
    values: np.ndarray,
    bits: int,
    photometric: int,
    order: str = "<",
    tile: int = 0,
    **named: int,
) -> bytes:
    """A TIFF of these values, in strips of 13 rows or in tiles.

    Args:
        values: of [height, width, samples].
        order: that of the bytes, by `struct`.
        tile: pixels a side of a tile.
        named: other tags by their names here, in lower case.
    """
    chosen = {globals()[name.upper()]: value for name, value in named.items()}
    samples = values.shape[2]
    is_planar = chosen.get(PLANAR) == 2
    planes = np.split(values, samples, 2) if is_planar else [values]
    pieces = []
    for plane in planes:
        for part in _tiles(plane, tile) if tile else np.split(plane, range(13, HEIGHT, 13)):
            if chosen.get(PREDICTOR) == 2:
                part = np.diff(part, axis=1, prepend=np.zeros_like(part[:, :1]))
            packed = _packed(part, bits, order)
            if chosen.get(FILL_ORDER) == 2:
                flipped = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
                packed = np.packbits(flipped).tobytes()
            pieces.append(zlib.compress(packed) if chosen.get(COMPRESSION) == 8 else packed)
    tags: dict[int, Tag] = {256: (3, [WIDTH]), 257: (3, [HEIGHT]), BITS: (3, [bits] * samples)}
    tags |= {COMPRESSION: (3, [1]), PHOTOMETRIC: (3, [photometric]), SAMPLES: (3, [samples])}
    tags |= {number: (3, [value]) for number, value in chosen.items()}
    if EXTRA in chosen:
        usual = {WHITE_IS_ZERO: 1, BLACK_IS_ZERO: 1, RGB: 3, SEPARATED: 4}[photometric]
        tags[EXTRA] = 3, [chosen[EXTRA]] * (samples - usual)
    if SAMPLE_FORMAT in chosen:
        tags[SAMPLE_FORMAT] = 3, [chosen[SAMPLE_FORMAT]] * samples
    if SUBSAMPLING in chosen:
        tags[SUBSAMPLING] = 3, [chosen[SUBSAMPLING]] * 2
    if photometric == PALETTE:
        tags[COLOR_MAP] = 3, (palette(bits).T.astype(int) * 257).ravel().tolist()
    if tile:
        tags |= {TILE_WIDTH: (3, [tile]), TILE_HEIGHT: (3, [tile])}
    else:
        tags |= {ROWS: (3, [13])}
    offsets, sizes = (TILES, TILE_BYTES) if tile else (STRIPS, STRIP_BYTES)
    tags |= {offsets: (4, [0] * len(pieces)), sizes: (4, [*map(len, pieces)])}
    places = itertools.accumulate(map(len, pieces), initial=len(expensive_cases.tiff(tags)))
    return expensive_cases.tiff(tags | {offsets: (4, [*places][:-1])}, b"".join(pieces), order)


def _tiles(plane: np.ndarray, side: int) -> list[np.ndarray]:
    whole = np.pad(plane, ((0, -HEIGHT % side), (0, -WIDTH % side), (0, 0)))
    rows = np.split(whole, range(side, len(whole), side))
    return [part for row in rows for part in np.split(row, range(side, row.shape[1], side), 1)]


def _packed(values: np.ndarray, bits: int, order: str) -> bytes:
    """Values one after the other, rows on whole bytes."""
    if values.dtype.kind == "f" or bits in (16, 32):
        kind = "f" if values.dtype.kind == "f" else "u"
        return values.astype(f"{order}{kind}{bits // 8}").tobytes()
    rows = values.reshape(len(values), -1).astype(np.uint16)
    places = rows[:, :, None] >> np.arange(bits - 1, -1, -1, dtype=np.uint16) & 1
    return np.packbits(places.reshape(len(rows), -1).astype(np.uint8), axis=1).tobytes()


def tiffs() -> dict[str, Kind]:
    picture = colours()
    grey = grey_levels()
    levels = as_rgb(grey)
    opacity = alpha()
    deep, deep_grey = of_16_bits(picture), of_16_bits(grey)
    clear = beside(picture, opacity)
    inks = beside(255 - picture, np.zeros_like(grey))
    found = {}
    for bits in (1, 2, 4, 8):
        values, truth = steps(bits)
        found[f"tiff black is zero, {bits} bits"] = Kind(tiff(values, bits, BLACK_IS_ZERO), truth)
        negative = 2**bits - 1 - values
        found[f"tiff white is zero, {bits} bits"] = Kind(tiff(negative, bits, WHITE_IS_ZERO), truth)
        found[f"tiff palette, {bits} bits"] = Kind(
            tiff(values, bits, PALETTE), palette(bits)[values[:, :, 0]]
        )
    for order, name in (("<", "little-endian"), (">", "big-endian")):
        for how, tags in (("", {}), (", Deflate", {"compression": 8}), (", tiles", {"tile": 16})):
            found[f"tiff black is zero, 16 bits, {name}{how}"] = Kind(
                tiff(deep_grey, 16, BLACK_IS_ZERO, order, **tags), levels
            )
            found[f"tiff white is zero, 16 bits, {name}{how}"] = Kind(
                tiff(65535 - deep_grey, 16, WHITE_IS_ZERO, order, **tags), levels
            )
        found[f"tiff rgb, 16 bits, {name}"] = Kind(tiff(deep, 16, RGB, order), picture)
        found[f"tiff rgb, 16 bits, {name}, Deflate"] = Kind(
            tiff(deep, 16, RGB, order, compression=8), picture
        )
        found[f"tiff rgba, 16 bits, {name}"] = Kind(
            tiff(of_16_bits(clear), 16, RGB, order, extra=2), picture
        )
        found[f"tiff cmyk, 16 bits, {name}"] = Kind(
            tiff(of_16_bits(inks), 16, SEPARATED, order), picture, 1
        )
    found |= {
        "tiff rgb": Kind(tiff(picture, 8, RGB), picture),
        "tiff rgb in tiles": Kind(tiff(picture, 8, RGB, tile=32), picture),
        "tiff rgb in planes": Kind(tiff(picture, 8, RGB, planar=2), picture),
        "tiff rgb, Deflate with a predictor": Kind(
            tiff(picture, 8, RGB, compression=8, predictor=2), picture
        ),
        "tiff rgb, 16 bits, in planes": Kind(tiff(deep, 16, RGB, planar=2), picture),
        "tiff rgba": Kind(tiff(clear, 8, RGB, extra=2), picture),
        "tiff rgba in planes": Kind(tiff(clear, 8, RGB, extra=2, planar=2), picture),
        "tiff rgba with alpha multiplied in": Kind(tiff(clear, 8, RGB, extra=1)),
        "tiff rgb and a band": Kind(tiff(clear, 8, RGB, extra=0), picture),
        "tiff rgb and a band in planes": Kind(tiff(clear, 8, RGB, extra=0, planar=2), picture),
        "tiff rgb and two bands": Kind(tiff(beside(clear, opacity), 8, RGB, extra=0), picture),
        "tiff rgb and two bands in planes": Kind(
            tiff(beside(clear, opacity), 8, RGB, extra=0, planar=2), picture
        ),
        "tiff grey with alpha": Kind(
            tiff(beside(grey, opacity), 8, BLACK_IS_ZERO, extra=2), levels
        ),
        "tiff grey and a band": Kind(
            tiff(beside(grey, opacity), 8, BLACK_IS_ZERO, extra=0), levels
        ),
        "tiff cmyk": Kind(tiff(inks, 8, SEPARATED), picture),
        "tiff cmyk in planes": Kind(tiff(inks, 8, SEPARATED, planar=2), picture),
        "tiff cmyk with alpha": Kind(tiff(beside(inks, opacity), 8, SEPARATED, extra=2), picture),
        "tiff ycbcr, uncompressed": Kind(
            tiff(np.asarray(Image.fromarray(picture).convert("YCbCr")), 8, YCBCR, subsampling=1),
            picture,
            1,
        ),
        "tiff white is zero, 1 bit, bits in reverse": Kind(
            tiff(1 - steps(1)[0], 1, WHITE_IS_ZERO, fill_order=2), steps(1)[1]
        ),
        "tiff turned": Kind(tiff(picture, 8, RGB, orientation=3), picture),
        "tiff turned sideways": Kind(tiff(picture, 8, RGB, orientation=6), picture),
        "tiff grey, 8 of 16 bits": Kind(tiff(grey, 16, BLACK_IS_ZERO), as_rgb(grey * 0)),
        "tiff grey, 12 of 16 bits": Kind(
            tiff(grey.astype(np.uint16) * 16, 16, BLACK_IS_ZERO), as_rgb(grey >> 4)
        ),
        "tiff grey, 12 bits": Kind(tiff(grey * np.uint16(16), 12, BLACK_IS_ZERO), levels),
        "tiff grey, 16 bits with a sign": Kind(
            tiff(deep_grey >> 1, 16, BLACK_IS_ZERO, sample_format=2)
        ),
        "tiff grey, 32 bits": Kind(tiff(deep_grey.astype(np.uint32), 32, BLACK_IS_ZERO), levels),
        "tiff grey, 32 bits, all in use": Kind(
            tiff(deep_grey.astype(np.uint32) << 15, 32, BLACK_IS_ZERO), is_rejected=True
        ),
        "tiff grey, floating point": Kind(
            tiff(grey / np.float32(255), 32, BLACK_IS_ZERO, sample_format=3), is_rejected=True
        ),
    }
    return found


def by_libtiff() -> dict[str, Kind]:
    picture = colours()
    image = Image.fromarray(picture)
    grey = grey_levels()
    bits = Image.fromarray(steps(1)[1][:, :, 0]).convert("1")
    deep = Image.fromarray(of_16_bits(grey)[:, :, 0])
    inverted = ImageOps.invert(image)
    files = {
        f"tiff rgb, {name}": Kind(save(image, "TIFF", compression=form), picture)
        for name, form in {
            "LZW": "tiff_lzw",
            "PackBits": "packbits",
            "LZMA": "lzma",
            "Zstandard": "zstd",
        }.items()
    }
    files |= {
        "tiff rgb, JPEG": Kind(save(image, "TIFF", compression="jpeg", quality=95), picture, LOSSY),
        "tiff ycbcr, JPEG": Kind(
            save(image.convert("YCbCr"), "TIFF", compression="jpeg", quality=95), picture, LOSSY
        ),
        "tiff of several pages": Kind(
            save(image, "TIFF", save_all=True, append_images=[inverted]), picture
        ),
        "tiff big": Kind(save(image, "TIFF", big_tiff=True), picture),
        "tiff 16 bits, LZW": Kind(save(deep, "TIFF", compression="tiff_lzw"), as_rgb(grey)),
        "tiff Group 3": Kind(save(bits, "TIFF", compression="group3"), steps(1)[1]),
        "tiff Group 4": Kind(save(bits, "TIFF", compression="group4"), is_rejected=True),
        "tiff Lab": Kind(save(_lab(image), "TIFF"), picture, LOSSY),
    }
    return files


def _lab(image: Image.Image) -> Image.Image:
    srgb, lab = (ImageCms.createProfile(name) for name in ("sRGB", "LAB"))
    return ImageCms.profileToProfile(image, srgb, lab, outputMode="LAB")


def raw_photographs() -> dict[str, Kind]:
    """What cameras write: a TIFF with a thumbnail, behind which the sensor's values lie."""
    thumbnail = colours()
    data = tiff(thumbnail, 8, RGB)
    at = int.from_bytes(data[4:8], "little")
    count = int.from_bytes(data[at : at + 2], "little")
    entries = [data[at + 2 + 12 * n : at + 14 + 12 * n] for n in range(count)]
    sensor = tiff(of_16_bits(grey_levels()), 16, 32803)  # a colour filter array
    moved = len(data) + 1000

    def of(extra: dict[int, tuple[int, int, int]]) -> bytes:
        more = [struct.pack("<HHII", tag, *value) for tag, value in extra.items()]
        tags = b"".join(sorted([*entries, *more], key=lambda entry: entry[:2][::-1]))
        head = b"II*\0" + struct.pack("<IH", len(data), count + len(extra))
        directory = head[8:] + tags + bytes(4)
        return (head[:8] + data[8:] + directory).ljust(moved, b"\0") + _shifted(sensor, moved)

    place = moved + 8
    return {
        "raw photograph, DNG": Kind(
            of({254: (4, 1, 1), 330: (4, 1, place), 50706: (1, 4, 0x00000401)}), is_rejected=True
        ),
        "raw photograph, NEF": Kind(
            of({254: (4, 1, 1), 271: (2, 4, 0x006B694E), 330: (4, 1, place)}), is_rejected=True
        ),
    }


def _shifted(data: bytes, by: int) -> bytes:
    """A TIFF's bytes, whose offsets count from a place that lies so many bytes before it."""
    at = int.from_bytes(data[4:8], "little")
    moved = bytearray(data)
    for entry in range(at + 2, at + 2 + 12 * int.from_bytes(data[at : at + 2], "little"), 12):
        tag, kind, count, value = struct.unpack_from("<HHII", data, entry)
        size = {1: 1, 3: 2, 4: 4}[kind] * count
        if size > 4:
            struct.pack_into("<I", moved, entry + 8, value + by)
        if tag == STRIPS:
            for place in range(value, value + size, 4) if size > 4 else [entry + 8]:
                offset = struct.unpack_from("<I", data, place)[0]
                struct.pack_into("<I", moved, place, offset + by)
    return bytes(moved)


# ------------------------------------------------------------------------------- BMP, and others


def bmp(
    rows: list[bytes],
    bits: int,
    *,
    head: int = 40,
    compression: int = 0,
    masks: tuple[int, ...] = (),
    colors: np.ndarray | None = None,
    top_down: bool = False,
) -> bytes:
    """A BMP of rows from the top; `head` is the size of its header."""
    lines = [row.ljust(-(-len(row) // 4) * 4, b"\0") for row in (rows if top_down else rows[::-1])]
    pixels = b"".join(lines)
    listed = b""
    if colors is not None:
        listed = b"".join(bytes((*color[::-1], 0))[: 3 if head == 12 else 4] for color in colors)
    height = -HEIGHT if top_down else HEIGHT
    if head == 12:
        fields = struct.pack("<IHHHH", 12, WIDTH, HEIGHT, 1, bits)
    else:
        size = len(pixels)
        fields = struct.pack("<IiiHHII", head, WIDTH, height, 1, bits, compression, size)
        fields += struct.pack("<iiII", 2835, 2835, 0 if colors is None else len(colors), 0)
        fields += struct.pack(f"<{len(masks)}I", *masks)
        fields = fields.ljust(max(head, len(fields)), b"\0")
    at = 14 + len(fields) + len(listed)
    return b"BM" + struct.pack("<IHHI", at + len(pixels), 0, 0, at) + fields + listed + pixels


def bitmaps() -> dict[str, Kind]:
    picture = colours()
    image = Image.fromarray(picture)
    values = {bits: steps(bits)[0] for bits in (1, 4, 8)}
    found = {}
    for bits, indices in values.items():
        rows = [_packed(row[None], bits, "<") for row in indices]
        truth = palette(bits)[indices[:, :, 0]]
        found[f"bmp palette, {bits} bits"] = Kind(bmp(rows, bits, colors=palette(bits)), truth)
    rows = [row.tobytes() for row in values[8]]
    found["bmp palette of OS2"] = Kind(
        bmp(rows, 8, head=12, colors=palette(8)), palette(8)[values[8][:, :, 0]]
    )
    whole = picture.astype(np.uint32)
    red, green, blue = np.moveaxis(whole, 2, 0)
    of_15 = red >> 3 << 10 | green >> 3 << 5 | blue >> 3
    of_16 = red >> 3 << 11 | green >> 2 << 5 | blue >> 3
    of_32 = red << 16 | green << 8 | blue
    clear = of_32 | alpha()[:, :, 0].astype(np.uint32) << 24

    def lines(numbers: np.ndarray, form: str) -> list[bytes]:
        return [row.astype(form).tobytes() for row in numbers]

    fifteen = np.stack([channel >> 3 for channel in (red, green, blue)], 2) * 255 // 31
    sixteen = np.stack([(red >> 3) * 255 // 31, (green >> 2) * 255 // 63, (blue >> 3) * 255 // 31])
    reversed_colours = [row[:, ::-1].tobytes() for row in picture]
    found |= {
        "bmp 15 bits": Kind(bmp(lines(of_15, "<u2"), 16), fifteen.astype(np.uint8), 1),
        "bmp 16 bits": Kind(
            bmp(lines(of_16, "<u2"), 16, compression=3, masks=(0xF800, 0x7E0, 0x1F)),
            np.moveaxis(sixteen, 0, 2).astype(np.uint8),
            1,
        ),
        "bmp 24 bits": Kind(bmp(reversed_colours, 24), picture),
        "bmp 24 bits of OS2": Kind(bmp(reversed_colours, 24, head=12), picture),
        "bmp 24 bits from the top": Kind(bmp(reversed_colours, 24, top_down=True), picture),
        "bmp 32 bits": Kind(bmp(lines(of_32, "<u4"), 32), picture),
        "bmp 32 bits with alpha": Kind(
            bmp(
                lines(clear, "<u4"),
                32,
                head=108,
                compression=3,
                masks=(0xFF0000, 0xFF00, 0xFF, 0xFF000000),
            ),
            picture,
        ),
        "bmp grey": Kind(save(Image.fromarray(grey_levels()[:, :, 0]), "BMP"), steps(8)[1]),
        "bmp by Pillow, rgba": Kind(save(_with_alpha(image), "BMP"), picture),
        "bmp with run lengths": Kind(
            expensive_cases.run_length_bmp(WIDTH, HEIGHT, b"\x3d\5\0\0" * HEIGHT + b"\0\1"),
            is_rejected=True,
        ),
    }
    return found


def _with_alpha(image: Image.Image) -> Image.Image:
    return Image.merge("RGBA", [*image.split(), Image.fromarray(alpha()[:, :, 0])])


def of_other_formats() -> dict[str, Kind]:
    picture = colours()
    image = Image.fromarray(picture)
    inverted = ImageOps.invert(image)
    grey = grey_levels()
    of_grey = Image.fromarray(grey[:, :, 0])
    levels = as_rgb(grey)
    clear = _with_alpha(image)
    few = Image.fromarray(grey[:, :, 0])
    few.putpalette(palette(8).tobytes())
    listed = palette(8)[grey[:, :, 0]]
    several = {"save_all": True, "append_images": [inverted]}
    frames = {"save_all": True, "append_images": [few.point(lambda level: 255 - level)]}
    gif = save(few, "GIF", interlace=0)
    at = gif.index(b"\x2c")
    moved = image_cases.patched(gif, at + 1, struct.pack("<HH", 3, 2))
    within = image_cases.patched(moved, 6, struct.pack("<HH", WIDTH, HEIGHT))
    deep = of_16_bits(grey)
    truevision = struct.pack("<BBBHHBHHHHBB", 0, 0, 2, 0, 0, 0, 0, 0, WIDTH, HEIGHT, 16, 0x21)
    whole = picture.astype(np.uint16) >> 3
    fifteen = whole[:, :, 0] << 10 | whole[:, :, 1] << 5 | whole[:, :, 2]
    found = {
        "gif": Kind(gif, listed),
        "gif interlaced": Kind(save(few, "GIF", interlace=1), listed),
        "gif grey": Kind(save(of_grey, "GIF"), levels),
        "gif with a transparent colour": Kind(save(few, "GIF", transparency=40), listed),
        "gif animated": Kind(save(few, "GIF", **frames), listed),
        "gif whose frame begins further in": Kind(within),
        "webp": Kind(save(image, "WEBP", quality=95), picture, LOSSY),
        "webp lossless": Kind(save(image, "WEBP", lossless=True), picture),
        "webp lossless with alpha": Kind(save(clear, "WEBP", lossless=True, exact=True), picture),
        "webp with alpha": Kind(save(clear, "WEBP", quality=95, exact=True), picture, LOSSY),
        "webp animated": Kind(save(image, "WEBP", lossless=True, **several), picture),
        "pbm": Kind(save(Image.fromarray(steps(1)[1][:, :, 0]).convert("1"), "PPM"), steps(1)[1]),
        "pgm": Kind(save(of_grey, "PPM"), levels),
        "ppm": Kind(save(image, "PPM"), picture),
        "pgm, 16 bits": Kind(
            b"P5 %d %d 65535\n" % (WIDTH, HEIGHT) + deep.astype(">u2").tobytes(), levels
        ),
        "pgm, 12 bits": Kind(
            b"P5 %d %d 4095\n" % (WIDTH, HEIGHT) + (deep >> 4).astype(">u2").tobytes(),
            is_rejected=True,
        ),
        "ppm, 16 bits": Kind(
            b"P6 %d %d 65535\n" % (WIDTH, HEIGHT) + of_16_bits(picture).astype(">u2").tobytes(),
            is_rejected=True,
        ),
        "pgm as text": Kind(
            b"P2 %d %d 255\n" % (WIDTH, HEIGHT) + " ".join(map(str, grey.ravel())).encode(),
            is_rejected=True,
        ),
        "tga": Kind(save(image, "TGA"), picture),
        "tga from the top": Kind(save(image, "TGA", orientation=1), picture),
        "tga with run lengths": Kind(save(image, "TGA", compression="tga_rle"), picture),
        "tga grey": Kind(save(of_grey, "TGA"), levels),
        "tga palette": Kind(save(few, "TGA"), listed),
        "tga with alpha": Kind(save(clear, "TGA"), picture),
        "tga, 16 bits": Kind(
            truevision + fifteen.astype("<u2").tobytes(), (whole * 255 // 31).astype(np.uint8), 1
        ),
        "ico": Kind(save(clear, "ICO", bitmap_format="bmp", sizes=[(WIDTH, HEIGHT)]), picture),
        "ico palette": Kind(save(few, "ICO", bitmap_format="bmp", sizes=[(WIDTH, HEIGHT)]), listed),
        "ico of a png": Kind(save(clear, "ICO", sizes=[(WIDTH, HEIGHT)]), picture),
        "avif": Kind(save(image, "AVIF", quality=95), picture, LOSSY),
        "avif with alpha": Kind(save(clear, "AVIF", quality=95), picture, LOSSY),
    }
    with contextlib.suppress(ImportError):
        import pillow_heif

        out = io.BytesIO()
        pillow_heif.from_pillow(image).save(out, quality=95)
        found["heic"] = Kind(out.getvalue(), picture, LOSSY)
    return found

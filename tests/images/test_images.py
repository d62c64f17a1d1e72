"""`tfrecorder.images` against TensorFlow, which has the last word on what decodes, and to what.

The inner law: the limits of images, and the bytes that are kept of each.
"""

from __future__ import annotations

import io
import pickle
import random
import struct
import subprocess
import sys
import tracemalloc
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf
from helpers.expensive_cases import tiff
from helpers.image_cases import (
    IEND,
    PHOTOS,
    SIGNATURE,
    after_start,
    chunk,
    exif,
    flipped,
    frame_at,
    ihdr,
    kept,
    lossless_jpeg,
    many_components,
    mutate,
    patched,
    photo,
    png,
    reencoded,
    save,
    segment,
    zeroed,
)
from helpers.picture_kinds import kinds
from PIL import Image, ImageFile

from tfrecorder.images.check import check_image
from tfrecorder.images.header import CHECKS, Reject

KEPT = kept(photo(20))
REENCODED = reencoded(photo(20))


def tensorflow_shapes(data: bytes) -> set[tuple[int, ...]]:
    """The shapes that TensorFlow's decoders give; raises if one of them refuses."""
    decoders = [tf.io.decode_image, lambda d: tf.io.decode_image(d, dtype=tf.uint16)]
    if data.startswith(b"\xff\xd8"):
        decoders += [
            tf.io.decode_jpeg,
            lambda d: tf.io.decode_jpeg(d, dct_method="INTEGER_ACCURATE"),
        ]
        for ratio in (2, 4, 8):
            tf.io.decode_jpeg(data, ratio=ratio)
    else:
        decoders += [tf.io.decode_png]
    return {tuple(decode(data).shape) for decode in decoders}


def tensorflow_decodes(data: bytes) -> bool:
    try:
        tensorflow_shapes(data)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def rejected(data: bytes, check: str = "decode", **options: int) -> Reject:
    with pytest.raises(Reject) as caught:
        check_image(data, check, **options)
    return caught.value


def pillow(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        image.load()
    return image


# --------------------------------------------------------------------------- every kind of image


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("check", CHECKS)
def test_kept_kinds(name: str, check: str) -> None:
    data = KEPT[name]
    checked = check_image(data, check)
    assert checked.data is data
    assert checked.format == ("png" if "png" in name else "jpeg")
    assert tensorflow_shapes(data) == {(checked.height, checked.width, checked.channels)}
    assert (checked.orientation != 1) == ("exif" in name)
    assert checked.warning is None


@pytest.mark.parametrize("name", REENCODED)
def test_reencoded_kinds(name: str) -> None:
    source = pillow(REENCODED[name])
    wide = source.mode.startswith("I")
    checked = check_image(REENCODED[name])
    assert (checked.format, checked.warning, checked.orientation) == ("png", None, 1)
    assert tensorflow_shapes(checked.data) == {(checked.height, checked.width, checked.channels)}
    decoded = tf.io.decode_png(checked.data, dtype=tf.uint16 if wide else tf.uint8).numpy()
    modes = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
    expected = np.asarray(source if wide else source.convert(modes[checked.channels]))
    np.testing.assert_array_equal(decoded.reshape(expected.shape), expected)
    assert pillow(checked.data).info.keys() <= {"transparency"}
    assert check_image(REENCODED[name]) == checked  # the same bytes each time


@pytest.mark.parametrize("check", CHECKS)
def test_other_formats_are_decoded_at_every_level(check: str) -> None:
    checked = check_image(REENCODED["webp"], check)
    assert checked.format == "png"
    assert rejected(REENCODED["bmp"][:-9], check).code == "truncated"


def test_the_largest_picture_of_an_icon_is_taken() -> None:
    icon = save(photo(size=(256, 256)), "ICO")
    checked = check_image(icon)
    assert (checked.format, checked.height, checked.width) == ("png", 256, 256)
    assert checked.data in icon  # byte for byte, as it is a PNG
    bitmap = save(photo(size=(64, 50)), "ICO", bitmap_format="bmp", sizes=[(16, 12), (64, 50)])
    np.testing.assert_array_equal(pillow(check_image(bitmap).data), pillow(bitmap))
    assert rejected(bitmap[:30]).code == "truncated"
    assert rejected(bitmap[:-1]).code == "truncated"
    place = bitmap.index((64).to_bytes(4, "little") + (100).to_bytes(4, "little"))
    words = "the icon lists 64 x 50 pixels, its picture has 9999 x 100, the mask with it"
    assert words in str(rejected(patched(bitmap, place, (9999).to_bytes(4, "little"))))


def test_sixteen_bits_survive() -> None:
    values = np.arange(0, 65536, 257, np.uint16).reshape(16, 16)
    for order, start in (("<", b"II*\0"), (">", b"MM\0*")):
        data = _tiff(order, start, values.astype(f"{order}u2").tobytes(), bits=16)
        decoded = tf.io.decode_png(check_image(data).data, dtype=tf.uint16)
        np.testing.assert_array_equal(decoded[..., 0], values)


def test_palette_index_beyond_the_palette() -> None:
    source = REENCODED["gif few colours"]
    short = patched(source, 10, bytes([source[10] & 0xF8]))  # says: a palette of two colours
    short = short[:19] + short[13 + (6 << (source[10] & 7)) :]
    checked = check_image(short)
    expected = np.asarray(pillow(short).convert("RGB"))
    np.testing.assert_array_equal(tf.io.decode_png(checked.data, channels=3), expected)


def test_unsupported_pixels() -> None:
    gray = photo().convert("L")
    for image in (gray.convert("F"), gray.convert("I").point(lambda v: v * 1000)):
        reject = rejected(save(image, "TIFF"))
        assert (reject.stage, reject.code) == ("convert", "unsupported")


def test_samples_that_pillow_cuts_to_eight_bits_are_counted_and_not_suspect() -> None:
    tags = {256: (4, [2]), 257: (4, [1]), 258: (3, [16] * 3), 259: (3, [1]), 262: (3, [2])}
    tags |= {277: (3, [3]), 273: (4, [0]), 279: (4, [12])}
    data = tiff(tags | {273: (4, [len(tiff(tags))])}, bytes(range(12)))
    checked = check_image(data, "strict")
    assert checked.reduced == ("depth",)
    assert checked.warning is None


def test_the_bundled_photographs() -> None:
    assert len(PHOTOS) >= 12
    for path in PHOTOS:
        checked = check_image(path.read_bytes(), "strict")
        assert tensorflow_shapes(checked.data) == {(checked.height, checked.width, 3)}


# ---------------------------------------------------------------------------------- orientation


@pytest.mark.parametrize("order", "<>")
def test_orientation(order: str) -> None:
    source = photo()
    for value in range(10):
        block = exif(value, order)
        expected = value if 1 <= value <= 8 else 1
        found = [
            check_image(after_start(save(source, "JPEG"), segment(0xE1, b"Exif\0\0" + block))),
            check_image(png(source, before=chunk(b"eXIf", block))),
            check_image(save(source, "WEBP", exif=block)),
        ]
        assert [image.orientation for image in found] == [expected] * 3


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_an_orientation_is_not_applied_to_a_tiff_either(
    compression: str | None, orientation: int
) -> None:
    source, tags = photo(), Image.Exif()
    tags[0x0112] = orientation
    checked = check_image(save(source, "TIFF", exif=tags, compression=compression))
    assert checked.orientation == orientation
    stored = Image.open(io.BytesIO(checked.data))
    assert np.array_equal(np.asarray(stored), np.asarray(source))


def test_junk_exif_is_no_orientation() -> None:
    rng = random.Random(0)
    source = KEPT["jpeg"]
    for size in range(60):
        block = rng.choice((b"", b"II*\0", b"MM\0*", exif(6))) + rng.randbytes(size)
        assert (
            check_image(after_start(source, segment(0xE1, b"Exif\0\0" + block[:size]))).warning
            is None
        )


# --------------------------------------------------------------------------- what is not decoded


def test_not_images() -> None:
    assert rejected(b"").code == "empty"
    for data in (b"x", b"hello", b"<!DOCTYPE html>", b"\xff\xd8", SIGNATURE[:7], b"\0" * 99):
        assert rejected(data, "header").code == "not_an_image"
    assert "HTML" in rejected(b" <html>").detail


UNSUPPORTED = {
    "lossless": lossless_jpeg(),
    "lossless 12 bits": lossless_jpeg(12),
    "2 components": many_components(photo(), 2),
    "5 components": many_components(photo(), 5),
    "12 bits": patched(KEPT["jpeg"], frame_at(KEPT["jpeg"]) + 4, b"\x0c"),
    "height by DNL": patched(KEPT["jpeg"], frame_at(KEPT["jpeg"]) + 5, b"\0\0"),
    "hierarchical": patched(KEPT["jpeg"], frame_at(KEPT["jpeg"]) + 1, b"\xc5"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("check", ["decode", "strict", "header"])
def test_unsupported_jpeg(name: str, check: str) -> None:
    assert rejected(UNSUPPORTED[name], check).code == "unsupported"
    assert not tensorflow_decodes(UNSUPPORTED[name])


def test_the_strict_check_never_scales_a_lossless_jpeg() -> None:
    """simplejpeg 1.9 would write past the end of its buffer, and the process might die."""
    assert "lossless" in str(rejected(lossless_jpeg(), "strict"))
    assert _verdict(KEPT["jpeg"], "strict")


def test_odd_but_sound_jpegs_are_kept() -> None:
    sampling = frame_at(KEPT["jpeg 444"]) + 14
    for data in (
        after_start(KEPT["jpeg"], segment(0xE2, b"ICC_PROFILE\0\5\1")),
        after_start(KEPT["jpeg"], b"\xff\xff"),
        patched(KEPT["jpeg"], frame_at(KEPT["jpeg"]) + 11, b"\x31"),
        patched(KEPT["jpeg 444"], sampling, b"\x12"),
    ):
        checked = check_image(data)
        assert tensorflow_shapes(data) == {(checked.height, checked.width, checked.channels)}


def _png(*chunks: bytes, pixels: bytes = (b"\0" + b"abc" * 5) * 4, color: int = 2) -> bytes:
    """A PNG of 5 x 4 pixels; the chunks go between IHDR and its image data."""
    data = chunk(b"IDAT", zlib.compress(pixels))
    return SIGNATURE + ihdr(5, 4, 8, color) + b"".join(chunks) + data + IEND


ROWS = (b"\0" + b"abc" * 5) * 4
INDICES = (b"\0" + bytes(5)) * 4
PALETTE = chunk(b"PLTE", bytes(12))
Z = zlib.compress(ROWS)
SUSPECT_PNGS = {
    "bad checksum in text": _png(chunk(b"tEXt", b"a\0b", 1)),
    "bad checksum in tRNS": _png(PALETTE, chunk(b"tRNS", b"\0", 1), pixels=INDICES, color=3),
    "long tRNS": _png(PALETTE, chunk(b"tRNS", bytes(5)), pixels=INDICES, color=3),
    "empty tRNS": _png(PALETTE, chunk(b"tRNS"), pixels=INDICES, color=3),
    "tRNS before PLTE": _png(chunk(b"tRNS", b"\0"), PALETTE, pixels=INDICES, color=3),
    "two tRNS": _png(PALETTE, *[chunk(b"tRNS", b"\0")] * 2, pixels=INDICES, color=3),
    "PLTE of a wrong length": _png(chunk(b"PLTE", b"1")),
    "PLTE in gray": _png(PALETTE, pixels=INDICES, color=0),
    "one byte too many": _png(pixels=ROWS + b"\0"),
    "many bytes too many": _png(pixels=ROWS + bytes(9999)),
    "junk in IDAT": _png()[:33] + chunk(b"IDAT", Z + b"junk") + IEND,
    "junk IDAT": _png()[:-12] + chunk(b"IDAT", b"junk") + IEND,
    "IDAT later": _png()[:-12] + chunk(b"tEXt", b"a\0b") + chunk(b"IDAT", b"x") + IEND,
    "bytes after": _png() + b"junk",
    "IEND with content": _png()[:-12] + chunk(b"IEND", b"x"),
}
BAD_PNGS = {
    "no IEND": _png()[:-12],
    "half an IEND": _png()[:-4],
    "bad checksum in IEND": _png()[:-1] + b"x",
    "bad checksum in IHDR": patched(_png(), 29, b"x"),
    "bad checksum in IDAT": _png()[:33] + chunk(b"IDAT", Z, 1) + IEND,
    "bad checksum in late IDAT": _png()[:-12] + chunk(b"IDAT", b"x", 1) + IEND,
    "two IHDR": _png(ihdr(5, 4, 8, 2)),
    "no IHDR": SIGNATURE + _png()[33:],
    "text before IHDR": SIGNATURE + chunk(b"tEXt", b"a\0b") + _png()[8:],
    "unknown critical chunk": _png(chunk(b"ABCD")),
    "chunk name with a digit": _png(chunk(b"a1Cd")),
    "Apple's CgBI": SIGNATURE + chunk(b"CgBI", b"\x50\0\x20\2") + _png()[8:],
    "no PLTE": _png(pixels=INDICES, color=3),
    "empty PLTE": _png(chunk(b"PLTE")),
    "two PLTE": _png(PALETTE, PALETTE),
    "two PLTE in gray": _png(PALETTE, PALETTE, pixels=INDICES, color=0),
    "PLTE of 257 colours": _png(chunk(b"PLTE", bytes(771)), pixels=INDICES, color=3),
    "one byte too few": _png(pixels=ROWS[:-1]),
    "one row too few": _png(pixels=ROWS[:-16]),
    "no image data": SIGNATURE + ihdr(5, 4, 8, 2) + IEND,
    "empty image data": SIGNATURE + ihdr(5, 4, 8, 2) + chunk(b"IDAT") + IEND,
    "bad Adler sum": _png()[:33] + chunk(b"IDAT", Z[:-1] + b"x") + IEND,
    "no Adler sum": _png()[:33] + chunk(b"IDAT", Z[:-4]) + IEND,
    "filter 5": _png(pixels=ROWS[:-16] + b"\5" + ROWS[-15:]),
    "text inside IDAT": _png()[:33]
    + chunk(b"IDAT", Z[:9])
    + chunk(b"tEXt", b"a\0b")
    + chunk(b"IDAT", Z[9:])
    + IEND,
    "interlace 2": SIGNATURE + ihdr(5, 4, 8, 2, 0, 0, 2) + _png()[33:],
    "compression 1": SIGNATURE + ihdr(5, 4, 8, 2, 1) + _png()[33:],
    "4 bits RGB": SIGNATURE + ihdr(5, 4, 4, 2) + _png()[33:],
    "width 0": SIGNATURE + ihdr(0, 4, 8, 2) + _png()[33:],
    "width 1,000,001": SIGNATURE
    + ihdr(1_000_001, 1, 8, 0)
    + chunk(b"IDAT", zlib.compress(bytes(1_000_002)))
    + IEND,
}


@pytest.mark.parametrize("name", SUSPECT_PNGS)
def test_suspect_pngs(name: str) -> None:
    checked = check_image(SUSPECT_PNGS[name])
    assert checked.warning.startswith("the PNG: ")
    assert tensorflow_shapes(checked.data) == {(checked.height, checked.width, checked.channels)}
    reject = rejected(SUSPECT_PNGS[name], "strict")
    assert (reject.code, reject.detail) == ("suspect", checked.warning)
    assert check_image(SUSPECT_PNGS[name], "header").channels == checked.channels


@pytest.mark.parametrize("name", BAD_PNGS)
def test_bad_pngs(name: str) -> None:
    assert rejected(BAD_PNGS[name]).code in ("damaged", "truncated", "too_large", "unsupported")
    assert not tensorflow_decodes(BAD_PNGS[name])


def test_a_window_smaller_than_the_stream_needs() -> None:
    noise = random.Random(0).randbytes(601) * 30
    lines = b"".join(b"\0" + noise[600 * i : 600 * i + 600] for i in range(30))
    coded = zlib.compress(lines, 9)
    for window in range(8):
        first = window * 16 + 8
        lie = bytes([first, -(first << 8) % 31]) + coded[2:]
        data = SIGNATURE + ihdr(200, 30, 8, 2) + chunk(b"IDAT", lie) + IEND
        if tensorflow_decodes(data):
            check_image(data, "strict")
        else:
            assert rejected(data).code == "damaged"


# ------------------------------------------------------------------------------------ the damage


@pytest.fixture(scope="module")
def large_photos() -> list[bytes]:
    return [save(photo(i, (500, 375)), "JPEG", quality=95) for i in range(0, len(PHOTOS), 3)]


@pytest.mark.slow
def test_damage_is_noticed(large_photos: list[bytes]) -> None:
    """The figures of the design: the strict check sees what a lenient decoder passes over."""
    rng = random.Random(0)
    for damage, least in ((zeroed, 0.95), (lambda d: flipped(d, rng, first=len(d) // 10), 0.99)):
        damaged = [damage(data) for data in large_photos * 3]
        noticed = sum(not _verdict(data, "strict") for data in damaged)
        assert noticed >= least * len(damaged)
        for data in damaged:
            assert _verdict(data) == tensorflow_decodes(data)


def _verdict(data: bytes, check: str = "decode") -> bool:
    try:
        check_image(data, check)
    except Reject:
        return False
    return True


#: How a JPEG is saved whose sampling the strict check does not know.
RARE_SAMPLINGS = {
    "one scan": {},
    "restarts": {"restart_marker_rows": 2},
    "progressive": {"progressive": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("how", RARE_SAMPLINGS)
def test_a_sampling_that_the_strict_check_does_not_know_is_judged_all_the_same(how: str) -> None:
    noticed = total = 0
    rng = random.Random(0)
    for at in range(0, len(PHOTOS), 4):
        image = photo(at, (400, 300)).convert("CMYK")
        data = save(image, "JPEG", quality=95, subsampling=2, **RARE_SAMPLINGS[how])
        checked = check_image(data, "strict")
        assert checked.warning is None
        assert tensorflow_shapes(data) == {(300, 400, 3)}
        for cut in (1, 2, 100, len(data) // 2):
            assert rejected(data[:-cut]).code == "truncated", (at, cut)
            if cut > 2:
                assert check_image(data[:-cut] + b"\xff\xd9").warning
        for damaged in (zeroed(data), flipped(data, rng, first=len(data) // 10)):
            noticed += not _verdict(damaged, "strict")
            total += 1
            assert _verdict(damaged) == tensorflow_decodes(damaged)
    assert noticed > 0.75 * total, noticed / total


def test_a_sampling_of_two_in_all_components_is_known() -> None:
    data = kinds()["jpeg 2 x 2 in all components"].data
    assert check_image(data, "strict").warning is None
    assert check_image(zeroed(data, 200)).warning


def test_cut_jpegs_are_truncated() -> None:
    for name in ("jpeg", "jpeg progressive", "jpeg gray", "jpeg cmyk"):
        data = KEPT[name]
        for cut in (1, 2, 3, 100, len(data) // 2):
            assert rejected(data[:-cut]).code == "truncated", (name, cut)
            assert cut == 1 or not tensorflow_decodes(data[:-cut])  # by luck, it may do without D9
    # All rows are there, and the end marker is not: Pillow would accept it.
    assert rejected(KEPT["jpeg"][:-2] + bytes(50)).code == "truncated"
    assert not tensorflow_decodes(KEPT["jpeg"][:-2] + bytes(50))


@pytest.mark.slow
def test_the_law() -> None:
    """Whatever is accepted, TensorFlow decodes to the recorded shape."""
    sources = kept(photo(33, (61, 47))) | reencoded(photo(33, (61, 47)))
    accepted = suspects = wrongly_rejected = total = 0
    for name, source in sources.items():
        for seed in range(30):
            data = mutate(source, random.Random(f"{name}/{seed}"))
            total += 1
            try:
                checked = check_image(data)
            except Reject:
                if data.startswith(b"\xff\xd8\xff"):
                    wrongly_rejected += tensorflow_decodes(data)
                continue
            accepted += 1
            suspects += checked.warning is not None
            shape = (checked.height, checked.width, checked.channels)
            assert tensorflow_shapes(checked.data) == {shape}, (name, seed)
    assert accepted > total / 5
    assert suspects > accepted / 10
    assert wrongly_rejected <= total / 500


# ------------------------------------------------------------------------------------- the bombs


@pytest.mark.parametrize("name", [*KEPT, *REENCODED])
def test_size_is_checked_before_decoding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object, **__: object) -> None:
        raise AssertionError("it was decoded")

    data = (KEPT | REENCODED)[name]
    height, width = check_image(data).height, check_image(data).width
    check_image(data, max_pixels=height * width)
    monkeypatch.setattr(ImageFile.ImageFile, "load", decoded)
    monkeypatch.setattr(zlib, "decompressobj", decoded)
    monkeypatch.setattr(simplejpeg, "decode_jpeg", decoded)
    for check in ("decode", "strict", "header"):
        reject = rejected(data, check, max_pixels=height * width - 1)
        assert (reject.stage, reject.code) == ("check", "too_large")


def test_declared_sizes_that_tensorflow_refuses() -> None:
    at = frame_at(KEPT["jpeg"]) + 5
    jpeg_bomb = patched(KEPT["jpeg"], at, struct.pack(">HH", 65000, 65000))
    png_bomb = SIGNATURE + ihdr(40000, 40000, 8, 2) + chunk(b"IDAT", Z) + IEND
    for data in (jpeg_bomb, png_bomb):
        assert "max_pixels" in rejected(data).detail
        assert "TensorFlow" in rejected(data, max_pixels=10**12).detail
        assert not tensorflow_decodes(data)


def test_a_side_longer_than_a_png_may_have() -> None:
    """The PNG of such a TIFF or PBM would be refused by libpng."""
    data = b"P5 1 1000001 255\n" + bytes(1_000_001)
    assert rejected(data).code == "too_large"
    assert not tensorflow_decodes(save(pillow(data), "PNG"))


@pytest.mark.slow
def test_zip_bombs_use_no_memory() -> None:
    zeros = zlib.compressobj(9)
    bomb = b"".join(zeros.compress(bytes(1 << 20)) for _ in range(200)) + zeros.flush()
    begin = SIGNATURE + ihdr(5, 4, 8, 2)
    files = {
        "image data": begin + chunk(b"IDAT", bomb) + IEND,
        "text": _png(chunk(b"zTXt", b"a\0\0" + bomb)),
        "profile": _png(chunk(b"iCCP", b"a\0\0" + bomb)),
    }
    tracemalloc.start()
    assert "far more" in rejected(files["image data"]).detail
    check_image(files["text"])
    check_image(files["profile"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_bomb_in_a_later_gif_frame_is_not_decoded() -> None:
    source = REENCODED["gif animated"]
    first = check_image(REENCODED["gif"])
    later = source.index(b"\x21\xf9", 900)  # the second frame's control block
    huge = source[:later] + b"\x2c" + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\x08\0\x3b"
    assert (check_image(huge).height, check_image(huge).width) == (first.height, first.width)


# --------------------------------------------------------------- the process that it all runs in


def test_details_are_deterministic() -> None:
    rng = random.Random(5)
    sources = [*REENCODED.values(), *KEPT.values()]
    damaged = [mutate(rng.choice(sources), rng) for _ in range(300)]

    def describe(data: bytes) -> str:
        try:
            return str(check_image(data).warning)
        except Reject as reject:
            return str(reject)

    alone = [describe(data) for data in damaged]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(describe, damaged)) == alone
    assert not any(" at 0x" in text or "\n" in text or "/" in text for text in alone)


def test_threads_agree() -> None:
    sources = [*KEPT.values(), *REENCODED.values()] * 3
    alone = [check_image(data) for data in sources]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(check_image, sources)) == alone


def test_no_warning_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000)  # now every file would warn
    bad_tag = _tiff("<", b"II*\0", bytes(256), bits=8, extra=(305, 2, 1 << 20, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        for data in (*KEPT.values(), *REENCODED.values(), bad_tag):
            check_image(data)
        assert warnings.filters == before
    with pytest.warns(UserWarning, match="Metadata|Truncated"):  # the file does provoke one
        pillow(bad_tag)


def test_load_truncated_images_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    sources = {**KEPT, **REENCODED}
    damaged = [mutate(rng.choice([*sources.values()]), rng) for _ in range(200)]
    damaged += sources.values()
    for name in (
        "bmp",
        "gif",
        "tiff",
        "tiff lzw",
        "ppm",
        "webp",
        "avif",
        "jpeg",
        "jpeg progressive",
    ):
        damaged += [sources[name][: len(sources[name]) * 2 // 3], zeroed(sources[name], 300)]
    before = [_outcome(data) for data in damaged]
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert [_outcome(data) for data in damaged] == before
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True
    assert sum(outcome[0] == "rejected" for outcome in before) > 50


def _outcome(data: bytes) -> tuple[str, object]:
    try:
        return "accepted", check_image(data)
    except Reject as reject:
        return "rejected", reject.stage


def test_reject_survives_pickling() -> None:
    reject = Reject("check", "damaged", "the words")
    again = pickle.loads(pickle.dumps(reject))
    assert (again.stage, again.code, again.detail) == ("check", "damaged", "the words")
    assert str(again) == "damaged: the words"


@pytest.mark.slow
def test_tensorflow_and_beam_stay_out() -> None:
    code = (
        "import sys; import tfrecorder.images.check, tfrecorder.images.jpeg, tfrecorder.images.png;"
        "sys.exit(any(m in sys.modules for m in ('tensorflow', 'apache_beam')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _tiff(
    order: str,
    start: bytes,
    pixels: bytes,
    bits: int,
    extra: tuple[int, int, int, int] | None = None,
) -> bytes:
    """A gray TIFF of 16 x 16 pixels, uncompressed."""
    values = [(256, 16), (257, 16), (258, bits), (259, 1), (262, 1), (273, 400), (277, 1)]
    values += [(278, 16), (279, len(pixels))]
    entries = [struct.pack(order + "HHIHH", tag, 3, 1, value, 0) for tag, value in values]
    if extra:
        entries.append(struct.pack(order + "HHII", *extra))
    directory = struct.pack(order + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    return (start + directory).ljust(400, b"\0") + pixels

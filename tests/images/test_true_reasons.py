"""Reasons are true: what is merely unsupported is not called damaged, and no bytes are quoted."""

from __future__ import annotations

import lzma
import re
import struct
import zlib
from pathlib import Path

import pandas as pd
import pytest
from helpers.expensive_cases import Tag, strips, tiff
from helpers.image_cases import (
    SIGNATURE,
    after_start,
    chunk,
    lossless_jpeg,
    photo,
    png,
    save,
    segment,
)
from PIL import Image
from support import rejects
from torture.judging import Accepted, Refused, judge

import tfrecorder


def bmp(bits: int, compression: int, *masks: int) -> bytes:
    """A BMP of 4 x 4 pixels with a header of 40 bytes, and masks behind it."""
    fields = struct.pack(f"<{len(masks)}I", *masks)
    data = bytes(4 * 4 * bits // 8)
    at = 54 + len(fields)
    head = struct.pack("<IiiHHIIiiII", 40, 4, 4, 1, bits, compression, len(data), 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + head + fields + data


def samples(bits: list[int], kind: int, photometric: int = 1) -> bytes:
    """A TIFF of 4 x 4 pixels of these samples."""
    data = bytes(4 * 4 * sum(bits) // 8)
    tags: dict[int, Tag] = {256: (3, [4]), 257: (3, [4]), 258: (3, bits), 259: (3, [1])}
    tags |= {262: (3, [photometric]), 273: (4, [0]), 277: (3, [len(bits)]), 278: (3, [4])}
    tags |= {279: (4, [len(data)]), 339: (3, [kind] * len(bits))}
    return tiff(tags | {273: (4, [len(tiff(tags))])}, data)


JPEG = save(photo(), "JPEG")
ICON = save(photo(size=(40, 30)), "ICO", bitmap_format="bmp", sizes=[(40, 30)])

#: Sound files of kinds that are not stored, and a word of what must be said of each.
UNSUPPORTED = {
    "bit fields of 4 bits": (bmp(16, 3, 0xF00, 0xF0, 0xF), "bmp: Unsupported BMP bitfields layout"),
    "bit fields of 10 bits": (
        bmp(32, 3, 0x3FF00000, 0xFFC00, 0x3FF),
        "bmp: Unsupported BMP bitfields layout",
    ),
    "JPEG in a BMP": (bmp(0, 4), "Unsupported BMP pixel depth (0)"),
    "BMP of 64 bits": (bmp(64, 0), "Unsupported BMP pixel depth (64)"),
    "half floats": (samples([16], 3), "BitsPerSample=16, SampleFormat=3"),
    "doubles": (samples([64], 3), "SamplesPerPixel=1, BitsPerSample=64, SampleFormat=3"),
    "floats in colour": (
        samples([32] * 3, 3, 2),
        "SamplesPerPixel=3, BitsPerSample=32, SampleFormat=3",
    ),
    "32 bits in colour": (samples([32] * 3, 1, 2), "SamplesPerPixel=3, BitsPerSample=32"),
    "complex": (samples([64], 6), "SampleFormat=6"),
    "raw sensor": (samples([16], 1, 32803), "PhotometricInterpretation=32803"),
    "JPEG XL in a TIFF": (strips(4, 4, 4, compression=50002), "a TIFF with the compression 50002"),
    "LERC in a TIFF": (strips(4, 4, 4, compression=34887), "a TIFF with the compression 34887"),
    "fax": (save(photo().convert("1"), "TIFF", compression="group4"), "Group 4 fax data; save it"),
    "CgBI": (SIGNATURE + chunk(b"CgBI", b"\x50\0\x20\2") + png(photo())[8:], "CgBI"),
    "JPEG-LS": (after_start(JPEG, segment(0xF7, bytes(9))), "JPEG-LS"),
    "lossless JPEG": (lossless_jpeg(), "a JPEG of lossless coding"),
    "12-bit JPEG": (lossless_jpeg(12), "JPEG"),
    "JPEG 2000": (save(photo(), "JPEG2000"), "JPEG 2000"),
    "JPEG XL": (b"\xff\x0a" + bytes(99), "JPEG XL"),
    "HDR": (b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n-Y 1 +X 1\n", "Radiance HDR"),
    "OpenEXR": (b"\x76\x2f\x31\x01" + bytes(99), "OpenEXR"),
    "PFM": (save(photo().convert("F"), "PPM"), "PFM"),
    "PAM": (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 255\nENDHDR\n\0", "PAM"),
    "CR3": (b"\0\0\0\x18ftypcrx " + bytes(99), "raw photograph"),
    "PSD": (b"8BPS\0\1" + bytes(99), "Photoshop"),
    "PDF": (b"%PDF-1.7\n", "a PDF"),
    "SVG": (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
    "cursor": (b"\0\0\2\0\1\0" + bytes(99), "a cursor"),
    "icon": (ICON[:36] + b"\x10" + ICON[37:], "a bitmap of 16 bits"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_unsupported_is_named(name: str) -> None:
    data, words = UNSUPPORTED[name]
    for level in ("header", "decode", "strict"):
        refused = judge(data, level)
        assert isinstance(refused, Refused)
        assert refused.code == "unsupported"
        assert words in refused.words.removeprefix("unsupported: ")


def accepted(data: bytes) -> Accepted:
    outcome = judge(data)
    assert isinstance(outcome, Accepted)
    return outcome


def words_of(data: bytes) -> str:
    """With which words a file is refused."""
    outcome = judge(data)
    assert isinstance(outcome, Refused)
    return outcome.words


def of_codec(compression: int, data: bytes) -> bytes:
    """A TIFF of 4 x 4 pixels of RGB in one strip."""
    tags: dict[int, Tag] = {256: (3, [4]), 257: (3, [4]), 258: (3, [8] * 3), 262: (3, [2])}
    tags |= {259: (3, [compression]), 273: (4, [0]), 277: (3, [3]), 278: (3, [4])}
    tags |= {279: (4, [len(data)])}
    return tiff(tags | {273: (4, [len(tiff(tags))])}, data)


CODECS = {
    50001: save(photo(size=(4, 4)), "WEBP", lossless=True),
    34925: lzma.compress(bytes(48)),
    50000: bytes.fromhex("28b52ffd2030810100") + bytes(48),
    8: zlib.compress(bytes(48)),
}


@pytest.mark.parametrize("compression", CODECS)
def test_a_tiff_of_a_codec_that_libtiff_has_or_lacks(compression: int) -> None:
    data = of_codec(compression, CODECS[compression])
    if compression == 50001:  # not in the libtiff of Pillow's wheels
        assert re.match(f"unsupported: .* {compression},", words_of(data))
        return
    assert accepted(data).format == "png"
    short = of_codec(compression, CODECS[compression][:4])
    assert re.match("(damaged|truncated): ", words_of(short))


def test_the_first_page_of_a_tiff_is_taken() -> None:
    pages = save(photo(), "TIFF", save_all=True, append_images=[photo(1)])
    assert accepted(pages).data == accepted(save(photo(), "TIFF")).data


def test_what_is_damaged_is_not_called_unsupported() -> None:
    for data in (save(photo(), "BMP")[:200], save(photo(), "TIFF")[:-999], b"II*\0" + bytes(40)):
        assert judge(data).code in ("damaged", "truncated")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"PK\3\4" + bytes(40), "a zip file"),
        (b"\x1f\x8b" + bytes(40), "a gzip file"),
        (b'{"error": 404}', "JSON"),
        (b"<!DOCTYPE html><p>404", "HTML"),
        (b"BMW,1234,Munich,Bavaria\n" * 9, "like no image format"),
    ],
)
def test_what_is_no_image_is_named(data: bytes, words: str) -> None:
    assert re.match(f"not_an_image: .*{words}", words_of(data))


SECRET = b"root:$6$k9Zp:19000:0:99999:7:::\n"
#: Beginnings that a text may have, or that somebody gives it, of every format that is read.
BEGINNINGS = (
    b"",
    b"P1 ",
    b"P2\n",
    b"P2 1 1 255 ",
    b"P3 ",
    b"P4 ",
    b"P5 1 ",
    b"P6\n9 9 ",
    b"P6\n#",
    b"BM",
    b"BM" + bytes(12) + b"\x28\0\0\0",
    b"GIF89a",
    b"RIFF....WEBP",
    b"....ftypavif",
    b"II*\0",
    b"II*\0\x08\0\0\0",
    b"MM\0*",
    b"\xff\xd8\xff",
    SIGNATURE,
    b"<",
    b"{",
)


def test_no_reason_quotes_a_file(tmp_path: Path) -> None:
    paths = []
    for number, begin in enumerate(BEGINNINGS):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(begin + SECRET * 20)
        paths.append(str(path))
    frame = pd.DataFrame({"image_uri": [*paths, *[str(tmp_path / "sound.png")] * 2]})
    Image.new("RGB", (9, 9)).save(tmp_path / "sound.png")
    tfrecorder.convert(frame, "out", max_reject_fraction=1.0)
    listed = rejects("out")
    assert len(listed) == len(BEGINNINGS)
    for reason in listed.reason:
        for part in ("root", "k9Zp", "19000", "99999", "'", '"', "72 6f", "6f6f", "\\x"):
            assert part not in reason, reason

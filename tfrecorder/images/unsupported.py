"""Sound files of kinds that cannot be stored: correct words for what each one is."""

from __future__ import annotations

import struct

from tfrecorder.images.rejects import Reject
from tfrecorder.images.tiff_tags import (
    BITS,
    COMPRESSION,
    DNG_VERSION,
    PHOTOMETRIC,
    PLANES,
    SAMPLE_FORMAT,
    SAMPLES,
    Tags,
)

# BITMAPCOREHEADER, BITMAPINFOHEADER with its versions 2 to 5, and OS/2's.
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
_BMP_COMPRESSIONS = {
    4: "JPEG data",
    5: "PNG data",
    6: "bit fields with alpha",
    11: "CMYK pixels",
    12: "CMYK pixels",
    13: "CMYK pixels",
}
_OS2_COMPRESSIONS = {3: "Huffman coding", 4: "run lengths of 24 bits"}

#: Those that the libtiff in Pillow's wheels does not decode.
_COMPRESSIONS = {
    2: "CCITT",
    32766: "NeXT",
    32809: "ThunderScan",
    32908: "PixarFilm",
    32909: "PixarLog",
    34661: "JBIG",
    34676: "SGI Log",
    34677: "SGI Log",
    34712: "JPEG 2000",
    34887: "LERC",
    34892: "lossy JPEG of DNG",
    34933: "PNG",
    34934: "JPEG XR",
    50001: "WebP",
    50002: "JPEG XL",
    52546: "JPEG XL",
    33003: "JPEG 2000",
    33005: "JPEG 2000",
}
_PHOTOMETRICS = {
    0: "grey",
    1: "grey",
    2: "RGB",
    3: "palette",
    4: "mask",
    5: "CMYK",
    6: "YCbCr",
    8: "Lab",
    9: "Lab",
    10: "Lab",
    32803: "raw sensor",
    32844: "LogL",
    32845: "LogLuv",
    34892: "linear raw",
    51177: "depth",
}
_SAMPLE_FORMATS = {2: "signed ", 3: "floating-point ", 5: "complex ", 6: "complex "}
_BITS = (1, 2, 4, 6, 8, 10, 12, 14, 16, 24, 32, 64, 128)


def unsupported(what: str) -> Reject:
    """The reject for a sound file; `what` says what it is, with its article."""
    return Reject("check", "unsupported", f"the file is {what}, which is not supported")


def check_bmp(data: bytes) -> None:
    """Rejects a file that only begins like a BMP, or a BMP that Pillow does not decode."""
    (size,) = struct.unpack_from("<I", data.ljust(18, b"\0"), 14)
    if len(data) >= 18 and size not in _BMP_HEADERS:
        raise Reject("check", "not_an_image", "it begins with BM, but has no header of a BMP")
    if size == 12 or len(data) < 54:
        return
    bits, compression = struct.unpack_from("<HI", data, 28)
    names = _OS2_COMPRESSIONS if size == 64 else _BMP_COMPRESSIONS
    if compression in names:
        raise unsupported(f"a BMP with {names[compression]}")
    if bits in (2, 64):
        raise unsupported(f"a BMP of {bits} bits a pixel")


def what_bmp(data: bytes, words: str) -> str | None:
    """What a BMP is, judged by Pillow's refusal; None if it is damaged."""
    if "bitfields" not in words or len(data) < 66:
        return None
    masks = struct.unpack_from("<3I", data, 54)
    if not all(masks) or masks[0] & masks[1] or masks[1] & masks[2] or masks[0] & masks[2]:
        return None
    return f"a BMP with the bit fields {', '.join(f'{mask:x}' for mask in masks)}"


def what_tiff(data: bytes, words: str) -> str | None:
    """What a TIFF is, judged by its tags and Pillow's refusal; None if it is damaged."""
    tags = Tags(data)
    compression, photometric = tags.number(COMPRESSION, 1), tags.number(PHOTOMETRIC)
    bits, formats = tags.numbers(BITS) or [1], tags.numbers(SAMPLE_FORMAT) or [1]
    known = photometric in _PHOTOMETRICS and all(one in _BITS for one in bits)
    if not known or not all(1 <= one <= 6 for one in formats):
        return None
    name = "a DNG (a camera's raw photograph)" if DNG_VERSION in tags.first else "a TIFF"
    if compression in _COMPRESSIONS:
        return f"{name} with the compression {compression} ({_COMPRESSIONS[compression]})"
    if "pixel mode" not in words and "data organization" not in words:
        return None
    kind = _SAMPLE_FORMATS.get(formats[0], "")
    depth = "/".join(map(str, dict.fromkeys(bits)))
    count, plural = tags.number(SAMPLES, 1), "s" if tags.number(SAMPLES, 1) != 1 else ""
    apart = ", in separate planes" if tags.number(PLANES, 1) == 2 else ""
    return f"{name} of {count} {depth}-bit {kind}{_PHOTOMETRICS[photometric]} sample{plural}{apart}"

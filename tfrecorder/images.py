"""Image bytes in, checked bytes with their true shape out.

    checked = check_image(data)             # raises Reject
    checked.format, checked.height, checked.width, checked.channels

What is accepted with verify="decode" or "strict" is decoded by TensorFlow without error, to the
recorded shape.  JPEG (`jpeg.py`) and PNG (`png.py`) keep their own bytes; BMP, GIF (first frame),
WebP, TIFF, PPM/PGM/PBM and AVIF are decoded by Pillow and written again as PNG, without loss.
Nothing here imports TensorFlow or Beam, changes a global setting of Pillow, or depends on one.

The reasons for a reject, all of stage "check" but the last:

    empty               no bytes
    not_an_image        no known image format (an HTML error page, HEIC, SVG, ...)
    truncated           the file ends too early
    damaged             the file contradicts itself, or the decoder gives up
    too_large           more than `max_pixels`, or more than TensorFlow decodes
    unsupported_jpeg    a coding that TensorFlow cannot read: lossless, 12 bits, 2 components, ...
    suspect             verify="strict" only: it decodes, but a decoder complains
    unsupported_pixels  (stage "convert") floats or wide integers, which PNG cannot hold
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

VERIFY_LEVELS = ("decode", "strict", "header", "none")

# A quarter of a GiB as RGB, and the size from which Pillow warns of a decompression bomb.
DEFAULT_MAX_PIXELS = 89_478_485
# TensorFlow refuses a JPEG of this many decoded bytes, and a PNG of this many pixels.
_TENSORFLOW_LIMIT = 2**29
_LARGEST_SIDE = 1_000_000  # of a PNG, by a limit of libpng; a JPEG's is 65,535


class Reject(Exception):
    """An image that gets no record.

    Attributes:
        stage: "read", "check" or "convert".
        code: a short reason in snake_case; those of this module are in its docstring.
        detail: the same in words; equal for equal bytes, without paths, addresses or times.
    """

    def __init__(self, stage: str, code: str, detail: str) -> None:
        super().__init__(stage, code, detail)  # all three, so that it survives pickling
        self.stage, self.code, self.detail = stage, code, detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


@dataclass(frozen=True, slots=True)
class CheckedImage:
    """An accepted image.

    Attributes:
        data: the bytes to store: the source's own if JPEG or PNG, else a lossless PNG.
        format: "jpeg" or "png".
        height, width: pixels, as TensorFlow decodes `data`: 1 and up (0 only when
            verify="none" meets an unreadable header).  An EXIF orientation is not applied.
        channels: 1 to 4, as TensorFlow decodes `data` with channels=0: 3 for a CMYK JPEG,
            4 for a PNG palette with transparency (0 as for height).
        oriented: the source has an EXIF orientation other than 1.
        warning: the decoder's words if the image is suspect, else None.
    """

    data: bytes
    format: str
    height: int
    width: int
    channels: int
    oriented: bool
    warning: str | None


class Header(NamedTuple):
    """What an image says of itself: `channels` as TensorFlow counts them."""

    height: int
    width: int
    channels: int
    oriented: bool


def check_image(
    data: bytes, verify: str = "decode", max_pixels: int = DEFAULT_MAX_PIXELS
) -> CheckedImage:
    """Checks an image, and turns it into JPEG or PNG if it is neither.

    Args:
        data: the whole file.
        verify: how much to check of a JPEG or PNG; other formats are always decoded in full.
            "decode": TensorFlow will decode it; a decoder's complaint makes it suspect.
            "strict": the same, and a suspect is rejected.
            "header": the size and format alone.
            "none": nothing; the size is 0 where the header cannot be read.
        max_pixels: the largest height times width, refused before decoding.  For JPEG and PNG
            verify="none" does not look at it.

    Raises:
        Reject: the image cannot be used; the module's docstring lists the codes.
        ValueError: `verify` is none of `VERIFY_LEVELS`.

    Thread safe; the decoders release the interpreter lock.

        >>> check_image(b"")
        Traceback (most recent call last):
        tfrecorder.images.Reject: empty: the file has no bytes
    """
    if verify not in VERIFY_LEVELS:
        raise ValueError(f"verify is {verify!r}; it must be one of {', '.join(VERIFY_LEVELS)}")
    kind = _sniff(data)
    if kind in ("jpeg", "png"):
        header, warning = _check_kept(data, kind, verify, max_pixels)
    else:
        data, header, warning = _reencode(data, kind, max_pixels)
        kind = "png"
    if warning and verify == "strict":
        raise Reject("check", "suspect", warning)
    return CheckedImage(data, kind, *header, warning)


def _check_kept(data: bytes, kind: str, verify: str, max_pixels: int) -> tuple[Header, str | None]:
    """The header and the decoder's complaint of a JPEG or PNG, whose bytes stay as they are."""
    from tfrecorder import jpeg, png  # here, because both import this module

    module = jpeg if kind == "jpeg" else png
    if verify == "header":
        return module.read_header(data, max_pixels), None
    if verify == "none":
        try:
            return module.read_header(data, None), None
        except Reject:
            return Header(0, 0, 0, False), None
    return module.check(data, max_pixels)


def check_size(height: int, width: int, samples: int, max_pixels: int | None) -> None:
    """Rejects what is too large; `samples` is the number of stored samples a pixel.

    None for `max_pixels` switches the check off.
    """
    if max_pixels is None:
        return
    if height * width > max_pixels:
        detail = f"{width} x {height} pixels are more than max_pixels={max_pixels}"
        raise Reject("check", "too_large", detail)
    if max(height, width) > _LARGEST_SIDE:
        detail = f"{width} x {height}: TensorFlow reads at most {_LARGEST_SIDE} pixels a side"
        raise Reject("check", "too_large", detail)
    if height * width * samples >= _TENSORFLOW_LIMIT:
        detail = f"{width} x {height} pixels of {samples} samples are more than TensorFlow decodes"
        raise Reject("check", "too_large", detail)


def exif_orientation(exif: bytes) -> int:
    """The orientation (1 to 8) in an EXIF block, a TIFF without pixels; 1 if absent or junk.

    Source: Exif 2.3, section 4.6.4, tag 0x0112 of the first directory.
    """
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None:
        return 1
    try:
        start = struct.unpack_from(order + "I", exif, 4)[0]
        count = struct.unpack_from(order + "H", exif, start)[0]
        for i in range(count):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", exif, start + 2 + 12 * i)
            if tag == 0x0112:
                return value if kind == 3 and 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


# ---------------------------------------------------------------------------------------------
# Which format it is.

_PLUGINS = {
    "bmp": BmpImagePlugin.BmpImageFile,
    "gif": GifImagePlugin.GifImageFile,
    "webp": WebPImagePlugin.WebPImageFile,
    "tiff": TiffImagePlugin.TiffImageFile,
    "ppm": PpmImagePlugin.PpmImageFile,
    "avif": AvifImagePlugin.AvifImageFile,
}

# The first bytes (at most 16) of what we read, and of what people have by mistake.  Formats that
# Pillow reads by running another program (EPS) or without a signature of its own (TGA) stay out.
_MAGIC = {
    "jpeg": rb"\xff\xd8\xff",
    "png": rb"\x89PNG\r\n\x1a\n",
    "bmp": rb"BM",
    "gif": rb"GIF8[79]a",
    "webp": rb"RIFF....WEBP",
    "tiff": rb"II\*\0|MM\0\*|II\+\0|MM\0\+",
    "ppm": rb"P[1-6][\s#]",
    "avif": rb"....ftypavi[fs]",
    "a HEIC image": rb"....ftyp(?:hei|hev|mif1|msf1)",
    "a JPEG 2000 image": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    "a JPEG XL image": rb"\0\0\0\x0cJXL |\xff\x0a",
    "an icon": rb"\0\0[\1\2]\0",
    "PostScript": rb"%!PS|\xc5\xd0\xd3\xc6",
    "a PDF": rb"%PDF",
    "HTML, XML or SVG": rb"(?:\xef\xbb\xbf)?\s*<",
    "JSON": rb"\s*[{\[]",
    "a zip file": rb"PK\3\4",
    "a gzip file": rb"\x1f\x8b",
    "a Photoshop file": rb"8BPS",
}
_SNIFF = re.compile(b"|".join(b"(%s)" % magic for magic in _MAGIC.values()), re.DOTALL)
_KINDS = tuple(_MAGIC)
_READ = frozenset(("jpeg", "png", *_PLUGINS))


def _sniff(data: bytes) -> str:
    """The format by its first bytes: a key of `_PLUGINS`, "jpeg" or "png"."""
    if data[:3] == b"\xff\xd8\xff":  # nearly always
        return "jpeg"
    if not data:
        raise Reject("check", "empty", "the file has no bytes")
    match = _SNIFF.match(data)
    kind = _KINDS[match.lastindex - 1] if match and match.lastindex else None
    if kind in _READ:
        return kind
    if kind:
        raise Reject("check", "not_an_image", f"the file is {kind}, which is not supported")
    detail = f"no known image format begins with the bytes {data[:8].hex(' ')}"
    raise Reject("check", "not_an_image", detail)


# ---------------------------------------------------------------------------------------------
# Everything else becomes PNG.

# Pillow's modes: those that PNG holds as they are, and what the others become.
_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I;16"))
# Big-endian pixels go by way of "I": Pillow's direct conversion to "I;16" clips them to 255.
_CONVERSIONS = {"PA": "RGBA", "RGBa": "RGBA", "La": "LA", "I;16B": "I", "I;16L": "I"}
# On photographs the highest level saves 1 % more than the lowest, and takes twice the time.
_COMPRESS_LEVEL = 1

# `warnings.catch_warnings` is not thread safe: two threads that leave it in the wrong order would
# keep the filter for good.
_quiet_lock = threading.Lock()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps Pillow's warnings (odd TIFF tags, bombs) from the user, one thread at a time."""
    with _quiet_lock, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def _reencode(data: bytes, kind: str, max_pixels: int) -> tuple[bytes, Header, str | None]:
    """The image as PNG, its header, and a complaint if something was lost."""
    from tfrecorder import png

    try:
        image, oriented, warning = _decode(data, kind, max_pixels)
    except (Reject, KeyboardInterrupt):
        raise
    except Image.DecompressionBombError as error:
        raise Reject("check", "too_large", _words(error)) from None
    except MemoryError:
        raise Reject("check", "too_large", f"not enough memory to decode the {kind}") from None
    except Exception as error:  # hostile bytes may raise anything
        words = _words(error)
        code = "truncated" if re.search("truncat|not enough|incomplete", words) else "damaged"
        raise Reject("check", code, f"Pillow cannot decode the {kind}: {words}") from None
    image = _for_png(image)
    options = {"compress_level": _COMPRESS_LEVEL}
    if image.mode == "P" and _beyond_palette(image):
        options["bits"] = 8  # fewer would cut the upper bits off
    out = io.BytesIO()
    image.save(out, "PNG", **options)
    encoded = out.getvalue()
    header = png.read_header(encoded, None)
    return encoded, header._replace(oriented=oriented), warning


def _decode(data: bytes, kind: str, max_pixels: int) -> tuple[Image.Image, bool, str | None]:
    """The decoded first frame, whether it is oriented, and a complaint.

    The plugin is called by name, not through `Image.open`, which would try other formats and
    check the size against the user's global limit.
    """
    with _quiet():
        image = _PLUGINS[kind](io.BytesIO(data))
        check_size(image.height, image.width, len(image.getbands()), max_pixels)
        orientation = _orientation(image)
        warning = _reduced(image)
        if kind == "tiff":  # its tags are still being read, with warnings, while it loads
            _load(image, data)
    if kind != "tiff":
        _load(image, data)
    return image, orientation != 1, warning


def _load(image: ImageFile.ImageFile, data: bytes) -> None:
    """Decodes the pixels, and raises for damage even if the process wants it passed over."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        # With this flag `load` is silent about damage to raw and GIF data (other decoders raise
        # all the same; WebP's and AVIF's tile is the decoded image); `frombytes` knows no flag.
        for decoder, extents, offset, args in image.tile:
            if decoder in ("raw", "gif") and extents and image.format not in ("WEBP", "AVIF"):
                size = (extents[2] - extents[0], extents[3] - extents[1])
                mode = image.mode if decoder == "raw" else "L"
                Image.frombytes(mode, size, data[offset:], decoder, args)
    image.load()


def _orientation(image: ImageFile.ImageFile) -> int:
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        value = image.tag_v2.get(0x0112, 1)
        return value if value in range(1, 9) else 1
    return exif_orientation(image.info.get("exif", b"").removeprefix(b"Exif\0\0"))


def _reduced(image: ImageFile.ImageFile) -> str | None:
    """A complaint if Pillow keeps only the upper 8 bits of wider samples."""
    bits = 8
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = max(image.tag_v2.get(258, (1,)))
    elif isinstance(image, PpmImagePlugin.PpmImageFile):
        arguments = image.tile[0].args  # the raw mode, and the largest value where it is not 255
        if isinstance(arguments, tuple):
            bits = max(a.bit_length() for a in (0, *arguments) if isinstance(a, int))
    if bits > 8 and not image.mode.startswith(("I", "F")):
        return "the samples are wider than 8 bits; only the upper 8 were kept"
    return None


def _for_png(image: Image.Image) -> Image.Image:
    """The image in a mode that PNG holds, with no metadata but a palette's transparency."""
    if image.mode not in _PNG_MODES and image.mode not in ("I", "F"):
        image = image.convert(_CONVERSIONS.get(image.mode, "RGB"))
    if image.mode == "F" or (image.mode == "I" and not _fits_16_bits(image)):
        name = {"F": "floating point", "I": "wide integer"}[image.mode]
        raise Reject("convert", "unsupported_pixels", f"PNG cannot hold {name} pixels")
    if image.mode == "I":
        image = image.convert("I;16")
    info: dict[str | tuple[int, int], Any] = {}
    if image.mode == "P" and "transparency" in image.info:
        info["transparency"] = image.info["transparency"]
    image.info = info
    return image


def _fits_16_bits(image: Image.Image) -> bool:
    low, high = cast("tuple[int, int]", image.getextrema())
    return low >= 0 and high <= 65535


def _beyond_palette(image: Image.Image) -> bool:
    """Whether a pixel's index has no colour in the palette."""
    _, high = cast("tuple[int, int]", image.getextrema())
    return image.palette is None or high >= len(image.palette.palette) // 3


def _words(error: BaseException) -> str:
    """An error's first line, without the addresses that differ from run to run."""
    text = str(error) or type(error).__name__
    return re.sub(r"<[^>]* at 0x[0-9a-f]+>", "the file", text.splitlines()[0])[:200]

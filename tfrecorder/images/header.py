"""What an image says before it is decoded: format, size, cost; and why it may be rejected.

The format is told by the first bytes, the size by a header.

A `Reject` is an image that gets no record.  At the stage "read", the codes are those of
`storage.UnreadableError`.  The others belong to the stage "check", or to "convert" if unsupported
pixels are found while an image is written as PNG:

    empty               no bytes
    invalid             the schema's `validator` raised an exception
    not_an_image        not a known image format (an HTML error page, JSON, ...)
    unsupported         a sound image of a kind that TensorFlow or PNG cannot hold: SVG, raw
                        photographs, lossless or 12-bit JPEG, floating-point TIFF, ...
    truncated           the file ends too early
    damaged             the file contradicts itself, or the decoder gives up
    too_large           more than `max_pixels` or `max_bytes`, or more than TensorFlow decodes
    too_expensive       it would take far longer to decode than others of its size
    depth               an image of 8 bits where the schema declares 16
    suspect             check="strict" only: it decodes, but a decoder complains
    stated_size         a source states a size of other proportions than the image's
    mask_size           a mask whose size differs from its image's
    mask_format         a mask that is a JPEG, whose pixels are not exact classes
    mask_channels       a mask with more than one 8-bit number per pixel
    box_outside         a box in pixels that reaches beyond its image

The cost: CPU time grows no faster than an image's pixels and its bytes.  The promise is that an
accepted image takes at most 1 s, plus 0.1 s per megapixel, plus 0.1 s per megabyte of its file.
Seconds differ between machines and cannot be known beforehand.  So for each format we count, before
calling the decoder, what it would do often, and reject an image that is over a bound.  The bounds
are several times what encoders make, and a third or less of what the promise allows on two cores of
2024.  JPEG, PNG and TIFF are counted where they are read; the small formats are counted here.
"""

from __future__ import annotations

import functools
import itertools
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfrecorder import storage
from tfrecorder.display.tables import counted

CHECKS = ("decode", "strict", "header")
RESIZES = ("stretch", "crop", "pad", "fit")
FORMATS = ("keep", "jpeg", "png", "raw")

#: Pillow's own warning level.  That is 85 MiB in grey and 256 MiB in RGB; TensorFlow's decoders
#: stop at 2**29 bytes.
DEFAULT_MAX_PIXELS = 89_478_485

# TensorFlow refuses a JPEG of this many decoded bytes, and a PNG of this many pixels.
_TENSORFLOW_LIMIT = 2**29
_LARGEST_SIDE = 1_000_000  # of a PNG, a limit of libpng; a JPEG's is 65,535


class Header(NamedTuple):
    """What an image says about itself.

    Attributes:
        channels: as TensorFlow counts them.
        orientation: of EXIF.
        reduced: what training will not see of it, as keys of `header.REDUCED`.
    """

    height: int
    width: int
    channels: int
    orientation: int
    reduced: tuple[str, ...] = ()


class Reject(Exception):
    """An image that gets no record.

    Attributes:
        stage: "read", "check" or "convert".
        code: a short reason in snake_case; those of this module are in its docstring.
        detail: the same in words; equal bytes give equal words, without paths, addresses or times.
    """

    def __init__(
        self,
        stage: str,
        code: str,
        detail: str,
    ) -> None:
        super().__init__(stage, code, detail)  # all three, so that it survives pickling
        self.stage = stage
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


def check_size(
    height: int,
    width: int,
    samples: int,
    max_pixels: int | None,
) -> None:
    """Rejects an image that is too large; `samples` is how many are stored per pixel.

    None for `max_pixels` switches the check off.
    """
    if max_pixels is None:
        return
    if height * width > max_pixels:
        raise Reject(
            "check",
            "too_large",
            f"{width} x {height} pixels are more than max_pixels={max_pixels}",
        )
    if max(height, width) > _LARGEST_SIDE:
        raise Reject(
            "check",
            "too_large",
            f"{width} x {height}: TensorFlow reads at most {_LARGEST_SIDE} pixels a side",
        )
    if height * width * samples >= _TENSORFLOW_LIMIT:
        raise Reject(
            "check",
            "too_large",
            f"{width} x {height} pixels of {samples} samples are more than TensorFlow decodes",
        )


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


def unsupported(what: str) -> Reject:
    """The Reject of a valid file whose type is not supported; `what` is e.g. "a PDF"."""
    return Reject("check", "unsupported", f"the file is {what}, which is not supported")


def words_of(error: BaseException) -> str:
    """An error's first line without the addresses that differ from run to run.

    Quotations are cut off: they are bytes of the file, which may be any file on the machine.
    """
    text = re.sub(r"<[^>]* at 0x[0-9a-f]+>", "the file", (str(error).splitlines() or [""])[0])
    unquoted = re.split(r"""\bb?['"]|['"]""", text)[0].rstrip(" :(,")
    return unquoted[:200] or type(error).__name__


# The first bytes of images that we read, of images that we do not, and of what people list by
# mistake.  Left out: formats that Pillow reads by running another program (EPS).
_IMAGES = {
    "jpeg": rb"\xff\xd8\xff",
    "png": rb"\x89PNG\r\n\x1a\n",
    # With the size of one of its headers, because a text may begin with BM.
    "bmp": rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0",
    "gif": rb"GIF8[79]a",
    "webp": rb"RIFF....WEBP",
    "tiff": rb"II\*\0(?!....CR)|MM\0\*|II\+\0|MM\0\+",
    "ppm": rb"P[1-6][\s#]",
    "avif": rb"....ftypavi[fs]",
    "heic": rb"....ftyp(?:hei|hev|mif1|msf1)",
    "ico": rb"\0\0[\1]\0[^\0]\0",
    # Without a signature: no palette or one, the kind, and the bits of a pixel.
    "tga": rb".(?:\0[\2\3\x0a\x0b]\0{5}.{8}[\x08\x10\x18\x20]"
    rb"|\x01[\x01\x09]....[\x0f\x10\x18\x20].{8}\x08)[\0-\x3f]",
}
_UNSUPPORTED = {
    "a camera's raw photograph (CR3)": rb"....ftypcrx ",
    "a camera's raw photograph": rb"FUJIFILMCCD-RAW|IIU\0|IIR[OS]|MMOR|II\*\0....CR",
    "a JPEG 2000 image": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    "a JPEG XL image": rb"\0\0\0\x0cJXL |\xff\x0a",
    "a JPEG XR image": rb"II\xbc\x01",
    "a Radiance HDR image": rb"#\?(?:RADIANCE|RGBE)\n",
    "an OpenEXR image": rb"\x76\x2f\x31\x01",
    "a PFM image of floating-point samples": rb"P[Ff]\n",
    "a PAM image": rb"P7\n",
    "an MNG animation": rb"\x8a[MJ]NG\r\n\x1a\n",
    "a DDS texture": rb"DDS \x7c",
    "a QOI image": rb"qoif",
    "a FITS image": rb"SIMPLE  =",
    "a cursor": rb"\0\0[\2]\0",
    "a Photoshop file": rb"8BPS",
    "a GIMP file": rb"gimp xcf",
    "PostScript": rb"%!PS|\xc5\xd0\xd3\xc6",
    "a PDF": rb"%PDF",
    "an SVG drawing": rb"(?:\xef\xbb\xbf)?\s*<(?=.{,1000}<svg|svg)",
}
_NO_IMAGES = {
    "HTML or XML": rb"(?:\xef\xbb\xbf)?\s*<",
    "JSON": rb"\s*[{\[]",
    storage.LFS_WORDS: storage.LFS_POINTER,
    "a zip file": rb"PK\x03\x04",
    "a gzip file": rb"\x1f\x8b",
}
_MAGIC = _IMAGES | _UNSUPPORTED | _NO_IMAGES
_SNIFF = re.compile(b"|".join(b"(%s)" % magic for magic in _MAGIC.values()), re.DOTALL)
_MAGIC_KINDS = tuple(_MAGIC)


def sniff(data: bytes) -> str:
    """The format of a file: "jpeg", "png", "bmp", "gif", "webp", "tiff", "ppm", "avif",
    "heic", "ico" or "tga".

    Raises:
        Reject: no bytes, not an image, or an image in a format that is not read here.
    """
    if not data:
        raise Reject("check", "empty", "the file has no bytes")
    match = _SNIFF.match(data)
    kind = _MAGIC_KINDS[match.lastindex - 1] if match and match.lastindex else None
    if kind in _IMAGES:
        return kind
    if kind in _UNSUPPORTED:
        raise unsupported(kind)
    # Never show the bytes themselves: a table could name any file on the machine.
    detail = f"the file is {kind}" if kind else "it begins like no image format that is known"
    raise Reject("check", "not_an_image", detail)


#: The endings of files that are called otherwise than their format.
_ENDINGS = {"jpeg": ".jpg", "tiff": ".tif"}

#: How many bytes of a file are read to see its format.
_SNIFFED_BYTES = 4096


def ending_of(data: bytes) -> str:
    """The usual ending of the name of an image file; "" if its format is not read.

    >>> ending_of(b"GIF89a"), ending_of(b"")
    ('.gif', '')
    """
    try:
        kind = sniff(data[:_SNIFFED_BYTES])
    except Reject:
        return ""
    return _ENDINGS.get(kind, f".{kind}")


#: The most bytes of a PPM's header.  Pillow reads each in Python: 0.3 s for these, 10 s for 50 MB.
_NETPBM_HEADER = 1 << 20

#: The most blocks of data before a GIF's first picture, and the most comment blocks among them.
#: Pillow reads each in Python, and copies the whole comment again for each of its blocks.
_GIF_BLOCKS = 50_000
_GIF_COMMENT_BLOCKS = 4_000

_NETPBM_COMMENT = re.compile(rb"#[^\r\n]*(?:[\r\n]|\Z)")
# What comes next in a GIF: an extension with its label, a picture, or the end.
_GIF_NEXT = re.compile(rb"!.|[,;]", re.DOTALL)
_GIF_COMMENT = b"!\xfe"
_GIF_PICTURE = b","
_GIF_END = b";"


def too_expensive(detail: str) -> Reject:
    """The reject for an image that takes too long to decode; `detail` has the numbers."""
    return Reject("check", "too_expensive", detail)


def check_netpbm(data: bytes) -> None:
    """Rejects a PPM, PGM or PBM whose header is longer than any program writes."""
    fields = 3 if data[1:2] in b"14" else 4  # with the magic number
    for size in (512, _NETPBM_HEADER):
        words = _NETPBM_COMMENT.sub(b"", data[:size]).split(None, fields)
        if len(words) > fields or size >= len(data):
            return
    raise too_expensive(f"comments make the header longer than {_NETPBM_HEADER:,} bytes")


def check_gif(data: bytes) -> None:
    """Rejects a GIF with too many blocks of comments and other extensions before its picture."""
    blocks = comments = 0
    inside = b""
    for begins, size in _gif_blocks(data):
        inside = begins or inside
        blocks += size
        comments += inside == _GIF_COMMENT and not begins
        if comments > _GIF_COMMENT_BLOCKS:
            raise too_expensive(f"the GIF has more than {_GIF_COMMENT_BLOCKS:,} blocks of comments")
        if blocks > _GIF_BLOCKS:
            raise too_expensive(
                f"more than {_GIF_BLOCKS:,} blocks come before the GIF's first picture"
            )
        if begins in (_GIF_PICTURE, _GIF_END):
            return


def gif_is_animated(data: bytes) -> bool:
    """Whether a second picture follows the first of a GIF, whose beginning is sound."""
    pictures = (begins for begins, _ in _gif_blocks(data) if begins == _GIF_PICTURE)
    return len(list(itertools.islice(pictures, 2))) > 1


def _gif_blocks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The blocks of a GIF: what begins with one, b"" for data; and how many Pillow counts for it.

    Bytes between blocks it skips one by one.
    """
    at = 13 + _gif_colours(data, 10)
    while match := _GIF_NEXT.search(data, at):
        yield match[0], match.start() - at
        at = match.end()
        if match[0] == _GIF_END:
            return
        if match[0] == _GIF_PICTURE:
            at += 10 + _gif_colours(data, at + 8)
        while at < len(data) and data[at]:
            at += 1 + data[at]
            yield b"", 1
        at += 1
    yield _GIF_END, max(len(data) - at, 0)


def _gif_colours(data: bytes, at: int) -> int:
    """The bytes of the table of colours that the flags at a place announce."""
    flags = data[at] if at < len(data) else 0
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


#: By word: what such images are, what becomes of them, and the remedy.
REDUCED = {
    "turned": "with an EXIF orientation, whose boxes and masks are taken to be of the pixels as "
    "they are stored; `upright=True` or `False` of `Boxes` or `Mask` in a schema says what they "
    "are of",
    "scaled": "whose stated size is another of the same proportions, which boxes and masks of "
    "objects are taken to be of",
    "depth": "of more than 8 bits a channel, read as 8: `Image(depth=16)` in the schema keeps all "
    "of a PNG or TIFF, and rejects images of 8 bits",
    "dim": "whose values of 16 bits are all below 256, so that they read as black: with "
    "`Image(depth=16)`, `value_range=(0, 257)` gives 0 to 1 for 0 to 255",
    "frames": "of several frames or pages, of which the first is stored: to keep more, give each "
    "as a file",
    "alpha": "with transparency, which is not read, as other images have none: flatten them first, "
    "or give all images four channels",
    "bands": "with further bands beside their colours, which are not stored: give each as an image "
    "of its own",
    "appended": "with data behind the picture, such as a phone's video, which the records keep: "
    "strip the metadata to cut them off",
    "mask": "given as masks of colours, whose channels are equal: one of them is stored",
    "cmyk": "in CMYK, turned into RGB without its profile: convert them to sRGB first",
    "profile": "with a colour profile other than sRGB, which training does not apply: convert "
    "them to sRGB first",
}

#: The primaries of sRGB in a profile: X, Y and Z of red, green and blue under the light D50.
_SRGB = {
    b"rXYZ": (0.436, 0.222, 0.014),
    b"gXYZ": (0.385, 0.717, 0.097),
    b"bXYZ": (0.143, 0.061, 0.714),
}
_SRGB_ROUNDING = 0.004


def reduced_of(counts: Mapping[str, int], shapes: Iterable[Sequence[int | None]]) -> dict[str, int]:
    """The counts of a dataset, without transparency if it is read, as all images have it.

    Args:
        shapes: (height, width, channels) of the images of each column.
    """
    is_read = all(channels == 4 for *_, channels in shapes)
    return {word: count for word, count in counts.items() if not (is_read and word == "alpha")}


def reduced_in_words(counts: Mapping[str, int]) -> dict[str, str]:
    """A sentence on each kind of image of which something is not seen, by its word.

    >>> reduced_in_words({"cmyk": 2})
    {'cmyk': '2 images in CMYK, turned into RGB without its profile: convert them to sRGB first'}
    """
    return {
        word: f"{counted(counts[word], 'image')} {words}"
        for word, words in REDUCED.items()
        if counts.get(word)
    }


@functools.lru_cache(maxsize=64)
def is_srgb(profile: bytes) -> bool:
    """Whether the colours of an ICC profile, or of its beginning, are those of sRGB.

    Source: ICC.1:2022, 7.3 (the table of tags) and 10.31 (XYZ).
    """
    try:
        (count,) = struct.unpack_from(">I", profile, 128)
        tags = (struct.unpack_from(">4sII", profile, 132 + 12 * at) for at in range(min(count, 99)))
        places = {name: place for name, place, _ in tags}
        for name, primary in _SRGB.items():
            stored = struct.unpack_from(">3i", profile, places[name] + 8)
            pairs = zip(stored, primary, strict=True)
            if any(abs(value / 65536 - wanted) > _SRGB_ROUNDING for value, wanted in pairs):
                return False
    except (struct.error, KeyError):
        return False
    return True

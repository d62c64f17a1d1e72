"""Formats other than JPEG and PNG become PNG: Pillow decodes and rewrites them without loss.

So does a picture of Pillow that has no file any more.  Of an icon (ICO), the largest picture alone
is decoded.  An icon is a list of places, then the pictures: PNG files, or bitmaps of twice the
height, whose second half is a mask.  Source: Microsoft, "Icons in Win32", 1995.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeGuard, cast

import numpy as np
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    IcoImagePlugin,
    Image,
    ImageFile,
    PpmImagePlugin,
    TgaImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from tfrecorder.core.threads import Room, is_address_space_limited, unlimited
from tfrecorder.errors import install
from tfrecorder.images import header, png, tiff_tags
from tfrecorder.images.header import (
    Header,
    Reject,
    check_size,
    exif_orientation,
    is_srgb,
    unsupported,
    words_of,
)
from tfrecorder.images.png import SIGNATURE

_PLUGINS = {
    "bmp": BmpImagePlugin.BmpImageFile,
    "gif": GifImagePlugin.GifImageFile,
    "webp": WebPImagePlugin.WebPImageFile,
    "tiff": TiffImagePlugin.TiffImageFile,
    "ppm": PpmImagePlugin.PpmImageFile,
    "avif": AvifImagePlugin.AvifImageFile,
    "ico": IcoImagePlugin.IcoImageFile,
    "tga": TgaImagePlugin.TgaImageFile,
}

#: Checks made before Pillow is called.
_CHECKS: dict[str, Callable[[bytes], None]] = {
    "gif": header.check_gif,
    "ppm": header.check_netpbm,
    "tiff": tiff_tags.check_tiff,
}

#: What Pillow decodes in Python, value by value, by its name for the decoder: 1.3 to 2.2 us each.
_IN_PYTHON = {
    "ppm_plain": "a PBM, PGM or PPM as text",
    "ppm": "a PGM or PPM of other than 8 bits, or 16 in grey",
    "bmp_rle": "a BMP with run lengths",
}

#: What is silent about damage if Pillow is told to load truncated images; other decoders raise.
_SILENT = ("raw", "gif", "tga_rle")

#: Pillow's words for a kind of file that it does not decode.
_NOT_DECODED = re.compile(
    "Unsupported|unknown (pixel mode|data organization)|samples per pixel"
    "|not installed|codec available|mplemented"
)
#: What is said of a TIFF of such a kind.
_TIFF_TAGS = {
    "SamplesPerPixel": tiff_tags.SAMPLES,
    "BitsPerSample": tiff_tags.BITS,
    "SampleFormat": tiff_tags.SAMPLE_FORMAT,
    "PhotometricInterpretation": tiff_tags.PHOTOMETRIC,
}

#: How Pillow turns pixels upright, by the EXIF orientation.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
#: How they are turned back, as Pillow has turned a TIFF, and no other format.
TURNS_BACK = TURNS | {6: TURNS[8], 8: TURNS[6]}

# Pillow's modes: those that PNG holds as they are, and what the others become.
_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I;16"))
# Big-endian pixels go through "I": Pillow's direct conversion to "I;16" clips them to 255.
_CONVERSIONS = {"PA": "RGBA", "RGBa": "RGBA", "La": "LA", "I;16B": "I", "I;16L": "I"}
# On photographs the highest level saves 1 % more than the lowest, and takes twice the time.
_COMPRESS_LEVEL = 1

# `warnings.catch_warnings` is not thread safe: two threads that leave it in the wrong order would
# leave the filter in place for good.
_quiet_lock = threading.Lock()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides Pillow's warnings (odd TIFF tags, bombs) from the user, one thread at a time."""
    with _quiet_lock, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


#: The box of an AVIF that says how it is coded, with more than 8 bits: `high_bitdepth` is set
#: (AV1 Codec ISO Media File Format Binding, 2.3.3).
_AVIF_DEEP = re.compile(rb"av1C\x81.[\x40-\x7f\xc0-\xff]", re.DOTALL)

#: Bytes per pixel while an image is decoded, turned and rewritten: three copies of RGBA, at most;
#: with all 16 bits of a channel, four more of twice the size.
_PIXEL_BYTES = {8: 12, 16: 44}

#: The names by which Pillow's decoders of TIFF take the lower bytes of colours of 16 bits, by those
#: for the upper ones; "N" is this machine's order.
_LOWER_BYTES = {
    f"{mode};16{upper}": f"{mode};16{lower}"
    for mode in ("RGB", "RGBX", "RGBA")
    for upper, lower in ("LB", "BL", "NB" if sys.byteorder == "little" else "NL")
}


def reencode(
    data: bytes,
    kind: str,
    max_pixels: int,
    room: Room = unlimited,
    depth: int = 8,
) -> tuple[bytes, Header, Image.Image]:
    """The image as PNG, its header, and its picture as a reader of the PNG has it.

    Args:
        depth: with 16, all bits of such colours are kept.

    Raises:
        Reject: it is damaged, unsupported, too large or too expensive, or of its 16 bits Pillow
            reads only the upper 8.
        MemoryError: a limit of the process leaves too little memory for its pixels.
    """
    if kind in _CHECKS:
        _CHECKS[kind](data)
    with contextlib.ExitStack() as held:
        taken = []

        def take_room(pixels: int) -> None:
            held.enter_context(room(pixels * _PIXEL_BYTES[depth]))
            taken.append(pixels)

        try:
            return _reencode(data, kind, max_pixels, take_room, depth)
        except MemoryError:
            if taken and is_address_space_limited():  # the limit is at fault, not the image
                raise
            raise Reject("check", "too_large", f"not enough memory to decode the {kind}") from None


def _reencode(
    data: bytes,
    kind: str,
    max_pixels: int,
    take_room: Callable[[int], None],
    depth: int,
) -> tuple[bytes, Header, Image.Image]:
    lower = None
    try:
        image, orientation, unseen = _decode(data, kind, max_pixels, take_room)
        if depth == 16 and "depth" in unseen:
            lower = _lower_bytes(data, kind, orientation)
    except (Reject, MemoryError, KeyboardInterrupt):
        raise
    except Image.DecompressionBombError:
        raise Reject("check", "too_large", f"Pillow decodes no {kind} of so many pixels") from None
    except Exception as error:  # hostile bytes may raise anything
        raise _as_reject(error, kind, data) from None
    if image.mode.startswith("I") and 0 < np.asarray(image).max() < 256:
        unseen.append("dim")
    image = _held_by_png(image)
    if lower is None:
        encoded = _png_of(image)
    else:
        encoded = png.encode_deep(np.asarray(image).astype(np.uint16) << 8 | lower)
    header = png.read_header(encoded, None)
    reduced = tuple(dict.fromkeys((*header.reduced, *unseen)))
    return encoded, header._replace(orientation=orientation, reduced=reduced), image


def as_png(image: Image.Image) -> bytes:
    """The pixels of a picture as a PNG, without loss; its `info` may be changed.

    Raises:
        Reject: PNG cannot hold them.
    """
    return _png_of(_held_by_png(image))


def _held_by_png(image: Image.Image) -> Image.Image:
    """A picture in a mode that PNG has."""
    if image.mode not in _PNG_MODES and image.mode not in ("I", "F"):
        image = image.convert(_CONVERSIONS.get(image.mode, "RGB"))
    if image.mode == "F" or (image.mode == "I" and not _fits_16_bits(image)):
        name = {"F": "floating point", "I": "wide integer"}[image.mode]
        raise Reject("convert", "unsupported", f"PNG cannot hold {name} pixels")
    if image.mode == "I":
        image = image.convert("I;16")
    return image


def _png_of(image: Image.Image) -> bytes:
    info: dict[str | tuple[int, int], Any] = {}
    if image.mode == "P" and "transparency" in image.info:
        info["transparency"] = image.info["transparency"]
    image.info = info
    options = {"compress_level": _COMPRESS_LEVEL}
    if image.mode == "P" and _beyond_palette(image):
        options["bits"] = 8  # fewer would cut the upper bits off
    return encoded(image, "PNG", **options)


def encoded(
    picture: Image.Image,
    form: str,
    **options: Any,
) -> bytes:
    """A picture as a file of a format that Pillow writes."""
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def _decode(
    data: bytes,
    kind: str,
    max_pixels: int,
    take_room: Callable[[int], None],
) -> tuple[Image.Image, int, list[str]]:
    """The decoded first frame, its orientation, and what it does not hold.

    The plugin is called by name, not through `Image.open`, which would try other formats and
    check the size against the user's global limit.
    """
    tags = tiff_tags.Tags(data) if kind == "tiff" else None
    if tags is not None:
        data = tiff_tags.mended(data, tags)
    with _quiet():
        image = _plugin(kind)(io.BytesIO(data))
        check_size(image.height, image.width, len(image.getbands()), max_pixels)
        if image.tile and (what := _IN_PYTHON.get(image.tile[0].codec_name)):
            raise unsupported(what)
        take_room(image.height * image.width)
        orientation = _orientation(image)
        unseen = list(_unseen(image, kind, data))
        if tags is not None:  # they are still being read, with warnings, while it loads
            if tags.is_preview(has_more="frames" in unseen):
                raise unsupported("a TIFF that begins with a preview, as cameras' raw photos do")
            stored = image.size[::-1] if orientation >= 5 else image.size
            image.im = Image.new(image.mode, stored, None).im  # else Pillow's limit holds, not ours
            _load(image, data)
    if tags is None:
        _load(image, data)
        return image, orientation, unseen
    turned = _turned_back(image, orientation)
    if tags.number(tiff_tags.BITS) == 12:  # which Pillow gives as they are
        values = np.asarray(turned)
        turned = Image.fromarray(values << 4 | values >> 8)
    if tags.is_inverted:
        turned = Image.fromarray(~np.asarray(turned))
    return turned, orientation, unseen


def first_frame(data: bytes, kind: str) -> Image.Image:
    """The decoded first frame of an image of another tool, which reader threads may call.

    Raises:
        Reject: TensorFlow would not decode so many pixels.
        Exception: of whatever kind its decoder raises.
    """
    image = _plugin(kind)(io.BytesIO(data))
    check_size(image.height, image.width, len(image.getbands()), sys.maxsize)
    _load(image, data)
    return image


def header_of(file: IO[bytes]) -> Header:
    """What the first bytes of an image file say, of whatever format.

    Raises:
        OSError, ValueError, Image.DecompressionBombError: they are not read.
    """
    with Image.open(file) as image:
        orientation = _orientation(image)
        is_turned = orientation >= 5 and isinstance(image, TiffImagePlugin.TiffImageFile)
        height, width = image.size if is_turned else image.size[::-1]
        return Header(height, width, len(image.getbands()), orientation)


def _turned_back(image: Image.Image, orientation: int) -> Image.Image:
    """The pixels as a TIFF stores them."""
    return image.transpose(TURNS_BACK[orientation]) if orientation in TURNS_BACK else image


def _lower_bytes(
    data: bytes,
    kind: str,
    orientation: int,
) -> np.ndarray:
    """The lower bytes of a TIFF's colours, of which `_decode` gives the upper ones.

    Raises:
        Reject: Pillow gives no lower ones: of other formats, and in planes, it chooses itself.
    """
    with _quiet():
        image = _plugin(kind)(io.BytesIO(data))
        tiles: list[Any] = image.tile
        lower = kind == "tiff" and _LOWER_BYTES.get(tiles[0].args[0])
        if not lower or tiff_tags.Tags(data).number(tiff_tags.PLANAR, 1) != 1:
            raise Reject(
                "check",
                "unsupported",
                f"Pillow reads only the upper 8 bits of such a {kind}; save it as a PNG of 16 bits",
            )
        image.tile = [tile._replace(args=(lower, *tile.args[1:])) for tile in tiles]
        _load(image, data)
    return np.asarray(_turned_back(image, orientation))


def _plugin(kind: str) -> Callable[[io.BytesIO], ImageFile.ImageFile]:
    """What opens a format; for HEIC, it is of another package than Pillow.

    Raises:
        Reject: that package is not installed.
    """
    if kind != "heic":
        return _PLUGINS[kind]
    try:
        from pillow_heif import HeifImageFile
    except ImportError:
        raise Reject(
            "check",
            "unsupported",
            f"a HEIF image (HEIC) is read only with another package: `{install('heif')}`",
        ) from None
    return HeifImageFile


def _load(image: ImageFile.ImageFile, data: bytes) -> None:
    """Decodes the pixels, and raises for damage even if the process has Pillow ignore it."""
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        if image.format == "HEIF":
            from pillow_heif import open_heif

            _ = open_heif(io.BytesIO(data)).data  # raises, where `load` is silent
        # WebP's and AVIF's tile is the decoded image.  `frombytes` ignores the flag.
        for decoder, extents, offset, args in image.tile:
            if decoder in _SILENT and extents and image.format not in ("WEBP", "AVIF"):
                size = (extents[2] - extents[0], extents[3] - extents[1])
                mode = "L" if decoder == "gif" else image.mode
                Image.frombytes(mode, size, data[offset:], decoder, args)
    image.load()


def _orientation(image: ImageFile.ImageFile) -> int:
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        value = image.getexif().get(0x0112, 1)  # where Pillow itself looks when it turns a TIFF
        return value if value in range(1, 9) else 1
    exif = image.info.get("exif") or b""  # None in HEIC without any
    return exif_orientation(exif.removeprefix(b"Exif\0\0"))


def _unseen(
    image: ImageFile.ImageFile,
    kind: str,
    data: bytes,
) -> Iterator[str]:
    """What a PNG of the first frame does not hold, as keys of `header.REDUCED`."""
    bits = image.info.get("bit_depth", 8)  # of HEIC
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = max(image.tag_v2.get(tiff_tags.BITS, (1,)))
        if image.tag_v2.get(tiff_tags.SAMPLES, 1) > len(image.getbands()):
            yield "bands"
    elif kind == "avif" and _AVIF_DEEP.search(data):
        bits = 10
    if bits > 8 and not image.mode.startswith(("I", "F")):  # Pillow keeps the upper 8
        yield "depth"
    if header.gif_is_animated(data) if kind == "gif" else getattr(image, "is_animated", False):
        yield "frames"
    if image.mode == "CMYK":
        yield "cmyk"
    elif (profile := image.info.get("icc_profile")) and not is_srgb(profile):
        yield "profile"


def _fits_16_bits(image: Image.Image) -> bool:
    low, high = cast("tuple[int, int]", image.getextrema())
    return low >= 0 and high <= 65535


def _beyond_palette(image: Image.Image) -> bool:
    """Whether some pixel's index has no colour in the palette."""
    _, high = cast("tuple[int, int]", image.getextrema())
    return image.palette is None or high >= len(image.palette.palette) // 3


def _as_reject(
    error: Exception,
    kind: str,
    data: bytes,
) -> Reject:
    """The reject for what a decoder raised: it says what an unsupported file is."""
    words = words_of(error)
    if _NOT_DECODED.search(words):
        if kind == "tiff":
            tags = tiff_tags.Tags(data)
            kind += f" with {', '.join(f'{k}={tags.number(v, 1)}' for k, v in _TIFF_TAGS.items())}"
        return Reject("check", "unsupported", f"Pillow does not decode the {kind}: {words}")
    code = "truncated" if re.search("truncat|not enough|incomplete", words) else "damaged"
    return Reject("check", code, f"Pillow cannot decode the {kind}: {words}")


#: One row may hold the same picture as another, and neither decoding nor its file can be shared.
_picture_lock = threading.Lock()


def is_picture(value: object) -> TypeGuard[Image.Image]:
    """True of a picture of Pillow."""
    return isinstance(value, Image.Image)


def file_of(picture: Image.Image) -> bytes:
    """The file that a picture was opened from, if nothing has decoded it yet; else a PNG of it.

    Once pixels are decoded they may have been changed, which Pillow does not note.  A PNG holds
    them without loss; a mode that it does not have, such as CMYK, becomes RGB.

    Raises:
        Reject: it cannot be decoded, or PNG cannot hold its pixels.
    """
    with _picture_lock:
        if (data := _own_file(picture)) is not None:
            return data
        try:
            pixels = picture.copy()
        except Exception as error:  # a plugin may raise anything
            words = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise Reject("check", "damaged", f"Pillow cannot decode it: {words}") from None

    return as_png(pixels)


def _own_file(picture: Any) -> bytes | None:
    """The whole file of a picture that is not decoded, if it is of a format that is read here."""
    from PIL import ImageFile

    from tfrecorder.images.header import ending_of

    if not isinstance(picture, ImageFile.ImageFile) or not picture.tile or picture.tell():
        return None
    file = picture.fp
    drafted = getattr(picture, "decoderconfig", ())
    if file is None or getattr(file, "closed", False) or drafted:
        return None
    place = file.tell()
    file.seek(0)
    data = file.read()
    file.seek(place)
    return bytes(data) if ending_of(data) else None


_ICON_HEAD = struct.Struct("<HHH")
_ICON_BITMAP = struct.Struct("<IiiHHI12xI")
#: Width and height (0 stands for 256), colours, reserved, planes, bits, size and place.
_ICON_ENTRY = struct.Struct("<BBBBHHII")


def largest_picture(data: bytes, max_pixels: int) -> bytes:
    """The file of the largest picture, of which icons have the same one in several sizes.

    Raises:
        Reject: the icon ends before it; or it is a bitmap that is too large, of another size than
            the list says, or of a kind that icons do not have.
    """
    count = _ICON_HEAD.unpack_from(data)[2]
    listed = data[_ICON_HEAD.size :][: count * _ICON_ENTRY.size]
    if not listed or len(listed) < count * _ICON_ENTRY.size:
        raise Reject("check", "truncated", "the icon ends in the list of its pictures")
    entry = max(
        _ICON_ENTRY.iter_unpack(listed),
        key=lambda row: (_icon_side(row[0]) * _icon_side(row[1]), row[5]),
    )
    bits, size, at = entry[5:]
    picture = data[at : at + size]
    if len(picture) < size:
        raise Reject("check", "truncated", "the icon ends in its largest picture")
    if picture.startswith(SIGNATURE):
        return picture
    width = _icon_side(entry[0])
    height = _icon_side(entry[1])
    check_size(height, width, 4, max_pixels)
    if size < _ICON_BITMAP.size:
        raise Reject("check", "damaged", "the icon's largest picture has no header")
    head, *sides, _, bits, compression, colours = _ICON_BITMAP.unpack_from(picture)
    if head != 40 or compression or bits not in (1, 4, 8, 24, 32) or colours > 1 << bits:
        raise Reject(
            "check",
            "unsupported",
            "the icon's picture is "
            f"a bitmap of {bits} bits, {colours} colours and the compression "
            f"{compression}; save it as a PNG",
        )
    if sides != [width, 2 * height]:
        raise Reject(
            "check",
            "damaged",
            f"the icon lists {width} x {height} pixels, its picture has {sides[0]} x "
            f"{sides[1]}, the mask with it",
        )
    palette = 4 * (colours or 1 << bits) if bits <= 8 else 0
    mask = _icon_row_bytes(width, 1) if bits < 32 else 0
    if size < 40 + palette + height * (_icon_row_bytes(width, bits) + mask):
        raise Reject("check", "truncated", "the icon's largest picture has too few bytes")
    # With the bits that the picture states: from the list's, Pillow concludes where the mask is.
    alone = (*entry[:5], bits, size, _ICON_HEAD.size + _ICON_ENTRY.size)
    return _ICON_HEAD.pack(0, 1, 1) + _ICON_ENTRY.pack(*alone) + picture


def _icon_side(stored: int) -> int:
    return stored or 256


def _icon_row_bytes(width: int, bits: int) -> int:
    """Bytes of a row of pixels, which are a multiple of four."""
    return (width * bits + 31) // 32 * 4

"""A file's bytes to pixels: the same for readers, transforms and pages.

The rules are TensorFlow's, which `load` follows: of 16 bits the upper 8, unless all are wanted;
colours under transparency as they are stored; CMYK by its inks alone, without a profile.

A JPEG can be decoded at a fraction of its size.  simplejpeg does not know CMYK and some samplings;
those Pillow decodes.  What Pillow itself says of a file's size, texts and profiles does not count:
the checks are ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from tfrecorder.images import jpeg, png
from tfrecorder.images.header import Reject, sniff, words_of
from tfrecorder.images.reencode import first_frame

#: The bytes of an image, either alone or as a view into a record.
Encoded = bytes | memoryview

#: Height and width.
Shape = tuple[int, int]

#: What simplejpeg raises.
JPEG_ERRORS = (ValueError, KeyError, RuntimeError)

#: The formats that records may hold beside JPEG and PNG: those of other tools.
_OTHERS = ("bmp", "gif", "webp")

_COLOURS = {1: "GRAY", 3: "RGB", 4: "RGBA"}
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def decode(
    data: Encoded,
    channels: int,
    depth: int = 8,
    least: Shape = (0, 0),
) -> np.ndarray:
    """The pixels of an image, uint8 or uint16 of [height, width, channels].

    Args:
        data: the encoded image.
        channels: 1 to 4.
        depth: bits of a channel, 8 or 16.
        least: the height and width that suffice; a JPEG is then decoded at a fraction of its size.

    Raises:
        ValueError: it cannot be decoded.
    """
    if jpeg_shape(data) is not None:
        try:
            return decode_jpeg(data, channels, least)
        except JPEG_ERRORS:
            pass  # Pillow knows more of them, and says what is wrong
    return decode_in_full(data, channels, depth)


def jpeg_shape(data: Encoded) -> Shape | None:
    """Height and width of what `decode_jpeg` decodes; None of all else."""
    if data[:2] != b"\xff\xd8":
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except JPEG_ERRORS:
        return None
    return None if colours in ("CMYK", "YCCK") else (height, width)


def decode_jpeg(
    data: Encoded,
    channels: int,
    least: Shape,
    buffer: Any = None,
) -> np.ndarray:
    """The pixels of a JPEG that simplejpeg knows, at a fraction of its size.

    Args:
        data, channels, least: as for `decode`.
        buffer: where the pixels are put.

    Raises:
        ValueError, KeyError, RuntimeError: it cannot be decoded.
    """
    return simplejpeg.decode_jpeg(
        data,
        _COLOURS[channels],
        fastdct=False,
        fastupsample=False,
        min_height=least[0],
        min_width=least[1],
        buffer=buffer,
        strict=False,
    )


def decode_in_full(
    data: Encoded,
    channels: int,
    depth: int = 8,
) -> np.ndarray:
    """As `decode`, by Pillow's decoders."""
    if depth == 16:
        pixels = _in_words(png.decode_deep, data)
        if pixels.shape[2] < 3 <= channels:
            return np.repeat(pixels[:, :, :1], channels, 2)
        return pixels[:, :, :channels]
    return of_picture(picture(data), channels)


def of_picture(image: Image.Image, channels: int) -> np.ndarray:
    """The pixels of a picture as `picture` gives it, uint8 of [height, width, channels]."""
    if channels not in (2, 4):
        image.info.pop("transparency", None)  # Pillow warns of what it cannot keep of it
    if image.mode.startswith("I"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode != _MODES[channels]:  # else it would be copied
        image = image.convert(_MODES[channels])
    pixels = np.asarray(image)
    return pixels.reshape(*pixels.shape[:2], channels)


def picture(data: Encoded) -> Image.Image:
    """An image as Pillow holds it: with its palette, and all bits of grey pixels of 16.

    Raises:
        ValueError: it cannot be decoded.
    """
    return _in_words(_picture, data)


def samples_of(data: Encoded) -> np.ndarray:
    """The numbers of a PNG's pixels as it holds them; see `png.samples`.

    Raises:
        ValueError: it cannot be decoded.
    """
    return _in_words(png.samples, data)


def _picture(data: bytes) -> Image.Image:
    kind = sniff(data)
    if kind == "png":
        return png.decode(data)
    if kind == "jpeg":
        return _jpeg_by_pillow(data)
    if kind in _OTHERS:
        return first_frame(data, kind)
    raise ValueError(f"records hold no {kind}")


def _in_words(make: Any, data: Encoded) -> Any:
    """What a function makes of an image, or a ValueError that says what is wrong with the image."""
    try:
        return make(bytes(data))
    except MemoryError:
        raise
    except Exception as error:  # hostile bytes may raise anything
        words = error.detail if isinstance(error, Reject) else words_of(error)
        raise ValueError(f"the image cannot be decoded: {words}") from error


def _jpeg_by_pillow(data: bytes) -> Image.Image:
    """A JPEG in its full size, without a look at its metadata."""
    header = jpeg.read_header(data, None)
    if not jpeg.size_agrees(data, header):
        raise ValueError("its headers state two sizes")
    mode = "CMYK" if "cmyk" in header.reduced else _MODES[header.channels]
    image = jpeg.picture_of(data, mode, (header.width, header.height))
    if mode != "CMYK":
        return image
    inks = np.asarray(image)
    light = inks if jpeg.is_of_adobe(data) else 255 - inks
    light = light.astype(np.uint16)
    return Image.fromarray((light[..., :3] * light[..., 3:] // 255).astype(np.uint8))


def shape_of(data: Encoded) -> Shape:
    """Height and width of an encoded image, from its header.

    Raises:
        ValueError: it has none.
    """
    shape = jpeg_shape(data)
    if shape is not None:
        return shape
    return _in_words(_shape_of, data)


def _shape_of(data: bytes) -> Shape:
    kind = sniff(data)
    if kind in _OTHERS:
        width, height = _picture(data).size
        return height, width
    return (jpeg if kind == "jpeg" else png).read_header(data, None)[:2]


def orientation_of(data: Encoded) -> int:
    """The EXIF orientation of an encoded image; 1 of formats other than JPEG and PNG.

    Raises:
        ValueError: it has no header.
    """
    return int(_in_words(_orientation_of, data))


def _orientation_of(data: bytes) -> int:
    kind = sniff(data)
    if kind in _OTHERS:
        return 1
    return (jpeg if kind == "jpeg" else png).read_header(data, None).orientation

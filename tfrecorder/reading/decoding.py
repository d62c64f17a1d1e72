"""Encoded images to pixels, in NumPy: decoded at the same scales and placed as in `load`."""

from __future__ import annotations

import io
import threading

import numpy as np
import simplejpeg
from PIL import Image

from tfrecorder.errors import OptionError
from tfrecorder.images.picture import TRIMMED, Picture, ratio_of
from tfrecorder.reading.geometry import (
    borders,
    central_part,
    fitted_size,
    is_mirrored,
    random_part,
)
from tfrecorder.reading.resizing import resize

#: The formats that records may hold; others are never tried.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF")

_COLOURS = {1: "GRAY", 3: "RGB", 4: "RGBA"}
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}

#: Bytes of decoded pixels up to which a thread keeps its buffer: the pages of a fresh array cost a
#: tenth of the decoding time.
MOST_KEPT = 2**24

_OF_THREAD = threading.local()

Shape = tuple[int, int]

#: The bytes of an image, either alone or as a view into a record.
Encoded = bytes | memoryview


def decode(data: Encoded, picture: Picture, drawn: np.ndarray | None) -> np.ndarray:
    """The pixels of one JPEG or PNG, uint8 of [height, width, channels].

    The thread reuses their memory for the next image: copy what you want to keep.

    Args:
        data: the encoded image.
        picture: the image to make.
        drawn: by `geometry.draws`, for `picture.augment`.

    Raises:
        ValueError: it cannot be decoded.
    """
    shape = _jpeg_shape(data)
    if shape is None:
        pixels = _by_pillow(data, picture.channels)
        shape = pixels.shape[0], pixels.shape[1]
        return _fit(pixels, 1, picture, shape, drawn)
    part = None
    if picture.size is not None and picture.augment:
        assert drawn is not None
        part = random_part(*shape, drawn)[2:]
    ratio = 1 if picture.size is None else ratio_of(_scale(part or shape, picture))
    try:
        pixels = _jpeg_pixels(data, picture, ratio, shape)
    except (ValueError, KeyError, RuntimeError):  # a subsampling that simplejpeg does not know
        pixels, ratio = _by_pillow(data, picture.channels), 1
    return _fit(pixels, ratio, picture, shape, drawn)


def _fit(
    pixels: np.ndarray, ratio: int, picture: Picture, shape: Shape, drawn: np.ndarray | None
) -> np.ndarray:
    """Pixels decoded at 1/ratio, in the wanted size."""
    if picture.size is None:
        return pixels
    if not picture.augment:
        return _place(_trim(pixels, ratio, shape), picture, shape)
    assert drawn is not None
    y, x, height, width = (side // ratio for side in random_part(*shape, drawn))
    pixels = resize(pixels[y : y + height, x : x + width], picture.size, picture.antialias)
    return pixels[:, ::-1] if is_mirrored(drawn) else pixels


def _place(pixels: np.ndarray, picture: Picture, shape: Shape) -> np.ndarray:
    """Decoded pixels in the wanted size.

    Args:
        shape: of the stored image; `pixels` may have been decoded smaller.
    """
    size, (height, width) = picture.size, pixels.shape[:2]
    assert size is not None
    if picture.resize == "fit":
        return resize(pixels, fitted_size(*shape, size, enlarge=False), picture.antialias)
    if picture.resize == "crop":
        y, x, height, width = central_part(height, width, size)
        pixels = pixels[y : y + height, x : x + width]
    if picture.resize == "pad":
        inner = fitted_size(height, width, size)
        y, x = borders(inner, size)
        padded = np.zeros((*size, picture.channels), np.uint8)
        padded[y : y + inner[0], x : x + inner[1]] = resize(pixels, inner, picture.antialias)
        return padded
    return resize(pixels, size, picture.antialias)


def decode_raw(data: Encoded, picture: Picture, drawn: np.ndarray | None) -> np.ndarray:
    """The pixels of an image that is stored as raw pixels."""
    height, width = picture.stored_size
    assert height is not None
    assert width is not None
    pixels = np.frombuffer(data, np.uint8).reshape(height, width, picture.channels)
    return _fit(pixels, 1, picture, (height, width), drawn)


def write_pixels(pixels: np.ndarray, picture: Picture, out: np.ndarray) -> None:
    """Decoded pixels into an array of `dtype_of(picture.dtype)`."""
    if picture.dtype == "uint8":
        out[...] = pixels
        return
    low, high = picture.value_range
    out[...] = pixels.astype(np.float32) * np.float32((high - low) / 255) + np.float32(low)


def dtype_of(name: str) -> np.dtype:
    """The dtype of pixels.

    Raises:
        OptionError: NumPy does not have it.
    """
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes  # comes with TensorFlow and with JAX
    except ImportError as error:
        raise OptionError(
            "dtype='bfloat16': NumPy needs another package for it; run `pip install ml_dtypes`, or "
            "give dtype='float32'."
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


def decode_mask(data: Encoded) -> np.ndarray:
    """The classes of an image's pixels, uint8 of [height, width]."""
    return _by_pillow(data, 1)[:, :, 0]


def shape_of(data: Encoded) -> Shape:
    """Height and width of an encoded image, from its header.

    Raises:
        ValueError: it has none.
    """
    found = _jpeg_shape(data)
    if found is not None:
        return found
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            return opened.height, opened.width
    except (OSError, SyntaxError, EOFError) as error:
        raise ValueError("the image cannot be decoded: it has no header") from error


def _scale(shape: Shape | tuple[int, ...], picture: Picture) -> float:
    """How many times larger than wanted an image is, along the axis that matters."""
    assert picture.size is not None
    along = shape[0] / picture.size[0], shape[1] / picture.size[1]
    return max(along) if picture.fits_within and not picture.augment else min(along)


def _trim(pixels: np.ndarray, ratio: int, shape: Shape) -> np.ndarray:
    """A JPEG decoded smaller, without a last row or column that is less than half image."""
    if ratio not in TRIMMED:
        return pixels
    kept = [
        max(1, found - (ratio // 2 < found * ratio - stored < ratio))
        for found, stored in zip(pixels.shape[:2], shape, strict=True)
    ]
    return pixels[: kept[0], : kept[1]]


def _jpeg_shape(data: Encoded) -> Shape | None:
    """Height and width; None if Pillow has to decode it: other formats, and CMYK or YCCK."""
    if data[:2] != b"\xff\xd8":
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data, strict=False)
    except (ValueError, KeyError, RuntimeError):
        return None
    return None if colours in ("CMYK", "YCCK") else (height, width)


def _jpeg_pixels(data: Encoded, picture: Picture, ratio: int, shape: Shape) -> np.ndarray:
    """All pixels at 1/ratio, valid until the thread decodes the next image."""
    height, width = (-(-side // ratio) for side in shape)
    return simplejpeg.decode_jpeg(
        data,
        _COLOURS[picture.channels],
        fastdct=False,
        fastupsample=False,
        min_height=0 if ratio == 1 else height,
        min_width=0 if ratio == 1 else width,
        buffer=_room(height * width * picture.channels),
        strict=False,
    )


def _room(size: int) -> bytearray | None:
    """This thread's buffer of at least this size; None if that is too large to keep."""
    if size > MOST_KEPT:
        return None
    kept: bytearray = getattr(_OF_THREAD, "room", bytearray())
    if len(kept) < size:
        kept = _OF_THREAD.room = bytearray(size)
    return kept


def _by_pillow(data: Encoded, channels: int) -> np.ndarray:
    """Pixels as TensorFlow decodes them: without transparency, and with the upper 8 of 16 bits."""
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as opened:
            opened.load()
            image: Image.Image = opened
            if opened.mode == "CMYK":
                image = Image.fromarray(_of_inks(np.asarray(opened), "adobe" in opened.info))
            elif opened.mode.startswith("I"):
                image = Image.fromarray((np.asarray(opened) >> 8).astype(np.uint8))
            pixels = np.asarray(image.convert(_MODES[channels]))
    except (OSError, SyntaxError, EOFError) as error:
        words = str(error).partition(" <_io")[0]  # Pillow names its own buffer
        raise ValueError(f"the image cannot be decoded: {words}") from error
    return pixels.reshape(*pixels.shape[:2], channels)


def _of_inks(inks: np.ndarray, inverted: bool) -> np.ndarray:
    """CMYK converted to colours as TensorFlow does it; Pillow has inverted the inks."""
    light = (255 - inks if inverted else inks).astype(np.uint16)
    return (light[..., :3] * light[..., 3:] // 255).astype(np.uint8)

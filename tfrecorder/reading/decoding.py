"""Encoded images to pixels, in NumPy: decoded at the same scales and placed as in `load`.

Pixels are resized with Python's GIL released.  The filter is a triangle, as wide as the pixels that
fall together, the same as in `tf.image.resize(antialias=True)`.  cykooz-resizer computes it (Rust's
fast_image_resize).  Pillow does where cykooz-resizer has no wheels, with results that differ by one
grey level at most.

A resizer takes bytes and gives bytes, and copies them while it holds the GIL.  At least we can give
it what we decode without another copy: each thread decodes into memory that it keeps.
"""

from __future__ import annotations

import functools
import io
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from tfrecorder.errors import OptionError
from tfrecorder.images import geometry
from tfrecorder.images.geometry import TRIMMED, Picture, ratio_of
from tfrecorder.images.pixels import (
    JPEG_ERRORS,
    Encoded,
    Shape,
    decode_in_full,
    decode_jpeg,
    jpeg_shape,
)

try:
    import cykooz_resizer as rust
except ImportError:
    rust = None


def decode(
    data: Encoded,
    picture: Picture,
    drawn: np.ndarray | None,
) -> np.ndarray:
    """The pixels of one JPEG or PNG, uint8 or uint16 of [height, width, channels].

    The thread reuses their memory for the next image: copy what you want to keep.

    Args:
        data: the encoded image.
        picture: the image to make.
        drawn: by `order.draws`, for `picture.augment`.

    Raises:
        ValueError: it cannot be decoded.
    """
    shape = jpeg_shape(data)
    if shape is None:
        pixels = decode_in_full(data, picture.channels, picture.depth)
        return _fit(pixels, 1, picture, (pixels.shape[0], pixels.shape[1]), drawn)
    ratio = 1
    part = None
    if picture.size is not None:
        part = None if drawn is None else geometry.random_part(shape, drawn)
        ratio = _ratio(picture, shape) if part is None else ratio_of(picture.scale_of(part[1]))
    try:
        pixels = _jpeg_pixels(data, picture, ratio, shape)
    except JPEG_ERRORS:
        pixels = decode_in_full(data, picture.channels)
        ratio = 1
    return _fit(pixels, ratio, picture, shape, drawn, part=part)


def _fit(
    pixels: np.ndarray,
    ratio: int,
    picture: Picture,
    shape: Shape,
    drawn: Any,
    part: Any = None,
) -> np.ndarray:
    """Pixels decoded at 1/ratio, in the wanted size.

    Args:
        shape: of the stored image.
        part: the random part that `drawn` asks for, if it is known.
    """
    if picture.size is None:
        return pixels
    if drawn is None:
        (height, width), where = _placement(picture, shape, ratio)
        pixels = pixels[:height, :width]
    else:
        start, size = part or geometry.random_part(shape, drawn)
        where = geometry.Placement(start // ratio, size // ratio, picture.size, None, picture.size)

    def resized(part: np.ndarray, size: Any) -> np.ndarray:
        return resize(part, (int(size[0]), int(size[1])), picture.antialias)

    return _mirrored(geometry.place(pixels, where, resized), drawn)


# The images of a dataset have few shapes.
@functools.lru_cache(maxsize=1024)
def _ratio(picture: Picture, shape: Shape) -> int:
    """The ratio at which an image of this shape is decoded."""
    return ratio_of(picture.scale_of(shape))


@functools.lru_cache(maxsize=1024)
def _placement(
    picture: Picture,
    shape: Shape,
    ratio: int,
) -> tuple[Shape, Any]:
    """For an image decoded at 1/ratio: its size without what is beyond it, and where it goes."""
    assert picture.size is not None
    decoded = np.array([-(-side // ratio) for side in shape])
    if ratio in TRIMMED:
        decoded = geometry.trimmed(decoded, np.array(shape), ratio)
    # "fit" counts from the stored image, as its mask does.
    whole = np.array(shape) if picture.resize == "fit" else decoded
    where = geometry.placement(whole, picture.size, picture.resize)
    return (int(decoded[0]), int(decoded[1])), where


def _mirrored(pixels: np.ndarray, drawn: np.ndarray | None) -> np.ndarray:
    return pixels[:, ::-1] if drawn is not None and geometry.is_mirrored(drawn) else pixels


def decode_raw(
    data: Encoded,
    picture: Picture,
    drawn: np.ndarray | None,
) -> np.ndarray:
    """The pixels of an image that is stored as raw pixels."""
    height, width = picture.stored_size
    assert height is not None
    assert width is not None
    pixels = np.frombuffer(data, np.uint8).reshape(height, width, picture.channels)
    return _fit(pixels, 1, picture, (height, width), drawn)


def write_pixels(
    pixels: np.ndarray,
    picture: Picture,
    out: np.ndarray,
) -> None:
    """Decoded pixels into an array of `dtype_of(picture.dtype)`."""
    if picture.keeps_values:
        out[...] = pixels
        return
    floats = out if out.dtype == np.float32 else np.empty_like(out, np.float32)
    floats[...] = pixels
    scale, shift = (np.array(one, np.float32) for one in (picture.scale, picture.shift))
    lines = floats
    if len(scale) > 1 and floats.flags.c_contiguous:
        # A row at a time: along a last axis of three, NumPy takes seven times as long.
        lines = floats.reshape(len(floats), -1)
        scale, shift = (np.tile(one, floats.shape[1]) for one in (scale, shift))
    lines *= scale
    lines += shift
    if floats is not out:
        out[...] = floats


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
        raise OptionError.of(
            "dtype",
            "bfloat16",
            "NumPy needs another package for it; run `pip install ml_dtypes`, or give "
            "`dtype='float32'`.",
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


def decode_mask(
    data: Encoded,
    picture: Picture,
    drawn: np.ndarray | None,
) -> np.ndarray:
    """The classes of an image's pixels, uint8 of [height, width, 1], placed as the image is."""
    mask = decode_in_full(data, 1)
    if picture.size is None:
        return mask
    where = geometry.placement(np.array(mask.shape[:2]), picture.size, picture.resize, drawn)
    return _mirrored(geometry.place(mask, where, nearest), drawn)


def _jpeg_pixels(
    data: Encoded,
    picture: Picture,
    ratio: int,
    shape: Shape,
) -> np.ndarray:
    """All pixels at 1/ratio, valid until the thread decodes the next image."""
    height, width = (-(-side // ratio) for side in shape)

    def fill(buffer: Any) -> np.ndarray:
        least = (0, 0) if ratio == 1 else (height, width)
        return decode_jpeg(data, picture.channels, least, buffer)

    return filled((height, width, picture.channels), fill)


#: In the resizer's list, the types of one to four channels of 16 bits follow this one.
_U16 = 4

#: A resizer keeps its own buffers, so each thread has one, and what it wrote to last.
_RESIZER = threading.local()


def resize(
    pixels: np.ndarray,
    size: tuple[int, int],
    antialias: bool,
) -> np.ndarray:
    """Pixels in another size.

    Args:
        pixels: uint8 or uint16 of [height, width, channels]; 1, 3 or 4 channels.
        size: the wanted height and width.
        antialias: average the pixels that fall together; False is plain bilinear sampling.
    """
    if pixels.shape[:2] == size:
        return pixels
    return (_resized_by_pillow if rust is None else _by_rust)(pixels, size, antialias)


def nearest(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A mask in another size, by the pixels that TensorFlow takes; classes stay classes."""
    rows, columns = (
        np.minimum(
            (np.arange(wanted, dtype=np.float32) + np.float32(0.5))
            * (np.float32(side) / np.float32(wanted)),
            side - 1,
        ).astype(np.int64)
        for side, wanted in zip(mask.shape[:2], size, strict=True)
    )
    return mask[rows[:, None], columns]


def _by_rust(
    pixels: np.ndarray,
    size: tuple[int, int],
    antialias: bool,
) -> np.ndarray:
    height, width, channels = pixels.shape
    form = rust.PixelType(channels if pixels.dtype == np.uint8 else _U16 + channels)
    source = rust.ImageData(width, height, form, bytes_of(pixels))
    resizer, target = _resizer_and_target(size, form)
    resizer.resize(source, target, _rust_options(antialias))
    return np.frombuffer(target.get_buffer(), pixels.dtype).reshape(*size, channels)


def _resizer_and_target(size: tuple[int, int], form: Any) -> tuple[Any, Any]:
    """This thread's resizer, and an image of this size and type of pixels to write to."""
    if getattr(_RESIZER, "form", None) != (size, form):
        _RESIZER.resizer = rust.Resizer()
        _RESIZER.target = rust.ImageData(size[1], size[0], form)
        _RESIZER.form = size, form
    return _RESIZER.resizer, _RESIZER.target


@functools.cache
def _rust_options(antialias: bool) -> Any:
    triangle = rust.FilterType.bilinear
    convolution = rust.ResizeAlg.convolution(triangle)
    options = rust.ResizeOptions(convolution, use_alpha=False)
    if not antialias:  # the binding has no shorter way
        options.rust_options = options.rust_options.set_resize_alg(
            rust.Algorithm.interpolation.value,
            triangle.value,
            2,
        )
    return options


def _resized_by_pillow(
    pixels: np.ndarray,
    size: tuple[int, int],
    antialias: bool,
) -> np.ndarray:
    height, width, channels = pixels.shape
    wanted = (size[1], size[0])
    way = Image.Resampling.BILINEAR
    along = (width / size[1], 0, 0, 0, height / size[0], 0)
    # As floats, which Pillow does not truncate to whole grey levels.
    as_floats = not antialias or pixels.dtype != np.uint8
    planes = []
    for at in range(channels):
        # Each channel alone: for RGBA, Pillow would weight the colours by alpha.
        plane = Image.fromarray(pixels[:, :, at])
        if as_floats:
            plane = plane.convert("F")
        if antialias:
            plane = plane.resize(wanted, way)
        else:
            plane = plane.transform(wanted, Image.Transform.AFFINE, along, way)
        planes.append(np.asarray(plane))
    resized = np.stack(planes, -1)
    return (resized + 0.5).astype(pixels.dtype) if as_floats else resized


#: Bytes up to which a thread keeps the memory that it decodes into: the pages of a
#: fresh array cost a tenth of the decoding time.
MOST_SCRATCH = 2**24

#: For how many sizes, and up to which, a thread keeps memory that can be had as bytes.
SCRATCH_SIZES = 8
MOST_AS_BYTES = 2**21


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.files: dict[int, io.BytesIO] = {}
        self.buffer = bytearray()


_SCRATCH = _Scratch()


def filled(shape: tuple[int, ...], fill: Callable[[Any], np.ndarray]) -> np.ndarray:
    """What `fill` makes in a buffer for uint8 of this shape; valid until the next call.

    Of the sizes that come first it has its memory from a `bytes`; see `bytes_of`.
    """
    size = math.prod(shape)
    files = _SCRATCH.files
    if size not in files:
        if len(files) == SCRATCH_SIZES or size > MOST_AS_BYTES:
            return fill(_scratch_buffer(size))
        files[size] = io.BytesIO(bytes(size))
    with files[size].getbuffer() as buffer:
        made = fill(buffer).shape
    # In CPython this is the object that has the memory, and no copy, now that no buffer is open.
    return np.frombuffer(files[size].getvalue(), np.uint8).reshape(made)


def bytes_of(pixels: np.ndarray) -> bytes:
    """Pixels as bytes; without a copy if they have all of their memory from a `bytes`."""
    owner = getattr(pixels.base, "base", None)
    if isinstance(owner, bytes) and len(owner) == pixels.nbytes:
        return owner
    return pixels.tobytes()


def _scratch_buffer(size: int) -> bytearray | None:
    """This thread's buffer of at least this size; None if that is too large to keep."""
    if size > MOST_SCRATCH:
        return None
    if len(_SCRATCH.buffer) < size:
        _SCRATCH.buffer = bytearray(size)
    return _SCRATCH.buffer

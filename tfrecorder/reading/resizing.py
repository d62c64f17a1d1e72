"""Resizing pixels in NumPy, with Python's GIL released.

The filter is a triangle, as wide as the pixels that fall together, the same as in
`tf.image.resize(antialias=True)`.  cykooz-resizer computes it (Rust's fast_image_resize).  Pillow
does where cykooz-resizer has no wheels, with results that differ by one grey level at most.

A resizer takes bytes and gives bytes, and copies them while it holds the GIL.  At least we can give
it what we decode without another copy.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
from PIL import Image

from tfrecorder.reading.scratch import bytes_of

try:
    import cykooz_resizer as rust
except ImportError:
    rust = None

#: In the resizer's list, the types of one to four channels of 16 bits follow this one.
_U16 = 4

#: A resizer keeps its own buffers, so each thread has one, and what it wrote to last.
_OF_THREAD = threading.local()


def resize(pixels: np.ndarray, size: tuple[int, int], antialias: bool) -> np.ndarray:
    """Pixels in another size.

    Args:
        pixels: uint8 or uint16 of [height, width, channels]; 1, 3 or 4 channels.
        size: the wanted height and width.
        antialias: average the pixels that fall together; False is plain bilinear sampling.
    """
    if pixels.shape[:2] == size:
        return pixels
    return (_by_pillow if rust is None else _by_rust)(pixels, size, antialias)


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


def _by_rust(pixels: np.ndarray, size: tuple[int, int], antialias: bool) -> np.ndarray:
    height, width, channels = pixels.shape
    form = rust.PixelType(channels if pixels.dtype == np.uint8 else _U16 + channels)
    source = rust.ImageData(width, height, form, bytes_of(pixels))
    resizer, target = _of_thread(size, form)
    resizer.resize(source, target, _rust_options(antialias))
    return np.frombuffer(target.get_buffer(), pixels.dtype).reshape(*size, channels)


def _of_thread(size: tuple[int, int], form: Any) -> tuple[Any, Any]:
    """This thread's resizer, and an image of this size and type of pixels to write to."""
    if getattr(_OF_THREAD, "form", None) != (size, form):
        _OF_THREAD.resizer = rust.Resizer()
        _OF_THREAD.target = rust.ImageData(size[1], size[0], form)
        _OF_THREAD.form = size, form
    return _OF_THREAD.resizer, _OF_THREAD.target


@functools.cache
def _rust_options(antialias: bool) -> Any:
    triangle = rust.FilterType.bilinear
    convolution = rust.ResizeAlg.convolution(triangle)
    options = rust.ResizeOptions(convolution, use_alpha=False)
    if not antialias:  # the binding has no shorter way
        options.rust_options = options.rust_options.set_resize_alg(
            rust.Algorithm.interpolation.value, triangle.value, 2
        )
    return options


def _by_pillow(pixels: np.ndarray, size: tuple[int, int], antialias: bool) -> np.ndarray:
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

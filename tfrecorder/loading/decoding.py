"""Encoded images to pixels, in TensorFlow's graph.

This corrects TensorFlow's defaults.  The fast inverse DCT is on average 0.8 grey levels darker than
the accurate one, which costs the same and gives exactly Pillow's pixels.  A plain bilinear resize
skips pixels.  A cast of floats to uint8 cuts off half a grey level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import tensorflow as tf

from tfrecorder.images.picture import (
    CROP_AREA,
    CROP_ASPECT,
    RATIOS,
    TRIMMED,
    Picture,
    ratio_of,
)


def decode(
    encoded: tf.Tensor,
    stored_shape: tuple[tf.Tensor, tf.Tensor] | None,
    picture: Picture,
    seed: tf.Tensor | None = None,
) -> tf.Tensor:
    """The pixels of one JPEG or PNG.

    Args:
        encoded: a string scalar.
        stored_shape: the image's own height and width, int64 scalars; None takes them from the
            bytes.
        picture: the image to make.
        seed: int64 of shape [2], for `picture.augment`.

    Returns:
        A tensor of `picture.dtype` and `picture.shape`.
    """
    if picture.size is None or (picture.size == picture.stored_size and not picture.augment):
        pixels = _decode_at(1, encoded, picture)
    elif picture.augment:
        pixels = _random_part(encoded, stored_shape or shape_of(encoded), picture, seed)
    else:
        pixels = _decode_to_size(encoded, stored_shape, picture)
    pixels = _to_dtype(pixels, picture)
    pixels.set_shape(picture.shape)
    return pixels


def decode_raw(stored: tf.Tensor, picture: Picture, seed: tf.Tensor | None = None) -> tf.Tensor:
    """The pixels of an image that is stored as raw pixels.

    Args:
        stored: a string scalar; or a batch of them if the size does not change.
        picture: the image to make.
        seed: int64 of shape [2], for `picture.augment`.
    """
    height, width = picture.stored_size
    assert height is not None
    assert width is not None
    # Without `fixed_length`, which would fill each image with zeros before copying it.
    flat = tf.io.decode_raw(stored, tf.uint8)
    batch = [-1] if stored.shape.rank else []
    pixels = tf.reshape(flat, (*batch, height, width, picture.channels))
    if picture.augment:
        assert seed is not None
        y, x, rows, columns = tf.unstack(
            random_window(tf.constant(height), tf.constant(width), seed)
        )
        part = pixels[y : y + rows, x : x + columns]
        assert picture.size is not None
        shrinks = (rows >= picture.size[0]) & (columns >= picture.size[1])
        pixels = _mirror_half(_fit(part, replace(picture, resize="stretch"), shrinks), seed)
    elif picture.size is not None and picture.size != picture.stored_size:
        pixels = _fit(pixels, picture, shrinks=min(picture.scales) >= 1)
    pixels = _to_dtype(pixels, picture)
    if stored.shape.rank == 0:
        pixels.set_shape(picture.shape)
    return pixels


def _decode_at(ratio: int, encoded: tf.Tensor, picture: Picture) -> tf.Tensor:
    # This operation reads PNG too, always in full size, whatever the ratio.
    return tf.io.decode_jpeg(
        encoded,
        channels=picture.channels,
        ratio=ratio,
        dct_method="INTEGER_ACCURATE",
    )


def _decode_to_size(
    encoded: tf.Tensor, stored_shape: tuple[tf.Tensor, tf.Tensor] | None, picture: Picture
) -> tf.Tensor:
    low, high = picture.scales
    chooses = ratio_of(low) != ratio_of(high) or (low >= 1) != (high >= 1)  # at run time
    if chooses or ratio_of(low) in TRIMMED or picture.resize == "fit":
        stored_shape = stored_shape or shape_of(encoded)

    def at(ratio: int) -> tf.Tensor:
        pixels = _decode_at(ratio, encoded, picture)
        if ratio not in TRIMMED:
            return pixels
        assert stored_shape is not None
        return _trim(pixels, ratio, stored_shape)

    if not chooses:
        return _fit(at(ratio_of(low)), picture, low >= 1, stored_shape)
    assert stored_shape is not None
    scale = _scale(*stored_shape, picture)
    shrinks = scale >= 1 if low < 1 else True
    return _fit(_at_ratio(scale, at), picture, shrinks, stored_shape)


def _trim(pixels: tf.Tensor, ratio: int, stored_shape: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """A JPEG decoded smaller, without a last row or column that is less than half image.

    449 pixels are decoded as 57 pixels of eight each, which is 456.  If we resized all of that as
    image, the picture would shift by up to a pixel and differ from a full decode by several levels.
    """
    found = tf.shape(pixels)[:2]
    beyond = found * ratio - tf.cast(tf.stack(stored_shape), tf.int32)
    is_less = (beyond > ratio // 2) & (beyond < ratio)  # far more for a PNG, which is decoded whole
    kept = tf.maximum(found - tf.cast(is_less, tf.int32), 1)
    return pixels[: kept[0], : kept[1]]


def _scale(height: tf.Tensor, width: tf.Tensor, picture: Picture) -> tf.Tensor:
    """How many times larger than wanted an image is, along the axis that matters."""
    assert picture.size is not None
    along = height / picture.size[0], width / picture.size[1]
    return tf.maximum(*along) if picture.fits_within else tf.minimum(*along)


def _at_ratio(scale: tf.Tensor, decode_at: Callable[[int], tf.Tensor]) -> tf.Tensor:
    """`decode_at(ratio_of(scale))`, chosen at run time.

    Keep the branches minimal: an operation in one of them costs time in all.
    """
    whole = tf.cast(tf.minimum(scale, RATIOS[-1]), tf.int32)
    branches = [RATIOS.index(ratio_of(number)) for number in range(RATIOS[-1] + 1)]
    index = tf.gather(tf.constant(branches), whole)
    return tf.switch_case(index, [partial(decode_at, ratio) for ratio in RATIOS])


def shape_of(encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Height and width from the header of a JPEG, PNG or GIF."""

    def numbers(at: int, size: int, kind: tf.DType, little_endian: bool) -> tf.Tensor:
        """(height, width) from a header that has the width first, then the height."""
        found = tf.io.decode_raw(tf.strings.substr(encoded, at, 2 * size), kind, little_endian)
        return tf.cast(found, tf.int32)[::-1]

    shape = tf.cond(
        _is_jpeg(encoded),
        lambda: tf.io.extract_jpeg_shape(encoded)[:2],
        lambda: tf.cond(
            tf.strings.substr(encoded, 0, 3) == b"GIF",
            lambda: numbers(6, 2, tf.uint16, little_endian=True),
            lambda: numbers(16, 4, tf.int32, little_endian=False),
        ),
    )
    return shape[0], shape[1]


def _is_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    return tf.strings.substr(encoded, 0, 2) == b"\xff\xd8"


def _fit(
    pixels: tf.Tensor,
    picture: Picture,
    shrinks: bool | tf.Tensor,
    stored_shape: tuple[tf.Tensor, tf.Tensor] | None = None,
) -> tf.Tensor:
    """Decoded pixels in the wanted size, as unrounded float32.

    Args:
        stored_shape: of the stored image; `pixels` may have been decoded smaller.
    """
    assert picture.size is not None
    if picture.resize == "fit":
        height, width = stored_shape or tf.unstack(tf.shape(pixels)[:2])
        inner = fitted_size(height, width, picture.size, enlarge=False)
        return _resize(pixels, inner, picture.antialias, shrinks)
    if picture.resize == "crop":
        pixels = cut_to_shape(pixels, picture.size)
    if picture.resize == "pad":
        return _fit_and_pad(pixels, picture.size, picture.antialias, shrinks)
    return _resize(pixels, picture.size, picture.antialias, shrinks)


def _resize(
    pixels: tf.Tensor,
    size: tuple[int, int] | tf.Tensor,
    antialias: bool,
    shrinks: bool | tf.Tensor,
) -> tf.Tensor:
    """Resize to unrounded float32.

    If both axes shrink, each target pixel is the mean of its area.  This is as free of aliasing as
    the usual antialiased filter and takes a quarter of the time.  An axis that is enlarged needs
    that filter.
    """
    # The raw operations: what tf.image.resize adds around them costs 2 % of a photograph's time.
    if not antialias:
        return tf.raw_ops.ResizeBilinear(images=pixels[None], size=size, half_pixel_centers=True)[0]

    def by_area() -> tf.Tensor:
        return tf.raw_ops.ResizeArea(images=pixels[None], size=size)[0]

    def filtered() -> tf.Tensor:
        return tf.image.resize(pixels, size, antialias=True)

    if isinstance(shrinks, bool):
        return by_area() if shrinks else filtered()
    return tf.cond(shrinks, by_area, filtered)


def cut_to_shape(pixels: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """The largest central part with the proportions of `size`."""
    found = tf.shape(pixels)[:2]
    scale = tf.reduce_min(tf.cast(found, tf.float32) / tf.constant(size, tf.float32))
    part = tf.cast(tf.round(tf.constant(size, tf.float32) * scale), tf.int32)
    part = tf.minimum(tf.maximum(part, 1), found)
    start = (found - part) // 2
    return tf.slice(pixels, [start[0], start[1], 0], [part[0], part[1], -1])


def _fit_and_pad(
    pixels: tf.Tensor, size: tuple[int, int], antialias: bool, shrinks: bool | tf.Tensor
) -> tf.Tensor:
    shape = tf.shape(pixels)
    inner = fitted_size(shape[0], shape[1], size)
    pixels = _resize(pixels, inner, antialias, shrinks)
    before = (tf.constant(size) - inner) // 2
    after = tf.constant(size) - inner - before
    return tf.pad(pixels, [[before[0], after[0]], [before[1], after[1]], [0, 0]])


def fitted_size(
    height: tf.Tensor, width: tf.Tensor, size: tuple[int, int], enlarge: bool = True
) -> tf.Tensor:
    """(height, width) of the largest picture with the same proportions within `size`, int32."""
    found = tf.cast(tf.stack([height, width]), tf.float32)
    scale = tf.reduce_max(found / tf.constant(size, tf.float32))
    scale = scale if enlarge else tf.maximum(scale, 1.0)
    inner = tf.cast(tf.round(found / scale), tf.int32)
    return tf.minimum(tf.maximum(inner, 1), tf.constant(size))


def _random_part(
    encoded: tf.Tensor, shape: tuple[tf.Tensor, tf.Tensor], picture: Picture, seed: tf.Tensor
) -> tf.Tensor:
    """A random part of an image, mirrored half of the time; only that part of a JPEG is decoded."""
    window = random_window(*shape, seed)
    stretched = replace(picture, resize="stretch")
    assert picture.size is not None

    def of_jpeg(ratio: int) -> tf.Tensor:
        scaled = tf.concat([window[:2] // ratio, window[2:] // ratio], 0)
        return tf.image.decode_and_crop_jpeg(
            encoded, scaled, picture.channels, ratio=ratio, dct_method="INTEGER_ACCURATE"
        )

    def of_other() -> tf.Tensor:
        y, x, height, width = tf.unstack(window)
        return _decode_at(1, encoded, picture)[y : y + height, x : x + width]

    scale = _scale(window[2], window[3], stretched)
    if picture.channels == 4:  # no JPEG has four
        pixels = of_other()
    else:
        pixels = tf.cond(_is_jpeg(encoded), lambda: _at_ratio(scale, of_jpeg), of_other)
    pixels = _fit(pixels, stretched, shrinks=scale >= 1)
    return _mirror_half(pixels, seed)


def random_window(height: tf.Tensor, width: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """(y, x, height, width) of a random part, int32."""
    draws = tf.random.stateless_uniform([4], seed)
    size = tf.cast(tf.stack([height, width]), tf.float32)
    area = CROP_AREA[0] + draws[0] * (CROP_AREA[1] - CROP_AREA[0])
    low, high = (math.log(bound) for bound in CROP_ASPECT)
    aspect = tf.exp(low + draws[1] * (high - low))
    pixels = area * size[0] * size[1]
    part = tf.round(tf.stack([tf.sqrt(pixels / aspect), tf.sqrt(pixels * aspect)]))
    part = tf.minimum(tf.maximum(part, 1.0), size)
    start = tf.minimum(tf.floor(draws[2:] * (size - part + 1.0)), size - part)
    return tf.cast(tf.concat([start, part], 0), tf.int32)


def _mirror_half(pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    return tf.cond(is_mirrored(seed), lambda: tf.reverse(pixels, [1]), lambda: pixels)


def is_mirrored(seed: tf.Tensor) -> tf.Tensor:
    """True for half of the seeds: the picture is flipped left to right."""
    return tf.random.stateless_uniform([], seed + 1) < 0.5


def _to_dtype(pixels: tf.Tensor, picture: Picture) -> tf.Tensor:
    if picture.dtype == "uint8":
        # Resized values stay within 0 to 255, so the cast never wraps around.
        return pixels if pixels.dtype == tf.uint8 else tf.cast(pixels + 0.5, tf.uint8)
    low, high = picture.value_range
    scaled = tf.cast(pixels, tf.float32) * ((high - low) / 255) + low
    return tf.cast(scaled, picture.dtype)

"""Encoded images to pixels, in TensorFlow's graph.

This corrects TensorFlow's defaults.  The fast inverse DCT is on average 0.8 grey levels darker than
the accurate one, which costs the same and gives exactly Pillow's pixels.  A plain bilinear resize
skips pixels.  A cast of floats to uint8 cuts off half a grey level.

`verify` asks for the same, to see whether TensorFlow can decode an image.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from tfrecorder.images.geometry import (
    RATIOS,
    TRIMMED,
    Picture,
    cut,
    is_mirrored,
    place,
    placement,
    ratio_of,
    trimmed,
)
from tfrecorder.loading.options import LoadOptions
from tfrecorder.reading.element_spec import picture_of

#: Pixels in another size.
Resize = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def decode(
    encoded: tf.Tensor,
    stored_shape: tf.Tensor | None,
    picture: Picture,
    drawn: tf.Tensor | None = None,
) -> tf.Tensor:
    """The pixels of one JPEG or PNG.

    Args:
        encoded: a string scalar.
        stored_shape: the image's own height and width, int32; None takes them from the bytes.
        picture: the image to make.
        drawn: by `geometry.crop_draws`, of this record, for `picture.augment`.

    Returns:
        A tensor of `picture.dtype` and `picture.shape`.
    """
    if picture.size is None or (picture.size == picture.stored_size and drawn is None):
        pixels = _decode_at(1, encoded, picture)
    elif drawn is not None:
        shape = shape_of(encoded) if stored_shape is None else stored_shape
        pixels = _random_part(encoded, shape, picture, drawn)
    else:
        pixels = _decode_to_size(encoded, stored_shape, picture)
    pixels = _to_dtype(pixels, picture)
    pixels.set_shape(picture.shape)
    return pixels


def decode_raw(
    stored: tf.Tensor,
    picture: Picture,
    drawn: tf.Tensor | None = None,
) -> tf.Tensor:
    """The pixels of an image that is stored as raw pixels.

    Args:
        stored: a string scalar; or a batch of them if the size does not change.
        picture: the image to make.
        drawn: as for `decode`.
    """
    # Without `fixed_length`, which would fill each image with zeros before copying it.
    flat = tf.io.decode_raw(stored, tf.uint8)
    batch = [-1] if stored.shape.rank else []
    pixels = tf.reshape(flat, (*batch, *picture.stored_size, picture.channels))
    if picture.size is not None and (drawn is not None or picture.size != picture.stored_size):
        where = placement(tf.constant(picture.stored_size), picture.size, picture.resize, drawn, tf)
        shrinks: bool | tf.Tensor = min(picture.scales) >= 1
        if drawn is not None:
            shrinks = tf.reduce_all(where.part >= picture.size)
        pixels = _mirrored(place(pixels, where, _resize(picture, shrinks), tf), drawn)
    pixels = _to_dtype(pixels, picture)
    if stored.shape.rank == 0:
        pixels.set_shape(picture.shape)
    return pixels


def decode_mask(
    encoded: tf.Tensor,
    picture: Picture,
    drawn: tf.Tensor | None = None,
) -> tf.Tensor:
    """The classes of an image's pixels, uint8 of [height, width, 1], placed as the image is."""
    mask = tf.io.decode_png(encoded, channels=1)
    if picture.size is not None:
        where = placement(tf.shape(mask)[:2], picture.size, picture.resize, drawn, tf)
        nearest = partial(tf.image.resize, method="nearest")
        mask = _mirrored(place(mask, where, nearest, tf), drawn)
    mask.set_shape((*picture.shape[:2], 1))
    return mask


def _decode_at(
    ratio: int,
    encoded: tf.Tensor,
    picture: Picture,
) -> tf.Tensor:
    if picture.depth == 16:
        return tf.io.decode_png(encoded, picture.channels, tf.uint16)
    # This operation reads PNG too, always in full size, whatever the ratio.
    return tf.io.decode_jpeg(
        encoded,
        channels=picture.channels,
        ratio=ratio,
        dct_method="INTEGER_ACCURATE",
    )


def _decode_to_size(
    encoded: tf.Tensor,
    stored_shape: tf.Tensor | None,
    picture: Picture,
) -> tf.Tensor:
    assert picture.size is not None
    low, high = picture.scales
    chooses = ratio_of(low) != ratio_of(high) or (low >= 1) != (high >= 1)  # at run time
    needs_shape = chooses or ratio_of(low) in TRIMMED or picture.resize == "fit"
    if needs_shape and stored_shape is None:
        stored_shape = shape_of(encoded)

    def at(ratio: int) -> tf.Tensor:
        pixels = _decode_at(ratio, encoded, picture)
        if ratio not in TRIMMED:
            return pixels
        kept = trimmed(tf.shape(pixels)[:2], stored_shape, ratio, tf)
        return pixels[: kept[0], : kept[1]]

    if chooses:
        scale = picture.scale_of(stored_shape, tf)
        pixels = _at_ratio(scale, at)
        shrinks = scale >= 1 if low < 1 else True
    else:
        pixels = at(ratio_of(low))
        shrinks = low >= 1
    # "fit" counts from the stored image, as its mask does, which is never decoded smaller.
    whole = stored_shape if picture.resize == "fit" else tf.shape(pixels)[:2]
    where = placement(whole, picture.size, picture.resize, None, tf)
    return place(pixels, where, _resize(picture, shrinks), tf)


def _at_ratio(scale: tf.Tensor, decode_at: Callable[[int], tf.Tensor]) -> tf.Tensor:
    """`decode_at(ratio_of(scale))`, chosen at run time.

    Keep the branches minimal: an operation in one of them costs time in all.
    """
    whole = tf.cast(tf.minimum(scale, RATIOS[-1]), tf.int32)
    branches = [RATIOS.index(ratio_of(number)) for number in range(RATIOS[-1] + 1)]
    index = tf.gather(tf.constant(branches), whole)
    return tf.switch_case(index, [partial(decode_at, ratio) for ratio in RATIOS])


def shape_of(encoded: tf.Tensor) -> tf.Tensor:
    """Height and width from the header of a JPEG, PNG or GIF, int32."""

    def numbers(
        at: int,
        size: int,
        kind: tf.DType,
        little_endian: bool,
    ) -> tf.Tensor:
        """(height, width) from a header that has the width first, then the height."""
        sides = tf.io.decode_raw(tf.strings.substr(encoded, at, 2 * size), kind, little_endian)
        return tf.cast(sides, tf.int32)[::-1]

    return tf.cond(
        _is_jpeg(encoded),
        lambda: tf.io.extract_jpeg_shape(encoded)[:2],
        lambda: tf.cond(
            tf.strings.substr(encoded, 0, 3) == b"GIF",
            lambda: numbers(6, 2, tf.uint16, little_endian=True),
            lambda: numbers(16, 4, tf.int32, little_endian=False),
        ),
    )


def _is_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    return tf.strings.substr(encoded, 0, 2) == b"\xff\xd8"


def _mirrored(pixels: tf.Tensor, drawn: tf.Tensor | None) -> tf.Tensor:
    if drawn is None:
        return pixels
    return tf.cond(is_mirrored(drawn), lambda: tf.reverse(pixels, [1]), lambda: pixels)


def _resize(picture: Picture, shrinks: bool | tf.Tensor) -> Resize:
    """The function that resizes to unrounded float32.

    If both axes shrink, each target pixel is the mean of its area.  This is as free of aliasing as
    the usual antialiased filter and takes a quarter of the time.  An axis that is enlarged needs
    that filter.
    """

    # The raw operations: what tf.image.resize adds around them costs 2 % of a photograph's time.
    def plain(pixels: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResizeBilinear(
            images=pixels[None],
            size=size,
            half_pixel_centers=True,
        )[0]

    def by_area(pixels: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResizeArea(images=pixels[None], size=size)[0]

    filtered = partial(tf.image.resize, antialias=True)
    if not picture.antialias:
        return plain
    if isinstance(shrinks, bool):
        return by_area if shrinks else filtered
    return lambda *args: tf.cond(shrinks, lambda: by_area(*args), lambda: filtered(*args))


def _random_part(
    encoded: tf.Tensor,
    shape: tf.Tensor,
    picture: Picture,
    drawn: tf.Tensor,
) -> tf.Tensor:
    """A random part of an image, mirrored half of the time; only that part of a JPEG is decoded."""
    assert picture.size is not None
    where = placement(shape, picture.size, picture.resize, drawn, tf)

    def of_jpeg(ratio: int) -> tf.Tensor:
        window = tf.concat([where.start // ratio, where.part // ratio], 0)
        return tf.image.decode_and_crop_jpeg(
            encoded,
            window,
            picture.channels,
            ratio=ratio,
            dct_method="INTEGER_ACCURATE",
        )

    def of_other() -> tf.Tensor:
        return cut(_decode_at(1, encoded, picture), where)

    scale = picture.scale_of(where.part, tf)
    if picture.channels == 4 or picture.depth == 16:  # no JPEG has four, or 16 bits
        pixels = of_other()
    else:
        pixels = tf.cond(_is_jpeg(encoded), lambda: _at_ratio(scale, of_jpeg), of_other)
    return _mirrored(_resize(picture, scale >= 1)(pixels, where.inner), drawn)


def _to_dtype(pixels: tf.Tensor, picture: Picture) -> tf.Tensor:
    if picture.keeps_values:
        # Resized values stay within those that are stored, so the cast never wraps around.
        same = pixels.dtype == picture.dtype
        return pixels if same else tf.cast(pixels + 0.5, picture.dtype)
    floats = tf.cast(pixels, tf.float32)
    scale = tf.constant(picture.scale)
    shift = tf.constant(picture.shift)
    if len(picture.scale) == 1:
        return tf.cast(floats * scale + shift, picture.dtype)
    # A row at a time: along a last axis of three, TensorFlow takes three times as long.
    width = tf.shape(pixels)[-2]
    lines = tf.reshape(floats, [-1, width * picture.channels])
    scaled = lines * tf.tile(scale, [width]) + tf.tile(shift, [width])
    return tf.cast(tf.reshape(scaled, tf.shape(floats)), picture.dtype)


def shape_decoder(
    image_shape: tuple[int | None, int | None, int],
) -> Callable[[bytes], tuple[int, ...]]:
    """A function that decodes an image in full size, as `load` does, and returns its shape.

    Several threads may call the function; it raises ValueError with TensorFlow's message.

    Args:
        image_shape: (height, width, channels) of every image; None where images differ.
    """
    picture = picture_of(image_shape, LoadOptions())

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def pixels_of(encoded: tf.Tensor) -> tf.Tensor:
        # Not its tf.shape: the graph may know that in advance and then decode nothing.
        return decode(encoded, None, picture)

    def shape_of(encoded: bytes) -> tuple[int, ...]:
        try:
            with tf.device("/CPU:0"):  # where tf.data decodes
                return tuple(pixels_of(tf.constant(encoded)).shape)
        except tf.errors.OpError as error:
            raise ValueError(f"TensorFlow: {error.message.splitlines()[0]}") from error

    return shape_of

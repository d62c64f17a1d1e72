"""Decoding images as training does, to see whether TensorFlow can; imported only if asked for."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfrecorder.loading.decoding import decode
from tfrecorder.loading.options import LoadOptions
from tfrecorder.reading.element_spec import picture_of


def decoder(
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

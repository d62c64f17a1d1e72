"""Masks and boxes get the same resize, crop and flip as their image, in the graph."""

from __future__ import annotations

import tensorflow as tf

from tfrecorder.images.picture import ROUNDING, Picture, is_left
from tfrecorder.loading.decoding import cut_to_shape, fitted_size, is_mirrored, random_window

Shape = tuple[tf.Tensor, tf.Tensor]


def decode_mask(encoded: tf.Tensor, picture: Picture, seed: tf.Tensor | None = None) -> tf.Tensor:
    """The classes of an image's pixels, uint8 of [height, width, 1], placed as the image is."""
    mask = tf.io.decode_png(encoded, channels=1)
    size = picture.size
    if size is not None:
        shape = tf.shape(mask)
        if picture.augment:
            assert seed is not None
            y, x, height, width = tf.unstack(random_window(shape[0], shape[1], seed))
            mask = _nearest(mask[y : y + height, x : x + width], size)
            mask = tf.cond(is_mirrored(seed), lambda: tf.reverse(mask, [1]), lambda: mask)
        elif picture.resize == "crop":
            mask = _nearest(cut_to_shape(mask, size), size)
        elif picture.resize == "pad":
            inner = fitted_size(shape[0], shape[1], size)
            before = (tf.constant(size) - inner) // 2
            after = tf.constant(size) - inner - before
            around = [[before[0], after[0]], [before[1], after[1]], [0, 0]]
            mask = tf.pad(_nearest(mask, inner), around)
        elif picture.resize == "fit":
            mask = _nearest(mask, fitted_size(shape[0], shape[1], size, enlarge=False))
        else:
            mask = _nearest(mask, size)
    mask.set_shape((*picture.shape[:2], 1))
    return mask


def decode_masks(
    encoded: tf.Tensor, shape: Shape, picture: Picture, seed: tf.Tensor | None = None
) -> tf.Tensor:
    """The masks of an image's objects, uint8 of [n, height, width], placed as the image is.

    Args:
        encoded: a PNG for each object.
        shape: the stored image's height and width, also used if there are no objects.
        picture: what the image becomes.
        seed: as for the image.
    """
    height, width = picture.shape[:2]
    pixels = tf.TensorSpec((height, width), tf.uint8)

    def all_of_them() -> tf.Tensor:
        return tf.map_fn(
            lambda one: decode_mask(one, picture, seed)[:, :, 0],
            encoded,
            fn_output_signature=pixels,
            parallel_iterations=1,
        )

    sides = tf.cast(tf.stack(picture.size or shape), tf.int32)
    none = tf.zeros(tf.concat([[0], sides], 0), tf.uint8)
    masks = tf.cond(tf.size(encoded) > 0, all_of_them, lambda: none)
    masks.set_shape((None, height, width))
    return masks


def _nearest(mask: tf.Tensor, size: tf.Tensor | tuple[int, int]) -> tf.Tensor:
    return tf.image.resize(mask, size, method="nearest")


def place_boxes(
    boxes: tf.Tensor, shape: Shape | None, picture: Picture, seed: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Boxes as fractions of the picture, and which of them are still on it.

    Args:
        boxes: float32 of [n, 4]: ymin, xmin, ymax, xmax as fractions of the stored image.
        shape: the stored image's height and width; None if its size does not change.
        picture: what the image becomes.
        seed: as for the image.

    Returns:
        The boxes that stay, cut at the edges, and for each given box a bool: whether it stays.
    """
    if picture.size is None or (picture.resize in ("stretch", "fit") and not picture.augment):
        return boxes, tf.ones(tf.shape(boxes)[:1], tf.bool)
    assert shape is not None
    height, width = (tf.cast(side, tf.float32) for side in shape)
    sides = tf.stack([height, width, height, width])
    if picture.augment:
        assert seed is not None
        window = tf.cast(random_window(shape[0], shape[1], seed), tf.float32)
        placed = (boxes * sides - tf.tile(window[:2], [2])) / tf.tile(window[2:], [2])
        mirrored = tf.stack([placed[:, 0], 1 - placed[:, 3], placed[:, 2], 1 - placed[:, 1]], 1)
        placed = tf.where(is_mirrored(seed), mirrored, placed)
    else:
        size = tf.constant(picture.size, tf.float32)
        found = tf.stack([height, width])
        choose = tf.reduce_min if picture.resize == "crop" else tf.reduce_max
        part = size * choose(found / size)
        start = (found - part) / 2
        placed = (boxes * sides - tf.tile(start, [2])) / tf.tile(part, [2])
    cut = tf.clip_by_value(placed, 0.0, 1.0)
    slack = ROUNDING * tf.reduce_sum(placed[:, 2:] - placed[:, :2], 1)
    stays = is_left(_areas(cut), _areas(placed), slack)
    return tf.boolean_mask(cut, stays), stays


def _areas(boxes: tf.Tensor) -> tf.Tensor:
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])

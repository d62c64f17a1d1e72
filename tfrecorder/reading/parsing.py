"""Serialized records to what the user gets, one by one or a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.decoding import Picture, decode
from tfrecorder.reading.options import LoadOptions
from tfrecorder.reading.typed import DTYPES, Features, typed_parser
from tfrecorder.schema import HEIGHT, NO_LABEL, WIDTH


def picture_of(stored: StoredDataset, options: LoadOptions) -> Picture:
    """What is to be made of each image."""
    height, width, channels = stored.image_shape
    return Picture(
        channels=channels,
        stored_size=(height, width),
        sides=stored.sides,
        size=options.size,
        resize=options.resize,
        antialias=options.antialias,
        augment=options.augment,
        dtype=options.dtype,
        value_range=options.low_high,
    )


def record_parser(stored: StoredDataset, options: LoadOptions) -> Callable[..., Any]:
    """The function from a serialized record, and a seed if there is one, to an element."""
    if stored.fields is not None:
        return typed_parser(stored, options, batch=False)
    spec, picture = _scalar_spec(stored, options), picture_of(stored, options)

    def parse(record: tf.Tensor, seed: tf.Tensor | None = None) -> Any:
        features = tf.io.parse_single_example(record, spec)
        if options.decode:
            encoded = features[stored.image_key]
            features[stored.image_key] = decode(
                encoded, _stored_shape(features, stored), picture, seed
            )
        return _element(features, stored, options)

    return parse


def batch_parser(stored: StoredDataset, options: LoadOptions) -> Callable[..., Any]:
    """The function from a batch of serialized records, and of seeds, to a batch of elements.

    What tf.data does for each call is done once a batch: for small images that is most of the
    work.
    """
    if stored.fields is not None:
        return typed_parser(stored, options, batch=True)
    spec, picture = _scalar_spec(stored, options), picture_of(stored, options)
    pixels = tf.TensorSpec(picture.shape, picture.dtype)

    def decode_one(of_image: Features) -> tf.Tensor:
        encoded = of_image[stored.image_key]
        return decode(encoded, _stored_shape(of_image, stored), picture, of_image.get("seed"))

    def parse(records: tf.Tensor, seeds: tf.Tensor | None = None) -> Any:
        features = tf.io.parse_example(records, spec)
        if options.decode:
            needed = (stored.image_key, HEIGHT, WIDTH)
            of_images = {key: features[key] for key in needed if key in features}
            if seeds is not None:
                of_images["seed"] = seeds
            # One after the other: batches are what runs in parallel.
            features[stored.image_key] = tf.map_fn(
                decode_one, of_images, fn_output_signature=pixels, parallel_iterations=1
            )
        return _element(features, stored, options)

    return parse


def _scalar_spec(stored: StoredDataset, options: LoadOptions) -> dict[str, tf.io.FixedLenFeature]:
    """The features to parse."""
    wanted = {stored.image_key, stored.label_key}
    if options.image_size is not None and _tells_shapes(stored):
        wanted |= {HEIGHT, WIDTH}
    if options.features:
        wanted = set(stored.features)
    return {
        key: tf.io.FixedLenFeature([], DTYPES[kind])
        for key, kind in stored.features.items()
        if key in wanted
    }


def _tells_shapes(stored: StoredDataset) -> bool:
    """Whether records hold the shape of each image; in those of others it may be that of before."""
    return stored.form == "tfrecorder" and {HEIGHT, WIDTH} <= stored.features.keys()


def _stored_shape(features: Features, stored: StoredDataset) -> tuple[tf.Tensor, tf.Tensor] | None:
    if HEIGHT not in features or not _tells_shapes(stored):
        return None
    return features[HEIGHT], features[WIDTH]


def _element(features: Features, stored: StoredDataset, options: LoadOptions) -> Any:
    if options.features:
        return features
    image = features[stored.image_key]
    label = features.get(stored.label_key) if stored.label_key else None
    if label is None:
        label = tf.fill(tf.shape(image)[: 1 if options.batch_size else 0], NO_LABEL)
    return image, tf.cast(label, tf.int64)

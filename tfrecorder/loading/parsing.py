"""From serialized records to what the user gets, one by one or a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrecorder.images.picture import Picture
from tfrecorder.loading.decoding import decode, decode_raw, shape_of
from tfrecorder.loading.faults import refused_in_words
from tfrecorder.loading.geometry import decode_mask, decode_masks, place_boxes
from tfrecorder.loading.options import LoadOptions
from tfrecorder.reading.columns import decodes, needed_keys, needs_size, picture_for, selected
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.parsing import NO_BOX, together
from tfrecorder.schema.fields import Field, primary_image
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import Boxes, Image, Label, Mask, Number

DTYPES = {"image": tf.string, "mask": tf.string, "text": tf.string, "bytes": tf.string}
DTYPES |= {"int64": tf.int64, "label": tf.int64, "bool": tf.int64, "float": tf.float32}

Features = dict[str, tf.Tensor]


def parser(stored: StoredDataset, options: LoadOptions, batch: bool) -> Callable[..., Any]:
    """The function from a serialized record, and a seed if there is one, to an element.

    Args:
        batch: the function takes a batch of records, and of seeds; elements must not hold boxes
            or lists.  tf.data's overhead per call is then paid once per batch: for small images
            that is most of the work.
    """
    pictures = {field.key: picture_for(stored, field, options) for field in stored.fields}
    images = decodes(stored, options) if options.decode else ()
    spec = _spec(stored, options)
    plain = batch and all(_needs_no_decoder(stored, pictures[one.key], one) for one in images)

    def decode_one(features: Features) -> Features:
        seed = features.get("seed")
        return {field.key: _decoded(stored, field, features, pictures, seed) for field in images}

    def decode_all(features: Features) -> Features:
        if plain:  # raw pixels of the wanted size: one operation for the whole batch
            return {
                field.key: decode_raw(features[field.encoded_key], pictures[field.key])
                for field in images
            }
        wanted = {"seed", *(key for one in images for key in needed_keys(one, stored, options))}
        needed = {key: value for key, value in features.items() if key in wanted}
        pixels = {field.key: _signature(field, pictures[field.key]) for field in images}
        # One after the other: the batches already run in parallel.
        return tf.map_fn(decode_one, needed, fn_output_signature=pixels, parallel_iterations=1)

    def parse(records: tf.Tensor, seed: tf.Tensor | None = None) -> Any:
        read = tf.io.parse_example if batch else tf.io.parse_single_example
        features = read(records, spec)
        more = {} if seed is None else {"seed": seed}
        pixels: Features = {}
        if images:
            pixels = (decode_all if batch else decode_one)({**features, **more})
        if options.features:
            return _all_features(stored, features, pixels)
        inputs, targets = selected(stored, options)

        def value(field: Field) -> Any:
            if field.key in pixels:
                return pixels[field.key]
            return _value(stored, field, features, pictures, options, seed)

        given = together(inputs, value)
        return (given, together(targets, value)) if targets else given

    return parse


def _spec(stored: StoredDataset, options: LoadOptions) -> dict[str, Any]:
    """The features to parse."""
    wanted = {one.key for one in stored.record}
    if not options.features:
        inputs, targets = selected(stored, options)
        wanted = {key for one in (*inputs, *targets) for key in needed_keys(one, stored, options)}
    return {feature.key: _form(feature) for feature in stored.record if feature.key in wanted}


def _form(feature: Feature) -> Any:
    dtype = DTYPES[feature.kind]
    if feature.shape == (None,):
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    if None in feature.shape:  # boxes, which are read one record at a time
        return tf.io.FixedLenSequenceFeature(feature.shape[1:], dtype, allow_missing=True)
    return tf.io.FixedLenFeature(feature.shape, dtype, feature.default)


def _needs_no_decoder(stored: StoredDataset, picture: Picture, field: Field) -> bool:
    same = picture.size is None or picture.size == picture.stored_size
    return stored.raw and isinstance(field.kind, Image) and same and not picture.augment


def _signature(field: Field, picture: Picture) -> tf.TensorSpec:
    if isinstance(field.kind, Mask):
        return tf.TensorSpec((*picture.shape[:2], 1), tf.uint8)
    return tf.TensorSpec(picture.shape, picture.dtype)


def _decoded(
    stored: StoredDataset,
    field: Field,
    features: Features,
    pictures: dict[str, Picture],
    seed: tf.Tensor | None,
) -> tf.Tensor:
    encoded, picture = features[field.encoded_key], pictures[field.key]
    if stored.form != "tfrecorder":
        encoded = refused_in_words(encoded, stored, field.encoded_key)
    if isinstance(field.kind, Mask):
        return decode_mask(encoded, picture, seed)
    if stored.raw:
        return decode_raw(encoded, picture, seed)
    return decode(encoded, _shape(field, features), picture, seed)


def _shape(image: Field, features: Features) -> tuple[tf.Tensor, tf.Tensor] | None:
    """The height and width of an image as the record states them, if they were parsed."""
    found = [features[key] for key in image.size_keys[:2] if key in features]
    return (found[0], found[1]) if found else None


def _value(
    stored: StoredDataset,
    field: Field,
    features: Features,
    pictures: dict[str, Picture],
    options: LoadOptions,
    seed: tf.Tensor | None,
) -> Any:
    kind = field.kind
    if isinstance(kind, (Image, Mask)):  # with decode=False
        return features[field.encoded_key]
    if isinstance(kind, Boxes):
        return _boxes(stored, field, features, pictures, options, seed)
    if field.label_key is not None:
        labels = features[field.label_key]
        return labels if isinstance(kind, Label) else _multi_hot(labels, field.num_classes or 0)
    value = features[field.key]
    return tf.cast(value, tf.bool) if isinstance(kind, Number) and kind.dtype == "bool" else value


def _multi_hot(labels: Any, classes: int) -> tf.Tensor:
    """1 for each class that is present, float32; works on a batch too."""
    if isinstance(labels, tf.RaggedTensor):
        labels = labels.to_tensor(-1)
    return tf.minimum(tf.reduce_sum(tf.one_hot(labels, classes), axis=-2), 1.0)


def _boxes(
    stored: StoredDataset,
    field: Field,
    features: Features,
    pictures: dict[str, Picture],
    options: LoadOptions,
    seed: tf.Tensor | None,
) -> Features:
    image, picture = primary_image(stored.fields), pictures[field.key]
    assert image is not None
    shape = _shape(image, features)
    if shape is None and needs_size(field, options):
        shape = shape_of(features[image.encoded_key])
    boxes, stays = place_boxes(_fractions(field, features, shape), shape, picture, seed)
    found = {"boxes": boxes}
    if field.label_key is not None:
        found["labels"] = tf.boolean_mask(features[field.label_key], stays)
    if field.masks_key is not None:
        assert shape is not None
        masks = tf.boolean_mask(features[field.masks_key], stays)
        found["masks"] = decode_masks(masks, shape, picture, seed) if options.decode else masks
    if options.max_boxes is None:
        return found
    fillers = {"labels": NO_BOX, "masks": 0 if options.decode else ""}
    return {
        name: _padded(values, options.max_boxes, fillers.get(name, 0))
        for name, values in found.items()
    }


def _fractions(
    field: Field, features: Features, shape: tuple[tf.Tensor, tf.Tensor] | None
) -> tf.Tensor:
    """Boxes as fractions of the stored image: float32 of [n, 4], ymin, xmin, ymax, xmax.

    Args:
        shape: of the image, needed for boxes in pixels.
    """
    if field.box_key is None:
        xmin, ymin, xmax, ymax = (tf.cast(features[key], tf.float32) for key in field.edges)
        boxes = tf.stack([ymin, xmin, ymax, xmax], -1)
    else:
        boxes = tf.reshape(features[field.box_key], [-1, 4])
    if field.in_pixels:
        assert shape is not None
        boxes /= tf.tile(tf.cast(tf.stack(shape), tf.float32), [2])
    return boxes


def _padded(values: tf.Tensor, count: int, filler: int | str) -> tf.Tensor:
    values = values[:count]
    after = [[0, count - tf.shape(values)[0]], *([[0, 0]] * (values.shape.rank - 1))]
    padded = tf.pad(values, after, constant_values=filler)
    padded.set_shape((count, *values.shape[1:]))
    return padded


def _all_features(stored: StoredDataset, features: Features, pixels: Features) -> Features:
    kinds = stored.features
    found = {
        key: tf.cast(value, tf.bool) if kinds[key] == "bool" else value
        for key, value in features.items()
    }
    of_images = {one.key: one.encoded_key for one in stored.fields if one.key in pixels}
    return found | {of_images[key]: value for key, value in pixels.items()}

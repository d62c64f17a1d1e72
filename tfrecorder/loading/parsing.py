"""Serialized records of a stated schema to what the user gets, one by one or a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfrecorder.loading.columns import decodes, selected
from tfrecorder.loading.decoding import Picture, decode, decode_raw
from tfrecorder.loading.geometry import decode_mask, place_boxes
from tfrecorder.loading.options import LoadOptions
from tfrecorder.schema.fields import Field, image_of, record_features
from tfrecorder.schema.keys import HEIGHT, NO_LABEL, WIDTH, Feature
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Number
from tfrecorder.stored.dataset import StoredDataset


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


DTYPES = {"image": tf.string, "mask": tf.string, "text": tf.string, "bytes": tf.string}
DTYPES |= {"int64": tf.int64, "label": tf.int64, "bool": tf.int64, "float": tf.float32}

#: What stands for the class of a box that is not there, in padded batches.
NO_BOX = -1

Features = dict[str, tf.Tensor]


def typed_parser(stored: StoredDataset, options: LoadOptions, batch: bool) -> Callable[..., Any]:
    """The function from a serialized record, or a batch of them, to an element.

    Args:
        batch: of records whose elements hold no boxes and no lists.
    """
    fields = stored.fields or ()
    pictures = {field.key: picture_for(stored, field, options) for field in fields}
    images = decodes(stored, options) if options.decode else ()
    spec = _spec(stored, options)
    plain = batch and all(_needs_no_decoder(stored, pictures[one.key], one) for one in images)

    def decode_one(features: Features) -> Features:
        seed = features.get("seed")
        return {field.key: _decoded(stored, field, features, pictures, seed) for field in images}

    def decode_all(features: Features) -> Features:
        if plain:  # raw pixels of the size wanted: one operation for the whole batch
            return {
                field.key: decode_raw(features[f"{field.key}/encoded"], pictures[field.key])
                for field in images
            }
        needed = {key: features[key] for field in images for key in _needed(field, fields, spec)}
        if "seed" in features:
            needed["seed"] = features["seed"]
        pixels = {field.key: _signature(field, pictures[field.key]) for field in images}
        return tf.map_fn(decode_one, needed, fn_output_signature=pixels, parallel_iterations=1)

    def parse(records: tf.Tensor, seed: tf.Tensor | None = None) -> Any:
        parser = tf.io.parse_example if batch else tf.io.parse_single_example
        features = parser(records, spec)
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

        return _together(inputs, value), _together(targets, value)

    return parse


def picture_for(stored: StoredDataset, field: Field, options: LoadOptions) -> Picture:
    """What is to be made of an image, or of what lies upon it."""
    fields = stored.fields or ()
    if isinstance(field.kind, Mask):
        field = image_of(field, fields)
    elif not isinstance(field.kind, Image):
        field = next((one for one in fields if isinstance(one.kind, Image)), field)
    height, width, channels = stored.shapes.get(f"{field.key}/encoded", stored.image_shape)
    first = f"{field.key}/encoded" == stored.image_key
    return Picture(
        channels=channels,
        stored_size=(height, width),
        sides=stored.sides if first else None,
        size=options.size,
        resize=options.resize,
        antialias=options.antialias,
        augment=options.augment,
        dtype=options.dtype,
        value_range=options.low_high,
    )


def _spec(stored: StoredDataset, options: LoadOptions) -> dict[str, Any]:
    """The features to parse."""
    fields = stored.fields or ()
    known = {feature.key: feature for feature in record_features(fields)}
    if options.features:
        wanted = set(known)
    else:
        inputs, targets = selected(stored, options)
        wanted = set()
        for field in (*inputs, *targets):
            wanted |= _needed(field, fields, known) or {one.key for one in field.features}
    return {key: _form(feature) for key, feature in known.items() if key in wanted}


def _needed(field: Field, fields: Sequence[Field], known: Any) -> set[str]:
    """The keys that a column's value is made of; none for those that need all of theirs."""
    if isinstance(field.kind, Image):
        keys = {f"{field.key}/{name}" for name in ("encoded", "height", "width")}
    elif isinstance(field.kind, Mask):
        keys = {f"{field.key}/encoded"}
    elif isinstance(field.kind, (Label, Labels)):
        keys = {f"{field.key}/label"}
    elif isinstance(field.kind, Boxes):
        image = next(one for one in fields if isinstance(one.kind, Image))
        sizes = {f"{image.key}/height", f"{image.key}/width"}
        keys = {*field.edges, *sizes, *([field.label_key] if field.label_key else [])}
    else:
        keys = set()
    return {key for key in keys if key in known}


def _form(feature: Feature) -> Any:
    dtype = DTYPES[feature.kind]
    if feature.shape == (None,):
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(feature.shape, dtype)


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
    encoded, picture = features[f"{field.key}/encoded"], pictures[field.key]
    if isinstance(field.kind, Mask):
        return decode_mask(encoded, picture, seed)
    if stored.raw:
        return decode_raw(encoded, picture, seed)
    shape = features[f"{field.key}/height"], features[f"{field.key}/width"]
    return decode(encoded, shape, picture, seed)


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
        return features[f"{field.key}/encoded"]
    if isinstance(kind, Label):
        return features[f"{field.key}/label"]
    if isinstance(kind, Labels):
        return _multi_hot(features[f"{field.key}/label"], field.num_classes)
    if isinstance(kind, Boxes):
        return _boxes(stored, field, features, pictures, options, seed)
    value = features[field.key]
    return tf.cast(value, tf.bool) if isinstance(kind, Number) and kind.dtype == "bool" else value


def _multi_hot(labels: Any, classes: int) -> tf.Tensor:
    """1 for each class that is there, float32; in a batch too."""
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
    xmin, ymin, xmax, ymax = (features[key] for key in field.edges)
    boxes = tf.stack([ymin, xmin, ymax, xmax], -1)
    image = next(one for one in stored.fields or () if isinstance(one.kind, Image))
    shape = features[f"{image.key}/height"], features[f"{image.key}/width"]
    boxes, stays = place_boxes(boxes, shape, pictures[field.key], seed)
    found = {"boxes": boxes}
    if field.label_key is not None:
        found["labels"] = tf.boolean_mask(features[field.label_key], stays)
    if options.max_boxes is None:
        return found
    return {
        name: _padded(values, options.max_boxes, 0 if name == "boxes" else NO_BOX)
        for name, values in found.items()
    }


def _padded(values: tf.Tensor, count: int, filler: int) -> tf.Tensor:
    values = values[:count]
    after = [[0, count - tf.shape(values)[0]], *([[0, 0]] * (values.shape.rank - 1))]
    padded = tf.pad(values, after, constant_values=filler)
    padded.set_shape((count, *values.shape[1:]))
    return padded


def _all_features(stored: StoredDataset, features: Features, pixels: Features) -> Features:
    kinds = {one.key: one.kind for one in record_features(stored.fields or ())}
    found = {
        key: tf.cast(value, tf.bool) if kinds[key] == "bool" else value
        for key, value in features.items()
    }
    return found | {f"{key}/encoded": value for key, value in pixels.items()}


def _together(fields: Sequence[Field], value: Callable[[Field], Any]) -> Any:
    """The value of one column, or a dict of those of several."""
    if len(fields) == 1:
        return value(fields[0])
    return {field.column: value(field) for field in fields}

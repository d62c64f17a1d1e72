"""Serialized records to NumPy elements, with the same keys, shapes and dtypes as in `load`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfrecorder.format.example import parse_features
from tfrecorder.images.picture import Picture
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.boxes import corners_of
from tfrecorder.reading.columns import decodes, needed_keys, needs_size, picture_for, selected
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.decoding import (
    decode,
    decode_mask,
    decode_raw,
    dtype_of,
    shape_of,
    write_pixels,
)
from tfrecorder.reading.geometry import draws, place_boxes, place_mask
from tfrecorder.schema.fields import Field, primary_image
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import Boxes, Image, Label, Mask

_NUMBERS: dict[str, type] = {"int64": np.int64, "label": np.int64, "bool": np.int64}
_NUMBERS |= {"float": np.float32}

#: The class of a missing box in padded batches.
NO_BOX = -1

#: The values of a record by key.
Values = dict[str, Any]


class Elements:
    """Makes elements from a dataset's records.

    Attributes:
        images: the images and masks that are decoded.
        pictures: what each image becomes, by the key of its column.
        seed: of `augment`.
    """

    def __init__(self, stored: StoredDataset, options: ReadOptions, seed: int) -> None:
        self._stored, self._options, self.seed = stored, options, seed
        self._dtype = dtype_of(options.dtype)
        self.images = decodes(stored, options) if options.decode else ()
        self._decoded = ("image", "mask") if options.decode else ()  # from views, not copied
        self.pictures = {one.key: picture_for(stored, one, options) for one in stored.fields}
        wanted = {one.key for one in stored.record}
        if not options.features:
            self._inputs, self._targets = selected(stored, options)
            chosen = (*self._inputs, *self._targets)
            wanted = {key for one in chosen for key in needed_keys(one, stored, options)}
        self._wanted = [feature for feature in stored.record if feature.key in wanted]
        self._keys = {feature.key for feature in self._wanted}

    def make(
        self,
        data: bytes,
        number: int,
        epoch: int,
        slots: Mapping[str, np.ndarray] | None = None,
    ) -> Any:
        """The element of one record.

        Args:
            data: the Example.
            number: of the record; together with the epoch and the seed it determines `augment`.
            epoch: from 0.
            slots: the arrays to fill for images and masks, by the key of their column; missing
                ones are created.

        Raises:
            ValueError: the record does not belong to this dataset, or an image cannot be decoded.
        """
        values = self._parse(data)
        drawn = draws(self.seed, epoch, number) if self._options.augment else None
        pixels = {
            field.key: self._pixels(field, values, drawn, (slots or {}).get(field.key))
            for field in self.images
        }
        if self._options.features:
            return {**values, **{one.encoded_key: pixels[one.key] for one in self.images}}

        def value(field: Field) -> Any:
            return pixels[field.key] if field.key in pixels else self._value(field, values, drawn)

        given = together(self._inputs, value)
        return (given, together(self._targets, value)) if self._targets else given

    def _dtype_and_shape(self, field: Field) -> tuple[np.dtype, tuple[int | None, ...]]:
        """The dtype and shape of an image's or a mask's pixels."""
        shape = self.pictures[field.key].shape
        if isinstance(field.kind, Mask):
            return np.dtype(np.uint8), (*shape[:2], 1)
        return self._dtype, shape

    def pixel_arrays(self, count: int, channels_first: bool) -> dict[str, np.ndarray]:
        """Unfilled arrays for the images and masks of a batch, by the key of their column.

        They are [count, height, width, channels], whatever their order in memory.
        """
        made = {}
        for field in self.images:
            dtype, sides = self._dtype_and_shape(field)
            height, width, channels = (side or 0 for side in sides)
            if channels_first:
                shape = (count, channels, height, width)
                made[field.key] = np.empty(shape, dtype).transpose(0, 2, 3, 1)
            else:
                made[field.key] = np.empty((count, height, width, channels), dtype)
        return made

    def mapped(self, element: Any) -> Any:
        """An element after `map_fn`."""
        function = self._options.map_fn
        if function is None:
            return element
        return function(*element) if isinstance(element, tuple) else function(element)

    def _parse(self, data: bytes) -> Values:
        found = parse_features(data, self._keys, memoryview)
        return {one.key: self._typed(one, found.get(one.key, [])) for one in self._wanted}

    def _typed(self, feature: Feature, found: Any) -> Any:
        """The values of a feature as TensorFlow parses them."""
        number = _NUMBERS.get(feature.kind)
        if isinstance(found, list) and number is not None:
            if found:
                raise ValueError(f"its feature {feature.key!r} holds bytes, not numbers")
            found = np.zeros(0, number)
        elif isinstance(found, np.ndarray) and found.dtype != number:
            raise ValueError(f"its feature {feature.key!r} holds {found.dtype}, not {feature.kind}")
        if not len(found) and feature.default is not None:
            return number(feature.default) if number else feature.default
        if isinstance(found, list) and (feature.kind not in self._decoded or feature.shape != ()):
            found = [bytes(view) for view in found]
        if isinstance(found, list) and feature.shape != ():
            found = np.array(found, object)
        if feature.kind == "bool":
            found = found.astype(bool)
        if None in feature.shape:
            return found.reshape(-1, *feature.shape[1:])
        count = math.prod(side or 0 for side in feature.shape)
        if len(found) != count:
            raise ValueError(f"its feature {feature.key!r} has {len(found)} values, not {count}")
        return found[0] if feature.shape == () else found.reshape(feature.shape)

    def _pixels(
        self, field: Field, values: Values, drawn: np.ndarray | None, slot: np.ndarray | None
    ) -> np.ndarray:
        picture, data = self.pictures[field.key], values[field.encoded_key]
        if isinstance(field.kind, Mask):
            pixels = place_mask(decode_mask(data), picture, drawn)[:, :, None]
        elif self._stored.raw:
            pixels = decode_raw(data, picture, drawn)
        else:
            pixels = decode(data, picture, drawn)
        if slot is None:
            slot = np.empty(pixels.shape, self._dtype_and_shape(field)[0])
        elif slot.shape != pixels.shape:
            raise ValueError(f"its image has the shape {pixels.shape}, its batch {slot.shape}")
        if isinstance(field.kind, Mask):
            slot[...] = pixels
        else:
            write_pixels(pixels, picture, slot)
        return slot

    def _value(self, field: Field, values: Values, drawn: np.ndarray | None) -> Any:
        kind = field.kind
        if isinstance(kind, (Image, Mask)):  # with decode=False
            return values[field.encoded_key]
        if isinstance(kind, Boxes):
            return self._boxes(field, values, drawn)
        if field.label_key is not None:
            labels = values[field.label_key]
            return labels if isinstance(kind, Label) else _multi_hot(labels, field.num_classes or 0)
        return values[field.key]

    def _boxes(self, field: Field, values: Values, drawn: np.ndarray | None) -> Values:
        image, picture = primary_image(self._stored.fields), self.pictures[field.key]
        assert image is not None
        shape = _shape(image, values)
        if shape is None and needs_size(field, self._options):
            shape = shape_of(values[image.encoded_key])
        boxes, stays = place_boxes(corners_of(field, values, shape), shape, picture, drawn)
        found = {"boxes": boxes}
        if field.label_key is not None:
            found["labels"] = values[field.label_key][stays]
        if field.masks_key is not None:
            masks = values[field.masks_key][stays]
            decoded = self._options.decode
            found["masks"] = _masks(masks, shape, picture, drawn) if decoded else masks
        most = self._options.max_boxes
        if most is None:
            return found
        fillers: dict[str, Any] = {"labels": NO_BOX, "masks": 0 if self._options.decode else b""}
        return {name: _padded(some, most, fillers.get(name, 0)) for name, some in found.items()}


def _shape(image: Field, values: Values) -> tuple[int, int] | None:
    """The height and width of an image as the record states them, if they were parsed."""
    found = [int(values[key]) for key in image.size_keys[:2] if key in values]
    return (found[0], found[1]) if found else None


def _multi_hot(labels: np.ndarray, classes: int) -> np.ndarray:
    """1 for each class that is present, float32."""
    hot = np.zeros(classes, np.float32)
    hot[labels[(labels >= 0) & (labels < classes)]] = 1
    return hot


def _masks(
    encoded: np.ndarray, shape: tuple[int, int] | None, picture: Picture, drawn: np.ndarray | None
) -> np.ndarray:
    """The masks of an image's objects, uint8 of [n, height, width], placed as the image is."""
    if not len(encoded):
        return np.zeros((0, *(picture.size or shape or (0, 0))), np.uint8)
    return np.stack([place_mask(decode_mask(one), picture, drawn) for one in encoded])


def _padded(values: np.ndarray, count: int, filler: Any) -> np.ndarray:
    padded = np.full((count, *values.shape[1:]), filler, values.dtype)
    padded[: len(values)] = values[:count]
    return padded


def together(fields: Sequence[Field], value: Callable[[Field], Any]) -> Any:
    """The value of one column, or a dict of the values of several."""
    if len(fields) == 1:
        return value(fields[0])
    return {field.column: value(field) for field in fields}

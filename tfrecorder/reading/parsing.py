"""Serialized records to NumPy elements, with the same keys, shapes and dtypes as in `load`."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tfrecorder.core.threads import UnwantedError, is_unwanted
from tfrecorder.errors import OptionError
from tfrecorder.format import example
from tfrecorder.format.example import find_features, find_only
from tfrecorder.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, data_of
from tfrecorder.images.geometry import Picture
from tfrecorder.images.pixels import Encoded, Shape, shape_of
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.collate import Memory, collate, with_mask
from tfrecorder.reading.decoding import (
    decode,
    decode_mask,
    decode_raw,
    dtype_of,
    write_pixels,
)
from tfrecorder.reading.element_spec import NUMBERS, Engine, Values, spec_of
from tfrecorder.reading.misfits import expected_of
from tfrecorder.reading.order import choices, draws
from tfrecorder.reading.raw_records import RawRecords
from tfrecorder.reading.record_set import RecordSet
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import Mask, Text


class Elements:
    """Makes elements from records.

    Attributes:
        spec: what they hold.
        seed: of `augment` and `choose`.
        chosen: the keys of lists of texts, of each of which one text is drawn.
    """

    def __init__(
        self,
        records: RecordSet,
        options: ReadOptions,
        seed: int,
        layout: str = "NHWC",
        choose: str | None = None,
    ) -> None:
        stored = records.stored
        self._records = records
        self.spec = spec_of(stored, options)
        self.seed = seed
        of_images = (field for field in stored.fields if not field.of_boxes)
        texts = {field.key for field in of_images if isinstance(field.kind, Text)}
        self.chosen = self.spec.ragged & texts if choose else frozenset()
        if choose and not self.chosen:
            raise OptionError.of(
                "choose",
                choose,
                f"no column that is read from {stored.directory} holds lists of texts; leave "
                "it out.",
            )
        self._channels_first = layout == "NCHW"
        self._is_ours = stored.form == "tfrecorder"
        self._parsed = self.spec.parsed
        if not (options.is_whole or self.spec.has_boxes):  # images are decoded by their own size
            others = [field for field in self.spec.columns if field not in self.spec.decoded]
            wanted = {feature.key for field in others for feature in field.features}
            sizes = {key for field in self.spec.decoded for key in field.size_keys} - wanted
            self._parsed = tuple(item for item in self.spec.parsed if item.key not in sizes)
        self._expected = expected_of(stored, self.spec)
        self._keys = {feature.key.encode(): feature.key for feature in self._parsed}
        if self._expected is not None and self._expected.absent is None:
            self._keys = _EveryKey()
        elif self._expected is not None:
            self._keys |= {key.encode(): key for key in self._expected.absent or ()}
        self._viewed = ("image", "mask") if options.decode else ()  # decoded from views, not copied
        dtype_of(options.dtype)  # or its error, before anything is read
        self._raw = self._raw_records()

    def _raw_records(self) -> RawRecords | None:
        """How raw pixels are read into a batch without parsing each record; None where not."""
        spec = self.spec
        options = spec.options
        image = spec.image
        if image is None or spec.decoded != (image,) or not spec.is_raw or self._expected:
            return None
        if not hasattr(os, "preadv"):  # macOS before 11
            return None
        sides, dtype = spec.pixels_of(image)
        is_resized = spec.pictures[image.key].size not in (
            None,
            self._records.stored.image_shape[:2],
        )
        is_changed = options.map_fn or options.augment or options.is_whole or self._channels_first
        features = [item for item in self._parsed if item.key != image.encoded_key]
        are_single = all(item.shape == () for item in features)
        if is_resized or is_changed or spec.class_maps or not are_single or dtype != "uint8":
            return None
        count = math.prod(side or 0 for side in sides)
        return RawRecords(image.encoded_key, count, features, self._only)

    def rows(
        self,
        reader: Any,
        numbers: Sequence[int],
        epoch: int,
        pixels: Mapping[str, np.ndarray],
        begin: int,
    ) -> list[Any]:
        """What `batch` takes: of each record its element, or a list of the values of raw pixels.

        Arguments and errors are those of `read`.
        """
        if self._raw is None or not reader.is_local:
            return self.read(reader, numbers, epoch, pixels, begin)
        slots = pixels[self.spec.decoded[0].key][begin:]
        rows = []
        for at, number in enumerate(numbers):
            if at % 16 == 0 and is_unwanted():
                raise UnwantedError
            file, offset, size = reader.opened(number)
            row = self._raw.read(file, offset, size, slots[at])
            if row is None:
                (row,) = reader.read([number], partial(self._row, number, slots[at]))
            rows.append(row)
        return rows

    def _row(
        self,
        number: int,
        slot: np.ndarray,
        framed: bytes,
        _: int,
    ) -> list[Any]:
        """As `RawRecords.read`, of a record that has to be parsed."""
        assert self._raw is not None
        values = self._parse(framed, number)
        self._pixels(self.spec.decoded[0], values, None, slot)
        return [values[feature.key] for feature in self._raw.features]

    def batch(
        self,
        rows: Sequence[Any],
        pixels: Mapping[str, np.ndarray],
        mask: np.ndarray | None,
    ) -> Any:
        """A batch of the `rows` of all its records; otherwise as `collate`."""
        if self._raw is None or not isinstance(rows[0], list):
            return collate(rows, pixels, mask)
        values = {}
        for feature, column in zip(self._raw.features, zip(*rows, strict=True), strict=True):
            dtype = "bool" if feature.kind == "bool" else NUMBERS.get(feature.kind, "object")
            values[feature.key] = np.array(column, dtype)
        return with_mask(self.spec.element(values, dict(pixels), None, None, NUMPY), mask)

    def read(
        self,
        reader: Any,
        numbers: Sequence[int],
        epochs: Any,
        pixels: Mapping[str, np.ndarray] = MappingProxyType({}),
        begin: int = 0,
    ) -> list[Any]:
        """The elements of some records, after `map_fn`.

        Args:
            reader: a `RecordReader`, or what reads as it does.
            numbers: of the records.
            epochs: for `augment` and `choose`, from 0: an integer for all records or one for each.
            pixels: the `arrays` of a batch, to be filled from `begin` on; without them each image
                gets an array of its own.
            begin: the place of the first of these records in the batch.

        Raises:
            DatasetError: a record is damaged, does not belong to this dataset, or has an image that
                cannot be decoded; the message names the file and the byte.
        """
        options = self.spec.options
        drawn = [None] * len(numbers)
        members: Any = itertools.repeat(None)
        picks = choices(self.seed, epochs, numbers) if self.chosen else np.zeros(0)
        if options.augment:
            drawn = list(draws(self.seed, epochs, numbers))
        if self.spec.class_maps:
            members = self._records.members_of(np.array(numbers))
        beside = list(zip(drawn, members, strict=False))
        axes = (0, 2, 3, 1) if self._channels_first else (0, 1, 2, 3)
        images = {key: array.transpose(axes) for key, array in pixels.items()}

        def make(framed: bytes, place: int) -> Any:
            if is_unwanted():
                raise UnwantedError
            values = self._parse(framed, numbers[place])
            drawn, member = beside[place]
            for key in self.chosen:
                texts = values[key]
                pick = int(picks[place] * len(texts))
                values[key] = texts[pick] if len(texts) else b""
            filled = {}
            for field in self.spec.decoded:
                slot = images[field.key][begin + place] if images else None
                filled[field.key] = self._pixels(field, values, drawn, slot)
            return self.spec.element(values, filled, drawn, member, NUMPY)

        def make_expected(framed: bytes, place: int) -> Any:
            try:
                return make(framed, place)
            except ValueError:
                self._refuse_misfit(framed, numbers[place])
                raise

        elements = reader.read(numbers, make_expected if self._expected else make)
        function = options.map_fn
        if function is None:
            return elements
        return [
            function(*element) if isinstance(element, tuple) else function(element)
            for element in elements
        ]

    def arrays(
        self,
        count: int,
        memory: Memory,
    ) -> dict[str, np.ndarray]:
        """Unfilled arrays for the images and masks of a batch, by the key of their column.

        There are none with `map_fn`, as only what it returns is put together.
        """
        made = {}
        for field in self.spec.decoded if self.spec.options.map_fn is None else ():
            sides, dtype = self.spec.pixels_of(field)
            height, width, channels = (side or 0 for side in sides)
            shape = (channels, height, width) if self._channels_first else (height, width, channels)
            made[field.key] = memory.empty((count, *shape), dtype_of(dtype))
        return made

    def _refuse_misfit(self, framed: bytes, number: int) -> None:
        """Raise an error for a sound record of another tool that is not as expected."""
        assert self._expected is not None
        chosen = self._records.chosen
        number = number if chosen is None else int(chosen[number])
        self._expected.refuse(data_of(framed), self._records.split, number)

    def _parse(self, framed: bytes, number: int) -> Values:
        end = len(framed) - FOOTER_BYTES
        places = find_features(framed, HEADER_BYTES, end, self._keys, self._is_ours)
        parsed = {}
        if places is None:
            plain = data_of(framed)
            places = {}
            keys = None if isinstance(self._keys, _EveryKey) else self._keys.values()
            parsed = example.parse_features(plain, keys, memoryview)
        if self._expected and not self._expected.is_expected(places or parsed):
            self._refuse_misfit(framed, number)
        values = {}
        for feature in self._parsed:
            key = feature.key
            if place := places.get(key):
                if (value := self._only(feature, framed, *place)) is not None:
                    values[key] = value
                    continue
                try:
                    feature_bytes = memoryview(framed)[slice(*place)]
                    parsed[key] = example.parse_feature(feature_bytes, memoryview)
                except IndexError as error:
                    raise ValueError(f"its feature {key!r} ends too early") from error
            values[key] = self._typed(feature, parsed.get(key, []))
        return values

    def _only(
        self,
        feature: Feature,
        framed: bytes,
        at: int,
        end: int,
    ) -> Any:
        """What `_typed` makes of a feature with one value, quicker; None if it is none of these."""
        value = find_only(framed, at, end) if feature.shape == () else None
        if isinstance(value, slice) and feature.kind not in NUMBERS:
            return (memoryview(framed) if feature.kind in self._viewed else framed)[value]
        if isinstance(value, int) and NUMBERS.get(feature.kind) == "int64":
            return np.bool_(value) if feature.kind == "bool" else np.int64(value)
        return None

    def _typed(
        self,
        feature: Feature,
        values: Any,
    ) -> Any:
        """The values of a feature as TensorFlow parses them."""
        number = np.dtype(NUMBERS[feature.kind]).type if feature.kind in NUMBERS else None
        if isinstance(values, list) and number is not None:
            if values:
                raise ValueError(f"its feature {feature.key!r} holds bytes, not numbers")
            values = np.zeros(0, number)
        elif isinstance(values, np.ndarray) and values.dtype != number:
            raise ValueError(
                f"its feature {feature.key!r} holds {values.dtype}, not {feature.kind}"
            )
        if not len(values) and feature.default is not None:
            return number(feature.default) if number else feature.default
        if isinstance(values, list) and (feature.kind not in self._viewed or feature.shape != ()):
            values = [bytes(view) for view in values]
        if isinstance(values, list) and feature.shape != ():
            values = np.array(values, object)
        if feature.kind == "bool":
            values = values.astype(bool)
        if None in feature.shape:
            return values.reshape(-1, *feature.shape[1:])
        count = math.prod(side or 0 for side in feature.shape)
        if len(values) != count:
            raise ValueError(f"its feature {feature.key!r} has {len(values)} values, not {count}")
        return values[0] if feature.shape == () else values.reshape(feature.shape)

    def _pixels(
        self,
        field: Field,
        values: Values,
        drawn: np.ndarray | None,
        slot: np.ndarray | None,
    ) -> np.ndarray:
        picture = self.spec.pictures[field.key]
        data = values[field.encoded_key]
        if isinstance(field.kind, Mask):
            pixels = decode_mask(data, picture, drawn)
        else:
            pixels = (decode_raw if self.spec.is_raw else decode)(data, picture, drawn)
        if slot is None:
            slot = np.empty(pixels.shape, dtype_of(self.spec.pixels_of(field)[1]))
        elif slot.shape != pixels.shape:
            raise ValueError(f"its image has the shape {pixels.shape}, its batch {slot.shape}")
        if isinstance(field.kind, Mask):
            slot[...] = pixels
        else:
            write_pixels(pixels, picture, slot)
        return slot


class _EveryKey(dict[bytes, str]):
    """Every key of a record is wanted."""

    def get(self, key: bytes, default: Any = None) -> str:
        return key.decode()


class NumPyEngine(Engine):
    """Arrays of NumPy."""

    xp = np

    def multi_hot(
        self,
        labels: np.ndarray,
        classes: int,
    ) -> np.ndarray:
        hot = np.zeros(classes, np.float32)
        hot[labels[(labels >= 0) & (labels < classes)]] = 1
        return hot

    def padded(
        self,
        values: np.ndarray,
        count: int,
        filler: Any,
    ) -> np.ndarray:
        padded = np.full((count, *values.shape[1:]), filler, values.dtype)
        padded[: len(values)] = values[:count]
        return padded

    def shape_of(self, encoded: Encoded) -> Shape:
        return shape_of(encoded)

    def decode_masks(
        self,
        encoded: np.ndarray,
        shape: np.ndarray,
        picture: Picture,
        drawn: np.ndarray | None,
    ) -> np.ndarray:
        if not len(encoded):
            return np.zeros((0, *(picture.size or map(int, shape))), np.uint8)
        return np.stack([decode_mask(mask, picture, drawn)[:, :, 0] for mask in encoded])

    def take(
        self,
        values: np.ndarray,
        places: Any,
    ) -> Any:
        return np.take(values, places)


NUMPY = NumPyEngine()

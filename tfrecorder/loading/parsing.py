"""From serialized records to what the user gets, one by one or a batch at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from tfrecorder.format.example import parse_example
from tfrecorder.format.tfrecord import FRAMING_BYTES
from tfrecorder.images.check import check_image
from tfrecorder.images.geometry import Picture
from tfrecorder.images.header import Reject
from tfrecorder.loading.decoding import decode, decode_mask, decode_raw, shape_of
from tfrecorder.loading.fitting import Fitting
from tfrecorder.loading.python_side import PythonSide
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import records_in
from tfrecorder.reading.element_spec import (
    NUMBERS,
    ElementSpec,
    Engine,
    Values,
    needed_keys,
    stated_shape,
)
from tfrecorder.reading.misfits import expected_of
from tfrecorder.reading.record_bytes import unreadable_record
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import Feature
from tfrecorder.schema.kinds import Image, Mask

#: How a JPEG and a PNG begin and, within so many bytes of their end, end; how others begin.
_WHOLE = ((b"\xff\xd8", b"\xff\xd9"), (b"\x89P", b"IEND"))
_TAIL = 1024
_OTHERS = (b"GI", b"BM", b"RI")

#: What TensorFlow does not decode either.
_CODES = ("empty", "not_an_image", "truncated", "damaged")


def refused_in_words(
    encoded: tf.Tensor,
    stored: StoredDataset,
    key: str,
    side: PythonSide,
) -> tf.Tensor:
    """An encoded image; with an error that names its file, if it cannot be decoded.

    What `convert` wrote always decodes.  Images of other tools may not, and TensorFlow's own error
    does not say in which file they are.  TensorFlow has no `try` in its graph, so only what has no
    usual beginning or no end is checked, in Python.
    """

    def words_of(data: bytes) -> str:
        try:
            check_image(data, max_pixels=2**62)
        except Reject as fault:
            return _words(stored, key, data, fault) if fault.code in _CODES else ""
        return ""

    head = tf.strings.substr(encoded, 0, 2)
    before_tail = tf.maximum(tf.strings.length(encoded) - _TAIL, 0)
    tail = tf.strings.substr(encoded, before_tail, _TAIL)
    whole = [head == other for other in _OTHERS]
    for beginning, end in _WHOLE:
        has_end = tf.size(tf.strings.split(tail, end)) > 1
        whole.append((head == beginning) & has_end)
    return side.refuse_unless(tf.reduce_any(whole), words_of, [encoded], encoded)


def _words(
    stored: StoredDataset,
    key: str,
    image: bytes,
    fault: Reject,
) -> str:
    """The error for an image, which is looked for in all files."""
    for shard in itertools.chain.from_iterable(stored.splits.values()):
        offset = 0
        for data in records_in(shard):
            if image in parse_example(data).get(key, ()):
                return str(unreadable_record(shard, offset, fault, stored.form))
            offset += len(data) + FRAMING_BYTES
    return f"{stored.directory}: {key}: {fault}"


def parser(
    spec: ElementSpec,
    stored: StoredDataset,
    split: str,
    side: PythonSide,
    batch: bool,
) -> Callable[..., Any]:
    """The function from a serialized record, and what is known of it beside, to an element.

    Beside a record may be known what is "drawn" for it, and of which "member" of several datasets
    it is.

    Args:
        spec: what an element holds.
        stored: the dataset.
        split: the one that is read.
        side: of the dataset of tf.data, in Python.
        batch: the function takes a batch of records, and of draws; elements must not hold boxes
            or lists.  tf.data's overhead per call is then paid once per batch: for small images
            that is most of the work.
    """
    forms = {feature.key: _form(feature) for feature in spec.parsed}
    expected = expected_of(stored, spec) if stored.looked else None
    fitting = Fitting(expected, split, side, batch) if expected else None
    if fitting:
        forms |= fitting.forms
    bools = [feature.key for feature in spec.parsed if feature.kind == "bool"]
    plain = batch and all(_needs_no_decoder(spec, field) for field in spec.decoded)

    def decode_one(values: Values) -> Values:
        return {field.key: _decoded(spec, stored, side, field, values) for field in spec.decoded}

    def decode_all(values: Values) -> Values:
        if plain:  # raw pixels of the wanted size: one operation for the whole batch
            return {
                field.key: decode_raw(values[field.encoded_key], spec.pictures[field.key])
                for field in spec.decoded
            }
        wanted = {"drawn"}
        for field in spec.decoded:
            wanted.update(needed_keys(field, spec.pictures[field.key], spec.image))
        needed = {key: value for key, value in values.items() if key in wanted}
        pixels = {field.key: tf.TensorSpec(*spec.pixels_of(field)) for field in spec.decoded}
        # One after the other: the batches already run in parallel.
        return tf.map_fn(decode_one, needed, fn_output_signature=pixels, parallel_iterations=1)

    def parse(records: tf.Tensor, beside: Mapping[str, tf.Tensor] = MappingProxyType({})) -> Any:
        drawn = beside.get("drawn")
        read = tf.io.parse_example if batch else tf.io.parse_single_example
        values = read(fitting.known(records) if fitting else records, forms)
        if fitting:
            values = fitting.counted(values)
        values |= {key: tf.cast(values[key], tf.bool) for key in bools}
        pixels = {}
        if spec.decoded:
            known = values if drawn is None else {**values, "drawn": drawn}
            pixels = (decode_all if batch else decode_one)(known)
        return spec.element(values, pixels, drawn, beside.get("member"), GRAPH)

    return parse


def _form(feature: Feature) -> Any:
    dtype = tf.as_dtype(NUMBERS.get(feature.kind, "string"))
    if feature.shape == (None,):
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    if None in feature.shape:  # boxes, which are read one record at a time
        return tf.io.FixedLenSequenceFeature(feature.shape[1:], dtype, allow_missing=True)
    return tf.io.FixedLenFeature(feature.shape, dtype, feature.default)


def _needs_no_decoder(spec: ElementSpec, field: Field) -> bool:
    picture = spec.pictures[field.key]
    same = picture.size is None or picture.size == picture.stored_size
    return spec.is_raw and isinstance(field.kind, Image) and same and not picture.augment


def _decoded(
    spec: ElementSpec,
    stored: StoredDataset,
    side: PythonSide,
    field: Field,
    values: Values,
) -> tf.Tensor:
    encoded = values[field.encoded_key]
    picture = spec.pictures[field.key]
    drawn = values.get("drawn")
    if stored.form != "tfrecorder":
        encoded = refused_in_words(encoded, stored, field.encoded_key, side)
    if isinstance(field.kind, Mask):
        return decode_mask(encoded, picture, drawn)
    if spec.is_raw:
        return decode_raw(encoded, picture, drawn)
    return decode(encoded, stated_shape(field, values, tf), picture, drawn)


class GraphEngine(Engine):
    """Tensors of a TensorFlow graph."""

    xp = tf

    def multi_hot(
        self,
        labels: Any,
        classes: int,
    ) -> tf.Tensor:
        """Works on a batch too."""
        if isinstance(labels, tf.RaggedTensor):
            labels = labels.to_tensor(-1)
        return tf.minimum(tf.reduce_sum(tf.one_hot(labels, classes), axis=-2), 1.0)

    def padded(
        self,
        values: tf.Tensor,
        count: int,
        filler: Any,
    ) -> tf.Tensor:
        values = values[:count]
        missing = count - tf.shape(values)[0]
        after = [[0, missing]] + [[0, 0]] * (values.shape.rank - 1)
        padded = tf.pad(values, after, constant_values=filler)
        padded.set_shape((count, *values.shape[1:]))
        return padded

    def shape_of(self, encoded: tf.Tensor) -> tf.Tensor:
        return shape_of(encoded)

    def decode_masks(
        self,
        encoded: tf.Tensor,
        shape: tf.Tensor,
        picture: Picture,
        drawn: tf.Tensor | None,
    ) -> tf.Tensor:
        height, width = picture.shape[:2]
        pixels = tf.TensorSpec((height, width), tf.uint8)

        def all_of_them() -> tf.Tensor:
            return tf.map_fn(
                lambda mask: decode_mask(mask, picture, drawn)[:, :, 0],
                encoded,
                fn_output_signature=pixels,
                parallel_iterations=1,
            )

        sides = shape if picture.size is None else picture.size
        none = tf.zeros(tf.concat([[0], sides], 0), tf.uint8)
        masks = tf.cond(tf.size(encoded) > 0, all_of_them, lambda: none)
        masks.set_shape((None, height, width))
        return masks

    def take(
        self,
        values: tf.Tensor,
        places: tf.Tensor,
    ) -> tf.Tensor:
        return tf.gather(values, places)


GRAPH = GraphEngine()

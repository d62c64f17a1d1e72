"""Whether records of other tools are as the first ones were, asked in TensorFlow's graph.

Its own errors name no file.  Where images are read, Python is called only for a record that is not
as expected, to look for the first such one and to say so in words.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tfrecorder.errors import DatasetError
from tfrecorder.loading.python_side import PythonSide
from tfrecorder.reading.element_spec import NUMBERS, Values
from tfrecorder.reading.misfits import KINDS_STORED, Expected
from tfrecorder.schema.keys import Feature

#: What values a tf.train.Feature may have.
_TYPES = ("bytes", "float", "int64")


class Fitting:
    """The check of the records of a split.

    Args:
        expected: what each must hold.
        split: its name.
        side: of the dataset of tf.data, in Python.
        batch: batches of records are parsed.

    Attributes:
        forms: how features must be parsed in place of `FixedLenFeature`, by key.
    """

    def __init__(
        self,
        expected: Expected,
        split: str,
        side: PythonSide,
        batch: bool,
    ) -> None:
        self._expected = expected
        self._split = split
        self._side = side
        self._batch = batch
        self._single = [feature for feature in expected.features if None not in feature.shape]
        kinds = {feature.key: feature.kind for feature in self._single}
        of_all = {feature.key: feature.kind for feature in expected.features}
        of_all |= expected.absent or {}
        self._types = {key: KINDS_STORED.get(kind, "bytes") for key, kind in of_all.items()}
        self.forms = {}
        for key, kind in {**kinds, **(expected.absent or {})}.items():
            dtype = NUMBERS.get(kind, "string")
            self.forms[key] = tf.io.RaggedFeature(tf.as_dtype(dtype), row_splits_dtype=tf.int64)

    def known(self, records: tf.Tensor) -> tf.Tensor:
        """Records, once it is certain that TensorFlow can parse them and leaves nothing out."""
        if self._expected.absent is not None:
            are_known = self._have_types(records)
        else:
            are_known = self._side.call(self._are_known, [records], tf.bool)
        return self._side.refuse_unless(are_known, self._words, [], records)

    def _have_types(self, records: tf.Tensor) -> tf.Tensor:
        """Whether no key that is parsed holds values of another type; 15 us a record."""
        (features,) = _parts(records, "Example", "features")
        (entries,) = _parts(features, "Features", "feature")
        keys, values = _parts(entries, "Features.FeatureEntry", "key", "value")
        lists = _parts(values, "Feature", *(f"{kind}_list" for kind in _TYPES))
        fits = []
        for kind, held in zip(_TYPES, lists, strict=True):
            others = [key for key, own in self._types.items() if own != kind]
            is_other = tf.reduce_any(keys[..., None] == tf.constant(others, tf.string), -1)
            fits.append(~tf.reduce_any(is_other & tf.reduce_any(held != "", -1)))
        return tf.reduce_all(tf.stack(fits))

    def _are_known(self, records: Any) -> bool:
        try:
            for data in [records] if isinstance(records, bytes) else records:
                self._expected.values(data, "", 0)
        except DatasetError:
            return False
        return True

    def counted(self, values: Values) -> Values:
        """Parsed values, once it is certain that there are as many as there must be."""
        absent = [values[key] for key in self._expected.absent or ()]
        flat = [value.flat_values if self._batch else value for value in absent]
        fits = [tf.add_n(list(map(tf.size, flat))) == 0] if flat else []
        for feature in self._single:
            value = values[feature.key]
            counts = value.row_lengths() if self._batch else tf.size(value)
            count = math.prod(feature.shape)  # type: ignore[arg-type]
            is_right = counts == tf.cast(count, counts.dtype)
            if feature.default is not None:
                is_right |= counts == 0
            fits.append(tf.reduce_all(is_right))
        sizes = [tf.size(values[key]) for key in self._expected.alike]  # none in a batch
        fits += [size == sizes[0] for size in sizes[1:]]
        wanted = {feature.key: values[feature.key] for feature in self._expected.features}
        if fits:
            all_fit = tf.reduce_all(tf.stack(fits))
            wanted = self._side.refuse_unless(all_fit, self._words, [], wanted)
        return wanted | {
            feature.key: self._fixed(feature, wanted[feature.key]) for feature in self._single
        }

    def _fixed(self, feature: Feature, value: Any) -> tf.Tensor:
        """The values of a feature as `FixedLenFeature` gives them."""
        flat = value.flat_values if self._batch else value
        if feature.default is not None:
            default = tf.constant(feature.default, value.dtype)
            if self._batch:
                flat = value.to_tensor(default, shape=[None, 1])
            else:
                flat = tf.concat([value, [default]], 0)[:1]
        return tf.reshape(flat, [-1, *feature.shape] if self._batch else feature.shape)

    def _words(self) -> str:
        try:
            self._expected.refuse_first(self._split)
        except DatasetError as error:
            return str(error)
        return "a file was changed while it was read; load it again"


def _parts(messages: tf.Tensor, kind: str, *names: str) -> list[tf.Tensor]:
    """Fields of TensorFlow's messages, all that there are of each, as they are stored."""
    types = [tf.string] * len(names)
    return tf.io.decode_proto(messages, f"tensorflow.{kind}", names, types).values

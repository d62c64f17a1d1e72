"""Whether the shards that TensorFlow reads are those that were opened, asked in its graph.

Python is called only if the dataset has changed since.  A call for every shard would hang a script
that ends while threads of TensorFlow read: at its exit they wait for the interpreter for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import tensorflow as tf

from tfrecorder.format import layout
from tfrecorder.reading.changed_shards import change_of
from tfrecorder.reading.dataset import ShardFile


class OpenedShards:
    """Shards of a dataset as they were when it was opened.

    Args:
        directory: of the dataset.
        shards: those that are read.
    """

    def __init__(self, directory: str, shards: Iterable[ShardFile]) -> None:
        self._commit = os.path.join(directory, layout.COMMIT)
        self.by_path = {shard.path: shard for shard in shards}

    def checked(
        self, path: tf.Tensor, records: tf.data.Dataset, note: tf.Tensor | str
    ) -> tf.data.Dataset:
        """The records of a shard; iterating fails if it is not the one that was opened.

        Args:
            note: the commit note of the dataset when it was opened.
        """
        pattern = tf.strings.join(['(?s).*"', note, '".*'])

        def is_noted(commit: tf.Tensor) -> tf.Tensor:
            return tf.strings.regex_full_match(tf.io.read_file(commit), pattern)

        def none(is_ended: bool) -> tf.data.Dataset:
            noted = tf.data.Dataset.from_tensors(self._commit).map(is_noted).ignore_errors()
            one = noted.concatenate(tf.data.Dataset.from_tensors(False)).take(1)

            def asked() -> tf.Tensor:
                told = tf.numpy_function(self._refuse_changed, [path, is_ended], tf.bool)
                return tf.ensure_shape(told, [])

            return one.filter(lambda same: tf.cond(same, lambda: False, asked)).map(lambda _: "")

        return none(False).concatenate(records).concatenate(none(True))

    def _refuse_changed(self, path: bytes, is_ended: bool) -> bool:
        change = change_of(self.by_path[path.decode()], may_be_gone=bool(is_ended))
        if change is not None:
            raise change
        return False

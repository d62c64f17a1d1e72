"""Whether the shards that TensorFlow reads are those that were opened, asked in its graph.

Python is called only if the dataset has changed since.  A call for every shard would hang a script
that ends while threads of TensorFlow read: at its exit they wait for the interpreter for ever.
"""

from __future__ import annotations

import glob
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

    def path(self, path: tf.Tensor, note: tf.Tensor | str) -> tf.Tensor:
        """The path of a shard, about to be opened; reading it fails if the shard has changed.

        Args:
            note: the commit note of the dataset when it was opened.
        """
        with tf.control_dependencies([self._unless_noted(note, [path], False)]):
            return tf.identity(path)

    def checked(
        self, records: tf.data.Dataset, paths: tf.Tensor, note: tf.Tensor | str
    ) -> tf.data.Dataset:
        """The records of some shards; iterating fails at their end if one was replaced meanwhile.

        This is asked once for all of them, since each shard would need functions of its own in the
        graph, and TensorFlow takes 6 ms to make them ready.
        """

        def none(paths: tf.Tensor) -> tf.data.Dataset:
            count = self._unless_noted(note, paths, True)
            return tf.data.Dataset.from_tensors("").take(tf.cast(count, tf.int64))

        return records.concatenate(tf.data.Dataset.from_tensors(paths).flat_map(none))

    def _unless_noted(
        self, note: tf.Tensor | str, paths: tf.Tensor | list[tf.Tensor], is_ended: bool
    ) -> tf.Tensor:
        """False; or the graph fails, as the commit has another note and a shard has changed."""
        pattern = tf.strings.join(['(?s).*"', note, '".*'])

        def is_noted() -> tf.Tensor:
            return tf.strings.regex_full_match(tf.io.read_file(self._commit), pattern)

        def asked() -> tf.Tensor:
            told = tf.numpy_function(self._refuse_changed, [paths, is_ended], tf.bool)
            return tf.ensure_shape(told, [])

        is_there = tf.size(tf.io.matching_files(glob.escape(self._commit))) > 0
        same = tf.cond(is_there, is_noted, lambda: False)
        return tf.cond(same, lambda: False, asked)

    def _refuse_changed(self, paths: Iterable[bytes], is_ended: bool) -> bool:
        for path in paths:
            change = change_of(self.by_path[path.decode()], may_be_gone=bool(is_ended))
            if change is not None:
                raise change
        return False

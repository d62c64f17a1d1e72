"""Whether the shards that TensorFlow reads are those that were opened, asked in its graph.

Python is called only if the dataset has changed since.  A call for every shard would hang a script
that ends while threads of TensorFlow read: at its exit they wait for the interpreter for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tfrecorder import storage
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
        self._is_local = storage.is_local(directory)
        self.by_path = {shard.path: shard for shard in shards}

    def checked(
        self, path: tf.Tensor, open_file: Callable[[tf.Tensor], tf.data.Dataset], note: Any
    ) -> tf.data.Dataset:
        """The records of a shard; reading it fails if it is not the one that was opened.

        The beginning is checked in the function that opens the shard.  On a disk that is enough: an
        open file stays what it is.  From a bucket, TensorFlow reads ranges by name, so the end is
        checked too, by a dataset with a function of its own.  It takes about 5 ms of CPU a shard.

        Args:
            open_file: the records at a path.
            note: the commit note of the dataset when it was opened, a text or a tensor.
        """

        def none(path: tf.Tensor) -> tf.data.Dataset:
            count = self._unless_noted(note, path, True)
            return tf.data.Dataset.from_tensors("").take(tf.cast(count, tf.int64))

        with tf.control_dependencies([self._unless_noted(note, path, False)]):
            records = open_file(tf.identity(path))
        if self._is_local:
            return records
        return records.concatenate(tf.data.Dataset.from_tensors(path).flat_map(none))

    def _unless_noted(self, note: tf.Tensor | str, path: tf.Tensor, is_ended: bool) -> tf.Tensor:
        """False; or the graph fails, as the commit has another note and the shard has changed."""
        pattern = tf.strings.join(['(?s).*"', note, '".*'])

        # From the path, since TensorFlow would read a file that it knows before only once.
        commit = tf.strings.regex_replace(path, "[^/]*$", layout.COMMIT)

        def asked() -> tf.Tensor:
            told = tf.numpy_function(self._refuse_changed, [path, is_ended], tf.bool)
            return tf.ensure_shape(told, [])

        same = tf.strings.regex_full_match(tf.io.read_file(commit), pattern)
        return tf.cond(same, lambda: False, asked)

    def _refuse_changed(self, path: bytes, is_ended: bool) -> bool:
        change = change_of(self.by_path[path.decode()], may_be_gone=bool(is_ended))
        if change is not None:
            raise change
        return False

"""Errors that name the file and the record, for images of other tools.

What `convert` wrote always decodes.  Images of other tools may not, and TensorFlow's own error does
not say in which file they are.
"""

from __future__ import annotations

import tensorflow as tf

from tfrecorder.format.example import parse_example
from tfrecorder.format.tfrecord import FRAMING_BYTES
from tfrecorder.images.check import check_image
from tfrecorder.images.rejects import Reject
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import records_in
from tfrecorder.reading.record_bytes import damaged_record

#: How a JPEG and a PNG begin and, within so many bytes of their end, end; how others begin.
_WHOLE = ((b"\xff\xd8", b"\xff\xd9"), (b"\x89P", b"IEND"))
_TAIL = 1024
_OTHERS = (b"GI", b"BM", b"RI")

#: What TensorFlow does not decode either.
_CODES = ("empty", "not_an_image", "truncated", "damaged")


def refused_in_words(encoded: tf.Tensor, stored: StoredDataset, key: str) -> tf.Tensor:
    """An encoded image; with an error that names its file, if it cannot be decoded.

    TensorFlow has no `try` in its graph, so only what has no usual beginning or no end is checked,
    in Python.
    """

    def words_of(data: bytes) -> str:
        try:
            check_image(data, max_pixels=2**62)
        except Reject as fault:
            return _words(stored, key, data, fault) if fault.code in _CODES else ""
        return ""

    def checked() -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(words_of, [encoded], tf.string), [])

    head = tf.strings.substr(encoded, 0, 2)
    tail = tf.strings.substr(encoded, tf.maximum(tf.strings.length(encoded) - _TAIL, 0), _TAIL)
    whole = [(head == a) & (tf.size(tf.strings.split(tail, b)) > 1) for a, b in _WHOLE]
    whole += [head == other for other in _OTHERS]
    words = tf.cond(tf.reduce_any(whole), lambda: "", checked)
    with tf.control_dependencies([tf.debugging.Assert(words == "", [words])]):
        return tf.identity(encoded)


def _words(stored: StoredDataset, key: str, image: bytes, fault: Reject) -> str:
    """The error for an image, which is looked for in all files."""
    for shard in (shard for shards in stored.splits.values() for shard in shards):
        offset = 0
        for data in records_in(shard):
            if image in parse_example(data).get(key, ()):
                return str(damaged_record(shard, offset, fault, stored.form))
            offset += len(data) + FRAMING_BYTES
    return f"{stored.directory}: {key}: {fault}"

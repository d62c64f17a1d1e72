"""How much memory a split's records, images and batches take, as far as metadata says."""

from __future__ import annotations

import tensorflow as tf

from tfrecorder.loading.options import LoadOptions
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.element_spec import picture_of

#: Used if nothing better is known.
_DECODED_TO_ENCODED = 8
_USUAL_RECORD_BYTES = 100_000


def record_bytes(stored: StoredDataset, split: str) -> float:
    """The mean size of a record."""
    records = stored.records(split)
    return stored.bytes(split) / records if records else _USUAL_RECORD_BYTES


def image_bytes(stored: StoredDataset, split: str, options: LoadOptions) -> float:
    """The approximate size of a record's images as `load` gives them."""
    if not options.decode:
        return record_bytes(stored, split)
    height, width = options.size or stored.image_shape[:2]
    if height is None or width is None:
        return record_bytes(stored, split) * _DECODED_TO_ENCODED
    dtype = picture_of(stored.image_shape, options, depth=stored.depth).dtype
    return height * width * stored.image_shape[2] * tf.as_dtype(dtype).size


def decoding_bytes(stored: StoredDataset, split: str, options: LoadOptions) -> float:
    """About how much the largest image takes while it is decoded and resized."""
    if not options.decode or stored.sides is None:
        return image_bytes(stored, split, options)
    (_, shorter), (_, longer) = stored.sides
    return shorter * longer * stored.image_shape[2] * stored.depth // 8


def element_bytes(stored: StoredDataset, split: str, options: LoadOptions) -> float:
    """The approximate size of an element of the dataset: a batch, or one record's images."""
    return image_bytes(stored, split, options) * (options.batch_size or 1)

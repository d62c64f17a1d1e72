"""The exact order of `batches` in tf.data: records are read by number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecorder.errors import DatasetError
from tfrecorder.format.tfrecord import data_of
from tfrecorder.images.geometry import DRAWS
from tfrecorder.loading.options import LoadOptions
from tfrecorder.options.ranks import cores_of_rank, seed_of
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.order import Order, draws
from tfrecorder.reading.position import Share
from tfrecorder.reading.record_bytes import RecordReader

#: How many numbers to compute at a time.
_NUMBERS = 4096

#: About the most bytes of records that one call from TensorFlow's graph into Python reads.
_CALL_BYTES = 2**22


def share_of(stored: StoredDataset, split: str, options: LoadOptions) -> Share:
    """Which places of an epoch this host reads.

    Raises:
        DatasetError: the number of records is not known.
    """
    records = stored.records(split)
    if records is None:
        raise DatasetError(f"`shuffle='exact'`: {stored.uncounted()}")
    rank, world = options.shard or (0, 1)
    return Share(records, options.batch_size or 1, int(rank), int(world), options.drop_remainder)


def records_of(share: Share) -> int:
    """The number of records of an epoch that this host reads."""
    return sum(len(places) for places in _all_places(share))


def _all_places(share: Share) -> Iterator[range]:
    start = 0
    for _ in range(share.steps(0)):
        yield share.places(start)
        start = share.after(start)


def numbers(share: Share, options: LoadOptions) -> tf.data.Dataset:
    """The numbers of this host's records, int64, in the order of one epoch.

    With `augment`, each comes with what is drawn for its record, the same as in `batches`.  Each
    iteration is the next epoch, or always `options.epoch` if that is given.
    """
    seed = seed_of(options.seed, share.world)
    epochs = itertools.count()
    of_host = [places for places in _all_places(share) if places]

    def one_epoch() -> Iterator[Any]:
        epoch = next(epochs) if options.epoch is None else options.epoch
        order = Order(share.records, "exact", seed, epoch)
        places = itertools.chain.from_iterable(of_host)
        while some := list(itertools.islice(places, _NUMBERS)):
            found = order.numbers(np.array(some))
            yield (found, draws(seed, epoch, found)) if options.augment else found

    signature: Any = tf.TensorSpec([None], tf.int64)
    if options.augment:
        signature = signature, tf.TensorSpec([None, DRAWS], tf.float32)
    return tf.data.Dataset.from_generator(one_epoch, output_signature=signature).unbatch()


def read(stored: StoredDataset, split: str, found: tf.data.Dataset) -> tf.data.Dataset:
    """The serialized records of these numbers, in the same order, several per call.

    Args:
        found: numbers, or pairs of a number and what belongs to its record.
    """
    reader = RecordReader(stored, split)
    mean = max(1, stored.bytes(split) // max(1, reader.records))
    together = max(1, min(64, _CALL_BYTES // mean))

    def of_numbers(wanted: np.ndarray) -> np.ndarray:
        return np.array(reader.read(wanted.tolist(), lambda framed, _: data_of(framed)), object)

    def in_graph(wanted: tf.Tensor, *more: tf.Tensor) -> tuple[tf.Tensor, ...] | tf.Tensor:
        records = tf.numpy_function(of_numbers, [wanted], tf.string)
        records.set_shape([None])
        return (records, *more) if more else records

    calls = found.batch(together).map(
        in_graph, num_parallel_calls=cores_of_rank(), deterministic=True
    )
    return calls.unbatch()

"""The exact order of `batches` in tf.data: records are read by number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecorder.format.tfrecord import data_of
from tfrecorder.images.geometry import DRAWS
from tfrecorder.loading.options import LoadOptions
from tfrecorder.options.ranks import cores_of_rank, seed_of
from tfrecorder.reading.order import draws
from tfrecorder.reading.position import Share
from tfrecorder.reading.record_set import RecordSet

#: How many numbers to compute at a time.
_NUMBERS = 4096

#: About the most bytes of records that one call from TensorFlow's graph into Python reads.
_CALL_BYTES = 2**22


def share_of(records: RecordSet, options: LoadOptions) -> Share:
    """Which places of an epoch this host reads."""
    rank, world = options.shard or (0, 1)
    size = options.batch_size or 1
    return Share(records.size, size, int(rank), int(world), options.drop_remainder)


def records_of(share: Share) -> int:
    """The number of records of an epoch that this host reads."""
    return sum(len(share.places(start)) for start in share.starts(0))


def numbers(records: RecordSet, share: Share, options: LoadOptions) -> tf.data.Dataset:
    """The numbers of this host's records, in the order of one epoch, and what goes with each.

    With `augment` that is what is "drawn" for it, the same as in `batches`; and where classes of
    several datasets differ, the "member" of them that it is from.  Each iteration is the next
    epoch, or always `options.epoch` if that is given.

    Returns:
        Pairs of an int64 and a dict.
    """
    seed = seed_of(options.seed, share.world)
    mode = records.mode(options.shuffle)
    epochs = itertools.count()
    of_host = [share.places(start) for start in share.starts(0)]
    extras = {}
    if options.augment:
        extras["drawn"] = tf.TensorSpec([None, DRAWS], tf.float32)
    if records.stored.class_maps:
        extras["member"] = tf.TensorSpec([None], tf.int64)

    def one_epoch() -> Iterator[Any]:
        epoch = next(epochs) if options.epoch is None else options.epoch
        order = records.order(mode, seed, epoch)
        places = itertools.chain.from_iterable(of_host)
        while some := list(itertools.islice(places, _NUMBERS)):
            wanted = order.numbers(np.array(some))
            values = {}
            if "drawn" in extras:
                values["drawn"] = draws(seed, epoch, wanted)
            if "member" in extras:
                values["member"] = records.members_of(wanted)
            yield wanted, values

    signature: Any = tf.TensorSpec([None], tf.int64), extras
    return tf.data.Dataset.from_generator(one_epoch, output_signature=signature).unbatch()


def read(records: RecordSet, numbered: tf.data.Dataset) -> tf.data.Dataset:
    """The serialized records of these numbers, in the same order, several per call.

    Args:
        records: what the numbers count.
        numbered: pairs of a number and what goes with its record, as `numbers` gives them.
    """
    reader = records.reader()
    stored = records.stored
    split = records.split
    mean = stored.bytes(split) // (stored.records(split) or 1)
    together = max(1, min(64, _CALL_BYTES // max(1, mean)))

    def of_numbers(wanted: np.ndarray) -> np.ndarray:
        return np.array(reader.read(wanted.tolist(), lambda framed, _: data_of(framed)), object)

    def in_graph(wanted: tf.Tensor, extras: dict[str, tf.Tensor]) -> tuple[tf.Tensor, Any]:
        serialized = tf.numpy_function(of_numbers, [wanted], tf.string)
        serialized.set_shape([None])
        return serialized, extras

    calls = numbered.batch(together).map(
        in_graph, num_parallel_calls=cores_of_rank(), deterministic=True
    )
    return calls.unbatch()

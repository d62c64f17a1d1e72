"""Records of a dataset that grows: each epoch looks for its files when it begins.

A Python generator yields one list of files per epoch; the rest is the same graph as for any other
dataset.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecorder.loading.changes import OpenedShards
from tfrecorder.loading.options import LoadOptions
from tfrecorder.loading.order import cycle_of, read_slices, shuffle_records, slices
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.reading.growth import GrowingDataset
from tfrecorder.reading.order import derive_seed

#: Paths, the commit's note, files read at a time, records in the shuffle buffer, a seed.
_FORM = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([], tf.string),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([], tf.int64),
)

#: What TensorFlow combines a shuffle's seed with if no global seed is set.
_GRAPH_SEED = 87654321


def read_followed(
    growing: GrowingDataset, split: str, shuffled: bool, options: LoadOptions
) -> tf.data.Dataset:
    """The serialized records of a split: everything committed when an iteration begins."""
    epochs = itertools.count()
    opened = OpenedShards(growing.directory, ())

    def look() -> Iterator[tuple[Any, ...]]:
        stored = growing.look()
        shards = stored.splits[split]
        opened.by_path |= {shard.path: shard for shard in shards}
        paths, *more = _files(shards, shuffled, next(epochs), options)
        yield paths, stored.note, *more

    def read(
        paths: tf.Tensor, note: tf.Tensor, cycle: tf.Tensor, held: tf.Tensor, seed: tf.Tensor
    ) -> Any:
        files = tf.data.Dataset.from_tensor_slices((paths,))
        records = read_slices(files, cycle if shuffled else None, options, opened, note)
        if not shuffled:
            return records
        # Only for this function's graph.  With a global seed of 0, TensorFlow compares our seed
        # with 0 before it is known, and fails.
        tf.compat.v1.set_random_seed(_GRAPH_SEED)
        return records.shuffle(held, seed=seed, reshuffle_each_iteration=False)

    return tf.data.Dataset.from_generator(look, output_signature=_FORM).flat_map(read)


def _files(
    shards: Sequence[ShardFile], shuffled: bool, epoch: int, options: LoadOptions
) -> tuple[Any, ...]:
    """The files of an epoch in the form of `_FORM`, without the note; shuffled if asked for."""
    paths = [run.path for run in slices(shards, None)]
    cycle = cycle_of(len(paths))
    if not shuffled:
        return paths, cycle, 0, 0
    seed = secrets.randbits(32) if options.seed is None else int(options.seed)
    random = np.random.default_rng(derive_seed(seed, epoch, "shards"))
    paths = [paths[place] for place in random.permutation(len(paths))]
    return paths, cycle, _held(shards, options), derive_seed(seed, epoch, "records")


def _held(shards: Sequence[ShardFile], options: LoadOptions) -> int:
    """How many records the shuffle buffer holds.

    It follows from the shards of this epoch alone, so that an epoch has the same order whenever the
    dataset was opened.
    """
    records = sum(shard.records or 0 for shard in shards)
    mean_bytes = sum(shard.bytes for shard in shards) / max(records, 1)
    return shuffle_records(mean_bytes, records, options)

"""The order in which a split's records are read: which part of which shard, and how shuffled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfrecorder.core.balanced_parts import balanced_part
from tfrecorder.core.checks import is_whole
from tfrecorder.images.geometry import DRAWS, crop_draws
from tfrecorder.loading.changes import OpenedShards
from tfrecorder.loading.options import LoadOptions
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.reading.order import derive_seed

#: Shards to read at the same time: at most this many, and at most this share of all.  If all were
#: read at once, a record would come at nearly the same time in each epoch.
CYCLE = 8
CYCLE_SHARE = 0.25

#: A shuffle buffer is limited by both of these and by its share of the memory budget.  Records are
#: already shuffled when they are written, so a larger buffer gains nothing.  It would also have to
#: be filled before the first batch, while nothing is decoded.
MAX_SHUFFLE_RECORDS = 2048
MAX_SHUFFLE_BYTES = 256 * 2**20
SHUFFLE_SHARE = 0.25

#: How many records to draw for at a time.
_TOGETHER = 256


class Slice(NamedTuple):
    """A run of records in one shard: `take` of them after the first `skip`; -1 takes all.

    `compression` is of the whole file, as TensorFlow names it.
    """

    path: str
    skip: int = 0
    take: int = -1
    compression: str = ""


def slices(shards: Sequence[ShardFile], part: tuple[int, int] | None) -> list[Slice]:
    """The runs of records that one host reads; all hosts together read each record once.

    Args:
        shards: of a split; their `records` must be known if there is a `part`.
        part: (index, count) of the host; None for all records.

    >>> [(run.path, run.skip, run.take)
    ...  for run in slices([ShardFile("a", 4, 0), ShardFile("b", 4, 0)], (1, 3))]
    [('a', 2, 2), ('b', 0, 1)]
    """
    if part is None:
        return [
            Slice(shard.path, compression=shard.compression)
            for shard in shards
            if shard.records != 0
        ]
    first, end = balanced_part(sum(shard.records or 0 for shard in shards), *part)
    runs = []
    begin = 0
    for shard in shards:
        skip = max(first - begin, 0)
        take = min(end - begin, shard.records or 0) - skip
        if take > 0:
            runs.append(Slice(shard.path, skip, take))
        begin += shard.records or 0
    return runs


def shuffle_records(element_bytes: float, records: int | None, options: LoadOptions) -> int:
    """How many records the shuffle buffer holds.

    Args:
        element_bytes: the mean size of what is held.
        records: of the split, or None if not known.
        options: of the load; if `shuffle` is a number, that is the result.
    """
    if options.shuffle is not None and is_whole(options.shuffle):
        return int(options.shuffle)
    most_bytes = min(MAX_SHUFFLE_BYTES, options.budget * SHUFFLE_SHARE)
    most = max(1, int(most_bytes / max(element_bytes, 1.0)))
    return min(most, MAX_SHUFFLE_RECORDS, records or MAX_SHUFFLE_RECORDS)


def read_records(
    runs: Sequence[Slice], shuffled: bool, options: LoadOptions, opened: OpenedShards, note: str
) -> tf.data.Dataset:
    """The serialized records of some shards; if `shuffled`, in random shard order, interleaved."""
    columns = []
    for at, dtype in enumerate((tf.string, tf.int64, tf.int64, tf.string)):
        columns.append(tf.constant([run[at] for run in runs], dtype))
    files = tf.data.Dataset.from_tensor_slices(tuple(columns))
    if shuffled:
        files = shuffle(files, len(runs), "shards", options)
    cycle = cycle_of(len(runs)) if shuffled else None
    return read_slices(files, cycle, options, opened, note)


def cycle_of(runs: int) -> int:
    """How many of this many shards are read at the same time."""
    return max(1, min(CYCLE, int(runs * CYCLE_SHARE)))


def read_slices(
    files: tf.data.Dataset,
    cycle: int | tf.Tensor | None,
    options: LoadOptions,
    opened: OpenedShards,
    note: tf.Tensor | str,
) -> tf.data.Dataset:
    """The serialized records of slices, in the order of the slices.

    Args:
        files: the path of each; then, if they are not all whole and plain, skip, take and
            compression.
        cycle: how many slices are read at the same time, interleaved; None reads one by one.
        note: the commit note of the dataset when it was opened; empty for other tools' files, which
            nothing here replaces and which are not checked.
    """

    def read_slice(
        path: tf.Tensor,
        skip: tf.Tensor | int = 0,
        take: tf.Tensor | int = -1,
        compression: tf.Tensor | str = "",
    ) -> tf.data.Dataset:
        def open_file(path: tf.Tensor) -> tf.data.Dataset:
            return tf.data.TFRecordDataset(path, compression).skip(skip).take(take)

        is_foreign = isinstance(note, str) and not note
        return open_file(path) if is_foreign else opened.checked(path, open_file, note)

    if cycle is None:
        return files.flat_map(read_slice)
    in_order = options.seed is not None  # which only shuffled records need
    return files.interleave(
        read_slice, cycle_length=cycle, num_parallel_calls=cycle, deterministic=in_order
    )


def shuffle(
    dataset: tf.data.Dataset, buffer: int, purpose: str, options: LoadOptions
) -> tf.data.Dataset:
    """Shuffle differently in each iteration, or always as in `options.epoch` if that is given."""
    return dataset.shuffle(
        max(buffer, 1),
        seed=_seed_for(purpose, options),
        reshuffle_each_iteration=options.epoch is None,
    )


def _seed_for(purpose: str, options: LoadOptions) -> int | None:
    if options.seed is None:
        return None
    return derive_seed(options.seed, options.epoch or 0, purpose)


def random_draws(options: LoadOptions) -> tf.data.Dataset:
    """An endless dataset of what `augment` draws for a record, float32 of [DRAWS]."""
    own = _seed_for("augment", options)
    seeds = tf.data.Dataset.random(seed=own, rerandomize_each_iteration=options.epoch is None)

    def draw(seed: tf.Tensor) -> tf.Tensor:
        return crop_draws(tf.random.stateless_uniform([_TOGETHER, DRAWS], seed), tf)

    return seeds.batch(2, drop_remainder=True).map(draw).unbatch()

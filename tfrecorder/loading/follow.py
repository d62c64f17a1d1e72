"""Records of a dataset that grows: new files are found while tf.data reads.

A Python generator yields lists of files; the rest is the same graph as for any other dataset.
While there is nothing to read, it yields a few empty lists per second: TensorFlow cannot stop a
call into Python, so closing an iterator would have to wait for a generator that waits.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecorder.loading.interrupts import presses
from tfrecorder.loading.options import LoadOptions
from tfrecorder.loading.order import (
    Slice,
    cycle_of,
    derive_seed,
    read_slices,
    shuffle_records,
    slices,
)
from tfrecorder.reading.dataset import ShardFile
from tfrecorder.reading.growth import Following

#: Paths, records to skip and take in each, files read at a time, records in the shuffle buffer, a
#: seed, records to leave out.
_FORM = (
    tf.TensorSpec([None], tf.string),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([], tf.int64),
    tf.TensorSpec([], tf.int64),
)

#: What TensorFlow combines a shuffle's seed with if no global seed is set.
_GRAPH_SEED = 87654321


def read_followed(
    following: Following, split: str, shuffled: bool, options: LoadOptions
) -> tf.data.Dataset:
    """The serialized records of a split: everything committed when an iteration begins or, with
    follow="forward", each generation once.

    Args:
        following: looks for new generations.
        shuffled: in random order; with follow="forward", within their generation.
        options: with a `follow` that is not False.
    """
    if options.is_forward:
        found: Any = partial(_forward, following, split, shuffled, options)
    else:
        found = partial(_epoch, following, split, shuffled, options, itertools.count())
    lists = tf.data.Dataset.from_generator(found, output_signature=_FORM)

    def read(*columns: tf.Tensor) -> tf.data.Dataset:
        *files, cycle, held, seed, left_out = columns
        slices_of = tf.data.Dataset.from_tensor_slices(tuple(files))
        records = read_slices(slices_of, cycle if shuffled else None, options)
        if shuffled:
            # Only for this function's graph.  With a global seed of 0, TensorFlow compares our seed
            # with 0 before it is known, and fails.
            tf.compat.v1.set_random_seed(_GRAPH_SEED)
            records = records.shuffle(held, seed=seed, reshuffle_each_iteration=False)
        return records.skip(left_out)

    return lists.flat_map(read)


def _epoch(
    following: Following, split: str, shuffled: bool, options: LoadOptions, epochs: Iterator[int]
) -> Iterator[tuple[Any, ...]]:
    """One list: all files that exist now."""
    shards = following.look().splits[split]
    held = _held(shards, shuffled, options)
    yield _list(slices(shards, None), held, _seed(options), next(epochs))


def _forward(
    following: Following, split: str, shuffled: bool, options: LoadOptions
) -> Iterator[tuple[Any, ...]]:
    """A list for each generation, until none has come for `idle` seconds or Ctrl-C is pressed."""
    nothing, pressed, seed = _list([], 1, 0, 0), presses(), _seed(options)
    first = options.epoch or 0
    left_out = options.step * (options.batch_size or 1)
    for stored in following.grown(first, options.idle):
        if presses() != pressed:
            return
        if stored is None:
            yield nothing
            continue
        for number, shards in enumerate(stored.by_generation(split)[first:], first):
            runs = slices(shards, _part(options, number))
            records = sum(run.take for run in runs)
            if left_out < records:
                held = _held(shards, shuffled, options)
                yield _list(runs, held, seed, number, left_out)
            left_out = max(0, left_out - records)
        first = len(stored.generations)


def _held(shards: Sequence[ShardFile], shuffled: bool, options: LoadOptions) -> int:
    """How many records of some shards the shuffle buffer holds; 0 keeps their order.

    It follows from these shards alone: a run that goes on must find the order of the one before,
    although the dataset has grown since.
    """
    if not shuffled:
        return 0
    records = sum(shard.records or 0 for shard in shards)
    mean_bytes = sum(shard.bytes for shard in shards) / max(records, 1)
    return shuffle_records(mean_bytes, records, options)


def _part(options: LoadOptions, generation: int) -> tuple[int, int]:
    """This host's part of a generation.  The hosts take turns; otherwise the last host would always
    get more of small generations."""
    index, count = options.shard or (0, 1)
    return (index + generation) % count, count


def _seed(options: LoadOptions) -> int:
    return secrets.randbits(32) if options.seed is None else int(options.seed)


def _list(
    runs: Sequence[Slice], held: int, seed: int, number: int, left_out: int = 0
) -> tuple[Any, ...]:
    """Files in the form of `_FORM`; in random order if there is a shuffle buffer.

    Args:
        held: records in the shuffle buffer; 0 keeps the order.
        number: of the epoch or of the generation.
    """
    cycle = cycle_of(len(runs))
    if held:
        random = np.random.default_rng(derive_seed(seed, number, "shards"))
        runs = [runs[at] for at in random.permutation(len(runs))]
    paths, skips, takes = ([getattr(run, name) for run in runs] for name in _COLUMNS)
    shuffle_seed = derive_seed(seed, number, "records")
    return paths, skips, takes, cycle, held, shuffle_seed, left_out


_COLUMNS = ("path", "skip", "take")

"""How a host's records become batches in `load`: all hosts take equally many, none is empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfrecorder.core.arrays import balanced_part
from tfrecorder.errors import OptionError
from tfrecorder.loading.options import LoadOptions
from tfrecorder.reading.position import Share


@dataclass(frozen=True)
class HostEpoch:
    """What this host reads of an epoch.

    Attributes:
        share: what all hosts divide.
        records: that this one reads.
        sizes: of its batches, or ones without `batch_size`.
    """

    share: Share
    records: int
    sizes: list[int]


def host_epoch(
    split: str,
    records: int,
    options: LoadOptions,
    *,
    by_number: bool,
) -> HostEpoch:
    """What this host reads of an epoch of so many records.

    Args:
        split: its name.
        records: of all hosts.
        options: of the load.
        by_number: in the order of `batches`, of each step a part; otherwise a run of records.

    Raises:
        OptionError: this host or another would have no batch, or `start` is beyond the last one.
    """
    rank, world = options.shard or (0, 1)
    size = options.batch_size or 1
    share = Share(records, size, int(rank), int(world), options.drop_remainder)
    if options.batch_size or records < world:
        share.refuse_empty(split)
    first, end = balanced_part(records, share.rank, share.world)
    own = end - first
    if by_number:
        own = sum(len(share.places(start)) for start in share.starts(0))
    sizes = batch_sizes(share, own)
    if options.step > len(sizes):
        raise OptionError.of(
            "start",
            options.start,
            f"an epoch has {len(sizes)} steps; give at most that.",
        )
    return HostEpoch(share, own, sizes)


def batch_sizes(share: Share, records: int) -> list[int]:
    """How many records each batch of this host has.

    Args:
        share: of this host.
        records: that it reads.

    >>> [batch_sizes(Share(9, 4, rank, world=2), own) for rank, own in enumerate((5, 4))]
    [[4, 1], [2, 2]]
    """
    size = share.batch_size
    if share.drop_remainder:
        return [size] * share.steps(0)
    whole, rest = divmod(records, size)
    sizes = [size] * whole + [rest] * (rest > 0)
    if len(sizes) < share.steps(0) and size > 1:
        # Another host has one record more, which makes a batch.
        sizes[-1:] = [size - size // 2, size // 2]
    return sizes


def batched(
    dataset: tf.data.Dataset,
    host: HostEpoch | None,
    options: LoadOptions,
    *,
    is_ragged: bool = False,
) -> Any:
    """The elements in batches, from the step on where `options` start.

    Args:
        dataset: of this host's elements, from that step on.
        host: what it reads of an epoch; None if that is not known.
        options: of the load.
        is_ragged: elements differ in shape.
    """
    batch = dataset.ragged_batch if is_ragged else dataset.batch
    batches = batch(options.batch_size, options.drop_remainder)
    left = host.sizes[options.step :] if host else []
    if not left:
        return batches
    if options.drop_remainder:
        return batches.take(len(left))
    is_usual = all(size == options.batch_size for size in left[:-1])
    return batches if is_usual else batches.rebatch(left)

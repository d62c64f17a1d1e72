"""How many shards the rows of each split get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tfrecorder.options.convert import ConvertOptions

#: Bytes of a record apart from the image: framing, keys, and the small features of a typical row.
RECORD_OVERHEAD = 400

#: A dataset of any size gets up to this many shards per split, with at least this many rows each,
#: so that readers can interleave them.  A batch of a stream gets one: there will be many more.
SMALL_SHARDS = 8
SMALL_SHARD_ROWS = 8


def shard_count(
    rows: int,
    row_bytes: float,
    shard_bytes: int,
    asked: int | None = None,
    small_shards: int = SMALL_SHARDS,
) -> int:
    """How many shards a split of `rows` >= 1 rows gets.

    Args:
        row_bytes: the mean size of a record.
        shard_bytes: the target size of a shard.
        asked: the number that the user wants, if any; never more than there are rows.

    >>> shard_count(1_000_000, 100_000, 128 * 2**20)
    746
    >>> shard_count(10, 100_000, 128 * 2**20), shard_count(1000, 100_000, 128 * 2**20)
    (2, 8)
    """
    if asked is not None:
        return min(rows, asked)
    by_size = -(-round(rows * row_bytes) // shard_bytes)
    by_rows = min(small_shards, -(-rows // SMALL_SHARD_ROWS))
    return min(rows, max(1, by_size, by_rows))


def shard_counts(
    split_rows: Mapping[str, int],
    sizes: Sequence[float],
    options: ConvertOptions,
    small_shards: int = SMALL_SHARDS,
) -> dict[str, int]:
    """How many shards each split gets, based on its rows.

    Args:
        sizes: file sizes in bytes of a sample of the images.
        options: what the user asked for.
    """
    row_bytes = (float(np.mean(sizes)) if len(sizes) else 0.0) + RECORD_OVERHEAD
    return {
        split: shard_count(
            rows, row_bytes, options.shard_bytes, options.shards_of(split), small_shards
        )
        for split, rows in split_rows.items()
    }

"""How many images of a dataset likely have copies, without reading a record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.format.plan_columns import REJECT_OF, SHARD_SPLIT, source_of
from tfrecorder.images.fingerprint import Fingerprint
from tfrecorder.images.near_copies import firsts_of, likely_pairs
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import known_rows
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.splits import SPLITS


class LikelyCopies(NamedTuple):
    """How much of a dataset is likely copies; None where it is not known.

    Attributes:
        images: how many are in several records each.
        leaks: how many of them are in several splits.
        records: how many have one of these images.
    """

    images: int | None
    leaks: int | None
    records: int | None


def likely_copies(directory: str, newest: Commit, image: Field, since: int) -> LikelyCopies:
    """How many images have copies, by what the tables know of their bytes and their looks.

    Args:
        newest: the newest commit of the dataset.
        image: the column.
        since: only groups with a row of the source from this number on count.

    Raises:
        DatasetError: a table cannot be read.
    """
    of = source_of(image)
    columns = [SOURCE_ID, of.bytes, of.crc32c, of.hash, of.mean, of.deviation]
    tables = known_rows(directory, newest, [REJECT_OF.reason, SHARD_SPLIT, *columns])
    looks = pd.concat([*map(_numbers, tables)], ignore_index=True)
    sums = looks.pop("sums")
    pairs = likely_pairs(looks)
    sums = sums.where(sums >= 0, -1 - np.arange(len(looks)))  # what was not read equals nothing
    same = looks.index.to_series().groupby(sums).transform("min").to_numpy()
    group = firsts_of(same[pairs], len(looks))[same]
    is_copy = np.bincount(group)[group] > 1
    groups = looks[is_copy].groupby(group[is_copy])
    counts = groups["row"].max() >= since
    leaks = groups["split"].min() < groups["split"].max()
    records = groups.size()[counts].sum()
    return LikelyCopies(int(counts.sum()), int((counts & leaks).sum()), int(records))


def _numbers(rows: pa.Table) -> pd.DataFrame:
    """What is compared of the records of some rows: numbers alone, -1 where one is not known."""
    rows = rows.filter(pc.equal(rows.column(REJECT_OF.reason), ""))
    split = pc.index_in(rows.column(SHARD_SPLIT), value_set=pa.array(SPLITS, pa.large_string()))
    row, size, crc, *looks = (pc.fill_null(column, -1).to_numpy() for column in rows.columns[2:])
    # No image in a record has 2**31 bytes.
    numbers = {"sums": size << 32 | crc, "split": split.cast(pa.int8()).to_numpy(), "row": row}
    return pd.DataFrame(numbers | dict(zip(Fingerprint._fields, looks, strict=True)))

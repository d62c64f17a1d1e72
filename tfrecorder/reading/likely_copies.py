"""How many images of a dataset likely have copies, without reading a record."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.format.plan_columns import REJECT_OF, SHARD_SPLIT, SourceOf, source_of
from tfrecorder.images.near_copies import groups_of, likely_pairs
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import known_rows
from tfrecorder.reading.shard_tables import joined
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SOURCE_ID


def likely_copies(directory: str, newest: Commit, image: Field, since: int = 0) -> tuple[int, int]:
    """How many images have copies, by what the tables know of their bytes and their looks.

    Args:
        newest: the newest commit of the dataset.
        image: the column.
        since: only groups with a row of the source from this number on count.

    Returns:
        The number of groups of copies, and of those that several splits share.

    Raises:
        DatasetError: a table cannot be read.
    """
    columns = [REJECT_OF.reason, SHARD_SPLIT, SOURCE_ID, *source_of(image)]
    rows = joined([*known_rows(directory, newest, columns)])
    rows = rows.filter(pc.equal(rows.column(REJECT_OF.reason), ""))
    rows = rows.rename_columns(["reason", "split", "row", *SourceOf._fields])
    looks = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    pairs = np.concatenate([likely_pairs(looks), _same_bytes(looks)])
    if not len(pairs):
        return 0, 0
    copies = looks.join(groups_of(pairs, looks), how="right")
    groups = copies.groupby("group").agg({"split": "nunique", "row": "max"})
    groups = groups[groups["row"] >= since]
    return len(groups), int((groups["split"] > 1).sum())


def _same_bytes(looks: pd.DataFrame) -> np.ndarray:
    """The pairs of an image and the first one with the same size and CRC32C."""
    known = looks[looks["bytes"].notna()]
    again = known[known.duplicated(["bytes", "crc32c"], keep=False)]
    places = pd.Series(again.index, again.index, np.int64)
    first = places.groupby([again["bytes"], again["crc32c"]]).transform("first")
    return np.stack([first, places], 1)[first != places]

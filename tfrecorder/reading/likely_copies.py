"""How many images of a dataset are likely near copies, without reading a record."""

from __future__ import annotations

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
    """How many images have near copies, by what the tables know of their looks.

    Args:
        newest: the newest commit of the dataset.
        image: the column.
        since: only groups with a row of the source from this number on count.

    Returns:
        The number of groups of near copies, and of those that several splits share.

    Raises:
        DatasetError: a table cannot be read.
    """
    columns = [REJECT_OF.reason, SHARD_SPLIT, SOURCE_ID, *source_of(image)]
    rows = joined([*known_rows(directory, newest, columns)])
    rows = rows.filter(pc.equal(rows.column(REJECT_OF.reason), ""))
    rows = rows.rename_columns(["reason", "split", "row", *SourceOf._fields])
    looks = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    if not len(pairs := likely_pairs(looks)):
        return 0, 0
    copies = looks.join(groups_of(pairs, looks), how="right")
    copies["content"] = copies["bytes"] * 2**32 + copies["crc32c"]
    kinds = copies.groupby("group").agg({"content": "nunique", "split": "nunique", "row": "max"})
    # Of the others all are there already, or the same byte for byte.
    near = kinds[(kinds["content"] > 1) & (kinds["row"] >= since)]
    return len(near), int((near["split"] > 1).sum())

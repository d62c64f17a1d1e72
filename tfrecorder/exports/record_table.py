"""A row for each record of a dataset: what the tables of its shards hold, by the record's keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import RECORD_OF, planned_features
from tfrecorder.reading.shard_tables import each_table
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import Feature

#: Where a record is: its split, its number in it, its shard.  No key of a record is one of these.
PLACES = (Feature("split", "text"), Feature("record", "int64"), Feature("shard", "text"))

_ARROW = {"text": pa.string(), "float": pa.float32(), "bool": pa.bool_()}


def columns_for(fields: Sequence[Field]) -> list[Feature]:
    """The columns of the table beside `PLACES`: uris, classes, boxes, numbers and texts."""
    labelled = [field for field in fields if not field.is_unlabelled]
    places = [place.key for place in PLACES]
    features = planned_features(labelled)
    return [one for one in features if one.kind != "bytes" and one.key not in places]


def write_rows(
    file: BinaryIO, directory: str, shards: Sequence[Shard], columns: Sequence[Feature]
) -> None:
    """The rows of all records as Parquet, in their order; those of a few shards are in memory.

    Raises:
        DatasetError: a table cannot be read.
    """
    types = {one.key: _ARROW.get(one.kind, pa.int64()) for one in (*PLACES, *columns)}
    types |= {one.key: pa.list_(types[one.key]) for one in columns if one.shape}
    keys = [column.key for column in columns]
    before = Counter[str]()
    with pq.ParquetWriter(file, pa.schema(types)) as writer:
        for shard, rows in each_table(directory, shards, lambda _: [RECORD_OF.offset, *keys]):
            offsets = rows[RECORD_OF.offset].to_numpy()
            records = rows.take(np.argsort(offsets, kind="stable")[(offsets < 0).sum() :])
            numbers = np.arange(len(records)) + before[shard.split]
            before[shard.split] += len(records)
            values: dict[str, Any] = {
                "split": pa.repeat(shard.split.lower(), len(records)),
                "record": pa.array(numbers),
                "shard": pa.repeat(shard.file, len(records)),
                **{key: records[key].cast(types[key]) for key in keys},
            }
            writer.write_table(pa.table(values, writer.schema))

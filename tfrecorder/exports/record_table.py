"""A row for each record of a dataset: where it is, and all its columns but pictures and bytes."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import table_of
from tfrecorder.schema.fields import of_kind
from tfrecorder.schema.kinds import Bytes

#: Where a record is: its split, its number in it, the file of its shard.
PLACES = ("split", "record", "shard")


def record_table(stored: StoredDataset) -> pa.Table:
    """`PLACES`, and the columns of the schema by their names; arrays are flat.

    Raises:
        DatasetError: as `table_of`.
    """
    without = {field.column for field in of_kind(stored.fields, Bytes)}
    frames = []
    for split, shards in stored.splits.items():
        frame = table_of(stored, split)
        names = [os.path.basename(shard.path) for shard in shards]
        of_shards = np.repeat(np.array(names, object), [shard.records or 0 for shard in shards])
        others = frame.drop(columns=[name for name in frame if name in {*PLACES, *without}])
        numbers = np.arange(len(frame))
        frames.append(others.assign(split=split.lower(), record=numbers, shard=of_shards))
    whole = pd.concat(frames, ignore_index=True)
    for name, column in whole.items():
        if len(column) and isinstance(column.iloc[0], np.ndarray):
            whole[name] = column.map(np.ravel)
    order = [*PLACES, *(name for name in whole if name not in PLACES)]
    return pa.Table.from_pandas(whole[order], preserve_index=False).replace_schema_metadata()


def as_parquet(rows: pa.Table) -> bytes:
    """A table as a file."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return sink.getvalue().to_pybytes()

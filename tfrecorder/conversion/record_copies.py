"""Where each record of a dataset is, as the rows of a plan that copies them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format.layout import Shard
from tfrecorder.format.plan_columns import COPY_OF, RECORD_OF
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.shard_tables import each_table, joined
from tfrecorder.schema.fields import Field, primary_file, record_features
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.validation.values import default_of


def splits_of(shards: Sequence[Shard], places: np.ndarray) -> pd.Series:
    """The split of each row, given the place of its shard among some."""
    of_shards = pd.Categorical([shard.split for shard in shards], dtype=SPLIT_TYPE)
    return pd.Series(of_shards.take(places))


def every_row(where: str, shards: Sequence[Shard]) -> tuple[pa.Table, np.ndarray]:
    """The rows of some shards, one after the other, with `COPY_OF`, and each attempt at a reject.

    Returns:
        The rows; and for each the place of its shard among the shards.

    Raises:
        DatasetError: a table cannot be read, or does not fit its shard.
    """
    with storage.failing_as(DatasetError, where):
        written = storage.sizes(where)
    tables = [
        _with_copies(where, shard.file, written.get(shard.file), table)
        for shard, table in each_table(where, shards, lambda schema: schema.names)
    ]
    return joined(tables), np.repeat(np.arange(len(tables)), [*map(len, tables)])


def statistics_of(
    fields: Sequence[Field],
    columns: Mapping[str, pa.Array],
    splits: pd.Series,
    every: Sequence[Commit],
) -> dict[str, Any]:
    """Statistics of some rows of a dataset, as `describe_columns` makes them.

    Args:
        columns: of the rows, by name.
        splits: of each row.
        every: the commits of the dataset.
    """
    values = {key.key: columns[key.key] for key in record_features(fields) if key.key in columns}
    splits = splits.reset_index(drop=True)
    return describe_columns(tuple(fields), values, splits, _missing(fields, values, splits, every))


def _missing(
    fields: Sequence[Field],
    values: Mapping[str, pa.Array],
    splits: pd.Series,
    every: Sequence[Commit],
) -> dict[str, np.ndarray]:
    """Which rows have a default, by column.

    Manifests say how many these are in each split.  Which of the rows with this value they are
    makes no difference to the statistics: the first ones.
    """
    missing = {}
    for field in fields:
        counts = Counter[str]()
        for commit in every:
            of_split = commit.manifest["statistics"].get(field.column, {})
            counts.update({split: of.get("missing", 0) for split, of in of_split.items()})
        if counts.total():
            key, default = default_of(field)
            same = pd.Series([value == default for value in values[key].to_pylist()])
            number = same.groupby(splits.to_numpy(object)).cumsum()
            missing[field.column] = (same & (number <= splits.map(counts).astype(int))).to_numpy()
    return missing


def uris_of(rows: pa.Table, fields: Sequence[Field]) -> pa.Array | None:
    """The uris of the first images; None for records without images."""
    image = primary_file(fields)
    return None if image is None else rows.column(image.uri_key).combine_chunks()


def _with_copies(where: str, file: str, written: int | None, table: pa.Table) -> pa.Table:
    """The table of a shard with a file of this size, as rows of a plan that copies its records."""
    offsets, sizes = (table.column(name).to_numpy() for name in RECORD_OF[:2])
    kept = sizes >= 0
    ends = np.cumsum(sizes[kept])
    if written != sizes[kept].sum() or not np.array_equal(offsets[kept], ends - sizes[kept]):
        raise DatasetError(
            f"{os.path.join(where, file)} is not what its table says. "
            f"`{command('verify', where)}` checks every file."
        )
    names = pa.repeat(pa.scalar(file, pa.large_string()), len(table))
    copies = dict(zip(RECORD_OF, COPY_OF[1:], strict=True))
    table = table.rename_columns([copies.get(name, name) for name in table.column_names])
    return table.append_column(COPY_OF.file, names)


def newest_of_each(rows: pa.Table) -> np.ndarray:
    """True for one row of each number: the one with a record, else the last one."""
    has_record = rows.column(COPY_OF.size).to_numpy() >= 0
    attempts = pd.DataFrame({"number": rows.column(SOURCE_ID).to_numpy(), "has": has_record})
    attempts = attempts.sort_values("has", kind="stable")
    return (~attempts.duplicated("number", keep="last")).sort_index().to_numpy()

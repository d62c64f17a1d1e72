"""The columns of a split's records but for the pictures: what one chooses and weighs records by.

The tables of shards hold them.  Where there are none, or boxes were moved with the pixels since,
each record is read once.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.layout import parse_shard
from tfrecorder.format.plan_columns import RECORD_OF
from tfrecorder.reading.commits import opened_commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import gather, read_rows
from tfrecorder.reading.frame_columns import cells_in, frame_of, name_key, table_keys
from tfrecorder.reading.shard_tables import read_tables, those_of
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import NO_LABEL
from tfrecorder.schema.kinds import Label


def table_of(
    stored: StoredDataset, split: str, names: Collection[str] | None = None
) -> pd.DataFrame:
    """All columns of a split's records but the pictures, in the order of the records.

    Args:
        names: of the columns that are needed, if all of them are the dataset's own.

    Returns:
        The columns that `to_frame` gives, without those of images that have no file names.  The
        index is the number of the record; boxes are lists, one row a record.

    Raises:
        DatasetError: a record is damaged, or the dataset was replaced since it was opened.
    """
    nameless = [field for field in file_fields(stored.fields) if not name_key(stored, field)]
    fields = [field for field in stored.fields if field not in nameless]
    if names is not None and {*names} <= {field.column for field in fields}:
        fields = [field for field in fields if field.column in names]
    rows = record_rows(
        stored, split, fields, [key for field in fields for key in table_keys(field)]
    )
    if rows is None:
        splits, cells = gather(stored, fields, [split])
        count = len(splits)
    else:
        cells, count = cells_in(fields, rows), len(rows)
    of_one = pd.Categorical.from_codes(np.zeros(count, np.int8), pd.Index([split]))
    return frame_of(stored, of_one, cells, pd.RangeIndex(count))


def labels_of(stored: StoredDataset, split: str, column: str | None = None) -> np.ndarray:
    """The class of each record of a split, as an integer, in the order of the records.

    Args:
        column: with the classes; None is the only one that has any.

    Returns:
        int64 of [records]; for a column with several classes a record, an array of arrays.

    Raises:
        OptionError: no column has classes, several have, or this one has none.
        DatasetError: as `table_of`.
    """
    field = class_column(stored, column)
    key = str(field.label_key)
    rows = record_rows(stored, split, [field], [key])
    if rows is not None and isinstance(field.kind, Label):
        return np.asarray(rows.column(key))
    if rows is not None:
        lists = rows.column(key).to_pylist()
    else:
        lists = [row.get(key, ()) for _, row in read_rows(stored, [split])]
    if isinstance(field.kind, Label):
        return np.array([next(iter(values), NO_LABEL) for values in lists], np.int64)
    labels = np.empty(len(lists), object)
    labels[:] = [np.array(values, np.int64) for values in lists]
    return labels


def class_column(stored: StoredDataset, column: str | None) -> Field:
    """The column of this name, or the only one, that has classes.

    Raises:
        OptionError: no column has classes, several have, or this one has none.
    """
    fields = {field.column: field for field in stored.fields if field.label_key is not None}
    if column is None and len(fields) == 1:
        return next(iter(fields.values()))
    if column not in fields:
        there = ", ".join(map(repr, fields)) or "none"
        words = f"give a column with classes; {stored.directory} has {there}."
        raise OptionError.of("column", column, words)
    return fields[column]


def record_rows(
    stored: StoredDataset, split: str, fields: Iterable[Field], names: list[str]
) -> pa.Table | None:
    """Values of a split's records from the tables; None if these do not have them all.

    Args:
        fields: the columns that they are of.
        names: of the columns of the tables.
    """
    if stored.commit is None:
        return None
    options = opened_commit(stored.directory, stored.commit).manifest["options"]
    if "image_format" in options and any(field.of_boxes for field in fields):
        return None  # images were transformed, and their boxes with them
    shards = [parse_shard(os.path.basename(file.path)) for file in stored.splits[split]]
    size = RECORD_OF.size
    try:
        rows = read_tables(stored.directory, list(filter(None, shards)), those_of([*names, size]))
    except DatasetError:
        return None
    if rows is None or not {*names} <= {*rows.column_names}:
        return None
    has_record = pc.greater_equal(rows.column(size), 0)
    if not pc.all(has_record).as_py():
        rows = rows.filter(has_record)
    return rows if len(rows) == stored.records(split) else None

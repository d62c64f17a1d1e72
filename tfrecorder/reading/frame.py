"""`to_frame`: turns a dataset directory back into the frame it was made from.

`table_of`: the columns of a split's records but for the pictures, what one chooses and weighs
records by.  The tables of shards hold them.  Where there are none, or boxes were moved with the
pixels since, each record is read once.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.checks import OneOf
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.example import parse_features
from tfrecorder.format.layout import parse_shard
from tfrecorder.format.plan_columns import RECORD_OF
from tfrecorder.options.keywords import Path
from tfrecorder.options.option import require
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.commits import opened_commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import records_in
from tfrecorder.reading.frame_columns import (
    Cells,
    Row,
    cells_in,
    cells_of,
    frame_of,
    name_key,
    table_keys,
)
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.shard_tables import read_tables, those_of
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import NO_LABEL
from tfrecorder.schema.kinds import Boxes, Label, Text, columns_of

IMAGES = ("uri", "bytes")

#: Records that are in memory together.
_TOGETHER = 64

#: The number of a record's row in the source, read as if it were a column; no column has this name.
_SOURCE_ROW = Field("", Text(), keys.SOURCE_ID)


def to_frame(
    directory: Path,
    split: str | None = None,
    images: str = "uri",
    at: int | None = None,
    image: str | None = None,
    label: str | None = None,
) -> pd.DataFrame:
    """The rows and columns that a dataset was made from, without TensorFlow.

    The frame is in memory as a whole, with images="bytes" every image too.

    Args:
        directory: what `convert` wrote; or records of other tools, as for `load`.
        split: read only this split; None reads all.
        images: "uri" gives images and masks as the source named them, "bytes" as stored.
        at: read a dataset that was appended to only up to this generation; None is the newest.
        image, label: as for `load`.

    Returns:
        The columns of the schema, split after split, with the rows of each in the order of
        `Records`: row 7 of `to_frame("out", "TRAIN")` is record 7.  A column `split` is added if
        the schema has none.  The index is the number of the row in the source, which continues
        from one generation to the next: `sort_index()` restores the order of the source.  The
        column `row` repeats it, also for a CSV, by which `tfrecorder.update` and `remove` know
        each row again; beside a column `row` of your own it is `source_row`.  It makes no feature.
        Boxes that came one a row are rows again, one after the other, and share the number of
        their image.  Arrays are NumPy arrays, lists are lists.  Rejects are missing.  For records
        of other tools: every column that `info` lists, with rows numbered in file order, and boxes
        as lists in the unit of the record.

    Raises:
        DatasetError: the directory is not a whole dataset, or has no such split.
        OptionError: `images` is neither "uri" nor "bytes", or it is "uri" and records of other
            tools do not name their image files.

    Example:
        >>> tfrecorder.to_frame("out")  # doctest: +SKIP
    """
    require(OneOf(*IMAGES), images=images)
    where = storage.given_path(directory)
    stored = open_dataset(where, at, NamedKeys(image, label))
    chosen = [stored.split(split)] if split is not None else list(stored.splits)
    splits, cells = gather(stored, (*stored.fields, _SOURCE_ROW), chosen, images)
    rows = cells[_SOURCE_ROW.column][""] if stored.form == "tfrecorder" else range(len(splits))
    index = pd.Index([int(row) for row in rows], dtype=np.int64)
    frame = frame_of(stored, splits, cells, index)
    if stored.form == "tfrecorder":
        frame[keys.number_column(frame.columns)] = index.to_numpy()
    return one_row_a_box(frame, stored.fields)


def read_rows(
    stored: StoredDataset, splits: Sequence[str], images: str = "uri"
) -> Iterator[tuple[str, Row]]:
    """The split and the values of each record, without the pixels where only uris are wanted."""
    wanted = set(stored.features)
    if images == "uri":
        wanted -= {field.encoded_key for field in file_fields(stored.fields)}
    own = f"`{command('verify', stored.directory)}` says where."
    remedy = own if stored.form == "tfrecorder" else "Copy it again."
    for split, shard in [(name, shard) for name in splits for shard in stored.splits[name]]:
        try:
            with storage.failing_as(DatasetError, shard.path):
                for data in records_in(shard):
                    yield split, parse_features(data, wanted, bytes)
        except ValueError as error:
            raise DatasetError(f"{shard.path} is damaged: {error}. {remedy}") from error


def gather(
    stored: StoredDataset, fields: Sequence[Field], chosen: Sequence[str], images: str = "uri"
) -> tuple[list[str], dict[str, Cells]]:
    """The split of each record, and the cells of some columns, by the column of the field.

    Only a few records are in memory at a time: what is not in a cell is forgotten.  With uris, the
    key of an image's file name makes no column itself.
    """
    rows = read_rows(stored, chosen, images)
    names = {name_key(stored, field) for field in fields} if images == "uri" else set()
    fields = [field for field in fields if field.key not in names]
    splits = []
    cells: dict[str, Cells] = {field.column: {} for field in fields}
    batch: list[tuple[str, Row]] = []  # first none: a dataset without records has columns too
    while True:
        splits += [split for split, _ in batch]
        for field in fields:
            for column, values in cells_of(stored, images, field, [row for _, row in batch]):
                cells[field.column].setdefault(column, []).extend(values)
        if not (batch := list(itertools.islice(rows, _TOGETHER))):
            return splits, cells


def one_row_a_box(frame: pd.DataFrame, fields: Sequence[Field]) -> pd.DataFrame:
    """Lists of boxes that came one a row as rows again; an image without boxes keeps one row."""
    kind = next((field.kind for field in fields if field.gathered), None)
    if not isinstance(kind, Boxes):
        return frame
    of_boxes = [field for field in fields if field.of_boxes]
    long = frame.explode([name for of in of_boxes for name in columns_of(of.column, of.kind)])
    for name in kind.columns:
        long[name] = long[name].astype(np.float64)
    if kind.label is not None:
        long[kind.label] = long[kind.label].where(long[kind.label].notna(), None)
    return long


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
        cells = cells_in(fields, rows)
        count = len(rows)
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
        cells = rows.column(key).to_pylist()
    else:
        cells = [row.get(key, ()) for _, row in read_rows(stored, [split])]
    if isinstance(field.kind, Label):
        return np.array([next(iter(values), NO_LABEL) for values in cells], np.int64)
    labels = np.empty(len(cells), object)
    labels[:] = [np.array(values, np.int64) for values in cells]
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
        names = ", ".join(map(repr, fields)) or "none"
        raise OptionError.of(
            "column", column, f"give a column with classes; {stored.directory} has {names}."
        )
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
    options = opened_commit(stored.directory, stored.commit).plan.options
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

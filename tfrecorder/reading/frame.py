"""`to_frame`: turns a dataset directory back into the frame it was made from."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.checks import OneOf
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format.example import Values, parse_features
from tfrecorder.options.option import require
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import STORED_FILES
from tfrecorder.reading.foreign_frame import (
    Cells,
    Row,
    foreign_columns,
    foreign_fields,
    foreign_frame,
)
from tfrecorder.reading.open import open_generations
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Number, Text
from tfrecorder.schema.schema_file import kind_of

IMAGES = ("uri", "bytes")

#: Records that are in memory together.
_TOGETHER = 64

#: The number of a record's row in the source, read as if it were a column; no column has this name.
_SOURCE_ROW = Field("", Text(), keys.SOURCE_ID)


def to_frame(
    directory: str | os.PathLike[str],
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
        from one generation to the next: `sort_index()` restores the order of the source.  Boxes
        that came one a row are rows again, one after the other, and share the number of their
        image.  Arrays are NumPy arrays, lists are lists.  Rejects are missing.  For records of
        other tools: every column that `info` lists, with rows numbered in file order, and boxes
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
    stored, generations = open_generations(where, STORED_FILES, at, NamedKeys(image, label))
    chosen = [stored.split(split)] if split is not None else list(stored.splits)
    rows = _read_rows(stored, chosen, images)
    if stored.form != "tfrecorder":
        fields = foreign_fields(stored, images)
        splits, cells = _gather(rows, fields, partial(foreign_columns, stored, images))
        return foreign_frame(splits, cells)
    splits, cells = _gather(rows, (*stored.fields, _SOURCE_ROW), partial(_columns, images))
    frame = _frame(stored.fields, generations[-1].metadata["options"], splits, cells)
    boxes = [field for field in stored.fields if isinstance(field.kind, Boxes) and field.gathered]
    return _one_row_a_box(frame, boxes[0]) if boxes else frame


def _read_rows(
    stored: StoredDataset, splits: Sequence[str], images: str
) -> Iterator[tuple[str, Row]]:
    """The split and the values of each record, without the pixels where only uris are wanted."""
    wanted = set(stored.features)
    if images == "uri":
        pixels = (field for field in stored.fields if isinstance(field.kind, (Image, Mask)))
        wanted -= {field.encoded_key for field in pixels}
    own = f"`{command('verify', stored.directory)}` says where."
    remedy = own if stored.form == "tfrecorder" else "Copy it again."
    for split, shard in [(name, shard) for name in splits for shard in stored.splits[name]]:
        try:
            with storage.failing_as(DatasetError, shard.path):
                for data in STORED_FILES.records(shard.path, shard.compression):
                    yield split, parse_features(data, wanted, bytes)
        except ValueError as error:
            raise DatasetError(f"{shard.path} is damaged: {error}. {remedy}") from error


def _gather(
    rows: Iterator[tuple[str, Row]],
    fields: Sequence[Field],
    columns: Callable[[Field, Sequence[Row]], dict[str, list[Any]]],
) -> tuple[list[str], Cells]:
    """The split of each record, and the cells of all columns.

    Only a few records are in memory at a time: what is not in a cell is forgotten.
    """
    splits: list[str] = []
    cells: Cells = {field.column: {} for field in fields}
    some: list[tuple[str, Row]] = []  # first none: a dataset without records has columns too
    while True:
        splits += [split for split, _ in some]
        for field in fields:
            for column, values in columns(field, [row for _, row in some]).items():
                cells[field.column].setdefault(column, []).extend(values)
        if not (some := list(itertools.islice(rows, _TOGETHER))):
            return splits, cells


def _frame(
    fields: Sequence[Field],
    options: Mapping[str, Any],
    splits: Sequence[str],
    cells: Cells,
) -> pd.DataFrame:
    index = pd.Index([int(row) for row in cells[_SOURCE_ROW.column][""]], dtype=np.int64)
    columns: dict[str, pd.Series] = {}
    plain = (options.get("schema") or {}).items()
    order = [name for name, _ in plain] or [SPLIT_COLUMN, *(field.column for field in fields)]
    splits_of = (name for name, kind in plain if kind_of(name, kind).word == "split")
    split_column = next(splits_of, SPLIT_COLUMN)
    by_name = {field.column: field for field in fields}
    if split_column not in order:
        order = [split_column, *order]
    for name in order:
        if name == split_column and name not in by_name:
            columns[name] = pd.Series(splits, index=index)
            continue
        if name not in by_name or by_name[name].is_unlabelled:
            continue
        for column, values in cells[name].items():
            columns[column] = _series(by_name[name], column, values, index)
    return pd.DataFrame(columns, index=index)


def _columns(images: str, field: Field, rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The source columns that a field was made from."""
    kind, key = field.kind, field.key
    if isinstance(kind, (Image, Mask)):
        if images == "bytes":
            return {field.column: [row[f"{key}/encoded"][0] for row in rows]}
        return {field.column: [_text(row[f"{key}/filename"][0]) for row in rows]}
    if isinstance(kind, Label):
        return {field.column: [_labels(field, key, row)[0] for row in rows]}
    if isinstance(kind, Labels):
        return _several(field, kind, [_labels(field, key, row) for row in rows])
    if isinstance(kind, Boxes):
        return _boxes(field, kind, rows)
    return {field.column: [_value(kind, row[key]) for row in rows]}


def _text(value: Any) -> str:
    return bytes(value).decode()


def _labels(field: Field, key: str, row: Row) -> list[Any]:
    if field.integer:
        return [int(number) for number in row[f"{key}/label"]]
    return [_text(text) for text in row[f"{key}/text"]]


def _several(field: Field, kind: Labels, lists: list[list[Any]]) -> dict[str, list[Any]]:
    if kind.columns is not None:
        return {
            column: [labels[at] if at < len(labels) else None for labels in lists]
            for at, column in enumerate(kind.columns)
        }
    if kind.separator is not None:
        lists = [kind.separator.join(map(str, labels)) for labels in lists]  # type: ignore[misc]
    return {field.column: list(lists)}


def _boxes(field: Field, kind: Boxes, rows: Sequence[Row]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    for column, key in zip(kind.columns, field.edges, strict=True):
        columns[column] = [_edges(kind, key, row) for row in rows]
    if kind.label is not None:
        columns[kind.label] = [_labels(field, f"{field.key}/class", row) for row in rows]
    return columns


def _edges(kind: Boxes, key: str, row: Row) -> list[float]:
    edges = np.asarray(row[key], np.float32)
    if kind.unit == "fraction":
        return [float(edge) for edge in edges]
    side = int(row["image/width" if "/bbox/x" in key else "image/height"][0])
    # float32 does not hold fractions exactly: round to thousandths of a pixel.
    pixels = np.round(edges.astype(np.float64) * side, 3)
    return [float(edge) for edge in pixels]


def _value(kind: Any, values: Values) -> Any:
    if isinstance(kind, Number):
        dtype = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}[kind.dtype]
        array: np.ndarray = np.asarray(values if len(values) else [], dtype)
        if kind.shape == ():
            return array[0]
        return array.tolist() if kind.shape == (None,) else array.reshape(kind.shape)
    read = _text if isinstance(kind, Text) else bytes
    items = [read(value) for value in values]
    if kind.shape == ():
        return items[0]
    if kind.shape == (None,):
        return items
    cells: np.ndarray = np.empty(len(items), dtype=object)
    cells[:] = items
    return cells.reshape(kind.shape)


def _series(field: Field, column: str, values: list[Any], index: pd.Index) -> pd.Series:
    kind: Any = field.kind
    if isinstance(kind, Number) and kind.shape == ():
        return pd.Series(np.array(values, dtype=kind.dtype), index=index)
    if isinstance(kind, Label) and field.integer:
        return pd.Series(np.array(values, dtype=np.int64), index=index)
    if all(isinstance(value, str) for value in values):
        return pd.Series(values, index=index, name=column)
    cells = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        cells[place] = value
    return pd.Series(cells, index=index, name=column)


def _one_row_a_box(frame: pd.DataFrame, field: Field) -> pd.DataFrame:
    """Lists of boxes as one row per box; an image without boxes keeps one row."""
    kind = field.kind
    assert isinstance(kind, Boxes)
    lists = [*kind.columns, *([kind.label] if kind.label else [])]
    long = frame.explode(lists)
    for name in kind.columns:
        long[name] = long[name].astype(np.float64)
    if kind.label is not None:
        long[kind.label] = long[kind.label].where(long[kind.label].notna(), None)
    return long

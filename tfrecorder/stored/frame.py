"""`to_frame`: turns a dataset directory back into the frame it was made from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.dataset.example import Values, parse_example
from tfrecorder.dataset.tfrecord import CorruptRecordError, read_records
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Number, Text
from tfrecorder.schema.schema_file import kind_of
from tfrecorder.stored.dataset import StoredDataset
from tfrecorder.stored.files import local_files, stored_files
from tfrecorder.stored.foreign_frame import foreign_frame
from tfrecorder.stored.open import open_generations

IMAGES = ("uri", "bytes")


def to_frame(
    directory: str | os.PathLike[str],
    split: str | None = None,
    images: str = "uri",
    at: int | None = None,
) -> pd.DataFrame:
    """The rows and columns that a dataset was made from, without TensorFlow.

    Everything is in memory at once, with images="bytes" every image too.

    Args:
        directory: what `convert` wrote; or records of other tools, as for `load`.
        split: read only this split; None reads all.
        images: "uri" gives images and masks as the source named them, "bytes" as stored.
        at: read a dataset that was appended to only up to this generation; None is the newest.

    Returns:
        The columns of the schema, with rows in the source's order.  A column `split` is added if
        the schema has none.  The index is the row number, which continues from one generation to
        the next.  Arrays are NumPy arrays, lists are lists; boxes are rows or lists, as in the
        source.  Rejects are missing.  For records of other tools: every column that `info` lists,
        with rows numbered in file order, and boxes as lists in the unit of the record.

    Raises:
        DatasetError: the directory is not a whole dataset, or has no such split.
        OptionError: `images` is neither "uri" nor "bytes", or it is "uri" and records of other
            tools do not name their image files.

    Example:
        >>> tfrecorder.to_frame("out")  # doctest: +SKIP
    """
    if images not in IMAGES:
        raise OptionError(f"images={images!r}: give one of {', '.join(map(repr, IMAGES))}.")
    where = os.fspath(directory)
    files = local_files() if not storage.scheme(where) else stored_files()
    stored, found = open_generations(where, files, at)
    chosen = [stored.split(split)] if split is not None else list(stored.splits)
    if stored.form != "tfrecorder":
        return foreign_frame(stored, chosen, images, files)
    options = found[-1].metadata.get("options", {})
    rows = [
        (int(features[keys.SOURCE_ID][0]), name, features)
        for name in chosen
        for features in _records(stored, name)
    ]
    rows.sort(key=lambda row: row[0])
    frame = _frame(stored.fields, options, rows, images)
    boxes = [one for one in stored.fields if isinstance(one.kind, Boxes) and one.gathered]
    return _one_row_a_box(frame, boxes[0]) if boxes else frame


def _records(stored: StoredDataset, split: str) -> Iterator[Mapping[str, Values]]:
    for shard in stored.splits[split]:
        with (
            storage.failing_as(DatasetError, shard.path),
            storage.open_seekable(shard.path) as file,
        ):
            try:
                for _, data in read_records(file):
                    yield parse_example(data)
            except (CorruptRecordError, ValueError) as error:
                raise DatasetError(
                    f"{shard.path} is damaged: {error}. `tfrecorder verify {stored.directory}` "
                    "says where."
                ) from error


def _frame(
    fields: Sequence[Field],
    options: Mapping[str, Any],
    rows: Sequence[tuple[int, str, Mapping[str, Values]]],
    images: str,
) -> pd.DataFrame:
    index = pd.Index([number for number, _, _ in rows], dtype=np.int64)
    splits = pd.Series([name for _, name, _ in rows], index=index)
    columns: dict[str, pd.Series] = {}
    plain = (options.get("schema") or {}).items()
    order = [name for name, _ in plain] or [SPLIT_COLUMN, *(one.column for one in fields)]
    splits_of = (name for name, kind in plain if kind_of(name, kind).word == "split")
    split_column = next(splits_of, SPLIT_COLUMN)
    by_name = {field.column: field for field in fields}
    if split_column not in order:
        order = [split_column, *order]
    for name in order:
        if name == split_column and name not in by_name:
            columns[name] = splits
            continue
        if name not in by_name or by_name[name].is_unlabelled:
            continue
        field = by_name[name]
        for column, values in _columns(field, [row for _, _, row in rows], images).items():
            columns[column] = _series(field, column, values, index)
    return pd.DataFrame(columns, index=index)


def _columns(
    field: Field, rows: Sequence[Mapping[str, Values]], images: str
) -> dict[str, list[Any]]:
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


def _labels(field: Field, key: str, row: Mapping[str, Values]) -> list[Any]:
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


def _boxes(field: Field, kind: Boxes, rows: Sequence[Mapping[str, Values]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for column, key in zip(kind.columns, field.edges, strict=True):
        found[column] = [_edges(kind, key, row) for row in rows]
    if kind.label is not None:
        found[kind.label] = [_labels(field, f"{field.key}/class", row) for row in rows]
    return found


def _edges(kind: Boxes, key: str, row: Mapping[str, Values]) -> list[float]:
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
    found = [read(value) for value in values]
    if kind.shape == ():
        return found[0]
    if kind.shape == (None,):
        return found
    cells: np.ndarray = np.empty(len(found), dtype=object)
    cells[:] = found
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


def _one_row_a_box(found: pd.DataFrame, field: Field) -> pd.DataFrame:
    """Lists of boxes as one row per box; an image without boxes keeps one row."""
    kind = field.kind
    assert isinstance(kind, Boxes)
    lists = [*kind.columns, *([kind.label] if kind.label else [])]
    long = found.explode(lists)
    for name in kind.columns:
        long[name] = long[name].astype(np.float64)
    if kind.label is not None:
        long[kind.label] = long[kind.label].where(long[kind.label].notna(), None)
    return long

"""The columns of a frame: what a dataset holds of each, as the source named it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.errors import OptionError
from tfrecorder.format.example import Values, text_of
from tfrecorder.images.boxes_and_masks import as_segmentation
from tfrecorder.reading.boxes import stored_corners
from tfrecorder.reading.commits import opened_commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import (
    FILES,
    Boxes,
    Image,
    Label,
    Labels,
    Number,
    Text,
    ValueKind,
    columns_of,
)
from tfrecorder.schema.schema_file import kind_of

#: Keys where tools keep an image's file name, other than the image's own key with `/filename`.
_FILENAMES = (keys.FILENAME, "filename", "file_name")

#: The values of a record by key.
Row = Mapping[str, Values]

#: The cells of each column that a field makes: a list, or a chunked array of Arrow's.
Cells = dict[str, Any]


def frame_of(
    stored: StoredDataset, splits: Any, cells: Mapping[str, Cells], index: pd.Index
) -> pd.DataFrame:
    """The frame of some records, with its columns in the order of the schema.

    Args:
        stored: the dataset.
        splits: of each record.
        cells: by the column of the field; a field without any makes no column.
        index: of the frame.
    """
    options = {}
    if stored.commit is not None:
        options = opened_commit(stored.directory, stored.commit).plan.options
    columns = {}
    schema = options.get("schema") or {}
    splits_of = (name for name, kind in schema.items() if kind_of(name, kind).word == "split")
    split_column = next(splits_of, SPLIT_COLUMN)
    order = list(schema) or [SPLIT_COLUMN, *(field.column for field in stored.fields)]
    if split_column not in order:
        order = [split_column, *order]
    by_name = {field.column: field for field in stored.fields if field.column in cells}
    for name in order:
        field = by_name.get(name)
        if field is not None and not field.is_unlabelled:
            for column, values in cells[name].items():
                columns[column] = _series(field, values, index)
        elif field is None and name == split_column:
            columns[name] = pd.Series(splits, index=index)
    return pd.DataFrame(columns, index=index)


def name_key(stored: StoredDataset, field: Field) -> str | None:
    """The key with the file name of an image, a mask or a file; None if there is none."""
    if not isinstance(field.kind, FILES):
        return None
    usual = _FILENAMES if isinstance(field.kind, Image) else ()
    names = (f"{field.encoded_key.removesuffix('/encoded')}/filename", *usual)
    return next((name for name in names if stored.features.get(name) == "text"), None)


def cells_of(
    stored: StoredDataset, images: str, field: Field, rows: Sequence[Row]
) -> Iterator[tuple[str, list[Any]]]:
    """The columns that a field makes, each with its cells.

    Raises:
        OptionError: images="uri", and the records do not name their image files.
    """
    kind = field.kind
    if isinstance(kind, FILES):
        is_uri = images == "uri"
        key = name_key(stored, field) if is_uri else field.encoded_key
        read: Callable[[bytes], Any] = text_of if is_uri else bytes
        if key is None:
            raise OptionError.of(
                "images",
                "uri",
                f"{stored.directory} does not say from which file its {field.column} is; "
                "give `images='bytes'`.",
            )
        yield field.column, [next(map(read, row.get(key, ())), None) for row in rows]
    elif isinstance(kind, Label):
        yield field.column, [next(iter(_classes(field, row)), None) for row in rows]
    elif isinstance(kind, Labels):
        yield from _several(field, kind, [_classes(field, row) for row in rows])
    elif isinstance(kind, Boxes):
        yield from _boxes(field, kind, rows)
    else:
        values: Iterator[Any] = (row.get(field.key, ()) for row in rows)
        if isinstance(kind, Text):
            values = (list(map(text_of, texts)) for texts in values)
        yield field.column, [_value(kind, cell) for cell in values]


def table_keys(field: Field) -> list[str]:
    """What the tables of shards hold of a column, in the order in which `cells_in` needs it."""
    if isinstance(field.kind, FILES):
        return [field.uri_key]
    classes = field.label_key if field.integer else field.text_key
    edges = field.edges if isinstance(field.kind, Boxes) else ()
    masks = field.masks_key if edges and field.held is None else None
    return [*edges, *filter(None, [classes, masks])] or [field.key]


def cells_in(fields: Iterable[Field], rows: pa.Table) -> dict[str, Cells]:
    """The cells of columns by the column of the field, from the tables of shards, without pixels.

    Those of which the tables do not hold everything are left out.
    """
    cells = {}
    for field in fields:
        names = table_keys(field)
        if {*names} <= {*rows.column_names}:
            cells[field.column] = dict(_cells_in(field, [rows.column(key) for key in names]))
    return cells


def _cells_in(field: Field, values: Sequence[pa.ChunkedArray]) -> Iterator[tuple[str, Any]]:
    kind: Any = field.kind
    if isinstance(kind, Labels):
        yield from _several(field, kind, values[0].to_pylist())
    elif isinstance(kind, Boxes):
        columns = columns_of(field.column, kind)
        yield from zip(columns, (edge.to_pylist() for edge in values), strict=True)
    elif isinstance(kind, ValueKind) and kind.shape != ():
        yield field.column, [_value(kind, cell) for cell in values[0].to_pylist()]
    else:
        yield field.column, values[0]


def _classes(field: Field, row: Row) -> list[Any]:
    """Classes as text if the record or the metadata has it, else as integers."""
    texts = row.get(field.text_key or "", ())
    if len(texts) and all(map(len, texts)) and not field.integer:
        return list(map(text_of, texts))
    numbers = np.asarray(row.get(field.label_key or "", ()), np.int64).tolist()
    names = () if field.integer else field.names or ()
    return [names[number] if 0 <= number < len(names) else number for number in numbers]


def _several(
    field: Field, kind: Labels, cells: Sequence[list[Any]]
) -> Iterator[tuple[str, list[Any]]]:
    if kind.columns is not None:
        for place, column in enumerate(kind.columns):
            yield column, [labels[place] if place < len(labels) else None for labels in cells]
    elif kind.separator is not None:
        yield field.column, [kind.separator.join(map(str, labels)) for labels in cells]
    else:
        yield field.column, list(cells)


def _boxes(field: Field, kind: Boxes, rows: Sequence[Row]) -> Iterator[tuple[str, list[Any]]]:
    """Lists of edges and classes; of other tools, in the unit of the record and with masks."""
    corners = [stored_corners(field, row) for row in rows]
    if kind.unit == "pixel" and not field.in_pixels:
        # float32 does not hold fractions exactly: round to thousandths of a pixel.
        corners = [
            np.round(boxes.astype(np.float64) * _sides(row), 3)
            for boxes, row in zip(corners, rows, strict=True)
        ]
    for column, edge in zip(kind.columns, (1, 0, 3, 2), strict=True):
        yield column, [boxes[:, edge].tolist() for boxes in corners]
    if kind.label is not None:
        yield kind.label, [_classes(field, row) for row in rows]
    if field.masks_key is not None:
        masks = [list(row.get(field.masks_key, ())) for row in rows]
        if kind.masks:
            yield kind.masks, [[*map(as_segmentation, map(bytes, of_row))] for of_row in masks]
        else:
            yield field.masks_key, masks


def objects(values: Sequence[Any]) -> np.ndarray:
    """An array with each value in a cell, also where values are lists or arrays."""
    cells = np.empty(len(values), object)
    cells[:] = values
    return cells


def _sides(row: Row) -> list[int]:
    """The height and the width of an image, twice."""
    return [int(row[key][0]) for key in (keys.HEIGHT, keys.WIDTH)] * 2


def _value(kind: Any, values: Any) -> Any:
    is_number = isinstance(kind, Number)
    cells: Any = np.asarray(values, kind.dtype) if is_number else objects(values)
    if kind.shape == ():
        return cells[0] if len(cells) else None
    return cells.tolist() if None in kind.shape else cells.reshape(kind.shape)


def _series(field: Field, values: Any, index: pd.Index) -> pd.Series:
    """Numbers as their type, texts as texts, anything else as objects: a list is one cell."""
    kind: Any = field.kind
    if isinstance(values, pa.ChunkedArray):
        series = values.to_pandas().set_axis(index)
        return series.astype(kind.dtype) if isinstance(kind, Number) else series
    if not any(value is None for value in values):
        if isinstance(kind, Number) and kind.shape == ():
            return pd.Series(np.array(values, dtype=kind.dtype), index=index)
        if all(isinstance(value, str) for value in values) and not field.integer:
            return pd.Series(values, index=index)
        if isinstance(kind, Label) and all(isinstance(value, int) for value in values):
            return pd.Series(np.array(values, dtype=np.int64), index=index)
    return pd.Series(values, index=index, dtype=object)

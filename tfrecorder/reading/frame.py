"""`to_frame`: turns a dataset directory back into the frame it was made from."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.core.checks import OneOf
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.example import Values, parse_features, text_of
from tfrecorder.options.option import require
from tfrecorder.options.read import NamedKeys
from tfrecorder.reading.boxes import stored_corners
from tfrecorder.reading.commits import opened_commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import records_in
from tfrecorder.reading.open import open_dataset
from tfrecorder.schema import keys
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Number, Text
from tfrecorder.schema.schema_file import kind_of

IMAGES = ("uri", "bytes")

#: Records that are in memory together.
_TOGETHER = 64

#: Keys where tools keep an image's file name, other than the image's own key with `/filename`.
_FILENAMES = (keys.FILENAME, "filename", "file_name")

#: The values of a record by key.
Row = Mapping[str, Values]

#: The cells of each column that a field makes, by the column of the field.
Cells = dict[str, dict[str, list[Any]]]

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
    stored = open_dataset(where, at, NamedKeys(image, label))
    chosen = [stored.split(split)] if split is not None else list(stored.splits)
    splits, cells = _gather(stored, chosen, images)
    options = {}
    if stored.commit is not None:
        options = opened_commit(where, stored.commit).manifest["options"]
    frame = _frame(stored.fields, options, splits, cells)
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
                for data in records_in(shard):
                    yield split, parse_features(data, wanted, bytes)
        except ValueError as error:
            raise DatasetError(f"{shard.path} is damaged: {error}. {remedy}") from error


def _gather(stored: StoredDataset, chosen: Sequence[str], images: str) -> tuple[list[str], Cells]:
    """The split of each record, and the cells of all columns.

    Only a few records are in memory at a time: what is not in a cell is forgotten.  With uris, the
    key of an image's file name makes no column itself.
    """
    rows = _read_rows(stored, chosen, images)
    names = {_name_key(stored, field) for field in stored.fields} if images == "uri" else set()
    fields = [field for field in stored.fields if field.key not in names]
    if stored.form == "tfrecorder":
        fields.append(_SOURCE_ROW)
    splits: list[str] = []
    cells: Cells = {field.column: {} for field in fields}
    batch: list[tuple[str, Row]] = []  # first none: a dataset without records has columns too
    while True:
        splits += [split for split, _ in batch]
        for field in fields:
            for column, values in _columns(stored, images, field, [row for _, row in batch]):
                cells[field.column].setdefault(column, []).extend(values)
        if not (batch := list(itertools.islice(rows, _TOGETHER))):
            return splits, cells


def _frame(
    fields: Sequence[Field],
    options: Mapping[str, Any],
    splits: Sequence[str],
    cells: Cells,
) -> pd.DataFrame:
    rows = cells.get(_SOURCE_ROW.column, {}).get("", range(len(splits)))
    index = pd.Index([int(row) for row in rows], dtype=np.int64)
    columns: dict[str, pd.Series] = {}
    plain = (options.get("schema") or {}).items()
    order = [name for name, _ in plain] or [SPLIT_COLUMN, *(field.column for field in fields)]
    splits_of = (name for name, kind in plain if kind_of(name, kind).word == "split")
    split_column = next(splits_of, SPLIT_COLUMN)
    by_name = {field.column: field for field in fields if field.column in cells}
    if split_column not in order:
        order = [split_column, *order]
    for name in order:
        if name == split_column and name not in by_name:
            columns[name] = pd.Series(splits, index=index)
            continue
        if name not in by_name or by_name[name].is_unlabelled:
            continue
        for column, values in cells[name].items():
            columns[column] = _series(by_name[name], values, index)
    return pd.DataFrame(columns, index=index)


def _name_key(stored: StoredDataset, field: Field) -> str | None:
    """The key with the file name of an image or a mask; None if there is none."""
    if not isinstance(field.kind, (Image, Mask)):
        return None
    usual = _FILENAMES if isinstance(field.kind, Image) else ()
    names = (f"{field.encoded_key.removesuffix('/encoded')}/filename", *usual)
    return next((name for name in names if stored.features.get(name) == "text"), None)


def _columns(
    stored: StoredDataset, images: str, field: Field, rows: Sequence[Row]
) -> Iterator[tuple[str, list[Any]]]:
    """The columns that a field makes, each with its cells.

    Raises:
        OptionError: images="uri", and the records do not name their image files.
    """
    kind = field.kind
    if isinstance(kind, (Image, Mask)):
        key: str | None = field.encoded_key
        read: Callable[[bytes], Any] = bytes
        if images == "uri":
            key, read = _name_key(stored, field), text_of
        if key is None:
            words = f"{stored.directory} does not say from which file its {field.column} is; "
            raise OptionError.of("images", "uri", f"{words}give `images='bytes'`.")
        yield field.column, [next(map(read, row.get(key, ())), None) for row in rows]
    elif isinstance(kind, Label):
        yield field.column, [next(iter(_classes(field, row)), None) for row in rows]
    elif isinstance(kind, Labels):
        yield from _several(field, kind, [_classes(field, row) for row in rows])
    elif isinstance(kind, Boxes):
        yield from _boxes(field, kind, rows)
    else:
        yield field.column, [_value(kind, row.get(field.key, ())) for row in rows]


def _classes(field: Field, row: Row) -> list[Any]:
    """Classes as text if the record or the metadata has it, else as integers."""
    texts = row.get(field.text_key or "", ())
    if len(texts) and all(map(len, texts)) and not field.integer:
        return list(map(text_of, texts))
    numbers = np.asarray(row.get(field.label_key or "", ()), np.int64).tolist()
    names = () if field.integer else field.names or ()
    return [names[number] if 0 <= number < len(names) else number for number in numbers]


def _several(
    field: Field, kind: Labels, lists: Sequence[list[Any]]
) -> Iterator[tuple[str, list[Any]]]:
    if kind.columns is not None:
        for place, column in enumerate(kind.columns):
            yield column, [labels[place] if place < len(labels) else None for labels in lists]
    elif kind.separator is not None:
        yield field.column, [kind.separator.join(map(str, labels)) for labels in lists]
    else:
        yield field.column, list(lists)


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
        yield field.masks_key, [list(row.get(field.masks_key, ())) for row in rows]


def _sides(row: Row) -> list[int]:
    """The height and the width of an image, twice."""
    return [int(row[key][0]) for key in (keys.HEIGHT, keys.WIDTH)] * 2


def _value(kind: Any, values: Any) -> Any:
    cells: Any
    if isinstance(kind, Number):
        cells = np.asarray(values, kind.dtype)
    else:
        cells = np.empty(len(values), dtype=object)
        cells[:] = list(map(text_of if isinstance(kind, Text) else bytes, values))
    if kind.shape == ():
        return cells[0] if len(cells) else None
    return cells.tolist() if None in kind.shape else cells.reshape(kind.shape)


def _series(field: Field, values: list[Any], index: pd.Index) -> pd.Series:
    """Numbers as their type, texts as texts, anything else as objects: a list is one cell."""
    kind: Any = field.kind
    if not any(value is None for value in values):
        if isinstance(kind, Number) and kind.shape == ():
            return pd.Series(np.array(values, dtype=kind.dtype), index=index)
        if all(isinstance(value, str) for value in values) and not field.integer:
            return pd.Series(values, index=index)
        if isinstance(kind, Label) and all(isinstance(value, int) for value in values):
            return pd.Series(np.array(values, dtype=np.int64), index=index)
    cells = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        cells[place] = value
    return pd.Series(cells, index=index)


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

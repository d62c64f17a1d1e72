"""Records of other tools as a frame: one row per record, one column per known column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.dataset.example import Values, parse_example
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import FILENAME, SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Number, Text
from tfrecorder.stored.boxes import stored_corners
from tfrecorder.stored.dataset import Files, StoredDataset

#: Keys where tools keep an image's file name, other than the image's own key with `/filename`.
_FILENAMES = (FILENAME, "filename", "file_name")

_DTYPES = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}

Row = Mapping[str, Values]


def foreign_frame(
    stored: StoredDataset, splits: Sequence[str], images: str, files: Files
) -> pd.DataFrame:
    """All records of some splits; see `to_frame`.

    Boxes are lists in the unit of the record, and the PNGs of their masks are in a column next to
    them.

    Raises:
        DatasetError: a file is damaged.
        OptionError: images="uri", and the records do not name their image files.
    """
    rows: list[Row] = []
    names: list[str] = []
    for split in splits:
        found = _records(stored, split, files)
        rows += found
        names += [split] * len(found)
    columns = {SPLIT_COLUMN: pd.Series(names, dtype=object)}
    used = {_name_key(stored, one) for one in stored.fields} if images == "uri" else set()
    for field in stored.fields:
        if field.key not in used:  # its values are the image column's
            columns.update(_columns(stored, field, rows, images))
    return pd.DataFrame(columns)


def _records(stored: StoredDataset, split: str, files: Files) -> list[Row]:
    found: list[Row] = []
    for shard in stored.splits[split]:
        try:
            with storage.failing_as(DatasetError, shard.path):
                found += map(parse_example, files.records(shard.path, shard.compression))
        except ValueError as error:
            raise DatasetError(f"{shard.path} is damaged: {error}. Copy it again.") from error
    return found


def _name_key(stored: StoredDataset, field: Field) -> str | None:
    """The key with the file name of an image or a mask; None if there is none."""
    if not isinstance(field.kind, (Image, Mask)):
        return None
    usual = _FILENAMES if isinstance(field.kind, Image) else ()
    keys = (f"{field.encoded_key.removesuffix('/encoded')}/filename", *usual)
    texts = stored.features
    return next((key for key in keys if texts.get(key) == "text"), None)


def _columns(
    stored: StoredDataset, field: Field, rows: Sequence[Row], images: str
) -> dict[str, pd.Series]:
    kind = field.kind
    if isinstance(kind, (Image, Mask)):
        key: str | None = field.encoded_key
        if images == "uri" and (key := _name_key(stored, field)) is None:
            raise OptionError(
                f"images='uri': {stored.directory} does not say from which file its "
                f"{field.column} is; give images='bytes'."
            )
        cells = [_first(row, key or "") for row in rows]
        return {field.column: _series([_text(one) for one in cells] if images == "uri" else cells)}
    if isinstance(kind, Boxes):
        return _boxes(field, kind, rows)
    if isinstance(kind, (Label, Labels)):
        classes = [_classes(field, row) for row in rows]
        if isinstance(kind, Labels):
            return {field.column: _series(classes)}
        return {field.column: _series([some[0] if some else None for some in classes])}
    return {field.column: _values(kind, [row.get(field.key, ()) for row in rows])}


def _boxes(field: Field, kind: Boxes, rows: Sequence[Row]) -> dict[str, pd.Series]:
    corners = [stored_corners(field, row) for row in rows]
    found = {
        column: _series([some[:, at].tolist() for some in corners])
        for column, at in zip(kind.columns, (1, 0, 3, 2), strict=True)
    }
    if kind.label is not None:
        found[kind.label] = _series([_classes(field, row) for row in rows])
    if field.masks_key is not None:
        found[field.masks_key] = _series([list(row.get(field.masks_key, ())) for row in rows])
    return found


def _classes(field: Field, row: Row) -> list[Any]:
    """Classes as text if the record or the metadata has it, else as integers."""
    texts = row.get(field.text_key or "", ())
    if len(texts) and all(len(one) for one in texts):
        return [_text(one) for one in texts]
    numbers = np.asarray(row.get(field.label_key or "", ()), np.int64).tolist()
    names = field.names or ()
    return [names[one] if 0 <= one < len(names) else one for one in numbers]


def _values(kind: Any, several: Sequence[Any]) -> pd.Series:
    if isinstance(kind, Number):
        dtype = _DTYPES[kind.dtype]
        arrays: list[np.ndarray] = [np.asarray(values, dtype) for values in several]
        if kind.shape == () and all(len(one) == 1 for one in arrays):
            return pd.Series(np.concatenate(arrays) if arrays else np.zeros(0, dtype))
        if None in kind.shape:
            return _series([one.tolist() for one in arrays])
        return _series([one.reshape(kind.shape) for one in arrays])
    read = _text if isinstance(kind, Text) else bytes
    cells = [[read(value) for value in values] for values in several]
    if kind.shape == ():
        return _series([some[0] if some else None for some in cells])
    return _series(cells)


def _first(row: Row, key: str) -> Any:
    return next(iter(row.get(key, ())), None)


def _text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode(errors="backslashreplace")


def _series(cells: Sequence[Any]) -> pd.Series:
    """Integers as int64 if all values are integers; else objects, with each list in one cell."""
    if cells and all(type(one) is int for one in cells):
        return pd.Series(cells, dtype=np.int64)
    made = np.empty(len(cells), dtype=object)
    for place, one in enumerate(cells):
        made[place] = one
    return pd.Series(made)

"""Records of other tools as a frame: one row per record, one column per known column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.errors import OptionError
from tfrecorder.format.example import Values
from tfrecorder.reading.boxes import stored_corners
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import FILENAME, SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Number, Text

#: Keys where tools keep an image's file name, other than the image's own key with `/filename`.
_FILENAMES = (FILENAME, "filename", "file_name")

_DTYPES = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}

Row = Mapping[str, Values]

#: The cells of each column that a field makes, by the column of the field.
Cells = dict[str, dict[str, list[Any]]]


def foreign_fields(stored: StoredDataset, images: str) -> list[Field]:
    """The columns of a frame; with uris, the key of an image's file name makes none itself."""
    used = {_name_key(stored, field) for field in stored.fields} if images == "uri" else set()
    return [field for field in stored.fields if field.key not in used]


def foreign_frame(splits: Sequence[str], cells: Cells) -> pd.DataFrame:
    """All records of some splits; see `to_frame`.

    Boxes are lists in the unit of the record, and the PNGs of their masks are in a column next to
    them.
    """
    columns = {SPLIT_COLUMN: pd.Series(splits, dtype=object)}
    for of_field in cells.values():
        columns.update({column: _series(values) for column, values in of_field.items()})
    return pd.DataFrame(columns)


def _name_key(stored: StoredDataset, field: Field) -> str | None:
    """The key with the file name of an image or a mask; None if there is none."""
    if not isinstance(field.kind, (Image, Mask)):
        return None
    usual = _FILENAMES if isinstance(field.kind, Image) else ()
    keys = (f"{field.encoded_key.removesuffix('/encoded')}/filename", *usual)
    texts = stored.features
    return next((key for key in keys if texts.get(key) == "text"), None)


def foreign_columns(
    stored: StoredDataset, images: str, field: Field, rows: Sequence[Row]
) -> dict[str, list[Any]]:
    """The cells of the columns that a field makes.

    Raises:
        OptionError: images="uri", and the records do not name their image files.
    """
    kind = field.kind
    if isinstance(kind, (Image, Mask)):
        key: str | None = field.encoded_key
        if images == "uri" and (key := _name_key(stored, field)) is None:
            words = f"{stored.directory} does not say from which file its {field.column} is; "
            raise OptionError.of("images", "uri", f"{words}give `images='bytes'`.")
        cells = [_first(row, key or "") for row in rows]
        return {field.column: [_text(cell) for cell in cells] if images == "uri" else cells}
    if isinstance(kind, Boxes):
        return _boxes(field, kind, rows)
    if isinstance(kind, (Label, Labels)):
        classes = [_classes(field, row) for row in rows]
        if isinstance(kind, Labels):
            return {field.column: classes}
        return {field.column: [some[0] if some else None for some in classes]}
    return {field.column: [_value(kind, row.get(field.key, ())) for row in rows]}


def _boxes(field: Field, kind: Boxes, rows: Sequence[Row]) -> dict[str, list[Any]]:
    corners = [stored_corners(field, row) for row in rows]
    columns: dict[str, list[Any]] = {
        column: [some[:, at].tolist() for some in corners]
        for column, at in zip(kind.columns, (1, 0, 3, 2), strict=True)
    }
    if kind.label is not None:
        columns[kind.label] = [_classes(field, row) for row in rows]
    if field.masks_key is not None:
        columns[field.masks_key] = [list(row.get(field.masks_key, ())) for row in rows]
    return columns


def _classes(field: Field, row: Row) -> list[Any]:
    """Classes as text if the record or the metadata has it, else as integers."""
    texts = row.get(field.text_key or "", ())
    if len(texts) and all(len(text) for text in texts):
        return [_text(text) for text in texts]
    numbers = np.asarray(row.get(field.label_key or "", ()), np.int64).tolist()
    names = field.names or ()
    return [names[number] if 0 <= number < len(names) else number for number in numbers]


def _value(kind: Any, values: Any) -> Any:
    if isinstance(kind, Number):
        array: np.ndarray = np.asarray(values, _DTYPES[kind.dtype])
        if kind.shape == () and len(array) == 1:
            return array[0]
        return array.tolist() if None in kind.shape else array.reshape(kind.shape)
    read = _text if isinstance(kind, Text) else bytes
    cells = [read(value) for value in values]
    if kind.shape == ():
        return cells[0] if cells else None
    return cells


def _first(row: Row, key: str) -> Any:
    return next(iter(row.get(key, ())), None)


def _text(value: Any) -> str | None:
    return None if value is None else bytes(value).decode(errors="backslashreplace")


def _series(cells: Sequence[Any]) -> pd.Series:
    """Numbers of one type as this type; else objects, with each list in one cell."""
    if cells and type(cells[0]) in (int, *_DTYPES.values()) and len(set(map(type, cells))) == 1:
        return pd.Series(np.array(cells))
    made = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        made[place] = cell
    return pd.Series(made)

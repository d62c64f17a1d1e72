"""The record: its keys and their types, as both writing and reading know them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

ENCODED = "image/encoded"
HEIGHT = "image/height"
WIDTH = "image/width"
FILENAME = "image/filename"
SOURCE_ID = "image/source_id"
LABEL = "image/class/label"
TEXT = "image/class/text"

#: The label of every record of a dataset without labels.  In one with labels none is missing.
NO_LABEL = -1

#: What detection tools call class 0, which they reserve: no box has this class.
BACKGROUND = "background"

#: The columns of an AutoML-style frame.
SPLIT_COLUMN = "split"
URI_COLUMN = "image_uri"
LABEL_COLUMN = "label"
#: What the tables of other tools call the uri.
FILE_NAME = "file_name"
COLUMNS = (SPLIT_COLUMN, URI_COLUMN, LABEL_COLUMN)
#: The edges of boxes, where a source names them in no other way.
BOX_COLUMNS = ("x_min", "y_min", "x_max", "y_max")


def number_column(columns: Collection[object], beside: Collection[object] = ()) -> str:
    """The column in which `to_frame` repeats the number of each row.

    Args:
        columns: those of the dataset, which keep their values.
        beside: all columns of a table that may have the number too.

    >>> number_column(["label"]), number_column(["row"]), number_column([], ["row", "source_row"])
    ('row', 'source_row', 'source_row')
    """
    name = "row"
    while name in columns or f"source_{name}" in beside:
        name = f"source_{name}"
    return name


@dataclass(frozen=True)
class Feature:
    """One key of the record.

    Attributes:
        key: its name in the record.
        kind: "image" or "mask" (encoded bytes), "text" (UTF-8), "bytes", "int64", "float", "bool"
            (an int64 of 0 or 1), or "label" (an int64 class).
        shape: () is one value, (None,) a list of any length, anything else the shape of an array.
        default: replaces the value in records without this key; None if all records have it.
    """

    key: str
    kind: str
    shape: tuple[int | None, ...] = ()
    default: int | None = None

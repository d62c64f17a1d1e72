"""What each column of a dataset holds, and the tables that show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder.display.tables import cut, one_line
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.schema.fields import Field, image_of
from tfrecorder.schema.kinds import Boxes, Bytes, File, Image, Labels, Mask, Number, Text

#: How many of the most frequent values the printed table shows; programs get ten.
SHOWN_VALUES = 3


@dataclass(frozen=True)
class ColumnInfo:
    """One column of a dataset.

    Attributes:
        kind: its word in a schema file, such as "image" or "number".
        dtype: "uint8" or "uint16" for pixels, "int64" for classes, "float32" for boxes, "string"
            for texts, bytes and files; for numbers as in the schema.
        shape: () is one value, (None,) a list of any length; for images and masks height, width
            and channels, None where they differ.
        num_classes: of labels and of boxes with labels; None for others.
        class_names: by integer; None if there are none.
    """

    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    num_classes: int | None = None
    class_names: tuple[str, ...] | None = None


def columns_of(stored: StoredDataset) -> dict[str, ColumnInfo]:
    """The columns that make features, by name."""
    return {field.column: _column(field, stored) for field in stored.fields}


def _column(field: Field, stored: StoredDataset) -> ColumnInfo:
    kind = field.kind
    dtype = "int64"
    shape = tuple[int | None, ...]()
    if isinstance(kind, Image):
        dtype = f"uint{field.depth}"
        shape = _pixels(field, stored)
    elif isinstance(kind, Mask):
        dtype = "uint8"
        shape = (*_pixels(image_of(field, stored.fields), stored)[:2], 1)
    elif isinstance(kind, Boxes):
        dtype = "float32"
        shape = (None, 4)
    elif isinstance(kind, Labels):
        shape = (None,)
    elif isinstance(kind, Number):
        dtype = kind.dtype
        shape = kind.shape
    elif isinstance(kind, File):
        dtype = "string"
    elif isinstance(kind, (Text, Bytes)):
        dtype = "string"
        shape = kind.shape
    count = None if field.label_key is None else field.num_classes
    return ColumnInfo(kind.word, dtype, shape, count, field.names)


def _pixels(image: Field, stored: StoredDataset) -> tuple[int | None, ...]:
    return stored.shape_of(image.encoded_key)


def column_tables(
    columns: Mapping[str, ColumnInfo], statistics: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> list[list[list[str]]]:
    """Tables to print: the columns, the statistics of numbers, and the most frequent values."""
    kinds = [["column", "kind", "type", "classes", "shape"]]
    for name, column in columns.items():
        classes = "" if column.num_classes is None else f"{column.num_classes:,}"
        kinds.append([one_line(name), column.kind, column.dtype, classes, str(column.shape)])
    described = [
        (name, split, stats)
        for name, of_splits in statistics.items()
        for split, stats in of_splits.items()
    ]
    absent = ["missing"] if any("missing" in stats for _, _, stats in described) else []
    numbers = [["numbers", "split", "count", *absent, "min", "max", "mean", "std"]]
    values = [["values", "split", "count", *absent, "distinct", "most frequent"]]
    for name, split, stats in described:
        counts = [f"{stats.get(what, 0):,}" for what in ("count", *absent)]
        cells = [one_line(name), split, *counts]
        if "top" in stats:
            values.append([*cells, f"{stats['distinct']:,}", _most_frequent(stats)])
        else:
            wanted = (stats.get(what) for what in ("min", "max", "mean", "std"))
            numbers.append([*cells, *map(_number, wanted)])
    return [table for table in (kinds, numbers, values) if len(table) > 1]


def _most_frequent(stats: Mapping[str, Any]) -> str:
    shown = [f"{count:,} {cut(value, 20)!r}" for value, count in stats["top"][:SHOWN_VALUES]]
    return ", ".join(shown) + (", …" if stats["distinct"] > len(shown) else "")


def _number(value: float | int | bool | None) -> str:
    """A statistic as a cell; empty if no value is finite."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"

"""What the values of each column are like, for normalising layers and for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.schema.fields import Field, Fields
from tfrecorder.schema.keys import BOX_COLUMNS
from tfrecorder.schema.kinds import FILES, Boxes, Bytes
from tfrecorder.schema.splits import SPLITS
from tfrecorder.schema.statistics import Figures, Statistics

#: The name of what is described, all its values, and the row of each.
Described = tuple[str, Any, np.ndarray]

#: How many of the values are listed with their counts.
TOP_VALUES = 10


def describe_columns(
    fields: Fields,
    values: Mapping[str, pa.Array],
    splits: pd.Series,
    missing: Mapping[str, np.ndarray],
) -> Statistics:
    """Statistics by name and split, as JSON values; the name is that of the column.

    For numbers: count, min, max, mean and std (of the whole population), over all finite numbers,
    including those in lists and arrays.  For classes and texts: count, distinct, and the most
    frequent values with their counts.  For boxes: those of their classes, and under names such as
    "boxes x_min" those of the edges, in the unit of the source, of the area, and of the number per
    image.  Images, masks, bytes and columns without labels have none.

    Args:
        missing: for columns with a default, which rows have it because their value is missing:
            they are left out, and counted under "missing", if there are any.
    """
    of_split = {split: (splits == split).to_numpy() for split in SPLITS}
    of_split = {split: mask for split, mask in of_split.items() if mask.any()}
    statistics: Statistics = {}
    for field in fields:
        if isinstance(field.kind, (*FILES, Bytes)) or field.is_unlabelled:
            continue
        absent = missing.get(field.column, np.zeros(len(splits), bool))
        for name, cells, rows in _described(field, values, len(splits)):
            statistics[name] = {
                split: {**_of(cells, (mask & ~absent)[rows]), **_missing(mask & absent)}
                for split, mask in of_split.items()
            }
    return statistics


def _missing(rows: np.ndarray) -> Figures:
    return {"missing": int(rows.sum())} if rows.any() else {}


def _described(field: Field, values: Mapping[str, pa.Array], size: int) -> Iterator[Described]:
    """What is described of a column; of boxes their classes, number, edges and area."""
    name = field.column
    if not isinstance(field.kind, Boxes):
        key = field.key if field.key in values else field.features[-1].key
        yield name, *_flat(values[key])
        return
    cells, rows = _flat(values[field.features[-1].key])
    if field.label_key is not None:
        yield name, cells, rows
    yield f"{name} per image", np.bincount(rows, minlength=size), np.arange(size)
    edges = [_flat(values[key])[0] for key in field.edges]
    for edge, numbers in zip(BOX_COLUMNS, edges, strict=True):
        yield f"{name} {edge}", numbers, rows
    left, upper, right, lower = (edge.astype(np.float64) for edge in edges)
    yield f"{name} area", (right - left) * (lower - upper), rows


def _flat(array: pa.Array) -> tuple[Any, np.ndarray]:
    """All values of a column, texts in Arrow and numbers in NumPy, and the row of each."""
    rows = np.arange(len(array))
    if pa.types.is_large_list(array.type):
        rows = np.repeat(rows, np.diff(array.offsets.to_numpy()))
        array = array.flatten()
    is_number = pa.types.is_primitive(array.type)
    return array.to_numpy(zero_copy_only=False) if is_number else array, rows


def _of(cells: Any, chosen: np.ndarray) -> Figures:
    is_number = isinstance(cells, np.ndarray)
    return _of_numbers(cells[chosen]) if is_number else _of_texts(cells.filter(chosen))


def _of_numbers(numbers: np.ndarray) -> Figures:
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return {"count": 0}
    exact = finite.astype(np.float64)
    return {
        "count": len(finite),
        "min": finite.min().item(),
        "max": finite.max().item(),
        "mean": float(exact.mean()),
        "std": float(exact.std()),
    }


def _of_texts(texts: pa.Array) -> Figures:
    counts = [[item["values"], item["counts"]] for item in texts.value_counts().to_pylist()]
    # By count, and alphabetically if equal: the same whatever the order of the rows.
    counts.sort(key=lambda pair: (-pair[1], pair[0]))
    top = counts[:TOP_VALUES]
    return {"count": len(texts), "distinct": len(counts), "top": top}

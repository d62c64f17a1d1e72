"""What the values of each column are like, for normalising layers and for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import BOX_COLUMNS, Boxes, Bytes, Image, Mask, Number
from tfrecorder.schema.splits import SPLITS

#: Computes the statistics of a column's values in the rows under a mask.
Describe = Callable[[np.ndarray], dict[str, Any]]

#: How many of the values are listed with their counts.
TOP_VALUES = 10


def describe_columns(
    fields: tuple[Field, ...],
    values: Mapping[str, pa.Array],
    splits: pd.Series,
    missing: Mapping[str, np.ndarray],
) -> dict[str, dict[str, Any]]:
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
    statistics: dict[str, dict[str, Any]] = {}
    for field in fields:
        if isinstance(field.kind, (Image, Mask, Bytes)) or field.is_unlabelled:
            continue
        absent = missing.get(field.column, np.zeros(len(splits), bool))
        describes = (_of_boxes if isinstance(field.kind, Boxes) else _of_values)(field, values)
        for name, describe in describes.items():
            statistics[name] = {
                split: {**describe(mask & ~absent), **_missing(mask & absent)}
                for split, mask in of_split.items()
            }
    return statistics


def _missing(rows: np.ndarray) -> dict[str, int]:
    return {"missing": int(rows.sum())} if rows.any() else {}


def _of_values(field: Field, values: Mapping[str, pa.Array]) -> dict[str, Describe]:
    key = field.key if field.key in values else field.features[-1].key
    flat, rows = _flat(values[key])
    is_number = isinstance(field.kind, Number)
    return {field.column: _numbers_of(_numbers(flat), rows) if is_number else _texts_of(flat, rows)}


def _of_boxes(field: Field, values: Mapping[str, pa.Array]) -> dict[str, Describe]:
    name, (texts, rows) = field.column, _flat(values[field.features[-1].key])
    edges = [_numbers(_flat(values[key])[0]) for key in field.edges]
    left, upper, right, lower = (edge.astype(np.float64) for edge in edges)
    columns = zip(BOX_COLUMNS, edges, strict=True)
    return {
        **({} if field.label_key is None else {name: _texts_of(texts, rows)}),
        f"{name} per image": lambda mask: _of_numbers(np.bincount(rows, minlength=len(mask))[mask]),
        **{f"{name} {edge}": _numbers_of(numbers, rows) for edge, numbers in columns},
        f"{name} area": _numbers_of((right - left) * (lower - upper), rows),
    }


def _numbers_of(numbers: np.ndarray, rows: np.ndarray) -> Describe:
    return lambda mask: _of_numbers(numbers[mask[rows]])


def _texts_of(texts: pa.Array, rows: np.ndarray) -> Describe:
    return lambda mask: _of_texts(texts.filter(mask[rows]))


def _flat(array: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """All values of a column, and the row of each."""
    if not pa.types.is_large_list(array.type):
        return array, np.arange(len(array))
    sizes = np.diff(array.offsets.to_numpy())
    return array.flatten(), np.repeat(np.arange(len(array)), sizes)


def _numbers(array: pa.Array) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False)


def _of_numbers(numbers: np.ndarray) -> dict[str, Any]:
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


def _of_texts(texts: pa.Array) -> dict[str, Any]:
    counts = [[item["values"], item["counts"]] for item in texts.value_counts().to_pylist()]
    # By count, and alphabetically if equal: the same whatever the order of the rows.
    counts.sort(key=lambda pair: (-pair[1], pair[0]))
    top = counts[:TOP_VALUES]
    return {"count": len(texts), "distinct": len(counts), "top": top}

"""What the values of each column are like, for normalising layers and for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Boxes, Bytes, Image, Mask, Number
from tfrecorder.schema.splits import SPLITS
from tfrecorder.schema.statistics import BOX_NUMBERS

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
    """Statistics of each column by split, as JSON values.

    For numbers: count, min, max, mean and std (of the whole population), over all finite numbers,
    including those in lists and arrays.  For classes and texts: count, distinct, and the most
    frequent values with their counts.  For boxes: their count, the same for their classes, and
    under "boxes" the statistics of each of `BOX_NUMBERS`, in the unit of the source.  Images,
    masks, bytes and columns without labels have none.

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
        describe = (_of_boxes if isinstance(field.kind, Boxes) else _of_values)(field, values)
        absent = missing.get(field.column, np.zeros(len(splits), bool))
        statistics[field.column] = {
            split: {**describe(mask & ~absent), **_missing(mask & absent)}
            for split, mask in of_split.items()
        }
    return statistics


def _missing(rows: np.ndarray) -> dict[str, int]:
    return {"missing": int(rows.sum())} if rows.any() else {}


def _of_values(field: Field, values: Mapping[str, pa.Array]) -> Describe:
    key = field.key if field.key in values else field.features[-1].key
    flat, rows = _flat(values[key])
    if not isinstance(field.kind, Number):
        return lambda mask: _of_texts(flat.filter(mask[rows]))
    numbers = _numbers(flat)
    return lambda mask: _of_numbers(numbers[mask[rows]])


def _of_boxes(field: Field, values: Mapping[str, pa.Array]) -> Describe:
    edges = [_numbers(_flat(values[key])[0]) for key in field.edges]
    left, upper, right, lower = (edge.astype(np.float64) for edge in edges)
    described = (*edges, (right - left) * (lower - upper))
    texts, rows = _flat(values[field.features[-1].key])

    def describe(mask: np.ndarray) -> dict[str, Any]:
        per_image = np.bincount(rows, minlength=len(mask))[mask]
        columns = (per_image, *(numbers[mask[rows]] for numbers in described))
        boxes = {name: _of_numbers(of) for name, of in zip(BOX_NUMBERS, columns, strict=True)}
        if field.label_key is None:
            return {"count": int(per_image.sum()), "boxes": boxes}
        return {**_of_texts(texts.filter(mask[rows])), "boxes": boxes}

    return describe


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

"""What the values of each column are like, for normalising layers and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder.kinds.columns import Bytes, Image, Mask, Number
from tfrecorder.kinds.fields import Field
from tfrecorder.splits import SPLITS

if TYPE_CHECKING:
    import pyarrow as pa

#: The values that are listed with their counts.
TOP_VALUES = 10


def describe_columns(
    fields: tuple[Field, ...], values: dict[str, pa.Array], splits: pd.Series
) -> dict[str, dict[str, Any]]:
    """Statistics of each column by split, as JSON values.

    Of numbers: count, min, max, mean and std (of the whole population), over all numbers of lists
    and arrays, those that are finite.  Of classes and texts: count, distinct, and the most frequent
    values with their counts.  Images, masks and bytes have none.
    """
    of_split = {split: (splits == split).to_numpy() for split in SPLITS}
    found: dict[str, dict[str, Any]] = {}
    for field in fields:
        if isinstance(field.kind, (Image, Mask, Bytes)):
            continue
        key = field.key if field.key in values else field.features[-1].key
        if key not in values:
            continue
        describe = _of_numbers if isinstance(field.kind, Number) or _is_edge(key) else _of_texts
        flat, rows = _flat(values[key])
        found[field.column] = {
            split: describe(flat[mask[rows]]) for split, mask in of_split.items() if mask.any()
        }
    return found


def _is_edge(key: str) -> bool:
    return "/bbox/" in key


def _flat(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """All values of a column, and the row of each."""
    import pyarrow as pa

    if not pa.types.is_large_list(array.type):
        return array.to_numpy(zero_copy_only=False), np.arange(len(array))
    sizes = np.diff(array.offsets.to_numpy())
    flat = array.flatten().to_numpy(zero_copy_only=False)
    return flat, np.repeat(np.arange(len(array)), sizes)


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


def _of_texts(texts: np.ndarray) -> dict[str, Any]:
    counts = pd.Series(texts, dtype=object).value_counts(sort=False)
    # By count, and alphabetically among equals: the same whatever the order of the rows.
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    top = [[str(value), int(count)] for value, count in ranked[:TOP_VALUES]]
    return {"count": len(texts), "distinct": len(counts), "top": top}

"""The fingerprint of a table: whether a source still has the values it was planned with."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd


def fingerprint(frame: pd.DataFrame, values: Any = None) -> str:
    """SHA-256 of a table's columns and values in the order of its rows, whatever their dtypes.

    Args:
        frame: of integers and texts.
        values: further columns, an Arrow table.
    """
    import pyarrow as pa

    digest = hashlib.sha256()
    for name in frame.columns:
        column = frame[name].to_numpy()
        digest.update(f"{name}:{column.dtype.kind}:{len(column)}:".encode())
        if column.dtype == np.int64:
            digest.update(column.astype("<i8").tobytes())
            continue
        _feed(digest, pa.array(column, type=pa.large_string()))
    for name in () if values is None else values.column_names:
        column = values.column(name).combine_chunks()
        digest.update(f"{name}:{column.type}:{len(column)}:".encode())
        _feed(digest, column)
    return digest.hexdigest()


def _feed(digest: Any, array: Any) -> None:
    """Arrow's own buffers, of values none of which is missing: equal for equal values."""
    import pyarrow as pa

    if pa.types.is_large_list(array.type):
        digest.update(array.offsets.to_numpy().astype("<i8").tobytes())
        _feed(digest, array.flatten())
    elif pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        # Texts, and where each begins.
        _, offsets, texts = array.buffers()
        starts = np.frombuffer(offsets, "<i8", len(array) + 1) if offsets else np.zeros(1, "<i8")
        digest.update(starts.tobytes())
        digest.update(memoryview(texts)[: starts[-1]] if texts else b"")
    else:
        digest.update(array.to_numpy(zero_copy_only=False).tobytes())

"""Rows that say something about the same image, such as a caption each, as one row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.errors import OptionError
from tfrecorder.schema.kinds import Schema
from tfrecorder.sources.table import Fault, as_objects, in_lists


def grouped(
    table: pd.DataFrame, schema: Schema, by: str
) -> tuple[pd.DataFrame, np.ndarray, list[Fault]]:
    """One row for each value of a column, in the order in which they first come.

    Returns:
        The rows, with lists of the values that columns of lists have in the rows of a group; which
        of the given rows was the first of each; and where others differ within a group.

    Raises:
        OptionError: there is no such column, or its cells cannot be compared.
    """
    if by not in table:
        raise OptionError.of("group_by", by, f"give one of the columns {[*table.columns]}.")
    try:
        codes, _ = pd.factorize(as_objects(table[by]).fillna(""))
    except TypeError:
        raise OptionError.of("group_by", by, "its cells are neither texts nor numbers.") from None
    first, order = np.unique(codes, return_index=True)[1], np.argsort(codes, kind="stable")
    rows, faults = table.iloc[first].reset_index(drop=True), list[Fault]()
    for name in table.columns.drop(by):
        column = as_objects(table[name])
        if getattr(schema.columns.get(name), "shape", ()) == (None,):
            present = column.map(lambda cell: cell is not None and not _is_empty(cell))
            kept = order[present.to_numpy(dtype=bool)[order]]
            sizes = np.bincount(codes[kept], minlength=len(first))
            rows[name] = in_lists(column.to_numpy()[kept], sizes)
        else:
            faults += _differences(column, codes, first, by)
    return rows, first, faults


def _is_empty(cell: Any) -> bool:
    """True for the text of an empty cell of a CSV."""
    return isinstance(cell, str) and not cell


def _differences(
    column: pd.Series, codes: np.ndarray, first: np.ndarray, by: str
) -> Iterator[Fault]:
    shown = column.map(repr).to_numpy()
    for row in np.flatnonzero(shown != shown[first][codes]).tolist():
        value: Any = column.iloc[row]
        message = f"{value!r} differs from the value in the first row of this {by!r}"
        yield Fault("conflicting_rows", int(codes[row]), str(column.name), value, message)

"""Rows that say something about the same image, such as a caption each, as one row."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tfrecorder.errors import OptionError
from tfrecorder.schema.kinds import Schema
from tfrecorder.sources.finding import Finding, conflicts
from tfrecorder.sources.table import as_objects, in_lists


def grouped(
    table: pd.DataFrame, schema: Schema, by: str
) -> tuple[pd.DataFrame, np.ndarray, list[Finding]]:
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
    first = np.unique(codes, return_index=True)[1]
    order = np.argsort(codes, kind="stable")
    rows = table.iloc[first].reset_index(drop=True)
    findings = []
    for name in table.columns.drop(by):
        column = as_objects(table[name])
        if getattr(schema.columns.get(name), "shape", ()) == (None,):
            present = column.map(
                lambda cell: cell is not None and not (isinstance(cell, str) and not cell)
            )
            kept = order[present.to_numpy(dtype=bool)[order]]
            sizes = np.bincount(codes[kept], minlength=len(first))
            rows[name] = in_lists(column.to_numpy()[kept], sizes)
        else:
            findings.append(conflicts(column.set_axis(codes), codes, repr(by)))
    return rows, first, findings

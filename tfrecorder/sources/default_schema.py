"""The default schema of a source, from the names of its columns, when none is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import (
    BOX_COLUMNS,
    DEFAULT_SCHEMA,
    Boxes,
    Image,
    Kind,
    Label,
    Mask,
    Schema,
    Split,
    with_names,
)
from tfrecorder.sources.table import as_objects

MASK_COLUMN = "mask_uri"


def schema_of(table: pd.DataFrame, labels: Sequence[str] | None) -> Schema:
    """The schema of a table.

    Args:
        labels: all class names, if given.
    """
    schema = obvious_schema(table) or DEFAULT_SCHEMA
    return with_names(schema, labels) if labels else schema


def obvious_schema(table: pd.DataFrame) -> Schema | None:
    """The schema of a table with boxes or a mask in columns with the known names; else None."""
    names = [str(name) for name in table.columns]
    has_boxes, has_mask = set(BOX_COLUMNS) <= set(names), MASK_COLUMN in names
    if URI_COLUMN not in names or not (has_boxes or has_mask):
        return None
    kinds: dict[str, Kind] = {}
    if SPLIT_COLUMN in names:
        kinds[SPLIT_COLUMN] = Split()
    kinds[URI_COLUMN] = Image()
    labelled = LABEL_COLUMN in names
    if has_mask:
        kinds[MASK_COLUMN] = Mask()
    if has_boxes:
        kinds["boxes"] = Boxes(unit=box_unit(table), label=LABEL_COLUMN if labelled else None)
    elif labelled:
        kinds[LABEL_COLUMN] = Label()
    return Schema(kinds)


def box_unit(table: pd.DataFrame) -> str:
    """ "pixel" if any edge is beyond 1."""
    for name in BOX_COLUMNS:
        cells = as_objects(table[name]).dropna()
        flat = [value for cell in cells for value in (cell if is_list(cell) else [cell])]
        numbers = pd.to_numeric(pd.Series(flat, dtype=object), errors="coerce")
        if (numbers > 1).any():
            return "pixel"
    return "fraction"


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray))

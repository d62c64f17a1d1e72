"""The default schema of a source, from the names of its columns, when none is given."""

from __future__ import annotations

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
)
from tfrecorder.sources.table import as_objects, is_list

MASK_COLUMN = "mask_uri"


def schema_of(table: pd.DataFrame) -> Schema:
    """The schema of a table, which may have boxes or a mask in columns with the known names."""
    names = [str(name) for name in table.columns]
    has_boxes, has_mask = set(BOX_COLUMNS) <= set(names), MASK_COLUMN in names
    labelled = LABEL_COLUMN in names
    if URI_COLUMN in names and (has_boxes or has_mask):
        kinds: dict[str, Kind] = {SPLIT_COLUMN: Split()} if SPLIT_COLUMN in names else {}
        kinds[URI_COLUMN] = Image()
        if has_mask:
            kinds[MASK_COLUMN] = Mask()
        if has_boxes:
            kinds["boxes"] = Boxes(unit=box_unit(table), label=LABEL_COLUMN if labelled else None)
        elif labelled:
            kinds[LABEL_COLUMN] = Label()
        return Schema(kinds)
    return DEFAULT_SCHEMA


def box_unit(table: pd.DataFrame) -> str:
    """ "pixel" if any edge is beyond 1."""
    for name in BOX_COLUMNS:
        cells = as_objects(table[name]).dropna()
        flat = [value for cell in cells for value in (cell if is_list(cell) else [cell])]
        numbers = pd.to_numeric(pd.Series(flat, dtype=object), errors="coerce")
        if (numbers > 1).any():
            return "pixel"
    return "fraction"

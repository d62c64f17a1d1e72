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
    kinds = kinds_by_name(table)
    has_more = URI_COLUMN in kinds and not {MASK_COLUMN, "boxes"}.isdisjoint(kinds)
    return Schema(kinds) if has_more else DEFAULT_SCHEMA


def kinds_by_name(table: pd.DataFrame) -> dict[str, Kind]:
    """The kinds of those columns of a table that have the known names."""
    names = {str(name) for name in table.columns}
    known = {SPLIT_COLUMN: Split(), URI_COLUMN: Image(), MASK_COLUMN: Mask()}
    kinds: dict[str, Kind] = {name: kind for name, kind in known.items() if name in names}
    if names.issuperset(BOX_COLUMNS):
        label = LABEL_COLUMN if LABEL_COLUMN in names else None
        kinds["boxes"] = Boxes(unit=_box_unit(table), label=label)
    elif LABEL_COLUMN in names:
        kinds[LABEL_COLUMN] = Label()
    return kinds


def _box_unit(table: pd.DataFrame) -> str:
    """ "pixel" if any edge is beyond 1."""
    for name in BOX_COLUMNS:
        cells = as_objects(table[name]).dropna()
        flat = [value for cell in cells for value in (cell if is_list(cell) else [cell])]
        numbers = pd.to_numeric(pd.Series(flat, dtype=object), errors="coerce")
        if (numbers > 1).any():
            return "pixel"
    return "fraction"

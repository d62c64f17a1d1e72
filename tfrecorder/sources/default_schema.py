"""The default schema of a source, from the names of its columns, when none is given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pandas as pd

from tfrecorder.schema import kinds
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import BOX_COLUMNS, LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.table import as_objects, is_list

MASK_COLUMN = "mask_uri"


def schema_of(table: pd.DataFrame) -> kinds.Schema:
    """The schema of a table, which may have boxes or a mask in columns with the known names."""
    by_name = kinds_by_name(table)
    has_more = URI_COLUMN in by_name and not {MASK_COLUMN, "boxes"}.isdisjoint(by_name)
    return kinds.Schema(by_name) if has_more else kinds.DEFAULT_SCHEMA


def schema_beside(
    suggested: kinds.Schema, names: Sequence[str], known: Sequence[Field]
) -> kinds.Schema:
    """The schema of a dataset, for a table that has all its columns; otherwise the suggested one.

    Of a source such as COCO's JSON, a dataset has columns whose names alone say nothing.
    """
    stored: dict[str, kinds.Kind] = {SPLIT_COLUMN: kinds.Split(required=False)}
    for field in known:
        stored[field.column] = field.kind
        if getattr(field.kind, "names", None):  # its classes are no limit for those of the table
            stored[field.column] = dataclasses.replace(field.kind, names=None)  # type: ignore[type-var]
    if not known:
        return suggested
    of_dataset = kinds.Schema(stored)
    needed = {*of_dataset.source_columns()} - {SPLIT_COLUMN}
    told = ({*suggested.source_columns()} & {*names}) - {SPLIT_COLUMN}
    return of_dataset if told < needed <= {*names} else suggested


def with_classes(schema: kinds.Schema, classes: Mapping[str, Sequence[str]]) -> kinds.Schema:
    """A schema with the class names of a source by column, where it has none itself."""
    named = {}
    for name, kind in schema.fields:
        column = getattr(kind, "label", name) or name
        if hasattr(kind, "names") and kind.names is None and column in classes:
            kind = dataclasses.replace(kind, names=tuple(classes[column]))  # type: ignore[type-var]
        named[name] = kind
    return kinds.Schema(named)


def kinds_by_name(table: pd.DataFrame) -> dict[str, kinds.Kind]:
    """The kinds of those columns of a table that have the known names."""
    names = {str(name) for name in table.columns}
    usual = {SPLIT_COLUMN: kinds.Split(), URI_COLUMN: kinds.Image(), MASK_COLUMN: kinds.Mask()}
    made: dict[str, kinds.Kind] = {name: kind for name, kind in usual.items() if name in names}
    if names.issuperset(BOX_COLUMNS):
        label = LABEL_COLUMN if LABEL_COLUMN in names else None
        made["boxes"] = kinds.Boxes(unit=_box_unit(table), label=label)
    elif LABEL_COLUMN in names:
        made[LABEL_COLUMN] = kinds.Label()
    return made


def _box_unit(table: pd.DataFrame) -> str:
    """ "pixel" if any edge is beyond 1."""
    for name in BOX_COLUMNS:
        cells = as_objects(table[name]).dropna()
        flat = [value for cell in cells for value in (cell if is_list(cell) else [cell])]
        numbers = pd.to_numeric(pd.Series(flat, dtype=object), errors="coerce")
        if (numbers > 1).any():
            return "pixel"
    return "fraction"

"""A source with a stated schema: every column checked by its kind, and brought to typed values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder.column_rules import check_splits, check_uris, has_faults
from tfrecorder.kinds.boxes import BoxRows, check_boxes, gather
from tfrecorder.kinds.classes import Outcome, check_label, check_several
from tfrecorder.kinds.statistics import describe_columns
from tfrecorder.kinds.values import check_values
from tfrecorder.report import Finding
from tfrecorder.schema.fields import Field, fields_of, primary_image
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Schema, Split, columns_of
from tfrecorder.schema.splits import UNASSIGNED, assign_splits
from tfrecorder.sources.table import as_objects

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrecorder.rules import Checked
    from tfrecorder.sources.table import Source


@dataclass(frozen=True)
class Stated:
    """What a stated schema makes of a source.

    Attributes:
        fields: its columns, with their vocabularies.
        values: a column for each key of the record that the source tells; None after a fault.
        statistics: see `describe_columns`.
        source_rows: of the source; of boxes with a row each, more than there are records.
    """

    fields: tuple[Field, ...]
    values: pa.Table | None
    statistics: dict[str, Any]
    source_rows: int

    @property
    def file_keys(self) -> dict[str, str]:
        """The key of the uris of each column of images or masks."""
        files = [field for field in self.fields if isinstance(field.kind, (Image, Mask))]
        return {field.column: f"{field.key}/filename" for field in files}


def check_stated(source: Source, schema: Schema, seed: int) -> Checked:
    """Apply every rule to a source's table, by the kinds of its columns."""
    from tfrecorder.rules import Checked, check_rows

    findings = list(_check_stated_columns(source, schema))
    table = source.frame
    if not len(table):
        findings.append(Finding("empty_frame", [None], "", [None], "the table has no rows"))
    if has_faults(findings):
        return Checked(pd.DataFrame(index=table.index), tuple(findings))
    boxes: BoxRows | None = None
    for name in schema.of(Boxes):
        kind, (image,) = schema.columns[name], schema.of(Image)
        assert isinstance(kind, Boxes)
        table, boxes, found = gather(table, kind, image)
        findings += found
    fields, values = [], {}
    for field in fields_of(schema):
        checked, made, found = _check_field(field, table, boxes)
        fields.append(checked)
        values.update(made)
        findings += found
    frame = _rows_of(fields, values, table, schema, seed, findings)
    faulty = has_faults(findings)
    if not faulty:
        shown = frame.assign(**_only_label(fields, values))
        findings += check_rows(shown) if URI_COLUMN in frame else _check_train(frame)
    stated = Stated(
        tuple(fields),
        None if faulty else _as_table(values),
        {} if faulty else describe_columns(tuple(fields), values, frame[SPLIT_COLUMN]),
        len(source.frame),
    )
    return Checked(frame, tuple(findings), stated)


def _check_stated_columns(source: Source, schema: Schema) -> Iterator[Finding]:
    from tfrecorder.rules import nearest_name

    there = [*source.frame.columns, *source.left_out]
    suggested = set()
    for name in schema.source_columns():
        if name not in source.frame:
            near = nearest_name(name, there)
            suggested.add(near)
            hint = f"is it {near!r}?" if near else f"the columns are {there}"
            message = f"the schema names a column {name!r} that the source has not; {hint}"
            yield Finding("unknown_column", [None], name, [near], message)
    for name in source.left_out:
        if name not in suggested:
            yield Finding("column_left_out", [None], name, [name], f"column {name!r} is left out")


def _check_field(field: Field, table: pd.DataFrame, boxes: BoxRows | None) -> Outcome:
    import pyarrow as pa

    if isinstance(field.kind, Boxes):
        assert boxes is not None
        return check_boxes(field, boxes)
    columns = [as_objects(table[name]) for name in columns_of(field.column, field.kind)]
    if isinstance(field.kind, (Image, Mask)):
        column, findings = check_uris(columns[0])
        made = {} if has_faults(findings) else {f"{field.key}/filename": column}
        return field, {key: pa.array(v, pa.large_string()) for key, v in made.items()}, findings
    if isinstance(field.kind, Label):
        return check_label(field, columns[0])
    if isinstance(field.kind, Labels):
        return check_several(field, columns)
    return check_values(field, columns[0])


def _rows_of(
    fields: list[Field],
    values: dict[str, pa.Array],
    table: pd.DataFrame,
    schema: Schema,
    seed: int,
    findings: list[Finding],
) -> pd.DataFrame:
    """The split of every row, and its image where there is one."""
    frame = pd.DataFrame(index=table.index)
    image = primary_image(fields)
    if image is not None and f"{image.key}/filename" in values:
        frame[URI_COLUMN] = values[f"{image.key}/filename"].to_pandas().to_numpy(dtype=object)
    splits = pd.Series(UNASSIGNED, index=table.index, dtype=object)
    for name in schema.of(Split):
        splits, found = check_splits(table[name])
        splits = splits.astype(object)
        findings.append(found)
    open_rows = (splits == UNASSIGNED).to_numpy(dtype=bool)
    if open_rows.any() and not has_faults(findings):
        texts = frame[URI_COLUMN] if URI_COLUMN in frame else _contents(values, table.index)
        assigned = assign_splits(texts[open_rows].tolist(), seed)
        splits[open_rows] = np.array(assigned, dtype=object)
    frame[SPLIT_COLUMN] = splits
    return frame


def _contents(values: dict[str, pa.Array], index: pd.Index) -> pd.Series:
    """All values of each row as a text: what a row without an image is known by."""
    columns = [map(repr, array.to_pylist()) for array in values.values()]
    return pd.Series(["\x1f".join(row) for row in zip(*columns, strict=True)], index=index)


def _only_label(fields: list[Field], values: dict[str, pa.Array]) -> dict[str, Any]:
    """The labels for the rules about rows, where there is one column of them."""
    labels = [field for field in fields if isinstance(field.kind, Label)]
    if len(labels) != 1:
        return {}
    column = values[f"{labels[0].key}/text"].to_pandas().to_numpy(dtype=object)
    return {LABEL_COLUMN: column}


def _check_train(frame: pd.DataFrame) -> Iterator[Finding]:
    if not (frame[SPLIT_COLUMN] == "TRAIN").any():
        yield Finding("no_train", [None], SPLIT_COLUMN, [None], "no row is in TRAIN")


def _as_table(values: dict[str, pa.Array]) -> pa.Table:
    import pyarrow as pa

    return pa.table(values)

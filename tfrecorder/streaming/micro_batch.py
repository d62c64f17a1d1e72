"""A micro-batch: some rows of a stream as the plan of one commit.

A row that cannot be a record, whatever its image holds, is planned as a reject that gives the rule
it breaks: one bad message must not stop a stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.conversion.same_schema import refuse_other_schema
from tfrecorder.core.checks import is_text, is_whole
from tfrecorder.display.tables import escaped
from tfrecorder.errors import SourceError
from tfrecorder.format.plan import Plan, PlanKind
from tfrecorder.format.plan_columns import POSITION_OF, REJECT_OF
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan.make_plan import make_plan
from tfrecorder.plan.shard_counts import shard_counts
from tfrecorder.schema.fields import Field, primary_file
from tfrecorder.schema.keys import COLUMNS, SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, Label, columns_of
from tfrecorder.schema.splits import assign_splits
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source
from tfrecorder.streaming.batch import Row
from tfrecorder.streaming.stream_source import Unusable
from tfrecorder.validation.rules import Checked, check_source

#: The stage of rejects whose image was never read.
STAGE = "row"


class Target(NamedTuple):
    """The dataset that a batch is added to, and how.

    Attributes:
        directory: the dataset's directory.
        source: the name of the stream's source.
        options: those of the rows.
        fields: its columns; empty before the first batch.
        types: the type of each column of its plan, by key; empty before the first batch.
        rows: how many rows its sources had.
    """

    directory: str
    source: str
    options: ConvertOptions
    fields: Sequence[Field] = ()
    types: Mapping[str, pa.DataType] = MappingProxyType({})
    rows: int = 0


def plan_batch(
    rows: Sequence[Row], target: Target, base: str, streams: dict[str, Any], row_bytes: float
) -> tuple[Plan, pa.Table] | str:
    """The plan of a batch and its rows.

    If none of the first rows of a dataset can be a record, returns what is wrong with the first.

    Args:
        base: the folder that relative uris start from.
        streams: as in `Plan`.
        row_bytes: the mean size of an image.

    Raises:
        SourceError: the columns of all rows do not fit the dataset.
    """
    faults: dict[int, str] = {
        at: escaped(row.cells.reason)
        for at, row in enumerate(rows)
        if isinstance(row.cells, Unusable)
    }
    cells = [_in_types(row.cells, target.fields) for row in rows]
    faults |= {at: cell for at, cell in enumerate(cells) if isinstance(cell, str)}
    checked = _checked(cells, faults, target)
    if checked is None and not target.types:
        return faults[0]
    whole, options = _with_rejects(rows, checked, faults, target), target.options
    plan, table = make_plan(whole, base, options, PlanKind.BATCH, streams)
    counts = shard_counts(plan.layout.split_rows, [row_bytes], options, small_shards=1)
    return plan.laid_out(split_shards=counts), table


def _in_types(cells: Mapping[str, Any], fields: Sequence[Field]) -> Mapping[str, Any] | str:
    """A row with its labels in the dataset's type; or what is wrong with one of them."""
    row = dict(cells)
    for field in fields:
        name = field.column
        if not isinstance(field.kind, Label) or not field.num_classes or row.get(name) is None:
            continue
        label = row[name]
        if not field.integer and is_whole(label):
            row[name] = str(label)
        elif field.integer and isinstance(label, str) and label.strip().isdecimal():
            row[name] = int(label)
        elif field.integer and not is_whole(label):
            return f"mixed_label_types: {name} {label!r}: the classes of the dataset are integers"
    return row


def _checked(cells: Sequence[Any], faults: dict[int, str], target: Target) -> Checked | None:
    """The rows in which validation finds no fault; adds the others to `faults`."""
    while True:
        sound = [at for at in range(len(cells)) if at not in faults]
        if not sound:
            return None
        table = _table([cells[at] for at in sound], target)
        if target.fields:
            refuse_other_schema(target.directory, target.fields, table)
        if table.schema.of(Boxes):
            raise SourceError(
                "boxes: a stream has one row for each image; add a table of boxes with "
                "`tfrecorder.append` instead."
            )
        checked = check_source(table, target.options.division, target.fields)
        faulty = _faults(checked.findings)
        if not faulty:
            if target.fields:
                refuse_other_schema(target.directory, target.fields, table, checked.fields)
            index = np.asarray(sound)[checked.frame.index.to_numpy()]
            return dataclasses.replace(checked, frame=checked.frame.set_axis(index))
        faults.update({sound[at]: words for at, words in faulty.items()})


def _table(cells: Sequence[Mapping[str, Any]], target: Target) -> Source:
    options = target.options
    # No column can have a name that is not text, or not Unicode: it is left out.
    given = dict.fromkeys(name for row in cells for name in row)
    names = [name for name in given if is_text(name)]
    if target.fields:
        wanted = {*(options.columns or ()), *COLUMNS}
        for field in target.fields:
            wanted.update(columns_of(field.column, field.kind))
        if options.schema is not None:
            wanted.update(options.schema.source_columns())
        # A further column of a message means nothing to a dataset that already exists.
        names = [name for name in names if name in wanted or name == options.split_by]
        renamed = (options.columns or {}).values()
        labelled = (field.column for field in target.fields if field.num_classes)
        names += (name for name in labelled if name not in renamed)
    if options.split_by is not None:
        names.append(options.split_by)
    frame = pd.DataFrame(
        {name: pd.Series([row.get(name) for row in cells], dtype=object) for name in names}
    )
    return read_source(frame, options)


def _faults(findings: Sequence[Finding]) -> dict[int, str]:
    """The first error of each row, in words.

    Raises:
        SourceError: an error concerns all rows.
    """
    faults: dict[int, str] = {}
    for finding in findings:
        if not finding.is_error:
            continue
        for at, row in enumerate(finding.rows):
            words = finding.messages if isinstance(finding.messages, str) else finding.messages[at]
            if row is None:
                raise SourceError(f"the rows of the stream: {words}.")
            faults.setdefault(int(row), f"{finding.code}: {words}")
    return faults


def _with_rejects(
    rows: Sequence[Row], checked: Checked | None, faults: Mapping[int, str], target: Target
) -> Checked:
    """All rows in their order, the faulty ones planned as rejects, each with its position."""
    bad = sorted(faults)
    names = [rows[at].name for at in bad]
    splits = pd.Series(assign_splits(names, target.options.division), index=bad)
    frame = pd.DataFrame({SPLIT_COLUMN: splits})
    fields, good, types = target.fields, [], target.types
    if checked is not None:
        fields, good = checked.fields, list(checked.frame.index)
        frame = pd.concat([checked.frame[[SPLIT_COLUMN]], frame])
        types = {key: column.type for key, column in checked.values.items()}
    order = np.argsort([*good, *bad], kind="stable")
    image = primary_file(fields)
    values = {}
    for key, kind in types.items():
        is_uri = image is not None and key == image.uri_key
        filler = pa.array(names if is_uri else [_nothing(kind)] * len(bad), kind)
        column = filler if checked is None else pa.concat_arrays([checked.values[key], filler])
        values[key] = column.take(order)
    missing = {} if checked is None else checked.missing
    reasons = [faults.get(at, "") for at in range(len(rows))]
    texts = {
        REJECT_OF.stage: [STAGE if reason else "" for reason in reasons],
        REJECT_OF.reason: reasons,
        POSITION_OF.source: [target.source] * len(rows),
        POSITION_OF.position: [row.position for row in rows],
    }
    values |= {name: pa.array(column, pa.large_string()) for name, column in texts.items()}
    return Checked(
        frame=frame.iloc[order].set_axis(np.arange(len(rows)) + target.rows),
        findings=(),
        fields=tuple(fields),
        values=values,
        files=() if checked is None else checked.files,
        source_rows=len(rows),
        missing={name: np.pad(flags, (0, len(bad)))[order] for name, flags in missing.items()},
    )


def _nothing(kind: pa.DataType) -> Any:
    """A value of a type, for a row that does not become a record."""
    if pa.types.is_nested(kind):
        return []
    return 0 if pa.types.is_primitive(kind) else ""

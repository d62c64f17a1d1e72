"""`remove`: records that go for good, with every name of them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion.changed_rows import (
    Added,
    StoredRows,
    changed_plan,
    columns_of,
    stored_rows,
)
from tfrecorder.conversion.on_dataset import opened, run_on
from tfrecorder.conversion.record_copies import statistics_of
from tfrecorder.conversion.removal_marks import read_marks
from tfrecorder.conversion.staged import PlannedRows, Summary
from tfrecorder.conversion.table import Say
from tfrecorder.core.checks import nearest
from tfrecorder.errors import OptionError
from tfrecorder.format.plan_columns import SAME
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import RemoveKeywords
from tfrecorder.options.signature import takes
from tfrecorder.options.subsets import NOT_REMOVED
from tfrecorder.output.changes import Changes
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.plan.plan import PlanKind
from tfrecorder.reading.commits import commits
from tfrecorder.schema.fields import Field, primary_image
from tfrecorder.schema.keys import SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Image, Mask
from tfrecorder.schema.splits import SPLIT_TYPE

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The column of a condition with the number of each row.
ROW = "row"


@takes(RemoveKeywords, ConvertOptions)
def remove(
    directory: str | os.PathLike[str],
    where: Mapping[str, Any] | str,
    *,
    stage_only: bool = False,
    dry_run: bool = False,
    **options: Unpack[RemoveKeywords],
) -> Any:
    """Remove records from a dataset for good, with every name of them.

    Nothing of them is left below the directory: neither in shards nor in tables, lists, manifests
    or what `undo` keeps.  Only shards that hold such a record are written again.  The records after
    them in their split move up, so positions and generations of before are refused.  Classes keep
    their integers.  The same images do not come back by `append`, `stream` or `update`, unless
    `readmit` is given; what is kept for that are salted hashes of their places and bytes.  To
    continue an interrupted removal, repeat the call.

    Args:
        directory: a finished dataset.
        where: which rows: columns, each with a value or a list of values, all of which must hold,
            such as `{"image_uri": ["a.jpg", "b.jpg"]}` or `{"label": "cat", "split": "TEST"}`; or a
            condition as `pandas.DataFrame.query` takes it: "label == 'cat' and width < 32".  The
            columns are those of the dataset, `split`, and `row`, a row's number in the source.
        stage_only: as for `tfrecorder.append`.
        dry_run: only say what would go; nothing is written.
        **options: those about runners and progress, as for `tfrecorder.convert`.

    Returns:
        What `tfrecorder.convert` returns, for the dataset that is left; its `changes` says how many
        rows were removed.  With stage_only, what `tfrecorder.parts.stage` returns; with dry_run,
        what would go.

    Raises:
        OptionError: a column is not in the dataset, a value is in none of its rows, the condition
            cannot be understood, or no record would be left.
        DatasetError: there is no finished dataset written by this package, or a shard is damaged.
        OutputError: another operation is running there, or was begun and not finished.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.remove("out", {"image_uri": "cats/tom.jpg"})  # doctest: +SKIP
    """
    rows = partial(_rows, where, dict(options))
    chosen = ConvertOptions.of(options, NOT_REMOVED)
    return run_on("removal", directory, chosen, rows, stage_only=stage_only, dry_run=dry_run)


def _rows(
    where: Mapping[str, Any] | str, given: dict[str, Any], folder: str, dry_run: bool, say: Say
) -> PlannedRows | ConversionResult:
    """The rows of a dataset without some of them, planned to be written again."""
    dataset, newest, options, was_left = opened(folder, given, dry_run)
    say("reading the tables")
    stored = stored_rows(folder, newest)
    chosen, fault = _chosen(stored, dataset.fields, where)
    if fault is not None:
        if was_left and newest.manifest["kind"] == PlanKind.REMOVAL:  # by this call, killed
            return dataclasses.replace(read_result(folder), was_finished=True)
        raise fault
    chosen &= stored.is_newest
    gone = stored.all_of(chosen)
    stays = stored.is_newest & ~gone
    left = columns_of(stored.rows.filter(pa.array(stays)))
    every = commits(folder, newest)
    plan, planned, touched = changed_plan(
        stored,
        gone,
        np.full(len(stored.rows), SAME),
        Added(stored.rows.slice(0, 0), pd.Series([], dtype=SPLIT_TYPE)),
        dataset.fields,
        options,
        PlanKind.REMOVAL,
        folder,
        statistics_of(dataset.fields, left, stored.splits[stays], every),
    )
    changes = Changes(
        removed=int(chosen.sum()),
        shards=len(touched),
        of_shards=len(stored.shards),
        bytes=stored.size_of(touched),
    )
    marks, keeps = read_marks(folder, newest), storage.keeps_removed(folder)
    return PlannedRows(
        folder=folder,
        plan=plan,
        planned=planned,
        options=options,
        sizes=list,
        summary=Summary(changes=changes, notes=(keeps,) if keeps else ()),
        marks=marks.marking(stored.rows.filter(pa.array(gone)), dataset.fields),
    )


def _chosen(
    stored: StoredRows, fields: tuple[Field, ...], where: Mapping[str, Any] | str
) -> tuple[np.ndarray, OptionError | None]:
    """True for each row that a condition names; and what is wrong if it, or a part, names none.

    Raises:
        OptionError: it cannot be understood.
    """
    frame = _frame(stored, fields)
    chosen, fault = (_by_query if isinstance(where, str) else _by_values)(frame, where)
    if fault is None and not chosen.any():
        shown = where if isinstance(where, str) else dict(where)
        fault = OptionError.of("where", shown, "it holds for no row; nothing was removed.")
    return chosen, fault


def _by_query(frame: pd.DataFrame, where: Any) -> tuple[np.ndarray, None]:
    try:
        holds = frame.eval(where, engine="python")
        if not isinstance(holds, pd.Series) or not pd.api.types.is_bool_dtype(holds.dtype):
            raise ValueError("it is neither true nor false for each row")
    except Exception as error:  # whatever the parser and the values make of it
        names = ", ".join(map(repr, frame.columns))
        words = f"it is no condition on the columns {names}: {error}"
        raise OptionError.of("where", where, words) from error
    return np.array(holds), None


def _by_values(frame: pd.DataFrame, where: Any) -> tuple[np.ndarray, OptionError | None]:
    if not isinstance(where, Mapping) or not where:
        words = "give columns with values, such as `{'label': 'cat'}`, or a condition as a text."
        raise OptionError.of("where", where, words)
    chosen, fault = np.ones(len(frame), bool), None
    for name, value in where.items():
        if name not in frame:
            near = nearest(str(name), list(frame.columns)) or ", ".join(map(repr, frame.columns))
            raise OptionError(f"`where`: there is no column {name!r}; there is {near}.")
        values = [value] if isinstance(value, (str, bytes)) or np.isscalar(value) else list(value)
        cells = pd.Series(frame[name]).explode()  # a row of several classes has each of them
        there = {*cells}
        if absent := [one for one in values if one not in there]:
            more = f", and {len(absent) - 1:,} more" if absent[1:] else ""
            fault = OptionError(
                f"`where`: no row has {name!r} {absent[0]!r}{more}; write each exactly as the "
                "source did. Nothing was removed."
            )
        chosen &= frame.index.isin(cells.index[cells.isin(values)])
    return chosen, fault


def _frame(stored: StoredRows, fields: tuple[Field, ...]) -> pd.DataFrame:
    """The rows of a dataset with the columns that a condition may name."""
    columns: dict[str, Any] = {ROW: stored.numbers}
    columns[SPLIT_COLUMN] = stored.splits.astype(object).to_numpy()
    first = primary_image(fields)
    for field in fields:
        is_file = isinstance(field.kind, (Image, Mask))
        keys = [field.text_key, field.label_key, field.key, *(f.key for f in field.features)]
        for key in [field.uri_key] if is_file else keys:
            if key and key in stored.rows.column_names:
                name = URI_COLUMN if field is first else field.column
                columns[name] = stored.rows.column(key).to_pandas()
                break
    return pd.DataFrame(columns)

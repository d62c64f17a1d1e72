"""`remove`: records that go for good, with every name of them."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion.changed_rows import Added, StoredRows, changed_plan, stored_rows
from tfrecorder.conversion.job import run_as_asked
from tfrecorder.conversion.on_dataset import OnDataset, own_dataset
from tfrecorder.conversion.operation import Say
from tfrecorder.conversion.removal_marks import read_marks, unmarked_words
from tfrecorder.conversion.staged import Planned
from tfrecorder.errors import OptionError
from tfrecorder.format.plan import PlanKind
from tfrecorder.format.plan_columns import SAME
from tfrecorder.format.summary import Summary
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import RemoveKeywords, Unpack
from tfrecorder.options.option import takes
from tfrecorder.options.subsets import NOT_REMOVED
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.state import DatasetState
from tfrecorder.reading.choice import Where, choose
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame_columns import cells_in, frame_of
from tfrecorder.schema.keys import SPLIT_COLUMN

#: The column of a condition with the number of each row.
ROW = "row"


@takes(RemoveKeywords, ConvertOptions)
def remove(  # type: ignore[explicit-any]  # as `compact`
    directory: str | os.PathLike[str],
    where: Where | pd.DataFrame,
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
        where: which rows: columns, all of which must agree, each with a value, a list of values, or
            a tuple of two numbers, which is a range with both ends in it, or without an end where
            it is None: `{"image_uri": ["a.jpg", "b.jpg"]}`, `{"label": "cat", "age": (18, None)}`.
            Or a function from a frame of these columns to True or False for each row.  The columns
            are those of the dataset, `split`, and `row`, a row's number in the source.  Or a table
            with the column `row`, such as rows of what `tfrecorder.duplicates` returns.
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
    if isinstance(where, pd.DataFrame):
        if ROW not in where:
            columns = ", ".join(map(repr, where))
            words = "give a table of `tfrecorder.duplicates`, which has the column 'row'."
            raise OptionError.of("where", ..., f"a table with the columns {columns}; {words}")
        where = {ROW: where[ROW].tolist()}
    return run_as_asked(Removal(where, directory, options), is_staged=stage_only, is_tried=dry_run)


class Removal(OnDataset):
    """Removes records from a dataset, with every name of them; its source says which."""

    verb = "removal"
    refused = NOT_REMOVED
    source: Where

    def plan(self, state: DatasetState, say: Say) -> Planned | ConversionResult:
        """The rows of a dataset without some of them, planned to be written again."""
        folder = state.where
        newest = own_dataset(state)
        dataset, options = self.open(state)
        say("reading the tables")
        stored = stored_rows(folder, newest)
        chosen, fault = choose(_frame(stored, dataset), self.source)
        if fault is not None:
            if state.was_left and newest.plan.kind is PlanKind.REMOVAL:  # by this call, killed
                return dataclasses.replace(read_result(folder, newest.number), was_finished=True)
            raise OptionError.of("where", fault.value, f"{fault.remedy} Nothing was removed.")
        chosen &= stored.is_newest
        gone = stored.all_of(chosen)
        stays = stored.is_newest & ~gone
        left, fields, kind = stored.rows.filter(pa.array(stays)), dataset.fields, PlanKind.REMOVAL
        statistics = stored.statistics(fields, left, stored.splits[stays])
        change = np.full(len(gone), SAME)
        none = Added(stored.rows.slice(0, 0), stored.splits.iloc[:0])
        plan, rows, changes = changed_plan(
            stored, gone, change, none, fields, options, kind, folder, statistics
        )
        changes = dataclasses.replace(changes, removed=int(chosen.sum()))
        marks, keeps = read_marks(folder, newest), storage.keeps_removed(folder)
        unmarked = unmarked_words(stored.rows.filter(pa.array(chosen)), fields)
        summary = Summary(changes=changes, notes=(*unmarked, *([keeps] if keeps else ())))
        return Planned(
            plan=dataclasses.replace(plan, summary=summary),
            rows=rows,
            options=options,
            marks=marks.marking(stored.rows.filter(pa.array(gone)), fields),
        )


def _frame(stored: StoredRows, dataset: StoredDataset) -> pd.DataFrame:
    """The rows of a dataset with the columns that a condition may name."""
    splits = stored.splits.astype(object).to_numpy()
    cells = cells_in(dataset.fields, stored.rows)
    frame = frame_of(dataset, splits, cells, pd.RangeIndex(len(splits)))
    return pd.DataFrame({ROW: stored.numbers, SPLIT_COLUMN: splits} | dict(frame.items()))

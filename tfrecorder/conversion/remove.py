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
from tfrecorder.conversion.corrected_values import mask_of
from tfrecorder.conversion.job import run_as_asked
from tfrecorder.conversion.matching import match_rows, with_numbers
from tfrecorder.conversion.on_dataset import OnDataset, own_dataset
from tfrecorder.conversion.operation import Planned, Say
from tfrecorder.conversion.removal_marks import Marks, read_marks
from tfrecorder.core.arrays import Bools
from tfrecorder.core.option import flag
from tfrecorder.errors import OptionError
from tfrecorder.format.layout import SAME
from tfrecorder.format.plan import PlanKind
from tfrecorder.format.summary import Summary
from tfrecorder.options.changes import NOT_REMOVED
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import Frame, RemoveKeywords, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.state import DatasetState
from tfrecorder.reading.choice import Where, choose
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import cells_in, frame_of
from tfrecorder.schema.fields import image_fields
from tfrecorder.schema.keys import SPLIT_COLUMN, number_column
from tfrecorder.schema.kinds import Schema
from tfrecorder.sources.places import column_uris
from tfrecorder.sources.source import read_raw, read_source


@takes(RemoveKeywords, ConvertOptions)
def remove(  # type: ignore[explicit-any]  # as `compact`
    directory: str | os.PathLike[str],
    where: Where | Frame,
    *,
    copies: bool = False,
    stage_only: bool = False,
    dry_run: bool = False,
    **options: Unpack[RemoveKeywords],
) -> Any:
    """Remove records from a dataset for good: no file names them afterwards.

    Nothing of them is left below the directory: neither in shards nor in tables, lists, manifests
    or what `undo` keeps.  Only shards that hold such a record are written again.  The records after
    them in their split move up, so positions and generations from before are refused.  Classes keep
    their integers.  The same images do not come back by `append`, `stream` or `update`, unless
    `readmit` is given; what is kept for that are salted hashes of their names, places and bytes.
    Images that were removed before are passed over and counted.  To continue an interrupted
    removal, repeat the call.

    Args:
        directory: a finished dataset.
        where: which rows: columns, all of which must agree, each with a value, a list of values, or
            a tuple of two numbers, which is a range with both ends in it, or without an end where
            it is None: `{"image_uri": ["a.jpg", "b.jpg"]}`, `{"label": "cat", "age": (18, None)}`.
            Or a function from a frame of these columns to True or False for each row.  The columns
            are those of the dataset, `split`, and `row`, a row's number in the source (beside a
            column `row` of your own `source_row`).  Or a table with images or with such numbers,
            such as rows of what `tfrecorder.to_frame` or `tfrecorder.duplicates` returns; its rows
            are found as for `tfrecorder.update`.
        copies: also remove the records that have the same bytes as one of these under another
            name; otherwise the result counts them and names the first.
        stage_only: as for `tfrecorder.append`.
        dry_run: only say what would go; nothing is written.
        **options: those about runners and progress, as for `tfrecorder.convert`.

    Returns:
        What `tfrecorder.convert` returns, for the dataset that is left; its `changes` says how many
        rows were removed, and `removed` how many of the images had been removed before.  With
        stage_only, what `tfrecorder.parts.stage` returns; with dry_run,
        what would go.

    Raises:
        OptionError: a column is not in the dataset, a value was never in one of its rows, the
            condition cannot be understood, or no record would be left.
        DatasetError: there is no finished dataset written by this package, or a shard is damaged.
        OutputError: another operation is running there, or was begun and not finished.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.remove("out", {"image_uri": "cats/tom.jpg"})  # doctest: +SKIP
    """
    require(flag, copies=copies)
    if not isinstance(where, pd.DataFrame) and hasattr(where, "__arrow_c_stream__"):
        where = read_raw(where, ConvertOptions()).frame
    removal = Removal(where, directory, options, copies)
    return run_as_asked(removal, is_staged=stage_only, is_tried=dry_run)


@dataclasses.dataclass
class Removal(OnDataset):
    """Removes records from a dataset, with every name of them; its source says which.

    Attributes:
        copies: records with the same bytes go too.
    """

    verb = "removal"
    refused = NOT_REMOVED
    source: Where | pd.DataFrame
    copies: bool

    def plan(
        self,
        state: DatasetState,
        say: Say,
    ) -> Planned | ConversionResult:
        """The rows of a dataset without some of them, planned to be written again."""
        folder = state.where
        newest = own_dataset(state)
        dataset, options = self.open(state)
        say("reading the tables")
        stored = stored_rows(folder, newest)
        fields = dataset.fields
        kind = PlanKind.REMOVAL
        marks = read_marks(folder, newest)
        if isinstance(self.source, pd.DataFrame):
            named, fault, repeated = _in_table(self.source, stored, dataset, marks)
        else:
            named, fault, repeated = choose(_frame(stored, dataset), self.source, marks)
        if state.was_left and newest.plan.kind is kind and not named.any():  # by this call, killed
            return dataclasses.replace(read_result(folder, newest.number), was_finished=True)
        if fault is not None:
            raise OptionError.of("where", fault.value, f"{fault.remedy} Nothing was removed.")
        named &= stored.is_newest
        taken, notes = marks.taken(stored, fields, named, repeated, self.copies)
        said = Summary(removed=len(repeated), notes=notes)
        if not taken.any():
            return dataclasses.replace(read_result(folder), was_finished=True, **said.said)
        gone = stored.all_of(taken)
        stays = stored.is_newest & ~gone
        left = stored.rows.filter(pa.array(stays))
        statistics = stored.statistics(fields, left, stored.splits[stays])
        change = np.full(len(gone), SAME)
        none = Added(stored.rows.slice(0, 0), stored.splits.iloc[:0])
        plan, rows, changes = changed_plan(
            stored,
            gone,
            change,
            added=none,
            fields=fields,
            options=options,
            kind=kind,
            base=folder,
            statistics=statistics,
        )
        said = dataclasses.replace(
            said,
            changes=dataclasses.replace(changes, removed=int(taken.sum())),
            notes=tuple(filter(None, (*notes, storage.keeps_removed(folder)))),
        )
        return Planned(
            plan=dataclasses.replace(plan, summary=said),
            rows=rows,
            options=options,
            marks=marks.marking(stored.rows.filter(pa.array(gone)), fields),
        )


def _frame(stored: StoredRows, dataset: StoredDataset) -> pd.DataFrame:
    """The rows of a dataset with the columns that a condition may name."""
    splits = stored.splits.astype(object).to_numpy()
    cells = cells_in(dataset.fields, stored.rows)
    frame = frame_of(dataset, splits, cells, pd.RangeIndex(len(splits)))
    number = number_column(frame.columns)
    return pd.DataFrame({number: stored.numbers, SPLIT_COLUMN: splits} | dict(frame.items()))


def _in_table(
    table: pd.DataFrame,
    stored: StoredRows,
    dataset: StoredDataset,
    marks: Marks,
) -> tuple[Bools, OptionError | None, list[str]]:
    """The rows of a dataset that are in a table; the rest as `choose` returns it."""
    frame = _frame(stored, dataset)
    number = str(frame.columns[0])
    images = image_fields(dataset.fields)
    uris = [field.column for field in images]
    if not images or not {*uris} <= {*table}:
        if number not in table:
            columns = ", ".join(map(repr, table))
            words = f"give one with the column {number!r}, as `tfrecorder.to_frame` returns it."
            raise OptionError.of("where", ..., f"a table with the columns {columns}; {words}")
        return choose(frame, {number: table[number].tolist()}, marks)
    table = table[[name for name in (*uris, number) if name in table]]
    schema = Schema({field.column: field.kind for field in images})
    given = read_source(table, ConvertOptions(schema=schema))
    given = with_numbers(given, stored.rows.filter(pa.array(stored.is_newest)), images)
    again = table.astype(str).duplicated().to_numpy()
    if number in table or any(field.gathered for field in dataset.fields):  # boxes of one image
        given = given.only(~again)
    pairs = match_rows(
        stored,
        given,
        images,
        has_base=False,
        values={},
        takes_base=False,
    )
    places = pairs.places
    names = column_uris(given, uris[0]).filter(pa.array(places < 0)).to_pylist()
    never = [name for name in names if name not in marks]
    fault = None
    if never:
        more = f", and {len(never) - 1:,} more" if never[1:] else ""
        words = f"no row has {uris[0]!r} {never[0]!r}{more}; leave it out of the table."
        fault = OptionError.of("where", ..., words)
    is_in_table = mask_of(places[places >= 0], len(frame))
    marked = [name for name in names if name in marks]
    return is_in_table, fault, marked

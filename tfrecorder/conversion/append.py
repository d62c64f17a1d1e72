"""`append`: more rows for a dataset, as further shards of it, in the next commit.

What an append must know of the dataset is in its plan, so that workers, the commit and `verify`
need nothing else.  Only one append at a time writes the next numbers.  On a disk the lock of the
dataset ensures that; on a bucket the staged plan claims them, and only one of two appends can put
it there.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from tfrecorder.conversion.existing_rows import Sifted, pass_over_known
from tfrecorder.conversion.job import run_as_asked
from tfrecorder.conversion.on_dataset import OnDataset, checked_beside, own_dataset
from tfrecorder.conversion.operation import Planned, Say
from tfrecorder.conversion.same_schema import numbered
from tfrecorder.conversion.table import CopySearch, planned_rows
from tfrecorder.format.plan import PlanKind
from tfrecorder.format.summary import Summary
from tfrecorder.options.changes import NOT_APPENDED, AppendOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import AppendKeywords, OnDataflow, Path, Source, Unpack
from tfrecorder.options.option import takes
from tfrecorder.output.result import ConversionResult
from tfrecorder.output.state import DatasetState
from tfrecorder.output.status import ConversionStatus
from tfrecorder.plan.make_plan import described
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.merged_rows import merge_rows, next_row_of
from tfrecorder.reading.shard_tables import reject_counts
from tfrecorder.sources.files import line_numbers
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source as Table
from tfrecorder.validation.report import build_report, comparison_sentences, shown_rows

if TYPE_CHECKING:
    from tfrecorder.conversion.dry_run import DryRun
    from tfrecorder.runners.dataflow.job import DataflowJob


@overload
def append(  # type: ignore[overload-overlap]
    source: Source,
    directory: Path,
    *,
    runner: OnDataflow,
    **options: Unpack[AppendKeywords],
) -> DataflowJob: ...
@overload
def append(
    source: Source,
    directory: Path,
    *,
    stage_only: Literal[True],
    **options: Unpack[AppendKeywords],
) -> ConversionStatus: ...
@overload
def append(
    source: Source,
    directory: Path,
    *,
    dry_run: Literal[True],
    **options: Unpack[AppendKeywords],
) -> DryRun: ...
@overload
def append(
    source: Source,
    directory: Path,
    *,
    runner: str | None = None,
    **options: Unpack[AppendKeywords],
) -> ConversionResult: ...
@takes(AppendKeywords, AppendOptions, ConvertOptions)
def append(
    source: Source,
    directory: str | os.PathLike[str],
    *,
    runner: str | None = None,
    stage_only: bool = False,
    dry_run: bool = False,
    **options: Unpack[AppendKeywords],
) -> ConversionResult | DataflowJob | ConversionStatus | DryRun:
    """Add rows to a finished dataset, as a new generation; no record in it is rewritten.

    All readers then see the old records and the new ones as one dataset.  Rows whose images are
    already in the dataset are skipped and counted: appending a longer table adds the rest, and
    appending the same table again adds nothing.  Images are compared by their places, however
    their uris are spelled; rows without images by all their values.  Rows that were removed from
    the dataset stay out.  To continue an interrupted
    append, repeat the call.

    Args:
        source: as for `tfrecorder.convert`.  The columns must be those of the dataset; labels may
            be new, and get the next integers.
        directory: a finished dataset.
        stage_only: only check and plan; `tfrecorder.parts.work` writes the shards, on any number of
            machines, and `tfrecorder.parts.commit` makes them part of the dataset.
        dry_run: run every check, and return what would be added; nothing is written.
        **options: of `tfrecorder.convert`.  Options that decide on the records, such as image_size,
            schema or seed, are by default as they were for the dataset.

    Returns:
        What `tfrecorder.convert` returns, for the new generation; `generation` is its number, and
        `rows_there` says how many rows were skipped.  If no row is left, nothing is written.  With
        stage_only, what `tfrecorder.parts.stage` returns; with dry_run, what would be added.

    Raises:
        OptionError: an option's name or value is wrong, or does not fit the dataset.
        DatasetError: there is no finished dataset written by this package.
        SourceError: the source cannot be read as a table, or its columns are not the dataset's.
        OutputError: another conversion or append is running there, or another one was begun and not
            finished.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.append("today.csv", "out")  # doctest: +SKIP
    """
    given: dict[str, object] = {"runner": runner, **options}
    adding = AppendOptions.out_of(given)
    return run_as_asked(
        Append(source, directory, given, adding),
        is_staged=stage_only,
        is_tried=dry_run,
    )


@dataclass
class Append(OnDataset):
    """Adds the rows of a source that a dataset does not have."""

    verb = "append"
    refused = NOT_APPENDED

    adding: AppendOptions

    def prepare(self, state: DatasetState) -> None:
        """Merge the tables that are searched, if many are not merged yet."""
        if self.adding.duplicates != "keep":
            merge_rows(state.where, own_dataset(state))

    def plan(
        self,
        state: DatasetState,
        say: Say,
    ) -> Planned | ConversionResult:
        """The rows that are not in the dataset yet, planned to be added to it."""
        where = state.where
        newest = own_dataset(state)
        stored, options = self.open(state)
        _, sifted = self.compare(newest, stored, options, say)
        table = sifted.table
        if (sifted.known or sifted.removed) and not len(table.frame):
            return _nothing(stored, newest, sifted)
        say("checking the table")
        checked, report = checked_beside(
            where,
            stored.fields,
            table,
            options,
            self.adding,
            compare=sifted.compared,
            copies=CopySearch(table, options, say, stored),
        )
        counted = checked
        first = next_row_of(where, newest)
        checked = numbered(checked, table, first, sifted.retried)
        there = Summary(rows_there=sifted.known, removed=sifted.removed)
        planned = planned_rows(where, table, checked, report, options, there, PlanKind.APPEND)
        planned = dataclasses.replace(planned, marks=sifted.marks, retried=sifted.retried)
        is_new = np.asarray(checked.frame.index >= first)
        if is_new.all():
            return planned
        # Rejects that are tried again were counted before.
        plan = planned.plan.with_rows(statistics=described(counted.part(is_new)))
        if not is_new.any():  # they were accepted as such, and may fail again
            plan = plan.with_rows(in_source=0, statistics={})
        return dataclasses.replace(planned, plan=plan)

    def compare(
        self,
        newest: Commit,
        stored: StoredDataset,
        options: ConvertOptions,
        say: Say,
    ) -> tuple[Table, Sifted]:
        """The table of the source, and what the dataset does not have of it."""
        say("reading the table")
        table = read_source(self.source, options, stored.fields)
        say("looking for images already there")
        return table, pass_over_known(table, self.where, newest, stored.fields, self.adding)


def _nothing(
    stored: StoredDataset,
    newest: Commit,
    sifted: Sifted,
) -> ConversionResult:
    """The result of an append that found no row to add."""
    report = build_report(sifted.findings)
    lines = line_numbers(sifted.table, shown_rows(report))
    return ConversionResult(
        output_dir=stored.directory,
        splits={},
        rejects=reject_counts(stored.directory),
        class_names=stored.class_names,
        passed_over=dict(sifted.table.passed_over),
        notes=tuple(comparison_sentences(report, lines)),
        was_finished=True,
        generation=newest.number,
        rows_there=sifted.known,
        removed=sifted.removed,
        origins=dict(newest.dataset.history.origins),
        updates=newest.dataset.history.updates,
    )

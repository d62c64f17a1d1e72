"""`update`: the records of a dataset as a table has them now.

Rows of the table are those of the dataset whose images and masks are in the same places.  The rest
are new.  Images come from the records.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.conversion.changed_rows import Added, StoredRows, changed_plan, stored_rows
from tfrecorder.conversion.corrected_values import Matched, mask_of
from tfrecorder.conversion.job import run_as_asked
from tfrecorder.conversion.matching import with_numbers
from tfrecorder.conversion.on_dataset import OnDataset, checked_beside, own_dataset
from tfrecorder.conversion.operation import Planned, Say
from tfrecorder.conversion.removal_marks import (
    Marks,
    read_marks,
    refuse_lost_marks,
    without_rows,
)
from tfrecorder.conversion.row_keys import findings_of, same_bytes
from tfrecorder.conversion.same_schema import named_classes, schema_faults
from tfrecorder.conversion.table import summary_of
from tfrecorder.core.arrays import Bools, Objects
from tfrecorder.format.layout import BASE, CHANGE, COPY_OF, READ, SAME
from tfrecorder.format.plan import PlanKind
from tfrecorder.format.summary import Summary
from tfrecorder.inspection.duplicates import OF_COPIES
from tfrecorder.inspection.suspects import OF_SUSPECTS
from tfrecorder.options.changes import NOT_UPDATED, UpdateOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import OnDataflow, Path, Source, Unpack, UpdateKeywords
from tfrecorder.options.option import takes
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.output.state import DatasetState
from tfrecorder.output.status import ConversionStatus
from tfrecorder.plan.make_plan import described, spooled_images
from tfrecorder.plan.preflight import before_the_launch
from tfrecorder.reading.merged_rows import next_row_of
from tfrecorder.reading.shard_tables import columns_of, joined, repeated
from tfrecorder.schema.fields import Field, file_fields
from tfrecorder.schema.keys import SOURCE_ID, SPLIT_COLUMN
from tfrecorder.schema.splits import SPLIT_TYPE
from tfrecorder.schema.statistics import Statistics, merged
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.places import column_uris
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source as Table
from tfrecorder.validation.columns import has_faults
from tfrecorder.validation.report import ValidationReport
from tfrecorder.validation.rows import describe_assigned
from tfrecorder.validation.rules import Checked
from tfrecorder.verification.sources import other_sources

if TYPE_CHECKING:
    from tfrecorder.conversion.dry_run import DryRun
    from tfrecorder.runners.dataflow.job import DataflowJob


@overload
def update(  # type: ignore[overload-overlap]
    source: Source,
    directory: Path,
    *,
    runner: OnDataflow,
    **options: Unpack[UpdateKeywords],
) -> DataflowJob: ...
@overload
def update(
    source: Source,
    directory: Path,
    *,
    stage_only: Literal[True],
    **options: Unpack[UpdateKeywords],
) -> ConversionStatus: ...
@overload
def update(
    source: Source,
    directory: Path,
    *,
    dry_run: Literal[True],
    **options: Unpack[UpdateKeywords],
) -> DryRun: ...
@overload
def update(
    source: Source,
    directory: Path,
    *,
    runner: str | None = None,
    **options: Unpack[UpdateKeywords],
) -> ConversionResult: ...
@takes(UpdateKeywords, UpdateOptions, ConvertOptions)
def update(
    source: Source,
    directory: str | os.PathLike[str],
    *,
    runner: str | None = None,
    stage_only: bool = False,
    dry_run: bool = False,
    **options: Unpack[UpdateKeywords],
) -> ConversionResult | DataflowJob | ConversionStatus | DryRun:
    """Make a dataset what a table says now: correct labels and other values, add new rows.

    A row of the table is the row of the dataset that has its number, as in a table of
    `tfrecorder.to_frame`, if also the uris agree; otherwise the one whose images and masks are in
    the same places, however their uris are spelled; without a mask in the same place, the row whose
    images are; or the one with the same relative uris, if their files are gone or have the same
    bytes.  If they have others, it asks for `base`.  Rows without images are the same if all their
    values are, so they are never corrected.  Images
    are taken from the records: their files need not exist any more.  Only shards with a corrected
    record are written again.  Records keep their numbers, and classes their integers, unless rows
    are removed or go to another split.  A row keeps its split unless the table states another.  To
    continue an interrupted update, repeat the call.

    Args:
        source: as for `tfrecorder.append`.
        directory: a finished dataset.
        stage_only: as for `tfrecorder.append`.
        dry_run: run every check, and return what would change; nothing is written.
        **options: of `tfrecorder.convert`, as for `tfrecorder.append`.

    Returns:
        What `tfrecorder.convert` returns, for the whole dataset; its `changes` says what was
        corrected, added, moved and removed.  With stage_only, what `tfrecorder.parts.stage`
        returns; with dry_run, what would change.

    Raises:
        OptionError: an option's name or value is wrong, or does not fit the dataset.
        DatasetError: there is no finished dataset written by this package, or a shard is damaged.
        SourceError: the source cannot be read as a table, its columns are not the dataset's, or a
            corrected row cannot be written.
        OutputError: another operation is running there, or was begun and not finished.
        TfrecorderError: otherwise as `tfrecorder.convert` raises them.

    Example:
        >>> tfrecorder.update("photos.csv", "out").changes.corrected  # doctest: +SKIP
        12
    """
    given: dict[str, object] = {"runner": runner, **options}
    updating = UpdateOptions.out_of(given)
    return run_as_asked(
        Update(source, directory, given, updating),
        is_staged=stage_only,
        is_tried=dry_run,
    )


@dataclass
class Update(OnDataset):
    """Gives the rows of a dataset the values that a source has for them, and adds the others."""

    verb = "update"
    refused = NOT_UPDATED

    updating: UpdateOptions

    def plan(
        self,
        state: DatasetState,
        say: Say,
    ) -> Planned | ConversionResult:
        """The rows of a dataset with the values of a table, planned to be written again."""
        where = state.where
        newest = own_dataset(state)
        dataset, options = self.open(state)
        say("reading the table")
        table = read_source(self.source, options, dataset.fields)
        for own in (OF_COPIES, OF_SUSPECTS):  # what `duplicates` and `suspects` add to a table
            if {*own} <= {*table.left_out}:
                others = tuple(name for name in table.left_out if name not in own)
                table = dataclasses.replace(table, left_out=others)
        stored = stored_rows(where, newest)
        if table.stated is not None:
            rows = stored.rows.filter(pa.array(stored.is_newest))
            table = with_numbers(table, rows, dataset.fields)
        compared = _Comparison(
            table,
            stored,
            dataset.fields,
            options,
            updating=self.updating,
            say=say,
        )
        compared.check()
        table = compared.table
        matched = compared.matched
        new = compared.new
        checked = matched.checked
        places = matched.places
        moved, gone = matched.moved_and_gone(self.updating.missing == "remove")
        change, differing = matched.changes(options.transforms)
        files = np.zeros(len(change), bool)
        if self.updating.reread:
            say("comparing the images with their files")
            files = _replaced_files(stored, dataset.fields) & mask_of(
                matched.old_places,
                len(change),
            )
            change[files] = READ
        after = dataclasses.replace(stored, rows=matched.with_values(change))
        comes = checked.frame[SPLIT_COLUMN][moved].to_numpy(object)
        of_moved = after.rows.append_column(CHANGE, pa.array(change, pa.int8()))
        of_moved = of_moved.take(pa.array(places[moved]))
        plan, rows, rewritten = changed_plan(
            after,
            gone,
            np.where(gone, SAME, change),
            added=_added(of_moved, comes, new, table.base, next_row_of(where, newest)),
            fields=checked.fields,
            options=options,
            kind=PlanKind.UPDATE,
            base=table.base,
            statistics=_statistics(after, gone, of_moved, comes, new),
        )
        stays_or_moves = (stored.is_newest & ~gone) | mask_of(places[moved], len(gone))
        went = stored.splits[places[moved]]
        moves = Counter(f"{old} → {now}" for old, now in zip(went, comes, strict=True))
        changes = dataclasses.replace(
            rewritten,
            corrected=int(((change != SAME) & stays_or_moves & stored.has_record).sum()),
            columns=differing,
            labels=matched.relabelled(),
            read_again=int(files.sum()),
            moved=dict(moves),
            added=len(new.frame),
            removed=int((stored.is_newest & ~stays_or_moves).sum()),
        )
        if not changes.shards and not len(new.frame):
            result = read_result(where)
            return dataclasses.replace(
                result,
                was_finished=True,
                changes=changes,
                removed=compared.removed,
            )
        said = summary_of(
            table,
            compared.report,
            Summary(removed=compared.removed, changes=changes),
        )
        read = columns_of(rows.filter(pc.equal(rows.column(CHANGE), READ)))
        return Planned(
            plan=dataclasses.replace(plan.with_rows(spooled=spooled_images(read)), summary=said),
            rows=rows,
            options=options,
            new=new,
            report=compared.report,
            marks=compared.marks,
        )


@dataclass
class _Comparison:
    """A table beside the dataset that it corrects.

    Attributes:
        table: without the rows that stay out, because they were removed from the dataset.
        out: those of its rows that stay out, if all new ones do.
        removed: how many rows stay out.
        marks: of what was removed, once the table is in; None if they stay.
        report: on it.
        matched: its rows, checked, with those of the dataset that they are.
        new: the rows that the dataset gets.
    """

    table: Table
    stored: StoredRows
    fields: Sequence[Field]
    options: ConvertOptions
    updating: UpdateOptions
    say: Say
    out: Sequence[int] = ()
    removed: int = 0
    marks: Marks | None = None
    report: ValidationReport = field(init=False)
    matched: Matched = field(init=False)
    new: Checked = field(init=False)

    def check(self) -> None:
        """Check the table, and compare it.

        Raises:
            DatasetError: nobody knows which rows were removed.
            SourceError: its columns are not the dataset's.
            ValidationError: it has faults.
        """
        where = self.stored.where
        newest = self.stored.newest
        refuse_lost_marks(where, newest, self.updating.readmit)
        marked = read_marks(where, newest)
        if marked:
            self._leave_out_removed(marked)
        self._report()

    def _leave_out_removed(self, marked: Marks) -> None:
        """Leave out what was removed before; it brings nothing along."""
        lenient = dataclasses.replace(self.updating, new_classes="allow")
        shown = dataclasses.replace(self.options, warnings="show")
        before = dataclasses.replace(self, options=shown, updating=lenient)
        before._report()
        table = self.table
        of_new = table.only(table.frame.index.isin(before.new.frame.index))
        enters, self.marks = marked.sift(of_new, self.updating.readmit)
        if not self.updating.readmit:
            enters &= ~_were_there(of_new, self.fields, marked)
        self.out = of_new.frame.index[~enters].tolist()
        self.removed = len(self.out)
        if 0 < self.removed < len(before.matched.checked.frame):
            self.table = without_rows(table, of_new.frame[~enters])
            self.removed = len(table.frame) - len(self.table.frame)

    def _report(self) -> None:
        self.say("checking the table")
        _, self.report = checked_beside(
            self.stored.where,
            self.fields,
            self.table,
            self.options,
            classes=self.updating,
            compare=self._compare,
        )

    def _compare(self, checked: Checked) -> Checked:
        of_classes = checked.with_findings(named_classes(self.fields, self.updating, checked))
        if has_faults(checked.findings) or schema_faults(self.fields, self.table, checked.fields):
            return of_classes
        self.say("comparing it with the dataset")
        has_base = self.options.base is not None
        self.matched = Matched.of(self.stored, self.table, checked, self.fields, has_base)
        is_new = (self.matched.places < 0) & ~checked.frame.index.isin(self.out)
        self.new = self.matched.checked.part(is_new)
        # Rows that are there keep their splits.
        splits = self.new.frame[SPLIT_COLUMN]
        was_open = self.new.unassigned
        assigned = describe_assigned(splits, was_open, self.options.division, self.table.groups)
        findings = _same_bytes(self.matched, self.table, self.updating.missing == "keep")
        return dataclasses.replace(of_classes.with_findings(findings), assigned=assigned)


def _were_there(
    table: Table,
    fields: Sequence[Field],
    marked: Marks,
) -> Bools:
    """True for each row that has a number and a uri of a row which was removed."""
    files = [field.column for field in file_fields(fields)]
    if table.stated is None or not files:
        return np.zeros(len(table.frame), bool)
    known = [uri in marked for uri in column_uris(table, files[0]).to_pylist()]
    return (table.stated >= 0).to_numpy() & np.array(known, bool)


def _same_bytes(
    matched: Matched,
    table: Table,
    all_stay: bool,
) -> Iterator[Finding]:
    """Which new rows of a table have the bytes of an image that the dataset has and keeps.

    Args:
        all_stay: also the rows of the dataset that the table does not have.
    """
    checked = matched.checked
    stored = matched.stored
    files = file_fields(checked.fields)
    new = checked.frame.index[matched.places < 0]
    if not files or not len(new):
        return
    uris = stored.rows.column(files[0].uri_key)
    among = None if all_stay else uris.take(pa.array(matched.old_places))
    of_new = table.only(table.frame.index.isin(new))
    with before_the_launch():
        pairs = same_bytes(of_new, stored.where, stored.newest, files, among)
    yield from findings_of(pairs, checked.frame[SPLIT_COLUMN])


def _statistics(
    stored: StoredRows,
    gone: Bools,
    moved: pa.Table,
    of_moved: Objects,
    new: Checked,
) -> Statistics:
    """Of the values of all rows from now on."""
    stays = stored.is_newest & ~gone
    old = joined([stored.rows.filter(pa.array(stays)), moved])
    splits = pd.concat([stored.splits[stays], pd.Series(of_moved, dtype=SPLIT_TYPE)])
    known = stored.statistics(new.fields, old, splits)
    return merged([known, described(new)] if len(new.frame) else [known])


def _replaced_files(stored: StoredRows, fields: Sequence[Field]) -> Bools:
    """True for each row of the dataset of which an image or mask has other bytes now."""
    others = other_sources(stored.where, stored.shards, fields)
    rows = {file.row for file, fault in others if fault.code == "source_changed"}
    return np.isin(stored.numbers, [*rows]) & stored.is_newest


def _added(
    moved: pa.Table,
    of_moved: Objects,
    new: Checked,
    base: str,
    first: int,
) -> Added:
    """The rows that are added at the ends of their splits.

    Args:
        moved: those that come from another split.
        of_moved: their splits.
        first: the number of the first new row.
    """
    count = len(new.frame)
    columns = {
        SOURCE_ID: pa.array(np.arange(first, first + count)),
        **new.values,
        BASE: repeated(base, count),
        COPY_OF.file: repeated("", count),
        CHANGE: pa.array(np.full(count, READ), pa.int8()),
    }
    splits = [*new.frame[SPLIT_COLUMN], *of_moved]
    return Added(joined([pa.table(columns), moved]), pd.Series(splits, dtype=SPLIT_TYPE))

"""The source of a conversion as a table without faults, and what the user should know of it."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tfrecorder import storage
from tfrecorder.conversion.removal_marks import Marks, read_marks
from tfrecorder.conversion.staged import PlannedRows
from tfrecorder.display.tables import counted, counts_in_words
from tfrecorder.display.warning import warn
from tfrecorder.errors import DatasetError, OptionError, OutputError, ValidationError
from tfrecorder.format.losses import Loss
from tfrecorder.format.plan import PlanKind
from tfrecorder.format.summary import Summary
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import (
    begun_plan,
    refuse_foreign,
    refuse_links,
    refuse_nested,
    standing_of,
)
from tfrecorder.output.spool import spool_images
from tfrecorder.plan.make_plan import make_plan
from tfrecorder.plan.preflight import before_the_launch, in_files, open_some, sizes_of_some
from tfrecorder.reading.commits import newest_commit
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.schema.fields import Field
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source
from tfrecorder.validation.images import KnownImages, look_at_files
from tfrecorder.validation.report import (
    COMPARISON,
    ValidationReport,
    comparison_sentences,
    count_warnings,
    has_errors,
)
from tfrecorder.validation.rules import Checked, check_source

#: Shows what is being done, in a word or two.
Say = Callable[[str], None]


def rows_of_source(source: Any, where: str, options: ConvertOptions, say: Say) -> PlannedRows:
    """The rows of a source, planned for a directory, but for those that were removed there.

    Raises:
        SourceError: the source cannot be read as a table.
        ValidationError: the table has faults.
        OutputError: the directory is inside of another dataset.
        DatasetError: the dataset that is there is damaged.
    """
    refuse_nested(where, options)
    refuse_links(where)
    check_runner(options)
    say("reading the table")
    table = read_source(source, options)
    anew = options.overwrite == "all"
    try:
        newest = newest_commit(where)
        if newest is None and options.overwrite:
            # An overwrite that was killed may have set it aside: what was removed stays out.
            newest = standing_of(where).newest
    except DatasetError as error:
        with storage.failing_as(OutputError, where):
            refuse_foreign(where)  # says more, if it is no dataset of ours
        denied = getattr(error.__cause__, "code", "not_found") != "not_found"
        raise (OutputError(str(error)) if denied else error) from error.__cause__
    marks = read_marks(where, newest)
    begun = None if newest is None else begun_plan(newest).source_rows
    # Whole if it began the dataset, before some of its rows were removed: the same call again.
    is_whole = anew or (not options.overwrite and begun == len(table.frame))
    stays, _ = (Marks() if is_whole else marks).sift(table)
    table = table.only(stays)
    say("checking the table")
    look = look_for_copies(table, options, say)
    checked, report = check_table(table, where, options, look=look)
    if anew and marks:
        count = counted(max(len(marks.places), len(marks.contents)), "removed row")
        report.notes += (f"begun anew: the marks of {count} are dropped, which may come in again",)
    losses: dict[str, list[str]] = {}
    if newest is not None and Loss.MARKS.is_in(newest.plan.losses) and options.overwrite is True:
        losses[Loss.MARKS.value] = newest.plan.losses[Loss.MARKS.value]
        report.notes += ("which rows were removed before is lost: they may come in again",)
    removed = int((~stays).sum())
    rows = planned_rows(where, table, checked, report, options, removed=removed)
    rows = dataclasses.replace(rows, plan=dataclasses.replace(rows.plan, losses=losses))
    return dataclasses.replace(rows, marks=Marks()) if anew and marks else rows


def planned_rows(
    folder: str,
    table: Source,
    checked: Checked,
    report: ValidationReport,
    options: ConvertOptions,
    kind: PlanKind = PlanKind.CONVERSION,
    **summary: Any,
) -> PlannedRows:
    """The rows of a table without errors, planned for a folder.

    Args:
        kind: as in `Plan`.
        summary: further fields of `Summary`.
    """
    plan, planned = make_plan(checked, table.base, options, kind)
    deep = [field.column for field in plan.fields if field.depth == 16]
    if deep and options.image_format in ("jpeg", "raw"):
        words = f"it holds 8 bits a channel, the schema declares 16 of {deep}; leave it out."
        raise OptionError.of("image_format", options.image_format, words)
    remote = plan.remote or (plan.spooled > 0 and not storage.is_local(folder))
    said = summary_of(table, report, **summary)
    return PlannedRows(
        plan=dataclasses.replace(plan, remote=remote, summary=said),
        planned=planned,
        options=options,
        sizes=partial(sizes_of_some, checked, table.base, options),
        check=partial(open_some, checked, table.base, options),
        spool=partial(spool_images, checked.contents.values()),
        report=report,
    )


def summary_of(table: Source, report: ValidationReport, **more: Any) -> Summary:
    """What to say of an operation with the rows of a table; `more` are further fields."""
    return Summary(
        passed_over=dict(table.passed_over),
        warnings=count_warnings(report),
        notes=report.notes,
        **more,
    )


def check_table(
    table: Source,
    where: str,
    options: ConvertOptions,
    known: Sequence[Field] = (),
    compare: Callable[[Checked], Checked] = lambda checked: checked,
    look: Callable[[Checked], Checked] | None = None,
) -> tuple[Checked, ValidationReport]:
    """A table without errors as it goes into a plan, and the report on it.

    Args:
        known: the columns of the dataset to which the table is added.
        compare: adds what the table is beside that dataset.
        look: looks at the files of a table without errors.

    Raises:
        ValidationError: the table has faults.
    """
    checked = compare(check_source(table, options.division, known))
    report = _sound_report(checked, table, options)
    if look is not None:
        checked = look(checked)
        report = _sound_report(checked, table, options)
    if options.runner == "DataflowRunner":
        from tfrecorder.runners.dataflow import checks

        uris = itertools.chain.from_iterable(in_files(column, checked) for column in checked.files)
        checks.check((storage.resolve(uri, table.base) for uri in uris), where, options)
    return checked, report


def _sound_report(checked: Checked, table: Source, options: ConvertOptions) -> ValidationReport:
    report = checked.report(table, options.warnings)
    if has_errors(report):
        raise ValidationError("the source has faults; nothing was written.", report)
    return report


def look_for_copies(
    table: Source,
    options: ConvertOptions,
    say: Say,
    known: Callable[[], KnownImages] | None = None,
) -> Callable[[Checked], Checked] | None:
    """The look of `check_table` that gives near copies one split; None if they need not have one.

    What would be rejects still become these, and copies in one split are as they were wanted.

    Args:
        known: gives the images of the dataset to which the table is added.
    """

    def look(checked: Checked) -> Checked:
        say("looking for near copies")
        with before_the_launch():
            there = known and known()
            seen = look_at_files(table, checked, options, lambda count: None, there)
        findings = tuple(of for of in seen.findings if not of.is_error and of.code != "near_copy")
        return dataclasses.replace(seen, findings=findings)

    return look if options.group_copies else None


def warn_of_source(rows: PlannedRows, source: Any, where: str) -> None:
    """Validation's warnings, most of them in one line, before a conversion that may take hours."""
    if rows.report is not None:
        for sentence in comparison_sentences(rows.report, rows.report.lines):
            warn(sentence)
    warnings = {c: count for c, count in rows.plan.summary.warnings.items() if c not in COMPARISON}
    if warnings:
        total, told = counted(sum(warnings.values()), "warning"), counts_in_words(warnings)
        if rows.report is not None and [*warnings.values()] == [1]:
            (message,) = rows.report.loc[rows.report["code"].isin(warnings), "message"]
            told = f"{message} ({next(iter(warnings))})"
        named = repr(str(source)) if isinstance(source, (str, os.PathLike)) else "SOURCE"
        call = f"`tfrecorder.validate({named})`"
        if rows.plan.is_added:
            call = f"`tfrecorder.validate({named}, against={where!r})`"
        warn(f"{total}: {told}; see {call} with the same options")

"""The source of a conversion as a table without faults, and what the user should know of it."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrecorder import storage
from tfrecorder.conversion.operation import Planned, Say
from tfrecorder.core.option import speaker, spelled
from tfrecorder.display.messages import warn
from tfrecorder.display.tables import counted, counts_in_words
from tfrecorder.errors import OptionError, ValidationError
from tfrecorder.format.plan import PlanKind
from tfrecorder.format.summary import Summary
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.plan.make_plan import make_plan
from tfrecorder.plan.preflight import before_the_launch, in_files
from tfrecorder.schema.fields import Field
from tfrecorder.sources.table import Source
from tfrecorder.validation.images import look_at_files
from tfrecorder.validation.report import (
    COMPARISON,
    EXAMPLES,
    ValidationReport,
    comparison_sentences,
    count_warnings,
    has_errors,
)
from tfrecorder.validation.rules import Checked, check_source

if TYPE_CHECKING:
    from tfrecorder.reading.dataset import StoredDataset


def planned_rows(
    folder: str,
    table: Source,
    checked: Checked,
    report: ValidationReport,
    options: ConvertOptions,
    said: Summary,
    kind: PlanKind = PlanKind.CONVERSION,
) -> Planned:
    """The rows of a table without errors, planned for a folder.

    Args:
        said: of the operation, beside what the table says.
        kind: as in `Plan`.
    """
    plan, rows = make_plan(checked, table.base, options, kind)
    deep = [field.column for field in plan.fields if field.depth == 16]
    if deep and options.image_format in ("jpeg", "raw"):
        raise OptionError.of(
            "image_format",
            options.image_format,
            f"it holds 8 bits a channel, the schema declares 16 of {deep}; leave it out.",
        )
    remote = plan.rows.remote or (plan.rows.spooled > 0 and not storage.is_local(folder))
    plan = plan.with_rows(remote=remote)
    return Planned(
        plan=dataclasses.replace(plan, summary=summary_of(table, report, said)),
        rows=rows,
        options=options,
        new=checked,
        report=report,
    )


def summary_of(
    table: Source,
    report: ValidationReport,
    said: Summary,
) -> Summary:
    """What to say of an operation with the rows of a table, with what is said of it already."""
    return dataclasses.replace(
        said,
        passed_over=dict(table.passed_over),
        warnings=count_warnings(report),
        notes=report.notes,
    )


def check_table(
    table: Source,
    where: str,
    options: ConvertOptions,
    known: Sequence[Field] = (),
    compare: Callable[[Checked], Checked] = lambda checked: checked,
    copies: CopySearch | None = None,
) -> tuple[Checked, ValidationReport]:
    """A table without errors as it goes into a plan, and the report on it.

    Args:
        known: the columns of the dataset to which the table is added.
        compare: adds what the table is beside that dataset.
        copies: looks for near copies, if these are to share a split; None if they need not.

    Raises:
        ValidationError: the table has faults.
    """
    checked = compare(check_source(table, options.division, known))
    report = _sound_report(checked, table, options)
    if copies is not None and options.group_copies:
        checked = copies.look(checked)
        report = _sound_report(checked, table, options)
    if options.runner == "DataflowRunner":
        from tfrecorder.runners.dataflow import checks

        uris = itertools.chain.from_iterable(in_files(column, checked) for column in checked.files)
        checks.check((storage.resolve(uri, table.base) for uri in uris), where, options)
    return checked, report


def _sound_report(
    checked: Checked,
    table: Source,
    options: ConvertOptions,
) -> ValidationReport:
    report = checked.report(table, options.warnings)
    if has_errors(report):
        raise ValidationError("the source has faults; nothing was written.", report)
    return report


@dataclass(frozen=True)
class CopySearch:
    """Gives the near copies in a table one split.

    What would be rejects still become these, and copies in one split are as they were wanted.

    Attributes:
        stored: the dataset to which the table is added; None without one.
    """

    table: Source
    options: ConvertOptions
    say: Say
    stored: StoredDataset | None = None

    def look(self, checked: Checked) -> Checked:
        """A table without errors, after a look at its images."""
        self.say("looking for near copies")
        with before_the_launch():
            known = None
            if self.stored is not None:
                from tfrecorder.conversion.existing_rows import known_images

                known = known_images(self.stored)
            seen, _ = look_at_files(self.table, checked, self.options, lambda count: None, known)
        of_one_split = ("exact_copy", "near_copy")
        findings = tuple(
            of for of in seen.findings if not of.is_error and of.code not in of_one_split
        )
        return dataclasses.replace(seen, findings=findings)


def warn_of_source(
    planned: Planned,
    source: object,
    where: str,
) -> None:
    """Validation's warnings, most of them in one line, before a conversion that may take hours."""
    report = planned.report
    if report is not None:
        for sentence in comparison_sentences(report, report.lines):
            warn(sentence)
    every = planned.plan.summary.warnings
    warnings = {code: count for code, count in every.items() if code not in COMPARISON}
    if warnings:
        total = counted(sum(warnings.values()), "warning")
        told = counts_in_words(warnings)
        if report is not None:
            found = report[report["code"].isin(warnings)]
            # Of several rows, each would need its line.
            if 0 < len(found) <= EXAMPLES and found["row"].count() < 2:
                told = f"{', '.join(found['message'])} ({', '.join(warnings)})"
        is_path = isinstance(source, (str, os.PathLike))
        call = speaker().called("validate", str(source)) if is_path else "`validate`"
        against = f"{spelled('against', where)} and " if planned.plan.is_added else ""
        warn(f"{total}: {told}; see {call} with {against}the same options")

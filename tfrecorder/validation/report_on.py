"""A report as people see it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tfrecorder.sources.files import line_numbers
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import ValidationReport, as_errors, beside_dataset, shown_rows
from tfrecorder.validation.rules import Checked


def report_on(
    report: pd.DataFrame,
    table: Source,
    checked: Checked,
    warnings: str | Sequence[str],
    notes: tuple[str, ...] = (),
) -> ValidationReport:
    """A report as people see it, with line numbers and the severities that `warnings` asks for."""
    lines = line_numbers(table, shown_rows(report))
    notes = (*checked.notes, *notes, *beside_dataset(report))
    return ValidationReport.of(as_errors(report, warnings), len(table.frame), notes, lines)

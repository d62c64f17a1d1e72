"""`validate`: the report on a source, with or without opening every image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from tfrecorder.display.bars import is_shown, record_bar, stage_line
from tfrecorder.errors import OptionError
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import ValidateKeywords
from tfrecorder.options.signature import takes
from tfrecorder.options.subsets import NOT_VALIDATED, OF_IMAGES
from tfrecorder.sources.files import line_numbers
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import ValidationReport, as_errors, build_report, shown_rows
from tfrecorder.validation.rules import Checked, check_source

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict
    from typing_extensions import Unpack


@takes(ValidateKeywords, ConvertOptions)
def validate(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    check_images: bool = False,
    **options: Unpack[ValidateKeywords],
) -> ValidationReport:
    """Find every problem in a source at once; nothing is written.

    Args:
        source: a frame, a Hugging Face dataset, a CSV, a folder or an open file, as for
            `tfrecorder.convert`.
        check_images: also open and check every image and mask, as a conversion would, and compare
            boxes in pixels with the size of their image.
        **options: columns, schema, sep, encoding, base, seed, splits,
            stratify, split_by, warnings, progress, and with `check_images` also check and
            max_pixels, as for `tfrecorder.convert`.

    Returns:
        A frame with a row for each problem, errors first: severity ("error", "warning", or "note"
        for what is good to know and never an error), code, row (from 0; missing if it is about the
        whole table), column, value, message, remedy, other_row (for a repeated image, the row that
        it conflicts with).  It is empty if no problem was found.  Printed, or in a notebook, it
        shows the problems in groups.

    Raises:
        OptionError: an option's value is wrong.
        SourceError: the source cannot be read as a table.

    Example:
        >>> tfrecorder.validate("flowers.csv")  # doctest: +SKIP
    """
    chosen = ConvertOptions.of(options, NOT_VALIDATED)
    for name in OF_IMAGES:
        if not check_images and (value := getattr(chosen, name)) != getattr(ConvertOptions, name):
            words = "no image is opened without `check_images=True`; give it too."
            raise OptionError.of(name, value, words)
    with stage_line(is_shown(chosen.progress)) as begin:
        begin("reading the table")
        table = read_source(source, chosen)
        begin("checking the table")
        checked = check_source(table, chosen.division)
    report = checked.report
    if checked.files and not check_images:
        unseen = "images: not opened; `check_images=True` opens and checks each"
        return report_on(report, table, checked, chosen.warnings, (unseen,))
    if check_images:
        from tfrecorder.validation.images import unusable_files

        with record_bar(is_shown(chosen.progress), " images") as stage:
            advance = stage("checking", len(checked.frame))
            of_images = [*unusable_files(table, checked, chosen, advance)]
        report = build_report([*checked.findings, *of_images])
    return report_on(report, table, checked, chosen.warnings)


def report_on(
    report: pd.DataFrame,
    table: Source,
    checked: Checked,
    warnings: str | Sequence[str],
    notes: tuple[str, ...] = (),
) -> ValidationReport:
    """A report as people see it, with line numbers and the severities that `warnings` asks for."""
    lines = line_numbers(table, shown_rows(report))
    return ValidationReport.of(
        as_errors(report, warnings), len(table.frame), [*checked.notes, *notes], lines
    )

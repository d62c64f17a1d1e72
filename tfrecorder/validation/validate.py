"""`validate`: the report on a source, with or without opening every image."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from tfrecorder.display.bars import is_shown, record_bar, stage_line
from tfrecorder.errors import OptionError
from tfrecorder.images.limits import DEFAULT_MAX_PIXELS
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.sources.files import line_numbers
from tfrecorder.sources.source import read_with, refuse_idle
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import ValidationReport, as_errors, build_report, shown_rows
from tfrecorder.validation.rules import Checked, check_source

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict

    from tfrecorder.schema.kinds import Schema


def validate(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    check_images: bool = False,
    *,
    columns: Mapping[str, str] | None = None,
    schema: Schema | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    labels: Sequence[str | int] | None = None,
    background_class: bool = False,
    sep: str | None = None,
    encoding: str | None = None,
    base: str | None = None,
    seed: int = 0,
    verify: str = "decode",
    max_pixels: int = DEFAULT_MAX_PIXELS,
    strict: bool | Sequence[str] = False,
    splits: Mapping[str, float] | None = None,
    stratify: bool = False,
    split_by: str | None = None,
    progress: bool | None = None,
) -> ValidationReport:
    """Find every problem in a source at once; nothing is written.

    Args:
        source: a frame, a Hugging Face dataset, a CSV, a folder or an open file, as for
            `tfrecorder.convert`.
        check_images: also open and check every image and mask, as a conversion would, and compare
            boxes in pixels with the size of their image.
        columns, schema, labels, background_class, sep, encoding, base, seed, verify, max_pixels,
            splits, stratify, split_by: as for `tfrecorder.ConvertOptions`.
        strict: treat warnings as errors; notes stay notes.  Or the codes of those that are to be
            errors, such as ["leakage", "duplicate_row"].
        progress: show progress, with `check_images` as a bar; None shows it only in a terminal or
            a notebook.

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
    options = ConvertOptions.of(
        {
            "columns": columns,
            "schema": schema,
            "labels": labels,
            "background_class": background_class,
            "sep": sep,
            "encoding": encoding,
            "base": base,
            "seed": seed,
            "verify": verify,
            "max_pixels": max_pixels,
            "strict": strict,
            "splits": splits,
            "stratify": stratify,
            "split_by": split_by,
            "progress": progress,
        }
    )
    if not check_images and (verify, max_pixels) != ("decode", DEFAULT_MAX_PIXELS):
        name = "max_pixels" if verify == "decode" else "verify"
        raise OptionError(f"{name}: no image is opened without check_images=True; give it too.")
    with stage_line(is_shown(progress)) as begin:
        begin("reading the table")
        table = read_with(source, options)
        refuse_idle(table, options)
        begin("checking the table")
        checked = check_source(table, options.division)
    report = checked.report
    if checked.files and not check_images:
        unseen = "images: not opened; check_images=True opens and checks each"
        return report_on(report, table, checked, options.strict, (unseen,))
    if check_images:
        from tfrecorder.validation.images import unusable_files

        with record_bar(is_shown(progress), " images") as stage:
            advance = stage("checking", len(checked.frame))
            found = [*unusable_files(table, checked, options, advance)]
        report = build_report([*checked.findings, *found])
    return report_on(report, table, checked, options.strict)


def report_on(
    report: pd.DataFrame,
    table: Source,
    checked: Checked,
    strict: bool | Sequence[str],
    notes: tuple[str, ...] = (),
) -> ValidationReport:
    """A report as people see it, with line numbers; `strict` turns warnings into errors."""
    lines = line_numbers(table, shown_rows(report))
    return ValidationReport.of(
        as_errors(report, strict), len(table.frame), [*checked.notes, *notes], lines
    )

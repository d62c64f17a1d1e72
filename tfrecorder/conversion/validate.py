"""`validate`: the report on a source, alone or compared with a dataset."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from tfrecorder import storage
from tfrecorder.conversion.append import Append
from tfrecorder.conversion.existing_rows import known_images
from tfrecorder.conversion.on_dataset import own_dataset
from tfrecorder.conversion.operation import Say
from tfrecorder.conversion.same_schema import schema_faults
from tfrecorder.core.option import spelled
from tfrecorder.display.bars import is_shown, record_bar, stage_line
from tfrecorder.errors import DatasetError, OptionError
from tfrecorder.format.summary import left_out_words
from tfrecorder.options.changes import NOT_VALIDATED, OF_IMAGES, AppendOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import Unpack, ValidateKeywords
from tfrecorder.options.option import takes
from tfrecorder.output.state import given_directory
from tfrecorder.reading.open import open_dataset
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.source import read_source
from tfrecorder.sources.table import Source
from tfrecorder.validation.report import ValidationReport, shown_rows
from tfrecorder.validation.rules import Checked, check_source

if TYPE_CHECKING:
    from tfrecorder.options import keywords


@takes(ValidateKeywords, ConvertOptions)
def validate(
    source: keywords.Source,
    check_images: bool = False,
    against: str | os.PathLike[str] | None = None,
    **options: Unpack[ValidateKeywords],
) -> ValidationReport:
    """Find every problem in a source at once; nothing is written.

    Args:
        source: a frame, a Hugging Face dataset, a CSV, a folder or an open file, as for
            `tfrecorder.convert`.
        check_images: also open and check every image and mask, as a conversion would, compare
            boxes in pixels with the size of their image, and find near copies among the first
            images of the rows.
        against: a dataset that the source is to be added to, by `tfrecorder.append`.  The report is
            then on the rows that it does not have: also on new classes, on the bytes of its images
            under other names, and on columns that do not fit.  Options are by default as they were
            for the dataset.
        **options: columns, schema, sep, encoding, base, form, seed, splits,
            stratify, split_by, warnings, progress, and with `check_images` also check and
            max_pixels, as for `tfrecorder.convert`.

    Returns:
        A frame with a row for each problem, errors first: severity ("error", "warning", or "note"
        for what is good to know and never an error), code, row (from 0; missing if it is about the
        whole table), column, value, message, remedy, other_row (for a repeated image, the row that
        it conflicts with).  It is empty if no problem was found.  Printed, or in a notebook, it
        shows the problems in groups.  With `check_images` a notebook has thumbnails of these rows,
        and `attrs["copies"]` counts copies, as for `tfrecorder.duplicates`.

    Raises:
        OptionError: an option's value is wrong.
        SourceError: the source cannot be read as a table.
        DatasetError: `against` is not a finished dataset written by this package.

    Example:
        >>> tfrecorder.validate("photos.csv")  # doctest: +SKIP
    """
    chosen = ConvertOptions.of(options, NOT_VALIDATED)
    for name in OF_IMAGES:
        if not check_images and (value := getattr(chosen, name)) != getattr(ConvertOptions, name):
            words = f"no image is opened without {spelled('check_images', True)}; give it too."
            raise OptionError.of(name, value, words)
    with storage.acting_as(None, chosen.private_hosts):
        with stage_line(is_shown(chosen.progress)) as begin:
            begin("reading the table")
            if against is None:
                table = read_source(source, chosen)
                begin("checking the table")
                checked = check_source(table, chosen.division)
                notes = tuple[str, ...]()
            else:
                appending = Append(
                    source,
                    given_directory("against", against),
                    options,
                    AppendOptions(),
                )
                table, checked, notes = _beside(appending, begin)
        known = None
        if check_images and against is not None:
            try:
                known = known_images(open_dataset(appending.where))
            except DatasetError as error:
                notes += (f"near copies of what is there: not looked for; {error}",)
        if check_images:
            from tfrecorder.validation.images import look_at_files, thumbnails

            with record_bar(is_shown(chosen.progress), " images") as stage:
                advance = stage("checking", len(checked.frame))
                checked, copies = look_at_files(table, checked, chosen, advance, known)
            if copies is not None:
                notes += (f"copies: {copies.words()}",)
        elif checked.files:
            opens = spelled("check_images", True)
            notes += (f"images: not opened; {opens} opens and checks each",)
        report = checked.report(table, chosen.warnings, notes)
        if check_images:
            report.attrs["copies"] = copies and asdict(copies)
            report.thumbnails = thumbnails(table, checked, shown_rows(report))
        return report


def _beside(appending: Append, say: Say) -> tuple[Source, Checked, tuple[str, ...]]:
    """A table, what an append would add of it to a dataset, and what else to say."""
    state = appending.look()
    stored, options = appending.open(state)
    table, sifted = appending.compare(own_dataset(state), stored, options, say)
    notes = tuple(left_out_words(sifted.known, sifted.removed))
    if notes and not len(sifted.table.frame):
        return table, Checked(sifted.table.frame, sifted.findings), notes
    checked = check_source(sifted.table, options.division, stored.fields)
    faults = schema_faults(stored.fields, sifted.table)
    if not faults:
        faults = schema_faults(stored.fields, sifted.table, checked.fields)
    others = Finding("other_columns", [None] * len(faults), "", [None] * len(faults), faults)
    checked = checked.with_findings([others])
    return table, sifted.compared(checked), notes

"""`append`: more rows for a dataset, as a further generation.

A generation is an ordinary dataset directory, `appended/00001/`, written by the same conversion:
the same checks, plan, runners and commit.  What it must know of the generations before it is in its
plan, so that workers, the commit and `verify` need nothing else.

Only one append at a time writes the next number.  On a disk the lock of the dataset ensures that;
on a bucket the staged plan claims the number, and only one of two appends can put it there.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import IO, TYPE_CHECKING, Any

from tfrecorder import storage
from tfrecorder.conversion.convert import Known, how_to_go_on, result_of
from tfrecorder.conversion.existing_rows import pass_over_known
from tfrecorder.conversion.inherited_options import taken_over
from tfrecorder.conversion.prepare import follow, prepare
from tfrecorder.conversion.same_schema import fit_texts, numbered, refuse_other_schema
from tfrecorder.conversion.table import check_table, warn_of_source
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.errors import (
    DatasetError,
    OptionError,
    OutputError,
    UnreachableError,
    refuse_missing,
)
from tfrecorder.format import layout
from tfrecorder.options.checks import one_of
from tfrecorder.options.convert import DUPLICATES, OF_PLACE, ConvertOptions
from tfrecorder.output.directory import claim, refuse_foreign
from tfrecorder.output.path import output_path
from tfrecorder.output.result import ConversionResult
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import files_of
from tfrecorder.reading.generations import Generation, before_next
from tfrecorder.reading.open import open_generations
from tfrecorder.runners import run
from tfrecorder.sources.source import read_with
from tfrecorder.storage import folders
from tfrecorder.validation.report import count_warnings

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict

    from tfrecorder.runners.dataflow.job import DataflowJob


def append(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    output_dir: str | os.PathLike[str],
    *,
    duplicates: str = "skip",
    **options: Any,
) -> ConversionResult | DataflowJob:
    """Add rows to a finished dataset, as a new generation; nothing in it is rewritten.

    All readers then see the old records and the new ones as one dataset.  Rows whose images are
    already in the dataset are skipped and counted: appending a longer table adds the rest, and
    appending the same table again adds nothing.  Images are compared by their places, however
    their uris are spelled; rows without images by all their values.  To continue an interrupted
    append, repeat the call.

    Args:
        source: as for `tfrecorder.convert`.  The columns must be those of the dataset; labels may
            be new, and get the next integers.
        output_dir: the directory of a finished dataset; or with `name`, and `version` unless it is
            1.0.0, the folder that it was converted into.
        duplicates: "skip" skips rows whose images are in the dataset, as a record or as a reject;
            "keep" adds all rows.
        **options: see `tfrecorder.ConvertOptions`.  Options that decide on the records, such as
            image_size, schema or seed, are by default as they were for the dataset.
            retry_rejects=True adds rows that are in the dataset only as rejects.

    Returns:
        What `tfrecorder.convert` returns, for the new generation; `generation` is its number, and
        `rows_there` says how many rows were skipped.  If no row is left, nothing is written.

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
    started = time.perf_counter()
    if fault := one_of(*DUPLICATES)(duplicates):
        raise OptionError(f"duplicates={duplicates!r}: {fault}")
    if options.get("overwrite"):
        raise OptionError(
            "overwrite=True: an append keeps what is there; leave it out, or replace the dataset "
            "with tfrecorder.convert."
        )
    known = {name: options[name] for name in options if name in ("runner_options", *OF_PLACE)}
    chosen = ConvertOptions.of(known)
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    try:
        with storage.acting_as(chosen.account):
            _open(where)  # otherwise the claim would make a directory
            with claim(where):
                found = _append(source, where, duplicates == "keep", options, started)
    except (UnreachableError, KeyboardInterrupt) as error:
        if (explained := how_to_go_on(error, where, "append")) is None:
            raise
        raise explained from (error if isinstance(error, UnreachableError) else None)
    if isinstance(found, ConversionResult):
        return dataclasses.replace(found, output_dir=path)
    return found


def _open(where: str) -> tuple[StoredDataset, list[Generation]]:
    stored, found = open_generations(where, files_of(where))
    if not found:
        raise DatasetError(
            f"{where} was not written by tfrecorder, which appends only to its own datasets."
        )
    return stored, found


def _append(
    source: Any, where: str, keep: bool, given: dict[str, Any], started: float
) -> ConversionResult | DataflowJob:
    stored, found = _open(where)
    options = taken_over(where, found, given)
    number = found[-1].number + 1
    folder = layout.generation_of(where, number)
    shown = is_shown(options.progress)
    with stage_line(shown) as begin:
        run.check_runner(options)
        begin("reading the table")
        table = fit_texts(read_with(source, options), stored.fields, source)
        rows_there = 0
        if not keep:
            begin("looking for images already there")
            retry = bool(given.get("retry_rejects"))
            table, rows_there = pass_over_known(table, stored.generations, stored.fields, retry)
        if rows_there and not len(table.frame):
            seconds = time.perf_counter() - started
            return _nothing(stored, number - 1, rows_there, dict(table.passed_over), seconds)
        begin("checking the table")
        refuse_other_schema(where, stored.fields, table)
        table, checked, report = check_table(table, folder, options, stored.fields)
        refuse_other_schema(where, stored.fields, table, checked.fields)
        known = Known(dict(table.passed_over), report.notes, count_warnings(report))
    refuse_missing("apache_beam")  # before anything is staged
    warn_of_source(known.warnings, source, options)
    before = before_next(found[-1].metadata)
    with stage_line(shown) as begin:
        begin("planning")
        _refuse_foreign(folder)
        prepared = prepare(folder, table, numbered(checked, table, before["rows"]), options, before)
    del table, checked  # a million rows, which only the plan needed
    job = None if prepared is None else follow(prepared, options)
    if job is not None:
        return dataclasses.replace(job, passed_over=known.passed_over)
    result = result_of(folder, prepared, known, time.perf_counter() - started)
    return dataclasses.replace(result, generation=number, rows_there=rows_there)


def _refuse_foreign(folder: str) -> None:
    with storage.failing_as(OutputError, folder):
        refuse_foreign(folder)
    if storage.is_local(folder):
        folders.refuse_links(folder, layout.PRIVATE_FOLDERS)


def _nothing(
    stored: StoredDataset,
    generation: int,
    rows_there: int,
    passed_over: dict[str, int],
    seconds: float,
) -> ConversionResult:
    """The result of an append that found no new row."""
    return ConversionResult(
        output_dir=stored.directory,
        splits={},
        rejects={},
        suspects=0,
        oriented=0,
        retries=0,
        input_bytes=0,
        class_names=stored.class_names,
        passed_over=passed_over,
        seconds=seconds,
        was_finished=True,
        generation=generation,
        rows_there=rows_there,
    )

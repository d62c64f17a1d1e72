"""The conversion, start to end: source, validation, plan, pipeline, result."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from tfrecorder import storage
from tfrecorder.conversion.prepare import Prepared, follow, prepare
from tfrecorder.conversion.table import read_and_check, warn_of_source
from tfrecorder.display.bars import is_shown, stage_line
from tfrecorder.errors import ImagesUnreachableError, UnreachableError, refuse_missing
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.output.directory import claim, refuse_nested
from tfrecorder.output.path import output_path
from tfrecorder.output.result import ConversionResult, read_result
from tfrecorder.validation.report import count_warnings

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict

    from tfrecorder.runners.dataflow.job import DataflowJob


def convert(
    source: pd.DataFrame | Dataset | DatasetDict | str | os.PathLike[str] | IO[Any],
    output_dir: str | os.PathLike[str],
    **options: Any,
) -> ConversionResult | DataflowJob:
    """Write a table of images as a TFRecord dataset.

    To continue a conversion that was interrupted, repeat the call.

    Args:
        source: a frame with the columns image_uri and, if known, split and label; a Hugging Face
            `Dataset` or `DatasetDict`; the path of such a CSV; a folder `split/label/file` or
            `label/file`; or an open file to read a CSV from.  An image_uri may also be the image
            itself: the bytes of its file, {"bytes": …, "path": …}, a Pillow image, or a `data:`
            uri.
        output_dir: a new or empty directory, or that of the conversion to continue.  With the
            option `name`, the dataset is the directory output_dir/name/version.
        **options: see `tfrecorder.ConvertOptions`.

    Returns:
        Counts by split, rejects, bytes, seconds and class names.  With the DataflowRunner and
        wait=False, the handle of the job, at once.

    Raises:
        OptionError: an option's name or value is wrong.
        SourceError: the source cannot be read as a table.
        ValidationError: the table has faults; its `.report` lists all of them.
        OutputError: the directory cannot be written, or holds something else.
        ImagesUnreachableError: most images are not there, or their store does not answer.
        DatasetError: the dataset was finished before, and a shard of it is missing.
        UnreachableError: a disk or a service failed for more than two minutes.
        RejectedError: more images than allowed were rejected.
        RunnerError: the runner failed, or did not take the job.
        PackageError: Apache Beam is not installed.
        KeyboardInterrupt: its message says how to continue.

    Example:
        >>> result = tfrecorder.convert("flowers.csv", "out", num_shards=8)  # doctest: +SKIP
    """
    started = time.perf_counter()
    chosen = ConvertOptions.of(options)
    with storage.acting_as(chosen.account):
        return _convert(source, output_dir, chosen, started)


def _convert(
    source: Any, output_dir: str | os.PathLike[str], chosen: ConvertOptions, started: float
) -> ConversionResult | DataflowJob:
    path = output_path(output_dir, chosen)
    where = storage.absolute(path)
    refuse_nested(where, chosen)
    shown = is_shown(chosen.progress)
    with stage_line(shown) as begin:
        table, checked, report = read_and_check(source, where, chosen, begin)
    refuse_missing("apache_beam")  # before anything is staged
    known = Known(dict(table.passed_over), report.notes, count_warnings(report))
    warn_of_source(known.warnings, source, chosen)
    try:
        with claim(where):
            with stage_line(shown) as begin:
                begin("planning")
                prepared = prepare(where, table, checked, chosen)
            del table, checked  # perhaps a million rows, and only the plan needed them
            job = None if prepared is None else follow(prepared, chosen)
    except (UnreachableError, KeyboardInterrupt) as error:
        if (explained := how_to_go_on(error, where)) is None:
            raise
        raise explained from (error if isinstance(error, UnreachableError) else None)
    if job is not None:
        return dataclasses.replace(job, passed_over=known.passed_over)
    found = result_of(where, prepared, known, time.perf_counter() - started)
    return dataclasses.replace(found, output_dir=path)


def how_to_go_on(
    error: UnreachableError | KeyboardInterrupt, where: str, verb: str = "conversion"
) -> UnreachableError | KeyboardInterrupt | None:
    """The error with a message on what is left and how to continue; None if it says enough itself.

    Not a context manager, which would add its lines to the traceback of each Ctrl-C.

    Args:
        verb: what to run again.
    """
    # Nothing was written, or a job continues elsewhere.
    if isinstance(error, ImagesUnreachableError):
        return None
    if isinstance(error, UnreachableError):
        return UnreachableError(
            f"{error} Shards that are done are kept in {where}: run the same {verb} again to "
            "continue."
        )
    if error.args:
        return None
    return KeyboardInterrupt(
        f"Interrupted: no partial file is left under a final name in {where}. Run the same "
        f"{verb} again to continue where it stopped."
    )


class Known(NamedTuple):
    """What a result says about its source; the dataset does not hold it."""

    passed_over: dict[str, int]
    notes: tuple[str, ...]
    warnings: dict[str, int]


def result_of(
    where: str, prepared: Prepared | None, known: Known, seconds: float
) -> ConversionResult:
    """The result of a conversion that is committed in a directory."""
    return dataclasses.replace(
        read_result(where, known.passed_over, seconds),
        notes=known.notes,
        warnings=known.warnings,
        was_finished=prepared is None,
        shards_before=prepared.shards_before if prepared else 0,
        rows_before=prepared.rows_before if prepared else 0,
    )

"""`convert`: a table of images becomes a dataset."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

from tfrecorder import storage
from tfrecorder.conversion.job import run
from tfrecorder.conversion.operation import Operation, Planned, Say
from tfrecorder.conversion.removal_marks import Marks, read_marks
from tfrecorder.conversion.table import CopySearch, check_table, planned_rows
from tfrecorder.core.option import flag
from tfrecorder.display.tables import counted
from tfrecorder.errors import DatasetError, OutputError
from tfrecorder.format.manifest import Loss
from tfrecorder.format.summary import Summary
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import ConvertKeywords, OnDataflow, Path, Source, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.output.directory import begun_plan, refuse_links, refuse_nested, refuse_not_ours
from tfrecorder.output.result import ConversionResult
from tfrecorder.output.state import DatasetState, output_path
from tfrecorder.runners.beam_options import check_runner
from tfrecorder.sources.source import read_source

if TYPE_CHECKING:
    from tfrecorder.conversion.dry_run import DryRun
    from tfrecorder.runners.dataflow.job import DataflowJob


@overload
def convert(  # type: ignore[overload-overlap]
    source: Source,
    output_dir: Path,
    *,
    runner: OnDataflow,
    **options: Unpack[ConvertKeywords],
) -> DataflowJob: ...
@overload
def convert(
    source: Source,
    output_dir: Path,
    *,
    dry_run: Literal[True],
    **options: Unpack[ConvertKeywords],
) -> DryRun: ...
@overload
def convert(
    source: Source,
    output_dir: Path,
    *,
    runner: str | None = None,
    **options: Unpack[ConvertKeywords],
) -> ConversionResult: ...
@takes(ConvertKeywords, ConvertOptions)
def convert(
    source: Source,
    output_dir: str | os.PathLike[str],
    *,
    runner: str | None = None,
    dry_run: bool = False,
    **options: Unpack[ConvertKeywords],
) -> ConversionResult | DataflowJob | DryRun:
    """Write a table of images as a TFRecord dataset.

    To continue a conversion that was interrupted, repeat the call.

    Args:
        source: a frame with the columns image_uri and, if known, split and label; a Hugging Face
            `Dataset` or `DatasetDict`; the path of such a CSV or Parquet file, or
            several; a folder `split/label/file` or `label/file`, or with a table `metadata.*`;
            COCO's JSON, several files of it, or a folder with them; a folder of YOLO or of Pascal
            VOC; or an open file to read a CSV from.  An image_uri may also be the
            image itself: the bytes of its file, {"bytes": …, "path": …}, a Pillow image, or a
            `data:` uri.
        output_dir: a new or empty directory, or that of the conversion to continue.  With the
            option `name`, the dataset is the directory output_dir/name/version.
        dry_run: run every check that comes first, and return what would be written: splits, shards,
            estimated bytes, classes and warnings; nothing is written.
        **options: see `tfrecorder.options.convert.ConvertOptions`.

    Returns:
        Counts by split, rejects, bytes, seconds and class names.  With the DataflowRunner,
        the handle of the job, at once; its `result()` waits.  With dry_run, what would be written.

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
        PackageError: an option needs Apache Beam, which is not installed.
        KeyboardInterrupt: its message says how to continue.

    Example:
        >>> result = tfrecorder.convert("photos.csv", "out", num_shards=8)  # doctest: +SKIP
    """
    chosen = ConvertOptions.of({"runner": runner, **options})
    conversion = Conversion(source, output_dir, chosen)
    require(flag, dry_run=dry_run)
    if dry_run:
        from tfrecorder.conversion.dry_run import try_out

        return try_out(conversion)
    return run(conversion)


@dataclass
class Conversion(Operation):
    """Writes a source as a dataset, but for the rows that were removed there."""

    verb = "conversion"
    adds = False

    source: object
    output_dir: str | os.PathLike[str]
    options: ConvertOptions

    def __post_init__(self) -> None:
        self.path = output_path(self.output_dir, self.options)

    def look(self) -> DatasetState:
        """What is there at its start.

        Raises:
            OutputError: the directory is inside of another dataset, or is none of ours.
            DatasetError: the dataset that is there is damaged.
        """
        where = self.where
        check_runner(self.options)
        if self.options.runner == "DataflowRunner" and not storage.is_local(where):
            from tfrecorder.runners.dataflow import checks

            checks.check_settings(where, self.options)  # a bucket may be waited for
        refuse_nested(where, self.options)
        refuse_links(where)
        try:
            return DatasetState.read(where)
        except DatasetError as error:
            with storage.failing_as(OutputError, where):
                refuse_not_ours(where)  # says more, if it is no dataset of ours
            denied = getattr(error.__cause__, "code", "not_found") != "not_found"
            raise (OutputError(str(error)) if denied else error) from error.__cause__

    def plan(
        self,
        state: DatasetState,
        say: Say,
    ) -> Planned:
        """Its rows, planned.

        Raises:
            SourceError: the source cannot be read as a table.
            ValidationError: the table has faults.
        """
        options = self.options
        say("reading the table")
        table = read_source(self.source, options)
        anew = options.overwrite == "all"
        # An overwrite that was killed may have set it aside: what was removed stays out.
        newest = state.newest if state.version or options.overwrite else None
        marks = read_marks(self.where, newest)
        begun = None if newest is None else begun_plan(newest).rows.in_source
        # Whole if it began the dataset, before some of its rows were removed: the same call again.
        is_whole = anew or (not options.overwrite and begun == len(table.frame))
        stays, _ = (Marks() if is_whole else marks).sift(table)
        table = table.only(stays)
        say("checking the table")
        copies = CopySearch(table, options, say)
        checked, report = check_table(table, self.where, options, copies=copies)
        if anew and marks:
            count = counted(max(len(marks.places), len(marks.contents)), "removed row")
            report.notes += (
                f"begun anew: the marks of {count} are dropped, which may come in again",
            )
        losses = {}
        if (
            newest is not None
            and Loss.MARKS.is_in(newest.plan.carried.losses)
            and options.overwrite is True
        ):
            losses[Loss.MARKS.value] = newest.plan.carried.losses[Loss.MARKS.value]
            report.notes += ("which rows were removed before is lost: they may come in again",)
        said = Summary(removed=int((~stays).sum()))
        planned = planned_rows(self.where, table, checked, report, options, said)
        plan = planned.plan.carrying(losses=losses)
        return dataclasses.replace(planned, plan=plan, marks=Marks() if anew and marks else None)

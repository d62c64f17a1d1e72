"""`convert`: a table of images becomes a dataset."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, overload

from tfrecorder.conversion.job import conversion
from tfrecorder.conversion.on_dataset import run_as_asked
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import ConvertKeywords, OnDataflow, Path, Source, Unpack
from tfrecorder.options.option import takes
from tfrecorder.output.result import ConversionResult

if TYPE_CHECKING:
    from tfrecorder.conversion.dry_run import DryRun
    from tfrecorder.runners.dataflow.job import DataflowJob


@overload
def convert(  # type: ignore[overload-overlap]
    source: Source, output_dir: Path, *, runner: OnDataflow, **options: Unpack[ConvertKeywords]
) -> DataflowJob: ...
@overload
def convert(
    source: Source, output_dir: Path, *, dry_run: Literal[True], **options: Unpack[ConvertKeywords]
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
        >>> result = tfrecorder.convert("flowers.csv", "out", num_shards=8)  # doctest: +SKIP
    """
    chosen = ConvertOptions.of({"runner": runner, **options})
    work = conversion(source, output_dir, chosen)
    return run_as_asked(work, stage_only=False, dry_run=dry_run)

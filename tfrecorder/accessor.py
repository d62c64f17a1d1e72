"""`df.tensorflow`: the methods that `import tfrecorder` gives pandas frames."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pandas as pd

from tfrecorder.core.option import flag
from tfrecorder.errors import OptionError
from tfrecorder.options.changes import AppendOptions, UpdateOptions
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.keywords import FrameKeywords, ValidateKeywords
from tfrecorder.options.option import names_of, require, takes

if TYPE_CHECKING:
    from tfrecorder.conversion.dry_run import DryRun
    from tfrecorder.inspection.preview import FramePreview
    from tfrecorder.output.result import ConversionResult
    from tfrecorder.runners.dataflow.job import DataflowJob
    from tfrecorder.validation.report import ValidationReport


class TensorFlowAccessor:
    """Methods of a frame with the columns split, image_uri and label."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return "<df.tensorflow: validate, preview, to_tfrecord>"

    @takes(ValidateKeywords, ConvertOptions)
    def validate(
        self,
        check_images: bool = False,
        against: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> ValidationReport:
        """Find every problem in the frame at once; the report is a frame, empty if there are none.

        Args:
            check_images: also open and check every image.
            against: a dataset that the rows are to be added to, as for `tfrecorder.validate`.
            **options: those of `tfrecorder.validate`.

        Returns:
            What `tfrecorder.validate` returns.

        Raises:
            OptionError: an option's name or value is wrong.
            SourceError: the frame cannot be read as a table of images.

        Example:
            >>> df.tensorflow.validate()  # doctest: +SKIP
        """
        from tfrecorder.conversion.validate import validate

        return validate(self._frame, check_images, against, **options)

    def preview(
        self,
        num_rows: int = 24,
        *,
        seed: int = 0,
        base: str | os.PathLike[str] | None = None,
    ) -> FramePreview:
        """Random images of the frame with their labels, shown in a notebook before converting.

        Args:
            num_rows: how many images, 1 to 200.
            seed: of the random choice, from 0.
            base: the folder of relative paths; None is the current one.

        Returns:
            A value that shows itself in a notebook, and as a table when printed.  If an image
            cannot be shown, the reason is in its place.

        Raises:
            OptionError: an argument is wrong.
            SourceError: the frame has no column image_uri.

        Example:
            >>> df.tensorflow.preview()  # doctest: +SKIP
        """
        from tfrecorder.inspection.preview import preview_frame

        return preview_frame(self._frame, num_rows, seed=seed, base=base)

    @takes(FrameKeywords, AppendOptions, UpdateOptions, ConvertOptions)
    def to_tfrecord(
        self,
        output_dir: str | os.PathLike[str],
        append: bool = False,
        update: bool = False,
        *,
        runner: str | None = None,
        dry_run: bool = False,
        **options: Any,
    ) -> ConversionResult | DataflowJob | DryRun:
        """Write the images as a TFRecord dataset; or add them to one, or correct one by them.

        Args:
            output_dir: as for `tfrecorder.convert`; with `append` or `update`, the directory of a
                dataset.
            append: add the rows, as `tfrecorder.append` does.
            update: correct and add rows, as `tfrecorder.update` does.
            dry_run: run every check, and return what would be written; nothing is.
            **options: those of `tfrecorder.convert`; with `append` or `update` also those of
                `tfrecorder.append` or `tfrecorder.update`.

        Returns:
            What `tfrecorder.convert` returns.

        Raises:
            TfrecorderError: as `tfrecorder.convert` or `tfrecorder.append` raise them.

        Example:
            >>> df.tensorflow.to_tfrecord(output_dir="out", num_shards=8)  # doctest: +SKIP
        """
        require(
            flag,
            append=append,
            update=update,
            dry_run=dry_run,
        )
        options |= {"runner": runner, "dry_run": dry_run}
        if append and update:
            words = "`update=True` adds new rows too; leave out `append=True`."
            raise OptionError.of("append", append, words)
        taken = names_of(AppendOptions if append else UpdateOptions) if append or update else ()
        for verb, cls in (("append", AppendOptions), ("update", UpdateOptions)):
            for name in (name for name in names_of(cls) if name in options and name not in taken):
                words = f"it has no effect without `{verb}=True`."
                raise OptionError.of(name, options[name], words)
        if append:
            from tfrecorder.conversion.append import append as add

            return add(self._frame, output_dir, **options)
        if update:
            from tfrecorder.conversion.update import update as correct

            return correct(self._frame, output_dir, **options)
        from tfrecorder.conversion.convert import convert

        return convert(self._frame, output_dir, **options)

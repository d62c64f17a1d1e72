"""`df.tensorflow`: the accessor that `import tfrecorder` registers on pandas frames."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

if TYPE_CHECKING:
    from tfrecorder.inspection.frame import FramePreview
    from tfrecorder.output.result import ConversionResult
    from tfrecorder.runners.dataflow.job import DataflowJob


@pd.api.extensions.register_dataframe_accessor("tensorflow")
class TensorFlowAccessor:
    """Methods of a frame with the columns split, image_uri and label."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def validate(self, check_images: bool = False, **options: Any) -> pd.DataFrame:
        """Find every problem in the frame at once; the report is a frame, empty if there are none.

        See `tfrecorder.validate`.
        """
        from tfrecorder.validation.validate import validate

        return validate(self._frame, check_images=check_images, **options)

    def preview(self, num_rows: int = 24, **options: Any) -> FramePreview:
        """Random images of the frame with their labels, shown in a notebook before converting.

        See `tfrecorder.inspection.frame.preview_frame` for the options seed and columns.

        Example:
            >>> df.tensorflow.preview()  # doctest: +SKIP
        """
        from tfrecorder.inspection.frame import preview_frame

        return preview_frame(self._frame, num_rows, **options)

    def to_tfrecord(
        self, output_dir: str | os.PathLike[str], append: bool = False, **options: Any
    ) -> ConversionResult | DataflowJob:
        """Write the images as a TFRecord dataset, or with `append` add them to one.

        See `tfrecorder.convert` for the options and the errors.
        See `tfrecorder.append` for what `append` does and for the option `duplicates`.

        Example:
            >>> df.tensorflow.to_tfrecord(output_dir="out", num_shards=8)  # doctest: +SKIP
        """
        from tfrecorder.core.checks import flag
        from tfrecorder.options.convert import ConvertOptions
        from tfrecorder.options.option import refuse_unknown, require

        require(flag, append=append)
        refuse_unknown(options, ConvertOptions, "append", "duplicates")
        if append:
            from tfrecorder.conversion.append import append as add

            added = add(self._frame, output_dir, **options)
            return cast("ConversionResult | DataflowJob", added)
        from tfrecorder.conversion.convert import convert

        return convert(self._frame, output_dir, **options)

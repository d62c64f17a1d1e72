"""The images of a frame before they are converted, as a notebook shows them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from tfrecorder import storage
from tfrecorder.core.checks import Whole
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.tables import Report, Table, counted, one_line
from tfrecorder.errors import SourceError
from tfrecorder.images.check import check_image
from tfrecorder.images.files import read_image
from tfrecorder.images.limits import DEFAULT_MAX_PIXELS
from tfrecorder.images.rejects import Reject
from tfrecorder.inspection.pictures import (
    SMALL_SIDE,
    UnshownError,
    large_images_allowed,
    read_picture,
    to_jpeg,
)
from tfrecorder.inspection.rendering import render
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.options.option import require
from tfrecorder.plan.make_plan import sample_rows
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.cells import CellFault, File, file_in, name_of
from tfrecorder.sources.source import read_table
from tfrecorder.sources.table import Source

MOST_ROWS = 200


@dataclass(frozen=True)
class FrameRow:
    """One row of a frame.

    Attributes:
        row: its number, from 0.
        split, label, image_uri: as the frame gives them, as text.
        width, height: of the image; 0 if it cannot be shown.
        jpeg: a small picture; empty if it cannot be shown.
        fault: why it cannot be shown.
    """

    row: int
    split: str
    label: str
    image_uri: str
    width: int = 0
    height: int = 0
    jpeg: bytes = field(default=b"", repr=False)
    fault: str = ""


@dataclass(frozen=True)
class FramePreview(Report):
    """Some images of a frame, which a notebook shows.

    Attributes:
        rows: the rows that are shown.
        total: the number of rows in the frame.
    """

    rows: tuple[FrameRow, ...]
    total: int

    def _tables(self) -> list[Table]:
        table = [["row", "split", "label", "size", "image"]]
        for row in self.rows:
            size = row.fault or f"{row.width} x {row.height}"
            cells = map(one_line, (row.split, row.label, size))
            table.append([str(row.row), *cells, one_line(row.image_uri, 80)])
        return [Table(table)]

    def _repr_html_(self) -> str:
        return render("frame.html.jinja", headline=self._headline(), rows=self.rows)

    def _headline(self) -> str:
        if len(self.rows) == self.total:
            return f"all {counted(self.total, 'row')}"
        return f"{len(self.rows):,} of {counted(self.total, 'row')}, drawn at random"


def preview_frame(frame: pd.DataFrame, num_rows: int = 24, *, seed: int = 0) -> FramePreview:
    """Random images of a frame with their labels, before a conversion.

    Args:
        frame: has the column image_uri and, if known, split and label.
        num_rows: how many images, at most.
        seed: for the random choice.

    Returns:
        A value that shows itself in a notebook, and as a table when printed.  If an image cannot be
        shown, the reason is in its place.

    Raises:
        OptionError: an argument is wrong.
        SourceError: the frame has no column image_uri.

    Example:
        >>> df.tensorflow.preview()  # doctest: +SKIP
    """
    require(Whole(1, MOST_ROWS), num_rows=num_rows)
    require(Whole(0), seed=seed)
    source = read_table(frame, ConvertOptions())
    if URI_COLUMN not in source.frame:
        raise SourceError(
            f"the frame has no column {URI_COLUMN!r}; rename the column of the images: "
            f"`frame.rename(columns={{'path': '{URI_COLUMN}'}})`."
        )
    rows = sample_rows(len(source.frame), num_rows, seed).tolist()
    with large_images_allowed(), ThreadPool() as pool:
        shown = tuple(map_ahead(pool, lambda row: _read_row(source, row), rows, ahead=8))
    return FramePreview(shown, len(source.frame))


def _read_row(source: Source, row: int) -> FrameRow:
    split, label = (
        _text(source.frame[name].iloc[row]) if name in source.frame else ""
        for name in (SPLIT_COLUMN, LABEL_COLUMN)
    )
    cell = file_in(source.frame[URI_COLUMN].iloc[row])
    if isinstance(cell, CellFault):
        return FrameRow(row, split, label, cell.shown, fault=cell.reason)
    uri = cell.name or name_of(cell.data) if isinstance(cell, File) else _text(cell)
    shown = FrameRow(row, split, label, storage.unsigned(uri))
    if not uri:
        return replace(shown, fault="the image is missing")
    try:
        data = cell.data if isinstance(cell, File) else read_image(uri, source.base)[0]
        image = check_image(data, "header", DEFAULT_MAX_PIXELS)
        pixels, (width, height) = read_picture(image.data, SMALL_SIDE)
    except (Reject, UnshownError) as error:
        return replace(shown, fault=str(error))
    return replace(shown, width=width, height=height, jpeg=to_jpeg(pixels))


def _text(value: Any) -> str:
    return "" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)

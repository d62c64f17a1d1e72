"""The images of a frame before they are converted, as a notebook shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tfrecorder.core.checks import Whole
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.tables import counted, one_line, text_table
from tfrecorder.errors import SourceError
from tfrecorder.images.check import check_image
from tfrecorder.images.limits import DEFAULT_MAX_PIXELS
from tfrecorder.images.read import read_image
from tfrecorder.images.rejects import Reject
from tfrecorder.inspection.pictures import (
    SMALL_SIDE,
    UnshownError,
    large_images_allowed,
    read_picture,
    to_jpeg,
)
from tfrecorder.inspection.rendering import render
from tfrecorder.options.option import require
from tfrecorder.plan.plan import sample_rows
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources.cells import Fault, File, file_in, name_of
from tfrecorder.sources.source import read_source
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
    width: int
    height: int
    jpeg: bytes = field(repr=False)
    fault: str


@dataclass(frozen=True)
class FramePreview:
    """Some images of a frame, which a notebook shows.

    Attributes:
        rows: the rows that are shown.
        total: the number of rows in the frame.
    """

    rows: tuple[FrameRow, ...]
    total: int

    def __str__(self) -> str:
        table = [["row", "split", "label", "size", "image"]]
        for one in self.rows:
            size = one.fault or f"{one.width} x {one.height}"
            table.append([str(one.row), *map(one_line, (one.split, one.label, size))])
            table[-1].append(one_line(one.image_uri, 80))
        return "\n".join([self._headline(), "", *text_table(table)])

    def _repr_html_(self) -> str:
        return render("frame.html.jinja", headline=self._headline(), rows=self.rows)

    def _headline(self) -> str:
        if len(self.rows) == self.total:
            return f"all {counted(self.total, 'row')}"
        return f"{len(self.rows):,} of {counted(self.total, 'row')}, drawn at random"


def preview_frame(
    frame: pd.DataFrame,
    num_rows: int = 24,
    *,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
) -> FramePreview:
    """Random images of a frame with their labels, before a conversion.

    Args:
        frame: has the column image_uri and, if known, split and label.
        num_rows: how many images, at most.
        seed: for the random choice.
        columns: the frame's names for our columns, such as {"path": "image_uri"}.

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
    source = read_source(frame, columns)
    if URI_COLUMN not in source.frame:
        raise SourceError(
            f"the frame has no column {URI_COLUMN!r}; rename the column of the images, or map it: "
            f"columns={{'path': '{URI_COLUMN}'}}."
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
    found = file_in(source.frame[URI_COLUMN].iloc[row])
    uri = found.name or name_of(found.data) if isinstance(found, File) else _text(found)
    known = (row, split, label, found.shown if isinstance(found, Fault) else uri)
    if isinstance(found, Fault) or not uri:
        words = found.words if isinstance(found, Fault) else "the image is missing"
        return FrameRow(*known, 0, 0, b"", words)
    try:
        data = found.data if isinstance(found, File) else read_image(uri, source.base)
        image = check_image(data, "header", DEFAULT_MAX_PIXELS)
        picture = read_picture(image.data, SMALL_SIDE)
    except (Reject, UnshownError) as error:
        return FrameRow(*known, 0, 0, b"", str(error))
    return FrameRow(*known, picture.width, picture.height, to_jpeg(picture.pixels), "")


def _text(value: Any) -> str:
    return "" if pd.api.types.is_scalar(value) and pd.isna(value) else str(value)

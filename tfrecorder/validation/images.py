"""What a conversion would reject, found before it runs: images, masks, boxes outside images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.bars import Advance, counting
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Boxes, Image, Mask, columns_of
from tfrecorder.sources.table import Source
from tfrecorder.validation.boxes import gather, shown_edges, sound_edges
from tfrecorder.validation.report import CODES, ERROR, Finding
from tfrecorder.validation.rules import Checked

#: How many rows are under way at once.
ROWS_AHEAD = 64


@dataclass(frozen=True)
class _PixelBoxes:
    """The boxes in pixels of a source, one after the other in the order of their images.

    Attributes:
        image: the column of the images.
        shown: the edges as a report shows them, under its column; the index is the source's row.
        edges: the edges as they are stored.
        starts: where each image's boxes start, and where those of the last one end.
    """

    image: str
    shown: pd.Series
    edges: np.ndarray
    starts: np.ndarray


@dataclass(frozen=True)
class _Faults:
    """What is wrong with a row's files, by column, and with its image's boxes."""

    files: dict[str, str]
    boxes: tuple[tuple[int, str], ...] = ()


def unusable_files(
    table: Source, checked: Checked, options: ConvertOptions, advance: Advance
) -> Iterator[Finding]:
    """What would make a row a reject: the file in each column of images and masks, and its boxes.

    Every file is opened, except those whose uris already have a fault; `advance` counts rows.
    """
    uris = _sound_uris(checked)
    fields = [field for field in checked.fields if field.column in uris]
    if not fields:
        return
    boxes = _pixel_boxes(table, checked)
    check = _row_check(table, fields, options, None if boxes is None else boxes.image)
    names = list(map(str, uris.columns))
    files = (
        (row, dict(zip(names, cells, strict=True)))
        for row, *cells in uris.itertuples(index=True, name=None)
    )
    edges: Sequence[np.ndarray | None] = [None] * len(uris)
    if boxes is not None:
        edges = np.split(boxes.edges, boxes.starts[1:-1])
    with ThreadPool() as pool:
        # Only the messages are kept, so that no image outlives the check of its row.
        checks = map_ahead(pool, check, zip(files, edges, strict=True), ahead=ROWS_AHEAD)
        faults = list(counting(checks, advance))
    for name in uris.columns:
        reasons = {
            row: faulty.files[name]
            for row, faulty in zip(uris.index, faults, strict=True)
            if name in faulty.files
        }
        values = [uris.at[row, name] for row in reasons]
        yield Finding("unusable_image", list(reasons), name, values, list(reasons.values()))
    if boxes is not None:
        yield _outside(boxes, uris[boxes.image].tolist(), faults)


def _sound_uris(checked: Checked) -> pd.DataFrame:
    """The uris of images and masks by column, None for faulty ones; a row for each record."""
    rows = checked.frame.index
    uris = pd.DataFrame({files.name: files for files in checked.files}, index=rows, dtype=object)
    for finding in checked.findings:
        if finding.column in uris and CODES[finding.code][0] == ERROR:
            sound = ~rows.isin([row for row in finding.rows if row is not None])
            uris[finding.column] = uris[finding.column].where(sound, None)
    return uris


def _pixel_boxes(table: Source, checked: Checked) -> _PixelBoxes | None:
    """The boxes of a source that only its images can judge; None if there are none."""
    schema = table.schema
    for name in schema.of(Boxes):
        kind, (image,) = schema.columns[name], schema.of(Image)
        assert isinstance(kind, Boxes)
        if kind.unit != "pixel" or not {image, *columns_of(name, kind)} <= {*table.frame.columns}:
            continue
        others, rows, _ = gather(table.frame, kind, image)
        if others.index.equals(checked.frame.index):  # not if the whole table has a fault
            starts = np.concatenate([[0], np.cumsum(rows.sizes)])
            edges = sound_edges(kind, rows.frame).astype(np.float64)
            return _PixelBoxes(image, shown_edges(kind, rows.frame), edges, starts)
    return None


def _outside(boxes: _PixelBoxes, uris: list[Any], faults: list[_Faults]) -> Finding:
    """The boxes that reach outside their images, each under its own row."""
    places, messages = [], []
    for start, uri, faulty in zip(boxes.starts[:-1].tolist(), uris, faults, strict=True):
        for number, reason in faulty.boxes:
            places.append(start + number)
            messages.append(f"{uri!r}: {reason}")
    shown = boxes.shown.iloc[places]
    return Finding("box_outside", list(shown.index), str(shown.name), shown.tolist(), messages)


#: A row's number and its uris by column, and the edges of its boxes.
_Row = tuple[tuple[int, dict[str, Any]], "np.ndarray | None"]


def _row_check(
    table: Source, fields: list[Field], options: ConvertOptions, boxed: str | None
) -> Callable[[_Row], _Faults]:
    """The function that opens the files of a row and says what is wrong.

    Args:
        boxed: the column of the image that boxes in pixels belong to.
    """
    from tfrecorder.images.boxes_and_masks import Placed, boxes_outside, stored_mask
    from tfrecorder.images.check import check_image
    from tfrecorder.images.memory import DECODING_BYTES, Budget, spare_bytes
    from tfrecorder.images.read import read_image
    from tfrecorder.images.rejects import Reject

    images = [field for field in fields if isinstance(field.kind, Image)]
    masks = [(field, field.kind.of) for field in fields if isinstance(field.kind, Mask)]
    image_by_mask = {
        mask.column: image.column
        for mask, of in masks
        for image in images
        if of in (None, image.column)
    }
    in_order = [*images, *(mask for mask, _ in masks)]  # a mask is compared with its image
    budget = Budget(spare_bytes(DECODING_BYTES))

    def check(row: _Row) -> _Faults:
        (number, uris), edges = row
        faults: dict[str, str] = {}
        outside: tuple[tuple[int, str], ...] = ()
        placed: dict[str, Placed] = {}
        for field in in_order:
            name, uri = field.column, uris[field.column]
            if not isinstance(uri, str):
                continue
            try:
                contents = table.contents.get(name)
                if contents is not None and contents.holds(number):
                    data = contents.file(number)
                else:
                    data = read_image(uri, table.base)
                image = check_image(data, options.check, options.max_pixels, budget.room)
                if name == boxed and edges is not None:
                    outside = tuple(boxes_outside(edges, image.width, image.height))
                if name in image_by_mask.values():
                    placed[name] = Placed(image, image, None)
                of = placed.get(image_by_mask.get(name, ""))
                if of is not None:
                    stored_mask(field, image, of, budget.room)
            except Reject as reject:
                # A report on several columns is also read line by line, as messages.
                shown = repr(uri) if len(fields) == 1 else f"{name} {uri!r}"
                faults[name] = f"{shown}: {reject}"
        return _Faults(faults, outside)

    return check

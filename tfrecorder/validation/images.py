"""What a conversion would reject, found before it runs: images, masks, boxes outside images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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

    def by_image(self) -> Iterator[np.ndarray]:
        """The edges of each image's boxes."""
        return (self.edges[a:b] for a, b in zip(self.starts, self.starts[1:], strict=False))


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
    read = _reader(table)
    check = _row_check(fields, read, options, None if boxes is None else boxes.image)
    names = list(map(str, uris.columns))
    files = (
        (row, dict(zip(names, cells, strict=True)))
        for row, *cells in uris.itertuples(index=True, name=None)
    )
    edges: Iterable[np.ndarray | None] = [None] * len(uris) if boxes is None else boxes.by_image()
    with ThreadPool() as pool:
        # Only the messages are kept, so that no image outlives the check of its row.
        checks = map_ahead(pool, check, zip(files, edges, strict=True), ahead=ROWS_AHEAD)
        faults = list(counting(checks, advance))
    by_row = [(row, one.files) for row, one in zip(uris.index, faults, strict=True) if one.files]
    for name in uris.columns:
        found = {row: words[name] for row, words in by_row if name in words}
        values = [uris.at[row, name] for row in found]
        yield Finding("unusable_image", list(found), name, values, list(found.values()))
    if boxes is not None:
        yield _outside(boxes, uris[boxes.image].tolist(), faults)


def _sound_uris(checked: Checked) -> pd.DataFrame:
    """The uris of images and masks by column, None for faulty ones; a row for each record."""
    rows = checked.frame.index
    found = pd.DataFrame({one.name: one for one in checked.files}, index=rows, dtype=object)
    for one in checked.findings:
        if one.column in found and CODES[one.code][0] == ERROR:
            sound = ~rows.isin([row for row in one.rows if row is not None])
            found[one.column] = found[one.column].where(sound, None)
    return found


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
    found = [
        (start + number, f"{uri!r}: {words}")
        for start, uri, one in zip(boxes.starts[:-1].tolist(), uris, faults, strict=True)
        for number, words in one.boxes
    ]
    shown = boxes.shown.iloc[[place for place, _ in found]]
    messages = [words for _, words in found]
    return Finding("box_outside", list(shown.index), str(shown.name), shown.tolist(), messages)


#: Reads an image: takes its column, row and uri; returns its bytes.
_Read = Callable[[str, int, str], bytes]

#: A row's number and its uris by column, and the edges of its boxes.
_Row = tuple[tuple[int, dict[str, Any]], "np.ndarray | None"]


def _reader(table: Source) -> _Read:
    """The function that reads an image of a source: from its file, or from the cell it came in."""
    from tfrecorder.images.read import read_image

    def read(column: str, row: int, uri: str) -> bytes:
        contents = table.contents.get(column)
        if contents is not None and contents.holds(row):
            return contents.one(row)
        return read_image(uri, table.base)

    return read


def _row_check(
    fields: list[Field], read: _Read, options: ConvertOptions, boxed: str | None
) -> Callable[[_Row], _Faults]:
    """The function that opens the files of a row and says what is wrong.

    Args:
        boxed: the column of the image that boxes in pixels belong to.
    """
    from tfrecorder.images.boxes_and_masks import Placed, boxes_outside, stored_mask
    from tfrecorder.images.check import check_image
    from tfrecorder.images.memory import DECODING_BYTES, Budget, spare_bytes
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
                data = read(name, number, uri)
                image = check_image(data, options.verify, options.max_pixels, budget.room)
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

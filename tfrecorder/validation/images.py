"""What a look at every file finds before a conversion: what it would reject, and near copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.display.bars import Advance, counting
from tfrecorder.images.boxes_and_masks import (
    Placed,
    as_segmentation,
    boxes_outside,
    segmentation_faults,
    stored_mask,
)
from tfrecorder.images.check import CheckedImage, check_image
from tfrecorder.images.files import check_file, read_image
from tfrecorder.images.fingerprint import UNKNOWN, Fingerprint, fingerprints_of
from tfrecorder.images.likeness import picture_of
from tfrecorder.images.memory import DECODING_BYTES, Budget, spare_bytes
from tfrecorder.images.near_copies import groups_of, near_pairs
from tfrecorder.images.rejects import Reject
from tfrecorder.options.convert import ConvertOptions
from tfrecorder.schema.fields import fields_of
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.kinds import Boxes, File, Image, Mask, columns_of
from tfrecorder.sources.table import Source
from tfrecorder.validation.boxes import gather, shown_edges, sound_edges
from tfrecorder.validation.report import Finding
from tfrecorder.validation.rules import Checked

#: How many rows are under way at once.
ROWS_AHEAD = 64

#: What is wrong with a row's files, by column; of its first image, if it is read, (width, height),
#: and what it looks like.
_Outcome = tuple[dict[str, str], tuple[int, int] | None, Fingerprint]

#: The bytes of a file in a column, of the row with this number, whose cell is this uri.
_ReadFile = Callable[[str, int, str], bytes]


def unusable_files(
    table: Source, checked: Checked, options: ConvertOptions, advance: Advance
) -> Iterator[Finding]:
    """What would make a row a reject: the file in each column of files, and its boxes.

    And which of the first images are near copies.

    Every file is opened, except those whose uris already have a fault; `advance` counts rows.
    """
    uris = _sound_uris(checked)
    if uris.empty:
        return

    def read(name: str, number: int, uri: str) -> bytes:
        contents = table.contents.get(name)
        if contents is not None and contents.holds(number):
            return contents.file(number)
        kind = table.schema.columns[name]
        return read_image(uri, table.base, file=kind if isinstance(kind, File) else None)[0]

    with ThreadPool() as pool:
        # Only messages and sizes are kept, so that no image outlives the check of its row.
        check = _row_check(table, list(uris.columns), options, read)
        checks = map_ahead(pool, check, uris.itertuples(name=None), ahead=ROWS_AHEAD)
        outcomes = list(counting(checks, advance))
    faults = pd.DataFrame([of_row for of_row, *_ in outcomes], uris.index, uris.columns, object)
    for name in map(str, uris.columns):
        reasons = faults[name].dropna()
        rows, values = list(reasons.index), uris[name][reasons.index].tolist()
        yield Finding("unusable_image", rows, name, values, reasons.tolist())
    yield from _outside(table, uris, [size for _, size, _ in outcomes])
    looks = pd.DataFrame([look for *_, look in outcomes], uris.index, dtype="Int64")
    for first in [name for name in table.schema.of(Image)[:1] if name in uris]:
        yield from _near_copies(uris[first], looks, checked.frame[SPLIT_COLUMN], read)


def _sound_uris(checked: Checked) -> pd.DataFrame:
    """The uris of files by column, None for faulty ones; a row for each record."""
    rows = checked.frame.index
    uris = pd.DataFrame({files.name: files for files in checked.files}, index=rows, dtype=object)
    for finding in checked.findings:
        if finding.column in uris and finding.is_error:
            sound = ~rows.isin([row for row in finding.rows if row is not None])
            uris[finding.column] = uris[finding.column].where(sound, None)
    return uris


def _outside(
    table: Source, uris: pd.DataFrame, sizes: Sequence[tuple[int, int] | None]
) -> Iterator[Finding]:
    """The boxes in pixels that reach outside their images, and masks of another size, by row.

    Args:
        sizes: (width, height) of each row's image; None for one that cannot be read.
    """
    for name in table.schema.of(Boxes):
        kind, (image,) = table.schema.columns[name], table.schema.of(Image)
        assert isinstance(kind, Boxes)
        pixels = kind.unit == "pixel"
        if not (pixels or kind.masks) or not {image, *columns_of(name, kind)} <= {*table.frame}:
            continue
        others, rows, _ = gather(table.frame, kind, image)
        if not others.index.equals(uris.index):  # if the whole table has a fault
            continue
        edges = sound_edges(kind, rows.frame).astype(np.float64)
        masks = [*rows.frame[kind.masks].map(as_segmentation)] if kind.masks else []
        places, messages, start = list[int](), list[str](), 0
        for uri, size, count in zip(uris[image], sizes, rows.sizes.tolist(), strict=True):
            if size is not None:
                faults = [*boxes_outside(edges[start : start + count], *size)] if pixels else []
                faults += segmentation_faults(masks[start : start + count], *size, kind.unit)
                places += (start + number for number, _ in faults)
                messages += (f"{uri!r}: {reason}" for _, reason in faults)
            start += count
        shown = shown_edges(kind, rows.frame).iloc[places]
        yield Finding("box_outside", list(shown.index), str(shown.name), shown.tolist(), messages)


def _near_copies(
    uris: pd.Series, looks: pd.DataFrame, splits: pd.Series, read_file: _ReadFile
) -> Iterator[Finding]:
    """The images that look like an earlier one, if they are other files.

    Args:
        uris: of the first image of each row; the name is that of its column.
        looks: `Fingerprint` of each.
        splits: of each row.
    """
    name = str(uris.name)

    def read(rows: Sequence[int]) -> Iterator[np.ndarray | None]:
        for row in rows:
            try:
                yield picture_of(read_file(name, row, uris[row]))
            except Reject:  # it was there when it was checked
                yield None

    looks = looks[~uris.duplicated()]
    pairs = near_pairs(looks, read)
    if pairs is None:
        words = "the images look so much alike that near copies cannot be told from others"
        yield Finding("too_alike", [None], name, [None], words)
        return
    groups = groups_of(pairs, looks)
    again = groups[groups.index != groups["first"]].sort_index()
    leaks = splits[again.index].to_numpy(object) != splits[again["first"]].to_numpy(object)
    for code, found in (("near_leakage", again[leaks]), ("near_copy", again[~leaks])):
        rows, others = found.index.tolist(), found["first"].tolist()
        messages = [
            f"{uris[row]!r} in {splits[row]} looks like {uris[other]!r} in {splits[other]}"
            for row, other in zip(rows, others, strict=True)
        ]
        yield Finding(code, rows, name, uris[rows].tolist(), messages, others)


def _row_check(
    table: Source, columns: Sequence[str], options: ConvertOptions, read_file: _ReadFile
) -> Callable[[Any], _Outcome]:
    """The function that opens the files of a row, its number and their uris, and judges them."""
    images = table.schema.of(Image)
    fields = {field.column: field for field in fields_of(table.schema)}
    image_by_mask = {
        name: field.kind.of or images[0]
        for name, field in fields.items()
        if isinstance(field.kind, Mask)
    }
    files = {name: field.kind for name, field in fields.items() if isinstance(field.kind, File)}
    budget = Budget(spare_bytes(DECODING_BYTES))

    def check(row: tuple[Any, ...]) -> _Outcome:
        number, *cells = row
        faults: dict[str, str] = {}
        read: dict[str, CheckedImage] = {}
        uris = dict(zip(columns, cells, strict=True))
        for name in sorted(uris, key=image_by_mask.__contains__):  # after its image comes a mask
            uri = uris[name]
            if not isinstance(uri, str):
                continue
            try:
                data = read_file(name, number, uri)
                if name in files:
                    check_file(name, files[name], data)
                    continue
                is_first, depth = name == images[0], fields[name].depth
                file = check_image(
                    data, options.check, options.max_pixels, budget.room, is_first, depth
                )
                if (of := read.get(image_by_mask.get(name, ""))) is not None:
                    stored_mask(fields[name], file, Placed(of, of, None), budget.room)
                read[name] = file
            except Reject as reject:
                # A report on several columns is also read line by line, as messages.
                shown = repr(uri) if len(uris) == 1 else f"{name} {uri!r}"
                faults[name] = f"{shown}: {reject}"
        first = read.get(images[0]) if images else None
        look, size = (first.look, (first.width, first.height)) if first else (None, None)
        return faults, size, fingerprints_of([look])[0] if look else UNKNOWN

    return check

"""The images and masks of a source that a conversion would reject, found before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd

from tfrecorder.column_rules import as_objects, check_uris
from tfrecorder.kinds.columns import Image, Mask, Schema
from tfrecorder.kinds.fields import Field
from tfrecorder.options import ConvertOptions
from tfrecorder.report import CODES, ERROR, Finding
from tfrecorder.rules import Checked
from tfrecorder.schema import URI_COLUMN
from tfrecorder.sources import Source
from tfrecorder.threads import map_ahead

#: Rows under way at once.
ROWS_AHEAD = 64


def unusable_files(table: Source, checked: Checked, options: ConvertOptions) -> Iterator[Finding]:
    """For each column of images and of masks, the rows whose file would make them a reject.

    Every file is opened, but for those of uris that have a fault already.
    """
    uris = _sound_uris(table, checked)
    schema = table.schema or Schema({URI_COLUMN: Image()})
    fields = [Field(name, kind, name) for name, kind in schema.fields if name in uris]
    if not fields:
        return
    check = _row_check(fields, table.base, options)
    names = list(map(str, uris.columns))
    rows = (dict(zip(names, row, strict=True)) for row in uris.itertuples(index=False, name=None))
    pool = ThreadPoolExecutor()
    try:
        # Only the words are kept, so that no image outlives the check of its row.
        faults = list(map_ahead(pool, check, rows, ahead=ROWS_AHEAD))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    by_row = [(row, words) for row, words in zip(uris.index, faults, strict=True) if words]
    for name in uris.columns:
        found = {row: words[name] for row, words in by_row if name in words}
        values = [uris.at[row, name] for row in found]
        yield Finding("unusable_image", list(found), name, values, list(found.values()))


def _sound_uris(table: Source, checked: Checked) -> pd.DataFrame:
    """The uris of images and masks by column, None where one has a fault; a row for each record."""
    # Of boxes with a row each, the checked frame has the first row of each image.
    rows = checked.frame.index
    if table.schema is None:
        columns = [checked.frame[URI_COLUMN]] if URI_COLUMN in checked.frame else []
    else:
        names = [name for name in table.schema.of(Image, Mask) if name in table.frame]
        columns = [check_uris(as_objects(table.frame.loc[rows, name]))[0] for name in names]
    found = pd.DataFrame({column.name: column for column in columns}, index=rows, dtype=object)
    for one in checked.findings:
        if one.column in found and CODES[one.code][0] == ERROR:
            sound = ~rows.isin([row for row in one.rows if row is not None])
            found[one.column] = found[one.column].where(sound, None)
    return found


def _row_check(
    fields: list[Field], base: str, options: ConvertOptions
) -> Callable[[dict[str, Any]], dict[str, str]]:
    """What opens the files of a row: uris by column -> what is wrong with some of them."""
    from tfrecorder.images.check import check_image
    from tfrecorder.images.rejects import Reject
    from tfrecorder.images.room import Budget
    from tfrecorder.kinds.records import Placed, stored_mask
    from tfrecorder.rows import read_image
    from tfrecorder.shards import DECODING_BYTES

    images = [field for field in fields if isinstance(field.kind, Image)]
    masks = [(field, field.kind.of) for field in fields if isinstance(field.kind, Mask)]
    image_by_mask = {
        mask.column: image.column
        for mask, of in masks
        for image in images
        if of in (None, image.column)
    }
    in_order = [*images, *(mask for mask, _ in masks)]  # a mask is compared with its image
    budget = Budget(DECODING_BYTES)

    def check(uris: dict[str, Any]) -> dict[str, str]:
        faults: dict[str, str] = {}
        placed: dict[str, Placed] = {}
        for field in in_order:
            name, uri = field.column, uris[field.column]
            if not isinstance(uri, str):
                continue
            try:
                data = read_image(uri, base)
                image = check_image(data, options.verify, options.max_pixels, budget.room)
                if name in image_by_mask.values():
                    placed[name] = Placed(image, image, None)
                of = placed.get(image_by_mask.get(name, ""))
                if of is not None:
                    stored_mask(field, image, of, budget.room)
            except Reject as reject:
                # A report of several columns is also read as lines of messages.
                shown = repr(uri) if len(fields) == 1 else f"{name} {uri!r}"
                faults[name] = f"{shown}: {reject}"
        return faults

    return check

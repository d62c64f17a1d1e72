"""`validate`: the report on a source, with or without a look into every image."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfrecorder.options import DEFAULT_MAX_PIXELS, ConvertOptions
from tfrecorder.report import CODES, ERROR, Finding, build_report
from tfrecorder.rules import Checked, check_source
from tfrecorder.schema import URI_COLUMN
from tfrecorder.sources import read_source

if TYPE_CHECKING:
    import pandas as pd

    from tfrecorder.kinds.columns import Schema

#: Images under way at once with check_images=True.
IMAGES_AHEAD = 64


def validate(
    source: pd.DataFrame | str | os.PathLike[str],
    check_images: bool = False,
    *,
    columns: Mapping[str, str] | None = None,
    schema: Schema | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    labels: Sequence[str | int] | None = None,
    seed: int = 0,
    verify: str = "decode",
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> pd.DataFrame:
    """Every problem of a source at once; nothing is written.

    Args:
        source: a frame, a CSV or a folder, as for `tfrecorder.convert`.
        check_images: also open and check every image, as a conversion would.
        columns, schema, labels, seed, verify, max_pixels: as for `tfrecorder.ConvertOptions`.

    Returns:
        A row for each problem, errors first: severity ("error" or "warning"), code, row (from 0;
        missing where the whole table is meant), column, value, message, remedy.  Empty when all
        is well.

    Raises:
        OptionError: an option's value is wrong.
        SourceError: the source cannot be read as a table.

    Example:
        >>> tfrecorder.validate("flowers.csv")  # doctest: +SKIP
    """
    options = ConvertOptions.of(
        {
            "columns": columns,
            "schema": schema,
            "labels": labels,
            "seed": seed,
            "verify": verify,
            "max_pixels": max_pixels,
        }
    )
    table = read_source(source, options.columns, options.labels, options.schema)
    checked = check_source(table, options.seed, options.labels)
    if not check_images or URI_COLUMN not in checked.frame:
        return checked.report
    found = _check_images(checked, table.base, options)
    return build_report([*checked.findings, found])


def _check_images(checked: Checked, base: str, options: ConvertOptions) -> Finding:
    """The images that a conversion would reject, of the rows whose uri has no fault already."""
    from tfrecorder.images.check import check_image
    from tfrecorder.images.rejects import Reject
    from tfrecorder.images.room import Budget
    from tfrecorder.rows import read_image
    from tfrecorder.shards import DECODING_BYTES
    from tfrecorder.threads import map_ahead

    faulty = [
        row
        for one in checked.findings
        if one.column == URI_COLUMN
        for row in one.rows
        if CODES[one.code][0] == ERROR
    ]
    uris = checked.frame[URI_COLUMN].drop(index=[row for row in faulty if row is not None])

    budget = Budget(DECODING_BYTES)

    def fault(uri: str) -> str | None:
        try:
            check_image(read_image(uri, base), options.verify, options.max_pixels, budget.room)
        except Reject as reject:
            return f"{uri!r}: {reject}"
        return None

    pool = ThreadPoolExecutor()
    try:
        # Only the words are kept, so that no image outlives its own check.
        faults = list(map_ahead(pool, fault, uris, ahead=IMAGES_AHEAD))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    bad = [
        (row, uri, words)
        for row, uri, words in zip(uris.index, uris, faults, strict=True)
        if words is not None
    ]
    rows, values, messages = zip(*bad, strict=True) if bad else ((), (), ())
    return Finding("unusable_image", rows, URI_COLUMN, values, messages)

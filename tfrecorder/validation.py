"""`validate`: the report on a source, with or without a look into every image."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tfrecorder.options import DEFAULT_MAX_PIXELS, ConvertOptions
from tfrecorder.report import Finding, build_report
from tfrecorder.schema import URI_COLUMN
from tfrecorder.sources import read_source
from tfrecorder.rules import Checked, check_source

if TYPE_CHECKING:
    import pandas as pd


def validate(
    source: pd.DataFrame | str | os.PathLike[str],
    check_images: bool = False,
    *,
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    verify: str = "decode",
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> pd.DataFrame:
    """Every problem of a source at once; nothing is written.

    Args:
        source: a frame, a CSV or a folder, as for `tfrecorder.convert`.
        check_images: also open and check every image, as a conversion would.
        columns, labels, seed, verify, max_pixels: as for `tfrecorder.ConvertOptions`.

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
    options = ConvertOptions(
        columns=columns,
        labels=None if labels is None else tuple(labels),
        seed=seed,
        verify=verify,
        max_pixels=max_pixels,
    )
    table = read_source(source, options.columns)
    checked = check_source(table, options.seed, options.labels)
    if not check_images or URI_COLUMN not in checked.frame:
        return checked.report
    found = _check_images(checked, table.base, options)
    return build_report([*checked.findings, found])


def _check_images(checked: Checked, base: str, options: ConvertOptions) -> Finding:
    """The images that a conversion would reject."""
    from tfrecorder.plan import PlannedRow
    from tfrecorder.shards import Rejected, load_row

    uris = checked.frame[URI_COLUMN]
    rows = [
        PlannedRow(row, uri, 0, "")
        for row, uri in zip(uris.index, uris, strict=True)
        if isinstance(uri, str)
    ]

    def reject_of(row: PlannedRow) -> str | None:
        outcome = load_row(row, base, options.verify, options.max_pixels)
        return (
            f"{outcome.reject.stage}: {outcome.reject}" if isinstance(outcome, Rejected) else None
        )

    # Column by column into the finding, so that no image outlives its own check.
    with ThreadPoolExecutor() as pool:
        faults = list(pool.map(reject_of, rows))
    bad = [(row, fault) for row, fault in zip(rows, faults, strict=True) if fault is not None]
    return Finding(
        "unusable_image",
        [row.row for row, _ in bad],
        URI_COLUMN,
        [row.image_uri for row, _ in bad],
        [f"{row.image_uri!r}: {fault}" for row, fault in bad],
    )

"""Images that occur more than once in a dataset, also resized, encoded again or cut at the borders.

What the tables of shards know of each image names the pairs that may be copies; the images of these
alone are read and compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.core.checks import flag_or_none
from tfrecorder.display.bars import Stage, is_shown, record_bar
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.errors import DatasetError
from tfrecorder.format.plan_columns import SourceOf, source_of
from tfrecorder.images.likeness import picture_of
from tfrecorder.images.near_copies import groups_of, near_pairs
from tfrecorder.inspection.record_values import image_of
from tfrecorder.options.option import require
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.stored_records import open_stored, read_numbered
from tfrecorder.reading.table import record_rows, table_of
from tfrecorder.schema.fields import primary_image
from tfrecorder.schema.keys import SOURCE_ID


def duplicates(
    directory: str | os.PathLike[str], at: int | None = None, progress: bool | None = None
) -> pd.DataFrame:
    """The images that occur more than once in a dataset, byte for byte or nearly.

    A near copy was resized, encoded again, or lost up to 3 % at its borders.  The conversion notes
    what each JPEG looks like; of PNG and other formats, and with `check="header"`, it does so with
    `fingerprints=True`.  Only images that may be copies are read.

    Args:
        directory: a dataset written by this package.
        at: the last generation to read; None is the newest.
        progress: show a bar; by default only in a terminal or a notebook.

    Returns:
        A row for each image of a group of copies, the largest groups first: `group` from 0, then
        `split`, `image_uri`, `label` and the other columns of the dataset, `row`, the number of its
        row in the source, and `distance`: in how many of 63 bits its looks differ from the first
        image of its group.  `tfrecorder.remove` takes some of these rows, and `tfrecorder.update`
        if you changed them.

    Raises:
        DatasetError: it was not written by this package, or a record is damaged.

    Example:
        >>> found = tfrecorder.duplicates("out")  # doctest: +SKIP
        >>> tfrecorder.remove("out", found[found["group"].duplicated()])  # doctest: +SKIP
    """
    require(flag_or_none, progress=progress)
    stored = open_stored(directory, at)
    with record_bar(is_shown(progress)) as stage:
        copies = find_near_copies(stored, stage)
    frames = []
    for split, rows in copies.groupby("split", sort=False):
        table = table_of(stored, str(split)).iloc[rows["number"]]
        frames.append(table.set_axis(rows.index))
    table = pd.concat(frames or [table_of(stored, next(iter(stored.splits))).iloc[:0]])
    table.insert(0, "group", copies["group"])
    return table.assign(row=copies["row"], distance=copies["distance"]).sort_index()


def find_near_copies(stored: StoredDataset, stage: Stage) -> pd.DataFrame:
    """The records whose images occur more than once.

    Returns:
        A row for each, by group: `split`, `number`, `row`, and what `groups_of` gives.

    Raises:
        DatasetError: nobody noted what its images look like, or a record is damaged.
    """
    looks = _looks_of(stored)
    same = looks["bytes"].notna() & looks.duplicated(["bytes", "crc32c"], keep=False)
    first = looks[same].groupby(["bytes", "crc32c"])["place"].transform("min")
    pairs = np.stack([first, looks["place"][same]], 1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]

    def read(places: Sequence[int]) -> Iterator[np.ndarray | None]:
        advance = stage("comparing images", len(places))
        for split, rows in looks.loc[places].groupby("split", sort=False):
            for record in read_numbered(stored, str(split), rows["number"]):
                advance(1)
                yield picture_of(image_of(record.features, stored))

    near = near_pairs(looks[~looks["place"].isin(pairs[:, 1])], read)
    if near is None:
        warn(
            f"{stored.directory}: its images look so much alike that near copies cannot be told "
            "from others; only copies byte for byte were looked for."
        )
    elif unknown := int(looks["hash"].isna().sum()):
        warn(
            f"{stored.directory}: {counted(unknown, 'image was', 'images were')} not decoded when "
            "converted, so near copies of them are not found; convert with `fingerprints=True`."
        )
    groups = groups_of(pairs if near is None else np.concatenate([pairs, near]), looks)
    return looks[["split", "number", "row"]].join(groups, how="right").reset_index(drop=True)


def _looks_of(stored: StoredDataset) -> pd.DataFrame:
    """What is known of the looks of all images: `SourceOf`, `row`, `split`, `number`, `place`."""
    image, tables = primary_image(stored.fields), []
    for split in stored.splits if image else ():
        names = [SOURCE_ID, *source_of(image)]
        rows = record_rows(stored, split, [], names)
        if rows is None:
            raise DatasetError(
                f"{stored.directory}: its tables do not say what its images look like; only a "
                "dataset that this version converted has that. `tfrecorder.preview` finds images "
                "that are the same byte for byte."
            )
        rows = rows.select(names).rename_columns(["row", *SourceOf._fields])
        frame = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        tables.append(frame.assign(split=split, number=np.arange(len(frame))))
    if not tables:
        raise DatasetError(f"{stored.directory} has no column of images.")
    looks = pd.concat(tables, ignore_index=True)
    return looks.assign(place=np.arange(len(looks)))

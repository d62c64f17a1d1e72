"""Images that occur more than once in a dataset, also resized, encoded again or cut at the borders.

What the tables of shards know of each image names the pairs that may be copies; the images of these
alone are read and compared.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.core.wording import spelled
from tfrecorder.display.bars import Stage, is_shown, record_bar
from tfrecorder.display.commands import command
from tfrecorder.display.tables import counted
from tfrecorder.display.warning import warn
from tfrecorder.errors import DatasetError
from tfrecorder.format.plan_columns import SourceOf, source_of
from tfrecorder.images.fingerprint import Fingerprint
from tfrecorder.images.likeness import picture_of
from tfrecorder.images.near_copies import groups_of, near_pairs
from tfrecorder.inspection.record_values import image_of
from tfrecorder.options.keywords import Path
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.frame import record_rows, table_of
from tfrecorder.reading.stored_records import open_stored, read_numbered
from tfrecorder.schema.fields import primary_image
from tfrecorder.schema.keys import SOURCE_ID, number_column


def duplicates(
    directory: Path, at: int | None = None, progress: bool | None = None
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
        image of its group.  Columns of the dataset named `group` or `distance` are left out;
        beside one named `row`, the number is in `source_row`.
        `tfrecorder.remove` takes some of these rows, and `tfrecorder.update` if you changed them.

    Raises:
        DatasetError: it was not written by this package, or a record is damaged.

    Example:
        >>> found = tfrecorder.duplicates("out")  # doctest: +SKIP
        >>> tfrecorder.remove("out", found[found["group"].duplicated()])  # doctest: +SKIP
    """
    stored = open_stored(directory, at)
    with record_bar(is_shown(progress)) as stage:
        near = find_near_copies(stored, looks_of(stored), stage)
    if near.damaged:
        raise DatasetError(near.damaged[0])
    for note in near.notes:
        warn(f"{stored.directory}: {note}")
    copies = near.copies
    frames = []
    for split, rows in copies.groupby("split", sort=False):
        table = table_of(stored, str(split)).iloc[rows["number"]]
        frames.append(table.set_axis(rows.index))
    table = pd.concat(frames or [table_of(stored, next(iter(stored.splits))).iloc[:0]])
    table = table.drop(columns=[name for name in OF_COPIES if name in table])
    numbers = {number_column(table.columns): copies["row"]}
    table.insert(0, "group", copies["group"])
    return table.assign(**numbers, distance=copies["distance"]).sort_index()


#: The columns of `duplicates` that say which images are copies.
OF_COPIES = ("group", "distance")

#: What `NearCopies` says of each record, beside its group.
_COPIES = ("split", "number", "row", "content")

#: The place of a record: its split and its number.
Place = tuple[str, int]


@dataclass(frozen=True)
class NearCopies:
    """The records whose images occur more than once.

    Attributes:
        copies: a row for each, by group: `split`, `number`, `row`, what `groups_of` gives, and
            `content`, which is the same for images with the same bytes.
        notes: what was not compared, in words.
        damaged: what is wrong with records that had to be read, in words.
    """

    copies: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_COPIES))
    notes: Sequence[str] = ()
    damaged: Sequence[str] = ()

    @cached_property
    def near(self) -> pd.DataFrame:
        """The records of groups that are not the same byte for byte."""
        contents = self.copies.groupby("group")["content"].transform("nunique")
        return self.copies[contents > 1]

    def leaked(self, split: str, other: str) -> int:
        """The records of a split of which another has near copies."""
        groups = self.near["group"]
        splits = self.near["split"]
        return int(groups[splits == split].isin(groups[splits == other]).sum())

    def pairs(self, most: int) -> list[list[Place]]:
        """Of some groups two images each, those in different splits first."""
        pairs = []
        for _, rows in self.near.groupby("group"):
            others = rows[rows["content"] != rows["content"].iloc[0]]
            elsewhere = others[others["split"] != rows["split"].iloc[0]]
            two = rows.iloc[0], (elsewhere if len(elsewhere) else others).iloc[0]
            pairs.append([(str(row["split"]), int(row["number"])) for row in two])
        return sorted(pairs, key=lambda pair: pair[0][0] == pair[1][0])[:most]


def find_near_copies(
    stored: StoredDataset, looks: pd.DataFrame, stage: Stage, seconds: float = math.inf
) -> NearCopies:
    """Search all records for images that occur more than once, byte for byte or nearly.

    Args:
        stored: the dataset.
        looks: of its images, as `looks_of` gives them.
        stage: part of a progress bar.
        seconds: when they are up, the search ends with what it has found so far.
    """
    deadline = time.monotonic() + seconds
    damaged: dict[str, None] = {}

    def images(places: Sequence[int]) -> Iterator[bytes]:
        """Of these records; none of those that are damaged, or come too late."""
        advance = stage("comparing images", len(places))
        for split, rows in looks.loc[[*places]].groupby("split", sort=False):
            records = read_numbered(stored, str(split), rows["number"])
            for _ in range(len(rows)):
                image = b""
                try:
                    if time.monotonic() < deadline:
                        image = image_of(next(records).features, stored)
                except DatasetError as error:
                    damaged[str(error)] = None
                advance(1)
                yield image

    same = _same_bytes(looks, images).reindex(looks.index)
    looks = looks.assign(content=same.fillna(looks["place"]).astype(np.int64))
    pairs = looks.loc[looks["content"] != looks["place"], ["content", "place"]].to_numpy(np.int64)
    rest = looks[looks["content"] == looks["place"]]
    near = near_pairs(rest, lambda places: map(picture_of, images(places)), deadline)
    notes = []
    if near is None:
        notes.append(
            "the images look so much alike that near copies cannot be told from others; only "
            "copies byte for byte were looked for."
        )
    if unknown := int(looks["hash"].isna().sum()):
        notes.append(
            f"what {counted(unknown, 'image looks', 'images look')} like was not noted when "
            "converted, so near copies of these are not found; convert again with "
            f"{spelled('fingerprints', True)}."
        )
    if time.monotonic() > deadline:
        notes.append("time was up before all were compared; give more seconds.")
    groups = groups_of(pairs if near is None else np.concatenate([pairs, near]), looks)
    copies = looks[[*_COPIES]].join(groups, how="right")
    return NearCopies(copies.reset_index(drop=True), notes, [*damaged])


def _same_bytes(
    looks: pd.DataFrame, images: Callable[[Sequence[int]], Iterable[bytes]]
) -> pd.Series:
    """For each image that has the same bytes as others the place of the first of these.

    Args:
        looks: as `looks_of` gives them; the images that may be the same follow from it.
        images: reads those; b"" is unknown.
    """
    is_known = looks["bytes"].notna()
    again = is_known & looks.duplicated(["bytes", "crc32c"], keep=False)
    if not is_known.all():  # of a table that was made again, only the looks are known
        again |= looks["hash"].notna() & looks.duplicated([*Fingerprint._fields], keep=False)
    places = looks["place"][again]
    digests = [hashlib.blake2b(image).digest() if image else None for image in images([*places])]
    return places.groupby(pd.Series(digests, places.index, object)).transform("min").dropna()


def looks_of(stored: StoredDataset, named: bool = False) -> pd.DataFrame:
    """What is known of the looks of all images: `SourceOf`, `row`, `split`, `number`, `place`.

    Args:
        named: also `uri`.

    Raises:
        DatasetError: nobody noted what its images look like.
    """
    image = primary_image(stored.fields)
    tables = []
    columns = {SOURCE_ID: "row"}
    if image:
        columns |= zip(source_of(image), SourceOf._fields, strict=True)
        columns |= {image.uri_key: "uri"} if named else {}
    types = {pa.int64(): pd.Int64Dtype(), pa.large_string(): pd.ArrowDtype(pa.large_string())}
    for split in stored.splits if image else ():
        rows = record_rows(stored, split, [], [*columns])
        if rows is None:
            raise DatasetError(
                f"{stored.directory}: its tables do not say what its images look like. A dataset "
                "of another tool or an earlier version must be converted again; for others, "
                f"`{command('verify', stored.directory)}` names the damaged table."
            )
        rows = rows.select([*columns]).rename_columns([*columns.values()])
        frame = rows.to_pandas(types_mapper=types.get)
        tables.append(frame.assign(split=split, number=np.arange(len(frame))))
    if not tables:
        raise DatasetError(f"{stored.directory} has no column of images.")
    looks = pd.concat(tables, ignore_index=True)
    return looks.assign(place=np.arange(len(looks)))

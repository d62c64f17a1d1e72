"""Images that occur more than once in a dataset, and leakage between its splits.

Near copies are resized, encoded again or cut at the borders.  What the tables of shards know of
each image names the pairs that may be copies; the images of these alone are read and compared.

Exact copies are found in two passes, so that a million records take seconds rather than hours.  The
first finds those that may be: by what the tables know of their bytes, or where they do not, by the
head of each record.  The second reads these whole and compares the hash of the image's content.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.core.arrays import Pixels
from tfrecorder.display.bars import Advance, Stage, is_shown, record_bar
from tfrecorder.display.messages import command, warn
from tfrecorder.errors import DatasetError
from tfrecorder.format.example import find_value
from tfrecorder.format.layout import SourceOf, source_of
from tfrecorder.format.tfrecord import HEADER_BYTES
from tfrecorder.images.near_copies import (
    NOT_COUNTED,
    TOO_ALIKE,
    Copies,
    content_of,
    find_copies,
    picture_of,
    unseen_in_words,
)
from tfrecorder.inspection.record_values import RecordView, image_of, view_of
from tfrecorder.options.keywords import Path
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.dataset_files import open_shard
from tfrecorder.reading.frame import record_rows, table_of
from tfrecorder.reading.record_bytes import read_at, read_places
from tfrecorder.reading.record_set import open_stored, read_numbered
from tfrecorder.schema.fields import primary_image
from tfrecorder.schema.keys import SOURCE_ID, number_column

#: The columns of `duplicates` that say which images are copies.
OF_COPIES = ("group", "distance")

#: The columns of `NearCopies` that stand next to the group of a record.
_COPIES = ("split", "number", "row", "content")

#: The place of a record: its split and its number.
Place = tuple[str, int]

#: How many copies of an image are kept in full; the others are only counted.
KEPT_COPIES = 4

#: Enough for the small features before an image and for some thousand bytes of the image.  These
#: bytes differ between two images of the same length even if their metadata are the same.
HEAD_BYTES = 4096


@dataclass(frozen=True)
class NearCopies:
    """The records whose images occur more than once.

    Attributes:
        copies: a row for each, by group: `split`, `number`, `row`, what `groups_of` gives, and
            `content`, which is the same for images with the same bytes.
        counts: how many that are.
        notes: what was not compared, in words.
        damaged: what is wrong with records that had to be read, in words.
    """

    copies: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_COPIES))
    counts: Copies = NOT_COUNTED
    notes: Sequence[str] = ()
    damaged: Sequence[str] = ()

    @cached_property
    def near(self) -> pd.DataFrame:
        """The records of groups that are not the same byte for byte."""
        contents = self.copies.groupby("group")["content"].transform("nunique")
        return self.copies[contents > 1]

    def leaked(
        self,
        split: str,
        other: str,
    ) -> int:
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


@dataclass
class SameImage:
    """The records that share one image, gathered one after the other.

    Attributes:
        counts: the number of these records, by split.
        copies: the first few of them.
        labels: all their labels; more than one is a contradiction.
    """

    counts: Counter[str] = field(default_factory=Counter)
    copies: list[RecordView] = field(default_factory=list)
    labels: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def records(self) -> int:
        return self.counts.total()

    @property
    def leaks(self) -> bool:
        """Whether the image is in more than one split."""
        return len(self.counts) > 1

    def add(self, copy: RecordView) -> None:
        # Keep the first copies from each split, so that a leak is shown from both sides.
        if self.counts[copy.split] < KEPT_COPIES // 2 or len(self.copies) < KEPT_COPIES:
            self.copies.append(copy)
        self.counts[copy.split] += 1
        self.labels.add(copy.labels)

    def sort(self, splits: list[str]) -> None:
        """Put the splits into this order."""
        self.counts = Counter({name: self.counts[name] for name in splits if self.counts[name]})
        self.copies.sort(key=lambda copy: (splits.index(copy.split), copy.number))


@dataclass(frozen=True)
class Duplicates:
    """The images that occur more than once.

    Attributes:
        groups: the records of each image with more than one; those in several splits first, of
            these the ones with different labels first, then the largest.
        compared: the number of records, by split, that were all compared with each other.
        records: the number of records in the dataset.
        digests: of the images that were read, by their places.
    """

    groups: tuple[SameImage, ...]
    compared: dict[str, int]
    records: int
    digests: dict[Place, bytes]

    @property
    def complete(self) -> bool:
        return sum(self.compared.values()) == self.records

    @property
    def counts(self) -> Copies:
        """How many records are exact copies."""
        return Copies(sum(group.records - 1 for group in self.groups))

    @property
    def leaks(self) -> tuple[SameImage, ...]:
        return tuple(group for group in self.groups if group.leaks)

    @property
    def repeats(self) -> tuple[SameImage, ...]:
        """Images that occur more than once in one split, whether they are in others or not."""
        return tuple(group for group in self.groups if max(group.counts.values()) > 1)

    def leaked(
        self,
        split: str,
        other: str,
    ) -> int:
        """The records of a split whose image is in another split too."""
        return sum(group.counts.get(split, 0) for group in self.groups if other in group.counts)


def duplicates(
    directory: Path,
    at: int | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """The images that occur more than once in a dataset, byte for byte or nearly.

    A near copy was resized, encoded again, or cut a little.  The conversion notes what each image
    looks like; of PNG, and of JPEG with `check="header"`, it does so with `fingerprints=True`.
    Only images that may be copies are read.

    Args:
        directory: a dataset written by this package.
        at: the last generation to read; None is the newest.
        progress: show a bar; by default only in a terminal or a notebook.

    Returns:
        A row for each image of a group of copies, the largest groups first: `group` from 0, then
        `split`, `image_uri`, `label` and the other columns of the dataset, `row`, the number of its
        row in the source, and `distance`: in how many of 63 bits its looks differ from the first
        image of its group.  Columns of the dataset named `group` or `distance` are left out;
        beside one named `row`, the number is in `source_row`.  Its `attrs["copies"]` counts the
        records that are exact and near copies of earlier ones, and those of the same scene, which
        are not in the table.
        `tfrecorder.remove` takes some of these rows, and `tfrecorder.update` if you changed them.

    Raises:
        DatasetError: it was not written by this package, or a record is damaged.

    Example:
        >>> found = tfrecorder.duplicates("out")  # doctest: +SKIP
        >>> tfrecorder.remove("out", found[found["group"].duplicated()])  # doctest: +SKIP
    """
    stored = open_stored(directory, at)
    looks = looks_of(stored)
    with record_bar(is_shown(progress)) as stage:
        same = find_duplicates(stored, math.inf, stage, looks)
        near = find_near_copies(stored, looks, same, stage)
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
    table = table.assign(**numbers, distance=copies["distance"]).sort_index()
    table.attrs["copies"] = asdict(near.counts)
    return table


def find_near_copies(
    stored: StoredDataset,
    looks: pd.DataFrame,
    same: Duplicates,
    stage: Stage,
    seconds: float = math.inf,
) -> NearCopies:
    """Search all records for images that occur more than once, byte for byte or nearly.

    Args:
        stored: the dataset.
        looks: of its images, as `looks_of` gives them.
        same: those with the same bytes.
        stage: part of a progress bar.
        seconds: when they are up, the search ends with what it has found so far.
    """
    deadline = time.monotonic() + seconds
    damaged: dict[str, None] = {}

    def pictures(places: Sequence[int]) -> Iterator[Pixels | None]:
        """Of these records; none of those that are damaged, or come too late."""
        advance = stage("comparing images", len(places))
        for split, rows in looks.loc[[*places]].groupby("split", sort=False):
            records = read_numbered(stored, str(split), rows["number"])
            for _ in range(len(rows)):
                picture = None
                try:
                    if time.monotonic() < deadline:
                        picture = picture_of(image_of(next(records).features, stored))
                except DatasetError as error:
                    damaged[str(error)] = None
                advance(1)
                yield picture

    of_place = enumerate(zip(looks["split"], looks["number"], strict=True))
    contents = [same.digests.get(key, place) for place, key in of_place]
    looks = looks.assign(content=pd.factorize(np.array(contents, object))[0])
    groups, counts = find_copies(looks, pictures, deadline)
    notes = []
    if counts.near is None:
        notes.append(f"{TOO_ALIKE}; only copies byte for byte were looked for.")
    if unknown := int(looks["hash"].isna().sum()):
        notes.append(f"{unseen_in_words(unknown)}.")
    if time.monotonic() > deadline:
        notes.append("time was up before all were compared; give more seconds.")
    copies = looks[[*_COPIES]].join(groups, how="right")
    return NearCopies(copies.reset_index(drop=True), counts, notes, [*damaged])


def looks_of(stored: StoredDataset, named: bool = False) -> pd.DataFrame:
    """What is known of the looks of all images: `SourceOf`, `row`, `split`, `number`, `place`,
    and `content`, by `content_of`.

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
    content = content_of(looks["bytes"], looks["crc32c"])
    return looks.assign(place=np.arange(len(looks)), content=content)


def find_duplicates(
    stored: StoredDataset,
    seconds: float,
    stage: Stage,
    looks: pd.DataFrame | None = None,
) -> Duplicates:
    """Search all records for images that occur more than once, until the time is up.

    The smallest split comes first, so that any record read from another is compared with all of it.

    Args:
        stored: the dataset.
        seconds: when they are up, the search ends with what it has compared so far.
        stage: part of a progress bar.
        looks: of its images, as `looks_of` gives them; None if nobody noted them.

    Raises:
        DatasetError: a record that has to be read whole, or an index, is damaged.
    """
    started = time.monotonic()
    splits = sorted(stored.splits, key=lambda split: stored.records(split) or 0)
    records = sum(stored.records(split) or 0 for split in splits)
    if looks is not None and looks["content"].notna().all():
        again = looks[looks.duplicated("content", keep=False)]
        compared = {split: stored.records(split) or 0 for split in splits}
        candidates = [again["number"][again["split"] == split].to_numpy() for split in splits]
    else:
        advance = stage("comparing", records)
        keys = [_head_keys(stored, split, started + seconds / 2, advance) for split in splits]
        compared = {split: len(of_split) for split, of_split in zip(splits, keys, strict=True)}
        candidates = _candidates(keys)
    by_content: dict[bytes, SameImage] = {}
    digests: dict[Place, bytes] = {}
    advance = stage("comparing similar records", sum(map(len, candidates)))
    for split, numbers in zip(splits, candidates, strict=True):
        for done, record in enumerate(read_numbered(stored, split, numbers)):
            if time.monotonic() > started + seconds:
                compared[split] -= len(numbers) - done
                break
            advance(1)
            image = image_of(record.features, stored)
            if image:
                digest = hashlib.blake2b(image, digest_size=32).digest()
                digests[split, record.number] = digest
                by_content.setdefault(digest, SameImage()).add(view_of(record, stored, image))
    groups = [group for group in by_content.values() if group.records > 1]
    for group in groups:
        group.sort(list(stored.splits))
    groups.sort(key=lambda group: (not group.leaks, len(group.labels) == 1, -group.records))
    return Duplicates(
        groups=tuple(groups),
        compared={split: compared[split] for split in stored.splits},
        records=records,
        digests=digests,
    )


def _head_keys(
    stored: StoredDataset,
    split: str,
    deadline: float,
    advance: Advance,
) -> np.ndarray:
    """A key of the head of each record of a split, in their order, until the time is up."""
    keys = []
    for shard in stored.splits[split]:
        if time.monotonic() > deadline:
            break
        with open_shard(shard) as file:
            for offset, size in read_places(stored, shard).tolist():
                if time.monotonic() > deadline:
                    break
                head = read_at(file, offset, min(size, HEAD_BYTES))
                key = head_key(head, stored.image_key)
                if key is None:
                    key = head_key(read_at(file, offset, size), stored.image_key) or 0
                keys.append(key)
                advance(1)
    return np.array(keys, dtype=np.uint64)


def _candidates(keys: list[np.ndarray]) -> list[np.ndarray]:
    """For each split, the numbers of the records whose keys occur more than once in all splits."""
    if not keys:
        return []
    repeated = pd.Series(np.concatenate(keys)).duplicated(keep=False).to_numpy()
    ends = np.cumsum([len(of_split) for of_split in keys])[:-1]
    return [np.flatnonzero(of_split) for of_split in np.split(repeated, ends)]


def head_key(head: bytes, key: str) -> int | None:
    """64 bits that are the same for two records with the same image.

    Args:
        head: a framed record of a tf.train.Example, or its first bytes; the same length for all.
        key: the image's key.

    Returns:
        None if the head is too short, or has no such image: read the whole record then.
    """
    place = find_value(head, HEADER_BYTES, key)
    if place is None:
        return None
    start, length = place
    if start + min(length, HEAD_BYTES // 2) > len(head):
        return None
    digest = hashlib.blake2b(length.to_bytes(8, "little"), digest_size=8)
    digest.update(head[start : start + min(length, HEAD_BYTES // 2)])
    return int.from_bytes(digest.digest(), "little")

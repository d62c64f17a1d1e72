"""Images that occur more than once in a dataset, byte for byte, and leakage between its splits.

There are two passes, so that a million records take seconds rather than hours.  The first reads
only the head of each record: images whose lengths or first bytes differ are not the same.  The
second reads the remaining records whole and compares the hash of the image's content.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tfrecorder.display.bars import Advance, Stage
from tfrecorder.format.example import find_value
from tfrecorder.format.tfrecord import HEADER_BYTES
from tfrecorder.inspection.facts import filename_of, image_of, labels_of, row_of
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.stored_records import (
    Record,
    open_shard,
    read_at,
    read_numbered,
    read_places,
)

#: How many copies of an image are kept in full; the others are only counted.
KEPT_COPIES = 4

#: Records between two checks of the clock.
_ROUND = 256


@dataclass(frozen=True)
class Copy:
    """One of several records with the same image."""

    split: str
    number: int
    row: str
    filename: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """The records that share one image.

    Attributes:
        counts: the number of these records, by split.
        copies: the first few of them.
        labels: all their labels; more than one is a contradiction.
    """

    counts: dict[str, int]
    copies: tuple[Copy, ...]
    labels: tuple[tuple[str, ...], ...]

    @property
    def records(self) -> int:
        return sum(self.counts.values())

    @property
    def leaks(self) -> bool:
        """Whether the image is in more than one split."""
        return len(self.counts) > 1


@dataclass(frozen=True)
class Duplicates:
    """What was found.

    Attributes:
        groups: images with more than one record; those in several splits first, of these the
            ones with different labels first, then the largest.
        compared: the number of records, by split, that were all compared with each other.
        records: the number of records in the dataset.
    """

    groups: tuple[Group, ...]
    compared: dict[str, int]
    records: int

    @property
    def complete(self) -> bool:
        return sum(self.compared.values()) == self.records

    @property
    def leaks(self) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.leaks)

    @property
    def repeats(self) -> tuple[Group, ...]:
        """Images that occur more than once in one split, whether they are in others or not."""
        return tuple(group for group in self.groups if max(group.counts.values()) > 1)

    def leaked(self, split: str, other: str) -> int:
        """The records of a split whose image is in another split too."""
        return sum(group.counts.get(split, 0) for group in self.groups if other in group.counts)


def find_duplicates(stored: StoredDataset, seconds: float, stage: Stage) -> Duplicates:
    """Search all records for images that occur more than once, until the time is up.

    The smallest split comes first, so that any record read from another is compared with all of it.

    Args:
        stored: the dataset.
        seconds: when they are up, the search ends with what it has compared so far.
        stage: part of a progress bar.

    Raises:
        DatasetError: a record that has to be read whole, or an index, is damaged.
    """
    started = time.monotonic()
    splits = sorted(stored.splits, key=lambda split: stored.records(split) or 0)
    records = sum(stored.records(split) or 0 for split in splits)
    advance = stage("comparing", records)
    keys, at = _head_keys(stored, splits, started + seconds / 2, advance)
    compared = Counter({splits[split]: len(keys[split]) for split in range(len(splits))})
    found: dict[bytes, _Gathered] = {}
    unread = _candidates(keys)
    advance = stage("comparing similar records", sum(map(len, unread)))
    for split, places in zip(splits, unread, strict=True):
        numbers = at[split][places]
        for done, record in enumerate(read_numbered(stored, split, numbers)):
            if done % _ROUND == 0 and time.monotonic() > started + seconds:
                compared[split] -= len(numbers) - done
                break
            advance(1)
            image = image_of(record.features, stored)
            if not image:
                continue
            digest = hashlib.blake2b(image, digest_size=32).digest()
            found.setdefault(digest, _Gathered()).add(record, stored)
    groups = [one.group(tuple(stored.splits)) for one in found.values() if one.records > 1]
    groups.sort(key=lambda group: (not group.leaks, len(group.labels) == 1, -group.records))
    return Duplicates(
        groups=tuple(groups),
        compared={split: compared[split] for split in stored.splits},
        records=records,
    )


@dataclass
class _Gathered:
    """The records that share one image, as they are found."""

    counts: Counter[str] = field(default_factory=Counter)
    copies: list[Copy] = field(default_factory=list)
    labels: dict[tuple[str, ...], None] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return self.counts.total()

    def add(self, record: Record, stored: StoredDataset) -> None:
        features = record.features
        labels = labels_of(features, stored)
        # Keep the first copies from each split, so that a leak is shown from both sides.
        if self.counts[record.split] < KEPT_COPIES // 2 or len(self.copies) < KEPT_COPIES:
            names = (row_of(features), filename_of(features, stored))
            self.copies.append(Copy(record.split, record.number, *names, labels))
        self.counts[record.split] += 1
        self.labels[labels] = None

    def group(self, splits: tuple[str, ...]) -> Group:
        counts = {split: self.counts[split] for split in splits if self.counts[split]}
        copies = sorted(self.copies, key=lambda copy: (splits.index(copy.split), copy.number))
        return Group(counts, tuple(copies), tuple(self.labels))


def _head_keys(
    stored: StoredDataset, splits: list[str], deadline: float, advance: Advance
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """A key of each record's head, and the records' numbers, by split in the given order."""
    keys, numbers = [], {}
    for split in splits:
        of_split: list[int] = []
        for shard in stored.splits[split]:
            if time.monotonic() > deadline:
                break
            places = read_places(stored, shard).tolist()
            with open_shard(shard) as file:
                for done, (offset, size) in enumerate(places):
                    if done % _ROUND == 0 and time.monotonic() > deadline:
                        break
                    head = read_at(file, offset, min(size, HEAD_BYTES))
                    key = head_key(head, stored.image_key)
                    if key is None:
                        key = head_key(read_at(file, offset, size), stored.image_key) or 0
                    of_split.append(key)
                    advance(1)
        keys.append(np.array(of_split, dtype=np.uint64))
        numbers[split] = np.arange(len(of_split))
    return keys, numbers


def _candidates(keys: list[np.ndarray]) -> list[np.ndarray]:
    """For each split, the positions of its keys that occur more than once in all splits."""
    if not keys:
        return []
    _, inverse, counts = np.unique(np.concatenate(keys), return_inverse=True, return_counts=True)
    repeated = counts[inverse] > 1
    ends = np.cumsum([len(of_split) for of_split in keys])[:-1]
    return [np.flatnonzero(of_split) for of_split in np.split(repeated, ends)]


#: Enough for the small features before an image and for some thousand bytes of the image.  These
#: bytes differ between two images of the same length even if their metadata are the same.
HEAD_BYTES = 4096


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

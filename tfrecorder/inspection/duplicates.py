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
import pandas as pd

from tfrecorder.display.bars import Advance, Stage
from tfrecorder.format.feature_places import find_value
from tfrecorder.format.tfrecord import HEADER_BYTES
from tfrecorder.inspection.record_values import RecordView, image_of, view_of
from tfrecorder.reading.changed_shards import open_shard
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.record_bytes import read_at, read_places
from tfrecorder.reading.stored_records import read_numbered

#: How many copies of an image are kept in full; the others are only counted.
KEPT_COPIES = 4


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
    """

    groups: tuple[SameImage, ...]
    compared: dict[str, int]
    records: int

    @property
    def complete(self) -> bool:
        return sum(self.compared.values()) == self.records

    @property
    def leaks(self) -> tuple[SameImage, ...]:
        return tuple(group for group in self.groups if group.leaks)

    @property
    def repeats(self) -> tuple[SameImage, ...]:
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
    keys = [_head_keys(stored, split, started + seconds / 2, advance) for split in splits]
    compared = {split: len(of_split) for split, of_split in zip(splits, keys, strict=True)}
    by_content: dict[bytes, SameImage] = {}
    candidates = _candidates(keys)
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
                by_content.setdefault(digest, SameImage()).add(view_of(record, stored, image))
    groups = [group for group in by_content.values() if group.records > 1]
    for group in groups:
        group.sort(list(stored.splits))
    groups.sort(key=lambda group: (not group.leaks, len(group.labels) == 1, -group.records))
    return Duplicates(
        groups=tuple(groups),
        compared={split: compared[split] for split in stored.splits},
        records=records,
    )


def _head_keys(stored: StoredDataset, split: str, deadline: float, advance: Advance) -> np.ndarray:
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

"""Done-records: what a worker wrote for one shard, as its commit keeps it, and their sums."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfrecorder.format.documents import Document, seal, unseal
from tfrecorder.format.layout import Shard

#: What `add_up` adds number by number.
_SUMMED = (
    "rows",
    "records",
    "suspects",
    "oriented",
    "input_bytes",
    "bytes",
    "retries",
    "fingerprints",
)

#: What older manifests lack: it is left out if it is empty, so that theirs are made again as they
#: were.
_WRITTEN_IF_NOT_EMPTY = ("reduced", "beside_bytes", "fingerprints", "levels")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What was written for one or more shards.

    Attributes:
        rows: how many were planned; always records + rejects.
        records: how many were written.
        reasons: rejects by "stage/code".
        suspects: records whose image decodes, but with a decoder's warning.
        oriented: records whose image carries an EXIF orientation other than upright.
        input_bytes: the size of what was read for the records: of image files, or of the images
            in older records, where a shard was written again from them.
        bytes: the size of the shards' files.
        formats: records by image format.
        reduced: images of which training does not see all, by the words of `images.header`.
        retries: how many extra attempts reading the images took.
        fingerprints: records of which it is known what their first image looks like.
    """

    rows: int
    records: int
    reasons: dict[str, int]
    suspects: int
    oriented: int
    input_bytes: int
    bytes: int
    formats: dict[str, int]
    reduced: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    fingerprints: int = 0

    def values(self) -> Document:
        """The values as a commit keeps them; of those below, only what is not empty."""
        return {
            name: value
            for name, value in vars(self).items()
            if value or name not in _WRITTEN_IF_NOT_EMPTY
        }

    @property
    def rejects(self) -> int:
        return sum(self.reasons.values())

    @property
    def unread(self) -> int:
        """Rejects of the stage `read`, which a rerun may cure."""
        return sum(count for reason, count in self.reasons.items() if reason.startswith("read/"))


@dataclass(frozen=True, kw_only=True)
class DoneRecord(Counts):
    """What a worker wrote for one shard.

    Attributes:
        plan: the digest of the plan that it followed.
        shard: the shard's name.
        crc32c: the checksum of the shard's file.
        shapes: of each column of images, by what its keys begin with, the smallest and largest
            (height, width, channels) of the records; none if there are none.
        sides: smallest and largest (shorter side, longer side) of the records' first images.
        beside: the CRC32Cs of the shard's index and table, by these names.
        beside_bytes: their sizes; none in manifests of form 4, which do not count fingerprints.
        classes: how many records have each class of the only column with classes, by its integer.
        levels: of each column of masks, how many pixels have each value, as text; "" stands for
            masks whose values are not known.
    """

    plan: str
    shard: str
    crc32c: int
    shapes: dict[str, list[list[int]]] = field(default_factory=dict)
    sides: list[list[int]] = field(default_factory=list)
    beside: dict[str, int] = field(default_factory=dict)
    beside_bytes: dict[str, int] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    levels: dict[str, dict[str, int]] = field(default_factory=dict)

    def to_json(self) -> builtins.bytes:
        return seal(self.values(), "own_crc32c")

    @classmethod
    def from_json(cls, data: builtins.bytes) -> DoneRecord:
        """Read the done-record that `to_json` wrote.

        Raises:
            ValueError: it is damaged, or another document.
        """
        try:
            return cls(**unseal(data))
        except TypeError:
            raise ValueError("it is another document than a done-record") from None


#: The done-records of some shards.
DoneRecords = Mapping[Shard, DoneRecord]


def add_up(done: Iterable[Counts]) -> Counts:
    """What was written for all of some shards."""
    sums: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    formats: Counter[str] = Counter()
    reduced: Counter[str] = Counter()
    for record in done:
        sums.update({name: getattr(record, name) for name in _SUMMED})
        reasons.update(record.reasons)
        formats.update(record.formats)
        reduced.update(record.reduced)
    return Counts(
        # By count, then by name: the same for done-records in memory and those read back.
        reasons=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        formats=dict(sorted(formats.items())),
        reduced=dict(sorted(reduced.items())),
        **{name: sums[name] for name in _SUMMED},
    )

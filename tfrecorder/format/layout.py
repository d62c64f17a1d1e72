"""Every file name of a dataset directory, and the columns of its tables: all of them are here.

out/
  train-00000.tfrecord              a shard; train-r2-00000.tfrecord in the split's revision 2
  features.json                     feature types, in TFDS's form
  image.class.label.labels.txt      class names, in TFDS's form
  label_map.csv  label_map.pbtxt    class names of boxes from 1, where 0 is the background
  rejects.csv  suspects.csv         rows without a record; records with a decoder's warning
  dataset_info.json                 the commit, written last, in TFDS's form
  croissant.json  README.md         a card, if one was made: see `CARD_FILES`
  card.yaml                         what its people say of the dataset, for the card
  _tfrecorder/                      all that only tfrecorder reads
    commits/00003.json              what commit 3 added or rewrote, and what readers must know then
    tables/train-00000.parquet      the rows of a shard: where their records are, why they have none
    index/….tfrecord.idx            a line `offset size` for each record
    plan.json  plan.parquet         the operation under way: which row goes to which shard; removed
                                    last, after its commit
    done/train-00000.json           a shard under way is complete: its counts and CRC32C
    waiting/train-00000.tfrecord    a complete shard that must not be seen before the commit; and
                                    the rejects.csv of an operation that had too many of them; and
                                    the dataset_info.json that no file of the next dataset fits
    progress/train-00000            records written so far by a shard under way
    failure.json                    why the pipeline stopped, for the launcher to read
    parts.json                      into how many parts the shards were divided for `work`
    lock                            held by the operation that writes the directory
    tmp/                            files not complete yet
    spool/                          images that came as bytes, until their commit
    removed/00003-….json            salted hashes of what was removed, as of commit 3
    before/                         shards that an update replaced, for undo, until the next commit
    rows.parquet                    the columns of many tables that an append searches, together
    card.json                       the commit that the card describes, and the SHA-256 of its files

The rows of a plan, and the table of a shard, have the values of records under their keys,
and the columns at the end of this file, which are not stored in any record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfrecorder.schema.fields import SPOOLED, Field, file_fields
from tfrecorder.schema.keys import SOURCE_ID
from tfrecorder.storage import folders, local

PRIVATE = folders.PRIVATE
COMMIT = "dataset_info.json"
FEATURES = "features.json"
REJECTS = "rejects.csv"
SUSPECTS = "suspects.csv"
LABELS = ".labels.txt"
LABEL_MAP_CSV = "label_map.csv"
LABEL_MAP_PBTXT = "label_map.pbtxt"

PLAN = f"{PRIVATE}/plan.json"
PLAN_ROWS = f"{PRIVATE}/plan.parquet"
FAILURE = f"{PRIVATE}/failure.json"
PARTS = f"{PRIVATE}/parts.json"
LOCK = f"{PRIVATE}/lock"
PROBE = f"{PRIVATE}/probe"
TMP = local.TMP
COMMITS = f"{PRIVATE}/commits"
TABLES = f"{PRIVATE}/tables"
INDEX = f"{PRIVATE}/index"
DONE = f"{PRIVATE}/done"
WAITING = f"{PRIVATE}/waiting"
PROGRESS = f"{PRIVATE}/progress"
SPOOL = f"{PRIVATE}/spool"
REMOVED = f"{PRIVATE}/removed"
BEFORE = f"{PRIVATE}/before"
WAITING_REJECTS = f"{WAITING}/{REJECTS}"
WAITING_COMMIT = f"{WAITING}/{COMMIT}"
ROWS = f"{PRIVATE}/rows.parquet"
CARD = f"{PRIVATE}/card.json"
CARD_YAML = "card.yaml"

#: Public files of a card: metadata, the page, its pictures, and a row for each record.
CROISSANT = "croissant.json"
README = "README.md"
PICTURES = "card.jpg"
RECORDS = "records.parquet"
CARD_FILES = (CROISSANT, README, PICTURES, RECORDS)

PRIVATE_FOLDERS = (TMP, COMMITS, TABLES, INDEX, DONE, WAITING, PROGRESS, SPOOL, REMOVED, BEFORE)

#: What an operation needs only until its commit; its plan goes after all of these.
LEFTOVERS = (TMP, DONE, WAITING, PROGRESS, FAILURE, PARTS, PROBE, PLAN_ROWS)

#: Desktops write these into any folder that someone opens; never ours, never in the way.
DESKTOP_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", ".directory"})

#: Folders that systems make on a disk, in any folder or in the first: of the NAS of Synology, QNAP
#: and NetApp; of Windows, macOS and its shares, Linux, Android.  They hold small pictures, what was
#: removed, and former states.
SYSTEM_FOLDERS = frozenset(
    {
        *("@eaDir", "@tmp", "@sharebin", "#recycle", "#snapshot"),
        *("@Recycle", "@Recently-Snapshot", "~snapshot"),
        *("$RECYCLE.BIN", "$Recycle.Bin", "System Volume Information", "FOUND.000"),
        *("__MACOSX", "Network Trash Folder", "Temporary Items"),
        *("lost+found", "LOST.DIR"),
    }
)

#: TFDS writes six digits from the 100,000th shard of a split on, and then finds none of them.
MOST_SHARDS = 99_999

_SHARD = re.compile(r"(train|validation|test)-(?:r([1-9][0-9]*)-)?([0-9]{5})\.tfrecord")


_MANIFEST = re.compile(r"([0-9]{5}|[1-9][0-9]{5,})\.json")


#: Files to be written, by their names below the directory of a dataset.
NewFiles = dict[str, bytes]


@dataclass(frozen=True, order=True)
class Shard:
    """One shard of one split: the element that travels through Beam.

    Attributes:
        split: "TRAIN", "VALIDATION" or "TEST".
        index: its number in the split, from 0.
        revision: which writing of the split it belongs to, from 1.

    >>> Shard("TRAIN", 0).file, Shard("TRAIN", 0, 2).file
    ('train-00000.tfrecord', 'train-r2-00000.tfrecord')
    """

    split: str
    index: int
    revision: int = 1

    @property
    def name(self) -> str:
        revision = "" if self.revision == 1 else f"r{self.revision}-"
        return f"{self.split.lower()}-{revision}{self.index:05d}"

    @property
    def file(self) -> str:
        return f"{self.name}.tfrecord"

    @property
    def waiting(self) -> str:
        return f"{WAITING}/{self.file}"

    @property
    def done(self) -> str:
        return f"{DONE}/{self.name}.json"

    @property
    def index_file(self) -> str:
        return f"{INDEX}/{self.file}.idx"

    @property
    def table(self) -> str:
        return f"{TABLES}/{self.name}.parquet"

    @property
    def beside(self) -> dict[str, str]:
        """The files that are written with a shard, by the names in its done-record."""
        return {"index": self.index_file, "table": self.table}

    @property
    def files(self) -> list[str]:
        """The shard and the files beside it."""
        return [self.file, *self.beside.values()]

    @property
    def progress(self) -> str:
        return f"{PROGRESS}/{self.name}"


def parse_shard(file: str) -> Shard | None:
    """The shard that a file name stands for, or None if it is not a shard's name."""
    match = _SHARD.fullmatch(file)
    return Shard(match[1].upper(), int(match[3]), int(match[2] or 1)) if match else None


def template(revision: int) -> str:
    """How TFDS finds the shards of a split (tfds.core.ShardedFileTemplate).

    >>> template(1), template(2)
    ('{SPLIT}-{SHARD_INDEX}.{FILEFORMAT}', '{SPLIT}-r2-{SHARD_INDEX}.{FILEFORMAT}')
    """
    return f"{{SPLIT}}-{'' if revision == 1 else f'r{revision}-'}{{SHARD_INDEX}}.{{FILEFORMAT}}"


class SplitState(NamedTuple):
    """The shards of a split of the whole dataset, numbered from 0."""

    revision: int
    shards: int


class ShardRange(NamedTuple):
    """Shards of a split that follow one another."""

    revision: int
    first: int
    shards: int


#: Shards by split, as they stand or as one commit wrote them.
SplitStates = Mapping[str, SplitState]
ShardRanges = Mapping[str, ShardRange]

#: Some numbers for each split: of its shards, or of the rows in them.
ShardNumbers = Mapping[str, Sequence[int]]


def shards_of(ranges: ShardNumbers) -> list[Shard]:
    """Shards by split: [revision, shards], or [revision, first shard, shards].

    >>> [shard.name for shard in shards_of({"TRAIN": (1, 7, 1), "TEST": (2, 2)})]
    ['train-00007', 'test-r2-00000', 'test-r2-00001']
    """
    return [
        Shard(split, first + index, revision)
        for split, (revision, *starts, count) in ranges.items()
        for first in (starts or [0])
        for index in range(count)
    ]


def files_of(ranges: ShardNumbers) -> list[str]:
    """The names of the shards that `shards_of` gives: fast, for a split of 99,999 of them.

    >>> files_of({"TRAIN": (1, 7, 1), "TEST": (2, 2)})
    ['train-00007.tfrecord', 'test-r2-00000.tfrecord', 'test-r2-00001.tfrecord']
    """
    files = []
    for split, (revision, *starts, count) in ranges.items():
        stem = Shard(split, 0, revision).name[:-5]
        first = starts[0] if starts else 0
        files += [f"{stem}{index:05d}.tfrecord" for index in range(first, first + count)]
    return files


def manifest(commit: int) -> str:
    """What is kept of a commit.

    >>> manifest(3)
    '_tfrecorder/commits/00003.json'
    """
    return f"{COMMITS}/{commit:05d}.json"


def removed(commit: int, digest: str) -> str:
    """The marks of what was removed, as of a commit.

    >>> removed(3, "a1b2c3d4e5f6")
    '_tfrecorder/removed/00003-a1b2c3d4.json'
    """
    return f"{REMOVED}/{commit:05d}-{digest[:8]}.json"


def before(name: str) -> str:
    """Where a file of a replaced shard is kept for `undo`.

    >>> before("_tfrecorder/tables/train-00000.parquet")
    '_tfrecorder/before/train-00000.parquet'
    """
    return f"{BEFORE}/{os.path.basename(name)}"


def commit_of(name: str) -> int | None:
    """The number of the commit whose manifest has this name, or None if it is no such name."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def labels_file(key: str) -> str:
    """The file of class names of a label feature, as TFDS names it.

    >>> labels_file("image/class/label")
    'image.class.label.labels.txt'
    """
    return f"{key.replace('/', '.')}{LABELS}"


def tfds_directory(
    data_dir: str,
    name: str,
    version: str,
) -> str:
    """Where `tfds.load(name, data_dir=…)` looks for a dataset; a path that already ends so is kept.

    >>> tfds_directory("data", "flowers", "1.0.0")
    'data/flowers/1.0.0'
    >>> tfds_directory("data/flowers/1.0.0", "flowers", "1.0.0")
    'data/flowers/1.0.0'
    """
    ends = os.path.join(name, version)
    path = data_dir.rstrip("/")
    return data_dir if path == ends or path.endswith(f"/{ends}") else os.path.join(data_dir, ends)


_PREFIX = "tfrecorder."


class CopyOf(NamedTuple):
    """The columns of a plan that copies records, apart from those of its values.

    Attributes:
        file: the shard that holds the record, below the dataset.
        offset, size: where the record is in it, and how long, with its framing.
        warning: for a suspect, the warning in the lists; "" for any other record.
        crc32c: of the record, with its framing; -1 for a reject, null from a table of form 4.
    """

    file: str
    offset: str
    size: str
    warning: str
    crc32c: str


class RecordOf(NamedTuple):
    """The columns of a table that say what became of a row.

    Attributes:
        offset, size: where its record is in the shard, and how long, with its framing; -1 for a
            reject.
        warning: for a suspect, the decoder's warning; "" for any other row.
        crc32c: of the record, with its framing, taken when it is written; -1 for a reject.  It is
            missing in tables of form 4.
    """

    offset: str
    size: str
    warning: str
    crc32c: str


class RejectOf(NamedTuple):
    """The columns of a table, and of a plan that already knows some rows to be rejects.

    Attributes:
        stage, reason: as in the lists; "" for a row that has or will get a record.
    """

    stage: str
    reason: str


class PositionOf(NamedTuple):
    """The columns of rows that came from streams.

    Attributes:
        source: the name of the stream's source; "" for a row that came another way.
        position: the row's position in it, as JSON.
    """

    source: str
    position: str


class SourceOf(NamedTuple):
    """The columns of a table about the files of one image or mask; null if one was not read.

    Attributes:
        bytes, crc32c: its size, and the CRC32C of its bytes as they were read.
        modified: when it had last been written then, in ns since 1970; null if not on a disk.
        height, width: of the image in it, in pixels.
        hash, mean, deviation: as in `Fingerprint`.  From `height` on, they are missing in tables
            of before these were.
    """

    bytes: str
    crc32c: str
    modified: str
    height: str
    width: str
    hash: str
    mean: str
    deviation: str


COPY_OF = CopyOf(*(f"{_PREFIX}copy/{name}" for name in CopyOf._fields))
RECORD_OF = RecordOf(*(f"{_PREFIX}record/{name}" for name in RecordOf._fields))
REJECT_OF = RejectOf(*(f"{_PREFIX}reject/{name}" for name in RejectOf._fields))
POSITION_OF = PositionOf(*(f"{_PREFIX}stream/{name}" for name in PositionOf._fields))

#: The columns of a plan and of tables with the width and height that a source states of an image; 0
#: without one, null beside others.
STATED_OF = (f"{_PREFIX}stated/width", f"{_PREFIX}stated/height")

#: The column of a table, and of a plan that copies, that says what training does not see of a
#: record's images, as words of `images.header`, such as "frames,alpha"; only where there is some.
REDUCED = f"{_PREFIX}record/reduced"

#: The column of a plan that changes records: what becomes of the record of a row.  SAME: it is
#: copied.  VALUES: it gets other values, but for its images, masks and boxes.  MADE: it is made
#: again around the images that it holds.  READ: it is made again from the source's images, as is
#: that of a new row.
CHANGE = f"{_PREFIX}copy/change"
SAME, VALUES, MADE, READ = range(4)

#: The folder that a row's relative uris start from; "" if nobody noted it.  Where all rows have the
#: same, it is metadata of the table, or the plan's `base`.
BASE = f"{_PREFIX}source/base"

#: In place of the name of an image that came as bytes, or perhaps did: nobody knows it any more.
NOWHERE = "/\x1f/"

#: The split of a row's shard: a column of merged rows alone, as the names of tables say it.
SHARD_SPLIT = f"{_PREFIX}shard/split"


def source_of(field: Field) -> SourceOf:
    """The columns about the files of a column of images or masks."""
    return SourceOf(*(f"{_PREFIX}source.{name}/{field.key}" for name in SourceOf._fields))


def is_fact(name: str) -> bool:
    """True for a column that belongs to no record."""
    return name.startswith(_PREFIX)


def is_of_place(name: str) -> bool:
    """True for a column that says where sources were, or when, or what their images look like.

    The same rows may have another, or none, as the checksums of records that are copied.
    """
    others = (f"{_PREFIX}source.{of}/" for of in SourceOf._fields[2:])
    return name in (BASE, COPY_OF.crc32c) or name.startswith((*others,))


def is_number_of_source(name: str) -> bool:
    """True for a column of `SourceOf` or `STATED_OF`, whose values are int64."""
    return name.startswith((f"{_PREFIX}source.", f"{_PREFIX}stated/"))


def value_columns(names: Iterable[str]) -> list[str]:
    """Those of these columns that hold values of a record."""
    return [name for name in names if name != SOURCE_ID and not is_fact(name)]


def spool_columns(names: Iterable[str]) -> list[str]:
    """Those of these columns that name the file of each image that came as bytes."""
    return [name for name in names if name.startswith(SPOOLED)]


def parquet_options(fields: Sequence[Field]) -> dict[str, Any]:
    """How rows of these columns are written.

    With checksums: otherwise a flipped byte in a row would look like a fault of its record.
    """
    few = [BASE, SHARD_SPLIT, RECORD_OF.warning, REDUCED, *REJECT_OF, POSITION_OF.source]
    few += STATED_OF
    few += (field.text_key for field in fields if field.text_key)
    sources = [source_of(field) for field in file_fields(fields)]
    return {
        "use_dictionary": [*few, *(name for of in sources for name in (of.height, of.width))],
        "write_statistics": False,
        "write_page_checksum": True,
    }

"""Every file name of a dataset directory, for writing and for reading: all of them are here.

out/
  train-00000-of-00012.tfrecord     a shard
  features.json                     feature types, in TFDS's form
  image.class.label.labels.txt      class names, in TFDS's form
  label_map.csv  label_map.pbtxt    class names of boxes from 1, where 0 is the background
  rejects.csv  suspects.csv         rows without a record; records with a decoder's warning
  dataset_info.json                 the commit, written last, in TFDS's form
  _tfrecorder/                      all that only tfrecorder reads
    plan.json  plan.parquet         which row goes to which position of which shard
    metadata.json                   schema, splits, counts, checksums, true class names
    failure.json                    why the pipeline stopped, for the launcher to read
    parts.json                      into how many parts the shards were divided for `work`
    lock                            held by the conversion that writes the directory
    done/train-00000-of-00012.json  a shard is complete: its counts and CRC32C
    index/….tfrecord.idx            a line `offset size` for each record
    rejects/….csv  suspects/….csv   the shard's own share of the two files above
    progress/train-00000-of-00012   records written so far by a shard under way
    tmp/                            files not complete yet
    spool/00001/                    images that came as bytes, until generation 1 is committed
    next/                           the dataset that is to replace this one, in the same form
  appended/00001/                   generation 1: a dataset directory in the same form
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tfrecorder.storage import folders, local

PRIVATE = folders.PRIVATE
COMMIT = "dataset_info.json"
FEATURES = "features.json"
REJECTS = "rejects.csv"
SUSPECTS = "suspects.csv"
LABEL_MAP_CSV = "label_map.csv"
LABEL_MAP_PBTXT = "label_map.pbtxt"

PLAN = f"{PRIVATE}/plan.json"
PLAN_ROWS = f"{PRIVATE}/plan.parquet"
METADATA = f"{PRIVATE}/metadata.json"
FAILURE = f"{PRIVATE}/failure.json"
PARTS = f"{PRIVATE}/parts.json"
LOCK = f"{PRIVATE}/lock"
TMP = local.TMP
DONE = f"{PRIVATE}/done"
INDEX = f"{PRIVATE}/index"
SHARD_REJECTS = f"{PRIVATE}/rejects"
SHARD_SUSPECTS = f"{PRIVATE}/suspects"
PROGRESS = f"{PRIVATE}/progress"
SPOOL = f"{PRIVATE}/spool"
NEXT = f"{PRIVATE}/next"
APPENDED = folders.APPENDED

#: Folders with a file per shard; and everything else in our folder except the lock and `next/`.
SHARD_FOLDERS = (DONE, INDEX, SHARD_REJECTS, SHARD_SUSPECTS)
PRIVATE_FILES = (PLAN, PLAN_ROWS, METADATA, FAILURE, PARTS, TMP, PROGRESS, SPOOL)

PRIVATE_FOLDERS = (TMP, DONE, INDEX, SHARD_REJECTS, SHARD_SUSPECTS, PROGRESS, SPOOL)

#: Desktops write these into any folder that someone opens; never ours, never in the way.
DESKTOP_FILES = frozenset({".DS_Store", "Thumbs.db", "desktop.ini", ".directory"})

#: How TFDS finds the shards of a split (tfds.core.ShardedFileTemplate).
TFDS_TEMPLATE = "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}"

_SHARD = re.compile(r"(train|validation|test)-([0-9]{5,})-of-([0-9]{5,})\.tfrecord")


@dataclass(frozen=True, order=True)
class Shard:
    """One shard of one split: the element that travels through Beam.

    Attributes:
        split: "TRAIN", "VALIDATION" or "TEST".
        index: its number in the split, from 0.
        count: the number of shards in the split.

    >>> Shard("TRAIN", 0, 12).file
    'train-00000-of-00012.tfrecord'
    """

    split: str
    index: int
    count: int

    @property
    def name(self) -> str:
        return f"{self.split.lower()}-{self.index:05d}-of-{self.count:05d}"

    @property
    def file(self) -> str:
        return f"{self.name}.tfrecord"

    @property
    def done(self) -> str:
        return f"{DONE}/{self.name}.json"

    @property
    def index_file(self) -> str:
        return f"{INDEX}/{self.file}.idx"

    @property
    def rejects(self) -> str:
        return f"{SHARD_REJECTS}/{self.name}.csv"

    @property
    def suspects(self) -> str:
        return f"{SHARD_SUSPECTS}/{self.name}.csv"

    @property
    def beside(self) -> dict[str, str]:
        """The three files that are written with a shard, by the names in its done-record."""
        return {"index": self.index_file, "rejects": self.rejects, "suspects": self.suspects}

    @property
    def progress(self) -> str:
        return f"{PROGRESS}/{self.name}"


def parse_shard(file: str) -> Shard | None:
    """The shard that a file name stands for, or None if it is not a shard's name."""
    match = _SHARD.fullmatch(file)
    return Shard(match[1].upper(), int(match[2]), int(match[3])) if match else None


def next_of(output_dir: str) -> str:
    """Where the dataset that will replace the one in a directory is written."""
    return os.path.join(output_dir, NEXT)


def dataset_of(folder: str) -> str:
    """The final directory of a dataset that is written to a folder.

    >>> dataset_of("out"), dataset_of("out/_tfrecorder/next")
    ('out', 'out')
    """
    return folder.removesuffix(f"/{NEXT}")


def generation_of(output_dir: str, number: int) -> str:
    """The directory of a generation; generation 0 is the dataset directory itself.

    >>> generation_of("out", 0), generation_of("out", 3)
    ('out', 'out/appended/00003')
    """
    return output_dir if not number else os.path.join(output_dir, APPENDED, f"{number:05d}")


def spool_of(folder: str) -> tuple[str, str]:
    """Where images that came as bytes are kept until what is written to a folder is committed.

    Returns:
        The dataset directory, and the name of the spool below it.

    >>> spool_of("out"), spool_of("out/_tfrecorder/next")
    (('out', '_tfrecorder/spool/00000'), ('out', '_tfrecorder/spool/00000'))
    >>> spool_of("out/appended/00003")
    ('out', '_tfrecorder/spool/00003')
    """
    whole = dataset_of(folder)
    directory = grown_of(whole)
    number = 0 if directory == whole else generation_number(os.path.basename(whole))
    return directory, f"{SPOOL}/{number:05d}"


def generation_number(name: str) -> int | None:
    """The number that a folder in `appended/` stands for, or None if it is not such a name.

    >>> generation_number("00003"), generation_number("00000"), generation_number("3")
    (3, None, None)
    """
    number = int(name) if folders.GENERATION.fullmatch(name) else 0
    return number if number and name == f"{number:05d}" else None


def grown_of(folder: str) -> str:
    """The dataset directory that a generation belongs to; any other directory is its own.

    >>> grown_of("out/appended/00003"), grown_of("out")
    ('out', 'out')
    """
    above, _, name = folder.rstrip("/").rpartition("/")
    if generation_number(name) is None or os.path.basename(above) != APPENDED:
        return folder
    return os.path.dirname(above) or "."


def labels_file(key: str) -> str:
    """The file of class names of a label feature, as TFDS names it.

    >>> labels_file("image/class/label")
    'image.class.label.labels.txt'
    """
    return f"{key.replace('/', '.')}.labels.txt"


def tfds_directory(data_dir: str, name: str, version: str) -> str:
    """Where `tfds.load(name, data_dir=…)` looks for a dataset; a path that already ends so is kept.

    >>> tfds_directory("data", "flowers", "1.0.0")
    'data/flowers/1.0.0'
    >>> tfds_directory("data/flowers/1.0.0", "flowers", "1.0.0")
    'data/flowers/1.0.0'
    """
    ends = os.path.join(name, version)
    path = data_dir.rstrip("/")
    return data_dir if path == ends or path.endswith(f"/{ends}") else os.path.join(data_dir, ends)

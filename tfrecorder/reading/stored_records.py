"""A dataset's records by number, without reading whole shards and without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tfrecorder.errors import DatasetError
from tfrecorder.format.example import Values, parse_example
from tfrecorder.format.tfrecord import data_of
from tfrecorder.options.keywords import Path
from tfrecorder.options.read import NO_KEYS, NamedKeys
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.open import open_dataset
from tfrecorder.reading.record_bytes import RecordReader


@dataclass(frozen=True)
class Record:
    """One record.

    Attributes:
        split: the one it is in.
        number: in the split, from 0, in shard order.
        features: its values by key.
    """

    split: str
    number: int
    features: dict[str, Values]


def open_stored(directory: Path, at: int | None, named: NamedKeys = NO_KEYS) -> StoredDataset:
    """The dataset in a directory, for reading single records.

    Args:
        at: the last generation to read; None is the newest.
        named: the keys of the image and the label in records of other tools.

    Raises:
        DatasetError: it is not a whole dataset, or its single records cannot be read.
    """
    stored = open_dataset(directory, at, named)
    if words := stored.uncounted():
        raise DatasetError(words)
    return stored


def read_numbered(stored: StoredDataset, split: str, numbers: Iterable[int]) -> Iterator[Record]:
    """The records of a split with these numbers, in ascending order.

    Raises:
        DatasetError: the index or a record is damaged.
    """
    reader = RecordReader(stored, split)

    def record(number: int) -> Record:
        features = reader.read([number], lambda framed, _: parse_example(data_of(framed)))[0]
        return Record(split, number, features)

    return map(record, sorted(map(int, numbers)))

"""A dataset's records by number, without reading whole shards and without TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout, tfrecord
from tfrecorder.format.example import Values, parse_example
from tfrecorder.format.tfrecord import unframe
from tfrecorder.options.read import NO_KEYS, NamedKeys
from tfrecorder.reading.dataset import ShardFile, StoredDataset
from tfrecorder.reading.dataset_files import STORED_FILES, StoredFiles
from tfrecorder.reading.open import open_dataset


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


def open_stored(
    directory: str | os.PathLike[str], at: int | None = None, named: NamedKeys = NO_KEYS
) -> StoredDataset:
    """The dataset in a directory, for reading single records.

    Args:
        at: the last generation to read; None is the newest.
        named: the keys of the image and the label in records of other tools.

    Raises:
        DatasetError: it is not a whole dataset, or its single records cannot be read.
    """
    where = storage.given_path(directory)
    stored = open_dataset(where, files_by_number(where), at, named)
    if words := stored.uncounted():
        raise DatasetError(words)
    return stored


def files_by_number(directory: str | os.PathLike[str]) -> StoredFiles:
    """How files are read for reading single records.

    Raises:
        DatasetError: they cannot be.
    """
    where = storage.given_path(directory)
    words = storage.refusal(storage.scheme(where))
    if words is not None:
        raise DatasetError(f"{where}: its records cannot be read here; {words}.")
    return STORED_FILES


def read_numbered(
    stored: StoredDataset, split: str, numbers: Iterable[int] | np.ndarray
) -> Iterator[Record]:
    """The records of a split with these numbers, in ascending order.

    Raises:
        DatasetError: the index or a record is damaged.
    """
    wanted = np.sort(np.fromiter(numbers, np.int64))
    start = 0
    for shard in stored.splits[split]:
        end = start + (shard.records or 0)
        of_shard = wanted[(wanted >= start) & (wanted < end)]
        if len(of_shard):
            places = read_places(stored, shard)
            with open_shard(shard) as file:
                for number in of_shard.tolist():
                    offset, size = places[number - start].tolist()
                    framed = read_at(file, offset, size)
                    try:
                        yield Record(split, number, parse_example(unframe(framed)))
                    except ValueError as error:
                        raise damaged_record(shard, offset, error, stored.form) from error
        start = end


def open_shard(shard: ShardFile) -> BinaryIO:
    """A shard opened for random access; reading by number always opens shards here."""
    try:
        return storage.open_seekable(shard.path)
    except storage.UnreadableError as error:
        raise DatasetError(f"{shard.path} cannot be read: {error}") from error


def read_places(stored: StoredDataset, shard: ShardFile) -> np.ndarray:
    """Offset and size, with the framing, of each record of a shard: an int64 array of two columns.

    They come from the index of a dataset of this package, else from the records' lengths.

    Raises:
        DatasetError: the index does not match the shard.
    """
    folder, name = os.path.split(shard.path)
    path = os.path.join(folder, layout.INDEX, f"{name}.idx")
    if stored.form != "tfrecorder":
        return _walk_places(shard)
    try:
        # Three times as fast as with `split`, and without an object for each number.
        places = np.fromstring(storage.read_bytes(path), np.int64, sep=" ").reshape(-1, 2)
    except (storage.UnreadableError, ValueError) as error:
        raise DatasetError(_damaged(path, f"it cannot be read: {error}", folder)) from error
    ends = places.sum(axis=1)
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    if (
        len(places) != shard.records
        or not np.array_equal(places[:, 0], starts)
        or (len(ends) and ends[-1] != shard.bytes)
    ):
        raise DatasetError(_damaged(path, "it does not fit its shard", folder))
    return places


def _damaged(path: str, fault: str, directory: str) -> str:
    return (
        f"{path} is damaged: {fault}. `{command('verify', directory)}` checks every byte, and "
        f"`{command('repair', directory)}` writes it again."
    )


def _walk_places(shard: ShardFile) -> np.ndarray:
    with open_shard(shard) as file:
        places = list(tfrecord.read_places(file, shard.bytes))
    return np.array(places, dtype=np.int64).reshape(-1, 2)


def damaged_record(
    shard: ShardFile, offset: int, fault: object, form: str = "tfrecorder"
) -> DatasetError:
    """The error for a record that cannot be read, in a dataset of this form."""
    words = f"of the record at byte {offset}, {fault}"
    if form != "tfrecorder":
        remedy = "Copy the file again or, if it was written so, write it again without the record."
        return DatasetError(f"{shard.path} is damaged: {words}. {remedy}")
    return DatasetError(_damaged(shard.path, words, os.path.dirname(shard.path)))


def read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    """`size` bytes of a file from an offset on; fewer only at its end."""
    file.seek(offset)
    data = file.read(size)
    while len(data) < size and (more := file.read(size - len(data))):
        data += more
    return data

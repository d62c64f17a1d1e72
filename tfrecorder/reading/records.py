"""`Records`: a split as a sequence, with any record by its number."""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrecorder.core.checks import Whole
from tfrecorder.options.keywords import ReadKeywords
from tfrecorder.options.option import require
from tfrecorder.options.ranks import seed_of
from tfrecorder.options.read import ReadOptions
from tfrecorder.options.signature import takes
from tfrecorder.reading.dataset import StoredDataset
from tfrecorder.reading.order import block_of
from tfrecorder.reading.parsing import Elements
from tfrecorder.reading.record_bytes import RecordReader
from tfrecorder.reading.stored_records import open_stored
from tfrecorder.reading.table import labels_of, table_of

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import Unpack


#: How many records an iteration reads together.
_AT_ONCE = 64


class NumberInEpoch(int):
    """The number of a record, with the epoch it is read in.

    A sampler yields these, so that other processes, which may live for many epochs, know what
    `augment` has to draw.
    """

    epoch: int

    def __new__(cls, number: int, epoch: int) -> NumberInEpoch:
        made = super().__new__(cls, number)
        made.epoch = epoch
        return made

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override]
        return int(self), self.epoch


@takes(ReadKeywords, ReadOptions)
class Records(Sequence[Any]):
    """A split as a sequence of elements, in NumPy, without TensorFlow.

    `records[7]` is one element, `records[[5, 9, 2]]` and `records[2:8]` are lists of them. Elements
    have the keys, shapes and dtypes that `load` gives for the same options: `(image, label)` unless
    options say otherwise. Each record's checksum is checked whenever it is read.

    Threads can share it. It can be pickled, without its open files, and works in a forked process
    unless it reads from s3:// or az://. It can be used directly as a PyTorch map-style dataset and
    as a Grain `RandomAccessDataSource`.

    Args:
        directory: what `convert` wrote; a TFDS directory; or TFRecord files on a local disk, whose
            lengths are read once.
        split: "TRAIN", "VALIDATION" or "TEST", in any usual spelling.
        **options: what an element holds.

    Attributes:
        fingerprint: a short text that identifies these records, wherever they are.
        split: its name.
        seed: of `augment`, as given or drawn.
        has_own_seed: True if it was drawn, so that no other process knows it.
        generation: the last one that is read, from 0.
        since: the generation that began the numbering of the records.
        block: records that `shuffle="blocks"` of `tfrecorder.batches` keeps together.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the directory is not a whole dataset, or has no such split.

    Example:
        >>> records = tfrecorder.Records("out", "TRAIN", image_size=224)  # doctest: +SKIP
        >>> image, label = records[7]  # doctest: +SKIP
    """

    def __init__(
        self, directory: str | os.PathLike[str], split: str, **options: Unpack[ReadKeywords]
    ) -> None:
        self._options = ReadOptions.of(options)
        self._stored = stored = open_stored(directory, self._options.at, self._options.keys)
        self.split = stored.split(split)
        self._reader = RecordReader(stored, self.split)
        self.has_own_seed = self._options.seed is None
        self.seed = seed_of(self._options.seed, world=1)
        self._elements = Elements(stored, self._options, self.seed)
        self._epoch = 0
        self.fingerprint = fingerprint_of(stored, self.split)
        self.generation, self.since = stored.commit or 0, stored.since
        self.block = block_of(self._reader.records, stored.bytes(self.split))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, from 0, whose random parts `augment` draws.

        Processes that are already running keep theirs; `tfrecorder.torch.BatchSampler` sends the
        epoch with each number.

        Raises:
            OptionError: it is not a whole number from 0.
        """
        require(Whole(0), epoch=epoch)
        self._epoch = int(epoch)

    def table(self) -> pd.DataFrame:
        """All columns but the pictures, in the order of the records: row 7 is record 7.

        What the dataset's own tables say is read there, without reading a record.

        Returns:
            The columns of `to_frame`, with the number of the record as index.  Images and masks are
            their uris; boxes are lists, one row a record.

        Raises:
            DatasetError: a record is damaged, or the dataset was replaced since it was opened.

        Example:
            >>> table = records.table()  # doctest: +SKIP
            >>> cats = records[table.index[table["label"] == "cat"]]  # doctest: +SKIP
        """
        return table_of(self._stored, self.split)

    def labels(self, column: str | None = None) -> np.ndarray:
        """The class of each record as an integer, in the order of the records.

        Args:
            column: with the classes; None is the only one that has any.

        Returns:
            int64 of [records], -1 without labels; for a column with several classes a record, an
            array of arrays.

        Raises:
            OptionError: no column has classes, several have, or this one has none.
            DatasetError: as `table`.

        Example:
            >>> weights = 1 / np.bincount(records.labels())[records.labels()]  # doctest: +SKIP
        """
        return labels_of(self._stored, self.split, column)

    def __len__(self) -> int:
        return self._reader.records

    def __getitem__(self, number: Any) -> Any:
        """One element; or a list of them for a list, an array or a slice of numbers.

        Raises:
            IndexError: there is no record with this number.
            DatasetError: the record is damaged; the message names the file and the byte.
        """
        if isinstance(number, slice):
            return self.__getitems__(range(*number.indices(len(self))))
        if isinstance(number, (Sequence, np.ndarray)) and not isinstance(number, (str, bytes)):
            return self.__getitems__(number)
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int] | np.ndarray) -> list[Any]:
        """The elements with these numbers, in the same order; PyTorch's `DataLoader` calls this."""
        wanted = [self._number(number) for number in numbers]
        epochs = [getattr(number, "epoch", self._epoch) for number in numbers]
        return self._elements.read(self._reader, wanted, epochs)

    _getitems = __getitems__  # the name that Grain calls

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self.__getitems__(range(start, min(start + _AT_ONCE, len(self))))

    def __repr__(self) -> str:
        """The records and options: the same on every machine, so that Grain can resume with it."""
        given = {
            field.name: getattr(self._options, field.name)
            for field in dataclasses.fields(self._options)
            if getattr(self._options, field.name) != field.default
        }
        if self._options.map_fn is not None:
            given["map_fn"] = getattr(self._options.map_fn, "__qualname__", "a function")
        words = [f"{name}={value!r}" for name, value in given.items()]
        of_data = f"{self.split!r}, {len(self)} records, fingerprint={self.fingerprint!r}"
        return f"Records({', '.join([of_data, *words])})"

    def _number(self, number: Any) -> int:
        try:
            index = operator.index(number)
        except TypeError:
            raise TypeError(f"records[{number!r}]: give a number, numbers, or a slice.") from None
        if not -len(self) <= index < len(self):
            raise IndexError(f"records[{index}]: there are {len(self)} records, numbered from 0.")
        return index % len(self)


def fingerprint_of(stored: StoredDataset, split: str) -> str:
    """A short text that tells the records of a split from others, wherever they are.

    A correction keeps it, so that a training goes on with the corrected values.
    """
    shards = stored.splits[split]
    if split in stored.contents:
        told: object = (split, stored.records(split), stored.contents[split])
    else:
        told = [(os.path.basename(shard.path), shard.records, shard.bytes) for shard in shards]
    text = repr(told)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

"""`Records`: a split as a sequence, with any record by its number."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawValue
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrecorder.core.option import Whole
from tfrecorder.options.keywords import Datasets, ReadKeywords, Unpack
from tfrecorder.options.option import require, takes
from tfrecorder.options.ranks import seed_of
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.parsing import Elements
from tfrecorder.reading.record_set import open_members, record_set

if TYPE_CHECKING:
    import pandas as pd


#: How many records an iteration reads together.
_AT_ONCE = 64

#: What an epoch has, which a sequence does not: what to do instead.
_OF_EPOCHS = dict.fromkeys(
    ("balance", "epoch_size"),
    "records are a sequence; give it to `tfrecorder.batches` or `tfrecorder.torch.BatchSampler`",
)


#: Options that change nothing of what is read.
_OF_THE_MACHINE = ("local_cache", "cache_bytes")


class NumberInEpoch(int):
    """The number of a record, with the epoch it is read in.

    A sampler yields these, so that other processes, which may live for many epochs, know what
    `augment` has to draw.
    """

    epoch: int

    def __new__(
        cls,
        number: int,
        epoch: int,
    ) -> NumberInEpoch:
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
            lengths are read once. Or a list of these, whose records are numbered one after the
            other; or a dict with how much of an epoch each of them is, such as
            `{"photos": 3, "drawings": 1}`.
        split: "TRAIN", "VALIDATION" or "TEST", in any usual spelling.
        **options: what an element holds.

    Attributes:
        fingerprint: a short text that identifies these records, wherever they are.
        split: its name.
        seed: of `augment`, as given or drawn.
        has_own_seed: True if it was drawn, so that no other process knows it.
        class_names: by integer; None if no column or several columns have classes.
        generation: the last one that is read, from 0.
        record_set: the records, and how often an epoch has each.

    Raises:
        OptionError: an option's name or value is wrong.
        DatasetError: the directory is not a whole dataset, or has no such split.

    Example:
        >>> records = tfrecorder.Records("out", "TRAIN", image_size=224)  # doctest: +SKIP
        >>> image, label = records[7]  # doctest: +SKIP
    """

    def __init__(
        self,
        directory: Datasets,
        split: str,
        **options: Unpack[ReadKeywords],
    ) -> None:
        self._options = ReadOptions.of(options, _OF_EPOCHS)
        members, shares = open_members(directory, self._options)
        self.record_set = records = record_set(members, split, self._options, shares)
        self.split = records.split
        self.fingerprint = records.fingerprint
        self.generation = records.generation
        self.class_names = records.stored.class_names
        self._reader = records.reader()
        self.has_own_seed = self._options.seed is None
        self.seed = seed_of(self._options.seed, world=1)
        self._elements = Elements(records, self._options, self.seed)
        self._epoch = RawValue("q", 0)  # in memory that processes share, which start from this one

    def __getstate__(self) -> dict[str, Any]:
        """All of it; the memory is handed on only to a process that is being started."""
        if get_spawning_popen() is not None:
            return vars(self)
        return {**vars(self), "_epoch": self._epoch.value}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if isinstance(self._epoch, int):
            self._epoch = RawValue("q", self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, from 0, whose random parts `augment` draws.

        It reaches the workers of a `DataLoader`, also those that are already running; what they
        have read ahead by then keeps its epoch.  `tfrecorder.torch.BatchSampler` sends the epoch
        with each number.

        Raises:
            OptionError: it is not a whole number from 0.
        """
        require(Whole(0), epoch=epoch)
        self._epoch.value = int(epoch)

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
        return self.record_set.table()

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
        return self.record_set.labels(column)

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
        is_list = isinstance(number, Sequence) and not isinstance(number, (str, bytes))
        if is_list or bool(getattr(number, "ndim", 0)):  # also an index of pandas, and a tensor
            return self.__getitems__(number)
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: Sequence[int] | np.ndarray) -> list[Any]:
        """The elements with these numbers, in the same order; PyTorch's `DataLoader` calls this."""
        wanted = [self._number(number) for number in numbers]
        epochs = [getattr(number, "epoch", self._epoch.value) for number in numbers]
        return self._elements.read(self._reader, wanted, epochs)

    _getitems = __getitems__  # the name that Grain calls

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self.__getitems__(range(start, min(start + _AT_ONCE, len(self))))

    def __repr__(self) -> str:
        """The records and options: the same on every machine, so that Grain can resume with it."""
        words = [f"{self.split!r}, {len(self)} records, fingerprint={self.fingerprint!r}"]
        for field in dataclasses.fields(self._options):
            value = getattr(self._options, field.name)
            if value != field.default and field.name not in _OF_THE_MACHINE:
                if callable(value):
                    value = getattr(value, "__qualname__", "a function")
                words.append(f"{field.name}={value!r}")
        return f"Records({', '.join(words)})"

    def _number(self, number: Any) -> int:
        try:
            index = operator.index(number)
        except TypeError:
            raise TypeError(f"records[{number!r}]: give a number, numbers, or a slice.") from None
        if not -len(self) <= index < len(self):
            raise IndexError(f"records[{index}]: there are {len(self)} records, numbered from 0.")
        return index % len(self)

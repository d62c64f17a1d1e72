"""The bytes of records by their numbers: where they are, by the index, and reading them there."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

import numpy as np

from tfrecorder import storage
from tfrecorder.dataset.tfrecord import unframe
from tfrecorder.stored.dataset import ShardFile, StoredDataset
from tfrecorder.stored.records import damaged_record, open_shard, read_at, read_places

T = TypeVar("T")

#: Local files that stay open.  Further ones are opened for each read, which costs some 5 us.
MOST_OPEN = 256

#: Neighbours are read together up to so many bytes.
MOST_TOGETHER = 2**24


class RecordReader:
    """The records of a split by their numbers, for any number of threads.

    It goes to other processes without its open files, by pickling or by a fork.

    Attributes:
        records: of the split.
    """

    def __init__(self, stored: StoredDataset, split: str) -> None:
        self._stored = stored
        self._shards = [shard for shard in stored.splits[split] if shard.records]
        counts = [shard.records or 0 for shard in self._shards]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self.records = sum(counts)
        self._forget()

    def _forget(self) -> None:
        self._places: dict[int, np.ndarray] = {}
        self._files = _OpenFiles()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_places", "_files")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    def read(self, numbers: Sequence[int] | np.ndarray, use: Callable[[bytes, int], T]) -> list[T]:
        """What is made of each of some records, in the order of `numbers`.

        Args:
            numbers: from 0 to `records` - 1; those that stand behind each other are read together.
            use: the data of a record, an Example, and its place in `numbers` -> what is wanted.

        Raises:
            DatasetError: a record is damaged, or is not what `use` takes (it raises ValueError);
                the words name the file and the byte where the record begins.
        """
        wanted = np.asarray(numbers, np.int64)
        if len(wanted) == 1:
            return [self._read_run(wanted, use, np.zeros(1, np.int64))[0]]
        order = np.argsort(wanted, kind="stable")
        found: list[Any] = [None] * len(wanted)
        for run in np.split(order, np.flatnonzero(np.diff(wanted[order]) != 1) + 1):
            for at, value in zip(run, self._read_run(wanted[run], use, run), strict=True):
                found[at] = value
        return found

    def _read_run(
        self, numbers: np.ndarray, use: Callable[[bytes, int], T], at: np.ndarray
    ) -> list[T]:
        """The same of consecutive numbers, by one read of each shard, or few."""
        found: list[T] = []
        while len(found) < len(numbers):
            number = int(numbers[len(found)])
            index = int(np.searchsorted(self._ends, number, "right"))
            shard, places = self._shards[index], self._places_of(index)
            first = number - int(self._ends[index]) + len(places)
            many = min(len(numbers) - len(found), len(places) - first)
            offsets, sizes = places[first : first + many].T.tolist()
            many = max(1, int(np.searchsorted(np.cumsum(sizes), MOST_TOGETHER, "right")))
            data = self._files.read(index, shard, offsets[0], sum(sizes[:many]))
            for offset, size in zip(offsets[:many], sizes, strict=False):
                start = offset - offsets[0]
                framed = data if many == 1 else data[start : start + size]
                try:
                    found.append(use(unframe(framed), int(at[len(found)])))
                except ValueError as error:
                    raise damaged_record(shard, offset, error) from error
        return found

    def _places_of(self, index: int) -> np.ndarray:
        """The index of a shard, read when it is first needed; two threads may both read it."""
        places = self._places.get(index)
        if places is None:
            places = self._places[index] = read_places(self._stored, self._shards[index])
        return places


class _OpenFiles:
    """Shards, open as long as somebody has this."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._of_thread = threading.local()

    def read(self, index: int, shard: ShardFile, offset: int, size: int) -> bytes:
        if not storage.is_local(shard.path):
            return read_at(self._remote(index, shard), offset, size)
        number = self._numbers.get(index)
        if number is not None:
            return os.pread(number, size, offset)
        with open_shard(shard) as file:
            if len(self._numbers) < MOST_OPEN:  # without a lock, which a fork could leave held
                number = os.dup(file.fileno())
                if self._numbers.setdefault(index, number) != number:
                    os.close(number)
            return os.pread(file.fileno(), size, offset)

    def _remote(self, index: int, shard: ShardFile) -> BinaryIO:
        """A thread's own: it seeks."""
        files: dict[int, BinaryIO] = vars(self._of_thread).setdefault("files", {})
        if index not in files:
            files[index] = open_shard(shard)
        return files[index]

    def __del__(self) -> None:
        for number in self._numbers.values():
            with contextlib.suppress(OSError):
                os.close(number)

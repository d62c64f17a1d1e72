"""Size and CRC32C of the files of a table: of all the size, of some of them the bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import google_crc32c
import numpy as np
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.threads import map_at_once
from tfrecorder.sources.places import column_places
from tfrecorder.sources.table import Source

T = TypeVar("T")

#: From so many files of a folder on, a store is asked for its listing instead of for each of them.
LISTED = 1000

#: How many local files a thread looks at together.
_TOGETHER = 256


class FileSums:
    """The files of one column of a table, each looked at once, however many rows have it.

    A file that is not there, that may not be read, or that is on http(s), where asking for a size
    may take as long as reading, has neither size nor checksum.

    Args:
        source: the table.
        column: of images or masks.
    """

    def __init__(self, source: Source, column: str) -> None:
        places = column_places(source, column).dictionary_encode()
        self._places: list[str] = places.dictionary.to_pylist()
        self._of_rows = pc.fill_null(places.indices, -1).to_numpy().astype(np.int64)
        self._contents = source.contents.get(column)
        # For each place the first row that has it.
        numbers, firsts = np.unique(self._of_rows, return_index=True)
        self._rows = source.frame.index.to_numpy()[firsts[numbers >= 0]]
        self._told: dict[int, int] = {}  # the checksums that a store told together with the sizes
        self.sizes = self._by_row(self._sizes())

    def crcs(self, rows: np.ndarray) -> np.ndarray:
        """The checksum of the files of these rows, a mask; -1 for all others.

        Raises:
            UnreachableError: a store does not answer.
        """
        wanted = np.unique(self._of_rows[rows & (self.sizes >= 0)])
        crcs = np.full(len(self._places), -1)
        crcs[wanted] = self._each(self._crc, wanted.tolist())
        return np.where(rows, self._by_row(crcs), -1)

    def _by_row(self, values: np.ndarray) -> np.ndarray:
        """What is known of places, by row; -1 for a row without a place."""
        return np.append(values, -1)[self._of_rows]

    def _sizes(self) -> np.ndarray:
        sizes = np.full(len(self._places), -1)
        if self._contents is not None:
            sizes = self._contents.sizes[self._rows].astype(np.int64)
        others = np.flatnonzero(sizes < 0).tolist()
        for number, file in zip(others, self._described(others), strict=True):
            if file is not None:
                sizes[number] = file.size
                if file.crc32c is not None:
                    self._told[number] = file.crc32c
        return sizes

    def _described(self, numbers: Sequence[int]) -> list[storage.Description | None]:
        folders = Counter(os.path.dirname(self._places[number]) for number in numbers)
        listings = {}
        for folder, files in folders.items():
            if files >= LISTED and not (storage.is_local(folder) or _on_the_web(folder)):
                with contextlib.suppress(storage.UnreadableError):  # which files may still allow
                    listings[folder] = storage.descriptions(folder)

        def describe(number: int) -> storage.Description | None:
            path = self._places[number]
            folder, name = os.path.split(path)
            if folder in listings:
                return listings[folder].get(name)
            try:
                return None if _on_the_web(path) else storage.describe(path)
            except storage.UnreadableError:
                return None

        return self._each(describe, numbers)

    def _crc(self, number: int) -> int:
        if self._contents is not None and self._contents.holds(self._rows[number]):
            return google_crc32c.value(self._contents.file(self._rows[number]))
        try:
            crc = self._told.get(number)
            return storage.sums(self._places[number])[1] if crc is None else crc
        except storage.UnreadableError:
            return -1

    def _each(self, work: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
        """The results of `work` for some places, in threads."""
        size = _TOGETHER if all(storage.is_local(self._places[one]) for one in numbers) else 1
        groups = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        made = map_at_once(lambda group: [*map(work, group)], groups, storage.REMOTE_THREADS)
        return [*itertools.chain.from_iterable(made)]


def _on_the_web(path: str) -> bool:
    return storage.scheme(path) in ("http", "https")

"""Size and CRC32C of files that rows name: of all what their stores tell, of some the bytes."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.sources.places import column_places
from tfrecorder.sources.table import Source

T = TypeVar("T")
R = TypeVar("R")

#: From so many files of a folder on, a store is asked for its listing instead of for each of them.
LISTED = 1000

#: How many local files a thread looks at together.
_TOGETHER = 32


@dataclass(frozen=True)
class FileSums:
    """The files of one column of some rows, each looked at once, however many rows have it.

    A file that is not there, or that may not be read, has neither size nor checksum: -1.

    Attributes:
        places: of the rows, as `places` makes them; null for none.
        sizes: by row.
        files: the paths of those that did not come as bytes.
        of_rows: for each row the place of its checksum; -1 for a row without a file.
        told: the checksums that are known already: of `files`, then of images that came as bytes.
    """

    places: pa.LargeStringArray
    sizes: np.ndarray
    files: list[str]
    of_rows: np.ndarray
    told: np.ndarray

    def crcs(self, rows: np.ndarray) -> np.ndarray:
        """The checksums of the files of some rows, a mask; -1 for all others.

        Raises:
            UnreachableError: a store does not answer.
        """
        crcs = self.told.copy()
        wanted = np.unique(self.of_rows[rows & (self.sizes >= 0)])
        unread = wanted[crcs[wanted] < 0].tolist()
        crcs[unread] = [*in_threads(_crc, [self.files[number] for number in unread])]
        return np.where(rows, crcs[self.of_rows], -1)


def file_sums(
    places: pa.LargeStringArray, came: np.ndarray | None = None, web: bool = True
) -> FileSums:
    """The files in some places, whose stores are asked for their sizes.

    Args:
        came: the size and CRC32C of each image that came as bytes, by row; -1 for all others.
        web: also ask for the sizes of what is on http(s), which may take as long as reading.

    Raises:
        UnreachableError: a store does not answer.
    """
    came = np.full((2, len(places)), -1) if came is None else came
    is_known = came[0] >= 0
    encoded = pc.if_else(pa.array(is_known), None, places).dictionary_encode()
    files = encoded.dictionary.to_pylist()
    describe = describing(files)

    def told(path: str) -> tuple[int, int]:
        with contextlib.suppress(storage.UnreadableError):
            file = describe(path) if web or not storage.is_web(path) else None
            if file is not None:
                return file.size, -1 if file.crc32c is None else file.crc32c
        return -1, -1

    flat = itertools.chain.from_iterable(in_threads(told, files))
    of_files = np.fromiter(flat, np.int64).reshape(-1, 2)
    sizes, crcs = np.concatenate([of_files, came.T[is_known], [(-1, -1)]]).T
    of_rows = pc.fill_null(encoded.indices, -1).to_numpy().astype(np.int64)
    of_rows[is_known] = np.arange(len(files), len(sizes) - 1)
    return FileSums(places, sizes[of_rows], files, of_rows, crcs)


def file_sums_of(table: Source, column: str, web: bool = True) -> FileSums:
    """`file_sums` of a column of a table."""
    rows = table.frame.index.to_numpy()
    contents = table.contents.get(column)
    came = None if contents is None else np.stack([contents.sizes, contents.crcs])[:, rows]
    return file_sums(column_places(table, column), came, web)


def _crc(path: str) -> int:
    with contextlib.suppress(storage.UnreadableError):
        return storage.sums(path)[1]
    return -1


def describing(paths: Iterable[str]) -> Callable[[str], storage.Description | None]:
    """`storage.describe` for these files, of which one listing may tell a whole folder."""
    stored = (path for path in paths if not (storage.is_local(path) or storage.is_web(path)))
    listings = {}
    for folder, files in Counter(map(storage.parent, stored)).items():
        if files >= LISTED:
            with contextlib.suppress(storage.UnreadableError):  # which files may still allow
                listings[folder] = storage.descriptions(folder)

    def describe(path: str) -> storage.Description | None:
        folder, _, name = path.rpartition("/")
        return listings[folder].get(name) if folder in listings else storage.describe(path)

    return describe


def in_threads(
    work: Callable[[T], R], files: Sequence[T], path: Callable[[T], str] = str
) -> Iterator[R]:
    """The results of `work` for some files, in order, each as soon as it can be had.

    Args:
        path: of a file.
    """
    local = all(storage.is_local(path(file)) for file in files)
    together = max(1, min(_TOGETHER, len(files) // storage.REMOTE_THREADS)) if local else 1
    groups = [files[start : start + together] for start in range(0, len(files), together)]
    if len(groups) < 2:
        yield from map(work, files)
        return
    with ThreadPool(storage.REMOTE_THREADS) as pool:
        ahead = 2 * storage.REMOTE_THREADS
        made = map_ahead(pool, lambda group: [*map(work, group)], groups, ahead)
        yield from itertools.chain.from_iterable(made)

"""The images of a column that came as bytes, each identified by the hash of its content.

Only names and sizes are kept.  The bytes stay in the source and are read again when they are
needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.core.threads import ThreadPool, map_ahead
from tfrecorder.sources.cells import File, file_in

#: How many cells a thread hashes at a time, and how many such blocks are under way.
TOGETHER = 8
AHEAD = 4


class Cells(Protocol):
    """The cells of a column, wherever they are."""

    def __len__(self) -> int: ...

    def read(self, rows: Sequence[int] | np.ndarray) -> Iterator[Any]:
        """The cells of some rows, in their order, which is ascending."""
        ...


class FrameCells:
    """The cells of a frame's column."""

    def __init__(self, column: pd.Series) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def read(self, rows: Sequence[int] | np.ndarray) -> Iterator[Any]:
        array = self._column.array
        return (array[int(row)] for row in rows)


@dataclass(frozen=True)
class Contents:
    """What is known about a column's images that came as bytes, by row of the source.

    Attributes:
        files: the name made from each content; "" for a row that has a uri instead.
        names: what the record calls them.
        sizes: in bytes; -1 for a row that has a uri instead.
        crcs: the CRC32C of each; -1 likewise.
        cells: the cells that hold them.
    """

    files: pa.LargeStringArray
    names: pa.LargeStringArray
    sizes: np.ndarray
    crcs: np.ndarray
    cells: Cells

    def data(self, rows: Sequence[int] | np.ndarray) -> Iterator[bytes]:
        """The files of some rows, in their order, which is ascending."""
        with ThreadPool() as pool:
            yield from map_ahead(pool, _data, self.cells.read(rows), ahead=TOGETHER * AHEAD)

    def file(self, row: int) -> bytes:
        """The file of a row."""
        return _data(next(self.cells.read([row])))

    def holds(self, rows: Any) -> Any:
        """True for rows whose image came as bytes."""
        return self.sizes[rows] >= 0

    def first_rows(self, wanted: pa.Array) -> np.ndarray:
        """A row for each of these files, in ascending order."""
        rows = np.flatnonzero(pc.is_in(self.files, value_set=wanted).to_numpy(zero_copy_only=False))
        again = pd.Series(self.files.take(rows).dictionary_encode().indices.to_numpy()).duplicated()
        return rows[~again.to_numpy()]


def _data(cell: Any) -> bytes:
    file = file_in(cell)
    assert isinstance(file, File)
    return file.data

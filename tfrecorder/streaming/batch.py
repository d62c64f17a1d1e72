"""The rows of a batch as they come from a source, their images spooled."""

from __future__ import annotations

import os
import posixpath
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfrecorder import storage
from tfrecorder.conversion.removal_marks import Marks
from tfrecorder.display.tables import escaped
from tfrecorder.output.spool import Spool
from tfrecorder.sources.cells import Content, File, content_in, file_in
from tfrecorder.sources.file_sums import FileSums, file_sums
from tfrecorder.sources.places import places
from tfrecorder.streaming.stream_source import Cells, Unusable

#: How many images have their sizes looked up to decide on the shards of an unspooled batch.
SIZED = 20


class Row(NamedTuple):
    """A row of a batch.

    Attributes:
        cells: by column; a spooled `Content` in place of each image that came as bytes; or
            `Unusable`.
        position: the row's position in its source, as JSON.
        name: the name under which the row is listed if it is a reject.
    """

    cells: Cells
    position: str
    name: str


def _name_fault(name: str) -> str | None:
    """Why a name cannot be an image's name; it comes from a message, which anyone may have sent."""
    parts = name.split("/")
    sound = posixpath.normpath(name) == name and ".." not in parts and not name.startswith("/")
    short = all(len(part.encode()) <= 200 for part in parts)
    if sound and short and name.isprintable() and "://" not in name:
        return None
    return f"bad_name: {name[:80]!r} cannot be the name of an image; give a relative path"


@dataclass
class Batch:
    """The rows of a batch as they come.

    Attributes:
        spool: where images go that come as bytes.
        number: the number of the generation that it becomes.
        columns: the columns of images and masks, as the source names them.
        base: the folder of relative uris; None makes them absolute as they come.
        marks: of what was removed from the dataset.
        images: the columns of images, in the order of the marks.
        readmit: rows that were removed are let in.
        began: when its first row came, by `time.monotonic`.
        came: the marks of those rows that came.
    """

    spool: Spool
    number: int
    columns: list[str]
    base: str | None
    marks: Marks
    images: list[str]
    readmit: bool
    began: float = field(default_factory=time.monotonic)
    rows: list[Row] = field(default_factory=list)
    came: frozenset[str] = frozenset()

    def add(self, cells: Cells, position: str) -> bool:
        """Add a row; its images are spooled if they came as bytes.  False if it was removed before.

        Args:
            position: as in `Row`.

        Raises:
            OSError: an image cannot be spooled.
        """
        if self.marks and self.images and not isinstance(cells, Unusable):
            images = [self._image(cells.get(column)) for column in self.images]
            removed, marks = self.marks.matches(images, every=self.readmit)
            if removed.any() and not self.readmit:
                return False
            self.came |= marks
        self.rows.append(self._row(cells, position))
        return True

    def _image(self, cell: Any) -> FileSums:
        """The image in a cell of a row; one without a place in a row that becomes a reject."""
        cell = content_in(self._cell(cell))
        if isinstance(cell, Content):
            name = pa.array([cell.file], pa.large_string())
            return file_sums(name, came=np.array([[cell.size], [cell.crc32c]]))
        uri = pa.array([cell if isinstance(cell, str) else None], pa.large_string())
        return file_sums(places(uri, self.base or os.getcwd()))

    def _cell(self, cell: Any) -> Any:
        """What a cell of a column of images holds, as `file_in` gives it."""
        cell = os.fspath(cell) if isinstance(cell, os.PathLike) else cell
        if self.base is None or not isinstance(cell, str):  # a file may be called "data:…"
            cell = file_in(cell)
        return storage.put_aside(cell) if isinstance(cell, str) else cell

    def _row(self, cells: Cells, position: str) -> Row:
        name = f"{self.number:05d}/{len(self.rows):08d}"  # if it has no image
        if isinstance(cells, Unusable):
            return Row(cells, position, escaped(cells.name) or name)
        kept = dict(cells)
        for column in self.columns:
            cell = self._cell(kept.get(column))
            if isinstance(cell, File):
                if cell.name and (fault := _name_fault(cell.name)) is not None:
                    return Row(Unusable(name, fault), position, name)
                data = cell.data
                cell = content_in(cell)
                self.spool.put(cell.file, data)
            elif isinstance(cell, str) and cell and self.base is None:
                cell = storage.resolve(cell, os.getcwd())
            if column in kept:
                kept[column] = cell
        first = kept.get(self.columns[0]) if self.columns else None
        shown = first.name if isinstance(first, Content) else first
        return Row(kept, position, escaped(shown) if isinstance(shown, str) and shown else name)

    def mean_bytes(self, base: str) -> float:
        """The mean size of an image; relative uris start from `base`."""
        spool = self.spool
        if spool.images:
            return spool.bytes / spool.images
        uris = [row.name for row in self.rows if not isinstance(row.cells, Unusable)][:SIZED]
        paths = [storage.resolve(uri, base) for uri in uris]
        sizes = [size for size in storage.each(storage.size_or_none, paths, base) if size]
        return sum(sizes) / len(sizes) if sizes else 0.0

"""The images that came as bytes, on their way into a dataset.

They are kept below the dataset directory until what is written from them is committed.  Each is
kept once, under the name of its content.  So workers on other machines see them, and a conversion
that was begun can be completed without its source.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pyarrow as pa

from tfrecorder import storage
from tfrecorder.format import layout
from tfrecorder.format.layout import NewFiles
from tfrecorder.format.plan_columns import spool_columns
from tfrecorder.sources.contents import Contents

#: Bytes kept in memory to be written together, many images at a time into a bucket.
TOGETHER = 2**25


class Spool:
    """The spool of the operation that is under way, or is to begin.

    Args:
        output_dir: the dataset directory.

    Attributes:
        bytes: the total size of the images in it.
        images: how many there are.
    """

    def __init__(self, output_dir: str) -> None:
        self._directory = output_dir
        self._sizes: dict[str, int | None] = {}
        self._waiting: NewFiles = {}
        self._waiting_bytes = 0
        self.bytes = 0

    @property
    def images(self) -> int:
        return len(self._sizes)

    def look(self) -> None:
        """Find what an earlier call left behind."""
        self._sizes = storage.sizes(os.path.join(self._directory, layout.SPOOL))
        self.bytes = sum(size or 0 for size in self._sizes.values())

    def holds(self, file: str, size: int) -> bool:
        return self._sizes.get(file) == size

    def put(self, file: str, data: bytes) -> None:
        """Add an image unless it is already there; it is written by the next `flush` at the latest.

        Raises:
            OSError: the disk is full, or something else went wrong; the image was not added.
        """
        if self.holds(file, len(data)):
            return
        if self._waiting_bytes >= TOGETHER:
            self.flush()
        self._sizes[file] = len(data)
        self.bytes += len(data)
        self._waiting[f"{layout.SPOOL}/{file}"] = data
        self._waiting_bytes += len(data)

    def flush(self) -> None:
        """Write what is still held in memory."""
        storage.publish_all(self._directory, self._waiting)
        self._waiting = {}
        self._waiting_bytes = 0


def spool_images(contents: Iterable[Contents], output_dir: str, planned: pa.Table) -> None:
    """Write the images of planned rows that came as bytes, except those that are already there.

    Args:
        output_dir: as for `Spool`.
        contents: the contents of all columns whose images came as bytes.

    Raises:
        OSError: they cannot be written.
        UnreadableError: what is there cannot be listed.
    """
    wanted = [planned.column(name) for name in spool_columns(planned.column_names)]
    if not wanted:
        return
    files = pa.concat_arrays([chunk for column in wanted for chunk in column.chunks]).unique()
    spool = Spool(output_dir)
    spool.look()
    for column in contents:
        rows = [row for row in column.first_rows(files).tolist() if column.holds(row)]
        names = {row: column.files[row].as_py() for row in rows}
        missing = [row for row in rows if not spool.holds(names[row], column.sizes[row])]
        for row, data in zip(missing, column.data(missing), strict=True):
            spool.put(names[row], data)
    spool.flush()


def is_whole(output_dir: str, images: int) -> bool:
    """True if the spool still has all its images."""
    return not images or len(storage.names(os.path.join(output_dir, layout.SPOOL))) == images

"""The images of a batch that came as bytes, on their way into a dataset.

They lie below the dataset directory until their generation is committed, so that a batch whose plan
is staged can be completed after a crash without its source.
"""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.growing.micro_batch import Row
from tfrecorder.growing.stream_source import Unusable

#: Bytes that wait in memory, to be written together: many at a time into a bucket.
TOGETHER = 2**25


class Spool:
    """The spool of one batch.

    Args:
        output_dir: the dataset directory.
        number: of the generation that the batch becomes.
        base: the folder that the relative uris of the source are taken from; None where its rows
            may have images as bytes: then these are made absolute, by the current folder.

    Attributes:
        bytes: of the images in it.
        images: how many these are.
    """

    def __init__(self, output_dir: str, number: int, base: str | None) -> None:
        self._output_dir, self._folder = output_dir, layout.spool_of(output_dir, number)
        self._number, self._given_base = number, base
        self._names: set[str] = set()
        self._waiting: list[tuple[str, bytes]] = []
        self._waiting_bytes = 0
        self.bytes = 0

    @property
    def images(self) -> int:
        return len(self._names)

    @property
    def base(self) -> str:
        """The folder that the uris of the rows are relative to."""
        return self._given_base or self._folder

    def add(self, cells: Mapping[str, Any], columns: Sequence[str], position: str, at: int) -> Row:
        """A row with its images written down.

        Args:
            columns: of images and masks.
            at: the row's number in the batch.

        Raises:
            OSError: the disk is full, or else.
        """
        name = f"{self._number:05d}/{at:08d}"
        if isinstance(cells, Unusable):
            return Row(cells, position, cells.name or name)
        kept = dict(cells)
        for column in columns:
            cell = kept.get(column)
            data, path = _contents(cell)
            if data is not None:
                wanted = path or (name if column == columns[0] else f"{name}-{column}")
                if (fault := _fault(wanted)) is not None:
                    return Row(Unusable(name, fault), position, name)
                kept[column] = self._put(wanted, data, at)
            elif isinstance(cell, str) and cell and self._given_base is None:
                kept[column] = storage.resolve(cell, os.getcwd())
        first = kept.get(columns[0]) if columns else None
        return Row(kept, position, first if isinstance(first, str) and first else name)

    def _put(self, name: str, data: bytes, at: int) -> str:
        if name in self._names:
            name = next(
                other
                for more in itertools.count()
                if (other := f"{name}.{at + more}") not in self._names
            )
        self._names.add(name)
        self.bytes += len(data)
        self._waiting.append((name, data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= TOGETHER:
            self.flush()
        return name

    def flush(self) -> None:
        """Write what still waits in memory."""
        folder = layout.spool_of("", self._number)
        storage.each(
            lambda one: storage.publish_bytes(self._output_dir, f"{folder}/{one[0]}", one[1]),
            self._waiting,
            self._output_dir,
        )
        self._waiting, self._waiting_bytes = [], 0


def _contents(cell: Any) -> tuple[bytes | None, str]:
    """The bytes in a cell, and the name that they have; None where it holds none."""
    if isinstance(cell, (bytes, bytearray, memoryview)):
        return bytes(cell), ""
    if isinstance(cell, Mapping) and isinstance(cell.get("bytes"), bytes):
        path = cell.get("path")
        return cell["bytes"], path if isinstance(path, str) else ""
    return None, ""


def _fault(name: str) -> str | None:
    """What keeps a name from being that of a file below the spool."""
    parts = name.split("/")
    sound = posixpath.normpath(name) == name and ".." not in parts and not name.startswith("/")
    try:
        short = all(len(part.encode()) <= 200 for part in parts)
    except UnicodeEncodeError:
        short = False
    if sound and short and name.isprintable() and "://" not in name:
        return None
    return f"bad_name: {name[:80]!r} cannot be the name of an image; give a relative path"


def is_whole(folder: str, images: int) -> bool:
    """True if a spool still has all images of its batch."""
    return not images or sum(1 for _ in storage.files_below(folder)) == images


def clear_spool(output_dir: str) -> None:
    """Remove what batches left that are committed by now, or were never planned."""
    for name in storage.names(os.path.join(output_dir, layout.SPOOL)):
        storage.remove(output_dir, f"{layout.SPOOL}/{name}")

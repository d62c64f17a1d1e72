"""Reading the files of a dataset directory by our own stores, and counting their records.

A shard's name may come to stand for other records: `undo` takes an append back, and the next one
takes its names.  So a reader compares each shard with what the listing said when the dataset was
opened.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import re
from collections.abc import Iterator
from typing import BinaryIO

from tfrecorder import storage
from tfrecorder.errors import DatasetError, MissingDatasetError
from tfrecorder.format import layout
from tfrecorder.format.tfrecord import (
    HEAD_BYTES,
    CorruptRecordError,
    compression_of,
    read_places,
    records_of,
)
from tfrecorder.reading.commits import newest_commit
from tfrecorder.reading.dataset import ShardFile


@contextlib.contextmanager
def open_shard(shard: ShardFile) -> Iterator[BinaryIO]:
    """A shard opened for random access, for a block.

    Raises:
        DatasetError: as `read_in_words`.
    """
    with read_in_words(shard), storage.open_seekable(shard.path, shard.listed) as file:
        yield file


@contextlib.contextmanager
def read_in_words(shard: ShardFile) -> Iterator[None]:
    """A block that opens or reads a shard.

    Raises:
        DatasetError: it cannot be read; or it was replaced or removed since it was listed.
    """
    try:
        yield
    except storage.UnreadableError as error:
        raise (
            change_of(shard) or DatasetError(f"{shard.path} cannot be read: {error}.")
        ) from error


def change_of(shard: ShardFile, *, may_be_gone: bool = False) -> DatasetError | None:
    """The error for a shard that was replaced or removed since it was listed; else None.

    Args:
        may_be_gone: it was read to its end, so that its removal does not matter.
    """
    with storage.failing_as(DatasetError, shard.path):
        standing = storage.describe(shard.path)
    if shard.listed in (None, standing) or (may_be_gone and standing is None):
        return None
    directory = os.path.dirname(shard.path)
    change = ""
    with contextlib.suppress(DatasetError):  # its manifest may be about to go too
        if (newest := newest_commit(directory)) is not None:
            change = f"; by now it is at generation {newest.number} ({newest.plan.kind.value})"
    verb = "replaced" if standing else "removed"
    return DatasetError(
        f"{shard.path} was {verb} since {directory} was opened{change}. Open it again."
    )


def files_in(folder: str) -> storage.Descriptions:
    """What the store says about each file in a folder; empty if there is no such folder."""
    with storage.failing_as(DatasetError, folder or "."):
        files = storage.descriptions(folder)
    # A pipe and a broken link have size 0, so on a disk we check only files of size 0.
    for name in [name for name, (size, *_) in files.data.items() if not size]:
        if storage.is_local(folder) and not os.path.isfile(os.path.join(folder, name)):
            del files[name]
    return files


def has_private_folder(folder: str) -> bool:
    """Whether a folder has the one in which this package keeps what is its own."""
    with storage.failing_as(DatasetError, folder):
        return layout.PRIVATE in storage.sizes(folder)


def nothing_begun(directory: str) -> str:
    """Why a directory holds nothing that this package wrote, in words; "" if it holds something.

    A lock alone stays where a conversion stopped before it wrote anything.

    Raises:
        MissingDatasetError: there is no such directory.
    """
    with storage.failing_as(DatasetError, directory):
        if storage.is_local(directory) and os.path.isfile(directory):
            return f"{directory} is a file; give the directory of a dataset."
        if not storage.is_folder(directory):
            hint = storage.hint_beside(directory)
            raise MissingDatasetError(
                f"{directory}: there is no such directory. Check the path{hint}."
            )
        own = storage.sizes(os.path.join(directory, layout.PRIVATE)).keys()
    if own <= {os.path.basename(layout.LOCK)}:
        return (
            f"{directory}: no conversion was started here, or it has written nothing. "
            "Run it, or give the directory of another."
        )
    return ""


def matching(pattern: str) -> list[str]:
    """The paths that match a pattern, sorted; a folder of its very name is no pattern."""
    folder, _, name = pattern.rpartition("/")
    if folder and storage.is_folder(folder):
        pattern = f"{glob.escape(folder)}/{name}"
    else:
        folder = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    if storage.is_local(pattern):
        return sorted(glob.glob(pattern, recursive=True))
    paths = (f"{folder}/{name}" for name in storage.files_below(folder))
    return [path for path in paths if fnmatch.fnmatchcase(path, pattern)]


def compression_in(path: str) -> str:
    """How a whole file is compressed: "GZIP", "ZLIB", or "" for none."""
    with storage.failing_as(DatasetError, path), storage.open_seekable(path) as file:
        return compression_of(file.read(HEAD_BYTES))


def records_in(shard: ShardFile) -> Iterator[bytes]:
    """A shard's records in order; raises ValueError if one is damaged."""
    with open_shard(shard) as file:
        yield from records_of(file, shard.compression)


def count_records(path: str) -> tuple[int, int]:
    """The records of a local TFRecord file, from their lengths, without reading the data.

    Returns:
        How many there are, and the byte where the last one begins.

    Raises:
        DatasetError: the records do not end where the file ends.
    """
    end = os.path.getsize(path)
    records = position = last = 0
    with open(path, "rb", buffering=4096) as file, contextlib.suppress(CorruptRecordError):
        for start, size in read_places(file, end):
            last = start
            position = start + size
            records += 1
    if position != end:
        raise DatasetError(
            f"{path} is not a whole TFRecord file: record {max(records - 1, 0)} does not end where "
            "the file does. It is truncated, or of another format; copy it again."
        )
    return records, last

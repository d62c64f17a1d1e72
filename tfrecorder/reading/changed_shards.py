"""Shards that are no longer what they were when their dataset was opened.

A shard's name may come to stand for other records: `undo` takes an append back, and the next one
takes its names.  So a reader compares each shard with what the listing said when the dataset was
opened.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from tfrecorder import storage
from tfrecorder.errors import DatasetError
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

"""`undo`: abandon what was begun in a dataset directory and not committed."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from tfrecorder import storage
from tfrecorder.display.tables import Report, counted
from tfrecorder.errors import DatasetError
from tfrecorder.output.directory import claim, clear, standing_of
from tfrecorder.output.staging import read_plan
from tfrecorder.writing.commit import abandon, complete


@dataclass(frozen=True)
class UndoResult(Report):
    """What `undo` abandoned.

    Attributes:
        output_dir: the dataset directory.
        kind: what was pending: "conversion", "append", "stream" (a batch) or "compaction".
        rows: how many rows it had planned.
        shards: into how many shards.
        generation: the newest generation of the dataset, which stays as it is; None if there was no
            dataset yet.
    """

    output_dir: str
    kind: str
    rows: int
    shards: int
    generation: int | None

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return asdict(self)

    def _headline(self) -> str:
        stays = "" if self.generation is None else "; the dataset stays as it was"
        rows, shards = counted(self.rows, "row"), counted(self.shards, "shard")
        return f"{self.output_dir}: abandoned an unfinished {self.kind}, {rows} in {shards}{stays}"


def undo(directory: str | os.PathLike[str]) -> UndoResult:
    """Abandon an operation that was begun in a directory and not committed.

    What it wrote is removed, and no later process can commit it.  The dataset that was there before
    stays as it is.

    Args:
        directory: the dataset directory.

    Returns:
        What was abandoned.

    Raises:
        DatasetError: nothing is pending there.
        OutputError: another process is writing the directory, or it cannot be written.

    Example:
        >>> tfrecorder.undo("out").kind  # doctest: +SKIP
        'append'
    """
    where = storage.absolute(storage.given_path(directory))
    with storage.failing_as(DatasetError, where):
        if read_plan(where) is None:
            raise DatasetError(f"{where}: nothing is pending, so there is nothing to abandon.")
    with claim(where):
        standing = standing_of(where)
        pending, newest = standing.pending, standing.newest
        if pending is None or complete(where):
            raise DatasetError(f"{where}: it was committed; nothing is pending any more.")
        if newest is None:
            clear(where, standing)
        elif not standing.is_overtaken:
            abandon(where, standing)
    return UndoResult(
        output_dir=os.fspath(directory),
        kind=pending.kind.value,
        rows=pending.rows,
        shards=len(pending.shards),
        generation=None if newest is None else newest.number,
    )

"""How far each source of a dataset's streams was read: what its commits say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.plan_columns import POSITION_OF
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import known_rows
from tfrecorder.reading.shard_tables import read_columns

#: What the name of a folder that is watched begins with.
FOLDER = "folder:"


def position_of(newest: Commit | None, source: str) -> Any:
    """The position that a source was read up to; None before its first batch.

    Raises:
        DatasetError: it was lost with the table that held it.
    """
    positions = {} if newest is None else newest.dataset.positions
    if positions.get(source, positions.get("", "")) is None:  # as a repair notes it
        raise _lost(source)
    return positions.get(source)


def _lost(source: str) -> DatasetError:
    return DatasetError(
        f"source {source}: how far it was read was lost with a damaged file, so rows would come "
        "again. Stream it into another directory, or add its new rows with `append`."
    )


def position_after(source: str, positions: Sequence[str]) -> Any:
    """How far a source was read by a commit whose manifest is lost, as the positions of rows say.

    Of a source without an order any value will do: their number, which names none of them.

    Args:
        positions: of the rows from the source, in their order.
    """
    try:
        return len(positions) if source.startswith(FOLDER) else json.loads(positions[-1])
    except ValueError:
        return len(positions)


def taken_positions(directory: str, newest: Commit | None, source: str) -> set[str]:
    """The positions of all rows that came from a source, as JSON.

    Raises:
        DatasetError: a table cannot be read, or was and is not known any more.
    """
    if position_of(newest, source) is None:
        return set()
    assert newest is not None
    taken = set(_of_source(known_rows(directory, newest, POSITION_OF), source))
    if "" in taken:  # so a repair marks the rows of a table that was lost
        raise _lost(source)
    return taken


def positions_in(directory: str, source: str) -> list[str]:
    """The positions of the rows from a source in the plan that is staged.

    Raises:
        DatasetError: its rows cannot be read.
    """
    rows = read_columns(directory, layout.PLAN_ROWS, lambda _: POSITION_OF)
    return _of_source([rows], source)


def _of_source(tables: Iterable[pa.Table], source: str) -> list[str]:
    return [
        position
        for table in tables
        for name, position in zip(*(column.to_pylist() for column in table.columns), strict=True)
        if name == source
    ]

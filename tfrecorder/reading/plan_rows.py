"""Columns of the planned rows, from `plan.parquet`, without reading a shard."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout

if TYPE_CHECKING:
    import pyarrow as pa


def read_planned(
    directory: str, chosen: Callable[[pa.Schema], list[str] | None]
) -> pa.Table | None:
    """Some columns of the planned rows of a committed dataset, as an Arrow table.

    Args:
        chosen: given the schema of all columns, returns the names of those to read, or None.

    Returns:
        The columns in the order of these names; None if there is no plan or `chosen` returned
        None.

    Raises:
        DatasetError: the plan cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = os.path.join(directory, layout.PLAN_ROWS)
    if not storage.exists(path):
        return None
    try:
        # By its path: Arrow's threads would hold the bytes of a Python file, and a thread that
        # lets go of them while Python shuts down aborts the process (pyarrow 25).
        with (
            storage.local_copy(path) as copy,
            storage.open_seekable(copy),  # refuses what is not a file, such as a pipe
            pq.ParquetFile(copy, page_checksum_verification=True) as file,
        ):
            names = chosen(file.schema_arrow)
            if names is None:
                return None
            table: Any = file.read(columns=names, use_threads=False)
            return table.select(names)
    except (OSError, storage.UnreadableError, pa.ArrowException) as error:
        raise DatasetError(
            f"{path} cannot be read: {error}. `{command('verify', directory)}` checks every file."
        ) from error

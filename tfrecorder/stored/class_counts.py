"""How many records each class has, from the staged plan: no shard is read."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence

import numpy as np

from tfrecorder import storage
from tfrecorder.dataset import layout
from tfrecorder.dataset.lists import value_of
from tfrecorder.errors import DatasetError
from tfrecorder.schema import keys

#: For each split, the records of each class by its integer, ascending.
ClassCounts = dict[str, dict[int, int]]


def count_classes(directory: str, split_rows: Mapping[str, int]) -> ClassCounts | None:
    """The records of each class, split by split: planned rows less the rejected ones.

    Args:
        directory: of a committed dataset of this package.
        split_rows: the rows planned for each split, in the order of the plan.

    Returns:
        The counts; an empty dict for a split without labels.  None where the plan is not there, or
        has no single label a row.

    Raises:
        DatasetError: the plan or the list of rejects cannot be read.
    """
    columns = _plan_columns(directory)
    if columns is None:
        return None
    rows, labels = columns
    if len(rows) != sum(split_rows.values()):
        raise DatasetError(
            f"{os.path.join(directory, layout.PLAN_ROWS)} has {len(rows):,} rows, but "
            f"{sum(split_rows.values()):,} were planned. Copy it again; `tfrecorder verify "
            f"{directory}` checks every file."
        )
    kept = ~np.isin(rows, _rejected_rows(directory))
    counts: ClassCounts = {}
    start = 0
    for split, size in split_rows.items():
        of_split = slice(start, start + size)
        counts[split] = _count(labels[of_split][kept[of_split]])
        start += size
    return counts


def _plan_columns(directory: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Source row and label of every planned row, in the order of the plan."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = os.path.join(directory, layout.PLAN_ROWS)
    if not storage.exists(path):
        return None
    try:
        with (
            storage.open_seekable(path) as opened,
            pq.ParquetFile(opened, page_checksum_verification=True) as file,
        ):
            kinds = {field.name: field.type for field in file.schema_arrow}
            if any(kinds.get(name) != pa.int64() for name in ("row", "label")):
                return None
            # Two columns need no threads, and Arrow's can abort a process that ends right after.
            table = file.read(columns=["row", "label"], use_threads=False)
    except (OSError, storage.UnreadableError, pa.ArrowException) as error:
        raise DatasetError(
            f"{path} cannot be read: {error}. `tfrecorder verify {directory}` checks every file."
        ) from error
    return table.column("row").to_numpy(), table.column("label").to_numpy()


def _rejected_rows(directory: str) -> np.ndarray:
    return np.array([int(row[0]) for row in read_side_file(directory, layout.REJECTS)], np.int64)


def read_side_file(directory: str, name: str) -> Sequence[Sequence[str]]:
    """The rows of `rejects.csv` or `suspects.csv` without the header, with their exact values.

    Raises:
        DatasetError: it is not there, or is no such list.
    """
    path = os.path.join(directory, name)
    try:
        text = storage.read_bytes(path).decode()
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [list(map(value_of, line)) for line in lines][1:]
    except (storage.UnreadableError, ValueError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read: {error}. Copy it again.") from error
    if not all(row and row[0].isdecimal() for row in rows):
        raise DatasetError(
            f"{path} is damaged: a line of it has no row number. Copy it again; "
            f"`tfrecorder verify {directory}` checks every file."
        )
    return rows


def _count(labels: np.ndarray) -> dict[int, int]:
    numbers, counts = np.unique(labels[labels != keys.NO_LABEL], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

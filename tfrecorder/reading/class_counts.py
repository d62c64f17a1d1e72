"""How many records each class has, from the staged plan, without reading a shard."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import value_of
from tfrecorder.reading.plan_rows import read_planned
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import NO_LABEL, SOURCE_ID

if TYPE_CHECKING:
    import pyarrow as pa

#: For each split, the records of each class by its integer, ascending.
ClassCounts = dict[str, dict[int, int]]


def count_classes(
    directory: str, split_rows: Mapping[str, int], labels: Field
) -> ClassCounts | None:
    """The number of records of each class, split by split: planned rows minus rejects.

    Args:
        directory: of a committed dataset of this package.
        split_rows: the rows planned for each split, in the order of the plan.
        labels: the column with the classes.

    Returns:
        The counts; an empty dict for a split without labels.  None if there is no plan.

    Raises:
        DatasetError: the plan or the list of rejects cannot be read.
    """
    planned = _plan_columns(directory, labels.label_key or "")
    if planned is None:
        return None
    numbers, rows, classes = planned
    if len(numbers) != sum(split_rows.values()):
        raise DatasetError(
            f"{os.path.join(directory, layout.PLAN_ROWS)} has {len(numbers):,} rows, but "
            f"{sum(split_rows.values()):,} were planned. Copy it again; "
            f"`{command('verify', directory)}` checks every file."
        )
    kept = ~np.isin(numbers, rejected_rows(directory))
    ends = np.cumsum(list(split_rows.values()))
    places = np.searchsorted(rows, [0, *ends])
    return {
        split: _count(classes[start:end][kept[rows[start:end]]])
        for split, start, end in zip(split_rows, places, places[1:], strict=False)
    }


def _plan_columns(directory: str, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Three arrays: each planned row's source row, then a planned row and a class for each label.

    Planned rows are given by their position in the plan.  A class counts once per row.
    """
    import pyarrow as pa

    def chosen(schema: pa.Schema) -> list[str] | None:
        types = {field.name: field.type for field in schema}
        single, several = pa.int64(), pa.large_list(pa.int64())
        known = types.get(SOURCE_ID) == single and types.get(key) in (single, several)
        return [SOURCE_ID, key] if known else None

    table = read_planned(directory, chosen)
    if table is None:
        return None
    numbers, labels = table.columns
    labels = labels.combine_chunks()
    rows = np.arange(len(labels))
    if pa.types.is_large_list(labels.type):
        rows = np.repeat(rows, np.diff(labels.offsets.to_numpy()))
        rows, classes = np.unique([rows, labels.flatten().to_numpy()], axis=1)
        return numbers.to_numpy(), rows, classes
    return numbers.to_numpy(), rows, labels.to_numpy()


def rejected_rows(directory: str) -> np.ndarray:
    return np.array([int(row[0]) for row in read_side_file(directory, layout.REJECTS)], np.int64)


def read_side_file(directory: str, name: str) -> Sequence[Sequence[str]]:
    """The rows of `rejects.csv` or `suspects.csv` without the header, with their exact values.

    Raises:
        DatasetError: the file is missing or damaged.
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
            f"`{command('verify', directory)}` checks every file."
        )
    return rows


def _count(labels: np.ndarray) -> dict[int, int]:
    numbers, counts = np.unique(labels[labels != NO_LABEL], return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

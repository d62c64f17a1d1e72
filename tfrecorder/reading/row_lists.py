"""The lists of rows next to the shards: `rejects.csv` and `suspects.csv`."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Sequence

from tfrecorder import storage
from tfrecorder.display.commands import command
from tfrecorder.errors import DatasetError
from tfrecorder.format import layout
from tfrecorder.format.csv_cells import value_of


def read_row_list(directory: str, name: str) -> Sequence[Sequence[str]]:
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


def reject_counts(directory: str) -> dict[str, int]:
    """The rows that gave no record by "stage/code", the most frequent first."""
    rows = read_row_list(directory, layout.REJECTS)
    counts = Counter(f"{stage}/{reason.partition(':')[0]}" for _, _, stage, reason in rows)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

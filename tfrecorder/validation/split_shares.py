"""What became of the splits that were asked for: the shares that came out, and empty splits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from tfrecorder.display.tables import counted
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.splits import Division
from tfrecorder.validation.report import Finding


def describe_assigned(
    splits: pd.Series, was_open: np.ndarray, division: Division, groups: pd.Series | None
) -> str:
    """How the rows that came without a split got one, in words; "" if there were none.

    Args:
        splits: the splits of all rows.
        was_open: True for each row that came without one.
        division: the shares that were asked for.
        groups: for all rows, what rows that share a split have in common.
    """
    open_rows = int(was_open.sum())
    if not open_rows:
        return ""
    of_splits = splits[was_open].value_counts()
    counts = [(name, int(of_splits.get(name, 0))) for name in division.shares]
    shares = ", ".join(
        f"{name} {count:,} ({count / open_rows:.0%})" if count else f"{name} none"
        for name, count in counts
    )
    words = f"assigned to the {open_rows:,} of {counted(len(splits), 'row')} that had none"
    if groups is not None:
        column = groups.loc[splits.index][was_open]
        words += f", by the {counted(column.nunique(), 'value')} of {column.name!r}"
    return f"{words}: {shares}; asked for {division}"


def check_divided(splits: pd.Series, was_open: np.ndarray, division: Division) -> Iterator[Finding]:
    """Options about splits that had nothing to do, and splits that they left without a row."""
    if not division.asked:
        return
    if not was_open.any():
        given = ", ".join(division.asked)
        words = " and ".join(f"`{name}`" for name in division.asked)
        message = f"every row already has a split, so {words} assigned none"
        yield Finding("splits_ignored", [None], SPLIT_COLUMN, [given], message)
        return
    filled = set(splits.unique())
    empty = [name for name in division.shares if name not in filled]
    messages = [f"no row is in {name}, although you asked for {division}" for name in empty]
    yield Finding("empty_split", [None] * len(empty), SPLIT_COLUMN, empty, messages)

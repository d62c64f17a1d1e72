"""The numbers of a dataset's rows: each is given once."""

from __future__ import annotations

import pyarrow.compute as pc

from tfrecorder.format.plan import Plan
from tfrecorder.reading.commits import Commit
from tfrecorder.reading.merged_rows import known_rows
from tfrecorder.schema.keys import SOURCE_ID


def next_row_of(directory: str, newest: Commit | None) -> int:
    """The number that the next new row of a dataset gets: no row ever had it or a larger one.

    Args:
        newest: its newest commit; None if there is no dataset yet.

    Raises:
        DatasetError: nothing states the number, as in manifests of form 4, and a table that shows
            it cannot be read.
    """
    if newest is None:
        return 0
    if newest.plan.carried.next_row:
        return newest.plan.carried.next_row
    highest = counted_rows(newest.plan) - 1
    for rows in known_rows(directory, newest, [SOURCE_ID]):
        of_some = pc.max(rows.column(SOURCE_ID)).as_py()
        highest = max(highest, -1 if of_some is None else of_some)
    return highest + 1


def counted_rows(plan: Plan) -> int:
    """The rows of all sources, counted: what form 4 took for the next number.

    It is too small where an overwrite left rows out that were removed before.
    """
    return plan.first_row + plan.rows.in_source

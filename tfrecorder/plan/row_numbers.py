"""No two rows of a dataset have one number: what corrects or removes a row finds it by that."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder.core.arrays import Bools, Ints
from tfrecorder.errors import OutputError
from tfrecorder.format.plan_columns import COPY_OF, REJECT_OF
from tfrecorder.schema.keys import SOURCE_ID


def refuse_taken_numbers(
    where: str, planned: pa.Table, next_row: int, retried: Ints | None = None
) -> None:
    """Refuse planned rows of which two have one number, or a new one has a number that is given.

    Args:
        where: the dataset directory, for messages.
        planned: the rows of a plan.
        next_row: the number that the next new row of the dataset gets; 0 where it begins anew.
        retried: numbers of rejects that are tried again, which keep theirs.

    Raises:
        OutputError: a number is taken.
    """
    numbers = planned.column(SOURCE_ID).to_numpy()
    is_copy = _is_text(planned, COPY_OF.file)
    # Each attempt at a reject is kept, under the one number of its row.
    refuse_doubles(where, numbers[~(is_copy & _is_text(planned, REJECT_OF.reason))])
    new = numbers[~is_copy]
    if retried is not None:
        new = new[~np.isin(new, retried)]
    if len(new) and new.min() < next_row:
        raise OutputError(
            f"{where}: a new row would get the number {new.min()}, but the next free one is "
            f"{next_row}. Nothing was written. This must not happen: please report it."
        )


def _is_text(planned: pa.Table, name: str) -> Bools:
    """True for each row with a text in a column, which not every plan has."""
    if name not in planned.column_names:
        return np.zeros(len(planned), bool)
    return np.asarray(pc.not_equal(planned.column(name), "").to_numpy())


def _different(numbers: Ints) -> int:
    """How many different numbers there are."""
    lowest = numbers.min()
    span = int(numbers.max() - lowest) + 1
    if span > _MOST_FLAGS * len(numbers):
        return len(np.unique(numbers))
    # A flag a number takes a fraction of the memory and time that sorting 50,000,000 of them does.
    is_given = np.zeros(span, bool)
    is_given[numbers - lowest] = True
    return int(np.count_nonzero(is_given))


#: So many flags a number at the most: a repaired dataset may leave a range of numbers out.
_MOST_FLAGS = 64


def refuse_doubles(where: str, numbers: Ints) -> None:
    """Refuse numbers of which two are equal.

    Raises:
        OutputError: as `refuse_taken_numbers`.
    """
    if not len(numbers):
        return
    if _different(numbers) == len(numbers):
        return
    values, counts = np.unique(numbers, return_counts=True)
    double = values[counts > 1]
    raise OutputError(
        f"{where}: {len(double):,} row numbers stand for two records or more, such as {double[0]}, "
        "so what corrects or removes one could take another. Nothing was written. Convert "
        "`tfrecorder.to_frame(directory, images='bytes')` into a new directory, whose rows are "
        "numbered anew."
    )

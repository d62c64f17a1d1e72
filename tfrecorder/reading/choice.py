"""Which rows of a dataset are meant: by values and ranges of their columns, or by a function."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.core.option import did_you_mean
from tfrecorder.errors import OptionError
from tfrecorder.options.option import require
from tfrecorder.options.read import check_where
from tfrecorder.schema.keys import SPLIT_COLUMN
from tfrecorder.schema.splits import split_meant

Where = Mapping[str, Any] | Callable[[pd.DataFrame], Any]


def choose(
    frame: pd.DataFrame,
    where: Where,
    removed: Container[object] = (),
) -> tuple[np.ndarray, OptionError | None, list[str]]:
    """The rows of a frame for which a condition holds.

    Args:
        frame: the columns that a condition may name; a cell may hold a list of values.
        where: columns, all of which must agree, each with a value, a list of values, or a tuple of
            two numbers, which is a range with both ends in it, and without an end where it is None;
            or a function from the frame to True or False for each row.
        removed: values that rows had which were removed.

    Returns:
        True for each row that is meant; a fault if one of the values, or the whole, holds for no
        row; and the values that hold only for removed ones, which are no fault.

    Raises:
        OptionError: the condition cannot be understood.

    >>> frame = pd.DataFrame({"label": ["cat", "dog", "cat"], "age": [3, 7, 9]})
    >>> choose(frame, {"label": "cat", "age": (5, None)})[0]
    array([False, False,  True])
    """
    require(check_where, where=where)
    chosen = np.ones(len(frame), bool)
    fault = None
    gone = []
    if callable(where):
        chosen = _by_function(frame, where)
    else:
        for name, value in where.items():
            holds, absent, hint = _in_column(frame, name, value)
            chosen &= holds
            gone += [value for value in absent if value in removed]
            never = [value for value in absent if value not in removed]
            if never and fault is None:
                more = f", and {len(never) - 1:,} more" if never[1:] else ""
                words = f"no row has {name!r} {never[0]!r}{more}; {hint}"
                fault = OptionError.of("where", ..., words)
    if fault is None and not gone and not chosen.any():
        name = getattr(where, "__qualname__", "the function")
        shown = name if callable(where) else dict(where)
        fault = OptionError.of("where", shown, "it holds for no row.")
    return chosen, fault, gone


def _by_function(frame: pd.DataFrame, where: Callable[[pd.DataFrame], Any]) -> np.ndarray:
    mask = np.array(where(frame.copy()))
    if mask.dtype != bool or mask.shape != (len(frame),):
        raise OptionError.of(
            "where",
            ...,
            f"the function returned {mask.dtype} of shape {mask.shape}; it must return True or "
            f"False for each of the {len(frame):,} rows.",
        )
    return mask


def _in_column(
    frame: pd.DataFrame,
    name: str,
    value: Any,
) -> tuple[np.ndarray, list[Any], str]:
    """The rows with a value; the values that are in no row, and what to say of these."""
    if name not in frame:
        hint = did_you_mean(str(name), list(frame.columns))
        raise OptionError.of("where", ..., f"there is no column {name!r}; {hint}")
    column = frame[name]
    if isinstance(value, tuple):
        return _in_range(column, value), [], ""
    alone = isinstance(value, (str, bytes)) or not isinstance(value, Iterable)
    values = [value] if alone else list(value)
    hint = "write each exactly as the source did."
    if name == SPLIT_COLUMN:
        splits = column.unique().tolist()
        values = [split_meant(split, splits) for split in values]
        hint = f"there is {', '.join(map(repr, splits))}."
    if pd.api.types.is_numeric_dtype(column):
        values = [_number(name, number) for number in values]
    # A row of several classes has each of them.
    cells = column.explode() if column.dtype == object else column
    meant = cells.isin(values).to_numpy()
    present = {*cells[meant].unique()}
    absent = [value for value in values if value not in present]
    return meant if cells is column else frame.index.isin(cells.index[meant]), absent, hint


def _in_range(column: pd.Series, ends: tuple[Any, ...]) -> np.ndarray:
    if len(ends) != 2 or not pd.api.types.is_numeric_dtype(column):
        raise OptionError.of(
            "where",
            {column.name: ends},
            "a tuple is a range of numbers, such as `(18, None)`; give several values as a list.",
        )
    low, high = (end if end is None else _number(column.name, end) for end in ends)
    if low is not None and high is not None and low > high:
        raise OptionError.of(
            "where",
            {column.name: ends},
            "the ends of the range are the wrong way round; the lower one comes first.",
        )
    holds = column.notna().to_numpy(copy=True)
    if low is not None:
        holds &= (column >= low).to_numpy()
    if high is not None:
        holds &= (column <= high).to_numpy()
    return holds


def _number(name: Any, value: Any) -> Any:
    """A value of a column of numbers, which the command line gives as a text."""
    try:
        return value if not isinstance(value, str) else float(value)
    except ValueError:
        raise OptionError.of("where", {name: value}, "this is not a number.") from None

"""What the settings of a kind of column may be: each check gives a remedy, or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfrecorder.core.checks import OneOf, Size, Whole, name_of_dtype, parse_size
from tfrecorder.schema.keys import BOX_COLUMNS

DTYPES = ("float32", "int64", "bool")

#: The largest file that a record may be asked to hold: TensorFlow parses records below 2 GiB.
MOST_BYTES = 2**30


def check_name(value: Any) -> str | None:
    return None if value is None or isinstance(value, str) else "give the name of a column."


def check_label(value: Any) -> str | None:
    is_label = isinstance(value, (str, int)) and not isinstance(value, bool)
    return None if is_label else "give text or an integer."


def check_columns(columns: Any) -> str | None:
    is_list = isinstance(columns, Sequence) and not isinstance(columns, str)
    if not is_list or not all(isinstance(name, str) for name in columns):
        return "give a list of columns."
    return None if columns else "give at least one."


def check_edges(columns: Any) -> str | None:
    if fault := check_columns(columns):
        return fault
    words = "give 4: the columns of the left, upper, right and lower edge."
    return None if len(columns) == len(BOX_COLUMNS) else words


def check_shape(shape: Any) -> str | None:
    is_list = isinstance(shape, Sequence) and not isinstance(shape, str)
    if is_list and (tuple(shape) == (None,) or not any(map(Whole(1), shape))):
        return None
    return (
        "give () for one value, (None,) for a list of any length, or the sizes of an array, such "
        "as (3,) or (4, 4)."
    )


def check_max_bytes(size: Any) -> str | None:
    if fault := Size((1, "1 byte"), "100MB")(size):
        return fault
    return None if parse_size(size) <= MOST_BYTES else "give at most 1GiB, which a record can hold."


def check_depth(depth: Any) -> str | None:
    return None if depth in (8, 16) else "give 8 or 16, the bits of a channel."


def check_validator(value: Any) -> str | None:
    is_one = callable(value) or isinstance(value, str)
    return None if is_one else "give a function of bytes that raises an error for an unusable file."


def check_dtype(value: Any) -> str | None:
    if name_of_dtype(value) == "float64":
        return (
            "records of TensorFlow have no float64; give 'float32', 'int64' for whole numbers up "
            "to 64 bits, or Text() to keep all digits."
        )
    return OneOf(*DTYPES)(name_of_dtype(value))

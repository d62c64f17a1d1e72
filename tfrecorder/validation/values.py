"""Columns of numbers, texts and bytes: checked, converted to the schema's type, and described.

What the values of each column are like is for normalising layers and for people.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.schema.fields import Field, Fields
from tfrecorder.schema.keys import BOX_COLUMNS, NO_LABEL
from tfrecorder.schema.kinds import BEYOND_FLOAT32, FILES, Boxes, Bytes, Label, Number, Text
from tfrecorder.schema.splits import SPLITS
from tfrecorder.schema.statistics import Figures, Statistics
from tfrecorder.sources.finding import Finding, flag
from tfrecorder.sources.table import is_list, is_time
from tfrecorder.validation.columns import (
    Outcome,
    as_lists,
    check_unicode,
    has_faults,
    is_missing,
    list_in,
)

_TRUE = {"true": 1, "yes": 1, "1": 1, "false": 0, "no": 0, "0": 0}
_DTYPES = {"float32": np.float32, "int64": np.int64, "bool": np.int64}

#: float32 holds every whole number up to this one.
_WHOLE = 2.0**24

#: How many of the values are listed with their counts.
TOP_VALUES = 10

#: The name of what is described, all its values, and the row of each.
Described = tuple[str, Any, np.ndarray]


def check_values(field: Field, column: pd.Series) -> Outcome:
    """A column with one value or one array per row."""
    column, missing, findings = _filled(field, column)
    if has_faults(findings):
        return Outcome(field, {}, findings)
    array, faults = _check_cells(field, column)
    findings += faults
    values = {} if has_faults(findings) else {field.key: array}
    return Outcome(field, values, findings, missing=missing)


def default_of(field: Field) -> tuple[str, Any]:
    """The key of a column with one value per row, and its default as it is stored there."""
    if isinstance(field.kind, Label):
        return f"{field.key}/text", str(field.kind.default)
    stored = check_values(field, pd.Series([None], dtype=object)).values[field.key]
    return field.key, stored.to_pylist()[0]


def _filled(field: Field, column: pd.Series) -> tuple[pd.Series, np.ndarray, list[Finding]]:
    """The default for missing values, and which these are; a fault if there is no default."""
    kind: Any = field.kind
    missing = column.isna().to_numpy(dtype=bool)
    if isinstance(kind, Number):  # an empty text is a text, but not a number
        missing = column.map(is_missing).to_numpy(dtype=bool)
    if not missing.any():
        return column, missing, []
    if kind.default is None:
        return column, missing, [flag("missing_value", missing, column, "the value is missing")]
    # Go cell by cell: pandas would spread a list over the rows.
    cells = zip(column, missing, strict=True)
    values = [kind.default if is_missing else value for value, is_missing in cells]
    return pd.Series(values, column.index, dtype=object, name=column.name), missing, []


def _check_cells(field: Field, column: pd.Series) -> tuple[pa.Array | None, list[Finding]]:
    kind: Any = field.kind
    is_single = kind.shape == ()
    # A list: pandas' own text, which `map` would make of texts, cannot hold bad text.
    cells: list[Any] | None = None if is_single else _of_arrays(column.tolist(), kind)
    if cells is None:
        cells = [_single(value, kind) if is_single else _array(value, kind) for value in column]
    wrong = np.array([cell is None for cell in cells], bool)
    findings = [_wrong(field, column, wrong)]
    if wrong.any():
        return None, findings
    sizes = np.array([1 if is_single else cell.size for cell in cells], np.int64)
    if isinstance(kind, Number):
        dtype = _DTYPES[kind.dtype]
        arrays = [cells] if is_single else [cell.ravel() for cell in cells]
        stored = np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype)
        findings.append(_rounded(column, stored, sizes))
        values = pa.array(stored)
    else:
        texts = cells if is_single else [text for cell in cells for text in cell.ravel()]
        if isinstance(kind, Text):
            rows = np.repeat(column.index.to_numpy(), sizes)
            findings.append(check_unicode(pd.Series(texts, rows, object, column.name)))
        if has_faults(findings):
            return None, findings
        values = pa.array(texts, pa.large_string() if isinstance(kind, Text) else pa.large_binary())
    return values if is_single else as_lists(sizes, values), findings


def _of_arrays(cells: list[Any], kind: Any) -> list[np.ndarray] | None:
    """Arrays of numbers of one type as those of the wanted one, all together.

    None if they are anything else, or one of them does not fit: then each is looked at alone.
    """
    if not (cells and isinstance(kind, Number) and kind.shape == (None,)):
        return None
    if {(type(cell), getattr(cell, "ndim", 0)) for cell in cells} != {(np.ndarray, 1)}:
        return None
    if len({cell.dtype for cell in cells}) > 1:
        return None
    numbers = _numbers(np.concatenate(cells), kind.dtype)
    ends = np.cumsum([len(cell) for cell in cells])[:-1]
    return None if numbers is None else np.split(numbers, ends)


def _single(value: Any, kind: Any) -> Any:
    """One value of the wanted type, or None if it is not one."""
    if isinstance(kind, Number):
        return _number(value, kind.dtype)
    value = _as_bytes(value) if isinstance(kind, Bytes) else value
    return value if isinstance(value, bytes if isinstance(kind, Bytes) else str) else None


def _wrong(
    field: Field,
    column: pd.Series,
    wrong: np.ndarray,
) -> Finding:
    kind: Any = field.kind
    wanted = kind.dtype if isinstance(kind, Number) else kind.word
    if kind.shape == (None,):
        wanted = f"a list of {wanted}"
    elif kind.shape:
        wanted = f"a {wanted} array of shape {kind.shape}"
    column = column[wrong]  # alone: the text of an array takes longer than all else
    shown = column.map(repr).where(column.map(_is_container), column)
    # Arrays and lists cannot be in a report's column of values, but their text can.
    message = f"{{value!r}}, of type {{type}}, is not {wanted}"
    if len(column) and column.map(_is_container).all():
        message = f"{{value}} is not {wanted}"
    if column.map(is_time).any():
        message += f"; `frame[{field.column!r}].astype(str)` makes texts of dates and times"
    return flag("wrong_value", np.ones(len(column), bool), shown, message)


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray, dict))


def _number(value: Any, dtype: str) -> float | int | None:
    """One number of the wanted type, or None if it is not a number or does not fit."""
    if isinstance(value, str):
        return _number_of_text(value.strip(), dtype)
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if not isinstance(value, (int, float, np.integer, np.floating, Decimal)):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    if math.isinf(number) and number != value:  # a Decimal of as many
        return None
    if dtype == "float32":
        return number if abs(number) < BEYOND_FLOAT32 or not math.isfinite(number) else None
    # Not of the float, which a Decimal of many digits may round to.
    if not math.isfinite(number) or (whole := int(value)) != value:
        return None
    if dtype == "bool":
        return whole if whole in (0, 1) else None
    return whole if -(2**63) <= whole < 2**63 else None


def _number_of_text(text: str, dtype: str) -> float | int | None:
    if dtype == "bool":
        return _TRUE.get(text.lower())
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return None if number != number else _number(number, dtype)
    return None


def _rounded(
    column: pd.Series,
    stored: np.ndarray,
    sizes: np.ndarray,
) -> Finding:
    """Numbers that float32 changes by more than their fraction: those beyond `_WHOLE`.

    Args:
        stored: the numbers of all rows, as records hold them.
        sizes: how many numbers each row has.
    """
    large = np.abs(stored) >= _WHOLE if stored.dtype == np.float32 else np.zeros(0, bool)
    ends = np.cumsum(sizes)
    cells = column.array
    rows = []
    shown = []
    messages = []
    for place in np.unique(np.searchsorted(ends, np.flatnonzero(large), "right")).tolist():
        made = stored[ends[place] - sizes[place] : ends[place]].tolist()
        for old, new in zip(_given(cells[place]), made, strict=True):
            if old != new == new:
                rows.append(column.index[place])
                shown.append(old)
                messages.append(f"{old} is stored as {new:.0f}")
                break
    return Finding("rounded_number", rows, str(column.name), shown, messages)


def _given(cell: Any) -> list[Any]:
    """The numbers of a cell exactly as given, in C order."""
    if isinstance(cell, str):
        cell = list_in(cell) if cell.strip().startswith("[") else Decimal(cell.strip())
    scalar = isinstance(cell, (int, float, Decimal))
    return [cell] if scalar else np.asarray(cell).ravel().tolist()


def _as_bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytearray, memoryview, np.bytes_)) else value


def _array(value: Any, kind: Any) -> np.ndarray | None:
    """A value as an array of the wanted type and shape, or None if it is not one."""
    if isinstance(value, str):
        value = list_in(value)
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        value = np.asarray(value)
    if not is_list(value):
        return None
    array = _numbers(value, kind.dtype) if isinstance(kind, Number) else _objects(value, kind)
    if array is None:
        return None
    fits = array.ndim == 1 if kind.shape == (None,) else array.shape == kind.shape
    return array if fits else None


def _numbers(value: Any, dtype: str) -> np.ndarray | None:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return None
    if array.size == 0:
        return array.astype(_DTYPES[dtype])
    if array.dtype.kind == "O":  # Decimals, a None among the numbers, integers beyond 64 bits
        cells = [_number(cell, dtype) for cell in array.flat if isinstance(cell, Decimal)]
        if len(cells) < array.size or None in cells:
            return None
        return np.array(cells, _DTYPES[dtype]).reshape(array.shape)
    if dtype == "float32" and array.dtype.kind in "fiub":
        with np.errstate(over="ignore"):
            numbers = array.astype(np.float32)
        lost = np.isinf(numbers) & np.isfinite(array.astype(np.float64))
        return None if lost.any() else numbers
    if array.dtype.kind not in "iub" and not (
        array.dtype.kind == "f" and bool((np.isfinite(array) & (array % 1 == 0)).all())
    ):
        return None
    low, high = (0, 1) if dtype == "bool" else (-(2**63), 2**63 - 1)
    if int(array.min()) < low or int(array.max()) > high:
        return None
    return array.astype(np.int64)


def _objects(value: Any, kind: Any) -> np.ndarray | None:
    """Texts or bytes as an array of objects; its shape is that of the nested lists."""
    values = value.tolist() if isinstance(value, np.ndarray) else list(value)
    if len(kind.shape) == 1:
        values = list(map(_as_bytes, values))
    try:
        array = np.array(values, dtype=object)
    except ValueError:  # arrays of different shapes
        return None
    cls = bytes if isinstance(kind, Bytes) else str
    return array if all(isinstance(item, cls) for item in array.flat) else None


def describe_columns(
    fields: Fields,
    values: Mapping[str, pa.Array],
    splits: pd.Series,
    missing: Mapping[str, np.ndarray],
) -> Statistics:
    """Statistics by name and split, as JSON values; the name is that of the column.

    For numbers: count, min, max, mean and std (of the whole population), over all finite numbers,
    including those in lists and arrays.  For classes and texts: count, distinct, and the most
    frequent values with their counts.  For boxes: those of their classes, and under names such as
    "boxes x_min" those of the edges, in the unit of the source, of the area, and of the number per
    image.  Images, masks, bytes and columns without labels have none.

    Args:
        missing: for columns with a default, which rows have it because their value is missing:
            they are left out, and counted under "missing", if there are any.
    """
    of_split = {split: (splits == split).to_numpy() for split in SPLITS}
    of_split = {split: mask for split, mask in of_split.items() if mask.any()}
    statistics: Statistics = {}
    for field in fields:
        if isinstance(field.kind, (*FILES, Bytes)) or field.is_unlabelled:
            continue
        absent = missing.get(field.column, np.zeros(len(splits), bool))
        if isinstance(field.kind, Label):
            absent = absent | (values[f"{field.key}/label"].to_numpy() == NO_LABEL)
        for name, cells, rows in _described(field, values, len(splits)):
            statistics[name] = {
                split: {
                    **_figures_of(cells, (mask & ~absent)[rows]),
                    **_missing_figures(mask & absent),
                }
                for split, mask in of_split.items()
            }
    return statistics


def _missing_figures(rows: np.ndarray) -> Figures:
    return {"missing": int(rows.sum())} if rows.any() else {}


def _described(
    field: Field,
    values: Mapping[str, pa.Array],
    size: int,
) -> Iterator[Described]:
    """What is described of a column; of boxes their classes, number, edges and area."""
    name = field.column
    if not isinstance(field.kind, Boxes):
        key = field.key if field.key in values else field.features[-1].key
        yield name, *_flat_values(values[key])
        return
    cells, rows = _flat_values(values[field.features[-1].key])
    if field.label_key is not None:
        yield name, cells, rows
    yield f"{name} per image", np.bincount(rows, minlength=size), np.arange(size)
    edges = [_flat_values(values[key])[0] for key in field.edges]
    for edge, numbers in zip(BOX_COLUMNS, edges, strict=True):
        yield f"{name} {edge}", numbers, rows
    left, upper, right, lower = (edge.astype(np.float64) for edge in edges)
    yield f"{name} area", (right - left) * (lower - upper), rows


def _flat_values(array: pa.Array) -> tuple[Any, np.ndarray]:
    """All values of a column, texts in Arrow and numbers in NumPy, and the row of each."""
    rows = np.arange(len(array))
    if pa.types.is_large_list(array.type):
        rows = np.repeat(rows, np.diff(array.offsets.to_numpy()))
        array = array.flatten()
    is_number = pa.types.is_primitive(array.type)
    return array.to_numpy(zero_copy_only=False) if is_number else array, rows


def _figures_of(cells: Any, chosen: np.ndarray) -> Figures:
    is_number = isinstance(cells, np.ndarray)
    return (
        _figures_of_numbers(cells[chosen]) if is_number else _figures_of_texts(cells.filter(chosen))
    )


def _figures_of_numbers(numbers: np.ndarray) -> Figures:
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return {"count": 0}
    exact = finite.astype(np.float64)
    return {
        "count": len(finite),
        "min": finite.min().item(),
        "max": finite.max().item(),
        "mean": float(exact.mean()),
        "std": float(exact.std()),
    }


def _figures_of_texts(texts: pa.Array) -> Figures:
    counts = [[item["values"], item["counts"]] for item in texts.value_counts().to_pylist()]
    # By count, and alphabetically if equal: the same whatever the order of the rows.
    counts.sort(key=lambda pair: (-pair[1], pair[0]))
    top = counts[:TOP_VALUES]
    return {"count": len(texts), "distinct": len(counts), "top": top}

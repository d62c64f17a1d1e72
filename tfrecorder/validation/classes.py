"""Labels to integers, one per row or lists of them, with their vocabulary."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.display.tables import counted
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import BACKGROUND, NO_LABEL
from tfrecorder.schema.kinds import Boxes, Label, Labels
from tfrecorder.schema.labels import number_labels
from tfrecorder.sources.finding import Finding, flag
from tfrecorder.sources.table import as_objects, as_texts
from tfrecorder.validation.columns import check_labels, has_faults


class Outcome(NamedTuple):
    """A checked column.

    Attributes:
        field: the field with its vocabulary.
        values: by key; empty if there is a fault.
        findings: what is wrong.
        column: the uris or labels, None for a faulty one; None for other kinds.
        missing: marks the rows whose value is the default; None if no value was missing.
    """

    field: Field
    values: dict[str, pa.Array]
    findings: list[Finding]
    column: pd.Series | None = None
    missing: np.ndarray | None = None


def check_label(field: Field, column: pd.Series) -> Outcome:
    """A column with one class per row."""
    assert isinstance(field.kind, Label)
    default = field.kind.default
    missing = None
    if default is not None:
        column = as_objects(column)
        missing = (column.isna() | (column == "")).to_numpy(dtype=bool)
        column = column.where(~missing, default)
    made = number(field, column)
    if made.values and not field.num_classes:
        numbers = made.values[f"{field.key}/label"].to_numpy()
        made.findings.append(_check_gaps(field.column, numbers, made.field))
    return made._replace(missing=missing)


def _check_gaps(column: str, numbers: np.ndarray, field: Field) -> Finding:
    """Integers with gaps, such as 0, 10, 20: each missing number would be a class."""
    classes = field.num_classes or 0
    used = len(np.unique(numbers))
    if field.names is not None or used == classes:
        return Finding("label_gaps", [], column, [], "")
    present = counted(used, "is", "are")
    return Finding(
        "label_gaps",
        [None],
        column,
        [classes - 1],
        f"labels up to {classes - 1:,} make {classes:,} classes, but only {present} there",
    )


def unlabelled(field: Field, rows: int) -> Outcome:
    """A label that the source has no column for: no row has a class."""
    values = {
        f"{field.key}/label": pa.array(np.full(rows, NO_LABEL, np.int64)),
        f"{field.key}/text": pa.repeat(pa.scalar("", pa.large_string()), rows),
    }
    return Outcome(field, values, [])


def check_several(field: Field, columns: Sequence[pd.Series]) -> Outcome:
    """A column with any number of classes per row: lists, texts with a separator, or columns."""
    assert isinstance(field.kind, Labels)
    labels, findings = _as_lists(field.kind, columns)
    if has_faults(findings):
        return Outcome(field, {}, findings)
    labels = labels.rename(field.column)
    sizes = labels.map(len).to_numpy(dtype=np.int64)
    made = number(field, flatten(labels, sizes), sizes)
    return made._replace(findings=findings + made.findings)


def flatten(column: pd.Series, sizes: np.ndarray) -> pd.Series:
    """The values of all lists one after the other, each with its row's index."""
    cells = column.tolist()
    if cells and all(isinstance(values, np.ndarray) and values.ndim == 1 for values in cells):
        flat: Any = np.concatenate(cells).astype(object)
    else:
        flat = [value for values in cells for value in values]
    index = np.repeat(column.index.to_numpy(), sizes)
    return pd.Series(flat, index=index, dtype=object, name=column.name)


def number(field: Field, labels: pd.Series, sizes: np.ndarray | None = None) -> Outcome:
    """Labels as integers and as texts: one per row, or one after the other for lists of sizes."""
    kind: Any = field.kind
    checked, findings = check_labels(labels, kind.names)
    names = field.names or ()
    if isinstance(kind, Boxes) and kind.background_class:
        findings.append(_check_reserved(checked))
        names = names or ((BACKGROUND,) if len(checked) else ())
    if has_faults(findings):
        return Outcome(field, {}, findings, checked)
    numbers, texts, all_names = number_labels(checked, kind.names, names)
    arrays = [pa.array(numbers, pa.int64()), _arrow_texts(texts)]
    if sizes is not None:
        arrays = [as_lists(sizes, array) for array in arrays]
    values = {str(field.label_key): arrays[0], str(field.text_key): arrays[1]}
    return Outcome(_with_classes(field, checked, numbers, all_names), values, findings, checked)


def _check_reserved(labels: pd.Series) -> Finding:
    """Boxes of class 0, by its number or by its name."""
    zero = 0 if labels.dtype == np.int64 else BACKGROUND
    return flag(
        "reserved_label",
        labels.eq(zero).to_numpy(dtype=bool),
        labels,
        "label {value!r} is class 0, which `Boxes(background_class=True)` reserves",
    )


def _arrow_texts(texts: np.ndarray | pd.Series) -> pa.LargeStringArray:
    held = as_texts(texts) if isinstance(texts, pd.Series) else None
    return pa.array(texts, pa.large_string()) if held is None else held


def as_lists(sizes: np.ndarray, values: pa.Array) -> pa.Array:
    """Values given one after the other, as lists of these sizes."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def _with_classes(
    field: Field, checked: pd.Series, numbers: np.ndarray, names: tuple[str, ...] | None
) -> Field:
    if field.num_classes and not len(checked):
        return field
    integer = checked.dtype == np.int64
    count = max(int(numbers.max(initial=-1)) + 1, field.num_classes or 0)
    count = len(names) if names is not None else count
    return dataclasses.replace(field, names=names, num_classes=count, integer=integer)


def _as_lists(kind: Labels, columns: Sequence[pd.Series]) -> tuple[pd.Series, list[Finding]]:
    first = columns[0]
    if kind.columns is not None:
        rows = zip(*columns, strict=True)
        labels = [[label for label in row if label not in (None, "")] for row in rows]
        return pd.Series(labels, index=first.index, dtype=object), []
    missing = first.isna().to_numpy(dtype=bool)
    findings = [flag("missing_value", missing, first, "the labels are missing")]
    made = first.map(lambda value: _list_of(value, kind.separator))
    wrong = ~missing & made.isna().to_numpy(dtype=bool)
    hint = "" if kind.separator else "; to split text, give a separator"
    findings.append(flag("wrong_value", wrong, first, f"{{value!r}} is not a list of labels{hint}"))
    return made, findings


def _list_of(value: Any, separator: str | None) -> list[Any] | None:
    if isinstance(value, str):
        if separator is not None:
            return [part.strip() for part in value.split(separator)] if value.strip() else []
        value = list_in(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, (list, tuple)) else None


def list_in(text: str) -> Any:
    """A list as a CSV has it, in JSON or as pandas writes it; None for any other text.

    An array, as NumPy prints it, may have lost digits, so it is none.

    >>> list_in('["a"]'), list_in("['a', 'b']"), list_in("[nan, 1.0]"), list_in("[1. 2.]")
    (['a'], ['a', 'b'], [nan, 1.0], None)
    """
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    if not {*"\"'"} & {*text}:
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(_CONSTANT.sub(lambda match: _IN_JSON[match[0]], text))
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        made = ast.literal_eval(text.strip())
        # Python reads texts without a comma between them as one.
        if isinstance(made, list) and repr(made).split() == text.split():
            return made
    return None


#: Numbers as Python writes them in a list of numbers, and as JSON does.
_IN_JSON = {"nan": "NaN", "inf": "Infinity", "True": "true", "False": "false"}
_CONSTANT = re.compile("|".join(_IN_JSON))

"""Labels to integers, one a row or lists of them, with their vocabulary."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder.column_rules import at, check_labels, has_faults
from tfrecorder.kinds.columns import Label, Labels
from tfrecorder.kinds.fields import Field
from tfrecorder.labels import build_vocabulary
from tfrecorder.report import Finding

if TYPE_CHECKING:
    import pyarrow as pa

#: A checked column: its field with the vocabulary, its values by key, and what is wrong.
Outcome = tuple[Field, "dict[str, pa.Array]", list[Finding]]


def number_labels(
    column: pd.Series, given: tuple[str, ...] | None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...] | None]:
    """Integers and texts of checked labels, and the class names where there are any.

    Args:
        column: of int64, or of texts.
        given: all class names in the order of their integers; None takes those found.
    """
    if column.dtype == np.int64:
        numbers = column.to_numpy(dtype=np.int64)
        lookup, inverse = np.unique(numbers, return_inverse=True)
        texts = [str(number) if given is None else given[number] for number in lookup]
        return numbers, np.array(texts, dtype=object)[inverse], given
    codes, distinct = pd.factorize(column)
    names = build_vocabulary(distinct) if given is None else given
    place = {name: number for number, name in enumerate(names)}
    numbers = np.array([place[label] for label in distinct], dtype=np.int64)[codes]
    return numbers, column.to_numpy(dtype=object), names


def check_label(field: Field, column: pd.Series) -> Outcome:
    """A column with one class a row."""
    import pyarrow as pa

    assert isinstance(field.kind, Label)
    default = field.kind.default
    if default is not None:
        missing = (column.isna() | (column == "")).to_numpy(dtype=bool)
        column = column.where(~missing, default)
    checked, findings = check_labels(column, field.kind.names)
    if has_faults(findings):
        return field, {}, findings
    numbers, texts, names = number_labels(checked, field.kind.names)
    values = {
        f"{field.key}/label": pa.array(numbers, pa.int64()),
        f"{field.key}/text": pa.array(texts, pa.large_string()),
    }
    return _with_classes(field, numbers, names), values, findings


def check_several(field: Field, columns: Sequence[pd.Series]) -> Outcome:
    """A column with any number of classes a row: lists, texts with a separator, or columns."""
    assert isinstance(field.kind, Labels)
    lists, findings = _as_lists(field.kind, columns)
    if has_faults(findings):
        return field, {}, findings
    lists = lists.rename(field.column)
    keys = f"{field.key}/label", f"{field.key}/text"
    field, values, found = number_lists(field, lists, field.kind.names, keys)
    return field, values, findings + found


def number_lists(
    field: Field, lists: pd.Series, given: tuple[str, ...] | None, keys: tuple[str, str]
) -> Outcome:
    """Lists of labels as lists of integers and of texts, under two keys."""
    import pyarrow as pa

    sizes = lists.map(len).to_numpy(dtype=np.int64)
    flat = pd.Series(
        [label for labels in lists for label in labels],
        index=np.repeat(lists.index.to_numpy(), sizes),
        dtype=object,
        name=lists.name,
    )
    checked, findings = check_labels(flat, given)
    if has_faults(findings):
        return field, {}, findings
    numbers, texts, names = number_labels(checked, given)
    values = {
        keys[0]: as_lists(sizes, pa.array(numbers, pa.int64())),
        keys[1]: as_lists(sizes, pa.array(texts, pa.large_string())),
    }
    return _with_classes(field, numbers, names), values, findings


def as_lists(sizes: np.ndarray, values: pa.Array) -> pa.Array:
    """Values one after the other as lists of these sizes."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def _with_classes(field: Field, numbers: np.ndarray, names: tuple[str, ...] | None) -> Field:
    count = len(names) if names is not None else int(numbers.max(initial=-1)) + 1
    return dataclasses.replace(field, names=names, num_classes=count)


def _as_lists(kind: Labels, columns: Sequence[pd.Series]) -> tuple[pd.Series, list[Finding]]:
    first = columns[0]
    if kind.columns is not None:
        rows = zip(*columns, strict=True)
        found = [[label for label in row if not _is_missing(label)] for row in rows]
        return pd.Series(found, index=first.index, dtype=object), []
    missing = first.isna().to_numpy(dtype=bool)
    findings = [at("missing_value", missing, first, "the labels are missing")]
    made = first.map(lambda value: _list_of(value, kind.separator))
    wrong = ~missing & made.isna().to_numpy(dtype=bool)
    hint = "" if kind.separator else "; state a separator for texts"
    findings.append(at("wrong_value", wrong, first, f"{{value!r}} is no list of labels{hint}"))
    return made, findings


def _is_missing(label: Any) -> bool:
    return label is None or label == "" or (isinstance(label, float) and np.isnan(label))


def _list_of(value: Any, separator: str | None) -> list[Any] | None:
    if isinstance(value, str):
        if separator is not None:
            return [part.strip() for part in value.split(separator)] if value.strip() else []
        value = _from_json(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, (list, tuple)) else None


def _from_json(text: str) -> Any:
    """A list as a CSV holds it."""
    try:
        return json.loads(text)
    except ValueError:
        return None

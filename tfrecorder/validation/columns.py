"""Rules about single columns: uris, splits and labels; and labels as integers with a vocabulary.

Vectorised pandas; a rule goes row by row only through the rows it found.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.option import is_text
from tfrecorder.core.text import read_json
from tfrecorder.display.tables import counted
from tfrecorder.schema.fields import Field
from tfrecorder.schema.keys import BACKGROUND, NO_LABEL
from tfrecorder.schema.kinds import Boxes, Label, Labels
from tfrecorder.schema.labels import in_one_form, number_labels
from tfrecorder.schema.splits import parse_splits
from tfrecorder.sources.cells import CellFault
from tfrecorder.sources.finding import Finding, flag
from tfrecorder.sources.table import as_objects, as_texts, is_list

#: How many uris have their schemes checked together.
_TOGETHER = 2**16

#: Numbers as Python writes them in a list of numbers, and as JSON does.
_IN_JSON = {"nan": "NaN", "inf": "Infinity", "True": "true", "False": "false"}
_CONSTANT = re.compile("|".join(_IN_JSON))


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


def has_faults(findings: Iterable[Finding]) -> bool:
    """True if any finding is an error, beyond warnings."""
    return any(len(finding.rows) and finding.is_error for finding in findings)


def is_missing(value: object) -> bool:
    """True for a cell of `as_objects` that holds no value, or a text without a character."""
    return value is None or (isinstance(value, str) and not value.strip())


def sound_uris(column: pd.Series) -> pa.LargeStringArray | None:
    """Texts in which `check_uris` would find nothing, in Arrow; None for any others."""
    texts = as_texts(column)
    if texts is None or pc.any(pc.equal(texts, "")).as_py():
        return None
    for start in range(0, len(texts), _TOGETHER):
        block = texts.slice(start, _TOGETHER)
        with_scheme = block.filter(pc.match_substring(block, "://"))
        heads = pc.list_element(pc.split_pattern(with_scheme, "://", max_splits=1), 0)
        for head in heads.unique().to_pylist():
            if _refusal(storage.scheme(f"{head}://")) is not None:
                return None
    return texts


def check_uris(column: pd.Series) -> tuple[pd.Series, list[Finding]]:
    """A column of Python values with None for what is no uri, and what is wrong with it."""
    cells = [cell.__fspath__() if hasattr(cell, "__fspath__") else cell for cell in column]
    # As Python values: pandas' own text, which `map` would make of them, cannot hold bad text.
    column = pd.Series(cells, column.index, object, column.name)
    is_wrong = np.array([not isinstance(cell, (str, type(None))) for cell in cells], bool)
    no_uris = column[is_wrong]
    faults = [_fault(value) for value in no_uris]
    reasons = [reason for reason, _ in faults]
    shown = [shown for _, shown in faults]
    column = column.where(~is_wrong, None)
    is_null = ~is_wrong & (column.isna() | (column == "")).to_numpy(dtype=bool)
    schemes = column[column.str.contains("://", regex=False, na=False)].map(storage.scheme)
    why = {kind: _refusal(kind) for kind in schemes.unique()}
    schemes = schemes[[why[kind] is not None for kind in schemes]]
    uris = column[schemes.index].tolist()
    messages = [
        f"images cannot be read from {kind}://: {why[kind]}: {uri!r}"
        for kind, uri in zip(schemes, uris, strict=True)
    ]
    name = str(column.name)
    return column, [
        flag("null_uri", is_null, column, "the image is missing"),
        Finding("not_text", list(no_uris.index), name, shown, reasons),
        check_unicode(column),
        Finding("unsupported_scheme", list(schemes.index), name, uris, messages),
    ]


def _refusal(kind: str) -> str | None:
    return None if kind in storage.WEB else storage.refusal(kind)


def _fault(value: Any) -> tuple[str, Any]:
    """What is wrong with a cell that is no uri, and what is shown of it: never an image's bytes."""
    if isinstance(value, CellFault):
        return value.reason, value.shown
    shown = value
    if isinstance(value, (bytes, bytearray, memoryview)):
        shown = counted(len(value), "byte")
    elif hasattr(value, "shape"):
        shown = f"an array of shape {tuple(value.shape)}"
    words = shown if isinstance(shown, str) else f"of type {type(value).__name__}: {value!r:.60}"
    return f"the image is neither a path nor the bytes of a file, but {words}", shown


def check_unicode(column: pd.Series) -> Finding:
    """Find lone surrogates, which stand for bytes of a file name that are not UTF-8."""
    texts = column.dropna()
    bad = texts[[not is_text(text) for text in texts]]
    shown = [ascii(text) for text in bad]
    messages = [f"the text is not valid Unicode: {text}" for text in shown]
    return Finding("bad_text", list(bad.index), str(column.name), shown, messages)


def check_splits(column: pd.Series) -> tuple[pd.Series, Finding]:
    """The split of each row from its word: TRAIN, VALIDATION, TEST, or UNASSIGNED."""
    splits = parse_splits(column)
    wrong = splits.isna().to_numpy()
    return splits, flag("unknown_split", wrong, column, "{value!r} is not a split")


def _is_empty(labels: pd.Series) -> np.ndarray:
    """Which labels are missing; a list is none."""
    if (texts := as_texts(labels)) is not None:
        return pc.equal(texts, "").to_numpy(zero_copy_only=False)
    if pd.api.types.is_numeric_dtype(labels.dtype):
        return labels.isna().to_numpy(dtype=bool)
    cells = as_objects(labels)
    return np.array([cell is None or (isinstance(cell, str) and not cell) for cell in cells], bool)


def _is_no_label(labels: pd.Series) -> np.ndarray:
    """Which labels are the number that stands for none."""
    if isinstance(labels.dtype, pd.StringDtype):
        return np.zeros(len(labels), bool)
    if pd.api.types.is_numeric_dtype(labels.dtype):
        return (labels == NO_LABEL).fillna(False).to_numpy(dtype=bool)
    return np.array([isinstance(cell, Integral) and cell == NO_LABEL for cell in labels], bool)


def check_label(
    field: Field,
    column: pd.Series,
    tested: np.ndarray,
    is_optional: bool,
) -> Outcome:
    """A column with one class per row.

    Args:
        tested: the rows of TEST, which may lack it if all of these do.
        is_optional: any row may lack it.
    """
    assert isinstance(field.kind, Label)
    default = None if field.kind.default in (NO_LABEL, "") else field.kind.default
    missing = None
    labelled = np.ones(len(column), bool)
    if default is not None:
        missing = _is_empty(column)
        column = as_objects(column).where(~missing, default)
    elif is_optional or tested.any():
        without = (_is_empty(column) | _is_no_label(column)) & (is_optional | tested)
        if is_optional or without[tested].all():
            labelled = ~without
    if not labelled.any():
        return unlabelled(field, len(column))
    made = numbered_classes(field, column if labelled.all() else column[labelled])
    if made.values and not field.num_classes:
        numbers = made.values[f"{field.key}/label"].to_numpy()
        made.findings.append(_check_gaps(field.column, numbers, made.field))
    if not labelled.all():
        made = _with_unlabelled(made, labelled, column.index)
    return made._replace(missing=missing)


def _with_unlabelled(
    made: Outcome,
    labelled: np.ndarray,
    index: pd.Index,
) -> Outcome:
    """The outcome of the rows that have a class as that of all rows."""
    places = pa.array(np.cumsum(labelled) - 1, mask=~labelled)
    values = {}
    for key, array in made.values.items():
        none: Any = NO_LABEL if pa.types.is_integer(array.type) else ""
        values[key] = array.take(places).fill_null(none)
    column = made.column
    if column is not None:
        column = as_objects(column.astype(object).reindex(index))
    return made._replace(values=values, column=column)


def _check_gaps(
    column: str,
    numbers: np.ndarray,
    field: Field,
) -> Finding:
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
    made = numbered_classes(field, flatten(labels, sizes), sizes)
    return made._replace(findings=findings + made.findings)


def flatten(column: pd.Series, sizes: np.ndarray) -> pd.Series:
    """The values of all lists one after the other, each with its row's index."""
    cells = column.tolist()
    if cells and all(isinstance(values, np.ndarray) and values.ndim == 1 for values in cells):
        flat: Any = np.concatenate(cells).astype(object)
    else:
        flat = [value for values in cells for value in values]
    index = np.repeat(column.index.to_numpy(), sizes)
    return pd.Series(
        flat,
        index=index,
        dtype=object,
        name=column.name,
    )


def numbered_classes(
    field: Field,
    labels: pd.Series,
    sizes: np.ndarray | None = None,
) -> Outcome:
    """Labels as integers and as texts: one per row, or one after the other for lists of sizes."""
    kind: Any = field.kind
    names = field.names or ()
    labels = in_one_form(labels, [*names, *(kind.names or ())])
    checked, findings = check_labels(labels, kind.names)
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
    field: Field,
    checked: pd.Series,
    numbers: np.ndarray,
    names: tuple[str, ...] | None,
) -> Field:
    if field.num_classes and not len(checked):
        return field
    integer = checked.dtype == np.int64
    count = max(int(numbers.max(initial=-1)) + 1, field.num_classes or 0)
    count = len(names) if names is not None else count
    return dataclasses.replace(
        field,
        names=names,
        num_classes=count,
        integer=integer,
    )


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
    with contextlib.suppress(ValueError):
        return read_json(text)
    if not {*"\"'"} & {*text}:
        with contextlib.suppress(ValueError):
            return read_json(_CONSTANT.sub(lambda match: _IN_JSON[match[0]], text))
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        made = ast.literal_eval(text.strip())
        # Python reads texts without a comma between them as one.
        if isinstance(made, list) and repr(made).split() == text.split():
            return made
    return None


def check_labels(column: pd.Series, names: Sequence[str] | None) -> tuple[pd.Series, list[Finding]]:
    if (texts := as_texts(column)) is not None:
        distinct = set(texts.unique().to_pylist())
        if "" not in distinct and (names is None or distinct.issubset(names)):
            return column, []
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu":
        return _check_integers(column, np.zeros(len(column), bool), names, [])
    null = _is_empty(column)
    column = as_objects(column)
    findings = [flag("null_label", null, column, "the label is missing")]
    given = column[~null]
    kind = pd.api.types.infer_dtype(given, skipna=True)
    if kind == "boolean":
        # False and True become the classes "False" and "True", numbered 0 and 1.
        given = given.astype(str).astype(object)
        kind = "string"
        column = column.where(null, given)
    if kind in ("floating", "mixed-integer-float", "decimal") and bool((given % 1 == 0).all()):
        kind = "integer"  # pandas turns integers into floats if one is missing
    if kind in ("string", "empty"):
        findings.append(check_unicode(column))
        if names is not None:
            unknown = ~null & ~column.isin(list(names)).to_numpy()
            findings.append(
                flag(
                    "unknown_label",
                    unknown,
                    column,
                    "label {value!r} is not among the given labels",
                )
            )
        return column.where(~null, None), findings
    if kind == "integer":
        return _check_integers(column, null, names, findings)
    findings.append(_check_types(column, given, null))
    # Labels of a type that the other rules do not know would only make them fail.
    return pd.Series(
        None,
        index=column.index,
        dtype=object,
        name=column.name,
    ), findings


def _check_types(
    column: pd.Series,
    given: pd.Series,
    null: np.ndarray,
) -> Finding:
    """Labels that are neither all text nor all integers; those of one row have one index."""
    wrong = np.zeros(len(column), bool)
    types = given.map(lambda label: type(label).__name__)
    usable = given.map(_is_text_or_whole)
    if not usable.all():
        wrong[~null] = ~usable
        are_lists = column.map(is_list).to_numpy(dtype=bool)
        if are_lists.any():  # a report holds no lists, but their text
            return flag(
                "unsupported_label",
                are_lists,
                column.where(~are_lists, column.map(repr)),
                "{value} is a list of labels, which `Labels()` in the schema is for",
            )
        return flag(
            "unsupported_label",
            wrong,
            column,
            "label {value!r}, of type {type}, is neither text nor an integer",
        )
    counts = types.value_counts()
    wrong[~null] = types != counts.index[0]
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return flag(
        "mixed_label_types",
        wrong,
        column,
        f"labels are of several types ({shown}): {{value!r}} is of type {{type}}",
    )


def _is_text_or_whole(label: Any) -> bool:
    if isinstance(label, (float, np.floating, Decimal)):
        return float(label).is_integer()
    return isinstance(label, (str, int, np.integer))


def _check_integers(
    column: pd.Series,
    null: np.ndarray,
    names: Sequence[str] | None,
    findings: list[Finding],
) -> tuple[pd.Series, list[Finding]]:
    filled = column.where(~null, 0)
    too_large = ((filled >= 2**63) | (filled <= -(2**63))).to_numpy(dtype=bool)
    findings.append(
        flag("unsupported_label", too_large, column, "label {value!r} does not fit in 64 bits")
    )
    numbers = filled.where(~too_large, 0).astype("int64")
    negative = (numbers < 0).to_numpy()
    findings.append(flag("negative_label", negative, column, "label {value!r} is negative"))
    if names is not None:
        beyond = (numbers >= len(names)).to_numpy()
        findings.append(
            flag(
                "unknown_label",
                beyond,
                column,
                f"label {{value!r}} is too high: the given labels end at {len(names) - 1}",
            )
        )
    wrong = null | too_large | negative
    return (numbers.astype(object).where(~wrong, None) if wrong.any() else numbers), findings

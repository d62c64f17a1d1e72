"""Rules about single columns: uris, splits, labels.

Vectorised pandas; a rule goes row by row only through the rows it found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tfrecorder import storage
from tfrecorder.core.checks import is_text
from tfrecorder.display.tables import counted
from tfrecorder.schema.splits import parse_splits
from tfrecorder.sources.cells import CellFault
from tfrecorder.sources.finding import Finding, flag
from tfrecorder.sources.table import as_objects, as_texts

#: How many uris have their schemes checked together.
_TOGETHER = 2**16


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


def check_labels(column: pd.Series, names: Sequence[str] | None) -> tuple[pd.Series, list[Finding]]:
    if (texts := as_texts(column)) is not None:
        distinct = set(texts.unique().to_pylist())
        if "" not in distinct and (names is None or distinct.issubset(names)):
            return column, []
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iu":
        return _check_integers(column, np.zeros(len(column), bool), names, [])
    column = as_objects(column)
    null = (column.isna() | (column == "")).to_numpy(dtype=bool)
    findings = [flag("null_label", null, column, "the label is missing")]
    given = column[~null]
    kind = pd.api.types.infer_dtype(given, skipna=True)
    if kind == "boolean":
        # False and True become the classes "False" and "True", numbered 0 and 1.
        given = given.astype(str).astype(object)
        kind = "string"
        column = column.where(null, given)
    if kind in ("floating", "mixed-integer-float") and bool((given % 1 == 0).all()):
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
    findings.append(_check_types(column, given))
    # Labels of a type that the other rules do not know would only make them fail.
    return pd.Series(None, index=column.index, dtype=object, name=column.name), findings


def _check_types(column: pd.Series, given: pd.Series) -> Finding:
    """Labels that are neither all text nor all integers."""
    types = given.map(lambda label: type(label).__name__)
    usable = given.map(_is_text_or_whole)
    if not usable.all():
        wrong = (~usable).reindex(column.index, fill_value=False).to_numpy(dtype=bool)
        return flag(
            "unsupported_label",
            wrong,
            column,
            "label {value!r}, of type {type}, is neither text nor an integer",
        )
    counts = types.value_counts()
    odd = (types != counts.index[0]).reindex(column.index, fill_value=False).to_numpy(dtype=bool)
    shown = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return flag(
        "mixed_label_types",
        odd,
        column,
        f"labels are of several types ({shown}): {{value!r}} is of type {{type}}",
    )


def _is_text_or_whole(label: Any) -> bool:
    if isinstance(label, (float, np.floating)):
        return float(label).is_integer()
    return isinstance(label, (str, int, np.integer))


def _check_integers(
    column: pd.Series, null: np.ndarray, names: Sequence[str] | None, findings: list[Finding]
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

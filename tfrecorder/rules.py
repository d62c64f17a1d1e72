"""Validation: every fault of a frame at once, before anything runs, and the frame made uniform.

Works on the whole frame with vectorised pandas; a rule looks row by row only at what it found.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder import storage
from tfrecorder.report import Finding, build_report
from tfrecorder.schema import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.sources import Source
from tfrecorder.splits import UNASSIGNED, assign_splits, parse_splits

FEW_IMAGES = 10

#: Other names that people give to our columns, for the suggestion.
_SYNONYMS = {
    URI_COLUMN: ("uri", "url", "path", "file", "filename", "file_name", "filepath", "image", "img"),
    LABEL_COLUMN: ("labels", "class", "category", "target", "class_name", "y"),
    SPLIT_COLUMN: ("set", "subset", "ml_use", "partition", "fold"),
}


@dataclass(frozen=True)
class Checked:
    """A validated table.

    Attributes:
        frame: columns split (TRAIN, VALIDATION or TEST), image_uri (str), and label (str, or
            int64) where the source has one; index 0 to n-1.  Whole only if the report holds no
            error.
        findings: every fault and warning.
    """

    frame: pd.DataFrame
    findings: tuple[Finding, ...]

    @cached_property
    def report(self) -> pd.DataFrame:
        """The findings as `report.build_report` shows them."""
        return build_report(self.findings)

    @property
    def label_kind(self) -> str:
        """What the labels are: "text", "integer" or "none"."""
        if LABEL_COLUMN not in self.frame:
            return "none"
        return "integer" if self.frame[LABEL_COLUMN].dtype == np.int64 else "text"


def check_source(source: Source, seed: int = 0, labels: Sequence[str] | None = None) -> Checked:
    """Apply every rule to a source's table.

    Args:
        source: the table.
        seed: of the assignment of rows without a split.
        labels: all class names, where given.
    """
    frame = pd.DataFrame(index=source.frame.index)
    findings = [*_check_columns(source)]
    if not len(source.frame):
        findings.append(Finding("empty_frame", [None], "", [None], "the table has no rows"))
    if URI_COLUMN in source.frame:
        frame[URI_COLUMN], found = _check_uris(_as_objects(source.frame[URI_COLUMN]))
        findings += found
    frame[SPLIT_COLUMN], found = _check_splits(source, frame, seed)
    findings += found
    if LABEL_COLUMN in source.frame:
        column, found = _check_labels(_as_objects(source.frame[LABEL_COLUMN]), labels)
        findings += found
        frame[LABEL_COLUMN] = column
    if not any(finding.code == "missing_column" for finding in findings):
        findings += _check_rows(frame)
    return Checked(frame, tuple(findings))


def _as_objects(column: pd.Series) -> pd.Series:
    """Any column - object, string, categorical, Arrow - as Python values, None where missing."""
    return column.astype(object).where(column.notna(), None)


def _check_columns(source: Source) -> Iterator[Finding]:
    present, others = list(source.frame.columns), list(source.left_out)
    suggested = set()
    for wanted in (URI_COLUMN, LABEL_COLUMN, SPLIT_COLUMN):
        if wanted in present:
            continue
        near = _nearest(wanted, others)
        if near is not None:
            suggested.add(near)
            message = f"there is no column {wanted!r}; is it {near!r}?"
            yield Finding("missing_column", [None], wanted, [near], message)
        elif wanted == URI_COLUMN:
            message = f"there is no column {wanted!r}; the columns are {present + others}"
            yield Finding("missing_column", [None], wanted, [others[0] if others else "…"], message)
    for name in others:
        if name not in suggested:
            yield Finding("column_left_out", [None], name, [name], f"column {name!r} is left out")


def _nearest(wanted: str, names: list[str]) -> str | None:
    by_lower = {name.strip().lower(): name for name in names}
    for synonym in _SYNONYMS[wanted]:
        if synonym in by_lower:
            return by_lower[synonym]
    near = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


def _check_uris(column: pd.Series) -> tuple[pd.Series, list[Finding]]:
    if pd.api.types.infer_dtype(column, skipna=True) not in ("string", "empty"):
        column = column.map(lambda uri: uri.__fspath__() if hasattr(uri, "__fspath__") else uri)
    null = (column.isna() | (column == "")).to_numpy()
    findings = [_at("null_uri", null, column, "the image is missing")]
    if pd.api.types.infer_dtype(column, skipna=True) not in ("string", "empty"):
        wrong = ~null & ~column.map(lambda uri: isinstance(uri, str)).to_numpy(dtype=bool)
        message = "the image is of type {type}, not text: {value!r}"
        findings.append(_at("not_text", wrong, column, message))
        column = column.where(~wrong, None)
    findings.append(_check_unicode(column))
    with_scheme = column.str.contains("://", regex=False, na=False)
    schemes = column[with_scheme].map(storage.scheme)
    why = {kind: storage.refusal(kind) for kind in schemes.unique()}
    refused = schemes.index[schemes.map(lambda kind: why[kind] is not None).to_numpy(dtype=bool)]
    values = column.loc[refused].tolist()
    messages = [
        f"images cannot be read from {kind}://: {why[kind]}: {uri!r}"
        for uri in values
        for kind in (storage.scheme(uri),)
    ]
    findings.append(Finding("unsupported_scheme", list(refused), URI_COLUMN, values, messages))
    return column, findings


def _check_unicode(column: pd.Series) -> Finding:
    """Lone surrogates, which stand for bytes of a file name that are not UTF-8."""
    texts = column.dropna()
    try:
        "".join(texts.unique().tolist()).encode()
        bad = texts.iloc[:0]
    except UnicodeEncodeError:
        bad = texts[texts.map(lambda text: text != text.encode(errors="replace").decode())]
    shown = [ascii(text) for text in bad]
    messages = [f"the text is no valid Unicode: {text}" for text in shown]
    return Finding("bad_text", list(bad.index), str(column.name), shown, messages)


def _check_splits(
    source: Source, frame: pd.DataFrame, seed: int
) -> tuple[pd.Series, list[Finding]]:
    """The split of every row, those without one assigned by the hash of their uri."""
    findings = []
    if SPLIT_COLUMN in source.frame:
        column = _as_objects(source.frame[SPLIT_COLUMN])
        splits = parse_splits(column)
        wrong = splits.isna().to_numpy()
        message = "{value!r} is no split"
        findings.append(_at("unknown_split", wrong, column, message))
    else:
        splits = pd.Series(UNASSIGNED, index=frame.index, dtype=object)
    if URI_COLUMN in frame:
        open_rows = (splits == UNASSIGNED) & frame[URI_COLUMN].notna()
        uris = [uri.encode(errors="replace").decode() for uri in frame.loc[open_rows, URI_COLUMN]]
        splits = splits.astype(object)
        splits[open_rows] = assign_splits(uris, seed)
    return splits, findings


def _check_labels(
    column: pd.Series, names: Sequence[str] | None
) -> tuple[pd.Series, list[Finding]]:
    null = (column.isna() | (column == "")).to_numpy(dtype=bool)
    findings = [_at("null_label", null, column, "the label is missing")]
    given = column[~null]
    kind = pd.api.types.infer_dtype(given, skipna=True)
    if kind == "boolean":
        # False and True as the classes "False" and "True", numbered 0 and 1.
        given, kind = given.astype(str).astype(object), "string"
        column = column.where(null, given)
    if kind in ("floating", "mixed-integer-float") and bool((given % 1 == 0).all()):
        kind = "integer"  # pandas makes integers floating where one is missing
    if kind in ("string", "empty"):
        findings.append(_check_unicode(column))
        if names is not None:
            unknown = ~null & ~column.isin(list(names)).to_numpy()
            message = "label {value!r} is not among the given labels"
            findings.append(_at("unknown_label", unknown, column, message))
        return column.where(~null, None), findings
    if kind == "integer":
        return _check_integers(column, null, names, findings)
    findings.append(_check_types(column, given))
    # Labels of no type that the other rules know would only make them fail.
    return pd.Series(None, index=column.index, dtype=object, name=column.name), findings


def _check_types(column: pd.Series, given: pd.Series) -> Finding:
    """Labels that are neither all text nor all integers."""
    types = given.map(lambda label: type(label).__name__)
    usable = given.map(_is_text_or_whole)
    if not usable.all():
        wrong = (~usable).reindex(column.index, fill_value=False).to_numpy(dtype=bool)
        message = "label {value!r}, of type {type}, is neither text nor an integer"
        return _at("unsupported_label", wrong, column, message)
    counts = types.value_counts()
    odd = (types != counts.index[0]).reindex(column.index, fill_value=False).to_numpy(dtype=bool)
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    message = f"labels are of several types ({found}): {{value!r}} is of type {{type}}"
    return _at("mixed_label_types", odd, column, message)


def _is_text_or_whole(label: Any) -> bool:
    if isinstance(label, (float, np.floating)):
        return float(label).is_integer()
    return isinstance(label, (str, int, np.integer))


def _check_integers(
    column: pd.Series, null: np.ndarray, names: Sequence[str] | None, findings: list[Finding]
) -> tuple[pd.Series, list[Finding]]:
    filled = column.where(~null, 0)
    too_large = filled.map(lambda label: abs(int(label)) >= 2**63).to_numpy(dtype=bool)
    message = "label {value!r} does not fit 64 bits"
    findings.append(_at("unsupported_label", too_large, column, message))
    numbers = filled.where(~too_large, 0).astype("int64")
    negative = (numbers < 0).to_numpy()
    findings.append(_at("negative_label", negative, column, "label {value!r} is negative"))
    if names is not None:
        beyond = (numbers >= len(names)).to_numpy()
        message = f"label {{value!r}} is beyond the {len(names)} given labels"
        findings.append(_at("unknown_label", beyond, column, message))
    wrong = null | too_large | negative
    return (numbers.astype(object).where(~wrong, None) if wrong.any() else numbers), findings


def _check_rows(frame: pd.DataFrame) -> Iterator[Finding]:
    """Warnings about rows and labels in relation to each other."""
    split, uri = frame[SPLIT_COLUMN], frame[URI_COLUMN]
    if len(frame) and not (split == "TRAIN").any():
        yield Finding("no_train", [None], SPLIT_COLUMN, [None], "no row is in TRAIN")
    yield from _check_repeated(frame[uri.notna() & uri.duplicated(keep=False)])
    if LABEL_COLUMN in frame:
        yield from _check_classes(frame[[SPLIT_COLUMN, LABEL_COLUMN]].dropna())


def _check_repeated(rows: pd.DataFrame) -> Iterator[Finding]:
    """Among rows whose uri appears more than once."""
    if rows.empty:
        return
    uri = rows[URI_COLUMN]
    several = rows.groupby(URI_COLUMN, sort=False)[SPLIT_COLUMN].transform("nunique") > 1
    message = "{value!r} is in more than one split"
    yield _at("leakage", several.to_numpy(), uri, message)
    yield _at("duplicate_row", rows.duplicated().to_numpy(), uri, "{value!r}: same row as before")
    if LABEL_COLUMN in rows:
        labels = rows.groupby(URI_COLUMN, sort=False)[LABEL_COLUMN].transform("nunique") > 1
        message = "{value!r} has more than one label"
        yield _at("conflicting_labels", labels.to_numpy(), uri, message)


def _check_classes(rows: pd.DataFrame) -> Iterator[Finding]:
    counts = rows[LABEL_COLUMN].value_counts(sort=False)
    alike: dict[str, list[Any]] = {}
    for label in counts.index:
        if isinstance(label, str):
            alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    groups = [same for same in alike.values() if len(same) > 1]
    yield _whole_frame(
        "similar_labels",
        [(same[0], f"labels {same} differ only in case or white space") for same in groups],
    )
    trained = set(rows.loc[rows[SPLIT_COLUMN] == "TRAIN", LABEL_COLUMN].unique())
    if trained:
        absent = [label for label in counts.index if label not in trained]
        yield _whole_frame(
            "label_not_in_train", [(label, f"label {label!r} is not in TRAIN") for label in absent]
        )
    few = counts[counts < FEW_IMAGES]
    yield _whole_frame(
        "few_images",
        [(label, f"label {label!r} has {count} images") for label, count in few.items()],
    )


def _whole_frame(code: str, found: list[tuple[Any, str]]) -> Finding:
    """Findings that concern labels rather than rows."""
    values, messages = [value for value, _ in found], [message for _, message in found]
    return Finding(code, [None] * len(found), LABEL_COLUMN, values, messages)


def _at(code: str, mask: np.ndarray, column: pd.Series, message: str) -> Finding:
    """A finding for each row under a mask; the message may use {value} and {type}."""
    found = column[mask]
    values = found.tolist()
    messages = (
        [message.format(value=_cut(value), type=type(value).__name__) for value in values]
        if "{" in message
        else message
    )
    return Finding(code, list(found.index), str(column.name), values, messages)


def _cut(value: Any) -> Any:
    return value[:99] + "…" if isinstance(value, str) and len(value) > 100 else value

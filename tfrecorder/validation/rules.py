"""Validation: every fault of a frame at once, before anything runs, and the frame made uniform.

Works on the whole frame with vectorised pandas; a rule looks row by row only at what it found.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tfrecorder.schema.fields import Field, fields_of, primary_image
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import Boxes, Image, Label, Labels, Mask, Schema, Split, columns_of
from tfrecorder.schema.splits import UNASSIGNED, assign_splits
from tfrecorder.sources.table import Source, as_objects
from tfrecorder.validation.boxes import BoxRows, check_boxes, gather
from tfrecorder.validation.classes import Outcome, check_label, check_several
from tfrecorder.validation.columns import at, check_labels, check_splits, check_uris, has_faults
from tfrecorder.validation.report import Finding, build_report
from tfrecorder.validation.statistics import describe_columns
from tfrecorder.validation.values import check_values

if TYPE_CHECKING:
    import pyarrow as pa

    from tfrecorder.sources.table import Source


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
        stated: the typed columns, where the source has a stated schema; the frame then has no
            labels, and images only if the schema has.
    """

    frame: pd.DataFrame
    findings: tuple[Finding, ...]
    stated: Stated | None = None

    @cached_property
    def report(self) -> pd.DataFrame:
        """The findings as `report.build_report` shows them."""
        return build_report(self.findings)

    @property
    def file_columns(self) -> list[pd.Series]:
        """The uris of every column of images or masks, each under its name."""
        if self.stated is None or self.stated.values is None:
            return [self.frame[URI_COLUMN]] if URI_COLUMN in self.frame else []
        values, keys = self.stated.values, self.stated.file_keys
        return [values.column(key).to_pandas().rename(name) for name, key in keys.items()]

    @property
    def label_kind(self) -> str:
        """What the labels are: "text", "integer" or "none"."""
        if LABEL_COLUMN not in self.frame:
            return "none"
        return "integer" if self.frame[LABEL_COLUMN].dtype == np.int64 else "text"


def check_source(source: Source, seed: int = 0, labels: Sequence[str] | None = None) -> Checked:
    """Apply every rule to a source's table.

    Args:
        source: the table, with its schema if one was stated.
        seed: of the assignment of rows without a split.
        labels: all class names, where given.
    """
    if source.schema is not None:
        return check_stated(source, source.schema, seed)
    frame = pd.DataFrame(index=source.frame.index)
    findings = [*_check_columns(source)]
    if not len(source.frame):
        findings.append(Finding("empty_frame", [None], "", [None], "the table has no rows"))
    if URI_COLUMN in source.frame:
        frame[URI_COLUMN], found = check_uris(as_objects(source.frame[URI_COLUMN]))
        findings += found
    frame[SPLIT_COLUMN], found = _check_splits(source, frame, seed)
    findings += found
    if LABEL_COLUMN in source.frame:
        column, found = check_labels(as_objects(source.frame[LABEL_COLUMN]), labels)
        findings += found
        frame[LABEL_COLUMN] = column
    if not any(finding.code == "missing_column" for finding in findings):
        findings += check_rows(frame)
    return Checked(frame, tuple(findings))


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
    return nearest_name(wanted, names)


def nearest_name(wanted: str, names: list[str]) -> str | None:
    """The one of some names that was probably meant, in any case; None if none is near."""
    by_lower = {name.strip().lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


def _check_splits(
    source: Source, frame: pd.DataFrame, seed: int
) -> tuple[pd.Series, list[Finding]]:
    """The split of every row, those without one assigned by the hash of their uri."""
    findings = []
    if SPLIT_COLUMN in source.frame:
        splits, found = check_splits(source.frame[SPLIT_COLUMN])
        findings.append(found)
    else:
        splits = pd.Series(UNASSIGNED, index=frame.index, dtype=object)
    if URI_COLUMN in frame:
        open_rows = (splits == UNASSIGNED) & frame[URI_COLUMN].notna()
        uris = [uri.encode(errors="replace").decode() for uri in frame.loc[open_rows, URI_COLUMN]]
        splits = splits.astype(object)
        splits[open_rows] = assign_splits(uris, seed)
    return splits, findings


def check_rows(frame: pd.DataFrame) -> Iterator[Finding]:
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
    yield at("leakage", several.to_numpy(), uri, message)
    yield at("duplicate_row", rows.duplicated().to_numpy(), uri, "{value!r}: same row as before")
    if LABEL_COLUMN in rows:
        labels = rows.groupby(URI_COLUMN, sort=False)[LABEL_COLUMN].transform("nunique") > 1
        message = "{value!r} has more than one label"
        yield at("conflicting_labels", labels.to_numpy(), uri, message)


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


@dataclass(frozen=True)
class Stated:
    """What a stated schema makes of a source.

    Attributes:
        fields: its columns, with their vocabularies.
        values: a column for each key of the record that the source tells; None after a fault.
        statistics: see `describe_columns`.
        source_rows: of the source; of boxes with a row each, more than there are records.
    """

    fields: tuple[Field, ...]
    values: pa.Table | None
    statistics: dict[str, Any]
    source_rows: int

    @property
    def file_keys(self) -> dict[str, str]:
        """The key of the uris of each column of images or masks."""
        files = [field for field in self.fields if isinstance(field.kind, (Image, Mask))]
        return {field.column: f"{field.key}/filename" for field in files}


def check_stated(source: Source, schema: Schema, seed: int) -> Checked:
    """Apply every rule to a source's table, by the kinds of its columns."""

    findings = list(_check_stated_columns(source, schema))
    table = source.frame
    if not len(table):
        findings.append(Finding("empty_frame", [None], "", [None], "the table has no rows"))
    if has_faults(findings):
        return Checked(pd.DataFrame(index=table.index), tuple(findings))
    boxes: BoxRows | None = None
    for name in schema.of(Boxes):
        kind, (image,) = schema.columns[name], schema.of(Image)
        assert isinstance(kind, Boxes)
        table, boxes, found = gather(table, kind, image)
        findings += found
    fields, values = [], {}
    for field in fields_of(schema):
        checked, made, found = _check_field(field, table, boxes)
        fields.append(checked)
        values.update(made)
        findings += found
    frame = _rows_of(fields, values, table, schema, seed, findings)
    faulty = has_faults(findings)
    if not faulty:
        shown = frame.assign(**_only_label(fields, values))
        findings += check_rows(shown) if URI_COLUMN in frame else _check_train(frame)
    stated = Stated(
        tuple(fields),
        None if faulty else _as_table(values),
        {} if faulty else describe_columns(tuple(fields), values, frame[SPLIT_COLUMN]),
        len(source.frame),
    )
    return Checked(frame, tuple(findings), stated)


def _check_stated_columns(source: Source, schema: Schema) -> Iterator[Finding]:

    there = [*source.frame.columns, *source.left_out]
    suggested = set()
    for name in schema.source_columns():
        if name not in source.frame:
            near = nearest_name(name, there)
            suggested.add(near)
            hint = f"is it {near!r}?" if near else f"the columns are {there}"
            message = f"the schema names a column {name!r} that the source has not; {hint}"
            yield Finding("unknown_column", [None], name, [near], message)
    for name in source.left_out:
        if name not in suggested:
            yield Finding("column_left_out", [None], name, [name], f"column {name!r} is left out")


def _check_field(field: Field, table: pd.DataFrame, boxes: BoxRows | None) -> Outcome:
    import pyarrow as pa

    if isinstance(field.kind, Boxes):
        assert boxes is not None
        return check_boxes(field, boxes)
    columns = [as_objects(table[name]) for name in columns_of(field.column, field.kind)]
    if isinstance(field.kind, (Image, Mask)):
        column, findings = check_uris(columns[0])
        made = {} if has_faults(findings) else {f"{field.key}/filename": column}
        return field, {key: pa.array(v, pa.large_string()) for key, v in made.items()}, findings
    if isinstance(field.kind, Label):
        return check_label(field, columns[0])
    if isinstance(field.kind, Labels):
        return check_several(field, columns)
    return check_values(field, columns[0])


def _rows_of(
    fields: list[Field],
    values: dict[str, pa.Array],
    table: pd.DataFrame,
    schema: Schema,
    seed: int,
    findings: list[Finding],
) -> pd.DataFrame:
    """The split of every row, and its image where there is one."""
    frame = pd.DataFrame(index=table.index)
    image = primary_image(fields)
    if image is not None and f"{image.key}/filename" in values:
        frame[URI_COLUMN] = values[f"{image.key}/filename"].to_pandas().to_numpy(dtype=object)
    splits = pd.Series(UNASSIGNED, index=table.index, dtype=object)
    for name in schema.of(Split):
        splits, found = check_splits(table[name])
        splits = splits.astype(object)
        findings.append(found)
    open_rows = (splits == UNASSIGNED).to_numpy(dtype=bool)
    if open_rows.any() and not has_faults(findings):
        texts = frame[URI_COLUMN] if URI_COLUMN in frame else _contents(values, table.index)
        assigned = assign_splits(texts[open_rows].tolist(), seed)
        splits[open_rows] = np.array(assigned, dtype=object)
    frame[SPLIT_COLUMN] = splits
    return frame


def _contents(values: dict[str, pa.Array], index: pd.Index) -> pd.Series:
    """All values of each row as a text: what a row without an image is known by."""
    columns = [map(repr, array.to_pylist()) for array in values.values()]
    return pd.Series(["\x1f".join(row) for row in zip(*columns, strict=True)], index=index)


def _only_label(fields: list[Field], values: dict[str, pa.Array]) -> dict[str, Any]:
    """The labels for the rules about rows, where there is one column of them."""
    labels = [field for field in fields if isinstance(field.kind, Label)]
    if len(labels) != 1:
        return {}
    column = values[f"{labels[0].key}/text"].to_pandas().to_numpy(dtype=object)
    return {LABEL_COLUMN: column}


def _check_train(frame: pd.DataFrame) -> Iterator[Finding]:
    if not (frame[SPLIT_COLUMN] == "TRAIN").any():
        yield Finding("no_train", [None], SPLIT_COLUMN, [None], "no row is in TRAIN")


def _as_table(values: dict[str, pa.Array]) -> pa.Table:
    import pyarrow as pa

    return pa.table(values)

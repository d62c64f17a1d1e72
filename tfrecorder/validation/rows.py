"""Warnings about rows and labels in relation to each other, and about splits that were asked for:
the shares that came out, and empty splits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.core.option import spelled
from tfrecorder.display.tables import counted, cut
from tfrecorder.schema.fields import Field, primary_file
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import FILES, Label
from tfrecorder.schema.splits import UNASSIGNED, Division
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.places import place_numbers
from tfrecorder.sources.table import Source

#: A class with fewer images than this has few images.
FEW_IMAGES = 10


#: The places of a row's first image, and of all its images and masks, as numbers.
_IMAGE = "place of the image"
_FILES = "places of the files"

#: What the values of a column, as texts, are called.
_VALUES = "values of "


def check_rows(
    frame: pd.DataFrame,
    source: Source,
    fields: Sequence[Field],
    values: Mapping[str, pa.Array],
    bad_texts: Collection[int | None] = (),
) -> Iterator[Finding]:
    """What is odd about a table, such as images that are in several splits.

    Args:
        frame: the split of each row, and its image and its label if it has them.
        source: where the rows come from.
        fields, values: as in `Checked`.
        bad_texts: rows with a lone surrogate; they are not compared with each other, because pandas
            can hold it in an object, but not in a group or an index.
    """
    split = frame[SPLIT_COLUMN]
    if len(frame) and not split.isin(["TRAIN", UNASSIGNED]).any():
        yield Finding("no_train", [None], SPLIT_COLUMN, [None], "no row is in TRAIN")
    if (image := primary_file(fields)) is not None and URI_COLUMN in frame:
        places = place_numbers(source, image.column).loc[frame.index]
        # Without a hash table of all rows.
        counts = np.bincount(places[places >= 0], minlength=1)
        repeated = (places >= 0) & (counts[places] > 1)
        if bad_texts:
            repeated &= ~frame.index.isin(list(bad_texts))
        if repeated.any():
            rows = frame[repeated].astype(object).assign(**{_IMAGE: places[repeated]})
            numbers = np.flatnonzero(repeated)
            of_rows = {name: column.take(numbers) for name, column in values.items()}
            yield from _check_repeated(_with_all(rows, source, fields, of_rows))
    if LABEL_COLUMN in frame:
        yield from _check_classes(frame[[SPLIT_COLUMN, LABEL_COLUMN]].dropna())


def _with_all(
    rows: pd.DataFrame,
    source: Source,
    fields: Sequence[Field],
    values: Mapping[str, pa.Array],
) -> pd.DataFrame:
    """Rows with the places of all their files, and all their values."""
    places = {}
    for field in fields:
        keys = [feature.key for feature in field.features if feature.key in values]
        if isinstance(field.kind, FILES):
            places[field.column] = place_numbers(source, field.column).loc[rows.index]
        elif keys and not (isinstance(field.kind, Label) and LABEL_COLUMN in rows):
            cells = zip(*(values[key].to_pylist() for key in keys), strict=True)
            rows[f"{_VALUES}{field.column}"] = list(map(repr, cells))
    rows[_FILES] = pd.DataFrame(places).groupby([*places]).ngroup()
    return rows


def _check_repeated(rows: pd.DataFrame) -> Iterator[Finding]:
    """Check the rows whose first image appears more than once."""
    yield _check_agreement(
        "leakage",
        rows,
        _IMAGE,
        SPLIT_COLUMN,
        "is in {value} and also in {other}",
    )
    yield _check_duplicates(rows)
    if LABEL_COLUMN in rows:
        yield _check_agreement(
            "conflicting_labels",
            rows,
            _FILES,
            LABEL_COLUMN,
            "has the label {value!r} and also {other!r}",
        )
    for name in map(str, rows):
        if name.startswith(_VALUES):
            words = f"is also in a row with other values of {name.removeprefix(_VALUES)!r}"
            yield _check_agreement("image_again", rows, _FILES, name, words)


def _check_agreement(
    code: str,
    rows: pd.DataFrame,
    by: str,
    column: str,
    message: str,
) -> Finding:
    """Each row with the same `by` as another with a different value, with the first of these."""
    rows = rows[rows[column].notna()]
    images = rows[by]
    numbers = pd.Series(rows.index, rows.index)
    first = numbers.groupby(images).transform("first")
    value_of_first = rows.loc[first, column].set_axis(rows.index)
    as_first = (rows[column] == value_of_first).astype(bool)
    # Of each image with several values, the first row that does not have the first value.
    second = images.map(numbers[~as_first].groupby(images).first()).dropna().astype("int64")
    rows = rows.loc[second.index]
    others = second.where(as_first, first)
    messages = [
        f"{cut(uri)!r} {message.format(value=cut(value), other=cut(other))}"
        for uri, value, other in zip(
            rows[URI_COLUMN],
            rows[column],
            rows.loc[others, column],
            strict=True,
        )
    ]
    uris = rows[URI_COLUMN].tolist()
    return Finding(code, list(rows.index), URI_COLUMN, uris, messages, others.tolist())


def _check_duplicates(rows: pd.DataFrame) -> Finding:
    """Each row that occurred before, with the first that is the same."""
    columns = [name for name in rows if name != URI_COLUMN]  # which may be spelled in other ways
    groups = rows.groupby(columns, sort=False, dropna=False).ngroup()
    numbers = pd.Series(rows.index, rows.index)
    first = numbers.groupby(groups).transform("first")
    again = rows[first < numbers]
    messages = [
        f"{cut(uri)!r} repeats an earlier row in {split}"
        for uri, split in zip(again[URI_COLUMN], again[SPLIT_COLUMN], strict=True)
    ]
    uris = again[URI_COLUMN].tolist()
    others = first[again.index].tolist()
    return Finding("duplicate_row", list(again.index), URI_COLUMN, uris, messages, others)


def _check_classes(rows: pd.DataFrame) -> Iterator[Finding]:
    counts = rows[LABEL_COLUMN].value_counts(sort=False)
    labels = counts.index.tolist()  # taken one by one, texts in Arrow are five times as slow
    alike: dict[str, list[Any]] = {}
    for label in labels:
        if isinstance(label, str):
            alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    groups = [same for same in alike.values() if len(same) > 1]
    differ = "differ only in case or whitespace"
    similar = {same[0]: f"labels {list(map(cut, same))} {differ}" for same in groups}
    yield _about_labels("similar_labels", similar)
    trained = set(rows.loc[rows[SPLIT_COLUMN] == "TRAIN", LABEL_COLUMN].unique().tolist())
    if trained:
        absent = [label for label in labels if label not in trained]
        messages = {label: f"label {cut(label)!r} is not in TRAIN" for label in absent}
        yield _about_labels("label_not_in_train", messages)
    few = {
        label: f"label {cut(label)!r} has {counted(count, 'image')}, fewer than {FEW_IMAGES}"
        for label, count in zip(labels, counts.tolist(), strict=True)
        if count < FEW_IMAGES
    }
    yield _about_labels("few_images", few)


def _about_labels(code: str, messages: Mapping[Any, str]) -> Finding:
    """Findings about labels rather than rows: a message for each label."""
    rows = [None] * len(messages)
    return Finding(code, rows, LABEL_COLUMN, list(messages), list(messages.values()))


def describe_assigned(
    splits: pd.Series,
    was_open: np.ndarray,
    division: Division,
    groups: pd.Series | None,
) -> str:
    """How the rows that came without a split got one, in words; "" if none did.

    Args:
        splits: the splits of all rows.
        was_open: True for each row that came without one.
        division: the shares that were asked for.
        groups: for all rows, what rows that share a split have in common.
    """
    was_assigned = was_open & (splits != UNASSIGNED).to_numpy(dtype=bool)
    assigned = int(was_assigned.sum())
    if not assigned:
        return ""
    of_splits = splits[was_assigned].value_counts()
    counts = [(name, int(of_splits.get(name, 0))) for name in division.shares]
    shares = ", ".join(
        f"{name} {count:,} ({count / assigned:.0%})" if count else f"{name} none"
        for name, count in counts
    )
    words = f"assigned to the {assigned:,} of {counted(len(splits), 'row')} that had none"
    if groups is not None:
        column = groups.loc[splits.index][was_assigned]
        words += f", by the {counted(column.nunique(), 'value')} of {column.name!r}"
    return f"{words}: {shares}; asked for {division}"


def check_divided(
    splits: pd.Series,
    was_open: np.ndarray,
    division: Division,
) -> Iterator[Finding]:
    """Options about splits that had nothing to do, and splits that they left without a row."""
    if not division.asked:
        return
    if not was_open.any():
        given = ", ".join(division.asked)
        words = " and ".join(map(spelled, division.asked))
        yield Finding(
            "splits_ignored",
            [None],
            SPLIT_COLUMN,
            [given],
            f"every row already has a split, so {words} assigned none",
        )
        return
    filled = set(splits.unique())
    empty = [name for name in division.shares if name not in filled]
    messages = [f"no row is in {name}, although you asked for {division}" for name in empty]
    yield Finding("empty_split", [None] * len(empty), SPLIT_COLUMN, empty, messages)

"""Warnings about rows and labels in relation to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.display.tables import counted
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.splits import UNASSIGNED
from tfrecorder.sources.table import as_texts
from tfrecorder.validation.columns import cut
from tfrecorder.validation.report import Finding

#: A class with fewer images than this has few images.
FEW_IMAGES = 10


def check_rows(frame: pd.DataFrame) -> Iterator[Finding]:
    """What is odd about a table, such as images that are in several splits.

    Args:
        frame: the split of each row, and its image and its label if it has them.
    """
    split = frame[SPLIT_COLUMN]
    if len(frame) and not split.isin(["TRAIN", UNASSIGNED]).any():
        yield Finding("no_train", [None], SPLIT_COLUMN, [None], "no row is in TRAIN")
    if URI_COLUMN in frame:
        uri = frame[URI_COLUMN]
        repeated = frame[_are_repeated(uri)]
        yield from _check_repeated(repeated.astype(object))
    if LABEL_COLUMN in frame:
        yield from _check_classes(frame[[SPLIT_COLUMN, LABEL_COLUMN]].dropna())


def _are_repeated(uris: pd.Series) -> np.ndarray:
    """The uris that occur more than once."""
    import pyarrow.compute as pc

    texts = as_texts(uris)
    if texts is not None and pc.count_distinct(texts).as_py() == len(texts):  # nearly always
        return np.zeros(len(uris), dtype=bool)
    return (uris.notna() & uris.duplicated(keep=False)).to_numpy(dtype=bool)


def _check_repeated(rows: pd.DataFrame) -> Iterator[Finding]:
    """Check the rows whose uri appears more than once."""
    if rows.empty:
        return
    yield _check_agreement("leakage", rows, SPLIT_COLUMN, "is in {here} and also in {there}")
    yield _check_duplicates(rows)
    if LABEL_COLUMN in rows:
        words = "has the label {here!r} and also {there!r}"
        yield _check_agreement("conflicting_labels", rows, LABEL_COLUMN, words)


def _check_agreement(code: str, rows: pd.DataFrame, column: str, words: str) -> Finding:
    """Each row whose uri has a different value in another row, with the first of these rows."""
    rows = rows[rows[column].notna()]
    firsts = rows.drop_duplicates([URI_COLUMN, column])
    is_first = ~firsts[URI_COLUMN].duplicated()
    first = _row_of(firsts[is_first])
    # For each uri with several values, the first row that does not have the first value.
    second = _row_of(firsts[~is_first].drop_duplicates(URI_COLUMN))
    rows = rows[rows[URI_COLUMN].isin(second.index)]
    uris = rows[URI_COLUMN]
    others = uris.map(first)
    # As objects: pandas' own text, which the map would produce, cannot hold a lone surrogate.
    firsts_of = others.map(rows[column]).astype(object)
    as_first = (rows[column] == firsts_of).to_numpy(dtype=bool)
    other_rows = others.where(~as_first, uris.map(second)).astype("int64").tolist()
    there = rows.loc[other_rows, column].tolist()
    messages = [
        f"{cut(uri)!r} {words.format(here=here, there=value)}"
        for uri, here, value in zip(uris, rows[column], there, strict=True)
    ]
    return Finding(code, list(rows.index), URI_COLUMN, uris.tolist(), messages, other_rows)


def _row_of(rows: pd.DataFrame) -> pd.Series:
    """The row of each uri."""
    return pd.Series(rows.index, index=rows[URI_COLUMN])


def _check_duplicates(rows: pd.DataFrame) -> Finding:
    """Each row that occurred before, with the first that is the same."""
    same = rows[rows.duplicated(keep=False)]
    groups = same.groupby(list(same.columns), sort=False, dropna=False).ngroup()
    first = pd.Series(same.index, index=same.index).groupby(groups).transform("first")
    again = same.duplicated().to_numpy(dtype=bool)
    uris = same.loc[again, URI_COLUMN]
    splits = same.loc[again, SPLIT_COLUMN]
    messages = [
        f"{cut(uri)!r} repeats an earlier row in {split}"
        for uri, split in zip(uris, splits, strict=True)
    ]
    rows_again, others = list(uris.index), first[again].tolist()
    return Finding("duplicate_row", rows_again, URI_COLUMN, uris.tolist(), messages, others)


def _check_classes(rows: pd.DataFrame) -> Iterator[Finding]:
    counts = rows[LABEL_COLUMN].value_counts(sort=False)
    labels = counts.index.tolist()  # taken one by one, texts in Arrow are five times as slow
    alike: dict[str, list[Any]] = {}
    for label in labels:
        if isinstance(label, str):
            alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    groups = [same for same in alike.values() if len(same) > 1]
    yield _whole_frame(
        "similar_labels",
        [(same[0], f"labels {same} differ only in case or whitespace") for same in groups],
    )
    trained = set(rows.loc[rows[SPLIT_COLUMN] == "TRAIN", LABEL_COLUMN].unique().tolist())
    if trained:
        absent = [label for label in labels if label not in trained]
        yield _whole_frame(
            "label_not_in_train", [(label, f"label {label!r} is not in TRAIN") for label in absent]
        )
    few = counts[counts < FEW_IMAGES]
    yield _whole_frame(
        "few_images",
        [
            (label, f"label {label!r} has {counted(count, 'image')}, fewer than {FEW_IMAGES}")
            for label, count in zip(few.index.tolist(), few.tolist(), strict=True)
        ],
    )


def _whole_frame(code: str, found: list[tuple[Any, str]]) -> Finding:
    """Findings about labels rather than rows."""
    values, messages = [value for value, _ in found], [message for _, message in found]
    return Finding(code, [None] * len(found), LABEL_COLUMN, values, messages)

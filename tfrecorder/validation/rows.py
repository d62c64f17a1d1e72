"""Warnings about rows and labels in relation to each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tfrecorder.display.tables import counted
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.splits import UNASSIGNED
from tfrecorder.validation.columns import at
from tfrecorder.validation.report import Finding

#: Below it, a class has few images.
FEW_IMAGES = 10


def check_rows(frame: pd.DataFrame) -> Iterator[Finding]:
    """What is odd about a table, as images that are in several splits.

    Args:
        frame: the split of each row, and its image and its label where it has them.
    """
    split = frame[SPLIT_COLUMN]
    if len(frame) and not split.isin(["TRAIN", UNASSIGNED]).any():
        yield Finding("no_train", [None], SPLIT_COLUMN, [None], "no row is in TRAIN")
    if URI_COLUMN in frame:
        uri = frame[URI_COLUMN]
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
        [
            (label, f"label {label!r} has {counted(count, 'image')}, fewer than {FEW_IMAGES}")
            for label, count in few.items()
        ],
    )


def _whole_frame(code: str, found: list[tuple[Any, str]]) -> Finding:
    """Findings that concern labels rather than rows."""
    values, messages = [value for value, _ in found], [message for _, message in found]
    return Finding(code, [None] * len(found), LABEL_COLUMN, values, messages)

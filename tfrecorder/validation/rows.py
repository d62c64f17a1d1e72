"""Warnings about rows and labels in relation to each other, and about splits that were asked for:
the shares that came out, and empty splits.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tfrecorder.core.option import spelled
from tfrecorder.display.tables import class_words, counted, cut
from tfrecorder.schema.fields import Field, primary_file
from tfrecorder.schema.keys import LABEL_COLUMN, SPLIT_COLUMN, URI_COLUMN
from tfrecorder.schema.kinds import FILES, Label
from tfrecorder.schema.labels import plain_name
from tfrecorder.schema.splits import UNASSIGNED, Division
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.places import place_numbers
from tfrecorder.sources.table import WHOLE_NUMBER, Source

#: A class with fewer images than this has few images.
FEW_IMAGES = 10

#: Names of at least so many letters are taken for one where a letter is missing or too much in one
#: that is so many times as rare.
LETTERS = 5
RARE = 20

#: Names beyond this length, and further ones than these, are not compared letter by letter.
MOST_LETTERS = 100
MOST_NAMES = 100_000


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
    is_trained = (split == "TRAIN").to_numpy()
    if LABEL_COLUMN in frame:
        given = frame[LABEL_COLUMN].notna().to_numpy()
        labels = frame[LABEL_COLUMN][given]
        of_labels = _counts_of(labels)
        yield from _check_classes(LABEL_COLUMN, labels, of_labels, is_trained[given])
        yield _few_images(of_labels)
    for field in fields:
        texts = values.get(field.text_key or "")
        if texts is None or (isinstance(field.kind, Label) and LABEL_COLUMN in frame):
            continue
        of_each = is_trained
        if pa.types.is_large_list(texts.type):
            of_each = np.repeat(is_trained, np.diff(texts.offsets.to_numpy()))
            texts = texts.flatten()
        labels = texts.to_pandas()
        given = (labels != "").to_numpy()
        labels = labels[given]
        yield from _check_classes(field.column, labels, _counts_of(labels), of_each[given])


def _with_all(
    rows: pd.DataFrame,
    source: Source,
    fields: Sequence[Field],
    values: Mapping[str, pa.Array],
) -> pd.DataFrame:
    """Rows with the places of all their files, and all their values."""
    places = {}
    texts = {}
    for field in fields:
        keys = [feature.key for feature in field.features if feature.key in values]
        if isinstance(field.kind, FILES):
            places[field.column] = place_numbers(source, field.column).loc[rows.index]
        elif keys and not (isinstance(field.kind, Label) and LABEL_COLUMN in rows):
            cells = zip(*(values[key].to_pylist() for key in keys), strict=True)
            texts[f"{_VALUES}{field.column}"] = list(map(repr, cells))
    rows = pd.concat([rows, pd.DataFrame(texts, index=rows.index)], axis=1)
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
            # Alone: of a table of thousands of columns, all would be taken for each of them.
            of_one = rows[[URI_COLUMN, _FILES, name]]
            yield _check_agreement("image_again", of_one, _FILES, name, words)


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


def _counts_of(labels: pd.Series) -> dict[Any, int]:
    """How often each label is there."""
    counts = labels.value_counts(sort=False)
    # Taken one by one, texts in Arrow are five times as slow.
    return dict(zip(counts.index.tolist(), counts.tolist(), strict=True))


def _check_classes(
    column: str,
    labels: pd.Series,
    counts: Mapping[Any, int],
    is_trained: np.ndarray,
) -> Iterator[Finding]:
    """Classes of a column that look like one, and those that are not in TRAIN.

    Args:
        labels: one after the other.
        counts: how often each is there.
        is_trained: which of them are in TRAIN.
    """
    texts = {label: count for label, count in counts.items() if isinstance(label, str)}
    alike: dict[str, list[str]] = {}
    for label in texts:
        alike.setdefault(plain_name(label), []).append(label)
    yield _about_labels("similar_labels", column, dict(_similar(texts, alike)))
    yield _check_integers(column, labels, texts)
    alone = [same[0] for same in alike.values() if len(same) == 1]
    padded = [label for label in alone if label != label.strip()]
    shown = class_words(padded, FEW_IMAGES)
    message = f"labels that begin or end with white space: {shown}"
    yield _about_labels("padded_labels", column, dict.fromkeys(padded[:1], message))
    trained = set(labels[is_trained].unique().tolist())
    absent = [label for label in counts if trained and label not in trained]
    messages = {label: f"label {cut(label)!r} is not in TRAIN" for label in absent}
    yield _about_labels("label_not_in_train", column, messages)


def _check_integers(
    column: str,
    labels: pd.Series,
    texts: Mapping[str, int],
) -> Finding:
    """A few texts among integers, for which all of these became texts."""
    odd = [label for label in texts if not WHOLE_NUMBER.fullmatch(label)]
    count = sum(map(texts.__getitem__, odd))
    whole = sum(texts.values()) - count
    if len(texts) - len(odd) < 2 or not 0 < count <= max(1, whole // RARE):
        return Finding("text_among_integers", [], column, [], "")
    first = labels.index[(labels == odd[0]).to_numpy(dtype=bool)][0]
    others_too = f", nor are {count - 1:,} others" if count > 1 else ""
    words = f"label {cut(odd[0])!r} is no integer{others_too}"
    message = f"{words}: so all labels are texts, of which '10' comes before '2'"
    return Finding("text_among_integers", [int(first)], column, [odd[0]], message)


def _similar(
    counts: Mapping[str, int],
    alike: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, str]]:
    """Texts that may be of one class: one of each group, and what to say of it.

    Args:
        counts: how often each is there.
        alike: those of each plain name.
    """
    for same in alike.values():
        if len(same) < 2:
            continue
        # Where they look the same, they are shown by their code points.
        looks = {" ".join(label.split()).casefold() for label in same}
        shown = ", ".join((repr if len(looks) == 1 else ascii)(cut(label)) for label in same)
        ways = "case or whitespace" if len(looks) == 1 else "case, whitespace or unseen characters"
        yield same[0], f"labels [{shown}] differ only in {ways}"
    for name in itertools.islice(alike, MOST_NAMES):
        if not LETTERS < len(name) < MOST_LETTERS or any(map(str.isdigit, name)):
            continue
        for place, letter in enumerate(name):
            shorter = name[:place] + name[place + 1 :] if letter.isalpha() else ""
            if shorter not in alike or sum(map(str.isalpha, shorter)) < LETTERS:
                continue
            few, many = sorted([alike[name][0], alike[shorter][0]], key=counts.__getitem__)
            if counts[few] * RARE <= counts[many]:
                often = f"is there {counted(counts[few], 'time')}"
                like = f"{cut(many)!r}, with one letter more or less, {counts[many]:,} times"
                yield few, f"label {cut(few)!r} {often}; {like}"


def _few_images(counts: Mapping[Any, int]) -> Finding:
    few = {
        label: f"label {cut(label)!r} has {counted(count, 'image')}, fewer than {FEW_IMAGES}"
        for label, count in counts.items()
        if count < FEW_IMAGES
    }
    return _about_labels("few_images", LABEL_COLUMN, few)


def _about_labels(
    code: str,
    column: str,
    messages: Mapping[Any, str],
) -> Finding:
    """Findings about labels rather than rows: a message for each label."""
    rows = [None] * len(messages)
    return Finding(code, rows, column, list(messages), list(messages.values()))


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

"""Several datasets as one: their columns, their classes, their shards one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tfrecorder.errors import OptionError
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.columns import chosen_columns
from tfrecorder.reading.dataset import Shape, StoredDataset
from tfrecorder.reading.joined_classes import BY_NAME, joined_classes
from tfrecorder.schema.fields import Field


def joined(stored: Sequence[StoredDataset], split: str, options: ReadOptions) -> StoredDataset:
    """A dataset that has the records of all of these in one split.

    Args:
        stored: at least one, each of which has the split.
        split: as in the first.
        options: the columns that they need to share, and how their classes are joined.

    Raises:
        OptionError: what is read of them does not fit together.
    """
    first = stored[0]
    if len(stored) == 1 and options.classes is None:
        return first
    directories = [one.directory for one in stored]
    columns = [_columns(one, options) for one in stored]
    for one, found in zip(stored, columns, strict=True):
        _refuse_others(first, columns[0], one, found)
    fields, class_maps = {}, {}
    for field in first.fields:
        is_read = field.column in columns[0] or isinstance(options.classes, Mapping)
        if field.label_key is not None and is_read:
            of_all = [_field(one, field.column) for one in stored]
            classes = BY_NAME if options.classes is None else options.classes
            fields[field.column], maps = joined_classes(of_all, directories, classes)
            if any(not np.array_equal(one, np.arange(-1, len(one) - 1)) for one in maps):
                class_maps[field.label_key] = maps
    return replace(
        first,
        directory=" and ".join(directories),
        splits={split: tuple(shard for one in stored for shard in one.splits[one.split(split)])},
        fields=tuple(fields.get(field.column, field) for field in first.fields),
        shapes={key: _shape([one.shape_of(key) for one in stored]) for key in first.shapes},
        sides=_sides(stored),
        commit=None if len(stored) > 1 else first.commit,
        note="",
        contents={},
        class_maps=class_maps,
    )


def _columns(stored: StoredDataset, options: ReadOptions) -> dict[str, Field]:
    """What is read of a dataset, by the name of the column."""
    if options.is_whole:
        return {field.column: field for field in stored.fields}
    inputs, targets = chosen_columns(stored, options)
    return {field.column: field for field in (*inputs, *targets)}


def _field(stored: StoredDataset, column: str) -> Field:
    for field in stored.fields:
        if field.column == column and field.label_key is not None:
            return field
    raise OptionError(
        f"{stored.directory} has no column {column!r} with classes; `classes` joins it."
    )


def _refuse_others(
    first: StoredDataset, of_first: dict[str, Field], one: StoredDataset, found: dict[str, Field]
) -> None:
    """Refuse a dataset whose columns differ from those of the first."""
    both = f"{first.directory} and {one.directory}"
    remedy = "`inputs` and `targets` choose columns that all datasets have."
    for has, lacks, names in ((first, one, of_first), (one, first, found)):
        other = found if lacks is one else of_first
        for name in names:
            if name not in other:
                words = f"{has.directory} has the column {name!r}, {lacks.directory} does not"
                raise OptionError(f"{words}; {remedy}")
    for name, field in of_first.items():
        if _form(field) != _form(found[name]):
            words = f"the column {name!r} of {both} is stored in two forms"
            raise OptionError(
                f"{words}: {_told(field)} and {_told(found[name])}. Convert one of them with the "
                f"other's schema; or leave the column out: {remedy}"
            )
    channels = ({key: shape[2] for key, shape in one.shapes.items()} for one in (first, one))
    if first.form != one.form or first.raw != one.raw or len({*map(str, channels)}) > 1:
        raise OptionError(
            f"the images of {both} are stored in two forms, or differ in channels; convert one of "
            "them as the other."
        )
    if first.raw and first.shapes != one.shapes:
        raise OptionError(f"the raw images of {both} differ in size; convert them to one size.")


def _form(field: Field) -> tuple[Any, ...]:
    return type(field.kind), field.key, field.features


def _told(field: Field) -> str:
    return f"{field.kind!r} under {field.key!r}"


def _shape(shapes: Sequence[Shape]) -> Shape:
    height, width = (
        sides[0] if len({*sides}) == 1 else None
        for sides in zip(*(shape[:2] for shape in shapes), strict=True)
    )
    return height, width, shapes[0][2]


def _sides(stored: Sequence[StoredDataset]) -> Any:
    """The ranges of the sides of all; None if one does not know its own."""
    every = [one.sides for one in stored if one.sides is not None]
    if len(every) < len(stored):
        return None
    lows, highs = np.array(every).min(0)[:, 0].tolist(), np.array(every).max(0)[:, 1].tolist()
    return tuple(zip(lows, highs, strict=True))

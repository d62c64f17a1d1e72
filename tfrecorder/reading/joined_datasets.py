"""Several datasets as one: their columns, their classes, their shards one after the other.

Their classes become one list; each dataset has a map from its integers to those of the list.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.errors import OptionError
from tfrecorder.options.read import ReadOptions
from tfrecorder.reading.dataset import StoredDataset, image_shape
from tfrecorder.reading.element_spec import chosen_columns
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Label

BY_NAME = "by name"
EQUAL = "equal"

#: What the integer of a class becomes whose records are left out.
LEFT_OUT = -2

#: Columns by their names.
Columns = dict[str, Field]

#: What stays as it is: a record without a class, or a padded box.
_NONE = -1


def joined_classes(
    fields: Sequence[Field],
    directories: Sequence[str],
    classes: Any,
) -> tuple[Field, list[np.ndarray]]:
    """One column with the classes of all datasets.

    Args:
        fields: the column in each dataset.
        directories: of the datasets, for messages.
        classes: "by name" gives each name one integer: those of the first dataset keep theirs, and
            the others follow; "equal" refuses datasets that differ; or new names, in the order of
            their integers, each with the names of before, or the integers where classes have no
            names. Records of other classes are left out.

    Returns:
        The column; and for each dataset an int64 array with what its integers become, with the
        class -1 first: what -1 becomes, then 0, and so on.

    Raises:
        OptionError: the classes cannot be joined so.
    """
    first = fields[0]
    if isinstance(classes, Mapping):
        if not isinstance(first.kind, Label):
            raise OptionError.of(
                "classes",
                dict(classes),
                f"it maps columns of one label, and {first.column!r} is not one; leave it out.",
            )
        return _mapped(fields, classes)
    own = (first.names, first.num_classes)
    others = [
        (field, directory)
        for field, directory in zip(fields, directories, strict=True)
        if (field.names, field.num_classes) != own
    ]
    if not others:
        return first, [np.arange(_NONE, first.num_classes or 0) for _ in fields]
    are_named = all(field.names is not None or field.is_unlabelled for field in fields)
    if classes == EQUAL or not are_named:
        field, directory = others[0]
        words = (
            f"{first.column!r} of {directories[0]} has {_told(first)}, of {directory} "
            f"{_told(field)}; give new ones with those that each is made of, such as "
            "`classes={'cat': ['cat', 'kitten']}`"
        )
        more = ", or `classes='by name'`." if are_named else "."
        raise OptionError.of("classes", ..., words + more)
    names = tuple(dict.fromkeys(name for field in fields for name in field.names or ()))
    numbers = {name: number for number, name in enumerate(names)}
    made = []
    for field in fields:
        becomes = [numbers[name] for name in field.names or ()]
        made.append(np.array([_NONE, *becomes]))
    return _with_names(first, names), made


def renamed(
    cells: pd.Series,
    fields: Sequence[Field],
    label: Field,
    becomes: np.ndarray,
) -> pd.Series:
    """A column of one class each, with the names of the joined classes; missing if left out.

    Args:
        cells: of one dataset, names or integers.
        fields: of that dataset.
        label: the joined column.
        becomes: what its integers become, -1 first.
    """
    before: Sequence[Any] = next(
        field.class_names or () for field in fields if field.column == label.column
    )
    if pd.api.types.is_numeric_dtype(cells):
        before = range(len(before))
    names = label.class_names or ()
    pairs = zip(before, becomes[1:].tolist(), strict=True)
    return cells.map({old: names[new] for old, new in pairs if new >= 0})


def _mapped(fields: Sequence[Field], classes: Mapping[Any, Any]) -> tuple[Field, list[np.ndarray]]:
    becomes: dict[str, int] = {}
    for number, sources in enumerate(classes.values()):
        alone = isinstance(sources, str) or not isinstance(sources, Iterable)
        for source in [sources] if alone else sources:
            if becomes.setdefault(str(source), number) != number:
                raise OptionError.of(
                    "classes",
                    dict(classes),
                    f"{source!r} becomes two classes; name it once.",
                )
    names = {name for field in fields for name in field.class_names or ()}
    for source in becomes:
        if source not in names:
            raise OptionError.of(
                "classes",
                dict(classes),
                f"no dataset has the class {source!r}; there is {', '.join(sorted(names))}.",
            )
    made = []
    for field in fields:
        numbers = [becomes.get(name, LEFT_OUT) for name in field.class_names or ()]
        made.append(np.array([LEFT_OUT, *numbers]))
    return _with_names(fields[0], tuple(map(str, classes))), made


def _with_names(field: Field, names: tuple[str, ...]) -> Field:
    return replace(field, names=names, num_classes=len(names))


def _told(field: Field) -> str:
    names = field.names or ()
    count = f"{field.num_classes} classes"
    if not names:
        return count
    more = ", …" if len(names) > 5 else ""
    return f"{count} ({', '.join(map(repr, names[:5]))}{more})"


def joined(
    stored: Sequence[StoredDataset],
    split: str,
    options: ReadOptions,
) -> StoredDataset:
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
    directories = [dataset.directory for dataset in stored]
    columns = [_columns(dataset, options) for dataset in stored]
    for other, of_other in zip(stored, columns, strict=True):
        _refuse_others(first, columns[0], other, of_other)
    fields = {}
    class_maps = {}
    for field in first.fields:
        is_read = field.column in columns[0] or isinstance(options.classes, Mapping)
        if field.label_key is not None and is_read:
            of_all = [_field(dataset, field.column) for dataset in stored]
            classes = BY_NAME if options.classes is None else options.classes
            fields[field.column], maps = joined_classes(of_all, directories, classes)
            stay = [np.array_equal(new, np.arange(_NONE, len(new) - 1)) for new in maps]
            if not all(stay):
                class_maps[field.label_key] = maps
    shards = (dataset.splits[dataset.split(split)] for dataset in stored)
    return replace(
        first,
        directory=" and ".join(directories),
        splits={split: tuple(itertools.chain.from_iterable(shards))},
        fields=tuple(fields.get(field.column, field) for field in first.fields),
        shapes={
            key: image_shape(dataset.shape_of(key) for dataset in stored) for key in first.shapes
        },
        sides=_sides(stored),
        commit=None if len(stored) > 1 else first.commit,
        note="",
        contents={},
        class_maps=class_maps,
        looked=" and ".join(dict.fromkeys(filter(None, (dataset.looked for dataset in stored)))),
        seen=frozenset().union(*(dataset.seen or dataset.features for dataset in stored)),
    )


def _columns(stored: StoredDataset, options: ReadOptions) -> Columns:
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
    first: StoredDataset,
    of_first: Columns,
    other: StoredDataset,
    of_other: Columns,
) -> None:
    """Refuse a dataset whose columns differ from those of the first."""
    both = f"{first.directory} and {other.directory}"
    remedy = "`inputs` and `targets` choose columns that all datasets have."
    both_ways = ((first, of_first, other, of_other), (other, of_other, first, of_first))
    for has, columns, lacks, of_lacking in both_ways:
        for name in columns:
            if name not in of_lacking:
                raise OptionError(
                    f"{has.directory} has the column {name!r}, {lacks.directory} does not; {remedy}"
                )
    for name, field in of_first.items():
        if _form(field) != _form(of_other[name]):
            raise OptionError(
                f"the column {name!r} of {both} is stored in two "
                f"forms: {_kind(field)} and {_kind(of_other[name])}. Convert one of them with "
                f"the other's schema; or leave the column out: {remedy}"
            )
    channels, of_others = (
        {key: shape[2] for key, shape in dataset.shapes.items()} for dataset in (first, other)
    )
    if (first.form, first.raw, channels) != (other.form, other.raw, of_others):
        raise OptionError(
            f"the images of {both} are stored in two forms, or differ in channels; convert one of "
            "them as the other."
        )
    if first.raw and first.shapes != other.shapes:
        raise OptionError(f"the raw images of {both} differ in size; convert them to one size.")


def _form(field: Field) -> tuple[Any, ...]:
    return type(field.kind), field.key, field.features


def _kind(field: Field) -> str:
    return f"{field.kind!r} under {field.key!r}"


def _sides(stored: Sequence[StoredDataset]) -> Any:
    """The ranges of the sides of all; None if one does not know its own."""
    every = [dataset.sides for dataset in stored if dataset.sides is not None]
    if len(every) < len(stored):
        return None
    lows = np.array(every).min(0)[:, 0].tolist()
    highs = np.array(every).max(0)[:, 1].tolist()
    return tuple(zip(lows, highs, strict=True))

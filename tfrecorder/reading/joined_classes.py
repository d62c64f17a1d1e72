"""The classes of several datasets as one list, and what the integers of each become in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tfrecorder.errors import OptionError
from tfrecorder.schema.fields import Field
from tfrecorder.schema.kinds import Label

BY_NAME, EQUAL = "by name", "equal"

#: What the integer of a class becomes whose records are left out.
LEFT_OUT = -2

#: What stays as it is: a record without a class, or a padded box.
_NONE = -1


def joined_classes(
    fields: Sequence[Field], directories: Sequence[str], classes: Any
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
            words = f"it maps columns of one label, and {first.column!r} is not one; leave it out."
            raise OptionError.of("classes", dict(classes), words)
        return _mapped(fields, classes)
    named = {field.names is not None or field.is_unlabelled for field in fields}
    same = len({(field.names, field.num_classes) for field in fields}) == 1
    if not same and (classes == EQUAL or named != {True}):
        for field, directory in zip(fields, directories, strict=True):
            if (field.names, field.num_classes) != (first.names, first.num_classes):
                words = (
                    f"{first.column!r} of {directories[0]} has {_told(first)}, of {directory} "
                    f"{_told(field)}; give new ones with those that each is made of, such as "
                    "`classes={'cat': ['cat', 'kitten']}`"
                )
                more = ", or `classes='by name'`." if named == {True} else "."
                raise OptionError(f"`classes`: {words}{more}")
    if same or named != {True}:
        return first, [np.arange(_NONE, first.num_classes or 0) for _ in fields]
    names = tuple(dict.fromkeys(name for field in fields for name in field.names or ()))
    numbers = {name: number for number, name in enumerate(names)}
    made = [np.array([_NONE, *(numbers[name] for name in field.names or ())]) for field in fields]
    return _with_names(first, names), made


def renamed(
    cells: pd.Series, fields: Sequence[Field], label: Field, becomes: np.ndarray
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
                words = f"{source!r} becomes two classes; name it once."
                raise OptionError.of("classes", dict(classes), words)
    known = {name for field in fields for name in field.class_names or ()}
    for source in becomes:
        if source not in known:
            words = f"no dataset has the class {source!r}; there is {', '.join(sorted(known))}."
            raise OptionError.of("classes", dict(classes), words)
    made = [
        np.array([LEFT_OUT, *(becomes.get(name, LEFT_OUT) for name in field.class_names or ())])
        for field in fields
    ]
    return _with_names(fields[0], tuple(map(str, classes))), made


def _with_names(field: Field, names: tuple[str, ...]) -> Field:
    return dataclasses.replace(field, names=names, num_classes=len(names))


def _told(field: Field) -> str:
    names = field.names or ()
    shown = ", ".join(map(repr, names[:5])) + (", …" if len(names) > 5 else "")
    return f"{field.num_classes} classes" + (f" ({shown})" if names else "")

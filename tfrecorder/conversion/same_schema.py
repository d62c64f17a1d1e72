"""Does a table fit the dataset it is added to?  And what must its plan know about that dataset?

Classes of the table that the dataset does not have are new ones, or mistakes.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tfrecorder.core.arrays import Ints
from tfrecorder.display.tables import counted, cut
from tfrecorder.errors import SourceError
from tfrecorder.options.changes import NewClasses
from tfrecorder.schema.fields import Field, fields_of
from tfrecorder.schema.kinds import Label, Number, Split
from tfrecorder.schema.labels import plain_name
from tfrecorder.schema.splits import parse_splits
from tfrecorder.sources.finding import Finding
from tfrecorder.sources.table import Source
from tfrecorder.validation.rules import Checked


def refuse_other_schema(
    directory: str,
    known: Sequence[Field],
    table: Source,
    checked: Sequence[Field] | None = None,
) -> None:
    """Raise a SourceError if a table's columns are not those of a dataset, and say which.

    Args:
        directory: the dataset's directory, for the message.
        known, table, checked: as for `schema_faults`.
    """
    if faults := schema_faults(known, table, checked):
        raise SourceError(
            f"the table does not fit {directory}: {'; '.join(faults)}. Nothing was written."
        )


def schema_faults(
    known: Sequence[Field],
    table: Source,
    checked: Sequence[Field] | None = None,
) -> list[str]:
    """What of a table's columns is not as in a dataset.

    Args:
        known: the columns of the dataset.
        checked: the table's columns with their classes, once these are known.
    """
    fields = {field.column: field for field in known}
    if checked is None:
        given = {field.column: field for field in fields_of(table.schema)}
        faults = [*_column_faults(fields, given)]
        faults += [
            f"there are no labels, but the dataset has {counted(field.num_classes or 0, 'class')}"
            for name, field in fields.items()
            if isinstance(field.kind, Label) and field.num_classes and name not in table.frame
            if not _is_test(table)
        ]
    else:
        pairs = ((fields[field.column], field) for field in checked)
        faults = [fault for pair in pairs if (fault := _class_fault(*pair))]
    return faults


def _is_test(table: Source) -> bool:
    """True for a table of TEST alone, which may lack its labels."""
    (name,) = table.schema.of(Split) or [""]
    return name in table.frame and bool((parse_splits(table.frame[name]) == "TEST").all())


def _column_faults(stored: Mapping[str, Field], given: Mapping[str, Field]) -> Iterator[str]:
    for name in stored.keys() - given.keys():
        yield f"there is no column {name!r}, but the dataset has one of kind {_words(stored[name])}"
    for name, field in given.items():
        if name not in stored:
            yield f"column {name!r}, of kind {_words(field)}, is not in the dataset"
            continue
        before = stored[name]
        differs = field.features != before.features
        # Those that may change the features too.
        for setting in ("background_class", "tfds_features", "depth", "upright"):
            is_now, was = (getattr(column.kind, setting, False) for column in (field, before))
            if is_now != was:
                differs = False
                yield f"column {name!r} has `{setting}={is_now}` here, `{was}` in the dataset"
        if differs:
            yield (f"column {name!r} is {_words(field)} here, but {_words(before)} in the dataset")


def _words(field: Field) -> str:
    kind = field.kind
    dtype = f" of {kind.dtype}" if isinstance(kind, Number) else ""
    shape = getattr(kind, "shape", ())
    return f"{kind.word}{dtype}{f' of the shape {shape}' if shape else ''}"


def _class_fault(stored: Field, given: Field) -> str | None:
    name = given.column
    if isinstance(given.kind, Label) and stored.num_classes == 0 and given.num_classes:
        return f"column {name!r} has labels, but the dataset has none"
    if not stored.num_classes:
        return None
    if stored.integer != given.integer:
        words = ("integers", "names") if given.integer else ("names", "integers")
        return f"the classes of {name!r} are {words[0]}, but {words[1]} in the dataset"
    before = stored.names or ()
    now = given.names or ()
    if now[: len(before)] != before or (given.num_classes or 0) < stored.num_classes:
        shown = list(before[:5]) if before else stored.num_classes
        return (
            f"the given classes of {name!r} must begin with those of the dataset, in their order: "
            f"{shown}{', …' if len(before) > 5 else ''}"
        )
    return None


def numbered(
    checked: Checked,
    table: Source,
    first: int,
    numbers: Ints,
) -> Checked:
    """A checked table whose rows are numbered from `first` on, whatever was skipped in it.

    Args:
        numbers: of each row of the table, the number that it has already, -1 for none.
    """
    places = np.searchsorted(table.frame.index.to_numpy(), checked.frame.index.to_numpy())
    new = np.where(numbers[places] < 0, places + first, numbers[places])
    return dataclasses.replace(checked, frame=checked.frame.set_axis(new))


#: How many pairs of class names are compared letter by letter.
_MOST_PAIRS = 100_000


def named_classes(
    existing: Iterable[Field],
    options: NewClasses,
    checked: Checked,
) -> Iterator[Finding]:
    """The classes of a checked table that a dataset does not have, with those they look like.

    Args:
        existing: the columns of the dataset, with their classes.
        options: if they allow new classes, there is nothing to say.
    """
    stored = {field.column: field for field in existing if field.num_classes}
    for field in checked.fields if options.new_classes != "allow" else ():
        old = stored.get(field.column)
        if old is not None and old.integer == field.integer:
            yield _new_classes(old, field)


def _new_classes(stored: Field, given: Field) -> Finding:
    if given.names is None:
        new = list(map(str, range(stored.num_classes or 0, given.num_classes or 0)))
    else:
        new = list(given.names[len(stored.names or ()) :])
    messages = [repr(cut(name)) for name in new]
    for place, like in enumerate(_alike(new, stored.names or ())):
        messages[place] += "" if like is None else f" (like {cut(like)!r})"
    return Finding("new_class", [None] * len(new), given.column, new, messages)


def _alike(new: Sequence[str], names: Sequence[str]) -> Iterator[str | None]:
    """For each new name the one there that it looks like; of very many names, for the first."""
    plain = {plain_name(name): name for name in names}
    for name in map(plain_name, new[: 1 + _MOST_PAIRS // (1 + len(plain))]):
        near = [name] if name in plain else difflib.get_close_matches(name, plain, n=1)
        # Numbered names, such as n02084071, all look alike.
        numbered = [
            _without_digits(name) == _without_digits(other) for other in near if other != name
        ]
        yield plain[near[0]] if near and not any(numbered) else None


def _without_digits(name: str) -> str:
    return re.sub(r"\d", "", name)

"""Classes of a table that the dataset to which it is added does not have: new ones, or mistakes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence

from tfrecorder.display.tables import cut
from tfrecorder.options.append import NewClasses
from tfrecorder.schema.fields import Field
from tfrecorder.validation.report import Finding
from tfrecorder.validation.rules import Checked

#: How many pairs of class names are compared letter by letter.
_MOST_PAIRS = 100_000


def named_classes(
    existing: Iterable[Field], options: NewClasses, checked: Checked
) -> Iterator[Finding]:
    """The classes of a checked table that a dataset does not have, with those they look like.

    Args:
        existing: the columns of the dataset, with their classes.
        options: if they allow new classes, there is nothing to say.
    """
    there = {field.column: field for field in existing if field.num_classes}
    for field in checked.fields if options.new_classes != "allow" else ():
        old = there.get(field.column)
        if old is not None and old.integer == field.integer:
            yield _new_classes(old, field)


def _new_classes(there: Field, here: Field) -> Finding:
    if here.names is None:
        new = list(map(str, range(there.num_classes or 0, here.num_classes or 0)))
    else:
        new = list(here.names[len(there.names or ()) :])
    messages = [repr(cut(name)) for name in new]
    for at, like in enumerate(_alike(new, there.names or ())):
        messages[at] += "" if like is None else f" (like {cut(like)!r})"
    return Finding("new_class", [None] * len(new), here.column, new, messages)


def _alike(new: Sequence[str], names: Sequence[str]) -> Iterator[str | None]:
    """For each new name the one there that it looks like; of very many names, for the first."""
    plain = {_plain(name): name for name in names}
    for name in map(_plain, new[: 1 + _MOST_PAIRS // (1 + len(plain))]):
        near = [name] if name in plain else difflib.get_close_matches(name, plain, n=1)
        # Numbered names, such as n02084071, all look alike.
        numbered = [one != name and _without_digits(one) == _without_digits(name) for one in near]
        yield plain[near[0]] if near and not any(numbered) else None


def _plain(name: str) -> str:
    return " ".join(name.split()).casefold()


def _without_digits(name: str) -> str:
    return re.sub(r"\d", "", name)

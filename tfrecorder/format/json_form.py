"""JSON from a directory that anyone may have written: parsed only if it has the wanted form.

A form is a function that says what is wrong with a value, or returns None.  Forms can be combined:

    >>> person = record({"name": text, "age": whole(0, 150)})
    >>> parse(b'{"name": "Ada", "age": 36}', person)
    {'name': 'Ada', 'age': 36}
    >>> parse(b'{"name": "Ada", "age": "x"}', person)
    Traceback (most recent call last):
        ...
    ValueError: age: 'x' is not a whole number from 0 to 150
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Form = Callable[[Any], str | None]

#: The limit up to which a double counts exactly; no file, row or byte count is beyond it.
_LARGEST = 2**53


def parse(data: bytes, form: Form) -> Any:
    """Parse a document of a form.

    Raises:
        ValueError: it is not JSON, or has another form; the message says where.
    """
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("its lists or objects are nested too deeply") from None
    if fault := form(document):
        raise ValueError(fault)
    return document


def anything(value: Any) -> str | None:
    return None


def string(value: Any) -> str | None:
    """Any text, such as a path that is not Unicode."""
    return None if isinstance(value, str) else f"{_shown(value)} is not text"


def text(value: Any) -> str | None:
    """Text that a file can hold: not one with lone surrogates."""
    if isinstance(value, str) and value.isascii():
        return None
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        return f"{_shown(value)} is not text"
    return None


def null(value: Any) -> str | None:
    return None if value is None else f"{_shown(value)} is not null"


def truth(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"{_shown(value)} is neither true nor false"


def whole(low: int = 0, high: int = _LARGEST) -> Form:
    """An integer in a range."""

    def form(value: Any) -> str | None:
        if type(value) is int and low <= value <= high:
            return None
        return f"{_shown(value)} is not a whole number from {low} to {high}"

    return form


#: A form: the number of classes, one more than the largest label.
classes = whole(0, 2**63)


def word(*words: str) -> Form:
    """One of several texts."""

    def form(value: Any) -> str | None:
        ok = isinstance(value, str) and value in words
        return None if ok else f"{_shown(value)} is not one of {', '.join(words)}"

    return form


def either(*forms: Form) -> Form:
    """Any of several forms; if the value has none of them, the last one says what is wrong."""

    def form(value: Any) -> str | None:
        faults = [one(value) for one in forms]
        return None if None in faults else faults[-1]

    return form


def each(inner: Form) -> Form:
    """A list of values that all have one form."""

    def form(value: Any) -> str | None:
        if not isinstance(value, list):
            return f"{_shown(value)} is not a list"
        return _first(enumerate(value), lambda key: inner)

    return form


def row(*inner: Form) -> Form:
    """A list with one value for each of these forms, in their order."""

    def form(value: Any) -> str | None:
        if not isinstance(value, list) or len(value) != len(inner):
            return f"{_shown(value)} is not a list of {len(inner)}"
        return _first(enumerate(value), lambda key: inner[key])

    return form


def table(inner: Form, keys: Form = text) -> Form:
    """An object with any number of values of one form."""

    def form(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f"{_shown(value)} is not an object"
        fault = _first(((key, key) for key in value), lambda key: keys)
        return fault or _first(value.items(), lambda key: inner)

    return form


def record(required: Mapping[str, Form], optional: Mapping[str, Form] | None = None) -> Form:
    """An object with certain keys; others are ignored."""

    def form(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f"{_shown(value)} is not an object"
        missing = [key for key in required if key not in value]
        if missing:
            return f"there is no {missing[0]!r}"
        forms = {**(optional or {}), **required}
        return _first(value.items(), lambda key: forms.get(key, anything))

    return form


def _first(items: Iterable[tuple[Any, Any]], form_of: Callable[[Any], Form]) -> str | None:
    """The first fault among keyed values, with its key."""
    for key, value in items:
        if fault := form_of(key)(value):
            return f"{key}: {fault}" if isinstance(key, int) else f"{ascii(key)[1:-1]}: {fault}"
    return None


def _shown(value: Any) -> str:
    shown = ascii(value) if not isinstance(value, (dict, list)) else f"a {type(value).__name__}"
    return shown if len(shown) <= 60 else shown[:59] + "…"

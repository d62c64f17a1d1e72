"""Checks of option values that writing and reading share.

A check takes a value and returns None, or the remedy in words: what to give instead.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tfrecorder.errors import OptionError

Check = Callable[[Any], str | None]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def refuse_unknown(options: Mapping[str, Any], cls: type, *more: str) -> None:
    """Raise an OptionError, with the nearest name, if an option is no field of a dataclass.

    Args:
        more: names of other options.
    """
    known = [*more, *(item.name for item in dataclasses.fields(cls))]
    for name in options:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else f"the options are {', '.join(known)}."
            raise OptionError(f"there is no option {name!r}; {hint}")


def refuse_idle(options: Any, given: Collection[str]) -> None:
    """Raise an OptionError if one of the given options has no effect with the others."""
    fields = {item.name: item for item in dataclasses.fields(options)}
    changed = {name for name, item in fields.items() if getattr(options, name) != item.default}
    for name in sorted(changed.intersection(given)):
        needs = fields[name].metadata.get("needs", ())
        if needs and changed.isdisjoint(needs):
            words = " or ".join(f"{other}=…" for other in needs)
            value = getattr(options, name)
            raise OptionError(f"{name}={value!r}: it has no effect without {words}; give that too.")
        for other, is_idle in fields[name].metadata.get("idle_with", {}).items():
            if is_idle(of_other := getattr(options, other)):
                raise OptionError(
                    f"{name}={getattr(options, name)!r}: it has no effect with "
                    f"{other}={of_other!r}; change one of the two."
                )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The options that a wrong name probably means: those with it as a word, or the nearest.

    >>> nearest("shards", ["shard_size", "num_shards"]), nearest("sed", ["seed"])
    ('num_shards', 'seed')
    """
    names = list(known)
    near = [one for one in names if name in one.split("_")]
    near = near or difflib.get_close_matches(name, names, n=1)
    return " or ".join(near) or None


def parse_size(size: int | str) -> int:
    """A size in bytes, from a number or a number with a unit.

    >>> parse_size("128MiB"), parse_size(1000)
    (134217728, 1000)
    """
    if not isinstance(size, str):
        return int(size)
    match = _SIZE.fullmatch(size)
    if not match or match[2].upper() not in _UNITS:
        raise ValueError(f"{size!r} is not a size; write for example 128MiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def is_seconds(value: Any) -> bool:
    """True for a finite number of seconds from 0."""
    return is_number(value) and 0 <= value < math.inf


def is_whole(value: Any) -> bool:
    """Python's and NumPy's integers, but not booleans."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Python's and NumPy's numbers, but not booleans."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def whole(low: int, high: int | None = None, none: bool = False) -> Check:
    """A whole number from `low` to `high`, both included; with `none` also None."""

    def check(value: Any) -> str | None:
        if value is None and none:
            return None
        if not is_whole(value) or value < low or (high is not None and value > high):
            return f"give a whole number from {low}" + (f" to {high}." if high else ".")
        return None

    return check


def one_of(*words: str | bool | None) -> Check:
    """One of the given words, True, False or None."""
    shown = ", ".join(repr(word) for word in words)

    def check(value: Any) -> str | None:
        given = any(value is word or (isinstance(value, str) and value == word) for word in words)
        return None if given else f"give one of {shown}."

    return check


def flag(value: Any) -> str | None:
    """True or False."""
    return None if isinstance(value, bool) else "give True or False."

"""An option: a field of a frozen dataclass, with its default, its check and its help.

Python, the command line and the tests of the docs take what they need from the same field.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from tfrecorder.core.checks import Check, Whole, flag, is_number, is_whole
from tfrecorder.core.wording import spelled

#: The name of an option whose value is wrong, and the remedy: what to give instead, in words.
Fault = tuple[str, str]


def plain(value: Any) -> Any:
    """A value that nothing else shares: not a NumPy scalar or a dict of the caller's.

    >>> plain({"TRAIN": 2}), plain(True), plain("224"), plain(1e6)
    ({'TRAIN': 2}, True, '224', 1000000.0)
    """
    if isinstance(value, Mapping):
        return dict(value)
    if is_whole(value):
        return operator.index(value)
    return float(value) if is_number(value) else value


_DEFAULTS: dict[str, Any] = {
    "normal": plain,
    "content": False,
    "metavar": None,
    "needs": (),
    "idle_with": {},
}


def option(default: Any, check: Check = flag, help: str = "", **more: Any) -> Any:
    """A field of a dataclass that `faults_of` checks.

    Args:
        default: if it is None, None is not checked.
        check: what is wrong with a value, or None; by default, that it is neither True nor False.
        help: what the option does; the range of a whole number is added to it.
        more: `normal`: a function that gives a checked value the form in which it is kept;
            `content`: True if it decides what the files of a dataset hold; `metavar`: its value on
            the command line; `needs`: the options without all of which it has no effect;
            `idle_with`: other options, each with a function that is true for the values with which
            it has none; `shell`: for an option that only the command line has, what to do in
            Python instead.
    """
    if isinstance(check, Whole):
        help = f"{help} {check.range}"
    metadata = {**_DEFAULTS, "check": check, "help": help, **more}
    return dataclasses.field(default=default, metadata=metadata)


def content_option(default: Any, check: Check = flag, help: str = "", **more: Any) -> Any:
    """An `option` that decides what the files of a dataset hold."""
    return option(default, check, help, content=True, **more)


def faults_of(options: Any) -> Iterator[Fault]:
    """The faults of a frozen dataclass's options; those that have none get their normal form."""
    for item in dataclasses.fields(options):
        value = getattr(options, item.name)
        if "check" not in item.metadata or (value is None and item.default is None):
            continue
        if remedy := item.metadata["check"](value):
            yield item.name, remedy
        else:
            # The way a frozen dataclass normalises its fields.
            object.__setattr__(options, item.name, item.metadata["normal"](value))


def idle_options(options: Any, given: Mapping[str, Any]) -> Iterator[Fault]:
    """Those of the given options that have no effect with the others."""
    fields = {item.name: item for item in dataclasses.fields(options)}
    changed = {name for name in fields if _is_changed(getattr(options, name), fields[name].default)}
    for name in sorted(changed.intersection(given)):
        metadata = {**_DEFAULTS, **fields[name].metadata}
        if metadata["needs"] and changed.isdisjoint(metadata["needs"]):
            others = " or ".join(map(spelled, metadata["needs"]))
            yield name, f"it has no effect without {others}; give that too."
        for other, is_idle in metadata["idle_with"].items():
            of_other = getattr(options, other)
            if is_idle(of_other):
                words = f"it has no effect with {spelled(other, of_other)}; change one of the two."
                yield name, words


def _is_changed(value: Any, default: Any) -> bool:
    return value is not None if default is None else value != default  # an array compares cells

"""An option: a field of a frozen dataclass, with its default, its check, its help and its spelling.

Python, the command line and the tests of the docs take what they need from the same field.

A check takes a value and returns None, or the remedy in words: what to give instead.

A message names an option as Python takes it, or as the command line does.  It is written once, for
both: `f"give {spelled('overwrite', True)}."`.  It is right from the start, and nobody looks into it
again.  Worker processes speak as their launcher does.  What stays with a dataset (notes, reasons of
rejects) may be read by either, and names no option.  A message that Python alone says, such as one
of readers, has its code as it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import numbers
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

Check = Callable[[Any], str | None]

#: The name of an option whose value is wrong, and the remedy: what to give instead, in words.
Fault = tuple[str, str]

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class Whole:
    """A whole number from `low` to `high`, both included."""

    low: int
    high: int | None = None

    def __call__(self, value: Any) -> str | None:
        high = math.inf if self.high is None else self.high
        if is_whole(value) and self.low <= value <= high:
            return None
        return f"give a whole number from {self.low}" + (f" to {self.high}." if self.high else ".")

    @property
    def range(self) -> str:
        """What it accepts, as a sentence."""
        return f"At least {self.low}." if self.high is None else f"{self.low} to {self.high}."


class OneOf:
    """One of the given words, True, False or None."""

    def __init__(self, *words: str | bool | None) -> None:
        self.words = words

    def __call__(self, value: Any) -> str | None:
        for word in self.words:
            if value is word or (isinstance(value, str) and value == word):
                return None
        return f"give one of {', '.join(map(repr, self.words))}."


@dataclass(frozen=True)
class Size:
    """A size in bytes, as a number or with a unit.

    Attributes:
        least: the smallest one, in bytes, and in words.
        example: for a value that is not a size.
    """

    least: tuple[int, str]
    example: str

    def __call__(self, value: Any) -> str | None:
        try:
            size = 0 if isinstance(value, bool) else parse_size(value)
        except (TypeError, ValueError, OverflowError):
            return f"give bytes, or a number with a unit, such as {self.example!r}."
        return None if size >= self.least[0] else f"give at least {self.least[1]}."


def seconds(value: Any) -> str | None:
    """Seconds from 0."""
    return None if is_seconds(value) else "give seconds, 0 or more."


def above_zero(value: Any) -> str | None:
    """A number above 0."""
    return None if is_seconds(value) and value else "give a number above 0."


def flag(value: Any) -> str | None:
    """True or False."""
    return None if isinstance(value, bool) else "give True or False."


def flag_or_none(value: Any) -> str | None:
    """True or False, for an option that may also be None."""
    return None if isinstance(value, bool) else "give True, False or None."


def text(value: Any) -> str | None:
    """Text."""
    return None if isinstance(value, str) else "give text."


def fraction(value: Any) -> str | None:
    """A number from 0 to 1."""
    try:
        ok = not isinstance(value, (bool, str)) and 0 <= float(value) <= 1
    except (TypeError, ValueError, OverflowError):
        ok = False
    return None if ok else "give a number from 0 to 1."


def is_text(value: Any) -> bool:
    """Text that a file can hold: not one with lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def class_names(names: Any) -> str | None:
    """All class names of a column, each once."""
    if isinstance(names, (str, bytes, Set, Mapping)) or not isinstance(names, Collection):
        return "give a list of class names."
    if not len(names):
        return "give at least one name."
    for name in names:
        if not (is_text(name) or is_whole(name)):
            return f"{name!r} is not a class name; give text or integers."
    twice = [name for name, count in Counter(map(str, names)).items() if count > 1]
    return f"{twice[0]!r} appears more than once." if twice else None


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


def name_of_dtype(dtype: Any) -> Any:
    """The name of a dtype such as tf.float32."""
    return getattr(dtype, "name", dtype)


def nearest(
    name: str,
    options: Collection[str],
    shown: Callable[[str], str] = str,
) -> str | None:
    """The options that a wrong name probably means: those with it as a word, or the nearest.

    Args:
        shown: an option in words.

    >>> nearest("shards", ["shard_size", "num_shards"]), nearest("sed", ["seed"])
    ('num_shards', 'seed')
    """
    near = [option for option in options if name in option.split("_")]
    near = near or difflib.get_close_matches(name, options, n=1)
    return " or ".join(map(shown, near)) or None


def did_you_mean(name: str, options: Collection[str]) -> str:
    """The end of a message about a wrong name: what it probably means, else all that there is.

    >>> did_you_mean("labels", ["label", "row"]), did_you_mean("age", ["label", "row"])
    ("did you mean 'label'?", "there is 'label', 'row'.")
    """
    near = nearest(name, options, repr)
    return f"did you mean {near}?" if near else f"there is {', '.join(map(repr, options))}."


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


def size_given(size: int) -> str:
    """A size in bytes as `parse_size` takes it, in as few letters as say it exactly.

    >>> size_given(134217728), size_given(1500), size_given(3 * 10**6)
    ('128MiB', '1500', '3MB')
    """
    for unit in ("GiB", "MiB", "KiB", "GB", "MB", "KB"):
        count, rest = divmod(size, _UNITS[unit.upper()])
        if count and not rest:
            return f"{count}{unit}"
    return str(size)


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


def option(
    default: Any,
    check: Check = flag,
    help: str = "",
    **more: Any,
) -> Any:
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


def content_option(
    default: Any,
    check: Check = flag,
    help: str = "",
    **more: Any,
) -> Any:
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


class Face:
    """Who speaks to the user: this one is Python."""

    def spelled(
        self,
        name: str,
        value: Any,
        python: str,
    ) -> str:
        """As the function `spelled`."""
        return f"`{python or _argument(name, value)}`"

    def called(
        self,
        name: str,
        path: str,
    ) -> str:
        """A function with a path, to be copied; it is a command too."""
        return f"`tfrecorder.{name}({path!r})`"

    def removal(
        self,
        path: str,
        where: Mapping[str, Any],
    ) -> str:
        """What says which rows `remove` would remove, to be copied."""
        return f"`tfrecorder.remove({path!r}, {where!r}, dry_run=True)`"

    def ran(self, code: str) -> str:
        """Python code, to be copied, that shows a value."""
        return f"`{code}`"


_FACE: ContextVar[Face] = ContextVar("face", default=Face())  # noqa: B039  (it never changes)


@contextlib.contextmanager
def spoken_by(face: Face) -> Iterator[None]:
    """A block, with the threads that it starts, whose messages are for the users of a face."""
    before = _FACE.set(face)
    try:
        yield
    finally:
        _FACE.reset(before)


def speaker() -> Face:
    """The face that speaks here."""
    return _FACE.get()


def spelled(
    name: str,
    value: Any = ...,
    python: str = "",
) -> str:
    """An option in a message, as its reader gives it.

    Args:
        value: left out where only the option is named.
        python: what Python has instead, if only the command line has this option.

    >>> spelled("overwrite", True), spelled("num_shards")
    ('`overwrite=True`', '`num_shards`')
    """
    return speaker().spelled(name, value, python)


def _argument(name: str, value: Any) -> str:
    if value is ...:
        return name
    shown = repr(value)
    if "\n" in shown:  # a frame, given for another argument
        shown = f"a {type(value).__name__}"
    return f"{name}={shown}"

"""How a message names an option: as Python takes it, or as the command line does.

A message is written once, for both: `f"give {spelled('overwrite', True)}."`.  It is right from the
start, and nobody looks into it again.  Worker processes speak as their launcher does.  What stays
with a dataset (notes, reasons of rejects) may be read by either, and names no option.  A message
that Python alone says, such as one of readers, has its code as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any


class Face:
    """Who speaks to the user: this one is Python."""

    def spelled(self, name: str, value: Any, python: str) -> str:
        """As the function `spelled`."""
        return f"`{python or _argument(name, value)}`"

    def called(self, name: str, path: str) -> str:
        """A function with a path, to be copied; it is a command too."""
        return f"`tfrecorder.{name}({path!r})`"


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


def spelled(name: str, value: Any = ..., python: str = "") -> str:
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

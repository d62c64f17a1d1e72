"""What tools see of a function that takes options by name: its signature and its help.

Each option is written once, as a field of a frozen dataclass.  `inspect.signature`, `help` and the
completion of notebooks get it from there; type checkers get it from `keywords.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_WIDTH = 100


def takes(*classes: type, without: Container[str] = ()) -> Callable[[F], F]:
    """Show the options of a function that has `**options`.

    Args:
        classes: of options, each a dataclass whose fields `option` made.
        without: the names of options that it does not take.

    Returns:
        A decorator.  The function's signature names each option with its type and default, and in
        its docstring they stand in place of the paragraph on `**options`.
    """

    def shown(function: F) -> F:
        options = {item.name: item for cls in classes for item in taken(cls, without)}
        types = {name: kind for cls in classes for name, kind in typing.get_type_hints(cls).items()}
        signature = inspect.signature(function)
        own = list(signature.parameters.values())[:-1]
        named = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=item.default, annotation=types[name]
            )
            for name, item in options.items()
            if name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        function.__doc__ = _with_options(function.__doc__ or "", options.values())
        return function

    return shown


def taken(cls: type, without: Container[str] = ()) -> Iterator[dataclasses.Field[Any]]:
    """The options of a class that Python takes: not those that only a command line has.

    Its own come first, then those that it shares with other classes.
    """
    items = {item.name: item for item in dataclasses.fields(cls)}
    names = (name for base in cls.__mro__ for name in vars(base).get("__annotations__", ()))
    for item in (items.pop(name) for name in names if name in items):
        if item.name not in without and not item.metadata.get("shell"):
            yield item


def _with_options(doc: str, options: Iterable[dataclasses.Field[Any]]) -> str:
    """A docstring with a paragraph on each option, in place of that on `**options`."""
    mark = re.search(r"^( *)\*\*options:.*\n(\1 +.*\n)*", doc, re.MULTILINE)
    if mark is None:
        return doc
    indent = mark[1]
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")
    texts = [f"{item.name}: {item.metadata['help']}" for item in options]
    shown = "".join(f"{wrap.fill(text)}\n" for text in texts)
    return doc[: mark.start()] + shown + doc[mark.end() :]

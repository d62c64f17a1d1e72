"""What the options of every call share: they are checked when they are made, and made by name.

What tools see of a function that takes them, its signature and its help, comes from there too.
Each option is written once, as a field of a frozen dataclass: its default, its check, its help.
Which of them a call takes, and of what types, stands in `keywords.py`, where type checkers see it.
From both, `inspect.signature`, `help` and the completion of notebooks get what they show.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import operator
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar, cast

from tfrecorder.core.option import Check, Fault, faults_of, idle_options, is_whole, nearest, spelled
from tfrecorder.errors import OptionError

Self = TypeVar("Self", bound="Options")

F = TypeVar("F", bound=Callable[..., Any])

_WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a call, each a field that `option` made.

    Raises:
        OptionError: a value has the wrong type or is out of range, or two do not fit together.
    """

    def __post_init__(self) -> None:
        refuse(self, itertools.chain(faults_of(self), self._conflicts()))

    def _conflicts(self) -> Iterator[Fault]:
        """What is wrong with several options together; each of them alone is right."""
        return iter(())

    @classmethod
    def of(
        cls: type[Self],
        given: Mapping[str, Any],
        unfit: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Options by name; a misspelt name is an OptionError that suggests the nearest.

        Args:
            unfit: names of options that do not apply here, each with what to do instead.
        """
        for name in given:
            if name in unfit:
                raise OptionError.of(name, given[name], f"{unfit[name]}.")
        refuse_unknown(given, names_of(cls))
        options = cls(**given)
        refuse(options, idle_options(options, given))
        return options

    def updated(self: Self, given: Mapping[str, Any]) -> Self:
        """These options, with others by name."""
        return dataclasses.replace(self, **given)

    @classmethod
    def out_of(cls: type[Self], given: dict[str, Any]) -> Self:
        """As `of`, by those of the given options that are its own, which it takes out."""
        return cls.of({name: given.pop(name) for name in names_of(cls) if name in given})


def refuse(options: Any, faults: Iterator[Fault]) -> None:
    """Raise the first of these faults as an OptionError."""
    for name, remedy in faults:
        raise OptionError.of(name, getattr(options, name), remedy)


def require(check: Check, **named: Any) -> None:
    """Raise an OptionError for the first of these arguments whose value is wrong."""
    for name, value in named.items():
        if remedy := check(value):
            raise OptionError.of(name, value, remedy)


def names_of(cls: type) -> list[str]:
    """The names of a class's options."""
    return [item.name for item in dataclasses.fields(cls)]


def refuse_unknown(given: Iterable[str], names: Sequence[str]) -> None:
    """Raise an OptionError, with the nearest name, if an option is none of these names."""
    for name in given:
        if name not in names:
            near = nearest(name, names, spelled)
            hint = f"did you mean {near}?" if near else f"the options are {', '.join(names)}."
            raise OptionError(f"there is no option {name!r}; {hint}")


def takes(keywords: type, *classes: type) -> Callable[[F], F]:
    """Show the options of a function, or of a class, that has `**options`.

    Args:
        keywords: their names and types, a TypedDict.
        classes: dataclasses of which they are fields, which `option` made.

    Returns:
        A decorator.  The signature names each option with its type and default, and in the
        docstring they stand in place of the paragraph on `**options`.  A function refuses the
        options that only the command line has, which calls the one that is decorated (`in_shell`).
    """
    types = typing.get_type_hints(keywords)
    fields = {item.name: item for cls in classes for item in dataclasses.fields(cls)}
    # A call's own options come first, then those that it shares with others.
    bases = (base for cls in classes for base in cls.__mro__)
    by_base = (name for base in bases for name in vars(base).get("__annotations__", ()))
    names = dict.fromkeys(name for name in by_base if name in types)
    in_python = {name: of for name, item in fields.items() if (of := item.metadata.get("shell"))}

    def shown(function: F) -> F:
        signature = inspect.signature(function)
        own = list(signature.parameters.values())[:-1]
        kind = inspect.Parameter.KEYWORD_ONLY
        named = [
            inspect.Parameter(name, kind, default=fields[name].default, annotation=types[name])
            for name in names
        ]
        written_out = [name for name in signature.parameters if name in fields]
        texts = {name: fields[name].metadata["help"] for name in (*written_out, *names)}
        function.__doc__ = _with_options(function.__doc__ or "", texts)

        optional = [param.name for param in (*own, *named) if param.default is not param.empty]

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name, value in given.items():
                if name in in_python:
                    raise OptionError.of(name, value, f"{in_python[name]}.")
                if name in fields or name in signature.parameters:
                    continue
                near = nearest(name, (*in_python, *optional))
                if near in in_python:
                    hint = f"did you mean {near}? Only the command line has it; {in_python[near]}."
                    raise OptionError(f"there is no option {name!r}; {hint}")
                refuse_unknown([name], optional)
            return function(*args, **given)

        shown_one: Any = call if in_python else function
        shown_one.__signature__ = signature.replace(parameters=[*own, *named])
        return cast("F", shown_one)

    return shown


def in_shell(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that also takes the options that only the command line has."""
    return getattr(function, "__wrapped__", function)


def _with_options(doc: str, texts: Mapping[str, str]) -> str:
    """A docstring with a paragraph on each option, in place of that on `**options`."""
    mark = re.search(r"^( *)\*\*options:.*\n(\1 +.*\n)*", doc, re.MULTILINE)
    if mark is None:
        return doc
    indent = mark[1]
    wrap = textwrap.TextWrapper(_WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")
    shown = "".join(f"{wrap.fill(f'{name}: {text}')}\n" for name, text in texts.items())
    return doc[: mark.start()] + shown + doc[mark.end() :]


def check_image_size(value: Any) -> str | None:
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) == 2 and all(is_whole(side) and side >= 1 for side in pair):
        return None
    example = spelled("image_size", (192, 256))
    return f"give height and width in pixels, such as {example}, or one number for both."


def sides(value: int | Sequence[int]) -> tuple[int, int]:
    """Height and width, as Python's integers.

    >>> sides(224), sides([192, 256])
    ((224, 224), (192, 256))
    """
    height, width = value if isinstance(value, Sequence) else (value, value)
    return operator.index(height), operator.index(width)

"""What the options of every call share: they are checked when they are made, and made by name."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from tfrecorder.core.checks import Check, nearest
from tfrecorder.core.option import Fault, faults_of, idle_options
from tfrecorder.errors import OptionError

Self = TypeVar("Self", bound="Options")


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
        cls: type[Self], given: Mapping[str, Any], unfit: Mapping[str, str] = MappingProxyType({})
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


def refuse(options: Any, faults: Iterator[Fault]) -> None:
    """Raise the first of these faults as an OptionError."""
    for name, remedy in faults:
        raise OptionError.of(name, None if name is None else getattr(options, name), remedy)


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
            near = nearest(name, names, "`")
            hint = f"did you mean {near}?" if near else f"the options are {', '.join(names)}."
            raise OptionError(f"there is no option {name!r}; {hint}")

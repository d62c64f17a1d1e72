"""What messages need: a warning at the user's line, and commands and options as a shell takes them.

`Shell` is here and not in `cli/`, because a worker spells options as its launcher does, on machines
where the packages of the command line are not installed.
"""

from __future__ import annotations

import inspect
import os
import shlex
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tfrecorder.core.option import Face

#: Options that are typed once for each of their values.
_REPEATED = ("--column", "--feature", "--runner-option", "--source-option")

#: What stands between the values of the other options; of most, a comma.
_BETWEEN = {"--image-size": "x", "--part": "/"}

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


def warn(message: str) -> None:
    """A UserWarning at the nearest line that is not of this package; nothing of an empty text."""
    if not message:
        return
    # The standard library's own way, `skip_file_prefixes`, is of Python 3.12.
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        level = level + 1
    warnings.warn(message, stacklevel=level)


def command(name: str, *arguments: str) -> str:
    """A command of ours with its arguments, quoted where a shell needs it.

    >>> command("verify", "my data"), command("repair", "gs://bucket/out")
    ("tfrecorder verify 'my data'", 'tfrecorder repair gs://bucket/out')
    """
    return shlex.join(["tfrecorder", name, *arguments])


@dataclass(frozen=True)
class Shell(Face):
    """The command line.

    Attributes:
        flags: each option's flag, by its name in Python; for an argument, its name in capitals.

    >>> Shell({"splits": "--splits"}).spelled("splits", {"TRAIN": 70.0, "TEST": 30.0}, "")
    '--splits TRAIN=70,TEST=30'
    >>> Shell({}).spelled("map_fn", ..., "")
    '`map_fn`'
    """

    flags: Mapping[str, str]

    def spelled(
        self,
        name: str,
        value: Any,
        python: str,
    ) -> str:
        flag = self.flags.get(name)
        return super().spelled(name, value, python) if flag is None else typed(flag, value)

    def called(
        self,
        name: str,
        path: str,
    ) -> str:
        return f"`{command(name, path)}`"

    def removal(
        self,
        path: str,
        where: Mapping[str, Any],
    ) -> str:
        return f"`{command('remove', path)} {typed('CONDITION', where)} --dry-run`"

    def ran(self, code: str) -> str:
        return f"`{shlex.join(['python', '-c', f'import tfrecorder; print({code})'])}`"


def typed(flag: str, value: Any) -> str:
    """An option with its value, as typed.

    >>> typed("--shuffle", False), typed("--splits", {"TRAIN": 0.5, "TEST": 0.5})
    ('--no-shuffle', '--splits TRAIN=0.5,TEST=0.5')
    """
    if value is ...:
        return flag
    if flag == "CONDITION":
        return " ".join(_conditions(value))
    if flag == "--overwrite" and isinstance(value, str):
        return f"{flag}-{value}"
    if isinstance(value, bool):
        return flag if value else flag.replace("--", "--no-", 1)
    if isinstance(value, dict):
        value = [f"{name}={_number(item)}" for name, item in value.items()]
    if isinstance(value, (tuple, list)):
        texts = list(map(str, value))
        if flag in _REPEATED:
            return " ".join(f"{flag} {shlex.quote(item)}" for item in texts)
        return f"{flag} {_BETWEEN.get(flag, ',').join(texts)}"
    if isinstance(value, str) and value.replace("\t", "").isprintable():
        return f"{flag} {shlex.quote(value)}".replace("\t", r"\t")
    return f"{flag} {value!r}"


def _conditions(where: Mapping[str, Any]) -> Iterator[str]:
    """Conditions on columns, as typed.

    >>> [*_conditions({"label": ["cat", "dog"], "age": ("18", None)})]
    ['label=cat', 'label=dog', 'age=18..']
    """
    for column, values in where.items():
        if isinstance(values, tuple):
            values = ["..".join("" if end is None else end for end in values)]
        for value in values:
            yield shlex.quote(f"{column}={value}")


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

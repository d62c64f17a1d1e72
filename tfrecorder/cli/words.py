"""The library's messages, in the words of the command line.

The library writes options as Python does: `num_shards=0`, "give overwrite=True".  On a command line
they are `--num-shards 0` and `--overwrite`.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from typing import Any

from tfrecorder.display.commands import command

#: A value as `repr` writes it, or "…" in its place.
_VALUE = (
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\{[^{}]*\}|\([^()]*\)|\[[^\[\]]*\]|…"
    r"|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|True|False|None|nan|-?inf"
)
#: What may surround an option's name, but not a name inside a path or a quoted value.
_BEFORE, _AFTER = r"(?<![\w/.'\"=-])", r"(?![\w/'\"=]|\.\w)"

#: Calls of functions that are also commands.
_CALL = re.compile(rf"\btfrecorder\.(validate|stage|work|commit)\(((?:{_VALUE}|[A-Z]+|, )*)\)")
_ARGUMENT = re.compile(rf"{_VALUE}|[A-Z]+")

#: Python's forms of values in the library's remedies.
_PHRASES = {
    "(height, width), such as (224, 224)": "HEIGHTxWIDTH, such as 224x224",
    "{'TRAIN': 0.7, 'VALIDATION': 0.3}": "TRAIN=0.7,VALIDATION=0.3",
}


def shell_words(text: str, flags: Mapping[str, str]) -> str:
    """A message of the library, with options as the command line spells them.

    Args:
        flags: each option's flag, by its name in Python; for an argument, its name in capitals.

    >>> flags = {"num_shards": "--num-shards", "splits": "--splits", "overwrite": "--overwrite"}
    >>> shell_words("splits={'TRAIN': 70.0, 'TEST': 30.0}: give overwrite=True.", flags)
    '--splits TRAIN=70,TEST=30: give --overwrite.'
    >>> shell_words("Try again, or give num_shards.", flags)
    'Try again, or give --num-shards.'
    """
    for python, shell in _PHRASES.items():
        text = text.replace(python, shell)
    text = _CALL.sub(lambda call: f"`{command(call[1], *_arguments(call[2]))}`", text)
    names = "|".join(sorted(flags, key=len, reverse=True))
    text = re.sub(
        rf"{_BEFORE}({names})=({_VALUE})(?![\w/])",
        lambda found: _shown(flags[found[1]], found[2]),
        text,
    )
    # One of several options, such as runner_options['machine_type']='n1-standard-4'.
    text = re.sub(
        rf"{_BEFORE}({names})\['(\w+)'\](?:=({_VALUE}))?(?![\w/])",
        lambda found: typed(flags[found[1]], {found[2]: _unquoted(found[3])}),
        text,
    )
    # A name alone may be an English word: replace it if it has an underscore or begins the message.
    text = re.sub(rf"^({names})(?=:| is | and )", lambda found: flags[found[1]], text)
    several = "|".join(name for name in flags if "_" in name) or "(?!)"
    return re.sub(rf"{_BEFORE}({several}){_AFTER}", lambda found: flags[found[1]], text)


def _arguments(given: str) -> list[str]:
    """The arguments of a call, as a command takes them.

    >>> _arguments("SOURCE, 'my, data'")
    ['SOURCE', 'my, data']
    """
    return [ast.literal_eval(one) if one[0] in "'\"" else one for one in _ARGUMENT.findall(given)]


def typed(flag: str, value: Any) -> str:
    """An option with its value, as typed.

    >>> typed("--shuffle", False), typed("--splits", {"TRAIN": 0.5, "TEST": 0.5})
    ('--no-shuffle', '--splits TRAIN=0.5,TEST=0.5')
    """
    if value is True:
        return flag
    if value is False:
        return flag.replace("--", "--no-", 1)
    if isinstance(value, str) and value.replace("\t", "").isprintable():
        return f"{flag} {shlex.quote(value)}".replace("\t", r"\t")
    if isinstance(value, dict) and value and flag in ("--column", "--runner-option"):
        return " ".join(f"{flag} {shlex.quote(f'{name}={one}')}" for name, one in value.items())
    if isinstance(value, dict):
        return f"{flag} " + ",".join(f"{name}={_number(one)}" for name, one in value.items())
    if isinstance(value, (tuple, list)) and flag == "--label":
        return " ".join(f"{flag} {shlex.quote(str(one))}" for one in value)
    if isinstance(value, (tuple, list)):
        return f"{flag} " + ("," if flag == "--strict" else "x").join(map(str, value))
    return f"{flag} {value!r}"


def _shown(flag: str, text: str) -> str:
    """An option whose value a message shows as Python does, or as "…"."""
    if text == "…":
        return flag
    try:
        return typed(flag, ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return f"{flag} {text}"


def _unquoted(value: str | None) -> str:
    return "…" if value is None else value.strip("'\"")


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def one_line(text: str) -> str:
    r"""A message that has a list on separate lines, as a single line.

    >>> one_line("cannot be read:\n  a: empty\n  b: empty\nNothing was written.")
    'cannot be read: a: empty; b: empty. Nothing was written.'
    """
    joined, *rest = text.splitlines() or [""]
    in_list = False
    for line in rest:
        is_item = line.startswith(" ")
        if line.startswith("- "):  # of several faults, each with its remedy, each has its line
            joined += "\n"
        elif is_item:
            joined += "; " if in_list else " "
        else:
            joined += " " if joined.endswith((".", ":", ";")) or not in_list else ". "
        joined, in_list = joined + line.strip(), is_item
    return joined

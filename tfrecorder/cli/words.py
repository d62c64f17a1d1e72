"""The library's messages, in the words of the command line.

A message puts what it says of code between backticks, as Python: "give `overwrite=True`".  On a
command line that is `--overwrite`.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Container, Iterator, Mapping
from typing import Any

from tfrecorder.display.commands import command

#: How many backticks are looked at for the end of one piece of code, whose texts may hold some.
_BACKTICKS = 8

#: Options that are typed once for each of their values.
_REPEATED = ("--column", "--runner-option", "--source-option")

#: What stands between the values of the other options; of most, a comma.
_BETWEEN = {"--image-size": "x", "--part": "/"}

#: Commands that do not have the name of their function.
_COMMANDS = {"infer_schema": "schema"}


def shell_words(text: str, flags: Mapping[str, str], commands: Container[str] = ()) -> str:
    """A message of the library, with options and calls as the command line spells them.

    Args:
        flags: each option's flag, by its name in Python; for an argument, its name in capitals.
        commands: the functions of the package that are commands too.

    >>> flags = {"num_shards": "--num-shards", "splits": "--splits", "overwrite": "--overwrite"}
    >>> shell_words("`splits={'TRAIN': 70.0, 'TEST': 30.0}`: give `overwrite=True`.", flags)
    '--splits TRAIN=70,TEST=30: give --overwrite.'
    >>> shell_words("Give `num_shards`, or see `tfrecorder.info('a`b')`.", flags, {"info"})
    "Give --num-shards, or see `tfrecorder info 'a`b'`."
    >>> shell_words("Begin with `tfrecorder.parts.stage(SOURCE, 'out')`.", flags, {"stage"})
    'Begin with `tfrecorder stage SOURCE out`.'
    >>> flags = {"against": "--against"}
    >>> shell_words("See `tfrecorder.validate('a.csv', against='out')`.", flags, {"validate"})
    'See `tfrecorder validate a.csv --against out`.'
    """
    shown, *pieces = text.split("`")
    while pieces:
        begins_word = not shown[-1:].strip(" (\n")  # not inside of a path
        for end in range(1, min(len(pieces), _BACKTICKS) if begins_word else 1):
            typed_code = _typed_code("`".join(pieces[:end]), flags, commands)
            if typed_code is not None:
                shown, pieces = shown + typed_code + pieces[end], pieces[end + 1 :]
                break
        else:
            shown, pieces = f"{shown}`{pieces[0]}", pieces[1:]
    return shown


def _typed_code(code: str, flags: Mapping[str, str], commands: Container[str]) -> str | None:
    """An option or a call as typed; None for what is neither.

    >>> _typed_code("pandas.read_csv('a.csv', sep=';')", {"sep": "--sep"}, ())
    "--sep ';'"
    """
    value: Any = ...
    try:
        match ast.parse(code.removesuffix("=…")).body:
            case [ast.Assign([target], given)]:
                value = ast.literal_eval(given)
            case [ast.Expr(target)]:
                pass
            case _:
                return None
        match target:
            case ast.Name(name) if name in flags:
                return typed(flags[name], value)
            case ast.Attribute(module, name) if (
                _is_ours(module) and (run := _COMMANDS.get(name, name)) in commands
            ):
                return f"`{command(run)}`"
            case ast.Call(ast.Attribute(module, name), values, named):
                more = [typed(flags[str(item.arg)], ast.literal_eval(item.value)) for item in named]
                if not _is_ours(module):  # what Python does by another library is an option here
                    return " ".join(more) or None
                if name in commands:
                    return f"`{' '.join([command(name, *map(_argument, values)), *more])}`"
    except (KeyError, SyntaxError, ValueError):
        pass  # some other text between backticks
    return None


def _is_ours(module: ast.expr) -> bool:
    return ast.unparse(module) in ("tfrecorder", "tfrecorder.parts")


def _argument(value: ast.expr) -> str:
    """An argument of a call: a text, or a name in capitals for one that the user fills in."""
    return value.id if isinstance(value, ast.Name) else str(ast.literal_eval(value))


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

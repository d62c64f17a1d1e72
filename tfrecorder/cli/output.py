"""What every command prints, and how: results as text or JSON, errors and warnings in colour."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from typing import Any

import click

from tfrecorder.cli.words import one_line, shell_words, typed
from tfrecorder.errors import OptionError, TfrecorderError

_COLOURS = {"error": "red", "warning": "yellow"}

#: The key of a context's `meta` under which `--quiet` is kept.
_QUIET = "tfrecorder.quiet"


def in_shell_words(words: str) -> str:
    """A message of the library, with options spelled as on the command line."""
    try:
        return shell_words(words, flags(), _commands())
    except (MemoryError, SystemError):  # no memory left to parse it
        return words


def _commands() -> dict[str, click.Command]:
    """All commands by name, the one that runs first."""
    root = click.get_current_context().find_root()
    commands = root.command.commands if isinstance(root.command, click.Group) else {}
    return dict(sorted(commands.items(), key=lambda item: item[0] != root.invoked_subcommand))


def flags() -> dict[str, str]:
    """How the option of each name is typed, in any command; arguments in capitals."""
    typed_as: dict[str, str] = {}
    for param in (param for command in _commands().values() for param in command.params):
        name = param.name or ""
        argument = (param.metavar or name.upper()).strip("[].")
        typed_as.setdefault(name, param.opts[0] if isinstance(param, click.Option) else argument)
    return typed_as


def error_in_shell_words(error: TfrecorderError | str) -> str:
    """An error in one line, or one a fault; options that are wrong, and their values, as typed."""
    if not isinstance(error, OptionError):
        return in_shell_words(one_line(str(error)))
    words, *faults = error.args
    shown = in_shell_words(one_line(words))
    if flag := flags().get(error.name or ""):
        shown = f"{typed(flag, error.value)}: {in_shell_words(one_line(error.remedy))}"
    return "\n- ".join([shown, *map(error_in_shell_words, faults)])


def coloured(words: str) -> str:
    """The same words, with `error:` and `warning:` at the start of a line in colour.

    click drops the colour if the output is not a terminal; NO_COLOR drops it everywhere
    (https://no-color.org).
    """
    if os.environ.get("NO_COLOR"):
        return words
    return re.sub(
        rf"^({'|'.join(_COLOURS)}):",
        lambda match: click.style(match[0], fg=_COLOURS[match[1]], bold=True),
        words,
        flags=re.MULTILINE,
    )


def image_size(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """ "224" as a number, "224x320" as height and width, "none" as None."""
    if value is None or value.lower() == "none":
        return None
    sides = value.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() for side in sides):
        raise click.BadParameter(f"{value!r}; write, for example, 224, 224x320 or none.")
    return int(value) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def complain(kind: str, words: object) -> None:
    """One `error:` or `warning:` on standard error."""
    click.echo(coloured(f"{kind}: {words}"), err=True)


def _be_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from tfrecorder.display.bars import instead_of_the_log

        ctx.meta[_QUIET] = True
        ctx.with_resource(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        ctx.with_resource(instead_of_the_log())


quiet_option = click.option(
    "--quiet",
    "-q",
    is_flag=True,
    is_eager=True,  # before the callbacks of other options ask for it
    expose_value=False,
    callback=_be_quiet,
    help="Print only errors: no result as text, no warnings, no bar.",
)


def is_quiet() -> bool:
    """True if the current command has `--quiet`."""
    return bool(click.get_current_context().meta.get(_QUIET))


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, for programs."
)


def result_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json` and `--quiet`."""
    return json_option(quiet_option(command))


def show(result: Any, as_json: bool = False, is_error: bool = False) -> None:
    """Print a result: as JSON if asked for, else as text unless `--quiet` is given.

    Args:
        result: a value with `as_dict`; if JSON is asked for, it may be that dict itself.
        is_error: it reports an error, so `--quiet` prints it too.
    """
    if as_json:
        values = result if isinstance(result, dict) else result.as_dict()
        click.echo(json.dumps(values, indent=2))
    elif is_error or not is_quiet():
        click.echo(coloured(in_shell_words(str(result))))


def refuse_both(as_json: bool, as_csv: bool) -> None:
    """Raise a usage error if both forms are asked for."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be combined.")

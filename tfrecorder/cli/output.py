"""What every command prints, and how: results as text or JSON, errors and warnings in colour.

A message names options as the command line spells them, and stands in one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import click

_COLOURS = {"error": "red", "warning": "yellow"}

#: The key of a context's `meta` under which `--quiet` is kept.
_QUIET = "tfrecorder.quiet"

#: What TensorFlow is told about its log by, in the environment.
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


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
        joined += line.strip()
        in_list = is_item
    return joined


def flags() -> dict[str, str]:
    """How the option of each name is typed, by the command that runs, else by any other.

    Arguments are in capitals.
    """
    root = click.get_current_context().find_root()
    every = root.command.commands if isinstance(root.command, click.Group) else {}
    names = sorted(every, key=lambda name: name != root.invoked_subcommand)
    typed_as: dict[str, str] = {}
    for one in [*map(every.__getitem__, names), root.command]:
        for param in one.params:
            name = param.name or ""
            flag = param.opts[0]
            if isinstance(param, click.Argument):
                flag = (param.metavar or name.upper()).strip("[].")
            typed_as.setdefault(name, flag)
    return typed_as


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


def image_size(
    ctx: click.Context,
    param: click.Parameter,
    value: str | None,
) -> Any:
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


def _be_quiet(
    ctx: click.Context,
    param: click.Parameter,
    value: bool,
) -> None:
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
    "--json",
    "as_json",
    is_flag=True,
    help="Print the result as JSON, for programs.",
)


def result_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json` and `--quiet`."""
    return json_option(quiet_option(command))


def show(
    result: Any,
    as_json: bool = False,
    is_error: bool = False,
) -> None:
    """Print a result: as JSON if asked for, else as text unless `--quiet` is given.

    Args:
        result: a value with `as_dict`; if JSON is asked for, it may be that dict itself.
        is_error: it reports an error, so `--quiet` prints it too.
    """
    if as_json:
        values = result if isinstance(result, dict) else result.as_dict()
        click.echo(json.dumps(values, indent=2))
    elif is_error or not is_quiet():
        click.echo(coloured(str(result)))


def refuse_both(as_json: bool, as_csv: bool) -> None:
    """Raise a usage error if both forms are asked for."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv cannot be combined.")


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """A block that imports TensorFlow and hides what its libraries print meanwhile.

    These lines (oneDNN, missing drivers, the processor's features) go straight to standard error,
    bypassing Python, and those written before its log is set up ignore TF_CPP_MIN_LOG_LEVEL.  They
    are shown if that variable is set, or if the import fails.

    Only for the command line: it changes standard error of the whole process.
    """
    if os.environ.get(_LOG_LEVEL) is not None or "tensorflow" in sys.modules or sys.stderr is None:
        yield
        return
    os.environ[_LOG_LEVEL] = "3"  # for what comes later, such as the search for a GPU
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as lines:
        os.dup2(lines.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            lines.seek(0)
            os.write(2, lines.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)

"""The command line: all commands, and how their errors are shown."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import click

from tfrecorder.cli.change import append, compact, remove, stream, undo, update
from tfrecorder.cli.convert import commit, convert, schema, stage, status, validate, work
from tfrecorder.cli.look import (
    benchmark,
    cache,
    card,
    duplicates,
    export,
    history,
    info,
    inspect,
    preview,
)
from tfrecorder.cli.output import complain, flags, one_line
from tfrecorder.cli.process import ENDED_WITH, INTERRUPTED, listen_to_ctrl_c
from tfrecorder.cli.verify import repair, verify
from tfrecorder.core.option import nearest, spoken_by
from tfrecorder.display.messages import Shell
from tfrecorder.errors import (
    OptionError,
    TfrecorderError,
    ValidationError,
    limits_explained,
    missing_explained,
)
from tfrecorder.version import __version__

#: All commands, in the order in which one needs them.
_SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Start": (schema, validate, convert, preview, info),
    "Look and check": (inspect, duplicates, history, verify, repair, status, benchmark, cache),
    "Change": (append, update, remove, compact, undo, stream),
    "Give away": (card, export),
    "Many machines": (stage, work, commit),
}


class _Failure(click.ClickException):
    """An error as we print it."""

    def show(self, file: Any = None) -> None:
        complain("error", self.format_message())


class _UsageError(_Failure):
    """A wrong argument or option, in one line; Click would print four."""

    exit_code = 2


class _Group(click.Group):
    """Turns the errors that users may meet into one clear message and an exit code."""

    def main(
        self,
        *args: Any,
        **extra: Any,
    ) -> Any:
        """As Click's, with one line where standard output cannot be written.

        Letters that it cannot encode are escaped: a finished command must not end in an error.
        """
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().main(*args, **extra)
        except OSError as error:
            calls = traceback.walk_tb(error.__traceback__)
            if not any(frame.f_code is click.echo.__code__ for frame, _ in calls):
                raise
            # What is left of the output is not tried again as the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            complain("error", f"standard output cannot be written: {error.strerror or error}.")
            sys.exit(1)

    def parse_args(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> list[str]:
        if not args and not ctx.resilient_parsing:  # as it is while a shell completes words
            click.echo(ctx.get_help())
            ctx.exit()
        with _in_one_line(ctx):
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one needs them, not in that of the alphabet."""
        return [*self.commands]

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        """As in Click, but summaries are never cut short."""
        for heading, commands in _SECTIONS.items():
            rows = [(one.name or "", one.get_short_help_str(1000)) for one in commands]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        ctx.with_resource(spoken_by(Shell(flags())))
        try:
            listen_to_ctrl_c()
            with (
                _warnings_in_one_line(),
                limits_explained(),
                missing_explained(),
                _in_one_line(ctx),
            ):
                return super().invoke(ctx)
        except ValidationError as error:
            words, report = error.args
            raise _Failure(f"{words}\n{report}") from error
        except TfrecorderError as error:
            failure = _UsageError if isinstance(error, OptionError) else _Failure
            raise failure(one_line(str(error))) from error
        except KeyboardInterrupt as error:
            click.echo(f"\n{str(error) or 'interrupted'}", err=True)
            ctx.exit(ctx.meta.get(ENDED_WITH, INTERRUPTED))


@contextlib.contextmanager
def _in_one_line(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else ctx.command_path
        words = " ".join(_with_hint(error).split())  # click lists choices on lines of their own
        stop = "" if words.endswith((".", "?")) else "."
        raise _UsageError(f"{words}{stop} See {command} --help.") from error


def _with_hint(error: click.UsageError) -> str:
    """Click's message, or for an unknown option the one that was probably meant."""
    name = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        names = [param.name or "" for param in error.ctx.command.params]
        near = nearest(name, names, shown=flags().__getitem__)
        hint = f" Did you mean {near}?" if near else ""
        return f"No such option {error.option_name!r}.{hint}"
    return error.format_message()


@contextlib.contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: complain("warning", one_line(str(message)))
        yield


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="tfrecorder")
def main() -> None:
    """A table or folder of images in, a training-ready TFRecord dataset out.

    \b
    tfrecorder validate photos.csv       every problem at once
    tfrecorder convert photos.csv out    write it; again to continue
    tfrecorder preview out               look at it
    """


for _commands in _SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)

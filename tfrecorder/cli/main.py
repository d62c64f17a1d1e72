"""The command line: `tfrecorder convert`, `tfrecorder validate`.

The options of `convert` are the fields of `ConvertOptions`, with their help texts.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import click

from tfrecorder.cli.convert import convert, schema, status, validate
from tfrecorder.cli.look import inspect, preview
from tfrecorder.cli.read import benchmark, info
from tfrecorder.cli.verify import repair, verify
from tfrecorder.errors import TfrecorderError, ValidationError, limits_explained
from tfrecorder.options.checks import RENAMED
from tfrecorder.process_limits import address_space_left
from tfrecorder.version import __version__

INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class _UsageError(click.ClickException):
    """A wrong argument in one line: Click's own form takes four."""

    exit_code = 2


class _Group(click.Group):
    """Turns the errors that a user can meet into one clear message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        warnings.showwarning = _show_warning
        _spare_address_space()
        try:
            with limits_explained():
                return super().invoke(ctx)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx else ctx.command_path
            words = f"{_renamed(error)} See {command} --help."
            raise _UsageError(words) from error
        except ValidationError as error:
            words = str(error).splitlines()[0]
            raise click.ClickException(f"{words}\n{error.report.as_text(shell=True)}") from error
        except TfrecorderError as error:
            words = " ".join(str(error).splitlines())
            raise click.ClickException(_with_flags(words)) from error
        except KeyboardInterrupt as error:
            click.echo(f"\n{str(error) or 'interrupted'}", err=True)
            ctx.exit(INTERRUPTED)


def _spare_address_space() -> None:
    """Under `ulimit -v`, keep Arrow's own pool from reserving a gigabyte that Beam needs."""
    if address_space_left() is not None:
        import pyarrow

        pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def _renamed(error: click.UsageError) -> str:
    """Click's words; or where an option has another name now, that name."""
    name = getattr(error, "option_name", "").lstrip("-").replace("-", "_")
    new = RENAMED.get(name)
    if new is None:
        return error.format_message()
    return f"--{name.replace('_', '-')} has another name now: give --{new}."


def _with_flags(words: str) -> str:
    """A message of the library with its options as the command line writes them."""
    words = re.sub(r"\btfrecorder\.validate\('([^']*)'\)", r"`tfrecorder validate \1`", words)
    return re.sub(r"\b([a-z_]+)=True\b", lambda m: "--" + m[1].replace("_", "-"), words)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {_with_flags(str(message))}", err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="tfrecorder")
def main() -> None:
    """A table or folder of images in, a training-ready TFRecord dataset out.

    \b
    tfrecorder schema flowers.csv
    tfrecorder validate flowers.csv
    tfrecorder convert flowers.csv out
    tfrecorder status out
    tfrecorder verify out
    tfrecorder repair out
    """


main.add_command(convert)
main.add_command(validate)
main.add_command(status)
main.add_command(verify)
main.add_command(repair)
main.add_command(info)
main.add_command(benchmark)
main.add_command(inspect)
main.add_command(preview)
main.add_command(schema)
